"""Noting what a captured function reads of Python, and refusing what it writes.

When one of the user's functions is entered, its globals and closure variables are
noted. Objects that are reached from these are watched: during the capture their
classes are patched to tell which attributes are read. Lists and dictionaries are noted
item by item; where the code indexes them by a constant, that item alone.
"""

from __future__ import annotations

import functools
import io
import logging
import os
import sys
import threading
import warnings
import weakref
from collections import Counter, deque
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from contextvars import ContextVar
from types import (
    BuiltinFunctionType,
    CodeType,
    FrameType,
    FunctionType,
    MemberDescriptorType,
    MethodType,
    ModuleType,
)
from typing import Any

import numpy as np

from weft import late
from weft.compile.frontend.guards.checks import (
    MISSING,
    ArrayWatch,
    AttributesWatch,
    CallWatch,
    CellWatch,
    FieldsWatch,
    Guards,
    ItemsWatch,
    KindWatch,
    Sized,
    SlotWatch,
    Watch,
    WholeWatch,
)
from weft.compile.frontend.guards.code import (
    Chain,
    chains,
    imported,
    inner,
    keys_after,
    line_of_change,
    line_of_use,
    loads,
    local_imports,
)
from weft.compile.frontend.guards.frames import Running, entering
from weft.compile.frontend.guards.hidden import Hidden, hidden, shared_generators
from weft.compile.frontend.guards.kinds import (
    ARRAYS,
    CONTAINERS,
    FIXED,
    MAPPINGS,
    USERS,
    changeable,
    fields,
    is_namespace,
    is_standard,
    keeps_values,
    nbytes_of,
    of_user,
    plain,
    same,
    shown,
)
from weft.core import heap
from weft.core.members import CALL_HOOKS, HOOKS, KINDS, Members
from weft.core.mode import mode
from weft.core.tensor import Tensor
from weft.errors import describe_line
from weft.graph.effects import Printed
from weft.graph.symbol import CaptureError, refusal, refuse

LARGEST = 1 << 20  # bytes of an array that are compared before each call
_BOOKKEEPING = (*KINDS, "_non_persistent_buffers_set", *HOOKS)
_COPYING = ("__getstate__", "__reduce_ex__", "__copy__", "__deepcopy__")
_PASSING = {"__getattribute__", "__setattr__", "__delattr__"}
_ENVIRONMENT = {"environ", "environb", "getenv"}
_CHANGING = {"time": "the time", "secrets": "random numbers of the system"}


def _is_of_run(value: Any) -> bool:
    """Whether a tensor was made by the capture that runs."""
    run = mode.capture
    return (
        issubclass(type(value), Tensor)
        and value._interpreter is run is not None
        and id(value) not in run.borrowed
    )


class _Group:
    """The items that were read of one dictionary or container."""

    def __init__(self, source: Any, sized: bool, owner: type | None = None) -> None:
        self.source = source
        self.owner = owner  # the class whose dictionary it is
        self.sized = sized  # whether a new name would matter
        self.paths: dict[Any, str] = {}
        self.values: dict[Any, Any] = {}
        self.absent: dict[Any, str] = {}


class Reads:
    """The values that a function reads (``with reads.watching(): …``)."""

    def __init__(
        self,
        fn: Any,
        arguments: dict[str, Any],
        containers: Iterable[Any] = (),
        numbers: bool = False,
        open_sizes: bool = False,
    ) -> None:
        self.module, self.optimizer = late.find("Module"), late.find("Optimizer")
        self.fn, self.arguments = fn, arguments
        self.containers = containers  # in the arguments, with attributes
        self.numbers = numbers  # whether floats are inputs
        self.open_sizes = open_sizes  # whether there are sizes that are not known
        self.thread = threading.get_ident()
        self.outside: dict[int, tuple[Any, str]] = {}
        self.groups: dict[int, _Group] = {}
        self.of_classes: dict[type, _Group] = {}
        self.wholes: dict[int, WholeWatch] = {}
        self.cells: dict[int, CellWatch] = {}
        self.slots: dict[tuple[int, str], SlotWatch] = {}
        self.others: dict[int, Watch] = {}
        self.tensors: dict[str, Tensor] = {}
        self.arrays: dict[int, tuple[Any, str]] = {}  # and where they were read
        self.bytes: dict[int, ArrayWatch] = {}  # of arrays, before the function ran
        self.uses: Counter[int] = Counter()  # of each, as often as it was reached
        self.classes: dict[type, dict[str, Any]] = {}
        # Code objects of different files may be equal, so their ids tell them apart.
        self.functions: dict[int, list[FunctionType]] = {}
        self.closures: dict[int, list[FunctionType]] | None = None
        self.imports: dict[str, Any] = {}  # by functions that were entered
        self.entered: list[tuple[CodeType, dict[str, Any]]] = []
        self.hooks: list[WholeWatch] = []
        self.local: set[int] = set()
        self.noted: dict[int, FunctionType] = {}  # whose variables are
        self.seen: set[tuple[int, str]] = set()
        self.written: set[tuple[int, str]] = set()  # attributes that keep values
        self.lent: dict[tuple[int, str], tuple[Any, Any, CaptureError]] = {}
        self.patched = ExitStack()
        self.known: set[type] = set()
        self.telling: dict[type, bool] = {}
        self.busy = False
        self.passing = False  # whether code bypasses the patched methods
        self.hidden = {id(one.value): one for one in shared_generators()}

    # -- during a capture

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Note reads and refuse writes until the block ends."""
        with self.patched, entering(self.enter):
            self.watch_class(self.module)
            for name in ("isEnabledFor", "getEffectiveLevel"):
                self.watch_loggers(name)
            self.discover(self.fn, _label(self.fn, self.module))
            for name, value in self.arguments.items():
                if not isinstance(value, np.ndarray):  # it is an input
                    self.discover(value, name)
            for value in self.containers:
                self.attributes(value, vars(value), f"a {type(value).__name__}")
            try:
                yield
            except BaseException:
                self.take_back()
                raise
        self.refuse_changes()
        self.warn()
        self.closures = None

    def active(self) -> bool:
        """Whether the captured function reads now, and not this object."""
        return (
            not self.busy
            and mode.capture is not None
            and threading.get_ident() == self.thread
        )

    @contextmanager
    def pausing(self) -> Iterator[None]:
        before, self.busy = self.busy, True
        try:
            yield
        finally:
            self.busy = before

    def enter(self, code: CodeType, names: dict[str, Any], running: Running) -> None:
        """Note a function of the user's that begins."""
        if threading.get_ident() != self.thread:
            return
        with self.pausing():
            functions = self.running(code, running)
            for function in functions:
                self.note_cells(function)
            if not any(c is code and n is names for c, n in self.entered):
                self.entered.append((code, names))
                self.enter_code(code, names)
            elif functions:
                for value, chain in self.heads(code, names):
                    self.of_library(value, chain)

    def running(self, code: CodeType, running: Running) -> list[FunctionType]:
        """The functions from outside, with variables there, of which one begins.

        They are new. A frame does not tell its function, but it has the values of the
        variables, by which functions of one code differ.
        """
        key = id(code)
        if key in self.local or code.co_freevars in ((), ("__class__",)):
            return []
        known = self.functions.setdefault(key, [])
        if isinstance(running, FunctionType):
            found = [running]
        else:
            values = running.f_locals
            found = [f for f in known if _holds(f, values)]
            if not found:
                if self.closures is None:
                    self.closures = heap.closures()
                found = [f for f in self.closures.get(key, []) if _holds(f, values)]
        new = [f for f in found if id(f) not in self.noted]
        self.noted.update((id(f), f) for f in new)
        known += [f for f in new if not any(f is other for other in known)]
        return new

    def enter_code(self, code: CodeType, names: dict[str, Any]) -> None:
        if self.numbers and "type" in code.co_names:
            raise refusal("compile: the function may ask what type a float argument is")
        if self.open_sizes and {"type", "int"} <= {*code.co_names}:
            raise refusal(
                "compile: the function may ask whether the type of a size is int; "
                f"use isinstance\n  at {describe_line(code, 0)}"
            )
        for load in loads(code):
            if load.name not in names:
                self.group(names).absent[load.name] = load.name
            else:
                value = names[load.name]
                if value is os.getenv:
                    self.discover(os.environ, "os.environ")
                elif not _library(value):
                    self.note(names, load.name, load.name)
                    self.discover(value, load.name, load.keys, load.times)
        if not _ENVIRONMENT.isdisjoint(code.co_names):
            self.discover(os.environ, "os.environ")
        for value, chain in self.heads(code, names):
            self.of_library(value, chain)
        for name in imported(code):
            module = sys.modules.get(name)
            if module is not None and of_user(module):
                self.discover(module, name)
        if "globals" in code.co_names and "globals" not in names:
            self.wholes.setdefault(id(names), WholeWatch(names, "globals()"))
        self.local.update(map(id, inner(code)))
        if not self.passing and _PASSING.intersection(code.co_names):
            self.passing = True
            for obj, where in list(self.outside.values()):
                self.everything(obj, fields(obj), where, True)

    def codes(self) -> list[CodeType]:
        """The code of the functions that were entered."""
        return [code for code, _ in self.entered]

    def heads(self, code: CodeType, names: Any) -> Iterator[tuple[Any, Chain]]:
        """The values of variables at the heads of chains of attributes.

        Those of globals, of closures and of what the function itself imports.
        """
        local = {k: _imported(*v) for k, v in local_imports(code).items()}
        self.imports.update(local)
        closed = dict(self.imports)
        for function in self.functions.get(id(code), []):
            cells = zip(code.co_freevars, function.__closure__ or (), strict=True)
            closed.update((k, _content(cell)) for k, cell in cells)
        scopes = {"GLOBAL": names, "DEREF": closed, "FAST": local}
        for chain in chains(code):
            value = scopes[chain.scope].get(chain.name, MISSING)
            if value is not MISSING:
                yield value, chain

    def of_library(self, head: Any, chain: Chain) -> None:
        """Note a value of a standard module, as ``os.environ`` or ``sys.argv``."""
        name, path = chain.name, chain.path
        if chain.scope != "GLOBAL" and not isinstance(head, (ModuleType, Tensor)):
            if name in self.imports and not callable(head):
                self.discover(head, name)  # ``from sys import argv``
            return
        if type(head) is not ModuleType or not path or not is_standard(head):
            return
        if head is sys and path[0] in ("stdout", "stderr"):
            return  # output is an effect of each run
        value = getattr(head, path[0], None)
        if not callable(value) and not isinstance(value, ModuleType):
            text = f"{name}.{path[0]}"
            if path[0] in vars(head):
                self.note(vars(head), path[0], text)
            self.discover(value, text)

    def note_cells(self, function: FunctionType) -> None:
        code = function.__code__
        cells = dict(zip(code.co_freevars, function.__closure__ or (), strict=True))
        for load in loads(code, "LOAD_DEREF"):
            cell = cells.get(load.name)
            if cell is None:
                continue
            value = _content(cell)
            if value is os.getenv:
                self.discover(os.environ, "os.environ")
            elif value is not MISSING and not _library(value):
                self.cells.setdefault(id(cell), CellWatch(cell, load.name, value))
                self.discover(value, load.name, load.keys, load.times)

    # -- objects that are reached

    def discover(
        self, value: Any, path: str, keys: tuple[Any, ...] = (), times: int = 1
    ) -> None:
        """Watch a value that comes from outside, by its kind."""
        if id(value) in self.outside or _is_of_run(value):
            return
        if issubclass(type(value), Tensor):
            self.tensors.setdefault(path, value)
            return
        if plain(value):
            return
        kind, state = type(value), hidden(value, path)
        if state is not None:
            self.hidden.setdefault(id(state.value), state)
        elif kind is Members or (issubclass(kind, FIXED) and not changeable(kind)):
            self.contents(value, path, keys)
        elif isinstance(value, ARRAYS):
            self.arrays.setdefault(id(value), (value, path))
            if nbytes_of(value) <= LARGEST:
                self.bytes.setdefault(id(value), ArrayWatch(value, path))
            self.uses[id(value)] += times
        elif isinstance(value, type):
            self.namespace(value)
        elif type(value) is ContextVar:
            self.others.setdefault(id(value), CallWatch(value, path))
        elif type(value) is FunctionType:
            self.function(value, path)
        elif type(value) is weakref.ref:
            self.discover(value(), path)
        elif type(value) is functools._lru_cache_wrapper:
            within = value.__wrapped__
            if type(within) is FunctionType and of_user(within):  # it may be passed by
                self.enter_code(within.__code__, within.__globals__)
        elif times and _advances(value):
            raise refusal(
                f"compile: {path} is a {type(value).__name__} from outside the "
                "function: each call would take its next value, which a captured "
                "program cannot. Take it outside, and pass it as an argument"
            )
        elif value is os.environ:
            self.contents(os.environ._data, path)
        elif type(value) is MethodType:
            self.discover(value.__func__, path)
            self.discover(value.__self__, path.rpartition(".")[0] or "self")
        elif isinstance(value, functools.partial):
            self.discover(value.func, path)
            self.discover((value.args, value.keywords), path)
        else:
            self.instance(value, path)

    def instance(self, value: Any, path: str) -> None:
        kind = type(value)
        if is_namespace(value):
            self.outside[id(value)] = value, path
            self.contents(vars(value), path)
        elif isinstance(value, ModuleType):
            if of_user(value) and kind is ModuleType:
                self.outside[id(value)] = value, path
                self.watch_module(value)
        elif changeable(kind):
            self.outside[id(value)] = value, path
            self.others.setdefault(-id(value), KindWatch(value, path))
            self.namespace(kind)
            self.watch_class(kind)
            if self.passing:
                self.everything(value, fields(value), path, True)
            if isinstance(value, (*CONTAINERS, tuple)):
                self.contents(value, path)

    def function(self, value: FunctionType, path: str) -> None:
        alike = self.functions.setdefault(id(value.__code__), [])
        if any(known is value for known in alike):
            return
        alike.append(value)
        if any(value.__code__ is code for code in self.codes()):
            self.noted[id(value)] = value
            self.note_cells(value)
        for cell in value.__closure__ or ():  # a decorator's function
            below = _content(cell)
            if type(below) is FunctionType:
                self.function(below, path)
        defaults = (*(value.__defaults__ or ()), *(value.__kwdefaults__ or {}).values())
        for default in defaults:
            self.discover(default, path)
        if of_user(value):
            self.attributes(value, vars(value), path)
            self.others.setdefault(id(value), FieldsWatch(value, path))

    def attributes(self, obj: Any, own: dict[str, Any], path: str) -> None:
        """Watch all attributes of an object whose class is not patched."""
        self.wholes.setdefault(id(own), AttributesWatch(own, path))
        for name, attribute in own.items():
            self.discover(attribute, f"{path}.{name}", times=0)

    def contents(self, value: Any, path: str, keys: tuple[Any, ...] = ()) -> None:
        """Watch items of a container: the one at the keys, or all of them."""
        if keys and _has(value, keys[0]):
            name = f"{path}[{keys[0]!r}]"
            if type(value) is not tuple:
                self.note(value, keys[0], name, sized=False)
            self.discover(value[keys[0]], name, keys[1:])
            return
        if id(value) in self.wholes:
            return
        members = type(value) is Members
        path = path.rpartition(".")[0] if members else path  # ``model._modules``
        if not isinstance(value, tuple):
            self.wholes[id(value)] = WholeWatch(value, path)
        items = value.items() if isinstance(value, MAPPINGS) else enumerate(value)
        for key, item in list(items):
            as_attribute = members or (isinstance(key, str) and key.isdigit())
            name = _attribute(path, key) if as_attribute else f"{path}[{key!r}]"
            self.discover(item, name)

    def namespace(self, kind: type) -> None:
        """Watch a class; which of its attributes are read is known at the end."""
        above: Any = type(kind)
        for one in (*kind.__mro__, *above.__mro__):
            if one not in self.classes and of_user(one) and one is not object:
                self.classes[one] = dict(vars(one))
                self.others.setdefault(id(one), FieldsWatch(one, one.__name__))

    # -- attributes

    def watch_class(self, kind: type) -> None:
        """Patch a class to tell which attributes of objects are read and written."""
        if kind in self.known:
            return
        below = any(base in self.known for base in kind.__mro__[1:])
        self.known.add(kind)
        whole: Any = kind
        get, put, drop = whole.__getattribute__, whole.__setattr__, whole.__delattr__

        def __getattribute__(obj: Any, name: str) -> Any:
            if name[:2] == "__" and name != "__dict__":
                if name in _COPYING and self.active():
                    self.read(obj, "__dict__", None, sys._getframe(1))
                return get(obj, name)  # ``isinstance`` asks for the class
            try:
                value = get(obj, name)
            except AttributeError:
                if self.active():
                    self.read(obj, name, MISSING, sys._getframe(1))
                raise
            if (
                mode.capture is not None
                and not self.busy
                and (id(obj), name) not in self.seen
                and threading.get_ident() == self.thread
            ):
                self.read(obj, name, value, sys._getframe(1))
            return value

        def __setattr__(obj: Any, name: str, value: Any) -> None:
            if self.active():
                self.write(obj, name, value, sys._getframe(1))
            put(obj, name, value)

        def __delattr__(obj: Any, name: str) -> None:
            if self.active():
                self.write(obj, name, MISSING, sys._getframe(1))
            drop(obj, name)

        for method in (__getattribute__, __setattr__, __delattr__):
            if not below or method.__name__ in vars(kind):
                self.replace(kind, method.__name__, method)

    def replace(self, kind: type, name: str, method: Any) -> None:
        before = vars(kind).get(name, MISSING)
        type.__setattr__(kind, name, method)

        def back() -> None:
            if before is MISSING:
                type.__delattr__(kind, name)
            else:
                type.__setattr__(kind, name, before)

        self.patched.callback(back)

    def watch_loggers(self, name: str) -> None:
        """Patch a method of loggers, whose answer depends on levels up the tree."""
        method = getattr(logging.Logger, name)

        def asked(logger: logging.Logger, *args: Any) -> Any:
            answer = method(logger, *args)
            if self.active():
                key = hash((name, id(logger), *args))
                text = f"the logger {logger.name!r}: {name}"
                watch = Watch(logger, lambda of: (method(of, *args),), [text], [answer])
                self.others.setdefault(key, watch)
            return answer

        self.replace(logging.Logger, name, asked)

    def watch_module(self, module: ModuleType) -> None:
        """Patch a module of the user's to tell what is read and written."""
        kind = type("WatchedModule", (ModuleType,), {})
        self.watch_class(kind)
        module.__class__ = kind
        self.patched.callback(setattr, module, "__class__", ModuleType)

    def read(self, obj: Any, name: str, value: Any, frame: FrameType) -> None:
        """Note an attribute that was read."""
        self.busy = True  # reads from here do not count: see ``active``
        try:
            self.read_plain(obj, name, value, frame)
        finally:
            self.busy = False

    def read_plain(self, obj: Any, name: str, value: Any, frame: FrameType) -> None:
        known = self.outside.get(id(obj))
        if known is None or known[0] is not obj or (id(obj), name) in self.seen:
            return
        users = USERS[frame.f_code.co_filename]
        if not users and not self.tells(type(obj)):
            return
        if name in CALL_HOOKS and issubclass(type(obj), self.module):
            self.seen.add((id(obj), name))
            self.hooks.append(WholeWatch(value, f"{known[1]}.{name}"))
            return
        keys = keys_after(frame.f_code, frame.f_lasti, name)
        if not keys and not isinstance(value, ARRAYS):  # whose uses are counted
            self.seen.add((id(obj), name))
        path = f"{known[1]}.{name}"
        self.locate(obj, name, value, path, users)
        if value is not MISSING and name != "__dict__" and not _library(value):
            if isinstance(value, Tensor) and _computes(type(obj), name):
                return  # what the property's function has read is noted
            self.discover(value, path, keys)

    def knows(self, value: Any) -> bool:
        """Whether a value is known to have existed before the function ran."""
        tables = (self.outside, self.wholes, self.arrays, self.groups)
        return any(id(value) in table for table in tables) or any(
            value is given for given in self.arguments.values()
        )

    def tells(self, kind: type) -> bool:
        """Whether reads of such objects by Weft's own code count."""
        counts = self.telling.get(kind)
        if counts is None:
            home = kind.__module__.partition(".")[0]
            others = home in ("weft", "numpy", "logging")
            own = issubclass(kind, self.module) or keeps_values(kind)
            counts = self.telling[kind] = own or not others
        return counts

    def locate(self, obj: Any, name: str, value: Any, path: str, users: bool) -> None:
        """Note an attribute where it is stored: in the object, a slot or a class."""
        own = fields(obj)
        if name == "__dict__":
            self.everything(obj, own, path, users)
        elif own is not None and name in own:
            self.note(own, name, path)
        elif own is not None and (found := _member_of(own, name)) is not None:
            self.note(found, name, path)
        else:
            if own is not None:
                self.group(own).absent[name] = path
            if not self.in_class(obj, name, value, path) and value is not MISSING:
                self.everything(obj, own, path.rpartition(".")[0], True)  # computed

    def in_class(self, obj: Any, name: str, value: Any, path: str) -> bool:
        for kind in type(obj).__mro__:
            if name not in vars(kind):
                if of_user(kind):  # where it may come to be
                    self.of_class(kind).absent[name] = f"{kind.__name__}.{name}"
            else:
                raw = vars(kind)[name]
                if type(raw) is MemberDescriptorType:
                    watch = SlotWatch(obj, name, path, value)
                    self.slots.setdefault((id(obj), name), watch)
                elif of_user(kind):
                    self.note_class(kind, name)
                    if of_user(type(raw)):  # a descriptor, which has been asked
                        self.discover(raw, f"{kind.__name__}.{name}")
                        self.everything(
                            raw, fields(raw), f"{kind.__name__}.{name}", True
                        )
                return True
        return False

    def of_class(self, kind: type) -> _Group:
        found = self.of_classes.get(kind)
        if found is None:
            found = self.of_classes[kind] = _Group(vars(kind), True, kind)
        return found

    def note_class(self, kind: type, name: str) -> None:
        group = self.of_class(kind)
        group.values.setdefault(name, vars(kind)[name])
        group.paths[name] = f"{kind.__name__}.{name}"

    def everything(self, obj: Any, own: Any, path: str, users: bool) -> None:
        """Note a whole dictionary of attributes; for Weft's code, a model's members."""
        whole = users or not isinstance(obj, self.module)
        lead = path.removesuffix(".__dict__")
        kind = "*parts" if keeps_values(type(obj)) else "*members"
        for key, value in list((own or {}).items()):
            member = key not in _BOOKKEEPING and self.is_of(kind, value)
            if (whole or member) and (id(obj), key) not in self.written:
                self.note(own, key, _attribute(lead, key))
                self.discover(value, _attribute(lead, key), times=0)
        if own is not None:
            self.group(own).absent["*" if whole else kind] = lead

    def is_of(self, kind: str, value: Any) -> bool:
        """Whether Weft's code counts a value among the members of a module.

        Of a module that keeps values for later, these do not count.
        """
        return self.is_part(value) if kind == "*parts" else self.is_member(value)

    def is_part(self, value: Any) -> bool:
        """Whether a value is, or holds, a module or a parameter."""
        if issubclass(type(value), (list, tuple)):
            return any(map(self.is_part, value))
        if issubclass(type(value), dict):
            return any(map(self.is_part, value.values()))
        if issubclass(type(value), Tensor):
            return value._parameter
        return issubclass(type(value), self.module)

    def is_member(self, value: Any) -> bool:
        if issubclass(type(value), tuple):
            return any(map(self.is_member, value))
        return issubclass(type(value), (self.module, Tensor, list, dict))

    # -- notes

    def group(self, source: Any, sized: bool = True) -> _Group:
        found = self.groups.get(id(source))
        if found is None:
            found = self.groups[id(source)] = _Group(source, sized)
        return found

    def note(self, source: Any, key: Any, path: str, sized: bool = True) -> None:
        if _is_of_run(source[key]):
            return  # put there for a while: what it is made of is noted
        group = self.group(source, sized and type(source) in (dict, Members))
        if key not in group.values:
            group.values[key] = source[key]
            group.paths[key] = path

    def write(self, obj: Any, name: str, value: Any, frame: FrameType) -> None:
        """Refuse an attribute that is about to be set to another value."""
        with self.pausing():
            self.write_plain(obj, name, value, frame)

    def write_plain(self, obj: Any, name: str, value: Any, frame: FrameType) -> None:
        known = self.outside.get(id(obj))
        kept = keeps_values(type(obj)) or (
            isinstance(value, Tensor) and isinstance(obj, self.module)
            and not _is_registered(obj, name)
        )  # fmt: skip
        if kept and known is not None and known[0] is obj:
            return self.keep(obj, name, value, known[1])
        if known is None or known[0] is not obj or isinstance(value, Tensor):
            return
        if not USERS[frame.f_code.co_filename] and not self.weft_state(obj):
            return
        if _computes(type(obj), name):
            return  # its function sets other attributes, which are seen
        try:
            before = object.__getattribute__(obj, name)
        except AttributeError:
            before = MISSING
        path = f"{known[1]}.{name}"
        if not same(before, value) and not self.lend(obj, name, before, value, path):
            raise refusal(_about_write(path, before, value))

    def lend(self, obj: Any, name: str, before: Any, value: Any, path: str) -> bool:
        """Let an attribute of a plain object have another value for a while.

        A function that sets it back before it returns (``try: … finally: …``) leaves
        nothing behind; another one is refused at the end, with the line of the write.
        """
        own = fields(obj)
        graph_state = isinstance(obj, (self.module, self.optimizer))
        if own is None or name not in own or graph_state or self.weft_state(obj):
            return False
        if (id(obj), name) not in self.lent:
            self.note(own, name, path)
            error = CaptureError(_about_write(path, before, value))
            self.lent[id(obj), name] = obj, before, error
        return True

    def take_back(self) -> None:
        """Set attributes as they were, because the capture has failed."""
        for (_, name), (obj, before, _) in self.lent.items():
            fields(obj)[name] = before

    def keep(self, obj: Any, name: str, value: Any, path: str) -> None:
        """Let an attribute be set that keeps a value for later, unless it was read:
        later runs would need the value of the run before."""
        key = id(obj), name
        if key in self.seen and key not in self.written:
            before = fields(obj).get(name, MISSING)
            if not same(before, value) and not _computes(type(obj), name):
                raise refusal(
                    f"compile: {path}.{name} is read, and then set to another value. "
                    "Later calls would need the value of the call before: keep it in "
                    "a tensor that is changed in place (register_buffer)"
                )
        if key not in self.seen:  # it was met in a walk over all attributes
            self.group(fields(obj)).values.pop(name, None)
        self.written.add(key)
        self.seen.add(key)

    def weft_state(self, obj: Any) -> bool:
        """Whether an object of Weft's has state in Python, as a scheduler does."""
        graph_state = isinstance(obj, (self.module, self.optimizer))
        return not graph_state and type(obj).__module__.startswith("weft.")

    # -- the end

    def refuse_changes(self) -> None:
        """Refuse a function that changed what it read: later calls would not."""
        for (_, name), (obj, before, error) in self.lent.items():
            if not same(fields(obj).get(name, MISSING), before):
                self.take_back()
                raise refuse(error)
        moved = [one for one in self.hidden.values() if one.moved()]
        for one in moved:
            one.put_back()
        if moved:
            raise self._moved(moved[0])
        for one in self.hidden.values():
            self.refuse_using(one.value, f"{one.path} is outside the function")
        for watch in (*self.watches(), *self.wholes.values(), *self.bytes.values()):
            text = watch.changed()
            if text is not None:
                name = text.split(" ")[0].partition("[")[0].rpartition(".")[2]
                self.restore()
                raise self.changed(text, name)

    def refuse_using(self, file: Any, why: str) -> None:
        """Refuse a function that reads a file, or writes where that leaves no trace.

        Which file a method belongs to is not known, so its name decides.
        """
        if not isinstance(file, io.IOBase):
            return
        for code, _ in self.entered:
            for name in _unnoticed(file).intersection(code.co_names):
                line = describe_line(*(line_of_use([code], name) or (code, 0)))
                raise refusal(
                    f"compile: {why}, a {type(file).__name__}, and the function calls "
                    f"{name}, once, when it is captured. Do that outside; print may "
                    f"write to it\n  at {line}"
                )

    def refuse_reading(self, effects: list[Any]) -> None:
        """Refuse a function that reads what it prints, which happens after each run."""
        for effect in effects:
            if isinstance(effect, Printed):
                file = effect.kwargs.get("file")
                self.refuse_using(file, "what is printed goes to a file after a call")

    def _moved(self, one: Hidden) -> BaseException:
        where = line_of_use(self.codes(), one.path.rpartition(".")[2])
        line = f"\n  at {describe_line(*where)}" if where else ""
        own = ", or use weft's own (weft.rand)" if one.what[:2] == "ra" else ""
        return refusal(
            f"compile: the function takes {one.what} from {one.path}, which is outside "
            "it; later calls would not do that again. Do it outside, and pass the "
            f"result as an argument{own}{line}"
        )

    def restore(self) -> None:
        """Undo the function's changes."""
        _restore(self.wholes, self.groups, self.cells)
        read = {kind: g.values for kind, g in self.of_classes.items()}
        for kind, values in (*self.classes.items(), *read.items()):
            for name, value in values.items():
                if vars(kind).get(name) is not value and name[:2] != "__":
                    type.__setattr__(kind, name, value)

    def changed(self, text: str, name: str) -> BaseException:
        where = line_of_change(self.codes(), name)
        line = f"\n  at {describe_line(*where)}" if where else ""
        return refusal(
            f"compile: the function changes what is outside it: {text}. Later calls "
            "would not do that again; return the value, or keep it in a tensor that "
            f"is changed in place{line}"
        )

    def watches(self) -> list[Watch]:
        groups: list[Watch] = [
            ItemsWatch(g.source, g.paths, g.values)
            for g in (*self.groups.values(), *self.of_classes.values())
            if g.values
        ]
        return [
            *groups,
            *self.cells.values(),
            *self.slots.values(),
            *self.others.values(),
            *self._named(),
        ]

    def _named(self) -> list[Watch]:
        """Watches of class attributes whose names occur in an entered function."""
        names = {name for code in self.codes() for name in code.co_names}
        watches: list[Watch] = []
        for kind, own in self.classes.items():
            keys = [k for k in own if k in names and k[:2] != "__"]
            if keys:
                paths = {k: f"{kind.__name__}.{k}" for k in keys}
                values = {k: own[k] for k in keys}
                watches.append(ItemsWatch(vars(kind), paths, values))
        return watches

    def array_watches(self, inputs: list[np.ndarray]) -> list[ArrayWatch]:
        """Watches of arrays whose elements Python has used.

        They have more uses than those as ``inputs``, which each run reads.
        """
        watches = []
        for key, (array, path) in self.arrays.items():
            own = array.base if isinstance(array, np.ndarray) else None
            whole = array if own is None else own
            times = sum(a is array or a.base is whole for a in inputs)
            if times >= self.uses[key]:
                continue
            if nbytes_of(array) <= LARGEST:
                watches.append(ArrayWatch(array, path))
            else:
                instead = "Pass it as an argument, or make it a tensor there"
                _warn_of(f"the function reads elements of {path}, which is large,",
                         instead)  # fmt: skip
        return watches

    def guards(self, inputs: list[np.ndarray]) -> Guards:
        """The guards of the program; ``inputs`` are arrays that each run reads."""
        sized = [
            Sized(g.source, functools.partial(self.present, g))
            for g in (*self.groups.values(), *self.of_classes.values())
            if g.sized and g.absent
        ]
        if any("__annotations__" in code.co_names for code in self.codes()):
            for function in (f for some in self.functions.values() for f in some):
                self.contents(function.__annotations__, function.__name__)
        arrays = self.array_watches(inputs)
        watches = [*self.watches(), *self.wholes.values(), *arrays]
        seen = {path: t for path, t in self.tensors.items() if type(t) is Tensor}
        return Guards(watches, sized, self.hooks, seen)

    def present(self, group: _Group) -> dict[str, str]:
        """The names that were absent and are present now."""
        present = {k: p for k, p in group.absent.items() if k in group.source}
        if "*" in group.absent:
            present.update((k, f"{group.absent['*']}.{k}") for k in group.source)
        for kind in {"*parts", "*members"} & set(group.absent):
            lead = group.absent[kind]
            members = [k for k, v in group.source.items() if self.is_of(kind, v)]
            present.update((k, f"{lead}.{k}") for k in members if k not in _BOOKKEEPING)
        return present

    def warn(self) -> None:
        """Warn of a line that reads a value which is never the same, as the time."""
        for code, names in self.entered:
            for value, chain in self.heads(code, names):
                kind = _moving(value, chain.path)
                if kind is not None:
                    line = describe_line(code, chain.offset)
                    text = ".".join((chain.name, *chain.path))
                    own = "" if kind == "the time" else ", or use weft's own"
                    instead = f"Pass it as an argument{own}\n  at {line}"
                    _warn_of(f"{text} reads {kind}", instead)
                    return


def _holds(function: FunctionType, values: Mapping[str, Any]) -> bool:
    """Whether a function's variables of outer functions have these values."""
    cells = zip(function.__code__.co_freevars, function.__closure__ or (), strict=True)
    return all(_content(cell) is values.get(name, MISSING) for name, cell in cells)


def _warn_of(what: str, instead: str) -> None:
    warnings.warn(
        f"compile: {what} once, when the function is captured; every call uses that "
        f"value. {instead}",
        stacklevel=3,
    )


def _moving(value: Any, path: tuple[str, ...]) -> str | None:
    """The kind of ever-changing value that a chain of attributes calls, if any."""
    for name in path:
        if not isinstance(value, ModuleType):
            return _CHANGING.get(type(value).__module__)
        value = getattr(value, name, None)
    if type(value) not in (FunctionType, MethodType, BuiltinFunctionType):
        return None
    home = value.__module__
    if home is None or home == "builtins":
        home = type(getattr(value, "__self__", None)).__module__
    if home == "time" and getattr(value, "__name__", "") == "sleep":
        return None
    return _CHANGING.get(str(home))


def _about_write(path: str, before: Any, value: Any) -> str:
    now = "deletes it" if value is MISSING else f"sets it to {shown(value)}"
    was = "not there" if before is MISSING else shown(before)
    return (
        f"compile: {path} is outside the function ({was}), which {now}. Later calls "
        "would not do that again; return the value and set it outside, or keep it in "
        "a tensor that is changed in place (register_buffer)"
    )


def _is_registered(module: Any, name: str) -> bool:
    """Whether an attribute of a module is a parameter or a buffer."""
    own = fields(module)
    return any(name in own.get(kind, ()) for kind in ("_parameters", "_buffers"))


def _restore(wholes: Any, groups: Any, cells: Any) -> None:
    """Undo the function's changes of containers, globals and closures."""
    for watch in wholes.values():
        _refill(watch.source, watch.values)
    for group in groups.values():
        if isinstance(group.source, (dict, list)):
            for key, value in group.values.items():
                group.source[key] = value
    for watch in cells.values():
        watch.source.cell_contents = watch.values[0]


def _refill(source: Any, values: list[Any]) -> None:
    """Put items back into a container."""
    if isinstance(source, dict):
        half = len(values) // 2
        source.clear()
        source.update(zip(values[:half], values[half:], strict=True))
    elif isinstance(source, list):
        source[:] = values
    elif isinstance(source, set):
        source.clear()
        source.update(values)
    elif isinstance(source, deque):
        source.clear()
        source.extend(values)


def _attribute(path: str, name: str) -> str:
    """``model.fc``, or ``model[0]`` of a module that a container holds."""
    return f"{path}[{name}]" if name.isdigit() else f"{path}.{name}"


def _member_of(own: dict[str, Any], name: str) -> dict[str, Any] | None:
    """The module's dictionary of members that holds a name."""
    return next((own[k] for k in KINDS if name in own.get(k, ())), None)


def _computes(kind: type, name: str) -> bool:
    """Whether a class has a property of this name."""
    return isinstance(getattr(kind, name, None), property)


def _imported(module: str, attribute: str | None) -> Any:
    """The value of an import, if the module is loaded."""
    value = sys.modules.get(module, MISSING)
    return value if attribute is None else getattr(value, attribute, MISSING)


def _content(cell: Any) -> Any:
    """The content of a closure's cell, which may be empty."""
    try:
        return cell.cell_contents
    except ValueError:
        return MISSING


_READING = {"getvalue", "getbuffer", "read", "readline", "readlines", "tell"}
_WRITING = {"write", "writelines"}


def _unnoticed(file: Any) -> set[str]:
    """The methods of a file after which its state is what it was before."""
    return _READING if file.closed or file.seekable() else _READING | _WRITING


def _library(value: Any) -> bool:
    """Whether a value is a function, class or module that is not the user's."""
    if issubclass(type(value), (ModuleType, type, FunctionType)):
        return not of_user(value)
    return type(value) is BuiltinFunctionType


def _advances(value: Any) -> bool:
    """Whether a value is an iterator whose state no attribute shows."""
    kind = type(value)
    return (
        hasattr(kind, "__next__")
        and not changeable(kind)
        and not issubclass(kind, io.IOBase)
    )


def _has(value: Any, key: Any) -> bool:
    if isinstance(value, MAPPINGS):
        return key in value
    return (
        isinstance(value, (list, tuple))
        and type(key) is int
        and -len(value) <= key < len(value)
    )


def _label(fn: Any, module: type) -> str:
    if isinstance(fn, module):
        return "model"
    return getattr(fn, "__name__", type(fn).__name__)
