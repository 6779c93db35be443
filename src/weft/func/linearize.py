"""``linearize``: run the function once, then push many tangents through it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from weft.autograd.modes import enable_grad
from weft.core.dispatch import bind
from weft.core.op import Op
from weft.core.pytree import tree_flatten, tree_unflatten
from weft.core.tensor import Tensor
from weft.errors import ArgumentError, DTypeError
from weft.func.jvp import Dual, Forward, push_forward


class Program(Forward):
    """Notes each operator with its values, to push tangents through later.

    A dual's tangent is here the number of its slot in the tangents' environment.
    """

    name = "linearize"

    def __init__(self) -> None:
        super().__init__()
        self.slots = 0
        self.steps: list[tuple[Any, ...]] = []

    def slot(self) -> int:
        self.slots += 1
        return self.slots - 1

    def process(self, op: Op, args: tuple[Any, ...], params: dict[str, Any]) -> Any:
        pairs = [self.split(a) for a in args]
        primals = tuple(p for p, _ in pairs)
        reads = [s for _, s in pairs]
        out = bind(op, primals, params)
        many = type(out) is tuple
        outs = out if many else (out,)
        linear = op.vjp is not None or op.jvp is not None or op.linear
        active = linear and any(s is not None for s in reads)
        writes = [self.slot() if active and o.dtype.is_inexact else None for o in outs]
        if active:
            self.steps.append((op, primals, reads, out, params, writes))
        duals = tuple(
            Dual(o, w, interpreter=self) for o, w in zip(outs, writes, strict=True)
        )
        return duals if many else duals[0]

    def run(self, tangents: list[Any]) -> list[Any]:
        """The environment after pushing tangents into the first slots."""
        env: list[Any] = [*tangents, *[None] * (self.slots - len(tangents))]
        for op, primals, reads, out, params, writes in self.steps:
            ts = [None if s is None else env[s] for s in reads]
            if all(t is None for t in ts):
                continue
            moved = push_forward(op, primals, ts, out, params)
            for slot, t in zip(
                writes, moved if type(out) is tuple else [moved], strict=True
            ):
                if slot is not None:
                    env[slot] = t
        return env


def linearize(func: Callable[..., Any], *primals: Any) -> tuple[Any, Any]:
    """The value of ``func``, and its derivative there as a linear function.

    >>> y, push = weft.func.linearize(weft.sin, weft.tensor(0.0))
    >>> push(weft.tensor(2.0))
    tensor(2.)
    """
    from weft.ops.creation import zeros_like

    leaves, structure = tree_flatten(primals)
    with Program() as program, enable_grad():
        duals = []
        for x in leaves:
            if not isinstance(x, Tensor) or not x.dtype.is_inexact:
                raise DTypeError("linearize: expected floating-point tensors")
            duals.append(Dual(x, program.slot(), interpreter=program))
        result = func(*tree_unflatten(duals, structure))
        outs, out_structure = tree_flatten(result)
        pairs = [program.split(o) for o in outs]

    def push(*tangents: Any) -> Any:
        moves, shape = tree_flatten(tangents)
        if shape != structure:
            raise ArgumentError(
                "linearize: expected tangents of the structure of the primals, got "
                f"{len(moves)} for {len(leaves)}"
            )
        env = program.run(moves)
        moved = [
            zeros_like(p) if s is None or env[s] is None else env[s] for p, s in pairs
        ]
        return tree_unflatten(moved, out_structure)

    return tree_unflatten([p for p, _ in pairs], out_structure), push
