"""One program, run by Weft and by PyTorch, and what came out compared.

A case is an expression over the names of ``inputs`` and of two namespaces:
``T`` (``weft`` or ``torch``) and ``F`` (``weft`` or ``torch.nn.functional``).
The two results must agree in structure, dtype, shape and values; where PyTorch
raises, Weft must raise one of its own errors (or a signature's TypeError).
"""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import torch
import torch.nn.functional

import weft
from weft.errors import WeftError

DTYPES = (
    "bool", "uint8", "int8", "int16", "int32", "int64",
    "float16", "bfloat16", "float32", "float64", "complex64", "complex128",
)  # fmt: skip

# A few units in the last place of each type, relative and (near zero) absolute.
TOLERANCE = {
    "float16": 2e-3, "bfloat16": 1.6e-2, "float32": 3e-6, "float64": 1e-13,
    "complex64": 3e-6, "complex128": 1e-13,
}  # fmt: skip


# Where PyTorch refuses and Weft has an answer, by PyTorch's words.
PERMITTED = {
    "not implemented for": "PyTorch has no CPU kernel for the dtype",
    "must be Tensor, not": "Weft takes a number where a tensor may stand",
    "Subtraction, the `-` operator, with a bool": "only bool - bool is refused",
    "Index put requires the source and destination dtypes": "converted",
    "refer to a single memory location": "what is read is read before the write",
    "can't assign a": "lists and arrays are converted",
    "tensors used as indices must be long": "any integer dtype is an index",
    "the derivative for": "PyTorch lacks this second derivative",
    "Double backward is unsupported": "PyTorch lacks this second derivative",
    "ComplexHalf": "float16 with complex numbers gives complex64",
    "does not support bool": "False < True",
    "on CPU does not support complex": "PyTorch has no CPU kernel for the dtype",
    "must be either float or double dtype": "halves have quantiles too",
    "deg2rad is not supported for complex": "it is a multiplication",
}
# Where Weft refuses and PyTorch has an answer, by Weft's words.
REFUSED = {
    "cannot store complex": "an imaginary part is never dropped silently",
    "amax: expected a real dtype, got complex": "no complex logsumexp",
    "logaddexp: expected a floating-point dtype, got complex": "nor logaddexp",
}


class Failed:
    """The outcome of an expression that raised."""

    def __init__(self, error: Exception) -> None:
        self.error = error

    def __repr__(self) -> str:
        text = str(self.error).splitlines()[0] if str(self.error) else ""
        return f"{type(self.error).__name__}: {text}"


def both(array: Any, dtype: str | None = None) -> tuple[Any, Any]:
    """A weft and a torch tensor with the same values."""
    array = np.array(array)
    theirs = torch.from_numpy(array.copy())
    ours = weft.tensor(array)
    if dtype is not None:
        theirs, ours = theirs.to(getattr(torch, dtype)), ours.to(dtype)
    return ours, theirs


def plain(value: Any) -> Any:
    """A result as (dtype, shape, array), or a list of those."""
    if isinstance(value, weft.Tensor):
        array = value.detach().numpy()
        if value.dtype.name == "bfloat16":
            array = array.astype(np.float32)
        return value.dtype.name, tuple(value.shape), array
    if isinstance(value, torch.Tensor):
        name = str(value.dtype).removeprefix("torch.")
        value = value.detach().resolve_conj().resolve_neg()
        value = value + 0 if value._is_zerotensor() else value
        array = (value.float() if name == "bfloat16" else value).numpy()
        return name, tuple(value.shape), array
    if type(value) in (tuple, weft.Size, torch.Size) and set(map(type, value)) <= {int}:
        return tuple(value)
    if isinstance(value, (weft.DType, torch.dtype)):
        return str(value).rpartition(".")[2]
    if isinstance(value, (tuple, list)):
        return [plain(v) for v in value]
    return value


def evaluate(expression: str, names: dict[str, Any]) -> Any:
    """The expression's (or, with statements, the last name's) value or failure."""
    *statements, last = expression.split("; ")
    scope = dict(names)
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        try:
            for statement in statements:
                exec(statement, scope)
            return plain(eval(last, scope))
        except Exception as error:
            return Failed(error)


def difference(ours: Any, theirs: Any) -> str:
    """What differs between two outcomes; empty if nothing does."""
    if isinstance(theirs, Failed):
        if not isinstance(ours, Failed):
            if any(text in str(theirs.error) for text in PERMITTED):
                return ""
            return f"PyTorch raised {theirs!r}, Weft gave {ours}"
        fine = isinstance(ours.error, (WeftError, TypeError))
        return "" if fine else f"Weft let {ours!r} through (PyTorch: {theirs!r})"
    if isinstance(ours, Failed):
        if any(text in str(ours.error) for text in REFUSED):
            return ""
        return f"Weft raised {ours!r}, PyTorch gave {theirs}"
    if isinstance(theirs, list):
        if not isinstance(ours, list) or len(ours) != len(theirs):
            return f"structure: {ours} against {theirs}"
        found = [difference(a, b) for a, b in zip(ours, theirs, strict=True)]
        return "; ".join(text for text in found if text)
    if not (isinstance(theirs, tuple) and theirs and theirs[0] in DTYPES):
        same = ours == theirs or (ours != ours and theirs != theirs)
        close = isinstance(theirs, float) and np.isclose(ours, theirs, rtol=1e-6)
        return "" if same or close else f"{ours!r} against {theirs!r}"
    if not isinstance(ours, tuple) or ours[:2] != theirs[:2]:
        return f"Weft gave {ours}, PyTorch {theirs}"
    tolerance = TOLERANCE.get(theirs[0], 0)
    try:
        np.testing.assert_allclose(ours[2], theirs[2], rtol=tolerance, atol=tolerance)
    except AssertionError:
        return f"values: Weft gave\n{ours[2]}\nPyTorch\n{theirs[2]}"
    return ""


def compare(expression: str, inputs: dict[str, tuple[Any, Any]]) -> str:
    """Run one case on both sides and say what differs."""
    ours = {"T": weft, "F": weft} | {k: v[0] for k, v in inputs.items()}
    theirs = {"T": torch, "F": torch.nn.functional}
    theirs |= {k: v[1] for k, v in inputs.items()}
    return difference(evaluate(expression, ours), evaluate(expression, theirs))
