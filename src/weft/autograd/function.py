"""``Function``: an operation whose derivative is written by hand.

Applying one builds an operator record on the spot (forward as its evaluation,
backward as its vjp), so it goes through the same dispatch as every other
operator and works under each transform.
"""

from __future__ import annotations

from typing import Any

from weft.core.dispatch import bind
from weft.core.op import Op
from weft.core.tensor import Tensor
from weft.errors import AutogradError


class Context:
    """Carries values from ``forward`` to ``backward``."""

    def __init__(self) -> None:
        self.saved_tensors: tuple[Any, ...] = ()
        self.needs_input_grad: tuple[bool, ...] = ()

    def save_for_backward(self, *tensors: Any) -> None:
        """Keep tensors for ``backward``, where they are ``ctx.saved_tensors``."""
        self.saved_tensors = tensors


class Function:
    """Derive from this with ``forward`` and ``backward`` (and ``jvp`` if wanted).

    >>> class Double(weft.autograd.Function):
    ...     @staticmethod
    ...     def forward(ctx, x):
    ...         return x * 2
    ...     @staticmethod
    ...     def backward(ctx, g):
    ...         return g * 2
    >>> x = weft.tensor(3.0, requires_grad=True)
    >>> Double.apply(x).backward()
    >>> x.grad
    tensor(2.)
    """

    in_graphs = True  # whether a captured program keeps this backward as a graph

    @staticmethod
    def forward(ctx: Any, *args: Any) -> Any:
        """Compute the outputs; may keep values on ``ctx``."""
        raise NotImplementedError("a Function needs a static method forward(ctx, ...)")

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        """A gradient for each argument of ``forward`` (None where there is none)."""
        raise NotImplementedError("this Function has no backward(ctx, ...)")

    @staticmethod
    def jvp(ctx: Any, *tangents: Any) -> Any:
        """The outputs' tangents; derived from ``backward`` if left out."""
        raise NotImplementedError

    @classmethod
    def apply(cls, *args: Any) -> Any:
        """Run ``forward`` on the arguments and record ``backward``."""
        call = _Call(cls, args)
        return bind(call.op, call.tensors, {})


class _Call:
    """One application of a Function, as an operator record."""

    def __init__(self, cls: type[Function], args: tuple[Any, ...]) -> None:
        self.cls = cls
        self.args = args
        self.ctx = Context()
        self.positions = [i for i, a in enumerate(args) if isinstance(a, Tensor)]
        self.tensors = tuple(args[i] for i in self.positions)
        self.ctx.needs_input_grad = tuple(
            isinstance(a, Tensor) and a.requires_grad for a in args
        )
        self.kept: list[Any] = []  # names of inputs and outputs, or other values
        names = " ".join(f"x{k}" for k in range(len(self.tensors)))
        self.op = Op(
            cls.__name__, inputs=names, eval=self.run, type=None, composite=True
        )

    def run(self, *xs: Any) -> Any:
        args = list(self.args)
        for position, x in zip(self.positions, xs, strict=True):
            args[position] = x
        result = self.cls.forward(self.ctx, *args)
        outs = result if isinstance(result, tuple) else (result,)
        for out in outs:
            if not isinstance(out, Tensor):
                raise AutogradError(
                    f"{self.cls.__name__}.forward: expected tensors as outputs, got "
                    f"{type(out).__name__}"
                )
        self._note_saved(xs, outs)
        fresh = tuple(o.alias() if any(o is x for x in xs) else o for o in outs)
        return fresh if isinstance(result, tuple) else fresh[0]

    def _note_saved(self, xs: tuple[Any, ...], outs: tuple[Any, ...]) -> None:
        """Keep saved inputs and outputs by name, so that each level finds its own."""
        self.op.outputs = tuple(f"out{k}" for k in range(len(outs)))
        known = {id(x): f"x{k}" for k, x in enumerate(xs)}
        known |= {id(o): f"out{k}" for k, o in enumerate(outs) if id(o) not in known}
        self.kept = [known.get(id(t), t) for t in self.ctx.saved_tensors]
        names = tuple(dict.fromkeys(n for n in self.kept if isinstance(n, str)))
        self.ctx.saved_tensors = ()

        def vjp(g: Any, need: Any, *values: Any) -> Any:
            return self.pull(g, dict(zip(names, values, strict=True)))

        vjp.names = ("need", *names)  # type: ignore[attr-defined]
        vjp.in_graphs = self.cls.in_graphs  # type: ignore[attr-defined]
        self.op.vjp = vjp
        if self.cls.jvp is not Function.jvp:

            def jvp(ts: Any, *values: Any) -> Any:
                return self.push(ts, dict(zip(names, values, strict=True)))

            jvp.names = names  # type: ignore[attr-defined]
            self.op.jvp = jvp

    def context(self, values: dict[str, Any]) -> Context:
        ctx = Context()
        vars(ctx).update(vars(self.ctx))
        ctx.saved_tensors = tuple(
            values[k] if isinstance(k, str) else k for k in self.kept
        )
        return ctx

    def pull(self, g: Any, values: dict[str, Any]) -> list[Any]:
        gs = g if isinstance(g, tuple) else (g,)
        gradients = self.cls.backward(self.context(values), *gs)
        gradients = gradients if isinstance(gradients, tuple) else (gradients,)
        if len(gradients) != len(self.args):
            raise AutogradError(
                f"{self.cls.__name__}.backward: expected {len(self.args)} gradients, "
                f"one for each argument of forward, got {len(gradients)}"
            )
        picked = [gradients[position] for position in self.positions]
        for k, (x, gx) in enumerate(zip(self.tensors, picked, strict=True)):
            if gx is not None and gx.shape != x.shape:
                raise AutogradError(
                    f"{self.cls.__name__}.backward: gradient {k} has shape "
                    f"{tuple(gx.shape)}, its tensor has {tuple(x.shape)}"
                )
        return picked

    def push(self, ts: list[Any], values: dict[str, Any]) -> Any:
        tangents: list[Any] = [None] * len(self.args)
        for position, t in zip(self.positions, ts, strict=True):
            tangents[position] = t
        return self.cls.jvp(self.context(values), *tangents)
