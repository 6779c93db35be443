"""Weft: a deep-learning framework in Python, with its own compiler."""

from __future__ import annotations

import importlib as _importlib
import warnings as _warnings
from typing import TYPE_CHECKING as _TYPE_CHECKING
from typing import Any as _Any

# NumPy warns about overflow and NaN where PyTorch's semantics are silent.
_warnings.filterwarnings("ignore", category=RuntimeWarning, module=r"weft\.")

from weft import autograd, core
from weft.autograd import (
    enable_grad,
    inference_mode,
    is_grad_enabled,
    is_inference_mode_enabled,
    no_grad,
    set_grad_enabled,
)
from weft.config import config
from weft.core.argument_errors import guard as _guard
from weft.core.tensor import Tensor
from weft import methods as _methods
from weft.core.elementwise import result_type
from weft.core.pytree import tree_flatten, tree_map, tree_unflatten
from weft.device import (
    Device,
    device,
    devices,
    get_default_device,
    register_device,
    set_default_device,
    unregister_device,
)
from weft.dtype import (
    DType,
    bfloat16,
    complex64,
    complex128,
    float16,
    float32,
    float64,
    get_default_dtype,
    int8,
    int16,
    int32,
    int64,
    promote_types,
    set_default_dtype,
    uint8,
    uint16,
    uint32,
    uint64,
)
from weft.dtype import bool_ as bool
from weft.dtype_info import finfo, iinfo
from weft.interchange import from_dlpack
from weft.ops.creation import (
    arange,
    as_tensor,
    asarray,
    cartesian_prod,
    combinations,
    empty,
    empty_like,
    eye,
    from_numpy,
    full,
    full_like,
    linspace,
    logspace,
    ones,
    ones_like,
    scalar_tensor,
    tensor,
    tril_indices,
    triu_indices,
    vander,
    zeros,
    zeros_like,
)
from weft.ops.arithmetic import (
    abs,
    add,
    addcdiv,
    addcmul,
    copysign,
    div,
    float_power,
    floor_divide,
    fmod,
    ldexp,
    lerp,
    mul,
    neg,
    positive,
    pow,
    reciprocal,
    remainder,
    rsub,
    sgn,
    sign,
    square,
    sub,
)
from weft.ops.bits import (
    bitwise_and,
    bitwise_left_shift,
    bitwise_not,
    bitwise_or,
    bitwise_right_shift,
    bitwise_xor,
    gcd,
    lcm,
    logical_and,
    logical_not,
    logical_or,
    logical_xor,
)
from weft.ops.select import (
    clamp,
    clamp_max,
    clamp_min,
    clip,
    fmax,
    fmin,
    heaviside,
    maximum,
    minimum,
    nan_to_num,
    relu,
    where,
)
from weft.ops.comparison import allclose, eq, equal, ge, gt, isclose, le, lt, ne
from weft.ops.complex_numbers import (
    complex,
    conj,
    imag,
    isreal,
    polar,
    real,
    view_as_complex,
    view_as_real,
)
from weft.memory_format import (
    channels_last,
    channels_last_3d,
    contiguous_format,
    preserve_format,
)
from weft.ops.copies import clone, detach
from weft.ops.predicates import (
    can_cast,
    is_complex,
    is_floating_point,
    is_nonzero,
    is_same_size,
    is_signed,
    is_tensor,
    isfinite,
    isinf,
    isnan,
    isneginf,
    isposinf,
    numel,
    signbit,
)
from weft.ops.rounding import ceil, fix, floor, frac, nextafter, round, trunc
from weft.ops.transcendental import (
    acos,
    acosh,
    angle,
    asin,
    asinh,
    atan,
    atan2,
    atanh,
    cos,
    cosh,
    deg2rad,
    exp,
    exp2,
    expm1,
    hypot,
    log,
    log10,
    log1p,
    log2,
    logaddexp,
    logaddexp2,
    logit,
    rad2deg,
    rsqrt,
    sigmoid,
    sin,
    sinc,
    sinh,
    sqrt,
    tan,
    tanh,
    xlogy,
)
from weft.ops.extremes import amax, amin, aminmax, argmax, argmin, max, min
from weft.ops.statistics import (
    cdist,
    corrcoef,
    cov,
    dist,
    logsumexp,
    mean,
    nanmean,
    norm,
    std,
    std_mean,
    var,
    var_mean,
)
from weft.ops.reduce import all, any, count_nonzero, nansum, sum
from weft.ops.cumulative import (
    cumprod,
    cumsum,
    cumulative_trapezoid,
    diff,
    logcumsumexp,
    prod,
    trapezoid,
    trapz,
)
from weft.ops.broadcasting import broadcast_tensors, broadcast_to, expand, meshgrid
from weft.ops.diagonals import (
    block_diag,
    diag,
    diag_embed,
    diagflat,
    diagonal,
    diagonal_scatter,
    trace,
    tril,
    triu,
)
from weft.ops.joining import (
    cat,
    column_stack,
    concat,
    concatenate,
    dstack,
    hstack,
    row_stack,
    stack,
    vstack,
)
from weft.ops.padding import flip, fliplr, flipud, pad, repeat, roll, rot90, tile
from weft.ops.shaping import (
    adjoint,
    atleast_1d,
    atleast_2d,
    atleast_3d,
    flatten,
    moveaxis,
    movedim,
    permute,
    ravel,
    reshape,
    squeeze,
    swapaxes,
    swapdims,
    t,
    transpose,
    unflatten,
    unsqueeze,
)
from weft.ops.strided import as_strided
from weft.ops.slicing import (
    chunk,
    dsplit,
    hsplit,
    narrow,
    select,
    split,
    tensor_split,
    unbind,
    vsplit,
)
from weft.ops.broadcasting import _public_broadcast_shapes as broadcast_shapes
from weft.ops.gathering import gather, take_along_dim
from weft.ops.indexing import index_put, put, select_scatter, slice_scatter
from weft.ops.masks import masked_fill, masked_scatter, masked_select, one_hot
from weft.ops.operands import argwhere, nonzero, unravel_index
from weft.ops.scattering import scatter, scatter_add, scatter_reduce
from weft.ops.index import (
    index_add,
    index_copy,
    index_fill,
    index_select,
    repeat_interleave,
    take,
)
from weft.ops.products import (
    addmm,
    addmv,
    addr,
    baddbmm,
    bmm,
    dot,
    inner,
    kron,
    matmul,
    mm,
    mv,
    outer,
    tensordot,
    vdot,
)
from weft.ops.searching import bucketize, searchsorted
from weft.ops.sorting import (
    argsort,
    bincount,
    cummax,
    cummin,
    histc,
    isin,
    kthvalue,
    median,
    mode,
    msort,
    nanmedian,
    nanquantile,
    quantile,
    sort,
    topk,
    unique,
    unique_consecutive,
)
from weft.ops.random import (
    Generator,
    bernoulli,
    default_generator,
    get_rng_state,
    initial_seed,
    manual_seed,
    multinomial,
    normal,
    rand,
    rand_like,
    randint,
    randint_like,
    randn,
    randn_like,
    randperm,
    seed,
    set_rng_state,
)
from weft.linalg.factoring import cholesky
from weft.linalg.powers import cross_along as cross
from weft.linalg.powers import matrix_exp, matrix_power
from weft.linalg.solving import det, inverse, logdet, pinverse, slogdet
from weft.ops.einsum import einsum
from weft.ops.bessel_functions import i0
from weft.ops.error_functions import erf, erfc, erfinv
from weft.ops import fourier as _fourier  # its operators register themselves
from weft.ops.gamma_functions import digamma, lgamma, polygamma
from weft.ops.probabilities import log_softmax, softmax
from weft.printing import set_printoptions

arccos, arccosh, arcsin, arcsinh = acos, acosh, asin, asinh
arctan, arctan2, arctanh = atan, atan2, atanh
absolute, subtract, multiply, negative = abs, sub, mul, neg
divide = true_divide = div
greater, greater_equal, less, less_equal, not_equal = gt, ge, lt, le, ne
double, half, long, short = float64, float16, int64, int16
cfloat, cdouble = complex64, complex128

_guard(globals())

__version__ = "0.1.0"

# Loaded when first used, so that importing weft stays light.
_LAZY = (
    "array_api",
    "cli",
    "compile",
    "datasets",
    "fft",
    "func",
    "graph",
    "layers",
    "linalg",
    "memory",
    "metrics",
    "models",
    "nn",
    "optim",
    "runtime",
    "special",
    "static",
    "symbolic",
    "testing",
    "training",
    "utils",
)
_LAZY_NAMES = {
    "Trainer": "training",
    "cond": "ops.control",
    "fori_loop": "ops.control",
    "get_num_threads": "runtime.cpu.pool",
    "load": "serialization",
    "map": "ops.control",
    "plan": "memory.plan",
    "save": "serialization",
    "scan": "ops.control",
    "set_memory_limit": "memory",
    "set_num_threads": "runtime.cpu.pool",
    "while_loop": "ops.control",
}

if _TYPE_CHECKING:
    from weft.memory import set_memory_limit
    from weft.memory.plan import plan
    from weft.ops.control import cond, fori_loop, map, scan, while_loop
    from weft.runtime.cpu.pool import get_num_threads, set_num_threads
    from weft.serialization import load, save
    from weft.training import Trainer


def __getattr__(name: str) -> _Any:
    if name in _LAZY:
        return _importlib.import_module(f"weft.{name}")
    if name in _LAZY_NAMES:
        found = getattr(_importlib.import_module(f"weft.{_LAZY_NAMES[name]}"), name)
        globals()[name] = found
        return found
    raise AttributeError(f"module 'weft' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *_LAZY, *_LAZY_NAMES})
