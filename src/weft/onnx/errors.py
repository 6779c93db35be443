"""The error of ONNX files, and the library that reads and writes them."""

from __future__ import annotations

from typing import Any

from weft.errors import ArgumentError, WeftError


class ModelError(WeftError, ValueError, RuntimeError):
    """An ONNX model that cannot be read, run or written, and why.

    >>> try:
    ...     weft.onnx.load(b"no model")
    ... except weft.onnx.ModelError as error:
    ...     print("expected an ONNX model" in str(error))
    True
    """


def library() -> Any:
    """The ``onnx`` package, which reads and writes the files."""
    try:
        import onnx
    except ImportError:
        raise ArgumentError(
            "weft.onnx: expected the package onnx, which is not installed; "
            "pip install 'weft[onnx]' installs it"
        ) from None
    return onnx
