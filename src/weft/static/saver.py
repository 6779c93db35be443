"""Checkpoints: variables' values in safetensors files, and a list of the latest."""

from __future__ import annotations

import operator
import os
import re
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from weft.core.tensor import Tensor
from weft.errors import ArgumentError, DTypeError, ShapeError
from weft.static.errors import NotFoundError
from weft.static.graph import get_default_graph
from weft.static.variable import Variable


def _step(session: Any, step: Any) -> int:
    """The number of a step, of which a session knows the value."""
    value = session.run(step) if isinstance(step, Tensor) else step
    try:
        return operator.index(value)
    except TypeError:
        raise DTypeError(
            f"Saver: expected global_step to be a whole number, got {value!r}"
        ) from None


class CheckpointState(NamedTuple):
    """The latest checkpoint of a folder, and all that are kept, oldest first."""

    model_checkpoint_path: str
    all_model_checkpoint_paths: list[str]


class Saver:
    """Writes the variables' values to a safetensors file, and reads them back.

    Of the files it wrote it keeps the latest ``max_to_keep``, and a file named
    ``checkpoint`` beside them tells which they are.

    >>> import tempfile, os
    >>> path = os.path.join(tempfile.mkdtemp(), "model")
    >>> g = weft.static.Graph()
    >>> with g.as_default(), weft.static.Session(g) as session:
    ...     w = weft.static.Variable(3.0)
    ...     session.run(weft.static.global_variables_initializer())
    ...     _ = weft.static.train.Saver().save(session, path)
    ...     session.run(w.assign(0.0)).item()
    ...     weft.static.train.Saver().restore(session, path)
    ...     session.run(w).item()
    0.0
    3.0
    """

    def __init__(
        self, var_list: Any = None, reshape: bool = False, sharded: bool = False,
        max_to_keep: int | None = 5, name: str | None = None, **ignored: Any,
    ) -> None:  # fmt: skip
        if reshape:
            raise ArgumentError("Saver: values are never reshaped")
        self.table = _named_variables(var_list)
        self.max_to_keep = max_to_keep
        self.last_checkpoints: list[str] = []

    @property
    def variables(self) -> list[Variable]:
        """The variables that are saved."""
        return list(self.table.values())

    def save(
        self, sess: Any, save_path: str, global_step: Any = None,
        latest_filename: str = "checkpoint", meta_graph_suffix: str = "meta",
        write_meta_graph: bool = True, write_state: bool = True, **ignored: Any,
    ) -> str:  # fmt: skip
        """Write the file (in one piece or not at all); returns its path.

        ``global_step``, a number or a node that holds one, ends its name.
        """
        from weft import from_numpy
        from weft.serialization import save

        path = os.fspath(save_path)
        if global_step is not None:
            path = f"{path}-{_step(sess, global_step)}"
        values = sess.run(self.table)
        saved = {name: from_numpy(np.asarray(a)) for name, a in values.items()}
        save(saved, path, format="safetensors")
        if write_state:
            self._note(path, latest_filename)
        return path

    def _note(self, path: str, latest_filename: str) -> None:
        self.last_checkpoints = [p for p in self.last_checkpoints if p != path] + [path]
        extra = len(self.last_checkpoints) - (self.max_to_keep or 1 << 62)
        for old in self.last_checkpoints[: max(extra, 0)]:
            Path(old).unlink(missing_ok=True)
        self.last_checkpoints = self.last_checkpoints[max(extra, 0) :]
        folder = os.path.dirname(path)
        update_checkpoint_state(folder, path, self.last_checkpoints, latest_filename)

    def restore(self, sess: Any, save_path: str) -> None:
        """Give the session's variables the values in a file."""
        from weft.serialization import load

        if save_path is None or not os.path.isfile(save_path):
            raise NotFoundError(f"restore: there is no checkpoint {save_path!r}")
        found = load(save_path)
        missing = [name for name in self.table if name not in found]
        if missing:
            raise ArgumentError(f"restore: {save_path} has no values for {missing}")
        for name, v in self.table.items():
            if tuple(found[name].shape) != v.static_shape:
                raise ShapeError(
                    f"restore: variable {name!r} is {v.variable.type}, {save_path} has "
                    f"shape {tuple(found[name].shape)}"
                )
        for name, v in self.table.items():
            sess.load(v, found[name])


def _named_variables(var_list: Any) -> dict[str, Variable]:
    if isinstance(var_list, dict):
        return dict(var_list)
    chosen = get_default_graph().variables if var_list is None else var_list
    table = {v.name: v for v in chosen}
    if not table:
        raise ArgumentError("Saver: there are no variables to save")
    return table


def update_checkpoint_state(
    save_dir: str, model_checkpoint_path: str, all_model_checkpoint_paths: Any = None,
    latest_filename: str = "checkpoint", **ignored: Any,
) -> None:  # fmt: skip
    """Write the file that tells which checkpoints a folder has.

    >>> import tempfile
    >>> folder = tempfile.mkdtemp()
    >>> weft.static.train.update_checkpoint_state(folder, folder + "/model-1")
    >>> weft.static.train.get_checkpoint_state(folder).model_checkpoint_path[-7:]
    'model-1'
    """
    from weft.serialization import replacing

    def line(key: str, path: str) -> str:
        inside = os.path.dirname(path) == os.fspath(save_dir)
        text = (os.path.basename(path) if inside else path).replace("\\", "\\\\")
        return f'{key}: "{text}"\n'

    kept = list(all_model_checkpoint_paths or [model_checkpoint_path])
    text = line("model_checkpoint_path", model_checkpoint_path)
    text += "".join(line("all_model_checkpoint_paths", path) for path in kept)
    with replacing(os.path.join(save_dir, latest_filename)) as file:
        file.write(text.encode())


def get_checkpoint_state(
    checkpoint_dir: str, latest_filename: str = "checkpoint"
) -> CheckpointState | None:
    """What the file that tells of checkpoints says; None if there is none.

    >>> import tempfile
    >>> weft.static.train.get_checkpoint_state(tempfile.mkdtemp()) is None
    True
    """
    path = Path(checkpoint_dir) / latest_filename
    if not path.is_file():
        return None
    found: dict[str, list[str]] = {}
    for line in path.read_text(encoding="utf-8").splitlines():
        match = re.fullmatch(r'(\w+): "(.*)"', line.strip())
        if match is None:
            raise ArgumentError(f"get_checkpoint_state: {path} has the line {line!r}")
        name = match[2].replace("\\\\", "\\")
        full = os.path.join(os.fspath(checkpoint_dir), name)
        found.setdefault(match[1], []).append(full)
    latest = found.get("model_checkpoint_path", [""])[0]
    return CheckpointState(latest, found.get("all_model_checkpoint_paths", []))


def latest_checkpoint(
    checkpoint_dir: str, latest_filename: str | None = None
) -> str | None:
    """The path of a folder's latest checkpoint; None if there is none.

    >>> import tempfile
    >>> weft.static.train.latest_checkpoint(tempfile.mkdtemp()) is None
    True
    """
    state = get_checkpoint_state(checkpoint_dir, latest_filename or "checkpoint")
    if state is None or not checkpoint_exists(state.model_checkpoint_path):
        return None
    return state.model_checkpoint_path


def checkpoint_exists(checkpoint_prefix: str) -> bool:
    """Whether there is a checkpoint at a path.

    >>> weft.static.train.checkpoint_exists("nowhere")
    False
    """
    return os.path.isfile(checkpoint_prefix)


class NewCheckpointReader:
    """The values in a checkpoint, by name.

    >>> weft.static.train.NewCheckpointReader("nowhere")
    Traceback (most recent call last):
    ...
    weft.static.errors.NotFoundError: there is no checkpoint 'nowhere'
    """

    def __init__(self, filepattern: str) -> None:
        from weft.serialization import load

        path = filepattern
        if os.path.isdir(path):
            path = latest_checkpoint(path) or path
        if not os.path.isfile(path):
            raise NotFoundError(f"there is no checkpoint {filepattern!r}")
        self.values = {name: t.numpy() for name, t in load(path).items()}

    def get_variable_to_shape_map(self) -> dict[str, list[int]]:
        """The shape of each value."""
        return {name: list(value.shape) for name, value in self.values.items()}

    def has_tensor(self, tensor_str: str) -> bool:
        """Whether there is a value of this name."""
        return tensor_str.removesuffix(":0") in self.values

    def get_tensor(self, tensor_str: str) -> np.ndarray:
        """A value."""
        return self.values[tensor_str.removesuffix(":0")]


def load_checkpoint(ckpt_dir_or_file: str) -> NewCheckpointReader:
    """The values in a checkpoint, or in the latest one of a folder.

    >>> weft.static.train.load_checkpoint("nowhere")
    Traceback (most recent call last):
    ...
    weft.static.errors.NotFoundError: there is no checkpoint 'nowhere'
    """
    return NewCheckpointReader(ckpt_dir_or_file)


def list_variables(ckpt_dir_or_file: str) -> list[tuple[str, list[int]]]:
    """The names and shapes in a checkpoint.

    >>> weft.static.train.list_variables("nowhere")
    Traceback (most recent call last):
    ...
    weft.static.errors.NotFoundError: there is no checkpoint 'nowhere'
    """
    found = NewCheckpointReader(ckpt_dir_or_file).get_variable_to_shape_map()
    return sorted(found.items())


def load_variable(ckpt_dir_or_file: str, name: str) -> np.ndarray:
    """A value in a checkpoint.

    >>> weft.static.train.load_variable("nowhere", "w")
    Traceback (most recent call last):
    ...
    weft.static.errors.NotFoundError: there is no checkpoint 'nowhere'
    """
    return NewCheckpointReader(ckpt_dir_or_file).get_tensor(name)
