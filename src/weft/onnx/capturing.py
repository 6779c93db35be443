"""Models of ONNX files as captured programs, with the open sizes of the file."""

from __future__ import annotations

import re
from inspect import Parameter, Signature
from keyword import iskeyword
from typing import Any

import weft
from weft.autograd.modes import no_grad
from weft.core.tensor import Tensor
from weft.errors import WeftError
from weft.graph.captured_program import Captured
from weft.graph.labels import labels_of
from weft.onnx.errors import ModelError
from weft.onnx.model import Model
from weft.onnx.types import dtype_of


def captured(model: Model) -> Captured:
    """The model as a program: what the file leaves open is open, as far as it can be.

    Sizes that decide how the program looks cannot be; then the first size of each input
    is tried alone.

    >>> import onnx
    >>> text = '''<ir_version: 8, opset_import: ["" : 17]>
    ... double (float[N, 3] x) => (float[N, 3] y) { y = Add(x, x) }'''
    >>> program = captured(weft.onnx.load(onnx.parser.parse_model(text)))
    >>> program(weft.ones(5, 3)).shape
    (5, 3)
    """
    sizes: dict[str, int] = {}
    inputs = [_input(model, name, sizes) for name in model.input_names]
    args = tuple([example for example, _ in inputs])
    model.eval()
    run = _named(model)
    labels = labels_of(run, args, {})
    every = {
        label: names for label, (_, names) in zip(labels, inputs, strict=True) if names
    }
    first = {label: {0: names[0]} for label, names in every.items() if 0 in names}
    failed: WeftError | None = None
    with no_grad():
        for dynamic in (every, first):
            try:
                return weft.graph.capture(run, *args, dynamic=dynamic)
            except WeftError as error:
                failed = failed or error
    assert failed is not None
    raise ModelError(
        "the model needs more than shapes of its inputs, or sizes that its file leaves "
        f"open: {str(failed).partition(chr(10))[0]}"
    ) from failed


def _named(model: Model) -> Any:
    """The model as a function whose arguments have its inputs' names."""

    def run(*args: Any) -> Any:
        return model(*args)

    names: dict[str, None] = {}
    for name in model.input_names:
        plain = re.sub(r"\W", "_", name)
        plain = plain if plain.isidentifier() and not iskeyword(plain) else f"_{plain}"
        while plain in names:
            plain += "_"
        names[plain] = None
    kind = Parameter.POSITIONAL_OR_KEYWORD
    run.__signature__ = Signature([Parameter(n, kind) for n in names])  # type: ignore[attr-defined]
    return run


def _input(
    model: Model, name: str, sizes: dict[str, int]
) -> tuple[Tensor, dict[int, str]]:
    """An example of an input, and the names of its open sizes by axis."""
    kind = model._inputs[name]
    if not kind.HasField("tensor_type") or not kind.tensor_type.HasField("shape"):
        raise ModelError(f"the input {name!r} is no tensor of a known rank")
    shape: list[Any] = []
    names: dict[int, str] = {}
    for axis, dim in enumerate(kind.tensor_type.shape.dim):
        if dim.HasField("dim_value"):
            shape.append(dim.dim_value)
            continue
        param = dim.dim_param
        plain = param if param.isidentifier() else f"size_{len(sizes)}"
        names[axis] = plain
        shape.append(sizes.setdefault(plain, 2 + len(sizes)))
    dtype = dtype_of(kind.tensor_type.elem_type)
    return weft.zeros(shape, dtype=dtype), names
