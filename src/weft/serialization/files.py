"""``save`` and ``load``: one file for tensors, structures of them, and programs."""

from __future__ import annotations

import io
import os
import sys
from collections import OrderedDict
from collections.abc import Callable
from typing import Any

from weft.core.tensor import Tensor
from weft.errors import ArgumentError, DTypeError
from weft.nn.module import Module
from weft.serialization import container, shards, tree
from weft.serialization.atomic import replacing
from weft.serialization.container import Contents, FileReader
from weft.serialization.storages import Placement

_PLAIN = (list, tuple, dict, OrderedDict, str, int, float, bool, complex, type(None))
FORMATS = ("torch", "safetensors")


def save(
    obj: Any,
    f: Any,
    pickle_module: Any = None,
    pickle_protocol: int = 2,
    _use_new_zipfile_serialization: bool = True,
    *,
    format: str | None = None,
    max_shard_size: int | str | None = None,
) -> None:
    """Write tensors, numbers, strings and structures of them, or a program.

    ``f`` is a path, or a file opened for writing in binary. A path is written beside
    the old file first and then renamed, so a failure leaves the old file as it was.
    Leaves remember ``requires_grad``; gradients are not stored.

    The file is PyTorch's (``torch.load`` reads it), unless its path ends in
    ``.safetensors``; ``format="torch"`` and ``format="safetensors"`` say it outright.
    PyTorch's files keep which tensors share memory, sets, ``OrderedDict`` and whole
    modules (``load(weights_only=False)``). A safetensors file holds tensors, numbers,
    strings, lists, tuples and dictionaries. With ``max_shard_size`` (bytes, or a text
    such as ``"5GB"``) a state dict becomes several safetensors files and an index.

    A graph, a captured program or a compiled function that has been called is a
    program: its file, safetensors always, holds the program (the specialization that
    ran last) and its parameters, and ``load`` runs it where your code is not
    installed.

    >>> import os, tempfile
    >>> path = os.path.join(tempfile.mkdtemp(), "state.pt")
    >>> weft.save({"weight": weft.ones(2), "step": 3}, path)
    >>> weft.load(path)
    {'weight': tensor([1., 1.]), 'step': 3}
    """
    _check_pickle("save", pickle_module)
    if pickle_protocol != 2:
        raise ArgumentError(
            f"save: files are written in pickle protocol 2, got {pickle_protocol!r}"
        )
    target = None if _is_file(f, "write") else _path("save", f)
    if max_shard_size is not None:
        if target is None or format == "torch":
            raise ArgumentError("save: max_shard_size needs a path of safetensors")
        return shards.save_shards(obj, target, shards.as_bytes(max_shard_size))
    write = _writer(obj, target, format, _use_new_zipfile_serialization)
    if target is None:
        return write(f)
    with replacing(os.path.realpath(target)) as file:
        write(file)


def _writer(
    obj: Any, path: str | None, format: str | None, zipped: bool
) -> Callable[[Any], None]:
    """A function that writes the object; whatever can be refused has been."""
    if format not in (None, *FORMATS):
        raise ArgumentError(
            f"save: expected format 'torch' or 'safetensors', got {format!r}"
        )
    program = _program(obj)
    if program is not None and format == "torch":
        raise ArgumentError("save: a program is a safetensors file, not one of PyTorch")
    named = path is not None and path.endswith(".safetensors")
    if program is None and (format == "torch" or (format is None and not named)):
        from weft.serialization.torch_files import encode

        return encode(obj, path, zipped=zipped)
    if program is None and isinstance(obj, Module):
        raise DTypeError(
            f"save: a {type(obj).__name__} alone is not a program; save its "
            "state_dict(), or capture it with an example of its input: "
            "weft.save(weft.graph.capture(model, example), path)"
        )
    header, arrays = container.layout(program or tree.encode_tree(obj))
    return lambda file: container.write(file, header, arrays)


def _program(obj: Any) -> Contents | None:
    """The contents of a program's file; None if the object is no program."""
    if isinstance(obj, (Tensor, *_PLAIN)):
        return None
    from weft.graph.captured_program import Captured
    from weft.graph.ir import Graph
    from weft.serialization import program

    if isinstance(obj, (Graph, Captured)):
        return program.encode_program(obj)
    api = sys.modules.get("weft.compile.frontend.function")
    compiled = None if api is None else api.function_of(obj)
    if compiled is None:
        return None
    latest = compiled.latest
    if latest is None:
        raise ArgumentError(
            f"save: {obj!r} has not been called yet, so there is no program; call "
            "it once with arguments like those it is for"
        )
    return program.encode_program(latest.captured, latest.fixed(), native=True)


def load(
    f: Any,
    map_location: Any = None,
    pickle_module: Any = None,
    *,
    weights_only: bool | None = True,
    mmap: bool | None = None,
    encoding: str = "utf-8",
) -> Any:
    """Read a file that ``save``, PyTorch or any writer of safetensors wrote.

    ``f`` is a path, or a file opened for reading in binary; or a folder or an index
    (``model.safetensors.index.json``) of a state dict in several files. With
    ``mmap=True`` tensors are read from the file when they are first touched (a path
    only); changing them does not change the file. ``map_location`` is a device, its
    name, a dictionary of such names or a function of a storage and its location.

    A damaged or hostile file raises ``FileFormatError``; nothing in a file is ever
    executed. PyTorch's files may hold tensors and plain containers. Other classes are
    refused by name, unless they are allowed (``weft.serialization.add_safe_globals``)
    or the file is loaded with ``weights_only=False``, which rebuilds modules and the
    program's own plain classes, running none of their code. A program comes back as
    an object that can be called.

    >>> import io
    >>> file = io.BytesIO()
    >>> weft.save([weft.tensor(1.5), ("a", None)], file)
    >>> weft.load(io.BytesIO(file.getvalue()))
    [tensor(1.5000), ('a', None)]
    >>> file = io.BytesIO()
    >>> weft.save(weft.graph.capture(weft.nn.ReLU(), weft.ones(2)), file)
    >>> weft.load(io.BytesIO(file.getvalue()))(weft.tensor([-1.0, 1.0]))
    tensor([0., 1.])
    """
    _check_pickle("load", pickle_module)
    options = {
        "weights_only": weights_only is not False, "mmap": bool(mmap),
        "encoding": encoding,
    }  # fmt: skip
    placement = Placement(map_location)
    if _is_file(f, "read"):
        if mmap:
            raise ArgumentError("load: mmap=True needs a path, got an open file")
        return _read(*_sized(f), _label(f), placement, options)
    return _load_path(_path("load", f), placement, options)


def _load_path(path: str, placement: Placement, options: dict[str, Any]) -> Any:
    if os.path.isdir(path):
        path = shards.in_folder(path)
    if path.endswith(shards.INDEX):
        return shards.load_shards(path, lambda p: _load_path(p, placement, options))
    with open(path, "rb") as file:
        size = os.fstat(file.fileno()).st_size
        return _read(file, size, repr(path), placement, options)


def _read(
    file: Any, size: int, label: str, placement: Placement, options: dict[str, Any]
) -> Any:
    found = _torch_file(file, size, label, placement, options)
    if found is not None:
        opened, archive = found
        return opened.read(archive)
    reader = FileReader(file, size, label, mmap=options["mmap"])
    reader.place = placement.tensor
    return _decode(reader, placement)


def _torch_file(
    file: Any, size: int, label: str, placement: Placement, options: Any
) -> Any:
    """The reader of a file of PyTorch's, and whether it is an archive; else None."""
    start = file.tell()
    head = container.binary(file.read(min(size, 16)))
    file.seek(start)
    if head[:2] != b"PK" and head[:1] not in (b"\x80", b"L", b"I"):
        return None
    from weft.serialization import torch_files

    archive = torch_files.is_archive(head)
    if not archive and not torch_files.is_pickle(head):
        return None
    return torch_files.TorchFile(file, size, label, placement, **options), archive


def get_unsafe_globals_in_checkpoint(f: Any) -> list[str]:
    """The names in a file of PyTorch's that it may not use, without loading it.

    >>> import argparse, io
    >>> file = io.BytesIO()
    >>> weft.save(argparse.Namespace(lr=0.1), file)
    >>> file = io.BytesIO(file.getvalue())
    >>> weft.serialization.get_unsafe_globals_in_checkpoint(file)
    ['argparse.Namespace']
    """
    options = {"weights_only": True, "mmap": False, "encoding": "utf-8"}
    if not _is_file(f, "read"):
        with open(_path("get_unsafe_globals_in_checkpoint", f), "rb") as file:
            return get_unsafe_globals_in_checkpoint(file)
    found = _torch_file(*_sized(f), _label(f), Placement(), options)
    return [] if found is None else found[0].unsafe(found[1])


def _decode(reader: FileReader, placement: Placement) -> Any:
    kind = reader.metadata.get("format")
    if kind == tree.FORMAT:
        return tree.decode_tree(reader)
    if kind == "weft graph":
        from weft.serialization.program import decode_program

        if placement.given is not None:
            raise ArgumentError(
                "load: a program is loaded on the CPU; map_location is for tensors"
            )
        return decode_program(reader)
    return reader.tensors()


def _check_pickle(who: str, module: Any) -> None:
    if module is not None and getattr(module, "__name__", "") != "pickle":
        raise ArgumentError(
            f"{who}: expected no pickle_module; Weft reads and writes pickles itself, "
            "so that nothing in a file is executed"
        )


def _is_file(f: Any, method: str) -> bool:
    """Whether this is an open file, rather than a path that can also read itself."""
    if isinstance(f, (str, bytes, os.PathLike)):
        return False
    return callable(getattr(f, method, None))


def _path(who: str, f: Any) -> str:
    try:
        return os.fsdecode(os.fspath(f))
    except TypeError:
        raise DTypeError(
            f"{who}: expected a path or a binary file, got {type(f).__name__}"
        ) from None


def _label(file: Any) -> str:
    return repr(str(getattr(file, "name", f"<{type(file).__name__}>")))


def _sized(file: Any) -> tuple[Any, int]:
    """A file and the bytes left in it; one that cannot seek is read whole."""
    try:
        start = file.tell()
        size = file.seek(0, os.SEEK_END) - start
        file.seek(start)
        return file, size
    except (OSError, AttributeError):
        whole = io.BytesIO()
        while chunk := file.read(1 << 20):
            whole.write(container.binary(chunk))
        size = whole.tell()
        whole.seek(0)
        return whole, size
