"""Grids of processes: which of them share out what, under PyTorch's names.

init_device_mesh("cpu", (2, 4), mesh_dim_names=("dp", "tp"))

     tp 0  1  2  3
dp 0    0  1  2  3      mesh["tp"] is this process's row, mesh["dp"] its column;
   1    4  5  6  7      each of them has a group of processes
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

import weft
from weft.distributed import groups
from weft.distributed.collectives import refuse_capture
from weft.distributed.groups import ProcessGroup, group_of, line_here
from weft.errors import ArgumentError, DeviceError, DTypeError

__all__ = ["DeviceMesh", "init_device_mesh"]


class DeviceMesh:
    """A grid of processes with a group along each of its dimensions.

    All processes make the same one, in the same order as their other groups. ``mesh``
    has the ranks, as a tensor, an array or lists. A process that is not among them has
    no coordinate, and takes no part.

    >>> weft.distributed.init_process_group(rank=0, world_size=1)
    >>> mesh = weft.distributed.DeviceMesh("cpu", [[0]], mesh_dim_names=("dp", "tp"))
    >>> mesh.shape, mesh["tp"].size(), mesh.get_coordinate()
    ((1, 1), 1, [0, 0])
    >>> weft.distributed.destroy_process_group()
    """

    def __init__(
        self,
        device_type: str,
        mesh: Any,
        *,
        mesh_dim_names: Sequence[str] | None = None,
    ) -> None:
        refuse_capture("DeviceMesh")
        _check_device(device_type)
        ranks = _ranks(mesh)
        names = _names(mesh_dim_names, ranks.ndim)
        made = [_groups_along(ranks, d) for d in range(ranks.ndim)]
        self._set(device_type, ranks, names, made, None)

    def _set(
        self,
        device_type: str,
        ranks: np.ndarray,
        names: tuple[str, ...] | None,
        along: list[ProcessGroup | None],
        root: DeviceMesh | None,
    ) -> None:
        self.device_type, self._ranks, self.mesh_dim_names = device_type, ranks, names
        self._along, self._root = along, root
        self._parts: dict[tuple[str, ...], DeviceMesh] = {}
        found = np.argwhere(ranks == self.get_rank())
        self._coordinate = found[0].tolist() if len(found) else None

    # -- what it is

    @property
    def mesh(self) -> weft.Tensor:
        """The ranks, as a tensor of the mesh's shape."""
        return weft.tensor(self._ranks)

    @property
    def mesh_array(self) -> np.ndarray:
        """The ranks, as an array."""
        return self._ranks

    @property
    def shape(self) -> tuple[int, ...]:
        """The number of processes along each dimension."""
        return self._ranks.shape

    @property
    def ndim(self) -> int:
        """The number of dimensions."""
        return self._ranks.ndim

    def size(self, mesh_dim: int | None = None) -> int:
        """The number of processes, of all or along a dimension."""
        if mesh_dim is None:
            return self._ranks.size
        return self.shape[self._dim("size", mesh_dim)]

    def get_rank(self) -> int:
        """This process's rank among all."""
        return groups.world().links.rank

    def get_coordinate(self) -> list[int] | None:
        """This process's place in the mesh; None outside of it."""
        return None if self._coordinate is None else list(self._coordinate)

    def get_local_rank(self, mesh_dim: int | str | None = None) -> int:
        """This process's number along a dimension; a mesh of one needs no name."""
        dim = self._only("get_local_rank", mesh_dim)
        if self._coordinate is None:
            raise ArgumentError(
                f"get_local_rank: rank {self.get_rank()} is not in {self!r}"
            )
        return int(self._coordinate[dim])

    def get_group(self, mesh_dim: int | str | None = None) -> ProcessGroup:
        """The group of this process's row along a dimension."""
        dim = self._only("get_group", mesh_dim)
        found = self._along[dim]
        if found is None:
            raise ArgumentError(f"get_group: rank {self.get_rank()} is not in {self!r}")
        return found

    def get_all_groups(self) -> list[ProcessGroup]:
        """The groups of this process's rows, one a dimension."""
        return [self.get_group(d) for d in range(self.ndim)]

    # -- parts

    def __getitem__(self, mesh_dim_names: str | tuple[str, ...]) -> DeviceMesh:
        """The part of the mesh along some of its dimensions in which this process is.

        Names come in the order of the mesh's.
        """
        names = (
            (mesh_dim_names,)
            if isinstance(mesh_dim_names, str)
            else tuple(mesh_dim_names)
        )
        if names == self.mesh_dim_names:
            return self
        if names not in self._parts:
            self._parts[names] = self._part(names)
        return self._parts[names]

    def _part(self, names: tuple[str, ...]) -> DeviceMesh:
        if not names or self.mesh_dim_names is None:
            raise KeyError(
                f"a mesh without mesh_dim_names has no part {names}; name its "
                "dimensions in init_device_mesh"
            )
        unknown = [n for n in names if n not in self.mesh_dim_names]
        if unknown or len(set(names)) < len(names):
            raise KeyError(
                f"Invalid mesh_dim_name {names} specified. Valid mesh_dim_names are "
                f"{self.mesh_dim_names}."
            )
        dims = [self.mesh_dim_names.index(n) for n in names]
        if dims != sorted(dims):
            raise KeyError(
                f"expected names in the mesh's order, {self.mesh_dim_names}, got "
                f"{names}"
            )
        at = self._coordinate or [0] * self.ndim
        index = tuple(slice(None) if d in dims else at[d] for d in range(self.ndim))
        made = DeviceMesh.__new__(DeviceMesh)
        along = [self._along[d] for d in dims]
        made._set(self.device_type, self._ranks[index], names, along, self._top())
        return made

    def across(self, other: DeviceMesh) -> DeviceMesh:
        """The grid of this dimension's and another's processes, of one mesh."""
        top = self._top()
        names = (*(self.mesh_dim_names or ()), *(other.mesh_dim_names or ()))
        dims = [top._dim("across", name) for name in names]
        at = top.get_coordinate() or [0] * top.ndim
        index = tuple(slice(None) if d in dims else at[d] for d in range(top.ndim))
        order = [sum(e < d for e in dims) for d in dims]
        made = DeviceMesh.__new__(DeviceMesh)
        ranks = top._ranks[index].transpose(order)
        made._set(self.device_type, ranks, names, [*self._along, *other._along], top)
        return made

    def _top(self) -> DeviceMesh:
        return self if self._root is None else self._root

    @staticmethod
    def from_group(
        group: ProcessGroup, device_type: str, *,
        mesh_dim_names: Sequence[str] | None = None,
    ) -> DeviceMesh:  # fmt: skip
        """The mesh of one dimension whose group there is already."""
        _check_device(device_type)
        found = group_of(group)
        made = DeviceMesh.__new__(DeviceMesh)
        mine = found if found.rank() >= 0 else None
        made._set(
            device_type, np.array(found.ranks), _names(mesh_dim_names, 1), [mine], None
        )
        return made

    # -- dimensions

    def _dim(self, who: str, dim: int | str) -> int:
        if isinstance(dim, str):
            if self.mesh_dim_names is None or dim not in self.mesh_dim_names:
                raise KeyError(
                    f"{who}: expected a dimension of {self.mesh_dim_names}, got {dim!r}"
                )
            return self.mesh_dim_names.index(dim)
        if not -self.ndim <= dim < self.ndim:
            raise ArgumentError(
                f"{who}: expected a dimension of a mesh of {self.ndim}, got {dim}"
            )
        return int(dim) % self.ndim

    def _only(self, who: str, dim: int | str | None) -> int:
        if dim is not None:
            return self._dim(who, dim)
        if self.ndim > 1:
            raise RuntimeError(
                f"{who}: the mesh has {self.ndim} dimensions, so mesh_dim must say "
                f"which one; take a part of it, or pass one of {self.mesh_dim_names}"
            )
        return 0

    def _key(self) -> tuple[Any, ...]:
        ranks = tuple(self._ranks.ravel().tolist())
        return self.device_type, self.shape, ranks, self.mesh_dim_names

    def __eq__(self, other: object) -> bool:
        return isinstance(other, DeviceMesh) and self._key() == other._key()

    def __hash__(self) -> int:
        return hash(self._key())

    def __repr__(self) -> str:
        names = self.mesh_dim_names or range(self.ndim)
        sizes = ", ".join(f"{n}={k}" for n, k in zip(names, self.shape, strict=True))
        return f"DeviceMesh(({sizes}), {self.device_type!r}, {self._ranks.tolist()})"


def init_device_mesh(
    device_type: str,
    mesh_shape: Sequence[int],
    *,
    mesh_dim_names: Sequence[str] | None = None,
) -> DeviceMesh:
    """The first processes as a grid of this shape; joins them if they are not yet.

    >>> mesh = weft.distributed.init_device_mesh  # as mesh("cpu", (2, 4), ...)
    """
    shape = (mesh_shape,) if isinstance(mesh_shape, int) else tuple(mesh_shape)
    if not shape or not all(type(n) is int and n > 0 for n in shape):
        raise ArgumentError(
            f"init_device_mesh: expected a mesh_shape of sizes above 0, got {shape}"
        )
    _names(mesh_dim_names, len(shape))
    count = math.prod(shape)
    size = groups.started().groups[""].size()
    if count > size:
        raise RuntimeError(
            f"Mesh should not be bigger than default world size {size}, but found "
            f"{count} ranks!"
        )
    ranks = np.arange(count).reshape(shape)
    return DeviceMesh(device_type, ranks, mesh_dim_names=mesh_dim_names)


def _check_device(device_type: str) -> None:
    if device_type != "cpu":
        raise DeviceError(
            f"DeviceMesh: expected device_type='cpu', got {device_type!r}; there are "
            "no collectives on other devices yet"
        )


def _names(given: Sequence[str] | None, ndim: int) -> tuple[str, ...] | None:
    if given is None:
        return None
    names = (given,) if isinstance(given, str) else tuple(given)
    if len(set(names)) < len(names):
        raise RuntimeError(
            f"Each mesh_dim_name must be unique, got mesh_dim_names={names}"
        )
    if len(names) != ndim:
        raise RuntimeError(
            f"mesh_shape and mesh_dim_names should have same length! Found {ndim} "
            f"dimensions and mesh_dim_names={names}"
        )
    return names


def _ranks(mesh: Any) -> np.ndarray:
    found = np.asarray(mesh.numpy() if isinstance(mesh, weft.Tensor) else mesh)
    found = found.reshape(1) if found.ndim == 0 else found
    if found.dtype.kind not in "iu" or not found.size:
        raise DTypeError(f"DeviceMesh: expected ranks as a mesh, got {mesh!r}")
    size = groups.world().groups[""].size()
    flat = found.ravel().tolist()
    if len(set(flat)) < len(flat) or not all(0 <= r < size for r in flat):
        raise ArgumentError(
            f"DeviceMesh: expected different ranks from 0 to {size - 1}, got {flat}"
        )
    return found.astype(np.int64)


def _groups_along(ranks: np.ndarray, dim: int) -> ProcessGroup | None:
    """Make the group of every row along a dimension; this process's own."""
    every = groups.world().groups[""]
    rows = np.moveaxis(ranks, dim, -1)
    mine = None
    for index in itertools.product(*map(range, rows.shape[:-1])):
        row = rows[index].tolist()
        if row == list(every.ranks):
            mine = every
            continue
        if row != sorted(row):
            raise ArgumentError(
                f"DeviceMesh: expected ranks that grow along each dimension, got {row}"
            )
        found = groups.new_group(row, None, line_here())
        mine = mine if found is None else found
    return mine
