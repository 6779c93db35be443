"""A model's forward as a list of calls, recorded from one run on an example.

    token, position = call token(0), call position(1)      layers are called as a whole,
    2 = add(token, position)                               operators between them are
    3 = call blocks.0(2)                                   calls of their own

The list can be cut (``pipelining.pipeline``), searched for layers that can work on
parts (``tensor.parallel.found``) and counted (``planning.measured_work``). Values have
numbers, in the order in which they come about.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any

import weft
from weft.autograd.graph import saved_tensors_hooks
from weft.core.mode import observe
from weft.core.op import Op, TensorType
from weft.core.tensor import Tensor
from weft.errors import ArgumentError
from weft.nn import Module
from weft.runtime import allocation


@dataclasses.dataclass(frozen=True)
class Ref:
    """A value by its number."""

    number: int


@dataclasses.dataclass(frozen=True)
class Held:
    """A parameter or buffer of the model by its path."""

    path: str


@dataclasses.dataclass
class Call:
    """A call of a layer (``path``) or of an operator (``op``).

    ``args`` and ``kwargs`` have references in place of tensors; ``within`` is the part
    of the model that does the call. Of everything inside: ``flops`` operations,
    ``moved`` bytes that are read and written, ``kept`` bytes of results that backward
    needs, the number of operators, and the parameters that backward needs.
    """

    op: Op | None
    path: str
    args: Any
    kwargs: dict[str, Any]
    within: str = ""
    outs: tuple[int, ...] = ()
    flops: float = 0.0
    moved: float = 0.0
    kept: float = 0.0
    operators: int = 0

    def reads(self) -> Iterator[Any]:
        """The references among the arguments."""
        for leaf in weft.tree_flatten((self.args, self.kwargs))[0]:
            if isinstance(leaf, (Ref, Held)):
                yield leaf


@dataclasses.dataclass
class Calls:
    """Calls in order; ``inputs`` and ``output`` say what goes in and comes out.

    ``wanted`` are the values that have gradients, ``needs`` the parameters that
    backward needs, by the part of the model that has used them.
    """

    calls: list[Call]
    inputs: tuple[int, ...]
    output: Any
    types: dict[int, TensorType]
    wanted: set[int]
    needs: dict[str, set[str]]

    def outputs(self) -> set[int]:
        """The numbers of the values that come out."""
        leaves = weft.tree_flatten(self.output)[0]
        return {leaf.number for leaf in leaves if isinstance(leaf, Ref)}


def filled(tree: Any, values: Mapping[int, Any], module: Any) -> Any:
    """Arguments with values in place of references."""

    def one(leaf: Any) -> Any:
        if isinstance(leaf, Ref):
            return values[leaf.number]
        return _at(module, leaf.path) if isinstance(leaf, Held) else leaf

    return weft.tree_map(one, tree)


def _at(module: Any, path: str) -> Any:
    owner, _, name = path.rpartition(".")
    return getattr(module.get_submodule(owner), name)


def run(calls: list[Call], values: dict[int, Any], module: Any) -> None:
    """Do calls on values, and enter their results."""
    for call in calls:
        args = filled(call.args, values, module)
        if call.op is not None:
            out = call.op(*args, **call.kwargs)
        else:
            kwargs = filled(call.kwargs, values, module)
            out = module.get_submodule(call.path)(*args, **kwargs)
        for number, value in zip(call.outs, _tensors(out), strict=True):
            values[number] = value


def _tensors(tree: Any) -> list[Tensor]:
    return [x for x in weft.tree_flatten(tree)[0] if isinstance(x, Tensor)]


def recorded(
    module: Module,
    args: tuple[Any, ...],
    layers: Mapping[str, Module],
    parts: Mapping[str, Module] = MappingProxyType({}),
) -> Calls:
    """The calls of ``module(*args)``, in which ``layers`` are called as a whole.

    Of ``parts`` of the model it is noted which calls they do.

    >>> from weft.distributed.calls import recorded
    >>> net = weft.nn.Sequential(weft.nn.Linear(2, 3), weft.nn.ReLU())
    >>> found = recorded(net, (weft.ones(1, 2),), {"0": net[0]})
    >>> [call.path or call.op.name for call in found.calls]
    ['0', 'relu']
    """
    run = _Recorder(module, args)
    handles: list[Any] = []
    for path, part in parts.items():
        handles += [
            part.register_forward_pre_hook(
                lambda mod, args, path=path: run.within.append(path)
            ),
            part.register_forward_hook(lambda mod, args, out: _gone(run.within)),
        ]
    for path, layer in layers.items():
        handles += [
            layer.register_forward_pre_hook(
                lambda mod, args, kwargs, path=path: run.enter(path, args, kwargs),
                with_kwargs=True,
            ),
            layer.register_forward_hook(
                lambda mod, args, out, path=path: run.leave(path, out)
            ),
        ]
    try:
        with (
            weft.enable_grad(), saved_tensors_hooks(run.saved, lambda kept: kept),
            observe(run.note),
        ):  # fmt: skip
            out = module(*args)
    finally:
        for handle in handles:
            handle.remove()
    return run.finish(out)


def _gone(paths: list[str]) -> None:
    paths.pop()


class _Recorder:
    """Numbers the values of a run, and notes its calls."""

    def __init__(self, module: Module, args: tuple[Any, ...]) -> None:
        self.alive: list[Tensor] = []  # so that no two have one identity
        self.numbers: dict[int, int] = {}
        self.types: dict[int, TensorType] = {}
        self.versions: list[tuple[Tensor, int, str]] = []
        self.calls: list[Call] = []
        self.inside: list[Call] = []  # layers under way
        self.within: list[str] = []  # parts of the model under way
        self.wanted: set[int] = set()
        named = (*module.named_parameters(), *module.named_buffers())
        self.held = {id(x): path for path, x in named}
        self.memory = {id(allocation.owner(x._data)): path for path, x in named}
        self.makers: dict[int, Call] = {}  # by the memory of results
        self.kept: set[int] = set()
        self.needs: dict[str, set[str]] = {}
        self.owners: list[Any] = []  # which are alive as well
        self.last = Call(None, "", (), {})
        self.inputs = tuple(self._new(x) for x in _tensors(args))
        self.kept |= {id(allocation.owner(x._data)) for x in _tensors(args)}

    def _new(self, x: Tensor) -> int:
        number = len(self.types)
        self.alive.append(x)
        self.numbers[id(x)] = number
        self.types[number] = TensorType(tuple(x.shape), x.dtype)
        if x.requires_grad:
            self.wanted.add(number)
        return number

    def _named(self, tree: Any) -> Any:
        return weft.tree_map(self._name, tree)

    def _name(self, x: Any) -> Any:
        if not isinstance(x, Tensor):
            return x
        if id(x) in self.numbers:
            return Ref(self.numbers[id(x)])
        if id(x) in self.held:
            return Held(self.held[id(x)])
        if x.requires_grad:
            raise ArgumentError(
                f"pipeline: a tensor of shape {tuple(x.shape)} comes from no input and "
                "no parameter of the model; keep it as a parameter or buffer"
            )
        self.alive.append(x)
        return x.detach()

    def enter(self, path: str, args: Any, kwargs: Any) -> None:
        """A layer begins; of layers inside of layers the outermost counts."""
        call = Call(None, path, (), {}, self._part())
        if not self.inside:
            call.args, call.kwargs = self._named(args), self._named(kwargs)
        self.inside.append(call)

    def _part(self) -> str:
        return self.within[0] if self.within else ""

    def leave(self, path: str, out: Any) -> None:
        """A layer is done."""
        call = self.inside.pop()
        if not self.inside:
            self._add(call, out)

    def _add(self, call: Call, out: Any) -> None:
        call.outs = tuple(self._new(x) for x in _tensors(out))
        name = call.path if call.op is None else call.op.name
        self.versions += [(x, x._version, name) for x in _tensors(out)]
        self.calls.append(call)

    def note(self, op: Op, args: Any, params: dict[str, Any], out: Any) -> None:
        """An operator ran."""
        if self.inside:
            call = self.inside[0]
        else:
            call = Call(op, "", self._named(tuple(args)), dict(params), self._part())
        outs = out if type(out) is tuple else (out,)
        call.operators += 1
        if op.facts.flops is not None:
            shapes = [tuple(a.shape) for a in args if isinstance(a, Tensor)]
            call.flops += float(
                math.prod(op.facts.flops(tuple(outs[0].shape), *shapes))
            )
        elif not op.view:
            call.flops += float(op.facts.cost * outs[0].numel())
        if not op.view:
            call.moved += sum(one._data.nbytes for one in outs)
            call.moved += sum(a._data.nbytes for a in args if isinstance(a, Tensor))
        for one in outs:
            owner = allocation.owner(one._data)
            self.owners.append(owner)
            self.makers.setdefault(id(owner), call)
        self.last = call
        if not self.inside:
            self._add(call, out)

    def saved(self, x: Tensor) -> Tensor:
        """The tape keeps a tensor, whose memory counts once."""
        owner = allocation.owner(x._data)
        if id(owner) in self.memory:
            path = self.memory[id(owner)]
            self.needs.setdefault(self._part(), set()).add(path)
        elif id(owner) not in self.kept:
            self.kept.add(id(owner))
            self.owners.append(owner)
            self.makers.get(id(owner), self.last).kept += owner.nbytes
        return x

    def finish(self, out: Any) -> Calls:
        """All calls."""
        for x, version, name in self.versions:
            if x._version != version:
                raise ArgumentError(
                    f"pipeline: a result of {name} is changed in place between layers, "
                    "which a list of calls does not show; make a new tensor there"
                )
        return Calls(
            self.calls, self.inputs, self._named(out), self.types, self.wanted,
            self.needs,
        )  # fmt: skip
