"""``fully_shard``: parameters, gradients and states of optimizers in parts.

    parameters   a DTensor each, Shard(0): every process has a part of each
    forward      all_gather → the module runs with whole parameters → they are let go
    backward     all_gather → gradients → reduce_scatter → a part's gradient
    optimizer    works on the parts

What ``fully_shard`` is called on is gathered together, but for what is inside of it and
has been sharded before. So call it on a model's blocks, and then on the model: one
block at a time is whole. The tape keeps of a whole parameter which one it was; backward
gathers it again when it needs it. In a captured step a parameter stays whole from
forward to backward, as the program says when it is let go.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np

import weft
from weft.autograd.function import Function
from weft.autograd.graph import saved_tensors_hooks
from weft.core.mode import mode
from weft.core.tensor import Tensor
from weft.distributed import groups
from weft.distributed import nn as collectives
from weft.distributed.collectives import refuse_capture
from weft.distributed.device_mesh import DeviceMesh
from weft.distributed.objects import all_gather_object
from weft.distributed.tensor.dtensor import DTensor, distribute_tensor
from weft.distributed.tensor.placements import Placements, Replicate, Shard
from weft.distributed.tensor.redistribution import padded
from weft.dtype import DType
from weft.errors import ArgumentError, AutogradError
from weft.func.functional_call import Slot, _put, _slots
from weft.nn import Module

__all__ = [
    "FSDPModule", "FullyShardedDataParallel", "MixedPrecisionPolicy", "fully_shard",
]  # fmt: skip


@dataclass(frozen=True)
class MixedPrecisionPolicy:
    """The dtypes of whole parameters, of gradients on their way, and of outputs.

    Parts keep their own dtype. None changes nothing.
    """

    param_dtype: DType | None = None
    reduce_dtype: DType | None = None
    output_dtype: DType | None = None
    cast_forward_inputs: bool = True


class FSDPModule:
    """The methods that ``fully_shard`` adds to a module.

    >>> isinstance(weft.nn.Linear(1, 1), weft.distributed.fsdp.FSDPModule)
    False
    """

    _unit: _Unit

    def __deepcopy__(self, memo: Any) -> Any:
        raise ArgumentError(
            f"deepcopy: {type(self).__name__} has parts of parameters, and other "
            "processes have the others; copy the module before fully_shard, and load "
            "the state_dict into it"
        )

    def unshard(self, async_op: bool = False) -> None:
        """Gather this module's parameters now; the next ``forward`` uses them."""
        refuse_capture("unshard")
        self._unit.unshard()

    def reshard(self) -> None:
        """Let go of what ``unshard`` has gathered."""
        self._unit.whole = None

    def set_requires_gradient_sync(
        self, requires_gradient_sync: bool, *, recurse: bool = True
    ) -> None:
        """With False, backward adds whole gradients up here, and sends nothing.

        The next backward with True sends their sum.
        """
        for unit in _units(self, recurse):
            unit.syncs = requires_gradient_sync

    def set_reshard_after_forward(
        self, reshard_after_forward: bool, recurse: bool = True
    ) -> None:
        """Whether whole parameters are let go after ``forward``."""
        for unit in _units(self, recurse):
            unit.reshards = reshard_after_forward

    def set_reshard_after_backward(
        self, reshard_after_backward: bool, *, recurse: bool = True
    ) -> None:
        """Refused with False: whole parameters would be old after a step."""
        if not reshard_after_backward:
            raise ArgumentError(
                "set_reshard_after_backward: expected True; call unshard() where whole "
                "parameters are to stay"
            )


def _units(module: Any, recurse: bool) -> Iterator[_Unit]:
    for one in module.modules() if recurse else [module]:
        if isinstance(one, FSDPModule):
            yield one._unit


def fully_shard(
    module: Any,
    *,
    mesh: DeviceMesh | None = None,
    reshard_after_forward: bool | None = None,
    shard_placement_fn: Any = None,
    mp_policy: MixedPrecisionPolicy | None = None,
    offload_policy: Any = None,
    ignored_params: Any = None,
) -> Any:
    """Share a module's parameters out to the processes of a mesh; returns the module.

    All begin with rank 0's parameters. A mesh of two dimensions shares out along the
    second, and the first has copies. Without ``reshard_after_forward``, the outermost
    module alone keeps its whole parameters until backward.

    >>> dist = weft.distributed
    >>> dist.init_process_group(rank=0, world_size=1)
    >>> net = dist.fsdp.fully_shard(weft.nn.Linear(3, 2))
    >>> net(weft.ones(1, 3)).sum().backward()
    >>> net.weight.grad.to_local().shape, net.weight.placements
    ((2, 3), (Shard(dim=0),))
    >>> dist.destroy_process_group()
    """
    if isinstance(module, (list, tuple)) or not isinstance(module, Module):
        raise ArgumentError(
            f"fully_shard: expected a module, got {type(module).__name__}"
        )
    if type(module).forward is Module.forward:
        raise ArgumentError(
            f"fully_shard: {type(module).__name__} has no forward, before which its "
            "parameters could be gathered; call fully_shard on the modules in it"
        )
    if isinstance(module, FSDPModule):
        raise ArgumentError(
            "fully_shard: this module is sharded already; each takes one call"
        )
    if shard_placement_fn is not None or offload_policy is not None:
        raise ArgumentError(
            "fully_shard: shard_placement_fn and offload_policy are not there; leave "
            "them out"
        )
    refuse_capture("fully_shard")
    if mesh is None:
        mesh = DeviceMesh.from_group(groups.world().groups[""], "cpu")
    if mesh.ndim > 2:
        raise ArgumentError(
            "fully_shard: expected a mesh of one dimension, or of two whose first has "
            f"copies, got {mesh}"
        )
    left_out = {id(p) for p in ignored_params or ()}
    unit = _Unit(module, mesh, mp_policy or MixedPrecisionPolicy(), left_out)
    unit.reshards, unit.chosen = (
        reshard_after_forward is not False,
        reshard_after_forward,
    )
    kind = type(module)
    module.__class__ = type(f"FSDP{kind.__name__}", (FSDPModule, kind), {})
    module._unit = unit
    for inner in module.modules():
        if inner is not module and isinstance(inner, FSDPModule):
            inner._unit.is_root = False
            inner._unit.reshards = inner._unit.chosen is not False
    if reshard_after_forward is None:
        unit.reshards = False  # until another module around is sharded
    module.register_forward_pre_hook(unit.enter, prepend=True, with_kwargs=True)
    module.register_forward_hook(unit.leave, always_call=True)
    return module


class _Parameter:
    """A parameter of a unit: its part, and where modules hold it.

    ``outer`` are mesh, placements and shape of a layer's parameter that is in parts
    already: the unit shares out the part here, and ``shape`` is that of this part.
    """

    def __init__(
        self, names: list[str], slots: list[Slot], value: Tensor, mesh: DeviceMesh
    ) -> None:
        self.name, self.slots = names[0], slots
        placements: Placements = (Shard(0),)
        if mesh.ndim == 2:
            placements = (Replicate(), Shard(0))
        self.outer: Any = None
        if isinstance(value, DTensor):
            self.outer = value.device_mesh, value.placements, value.shape
        self.sharded = distribute_tensor(value._part.detach(), mesh, placements)
        self.shape = self.sharded.shape
        if self.outer is not None:
            outside, around, whole = self.outer
            self.sharded = DTensor(
                self.sharded.below, outside.across(mesh), (*around, *placements), whole
            )
        self.sharded._parameter = value._parameter
        self.sharded.requires_grad_(value.requires_grad)
        self.part.requires_grad_(value.requires_grad)
        self.sharded._unit = True  # type: ignore[attr-defined]

    @property
    def part(self) -> Tensor:
        return self.sharded.below

    def put(self, value: Tensor) -> None:
        for slot in self.slots:
            _put(slot, value)

    def put_whole(self, value: Tensor) -> None:
        """Give modules what was gathered."""
        if self.outer is not None:
            mesh, placements, shape = self.outer
            value = DTensor.from_local(value, mesh, placements, shape=shape)
        self.put(value)


class _Unit:
    """Parameters that are gathered together."""

    def __init__(
        self, module: Module, mesh: DeviceMesh, policy: MixedPrecisionPolicy,
        left_out: set[int],
    ) -> None:  # fmt: skip
        self.mesh, self.policy = mesh, policy
        self.group = mesh.get_group(mesh.ndim - 1)
        self.copies = mesh.get_group(0) if mesh.ndim == 2 else None
        self.count = self.group.size()
        self.is_root, self.syncs = True, True
        self.keeps = False  # whole parameters, from one backward to the next forward
        self.reshards = True
        self.chosen: bool | None = None
        self.whole: list[Tensor] | None = None  # gathered values
        self.versions: list[int] = []  # of the parts from which they were gathered
        self.pending: list[Tensor | None] = []  # whole gradients that are not sent yet
        self.gathered: list[tuple[int, int, int]] = []  # addresses that the tape meets
        self.hooks: list[Any] = []
        self.parameters = list(self._shared_out(module, left_out))

    def _shared_out(self, module: Module, left_out: set[int]) -> Iterator[_Parameter]:
        held: dict[int, tuple[Tensor, list[str], list[Slot]]] = {}
        for name, slot in _slots(module).items():
            value = slot[0][slot[1]]
            taken = hasattr(value, "_unit") or not isinstance(value, Tensor)
            if isinstance(value, DTensor) and not taken:
                self._check_outer(name, value)
            if not taken and value._parameter and id(value) not in left_out:
                _, names, slots = held.setdefault(id(value), (value, [], []))
                names.append(name)
                slots.append(slot)
        mine = [[n[0], list(p.shape), p.dtype.name] for p, n, _ in held.values()]
        _agree(mine, self.mesh)
        for value, names, slots in held.values():
            if not value.ndim:
                raise ArgumentError(
                    f"fully_shard: {names[0]} is a scalar, which has no axis to cut; "
                    "make it a tensor of shape (1,)"
                )
            made = _Parameter(names, slots, value, self.mesh)
            made.put(made.sharded)
            yield made

    def _check_outer(self, name: str, value: DTensor) -> None:
        one, other = value.device_mesh, self.mesh
        if one._top() is not other._top() or one.ndim + other.ndim > 2 or one == other:
            raise ArgumentError(
                f"fully_shard: {name} is a DTensor already, on {one}; to share out its "
                "parts as well, pass another dimension of the same mesh, such as "
                "mesh['dp']"
            )

    # -- around forward

    def enter(self, module: Any, args: Any, kwargs: Any) -> Any:
        """Give the module whole parameters."""
        if self.parameters:
            locals = [p.part for p in self.parameters]
            wholes = _Gather.apply(self, *locals)
            for p, whole in zip(self.parameters, wholes, strict=True):
                p.put_whole(whole)
            recorded = mode.recording and mode.capture is None
            if recorded and self.reshards and self.count > 1:
                self._watch(wholes)
        kind = self.policy.param_dtype
        if kind is None or not self.policy.cast_forward_inputs:
            return None
        return _cast((args, kwargs), kind)

    def leave(self, module: Any, args: Any, out: Any) -> Any:
        """Give it the parts back."""
        for p in self.parameters:
            p.put(p.sharded)
        if self.hooks:
            self.hooks.pop().__exit__()
        self.gathered = []
        kind = self.policy.output_dtype
        return None if kind is None or out is None else _cast(out, kind)

    def unshard(self) -> None:
        self.versions = [p.part._version for p in self.parameters]
        with weft.no_grad():
            self.whole = self.gather([p.part.detach() for p in self.parameters])

    def values(self, locals: Sequence[Tensor]) -> list[Tensor]:
        """Whole parameters: those that are here, if no part has changed since."""
        now = [p.part._version for p in self.parameters]
        if mode.capture is None and self.whole is not None and self.versions == now:
            return [one.detach() for one in self.whole]
        self.whole = None
        return self.gather(locals)

    # -- what the tape keeps

    def _watch(self, wholes: Sequence[Tensor]) -> None:
        self.gathered = [
            (*np.lib.array_utils.byte_bounds(one._data), k)
            for k, one in enumerate(wholes)
            if one._data.size
        ]
        hooks = saved_tensors_hooks(self._pack, self._unpack)
        hooks.__enter__()
        self.hooks.append(hooks)

    def _pack(self, saved: Tensor) -> Any:
        if isinstance(saved, DTensor):
            kept = self._pack(saved.below)
            if isinstance(kept, _Kept):
                of = saved.device_mesh, saved.placements, saved.shape
                return replace(kept, of=of)
            return saved, saved._version
        array = saved._data
        if type(saved) is Tensor and array.size:
            low, high = np.lib.array_utils.byte_bounds(array)
            for start, stop, k in self.gathered:
                if start <= low and high <= stop:
                    first = array.__array_interface__["data"][0] - start
                    version = self.parameters[k].part._version
                    return _Kept(k, first, array.shape, array.strides, version)
        return saved, saved._version

    def _unpack(self, kept: Any) -> Tensor:
        if isinstance(kept, _Kept):
            p = self.parameters[kept.parameter]
            if p.part._version != kept.version:
                raise _changed(f"the parameter {p.name!r}")
            if self.whole is None:
                self.unshard()
            assert self.whole is not None
            whole = self.whole[kept.parameter]._data
            memory = whole.reshape(-1).view(np.uint8)[kept.first :]
            view = np.ndarray(kept.shape, whole.dtype, memory, 0, kept.strides)
            return Tensor(view) if kept.of is None else DTensor(Tensor(view), *kept.of)
        saved, version = kept
        if saved._version != version:
            raise _changed(f"a tensor of shape {tuple(saved.shape)}")
        return saved

    # -- collectives

    def gather(self, locals: Sequence[Tensor]) -> list[Tensor]:
        """Whole parameters from the parts of all processes, in few messages."""
        wide = [
            one if self.policy.param_dtype is None else one.to(self.policy.param_dtype)
            for one in locals
        ]
        if self.count == 1:
            return [one.detach() if one is p else one
                    for one, p in zip(wide, locals, strict=True)]  # fmt: skip
        found: list[Any] = [None] * len(wide)
        for some in self._by_dtype(wide):
            lengths = [self._rows(k) for k in some]
            parts = [
                padded(wide[k], 0, n).reshape(-1)
                for k, n in zip(some, lengths, strict=True)
            ]
            rows = collectives.gathered_rows(weft.cat(parts), self.group)
            pieces = rows.split([one.numel() for one in parts], 1)
            for k, piece in zip(some, pieces, strict=True):
                shape = self.parameters[k].shape
                full = piece.reshape(-1, *shape[1:]) if shape[1:] else piece.reshape(-1)
                found[k] = full.narrow(0, 0, shape[0])
        return found

    def reduce(self, grads: Sequence[Tensor | None]) -> list[Tensor | None]:
        """The parts' gradients: averages over all processes.

        ``grads`` are whole ones; None where a parameter was not used. Where nobody
        used it, its part has none.
        """
        found: list[Tensor | None] = [None] * len(grads)
        used = list(range(len(grads)))
        if mode.capture is not None:
            used = self._used_by_all(grads)
        wide = [self._wide(k, g) for k, g in enumerate(grads)]
        for some in self._by_dtype(wide):
            some = [k for k in some if k in used]
            if not some:
                continue
            rows = [
                padded(wide[k], 0, self._rows(k) * self.count).reshape(self.count, -1)
                for k in some
            ]
            there = [float(grads[k] is not None) for k in some]
            flags = weft.tensor(there, dtype=wide[some[0]].dtype)
            all_of = weft.cat([*rows, flags.expand(self.count, len(some))], 1)
            out = collectives.reduced_row(all_of, "avg", self.group)
            if self.copies is not None:
                out = collectives.all_reduce(out, "avg", self.copies)
            *pieces, flags = out.split([*[r.shape[1] for r in rows], len(some)])
            shown = there if mode.capture is not None else flags.tolist()
            for k, flat, anywhere in zip(some, pieces, shown, strict=True):
                if anywhere:
                    found[k] = self._part_of(k, flat)
        return found

    def send_pending(self) -> None:
        """Send the gradients that were added up, and add their parts' to the parts."""
        grads, self.pending = self.pending, []
        if grads:
            with weft.no_grad():
                for p, g in zip(self.parameters, self.reduce(grads), strict=True):
                    if g is not None:
                        p.part.grad = _sum(p.part.grad, g.clone())

    def _wide(self, k: int, g: Tensor | None) -> Tensor:
        """A whole gradient in the dtype in which it is sent; zeros if there is none."""
        p = self.parameters[k]
        own = self.policy.param_dtype or p.part.dtype
        kind = self.policy.reduce_dtype or own
        return weft.zeros(p.shape, dtype=kind) if g is None else g.to(kind)

    def _part_of(self, k: int, flat: Tensor) -> Tensor:
        part, shape = self.parameters[k].part, self.parameters[k].shape
        rows = flat.reshape(self._rows(k), *shape[1:])
        return rows.narrow(0, 0, part.shape[0]).to(part.dtype)

    def _used_by_all(self, grads: Sequence[Tensor | None]) -> list[int]:
        """The parameters that a captured backward reaches: the same everywhere."""
        used = [k for k, g in enumerate(grads) if g is not None]
        if len(used) < len(grads):
            names = ",".join(self.parameters[k].name for k in used)
            of = f"{len(used)} parameters, {zlib.crc32(names.encode()):08x}"
            collectives.all_reduce(weft.zeros(1), "sum", self.group, of=of)
        return used

    def _rows(self, k: int) -> int:
        return math.ceil(self.parameters[k].shape[0] / self.count)

    def _by_dtype(self, tensors: Sequence[Tensor]) -> list[list[int]]:
        kinds: dict[Any, list[int]] = {}
        for k, one in enumerate(tensors):
            kinds.setdefault(one.dtype, []).append(k)
        return list(kinds.values())

    def backward(self, grads: Sequence[Tensor | None]) -> list[Tensor | None]:
        """Send gradients on their way, or keep them for later."""
        if mode.capture is None:
            self.whole = self.whole if self.keeps else None
        elif not self.syncs or any(one is not None for one in self.pending):
            raise ArgumentError(
                "set_requires_gradient_sync: gradients that are not sent are no part "
                "of a program; add them up outside of the compiled function"
            )
        if self.pending:
            grads = [_sum(a, b) for a, b in zip(self.pending, grads, strict=True)]
        if not self.syncs:
            self.pending = [None if g is None else g.detach() for g in grads]
            return [None] * len(grads)
        self.pending = []
        return self.reduce(grads)


@dataclass(frozen=True)
class _Kept:
    """What the tape keeps of a whole parameter: a view of which one it was."""

    parameter: int
    first: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    version: int  # of the part
    of: Any = None  # mesh, placements and shape of the DTensor whose part it is


def _changed(what: str) -> AutogradError:
    return AutogradError(
        "one of the variables needed for gradient computation has been modified by an "
        f"inplace operation: {what}, which a sharded module has saved in forward"
    )


def _sum(one: Tensor | None, other: Tensor | None) -> Tensor | None:
    if one is None or other is None:
        return one if other is None else other
    return one + other


class _Gather(Function):
    """From parts to whole parameters, and back with their gradients."""

    in_graphs = False

    @staticmethod
    def forward(ctx: Any, unit: _Unit, *locals: Tensor) -> Any:
        ctx.unit = unit
        ctx.set_materialize_grads(False)
        return tuple(unit.values(locals))

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        return None, *ctx.unit.backward(grads)


def _agree(mine: list[Any], mesh: DeviceMesh) -> None:
    """Raise an error on all processes if their modules differ."""
    for group in mesh.get_all_groups():
        every: list[Any] = [None] * group.size()
        all_gather_object(every, mine, group)
        for rank, theirs in enumerate(every):
            if theirs != every[0]:
                pairs = zip(every[0], theirs, strict=False)
                other = next((p for p in pairs if p[0] != p[1]), None)
                what = (
                    f"it has {len(theirs)} parameters, and the first {len(every[0])}"
                    if other is None
                    else f"{_shown(other[0])} is {_shown(other[1])} there"
                )
                raise ArgumentError(
                    f"fully_shard: rank {group.ranks[rank]} has another module than "
                    f"rank {group.ranks[0]}: {what}; all processes need the same one"
                )


def _shown(parameter: Any) -> str:
    name, shape, dtype = parameter
    return f"{name!r}, {dtype}{shape}"


def _cast(tree: Any, kind: DType) -> Any:
    """Floating-point tensors in a tree, in a dtype."""
    return weft.tree_map(
        lambda x: (
            x.to(kind)
            if isinstance(x, Tensor)
            and x.dtype.is_floating_point
            and x.dtype is not kind
            else x
        ),
        tree,
    )


class FullyShardedDataParallel(Module):
    """The older wrapper, which is not there: ``fully_shard`` does what it does."""

    def __init__(self, *args: Any, **options: Any) -> None:
        raise ArgumentError(
            "FullyShardedDataParallel: Weft has no such wrapper; call "
            "fully_shard(block) on each block and fully_shard(model) at the end"
        )

    def forward(self, *args: Any, **kwargs: Any) -> Self:
        raise NotImplementedError
