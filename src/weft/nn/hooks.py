"""Watching gradients pass through a module."""

from __future__ import annotations

from typing import Any

from weft import Tensor, tree_flatten, tree_unflatten
from weft.autograd import Function


class _Out(Function):
    """Notes the cotangents of a module's outputs."""

    in_graphs = False  # a hook runs when gradients pass, not before

    @staticmethod
    def forward(ctx: Any, seen: dict[str, Any], *outs: Any) -> Any:
        ctx.seen = seen
        return tuple(o.alias() for o in outs)

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        ctx.seen["out"] = grads
        return (None, *grads)


class _In(Function):
    """Hands the cotangents of a module's inputs to its hooks."""

    in_graphs = False  # a hook runs when gradients pass, not before

    @staticmethod
    def forward(ctx: Any, module: Any, seen: dict[str, Any], *args: Any) -> Any:
        ctx.module, ctx.seen = module, seen
        return tuple(a.alias() for a in args)

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        for hook in list(ctx.module._backward_hooks.values()):
            replaced = hook(ctx.module, grads, ctx.seen.get("out", ()))
            if replaced is not None:
                grads = replaced
        return (None, None, *grads)


def watch_backward(module: Any, args: tuple[Any, ...], kwargs: Any) -> Any:
    """Run ``forward`` so that the module's backward hooks see its gradients."""
    seen: dict[str, Any] = {}
    leaves, structure = tree_flatten(args)
    positions = [k for k, a in enumerate(leaves) if isinstance(a, Tensor)]
    if positions:
        watched = _In.apply(module, seen, *[leaves[k] for k in positions])
        for k, tensor in zip(positions, watched, strict=True):
            leaves[k] = tensor
    out = module.forward(*tree_unflatten(leaves, structure), **kwargs)
    outs, out_structure = tree_flatten(out)
    positions = [k for k, o in enumerate(outs) if isinstance(o, Tensor)]
    if positions:
        watched = _Out.apply(seen, *[outs[k] for k in positions])
        for k, tensor in zip(positions, watched, strict=True):
            outs[k] = tensor
    return tree_unflatten(outs, out_structure)
