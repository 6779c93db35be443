"""Jacobians and Hessians: a basis of directions, mapped in one batched pass."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from weft.autograd.modes import no_grad
from weft.core.pytree import tree_flatten, tree_map, tree_unflatten
from weft.core.tensor import Tensor
from weft.func.jvp import jvp
from weft.func.vjp import Pulled, by_argnums
from weft.func.vmap import vmap


def _basis(leaves: list[Tensor]) -> list[Tensor]:
    """One-hot directions of all leaves together, a row each."""
    total = sum(x.numel() for x in leaves)
    eye = np.eye(total)
    out, start = [], 0
    for x in leaves:
        block = eye[:, start : start + x.numel()]
        shaped = block.reshape(total, *x.shape).astype(x.dtype.np)
        out.append(Tensor(shaped).to(x.device))
        start += x.numel()
    return out


def _split_rows(rows: Tensor, leaves: list[Tensor]) -> list[Tensor]:
    """Rows by direction, as one tensor for each leaf with its shape in front."""
    out, start = [], 0
    for x in leaves:
        block = rows[start : start + x.numel()]
        out.append(block.reshape((*x.shape, *rows.shape[1:])))
        start += x.numel()
    return out


def jacrev(
    func: Callable[..., Any],
    argnums: Any = 0,
    *,
    has_aux: bool = False,
    chunk_size: int | None = None,
) -> Callable[..., Any]:
    """The Jacobian by reverse mode: one direction for each output element.

    >>> weft.func.jacrev(lambda x: x**2)(weft.tensor([1.0, 2.0]))
    tensor([[2., 0.],
            [0., 4.]])
    """

    @functools.wraps(func)
    def jacobian_of(*args: Any, **kwargs: Any) -> Any:
        of_chosen, chosen = by_argnums("jacrev", func, argnums, args, kwargs)
        run = Pulled("jacrev", of_chosen, chosen, has_aux)
        result = _reverse(run, chunk_size)
        return (result, run.aux) if has_aux else result

    return jacobian_of


def _reverse(run: Pulled, chunk_size: int | None) -> Any:
    """Rows d(output element)/d(inputs), arranged by output, then by input."""

    def row(*cotangents: Tensor) -> Any:
        return run.pull(list(cotangents), keep=True)

    rows = vmap(row, chunk_size=chunk_size)(*_basis(run.outs))
    columns, structure = tree_flatten(rows)
    split = [_split_rows(column, run.outs) for column in columns]
    per_output = [
        tree_unflatten([s[k] for s in split], structure) for k in range(len(run.outs))
    ]
    return tree_unflatten(per_output, run.out_structure)


def jacfwd(
    func: Callable[..., Any],
    argnums: Any = 0,
    has_aux: bool = False,
    *,
    chunk_size: int | None = None,
) -> Callable[..., Any]:
    """The Jacobian by forward mode: one direction for each input element.

    >>> weft.func.jacfwd(lambda x: x**2)(weft.tensor([1.0, 2.0]))
    tensor([[2., 0.],
            [0., 4.]])
    """

    @functools.wraps(func)
    def jacobian_of(*args: Any, **kwargs: Any) -> Any:
        of_chosen, chosen = by_argnums("jacfwd", func, argnums, args, kwargs)
        return _forward(of_chosen, chosen, has_aux, chunk_size)

    return jacobian_of


def _forward(of_chosen: Any, chosen: Any, has_aux: bool, chunk_size: int | None) -> Any:
    leaves, structure = tree_flatten(chosen)

    def column(*tangents: Tensor) -> Any:
        direction = tree_unflatten(list(tangents), structure)
        found = jvp(of_chosen, (chosen,), (direction,), has_aux=has_aux)
        return (found[1], found[2]) if has_aux else found[1]

    mapped = vmap(column, out_dims=0, chunk_size=chunk_size, randomness="same")
    columns = mapped(*_basis(leaves))
    aux = None
    if has_aux:
        columns, aux = columns
        aux = tree_map(lambda a: a[0], aux)

    def arranged(rows: Tensor) -> Any:
        parts = _split_rows(rows, leaves)
        moved = [
            p.movedim(tuple(range(x.ndim)), tuple(range(-x.ndim, 0))) if x.ndim else p
            for p, x in zip(parts, leaves, strict=True)
        ]
        return tree_unflatten(moved, structure)

    outs, out_structure = tree_flatten(columns)
    result = tree_unflatten([arranged(o) for o in outs], out_structure)
    return (result, aux) if has_aux else result


class jacobian:
    """The Jacobian by whichever mode needs fewer passes.

    For n input and m output elements it takes min(n, m) directions; forward mode
    wins a tie, since it keeps no intermediates. ``mode`` and ``passes`` tell what
    the last call did.

    >>> jac = weft.func.jacobian(lambda x: x.sum())
    >>> _ = jac(weft.ones(100))
    >>> jac.mode, jac.passes
    ('reverse', 1)
    """

    def __init__(self, func: Callable[..., Any], argnums: Any = 0) -> None:
        self.func = func
        self.argnums = argnums
        self.mode = ""
        self.passes = 0

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        of_chosen, chosen = by_argnums(
            "jacobian", self.func, self.argnums, args, kwargs
        )
        inputs = sum(x.numel() for x in tree_flatten(chosen)[0])
        with no_grad():  # a look at the output's size
            outputs = sum(o.numel() for o in tree_flatten(of_chosen(chosen))[0])
        self.passes = min(inputs, outputs)
        self.mode = "forward" if inputs <= outputs else "reverse"
        if self.mode == "forward":
            return _forward(of_chosen, chosen, False, None)
        return _reverse(Pulled("jacobian", of_chosen, chosen, False), None)


def hessian(func: Callable[..., Any], argnums: Any = 0) -> Callable[..., Any]:
    """The matrix of second derivatives: forward over reverse.

    >>> weft.func.hessian(lambda x: (x**3).sum())(weft.tensor([1.0, 2.0]))
    tensor([[ 6.,  0.],
            [ 0., 12.]])
    """
    return jacfwd(jacrev(func, argnums), argnums)
