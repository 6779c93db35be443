"""The signature of an exported graph: what its inputs and outputs are in the module."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import Any, NamedTuple


class TensorArgument(NamedTuple):
    """A tensor, by the name of its node."""

    name: str


class ConstantArgument(NamedTuple):
    """A Python value that the program was exported with."""

    name: str
    value: Any


class InputKind(enum.Enum):
    """The source of an input's value."""

    USER_INPUT = enum.auto()
    PARAMETER = enum.auto()
    BUFFER = enum.auto()
    CONSTANT_TENSOR = enum.auto()


class OutputKind(enum.Enum):
    """The use of an output's value."""

    USER_OUTPUT = enum.auto()
    BUFFER_MUTATION = enum.auto()
    PARAMETER_MUTATION = enum.auto()
    USER_INPUT_MUTATION = enum.auto()


class InputSpec(NamedTuple):
    """One input: its node, and the parameter, buffer or constant it stands for."""

    kind: InputKind
    arg: TensorArgument | ConstantArgument
    target: str | None = None
    persistent: bool | None = None


class OutputSpec(NamedTuple):
    """One output: its node, and the buffer or input that takes its value."""

    kind: OutputKind
    arg: TensorArgument | ConstantArgument
    target: str | None = None


@dataclass
class ExportGraphSignature:
    """Which inputs of a graph are parameters, buffers, constants and the user's.

    >>> ep = weft.export.export(weft.nn.Linear(3, 2), (weft.ones(1, 3),))
    >>> ep.graph_signature.parameters
    ('weight', 'bias')
    >>> ep.graph_signature.user_inputs
    ('input_1',)
    """

    input_specs: list[InputSpec]
    output_specs: list[OutputSpec]

    def _inputs(self, kind: InputKind) -> list[InputSpec]:
        return [spec for spec in self.input_specs if spec.kind is kind]

    def _targets(self, kind: InputKind) -> tuple[str, ...]:
        return tuple(str(spec.target) for spec in self._inputs(kind))

    def _by_name(self, kind: InputKind) -> dict[str, str]:
        return {spec.arg.name: str(spec.target) for spec in self._inputs(kind)}

    def _changes(self, kind: OutputKind) -> dict[str, str]:
        return {
            spec.arg.name: str(spec.target)
            for spec in self.output_specs
            if spec.kind is kind
        }

    @property
    def parameters(self) -> tuple[str, ...]:
        """The names of the parameters."""
        return self._targets(InputKind.PARAMETER)

    @property
    def buffers(self) -> tuple[str, ...]:
        """The names of the buffers."""
        return self._targets(InputKind.BUFFER)

    @property
    def non_persistent_buffers(self) -> tuple[str, ...]:
        """The names of the buffers that are not in the state dictionary."""
        rows = self._inputs(InputKind.BUFFER)
        return tuple(str(spec.target) for spec in rows if spec.persistent is False)

    @property
    def lifted_tensor_constants(self) -> tuple[str, ...]:
        """The names of the tensors that are neither parameters nor buffers."""
        return self._targets(InputKind.CONSTANT_TENSOR)

    @property
    def user_inputs(self) -> tuple[Any, ...]:
        """The nodes of the user's tensors, and the Python values among them."""
        rows = (spec.arg for spec in self._inputs(InputKind.USER_INPUT))
        return tuple(map(_shown, rows))

    @property
    def user_outputs(self) -> tuple[Any, ...]:
        """The nodes of the results, and the Python values among them."""
        rows = (s for s in self.output_specs if s.kind is OutputKind.USER_OUTPUT)
        return tuple(_shown(spec.arg) for spec in rows)

    @property
    def inputs_to_parameters(self) -> dict[str, str]:
        """The parameters by their nodes."""
        return self._by_name(InputKind.PARAMETER)

    @property
    def inputs_to_buffers(self) -> dict[str, str]:
        """The buffers by their nodes."""
        return self._by_name(InputKind.BUFFER)

    @property
    def inputs_to_lifted_tensor_constants(self) -> dict[str, str]:
        """The constants by their nodes."""
        return self._by_name(InputKind.CONSTANT_TENSOR)

    @property
    def buffers_to_mutate(self) -> dict[str, str]:
        """The buffers that take new values, by the nodes of those."""
        return self._changes(OutputKind.BUFFER_MUTATION)

    @property
    def parameters_to_mutate(self) -> dict[str, str]:
        """The parameters that take new values, by the nodes of those."""
        return self._changes(OutputKind.PARAMETER_MUTATION)

    @property
    def user_inputs_to_mutate(self) -> dict[str, str]:
        """The user's inputs that take new values, by the nodes of those."""
        return self._changes(OutputKind.USER_INPUT_MUTATION)


def _shown(arg: TensorArgument | ConstantArgument) -> Any:
    return arg.value if isinstance(arg, ConstantArgument) else arg.name
