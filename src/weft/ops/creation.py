"""Making tensors: from Python values, from arrays, and filled ones."""

from __future__ import annotations

import math
import operator
from typing import Any

import numpy as np

from weft import dtype as dtypes
from weft import late
from weft.core.device import Device
from weft.core.device import device as find_device
from weft.core.dims import as_int
from weft.core.dispatch import bind
from weft.core.lowering import Filled
from weft.core.meta import meta, without_values
from weft.core.mode import mode
from weft.core.number import Number
from weft.core.op import Op, Sample, TensorType, define
from weft.core.size import OpenSizeError, Size, larger
from weft.core.tensor import Tensor
from weft.dtype import DType, as_dtype, default_dtype
from weft.dtype_info import check_stored, fits, refusal_to_store, wrapped
from weft.errors import (
    ArgumentError,
    DTypeError,
    ShapeError,
    WeftError,
)
from weft.ops.inplace import write_out
from weft.ops.memory_format import (
    channels_last,
    channels_last_3d,
    check_format,
    contiguous_format,
    has_format,
    order_of,
    preserve_format,
)
from weft.ops.public import public
from weft.runtime import allocation
from weft.runtime.cpu.buffers import physical_memory
from weft.runtime.cpu.buffers import zeros as zeros_array

ndarray = np.ndarray
new = object.__new__
_F64 = dtypes.float64.np


# -- from values


@public()
def tensor(
    data: Any,
    *,
    dtype: Any = None,
    device: str | Device | None = None,
    requires_grad: bool = False,
    pin_memory: bool = False,
) -> Tensor:
    """A tensor with a copy of the data: numbers, nested lists, arrays or tensors.

    Python floats become the default dtype, integers int64.

    >>> weft.tensor([[1, 2], [3, 4]])
    tensor([[1, 2],
            [3, 4]])
    """
    plain = dtype is device is mode.device is None and not requires_grad
    if plain and type(data) is list:
        for number in data:
            if type(number) is not float:
                break
        else:
            return Tensor(np.array(data, default_dtype().np))
    if mode.capture is not None and isinstance(data, (Tensor, ndarray)):
        return _tensor_in_capture(data, dtype)
    if isinstance(data, Size):
        return full((), data, dtype=as_dtype(dtype or dtypes.int64), device=device)
    if type(data) is Number:
        return full((), data, dtype=dtype, device=device)
    if isinstance(data, Tensor):
        data = data.array()
    if type(data) is ndarray or isinstance(data, np.generic):
        array = np.array(data, dtype=_np_dtype(dtype, data))
    else:
        array = _from_python(data, dtype)
    return placed(Tensor(array), device, requires_grad)


def placed(out: Tensor, device: Any, requires_grad: bool = False) -> Tensor:
    """A new tensor on the given device, or on the default device."""
    if device is None:
        device = mode.device
    if device is not None and device is not out.device:
        out = out.to(find_device(device))
    return out.requires_grad_() if requires_grad else out


def on_meta(device: Any) -> bool:
    """Whether a new tensor with this ``device`` argument has no values."""
    return (mode.device if device is None else find_device(device)) is meta


def _unvalued(shape: Any, dtype: DType, requires_grad: bool) -> Tensor:
    out = without_values(shape, dtype)
    return out.requires_grad_() if requires_grad else out


def _tensor_in_capture(data: Any, dtype: Any) -> Tensor:
    """A copy of a tensor or an array that every run reads anew."""
    source = data.detach() if isinstance(data, Tensor) else from_numpy(data)
    return source.clone() if dtype is None else source.to(as_dtype(dtype), copy=True)


def _np_dtype(dtype: Any, array: Any) -> Any:
    if dtype is not None:
        return as_dtype(dtype).np
    return dtypes.of_array(array).np


def _from_python(data: Any, dtype: Any) -> ndarray:
    first = _first(data)
    data = _bare(data)
    try:
        array = np.array(data)
    except ValueError:
        raise ShapeError(
            f"tensor: expected nested sequences of equal lengths, got {_ragged(data)}"
        ) from None
    except TypeError as error:
        raise DTypeError(f"tensor: {error}") from None
    foreign = array.dtype == object or array.dtype.kind in "USmMV"
    if foreign and array.dtype != dtypes.bfloat16.np:
        raise _not_numbers(data)
    if isinstance(first, Tensor) and first.dtype.np.kind == array.dtype.kind:
        dtype = first.dtype if dtype is None else dtype
    if dtype is not None:
        if array.dtype.kind == "f" and as_dtype(dtype) is dtypes.uint64:
            array = _large(data, array)
        return _to(array, as_dtype(dtype))
    if array.dtype.kind == "f" and not isinstance(first, (np.generic, ndarray)):
        return array.astype(default_dtype().np)
    if array.dtype.kind == "c" and not isinstance(first, (np.generic, ndarray)):
        return array.astype(default_dtype().to_complex().np)
    if array.dtype.kind == "u" and not isinstance(first, (np.generic, ndarray)):
        return _to(array, dtypes.int64)
    if array.size == 0 and array.dtype == _F64:
        return array.astype(default_dtype().np)
    return array


def _large(data: Any, array: ndarray) -> ndarray:
    """Whole numbers, exactly, of which NumPy makes floating-point ones."""
    exact = np.array(data, object)
    whole = all(isinstance(x, int) for x in exact.flat)
    if whole and exact.size and exact.min() >= 0 and exact.max() < 1 << 64:
        return exact.astype(np.uint64)
    return array


def _first(data: Any) -> Any:
    """The first element of nested sequences (NumPy's own keep their precision)."""
    while isinstance(data, (list, tuple)) and data:
        data = data[0]
    return data


def _bare(data: Any) -> Any:
    """Sequences with the tensors in them replaced by their arrays."""
    if isinstance(data, Tensor):
        return data.array()
    if isinstance(data, (list, tuple)) and any(
        issubclass(kind, (Tensor, list, tuple)) for kind in set(map(type, data))
    ):
        return [_bare(x) for x in data]
    return data


def _not_numbers(data: Any) -> Exception:
    """An error that names the value which cannot be stored."""
    stack = [data]
    while stack:
        item = stack.pop()
        if isinstance(item, (list, tuple)):
            stack.extend(reversed(item))
        elif not isinstance(item, (int, float, complex, np.generic, ndarray)):
            kind, shown = type(item).__name__, repr(item)[:40]
            return DTypeError(f"tensor: expected numbers, got {kind} ({shown})")
    return ArgumentError("tensor: an integer does not fit into int64")


def _ragged(data: Any) -> str:
    """The position at which the lengths of nested lists first differ."""
    lengths = [len(x) if isinstance(x, (list, tuple)) else "a number" for x in data]
    if len({str(n) for n in lengths}) > 1:
        shown = ", ".join(map(str, lengths[:8]))
        return f"lengths {shown}{', …' if len(lengths) > 8 else ''}"
    return "lengths that differ further inside"


def _to(array: ndarray, dtype: DType) -> ndarray:
    if array.dtype.kind == "c" and not dtype.is_complex:
        raise DTypeError(f"tensor: complex numbers do not fit into {dtype.name}")
    if dtype.category == dtypes.INT and array.dtype.kind in "iuf" and array.size:
        if array.dtype.kind == "f":
            refused = array[~fits(array, dtype)]
        else:
            limits = np.iinfo(dtype.np)
            refused = array[(array < limits.min) | (array > limits.max)]
        if refused.size:
            bad = refused.flat[0].item()
            raise ArgumentError(refusal_to_store("tensor", bad, dtype))
    return array.astype(dtype.np)


@public()
def as_tensor(
    data: Any, dtype: Any = None, device: str | Device | None = None
) -> Tensor:
    """A tensor of the data, sharing memory where no conversion is needed.

    >>> array = np.zeros(2)
    >>> weft.as_tensor(array)[0] = 5
    >>> array
    array([5., 0.])
    """
    if isinstance(data, Tensor):
        out = data
    elif isinstance(data, ndarray):
        out = from_numpy(data)
    elif hasattr(data, "__array_interface__") and not isinstance(data, np.generic):
        out = from_numpy(np.asarray(data))
    elif hasattr(data, "__cuda_array_interface__"):
        out = late.find("from_cuda_array")(data)
    else:
        return tensor(data, dtype=dtype, device=device)
    if dtype is not None:
        out = out.to(as_dtype(dtype))
    return out if device is None else out.to(device)


@public()
def asarray(
    obj: Any,
    *,
    dtype: Any = None,
    device: str | Device | None = None,
    copy: bool | None = None,
    requires_grad: bool | None = None,
) -> Tensor:
    """A tensor of anything: shared memory, unless ``copy`` or a conversion is needed.

    With ``requires_grad=False`` a tensor loses its history, else it keeps it.

    >>> array = np.zeros(2, np.float32)
    >>> weft.asarray(array, copy=True)[0] = 5
    >>> array
    array([0., 0.], dtype=float32)
    """
    if requires_grad is False and isinstance(obj, Tensor):
        obj = obj.detach()
    out = as_tensor(obj, dtype, device)
    if copy and (isinstance(obj, (Tensor, ndarray)) or hasattr(obj, "__dlpack__")):
        out = out.clone()
    if copy is False and not _shares_memory(obj, out):
        raise ArgumentError(
            f"asarray: copy=False, but a {type(obj).__name__} cannot become a "
            f"{out.dtype.name} tensor without a copy"
        )
    if requires_grad and not out.requires_grad:
        out.requires_grad_()
    return out


def _shares_memory(obj: Any, out: Tensor) -> bool:
    if isinstance(obj, Tensor):
        return out is obj or np.shares_memory(obj.to_host(), out.to_host())
    return isinstance(obj, ndarray) and np.shares_memory(obj, out.to_host())


@public()
def from_numpy(ndarray: np.ndarray) -> Tensor:
    """A tensor that shares the array's memory.

    >>> array = np.arange(3.0)
    >>> weft.from_numpy(array).mul_(2)
    tensor([0., 2., 4.], dtype=weft.float64)
    >>> array
    array([0., 2., 4.])
    """
    if not isinstance(ndarray, np.ndarray):
        raise DTypeError(
            f"from_numpy: expected a numpy.ndarray, got {type(ndarray).__name__}"
        )
    array = ndarray
    if not array.dtype.isnative:
        raise DTypeError(
            f"from_numpy: expected the machine's byte order, got {array.dtype}; "
            "convert it with .astype(array.dtype.newbyteorder('='))"
        )
    dtypes.of_array(array)
    out = Tensor(array.view(np.ndarray) if type(array) is not np.ndarray else array)
    if mode.capture is not None:  # which reads the array anew in every run
        mode.capture.note_array(array)
    out._capture = None
    out.storage_record.exposed = True
    return out


# -- sizes


def parse_size(name: str, size: tuple[Any, ...]) -> tuple[int, ...]:
    """A shape from ``f(2, 3)`` or ``f((2, 3))``; negative sizes are refused."""
    if len(size) == 1 and isinstance(size[0], (tuple, list)):
        size = tuple(size[0])
    found: list[Any] = [_size(name, n) for n in size]
    if any(n < 0 for n in found):
        raise ShapeError(f"{name}: expected sizes of at least 0, got {size}")
    return tuple(found)


def _size(name: str, n: Any) -> Any:
    if isinstance(n, bool):
        raise DTypeError(f"{name}: expected integer sizes, got bool ({n})")
    return as_int(name, n, "integer sizes")


def check_memory(name: str, shape: tuple[int, ...], dtype: DType) -> None:
    """Refuse a tensor that cannot fit into memory before asking for it."""
    nbytes: Any = dtype.itemsize
    for n in shape:
        nbytes *= n
    if isinstance(nbytes, Size):
        return
    if nbytes > 1 << 28 and nbytes > physical_memory():
        raise late.find("memory_report").beyond(
            f"{name}: a {dtype.name} tensor of shape {shape} needs {nbytes:,} bytes; "
            f"this machine has {physical_memory():,}",
            nbytes,
        )


def optioned(fn: Any, more: dict[str, Any], *args: Any, **given: Any) -> Tensor:
    """A function that makes a tensor, with the options that all of PyTorch's take.

    ``out`` is a tensor to write to; ``layout`` must be strided; ``pin_memory`` changes
    nothing here.
    """
    from weft.layouts import check_strided

    name = fn.__name__
    out = more.pop("out", None)
    check_strided(name, more.pop("layout", None))
    more.pop("pin_memory", None)
    if more:
        raise DTypeError(f"{name}: unexpected arguments {', '.join(sorted(more))}")
    if out is None:
        return fn(*args, **given)
    if given.get("dtype") is None:
        given["dtype"] = out.dtype
    return write_out(out, fn(*args, **given), name)


# -- filled tensors


def _full_eval(*, shape: tuple[int, ...], value: Any, dtype: DType) -> Any:
    if type(value) is int and value == 0:  # 0.0 may be -0.0
        return zeros_array(shape, dtype.np)
    if isinstance(value, Size):  # an open one says so here, whatever the dtype
        value = int(value)
    return np.full(shape, value, dtype.np)


full_op: Op = define(
    "full",
    inputs="",
    eval=_full_eval,
    type=lambda *, shape, value, dtype: TensorType(shape, dtype),
    lower=Filled(lambda out, *, shape, value, dtype: value),
    samples=lambda rng: [
        Sample((), {"shape": s, "value": v, "dtype": d})
        for s, v, d in (
            ((2, 3), 1.5, dtypes.float64),
            ((), 2, dtypes.int64),
            ((0, 2), 0.0, dtypes.float32),
        )
    ],
    reference=lambda *, shape, value, dtype: np.zeros(shape, dtype.np) + value,
)


def _filled(
    name: str,
    shape: tuple[int, ...],
    value: Any,
    dtype: Any,
    device: Any = None,
    requires_grad: bool = False,
) -> Tensor:
    dtype = default_dtype() if dtype is None else as_dtype(dtype)
    if on_meta(device):
        return _unvalued(shape, dtype, requires_grad)
    check_memory(name, shape, dtype)
    if type(value) is Number:
        from weft.ops.require import require_stored

        held = require_stored(name, value, dtype).tensor
        return held.to(dtype).expand(shape).clone()
    check_stored(name, value, dtype)
    given = {"shape": shape, "value": wrapped(value, dtype), "dtype": dtype}
    try:
        out = Tensor(_full_eval(**given)) if mode.state else bind(full_op, (), given)
    except OpenSizeError:  # a size of a graph that is being built
        out = bind(full_op, (), given)
    except (OverflowError, ValueError) as error:
        if isinstance(error, WeftError):
            raise
        raise ArgumentError(f"{name}: {error}") from None
    except MemoryError as error:
        raise _no_memory(name, shape, dtype, error) from None
    return placed(out, device, requires_grad)


def _no_memory(name: str, shape: Any, dtype: DType, error: Exception) -> Exception:
    """The error of an array that the system has no memory for."""
    if isinstance(error, WeftError):
        return error
    return late.find("memory_report").failure(
        name, math.prod(shape) * dtype.itemsize, error
    )


@public()
def zeros(
    *sizes: Any,
    size: Any = None,
    dtype: Any = None,
    device: Any = None,
    requires_grad: bool = False,
    **more: Any,
) -> Tensor:
    """A tensor of zeros.

    >>> weft.zeros(2, 2)
    tensor([[0., 0.],
            [0., 0.]])
    """
    if more:
        return optioned(
            zeros,
            more,
            *sizes,
            size=size,
            dtype=dtype,
            device=device,
            requires_grad=requires_grad,
        )
    plain = dtype is size is device is mode.device is None and not requires_grad
    if plain and mode.state:
        try:
            out = new(Tensor)
            out._data = array = np.zeros(sizes, default_dtype().np)
            if array.size < 1 << 26:
                out._node = None
                return out
        except (TypeError, ValueError, MemoryError):
            pass  # sizes as one sequence, or an error that is explained below
    shape = parse_size("zeros", sizes if size is None else (size,))
    return _filled("zeros", shape, 0, dtype, device, requires_grad)


@public()
def ones(
    *sizes: Any,
    size: Any = None,
    dtype: Any = None,
    device: Any = None,
    requires_grad: bool = False,
    **more: Any,
) -> Tensor:
    """A tensor of ones.

    >>> weft.ones(3, dtype=weft.int64)
    tensor([1, 1, 1])
    """
    if more:
        return optioned(
            ones,
            more,
            *sizes,
            size=size,
            dtype=dtype,
            device=device,
            requires_grad=requires_grad,
        )
    shape = parse_size("ones", sizes if size is None else (size,))
    return _filled("ones", shape, 1, dtype, device, requires_grad)


@public()
def full(
    size: Any,
    fill_value: Any,
    *,
    dtype: Any = None,
    device: Any = None,
    requires_grad: bool = False,
    **more: Any,
) -> Tensor:
    """A tensor filled with one value.

    >>> weft.full((2,), 7)
    tensor([7, 7])
    """
    if more:
        return optioned(
            full,
            more,
            size,
            fill_value,
            dtype=dtype,
            device=device,
            requires_grad=requires_grad,
        )
    if isinstance(fill_value, Tensor):
        if dtype is None:
            dtype = fill_value.dtype
        fill_value = fill_value.item()
    if not isinstance(fill_value, (int, float, complex, np.generic, Size)):
        raise DTypeError(
            f"full: expected a number, got {type(fill_value).__name__} ({fill_value!r})"
        )
    if dtype is None:
        dtype = _scalar_dtype(fill_value)
    shape = parse_size("full", (size,))
    return _filled("full", shape, fill_value, dtype, device, requires_grad)


def _scalar_dtype(value: Any) -> DType:
    """A number's dtype; NumPy's bool, which is no int, counts as one of ours."""
    return dtypes.scalar_dtype(value.item() if isinstance(value, np.generic) else value)


@public()
def empty(
    *sizes: Any,
    size: Any = None,
    dtype: Any = None,
    device: Any = None,
    requires_grad: bool = False,
    memory_format: Any = contiguous_format,
    **more: Any,
) -> Tensor:
    """A tensor whose elements are not set to anything in particular.

    >>> weft.empty(2, 3).shape
    (2, 3)
    """
    if more:
        return optioned(
            empty,
            more,
            *sizes,
            size=size,
            dtype=dtype,
            device=device,
            requires_grad=requires_grad,
            memory_format=memory_format,
        )
    shape = parse_size("empty", sizes if size is None else (size,))
    dtype = default_dtype() if dtype is None else as_dtype(dtype)
    if on_meta(device):
        return _unvalued(shape, dtype, requires_grad)
    check_memory("empty", shape, dtype)
    try:
        allocation.allow("empty", math.prod(shape) * dtype.itemsize)
        out = Tensor(allocation.noted(_unset(shape, dtype, memory_format), "empty"))
    except (MemoryError, ValueError) as error:
        raise _no_memory("empty", shape, dtype, error) from None
    return placed(out, device, requires_grad)


def _unset(shape: tuple[int, ...], dtype: DType, memory_format: Any) -> ndarray:
    """Memory in a format."""
    if memory_format is contiguous_format:
        return np.empty(shape, dtype.np)
    form = check_format("empty", memory_format)
    shown = np.broadcast_to(np.empty((), dtype.np), shape)  # its shape alone
    order = order_of("empty", shown, form)
    return np.empty([shape[d] for d in order], dtype.np).transpose(np.argsort(order))


WITHOUT_EFFECT = ("layout", "pin_memory")


def _like(name: str, input: Tensor, value: Any, dtype: Any, options: Any) -> Tensor:
    if input._part is not input:  # processes share it out
        made = _like(name, input._part, value, dtype, options)
        return input._with_part(made)
    dtype = input.dtype if dtype is None else as_dtype(dtype)
    if isinstance(value, Tensor):
        value = value.item()
    if not isinstance(value, (int, float, complex, np.generic, Size)):
        raise DTypeError(f"{name}: expected a number, got {type(value).__name__}")
    device = options.pop("device", None) or input.device
    form = options.pop("memory_format", preserve_format)
    if options:
        options = {k: v for k, v in options.items() if k not in WITHOUT_EFFECT}
    made = _filled(name, input.shape, value, dtype, device, **options)
    return made if form is preserve_format else made.contiguous(memory_format=form)


@public()
def zeros_like(input: Tensor, *, dtype: Any = None, **options: Any) -> Tensor:
    """Zeros with another tensor's shape and dtype.

    >>> weft.zeros_like(weft.tensor([1, 2]))
    tensor([0, 0])
    """
    return _like("zeros_like", input, 0, dtype, options)


@public()
def ones_like(input: Tensor, *, dtype: Any = None, **options: Any) -> Tensor:
    """Ones with another tensor's shape and dtype.

    >>> weft.ones_like(weft.tensor([1.5, 2.5]))
    tensor([1., 1.])
    """
    return _like("ones_like", input, 1, dtype, options)


@public()
def full_like(
    input: Tensor, fill_value: Any, *, dtype: Any = None, **options: Any
) -> Tensor:
    """One value with another tensor's shape and dtype.

    >>> weft.full_like(weft.tensor([1, 2]), 9)
    tensor([9, 9])
    """
    return _like("full_like", input, fill_value, dtype, options)


@public()
def empty_like(
    input: Tensor, *, dtype: Any = None, memory_format: Any = preserve_format,
    **options: Any,
) -> Tensor:  # fmt: skip
    """An unset tensor with another tensor's shape, dtype and order in memory.

    >>> weft.empty_like(weft.ones(2, 3)).shape
    (2, 3)
    """
    form = check_format("empty_like", memory_format)
    if form is preserve_format:
        form = contiguous_format
        for other in (channels_last, channels_last_3d):
            array = (
                input.layout_array() if input.ndim == len(other.order or ()) else None
            )
            if isinstance(array, ndarray) and array.ndim == input.ndim:
                form = other if has_format(array, other) else form
    given = {"dtype": input.dtype if dtype is None else dtype, "device": input.device}
    return empty(input.shape, memory_format=form, **{**given, **options})


# -- ranges and matrices


def python_number(name: str, value: Any) -> Any:
    """A Python number from a number or a tensor of one element."""
    if isinstance(value, (Tensor, np.generic)):
        return value.item()
    if not isinstance(value, (int, float, complex, Size)):
        raise DTypeError(f"{name}: expected numbers, got {type(value).__name__}")
    return value


def _arange_eval(*, start: Any, step: Any, count: int, dtype: DType) -> Any:
    return (start + step * np.arange(operator.index(count))).astype(dtype.np)


arange_op: Op = define(
    "arange",
    inputs="",
    eval=_arange_eval,
    type=lambda *, start, step, count, dtype: TensorType((count,), dtype),
    lower=Filled(lambda out, *, start, step, count, dtype: start + out[0] * step),
    samples=lambda rng: [
        Sample((), {"start": a, "step": s, "count": n, "dtype": d})
        for a, s, n, d in (
            (0, 1, 5, dtypes.int64),
            (-1.5, 0.5, 4, dtypes.float64),
            (3, -2, 3, dtypes.int32),
            (0, 1, 0, dtypes.float32),
        )
    ],
    reference=lambda *, start, step, count, dtype: np.array(
        [start + step * k for k in range(count)], dtype.np
    ),
)


@public()
def arange(
    start: Any = None,
    end: Any = None,
    step: Any = 1,
    *,
    dtype: Any = None,
    device: Any = None,
    requires_grad: bool = False,
    **more: Any,
) -> Tensor:
    """The numbers from ``start`` up to (not including) ``end``.

    >>> weft.arange(5)
    tensor([0, 1, 2, 3, 4])
    >>> weft.arange(0, 1, 0.5)
    tensor([0.0000, 0.5000])
    """
    if more:
        return optioned(
            arange,
            more,
            start,
            end,
            step,
            dtype=dtype,
            device=device,
            requires_grad=requires_grad,
        )
    if end is None:
        start, end = None, start
    if end is None:
        raise DTypeError("arange: expected arange(end) or arange(start, end)")
    start = 0 if start is None else start
    values = [python_number("arange", v) for v in (start, end, step)]
    start, end, step = values
    if any(isinstance(v, Size) for v in values):
        return _arange_sized(start, end, step, dtype)
    if any(isinstance(v, complex) or not np.isfinite(v) for v in values):
        raise ArgumentError(f"arange: expected finite real numbers, got {values}")
    if dtype is not None and as_dtype(dtype) is dtypes.int64:
        start, end, step = values = [int(v) for v in values]  # as PyTorch counts
    if step == 0:
        raise ArgumentError(
            "arange: step must not be 0, nor between -1 and 1 for integers"
        )
    if (end - start) * step < 0:
        raise ArgumentError(
            f"arange: cannot go from {start} to {end} in steps of {step}"
        )
    if dtype is None:
        whole = all(isinstance(v, (int, np.integer)) for v in values)
        dtype = dtypes.int64 if whole else default_dtype()
    chosen = as_dtype(dtype)
    count = int(np.ceil((end - start) / step))
    if not chosen.is_inexact:
        start, step = int(start), int(step)
    check_memory("arange", (count,), chosen)
    given = {"start": start, "step": step, "count": count, "dtype": chosen}
    out = Tensor(_arange_eval(**given)) if mode.state else bind(arange_op, (), given)
    return placed(out, device, requires_grad)


def _arange_sized(start: Any, end: Any, step: Any, dtype: Any) -> Tensor:
    """``arange`` where a bound is known only when the program runs."""
    if type(step) is not int or step <= 0:
        raise ArgumentError(f"arange: expected a positive int as step, got {step}")
    count = larger((end - start + (step - 1)) // step, 0)
    chosen = dtypes.int64 if dtype is None else as_dtype(dtype)
    params = {"start": start, "step": step, "count": count, "dtype": chosen}
    return bind(arange_op, (), params)


@public()
def eye(
    n: int,
    m: int | None = None,
    *,
    dtype: Any = None,
    device: Any = None,
    requires_grad: bool = False,
    **more: Any,
) -> Tensor:
    """Ones on the diagonal and zeros elsewhere.

    >>> weft.eye(2)
    tensor([[1., 0.],
            [0., 1.]])
    """
    if more:
        return optioned(
            eye, more, n, m, dtype=dtype, device=device, requires_grad=requires_grad
        )
    shape = parse_size("eye", (n, n if m is None else m))
    chosen = as_dtype(dtype or default_dtype())
    check_memory("eye", shape, chosen)
    if any(isinstance(size, Size) for size in shape):
        rows, columns = map(arange, shape)
        return (rows.unsqueeze(1) == columns).to(chosen)
    return placed(Tensor(np.eye(*shape, dtype=chosen.np)), device, requires_grad)


@public()
def scalar_tensor(
    s: Any,
    *,
    dtype: Any = None,
    device: Any = None,
    requires_grad: bool = False,
    **more: Any,
) -> Tensor:
    """A 0-d tensor, in the default dtype unless one is named.

    >>> weft.scalar_tensor(3)
    tensor(3.)
    """
    kind = default_dtype() if dtype is None else dtype
    return full((), s, dtype=kind, device=device, requires_grad=requires_grad, **more)
