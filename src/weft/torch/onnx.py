"""``torch.onnx``: programs as ONNX files, by ``weft.onnx``, under PyTorch's names."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

from weft.export.dynamic_shapes import Dim
from weft.late import find

__all__ = ["export", "is_in_onnx_export"]


def is_in_onnx_export() -> bool:
    """Whether a program is being exported: programs are the same then.

    >>> weft.torch.onnx.is_in_onnx_export()
    False
    """
    return False


def export(
    model: Any,
    args: Any = (),
    f: str | os.PathLike[str] | None = None,
    *,
    kwargs: Mapping[str, Any] | None = None,
    input_names: Sequence[str] | None = None,
    output_names: Sequence[str] | None = None,
    opset_version: int | None = None,
    dynamic_axes: Mapping[str, Any] | None = None,
    dynamic_shapes: Any = None,
    external_data: bool | None = None,
    export_params: bool = True,
    do_constant_folding: bool = True,
    training: Any = None,
    verbose: bool | None = None,
    dynamo: bool = True,
) -> Any:
    """Write a module as an ONNX file: see ``weft.onnx.export``.

    >>> model = weft.torch.onnx.export(
    ...     weft.nn.Linear(3, 2), (weft.ones(1, 3),), input_names=["x"],
    ...     dynamic_axes={"x": {0: "batch"}})
    >>> model.graph.input[0].type.tensor_type.shape.dim[0].dim_param
    'batch'
    """
    if kwargs:
        raise NotImplementedError("torch.onnx.export: pass the arguments as args")
    if not export_params:
        raise NotImplementedError("torch.onnx.export: parameters are always part of it")
    args = args if isinstance(args, tuple) else (args,)
    if dynamic_shapes is None and dynamic_axes:
        dynamic_shapes = _open(args, input_names or (), dynamic_axes)
    return find("onnx").export(
        model, args, f, dynamic_shapes=dynamic_shapes, opset=opset_version,
        input_names=input_names, output_names=output_names, external_data=external_data,
    )  # fmt: skip


def _open(args: Any, names: Sequence[str], axes: Mapping[str, Any]) -> tuple[Any, ...]:
    """The dimensions of each argument that are open, by the names of inputs."""
    dims: dict[str, Dim] = {}
    found = []
    for k in range(len(args)):
        given = axes.get(names[k] if k < len(names) else "", {})
        if not isinstance(given, Mapping):
            given = {axis: f"{names[k]}_{axis}" for axis in given}
        named = {a: dims.setdefault(n, Dim(n, min=1)) for a, n in given.items()}
        found.append(named or None)
    return tuple(found)
