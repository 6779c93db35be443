"""``pipeline``: a model cut into stages, from its calls on an example.

token position │ blocks.0 blocks.1 │ norm head        what a later stage needs of an
     stage 0   →      stage 1      →  stage 2         earlier one goes from stage to
                                                      stage
"""

from __future__ import annotations

import enum
import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import weft
from weft.core.op import TensorType
from weft.core.tensor import Tensor
from weft.distributed.calls import Call, Calls, Held, Ref, filled, recorded, run
from weft.distributed.pipelining.stage import PipelineStage
from weft.errors import ArgumentError
from weft.nn import Module
from weft.nn.module import assign


class SplitPoint(enum.Enum):
    """A cut before or behind a layer."""

    BEGINNING, END = 1, 2


def layers_of(module: Module) -> dict[str, Module]:
    """The layers of a model by path: its children, and those of its containers.

    >>> from weft.distributed.pipelining.pipe import layers_of
    >>> list(layers_of(weft.nn.Sequential(weft.nn.ReLU(), weft.nn.ReLU())))
    ['0', '1']
    """
    return dict(_inner("", module)) or {"": module}


def _inner(path: str, module: Module) -> Iterator[tuple[str, Module]]:
    for name, child in module.named_children():
        full = f"{path}.{name}" if path else name
        plain = type(child).forward is Module.forward  # a list, which nobody calls
        if plain or isinstance(child, weft.nn.Sequential):
            yield from _inner(full, child)
        else:
            yield full, child


class Cut(NamedTuple):
    """A stage's calls, and the numbers of the values that go in and come out."""

    calls: list[Call]
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]


class Stage(Module):
    """Some of a model's layers, under the paths that they have there."""

    def __init__(
        self, model: Module, cut: Cut, types: Mapping[int, TensorType], output: Any
    ) -> None:
        super().__init__()
        self.training = model.training
        order = {name: k for k, name in enumerate(_names(model))}
        for path in sorted(set(_paths(cut.calls)), key=order.__getitem__):
            found: Any = model
            for part in path.split("."):
                found = getattr(found, part)
            assign(self, path, found)
        self._cut = cut
        self._shapes = [tuple(types[number].shape) for number in cut.inputs]
        self._output = output  # of the whole model, on the last stage

    def forward(self, *given: Tensor) -> Any:
        shapes = [tuple(x.shape) for x in given]
        if shapes != self._shapes:
            raise ArgumentError(
                f"pipeline: expected microbatches of {self._shapes}, as in the example "
                f"with which the model was cut, got {shapes}"
            )
        values = dict(zip(self._cut.inputs, given, strict=True))
        run(self._cut.calls, values, self)
        if self._output is not None:
            return filled(self._output, values, self)
        return tuple(values[number] for number in self._cut.outputs)


def _names(model: Module) -> Iterator[str]:
    """The paths of all that a model holds, in its order."""
    for path, module in model.named_modules(remove_duplicate=False):
        yield path
        for name in (*module._parameters, *module._buffers):
            yield f"{path}.{name}" if path else name


def _paths(calls: Sequence[Call]) -> Iterator[str]:
    """The layers, parameters and buffers that calls need."""
    for call in calls:
        if call.path:
            yield call.path
        yield from (one.path for one in call.reads() if isinstance(one, Held))


def cuts(found: Calls, bounds: Sequence[int]) -> list[Cut]:
    """The calls between bounds, and what passes them.

    A value that a later stage needs goes through all stages between.
    """
    edges = [0, *bounds, len(found.calls)]
    pieces = [found.calls[a:b] for a, b in itertools.pairwise(edges)]
    needed = found.outputs()
    made: list[Cut] = []
    for calls in reversed(pieces):
        here = {number for call in calls for number in call.outs}
        reads = {one.number for call in calls for one in call.reads()
                 if isinstance(one, Ref)}  # fmt: skip
        inputs = (reads | needed) - here
        made.append(Cut(calls, tuple(sorted(inputs)), tuple(sorted(needed))))
        needed = inputs
    made.reverse()
    made[0] = made[0]._replace(inputs=found.inputs)
    return made


class Pipe:
    """A model in stages; ``build_stage`` gives a process its own."""

    def __init__(self, module: Module, found: Calls, bounds: Sequence[int]) -> None:
        for call in found.calls:
            if call.op is not None and call.op.facts.random:
                raise ArgumentError(
                    f"pipeline: {call.op.name} between layers would draw the same "
                    "numbers in every step; draw them inside of a layer"
                )
        some = cuts(found, bounds)
        self.stages = [
            Stage(
                module, cut, found.types, None if cut is not some[-1] else found.output
            )
            for cut in some
        ]

    @property
    def num_stages(self) -> int:
        """The number of stages."""
        return len(self.stages)

    def get_stage_module(self, stage_idx: int) -> Module:
        """A stage's layers."""
        if not 0 <= stage_idx < len(self.stages):
            raise ArgumentError(
                f"get_stage_module: expected a stage from 0 to {len(self.stages) - 1}, "
                f"got {stage_idx}"
            )
        return self.stages[stage_idx]

    def build_stage(
        self, stage_index: int, device: Any = None, group: Any = None
    ) -> PipelineStage:
        """A stage for this process."""
        module = self.get_stage_module(stage_index)
        return PipelineStage(module, stage_index, self.num_stages, device, group=group)

    def shared(self) -> dict[str, list[int]]:
        """Parameters that several stages have, by one of their paths, and the stages.

        Their gradients are to be added up.
        """
        names: dict[int, str] = {}
        where: dict[str, list[int]] = {}
        for k, stage in enumerate(self.stages):
            for name, p in stage.named_parameters():
                where.setdefault(names.setdefault(id(p), name), []).append(k)
        return {name: ks for name, ks in where.items() if len(ks) > 1}


def pipeline(
    module: Any,
    mb_args: tuple[Any, ...],
    mb_kwargs: Any = None,
    split_spec: Mapping[str, SplitPoint] | None = None,
    split_policy: Any = None,
) -> Pipe:
    """Cut a model into stages before or behind some of its layers.

    ``mb_args`` are the inputs of one microbatch, on which the model runs once.
    ``split_spec`` says where to cut, by the paths of layers.

    >>> from weft.distributed.pipelining import SplitPoint, pipeline
    >>> net = weft.nn.Sequential(weft.nn.Linear(2, 3), weft.nn.Linear(3, 1))
    >>> pipe = pipeline(net, (weft.ones(4, 2),), split_spec={"1": SplitPoint.BEGINNING})
    >>> [name for name, _ in pipe.get_stage_module(1).named_parameters()]
    ['1.weight', '1.bias']
    """
    if not isinstance(module, Module):
        raise ArgumentError(f"pipeline: expected a module, got {type(module).__name__}")
    if mb_kwargs or split_policy is not None:
        raise ArgumentError(
            "pipeline: mb_kwargs and split_policy are not there; leave them out"
        )
    layers = layers_of(module)
    found = recorded(module, tuple(mb_args), layers)
    paths = [call.path for call in found.calls]
    bounds = []
    for path, point in (split_spec or {}).items():
        if path not in paths:
            called = ", ".join(dict.fromkeys(filter(None, paths)))
            raise ArgumentError(
                f"pipeline: expected a layer that the model calls, got {path!r}; "
                f"there are {called}"
            )
        bounds.append(paths.index(path) + (point is SplitPoint.END))
    return Pipe(module, found, sorted(set(bounds) - {0, len(paths)}))
