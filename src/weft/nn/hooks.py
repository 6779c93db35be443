"""Watching gradients pass through a module."""

from __future__ import annotations

from typing import Any

from weft import Tensor, tree_flatten, tree_unflatten
from weft.autograd import Function


def _as_tuple(value: Any) -> tuple[Any, ...]:
    return value if isinstance(value, tuple) else (value,)


class _Out(Function):
    """Notes the cotangents of a module's outputs, after its backward pre-hooks."""

    in_graphs = False  # a hook runs when gradients pass, not before

    @staticmethod
    def forward(ctx: Any, module: Any, seen: dict[str, Any], *outs: Any) -> Any:
        ctx.module, ctx.seen = module, seen
        return tuple(o.alias() for o in outs)

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        for hook in list(ctx.module._backward_pre_hooks.values()):
            replaced = hook(ctx.module, grads)
            if replaced is not None:
                grads = _as_tuple(replaced)
        ctx.seen["out"] = grads
        if not ctx.seen["watched"]:  # no gradient will come to the inputs
            _call(ctx.module, (None,) * ctx.seen["inputs"], grads)
        return (None, None, *grads)


class _In(Function):
    """Hands the cotangents of a module's inputs to its hooks."""

    in_graphs = False  # a hook runs when gradients pass, not before

    @staticmethod
    def forward(ctx: Any, module: Any, seen: dict[str, Any], *args: Any) -> Any:
        ctx.module, ctx.seen = module, seen
        return tuple(a.alias() for a in args)

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        needed = ctx.needs_input_grad[2:]
        shown = tuple(
            [g if need else None for g, need in zip(grads, needed, strict=True)]
        )
        return (None, None, *_call(ctx.module, shown, ctx.seen.get("out", ())))


def _call(module: Any, grads: tuple[Any, ...], outs: tuple[Any, ...]) -> Any:
    """The inputs' gradients after the module's backward hooks."""
    for hook in list(module._backward_hooks.values()):
        replaced = hook(module, grads, outs)
        if replaced is not None:
            grads = _as_tuple(replaced)
    return grads


def watch_backward(module: Any, args: tuple[Any, ...], kwargs: Any) -> Any:
    """Run ``forward`` so that the module's backward hooks see its gradients."""
    leaves, structure = tree_flatten(args)
    positions = [k for k, a in enumerate(leaves) if isinstance(a, Tensor)]
    watched = any(leaves[k].requires_grad for k in positions)
    seen: dict[str, Any] = {"watched": watched, "inputs": len(positions)}
    if watched:
        tensors = _In.apply(module, seen, *[leaves[k] for k in positions])
        for k, tensor in zip(positions, tensors, strict=True):
            leaves[k] = tensor
    out = module.forward(*tree_unflatten(leaves, structure), **kwargs)
    outs, out_structure = tree_flatten(out)
    positions = [k for k, o in enumerate(outs) if isinstance(o, Tensor)]
    if positions:
        tensors = _Out.apply(module, seen, *[outs[k] for k in positions])
        for k, tensor in zip(positions, tensors, strict=True):
            outs[k] = tensor
    return tree_unflatten(outs, out_structure)
