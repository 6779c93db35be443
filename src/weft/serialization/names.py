"""The names that pickles of PyTorch may use, and what each means here.

A file is given nothing but this table: containers, numbers, dtypes, devices, tensors
and parameters, NumPy's arrays of numbers, each made by a rule in this module. Names
beyond it are refused, unless

- the program allows them (``add_safe_globals``): a class is then made by ``__new__``
  and its state, a function is called, as in PyTorch;
- or the file is loaded with ``weights_only=False``: modules (``nn.Module``) of classes
  that have been imported are rebuilt, and so are plain objects of the program's own
  classes. No code of these classes runs: an object is made empty, and its attributes
  are entered.
"""

from __future__ import annotations

import re
import sys
from collections import Counter, OrderedDict, defaultdict
from enum import Enum
from pickle import UnpicklingError
from types import FunctionType
from typing import Any

import numpy as np

from weft import dtype as dtypes
from weft import late
from weft.core.device import Device, find_device
from weft.core.members import HOOKS, KINDS, Members
from weft.core.size import Shape
from weft.core.tensor import Tensor
from weft.dtype import DType
from weft.errors import (
    INTERNAL,
    ArgumentError,
    DeviceError,
    DTypeError,
    FileFormatError,
    is_installed,
    is_library,
)
from weft.nn.module import Module
from weft.nn.parameter import Parameter
from weft.ops.public import EXPORTED
from weft.serialization.machine import Known, Machine, plain_path
from weft.serialization.storages import SavedStorage, StorageKind

_BLOCKED = ("sys", "os", "posix", "nt", "subprocess", "builtins")
_FACTORIES = (list, dict, set, int, float, str, bool, tuple, OrderedDict, Counter)
_NUMPY_CODE = re.compile(r"[<|=]?(?:[iu][1248]|f[248]|c8|c16|b1|\?)")


class UnsafeGlobalError(FileFormatError, UnpicklingError):
    """A file that needs a class or function which it is not allowed."""


# -- names that the program allows


class _Allowed:
    """Classes and functions that the program allows, by the names files use."""

    def __init__(self) -> None:
        self.marked: dict[Any, None] = {}

    def by_path(self) -> dict[str, Any]:
        return dict(map(_path_of, self.marked))


_allowed = _Allowed()


def _path_of(given: Any) -> tuple[str, Any]:
    if isinstance(given, tuple):
        if len(given) != 2 or not isinstance(given[1], str):
            raise ArgumentError(
                "add_safe_globals: expected a class or function, or a pair of it and "
                f"the name that files have for it, got {given!r}"
            )
        return given[1], given[0]
    if not callable(given):
        raise DTypeError(
            "add_safe_globals: expected classes and functions, got "
            f"{type(given).__name__}"
        )
    return plain_path(given.__module__, given.__qualname__), given


def add_safe_globals(safe_globals: list[Any]) -> None:
    """Allow files to make objects of these classes, and to call these functions.

    An item is a class or function, or a pair of it and the name that files have for it.

    >>> import argparse
    >>> weft.serialization.add_safe_globals([argparse.Namespace])
    >>> weft.serialization.get_safe_globals()
    [<class 'argparse.Namespace'>]
    >>> weft.serialization.clear_safe_globals()
    """
    for given in safe_globals:
        path, value = _path_of(given)
        if path.partition(".")[0] in _BLOCKED and not isinstance(value, type):
            raise ArgumentError(
                f"add_safe_globals: {path} may do anything, and is never allowed"
            )
    _allowed.marked.update(dict.fromkeys(safe_globals))


def get_safe_globals() -> list[Any]:
    """The classes and functions that files may use."""
    return list(_allowed.marked)


def clear_safe_globals() -> None:
    """Allow files no more than the names they may always use."""
    _allowed.marked.clear()


class safe_globals:
    """Allow classes and functions inside a ``with`` block (see ``add_safe_globals``).

    >>> import argparse, io
    >>> file = io.BytesIO()
    >>> weft.save(argparse.Namespace(lr=0.1), file)
    >>> with weft.serialization.safe_globals([argparse.Namespace]):
    ...     weft.load(io.BytesIO(file.getvalue()))
    Namespace(lr=0.1)
    """

    def __init__(self, safe_globals: list[Any]) -> None:
        self.safe_globals = safe_globals

    def __enter__(self) -> None:
        self.before = dict(_allowed.marked)
        add_safe_globals(self.safe_globals)

    def __exit__(self, *error: object) -> None:
        _allowed.marked = self.before


# -- the table's rules: each is given the machine, and a file's arguments


def _ordered(m: Machine, items: Any = ()) -> Any:
    made: Any = OrderedDict()
    for pair in items:
        m.fill(made, list(pair))
    return made


def _counter(m: Machine, items: Any = None) -> Any:
    made: Any = Counter()
    m.fill(made, [x for pair in (items or {}).items() for x in pair])
    return made


def _defaultdict(m: Machine, factory: Any = None) -> Any:
    if factory is not None and factory not in _FACTORIES:
        raise m.bad("expected the factory of a defaultdict to be a plain type")
    return defaultdict(factory)


def _listed(m: Machine, items: Any) -> list[Any]:
    if type(items) not in (list, tuple):
        raise m.bad(f"expected a list of elements, got a {type(items).__name__}")
    return list(m.members(items))


def _encode(m: Machine, text: Any, how: Any = "latin1") -> bytes:
    """Bytes, which protocol 2 writes as a text."""
    if type(text) is not str or how not in ("latin1", "latin-1"):
        raise m.bad("expected bytes as a text in latin1")
    return text.encode("latin1")


def _bytes(m: Machine, data: Any = b"", how: Any = None) -> bytes:
    if how is not None:
        return _encode(m, data, how)
    if type(data) not in (bytes, bytearray):
        raise m.bad(f"expected bytes, got a {type(data).__name__}")
    return bytes(data)


def _complex(m: Machine, real: Any, imag: Any) -> complex:
    return complex(_numeric(m, real), _numeric(m, imag))


def _numeric(m: Machine, value: Any) -> float:
    if type(value) not in (int, float):
        raise m.bad(f"expected a number, got a {type(value).__name__}")
    return value


def _slice(m: Machine, *ends: Any) -> slice:
    if not all(end is None or type(end) is int for end in ends):
        raise m.bad("expected a slice of whole numbers")
    return slice(*ends)


def _range(m: Machine, *ends: Any) -> range:
    return range(*ends)


def _size(m: Machine, sizes: Any) -> Shape:
    if type(sizes) not in (tuple, list) or not all(type(n) is int for n in sizes):
        raise m.bad("expected torch.Size of whole numbers")
    return Shape(sizes)


def _device(m: Machine, kind: Any, index: Any = None) -> Device:
    if type(kind) is not str or not (index is None or type(index) is int):
        raise m.bad("expected a device's name")
    name = kind if index is None else f"{kind}:{index}"
    try:
        return find_device(name)
    except DeviceError:
        return m.names.placement.device(name, None)


def _shape(m: Machine, values: Any) -> tuple[int, ...]:
    if type(values) not in (tuple, list) or not all(
        type(n) is int and 0 <= n < 1 << 63 for n in values
    ):
        raise m.bad("expected the sizes and strides of a tensor to be 0 or more")
    return tuple(values)


def _tensor(
    m: Machine, storage: Any, offset: Any, size: Any, stride: Any, dtype: Any = None
) -> Tensor:
    if type(storage) is not SavedStorage or type(offset) is not int or offset < 0:
        raise m.bad("expected a tensor of a storage, with an offset of 0 or more")
    return storage.tensor(dtype, offset, _shape(m, size), _shape(m, stride), m.bad)


def _tensor_v2(
    m: Machine, storage: Any, offset: Any, size: Any, stride: Any, *rest: Any
) -> Tensor:
    return _finished(m, _tensor(m, storage, offset, size, stride), *rest)


def _tensor_v3(
    m: Machine, storage: Any, offset: Any, size: Any, stride: Any, *rest: Any
) -> Tensor:
    grad, hooks, dtype, *metadata = rest
    if type(dtype) is not DType:
        raise m.bad("expected a tensor's dtype")
    made = _tensor(m, storage, offset, size, stride, dtype)
    return _finished(m, made, grad, hooks, *metadata)


def _finished(
    m: Machine, made: Tensor, requires_grad: Any, hooks: Any, metadata: Any = None
) -> Tensor:
    if hooks:
        raise m.bad("a tensor has hooks, which are code")
    for key, on in (metadata or {}).items():
        if key not in ("conj", "neg"):
            raise m.bad("a tensor has metadata that this Weft does not know")
        if on:
            made = made.conj() if key == "conj" else -made
    return _wanting(m, made, requires_grad)


def _wanting(m: Machine, made: Tensor, requires_grad: Any) -> Tensor:
    if type(requires_grad) is not bool or requires_grad > made.dtype.is_inexact:
        raise m.bad("expected requires_grad of a floating-point tensor, or False")
    return made.requires_grad_() if requires_grad else made


def _parameter(
    m: Machine, data: Any = None, requires_grad: Any = True, hooks: Any = None
) -> Any:
    if not isinstance(data, Tensor) or type(requires_grad) is not bool or hooks:
        raise m.bad("expected a parameter of a tensor, without hooks")
    if requires_grad > data.dtype.is_inexact:
        raise m.bad("expected a parameter that needs gradients to be floating-point")
    return Parameter(data, requires_grad)


def _parameter_with_state(
    m: Machine, data: Any, requires_grad: Any, hooks: Any, state: Any
) -> Any:
    made = _parameter(m, data, requires_grad, hooks)
    _enter(m, made, state)
    return made


def _from_type(m: Machine, rule: Any, kind: Any, args: Any, state: Any) -> Any:
    """A tensor with attributes of its own."""
    if kind not in (Tensor, Parameter) or type(args) is not tuple:
        raise m.bad("expected a plain tensor; a subclass cannot be rebuilt")
    made = m.apply(rule, "call", args)
    if not isinstance(made, Tensor):
        raise m.bad("expected a tensor")
    if isinstance(state, tuple) and len(state) == 2 and not state[1]:
        state = state[0]
    _enter(m, made, state)
    return made


def _enter(m: Machine, made: Any, state: Any) -> None:
    """Give a tensor attributes; they hide none that it has."""
    for key, value in (state or {}).items():
        if type(key) is not str or key.startswith("_") or hasattr(Tensor, key):
            raise m.bad("a tensor has an attribute that would replace one of its own")
        made.__dict__[key] = value


def _converted(m: Machine, data: Any, dtype: Any, device: Any, grad: Any) -> Tensor:
    """A tensor that was copied from another device to be saved."""
    if isinstance(data, np.ndarray):
        data = Tensor(data)
    if not isinstance(data, Tensor) or type(dtype) is not DType:
        raise m.bad("expected a tensor and its dtype")
    placed = m.names.placement.device(str(device), None)
    return _wanting(m, data.to(dtype).to(placed), grad)


def _layout(m: Machine, name: Any) -> Any:
    found = getattr(sys.modules["weft"], str(name).removeprefix("torch."), None)
    if found is None:
        raise m.bad(f"the layout {str(name)[:50]!r} is not in this Weft")
    return found


# -- NumPy's arrays of numbers


def _numpy_dtype(m: Machine, code: Any, *rest: Any) -> Any:
    if type(code) is not str or _NUMPY_CODE.fullmatch(code) is None:
        raise m.bad("expected a NumPy array of numbers")
    return np.dtype(code, copy=True)


def _numpy_scalar(m: Machine, dtype: Any, data: Any = b"") -> Any:
    if not isinstance(dtype, np.dtype) or len(data) != dtype.itemsize:
        raise m.bad("expected a NumPy number and its bytes")
    return np.frombuffer(data, dtype)[0]


def _numpy_array(m: Machine, kind: Any, shape: Any, code: Any) -> np.ndarray:
    if kind is not np.ndarray or shape != (0,):
        raise m.bad("expected a plain NumPy array")
    return np.empty(0, np.int8)


def _numpy_frombuffer(
    m: Machine, data: Any, dtype: Any, shape: Any, order: Any, *axes: Any
) -> np.ndarray:
    made = np.empty(0, np.int8)
    _fill_array(m, made, (1, shape, dtype, order == "F", bytes(data)))
    return made


def _fill_array(m: Machine, array: np.ndarray, state: Any) -> None:
    _, shape, dtype, fortran, data = state
    if not isinstance(dtype, np.dtype) or type(data) is not bytes or array.size:
        raise m.bad("expected a NumPy array of numbers and its bytes")
    sizes = _shape(m, shape)
    count = 1
    for n in sizes:
        count *= n
    if len(sizes) > 64 or len(data) != count * dtype.itemsize:
        raise m.bad(f"a NumPy array of shape {sizes} does not fit its bytes")
    fill: Any = array.__setstate__
    fill((1, sizes, dtype, bool(fortran), data))


# -- the table


def _storage_kinds() -> dict[str, Known]:
    kinds = {
        "Float": "float32", "Double": "float64", "Half": "float16", "Long": "int64",
        "BFloat16": "bfloat16", "Int": "int32", "Short": "int16", "Char": "int8",
        "Byte": "uint8", "Bool": "bool", "ComplexFloat": "complex64",
        "ComplexDouble": "complex128",
    }  # fmt: skip
    table = {}
    for name, dtype in kinds.items():
        kind = Known(StorageKind(dtypes.as_dtype(dtype)))
        for module in ("torch", "torch.cuda", "torch.storage"):
            table[f"{module}.{name}Storage"] = kind
    for module in ("torch", "torch.storage"):
        table[f"{module}.UntypedStorage"] = Known(StorageKind(None))
    return table


def _table() -> dict[str, Known]:
    table = {f"torch.{d.name}": Known(d) for d in dtypes.ALL}
    table |= _storage_kinds()
    table |= {f"builtins.{t.__name__}": Known(t) for t in _FACTORIES}
    multiarray = ("numpy.core.multiarray", "numpy._core.multiarray")
    table |= {f"{m}._reconstruct": Known(_numpy_array, _numpy_array)
              for m in multiarray}  # fmt: skip
    table |= {f"{m}.scalar": Known(_numpy_scalar, _numpy_scalar) for m in multiarray}
    calls: dict[str, tuple[Any, Any]] = {
        "collections.OrderedDict": (OrderedDict, _ordered),
        "collections.Counter": (Counter, _counter),
        "collections.defaultdict": (defaultdict, _defaultdict),
        "_codecs.encode": (_encode, _encode),
        "builtins.bytes": (bytes, _bytes),
        "builtins.bytearray": (bytearray, lambda m, *a: bytearray(_bytes(m, *a))),
        "builtins.set": (set, lambda m, items=(): set(_listed(m, items))),
        "builtins.frozenset": (frozenset, lambda m, x=(): frozenset(_listed(m, x))),
        "builtins.complex": (complex, _complex),
        "builtins.slice": (slice, _slice),
        "builtins.range": (range, _range),
        "torch.Size": (_size, _size),
        "torch.device": (_device, _device),
        "torch.Tensor": (Tensor, None),
        "torch._tensor.Tensor": (Tensor, None),
        "torch.serialization._get_layout": (_layout, _layout),
        "torch._utils._rebuild_tensor": (_tensor, _tensor),
        "torch._utils._rebuild_tensor_v2": (_tensor_v2, _tensor_v2),
        "torch._utils._rebuild_tensor_v3": (_tensor_v3, _tensor_v3),
        "torch._utils._rebuild_parameter": (_parameter, _parameter),
        "torch._utils._rebuild_parameter_with_state": (
            _parameter_with_state, _parameter_with_state,
        ),
        "torch._tensor._rebuild_from_type_v2": (_from_type, _from_type),
        "numpy.ndarray": (np.ndarray, None),
        "numpy.dtype": (np.dtype, _numpy_dtype),
        "numpy._core.numeric._frombuffer": (_numpy_frombuffer, _numpy_frombuffer),
        "numpy.core.numeric._frombuffer": (_numpy_frombuffer, _numpy_frombuffer),
    }  # fmt: skip
    for name in ("device_tensor_from_cpu_tensor", "device_tensor_from_numpy",
                 "xla_tensor"):  # fmt: skip
        calls[f"torch._utils._rebuild_{name}"] = (_converted, _converted)
    table |= {path: Known(value, call) for path, (value, call) in calls.items()}
    table["torch.nn.parameter.Parameter"] = Known(Parameter, _parameter, _parameter)
    return table


TABLE = _table()
_REFUSED = {
    "torch._utils._rebuild_qtensor": "a quantized tensor; save .dequantize()",
    "torch._utils._rebuild_sparse_tensor": "a sparse tensor; save .to_dense()",
    "torch._utils._rebuild_nested_tensor": "a nested tensor; save its parts as a list",
    "torch._utils._rebuild_meta_tensor_no_storage": "a tensor without data (meta)",
    "torch._utils._rebuild_wrapper_subclass": "a tensor of a subclass; save its data",
}


# -- finding names for one file


class Names:
    """What names mean in one file."""

    def __init__(self, label: str, placement: Any, weights_only: bool) -> None:
        self.label = label
        self.placement = placement
        self.weights_only = weights_only
        self.own: dict[type, str] = {}  # classes met here, and how they are rebuilt

    def find(self, module: str, name: str) -> Known:
        path = plain_path(module, name)
        found = TABLE.get(path)
        if found is not None:
            return found
        if path in _REFUSED:
            raise self._unsafe(f"the file holds {_REFUSED[path]}")
        if path == "copyreg._reconstructor":
            return Known(_reconstructor, _reconstructor)
        given = self._given(path, module, name)
        if given is not None:
            return given
        return self._refuse(path, module, name)

    def _unsafe(self, reason: str) -> UnsafeGlobalError:
        return UnsafeGlobalError(f"load: {self.label}: {reason}")

    def _given(self, path: str, module: str, name: str) -> Known | None:
        """A name that the program allows, or loading with weights_only=False does."""
        layer = _layer(module, name)
        value = _allowed.by_path().get(path)
        if value is None and layer in _allowed.marked:
            value = layer
        if value is not None:
            return self._trusted(value)
        if not self.weights_only and (known := _OWN_PACKAGES.get(_package(module))):
            late.find(known)
        value = _imported(module, name) if layer is None else layer
        if _is_layers_function(module, value) and (
            _allowed.marked or not self.weights_only
        ):
            return Known(value)
        if self.weights_only:
            return None
        if isinstance(value, type):
            return self._rebuilt(value)
        own = type(value) is FunctionType and _of_program(module)
        return Known(value) if own else None

    def _trusted(self, value: Any) -> Known:
        if isinstance(value, type) and issubclass(value, Module):
            return self._rebuilt(value) or Known(value)
        if isinstance(value, type):
            self.own[value] = "trusted"
            return Known(value, lambda m, *a: value(*a),
                         lambda m, *a: value.__new__(value, *a))  # fmt: skip
        return Known(value, lambda m, *a: value(*a))

    def _rebuilt(self, kind: type) -> Known | None:
        """A class whose objects are made without running any of its code."""
        if issubclass(kind, Module):
            self.own[kind] = "module"
            return Known(kind, None, lambda m: _empty_module(kind))
        if not _of_program(kind.__module__):
            return None
        if issubclass(kind, Enum):
            return Known(kind, lambda m, value: _member(m, kind, value))
        if issubclass(kind, tuple) and hasattr(kind, "_fields"):
            return Known(kind, None, lambda m, *a: _named_tuple(m, kind, a))
        if not _is_plain(kind):
            return None
        self.own[kind] = "plain"
        return Known(kind, None, lambda m: object.__new__(kind))

    def _refuse(self, path: str, module: str, name: str) -> Known:
        shown = path[:200]
        value = _layer(module, name) or _imported(module, name)
        if path.partition(".")[0] in _BLOCKED and not isinstance(value, type):
            raise self._unsafe(
                f"the file needs {shown}, which may do anything and which no file may "
                "use. Nothing of it was run. Weights need no such name: do not trust it"
            )
        allow = f"weft.serialization.add_safe_globals([{name[:80]}])"
        advice = f"If you trust it, allow it: {allow}"
        if self.weights_only and isinstance(value, type) and issubclass(value, Module):
            advice = (
                "It is a module: load the file with weights_only=False, which runs "
                f"nothing of the file, or save its state_dict(). {advice}"
            )
        elif module.startswith("torch.nn.modules"):
            advice = f"Save the state_dict() of this {name[:80]} instead"
        raise self._unsafe(
            f"the file needs {shown}, which files may not use by default. {advice}"
        )

    # -- states

    def build(self, m: Machine, target: Any, state: Any) -> None:
        """Give an object its state."""
        kind = type(target)
        how = self.own.get(kind)
        if kind is OrderedDict:
            target.__dict__.update(_attributes(m, state))
        elif kind is np.ndarray:
            _fill_array(m, target, state)
        elif isinstance(target, np.dtype):
            if state[1] not in ("<", "|", "="):
                raise m.bad("expected a NumPy array in this machine's byte order")
        elif how == "module":
            _fill_module(m, target, _attributes(m, state))
        elif how == "plain":
            _fill_plain(m, target, state)
        elif how == "trusted":
            _fill_trusted(target, state)
        else:
            raise m.bad(f"a {kind.__name__} has a state, and takes none")


def _attributes(m: Machine, state: Any) -> dict[str, Any]:
    if not isinstance(state, dict) or not all(type(key) is str for key in state):
        raise m.bad("expected the state of an object to be a dictionary of attributes")
    return state


def _fill_trusted(target: Any, state: Any) -> None:
    """As Python's pickles do, for a class that the program allows."""
    if hasattr(target, "__setstate__"):
        target.__setstate__(state)
        return
    slots: Any = None
    if isinstance(state, tuple) and len(state) == 2:
        state, slots = state
    target.__dict__.update(state or {})
    for key, value in (slots or {}).items():
        setattr(target, key, value)


def _fill_plain(m: Machine, target: Any, state: Any) -> None:
    """Attributes and slots of an object, past everything its class defines."""
    slots: Any = {}
    if isinstance(state, tuple) and len(state) == 2:
        state, slots = state
    if state:
        target.__dict__.update(_attributes(m, state))
    for key, value in (_attributes(m, slots) if slots else {}).items():
        object.__setattr__(target, key, value)


def _reconstructor(m: Machine, kind: Any, base: Any, state: Any) -> Any:
    """An object of protocol 0 or 1."""
    if state is not None:
        raise m.bad("expected an object without a value besides its attributes")
    return m.apply(kind, "new", ())


# -- modules and objects of the program


# Packages of Weft whose modules whole models are made of, imported when a file has one.
_OWN_PACKAGES = {"weft.models": "models", "weft.quantization": "quantization"}


def _package(module: str) -> str:
    return ".".join(module.split(".")[:2])


def _imported(module: str, name: str) -> Any:
    """What an imported module has under a name. Nothing is imported, or asked for."""
    found: Any = sys.modules.get(module)
    for part in name.split("."):
        found = getattr(found, "__dict__", {}).get(part)
    return found


def _layer(module: str, name: str) -> Any:
    """The layer of Weft that PyTorch's pickles mean by a name."""
    if not module.startswith("torch.nn.modules.") or name not in LAYERS:
        return None
    from weft import nn

    return getattr(nn, name)


# Layers whose attributes are those of PyTorch's: whole models of them can be read.
_LAYERS = """
    Sequential ModuleList ModuleDict Identity Flatten Unflatten Linear Bilinear
    Embedding Conv1d Conv2d Conv3d ConvTranspose1d ConvTranspose2d
    BatchNorm1d BatchNorm2d BatchNorm3d InstanceNorm2d LayerNorm RMSNorm GroupNorm
    ReLU ReLU6 PReLU LeakyReLU ELU SELU CELU GELU SiLU Mish GLU Sigmoid LogSigmoid Tanh
    Hardtanh Hardswish Softmax LogSoftmax Softplus Softsign Dropout Dropout2d
    MaxPool1d MaxPool2d AvgPool1d AvgPool2d AdaptiveAvgPool1d AdaptiveAvgPool2d
    AdaptiveMaxPool2d Upsample ZeroPad2d PixelShuffle LSTMCell GRUCell
"""
LAYERS = frozenset(_LAYERS.split())


def _is_layers_function(module: str, value: Any) -> bool:
    """Whether a value is one of Weft's functions of tensors, as layers hold them.

    A file may refer to it, but not call it.
    """
    if any(value is one for one in EXPORTED.values()):
        return True
    return type(value) is FunctionType and module.startswith("weft.nn.")


def _of_program(module: str) -> bool:
    """Whether a module is of the program, rather than of a library."""
    if module == "__main__":
        return True
    file = getattr(sys.modules.get(module), "__file__", None)
    if file is None or is_installed(file):
        return False
    return not is_library(file) and not INTERNAL[file]


_OWN_CODE = ("__new__", "__setstate__", "__reduce__", "__reduce_ex__", "__del__")


def _is_plain(kind: type) -> bool:
    """Whether objects of a class are attributes and nothing else."""
    return all(getattr(kind, n, None) is getattr(object, n, None) for n in _OWN_CODE)


def _member(m: Machine, kind: Any, value: Any) -> Any:
    found = kind._value2member_map_.get(m.key(value))
    if found is None:
        raise m.bad(f"{kind.__name__} has no such member")
    return found


def _named_tuple(m: Machine, kind: Any, values: tuple[Any, ...]) -> Any:
    if len(values) != len(kind._fields):
        raise m.bad(f"expected a {kind.__name__} of {len(kind._fields)} fields")
    return tuple.__new__(kind, values)


def _empty_module(kind: type) -> Module:
    """A module without parameters; its class's own code, __init__, does not run."""
    made: Any = object.__new__(kind)
    fields = made.__dict__
    fields["training"] = True
    fields |= {name: Members(made) for name in KINDS}
    fields["_non_persistent_buffers_set"] = set()
    fields |= {name: OrderedDict() for name in HOOKS}
    return made


def _fill_module(m: Machine, made: Any, state: dict[str, Any]) -> None:
    """Enter parameters, buffers, submodules and other attributes of a module."""
    fields = made.__dict__
    for key, value in state.items():
        if key in KINDS:
            _check_members(m, key, value)
            for name, item in value.items():
                fields[key][name] = item
        elif key in HOOKS or key.endswith("_hooks"):
            if value:
                raise m.bad(f"a {type(made).__name__} has hooks, which are code")
        elif key == "_non_persistent_buffers_set":
            fields[key] = set(value)
        elif key not in _LEFT_OUT:
            fields[key] = value


_LEFT_OUT = frozenset((
    "_forward_hooks_with_kwargs", "_forward_hooks_always_called",
    "_forward_pre_hooks_with_kwargs", "_is_full_backward_hook",
))  # fmt: skip
_KIND_OF = {"_parameters": Tensor, "_buffers": Tensor, "_modules": Module}


def _check_members(m: Machine, key: str, value: Any) -> None:
    fits = _KIND_OF[key]
    if not isinstance(value, dict) or not all(
        type(name) is str and (item is None or isinstance(item, fits))
        for name, item in value.items()
    ):
        raise m.bad(f"expected {key} to map names to a {fits.__name__} each")
