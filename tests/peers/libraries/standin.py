"""A stand-in for torchvision on PyTorch's side, where that has no build for the CPU.

timm and others import transforms for data that these programs do not load; any name of
any module is a class without a meaning.
"""

from __future__ import annotations

import importlib.util
import sys
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any


class _Name(type):
    def __getattr__(cls, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        return f"{cls.__name__}.{name}"


class _Module(ModuleType):
    __path__: list[str] = []

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        made = _Name(name, (), {"__module__": self.__name__})
        setattr(self, name, made)
        return made


class _Finder:
    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        if name.partition(".")[0] == "torchvision":
            return ModuleSpec(name, self, is_package=True)  # type: ignore[arg-type]
        return None

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        return _Module(spec.name)

    def exec_module(self, module: ModuleType) -> None:
        if module.__name__ == "torchvision":
            module.__version__ = "0.28.0"  # type: ignore[attr-defined]


def install() -> None:
    """Stand in for torchvision, unless there is one."""
    if importlib.util.find_spec("torchvision") is None:
        sys.meta_path.append(_Finder())  # type: ignore[arg-type]
