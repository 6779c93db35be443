"""Weft's operators in ONNX's: rules by the names of operators' records."""

import functools
import importlib

FAMILIES = ("elementwise", "shaping", "indexing", "reducing", "products", "windows",
            "control")  # fmt: skip


@functools.cache
def load_all() -> None:
    """Fill the table of rules."""
    for name in FAMILIES:
        importlib.import_module(f"weft.onnx.writing.{name}")
