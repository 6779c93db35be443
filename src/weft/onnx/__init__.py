"""``weft.onnx``: models in ONNX's format, read and written.

``load`` gives a module, which runs, trains, compiles and is exported again;
``export`` writes modules and functions. ``backend`` is ONNX's own interface, by which
its tests run. They need the package ``onnx``:
``pip install 'weft[onnx]'``.
"""

import importlib
from typing import Any

from weft.onnx.capturing import captured
from weft.onnx.errors import ModelError
from weft.onnx.exporting import export
from weft.onnx.model import Model, load

__all__ = ["Model", "ModelError", "backend", "captured", "export", "load"]


def __getattr__(name: str) -> Any:
    if name == "backend":  # it is made of classes of the onnx package
        from weft.onnx.errors import library

        library()
        return importlib.import_module("weft.onnx.backend")
    raise AttributeError(f"module 'weft.onnx' has no attribute {name!r}")
