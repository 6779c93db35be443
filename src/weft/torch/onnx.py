"""``torch.onnx``, as far as packages ask it: no program is ever exported."""

from __future__ import annotations

from typing import Any

__all__ = ["export", "is_in_onnx_export"]


def is_in_onnx_export() -> bool:
    """Whether a program is being exported: never.

    >>> weft.torch.onnx.is_in_onnx_export()
    False
    """
    return False


def export(*args: Any, **kwargs: Any) -> Any:
    """Refused: Weft writes no ONNX files."""
    raise NotImplementedError(
        "torch.onnx.export: Weft writes no ONNX files; torch.save(torch.compile(f), "
        "path) keeps a program"
    )
