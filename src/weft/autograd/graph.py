"""The tape as users see it: nodes, hooks on saved tensors, edges of gradients."""

from __future__ import annotations

import abc
import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from weft.autograd.engine import GradientEdge
from weft.core import tape
from weft.core.dispatch import Evaluator, unable
from weft.core.mode import mode
from weft.core.tensor import Tensor
from weft.errors import ArgumentError, AutogradError

__all__ = [
    "GradientEdge",
    "Node",
    "allow_mutation_on_saved_tensors",
    "disable_saved_tensors_hooks",
    "get_gradient_edge",
    "increment_version",
    "register_multi_grad_hook",
    "save_on_cpu",
    "saved_tensors_hooks",
]


class Node(abc.ABC):  # noqa: B024 (the kinds of nodes are registered)
    """The class of ``grad_fn``: ``name()``, ``next_functions``, ``register_hook``.

    >>> x = weft.ones(1, requires_grad=True)
    >>> isinstance((x * 2).grad_fn, weft.autograd.graph.Node)
    True
    """


for _kind in (tape.Node, tape.Pick, tape.Leaf):
    Node.register(_kind)


def get_gradient_edge(tensor: Tensor) -> GradientEdge:
    """The edge at which a tensor's gradient arrives.

    >>> x = weft.ones(1, requires_grad=True)
    >>> edge = weft.autograd.graph.get_gradient_edge(x)
    >>> weft.autograd.grad(x * 3, edge)
    (tensor([3.]),)
    """
    node = tensor._node
    if node is None:
        raise AutogradError(
            "get_gradient_edge: this tensor does not require grad, so no gradient "
            "arrives at it"
        )
    return GradientEdge(node, getattr(node, "index", 0))


def increment_version(tensor: Tensor | Sequence[Tensor]) -> None:
    """Note that tensors were changed in a way that the tape did not see."""
    for one in [tensor] if isinstance(tensor, Tensor) else tensor:
        one.storage_record.touch("increment_version")


class _Watching(Evaluator):
    """Operators come by ``bind`` while saved tensors have hooks."""


class saved_tensors_hooks:
    """Pack every tensor that the tape saves, and unpack it when backward needs it.

    >>> x = weft.ones(2, requires_grad=True)
    >>> sizes = []
    >>> def pack(t):
    ...     sizes.append(t.shape)
    ...     return t
    >>> with weft.autograd.graph.saved_tensors_hooks(pack, lambda t: t):
    ...     y = x.exp()
    >>> sizes
    [(2,)]
    """

    def __init__(
        self, pack_hook: Callable[[Tensor], Any], unpack_hook: Callable[[Any], Tensor]
    ) -> None:
        self.pack_hook, self.unpack_hook = pack_hook, unpack_hook

    def __enter__(self) -> None:
        if mode.capture is not None:
            raise unable(
                AutogradError(
                    "saved_tensors_hooks: a captured function saves what its program "
                    "needs; use the hooks outside of it"
                )
            )
        if mode.saved_refusal is not None:
            raise RuntimeError(mode.saved_refusal)
        self.watching = _Watching()
        self.watching.__enter__()
        mode.saved_hooks = (*mode.saved_hooks, (self.pack_hook, self.unpack_hook))

    def __exit__(self, *error: object) -> None:
        mode.saved_hooks = mode.saved_hooks[:-1]
        self.watching.__exit__(*error)


class save_on_cpu(saved_tensors_hooks):
    """Saved tensors are kept on the CPU, where they are."""

    def __init__(self, pin_memory: bool = False, device_type: str = "cuda") -> None:
        if pin_memory:
            raise ArgumentError(
                "save_on_cpu: pin_memory is for copies to a GPU, and there is none"
            )
        super().__init__(_to_host, _from_host)


def _to_host(tensor: Tensor) -> Any:
    return tensor.device, tensor.to("cpu")


def _from_host(packed: Any) -> Tensor:
    device, tensor = packed
    return tensor.to(device)


@contextlib.contextmanager
def disable_saved_tensors_hooks(error_message: str) -> Iterator[None]:
    """Refuse ``saved_tensors_hooks`` inside, with a message."""
    before, mode.saved_refusal = mode.saved_refusal, error_message
    try:
        yield
    finally:
        mode.saved_refusal = before


@contextlib.contextmanager
def allow_mutation_on_saved_tensors() -> Iterator[None]:
    """Save copies of tensors, so that the tensors themselves may be changed.

    >>> x = weft.ones(2, requires_grad=True)
    >>> with weft.autograd.graph.allow_mutation_on_saved_tensors():
    ...     a = x * 2
    ...     y = a.exp()
    ...     b = (a * a).sum()
    ...     _ = a.detach().zero_()
    >>> b.backward()
    >>> x.grad
    tensor([8., 8.])
    """
    with saved_tensors_hooks(lambda t: t.clone(), lambda t: t):
        yield


class _Handles:
    """Removes several hooks at once."""

    def __init__(self, handles: Sequence[Any]) -> None:
        self.handles = handles

    def remove(self) -> None:
        for handle in self.handles:
            handle.remove()

    def __enter__(self) -> _Handles:
        return self

    def __exit__(self, *error: object) -> None:
        self.remove()


def register_multi_grad_hook(
    tensors: Sequence[Tensor], fn: Callable[..., Any], *, mode: str = "all"
) -> _Handles:
    """Call ``fn`` when the gradients of several tensors are known.

    With the mode ``all`` it gets all of them, None for those that get none in this
    backward; with ``any`` the first one.

    >>> a, b = weft.ones(1, requires_grad=True), weft.ones(1, requires_grad=True)
    >>> seen = []
    >>> handle = weft.autograd.graph.register_multi_grad_hook([a, b], seen.append)
    >>> (a * 2 + b * 3).backward()
    >>> seen
    [[tensor([2.]), tensor([3.])]]
    """
    if mode not in ("all", "any"):
        raise ArgumentError(
            f"register_multi_grad_hook: expected mode 'all' or 'any', got {mode!r}"
        )
    seen = _Seen([t._node for t in tensors], fn, mode)
    return _Handles([t.register_hook(seen.receiver(k)) for k, t in enumerate(tensors)])


class _Seen:
    """The gradients of several tensors that have come in the running backward."""

    def __init__(self, nodes: list[Any], fn: Callable[..., Any], kind: str) -> None:
        self.nodes, self.fn, self.kind = nodes, fn, kind
        self.run: Any = None
        self.grads: dict[int, Any] = {}

    def receiver(self, index: int) -> Callable[[Any], None]:
        return lambda g: self.receive(index, g)

    def receive(self, index: int, g: Any) -> None:
        if mode.running is not self.run:
            self.run, self.grads = mode.running, {}
        self.grads[index] = g
        if self.kind == "any":
            if len(self.grads) == 1:
                self.fn(g)
            return
        ahead = self.run.waiting(self.nodes[index])
        rest = [n for k, n in enumerate(self.nodes) if k not in self.grads]
        if not any(node in ahead for node in rest):
            self.fn([self.grads.get(k) for k in range(len(self.nodes))])
