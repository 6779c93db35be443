"""A model of an ONNX file as a module: it runs, trains, compiles and is exported."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

import weft
from weft import nn
from weft.core.tensor import Tensor
from weft.errors import DTypeError, ShapeError, WeftError
from weft.onnx.errors import ModelError, library
from weft.onnx.known import KNOWN, small
from weft.onnx.operators import load_all
from weft.onnx.program import Preparer, Program, Step, domain_of
from weft.onnx.reading import array_of, model_of
from weft.onnx.registry import Operator
from weft.onnx.types import NUMBERS, TYPES, tensor

_SMALL = 1024  # whole numbers of a vector that belongs to the program's structure


def load(source: Any) -> Model:
    """The model of an ONNX file, its bytes or a ``ModelProto``, as a module.

    Its parameters are the initializers of floating point; others are buffers. Inputs
    are positional, in the order of the file, or keywords by their names.

    >>> import onnx
    >>> text = '''<ir_version: 8, opset_import: ["" : 17]>
    ... double (float[N] x) => (float[N] y) <float[1] two = {2}> { y = Mul(x, two) }'''
    >>> model = weft.onnx.load(onnx.parser.parse_model(text))
    >>> model(weft.tensor([1.0, 3.0])).tolist()
    [2.0, 6.0]
    >>> [name for name, _ in model.named_parameters()]
    ['two']
    """
    proto, folder = model_of(source)
    try:
        return Model(proto, folder)
    except WeftError:
        raise
    except _FAULTS as error:  # such as names that are no text
        raise ModelError(f"the model is broken: {error}") from error


class Model(nn.Module):
    """A model of an ONNX file."""

    def __init__(self, proto: Any, folder: str | None = None) -> None:
        super().__init__()
        load_all()
        prepare = Preparer(proto, folder)
        graph = proto.graph
        self._program = prepare.graph(graph, {}, prepare.opsets, {})
        if prepare.missing:
            lines = "\n  ".join(prepare.missing[:100])
            raise ModelError(
                f"the model has {len(prepare.missing)} operators that Weft does not "
                f"know:\n  {lines}"
            )
        self._inputs = {i.name: i.type for i in graph.input}
        self.input_names = [
            n for n in self._program.inputs if n not in self._program.state
        ]
        self.output_names = list(self._program.outputs)
        self._known: dict[str, np.ndarray] = {}
        self._places: dict[str, tuple[list[str], str]] = {}
        self._bodies: dict[Any, Program] = {}
        for key, one in prepare.initial.items():
            self._declare(key, array_of(one, folder), prepare.uses.get(key, []))

    # -- state

    def _declare(
        self, key: str, array: np.ndarray, uses: list[tuple[Operator, int]]
    ) -> None:
        static = bool(uses) and all(place in op.static for op, place in uses)
        whole = array.dtype.kind in "iub" and array.ndim <= 1 and array.size <= _SMALL
        narrow = array.dtype.itemsize < 4
        if array.dtype.kind == "U" or static or (whole and not narrow):
            self._known[key] = array
            return
        made = weft.from_numpy(array.copy())
        frozen = any(place in op.frozen for op, place in uses)
        path, leaf = self._place(key)
        owner = self._owner(path)
        if made.dtype.is_floating_point and made.dtype.itemsize > 1 and not frozen:
            owner.register_parameter(leaf, nn.Parameter(made))
        else:
            owner.register_buffer(leaf, made)
        self._places[key] = path, leaf

    def _place(self, key: str) -> tuple[list[str], str]:
        """The modules and the name for an initializer: those of its path, if free."""
        *path, leaf = key.split(".")
        owner: nn.Module = self
        if all(part.isidentifier() or part.isdigit() for part in (*path, leaf)):
            for part in path:
                inner = owner._modules.get(part)
                if inner is None:
                    if _taken(owner, part):
                        break
                    inner = nn.Module()
                    owner.add_module(part, inner)
                owner = inner
            else:
                if not _taken(owner, leaf):
                    return path, leaf
        plain = key.replace(".", "_") or "_"
        while _taken(self, plain):
            plain += "_"
        return [], plain

    def _value(self, key: str) -> Any:
        place = self._places.get(key)
        if place is None:
            return self._known[key]
        path, leaf = place
        return getattr(self._owner(path), leaf)

    def _owner(self, path: list[str]) -> nn.Module:
        found: nn.Module = self
        for part in path:
            found = getattr(found, part)
        return found

    # -- running

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """The model's results: one, or a tuple."""
        values = self.run(self._arguments(args, kwargs))
        return values[0] if len(values) == 1 else values

    def _arguments(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        names = self.input_names
        if len(args) > len(names):
            raise ModelError(f"expected the inputs {names}, got {len(args)} arguments")
        given = dict(zip(names, args, strict=False))
        for name, value in kwargs.items():
            if name not in self._inputs or name in given:
                raise ModelError(f"expected the inputs {names}, got {name!r}")
            given[name] = value
        for name in names:
            if name not in given:
                raise ModelError(f"the input {name!r} is missing; expected {names}")
        sizes: dict[str, Any] = {}
        return {
            name: _checked(name, value, self._inputs[name], sizes)
            for name, value in given.items()
        }

    def run(self, given: Mapping[str, Any]) -> tuple[Any, ...]:
        """The results for inputs by their names."""
        with _device_of(given):
            found = self.call(self._program, given, {})
        return tuple(_result(value) for value in found)

    def call(
        self, program: Program, given: Mapping[str, Any], outside: Mapping[str, Any]
    ) -> list[Any]:
        """Run a program on values by their names; ``outside`` has those around it."""
        env = dict(outside)
        for name, key in program.state.items():
            env[name] = self._value(key)
        env.update(given)
        for step in program.steps:
            values = [env.get(name) if name else None for name in step.inputs]
            try:
                results = self._results(program, step, values, env)
            except WeftError as error:
                note = f"in the ONNX node {step.label}"
                if note not in getattr(error, "__notes__", ()):
                    error.add_note(note)
                raise
            except _FAULTS as error:
                raise ModelError(
                    f"{step.label}: {error or type(error).__name__}"
                ) from error
            if any(step.outputs[len(results) :]):
                raise ModelError(
                    f"{step.label}: names {len(step.outputs)} results, and there are "
                    f"{len(results)}"
                )
            for name, value in zip(step.outputs, results, strict=False):
                if name:
                    env[name] = value
            for name in step.ends:
                env.pop(name, None)
        return [env[name] for name in program.outputs]

    def _results(
        self, program: Program, step: Step, values: list[Any], env: Mapping[str, Any]
    ) -> Sequence[Any]:
        op = step.operator
        if step.program is not None or step.schema is not None:
            body = step.program or self._defined(program, step, values)
            return self.call(body, dict(zip(body.inputs, values, strict=False)), {})
        fast = KNOWN.get(("", op.name))
        if fast and small(values) and step.attributes.keys() <= fast.attributes:
            found = fast.run(*values, **step.attributes)
            if found is not NotImplemented:
                return (found,)
        if not op.plain:
            static = op.static
            values = [
                tensor(v) if type(v) is np.ndarray and k not in static else v
                for k, v in enumerate(values)
            ]
        while values and values[-1] is None:
            values.pop()
        context = self._context(program, step, env) if op.context else {}
        found = op.run(*values, **step.attributes, **context)
        return found if type(found) is tuple else (found,)

    def _context(self, program: Program, step: Step, env: Any) -> dict[str, Any]:
        wanted = [k for k, name in enumerate(step.outputs) if name]
        every = {
            "opset": program.opsets.get(""),
            "outputs": wanted[-1] + 1 if wanted else 0,
            "outside": env,
            "model": self,
        }
        return {name: every[name] for name in step.operator.context}

    def _defined(self, program: Program, step: Step, values: Sequence[Any]) -> Program:
        """The program by which ONNX defines an operator for inputs of some types."""
        onnx = library()
        types = []
        for value in values:
            one = onnx.TypeProto()
            if value is not None:
                given = tensor(value)
                one.tensor_type.elem_type = NUMBERS[given.dtype]
                one.tensor_type.shape.SetInParent()
                for n in given.shape:
                    dim = one.tensor_type.shape.dim.add()
                    if type(n) is int:
                        dim.dim_value = n
            types.append(one)
        text = tuple(one.SerializeToString() for one in types)
        body = self._bodies.get((id(step.attributes), text))
        if body is None:
            node = step.attributes["node"]
            proto = step.schema.get_context_dependent_function(
                node.SerializeToString(), list(text)
            )
            made = onnx.FunctionProto.FromString(proto)
            prepare = Preparer(onnx.ModelProto())
            prepare.opsets = program.opsets
            body = prepare.function(made, node, 1)
            if prepare.missing:
                raise ModelError(
                    f"{step.label}: is defined by {', '.join(prepare.missing)}, which "
                    "Weft does not know"
                )
            self._bodies[id(step.attributes), text] = body
        return body


_FAULTS = (TypeError, ValueError, LookupError, AttributeError, ArithmeticError,
           RuntimeError, MemoryError, RecursionError)  # fmt: skip


def _device_of(given: Mapping[str, Any]) -> Any:
    """Where the tensors are that a run makes: where its first argument is."""
    for value in given.values():
        if isinstance(value, Tensor) and value.device.type != "cpu":
            return value.device
    return contextlib.nullcontext()


def _taken(owner: nn.Module, name: str) -> bool:
    return hasattr(owner, name)


def _result(value: Any) -> Any:
    if isinstance(value, list):
        return [_result(one) for one in value]
    known = isinstance(value, np.ndarray) and value.dtype.kind != "U"
    return tensor(value) if known else value


def _checked(name: str, value: Any, declared: Any, sizes: dict[str, Any]) -> Any:
    """An argument as a tensor, if it is what the model declares."""
    kind = declared.WhichOneof("value")
    if kind == "optional_type":
        inner = declared.optional_type.elem_type
        return None if value is None else _checked(name, value, inner, sizes)
    if kind == "sequence_type":
        if not isinstance(value, (list, tuple)):
            raise DTypeError(f"{name}: expected a list, got {type(value).__name__}")
        inner = declared.sequence_type.elem_type
        return [_checked(name, one, inner, {}) for one in value]
    if kind != "tensor_type":
        raise ModelError(f"{name}: expected a tensor in the model, which has {kind}")
    wanted = TYPES.get(declared.tensor_type.elem_type)
    if isinstance(value, (np.ndarray, np.generic)) and value.dtype.kind in "UOS":
        return value
    given = value if isinstance(value, Tensor) else _made(value, wanted)
    if wanted is not None and given.dtype is not wanted:
        raise DTypeError(f"{name}: expected {wanted.name}, got {given.dtype.name}")
    if not declared.tensor_type.HasField("shape"):
        return given
    dims = declared.tensor_type.shape.dim
    fits = len(dims) == given.ndim
    for dim, size in zip(dims, given.shape, strict=False):
        if dim.WhichOneof("value") == "dim_value":
            fits = fits and size == dim.dim_value
    if not fits:
        texts = [d.dim_param or str(d.dim_value) for d in dims]
        raise ShapeError(
            f"{name}: expected the shape [{', '.join(texts)}], got {list(given.shape)}"
        )
    return given


def _made(value: Any, wanted: Any) -> Tensor:
    if isinstance(value, (np.ndarray, np.generic)):
        return weft.from_numpy(np.array(value))
    return weft.tensor(value, dtype=wanted)


def domain_versions(proto: Any) -> dict[str, int]:
    """The versions of operators that a model uses, by domain."""
    return {domain_of(o.domain): o.version for o in proto.opset_import}
