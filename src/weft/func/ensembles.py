"""Several models at once, and modules made fit for transforms."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from weft.errors import ArgumentError
from weft.func.vjp import value_and_grad
from weft.ops.joining import stack


def grad_and_value(
    func: Callable[..., Any], argnums: Any = 0, has_aux: bool = False
) -> Callable[..., Any]:
    """As ``grad``, with the value after the gradient.

    >>> weft.func.grad_and_value(lambda x: x * x)(weft.tensor(3.0))
    (tensor(6.), tensor(9.))
    """
    both = value_and_grad(func, argnums, has_aux=has_aux)

    def found(*args: Any, **kwargs: Any) -> tuple[Any, Any]:
        value, gradient = both(*args, **kwargs)
        return gradient, value

    return found


def functionalize(
    func: Callable[..., Any], *, remove: str = "mutations"
) -> Callable[..., Any]:
    """The function itself: captured programs have no changes in place.

    >>> weft.func.functionalize(weft.sin) is weft.sin
    True
    """
    if remove not in ("mutations", "mutations_and_views"):
        raise ArgumentError(
            "functionalize: Valid options for remove are: 'mutations' and "
            f"'mutations_and_views', got {remove!r}"
        )
    return func


def stack_module_state(models: Sequence[Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """The parameters and buffers of models of one class, each stacked.

    >>> models = [weft.nn.Linear(2, 3) for _ in range(4)]
    >>> parameters, buffers = weft.func.stack_module_state(models)
    >>> parameters["weight"].shape
    (4, 3, 2)
    """
    if not models:
        raise ArgumentError("stack_module_state: Expected at least one model, got 0.")
    if len({m.training for m in models}) > 1:
        raise ArgumentError(
            "stack_module_state: expected models of one training/eval mode"
        )
    if len({type(m) for m in models}) > 1:
        raise ArgumentError(
            "stack_module_state: Expected all models to be of the same class."
        )
    named = [dict(model.named_parameters()) for model in models]
    wanted = [p.requires_grad for p in named[0].values()]
    parameters = {
        name: stack([one[name].detach() for one in named]).requires_grad_(want)
        for name, want in zip(named[0], wanted, strict=True)
    }
    held = [dict(model.named_buffers()) for model in models]
    return parameters, {name: stack([one[name] for one in held]) for name in held[0]}


def replace_all_batch_norm_modules_(root: Any) -> Any:
    """Let batch norms keep no running statistics, in place: ``vmap`` has no use for
    them.

    >>> norm = weft.func.replace_all_batch_norm_modules_(weft.nn.BatchNorm1d(2))
    >>> norm.track_running_stats
    False
    """
    for module in root.modules():
        if "num_batches_tracked" in module._buffers and hasattr(module, "_momentum"):
            module.running_mean = module.running_var = None
            module.num_batches_tracked = None
            module.track_running_stats = False
    return root
