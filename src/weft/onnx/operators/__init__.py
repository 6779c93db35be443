"""ONNX's operators in Weft's: a module for each family, and one table of all."""

import functools
import importlib

FAMILIES = ("elementwise", "casting", "shaping", "indexing", "reducing", "products",
            "convolution", "pooling", "normalizing", "activation", "losses", "resizing",
            "regions", "recurrent", "control", "sequences", "attention", "quantized",
            "random", "signal", "training", "classical", "trees")  # fmt: skip


@functools.cache
def load_all() -> None:
    """Fill the table of operators."""
    for name in FAMILIES:
        importlib.import_module(f"weft.onnx.operators.{name}")
