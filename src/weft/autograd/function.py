"""``Function``: an operation whose derivative is written by hand.

Applying one builds an operator record on the spot (forward as its evaluation,
backward as its vjp), so it goes through the same dispatch as every other
operator and works under each transform.
"""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

from weft.autograd.modes import no_grad
from weft.core.dispatch import bind, unable
from weft.core.mode import mode
from weft.core.op import Op
from weft.core.tape import Leaf
from weft.core.tensor import Tensor
from weft.core.tracer import Tracer
from weft.errors import AutogradError, ShapeError


class FunctionCtx:
    """Carries values from ``forward`` to ``backward`` and ``jvp``."""

    saved_tensors: tuple[Any, ...] = ()
    saved_for_forward: tuple[Any, ...] = ()
    needs_input_grad: tuple[bool, ...] = ()
    materialize_grads = True
    dirty_tensors: tuple[Any, ...] = ()
    non_differentiable: tuple[Any, ...] = ()

    @property
    def saved_variables(self) -> tuple[Any, ...]:
        """``saved_tensors`` under its older name."""
        return self.saved_tensors

    @property
    def to_save(self) -> tuple[Any, ...]:
        """The tensors that were given to ``save_for_backward``."""
        return self.saved_tensors

    def save_for_backward(self, *tensors: Any) -> None:
        """Keep tensors for ``backward``, where they are ``ctx.saved_tensors``."""
        self.saved_tensors = tensors

    def save_for_forward(self, *tensors: Any) -> None:
        """Keep tensors for ``jvp``, where they are ``ctx.saved_tensors``."""
        self.saved_for_forward = tensors

    def mark_dirty(self, *args: Any) -> None:
        """Say which arguments ``forward`` changes in place and returns."""
        self.dirty_tensors = args

    def mark_non_differentiable(self, *args: Any) -> None:
        """Say which outputs have no gradient."""
        self.non_differentiable = args

    def set_materialize_grads(self, value: bool) -> None:
        """With False, ``backward`` gets None for outputs without a gradient."""
        self.materialize_grads = value


Context = FunctionCtx


class Function(FunctionCtx):
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
    generate_vmap_rule = False  # ``vmap`` runs forward on batches either way

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

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        """Keep values on ``ctx`` after a ``forward`` that takes no ``ctx``."""
        raise NotImplementedError("this Function's forward takes ctx itself")

    @staticmethod
    def vmap(info: Any, in_dims: tuple[Any, ...], *args: Any) -> Any:
        """The outputs for a batch, and where its axis is in each."""
        raise NotImplementedError("vmap runs forward on batches")

    @staticmethod
    def vjp(ctx: Any, *grads: Any) -> Any:
        """``backward`` under another name."""
        raise NotImplementedError("this Function has no vjp(ctx, ...)")

    @classmethod
    def apply(cls, *args: Any, **kwargs: Any) -> Any:
        """Run ``forward`` on the arguments and record ``backward``."""
        call = _Call(cls, args, kwargs)
        return call.finished(bind(call.op, call.tensors, {}))


def _is_differentiated(value: Any) -> bool:
    """Whether derivatives by an argument are wanted, backward or forward."""
    if isinstance(value, Tracer) and value.has_tangent():
        return True
    return isinstance(value, Tensor) and value.requires_grad


class VmapInfo(NamedTuple):
    """What a Function's ``vmap`` is told: the batch's size and kind of randomness."""

    batch_size: int
    randomness: str


def once_differentiable(fn: Any) -> Any:
    """A ``backward`` that cannot be differentiated itself.

    >>> from weft.autograd.function import once_differentiable
    >>> class Double(weft.autograd.Function):
    ...     @staticmethod
    ...     def forward(ctx, x):
    ...         return x * 2
    ...     @staticmethod
    ...     @once_differentiable
    ...     def backward(ctx, g):
    ...         return g * 2
    >>> x = weft.tensor(3.0, requires_grad=True)
    >>> Double.apply(x).backward()
    """

    @functools.wraps(fn)
    def wrapper(ctx: Any, *grads: Any) -> Any:
        recorded = [g for g in grads if isinstance(g, Tensor) and g.requires_grad]
        with no_grad():
            out = fn(ctx, *grads)
        if not recorded or not mode.recording:
            return out
        outs = out if isinstance(out, tuple) else (out,)
        stopped = tuple(_Once.apply(o, *recorded) if isinstance(o, Tensor) else o
                        for o in outs)  # fmt: skip
        return stopped if isinstance(out, tuple) else stopped[0]

    return wrapper


class _Once(Function):
    """A tensor whose gradient is refused."""

    @staticmethod
    def forward(ctx: Any, out: Any, *recorded: Any) -> Any:
        return out.alias()

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        raise AutogradError(
            "trying to differentiate twice a function that was marked with "
            "@once_differentiable"
        )


def _is_operand(a: Any) -> bool:
    """Whether an argument is the operator's: a sparse constant stays what it is."""
    if not isinstance(a, Tensor):
        return False
    return not getattr(a._interpreter, "composes", False) or a.requires_grad


class _Call:
    """One application of a Function, as an operator record."""

    def __init__(self, cls: type[Function], args: tuple[Any, ...], kwargs: Any) -> None:
        self.cls = cls
        self.args, self.kwargs = args, kwargs
        self.dirty: dict[int, int] = {}  # outputs that are arguments, changed
        self.plain: list[int] = []  # outputs without a gradient
        self.ctx = Context()
        self.positions = [i for i, a in enumerate(args) if _is_operand(a)]
        self.tensors = tuple(args[i] for i in self.positions)
        self.ctx.needs_input_grad = tuple(map(_is_differentiated, args))
        self.kept_for_jvp: list[Any] = []
        self.kept: list[Any] = []  # names of inputs and outputs, or other values
        names = " ".join(f"x{k}" for k in range(len(self.tensors)))
        self.op = Op(
            cls.__name__, inputs=names, eval=self.run, type=None, composite=True
        )

    def run(self, *xs: Any) -> Any:
        args = list(self.args)
        for position, x in zip(self.positions, xs, strict=True):
            args[position] = x
        batched = self._batched(xs)
        if batched is not None:
            result = self._by_vmap(batched, args)
        elif self.cls.setup_context is not Function.setup_context:
            result = self.cls.forward(*args, **self.kwargs)
            self.cls.setup_context(self.ctx, tuple(args), result)
        else:
            result = self.cls.forward(self.ctx, *args, **self.kwargs)
        outs = result if isinstance(result, tuple) else (result,)
        for out in outs:
            if not isinstance(out, Tensor):
                raise AutogradError(
                    f"{self.cls.__name__}.forward: expected tensors as outputs, got "
                    f"{type(out).__name__}"
                )
        self._note_marks(xs, outs)
        self._note_saved(xs, outs)
        fresh = tuple(o.alias() if any(o is x for x in xs) else o for o in outs)
        return fresh if isinstance(result, tuple) else fresh[0]

    def _batched(self, xs: tuple[Any, ...]) -> Any:
        """The vmap that runs this, where the Function has a rule for it."""
        if self.cls.vmap is Function.vmap:
            return None
        runs = {x._interpreter for x in xs if hasattr(x._interpreter, "batched")}
        return max(runs, key=lambda run: run.level, default=None)

    def _by_vmap(self, run: Any, args: list[Any]) -> Any:
        """The result of the Function's own rule for batches."""
        mine = [isinstance(a, Tensor) and a._interpreter is run for a in args]
        dims = tuple(0 if m else None for m in mine)
        values = [a.value if m else a for a, m in zip(args, mine, strict=True)]
        info = VmapInfo(run.size, run.randomness)
        out, out_dims = self.cls.vmap(info, dims, *values)
        if isinstance(out, tuple):
            axes = out_dims if isinstance(out_dims, tuple) else (out_dims,) * len(out)
            return tuple(map(run.front, out, axes))
        return run.front(out, out_dims)

    def _note_marks(self, xs: tuple[Any, ...], outs: tuple[Any, ...]) -> None:
        """Note which outputs are changed arguments, and which have no gradient."""
        marked = {id(t) for t in self.ctx.non_differentiable}
        self.plain = [k for k, o in enumerate(outs) if id(o) in marked]
        for t in self.ctx.dirty_tensors:
            place = next((k for k, x in enumerate(xs) if x is t), None)
            if place is None:
                raise AutogradError(
                    f"{self.cls.__name__}.forward: mark_dirty expects arguments of "
                    "forward"
                )
            for k, o in enumerate(outs):
                if o is t:
                    self.dirty[k] = place

    def finished(self, out: Any) -> Any:
        """The outputs of ``bind``, as marked: changed arguments, plain tensors."""
        if not self.dirty and not self.plain:
            return out
        outs = list(out) if isinstance(out, tuple) else [out]
        for k in self.plain:
            outs[k] = outs[k].detach()
        for k, place in self.dirty.items():
            outs[k] = self._changed(self.tensors[place], outs[k])
        return tuple(outs) if isinstance(out, tuple) else outs[0]

    def _changed(self, x: Any, out: Any) -> Any:
        """An argument that ``forward`` has changed, with its new history."""
        who = f"{self.cls.__name__}.forward: mark_dirty"
        if mode.capture is not None or x._interpreter is not None:
            raise unable(
                AutogradError(
                    f"{who} is not for captured functions or transforms; return a new "
                    "tensor"
                ),
                x,
            )
        if x._base is not None and out._node is not None:
            raise AutogradError(f"{who}: a view cannot be changed so; pass its base")
        if type(x._node) is Leaf and mode.recording:
            raise AutogradError(
                "a leaf Variable that requires grad is being used in an in-place "
                f"operation ({who})"
            )
        x._node = out._node
        return x

    def _note_saved(self, xs: tuple[Any, ...], outs: tuple[Any, ...]) -> None:
        """Keep saved inputs and outputs by name, so that each level finds its own."""
        self.op.outputs = tuple(f"out{k}" for k in range(len(outs)))
        known = {id(x): f"x{k}" for k, x in enumerate(xs)}
        known |= {id(o): f"out{k}" for k, o in enumerate(outs) if id(o) not in known}
        saved = self.ctx.saved_tensors
        pushed = self.ctx.saved_for_forward or saved
        self.kept = [known.get(id(t), t) for t in saved]
        self.kept_for_jvp = [known.get(id(t), t) for t in pushed]
        both = (*self.kept, *self.kept_for_jvp)
        names = tuple(dict.fromkeys(n for n in both if isinstance(n, str)))
        self.ctx.saved_tensors = self.ctx.saved_for_forward = ()
        self.ctx.dirty_tensors = self.ctx.non_differentiable = ()

        def vjp(g: Any, need: Any, *values: Any) -> Any:
            return self.pull(g, dict(zip(names, values, strict=True)))

        vjp.names = ("need", *names)  # type: ignore[attr-defined]
        vjp.sparse = not self.ctx.materialize_grads  # type: ignore[attr-defined]
        vjp.in_graphs = self.cls.in_graphs  # type: ignore[attr-defined]
        self.op.vjp = vjp
        if self.cls.jvp is not Function.jvp:

            def jvp(ts: Any, *values: Any) -> Any:
                return self.push(ts, dict(zip(names, values, strict=True)))

            jvp.names = names  # type: ignore[attr-defined]
            self.op.jvp = jvp

    def context(self, values: dict[str, Any], kept: list[Any]) -> FunctionCtx:
        ctx = FunctionCtx()
        vars(ctx).update(vars(self.ctx))
        ctx.saved_tensors = tuple(values[k] if isinstance(k, str) else k for k in kept)
        return ctx

    def pull(self, g: Any, values: dict[str, Any]) -> list[Any]:
        gs = g if isinstance(g, tuple) else (g,)
        rule = self.cls.backward
        if self.cls.vjp is not Function.vjp:
            rule = self.cls.vjp
        gradients = rule(self.context(values, self.kept), *gs)
        gradients = gradients if isinstance(gradients, tuple) else (gradients,)
        count = len(self.args)
        if len(gradients) > count and all(g is None for g in gradients[count:]):
            gradients = gradients[:count]  # as PyTorch allows
        if len(gradients) != count:
            raise AutogradError(
                f"{self.cls.__name__}.backward: expected {len(self.args)} gradients, "
                f"one for each argument of forward, got {len(gradients)}"
            )
        picked = [gradients[position] for position in self.positions]
        for k, (x, gx) in enumerate(zip(self.tensors, picked, strict=True)):
            if gx is None or gx.shape == x.shape:
                continue
            try:  # as PyTorch does with the gradient of a tensor that was repeated
                picked[k] = gx.sum_to_size(x.shape)
            except ShapeError:
                raise AutogradError(
                    f"{self.cls.__name__}.backward: gradient {k} has shape "
                    f"{tuple(gx.shape)}, its tensor has {tuple(x.shape)}"
                ) from None
        return picked

    def push(self, ts: list[Any], values: dict[str, Any]) -> Any:
        tangents: list[Any] = [None] * len(self.args)
        for position, t in zip(self.positions, ts, strict=True):
            tangents[position] = t
        return self.cls.jvp(self.context(values, self.kept_for_jvp), *tangents)
