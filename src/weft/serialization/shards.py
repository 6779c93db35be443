"""State dicts in several files: shards, and an index that says what is where.

    index      = JSON {"metadata": {"total_size": n}, "weight_map": {name: file}}
    files      = model-00001-of-00003.safetensors …        beside the index

Both kinds that Hugging Face's libraries write can be read: ``*.safetensors`` and
PyTorch's ``*.bin``. Each tensor must be in the file that the index names, and each
file may hold only what the index says of it.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable
from typing import Any

from weft.core.tensor import Tensor
from weft.errors import ArgumentError, DTypeError, FileFormatError
from weft.serialization import container
from weft.serialization.atomic import replacing
from weft.serialization.container import HEADER_LIMIT, Contents, as_stored
from weft.serialization.text import Budget, JsonText

INDEX = ".index.json"
_WHOLE = ("model.safetensors", "pytorch_model.bin")
_UNITS = {"": 1, "B": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12,
          "KIB": 1 << 10, "MIB": 1 << 20, "GIB": 1 << 30}  # fmt: skip
_NAME = re.compile(r"[A-Za-z0-9_\-][\w\-.]*")


def in_folder(folder: str) -> str:
    """The file in a folder that holds a model, or its index."""
    names = [n for whole in _WHOLE for n in (whole + INDEX, whole)]
    found = [n for n in names if os.path.isfile(os.path.join(folder, n))]
    if not found:
        raise FileFormatError(
            f"load: {folder!r} is a folder without {', '.join(names)}; name the file"
        )
    return os.path.join(folder, found[0])


# -- reading


def load_shards(path: str, load: Callable[[str], Any]) -> dict[str, Any]:
    """All tensors of the files that an index names, in the index's order."""
    where = _read_index(path)
    folder = os.path.dirname(path)
    found: dict[str, Any] = {}
    for file in dict.fromkeys(where.values()):
        part = load(os.path.join(folder, file))
        expected = {name for name, one in where.items() if one == file}
        if not isinstance(part, dict) or set(part) != expected:
            odd = sorted(
                map(str, expected ^ set(part if isinstance(part, dict) else ()))
            )
            raise FileFormatError(
                f"load: {path!r}: the file {file!r} does not hold what the index says "
                f"of it; they differ in {odd[:3]}"
            )
        found |= part
    return {name: found[name] for name in where}


def _read_index(path: str) -> dict[str, str]:
    def bad(reason: str) -> FileFormatError:
        return FileFormatError(f"load: {path!r}: {reason}")

    with open(path, "rb") as file:
        raw = file.read(HEADER_LIMIT + 1)
    if len(raw) > HEADER_LIMIT:
        raise bad(f"the index has more than {HEADER_LIMIT:,} bytes")
    try:
        text = raw.decode("utf-8")
    except ValueError as error:
        raise bad(f"the index is no text: {error}") from None
    index = JsonText(text, "index", Budget(len(raw), bad))
    where: dict[str, str] = {}
    seen: set[str] = set()
    for key in index.members():
        if key in seen:
            raise bad(f"the name {key!r} occurs twice")
        seen.add(key)
        if key == "weight_map":
            _read_map(index, where, bad)
        else:
            index.entry()
    index.finish()
    if "weight_map" not in seen:
        raise bad("expected the index to have a weight_map")
    return where


def _read_map(index: JsonText, where: dict[str, str], bad: Any) -> None:
    for name in index.members():
        if name in where:
            raise bad(f"the name {name!r} occurs twice")
        index.budget.spend(500)
        if index.next() != '"':
            raise bad("expected weight_map to map names to files")
        file = where[name] = index.string()
        if _NAME.fullmatch(file) is None:
            raise bad(
                f"expected the files to be beside the index, got {file[:80]!r} for "
                f"{name[:80]!r}"
            )


# -- writing


def as_bytes(size: Any) -> int:
    """A number of bytes, or a text such as "5GB".

    >>> from weft.serialization.shards import as_bytes
    >>> as_bytes("5GB"), as_bytes(300), as_bytes("2 MiB")
    (5000000000, 300, 2097152)
    """
    if type(size) is int and size > 0:
        return size
    match = re.fullmatch(
        r"\s*(\d+)\s*([A-Za-z]*)\s*", size if type(size) is str else ""
    )
    unit = None if match is None else _UNITS.get(match[2].upper())
    if match is None or unit is None or int(match[1]) == 0:
        raise ArgumentError(
            "save: expected max_shard_size to be a number of bytes or a text such as "
            f"'5GB', got {size!r}"
        )
    return int(match[1]) * unit


def save_shards(obj: Any, path: str, limit: int) -> None:
    """Write a state dict as files of at most ``limit`` bytes each, and an index.

    A tensor larger than that has a file of its own. One file is written, without an
    index, if everything fits. The index is replaced last.
    """
    if not path.endswith(".safetensors"):
        raise ArgumentError(
            f"save: shards are safetensors files; expected a path that ends in "
            f".safetensors, got {path!r}"
        )
    parts = _divided(_flat(obj), limit)
    if len(parts) == 1:
        _write(path, parts[0])
        return
    base = path.removesuffix(".safetensors")
    where: dict[str, str] = {}
    for number, part in enumerate(parts, 1):
        file = f"{base}-{number:05}-of-{len(parts):05}.safetensors"
        _write(file, part)
        where |= dict.fromkeys(part, os.path.basename(file))
    total = sum(array.nbytes for part in parts for array in part.values())
    index = {"metadata": {"total_size": total}, "weight_map": where}
    with replacing(path + INDEX) as out:
        out.write(json.dumps(index, indent=2).encode())


def _flat(obj: Any) -> dict[str, Any]:
    if not isinstance(obj, dict) or not all(
        type(name) is str and isinstance(x, Tensor) for name, x in obj.items()
    ):
        raise DTypeError(
            "save: max_shard_size needs a dictionary of names and tensors, such as "
            "model.state_dict()"
        )
    return {name: as_stored(x.to_host()) for name, x in obj.items()}


def _divided(arrays: dict[str, Any], limit: int) -> list[dict[str, Any]]:
    parts: list[dict[str, Any]] = [{}]
    size = 0
    for name, array in arrays.items():
        if parts[-1] and size + array.nbytes > limit:
            parts.append({})
            size = 0
        parts[-1][name] = array
        size += array.nbytes
    return parts


def _write(path: str, arrays: dict[str, Any]) -> None:
    header, ordered = container.layout(Contents({"format": "pt"}, arrays))
    with replacing(path) as file:
        container.write(file, header, ordered)
