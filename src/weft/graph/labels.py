"""Names for what a captured function uses: its arguments and the state outside."""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Iterator
from typing import Any

from weft import late
from weft.core.pytree import custom_node
from weft.core.tensor import Tensor


def name_of(fn: Any) -> str:
    """A name for the graph of a function."""
    name = getattr(fn, "__name__", type(fn).__name__)
    return name if name.isidentifier() else "program"


def state_names(module: Any) -> dict[int, str]:
    """Names of a module's parameters and buffers, by the tensors' identity."""
    named = (*module.named_buffers(), *module.named_parameters())
    return {id(tensor): name for name, tensor in named}


def known_names(fn: Any) -> dict[int, str]:
    """Names of the state that a function is known to use."""
    Module = late.find("Module")
    owner = fn if isinstance(fn, Module) else getattr(fn, "__self__", None)
    if isinstance(owner, Module):
        return state_names(owner)
    known = outer_values(fn)
    modules = {
        name: value for name, value in known.items() if isinstance(value, Module)
    }
    found = {id(v): name for name, v in known.items() if isinstance(v, Tensor)}
    if len(modules) == 1:
        return found | state_names(*modules.values())
    for name, module in modules.items():
        found |= {i: f"{name}.{path}" for i, path in state_names(module).items()}
    return found


def outer_values(fn: Any) -> dict[str, Any]:
    """The values that a Python function refers to outside itself, by name."""
    code = getattr(fn, "__code__", None)
    if code is None:
        return {}
    known = {n: fn.__globals__[n] for n in code.co_names if n in fn.__globals__}
    for name, cell in zip(code.co_freevars, fn.__closure__ or (), strict=True):
        with contextlib.suppress(ValueError):  # a cell that is still empty
            known[name] = cell.cell_contents
    return known


def labels_of(fn: Any, args: Any, kwargs: Any) -> list[str]:
    """A name for each leaf of the arguments: ``x``, ``batch.0``, ``batch.image``."""
    target = fn.forward if hasattr(fn, "forward") else fn
    try:
        signature = inspect.signature(target)
        bound = signature.bind(*args, **kwargs).arguments
    except (TypeError, ValueError):
        bound = {f"arg{k}": a for k, a in enumerate(args)} | dict(kwargs)
    labels: list[str] = []
    for key, value in bound.items():
        kind = signature.parameters[key].kind if key in signature.parameters else None
        if kind is inspect.Parameter.VAR_KEYWORD:
            for k, v in value.items():
                labels += _paths(k, v)
        else:
            labels += _paths(key, value)
    return labels


def _paths(lead: str, tree: Any) -> Iterator[str]:
    if isinstance(tree, dict):
        for key, value in tree.items():
            yield from _paths(f"{lead}.{key}", value)
    elif isinstance(tree, (list, tuple)):
        for k, value in enumerate(tree):
            yield from _paths(f"{lead}.{k}", value)
    elif (node := custom_node(type(tree))) is not None:
        for k, value in enumerate(node[0](tree)[0]):
            yield from _paths(f"{lead}.{k}", value)
    elif tree is not None:
        yield lead
