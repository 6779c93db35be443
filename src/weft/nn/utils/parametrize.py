"""Parametrizations: a parameter as a function of one or more others.

register_parametrization(linear, "weight", Symmetric())
linear.weight                           Symmetric()(original)
linear.parametrizations.weight.original the parameter that is trained
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any

from weft import Tensor, no_grad
from weft.nn.containers import ModuleDict, ModuleList
from weft.nn.module import Module
from weft.nn.parameter import Parameter
from weft.nn.utils.computed import compute, restore

_cache: dict[tuple[int, str], Any] = {}
_blocks = 0  # of cached() that are open


@contextlib.contextmanager
def cached() -> Iterator[None]:
    """Compute each parametrized tensor once inside the block.

    >>> with weft.nn.utils.parametrize.cached():
    ...     pass
    """
    global _blocks
    _blocks += 1
    try:
        yield
    finally:
        _blocks -= 1
        if not _blocks:
            _cache.clear()


class ParametrizationList(ModuleList):
    """The functions that give a tensor, and what they are given: ``original``.

    A function whose ``right_inverse`` gives several tensors has ``original0``, ….
    """

    def __init__(
        self, modules: Sequence[Module], original: Tensor, unsafe: bool = False
    ) -> None:
        if not modules:
            raise ValueError("ParametrizationList requires one or more modules.")
        super().__init__(modules)
        self.unsafe = unsafe
        with no_grad():
            new = self._inverse(original)
        self.is_tensor = isinstance(new, Tensor)
        self.ntensors = 1 if self.is_tensor else len(new)
        if self.is_tensor:
            if not unsafe and (new.dtype, new.shape) != (
                original.dtype,
                original.shape,
            ):
                raise ValueError(
                    "right_inverse: expected a tensor like the one that is "
                    f"parametrized, {original.dtype} of shape {tuple(original.shape)}, "
                    f"got {new.dtype} of {tuple(new.shape)}; pass unsafe=True if meant"
                )
            original.data = new
            _enter(self, "original", original)
        else:
            for k, one in enumerate(new):
                made = Parameter(one) if isinstance(original, Parameter) else one
                _enter(self, f"original{k}", made)
        if not unsafe:
            self._check(original)

    def _inverse(self, value: Any) -> Any:
        for module in reversed(list(self)):
            if hasattr(module, "right_inverse"):
                try:
                    value = module.right_inverse(value)
                except NotImplementedError:
                    pass
        return value

    def _check(self, original: Tensor) -> None:
        with no_grad():
            found = self()
        if not isinstance(found, Tensor):
            raise ValueError(
                f"A parametrization must return a tensor. Got {type(found).__name__}."
            )
        if (found.dtype, found.shape) != (original.dtype, original.shape):
            raise ValueError(
                "Registering a parametrization may not change the dtype or the shape "
                f"of the tensor, unless the `unsafe` flag is set: got {found.dtype} "
                f"of shape {tuple(found.shape)} for {original.dtype} of shape "
                f"{tuple(original.shape)}"
            )

    def _originals(self) -> list[Any]:
        if self.is_tensor:
            return [self.original]
        return [getattr(self, f"original{k}") for k in range(self.ntensors)]

    def right_inverse(self, value: Tensor) -> None:
        """Set the original tensors so that they give a value."""
        with no_grad():
            new = self._inverse(value)
            given = [new] if self.is_tensor else list(new)
            for held, one in zip(self._originals(), given, strict=True):
                held.data = one

    def forward(self) -> Tensor:
        modules = list(self)
        value = modules[0](*self._originals())
        for module in modules[1:]:
            value = module(value)
        return value


def _enter(module: Module, name: str, tensor: Tensor) -> None:
    if isinstance(tensor, Parameter):
        module.register_parameter(name, tensor)
    else:
        module.register_buffer(name, tensor)


class _Parametrized:
    """Reads a parametrized tensor of a module."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __call__(self, module: Any) -> Any:
        run = module.parametrizations[self.name]
        if not _blocks:
            return run()
        key = id(module), self.name
        if key not in _cache:
            _cache[key] = run()
        return _cache[key]


class _Set:
    """Sets a parametrized tensor of a module."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __call__(self, module: Any, value: Any) -> None:
        module.parametrizations[self.name].right_inverse(value)


def register_parametrization(
    module: Module, tensor_name: str, parametrization: Module, *, unsafe: bool = False
) -> Module:
    """Let a parameter or buffer be the result of a module on it.

    >>> class Symmetric(weft.nn.Module):
    ...     def forward(self, x):
    ...         return x.triu() + x.triu(1).T
    >>> from weft.nn.utils import parametrize
    >>> layer = weft.nn.Linear(3, 3)
    >>> _ = parametrize.register_parametrization(layer, "weight", Symmetric())
    >>> bool((layer.weight == layer.weight.T).all())
    True
    """
    parametrization.train(module.training)
    if is_parametrized(module, tensor_name):
        held = module.parametrizations[tensor_name]
        held.append(parametrization)
        held.unsafe |= unsafe
        if not unsafe:
            try:
                held._check(getattr(module, tensor_name).detach())
            except ValueError:
                del held[len(held) - 1]
                raise
        return module
    if tensor_name not in module._parameters and tensor_name not in module._buffers:
        raise ValueError(
            f"Module '{module}' does not have a parameter, a buffer, or a "
            f"parametrized element with name '{tensor_name}'"
        )
    original = getattr(module, tensor_name)
    made = ParametrizationList([parametrization], original, unsafe)
    delattr(module, tensor_name)
    if not is_parametrized(module):
        module.parametrizations = ModuleDict()
    module.parametrizations[tensor_name] = made
    compute(module, tensor_name, _Parametrized(tensor_name), _Set(tensor_name),
            "Parametrized{}")  # fmt: skip
    return module


def is_parametrized(module: Module, tensor_name: str | None = None) -> bool:
    """Whether a module, or one of its tensors, is parametrized."""
    held = getattr(module, "parametrizations", None)
    if not isinstance(held, ModuleDict):
        return False
    return len(held) > 0 if tensor_name is None else tensor_name in held


def remove_parametrizations(
    module: Module, tensor_name: str, leave_parametrized: bool = True
) -> Module:
    """Take the parametrizations of a tensor off; it keeps its value, or with
    ``leave_parametrized=False`` gets that of the original one."""
    if not is_parametrized(module, tensor_name):
        raise ValueError(
            f"Module {module} does not have a parametrization on {tensor_name}"
        )
    held = module.parametrizations[tensor_name]
    if not leave_parametrized and not held.is_tensor:
        raise ValueError(
            "Cannot leave unparametrized (`leave_parametrized=False`) a tensor that "
            "is parametrized in terms of a sequence of tensors."
        )
    originals = held._originals()
    kept = originals[0]
    if leave_parametrized:
        with no_grad():
            value = getattr(module, tensor_name).detach()
        if held.is_tensor:
            kept.data = value
        else:
            kept = Parameter(value) if isinstance(kept, Parameter) else value
    restore(module, tensor_name)
    del module.parametrizations[tensor_name]
    if not len(module.parametrizations):
        del module.parametrizations
    _enter(module, tensor_name, kept)
    return module


def type_before_parametrizations(module: Module) -> type:
    """A module's class without its parametrizations."""
    kind = type(module)
    return kind.__bases__[0] if is_parametrized(module) else kind


def transfer_parametrizations_and_params(
    from_module: Module, to_module: Module, tensor_name: str | None = None
) -> Module:
    """Give a module another's parametrizations, with their original tensors."""
    if not is_parametrized(from_module):
        return to_module
    names = from_module.parametrizations if tensor_name is None else [tensor_name]
    for name in list(names):
        held = from_module.parametrizations[name]
        if not hasattr(to_module, name):
            _enter(to_module, name, held._originals()[0])
        for one in held:
            register_parametrization(to_module, name, one, unsafe=True)
        mine = to_module.parametrizations[name]
        for k, original in zip(list(held._parameters), held._originals(), strict=False):
            mine._parameters[k] = original
    return to_module
