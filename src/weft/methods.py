"""Which functions are tensor methods, and the few methods that are no functions.

The class below is what type checkers see as ``Tensor``'s base; when this module
is imported its members are put on ``Tensor`` itself.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from weft import dtype as dtypes
from weft import interchange, linalg
from weft.autograd import engine
from weft.core.inplace import arithmetic, assign, fitted, inplace, reshaped
from weft.core.tensor import Tensor as _Tensor
from weft.device import Device
from weft.device import device as find_device
from weft.errors import (
    ArgumentError,
    AutogradError,
    DeviceError,
    DTypeError,
    ShapeError,
)
from weft.ops import (
    creation,
    elementwise,
    index,
    movement,
    products,
    random,
    reduce,
    sorting,
    special,
    transcendental,
)
from weft.printing import format_tensor

if TYPE_CHECKING:
    from weft.core.tensor import Tensor


def _reflected(fn: Any) -> Any:
    """``number op tensor`` from a function of two operands."""

    def method(self: Any, other: Any) -> Any:
        if isinstance(other, (int, float, complex, np.ndarray, np.generic)):
            return fn(other, self)
        return NotImplemented

    return method


def _comparison(fn: Any) -> Any:
    """``==`` and ``!=``, which leave foreign types to the other operand."""

    def method(self: Any, other: Any) -> Any:
        if isinstance(other, (_Tensor, int, float, complex, np.ndarray, np.generic)):
            return fn(self, other)
        return NotImplemented

    return method


class Methods:
    """The methods of ``weft.Tensor``."""

    # -- operators

    __add__ = elementwise._add
    __radd__ = elementwise._add
    __sub__ = elementwise._sub
    __rsub__ = _reflected(elementwise._sub)
    __mul__: Any = elementwise.mul
    __rmul__ = elementwise.mul
    __truediv__ = elementwise._true_divide
    __rtruediv__ = _reflected(elementwise._true_divide)
    __floordiv__ = elementwise.floor_divide
    __rfloordiv__ = _reflected(elementwise.floor_divide)
    __mod__ = elementwise.remainder
    __rmod__ = _reflected(elementwise.remainder)
    __pow__ = elementwise.pow
    __rpow__ = _reflected(elementwise.pow)
    __matmul__ = products.matmul
    __rmatmul__ = _reflected(products.matmul)
    __neg__: Any = elementwise.neg
    __pos__ = elementwise.positive
    __abs__ = elementwise.abs
    __invert__ = elementwise.bitwise_not
    __and__ = elementwise.bitwise_and
    __rand__ = elementwise.bitwise_and
    __or__ = elementwise.bitwise_or
    __ror__ = elementwise.bitwise_or
    __xor__ = elementwise.bitwise_xor
    __rxor__ = elementwise.bitwise_xor
    __lshift__ = elementwise.bitwise_left_shift
    __rlshift__ = _reflected(elementwise.bitwise_left_shift)
    __rshift__ = elementwise.bitwise_right_shift
    __rrshift__ = _reflected(elementwise.bitwise_right_shift)
    __eq__ = _comparison(elementwise.eq)
    __ne__ = _comparison(elementwise.ne)
    __lt__ = elementwise.lt
    __le__ = elementwise.le
    __gt__ = elementwise.gt
    __ge__ = elementwise.ge
    __getitem__ = index.getitem
    __setitem__ = index.setitem
    __hash__ = object.__hash__

    # -- elementwise

    add = elementwise.add
    sub = elementwise.sub
    mul = elementwise.mul
    div = elementwise.div
    neg = elementwise.neg
    abs = elementwise.abs
    sign = elementwise.sign
    sgn = elementwise.sgn
    positive = elementwise.positive
    square = elementwise.square
    reciprocal = elementwise.reciprocal
    pow = elementwise.pow
    remainder = elementwise.remainder
    fmod = elementwise.fmod
    floor_divide = elementwise.floor_divide
    maximum = elementwise.maximum
    minimum = elementwise.minimum
    clamp = elementwise.clamp
    clamp_min = elementwise.clamp_min
    clamp_max = elementwise.clamp_max
    clip = elementwise.clip
    nan_to_num = elementwise.nan_to_num
    eq = elementwise.eq
    ne = elementwise.ne
    lt = elementwise.lt
    le = elementwise.le
    gt = elementwise.gt
    ge = elementwise.ge
    isclose = elementwise.isclose
    allclose = elementwise.allclose
    equal = elementwise.equal
    isnan = elementwise.isnan
    isinf = elementwise.isinf
    isfinite = elementwise.isfinite
    isposinf = elementwise.isposinf
    isneginf = elementwise.isneginf
    signbit = elementwise.signbit
    logical_and = elementwise.logical_and
    logical_or = elementwise.logical_or
    logical_xor = elementwise.logical_xor
    logical_not = elementwise.logical_not
    bitwise_and = elementwise.bitwise_and
    bitwise_or = elementwise.bitwise_or
    bitwise_xor = elementwise.bitwise_xor
    bitwise_not = elementwise.bitwise_not
    bitwise_left_shift = elementwise.bitwise_left_shift
    bitwise_right_shift = elementwise.bitwise_right_shift
    gcd = elementwise.gcd
    lcm = elementwise.lcm
    floor = elementwise.floor
    ceil = elementwise.ceil
    trunc = elementwise.trunc
    round = elementwise.round
    frac = elementwise.frac
    copysign = elementwise.copysign
    nextafter = elementwise.nextafter
    lerp = elementwise.lerp
    addcmul = elementwise.addcmul
    addcdiv = elementwise.addcdiv
    subtract = elementwise.sub
    multiply = elementwise.mul
    divide = elementwise.div
    negative = elementwise.neg
    absolute = elementwise.abs
    greater = elementwise.gt
    greater_equal = elementwise.ge
    less = elementwise.lt
    less_equal = elementwise.le
    not_equal = elementwise.ne
    true_divide = elementwise.div
    relu = elementwise.relu
    fmax = elementwise.fmax
    fmin = elementwise.fmin
    heaviside = elementwise.heaviside
    float_power = elementwise.float_power
    ldexp = elementwise.ldexp
    isreal = elementwise.isreal
    is_nonzero = elementwise.is_nonzero
    is_same_size = elementwise.is_same_size
    fix = elementwise.fix

    # -- transcendental

    exp = transcendental.exp
    exp2 = transcendental.exp2
    expm1 = transcendental.expm1
    log = transcendental.log
    log2 = transcendental.log2
    log10 = transcendental.log10
    log1p = transcendental.log1p
    sqrt = transcendental.sqrt
    rsqrt = transcendental.rsqrt
    sin = transcendental.sin
    cos = transcendental.cos
    tan = transcendental.tan
    asin = transcendental.asin
    acos = transcendental.acos
    atan = transcendental.atan
    sinh = transcendental.sinh
    cosh = transcendental.cosh
    tanh = transcendental.tanh
    asinh = transcendental.asinh
    acosh = transcendental.acosh
    atanh = transcendental.atanh
    sigmoid = transcendental.sigmoid
    atan2 = transcendental.atan2
    hypot = transcendental.hypot
    logaddexp = transcendental.logaddexp
    logaddexp2 = transcendental.logaddexp2
    xlogy = transcendental.xlogy
    logit = transcendental.logit
    sinc = transcendental.sinc
    deg2rad = transcendental.deg2rad
    rad2deg = transcendental.rad2deg
    angle = transcendental.angle
    arcsin = transcendental.asin
    arccos = transcendental.acos
    arctan = transcendental.atan
    arctan2 = transcendental.atan2
    arcsinh = transcendental.asinh
    arccosh = transcendental.acosh
    arctanh = transcendental.atanh

    # -- reduce

    sum = reduce.sum
    mean = reduce.mean
    nansum = reduce.nansum
    nanmean = reduce.nanmean
    count_nonzero = reduce.count_nonzero
    var = reduce.var
    std = reduce.std
    prod = reduce.prod
    amax = reduce.amax
    amin = reduce.amin
    aminmax = reduce.aminmax
    argmax = reduce.argmax
    argmin = reduce.argmin
    max = reduce.max
    min = reduce.min
    any = reduce.any
    all = reduce.all
    cumsum = reduce.cumsum
    cumprod = reduce.cumprod
    diff = reduce.diff
    logsumexp = reduce.logsumexp
    logcumsumexp = reduce.logcumsumexp
    cov = reduce.cov
    corrcoef = reduce.corrcoef
    norm = reduce.norm
    dist = reduce.dist

    # -- movement

    expand = movement.expand
    expand_as = movement.expand_as
    broadcast_to = movement.broadcast_to
    reshape = movement.reshape
    view = movement.view
    flatten = movement.flatten
    ravel = movement.ravel
    unflatten = movement.unflatten
    unfold = movement.unfold
    hsplit = movement.hsplit
    vsplit = movement.vsplit
    dsplit = movement.dsplit
    view_as = movement.view_as
    reshape_as = movement.reshape_as
    sum_to_size = movement.sum_to_size
    squeeze = movement.squeeze
    unsqueeze = movement.unsqueeze
    permute = movement.permute
    transpose = movement.transpose
    swapaxes = movement.swapaxes
    swapdims = movement.swapdims
    t = movement.t
    adjoint = movement.adjoint
    movedim = movement.movedim
    moveaxis = movement.moveaxis
    narrow = movement.narrow
    select = movement.select
    unbind = movement.unbind
    split = movement.split
    chunk = movement.chunk
    tensor_split = movement.tensor_split
    flip = movement.flip
    fliplr = movement.fliplr
    flipud = movement.flipud
    repeat = movement.repeat
    tile = movement.tile
    roll = movement.roll
    rot90 = movement.rot90
    tril = movement.tril
    triu = movement.triu
    clone = movement.clone
    contiguous = movement.contiguous
    atleast_1d = movement.atleast_1d
    atleast_2d = movement.atleast_2d
    atleast_3d = movement.atleast_3d

    # -- products

    matmul = products.matmul
    mm = products.mm
    bmm = products.bmm
    mv = products.mv
    dot = products.dot
    addmm = products.addmm
    outer = products.outer
    baddbmm = products.baddbmm
    addmv = products.addmv
    addr = products.addr
    vdot = products.vdot
    kron = products.kron
    inner = products.inner

    # -- index

    gather = index.gather
    scatter = index.scatter
    scatter_add = index.scatter_add
    scatter_reduce = index.scatter_reduce
    masked_scatter = index.masked_scatter
    index_put = index.index_put
    put = index.put
    diagflat = index.diagflat
    diagonal_scatter = index.diagonal_scatter
    select_scatter = index.select_scatter
    slice_scatter = index.slice_scatter
    take_along_dim = index.take_along_dim
    take = index.take
    index_select = index.index_select
    index_add = index.index_add
    index_copy = index.index_copy
    index_fill = index.index_fill
    masked_fill = index.masked_fill
    masked_select = index.masked_select
    nonzero = index.nonzero
    argwhere = index.argwhere
    diagonal = index.diagonal
    diag = index.diag
    diag_embed = index.diag_embed
    trace = index.trace
    repeat_interleave = index.repeat_interleave

    # -- sorting

    argsort = sorting.argsort
    sort = sorting.sort
    msort = sorting.msort
    topk = sorting.topk
    kthvalue = sorting.kthvalue
    median = sorting.median
    nanmedian = sorting.nanmedian
    nanquantile = sorting.nanquantile
    mode = sorting.mode
    unique_consecutive = sorting.unique_consecutive
    histc = sorting.histc
    quantile = sorting.quantile
    cummax = sorting.cummax
    cummin = sorting.cummin
    unique = sorting.unique
    bincount = sorting.bincount

    # -- random

    bernoulli = random.bernoulli
    multinomial = random.multinomial

    # -- linear algebra and special functions

    cholesky = linalg.cholesky
    cross = linalg.cross_along
    det = linalg.det
    inverse = linalg.inverse
    logdet = linalg.logdet
    matrix_exp = linalg.matrix_exp
    matrix_power = linalg.matrix_power
    pinverse = linalg.pinverse
    slogdet = linalg.slogdet
    digamma = special.digamma
    erf = special.erf
    erfc = special.erfc
    erfinv = special.erfinv
    i0 = special.i0
    lgamma = special.lgamma
    log_softmax = special.log_softmax
    softmax = special.softmax

    def polygamma(self: Any, n: int) -> Tensor:
        """The n-th derivative of ``digamma`` of each element.

        >>> weft.tensor([1.0]).polygamma(1)
        tensor([1.6449], shape=(1,), dtype=float32)
        """
        return special.polygamma(n, self)

    # -- in place

    add_ = arithmetic(elementwise.add, "add_", np.add)
    sub_ = arithmetic(elementwise.sub, "sub_", np.subtract)
    mul_ = arithmetic(elementwise.mul, "mul_", np.multiply)
    div_ = arithmetic(elementwise.div, "div_", np.true_divide)
    neg_ = inplace(elementwise.neg, "neg_")
    abs_ = inplace(elementwise.abs, "abs_")
    sign_ = inplace(elementwise.sign, "sign_")
    square_ = inplace(elementwise.square, "square_")
    reciprocal_ = inplace(elementwise.reciprocal, "reciprocal_")
    pow_ = inplace(elementwise.pow, "pow_", "2")
    remainder_ = inplace(elementwise.remainder, "remainder_", "2")
    fmod_ = inplace(elementwise.fmod, "fmod_", "2")
    floor_divide_ = inplace(elementwise.floor_divide, "floor_divide_", "2")
    clamp_ = inplace(elementwise.clamp, "clamp_", "0, 1")
    clamp_min_ = inplace(elementwise.clamp_min, "clamp_min_", "0")
    clamp_max_ = inplace(elementwise.clamp_max, "clamp_max_", "1")
    clip_ = inplace(elementwise.clip, "clip_", "0, 1")
    nan_to_num_ = inplace(elementwise.nan_to_num, "nan_to_num_")
    eq_ = inplace(elementwise.eq, "eq_", "1")
    ne_ = inplace(elementwise.ne, "ne_", "1")
    lt_ = inplace(elementwise.lt, "lt_", "1")
    le_ = inplace(elementwise.le, "le_", "1")
    gt_ = inplace(elementwise.gt, "gt_", "1")
    ge_ = inplace(elementwise.ge, "ge_", "1")
    logical_and_ = inplace(elementwise.logical_and, "logical_and_", "x")
    logical_or_ = inplace(elementwise.logical_or, "logical_or_", "x")
    logical_xor_ = inplace(elementwise.logical_xor, "logical_xor_", "x")
    logical_not_ = inplace(elementwise.logical_not, "logical_not_")
    bitwise_and_ = inplace(elementwise.bitwise_and, "bitwise_and_", "3", "int64")
    bitwise_or_ = inplace(elementwise.bitwise_or, "bitwise_or_", "3", "int64")
    bitwise_xor_ = inplace(elementwise.bitwise_xor, "bitwise_xor_", "3", "int64")
    bitwise_not_ = inplace(elementwise.bitwise_not, "bitwise_not_", "", "int64")
    floor_ = inplace(elementwise.floor, "floor_")
    ceil_ = inplace(elementwise.ceil, "ceil_")
    trunc_ = inplace(elementwise.trunc, "trunc_")
    round_ = inplace(elementwise.round, "round_")
    frac_ = inplace(elementwise.frac, "frac_")
    copysign_ = inplace(elementwise.copysign, "copysign_", "-1.0")
    lerp_ = inplace(elementwise.lerp, "lerp_", "x, 0.5")
    addcmul_ = inplace(elementwise.addcmul, "addcmul_", "x, x")
    addcdiv_ = inplace(elementwise.addcdiv, "addcdiv_", "x, x")
    exp_ = inplace(transcendental.exp, "exp_")
    exp2_ = inplace(transcendental.exp2, "exp2_")
    expm1_ = inplace(transcendental.expm1, "expm1_")
    log_ = inplace(transcendental.log, "log_")
    log2_ = inplace(transcendental.log2, "log2_")
    log10_ = inplace(transcendental.log10, "log10_")
    log1p_ = inplace(transcendental.log1p, "log1p_")
    sqrt_ = inplace(transcendental.sqrt, "sqrt_")
    rsqrt_ = inplace(transcendental.rsqrt, "rsqrt_")
    sin_ = inplace(transcendental.sin, "sin_")
    cos_ = inplace(transcendental.cos, "cos_")
    tan_ = inplace(transcendental.tan, "tan_")
    asin_ = inplace(transcendental.asin, "asin_")
    acos_ = inplace(transcendental.acos, "acos_")
    atan_ = inplace(transcendental.atan, "atan_")
    sinh_ = inplace(transcendental.sinh, "sinh_")
    cosh_ = inplace(transcendental.cosh, "cosh_")
    tanh_ = inplace(transcendental.tanh, "tanh_")
    asinh_ = inplace(transcendental.asinh, "asinh_")
    acosh_ = inplace(transcendental.acosh, "acosh_")
    atanh_ = inplace(transcendental.atanh, "atanh_")
    sigmoid_ = inplace(transcendental.sigmoid, "sigmoid_")
    atan2_ = inplace(transcendental.atan2, "atan2_", "x")
    hypot_ = inplace(transcendental.hypot, "hypot_", "x")
    tril_ = inplace(movement.tril, "tril_")
    triu_ = inplace(movement.triu, "triu_")
    cumsum_ = inplace(reduce.cumsum, "cumsum_", "0")
    cumprod_ = inplace(reduce.cumprod, "cumprod_", "0")
    scatter_ = inplace(index.scatter, "scatter_", "0, weft.tensor([[0]]), 5.0")
    scatter_add_ = inplace(
        index.scatter_add, "scatter_add_", "0, weft.tensor([[0]]), x"
    )
    index_add_ = inplace(index.index_add, "index_add_", "0, weft.tensor([0, 1]), x")
    index_copy_ = inplace(index.index_copy, "index_copy_", "0, weft.tensor([1, 0]), x")
    index_fill_ = inplace(index.index_fill, "index_fill_", "0, weft.tensor([0]), 5")
    masked_fill_ = inplace(index.masked_fill, "masked_fill_", "x > 0, 5")
    addmm_ = inplace(products.addmm, "addmm_", "x, x")
    digamma_ = inplace(special.digamma, "digamma_")
    erf_ = inplace(special.erf, "erf_")
    erfc_ = inplace(special.erfc, "erfc_")
    erfinv_ = inplace(special.erfinv, "erfinv_")
    lgamma_ = inplace(special.lgamma, "lgamma_")

    scatter_reduce_ = inplace(
        index.scatter_reduce, "scatter_reduce_", "0, weft.tensor([[0]]), x, 'amax'"
    )
    index_put_ = inplace(
        index.index_put, "index_put_", "(weft.tensor([0]),), weft.tensor(5.0)"
    )
    put_ = inplace(index.put, "put_", "weft.tensor([0]), weft.tensor([5.0])")
    masked_scatter_ = inplace(index.masked_scatter, "masked_scatter_", "x > 0, x * 2")
    sgn_ = inplace(elementwise.sgn, "sgn_")
    gcd_ = inplace(elementwise.gcd, "gcd_", "2", "int64")
    lcm_ = inplace(elementwise.lcm, "lcm_", "2", "int64")
    bitwise_left_shift_ = inplace(
        elementwise.bitwise_left_shift, "bitwise_left_shift_", "1", "int64"
    )
    bitwise_right_shift_ = inplace(
        elementwise.bitwise_right_shift, "bitwise_right_shift_", "1", "int64"
    )
    ldexp_ = inplace(elementwise.ldexp, "ldexp_", "x")
    heaviside_ = inplace(elementwise.heaviside, "heaviside_", "x")
    xlogy_ = inplace(transcendental.xlogy, "xlogy_", "x")
    logit_ = inplace(transcendental.logit, "logit_", "0.1")
    sinc_ = inplace(transcendental.sinc, "sinc_")
    deg2rad_ = inplace(transcendental.deg2rad, "deg2rad_")
    rad2deg_ = inplace(transcendental.rad2deg, "rad2deg_")
    absolute_, negative_, multiply_, subtract_, divide_ = abs_, neg_, mul_, sub_, div_
    true_divide_, fix_ = div_, trunc_
    greater_, greater_equal_, less_, less_equal_ = gt_, ge_, lt_, le_
    not_equal_ = ne_
    arcsin_, arccos_, arctan_, arctan2_ = asin_, acos_, atan_, atan2_
    arcsinh_, arccosh_, arctanh_ = asinh_, acosh_, atanh_
    relu_ = inplace(elementwise.relu, "relu_")
    nextafter_ = inplace(elementwise.nextafter, "nextafter_", "x * 2")
    t_ = reshaped(movement.t, "t_")
    transpose_ = reshaped(movement.transpose, "transpose_", "0, 1")
    swapdims_ = reshaped(movement.swapdims, "swapdims_", "0, 1")
    swapaxes_ = reshaped(movement.swapaxes, "swapaxes_", "0, 1")
    squeeze_ = reshaped(movement.squeeze, "squeeze_")
    unsqueeze_ = reshaped(movement.unsqueeze, "unsqueeze_", "0")

    __iadd__ = add_
    __isub__ = sub_
    __imul__ = mul_
    __itruediv__ = div_
    __ifloordiv__ = floor_divide_
    __imod__ = remainder_
    __ipow__ = pow_
    __iand__ = bitwise_and_
    __ior__ = bitwise_or_
    __ixor__ = bitwise_xor_
    __ilshift__ = bitwise_left_shift_
    __irshift__ = bitwise_right_shift_

    def fill_diagonal_(self: Any, fill_value: Any, wrap: bool = False) -> Tensor:
        """Set the main diagonal to one value.

        >>> weft.zeros(2, 2).fill_diagonal_(3)
        tensor([[3., 0.],
                [0., 3.]], shape=(2, 2), dtype=float32)
        """
        if self.ndim < 2 or (self.ndim > 2 and len(set(self.shape)) > 1):
            raise ShapeError(
                "fill_diagonal_: expected a matrix, or more dimensions of one size, "
                f"got shape {self.shape}"
            )
        rows = min(self.shape)
        if wrap and self.ndim == 2:
            rows = self.shape[0]
        step = np.arange(rows)
        places = [step, *[step % (self.shape[1] + 1)] * (self.ndim - 1)]
        kept = places[1] < self.shape[1]
        ids = tuple(_Tensor(p[kept]) for p in places)
        self[ids] = fill_value
        return self

    def where(self: Any, condition: Any, other: Any) -> Tensor:
        """This tensor where the condition holds, ``other`` elsewhere.

        >>> x = weft.tensor([-1.0, 4.0])
        >>> x.where(x > 0, 0.0)
        tensor([0., 4.], shape=(2,), dtype=float32)
        """
        return elementwise.where(condition, self, other)

    __imatmul__ = inplace(products.matmul, "__imatmul__", "x")

    def copy_(self: Any, src: Any, non_blocking: bool = False) -> Tensor:
        """Take over another tensor's values, broadcast and converted.

        >>> weft.zeros(2).copy_(weft.tensor([1, 2]))
        tensor([1., 2.], shape=(2,), dtype=float32)
        """
        given = elementwise.as_tensorlike(src)
        value = index._value_for(self.shape, self, given, "copy_")
        return assign(self, value, "copy_")

    def fill_(self: Any, value: Any) -> Tensor:
        """Set every element to one value.

        >>> weft.zeros(2).fill_(3)
        tensor([3., 3.], shape=(2,), dtype=float32)
        """
        return Methods.copy_(self, value)

    def zero_(self: Any) -> Tensor:
        """Set every element to 0.

        >>> weft.ones(2).zero_()
        tensor([0., 0.], shape=(2,), dtype=float32)
        """
        return Methods.copy_(self, 0)

    def _refill(self: Any, values: Any, name: str) -> Tensor:
        return assign(self, fitted(self, values, name), name)

    def uniform_(self: Any, from_: float = 0.0, to: float = 1.0, **options: Any) -> Any:
        """Fill with uniform random numbers.

        >>> weft.zeros(2).uniform_(5, 6).min() >= 5
        tensor(True, dtype=bool)
        """
        values = random.rand(self.shape, dtype=self.dtype, **options)
        return Methods._refill(self, values * (to - from_) + from_, "uniform_")

    def normal_(self: Any, mean: float = 0.0, std: float = 1.0, **options: Any) -> Any:
        """Fill with normal random numbers.

        >>> weft.zeros(2, 3).normal_().shape
        (2, 3)
        """
        values = random.randn(self.shape, dtype=self.dtype, **options)
        return Methods._refill(self, values * std + mean, "normal_")

    def bernoulli_(self: Any, p: float = 0.5, **options: Any) -> Any:
        """Fill with 1 with probability p, else 0.

        >>> weft.zeros(2).bernoulli_(1.0)
        tensor([1., 1.], shape=(2,), dtype=float32)
        """
        chance = creation.full(self.shape, float(p), dtype=dtypes.float32)
        values = random.bernoulli(chance, **options).to(self.dtype)
        return Methods._refill(self, values, "bernoulli_")

    def exponential_(self: Any, lambd: float = 1.0, **options: Any) -> Any:
        """Fill with exponentially distributed random numbers of rate ``lambd``.

        >>> bool((weft.zeros(2).exponential_(2.0) >= 0).all())
        True
        """
        if not lambd > 0:
            raise ArgumentError(f"exponential_: expected lambd above 0, got {lambd}")
        values = random.rand(self.shape, dtype=self.dtype, **options)
        return Methods._refill(self, -(-values).log1p() / lambd, "exponential_")

    def random_(self: Any, from_: int, to: int | None = None, **options: Any) -> Any:
        """Fill with random whole numbers from ``from_`` (or 0) up to ``to``.

        >>> weft.zeros(2).random_(1)
        tensor([0., 0.], shape=(2,), dtype=float32)
        """
        low, high = (0, from_) if to is None else (from_, to)
        values = random.randint(low, high, self.shape, **options)
        return Methods._refill(self, values.to(self.dtype), "random_")

    def detach_(self: Any) -> Any:
        """Cut this tensor off the tape, in place.

        >>> (weft.ones(2, requires_grad=True) * 2).detach_().requires_grad
        False
        """
        if self._base is not None and self._node is not None:
            raise AutogradError(
                "detach_: a view cannot be cut off its base; use detach()"
            )
        self._node = None
        return self

    # -- what a tensor is

    def dim(self: Any) -> int:
        """The number of dimensions.

        >>> weft.zeros(2, 3).dim()
        2
        """
        return self.ndim

    def size(self: Any, dim: int | None = None) -> Any:
        """The shape, or the size of one dimension.

        >>> weft.zeros(2, 3).size(1)
        3
        """
        if dim is None:
            return self.shape
        return self.shape[movement.normalize_dim("size", dim, self.ndim)]

    def numel(self: Any) -> int:
        """The number of elements.

        >>> weft.zeros(2, 3).numel()
        6
        """
        return movement.math.prod(self.shape)

    nelement = numel
    ndimension = dim

    @property
    def is_cuda(self: Any) -> bool:
        """Whether the tensor is on a CUDA device.

        >>> weft.zeros(1).is_cuda
        False
        """
        return self.device.type == "cuda"

    @property
    def is_cpu(self: Any) -> bool:
        """Whether the tensor is on the CPU.

        >>> weft.zeros(1).is_cpu
        True
        """
        return self.device.type == "cpu"

    def type(self: Any, dtype: Any = None) -> Any:
        """The tensor converted to a dtype; without one, the dtype's name.

        >>> weft.ones(1).type(weft.int64)
        tensor([1], shape=(1,), dtype=int64)
        """
        if dtype is None:
            return repr(self.dtype)
        return movement.cast(self, dtypes.as_dtype(dtype))

    def stride(self: Any, dim: int | None = None) -> Any:
        """How many elements to step in memory for one step in each dimension.

        >>> weft.zeros(2, 3).stride()
        (3, 1)
        """
        array = self.array()
        steps = tuple(s // array.itemsize for s in array.strides)
        return steps if dim is None else steps[dim]

    def is_contiguous(self: Any) -> bool:
        """Whether the elements lie in memory in row-major order.

        >>> weft.zeros(2, 3).t().is_contiguous()
        False
        """
        return bool(self.array().flags.c_contiguous)

    def data_ptr(self: Any) -> int:
        """The address of the first element.

        >>> x = weft.zeros(3)
        >>> x.data_ptr() == x.view(3, 1).data_ptr()
        True
        """
        return int(self.array().ctypes.data)

    def element_size(self: Any) -> int:
        """The bytes of one element.

        >>> weft.zeros(1).element_size()
        4
        """
        return self.dtype.itemsize

    @property
    def itemsize(self: Any) -> int:
        """The bytes of one element."""
        return self.dtype.itemsize

    @property
    def nbytes(self: Any) -> int:
        """The bytes of all elements.

        >>> weft.zeros(3).nbytes
        12
        """
        return self.numel() * self.dtype.itemsize

    def is_floating_point(self: Any) -> bool:
        """Whether the dtype is a floating-point type.

        >>> weft.zeros(1).is_floating_point()
        True
        """
        return self.dtype.is_floating_point

    def is_complex(self: Any) -> bool:
        """Whether the dtype is a complex type.

        >>> weft.zeros(1).is_complex()
        False
        """
        return self.dtype.is_complex

    def is_signed(self: Any) -> bool:
        """Whether the dtype holds negative numbers.

        >>> weft.zeros(1, dtype=weft.uint8).is_signed()
        False
        """
        return self.dtype.is_signed

    def is_inference(self: Any) -> bool:
        """Whether this tensor was made in ``inference_mode``.

        >>> weft.zeros(1).is_inference()
        False
        """
        return self._inference

    @property
    def T(self: Any) -> Tensor:
        """The dimensions in reverse order.

        >>> weft.zeros(2, 3).T.shape
        (3, 2)
        """
        return movement.permute(self, tuple(range(self.ndim))[::-1])

    @property
    def mT(self: Any) -> Tensor:
        """The last two dimensions exchanged.

        >>> weft.zeros(5, 2, 3).mT.shape
        (5, 3, 2)
        """
        if self.ndim < 2:
            raise ShapeError(f"mT: expected at least 2 dimensions, got {self.shape}")
        return movement.transpose(self, -2, -1)

    @property
    def H(self: Any) -> Tensor:
        """A matrix transposed and conjugated.

        >>> weft.tensor([[1j]]).H
        tensor([[0.-1.j]], shape=(1, 1), dtype=complex64)
        """
        return movement.adjoint(self)

    @property
    def real(self: Any) -> Tensor:
        """The real part.

        >>> weft.tensor([1 + 2j]).real
        tensor([1.], shape=(1,), dtype=float32)
        """
        return elementwise.real(self)

    @property
    def imag(self: Any) -> Tensor:
        """The imaginary part.

        >>> weft.tensor([1 + 2j]).imag
        tensor([2.], shape=(1,), dtype=float32)
        """
        return elementwise.imag(self)

    @property
    def mH(self: Any) -> Tensor:
        """The last two dimensions exchanged, and complex numbers conjugated.

        >>> weft.zeros(5, 2, 3).mH.shape
        (5, 3, 2)
        """
        return movement.adjoint(self)

    conj = elementwise.conj

    @property
    def data(self: Any) -> Tensor:
        """The same memory, cut off the tape.

        >>> weft.ones(1, requires_grad=True).data.requires_grad
        False
        """
        return self.detach()

    # -- the tape

    def detach(self: Any) -> Tensor:
        """The same memory, cut off from gradients and tangents.

        >>> weft.ones(1, requires_grad=True).detach().requires_grad
        False
        """
        return self.stopped()

    def backward(
        self: Any,
        gradient: Any = None,
        retain_graph: bool | None = None,
        create_graph: bool = False,
        inputs: Any = None,
    ) -> None:
        """Add this tensor's gradients to the ``.grad`` of the leaves it comes from.

        >>> x = weft.tensor([1.0, 2.0], requires_grad=True)
        >>> (x * x).backward(gradient=weft.ones(2))
        >>> x.grad
        tensor([2., 4.], shape=(2,), dtype=float32)
        """
        seeds = None if gradient is None else [gradient]
        engine.backward([self], seeds, retain_graph, create_graph, inputs)

    register_hook = engine.register_hook
    retain_grad = engine.retain_grad

    @property
    def retains_grad(self: Any) -> bool:
        """Whether ``retain_grad`` was called on this intermediate tensor."""
        return self._node is not None and not self.is_leaf and bool(self._node.hooks)

    # -- conversions

    def to(self: Any, *args: Any, **options: Any) -> Tensor:
        """The tensor with another dtype or on another device; itself if unchanged.

        >>> weft.tensor([1.7]).to(weft.int64)
        tensor([1], shape=(1,), dtype=int64)
        """
        out = self
        options.pop("non_blocking", None)
        copy = options.pop("copy", False)
        for spec in (*args, options.pop("dtype", None), options.pop("device", None)):
            if spec is None or isinstance(spec, bool):
                continue
            if isinstance(spec, _Tensor):
                out = _moved(movement.cast(out, spec.dtype), spec.device)
            elif isinstance(spec, Device) or (
                isinstance(spec, str) and spec not in dtypes._BY_NAME
            ):
                out = _moved(out, find_device(spec))
            else:
                out = movement.cast(out, dtypes.as_dtype(spec))
        if options:
            raise ArgumentError(f"to: unknown options {sorted(options)}")
        return movement.clone(out) if copy and out is self else out

    def type_as(self: Any, other: Tensor) -> Tensor:
        """The tensor converted to another's dtype.

        >>> weft.ones(1).type_as(weft.tensor(1)).dtype
        weft.int64
        """
        return movement.cast(self, other.dtype)

    def cpu(self: Any) -> Tensor:
        """The tensor on the CPU.

        >>> weft.ones(1).cpu().device
        device('cpu')
        """
        return _moved(self, find_device("cpu"))

    def item(self: Any) -> Any:
        """The one element as a Python number.

        >>> weft.tensor([3]).item()
        3
        """
        array = self.to_host()
        if array.size != 1:
            raise ShapeError(
                f"item: expected one element, got shape {tuple(self.shape)}; "
                "use tolist()"
            )
        value = array.reshape(()).item()
        return float(value) if self.dtype.is_floating_point else value

    def tolist(self: Any) -> Any:
        """The elements as nested Python lists.

        >>> weft.tensor([[1, 2]]).tolist()
        [[1, 2]]
        """
        array = self.to_host()
        if self.dtype.name == "bfloat16":
            array = array.astype(np.float32)
        return array.tolist()

    def numpy(self: Any, *, force: bool = False) -> np.ndarray:
        """The values as a NumPy array that shares this tensor's memory.

        >>> weft.tensor([1.0, 2.0]).numpy()
        array([1., 2.], dtype=float32)
        """
        if self._node is not None and not force:
            raise AutogradError(
                "numpy: this tensor requires grad, and NumPy would not record; use "
                ".detach().numpy()"
            )
        if self.device.name != "cpu" and not force:
            raise DeviceError(
                f"numpy: this tensor is on {self.device.name!r}; move it with .cpu()"
            )
        return self.to_host()

    # -- new tensors like this one

    def new_tensor(self: Any, data: Any, **options: Any) -> Tensor:
        """A tensor of other data with this one's dtype.

        >>> weft.ones(1).new_tensor([1, 2])
        tensor([1., 2.], shape=(2,), dtype=float32)
        """
        return creation.tensor(data, **{"dtype": self.dtype, **options})

    def new_zeros(self: Any, *size: Any, **options: Any) -> Tensor:
        """Zeros with this tensor's dtype.

        >>> weft.tensor([1]).new_zeros(2)
        tensor([0, 0], shape=(2,), dtype=int64)
        """
        return creation.zeros(*size, **{"dtype": self.dtype, **options})

    def new_ones(self: Any, *size: Any, **options: Any) -> Tensor:
        """Ones with this tensor's dtype.

        >>> weft.tensor([1]).new_ones(2)
        tensor([1, 1], shape=(2,), dtype=int64)
        """
        return creation.ones(*size, **{"dtype": self.dtype, **options})

    def new_full(self: Any, size: Any, fill_value: Any, **options: Any) -> Tensor:
        """One value with this tensor's dtype.

        >>> weft.tensor([1]).new_full((2,), 5)
        tensor([5, 5], shape=(2,), dtype=int64)
        """
        return creation.full(size, fill_value, **{"dtype": self.dtype, **options})

    def new_empty(self: Any, *size: Any, **options: Any) -> Tensor:
        """Unset elements with this tensor's dtype.

        >>> weft.tensor([1]).new_empty(2).dtype
        weft.int64
        """
        return creation.empty(*size, **{"dtype": self.dtype, **options})

    # -- Python protocols

    def __bool__(self: Any) -> bool:
        if self.numel() != 1:
            raise ArgumentError(
                f"bool: the truth of a tensor of shape {tuple(self.shape)} is "
                "ambiguous; use .any() or .all()"
            )
        return bool(self.item())

    def __float__(self: Any) -> float:
        return float(self.item())

    def __int__(self: Any) -> int:
        return int(self.item())

    def __complex__(self: Any) -> complex:
        return complex(self.item())

    def __index__(self: Any) -> int:
        if self.dtype.is_inexact:
            raise DTypeError(
                f"index: expected an integer tensor, got {self.dtype.name}"
            )
        return int(self.item())

    def __len__(self: Any) -> int:
        if self.ndim == 0:
            raise DTypeError("len: a 0-d tensor has no length")
        return self.shape[0]

    def __iter__(self: Any) -> Any:
        if self.ndim == 0:
            raise DTypeError("iter: a 0-d tensor cannot be iterated")
        return iter(movement.unbind(self))

    def __contains__(self: Any, element: Any) -> bool:
        return bool((self == element).any())

    def __repr__(self: Any) -> str:
        if self._interpreter is not None:
            return (
                f"<{self._interpreter.name} tensor, shape={tuple(self.shape)}, "
                f"dtype={self.dtype.name}>"
            )
        text = format_tensor(self)
        return f"Parameter containing:\n{text}" if self._parameter else text

    def __format__(self: Any, spec: str) -> str:
        if spec and self.numel() == 1 and self._interpreter is None:
            return format(self.item(), spec)
        return format(repr(self), spec)

    # -- other libraries

    __array__ = interchange.to_array
    __array_ufunc__ = interchange.array_ufunc
    __array_function__ = interchange.array_function
    __array_namespace__ = interchange.array_namespace
    __dlpack__ = interchange.to_dlpack
    __dlpack_device__ = interchange.dlpack_device
    __reduce_ex__ = interchange.refuse_pickle
    __copy__ = interchange.shallow_copy
    to_device = interchange.to_device

    def __deepcopy__(self: Any, memo: dict[int, Any]) -> Tensor:
        if not self.is_leaf:
            raise AutogradError(
                "deepcopy: only leaves can be copied deeply; this tensor was made by "
                f"{self._node.name!r}. Use .detach().clone()"
            )
        kind: Any = type(self)
        twin = kind.__new__(kind)
        memo[id(self)] = twin
        for name, value in vars(self).items():
            if name in ("_node", "_storage", "_base", "_chain", "_data", "grad"):
                continue
            setattr(twin, name, value)
        twin._data = self._data.copy()
        twin._node = None
        if self._node is not None:
            twin.requires_grad_()
        if self.grad is not None:
            twin.grad = self.grad.detach().clone()
        return twin


def _cast_method(name: str, dtype: dtypes.DType) -> Any:
    def method(self: Any) -> Any:
        return movement.cast(self, dtype)

    method.__name__ = name
    method.__doc__ = f"""The tensor converted to {dtype.name}.

    >>> weft.ones(1).{name}().dtype
    weft.{dtype.name}
    """
    return method


_CASTS = {
    "float": dtypes.float32, "double": dtypes.float64, "half": dtypes.float16,
    "bfloat16": dtypes.bfloat16, "int": dtypes.int32, "long": dtypes.int64,
    "short": dtypes.int16, "char": dtypes.int8, "byte": dtypes.uint8,
    "bool": dtypes.bool_, "cfloat": dtypes.complex64, "cdouble": dtypes.complex128,
}  # fmt: skip


def _moved(x: Any, device: Device) -> Any:
    """A tensor on another device, by way of the host."""
    if x.device is device:
        return x
    host = x.to_host()
    return _Tensor.on_device(device.from_host(host), device)


def _install() -> None:
    for name, value in vars(Methods).items():
        if name not in (
            "__module__",
            "__dict__",
            "__weakref__",
            "__doc__",
            "__qualname__",
        ):
            setattr(_Tensor, name, value)
    for name, dtype in _CASTS.items():
        setattr(_Tensor, name, _cast_method(name, dtype))


_install()
