"""The tape: what was done to tensors that want gradients, and how it runs back.

Each recorded operator leaves one ``Node`` that knows its parents, the few
values its rule needs and the user's line (as a code object and an offset).
Sequence numbers grow with time, so taking the largest first is a reverse
topological order: backward is one heap and one loop, without recursion.

    z = x * y        Node(mul, parents=(x's, y's), saved=(x, y))
"""

from __future__ import annotations

import itertools
import sys
import weakref
from collections.abc import Callable, Iterable
from heapq import heappop, heappush
from types import CodeType
from typing import TYPE_CHECKING, Any

import numpy as np

from weft import late, naming
from weft.core.mode import mode, set_recording, set_tape
from weft.core.op import Plan
from weft.errors import INTERNAL, AutogradError, describe_line

if TYPE_CHECKING:
    from weft.core.tensor import Tensor

Hook = Callable[[Any], Any]
next_number = itertools.count(1).__next__
weak = weakref.ref
_getframe = sys._getframe
LARGE = 1 << 16  # bytes of a gradient that are not kept twice


Where = tuple[CodeType | None, int]  # a code object and an instruction's offset
Change = tuple[str, CodeType | None, int]  # by which operator, at which instruction


def keep_in_row(first: Any, *names: str) -> None:
    """Let CPython store attributes of a class's objects inline, without a dictionary.

    It does so for names that it saw on one of the first objects.
    """
    for name in names:
        setattr(first, name, getattr(first, name))


class Storage:
    """The memory shared by a tensor and its views, and when it last changed."""

    # Defaults are attributes of the class: most objects are made for a result that is
    # kept, and never see a change.
    version = 0
    changed_at = 0
    frozen = False  # whether a capture refuses changes in place
    exposed = False  # whether other libraries may write here unnoticed
    change: Change = ("", None, 0)  # the last one
    regions: list[tuple[int, Any]] | None = None  # what single changes have written to
    blurred_at = 0  # the last change whose region is not known
    views: list[weakref.ref[Any]] | None = None
    conjugates = 0  # how many ``conj()`` made it; it is not written to by users
    conjugate_of: Storage | None = None  # whose changes it shows: kept alive for that
    conjugated: list[tuple[Any, Any, Any]] | None = None  # what ``conj()`` made of it

    def touch(self, op_name: str, where: Any = None, region: Any = None) -> None:
        """Note that an in-place operator has written here (``where`` in the code).

        ``region`` is the array that it has written to, where that is known.
        """
        code, lasti = where or caller()
        self.version += 1
        self.changed_at = number = next_number()
        self.change = op_name, code, lasti
        if region is None:
            self.blurred_at, self.regions = number, None
        elif self.regions is None:
            self.regions = [(number, region)]
        elif len(self.regions) < 32:
            self.regions.append((number, region))
        else:
            self.blurred_at, self.regions = number, None
        if self.conjugated is not None:
            self.conjugate_again(where or (code, lasti))

    def add_conjugate(self, source: np.ndarray, made: Any) -> None:
        """Let a tensor, the conjugate of this memory's ``source``, show its changes."""
        made._data.flags.writeable = False
        made.storage_record.conjugate_of = self
        refs = weakref.ref(made._data), weakref.ref(made.storage_record), source
        alive = [entry for entry in self.conjugated or () if entry[0]() is not None]
        self.conjugated = [*alive, refs]

    def conjugate_again(self, where: Any) -> None:
        """Bring what ``conj()`` made of this memory up to date after a change."""
        kept = []
        for entry in self.conjugated or ():
            made, storage, source = entry[0](), entry[1](), entry[2]
            if made is not None and storage is not None:
                made.flags.writeable = True
                np.conjugate(source, out=made)
                made.flags.writeable = False
                storage.touch("conj", where)
                kept.append(entry)
        self.conjugated = kept or None

    def disturbs(self, value: Any, since: int) -> bool:
        """Whether a tensor over this memory has other elements than at that time."""
        if self.changed_at <= since:
            return False
        if self.blurred_at > since or not isinstance(value._data, np.ndarray):
            return True
        return any(
            number > since and _overlap(value._data, region)
            for number, region in self.regions or ()
        )

    def live_views(self) -> list[Any]:
        """The views that still exist."""
        found = [ref() for ref in self.views or ()]
        return [view for view in found if view is not None]

    def add_view(self, view: Any) -> None:
        views = self.views
        if views is None:
            self.views = [weak(view)]
            return
        count = len(views)
        if count > 63 and count & (count - 1) == 0:
            # at each doubling, so the list stays bounded
            self.views = views = [ref for ref in views if ref() is not None]
        views.append(weak(view))


keep_in_row(Storage(), "version", "changed_at", "change", "views")


def note_changes(storages: list[Storage], op_name: str, where: Any) -> None:
    """Note that an operator has written to several, somewhere in the code."""
    number, change = next_number(), (op_name, *where)
    for storage in storages:
        storage.version += 1
        storage.changed_at = storage.blurred_at = number
        storage.change = change
        storage.regions = None
        if storage.conjugated is not None:
            storage.conjugate_again(where)


def _overlap(one: np.ndarray, other: np.ndarray) -> bool:
    try:
        return np.shares_memory(one, other, 10_000)  # type: ignore[arg-type]
    except np.exceptions.TooHardError:
        return True


def caller(depth: int = 1) -> Where:
    """The user's code object and instruction offset, ``depth`` frames up or further."""
    frame = _getframe(depth)
    code = frame.f_code
    while INTERNAL[code.co_filename]:
        back = frame.f_back
        if back is None:
            break
        frame = back
        code = frame.f_code
    return code, frame.f_lasti


class Packed(tuple[Any, ...]):
    """Values of a node that hooks have packed (see ``autograd.graph``)."""

    unpack: Callable[[Any], Any]

    @classmethod
    def of(cls, saved: tuple[Any, ...]) -> Packed:
        pack, unpack = mode.saved_hooks[-1]
        hooks, mode.saved_hooks = mode.saved_hooks, ()  # not for what a hook does
        recording = set_recording(False)
        try:
            made = cls([_each(pack, value) for value in saved])
        finally:
            set_recording(recording)
            mode.saved_hooks = hooks
        made.unpack = unpack
        return made

    def unpacked(self) -> tuple[Any, ...]:
        return tuple([
            _each(lambda one: self.unpack(one.value).alias(one.node), value)
            for value in self
        ])  # fmt: skip


class _Held:
    """A packed tensor, and its place on the tape."""

    def __init__(self, value: Any, node: Any) -> None:
        self.value, self.node = value, node


def _each(fn: Callable[[Any], Any], value: Any) -> Any:
    """A saved value with its tensors packed, or unpacked."""
    if type(value) is list:
        return [_each(fn, one) for one in value]
    if type(value) is _Held:
        return fn(value)
    return _Held(fn(value.detach()), value._node) if _is_tensor(value) else value


def _is_tensor(value: Any) -> bool:
    return hasattr(value, "_node") and hasattr(value, "alias")


class NodeName(str):
    """An operator's name, which as a call is PyTorch's kind of name.

    >>> x = weft.ones(1, requires_grad=True)
    >>> (x * 2).grad_fn.name, (x * 2).grad_fn.name()
    ('mul', 'MulBackward0')
    """

    __slots__ = ()

    def __call__(self) -> str:
        if self == "leaf":
            return "torch::autograd::AccumulateGrad"
        words = "".join(word.capitalize() for word in self.split("_"))
        return f"{words}Backward0"


def _written(node: Any, name: str) -> str:
    return f"<{node.name() if naming.is_torch() else name}>"


class _Public:
    """Names that PyTorch's nodes have."""

    __slots__ = ()

    def register_prehook(self: Any, fn: Callable[[Any], Any]) -> Any:
        """Call ``fn(grad_outputs)`` before the gradient passes; it may replace it."""

        def hook(g: Any) -> Any:
            many = type(g) is list
            found = fn(tuple(g) if many else (g,))
            return found if found is None else list(found) if many else found[0]

        return late.find("HookHandle")(self, hook)

    def register_hook(self: Any, fn: Callable[[Any, Any], Any]) -> Any:
        """Call ``fn(grad_inputs, grad_outputs)`` after the gradient has passed.

        It may return other gradients for the inputs.
        """
        owner = self.node if type(self) is Pick else self
        if type(owner) is Leaf:
            raise AutogradError(
                "register_hook: a leaf's node passes no gradient on; use the tensor's "
                "register_hook or register_post_accumulate_grad_hook"
            )
        return late.find("RemovableHandle")(POST_HOOKS.setdefault(owner, {}), fn)

    @property
    def metadata(self: Any) -> dict[str, Any]:
        """Anything that the user keeps with the node."""
        return METADATA.setdefault(self, {})


# Of the few nodes that have them.
POST_HOOKS: Any = weakref.WeakKeyDictionary()
METADATA: Any = weakref.WeakKeyDictionary()

NO_TYPES: list[Any] = []


class Node(_Public):
    """One recorded operator. There is no ``__init__``: it would double the time.

    ``fast_path.result`` sets the same fields as ``of``.
    """

    __slots__ = (
        "__weakref__", "code", "hooks", "lasti", "number", "out_types", "params",
        "parents", "plan", "saved",
    )  # fmt: skip

    plan: Plan
    parents: tuple[Any, ...]
    saved: tuple[Any, ...] | None
    params: dict[str, Any]
    code: CodeType | None
    lasti: int
    number: int
    hooks: dict[int, Hook] | None
    out_types: list[Any]  # of several outputs

    @staticmethod
    def of(
        plan: Plan,
        parents: tuple[Any, ...],
        values: tuple[Any, ...],
        params: dict[str, Any],
        at: Where = (None, 0),
    ) -> Node:
        """The tape's next node. ``values`` are the arguments, then all outputs."""
        node = Node()
        node.plan, node.parents, node.params = plan, parents, params
        node.saved = plan.pick(values)
        node.number = next_number()
        node.hooks, node.out_types = None, NO_TYPES
        node.code, node.lasti = at
        return node

    @property
    def name(self) -> str:
        return NodeName(self.plan.op.name)

    @property
    def next_functions(self) -> tuple[Any, ...]:
        """The parent nodes, as PyTorch names them."""
        return tuple((parent, getattr(parent, "index", 0)) for parent in self.parents)

    @property
    def spent(self) -> bool:
        return self.saved is None

    def release(self) -> None:
        """Release the saved values, once backward has passed."""
        self.saved = None
        self.parents = ()

    def pull_back(self, g: Any, wanted: Any = None) -> list[tuple[int, Any]]:
        """(position, cotangent) for each input that wants one."""
        plan, params, parents = self.plan, self.params, self.parents
        values = self._unpack()
        if plan.joint:
            step = plan.steps[0]
            found = step.fn(g, *[self._argument(a, values) for a in step.args])
            return [pair for pair in enumerate(found) if plan.need[pair[0]]]
        pairs = []
        for i, fn, args, only in plan.steps:
            if wanted is not None and not wanted.has(parents[i]):
                continue
            if only >= 0:
                pairs.append((i, fn(g, values[only])))
            elif not args:
                pairs.append((i, fn(g)))
            else:
                rest = [params[a] if isinstance(a, str) else values[a] for a in args]
                pairs.append((i, fn(g, *rest)))
        return pairs

    def _argument(self, source: int | str, values: tuple[Any, ...]) -> Any:
        if isinstance(source, int):
            return values[source]
        return self.plan.need if source == "need" else self.params[source]

    def _unpack(self) -> tuple[Any, ...]:
        saved = self.saved
        if saved is None:
            raise _second_backward(self)
        if not saved:
            return saved
        if type(saved) is Packed:
            saved = saved.unpacked()
            return self._reattach(saved) if self.plan.outs else saved
        for value in saved:
            for one in value if type(value) is list else (value,):
                storage = getattr(one, "_storage", None)
                if storage is not None and storage.disturbs(one, self.number):
                    raise changed(self, one, storage)
        return self._reattach(saved) if self.plan.outs else saved

    def _reattach(self, saved: tuple[Any, ...]) -> tuple[Any, ...]:
        """Give saved outputs their nodes on the tape (saved without: no cycles)."""
        values = list(saved)
        if self.plan.op.many:
            for position in self.plan.outs:
                values[position] = [
                    out.alias(Pick(self, k)) if out.dtype.is_inexact else out
                    for k, out in enumerate(values[position])
                ]
            return tuple(values)
        single = len(self.plan.op.outputs) == 1
        for position in self.plan.outs:
            node = self if single else Pick(self, self.plan.keep[position][1])
            values[position] = values[position].alias(node)
        return tuple(values)

    def __repr__(self) -> str:
        return _written(self, self.name)


class Pick(_Public):
    """One output of a node that has several."""

    __slots__ = ("__weakref__", "hooks", "index", "node", "number")

    def __init__(self, node: Node, index: int) -> None:
        self.node = node
        self.index = index
        self.number = next_number()
        self.hooks: dict[int, Hook] | None = None

    @property
    def name(self) -> str:
        return self.node.name

    @property
    def parents(self) -> tuple[Any, ...]:
        return (self.node,)

    @property
    def next_functions(self) -> tuple[Any, ...]:
        return self.node.next_functions

    @property
    def spent(self) -> bool:
        return self.node.spent

    def __repr__(self) -> str:
        return _written(
            self, f"{self.name}.{self.node.plan.op.output_name(self.index)}"
        )


class Leaf(_Public):
    """The end of a path of gradients: a tensor that the user wants gradients for."""

    __slots__ = ("__weakref__", "hooks", "number", "tensor")

    name = NodeName("leaf")
    parents: tuple[Any, ...] = ()
    next_functions: tuple[Any, ...] = ()
    spent = False

    def __init__(self, tensor: Tensor) -> None:
        self.tensor = weakref.ref(tensor)
        self.number = next_number()
        self.hooks: dict[int, Hook] | None = None

    @property
    def variable(self) -> Any:
        """The tensor."""
        return self.tensor()

    def __repr__(self) -> str:
        return "<leaf>"


def record(op: Any, args: tuple[Any, ...], params: dict[str, Any], out: Any) -> None:
    """Write ``out = op(*args, **params)`` on the tape if an argument asks for it."""
    if op.vjp is None:
        return
    parents = tuple([getattr(a, "_node", None) for a in args])
    need = tuple([parent is not None for parent in parents])
    if True not in need:
        return
    plan = op.plan(need)
    outs = out if type(out) is tuple else (out,)
    capture = mode.capture  # which knows part of the way
    at = caller() if capture is None else capture.builder.caller()
    node = Node.of(plan, parents, (*args, outs), params, at)
    if mode.saved_hooks:
        node.saved = Packed.of(node.saved or ())
    if type(out) is not tuple:
        if out.dtype.is_inexact:
            out._node = node
        return
    node.out_types = [(o.shape, o.dtype) for o in outs]
    for index, one in enumerate(outs):
        if one.dtype.is_inexact:
            one._node = Pick(node, index)


def drop_spent(node: Any) -> None:
    """Release a node whose every parent was used up by an earlier backward.

    Nothing can flow through it any more, and a running total of losses would
    otherwise hold one more of them each step.
    """
    if type(node) is Node and node.parents:
        for parent in node.parents:
            if parent is not None and not parent.spent:
                return
        node.release()


class Backward:
    """One run of the tape backwards."""

    def __init__(self, *, create_graph: bool, retain_graph: bool) -> None:
        self.create_graph = create_graph
        self.retain_graph = retain_graph
        self.pending: dict[Any, Any] = {}
        self.owned: set[Any] = set()
        self.heap: list[tuple[int, Any]] = []
        self.uses: dict[Leaf, int] | None = None  # that are still to come

    def send(self, node: Any, g: Any) -> None:
        """Add a cotangent to those that ``node`` will receive."""
        before = self.pending.get(node)
        if before is None:
            self.pending[node] = g
            heappush(self.heap, (-node.number, node))
        elif node in self.owned and type(g) is type(before):
            np.add(before._data, g._data, before._data)
        else:
            self.pending[node] = total = before + g
            if not self.create_graph and total.is_owned():
                self.owned.add(node)

    def run(self, on_leaf: Callable[[Any, Any], None], wanted: Any = None) -> None:
        """Go back over the tape; ``wanted`` limits it to some nodes' ancestors."""
        before = set_tape(self.create_graph, self.create_graph)
        outer, mode.refilled = mode.refilled, []
        around, mode.running = mode.running, self
        try:
            with np.errstate(all="ignore"):
                self._loop(on_leaf, wanted)
        finally:
            set_tape(*before)
            mode.backward_node = None
            for ref in mode.refilled:
                segment = ref()
                if segment is not None:
                    segment.drop()
            mode.refilled = outer
            mode.running = around

    def waiting(self, node: Any) -> set[Any]:
        """The nodes that a gradient will still reach, from ``node`` on."""
        return reach([node, *[waiting for _, waiting in self.heap]])

    def _loop(self, on_leaf: Callable[[Any, Any], None], wanted: Any) -> None:
        heap, pending, owned, send = self.heap, self.pending, self.owned, self.send
        retain = self.retain_graph
        watched = bool(mode.observers) or mode.capture is not None or mode.measured
        hooked = POST_HOOKS.data  # asked of every node: whether there are any is enough
        at_end = wanted is not None or self.create_graph or mode.capture is not None
        while heap:
            node = heappop(heap)[1]
            g = pending.pop(node, None)
            if g is None:
                continue  # a leaf that had its gradient early
            if owned:
                owned.discard(node)
            if node.hooks:
                g = run_hooks(node, g)
            kind = type(node)
            if kind is Leaf or (wanted is not None and node in wanted.targets):
                on_leaf(node, g)
                if kind is Leaf or node not in wanted.through:
                    continue
            if kind is Pick:
                self._gather(node, g)
                continue
            if type(g) is list:
                g = _fill(node, g)
            if watched:
                mode.backward_node = node
            parents = node.parents
            pairs = node.pull_back(g, wanted)
            if hooked and node in POST_HOOKS:
                pairs = _after(node, pairs, g)
            for i, gi in pairs:
                if gi is None:
                    continue
                parent = parents[i]
                if parent in pending:
                    send(parent, gi)
                elif wanted is None or wanted.has(parent):
                    pending[parent] = gi
                    heappush(heap, (-parent.number, parent))
            if not at_end:
                for parent in parents:
                    if type(parent) is Leaf and (
                        self.uses is not None or _has_large_gradient(parent)
                    ):
                        self._sent(node, parent, on_leaf)
            if not retain:
                node.saved = None
                node.parents = ()

    def _sent(self, node: Any, leaf: Leaf, on_leaf: Callable[[Any, Any], None]) -> None:
        """Give a leaf its gradient as soon as it is whole.

        It could be given at the end, but where it is added to a large one, both would
        have to be kept until then.
        """
        if self.uses is None:
            self.uses = _uses([node, *[waiting for _, waiting in self.heap]])
        if leaf in self.uses:
            self.uses[leaf] -= 1
            if not self.uses[leaf] and leaf in self.pending:
                self.owned.discard(leaf)
                g = self.pending.pop(leaf)
                on_leaf(leaf, run_hooks(leaf, g) if leaf.hooks else g)

    def _gather(self, pick: Pick, g: Any) -> None:
        """Collect the cotangents of a node with several outputs."""
        node = pick.node
        slots = self.pending.get(node)
        if slots is None:
            slots = self.pending[node] = [None] * len(node.out_types)
            heappush(self.heap, (-node.number, node))
        slots[pick.index] = g if slots[pick.index] is None else slots[pick.index] + g


def _after(node: Node, pairs: list[Any], g: Any) -> list[Any]:
    """The gradients of a node's inputs after its hooks."""
    given = dict(pairs)
    grads = tuple(given.get(k) for k in range(len(node.parents)))
    for hook in list(POST_HOOKS[node].values()):
        replaced = hook(grads, g if type(g) is tuple else (g,))
        if replaced is not None:
            grads = replaced if type(replaced) is tuple else (replaced,)
    return [(k, grads[k]) for k, _ in pairs]


def _has_large_gradient(leaf: Leaf) -> bool:
    tensor = leaf.tensor()
    grad = None if tensor is None else tensor.grad
    return grad is not None and grad._part._data.nbytes >= LARGE


def _uses(nodes: Iterable[Any]) -> dict[Leaf, int]:
    """The number of reads of each leaf by some nodes and those behind them."""
    found: dict[Leaf, int] = {}
    for node in reach(nodes):
        for parent in node.parents:
            if type(parent) is Leaf:
                found[parent] = found.get(parent, 0) + 1
    return found


def _fill(node: Node, slots: list[Any]) -> tuple[Any, ...]:
    """Zeros for the floating outputs that nothing came back through."""
    if node.spent:
        raise _second_backward(node)
    if node.plan.op.many or getattr(node.plan.op.vjp, "sparse", False):
        return tuple(slots)  # the rule of such an operator does without them
    device = next((g.device for g in slots if g is not None), None)
    zeros = late.find("zeros")
    return tuple(
        zeros(shape, dtype=dtype, device=device)
        if g is None and dtype.is_inexact
        else g
        for g, (shape, dtype) in zip(slots, node.out_types, strict=True)
    )


def run_hooks(node: Any, g: Any) -> Any:
    """Pass a cotangent through a node's hooks, each of which may replace it."""
    for hook in list(node.hooks.values()):
        replaced = hook(g)
        if replaced is not None:
            g = replaced
    return g


class Wanted:
    """The nodes of a backward run that lead to its targets.

    ``targets`` receive their cotangents; ``through`` are the nodes whose rules
    must run because a target depends on them.
    """

    __slots__ = ("targets", "through")

    def __init__(self, roots: Iterable[Any], targets: Iterable[Any]) -> None:
        self.targets = set(targets)
        floor = min((t.number for t in self.targets), default=0)
        reached = reach(roots, floor)
        self.through: set[Any] = set()
        for node in sorted(reached, key=lambda n: n.number):
            if any(p in self.through or p in self.targets for p in node.parents):
                self.through.add(node)

    def has(self, node: Any) -> bool:
        return node in self.through or node in self.targets


def reach(roots: Iterable[Any], floor: int = 0) -> set[Any]:
    """Every node behind ``roots`` that is no older than ``floor``."""
    seen: set[Any] = set()
    stack = list(roots)
    while stack:
        node = stack.pop()
        if node is None or node in seen or node.number < floor:
            continue
        seen.add(node)
        stack.extend(node.parents)
    return seen


def leads_outside(node: Any, mine: Iterable[Any]) -> bool:
    """Whether a node leads to a leaf other than ``mine``."""
    own = set(mine)
    return node is not None and any(
        type(n) is Leaf and n not in own for n in reach([node])
    )


def current_backward() -> Any:
    """The node whose rule is running now, while operators are watched."""
    return mode.backward_node


def _second_backward(node: Node) -> AutogradError:
    return AutogradError(
        f"backward: the values saved by {node.name!r} were already freed by an "
        "earlier backward. Pass retain_graph=True to that earlier backward, or "
        f"compute the result again.\n  saved at {describe_line(node.code, node.lasti)}"
    )


def changed(node: Node, value: Any, storage: Storage) -> AutogradError:
    return AutogradError(
        f"backward: a {value.dtype.name} tensor of shape {tuple(value.shape)} that "
        f"{node.name!r} saved for its gradient was changed in place by "
        f"{storage.change[0]!r} (version {storage.version}). Use the out-of-place form "
        "there, or change a .clone() of it.\n"
        f"  saved at {describe_line(node.code, node.lasti)}\n"
        f"  changed at {describe_line(*storage.change[1:])}"
    )
