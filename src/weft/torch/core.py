"""``torch._C`` and ``torch.ops``, as far as programs in Python read them.

``torch.ops.aten.add.Tensor`` names an operator of PyTorch's. Packages compare such
names and use them as keys; one that is called is the function ``torch.add``.
``torch.ops.mine.twice`` is the operator that ``torch.library.custom_op`` declared.
"""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType, SimpleNamespace
from typing import Any

import weft


class Overload:
    """One form of an operator, such as ``aten.add.Tensor``."""

    def __init__(self, packet: Packet, form: str) -> None:
        self.overloadpacket, self._overloadname = packet, form
        self.namespace = packet.namespace

    def name(self) -> str:
        return f"{self.namespace}::{self.overloadpacket.__name__}.{self._overloadname}"

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.overloadpacket(*args, **kwargs)

    def __repr__(self) -> str:
        op = f"{self.namespace}.{self.overloadpacket.__name__}"
        return f"<OpOverload(op='{op}', overload='{self._overloadname}')>"


class Packet:
    """An operator by its name: a function of Weft's, if there is one."""

    def __init__(self, namespace: str, name: str) -> None:
        self.namespace, self.__name__ = namespace, name

    @property
    def op(self) -> Callable[..., Any]:
        """The function."""
        name = self.__name__
        for place in (weft, weft.nn.functional, weft.linalg, weft.special):
            if callable(found := getattr(place, name, None)):
                return found
        method = getattr(weft.Tensor, name, None)
        if callable(method):
            return method
        raise NotImplementedError(
            f"torch.ops.{self.namespace}.{name}: Weft has no function of this name"
        )

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.op(*args, **kwargs)

    def overloads(self) -> list[str]:
        return [name for name, v in vars(self).items() if isinstance(v, Overload)]

    def __getattr__(self, form: str) -> Overload:
        if form.startswith("__"):
            raise AttributeError(form)
        found = Overload(self, form)
        setattr(self, form, found)  # the same object each time: it may be a key
        return found

    def __repr__(self) -> str:
        return f"<OpOverloadPacket(op='{self.namespace}.{self.__name__}')>"


class Namespace:
    """The operators of a library: ``aten`` is PyTorch's own."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, name: str) -> Any:
        from weft.library import declared

        if name.startswith("__"):
            raise AttributeError(name)
        own = declared(f"{self._name}::{name}")
        if own is not None:
            return own
        if self._name not in ("aten", "prims"):
            raise AttributeError(
                f"torch.ops.{self._name}: there is no operator {name!r}; operators of "
                "C++ extensions are not here, torch.library.custom_op declares one"
            )
        found = Packet(self._name, name)
        setattr(self, name, found)
        return found


class Operators:
    """``torch.ops``."""

    def __getattr__(self, name: str) -> Namespace:
        if name.startswith("__"):
            raise AttributeError(name)
        found = Namespace(name)
        setattr(self, name, found)
        return found

    def load_library(self, path: Any) -> None:
        """Refused: there is no C++ core that could load it."""
        raise NotImplementedError(
            f"torch.ops.load_library({path!r}): Weft runs no C++ or CUDA extensions"
        )


class Core(ModuleType):
    """``torch._C``: what packages ask it, and how things stand here."""

    def __init__(self, missing: Callable[[str, str], Exception]) -> None:
        super().__init__("torch._C")
        self._missing = missing

    def __getattr__(self, name: str) -> Any:
        raise self._missing("torch._C", name)

    def _get_tracing_state(self) -> None:
        """No trace of PyTorch's kind is ever under way."""

    def _are_functorch_transforms_active(self) -> bool:
        return weft.core.mode.mode.capture is not None

    def _get_default_device(self) -> str:
        return str(weft.get_default_device())

    def _cuda_isInBadFork(self) -> bool:
        return False

    def _get_privateuse1_backend_name(self) -> str:
        return "privateuseone"

    @property
    def _disabled_torch_function_impl(self) -> Any:
        return weft.overrides.disabled_torch_function_impl

    @property
    def DisableTorchFunctionSubclass(self) -> Any:
        return weft.overrides.DisableTorchFunctionSubclass

    @property
    def DisableTorchFunction(self) -> Any:
        return weft.overrides.DisableTorchFunction

    @property
    def _nn(self) -> Any:
        from weft.torch import private

        return SimpleNamespace(_parse_to=private._parse_to)

    def _log_api_usage_once(self, *names: Any) -> None:
        """Nothing: nobody counts."""

    def _get_accelerator(self) -> Any:
        return weft.device("cpu")

    Generator = weft.Generator
    _TensorMeta = type(weft.Tensor)
