"""``Module``: a tree of parameters, buffers and submodules with a ``forward``.

What is assigned to a module's attributes is held in ``_parameters``, ``_buffers`` and
``_modules``, as in PyTorch (see ``members.py``). Submodules and parameters are also
found inside plain lists, tuples and dicts among its attributes:
``self.blocks = [Block() for _ in range(3)]`` needs no special container, and its
parameters are called ``blocks.0.…``. While ``import torch`` means Weft they are not, as
in PyTorch, whose programs hide modules in lists.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator
from typing import Any, Self

from weft import Tensor, empty_like, naming
from weft import dtype as dtypes
from weft.core.members import HOOKS, KINDS, Members
from weft.core.mode import mode
from weft.errors import ArgumentError, DTypeError, MemberError, module_stack
from weft.nn.parameter import Buffer, Parameter, UninitializedParameter
from weft.nn.saving import Hook, IncompatibleKeys, RemovableHandle, Saving

__all__ = ["IncompatibleKeys", "Module", "ParameterIterator", "RemovableHandle"]
_CONTAINERS = (list, tuple, dict)  # in which parameters and modules are found


class ParameterIterator(Iterator[Tensor]):
    """The iterator of ``Module.parameters()``, which can give the names as well."""

    def __init__(self, named: Iterator[tuple[str, Tensor]]) -> None:
        self.named = named

    def __next__(self) -> Tensor:
        return next(self.named)[1]


def _inside(name: str, value: Any) -> Iterator[tuple[str, Any]]:
    """Modules and parameters in an attribute, with their names."""
    if isinstance(value, (Module, Parameter)):
        yield name, value
    elif isinstance(value, (list, tuple)):
        for k, item in enumerate(value):
            yield from _inside(f"{name}.{k}", item)
    elif isinstance(value, dict):
        for key, item in value.items():
            yield from _inside(f"{name}.{key}", item)


class Module(Saving):
    """Base class of layers and models: define ``__init__`` and ``forward``.

    >>> class Scale(weft.nn.Module):
    ...     def __init__(self):
    ...         super().__init__()
    ...         self.factor = weft.nn.Parameter(weft.ones(1))
    ...     def forward(self, x):
    ...         return x * self.factor
    >>> Scale()(weft.tensor([2.0])).requires_grad
    True
    """

    training: bool
    _parameters: dict[str, Any]
    _buffers: dict[str, Any]
    _modules: dict[str, Any]
    call_super_init = False  # whether __init__ calls the next class's, with arguments
    _compiled_call_impl: Any = None  # what compile() has made
    _keeps = False  # whether compiled calls leave values in its attributes
    _made_inside = False  # whether it was made during a capture, as one is that keeps

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        if (args or kwargs) and not self.call_super_init:
            raise TypeError(
                f"{type(self).__name__}.__init__: Module takes no arguments, got "
                f"{[*args, *kwargs]}"
            )
        fields = self.__dict__
        fields["training"] = True
        for kind in KINDS:
            fields[kind] = Members(self)
        fields["_non_persistent_buffers_set"] = set()
        for kind in HOOKS:
            fields[kind] = OrderedDict()
        if self.call_super_init:
            super().__init__(*args, **kwargs)

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """The computation of the module; every module defines it."""
        raise NotImplementedError(
            f"{type(self).__name__} has no forward(); define what it computes"
        )

    # -- calling

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        for a in args:
            if isinstance(a, Tensor) and a._interpreter is not None:
                return a._interpreter.run_module(self, args, kwargs)
        if self._compiled_call_impl is not None:
            return self._compiled_call_impl(*args, **kwargs)
        return self._run_forward(args, kwargs)

    def _run_forward(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """``forward`` with its hooks, as part of the running model."""
        stack = module_stack()
        stack.append(self)
        try:
            if (
                self._forward_pre_hooks or self._forward_hooks
                or self._backward_hooks or self._backward_pre_hooks
            ):  # fmt: skip
                return self._call_with_hooks(args, kwargs)
            return self.forward(*args, **kwargs)
        finally:
            stack.pop()

    def _call_with_hooks(self, args: tuple[Any, ...], kwargs: Any) -> Any:
        done: set[int] = set()
        try:
            args, kwargs = self._before(args, kwargs)
            if self._backward_hooks or self._backward_pre_hooks:
                from weft.nn.hooks import watch_backward

                out = watch_backward(self, args, kwargs)
            else:
                out = self.forward(*args, **kwargs)
            return self._after(args, kwargs, out, list(self._forward_hooks), done)
        except Exception:
            rest = [k for k in self._forward_hooks_always_called if k not in done]
            self._after(args, kwargs, None, rest, done)
            raise

    def _before(self, args: Any, kwargs: Any) -> tuple[Any, Any]:
        """The arguments after the hooks before ``forward``."""
        for key, hook in list(self._forward_pre_hooks.items()):
            if key in self._forward_pre_hooks_with_kwargs:
                replaced = hook(self, args, kwargs)
                if replaced is not None:
                    if not isinstance(replaced, tuple) or len(replaced) != 2:
                        raise RuntimeError(
                            "a forward pre-hook with kwargs must return None or a "
                            f"tuple (args, kwargs), got {replaced!r}"
                        )
                    args, kwargs = replaced
                continue
            replaced = hook(self, args)
            if replaced is not None:
                args = replaced if isinstance(replaced, tuple) else (replaced,)
        return args, kwargs

    def _after(self, args: Any, kwargs: Any, out: Any, keys: Any, done: Any) -> Any:
        """The result after the hooks after ``forward``."""
        for key in keys:
            done.add(key)
            hook = self._forward_hooks[key]
            named = (kwargs,) if key in self._forward_hooks_with_kwargs else ()
            replaced = hook(self, args, *named, out)
            if replaced is not None:
                out = replaced
        return out

    def register_forward_pre_hook(
        self, hook: Hook, *, prepend: bool = False, with_kwargs: bool = False
    ) -> RemovableHandle:
        """Call ``hook(module, args)`` before ``forward``; it may replace the args.

        With ``with_kwargs`` it is ``hook(module, args, kwargs)`` and may return both.
        """
        marks = (self._forward_pre_hooks_with_kwargs,) if with_kwargs else ()
        return RemovableHandle(self._forward_pre_hooks, hook, prepend, marks)

    def register_forward_hook(
        self,
        hook: Hook,
        *,
        prepend: bool = False,
        with_kwargs: bool = False,
        always_call: bool = False,
    ) -> RemovableHandle:
        """Call ``hook(module, args, output)`` after it; it may replace the output.

        With ``with_kwargs`` it is ``hook(module, args, kwargs, output)``; with
        ``always_call`` it also runs when ``forward`` has failed.
        """
        marks = (
            *((self._forward_hooks_with_kwargs,) if with_kwargs else ()),
            *((self._forward_hooks_always_called,) if always_call else ()),
        )
        return RemovableHandle(self._forward_hooks, hook, prepend, marks)

    def register_full_backward_hook(
        self, hook: Hook, prepend: bool = False
    ) -> RemovableHandle:
        """Call ``hook(module, grad_input, grad_output)`` when gradients have passed.

        It may return a tuple that replaces ``grad_input``.
        """
        return RemovableHandle(self._backward_hooks, hook, prepend)

    def register_backward_hook(self, hook: Hook) -> RemovableHandle:
        """``register_full_backward_hook`` under its old name."""
        return self.register_full_backward_hook(hook)

    def register_full_backward_pre_hook(
        self, hook: Hook, prepend: bool = False
    ) -> RemovableHandle:
        """Call ``hook(module, grad_output)`` before gradients pass through the module.

        It may return a tuple that replaces ``grad_output``.
        """
        return RemovableHandle(self._backward_pre_hooks, hook, prepend)

    def compile(self, *args: Any, **kwargs: Any) -> None:
        """Compile this module's calls in place; takes ``weft.compile``'s options.

        >>> layer = weft.nn.Linear(2, 2)
        >>> layer.compile()
        >>> layer(weft.zeros(1, 2)).shape
        (1, 2)
        """
        import weft

        call: Any = weft.compile
        self.__dict__["_compiled_call_impl"] = call(_Uncompiled(self), *args, **kwargs)

    # -- attributes

    def __setattr__(self, name: str, value: Any) -> None:
        fields = self.__dict__
        if "_modules" not in fields:
            if isinstance(value, (Module, Parameter)):
                raise AttributeError(
                    f"{type(self).__name__}: call super().__init__() before assigning "
                    f"{name!r}"
                )
            object.__setattr__(self, name, value)
            return
        kind = self._kind_of(name, value)
        if kind is None or _sets_itself(type(self), name):
            if mode.capture is not None and kind is None and self._is_kept(value):
                mode.capture.note_attribute(self, name)
            object.__setattr__(self, name, value)
            return
        if (
            kind == "_parameters"
            and type(self).register_parameter is not _REGISTER
            and value is not None
            and name not in fields[kind]
        ):
            self._forget(name)
            fields.pop(name, None)
            return self.register_parameter(name, value)  # replaced, to see them
        if kind == "_buffers" and mode.capture is not None:
            mode.capture.note_buffer(self._buffers, name)
        if name not in fields[kind]:
            self._forget(name)
        fields[kind][name] = value
        fields[name] = value  # also where it hides a default of the class

    def _is_kept(self, value: Any) -> bool:
        """Whether compiled calls set an attribute to this value anew each time."""
        return self._keeps or (isinstance(value, Tensor) and not value._parameter)

    def _kind_of(self, name: str, value: Any) -> str | None:
        """The dictionary that an assigned value belongs to, if any."""
        if isinstance(value, Parameter):
            return "_parameters"
        if isinstance(value, Module):
            return "_modules"
        if isinstance(value, Buffer):
            persistent = value.persistent  # type: ignore[attr-defined]
            self.register_buffer(name, None, persistent)
            return "_buffers"
        for kind, (noun, expected, fits) in _SLOTS.items():
            if name in self.__dict__[kind]:
                if value is not None and not isinstance(value, fits):
                    raise DTypeError(
                        f"{type(self).__name__}.{name} is a {noun}: expected "
                        f"{expected}, got {_kind_shown(value)}. To make something else "
                        f"of the name, delete it first (del module.{name})"
                    )
                return kind
        return None

    def _forget(self, name: str) -> bool:
        """Take a name out of whatever holds it; whether something did."""
        held = False
        for kind in KINDS:
            if name in self.__dict__[kind]:
                del self.__dict__[kind][name]
                held = True
        self._non_persistent_buffers_set.discard(name)
        return self.__dict__.pop(name, self) is not self or held

    def __getattr__(self, name: str) -> Any:
        for store in KINDS:
            held = self.__dict__.get(store, ())
            if name in held:
                return held[name]
        kind = type(self).__name__
        raise AttributeError(f"{kind!r} object has no attribute {name!r}")

    def __delattr__(self, name: str) -> None:
        if _sets_itself(type(self), name) or not self._forget(name):
            object.__delattr__(self, name)

    def __dir__(self) -> list[str]:
        held = [name for kind in KINDS for name in self.__dict__.get(kind, ())]
        return sorted(n for n in {*super().__dir__(), *held} if n.isidentifier())

    def __copy__(self) -> Self:
        """A module of its own with the same parameters, buffers and submodules."""
        twin = object.__new__(type(self))
        twin.__dict__.update(self.__dict__)
        for kind in KINDS:
            if isinstance(self.__dict__.get(kind), Members):
                twin.__dict__[kind] = Members(twin)
                dict.update(twin.__dict__[kind], self.__dict__[kind])
        return twin

    def _register(self, kind: str, caller: str, name: str, value: Any) -> None:
        """Enter a value under a new name, or one that the same dictionary has."""
        held = self.__dict__[kind]
        if not isinstance(name, str) or not name or "." in name:
            raise MemberError(
                f"{caller}: expected a name that is not empty and has no dots, got "
                f"{name!r}"
            )
        if name not in held and (name in self.__dict__ or hasattr(self, name)):
            raise ArgumentError(f"{caller}: attribute {name!r} exists already")
        _, expected, fits = _SLOTS[kind]
        if value is not None and not isinstance(value, (fits, UninitializedParameter)):
            raise DTypeError(f"{caller}: expected {expected}, got {_kind_shown(value)}")
        held[name] = value

    def register_buffer(
        self, name: str, tensor: Tensor | None, persistent: bool = True
    ) -> None:
        """Keep a tensor that is no parameter, but moves and saves with the module."""
        self._register("_buffers", "register_buffer", name, tensor)
        if persistent:
            self._non_persistent_buffers_set.discard(name)
        else:
            self._non_persistent_buffers_set.add(name)

    def register_parameter(self, name: str, param: Any) -> None:
        """Enter a parameter under a name; None keeps the name for one."""
        self._register("_parameters", "register_parameter", name, param)

    def add_module(self, name: str, module: Module | None) -> None:
        """Enter a submodule under a name.

        >>> net = weft.nn.Sequential()
        >>> net.add_module("first", weft.nn.Linear(2, 3))
        >>> net(weft.zeros(1, 2)).shape
        (1, 3)
        """
        self._register("_modules", "add_module", name, module)

    register_module = add_module

    # -- walking the tree

    def _own(self) -> Iterator[tuple[str, Any]]:
        """Parameters and submodules with their names, in the order of assignment."""
        members = {**self._parameters, **self._modules}
        fields = {} if naming.is_torch() else self.__dict__
        for name, value in {**fields, **members}.items():
            if name in members:
                if value is not None:
                    yield name, value
            elif isinstance(value, _CONTAINERS) and name not in _BOOKKEEPING:
                yield from _inside(name, value)

    def named_children(self) -> Iterator[tuple[str, Module]]:
        """Direct submodules with their names, each once."""
        seen: set[int] = set()
        for name, module in self._submodules():
            if id(module) not in seen:
                seen.add(id(module))
                yield name, module

    def _submodules(self) -> Iterator[tuple[str, Module]]:
        """Direct submodules under each of their names."""
        for name, value in self._own():
            if isinstance(value, Module):
                yield name, value

    def children(self) -> Iterator[Module]:
        """Direct submodules."""
        for _, module in self.named_children():
            yield module

    def named_modules(
        self,
        memo: set[int] | None = None,
        prefix: str = "",
        remove_duplicate: bool = True,
    ) -> Iterator[tuple[str, Module]]:
        """This module and all below it with their paths, each once unless asked."""
        if memo is None:
            memo = set() if remove_duplicate else _Forgetful()
        if id(self) in memo:
            return
        memo.add(id(self))
        yield prefix, self
        for name, child in self._submodules():
            yield from child.named_modules(memo, f"{prefix}.{name}" if prefix else name)

    def modules(self) -> Iterator[Module]:
        """This module and all below it."""
        for _, module in self.named_modules():
            yield module

    def named_parameters(
        self, prefix: str = "", recurse: bool = True, remove_duplicate: bool = True
    ) -> Iterator[tuple[str, Tensor]]:
        """Parameters with their paths; a shared one once unless asked."""
        yield from self._named_members(
            lambda m: ((n, v) for n, v in m._own() if not isinstance(v, Module)),
            prefix, recurse, remove_duplicate,
        )  # fmt: skip

    def parameters(self, recurse: bool = True) -> Iterator[Tensor]:
        """All parameters, each once; an optimizer learns their names from this.

        >>> sum(p.numel() for p in weft.nn.Linear(3, 2).parameters())
        8
        """
        return ParameterIterator(self.named_parameters(recurse=recurse))

    def named_buffers(
        self, prefix: str = "", recurse: bool = True, remove_duplicate: bool = True
    ) -> Iterator[tuple[str, Tensor]]:
        """Buffers with their paths."""
        yield from self._named_members(
            lambda m: ((n, v) for n, v in m._buffers.items() if v is not None),
            prefix, recurse, remove_duplicate,
        )  # fmt: skip

    def buffers(self, recurse: bool = True) -> Iterator[Tensor]:
        """All buffers, each once."""
        for _, buffer in self.named_buffers(recurse=recurse):
            yield buffer

    def _named_members(
        self, members: Any, prefix: str, recurse: bool, once: bool
    ) -> Iterator[tuple[str, Any]]:
        seen: set[int] = set()
        memo = None if once else _Forgetful()
        places = self.named_modules(memo, prefix) if recurse else [(prefix, self)]
        for path, module in places:
            for name, value in members(module):
                if once and id(value) in seen:
                    continue
                seen.add(id(value))
                yield (f"{path}.{name}" if path else name), value

    def get_submodule(self, target: str) -> Module:
        """The submodule at a path such as ``blocks.3.fc1``."""
        found = self._at(target)
        if found is None:
            raise AttributeError(f"{type(self).__name__} has no submodule {target!r}")
        return found

    def _at(self, path: str) -> Module | None:
        if not path:
            return self
        for name, child in self._submodules():
            if path == name:
                return child
            if path.startswith(f"{name}."):
                found = child._at(path[len(name) + 1 :])
                if found is not None:
                    return found
        return None

    def set_submodule(self, target: str, module: Module, strict: bool = False) -> None:
        """Put a module at a path; with ``strict`` there must be one already.

        >>> net = weft.nn.Sequential(weft.nn.Linear(2, 2))
        >>> net.set_submodule("0", weft.nn.Identity())
        >>> net[0]
        Identity()
        """
        if not target:
            raise ArgumentError("set_submodule: expected a path, got an empty one")
        if not isinstance(module, Module):
            raise ArgumentError(
                f"set_submodule: expected a Module, got {type(module).__name__}"
            )
        path, _, name = target.rpartition(".")
        if strict:
            self.get_submodule(target)
        setattr(self.get_submodule(path), name, module)

    def get_parameter(self, target: str) -> Tensor:
        """The parameter at a path."""
        for path, parameter in self.named_parameters(remove_duplicate=False):
            if path == target:
                return parameter
        raise AttributeError(f"{type(self).__name__} has no parameter {target!r}")

    def get_buffer(self, target: str) -> Tensor:
        """The buffer at a path."""
        for path, buffer in self.named_buffers(remove_duplicate=False):
            if path == target:
                return buffer
        raise AttributeError(f"{type(self).__name__} has no buffer {target!r}")

    # -- changing the whole tree

    def apply(self, fn: Callable[[Module], None]) -> Self:
        """Call ``fn`` on every submodule, then on this one."""
        for child in self.children():
            child.apply(fn)
        fn(self)
        return self

    def train(self, mode: bool = True) -> Self:
        """Switch to training (or with False to evaluation).

        Each submodule's own ``train`` is called, which it may have defined anew.
        """
        if not isinstance(mode, bool):
            raise ArgumentError(f"train: expected True or False, got {mode!r}")
        self.training = mode
        for child in self.children():
            child.train(mode)
        return self

    def eval(self) -> Self:
        """Switch to evaluation: dropout off, batch norm by its running statistics."""
        return self.train(False)

    def requires_grad_(self, requires_grad: bool = True) -> Self:
        """Ask for (or give up) the gradients of all parameters."""
        for parameter in self.parameters():
            parameter.requires_grad_(requires_grad)
        return self

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Clear the gradients of all parameters."""
        for parameter in self.parameters():
            if mode.capture is not None:
                mode.capture.touch(parameter._part)
            if set_to_none:
                parameter.grad = None
            elif parameter.grad is not None:
                parameter.grad.zero_()

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        """Give every parameter, its gradient and every buffer the value ``fn`` gives.

        The tensors stay the same objects, so that references to them stay good.
        """
        if recurse:
            for child in self.children():
                child._apply(fn)
        own = (value for _, value in self._own() if not isinstance(value, Module))
        for tensor in (*own, *self._buffers.values()):
            if tensor is not None:
                tensor.data = fn(tensor.detach())
                if tensor.grad is not None:
                    tensor.grad = fn(tensor.grad.detach())
        return self

    def to(self, *args: Any, **options: Any) -> Self:
        """Convert parameters and buffers to a dtype (floating ones) or a device.

        With ``memory_format=weft.channels_last``, those of four dimensions are laid
        out so.

        >>> weft.nn.Linear(2, 2).to(weft.float64).weight.dtype
        weft.float64
        """
        return self._converted(*args, **options)

    def _converted(self, *args: Any, **options: Any) -> Self:
        """As ``to``, whatever a subclass makes of that."""
        return self._apply(lambda tensor: _converted(tensor, *args, **options))

    def to_empty(self, *, device: Any, recurse: bool = True) -> Self:
        """Parameters and buffers on a device, with values that are yet to be set."""
        return self._apply(lambda tensor: empty_like(tensor, device=device), recurse)

    def type(self, dst_type: Any) -> Self:
        """Parameters and buffers, all of them, in a dtype."""
        return self._apply(lambda tensor: tensor.type(dst_type))

    def share_memory(self) -> Self:
        """Parameters and buffers in memory that other processes can share."""

        def shared(tensor: Any) -> Tensor:
            return tensor.share_memory_()

        return self._apply(shared)

    def float(self) -> Self:
        """Floating-point parameters and buffers in float32."""
        return self._converted(dtypes.float32)

    def double(self) -> Self:
        """Floating-point parameters and buffers in float64."""
        return self._converted(dtypes.float64)

    def half(self) -> Self:
        """Floating-point parameters and buffers in float16."""
        return self._converted(dtypes.float16)

    def bfloat16(self) -> Self:
        """Floating-point parameters and buffers in bfloat16."""
        return self._converted(dtypes.bfloat16)

    def cpu(self) -> Self:
        """Parameters and buffers on the CPU."""
        return self._converted("cpu")

    def cuda(self, device: Any = None) -> Self:
        """Parameters and buffers on a CUDA device, where there is one."""
        return self._on("cuda", device)

    def xpu(self, device: Any = None) -> Self:
        """Parameters and buffers on an XPU, where there is one."""
        return self._on("xpu", device)

    def ipu(self, device: Any = None) -> Self:
        """Parameters and buffers on an IPU, where there is one."""
        return self._on("ipu", device)

    def mtia(self, device: Any = None) -> Self:
        """Parameters and buffers on an MTIA device, where there is one."""
        return self._on("mtia", device)

    def _on(self, kind: str, device: Any) -> Self:
        named = f"{kind}:{device}" if isinstance(device, int) else device
        return self._converted(kind if named is None else named)

    # -- text

    def extra_repr(self) -> str:
        """The text to show of this module beside its children."""
        return ""

    def _get_name(self) -> str:
        """The name to show of this module: its class's."""
        return type(self).__name__

    def __repr__(self) -> str:
        lines = [
            f"({name}): " + _addindent(repr(child), 2)
            for name, child in self._shown_children()
        ]
        head, extra = self._get_name(), self.extra_repr()
        if not lines and "\n" not in extra:
            return f"{head}({extra})"
        lines = [line for line in extra.split("\n") if line] + lines
        return "\n  ".join([f"{head}(", *lines]) + "\n)"

    def _shown_children(self) -> Iterator[tuple[str, Any]]:
        """Submodules as the text shows them."""
        yield from dict(self._submodules()).items()


def _addindent(text: str, spaces: int) -> str:
    """A text whose lines after the first are indented."""
    return text.replace("\n", "\n" + " " * spaces)


class _Uncompiled:
    """A module's call without what ``Module.compile`` has made of it."""

    def __init__(self, module: Module) -> None:
        self.module = module

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.module._run_forward(args, kwargs)


_REGISTER = Module.register_parameter
_BOOKKEEPING = frozenset((*KINDS, *HOOKS))
# The kind of entry of each dictionary, and the types that may be assigned.
_SLOTS: dict[str, tuple[str, str, Any]] = {
    "_parameters": ("parameter", "a Parameter or None", Parameter),
    "_buffers": ("buffer", "a tensor or None", Tensor),
    "_modules": ("submodule", "a Module or None", Module),
}


def _kind_shown(value: Any) -> str:
    if isinstance(value, Tensor):
        return (
            "a plain tensor (wrap it in nn.Parameter, or change the one that is "
            "there in place under no_grad())"
        )
    return type(value).__name__


def _sets_itself(kind: type, name: str) -> bool:
    """Whether a class has a property (or the like) of this name."""
    return hasattr(type(getattr(kind, name, None)), "__set__")


class _Forgetful(set[int]):
    """A memo that forgets: every occurrence of a shared module is visited."""

    def __contains__(self, item: object) -> bool:
        return False


def _converted(tensor: Tensor, *args: Any, **options: Any) -> Tensor:
    """A tensor in the dtype (if it is a floating-point one), device and format."""
    form = options.pop("memory_format", None)
    specs = [a for a in (*args, *options.values()) if not isinstance(a, bool)]
    kept = []
    for spec in specs:
        named = isinstance(spec, str) and spec in dtypes._BY_NAME
        if isinstance(spec, dtypes.DType) or named:
            wanted = dtypes.as_dtype(spec)
            if not wanted.is_inexact:
                raise DTypeError(
                    f"Module.to: expected a floating-point dtype, got {wanted.name}"
                )
            if not tensor.dtype.is_inexact:
                continue
        kept.append(spec)
    laid: dict[str, Any] = {}
    if form is not None and len(form.order or ()) in (0, tensor.ndim):
        laid["memory_format"] = form  # as there are so many dimensions
    return tensor.to(*kept, **laid)


def assign(owner: Any, path: str, value: Any) -> None:
    """Let a module hold something under a path, with modules between if need be."""
    *between, last = path.split(".")
    for part in between:
        if not hasattr(owner, part):
            owner.add_module(part, Module())
        owner = getattr(owner, part)
    if hasattr(owner, last) and getattr(owner, last) is value:
        return
    if isinstance(value, Tensor) and not isinstance(value, Parameter):
        owner.register_buffer(last, value)
    else:
        setattr(owner, last, value)
