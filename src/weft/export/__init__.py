"""``weft.export``: modules as programs of their own, under PyTorch's names.

``weft.export(program, example, "model.c")`` writes a program that runs without Python:
see ``artifact``.

``weft.export.export`` captures a module's ``forward`` once, as a graph of operators
whose parameters and buffers are inputs. The program runs without the module's Python
code, is saved to a file, and can be trained, compiled and changed node by node.

>>> ep = weft.export.export(weft.nn.ReLU(), (weft.ones(2),))
>>> print(ep.graph)
graph():
    %args_0 : [num_users=1] = placeholder[target=args_0]
    %relu : [num_users=1] = call_function[target=weft.ops.relu](args = (%args_0,), \
kwargs = {})
    return (relu,)
"""

import sys
from types import ModuleType
from typing import Any

from weft.export.artifact import write_artifact
from weft.export.dynamic_shapes import (
    AdditionalInputs,
    Dim,
    ShapesCollection,
    dims,
    register_dataclass,
)
from weft.export.exported_program import ExportedProgram, draft_export, export
from weft.export.files import load, save
from weft.export.graph_signature import ExportGraphSignature

__all__ = [
    "AdditionalInputs",
    "Dim",
    "ExportGraphSignature",
    "ExportedProgram",
    "ShapesCollection",
    "default_decompositions",
    "dims",
    "draft_export",
    "export",
    "load",
    "register_dataclass",
    "save",
]


def default_decompositions() -> dict[object, object]:
    """An empty table: the operators of an exported program are primitive.

    >>> weft.export.default_decompositions()
    {}
    """
    return {}


class _Callable(ModuleType):
    """The package, which is also the function that writes artefacts."""

    def __call__(self, *args: Any, **kwargs: Any) -> list[str]:
        return write_artifact(*args, **kwargs)


sys.modules[__name__].__class__ = _Callable
