"""Modules named ``torch`` and ``torchvision`` whose names are Weft's."""

from __future__ import annotations

import builtins
import contextlib
import dis
import importlib
import importlib.metadata
import importlib.util
import linecache
import multiprocessing.spawn
import sys
from collections.abc import Iterator, Sequence
from importlib.machinery import ModuleSpec
from types import FrameType, ModuleType
from typing import Any

import weft
from weft import naming, overrides
from weft.dtype import DType
from weft.errors import INTERNAL
from weft.torch.core import Core, Operators
from weft.torch.places import MOVED, VISION_MOVED, moved, why_absent
from weft.torch.version import VERSION, VISION_VERSION

# Each package that is stood in for: the one in Weft, and what is elsewhere there.
_ROOTS = {"torch": ("weft", MOVED), "torchvision": ("weft.vision", VISION_MOVED)}
_VERSIONS = {"torch": VERSION, "torchvision": VISION_VERSION}


def _own_names(name: str) -> dict[str, Any]:
    """Names whose value under ``torch`` differs from the one under ``weft``."""
    if name in ("torch.version", "torchvision.version"):
        return {"__version__": str(_VERSIONS[name.partition(".")[0]])}
    if name not in _VERSIONS:
        return {}
    own: dict[str, Any] = {"__version__": _VERSIONS[name]}
    if name == "torch":
        from weft.compiler import compile

        core, operators = Core(_missing_name), Operators()
        sys.modules.update({"torch._C": core, "torch.ops": operators})  # type: ignore[dict-item]
        own |= {"compile": compile, "_C": core, "ops": operators}
        own["dtype"] = DType
    return own


class Alias(ModuleType):
    """A module that has the names of one of Weft's; what is set here is set there."""

    def __init__(self, name: str, target: ModuleType) -> None:
        super().__init__(name, target.__doc__)
        file = getattr(target, "__file__", None)
        self.__dict__.update(
            (key, value)
            for key, value in vars(target).items()
            if not key.startswith("_") and not isinstance(value, ModuleType)
        )  # so that vars(torch.distributions) has them
        self.__dict__.update(_target=target, __file__=file, __path__=[])
        self.__dict__.update(_own_names(name))

    def __getattr__(self, name: str) -> Any:
        value = self._look_up(name)
        if not name.startswith("__"):
            self.__dict__[name] = value
        return value

    def _look_up(self, name: str) -> Any:
        target = self.__dict__["_target"]
        full = f"{self.__name__}.{name}"
        if name == "__all__":
            return _star(target)
        if full == "torch.torch":  # which PyTorch has, too
            return self
        try:
            value = getattr(target, name)
        except AttributeError:
            if not name.startswith("__") and _target_name(full) is not None:
                return importlib.import_module(full)
            with contextlib.suppress(KeyError):
                return _private(self.__name__, name)
            raise _missing_name(self.__name__, name) from None
        if isinstance(value, ModuleType) and _target_name(full) is not None:
            return importlib.import_module(full)
        return value

    def __setattr__(self, name: str, value: Any) -> None:
        self.__dict__[name] = value
        if not isinstance(value, Alias) and not name.startswith("__"):
            setattr(self.__dict__["_target"], name, value)

    def __delattr__(self, name: str) -> None:
        self.__dict__.pop(name, None)
        delattr(self.__dict__["_target"], name)

    def __dir__(self) -> list[str]:
        return sorted({*self.__dict__, *dir(self.__dict__["_target"])})

    def __repr__(self) -> str:
        return f"<module {self.__name__!r}: {self.__dict__['_target'].__name__}>"

    def __reduce__(self) -> Any:
        return importlib.import_module, (self.__name__,)


def _private(module: str, name: str) -> Any:
    """The value of a name of PyTorch's that packages import though it is private."""
    from weft.torch import private

    return private.find(module, name)


def _star(target: ModuleType) -> list[str]:
    """The names that ``from torch import *`` gives: no built-ins but dtypes."""
    if hasattr(target, "__all__"):
        return list(target.__all__)
    hidden = set(dir(builtins))
    return [
        name
        for name in dir(target)
        if not name.startswith("_")
        and hasattr(target, name)
        and (name not in hidden or isinstance(getattr(target, name), DType))
    ]


# -- names that are not there


def _users_frame() -> FrameType | None:
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and (
        INTERNAL[frame.f_code.co_filename]
        or frame.f_code.co_filename.startswith("<frozen importlib")
    ):
        frame = frame.f_back
    return frame


def _missing(name: str, module: bool) -> str:
    reason = why_absent(name)
    text = f"Weft has no {'module' if module else 'name'} {name!r}"
    text += f": {reason}" if reason else " yet; docs/pytorch.md lists what there is"
    frame = _users_frame()
    if frame is None:
        return text
    file, line = frame.f_code.co_filename, frame.f_lineno
    source = linecache.getline(file, line).strip()
    shown = f"\n    {source}" if source else ""
    return f"{text}\n  at {file}:{line}, in {frame.f_code.co_name}{shown}"


def _missing_name(module: str, name: str) -> Exception:
    """The error for a name: an ``ImportError`` where ``from ... import`` asks for it.

    Python turns an ``AttributeError`` there into an error that says nothing more.
    """
    if name.startswith("__"):
        return AttributeError(f"module {module!r} has no attribute {name!r}")
    text = _missing(f"{module}.{name}", module=False)
    frame = sys._getframe(1)
    while frame.f_back is not None and frame.f_code.co_filename == __file__:
        frame = frame.f_back
    code = frame.f_code.co_code
    if dis.opname[code[frame.f_lasti]] == "IMPORT_FROM":
        return ImportError(text, name=module)
    return AttributeError(text, name=name)


# -- finding modules


def _exists(name: str) -> bool:
    """Whether there is such a module, in a file or made by its package."""
    try:
        importlib.import_module(name.rpartition(".")[0] or name)  # may make it
        return name in sys.modules or importlib.util.find_spec(name) is not None
    except (ModuleNotFoundError, ValueError):
        return False


def _target_name(name: str) -> str | None:
    """The module of Weft's that stands in for one of PyTorch's; None if none does."""
    root, _, path = name.partition(".")
    base, table = _ROOTS[root]
    if not path:
        return base
    if _exists(f"{base}.{path}"):
        return f"{base}.{path}"
    place = moved(path, table)
    if place is None:
        return None
    target = f"{base}.{place}" if place else base
    return target if _exists(target) else None


class _Loader:
    def __init__(self, target: str) -> None:
        self.target = target

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        return Alias(spec.name, importlib.import_module(self.target))

    def exec_module(self, module: ModuleType) -> None:
        pass


class _Distribution(importlib.metadata.Distribution):
    """What ``importlib.metadata`` finds for ``torch``."""

    def __init__(self, name: str) -> None:
        self.text = f"Metadata-Version: 2.1\nName: {name}\nVersion: {_VERSIONS[name]}\n"

    def read_text(self, filename: str) -> str | None:
        return self.text if filename == "METADATA" else None

    def locate_file(self, path: Any) -> Any:
        raise FileNotFoundError(f"{path}: Weft stands in for this package")


class _Finder:
    """Finds ``torch`` and ``torchvision`` before Python's own finders do."""

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: Any = None
    ) -> ModuleSpec | None:
        if name.partition(".")[0] not in _ROOTS:
            return None
        found = _target_name(name)
        if found is None:
            if _importing():
                raise ModuleNotFoundError(_missing(name, module=True), name=name)
            return None
        origin = getattr(importlib.import_module(found), "__file__", None)
        return ModuleSpec(name, _Loader(found), origin=origin, is_package=True)  # type: ignore[arg-type]

    def find_distributions(self, context: Any) -> Iterator[_Distribution]:
        for name in _ROOTS:
            if context.name is None or context.name.lower() == name:
                yield _Distribution(name)

    def invalidate_caches(self) -> None:
        pass


def _importing() -> bool:
    """Whether an import statement asks, and not ``importlib.util.find_spec``."""
    frame = sys._getframe(2).f_back
    return frame is not None and frame.f_code.co_name == "_find_and_load_unlocked"


_FINDER = _Finder()


# -- switching on and off


class _Install:
    """Pickled along with what a spawned process is told; it installs Weft there."""

    def __reduce__(self) -> Any:
        return install, ()


_build_class = builtins.__build_class__


def _watched_class(body: Any, name: Any, /, *bases: Any, **options: Any) -> Any:
    """Make a class; one with ``__torch_function__`` switches that protocol on.

    Subclasses of ``Tensor`` do so themselves, with their first object.
    """
    made = _build_class(body, name, *bases, **options)
    if "__torch_function__" in getattr(made, "__dict__", ()) and not issubclass(
        made, (weft.Tensor, overrides.TorchFunctionMode)
    ):
        overrides.enable()
    return made


_preparation_data = multiprocessing.spawn.get_preparation_data


def _prepared(name: str) -> dict[str, Any]:
    return {"weft": _Install(), **_preparation_data(name)}


def _is_ours(name: str, module: Any) -> bool:
    return name.partition(".")[0] in _ROOTS and isinstance(module, Alias)


def install() -> None:
    """Let ``import torch`` and ``import torchvision`` mean Weft in this process.

    Processes that ``multiprocessing`` starts do so too. It is an error where PyTorch
    itself has been imported before, because its tensors would meet Weft's.

    >>> weft.torch.install()
    >>> import torch
    >>> torch.zeros(2) + weft.ones(2)
    tensor([1., 1.])
    >>> weft.torch.uninstall()
    """
    for root in _ROOTS:
        module = sys.modules.get(root)
        if module is not None and not isinstance(module, Alias):
            raise RuntimeError(
                f"weft.torch.install: {root} itself is already imported (from "
                f"{getattr(module, '__file__', None)}). Call it before the first "
                f"'import {root}', or start the program with 'weft run script.py'"
            )
    if _FINDER not in sys.meta_path:
        sys.meta_path.insert(0, _FINDER)
    naming.rename("torch")
    multiprocessing.spawn.get_preparation_data = _prepared
    builtins.__build_class__ = _watched_class


def uninstall() -> None:
    """Let ``import torch`` mean PyTorch again.

    >>> weft.torch.uninstall()
    """
    with contextlib.suppress(ValueError):
        sys.meta_path.remove(_FINDER)
    for name in [n for n, m in sys.modules.items() if _is_ours(n, m)]:
        del sys.modules[name]
    multiprocessing.spawn.get_preparation_data = _preparation_data
    builtins.__build_class__ = _build_class
    naming.rename("weft")


@contextlib.contextmanager
def installed() -> Iterator[Any]:
    """Install for a block; gives the module ``torch``.

    >>> with weft.torch.installed() as torch:
    ...     torch.__version__ >= "2.0"
    True
    """
    before = _FINDER in sys.meta_path
    install()
    try:
        yield importlib.import_module("torch")
    finally:
        if not before:
            uninstall()
