"""``backward`` and ``grad``: the tape's public entry points."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import numpy as np

from weft import late
from weft.core.mode import mode
from weft.core.tape import Backward, Leaf, Wanted
from weft.core.tensor import Tensor
from weft.errors import AutogradError, DTypeError, ShapeError
from weft.runtime import allocation
from weft.runtime.cpu.buffers import owned

Tensors = Tensor | Iterable[Tensor]


class GradientEdge(NamedTuple):
    """A place on the tape at which gradients arrive: an input of ``grad``."""

    node: Any
    output_nr: int = 0


def _as_list(value: Any) -> list[Any]:
    if isinstance(value, GradientEdge):
        return [value]
    single = isinstance(value, Tensor) or not isinstance(value, Iterable)
    return [value] if single else list(value)


def _seeds(
    name: str, outputs: list[Tensor], cotangents: Any
) -> list[tuple[Any, Tensor]]:
    """Each output's node with the cotangent that starts there."""
    given = [None] * len(outputs) if cotangents is None else _as_list(cotangents)
    if len(given) != len(outputs):
        raise AutogradError(
            f"{name}: {len(outputs)} outputs but {len(given)} gradients were given"
        )
    return [
        (_node_of(name, out), _cotangent(name, out, g))
        for out, g in zip(outputs, given, strict=True)
    ]


def _node_of(name: str, out: Any) -> Any:
    if isinstance(out, GradientEdge):
        return out.node
    if not isinstance(out, Tensor):
        raise DTypeError(f"{name}: expected a tensor, got {type(out).__name__}")
    if out._node is None:
        raise AutogradError(
            f"{name}: this {out.dtype.name} tensor of shape {tuple(out.shape)} does "
            "not require grad and has no grad_fn. Make the tensors it is computed "
            "from with requires_grad=True, outside of no_grad()"
        )
    return out._node


def _cotangent(name: str, out: Tensor, g: Any) -> Tensor:
    if g is None:
        if type(out) is Tensor and mode.state and out._data.size == 1:
            return Tensor(np.ones(out._data.shape, out._data.dtype))
        if out.numel() != 1:
            raise AutogradError(
                f"{name}: a gradient can be started without `gradient` only from one "
                f"element, but the output has shape {tuple(out.shape)}. Reduce it, for "
                "instance with .sum(), or pass gradient="
            )
        from weft.ops.creation import ones_like

        return ones_like(out)
    if not isinstance(g, Tensor):
        raise DTypeError(
            f"{name}: expected a tensor as gradient, got {type(g).__name__}"
        )
    if g.shape != out.shape:
        raise ShapeError(
            f"{name}: the gradient has shape {tuple(g.shape)}, but the output has "
            f"shape {tuple(out.shape)}"
        )
    from weft.ops.copies import cast

    return cast(g, out.dtype)


def backward(
    tensors: Tensors,
    grad_tensors: Any = None,
    retain_graph: bool | None = None,
    create_graph: bool = False,
    grad_variables: Any = None,
    inputs: Tensors | None = None,
) -> None:
    """Add the gradients of ``tensors`` to the ``.grad`` of the leaves they come from.

    ``grad_variables`` is an older name of ``grad_tensors``.

    >>> x = weft.tensor(3.0, requires_grad=True)
    >>> weft.autograd.backward(x * x)
    >>> x.grad
    tensor(6.)
    """
    if grad_variables is not None:
        if grad_tensors is not None:
            raise AutogradError(
                "backward: grad_tensors and grad_variables are one argument; pass "
                "grad_tensors alone"
            )
        grad_tensors = grad_variables
    outputs = _as_list(tensors)
    seeds = _seeds("backward", outputs, grad_tensors)
    run = Backward(
        create_graph=create_graph,
        retain_graph=create_graph if retain_graph is None else retain_graph,
    )
    wanted = None
    owners: dict[Any, Tensor] = {}
    if inputs is not None:
        owners = {_node_of("backward", x): x for x in _as_list(inputs)}
        wanted = Wanted([node for node, _ in seeds], owners)

    def deliver(node: Any, g: Tensor) -> None:
        owner = owners.get(node) if wanted is not None else node.tensor()
        if owner is not None:
            accumulate(owner, g, create_graph)
            after = owner._post_accumulate
            if after:
                for hook in list(after.values()):
                    hook(owner)

    for node, g in seeds:
        run.send(node, g)
    _ends.depth += 1
    try:
        run.run(deliver, wanted)
        while _ends.depth == 1 and _ends.calls:
            _ends.calls.pop(0)()
    finally:
        _ends.depth -= 1
        if not _ends.depth:
            _ends.calls.clear()


class _Ends(threading.local):
    """What runs when the backward of this thread has ended, however deep it nests."""

    def __init__(self) -> None:
        self.depth = 0
        self.calls: list[Callable[[], Any]] = []


_ends = _Ends()


def at_end(call: Callable[[], Any]) -> None:
    """Run a function when the backward that runs now has ended without an error."""
    if call not in _ends.calls:
        _ends.calls.append(call)


def accumulate(leaf: Tensor, g: Tensor, create_graph: bool) -> None:
    """Add a gradient to ``leaf.grad``."""
    if mode.capture is not None and mode.capture.accumulates(leaf, g, create_graph):
        return
    before = leaf.grad
    if before is None:
        leaf.grad = g if create_graph else _own(g)
    elif create_graph or type(before) is not Tensor or type(g) is not Tensor:
        leaf.grad = before + g
    else:
        np.add(before._data, g._data, before._data)
        before.storage_record.touch("backward")


def _own(g: Tensor) -> Tensor:
    """A gradient in memory that nothing else refers to."""
    if type(g) is not Tensor:
        return g.settled()
    alone = sys.getrefcount(g) <= 6 and sys.getrefcount(g._data) <= 2
    array = g._data
    if alone and owned(array) and array.flags.c_contiguous:
        return Tensor(array)
    return Tensor(allocation.noted(array.copy(order="C"), "gradient"))


def grad(
    outputs: Tensors,
    inputs: Tensors,
    grad_outputs: Any = None,
    retain_graph: bool | None = None,
    create_graph: bool = False,
    only_inputs: bool = True,
    allow_unused: bool | None = None,
    is_grads_batched: bool = False,
    materialize_grads: bool = False,
) -> tuple[Any, ...]:
    """The gradients of ``outputs`` by ``inputs``, without touching any ``.grad``.

    With ``is_grads_batched``, the first dimension of each of ``grad_outputs`` counts
    gradients, and so does that of each result. ``only_inputs`` is there for PyTorch's
    sake: nothing else is computed.

    >>> x = weft.tensor(3.0, requires_grad=True)
    >>> (dx,) = weft.autograd.grad(x**3, x, create_graph=True)
    >>> weft.autograd.grad(dx, x)
    (tensor(18.),)
    """
    ins = _as_list(inputs)
    retain_graph = create_graph if retain_graph is None else retain_graph
    if is_grads_batched:
        given = (bool(allow_unused), materialize_grads)
        return _grad_of_batch(
            outputs, ins, grad_outputs, retain_graph, create_graph, given
        )
    nodes = [_node_of("grad", x) for x in ins]
    seeds = _seeds("grad", _as_list(outputs), grad_outputs)
    cotangents = pull(
        seeds, nodes, retain_graph=retain_graph, create_graph=create_graph
    )
    return tuple(
        _checked(x, cotangents.get(node), bool(allow_unused), materialize_grads, k)
        for k, (x, node) in enumerate(zip(ins, nodes, strict=True))
    )


def _grad_of_batch(
    outputs: Tensors,
    ins: list[Tensor],
    grad_outputs: Any,
    retain_graph: bool,
    create_graph: bool,
    unused: tuple[bool, bool],
) -> tuple[Any, ...]:
    """The gradients for each row of ``grad_outputs``, in one pass over the tape."""
    given = [] if grad_outputs is None else _as_list(grad_outputs)
    if not given or any(not isinstance(g, Tensor) or g.ndim == 0 for g in given):
        raise ShapeError(
            "grad: is_grads_batched expects grad_outputs of tensors whose first "
            "dimension counts gradients"
        )
    places: list[int] = []

    def one(*rows: Tensor) -> tuple[Any, ...]:
        found = grad(
            outputs, ins, rows, retain_graph, create_graph,
            allow_unused=unused[0], materialize_grads=unused[1],
        )  # fmt: skip
        places[:] = [k for k, g in enumerate(found) if g is not None]
        return tuple(g for g in found if g is not None)

    rows = late.find("vmap")(one)(*given)
    found = dict(zip(places, rows, strict=True))
    return tuple(found.get(k) for k in range(len(ins)))


def pull(
    seeds: list[tuple[Any, Tensor]],
    nodes: list[Any],
    *,
    retain_graph: bool,
    create_graph: bool,
) -> dict[Any, Tensor]:
    """Cotangents that reach the given nodes."""
    received: dict[Any, Tensor] = {}
    wanted = Wanted([node for node, _ in seeds], nodes)
    run = Backward(create_graph=create_graph, retain_graph=retain_graph)
    for node, g in seeds:
        if node in wanted.targets or node in wanted.through:
            run.send(node, g)
    run.run(received.__setitem__, wanted)
    return received


def _checked(x: Tensor, g: Any, allow_unused: bool, zeros: bool, k: int) -> Any:
    if g is not None:
        return _row_major(x, g)
    if zeros:
        from weft.ops.creation import zeros_like

        return zeros_like(x)
    if allow_unused:
        return None
    raise AutogradError(
        f"grad: input {k} of shape {tuple(x.shape)} was not used in the outputs. Pass "
        "allow_unused=True to get None for it, or materialize_grads=True for zeros"
    )


def _row_major(x: Tensor, g: Tensor) -> Tensor:
    """A gradient in row-major order, as its tensor, so that ``view(-1)`` takes it.

    The gradient of a weight that a product takes transposed comes column-major.
    """
    if type(g) is not Tensor or g.ndim != 2:
        return g
    flags = g._data.flags
    if flags.c_contiguous or not flags.f_contiguous:
        return g
    return g.contiguous() if x.is_contiguous() else g


class HookHandle:
    """Removes a hook with ``remove()``."""

    _next = 0

    def __init__(self, owner: Any, hook: Callable[[Any], Any]) -> None:
        if owner.hooks is None:
            owner.hooks = {}
        HookHandle._next += 1
        self.id = HookHandle._next
        self.owner = owner
        owner.hooks[self.id] = hook

    def remove(self) -> None:
        if self.owner.hooks:
            self.owner.hooks.pop(self.id, None)

    def __enter__(self) -> HookHandle:
        return self

    def __exit__(self, *error: object) -> None:
        self.remove()


def register_post_accumulate_grad_hook(
    self: Tensor, hook: Callable[[Tensor], None]
) -> Any:
    """Call ``hook(tensor)`` when a backward has added to this leaf's ``.grad``.

    >>> x = weft.tensor(1.0, requires_grad=True)
    >>> handle = x.register_post_accumulate_grad_hook(lambda x: print(x.grad.item()))
    >>> (x * 2).backward()
    2.0
    """
    if type(self._node) is not Leaf:
        raise AutogradError(
            "register_post_accumulate_grad_hook: expected a leaf that requires grad"
        )
    if self._post_accumulate is None:
        self._post_accumulate = {}
    return late.find("RemovableHandle")(self._post_accumulate, hook)


def register_hook(self: Tensor, hook: Callable[[Tensor], Tensor | None]) -> HookHandle:
    """Call ``hook(grad)`` when this tensor's gradient is known; it may replace it.

    >>> x = weft.tensor(1.0, requires_grad=True)
    >>> handle = x.register_hook(lambda g: g * 10)
    >>> (x * 2).backward()
    >>> x.grad
    tensor(20.)
    """
    if self._node is None:
        raise AutogradError(
            "register_hook: this tensor does not require grad, so no gradient will come"
        )
    return HookHandle(self._node, hook)


def retain_grad(self: Tensor) -> None:
    """Keep this intermediate tensor's gradient in ``.grad`` too.

    >>> x = weft.tensor(2.0, requires_grad=True)
    >>> y = x * x
    >>> y.retain_grad()
    >>> (y * 3).backward()
    >>> y.grad
    tensor(3.)
    """
    if self._node is None:
        raise AutogradError("retain_grad: this tensor does not require grad")
    if type(self._node) is Leaf:
        return
    import weakref

    me = weakref.ref(self)

    def keep(g: Tensor) -> None:
        owner = me()
        if owner is not None:
            accumulate(owner, g, mode.recording)

    register_hook(self, keep)
