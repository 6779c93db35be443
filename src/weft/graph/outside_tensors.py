"""Tensors from outside, which are symbols during a capture.

A tensor that exists outside and is touched (a parameter, a buffer, an optimizer's
moment) is borrowed: it reads a variable, in-place operators and ``backward`` change the
symbol, and its value at the end is assigned to the variable. Afterwards it is the same
tensor as before, with its old value; no symbol stays behind anywhere.
"""

from __future__ import annotations

import functools
import gc
import sys
import threading
import weakref
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np

from weft.core.device import cpu
from weft.core.dispatch import bind, type_of
from weft.core.mode import mode, set_capture
from weft.core.op import TensorType
from weft.core.tape import Leaf
from weft.core.tensor import DeviceTensor, Tensor
from weft.dtype import DType, float64
from weft.errors import DeviceError, module_stack
from weft.graph.argument_gradients import ArgumentGradients
from weft.graph.effects import Printed
from weft.graph.ir import PICK, Builder, Node, Role, Variable
from weft.graph.labels import state_names
from weft.graph.layouts import Layouts
from weft.graph.state_cells import (
    Cell,
    GradCell,
    Guard,
    NumberCell,
    On,
    SlotCell,
    SumCell,
)
from weft.graph.symbol import (
    MARK,
    Building,
    CaptureError,
    Refused,
    Symbol,
    refusal,
)
from weft.graph.value_texts import ValueText
from weft.graph.verify import same_type

_new = object.__new__
CONCRETE = (Tensor, DeviceTensor)  # types of tensors that have values
ABSENT: Any = object()
LOCK = threading.RLock()  # a capture borrows the tensors it touches


class Borrowed:
    """A tensor of the user's that is a symbol during a capture."""

    def __init__(self, tensor: Tensor, cell: Cell, read: Node, whole: bool) -> None:
        self.whole = whole  # not a view of another one
        self.tensor = tensor
        self.kind = type(tensor)
        self.cell = cell
        self.read = read
        self.grad = tensor.__dict__.get("grad")
        self.node = tensor._node
        self.view = tensor._base, tensor._chain

    def give_back(self) -> None:
        tensor = self.tensor
        tensor.__class__ = self.kind
        del tensor.node  # type: ignore[attr-defined]
        del tensor._interpreter
        for name in ("past", "quiet", "source"):
            tensor.__dict__.pop(name, None)
        tensor.grad = self.grad
        tensor._node = self.node
        if self.view[0] is not None:
            tensor._base, tensor._chain = self.view


def _is_own_leaf(tensor: Tensor) -> bool:
    """Whether a view has a gradient of its own: it requires grad, its base does not."""
    base = tensor._base
    return type(tensor._node) is Leaf and base is not None and base._node is None


class Attribute(NamedTuple):
    """An attribute that the function set on an object which keeps values for later."""

    slots: dict[str, Any]
    name: str
    before: Any  # its value before the capture, or ABSENT
    after: Any  # a recipe for its value after a run; ABSENT: the value that was set

    def put_back(self) -> None:
        if self.before is ABSENT:
            self.slots.pop(self.name, None)
        else:
            self.slots[self.name] = self.before


class Capture(Building):
    """The interpreter of one capture."""

    name = "capture"
    replays = True

    def __init__(self, builder: Builder, names: Mapping[int, str]) -> None:
        super().__init__(builder)
        self.names = dict(names)
        self.slots: dict[int, tuple[dict[str, Any], str]] = {}
        self.roots: set[int] = set()
        self.borrowed: dict[int, Borrowed] = {}
        self.by_memory: dict[Any, Borrowed] = {}
        self.made: list[weakref.ref[Symbol]] = []
        self.closed = False
        self.thread = threading.get_ident()
        self.origins: dict[Any, Node] = {}  # tape node → graph node
        self.numbers: dict[Any, tuple[NumberCell, Node, Symbol]] = {}
        self.guards: list[Guard] = []
        self.cleared: set[int] = set()  # tensors whose gradient was set or read
        self.set_grads: dict[int, tuple[Tensor, Any]] = {}  # and the old one, if set
        self.buffers: dict[Any, tuple[Any, str, Any]] = {}  # set ones, with old values
        self.kept: list[tuple[Any, str, Tensor]] = []  # new buffers, at the end
        self.attributes: dict[Any, Attribute] = {}  # that were set, by object and name
        self.emptied: list[Tensor] = []  # tensors without a gradient at the end
        self.accumulated: dict[int, Tensor] = {}  # the tensors of accumulated gradients
        self.arrays: list[np.ndarray] = []  # NumPy's, which became tensors
        self.layouts: dict[Node, Any] = {}  # of arguments, if they matter
        self.regions: list[Any] = []  # the policy of each checkpointed function
        self.orders = Layouts()
        self.nonzero: set[Node] = set()  # numbers that the function divides by
        self.texts: dict[str, tuple[Node, str]] = {}  # marks for values in texts
        self.conjugates: list[Any] = []  # memory, and a reference to that of a conj()
        self.hooks: dict[int, tuple[Any, Any]] = {}  # changed ones, and those before
        self.shown: set[str] = set()  # those of them that an effect or a result shows
        self.effects: list[Any] = []  # that every run has, in order
        self.gradients = ArgumentGradients()
        self.anywhere = False  # whether tensors may be on other devices than the CPU
        self.entered = ""  # the tensor that decided the device
        self.branching = 0  # how many branches and loops of Python are being captured
        self.branch_runs = 0  # how often their sides and bodies have run
        self.frozen: list[Any] = []  # memory that must not change in place any more
        self.existed: Callable[[Any], bool] = lambda value: True

    def __enter__(self) -> Capture:
        super().__enter__()
        self.before = set_capture(self)
        for name, method in _WATCHING.items():
            setattr(Tensor, name, method)
        return self

    def __exit__(self, *error: object) -> None:
        if self.before is None:
            for name, method in _PLAIN.items():
                setattr(Tensor, name, method)
        set_capture(self.before)
        for slots, key, tensor in self.buffers.values():
            slots[key] = tensor
        self.buffers.clear()
        for attribute in self.attributes.values():
            attribute.put_back()
        self.attributes.clear()
        for storage in self.frozen:
            del storage.frozen
        self.frozen.clear()
        for held in self.borrowed.values():
            held.give_back()
        for tensor, grad in self.set_grads.values():
            if id(tensor) not in self.borrowed:
                tensor.grad = grad
        self.set_grads.clear()
        self.closed = True
        super().__exit__(*error)

    # -- symbols

    def symbol(self, node: Node) -> Symbol:
        made = _new(self.symbols)
        made.node, made._interpreter = node, self
        self.made.append(weakref.ref(made))
        return made

    def process(self, op: Any, args: tuple[Any, ...], params: dict[str, Any]) -> Any:
        if self.closed:
            raise self._escaped(next(a for a in args if isinstance(a, Symbol)))
        if mode.refusals:
            raise Refused(mode.refusals[0])  # the function went on
        if threading.get_ident() != self.thread:
            return self._wait(op, args, params)
        tape = mode.backward_node
        if tape is None:
            return super().process(op, args, params)
        build, origin = self.builder, self.origins.get(tape)
        before = build.origin, build.prefix, build.role
        if origin is None:
            lead, role = tape.name, Role("", None, build.role.region)
        else:
            lead, role = origin.name, Role(origin.name, None, origin.role.region)
        build.origin, build.prefix = origin, f"{build.prefix}grad/{lead}/"
        build.role = role
        try:
            return super().process(op, args, params)
        finally:
            build.origin, build.prefix, build.role = before

    def run_module(self, module: Any, args: tuple[Any, ...], kwargs: Any) -> Any:
        build, before = self.builder, self.builder.known
        build.known = (sys._getframe(), *build.caller())
        try:
            return super().run_module(module, args, kwargs)
        finally:
            build.known = before

    def note(self, out: Any) -> None:
        """Remember which node of the graph a node of the tape stands for."""
        for one in out if type(out) is tuple else (out,):
            if isinstance(one, Symbol) and one._node is not None:
                self.origins.setdefault(one._node, one.node)
                below = getattr(one._node, "node", None)  # of one output of several
                if below is not None:
                    picked = one.node.op is PICK
                    source = one.node.inputs[0] if picked else one.node
                    self.origins.setdefault(below, source)

    def _wait(self, op: Any, args: Any, params: Any) -> Any:
        """Let a thread that meets a borrowed tensor wait for the capture's end."""
        from weft.core.dispatch import bind

        with LOCK:
            pass
        return bind(op, args, params)

    def _escaped(self, symbol: Symbol) -> BaseException:
        return refusal(
            f"this tensor ({symbol.described()}) belongs to a capture of "
            f"{self.builder.name!r} that is over, so it has no value; return it from "
            f"the captured function instead.\n  made at {symbol.node.line}"
        )

    # -- tensors from outside

    def enter(self, tensor: Tensor, name: str) -> None:
        """Note the device of a tensor from outside; all must be on one."""
        device = tensor.device
        if device is not cpu and (device.target is None or not self.anywhere):
            raise DeviceError(
                f"capture: expected tensors on the CPU, got {name!r} on "
                f"{device.name!r}; call the function itself there, or move the tensor "
                "with .cpu()"
            )
        if self.entered and device is not self.device:
            raise DeviceError(
                f"capture: expected all tensors on one device, got {self.entered!r} on "
                f"{self.device.name!r} and {name!r} on {device.name!r}. Move one with "
                f".to({self.device.name!r})"
            )
        self.device, self.entered = device, self.entered or name

    def concrete(self, value: Tensor) -> Node:
        if value._capture is self:
            return self.__made_inside(value)
        if type(value) not in CONCRETE:
            raise refusal(f"capture: expected tensors, got {type(value).__name__}")
        return self.borrow(value).node

    def __made_inside(self, tensor: Tensor) -> Node:
        """A tensor of Python values, made by the captured function: a constant."""
        node = self.builder.constant(tensor._data.copy())
        self.embody(tensor, node)
        self.made.append(weakref.ref(tensor))  # type: ignore[arg-type]
        return node

    def text_of(self, symbol: Symbol, spec: str) -> str:
        """A mark in the text, which each run replaces by the value."""
        node = self.lift(symbol)
        many = 1
        while True:
            text = f"{MARK * many}{symbol.described()}{MARK}"
            if self.texts.setdefault(text, (node, spec)) == (node, spec):
                return ValueText(text)
            many += 1

    def in_order(self, symbol: Symbol) -> Tensor:
        if not self.orders.is_unknown(symbol):
            return symbol
        from weft.ops.shaping import reshape_op

        return bind(reshape_op, (symbol,), {"shape": symbol.shape})

    def taken_for_view(self, base: Symbol, view: Symbol) -> None:
        self.orders.note(base, view)

    def taken_for_copy(self, base: Symbol, copy: Symbol) -> None:
        self.orders.note_copy(base, copy)

    def change(self, tensor: Tensor, name: str) -> None:
        super().change(tensor, name)
        if self.conjugates:
            self._check_conjugates(tensor, name)
        if self.orders.pairs or self.orders.families:
            self.orders.check_write(tensor, name)

    def is_own(self, tensor: Tensor) -> bool:
        shown = getattr(tensor, "given", None), getattr(tensor, "source", None)
        if any(one is not None for one in shown):
            return False
        return any(ref() is tensor for ref in self.made)

    def freeze(self, tensor: Tensor) -> None:
        """Refuse changes of a tensor in place from here on: eagerly, another tensor
        might change with it."""
        storage = tensor.storage_record
        if not storage.frozen:
            storage.frozen = True
            self.frozen.append(storage)

    def refuse_number(self, message: str) -> BaseException:
        return refusal(f"capture of {self.builder.name!r}: {message}")

    def note_conjugate(self, tensor: Tensor, made: Tensor) -> None:
        there = self._is_there(tensor) or self._shows_conjugate(tensor)
        refs = tensor.storage_record, weakref.ref(made.storage_record), there
        self.conjugates.append(refs)

    def _shows_conjugate(self, tensor: Tensor) -> bool:
        """Whether a tensor is the ``conj()`` of one that there is outside."""
        storage = tensor.storage_record
        return any(made() is storage and there for _, made, there in self.conjugates)

    def check_conjugates(self, leaves: list[Any]) -> None:
        """Refuse results that would have to show changes of a tensor outside."""
        for leaf in leaves:
            if isinstance(leaf, Symbol) and self._shows_conjugate(leaf):
                raise refusal(
                    f"capture of {self.builder.name!r}: a result is the conj() of a "
                    "tensor from outside, whose later changes it would have to show; "
                    "return conj_physical(), which is a copy"
                )

    def _check_conjugates(self, tensor: Tensor, name: str) -> None:
        """Refuse a change that a ``conj()`` of the tensor would have to show."""
        for storage, made, _ in self.conjugates:
            if storage is tensor.storage_record and made() is not None:
                raise refusal(
                    f"{name}: a conj() of this tensor is in use, and a program does "
                    "not show the change there; use conj_physical(), which is a copy"
                )

    def note_requires_grad(self, tensor: Tensor, wanted: bool) -> None:
        self.touch(tensor)
        if getattr(tensor, "given", None) is not None:
            raise refusal(
                "requires_grad_: the function changes whether its argument requires "
                "grad; do that before the call, or use a .detach() of it"
            )
        if id(tensor) in self.borrowed:
            self.effects.append(Printed(tensor.requires_grad_, (wanted,), {}))

    def note_hooks(self, hooks: dict[int, Any]) -> None:
        self.hooks.setdefault(id(hooks), (hooks, dict(hooks)))

    def check_hooks(self) -> None:
        """Refuse hooks that stay where they were not before."""
        while self.hooks:
            _, (hooks, before) = self.hooks.popitem()
            if hooks != before and _is_held(hooks):
                hooks.clear()
                hooks.update(before)
                raise refusal(
                    f"capture of {self.builder.name!r}: the function adds or removes "
                    "a hook, which later calls would not do; do it outside, or remove "
                    "the hook again in the function"
                )

    def note_array(self, array: np.ndarray) -> None:
        self.arrays.append(array)

    def note_layout(self, symbol: Symbol) -> None:
        if symbol.given is not None:
            self.layouts[symbol.given] = symbol.layout

    def borrow(self, tensor: Tensor) -> Symbol:
        """Turn a tensor of the user's into a symbol until the capture ends."""
        base = tensor._base
        if base is not None and _shares(tensor, base) and not _is_own_leaf(tensor):
            return self._borrow_view(tensor, base)
        self._check_leaves(tensor)
        memory = _memory_of(tensor)
        twin = self.by_memory.get(memory)
        if twin is not None:  # the same memory under another object
            cell, read = twin.cell, twin.tensor.node  # type: ignore[attr-defined]
        else:
            name = self._name(tensor)
            self.enter(tensor, name)
            variable = Variable(
                name,
                TensorType(tensor.shape, tensor.dtype),
                trainable=tensor._node is not None,
            )
            cell = self._cell(variable, tensor)
            read = self.builder.read(variable)
        array = tensor._data
        if isinstance(array, np.ndarray) and not array.flags.c_contiguous:
            self.orders.transposed.add(read)
        held = self._hold(tensor, cell, read, whole=True)
        if base is not None:
            tensor._base, tensor._chain = None, ()  # its gradient is its own
        self.by_memory.setdefault(memory, held)
        return held.tensor  # type: ignore[return-value]

    def _check_leaves(self, tensor: Tensor) -> None:
        """Refuse tensors of which one is a leaf over a part of the other's memory."""
        root = tensor if tensor._base is None else tensor._base
        for held in self.borrowed.values():
            other = held.view[0]
            apart = held.tensor if other is None or not held.whole else other
            if held.tensor is tensor or apart is not root:
                continue
            arrays = vars(held.tensor)["_data"], tensor._data
            known = all(type(a) is np.ndarray for a in arrays)
            if not known or np.may_share_memory(*arrays):
                raise refusal(
                    f"capture of {self.builder.name!r}: a tensor that requires grad is "
                    "a view of another one, and the function uses both. Make it with "
                    ".clone().requires_grad_()"
                )

    def _cell(self, variable: Variable, tensor: Tensor) -> Cell:
        if id(tensor) in self.slots:
            return SlotCell(variable, *self.slots[id(tensor)])
        if id(tensor) in self.accumulated:
            return SumCell(variable, self.accumulated[id(tensor)])
        return Cell(variable, tensor)

    def _borrow_view(self, tensor: Tensor, base: Tensor) -> Symbol:
        from weft.ops.inplace import replay

        if type(base) in CONCRETE:
            self.borrow(base)
        shown: Any = replay(base, tensor._chain)
        cell = self.borrowed[id(base)].cell
        return self._hold(tensor, cell, shown.node).tensor  # type: ignore[return-value]

    def _hold(
        self, tensor: Tensor, cell: Cell, node: Node, whole: bool = False
    ) -> Borrowed:
        held = self.borrowed[id(tensor)] = Borrowed(tensor, cell, node, whole)
        if id(tensor) in self.set_grads:  # by the function, before it used the tensor
            held.grad = self.set_grads[id(tensor)][1]
        self.embody(tensor, node)
        return held

    def look(self, tensor: Tensor) -> None:
        """Whether a tensor has a gradient from before, which is about to be read."""
        if self.gradients.look(tensor):
            return
        if id(tensor) in self.cleared or tensor._capture is not None:
            return
        if isinstance(tensor.__dict__.get("grad"), Symbol):
            return  # not from before
        self.touch(tensor)
        held = self.borrowed.get(id(tensor))
        if held is not None:
            self.cleared.add(id(tensor))  # it is known from here on
            name = held.cell.variable.name
            self.guard(
                f"{name}.grad is None", functools.partial(_no_grad, tensor),
                On(tensor, "grad", held.grad),
            )  # fmt: skip
            if held.grad is not None:
                self.accumulated[id(held.grad)] = tensor

    def note_grad(self, tensor: Tensor) -> None:
        """Called before a tensor's gradient is set: note the old one of a tensor from
        outside."""
        self.gradients.assign(tensor)
        before = tensor.__dict__.get("grad")
        ours = isinstance(before, Symbol) and id(before) not in self.borrowed
        if not ours and (id(tensor) in self.borrowed or is_outside(tensor)):
            self.set_grads.setdefault(id(tensor), (tensor, before))

    def accumulates(self, leaf: Tensor, g: Tensor, create_graph: bool) -> bool:
        return self.gradients.accumulate(leaf, g, create_graph)

    def note_buffer(self, slots: dict[str, Any], name: str) -> None:
        """Called before a module's buffer becomes another tensor."""
        self.buffers.setdefault((id(slots), name), (slots, name, slots[name]))

    def note_attribute(self, owner: Any, name: str, after: Any = ABSENT) -> None:
        """Called before an attribute is set that keeps a value for later.

        Each run sets it to its own value, or to one by the recipe ``after``.
        """
        slots = object.__getattribute__(owner, "__dict__")
        if not slots.get("_made_inside", False):
            self.note_item(slots, name, after)

    def note_item(self, slots: dict[str, Any], name: str, after: Any) -> None:
        """The same for an item of a dictionary."""
        key = id(slots), name
        known = self.attributes.get(key)
        before = slots.get(name, ABSENT) if known is None else known.before
        self.attributes[key] = Attribute(slots, name, before, after)

    def _new_buffers(self) -> dict[Variable, Node]:
        """The values of buffers that were set, for the tensors they were before."""
        values: dict[Variable, Node] = {}
        for slots, name, before in self.buffers.values():
            now = slots[name]
            if now is before:
                continue
            if not isinstance(now, Tensor) or not isinstance(before, Tensor):
                raise self._not_kept(name, "None takes or leaves its place")
            if self._is_there(now):
                raise self._not_kept(
                    name, "it is set to a tensor that is there already"
                )
            was, will = type_of(before), type_of(now)
            if not same_type(was, will):
                raise self._not_kept(name, f"{was} becomes {will}")
            if now._node is not None:
                raise self._not_kept(name, "its history would grow from call to call")
            self.touch(before)
            held = self.borrowed[id(before)]
            if not held.whole:
                raise self._not_kept(name, "it is a view of another tensor")
            self.kept.append((slots, name, before))
            values[held.cell.variable] = self.lift(now)
        return values

    def _is_there(self, tensor: Any) -> bool:
        """Whether a tensor shows memory from outside, or an argument's."""
        root = tensor
        while root._base is not None or getattr(root, "source", None) is not None:
            root = root._base if root._base is not None else root.source
        given = getattr(root, "given", None) is not None
        return given or id(root) in self.borrowed or is_outside(root)

    def _not_kept(self, name: str, why: str) -> BaseException:
        return refusal(
            f"capture of {self.builder.name!r}: the buffer {name!r} cannot be kept as "
            f"it is set: {why}. Set it to a new tensor like the one before (use "
            "detach() or clone()), or write into it with copy_"
        )

    def touch(self, tensor: Tensor) -> None:
        """Borrow a tensor whose attributes are about to change."""
        if type(tensor) in CONCRETE:
            self.concrete(tensor)

    def _name(self, tensor: Tensor) -> str:
        owner = self.borrowed.get(id(self.accumulated.get(id(tensor))))
        if owner is not None:
            return self._free(f"{owner.cell.variable.name}.grad")
        stack = module_stack()
        if id(tensor) not in self.names and stack and id(stack[0]) not in self.roots:
            self.roots.add(id(stack[0]))
            self.names = {**state_names(stack[0]), **self.names}
        return self._free(self.names.get(id(tensor), "tensor"))

    def _free(self, name: str) -> str:
        """A variable's name that is not taken."""
        taken = self.builder.variables
        found, k = name, 0
        while found in taken:
            k += 1
            found = f"{name}_{k}"
        return found

    # -- numbers from outside

    def number(
        self,
        key: Any,
        name: str,
        get: Callable[[], Any],
        set: Callable[[Any], None],
        on: tuple[dict[str, Any], str],
        dtype: DType = float64,
    ) -> Symbol:
        """A Python number as a 0-d symbol that every run reads anew.

        It is decided by an item of a dictionary.
        """
        known = self.numbers.get(key)
        if known is None:
            variable = Variable(self._free(name), TensorType((), dtype))
            read = self.builder.read(variable)
            known = NumberCell(variable, get, set, on), read, self.symbol(read)
            self.numbers[key] = known
        return known[2]

    def set_number(self, key: Any, value: Symbol) -> None:
        """The number's new value, written back after every run."""
        cell, read, _ = self.numbers[key]
        self.numbers[key] = cell, read, value

    def guard(self, what: str, read: Callable[[], Any], *on: On) -> None:
        """Note a Python value that the program now depends on, and what decides it."""
        self.guards.append(Guard(what, read(), read, on))

    @contextmanager
    def region(self, keep: Any) -> Iterator[None]:
        """Let the nodes made inside be those of a checkpointed function."""
        self.regions.append(keep)
        with self.builder.region(len(self.regions) - 1):
            yield

    # -- the end

    def close(self, leaves: list[Any]) -> tuple[list[Any], dict[str, Cell]]:
        """The outputs' nodes (or plain values), and the cells of the variables."""
        for leaf in leaves:
            if isinstance(leaf, Tensor):
                self.lift(leaf)
        outs = [self.lift(x) if isinstance(x, Tensor) else x for x in leaves]
        new = self._new_buffers()
        cells: dict[str, Cell] = {}
        renewed = [h for h in self.borrowed.values() if _has_new_grad(h)]
        old = {id(held.grad) for held in renewed}  # they take the sum in the end
        for held in list(self.borrowed.values()):
            tensor, variable = held.tensor, held.cell.variable
            cells[variable.name] = held.cell
            node: Any = new.get(variable, tensor.node)  # type: ignore[attr-defined]
            if held.whole and node is not held.read and id(tensor) not in old:
                self.builder.assign(variable, node)
            if _has_new_grad(held):
                cell = self._grad_cell(held)
                cells[cell.variable.name] = cell
                self.builder.assign(cell.variable, self.lift(tensor.grad))
        self.emptied = [t for t, _ in self.set_grads.values() if _no_grad(t)]
        for number, read, symbol in self.numbers.values():
            cells[number.variable.name] = number
            if symbol.node is not read:
                self.builder.assign(number.variable, symbol.node)
        return outs, cells

    def _grad_cell(self, held: Borrowed) -> Cell:
        before = self.borrowed.get(id(held.grad))
        if before is not None:  # accumulated: the tensor in .grad takes the sum
            return before.cell
        name = f"{held.cell.variable.name}.grad"
        type = held.cell.variable.type
        return GradCell(self.builder.variable(Variable(name, type)), held.tensor)

    def check_escapes(self, keep: set[int]) -> None:
        """Refuse symbols that something still refers to."""
        if not self._alive(keep):
            return
        gc.collect()  # cycles of the user's own are no escape
        alive = self._alive(keep)
        if alive:
            symbol = alive[0]
            alive.clear()
            held = _holder(symbol)
            raise CaptureError(
                f"capture of {self.builder.name!r}: the tensor {symbol.name!r} would "
                f"stay behind{held} when the function returns, without a value. Return "
                "it from the function instead, or write it into a tensor that is there "
                f"before, with copy_.\n  made at {symbol.node.line}"
            )

    def _alive(self, keep: set[int]) -> list[Symbol]:
        found = [s for ref in self.made if (s := ref()) is not None]
        return [s for s in found if id(s) not in keep]


def _is_held(hooks: dict[int, Any]) -> bool:
    """Whether hooks belong to an object that outlives the function."""
    gc.collect()
    return sys.getrefcount(hooks) > 3  # besides the caller's, ours and the argument's


# While a capture runs, plain tensors say who made them, and one from outside that
# is aliased or read (or whose gradient is) becomes a symbol first: its present value
# must not be kept.
_PLAIN: dict[str, Any] = {
    name: vars(Tensor)[name]
    for name in ("__init__", "alias", "stopped", "array", "grad")
}


def _init(self: Tensor, *data: Any) -> None:
    _PLAIN["__init__"](self, *data)
    if mode.capture is not None:
        self._capture = mode.capture


def _alias(self: Tensor, node: Any = None) -> Tensor:
    if mode.capture is None:
        return _PLAIN["alias"](self, node)
    mode.capture.touch(self)
    return self.alias(node)


def _stopped(self: Tensor) -> Tensor:
    if mode.capture is None:
        return _PLAIN["stopped"](self)
    mode.capture.touch(self)
    return self.stopped()


def _array_of(self: Tensor) -> np.ndarray:
    if mode.capture is not None and self._capture is None:
        mode.capture.touch(self)
        return self.array()
    return _PLAIN["array"](self)


def _grad_of(self: Tensor) -> Tensor | None:
    if isinstance(mode.capture, Capture):
        mode.capture.look(self)
    return self.__dict__.get("grad")


def _set_grad(self: Tensor, value: Tensor | None) -> None:
    if isinstance(mode.capture, Capture):
        mode.capture.cleared.add(id(self))
        mode.capture.note_grad(self)
    self.__dict__["grad"] = value


def _delete_grad(self: Tensor) -> None:
    self.grad = None


_WATCHING: dict[str, Any] = {
    "__init__": _init,
    "alias": _alias,
    "stopped": _stopped,
    "array": _array_of,
    "grad": property(_grad_of, _set_grad, _delete_grad),
}


def _memory_of(tensor: Any) -> Any:
    array = tensor.__dict__["_data"]
    if not isinstance(array, np.ndarray):
        return id(array)
    return (array.ctypes.data, array.shape, array.strides, array.dtype.char)


def _shares(view: Tensor, base: Tensor) -> bool:
    """Whether a tensor is over the memory of its base, still."""
    over, memory = vars(view)["_data"], vars(base)["_data"]  # the base may be a symbol
    if view.device is cpu:
        return np.may_share_memory(memory, over)
    return view.device.shares(over, memory)


def _has_new_grad(held: Borrowed) -> bool:
    grad = held.tensor.__dict__.get("grad")
    return isinstance(grad, Symbol) and grad is not held.grad


def is_outside(tensor: Any) -> bool:
    """Whether a tensor was there before, and is no symbol."""
    return type(tensor) in CONCRETE and tensor._capture is None


def _no_grad(tensor: Any) -> bool:
    return tensor.__dict__.get("grad") is None


def _holder(symbol: Symbol) -> str:
    """The attribute or container that refers to a symbol, as far as one can tell."""
    for owner in gc.get_referrers(symbol):
        if isinstance(owner, dict):
            for key, value in list(owner.items()):
                if value is symbol and isinstance(key, str):
                    return f" as {key!r}"
        elif isinstance(owner, list):
            return " in a list"
    return ""
