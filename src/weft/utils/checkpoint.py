"""Activation checkpointing: less memory for a second forward run.

    y = checkpoint(block, x)                        keeps x, not what block computes
    y = checkpoint(block, x, policy="selective")    keeps products and convolutions
    y = checkpoint_sequential(blocks, "sqrt", x)    about sqrt(N) segments

The gradients are the same bits as without: the second run draws the same random
numbers, and restores running statistics. In a compiled step, the program recomputes
the values that are not kept.
"""

from __future__ import annotations

import itertools
import math
import warnings
from collections.abc import Callable, Iterable, Sequence
from contextlib import nullcontext
from typing import Any

from weft.autograd.policies import named, selective
from weft.autograd.segment import Keep, Result, Segment
from weft.core.mode import mode
from weft.core.tensor import Tensor
from weft.errors import ArgumentError, AutogradError, DTypeError
from weft.nn.containers import Sequential

__all__ = [
    "CheckpointError",
    "Result",
    "check_backward_validity",
    "checkpoint",
    "checkpoint_sequential",
    "detach_variable",
    "noop_context_fn",
    "set_checkpoint_debug_enabled",
    "set_checkpoint_early_stop",
]

CheckpointError = AutogradError  # of a second run that does something else


def noop_context_fn() -> tuple[Any, Any]:
    """Contexts for both runs that do nothing."""
    return nullcontext(), nullcontext()


def set_checkpoint_early_stop(enable: bool) -> Any:
    """A context without effect: values are recomputed by whole functions."""
    return nullcontext()


def set_checkpoint_debug_enabled(enabled: bool | None) -> Any:
    """A context without effect: a second run that differs always says where."""
    return nullcontext()


def detach_variable(inputs: tuple[Any, ...]) -> tuple[Any, ...]:
    """Arguments cut off the tape, which want gradients if they did before.

    >>> from weft.utils.checkpoint import detach_variable
    >>> (x,) = detach_variable((weft.ones(1, requires_grad=True) * 2,))
    >>> x.is_leaf, x.requires_grad
    (True, True)
    """
    if not isinstance(inputs, tuple):
        raise RuntimeError(
            "Only tuple of tensors is supported. Got Unsupported input type: "
            f"{type(inputs).__name__}"
        )
    return tuple(
        x.detach().requires_grad_(x.requires_grad) if isinstance(x, Tensor) else x
        for x in inputs
    )


def check_backward_validity(inputs: Iterable[Any]) -> None:
    """Warn if no argument wants a gradient."""
    if not any(x.requires_grad for x in inputs if isinstance(x, Tensor)):
        warnings.warn(
            "None of the inputs have requires_grad=True. Gradients will be None",
            stacklevel=2,
        )


Policy = str | Iterable[str] | Callable[[Result], bool] | None


def checkpoint(
    function: Callable[..., Any],
    *args: Any,
    policy: Policy = None,
    use_reentrant: bool | None = None,
    preserve_rng_state: bool = True,
    context_fn: Callable[[], tuple[Any, Any]] | None = None,
    determinism_check: str = "default",
    debug: bool = False,
    early_stop: bool = True,
    **kwargs: Any,
) -> Any:
    """Call ``function`` and keep only its arguments for the backward pass.

    The first gradient that needs a value from inside runs the function once more; each
    value is let go of as it is used. ``policy`` says which results are kept (and not
    recomputed): none ("recompute", the default), all ("keep"), those of matrix products
    and convolutions ("selective"), those of some operators (a set of names; "conv" is
    any convolution), or those for which a function of a ``Result`` says so.

    A second run that does something else is an error that names the operator;
    ``determinism_check="none"`` compares the operators alone and not their types.
    ``use_reentrant``, ``debug`` and ``early_stop`` are taken for the sake of PyTorch's
    programs: there is one behaviour, that of ``use_reentrant=False``.

    >>> from weft.utils.checkpoint import checkpoint
    >>> x = weft.tensor([0.0, 1.0], requires_grad=True)
    >>> checkpoint(lambda x: x.exp().sin().sum(), x).backward()
    >>> x.grad
    tensor([ 0.5403, -2.4784])
    """
    if determinism_check not in ("default", "none"):
        raise ArgumentError(
            "checkpoint: expected determinism_check 'default' or 'none', got "
            f"{determinism_check!r}"
        )
    keeps_all, keep = _policy(policy)
    if keeps_all or not mode.recording:
        return function(*args, **kwargs)
    if mode.capture is not None:
        return _captured(function, args, kwargs, keep)
    segment = Segment(
        function, args, kwargs,
        keep=keep,
        preserve_rng_state=preserve_rng_state,
        check=determinism_check == "default",
        contexts=(nullcontext(), nullcontext()) if context_fn is None else context_fn(),
    )  # fmt: skip
    return segment.run(args, kwargs)


def _captured(function: Callable[..., Any], args: Any, kwargs: Any, keep: Any) -> Any:
    """Run a function as part of a graph; the compiled program obeys the policy."""
    from weft.graph.outside_tensors import Capture

    run = mode.capture
    with run.region(keep) if isinstance(run, Capture) else nullcontext():
        return function(*args, **kwargs)


def _policy(policy: Policy) -> tuple[bool, Keep | None]:
    """Whether everything is kept, else which results are."""
    if policy is None or policy == "recompute":
        return False, None
    if policy == "keep":
        return True, None
    if callable(policy):
        return False, policy
    if policy == "selective":
        return False, selective()
    if policy == "sqrt":
        raise ArgumentError(
            "checkpoint: 'sqrt' cuts a chain of functions into segments; use "
            'checkpoint_sequential(functions, "sqrt", x)'
        )
    if isinstance(policy, str) or not isinstance(policy, Iterable):
        raise ArgumentError(
            "checkpoint: expected a policy 'recompute', 'keep' or 'selective', a set "
            f"of operators' names or a function, got {policy!r}"
        )
    return False, named("checkpoint", policy)


def checkpoint_sequential(
    functions: Sequential | Sequence[Callable[..., Any]],
    segments: int | str | None,
    input: Any,
    use_reentrant: bool | None = None,
    **options: Any,
) -> Any:
    """Run functions one after another, in checkpointed segments.

    ``segments`` is their number; None or "sqrt" takes about the square root of the
    number of functions, which keeps the fewest values: one a segment, and those
    inside the segment that backward is in. The last segment, where backward begins,
    is not checkpointed. ``options`` are those of ``checkpoint``.

    >>> from weft.utils.checkpoint import checkpoint_sequential
    >>> layers = [weft.nn.Linear(4, 4) for _ in range(9)]
    >>> checkpoint_sequential(layers, "sqrt", weft.ones(2, 4)).shape
    (2, 4)
    """
    steps: list[Callable[..., Any]] = [*functions]
    bounds = _bounds(len(steps), segments)
    for start, stop in bounds[:-1]:
        run = _chain(steps[start:stop])
        input = checkpoint(run, input, use_reentrant=use_reentrant, **options)
    return _chain(steps[slice(*bounds[-1])])(input)


def _bounds(count: int, segments: int | str | None) -> list[tuple[int, int]]:
    """The bounds of each segment."""
    if not count:
        raise ArgumentError("checkpoint_sequential: got no functions to run")
    if segments is None or segments == "sqrt":
        segments = max(1, round(math.sqrt(count)))
    if isinstance(segments, bool) or not isinstance(segments, int):
        raise DTypeError(
            "checkpoint_sequential: expected a number of segments, 'sqrt' or None, got "
            f"{segments!r}"
        )
    if not 1 <= segments <= count:
        raise ArgumentError(
            f"checkpoint_sequential: expected from 1 to {count} segments (one function "
            f"each), got {segments}"
        )
    edges = [k * count // segments for k in range(segments + 1)]
    return list(itertools.pairwise(edges))


def _chain(steps: Sequence[Callable[..., Any]]) -> Callable[[Any], Any]:
    def run(x: Any) -> Any:
        for step in steps:
            x = step(x)
        return x

    return run
