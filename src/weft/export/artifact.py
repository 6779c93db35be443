"""``weft.export(program, example, path)``: programs that run without Python."""

from __future__ import annotations

import contextlib
import io
import os
from collections.abc import Mapping
from typing import Any

import numpy as np

import weft
from weft.core.tensor import Tensor
from weft.errors import ArgumentError
from weft.export.programs import Programs, programs_of
from weft.late import find
from weft.serialization.atomic import replacing
from weft.serialization.files import save

TARGETS = {".c": "c", ".onnx": "onnx"}


def write_artifact(
    program: Any,
    example: Any = None,
    path: str | os.PathLike[str] | None = None,
    *,
    target: str | None = None,
    dynamic_shapes: Any = None,
    weights: str = "inside",
) -> list[str]:
    """Write a program as an artefact that runs without Weft; gives its files.

    ``program`` is a module, a function, an exported, captured or loaded program, or a
    dictionary of several by the names of their entry points, which share their state;
    ``example`` has the arguments of modules and functions. ``path`` ends in what comes
    out, unless ``target`` says it: ``.c`` is a C99 file and its header, ``.onnx`` a
    model for other libraries (see ``weft.onnx.export``). ``weights`` are ``"inside"``
    or ``"beside"``, in a file of their own. Sizes that ``dynamic_shapes`` names are
    open.

    >>> import os, tempfile
    >>> folder = tempfile.mkdtemp()
    >>> files = weft.export(
    ...     weft.nn.Linear(3, 2), weft.ones(1, 3), os.path.join(folder, "net.c"))
    >>> [os.path.basename(file) for file in files]
    ['net.c', 'net.h']
    """
    if path is None:
        raise ArgumentError("export: expected a path, such as 'model.c'")
    place = os.fspath(path)
    kind = target or TARGETS.get(os.path.splitext(place)[1])
    if kind not in TARGETS.values():
        raise ArgumentError(
            f"export: expected a path that ends in {' or '.join(TARGETS)}, or one of "
            f"the targets {sorted(TARGETS.values())}, got {place!r}, {target!r}"
        )
    if weights not in ("inside", "beside"):
        raise ArgumentError(
            f"export: expected weights='inside' or 'beside', got {weights!r}"
        )
    if kind == "onnx":
        return _write_onnx(program, example, place, dynamic_shapes, weights)
    entries = _entries(program, example)
    programs = programs_of(entries, dynamic_shapes)
    return _write_c(programs, place, _packed if weights == "beside" else None)


def _write_onnx(
    program: Any, example: Any, place: str, dynamic_shapes: Any, weights: str
) -> list[str]:
    beside = True if weights == "beside" else None
    model = find("onnx").export(
        program, example, place, dynamic_shapes=dynamic_shapes, external_data=beside
    )
    large = beside or any(one.data_location for one in model.graph.initializer)
    return [place, f"{place}.data"] if large else [place]


def _entries(program: Any, example: Any) -> dict[str, Any]:
    if not isinstance(program, Mapping):
        return {"run": (program, example)}
    if not isinstance(example, Mapping) or set(example) != set(program):
        raise ArgumentError(
            f"export: expected a dictionary of examples for {sorted(program)}, got "
            f"{sorted(example) if isinstance(example, Mapping) else example!r}"
        )
    return {name: (one, example[name]) for name, one in program.items()}


def _packed(arrays: Mapping[str, np.ndarray]) -> bytes:
    """A safetensors file."""
    file = io.BytesIO()
    save({k: Tensor(a) for k, a in arrays.items()}, file, format="safetensors")
    return file.getvalue()


def _write_c(programs: Programs, place: str, pack: Any) -> list[str]:
    from weft.compile.targets.c.compiled import c_file

    stem = os.path.splitext(place)[0]
    name = os.path.basename(stem)
    made_of = f"made by Weft {weft.__version__}"
    made = c_file(name, programs.entries, programs.state, pack=pack, made_of=made_of)
    files = {f"{stem}.c": made.source.encode(), f"{stem}.h": made.header.encode()}
    if made.weights:
        files[f"{stem}.safetensors"] = made.weights
    with contextlib.ExitStack() as stack:
        opened = [stack.enter_context(replacing(file)) for file in files]
        for file, content in zip(opened, files.values(), strict=True):
            file.write(content)
    return list(files)
