"""Checking gradients against central differences.

``gradcheck`` compares, in float64 and along random directions, the reverse-mode
and forward-mode derivatives of a function with ``(f(x + h v) - f(x - h v)) / 2h``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from weft.autograd.engine import grad
from weft.core.tensor import Tensor
from weft.errors import ArgumentError, AutogradError, DTypeError, WeftError


class GradcheckError(WeftError, RuntimeError):
    """An analytical derivative that differs from the numerical one."""


def _outputs(fn: Callable[..., Any], xs: Sequence[Any]) -> list[Tensor]:
    out = fn(*xs)
    outs = list(out) if isinstance(out, (tuple, list)) else [out]
    return [o for o in outs if isinstance(o, Tensor) and o.dtype.is_inexact]


def _direction(x: Tensor, rng: np.random.Generator) -> Tensor:
    v = rng.standard_normal(x.shape)
    if x.dtype.is_complex:
        v = v + 1j * rng.standard_normal(x.shape)
    return Tensor(np.asarray(v, x.dtype.np)).to(x.device)


def _dot(u: Any, v: Any) -> float:
    return float(np.vdot(u, v).real)


def _stepped(x: Tensor, eps: float, v: Tensor) -> Tensor:
    return Tensor(np.asarray(x.array() + eps * v.array())).to(x.device)


def numerical_derivative(
    fn: Callable[..., Any], xs: Sequence[Any], directions: Sequence[Any], eps: float
) -> list[np.ndarray]:
    """Central differences of all outputs along one direction of all inputs."""

    def moved(sign: float) -> list[np.ndarray]:
        there = [
            x if v is None else _stepped(x, sign * eps, v)
            for x, v in zip(xs, directions, strict=True)
        ]
        return [np.array(o.detach().cpu().numpy()) for o in _outputs(fn, there)]

    return [
        (up - down) / (2 * eps)
        for up, down in zip(moved(1.0), moved(-1.0), strict=True)
    ]


def gradcheck(
    func: Callable[..., Any],
    inputs: Any,
    *,
    eps: float = 1e-6,
    atol: float = 1e-5,
    rtol: float = 1e-4,
    raise_exception: bool = True,
    nondet_tol: float = 0.0,
    check_undefined_grad: bool = True,
    check_grad_dtypes: bool = False,
    check_batched_grad: bool = False,
    check_batched_forward_grad: bool = False,
    check_forward_ad: bool | None = None,
    check_backward_ad: bool = True,
    fast_mode: bool = True,
    masked: bool | None = None,
    seed: int = 0,
) -> bool:
    """Whether ``func``'s derivatives agree with central differences.

    Inputs that require grad are moved along a random direction; float64 is
    expected, since differences in float32 are too coarse to tell. Forward mode is
    checked as well, where ``func`` has it or ``check_forward_ad`` asks for it.
    ``fast_mode`` is always on: a random direction tells as much as a whole Jacobian,
    but for an error that is orthogonal to it. Gradients here are deterministic, of
    their inputs' dtypes, and None or zero where undefined, so ``nondet_tol``,
    ``check_grad_dtypes`` and ``check_undefined_grad`` have nothing to find.

    >>> x = weft.rand(3, dtype=weft.float64, requires_grad=True)
    >>> weft.autograd.gradcheck(weft.sin, x)
    True
    """
    xs = list(inputs) if isinstance(inputs, (tuple, list)) else [inputs]
    active = [isinstance(x, Tensor) and x.requires_grad for x in xs]
    _check_inputs(xs, active)
    _check_options(check_backward_ad, masked)
    try:
        _compare(func, xs, active, eps, atol, rtol, check_forward_ad, seed)
        if check_batched_grad:
            _check_batched(func, xs, active, atol, rtol, seed)
    except GradcheckError:
        if raise_exception:
            raise
        return False
    return True


def _check_options(backward: bool, masked: bool | None) -> None:
    if not backward:
        raise ArgumentError(
            "gradcheck: check_backward_ad=False is not taken; forward mode is checked "
            "with check_forward_ad beside backward"
        )
    if masked:
        raise ArgumentError("gradcheck: masked=True is for sparse tensors")


def _check_batched(
    func: Any, xs: list[Any], active: list[bool], atol: float, rtol: float, seed: int
) -> None:
    """Raise unless gradients under vmap are those one by one."""
    from weft.func import vjp, vmap
    from weft.ops.joining import stack

    rng = np.random.default_rng(seed)
    chosen = [k for k, on in enumerate(active) if on]

    def of_active(*moved: Any) -> tuple[Tensor, ...]:
        full = list(xs)
        for k, x in zip(chosen, moved, strict=True):
            full[k] = x
        return tuple(_outputs(func, full))

    outs, pull = vjp(of_active, *[xs[k] for k in chosen])
    pairs = [tuple(_direction(o, rng) for o in outs) for _ in range(2)]
    batch = tuple(stack(list(column)) for column in zip(*pairs, strict=True))
    together = vmap(lambda *us: pull(us))(*batch)
    for row, us in enumerate(pairs):
        for one, many in zip(pull(us), together, strict=True):
            if not np.allclose(one.detach(), many[row].detach(), rtol, atol):
                raise GradcheckError(
                    "gradcheck: gradients under vmap differ from those one by one"
                )


def _check_inputs(xs: list[Any], active: list[bool]) -> None:
    if not any(active):
        raise GradcheckError("gradcheck: expected at least one input to require grad")
    for k, (x, on) in enumerate(zip(xs, active, strict=True)):
        if on and x.dtype.to_real().name != "float64":
            raise DTypeError(
                f"gradcheck: input {k} is {x.dtype.name}; use float64 (or complex128), "
                "since central differences need the precision"
            )


def _compare(
    fn: Any,
    xs: Any,
    active: Any,
    eps: Any,
    atol: Any,
    rtol: Any,
    forward: bool | None,
    seed: int,
) -> None:
    rng = np.random.default_rng(seed)
    plain = [x.detach() if isinstance(x, Tensor) else x for x in xs]
    leaves = [
        p.clone().requires_grad_() if a else p
        for p, a in zip(plain, active, strict=True)
    ]
    outs = _outputs(fn, leaves)
    directions = [
        _direction(p, rng) if a else None for p, a in zip(plain, active, strict=True)
    ]
    numeric = numerical_derivative(fn, plain, directions, eps)
    _check_reverse(leaves, active, outs, directions, numeric, rng, atol, rtol)
    if forward is not False:
        _check_forward(fn, plain, directions, numeric, atol, rtol, bool(forward))


def _check_reverse(
    leaves: Any,
    active: Any,
    outs: Any,
    vs: Any,
    numeric: Any,
    rng: Any,
    atol: Any,
    rtol: Any,
) -> None:
    wanted = [x for x, a in zip(leaves, active, strict=True) if a]
    for k, (out, expected) in enumerate(zip(outs, numeric, strict=True)):
        if not out.requires_grad:
            _match("reverse", k, np.zeros(()), np.abs(expected).sum(), atol, rtol)
            continue
        u = _direction(out, rng)
        found = grad(out, wanted, u, retain_graph=True, materialize_grads=True)
        moved = [v for v, a in zip(vs, active, strict=True) if a]
        pairs = zip(found, moved, strict=True)
        got = sum(_dot(g.array(), v.array()) for g, v in pairs)
        _match("reverse", k, got, _dot(u.array(), expected), atol, rtol)


def _check_forward(
    fn: Any, plain: Any, vs: Any, numeric: Any, atol: Any, rtol: Any, asked: bool
) -> None:
    from weft.func import jvp

    positions = [k for k, v in enumerate(vs) if v is not None]

    def of_active(*moved: Any) -> tuple[Tensor, ...]:
        args = list(plain)
        for k, x in zip(positions, moved, strict=True):
            args[k] = x
        return tuple(_outputs(fn, args))

    primals = tuple(plain[k] for k in positions)
    tangents = tuple(vs[k] for k in positions)
    try:
        _, found = jvp(of_active, primals, tangents)
    except (AutogradError, NotImplementedError):  # a Function may have no forward mode
        if asked:
            raise
        return
    for k, (t, expected) in enumerate(zip(found, numeric, strict=True)):
        _match("forward", k, np.asarray(t.detach().cpu().numpy()), expected, atol, rtol)


def _match(
    kind: str, k: int, got: Any, expected: Any, atol: float, rtol: float
) -> None:
    if not np.allclose(got, expected, rtol=rtol, atol=atol):
        off = np.max(np.abs(np.asarray(got) - expected))
        raise GradcheckError(
            f"gradcheck: the {kind}-mode derivative of output {k} along a random "
            f"direction differs from central differences by {off:.3g}\n"
            f"  analytical: {np.asarray(got)!r}\n  numerical:  {np.asarray(expected)!r}"
        )


def gradgradcheck(
    func: Callable[..., Any],
    inputs: Any,
    grad_outputs: Any = None,
    *,
    eps: float = 1e-6,
    atol: float = 1e-5,
    rtol: float = 1e-4,
    gen_non_contig_grad_outputs: bool = False,
    raise_exception: bool = True,
    nondet_tol: float = 0.0,
    check_undefined_grad: bool = True,
    check_grad_dtypes: bool = False,
    check_batched_grad: bool = False,
    check_fwd_over_rev: bool = False,
    check_rev_over_rev: bool = True,
    fast_mode: bool = True,
    masked: bool = False,
    seed: int = 0,
) -> bool:
    """Whether the derivatives of ``func``'s gradient agree with differences.

    >>> x = weft.rand(3, dtype=weft.float64, requires_grad=True)
    >>> weft.autograd.gradgradcheck(weft.sin, x)
    True
    """
    xs = list(inputs) if isinstance(inputs, (tuple, list)) else [inputs]
    rng = np.random.default_rng(seed)
    outs = _outputs(func, xs)
    if grad_outputs is None:
        us = [_direction(o, rng).requires_grad_() for o in outs]
    else:
        us = (
            list(grad_outputs)
            if isinstance(grad_outputs, (tuple, list))
            else [grad_outputs]
        )

    from weft.func import vjp

    active = [k for k, x in enumerate(xs) if isinstance(x, Tensor) and x.requires_grad]

    def first(*args: Any) -> tuple[Any, ...]:
        inner, cts = list(args[: len(xs)]), args[len(xs) :]

        def of_active(*moved: Any) -> tuple[Tensor, ...]:
            full = list(inner)
            for k, x in zip(active, moved, strict=True):
                full[k] = x
            return tuple(_outputs(func, full))

        _, pull = vjp(of_active, *(inner[k] for k in active))
        return pull(tuple(cts))

    return gradcheck(
        first, [*xs, *us], eps=eps, atol=atol, rtol=rtol,
        raise_exception=raise_exception, check_batched_grad=check_batched_grad,
        check_backward_ad=check_rev_over_rev, masked=masked, seed=seed,
    )  # fmt: skip
