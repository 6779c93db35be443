"""Operators of quantised networks: rounding to integers, and packed weights.

    quantize_affine        q = clamp(round(x * inverse) + zero_point, low, high)
    fake_quantize_affine   (q - zero_point) * scale, with q as above
    unpack_int4            bytes as two numbers of four bits each
    weight_only_matmul     x @ w.T of float32 x and integer w, scaled by groups

Rounding is to even, and a NaN becomes ``low``. ``inverse`` is 1 / scale in the dtype of
x, so that the numbers are PyTorch's. Products of int8 are ``wide_matmul``'s.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from weft import dtype as dtypes
from weft.core.blas import product
from weft.core.dims import normalize_dim
from weft.core.dispatch import bind
from weft.core.eager_kernels import COMPOSED, SLOW
from weft.core.lowering import Composed, Element, Library
from weft.core.op import Op, Sample, TensorType, define
from weft.core.tensor import Tensor
from weft.errors import ArgumentError, DTypeError, ShapeError
from weft.ops.arithmetic import mul
from weft.ops.broadcasting import expand
from weft.ops.copies import HALF, cast
from weft.ops.creation import full, zeros_like
from weft.ops.elementwise import device_of, elementwise_batch, elementwise_type
from weft.ops.products import matmul
from weft.ops.public import public
from weft.ops.rounding import round
from weft.ops.select import where
from weft.ops.shaping import permute, reshape

# -- rounding to integers


def _rounded(x: Any, inverse: Any, zero_point: Any, low: int, high: int) -> Any:
    _check_real(x.dtype.name)
    number = np.rint(x * inverse) + zero_point
    return np.fmin(np.fmax(number, low), high)  # which take the number, not a NaN


def _quantize_eval(
    x: Any, inverse: Any, zero_point: Any, *, low: int, high: int, dtype: dtypes.DType
) -> Any:
    return _rounded(x, inverse, zero_point, low, high).astype(dtype.np)


def _in_words(
    call: Any, x: Any, inverse: Any, zero_point: Any, low: int, high: int
) -> Any:
    """The same as calls of other operators."""
    number = call("add", call("round", call("mul", x, inverse)), zero_point)
    number = call("where", call("ge", number, float(low)), number, float(low))
    return call("where", call("le", number, float(high)), number, float(high))


def _quantize_calls(
    call: Any, x: Any, inverse: Any, zero_point: Any, *, low: int, high: int, dtype: Any
) -> Any:
    number = _in_words(call, x, inverse, zero_point, low, high)
    return call("cast", number, dtype=dtype)


def _quantize_type(*types: Any, dtype: dtypes.DType, **params: Any) -> TensorType:
    return TensorType(_real_type("quantize_affine", types).shape, dtype)


def _real_type(name: str, types: Any) -> TensorType:
    found: TensorType = elementwise_type(name, "floating", "same")(*types)
    _check_real(found.dtype.name)
    return found


def _check_real(name: str) -> None:
    if name not in ("float32", "float64"):
        raise DTypeError(f"quantizing: expected float32 or float64, got {name}")


def _quantize_samples(rng: np.random.Generator) -> Any:
    for shape in ((3, 4), (), (0, 2)):
        params = {"low": 0, "high": 255, "dtype": dtypes.uint8}
        yield Sample((rng.uniform(-2, 2, shape), 64.0, 100.0), params)
        params = {"low": -128, "high": 127, "dtype": dtypes.int8}
        inverse, zero_point = rng.uniform(30, 90, shape), rng.integers(-9, 9, shape)
        yield Sample(
            (rng.uniform(-2, 2, shape), inverse, zero_point.astype(float)), params
        )


quantize_op: Op = define(
    "quantize_affine",
    inputs="x inverse zero_point",
    eval=_quantize_eval,
    type=_quantize_type,
    lower=Composed(_quantize_calls),
    batch=elementwise_batch,
    bulk=COMPOSED,
    cost=6,
    samples=_quantize_samples,
    reference=lambda x, inverse, zero_point, *, low, high, dtype: np.clip(
        np.round(x * inverse) + zero_point, low, high
    ).astype(dtype.np),
)


def quantized(
    x: Tensor, scale: Tensor, zero_point: Tensor, low: int, high: int, dtype: Any
) -> Tensor:
    """``clamp(round(x / scale) + zero_point, low, high)`` as integers of a dtype.

    Scales and zero points are of x's dtype, and are broadcast.
    """
    inverse = expand(1.0 / scale, x.shape)
    return quantize_op(
        x, inverse, expand(zero_point, x.shape), low=low, high=high, dtype=dtype
    )


# -- the same, back as numbers: what training for it sees


def _fake_eval(
    x: Any, inverse: Any, scale: Any, zero_point: Any, *, low: int, high: int
) -> Any:
    return (_rounded(x, inverse, zero_point, low, high) - zero_point) * scale


def _fake_calls(
    call: Any, x: Any, inverse: Any, scale: Any, zero_point: Any, *, low: int, high: int
) -> Any:
    number = _in_words(call, x, inverse, zero_point, low, high)
    return call("mul", call("sub", number, zero_point), scale)


def _through(g: Any, x: Any, inverse: Any, zero_point: Any, low: int, high: int) -> Any:
    """The straight-through estimate: g where x is within the range, else 0."""
    number = round(mul(x, inverse)) + zero_point
    return where((number >= low) & (number <= high), g, zeros_like(g))


def _fake_samples(rng: np.random.Generator) -> Any:
    # Steps are much finer than those of differences, whose slope is then the estimate.
    params = {"low": -(10**14), "high": 10**14}
    for shape in ((3, 4), (), (0, 2)):
        x = rng.uniform(-2, 2, shape)
        x = np.where(abs(abs(x) - 1) < 0.05, 0.5, x)  # the range ends at 1
        yield Sample((x, 1e14, 1e-14, 0.0), params)


fake_quantize_op: Op = define(
    "fake_quantize_affine",
    inputs="x inverse scale zero_point",
    eval=_fake_eval,
    type=lambda *types, **params: _real_type("fake_quantize_affine", types),
    lower=Composed(_fake_calls),
    vjp={
        "x": lambda g, x, inverse, zero_point, low, high: _through(
            g, x, inverse, zero_point, low, high
        )
    },
    jvp={
        "x": lambda t, x, inverse, zero_point, low, high: _through(
            t, x, inverse, zero_point, low, high
        )
    },
    batch=elementwise_batch,
    bulk=COMPOSED,
    cost=8,
    samples=_fake_samples,
    reference=lambda x, inverse, scale, zero_point, *, low, high: (
        (np.clip(np.round(x * inverse + zero_point), low, high) - zero_point) * scale
    ),
)


def _fake(
    name: str, x: Tensor, scale: Any, zero_point: Any, low: int, high: int
) -> Tensor:
    """Check the range, and apply the operator in float32 or wider.

    Scales are float32, as PyTorch's are.
    """
    if low > high:
        raise ArgumentError(
            f"{name}: expected quant_min at most quant_max, got {low} and {high}"
        )
    wide = cast(x, dtypes.float32) if x.dtype.np.char in HALF else x
    device = device_of([x])

    def fitted(value: Any) -> Tensor:
        if not isinstance(value, Tensor):
            return full((), value, dtype=dtypes.float32, device=device)
        return cast(value.detach(), dtypes.float32)

    scale, zero_point = fitted(scale), fitted(zero_point)
    numbers = [cast(v, wide.dtype) for v in (1.0 / scale, scale, zero_point)]
    inputs = [expand(v, wide.shape) for v in numbers]
    out = bind(fake_quantize_op, (wide, *inputs), {"low": low, "high": high})
    return cast(out, x.dtype)


@public(method=False)
def fake_quantize_per_tensor_affine(
    input: Tensor, scale: Any, zero_point: Any, quant_min: int, quant_max: int
) -> Tensor:
    """Each element as the nearest of ``quant_max - quant_min + 1`` numbers.

    It is ``(clamp(round(x / scale) + zero_point) - zero_point) * scale``. The gradient
    passes straight through where nothing is clamped, and is 0 elsewhere.

    >>> x = weft.tensor([-1.0, 0.26, 9.0], requires_grad=True)
    >>> y = weft.fake_quantize_per_tensor_affine(x, 0.5, 0, -4, 3)
    >>> y.detach()
    tensor([-1.0000,  0.5000,  1.5000])
    >>> y.sum().backward()
    >>> x.grad
    tensor([1., 1., 0.])
    """
    name = "fake_quantize_per_tensor_affine"
    return _fake(name, input, scale, zero_point, quant_min, quant_max)


@public(method=False)
def fake_quantize_per_channel_affine(
    input: Tensor,
    scale: Tensor,
    zero_point: Tensor,
    axis: int,
    quant_min: int,
    quant_max: int,
) -> Tensor:
    """The same with a scale and a zero point for each index of an axis.

    >>> scale, zero_point = weft.tensor([0.5, 0.25]), weft.zeros(2, dtype=weft.int32)
    >>> x = weft.tensor([[0.3, 0.3]])
    >>> weft.fake_quantize_per_channel_affine(x, scale, zero_point, 1, -8, 7)
    tensor([[0.5000, 0.2500]])
    """
    name = "fake_quantize_per_channel_affine"
    d = normalize_dim(name, axis, input.ndim)
    for what, value in (("scale", scale), ("zero_point", zero_point)):
        if tuple(value.shape) != (input.shape[d],):
            raise ShapeError(
                f"{name}: expected {what} of shape ({input.shape[d]},), one for each "
                f"index of axis {axis}, got {tuple(value.shape)}"
            )
    shape = [-1 if k == d else 1 for k in range(input.ndim)]
    scale, zero_point = (reshape(v, shape) for v in (scale, zero_point))
    return _fake(name, input, scale, zero_point, quant_min, quant_max)


# -- numbers of four bits, two in a byte
#
# In a row, the first half of each group is in the low bits of its bytes, the second
# half in the high ones; 8 is added, so that bits have no sign.


def pack_int4(numbers: np.ndarray, group: int) -> np.ndarray:
    """Whole numbers from -8 to 7 as bytes; rows are whole groups.

    >>> from weft.ops.quantized import pack_int4
    >>> pack_int4(np.array([[-8, 7, 0, 1]]), 4)
    array([[128, 159]], dtype=uint8)
    """
    rows = numbers.reshape(*numbers.shape[:-1], -1, 2, group // 2)
    bits = (rows + 8).astype(np.uint8)
    found: np.ndarray = bits[..., 0, :] | bits[..., 1, :] << 4
    return found.reshape(*numbers.shape[:-1], -1)


def _unpack_eval(x: Any, *, group: int) -> Any:
    half = group // 2
    halves = x.reshape(*x.shape[:-1], x.shape[-1] // half, 1, half)
    bits = np.concatenate([halves & 15, halves >> 4], axis=-2)
    return bits.astype(np.int8).reshape(*x.shape[:-1], 2 * x.shape[-1]) - np.int8(8)


def _unpack_type(x: TensorType, *, group: int) -> TensorType:
    if x.dtype is not dtypes.uint8:
        raise DTypeError(f"unpack_int4: expected uint8, got {x.dtype.name}")
    if not x.shape or group < 2 or group % 2 or x.shape[-1] % (group // 2):
        raise ShapeError(
            f"unpack_int4: expected rows of whole groups of {group} numbers, two to a "
            f"byte, got shape {x.shape}"
        )
    return TensorType((*x.shape[:-1], 2 * x.shape[-1]), dtypes.int8)


def _unpack_element(k: Any, out: Any, x: Any, *, group: int) -> Any:
    half = group // 2
    *lead, at = out
    place = at % group
    byte = x[*lead, at // group * half + at % half]
    low = k.call("bitwise_and", byte, k.number(15, byte.dtype))
    high = k.call("bitwise_right_shift", byte, k.number(4, byte.dtype))
    bits = k.call("cast", k.choice(place, half, low, high), dtype=dtypes.int8)
    return k.call("sub", bits, k.number(8))


def _unpack_reference(x: Any, *, group: int) -> Any:
    out = np.zeros((*x.shape[:-1], 2 * x.shape[-1]), np.int8)
    for index in np.ndindex(*out.shape):
        start, place = divmod(index[-1], group)
        byte = int(x[*index[:-1], start * (group // 2) + place % (group // 2)])
        out[index] = (byte // 16 if place >= group // 2 else byte % 16) - 8
    return out


def _trailing_batch(
    op: Op, size: int, args: Any, batched: Any, params: dict[str, Any]
) -> Any:
    return op(*args, **params)  # leading axes are the operator's own


unpack_op: Op = define(
    "unpack_int4",
    inputs="x",
    eval=_unpack_eval,
    type=_unpack_type,
    lower=Element(_unpack_element),
    batch=_trailing_batch,
    bulk=SLOW,
    cost=2,
    samples=lambda rng: [
        Sample((rng.integers(0, 256, shape).astype(np.uint8),), {"group": group})
        for shape, group in (((3, 8), 4), ((2, 2, 4), 8), ((0, 4), 2))
    ],
    reference=_unpack_reference,
)


# -- float32 times integers


def dequantized(weight: Tensor, scale: Tensor, *, size: Any, bits: int) -> Tensor:
    """Weights (n, size) as numbers: each group of a row times its scale (n, groups)."""
    rows, groups = scale.shape
    whole = weight
    if bits == 4:
        whole = unpack_op(weight, group=2 * weight.shape[1] // groups)
    wide = cast(whole, scale.dtype)
    if groups == 1:
        out = wide * scale
    else:
        split = reshape(wide, (rows, groups, whole.shape[1] // groups))
        out = reshape(split * reshape(scale, (rows, groups, 1)), tuple(whole.shape))
    return out if whole.shape[1] == size else out[:, :size]


def _dequantized_array(weight: Any, scale: Any, size: int, bits: int) -> Any:
    rows, groups = scale.shape
    if bits == 4:
        weight = _unpack_eval(weight, group=2 * weight.shape[1] // groups)
    split = weight.reshape(rows, groups, weight.shape[1] // groups)
    wide: Any = split * scale[:, :, None]
    return wide.reshape(weight.shape)[:, :size]


def _weight_only_eval(x: Any, weight: Any, scale: Any, *, bits: int) -> Any:
    check_weight_only(x, weight, scale, bits)
    return product(x, _dequantized_array(weight, scale, x.shape[1], bits).T)


def _weight_only_type(
    x: TensorType, weight: TensorType, scale: TensorType, *, bits: int
) -> TensorType:
    check_weight_only(x, weight, scale, bits)
    return TensorType((x.shape[0], weight.shape[0]), x.dtype)


def check_weight_only(x: Any, weight: Any, scale: Any, bits: int) -> None:
    """Refuse operands, or types of them, that do not belong together."""
    name = "weight_only_matmul"
    kinds = [t.dtype.name for t in (x, weight, scale)]
    narrow = "uint8" if bits == 4 else "int8"
    if kinds[1] != narrow or kinds[0] != kinds[2] or "float" not in kinds[0]:
        raise DTypeError(
            f"{name}: expected floating x and scale of one dtype and {narrow} weights "
            f"of {bits} bits, got {', '.join(kinds)}"
        )
    shapes = f"{x.shape}, {weight.shape} and {scale.shape}"
    if not len(x.shape) == len(weight.shape) == len(scale.shape) == 2:
        raise ShapeError(f"{name}: expected three matrices, got shapes {shapes}")
    (rows, groups), numbers = scale.shape, weight.shape[1] * (8 // bits)
    if weight.shape[0] != rows or not groups or numbers % groups:
        raise ShapeError(
            f"{name}: expected scales (rows, groups) of the weights, got shapes "
            f"{shapes}"
        )
    short = numbers - x.shape[1]
    if short < 0 or short >= (2 * groups if bits == 4 else 1):
        raise ShapeError(
            f"{name}: expected x with as many columns as the weights' {numbers}, got "
            f"shapes {shapes}"
        )


def _weight_only_composed(x: Tensor, weight: Tensor, scale: Tensor, bits: int) -> Any:
    wide = dequantized(weight, scale, size=x.shape[1], bits=bits)
    return matmul(x, permute(wide, (1, 0)))


def _weight_only_back(
    g: Any, weight: Any, scale: Any, x_shape: Any, bits: int
) -> Tensor:
    return matmul(g, dequantized(weight, scale, size=x_shape[1], bits=bits))


def _scale_back(g: Any, x: Any, weight: Any, scale: Any, bits: int) -> Tensor:
    """The scales' gradient: that of the weights times their integers, by groups."""
    rows, groups = scale.shape
    ones = full((rows, groups), 1.0, dtype=scale.dtype, device=device_of([scale]))
    size = x.shape[1]
    numbers = dequantized(weight, ones, size=size, bits=bits)
    each = matmul(permute(g, (1, 0)), x) * numbers  # (rows, size)
    width = weight.shape[1] * (8 // bits) // groups
    if width * groups != size:
        from weft.ops.padding import pad

        each = pad(each, (0, width * groups - size))
    return reshape(each, (rows, groups, width)).sum(-1)


def _weight_only_samples(rng: np.random.Generator) -> Any:
    for (m, k), n, groups, bits in (
        ((3, 8), 5, 1, 8), ((2, 8), 3, 2, 8), ((1, 6), 2, 2, 4), ((0, 4), 2, 1, 4),
    ):  # fmt: skip
        width = -(-k // groups) + (-(-k // groups)) % (2 if bits == 4 else 1)
        numbers = rng.integers(-8, 8, (n, groups * width))
        weight = pack_int4(numbers, width) if bits == 4 else numbers.astype(np.int8)
        scale = rng.uniform(0.1, 1, (n, groups))
        yield Sample((rng.uniform(-2, 2, (m, k)), weight, scale), {"bits": bits})


def _weight_only_reference(x: Any, weight: Any, scale: Any, *, bits: int) -> Any:
    rows, groups = scale.shape
    if bits == 4:
        weight = _unpack_reference(weight, group=2 * weight.shape[1] // groups)
    width = weight.shape[1] // groups
    return np.array(
        [
            [
                sum(v * weight[j, p] * scale[j, p // width] for p, v in enumerate(row))
                for j in range(rows)
            ]
            for row in x
        ]
    ).reshape(len(x), rows)


weight_only_matmul_op: Op = define(
    "weight_only_matmul",
    inputs="x weight scale",
    eval=_weight_only_eval,
    type=_weight_only_type,
    lower=Library(
        "product", "weight_only", composed=_weight_only_composed, expands=True
    ),
    flops=lambda out, x, weight, scale: (2, *out, x[-1]),
    vjp={
        "x": lambda g, weight, scale, x_shape, bits: _weight_only_back(
            g, weight, scale, x_shape, bits
        ),
        "scale": lambda g, x, weight, scale, bits: _scale_back(
            g, x, weight, scale, bits
        ),
    },
    bulk=0,
    samples=_weight_only_samples,
    reference=_weight_only_reference,
)  # fmt: skip
