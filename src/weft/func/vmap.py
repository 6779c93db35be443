"""Batching: one example's program, run for all examples at once.

Batched(value)     value has one more axis, in front, than the example
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from weft.core.dims import normalize_dim
from weft.core.dispatch import Interpreter, bind
from weft.core.mode import mode
from weft.core.op import Op
from weft.core.pytree import broadcast_prefix, tree_flatten, tree_unflatten
from weft.core.size import Shape
from weft.core.tensor import Tensor
from weft.core.tracer import Tracer
from weft.errors import ArgumentError, AutogradError, DTypeError, ShapeError


class Batched(Tracer):
    """One example of a batch, inside one run of ``vmap``."""

    @property
    def value(self) -> Tensor:
        return self.parts[0]

    @property
    def shape(self) -> Shape:
        return self.value.shape[1:]

    @property
    def ndim(self) -> int:
        return self.value.ndim - 1

    def array(self) -> np.ndarray:
        raise AutogradError(
            "vmap: the value of a tensor differs from example to example, so it "
            "cannot become a number, an array or a condition here; use where(), or "
            "take it out of the mapped function"
        )

    def stopped(self) -> Tensor:
        return self._with((self.value.stopped(),), None)

    def become(self, other: Any) -> None:
        self.parts = (self._interpreter.lift(other),)


class Batching(Interpreter):
    """The interpreter of one ``vmap``."""

    name = "vmap"

    def __init__(self, size: int, randomness: str) -> None:
        super().__init__()
        self.size = size
        self.randomness = randomness

    def __enter__(self) -> Batching:
        super().__enter__()
        mode.batching = (*mode.batching, self)
        return self

    def __exit__(self, *error: object) -> None:
        super().__exit__(*error)
        mode.batching = mode.batching[:-1]

    def batched(self, value: Tensor) -> Tensor:
        """A value whose first axis is this level's batch."""
        return Batched(value, interpreter=self)

    def front(self, value: Tensor, dim: int | None) -> Tensor:
        """A value of this level from one whose batch axis is ``dim``, if it has one."""
        if dim is None:
            return value
        return self.batched(value.movedim(dim, 0))

    def lift(self, value: Any) -> Tensor:
        """A value of this level with its batch axis, repeated if it had none."""
        if type(value) is Batched and value._interpreter is self:
            return value.value
        return value.expand((self.size, *value.shape))

    def process(self, op: Op, args: tuple[Any, ...], params: dict[str, Any]) -> Any:
        if op.composite:
            from weft.core.dispatch import run_composite

            return run_composite(op, args)
        batched = [type(a) is Batched and a._interpreter is self for a in args]
        values = [a.value if b else a for a, b in zip(args, batched, strict=True)]
        rule = op.batch or by_loop
        out = rule(op, self.size, values, batched, params)
        if type(out) is tuple:
            return tuple(Batched(o, interpreter=self) for o in out)
        return Batched(out, interpreter=self)


def by_loop(op: Op, size: int, args: Any, batched: Any, params: dict[str, Any]) -> Any:
    """The batching rule of an operator that has none: one example at a time."""
    from weft.ops.joining import stack

    rows = []
    for i in range(size):
        one = [a[i] if b else a for a, b in zip(args, batched, strict=True)]
        rows.append(bind(op, tuple(one), params))
    if not rows:
        raise ShapeError(f"vmap: {op.name} has no batching rule for an empty batch")
    if type(rows[0]) is tuple:
        return tuple(stack(list(column)) for column in zip(*rows, strict=True))
    return stack(rows)


def vmap(
    func: Callable[..., Any],
    in_dims: Any = 0,
    out_dims: Any = 0,
    randomness: str = "error",
    *,
    chunk_size: int | None = None,
) -> Callable[..., Any]:
    """A function over batches from a function over one example.

    ``in_dims`` and ``out_dims`` say which axis is the batch (None: not batched).
    ``randomness`` is ``error``, ``same`` or ``different`` for random operators.

    >>> dot = weft.func.vmap(weft.dot)
    >>> dot(weft.ones(5, 3), weft.ones(5, 3)).shape
    (5,)
    """
    if randomness not in ("error", "same", "different"):
        raise ArgumentError(
            "vmap: randomness must be 'error', 'same' or 'different', got "
            f"{randomness!r}"
        )

    @functools.wraps(func)
    def mapped(*args: Any, **kwargs: Any) -> Any:
        leaves, structure = tree_flatten(args)
        dims = _in_dims(in_dims, args)
        moved, size = _to_front(leaves, dims)
        run = functools.partial(
            _run, func, structure, dims, out_dims, randomness, kwargs
        )
        if chunk_size is None or size <= chunk_size:
            return run(moved, size)
        return _in_chunks(run, moved, dims, size, chunk_size, out_dims)

    return mapped


def _in_dims(in_dims: Any, args: tuple[Any, ...]) -> list[Any]:
    if isinstance(in_dims, (int, type(None))):
        return [in_dims] * len(tree_flatten(args)[0])
    if not isinstance(in_dims, tuple) or len(in_dims) != len(args):
        raise ArgumentError(
            f"vmap: expected in_dims to be an int or a tuple of {len(args)} entries, "
            f"one an argument, got {in_dims!r}"
        )
    return broadcast_prefix(in_dims, args, "vmap: in_dims")


def _to_front(leaves: list[Any], dims: list[Any]) -> tuple[list[Any], int]:
    """Each mapped leaf with its batch axis in front, and the batch's size."""
    from weft.ops.shaping import movedim

    moved, sizes = [], []
    for k, (leaf, dim) in enumerate(zip(leaves, dims, strict=True)):
        if dim is None:
            moved.append(leaf)
            continue
        if not isinstance(leaf, Tensor):
            raise ArgumentError(
                f"vmap: in_dims maps argument leaf {k}, which is no tensor but "
                f"{type(leaf).__name__}; give it in_dims None"
            )
        if leaf.ndim == 0:
            raise ShapeError(f"vmap: argument leaf {k} is 0-d and has no axis to map")
        d = normalize_dim("vmap", dim, leaf.ndim)
        moved.append(leaf if d == 0 else movedim(leaf, d, 0))
        sizes.append(leaf.shape[d])
    if not sizes:
        raise ArgumentError("vmap: expected at least one argument to be mapped")
    if len(set(sizes)) > 1:
        raise ShapeError(f"vmap: mapped axes have different sizes {sizes}")
    return moved, sizes[0]


def _run(
    func: Any, structure: Any, dims: Any, out_dims: Any, randomness: str, kwargs: Any,
    moved: list[Any], size: int,
) -> Any:  # fmt: skip
    with Batching(size, randomness) as run:
        inner = [
            x if d is None else Batched(x, interpreter=run)
            for x, d in zip(moved, dims, strict=True)
        ]
        result = func(*tree_unflatten(inner, structure), **kwargs)
        return _from_front(run, result, out_dims)


def _from_front(run: Batching, result: Any, out_dims: Any) -> Any:
    """The outputs with their batch axes at the wanted positions."""
    from weft.ops.shaping import movedim

    leaves, structure = tree_flatten(result)
    if isinstance(out_dims, (int, type(None))):
        dims = [out_dims] * len(leaves)
    else:
        dims = broadcast_prefix(out_dims, result, "vmap: out_dims")
    outs = []
    for leaf, dim in zip(leaves, dims, strict=True):
        if not isinstance(leaf, Tensor):
            raise DTypeError(
                "vmap: expected the mapped function to return tensors, got "
                f"{type(leaf).__name__}"
            )
        if dim is None:
            if type(leaf) is Batched and leaf._interpreter is run:
                raise ArgumentError(
                    "vmap: out_dims is None for an output that differs by example"
                )
            outs.append(leaf)
            continue
        value = run.lift(leaf)
        d = normalize_dim("vmap", dim, value.ndim)
        outs.append(value if d == 0 else movedim(value, 0, d))
    return tree_unflatten(outs, structure)


def _in_chunks(
    run: Any, moved: Any, dims: Any, size: int, chunk: int, out_dims: Any
) -> Any:
    from weft.ops.joining import cat

    results = []
    for a in range(0, size, chunk):
        piece = [
            x if d is None else x[a : a + chunk]
            for x, d in zip(moved, dims, strict=True)
        ]
        results.append(run(piece, min(chunk, size - a)))
    flat = [tree_flatten(p) for p in results]
    if isinstance(out_dims, int):
        axes = [out_dims] * len(flat[0][0])
    else:
        axes = broadcast_prefix(out_dims, results[0], "vmap: out_dims")
    joined = [
        column[0] if d is None else cat(list(column), d)
        for column, d in zip(zip(*[f[0] for f in flat], strict=True), axes, strict=True)
    ]
    return tree_unflatten(joined, flat[0][1])
