"""PyTorch's own database of operators and samples, handed to Weft.

Each entry of ``op_db`` has a function and generators of sample arguments. A sample's
tensors are copied into tensors of Weft, its dtypes and memory formats into Weft's, and
its function is found by its public name; functions that the database writes in place
are made anew with ``weft`` where they say ``torch``.
"""

from __future__ import annotations

import functools
import types
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch
from compare import DTYPES, Failed, difference, plain
from torch.testing._internal.common_methods_invocations import op_db
from torch.testing._internal.common_modules import module_db
from torch.testing._internal.common_optimizers import optim_db

import weft

__all__ = ["error_samples", "module_db", "op_db", "optim_db", "outcome", "samples"]

# Places in which a function of PyTorch stands, and its place in Weft is the same.
PLACES = (
    "", "nn.functional", "linalg", "fft", "special", "masked", "nested",
    "signal.windows", "Tensor",
)  # fmt: skip

# What the database calls and has nothing to do with tensors of Weft.
KEPT = ("freeze_rng_state", "wrapper_set_seed")


def _at(root: Any, path: str) -> Any:
    for name in filter(None, path.split(".")):
        root = getattr(root, name)
    return root


@functools.cache
def _public_names() -> dict[int, str]:
    """PyTorch's public functions by identity: ``sum``, ``nn.functional.relu``."""
    found: dict[int, str] = {}
    for place in PLACES:
        for name in dir(_at(torch, place)):
            if not name.startswith("_") or name.endswith("__"):
                path = f"{place}.{name}".lstrip(".")
                found.setdefault(id(_at(torch, path)), path)
    return found


def function_of(theirs: Callable[..., Any]) -> Callable[..., Any]:
    """Weft's function for one of PyTorch's; AttributeError where there is none."""
    path = _public_names().get(id(theirs))
    if path is None and isinstance(theirs, types.MethodDescriptorType):
        path = f"Tensor.{theirs.__name__}"
    if path is not None:
        return _at(weft, path)
    if isinstance(theirs, functools.partial):
        keywords = {k: translated(v) for k, v in theirs.keywords.items()}
        args = [translated(v) for v in theirs.args]
        return functools.partial(function_of(theirs.func), *args, **keywords)
    if not isinstance(theirs, types.FunctionType):
        raise AttributeError(f"no public name for {theirs}")
    return _remade(theirs)


def _remade(theirs: types.FunctionType) -> Callable[..., Any]:
    """A function of the database, with Weft's names for PyTorch's."""
    if not theirs.__module__.startswith("torch.testing"):
        raise AttributeError(f"no public name for {theirs}")
    scope = dict(theirs.__globals__)
    for name in _names_in(theirs.__code__):
        value = scope.get(name)
        if isinstance(value, types.ModuleType) and value.__name__.startswith("torch"):
            scope[name] = _at(weft, value.__name__.removeprefix("torch").lstrip("."))
        elif isinstance(value, types.FunctionType) and name not in KEPT:
            ours = getattr(value, "__module__", "").startswith("torch.testing")
            if ours or id(value) in _public_names():
                scope[name] = function_of(value)
    cells = theirs.__closure__ or ()
    made = types.FunctionType(
        theirs.__code__,
        scope,
        theirs.__name__,
        translated(theirs.__defaults__),
        tuple(types.CellType(translated(cell.cell_contents)) for cell in cells),
    )
    made.__kwdefaults__ = translated(theirs.__kwdefaults__)
    return made


def _names_in(code: types.CodeType) -> set[str]:
    """The names that a function looks up, and those of functions inside it."""
    inner = (c for c in code.co_consts if isinstance(c, types.CodeType))
    return set(code.co_names).union(*map(_names_in, inner))


def translated(value: Any) -> Any:
    """An argument for Weft: tensors, dtypes, formats and functions are Weft's."""
    if isinstance(value, torch.Tensor):
        return _tensor(value)
    if isinstance(value, (torch.dtype, torch.memory_format, torch.layout)):
        return _at(weft, str(value).removeprefix("torch."))
    if isinstance(value, torch.device):
        return str(value)
    if isinstance(value, (tuple, list)):
        parts = [translated(v) for v in value]
        return parts if isinstance(value, list) else tuple(parts)
    if isinstance(value, dict):
        return {k: translated(v) for k, v in value.items()}
    if isinstance(value, slice):
        return slice(*map(translated, (value.start, value.stop, value.step)))
    if isinstance(value, torch.nn.Module):  # one without parameters
        return _at(weft, f"nn.{type(value).__name__}")()
    if callable(value) and not isinstance(value, type):
        return function_of(value)
    return value


def _tensor(value: torch.Tensor) -> weft.Tensor:
    name, _, array = plain(value)
    made = weft.tensor(array, dtype=getattr(weft, name))
    return made.requires_grad_() if value.requires_grad else made


def samples(op: Any, dtype: torch.dtype, *, grad: bool = False) -> Iterator[Any]:
    """The samples of an operator, as ``(input, args, kwargs)``, always the same."""
    torch.manual_seed(0)
    np.random.seed(0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for sample in op.sample_inputs("cpu", dtype, requires_grad=grad):
            yield sample.input, sample.args, sample.kwargs


def error_samples(op: Any) -> Iterator[Any]:
    """Calls that PyTorch's database expects to be refused."""
    torch.manual_seed(0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for error in op.error_inputs_func(op, "cpu") if op.error_inputs_func else ():
            given = error.sample_input
            yield given.input, given.args, given.kwargs


def outcome(call: Callable[[], Any]) -> Any:
    """What a call gives, or its failure."""
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        try:
            return call()
        except Exception as error:
            return Failed(error)


def tensors_in(value: Any, kind: type) -> list[Any]:
    """The tensors in nested lists, tuples and dictionaries."""
    if isinstance(value, kind):
        return [value]
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, (tuple, list)):
        return [t for part in value for t in tensors_in(part, kind)]
    return []


def gradients(outputs: Any, inputs: list[Any], of: Any) -> Any:
    """Gradients from fixed random cotangents to all inputs that require them."""
    outs = tensors_in(outputs, of.Tensor)
    leaves = [t for t in inputs if t.requires_grad]
    rng = np.random.default_rng(0)
    pairs = []
    for out in outs:
        g = rng.standard_normal(tuple(out.shape))
        if out.requires_grad:
            g = torch.from_numpy(np.asarray(g)) if of is torch else weft.tensor(g)
            pairs.append((out, g.to(out.dtype)))
    if not pairs:  # a constant
        return plain([of.zeros_like(x).detach() for x in leaves])
    seeds = [g for _, g in pairs]
    found = of.autograd.grad([o for o, _ in pairs], leaves, seeds, allow_unused=True)
    both = zip(found, leaves, strict=True)
    return plain([(of.zeros_like(x) if g is None else g).detach() for g, x in both])


# Relative to each element, and to the largest of the tensor.
CLOSE = {
    "float16": (2e-3, 2e-3), "bfloat16": (1.6e-2, 1.6e-2),
    "float32": (2e-5, 2e-6), "complex64": (2e-5, 2e-6),
    "float64": (1e-9, 1e-11), "complex128": (1e-9, 1e-11),
}  # fmt: skip


def differs(ours: Any, theirs: Any, *, values: bool = True) -> str:
    """What differs between two outcomes, where sums may be rounded in any order."""
    if isinstance(ours, Failed) or isinstance(theirs, Failed):
        return difference(ours, theirs)
    if isinstance(theirs, list):
        if not isinstance(ours, list) or len(ours) != len(theirs):
            return f"structure: {ours} against {theirs}"
        pairs = zip(ours, theirs, strict=True)
        return "; ".join(filter(None, (differs(a, b, values=values) for a, b in pairs)))
    if not (isinstance(theirs, tuple) and theirs and theirs[0] in DTYPES):
        return difference(ours, theirs) if values else ""
    if not isinstance(ours, tuple) or ours[:2] != theirs[:2]:
        return f"Weft gave {ours}, PyTorch {theirs}"
    if not values:
        return ""
    relative, absolute = CLOSE.get(theirs[0], (0, 0))
    finite = np.abs(theirs[2][np.isfinite(theirs[2])])
    absolute *= float(finite.max(initial=1.0)) if absolute else 1.0
    try:
        np.testing.assert_allclose(ours[2], theirs[2], rtol=relative, atol=absolute)
    except AssertionError as error:
        return str(error)
    return ""
