"""Reverse mode as function transforms: ``vjp``, ``grad``, ``value_and_grad``.

Each runs the function on fresh tape entries that stand for its arguments and
then pulls cotangents back to them. The entries keep their link to whatever the
arguments themselves came from, so transforms nest to any depth.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from weft.autograd.engine import pull
from weft.autograd.modes import enable_grad
from weft.core.dispatch import bind
from weft.core.mode import mode
from weft.core.pytree import tree_flatten, tree_unflatten
from weft.core.tape import Leaf, leads_outside
from weft.core.tensor import Tensor
from weft.errors import ArgumentError, DTypeError, ShapeError


def entry(x: Tensor) -> Tensor:
    """A new entry of the tape that stands for ``x``."""
    from weft.ops.copies import alias_op

    if x._node is not None:
        return bind(alias_op, (x,), {})
    fresh = x.alias()
    fresh._node = Leaf(fresh)
    return fresh


class Pulled:
    """A function's outputs, and the way back from them to its arguments."""

    def __init__(self, name: str, func: Any, args: Any, has_aux: bool) -> None:
        self.name = name
        leaves, self.structure = tree_flatten(args)
        for k, x in enumerate(leaves):
            if not isinstance(x, Tensor) or not x.dtype.is_inexact:
                kind = x.dtype.name if isinstance(x, Tensor) else type(x).__name__
                raise DTypeError(
                    f"{name}: expected floating-point tensors to differentiate by, got "
                    f"{kind} (leaf {k})"
                )
        outside = mode.recording
        with enable_grad():
            self.entries = [entry(x) for x in leaves]
            result = func(tree_unflatten(self.entries, self.structure))
        aux = None
        if has_aux:
            from weft.func.jvp import _with_aux

            result, aux = _with_aux(name, result)
        self.nodes = [e._node for e in self.entries]
        self.outs, self.out_structure = tree_flatten(result)
        for out in self.outs:
            if not isinstance(out, Tensor):
                raise DTypeError(
                    f"{name}: expected the function to return tensors, got "
                    f"{type(out).__name__}"
                )
        self.linked = outside and self._linked(leaves)
        self.aux = self._strip_tree(aux, self.linked)

    def _linked(self, leaves: list[Any]) -> bool:
        """Whether something outside may want to differentiate through this."""
        if any(x._interpreter is not None for x in (*leaves, *self.outs)):
            return True
        return any(leads_outside(o._node, self.nodes) for o in self.outs)

    def _strip_tree(self, tree: Any, linked: bool) -> Any:
        """Results without their links to this run's own entries."""
        leaves, structure = tree_flatten(tree)
        stripped = [
            x if not isinstance(x, Tensor) else
            x.relinked(lambda node: linked and leads_outside(node, self.nodes))
            for x in leaves
        ]  # fmt: skip
        return tree_unflatten(stripped, structure)

    @property
    def value(self) -> Any:
        out = tree_unflatten(self.outs, self.out_structure)
        return self._strip_tree(out, self.linked)

    def pull(self, cotangents: list[Tensor], *, keep: bool) -> Any:
        """The arguments' cotangents, in the arguments' structure."""
        from weft.ops.creation import zeros_like

        seeds = [
            (o._node, g)
            for o, g in zip(self.outs, cotangents, strict=True)
            if o._node is not None
        ]
        linked = self.linked or any(
            g._node is not None or g._interpreter is not None for g in cotangents
        )
        found = pull(
            seeds, self.nodes, retain_graph=keep or linked, create_graph=linked
        )
        grads = []
        for e, node in zip(self.entries, self.nodes, strict=True):
            g = found.get(node)
            grads.append(zeros_like(e) if g is None else g)
        return self._strip_tree(tree_unflatten(grads, self.structure), linked)


def vjp(func: Callable[..., Any], *primals: Any, has_aux: bool = False) -> Any:
    """The value of ``func`` and a function from output to input cotangents.

    These come as a tuple, one for each of the primals.

    >>> y, pull = weft.func.vjp(lambda a, b: a * b, weft.tensor(2.0), weft.tensor(3.0))
    >>> pull(weft.tensor(1.0))
    (tensor(3.), tensor(2.))
    """
    run = Pulled("vjp", lambda args: func(*args), primals, has_aux)

    def pull_back(*cotangents: Any) -> Any:
        given = cotangents[0] if len(cotangents) == 1 else cotangents
        leaves, structure = tree_flatten(given)
        if structure != run.out_structure:
            raise ArgumentError(
                f"vjp: expected cotangents in the structure of the output "
                f"({len(run.outs)} tensors), got {len(leaves)}"
            )
        for out, g in zip(run.outs, leaves, strict=True):
            if not isinstance(g, Tensor) or g.shape != out.shape:
                got = g.shape if isinstance(g, Tensor) else type(g).__name__
                raise ShapeError(
                    f"vjp: expected a cotangent of shape {out.shape}, got {got}"
                )
        return run.pull(leaves, keep=True)

    return (run.value, pull_back, run.aux) if has_aux else (run.value, pull_back)


def _split_args(name: str, argnums: Any, args: tuple[Any, ...]) -> tuple[int, ...]:
    nums = argnums if isinstance(argnums, tuple) else (argnums,)
    for n in nums:
        if not isinstance(n, int) or not -len(args) <= n < len(args):
            raise ArgumentError(
                f"{name}: argnums {argnums!r} does not fit a call with {len(args)} "
                "positional arguments"
            )
    return tuple(n % len(args) for n in nums)


def by_argnums(
    name: str,
    func: Callable[..., Any],
    argnums: Any,
    args: tuple[Any, ...],
    kwargs: Any,
) -> tuple[Callable[[Any], Any], Any]:
    """``func`` as a function of the chosen arguments alone, and those arguments."""
    positions = _split_args(name, argnums, args)

    def of_chosen(chosen: Any) -> Any:
        full = list(args)
        for position, value in zip(
            positions, chosen if isinstance(argnums, tuple) else (chosen,), strict=True
        ):
            full[position] = value
        return func(*full, **kwargs)

    chosen = tuple(args[p] for p in positions)
    return of_chosen, chosen if isinstance(argnums, tuple) else chosen[0]


def value_and_grad(
    func: Callable[..., Any], argnums: Any = 0, has_aux: bool = False
) -> Callable[..., Any]:
    """A function that gives ``func``'s value and its gradient.

    >>> weft.func.value_and_grad(lambda x: x * x)(weft.tensor(3.0))
    (tensor(9.), tensor(6.))
    """

    @functools.wraps(func)
    def both(*args: Any, **kwargs: Any) -> Any:
        of_chosen, chosen = by_argnums("grad", func, argnums, args, kwargs)
        run = Pulled("grad", of_chosen, chosen, has_aux)
        grads = run.pull([_one(run.outs)], keep=False)
        value = (run.value, run.aux) if has_aux else run.value
        return value, grads

    return both


def _one(outs: list[Tensor]) -> Tensor:
    from weft.ops.creation import ones_like

    if len(outs) != 1 or outs[0].numel() != 1:
        shapes = ", ".join(str(tuple(o.shape)) for o in outs)
        raise ShapeError(
            f"grad: expected the function to return one number, got shape {shapes}; "
            "reduce it, or use jacrev"
        )
    return ones_like(outs[0])


def grad(
    func: Callable[..., Any], argnums: Any = 0, has_aux: bool = False
) -> Callable[..., Any]:
    """A function that gives ``func``'s gradient by its arguments ``argnums``.

    >>> df = weft.func.grad(weft.sin)
    >>> weft.func.grad(df)(weft.tensor(1.0))
    tensor(-0.8415)
    """
    both = value_and_grad(func, argnums, has_aux)

    @functools.wraps(func)
    def only(*args: Any, **kwargs: Any) -> Any:
        value, grads = both(*args, **kwargs)
        return (grads, value[1]) if has_aux else grads

    return only
