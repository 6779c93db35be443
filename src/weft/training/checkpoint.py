"""Checkpoints: everything a run needs to go on exactly where it was.

One file holds model, optimizer, schedule, random state, data position and step. It
is written beside the old one and replaces it at the end, so a crash at any
moment leaves the old file or the new one; a checksum tells a damaged file apart.
"""

from __future__ import annotations

import hashlib
import os
from typing import Any

import weft
from weft.core.tensor import Tensor
from weft.errors import FileFormatError

PARTS = ("model", "optimizer", "scheduler", "loader")


def checksum(tree: Any) -> str:
    """A digest of every tensor, number and name in a tree."""
    digest = hashlib.sha256()
    _digest(tree, digest)
    return digest.hexdigest()


def _digest(tree: Any, digest: Any) -> None:
    if isinstance(tree, dict):
        digest.update(f"dict {list(tree)}".encode("utf-8", "surrogatepass"))
        for value in tree.values():
            _digest(value, digest)
    elif isinstance(tree, (list, tuple)):
        digest.update(f"{type(tree).__name__} {len(tree)}".encode())
        for value in tree:
            _digest(value, digest)
    elif isinstance(tree, Tensor):
        array = tree.detach().contiguous().array()
        digest.update(f"{array.dtype}{array.shape}".encode())
        digest.update(array.tobytes())
    else:
        digest.update(repr(tree).encode("utf-8", "surrogatepass"))


def save_checkpoint(
    path: str | os.PathLike[str],
    *,
    model: Any = None,
    optimizer: Any = None,
    scheduler: Any = None,
    loader: Any = None,
    step: int = 0,
    extra: Any = None,
) -> None:
    """Write a run's whole state, atomically.

    >>> import tempfile, pathlib
    >>> model = weft.nn.Linear(2, 1)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = pathlib.Path(folder) / "run.safetensors"
    ...     weft.training.save_checkpoint(path, model=model, step=7)
    ...     weft.training.load_checkpoint(path, model=model).step
    7
    """
    given = dict(zip(PARTS, (model, optimizer, scheduler, loader), strict=True))
    body: dict[str, Any] = {
        name: _plain(part.state_dict())
        for name, part in given.items()
        if part is not None
    }
    body |= {"random": weft.get_rng_state(), "step": step, "extra": extra}
    file = {"format": 1, "body": body, "checksum": checksum(body)}
    weft.save(file, path, format="safetensors")


def _plain(state: Any) -> Any:
    """Ordered dictionaries as plain ones, which files hold."""
    if isinstance(state, dict):
        return {k: _plain(v) for k, v in state.items()}
    if isinstance(state, (list, tuple)):
        return type(state)(_plain(v) for v in state)
    return state


class Restored:
    """The contents of a checkpoint besides the objects that were loaded."""

    def __init__(self, step: int, extra: Any) -> None:
        self.step = step
        self.extra = extra


def load_checkpoint(
    path: str | os.PathLike[str],
    *,
    model: Any = None,
    optimizer: Any = None,
    scheduler: Any = None,
    loader: Any = None,
    random: bool = True,
) -> Restored:
    """Load a checkpoint into the objects of a run; returns step and extras.

    >>> import tempfile, pathlib
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = pathlib.Path(folder) / "run.safetensors"
    ...     weft.training.save_checkpoint(path, extra={"best": 0.5})
    ...     weft.training.load_checkpoint(path).extra
    {'best': 0.5}
    """
    found = weft.load(path)
    if not isinstance(found, dict) or found.get("format") != 1 or "body" not in found:
        raise FileFormatError(f"{path}: this is no checkpoint of format 1")
    body = found["body"]
    if checksum(body) != found.get("checksum"):
        raise FileFormatError(f"{path}: the checkpoint is damaged (wrong checksum)")
    given = dict(zip(PARTS, (model, optimizer, scheduler, loader), strict=True))
    for name, part in given.items():
        if part is not None and name not in body:
            raise FileFormatError(f"{path}: the checkpoint holds no {name}")
    for name, part in given.items():
        if part is not None:
            part.load_state_dict(body[name])
    if random:
        weft.set_rng_state(body["random"])
    return Restored(body["step"], body["extra"])
