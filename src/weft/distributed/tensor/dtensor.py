"""``DTensor``: one tensor of which every process of a mesh has a part.

    DTensor = this process's part, the mesh, a placement for each of its dimensions

Operators on such tensors mean what they mean on whole ones. The record of an operator
says how it divides (``ops.dividing``): of these ways the one is taken for which the
least has to be sent, the operands are brought there, and every process computes its
part. An operator that says nothing is computed as a whole by every process. Backward
is made of operators on such tensors, too.
"""

from __future__ import annotations

import contextlib
import itertools
import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from weft.core.dispatch import Interpreter, bind, is_number
from weft.core.mode import mode, set_recording
from weft.core.op import Op, TensorType
from weft.core.size import Shape
from weft.core.tape import record
from weft.core.tensor import Tensor
from weft.core.tracer import Tracer
from weft.distributed.device_mesh import DeviceMesh
from weft.distributed.tensor.placements import (
    Partial,
    Placements,
    Replicate,
    Shard,
    checked,
    local_part,
)
from weft.distributed.tensor.redistribution import moved
from weft.errors import ArgumentError, AutogradError, ShapeError
from weft.ops import dividing


class DTensor(Tracer):
    """A tensor of which every process of a mesh has a part.

    ``distribute_tensor`` and ``DTensor.from_local`` make one.

    >>> dist = weft.distributed
    >>> dist.init_process_group(rank=0, world_size=1)
    >>> mesh = dist.init_device_mesh("cpu", (1,))
    >>> x = dist.tensor.distribute_tensor(weft.ones(2, 3), mesh, [dist.tensor.Shard(0)])
    >>> (x * 2).sum().full_tensor()
    tensor(12.)
    >>> dist.destroy_process_group()
    """

    def __init__(
        self, local: Tensor, mesh: DeviceMesh, placements: Placements,
        shape: Sequence[int],
    ) -> None:  # fmt: skip
        super().__init__(local, interpreter=SHARING)
        self.device_mesh, self.placements = mesh, placements
        self._shape = Shape(shape)

    # -- what tensors are asked for

    @property
    def shape(self) -> Shape:
        """The size of each dimension of the whole tensor."""
        return self._shape

    @property
    def ndim(self) -> int:
        return len(self._shape)

    @property
    def grad(self) -> Any:
        """The gradient, with this tensor's placements; its part is the part's."""
        g = self.below.grad
        return None if g is None else self._like(g)

    @grad.setter
    def grad(self, value: Any) -> None:
        if mode.capture is not None:
            mode.capture.touch(self.below)
        if value is None:
            self.below.grad = None
            return
        if value.shape != self.shape:
            raise ShapeError(
                f"grad: expected a gradient of shape {tuple(self.shape)}, got "
                f"{tuple(value.shape)}"
            )
        part = _part_of(value, self.device_mesh, self._whole())
        self.below.grad = part.detach() if part is not value else part

    @grad.deleter
    def grad(self) -> None:
        self.below.grad = None

    @property
    def data(self) -> Any:
        """The same parts, cut off the tape."""
        return self.detach()

    @data.setter
    def data(self, value: Any) -> None:
        """Refer to the parts of another DTensor, of any dtype."""
        mine = self.device_mesh, self.placements, self.shape
        if (
            not isinstance(value, DTensor)
            or (value.device_mesh, value.placements, value.shape) != mine
        ):
            raise ArgumentError(
                "data: expected a DTensor of the same mesh, placements and shape, "
                f"{mine}, got {value!r}"
            )
        self.below.data = value.below

    def _whole(self) -> Placements:
        """The placements of a gradient: as here, with sums in place of terms."""
        return tuple(
            Replicate() if isinstance(p, Partial) else p for p in self.placements
        )

    def _like(self, local: Tensor) -> DTensor:
        return DTensor(local, self.device_mesh, self._whole(), self._shape)

    def _with(self, parts: Any, node: Any) -> DTensor:
        twin = DTensor(parts[0], self.device_mesh, self.placements, self._shape)
        twin._node = node
        return twin

    def alias(self, node: Any = None) -> Tensor:
        twin = self._with((self.below.alias(),), node)
        twin._storage = self.storage_record
        return twin

    def stopped(self) -> Tensor:
        return self.alias()

    def settled(self) -> Tensor:
        return self._with((self.below.detach().clone(),), None)

    def freeze(self) -> None:
        self.parts, self._storage = (self.below.clone(),), None

    def become(self, other: Any) -> None:
        with _unrecorded():
            part = _part_of(other, self.device_mesh, self.placements)
            self.below.copy_(part)

    def array(self) -> np.ndarray:
        return self.full_tensor().array()

    def __repr__(self) -> str:
        return (
            f"DTensor(local_tensor={self.below.detach()!r}, "
            f"device_mesh={self.device_mesh!r}, placements={self.placements})"
        )

    def __copy__(self) -> DTensor:
        return self._copied(self.below)

    def __deepcopy__(self, memo: dict[int, Any]) -> DTensor:
        made = self._copied(self.below.detach().clone())
        memo[id(self)] = made
        return made

    def _copied(self, local: Tensor) -> DTensor:
        made = self._with((local,), None)
        made._parameter = self._parameter
        made.requires_grad_(self.requires_grad)
        return made

    # -- parts

    @property
    def _part(self) -> Tensor:
        return self.below

    def _with_part(self, value: Tensor) -> Tensor:
        return self._like(value) if value.shape == self.below.shape else value

    def _complete(self) -> Tensor:
        return self.full_tensor()

    def _part_of(self, value: Tensor) -> Tensor:
        return _part_of(value, self.device_mesh, self._whole())

    @staticmethod
    def from_local(
        local_tensor: Tensor,
        device_mesh: DeviceMesh,
        placements: Sequence[Any] | None = None,
        *,
        run_check: bool = False,
        shape: Sequence[int] | None = None,
        stride: Any = None,
    ) -> DTensor:
        """The tensor of which every process gives its part.

        Without ``shape``, all parts have the same size.
        """
        if isinstance(local_tensor, DTensor) or not isinstance(local_tensor, Tensor):
            raise ArgumentError(
                "from_local: expected a tensor that is no DTensor, got "
                f"{type(local_tensor).__name__}"
            )
        found = checked("from_local", device_mesh, placements, local_tensor.ndim)
        whole = list(local_tensor.shape) if shape is None else list(shape)
        if shape is None:
            for k, one in enumerate(found):
                if isinstance(one, Shard):
                    whole[one.dim] *= device_mesh.shape[k]
        mine, _ = local_part(whole, device_mesh, found)
        if tuple(local_tensor.shape) != mine:
            raise ShapeError(
                f"from_local: expected a part of shape {mine} of a tensor of shape "
                f"{tuple(whole)}, got {tuple(local_tensor.shape)}"
            )
        out = DTensor(local_tensor.detach(), device_mesh, found, whole)
        _note(
            _FROM_LOCAL, local_tensor, {"mesh": device_mesh, "placements": found}, out
        )
        return out

    def to_local(self, *, grad_placements: Sequence[Any] | None = None) -> Tensor:
        """This process's part.

        ``grad_placements`` say what the parts' gradients are parts of; as this tensor's
        placements if nothing is said.
        """
        found = self._whole()
        if grad_placements is not None:
            found = checked("to_local", self.device_mesh, grad_placements, self.ndim)
        out = self.below.detach()
        params = {"mesh": self.device_mesh, "placements": found, "shape": self._shape}
        _note(_TO_LOCAL, self, params, out)
        return out

    def redistribute(
        self,
        device_mesh: DeviceMesh | None = None,
        placements: Sequence[Any] | None = None,
        *,
        async_op: bool = False,
    ) -> DTensor:
        """The same tensor with other placements."""
        if device_mesh is not None and device_mesh != self.device_mesh:
            raise ArgumentError(
                f"redistribute: expected the tensor's own mesh, {self.device_mesh}, "
                f"got {device_mesh}"
            )
        if placements is None:
            raise ArgumentError("redistribute: expected placements, got none")
        found = checked("redistribute", self.device_mesh, placements, self.ndim)
        for before, then in zip(self.placements, found, strict=True):
            if isinstance(then, Partial) and not isinstance(before, Partial):
                raise ArgumentError(
                    f"redistribute: a tensor becomes no Partial, got {found}"
                )
        return redistributed(self, found)

    def full_tensor(self, *, grad_placements: Sequence[Any] | None = None) -> Tensor:
        """The whole tensor, on every process; all have to call this."""
        whole = (Replicate(),) * self.device_mesh.ndim
        return redistributed(self, whole).to_local(grad_placements=grad_placements)


def redistributed(x: DTensor, placements: Placements) -> DTensor:
    """The same tensor with other placements, and the derivative."""
    if x.placements == placements:
        return x
    with _unrecorded():
        local = moved(
            x.below.detach(), x.device_mesh, x.shape, x.placements, placements
        )
    out = DTensor(local, x.device_mesh, placements, x.shape)
    _note(_REDISTRIBUTE, x, {"placements": x._whole()}, out)
    return out


def _part_of(value: Tensor, mesh: DeviceMesh, placements: Placements) -> Tensor:
    """This process's part of a tensor; of a plain one, all have the same."""
    if isinstance(value, DTensor):
        if value.device_mesh != mesh:
            raise _other_meshes(value.device_mesh, mesh)
        return redistributed(value, placements).below
    whole = (Replicate(),) * mesh.ndim
    return moved(value, mesh, value.shape, whole, placements)


def _other_meshes(one: DeviceMesh, other: DeviceMesh) -> ArgumentError:
    return ArgumentError(f"expected DTensors of one mesh, got {one} and {other}")


@contextlib.contextmanager
def _unrecorded() -> Iterator[None]:
    before = set_recording(False)
    try:
        yield
    finally:
        set_recording(before)


def _note(op: Op, x: Tensor, params: dict[str, Any], out: Tensor) -> None:
    """Write on the tape how a tensor came about."""
    if mode.recording:
        record(op, (x,), params, out)


def _from_local_grad(g: Any, mesh: Any, placements: Placements) -> Tensor:
    whole = tuple(Replicate() if isinstance(p, Partial) else p for p in placements)
    return redistributed(g, whole).to_local()


def _to_local_grad(g: Any, mesh: Any, placements: Placements, shape: Any) -> Tensor:
    return DTensor.from_local(g, mesh, placements, shape=shape)


def _on_tape(name: str, rule: Any) -> Op:
    """A record of what is no operator: only the tape has it."""

    def refuse(x: Any, **params: Any) -> Any:
        raise AutogradError(f"{name}: it is no operator of tensors")

    return Op(name, inputs="x", eval=refuse, type=None, vjp={"x": rule})


_FROM_LOCAL = _on_tape("from_local", _from_local_grad)
_TO_LOCAL = _on_tape("to_local", _to_local_grad)
_REDISTRIBUTE = _on_tape(
    "redistribute", lambda g, placements: redistributed(g, placements)
)


# -- operators


class _Allowed:
    """Whether plain tensors take part, as what all processes have."""

    plain = 0


@contextlib.contextmanager
def implicit_replication() -> Iterator[None]:
    """A block in which plain tensors are what all processes have, as a whole."""
    _Allowed.plain += 1
    try:
        yield
    finally:
        _Allowed.plain -= 1


class Sharing(Interpreter):
    """What operators do on tensors of which processes have parts."""

    name = "DTensor"

    @property
    def level(self) -> float:
        """Inside of the capture, outside of the transforms that run in it."""
        return 0.5 if mode.capture is None else mode.capture.level + 0.5

    @level.setter
    def level(self, value: float) -> None:
        """It has no level of its own."""

    def process(self, op: Op, args: tuple[Any, ...], params: dict[str, Any]) -> Any:
        if op.composite:
            from weft.core.dispatch import run_composite

            return run_composite(op, args)
        with _unrecorded():
            return _divided(op, args, params)


SHARING = Sharing()


def _divided(op: Op, args: tuple[Any, ...], params: dict[str, Any]) -> Any:
    if op.facts.random or op.facts.effect:
        raise ArgumentError(
            f"{op.name}: there is no way to divide it among processes; use it on "
            "to_local() or full_tensor()"
        )
    mesh = next(a.device_mesh for a in args if isinstance(a, DTensor))
    given = [_entered(op, a, mesh) if isinstance(a, Tensor) else a for a in args]
    types = [
        TensorType(tuple(a.shape), a.dtype) if isinstance(a, DTensor) else a
        for a in given
    ]
    assert op.type is not None
    out = op.type(*types, **params)
    outs = out if type(out) is tuple else (out,)
    if all(isinstance(n, int) for t in outs for n in t.shape):
        ways = list(dividing.ways(op.facts, op.linear, mesh.size(), out, types, params))
    else:
        ways = []
    ins, results = _chosen(mesh, given, types, outs, ways)
    parts = [
        redistributed(a, ins[k]).below if isinstance(a, DTensor) else a
        for k, a in enumerate(given)
    ]
    shapes = [
        local_part(t.shape, mesh, p)[0] for t, p in zip(outs, results, strict=True)
    ]
    found = bind(op, tuple(parts), _local(params, types, outs, shapes))
    many = found if type(found) is tuple else (found,)
    made = [
        DTensor(one, mesh, p, t.shape)
        for one, p, t in zip(many, results, outs, strict=True)
    ]
    return tuple(made) if type(found) is tuple else made[0]


def _entered(op: Op, a: Tensor, mesh: DeviceMesh) -> DTensor:
    """An operand as a DTensor of the mesh."""
    if isinstance(a, DTensor):
        if a.device_mesh != mesh:
            raise _other_meshes(a.device_mesh, mesh)
        return a
    root = a if a._base is None else a._base
    number = is_number(a) or root.numel() <= 1
    if not (_Allowed.plain or mode.running is not None or number):
        raise ArgumentError(
            f"{op.name}: got mixed plain tensors and DTensors. Make a DTensor of the "
            f"one of shape {tuple(a.shape)} with distribute_tensor or "
            "DTensor.from_local, or let it be what all processes have inside of "
            "`with weft.distributed.tensor.implicit_replication():`"
        )
    return DTensor(a.detach(), mesh, (Replicate(),) * mesh.ndim, a.shape)


def _placement(entry: dividing.Entry) -> Any:
    if entry is None:
        return Replicate()
    return Partial(entry) if isinstance(entry, str) else Shard(entry)


def _chosen(
    mesh: DeviceMesh, given: list[Any], types: list[Any], outs: Any,
    ways: list[dividing.Way],
) -> tuple[list[Placements], list[Placements]]:  # fmt: skip
    """Placements of operands and results: what costs least, by each of the mesh's
    dimensions."""
    whole: dividing.Way = (None,) * len(given), (None,) * len(outs)
    ins: list[list[Any]] = [[] for _ in given]
    results: list[list[Any]] = [[] for _ in outs]
    for k in range(mesh.ndim):
        costs = [
            sum(
                _cost(a.placements[k], _placement(entry), math.prod(a.shape))
                for a, entry in zip(given, way[0], strict=True)
                if isinstance(a, DTensor)
            )
            for way in (whole, *ways)
        ]
        best = (whole, *ways)[costs.index(min(costs))]
        for row, entry in itertools.chain(
            zip(ins, best[0], strict=True), zip(results, best[1], strict=True)
        ):
            row.append(_placement(entry))
    return [tuple(row) for row in ins], [tuple(row) for row in results]


def _cost(before: Any, then: Any, size: int) -> float:
    """What a change of placement costs: elements to send, and a call."""
    if before == then:
        return 0
    if isinstance(before, Replicate):
        return 1e-3
    if isinstance(then, Partial):
        return math.inf  # of another kind, or of pieces: never
    if isinstance(before, Partial):
        return 10 + (size if isinstance(then, Shard) else 2 * size)
    return 10 + (size / 8 if isinstance(then, Shard) else size)


def _local(
    params: dict[str, Any], types: list[Any], outs: Any, shapes: list[Any]
) -> dict[str, Any]:
    """Parameters of this process's part: an output's shape, and whole slices."""
    found = dict(params)
    if "shape" in found:
        found["shape"] = tuple(shapes[0])
    if isinstance(found.get("index"), tuple):
        sizes = iter(params.get("shape", types[0].shape if types else ()))
        index = []
        for item in found["index"]:
            size = None if item is None else next(sizes)
            index.append(slice(None) if dividing.is_whole(item, size) else item)
        found["index"] = tuple(index)
    return found


# -- making them


def distribute_tensor(
    tensor: Tensor,
    device_mesh: DeviceMesh,
    placements: Sequence[Any] | None = None,
    *,
    src_data_rank: int | None = 0,
) -> DTensor:
    """Share a tensor out: all have rank 0's, each keeps its part.

    ``src_data_rank`` is the number, along each dimension of the mesh, of the process
    whose values count; with None, all processes' are the same already.
    """
    from weft.distributed import nn as collectives

    if isinstance(tensor, DTensor):
        if placements is None or tuple(placements) == tensor.placements:
            return tensor
        raise ArgumentError(
            "distribute_tensor: expected a plain tensor, got a DTensor of placements "
            f"{tensor.placements}; call redistribute"
        )
    found = checked("distribute_tensor", device_mesh, placements, tensor.ndim)
    if any(isinstance(p, Partial) for p in found):
        raise ArgumentError(
            f"distribute_tensor: expected Shard or Replicate, got {found}"
        )
    if not tensor.is_leaf:
        raise RuntimeError(
            "`distribute_tensor` should be used to distribute leaf tensors! but found "
            "non-leaf tensor!"
        )
    with _unrecorded():
        value = tensor.detach()
        if src_data_rank is not None and device_mesh.size() > 1:
            for k in range(device_mesh.ndim):
                group = device_mesh.get_group(k)
                source = group.ranks[src_data_rank]
                value = collectives.broadcast(value, source, group)
        whole = (Replicate(),) * device_mesh.ndim
        local = moved(value, device_mesh, value.shape, whole, found)
        local = local.clone() if local is value or local._base is not None else local
    out = DTensor(local.detach(), device_mesh, found, tensor.shape)
    out._parameter = tensor._parameter
    return out.requires_grad_(tensor.requires_grad)  # type: ignore[return-value]
