"""``save`` and ``load``: one file for tensors, structures of them, and programs."""

from __future__ import annotations

import io
import os
import sys
from collections import OrderedDict
from typing import Any

from weft.core.tensor import Tensor
from weft.errors import ArgumentError, DTypeError
from weft.serialization import container, tree
from weft.serialization.atomic import replacing
from weft.serialization.container import Contents, FileReader

_PLAIN = (list, tuple, dict, OrderedDict, str, int, float, bool, complex, type(None))


def save(obj: Any, path: Any) -> None:
    """Write tensors, numbers, strings and structures of them, or a program.

    ``obj`` is a tensor, ``None``, a bool, number or string, or lists, tuples and
    dictionaries (with string or int keys) of these, nested as deep as you like. Or
    it is a graph, a captured program or a compiled function that has been called: the
    file then holds the program (the specialization that ran last) and its parameters,
    and ``load`` runs it where your code is not installed.

    ``path`` is a path, or a file opened for writing in binary. A path is written
    beside the old file first and then renamed, so a failure leaves the old file
    as it was. Leaves remember ``requires_grad``; gradients are not stored.

    >>> import os, tempfile
    >>> path = os.path.join(tempfile.mkdtemp(), "state.safetensors")
    >>> weft.save({"weight": weft.ones(2), "step": 3}, path)
    >>> weft.load(path)
    {'weight': tensor([1., 1.]), 'step': 3}
    """
    header, arrays = container.layout(_encode(obj))
    if callable(getattr(path, "write", None)):
        container.write(path, header, arrays)
        return
    try:
        target = os.path.realpath(os.fspath(path))
    except TypeError:
        raise DTypeError(
            f"save: expected a path or a binary file, got {type(path).__name__}"
        ) from None
    with replacing(os.fsdecode(target)) as file:
        container.write(file, header, arrays)


def _encode(obj: Any) -> Contents:
    if isinstance(obj, (Tensor, *_PLAIN)):
        return tree.encode_tree(obj)
    from weft.graph.captured_program import Captured
    from weft.graph.ir import Graph
    from weft.nn.module import Module
    from weft.serialization import program

    if isinstance(obj, (Graph, Captured)):
        return program.encode_program(obj)
    api = sys.modules.get("weft.compile.frontend.function")
    compiled = None if api is None else api.function_of(obj)
    if compiled is not None:
        latest = compiled.latest
        if latest is None:
            raise ArgumentError(
                f"save: {obj!r} has not been called yet, so there is no program; call "
                "it once with arguments like those it is for"
            )
        return program.encode_program(latest.captured, latest.fixed(), native=True)
    if isinstance(obj, Module):
        raise DTypeError(
            f"save: a {type(obj).__name__} alone is not a program; save its "
            "state_dict(), or capture it with an example of its input: "
            "weft.save(weft.graph.capture(model, example), path)"
        )
    return tree.encode_tree(obj)


def load(path: Any, *, mmap: bool = False) -> Any:
    """Read what ``save`` wrote, or a dictionary from any safetensors file.

    ``path`` is a path, or a file opened for reading in binary. With ``mmap=True``
    tensors are read from the file when they are first touched (a path only);
    changing them does not change the file. A program comes back as an object that
    can be called. A damaged or hostile file raises ``FileFormatError``; nothing in
    a file is ever executed.

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
    if callable(getattr(path, "read", None)):
        if mmap:
            raise ArgumentError("load: mmap=True needs a path, got an open file")
        return _decode(FileReader(*_sized(path), _label(path)))
    try:
        name = os.fspath(path)
    except TypeError:
        raise DTypeError(
            f"load: expected a path or a binary file, got {type(path).__name__}"
        ) from None
    with open(name, "rb") as file:
        size = os.fstat(file.fileno()).st_size
        return _decode(FileReader(file, size, repr(os.fsdecode(name)), mmap=mmap))


def _decode(reader: FileReader) -> Any:
    kind = reader.metadata.get("format")
    if kind == tree.FORMAT:
        return tree.decode_tree(reader)
    if kind == "weft graph":
        from weft.serialization.program import decode_program

        return decode_program(reader)
    return reader.tensors()


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
