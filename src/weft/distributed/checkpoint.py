"""``weft.distributed.checkpoint``: states in a folder, each process writing a part.

    folder   = metadata.json, part-0-of-4.safetensors, part-1-of-4.safetensors, ...
    metadata = format, parts, entries: {name: {text, arrays: [{part, key}, ...]}}

Any number of processes can load what any number has saved. The folder gets its name
when all of it is written, so it is whole or not there.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import secrets
import shutil
from collections.abc import Callable, Iterable, Mapping, MutableMapping
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import numpy as np

import weft
from weft.core.tensor import Tensor
from weft.distributed import groups
from weft.distributed.errors import CheckpointError, DistBackendError
from weft.distributed.groups import ProcessGroup, line_here
from weft.distributed.pieces import as_bytes
from weft.distributed.plain import decode, encode, joined, parted
from weft.distributed.tensor.placements import pieces_of
from weft.dtype import as_dtype
from weft.errors import ArgumentError, FileFormatError, WeftError
from weft.serialization.atomic import replacing

__all__ = [
    "CheckpointException", "FileSystemReader", "FileSystemWriter", "async_save", "load",
    "save",
]  # fmt: skip

CheckpointException = CheckpointError  # PyTorch's name
METADATA = "metadata.json"
_FORMAT = 1

State = Mapping[str, Any]
Path = str | os.PathLike[str]


class FileSystemReader:
    """A folder to read from.

    >>> weft.distributed.checkpoint.FileSystemReader("runs/7").path
    'runs/7'
    """

    def __init__(self, path: Path) -> None:
        self.path = os.fspath(path)


class FileSystemWriter(FileSystemReader):
    """A folder to write to.

    >>> weft.distributed.checkpoint.FileSystemWriter("runs/7").path
    'runs/7'
    """


def _path(given: Path | None, storage: FileSystemReader | None) -> str:
    if given is not None:
        return os.fspath(given)
    if storage is None:
        raise ArgumentError("expected checkpoint_id, the path of a folder")
    return storage.path


def save(
    state_dict: State, *, checkpoint_id: Path | None = None,
    storage_writer: FileSystemWriter | None = None,
    process_group: ProcessGroup | None = None,
) -> None:  # fmt: skip
    """Write states to a folder; each process writes a part of the tensors.

    Values are tensors, plain data, or objects with ``state_dict``. All processes have
    the same ones. A folder of this name is replaced, once the new one is whole.

    >>> import tempfile
    >>> dist = weft.distributed
    >>> dist.init_process_group(rank=0, world_size=1)
    >>> net = weft.nn.Linear(2, 1)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     dist.checkpoint.save({"net": net, "step": 7}, checkpoint_id=f"{folder}/7")
    ...     state = {"net": net, "step": 0}
    ...     dist.checkpoint.load(state, checkpoint_id=f"{folder}/7")
    >>> state["step"]
    7
    >>> dist.destroy_process_group()
    """
    path = _path(checkpoint_id, storage_writer)
    _Saving(state_dict, path, process_group, copied=False).write()


def async_save(
    state_dict: State, *, checkpoint_id: Path | None = None,
    storage_writer: FileSystemWriter | None = None,
    process_group: ProcessGroup | None = None,
) -> Future[None]:  # fmt: skip
    """Copy the states, and write them while the program goes on.

    ``result()`` of what is returned waits, and raises what went wrong. Checkpoints are
    written one after the other.
    """
    path = _path(checkpoint_id, storage_writer)
    saving = _Saving(state_dict, path, process_group, copied=True)
    return _writer().submit(saving.write)


_pool: ThreadPoolExecutor | None = None


def _writer() -> ThreadPoolExecutor:
    global _pool
    if _pool is None:
        _pool = ThreadPoolExecutor(1, "weft.distributed.checkpoint")
    return _pool


# -- saving


class _Saving:
    """States of one moment, and where they are to be written."""

    def __init__(
        self, states: State, path: str, group: ProcessGroup | None, *, copied: bool
    ) -> None:
        self.path = path
        self.group = _group_for_checkpoints(group)
        self.rank, self.world = self.group.rank(), self.group.size()
        self.line = line_here()
        self.entries: dict[str, Any] = {}
        self.mine: dict[str, np.ndarray] = {}  # what this process writes
        sizes = [0] * self.world
        for name, value in states.items():
            if not isinstance(name, str):
                raise ArgumentError(f"save: expected texts as names, got {name!r}")
            text, arrays = parted(_state_of(value), shared=True)
            places: list[Any] = []
            for number, array in enumerate(arrays):
                if isinstance(array, Tensor):
                    places.append(self._pieces(array, f"{name}.{number}", copied))
                    continue
                part = sizes.index(min(sizes))
                sizes[part] += array.nbytes
                key = f"{name}.{number}" if len(arrays) > 1 else name
                places.append({"part": part, "key": key})
                if part == self.rank:
                    self.mine[key] = array.copy() if copied else array
            self.entries[name] = {"text": text.decode(), "arrays": places}

    def _pieces(self, tensor: Any, key: str, copied: bool) -> dict[str, Any]:
        """Where the pieces of a DTensor are; keeps this process's."""
        pieces = []
        for rank, start, shape in pieces_of(tensor):
            if rank not in self.group.ranks:
                raise ArgumentError(
                    f"save: rank {rank} has a part of a tensor, and does not save"
                )
            part = self.group.ranks.index(rank)
            pieces.append({"part": part, "key": key, "start": start, "shape": shape})
            if part == self.rank:
                array = np.ascontiguousarray(tensor._part.detach().numpy())
                self.mine[key] = array.copy() if copied else array
        return {"shape": list(tensor.shape), "dtype": tensor.dtype.name,
                "pieces": pieces}  # fmt: skip

    def write(self) -> None:
        """Write this process's part; the last thing is the folder's name."""
        names = self._gather([secrets.token_hex(4), list(self.entries)])
        if any(entries != names[0][1] for _, entries in names):
            raise CheckpointError(
                "save: processes have given different names of states"
            )
        folder = f"{self.path}.{names[0][0]}.partial"
        try:
            self._together("write", lambda: self._write_part(folder))
            self._together("finish", lambda: self._finish(folder))
        except BaseException:
            if self.rank == 0:
                shutil.rmtree(folder, ignore_errors=True)
            with contextlib.suppress(DistBackendError):  # of a process that is gone
                self._gather(None)
            raise

    def _write_part(self, folder: str) -> None:
        os.makedirs(folder, exist_ok=True)
        tensors = {key: weft.from_numpy(one) for key, one in self.mine.items()}
        weft.save(tensors, _part(folder, self.rank, self.world), format="safetensors")

    def _finish(self, folder: str) -> None:
        if self.rank:
            return
        found = {"format": _FORMAT, "parts": self.world, "entries": self.entries}
        with replacing(os.path.join(folder, METADATA)) as file:
            file.write(json.dumps(found).encode())
        _rename(folder, self.path)

    def _together(self, what: str, work: Callable[[], None]) -> None:
        """Do something in all processes; an error in one is raised by all."""
        error = ""
        try:
            work()
        except (OSError, WeftError) as found:
            error = str(found).partition("\n")[0]
        for rank, text in enumerate(self._gather(error)):
            if text:
                raise CheckpointError(
                    f"save: rank {rank} could not {what} the checkpoint {self.path}: "
                    f"{text}; what was there before is there still"
                )

    def _gather(self, value: Any) -> list[Any]:
        return _gathered(self.group, value, self.line)


def _state_of(value: Any) -> Any:
    state = value.state_dict() if hasattr(value, "load_state_dict") else value
    return dict(state) if isinstance(state, dict) else state


def _part(folder: str, number: int, count: int) -> str:
    return os.path.join(folder, f"part-{number}-of-{count}.safetensors")


def _rename(folder: str, path: str) -> None:
    """Give a folder its name; one that has it already is removed after that."""
    old = f"{folder}.old"
    with contextlib.suppress(FileNotFoundError):
        os.rename(path, old)
    os.rename(folder, path)
    shutil.rmtree(old, ignore_errors=True)


def _group_for_checkpoints(group: ProcessGroup | None) -> ProcessGroup:
    """A group of its own, so that threads' calls are no others' calls."""
    found = groups.group_of(group)
    known = found.__dict__
    if "checkpoints" not in known:
        made = groups.new_group(found.ranks, None, line_here())
        if made is None:
            raise ArgumentError("save: this process is not in the group")
        known["checkpoints"] = made
    one: ProcessGroup = known["checkpoints"]
    return one


def _gathered(group: ProcessGroup, value: Any, line: str) -> list[Any]:
    data = encode(value)
    call = group.call("checkpoint", None, {}, line)
    return [
        decode(data if one is None else one.payload)
        for one in call.exchange(lambda rank: data)
    ]


# -- loading


def load(
    state_dict: MutableMapping[str, Any], *, checkpoint_id: Path | None = None,
    storage_reader: FileSystemReader | None = None,
    process_group: ProcessGroup | None = None,
) -> None:  # fmt: skip
    """Load states from a folder that any number of processes have saved.

    Objects with ``load_state_dict`` take their state over, tensors are changed in
    place, dictionaries too, by name; other values are replaced. What the folder has and
    ``state_dict`` has not is left out; what is missing there is an error, and nothing
    is changed. Processes load by themselves, and do not wait for one another.
    """
    path = _path(checkpoint_id, storage_reader)
    folder = _Folder(path)
    missing = [name for name in state_dict if name not in folder.entries]
    if missing:
        raise CheckpointError(f"load: {path} has no {', '.join(missing)}")
    found = folder.states(state_dict)
    for name, value in state_dict.items():
        if not hasattr(value, "load_state_dict"):
            _check_fits(name, value, found[name])
    for name, value in state_dict.items():
        if hasattr(value, "load_state_dict"):
            value.load_state_dict(found[name])
        else:
            state_dict[name] = _filled(value, found[name])


def _check_fits(path: str, value: Any, found: Any) -> None:
    if isinstance(value, Tensor):
        if not isinstance(found, Tensor) or found.shape != value.shape:
            kind = (
                f"shape {tuple(found.shape)}" if isinstance(found, Tensor) else "none"
            )
            raise CheckpointError(
                f"load: expected a tensor of shape {tuple(value.shape)} as {path!r}, "
                f"got {kind}"
            )
    elif isinstance(value, dict):
        missing = [k for k in value if not isinstance(found, dict) or k not in found]
        if missing:
            raise CheckpointError(f"load: the checkpoint has no {path}.{missing[0]}")
        for key, one in value.items():
            _check_fits(f"{path}.{key}", one, found[key])


def _filled(value: Any, found: Any) -> Any:
    if isinstance(value, Tensor):
        with weft.no_grad():
            return value.copy_(found)
    if isinstance(value, dict):
        for key, one in value.items():
            value[key] = _filled(one, found[key])
        return value
    return found


class _Folder:
    """A checkpoint that is read."""

    def __init__(self, path: str) -> None:
        self.path = path
        try:
            with open(os.path.join(path, METADATA), "rb") as file:
                found: Any = json.loads(file.read())
        except FileNotFoundError:
            raise CheckpointError(
                f"load: {path} is no checkpoint; it has no {METADATA}"
            ) from None
        except (ValueError, RecursionError) as error:
            raise FileFormatError(f"{path}: {METADATA} is no JSON: {error}") from None
        if not isinstance(found, dict) or found.get("format") != _FORMAT:
            raise FileFormatError(f"{path}: this is no checkpoint of format {_FORMAT}")
        self.count: Any = found.get("parts")
        self.entries: Any = found.get("entries")
        if type(self.count) is not int or not isinstance(self.entries, dict):
            raise FileFormatError(f"{path}: {METADATA} is damaged")

    def states(self, names: Iterable[str]) -> dict[str, Any]:
        """The values of entries; each part is read once."""
        try:
            wanted = {name: self.entries[name]["arrays"] for name in names}
            every = [
                one
                for places in wanted.values()
                for place in places
                for one in place.get("pieces", [place])
            ]
            arrays: dict[tuple[int, str], np.ndarray] = {}
            for part in sorted({int(place["part"]) for place in every}):
                tensors = weft.load(_part(self.path, part, self.count))
                for place in every:
                    if place["part"] == part:
                        arrays[part, place["key"]] = tensors[place["key"]].numpy()
            return {
                name: self._state(name, [self._whole(p, arrays) for p in places])
                for name, places in wanted.items()
            }
        except (KeyError, TypeError, AttributeError) as error:
            raise FileFormatError(f"{self.path}: it is damaged: {error!r}") from None

    def _whole(self, place: Any, arrays: Any) -> np.ndarray:
        """An array, whose pieces may be in several parts."""
        if "pieces" not in place:
            found: np.ndarray = arrays[place["part"], place["key"]]
            return found
        shape, kind = [int(n) for n in place["shape"]], as_dtype(place["dtype"]).np
        pieces = [(p, arrays[p["part"], p["key"]]) for p in place["pieces"]]
        if sum(one.size for _, one in pieces) != math.prod(shape):
            raise FileFormatError(f"{self.path}: pieces of a tensor are missing")
        whole = np.empty(shape, kind)
        for p, one in pieces:
            region = whole[tuple(
                slice(int(a), int(a) + int(n))
                for a, n in zip(p["start"], p["shape"], strict=True)
            )]  # fmt: skip
            if region.shape != one.shape or one.dtype != kind:
                raise FileFormatError(f"{self.path}: a piece does not fit its tensor")
            region[...] = one
        return whole

    def _state(self, name: str, arrays: list[np.ndarray]) -> Any:
        data = [as_bytes(np.ascontiguousarray(one)) for one in arrays]
        whole = np.concatenate([np.empty(0, np.uint8), *data])
        return joined(self.entries[name]["text"].encode(), whole)
