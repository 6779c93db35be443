"""The functions of a tensor that are methods too."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from weft.linalg import factoring, powers, solving
from weft.ops import (
    arithmetic,
    bessel_functions,
    bits,
    broadcasting,
    comparison,
    complex_numbers,
    copies,
    cumulative,
    diagonals,
    error_functions,
    extremes,
    gamma_functions,
    gathering,
    index,
    indexing,
    masks,
    operands,
    padding,
    predicates,
    probabilities,
    products,
    random,
    reduce,
    rounding,
    scattering,
    select,
    shaping,
    slicing,
    sorting,
    statistics,
    strided,
    transcendental,
)

if TYPE_CHECKING:
    from weft.core.tensor import Tensor


class Functions:
    """The functions that are methods."""

    # -- elementwise

    add = arithmetic.add
    sub = arithmetic.sub
    mul = arithmetic.mul
    div = arithmetic.div
    neg = arithmetic.neg
    abs = arithmetic.abs
    sign = arithmetic.sign
    sgn = arithmetic.sgn
    positive = arithmetic.positive
    square = arithmetic.square
    reciprocal = arithmetic.reciprocal
    pow = arithmetic.pow
    remainder = arithmetic.remainder
    fmod = arithmetic.fmod
    floor_divide = arithmetic.floor_divide
    maximum = select.maximum
    minimum = select.minimum
    clamp = select.clamp
    clamp_min = select.clamp_min
    clamp_max = select.clamp_max
    clip = select.clip
    nan_to_num = select.nan_to_num
    eq = comparison.eq
    ne = comparison.ne
    lt = comparison.lt
    le = comparison.le
    gt = comparison.gt
    ge = comparison.ge
    isclose = comparison.isclose
    allclose = comparison.allclose
    equal = comparison.equal
    isnan = predicates.isnan
    isinf = predicates.isinf
    isfinite = predicates.isfinite
    isposinf = predicates.isposinf
    isneginf = predicates.isneginf
    signbit = predicates.signbit
    logical_and = bits.logical_and
    logical_or = bits.logical_or
    logical_xor = bits.logical_xor
    logical_not = bits.logical_not
    bitwise_and = bits.bitwise_and
    bitwise_or = bits.bitwise_or
    bitwise_xor = bits.bitwise_xor
    bitwise_not = bits.bitwise_not
    bitwise_left_shift = bits.bitwise_left_shift
    bitwise_right_shift = bits.bitwise_right_shift
    gcd = bits.gcd
    lcm = bits.lcm
    floor = rounding.floor
    ceil = rounding.ceil
    trunc = rounding.trunc
    round = rounding.round
    frac = rounding.frac
    copysign = arithmetic.copysign
    nextafter = rounding.nextafter
    lerp = arithmetic.lerp
    addcmul = arithmetic.addcmul
    addcdiv = arithmetic.addcdiv
    subtract = arithmetic.sub
    multiply = arithmetic.mul
    divide = arithmetic.div
    negative = arithmetic.neg
    absolute = arithmetic.abs
    greater = comparison.gt
    greater_equal = comparison.ge
    less = comparison.lt
    less_equal = comparison.le
    not_equal = comparison.ne
    true_divide = arithmetic.div
    relu = select.relu
    fmax = select.fmax
    fmin = select.fmin
    heaviside = select.heaviside
    float_power = arithmetic.float_power
    ldexp = arithmetic.ldexp
    isreal = complex_numbers.isreal
    is_nonzero = predicates.is_nonzero
    is_same_size = predicates.is_same_size
    fix = rounding.fix
    conj = complex_numbers.conj

    def where(self: Any, condition: Any, other: Any) -> Tensor:
        """This tensor where the condition holds, ``other`` elsewhere.

        >>> x = weft.tensor([-1.0, 4.0])
        >>> x.where(x > 0, 0.0)
        tensor([0., 4.], shape=(2,), dtype=float32)
        """
        return select.where(condition, self, other)

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
    mean = statistics.mean
    nansum = reduce.nansum
    nanmean = statistics.nanmean
    count_nonzero = reduce.count_nonzero
    var = statistics.var
    std = statistics.std
    prod = cumulative.prod
    amax = extremes.amax
    amin = extremes.amin
    aminmax = extremes.aminmax
    argmax = extremes.argmax
    argmin = extremes.argmin
    max = extremes.max
    min = extremes.min
    any = reduce.any
    all = reduce.all
    cumsum = cumulative.cumsum
    cumprod = cumulative.cumprod
    diff = cumulative.diff
    logsumexp = statistics.logsumexp
    logcumsumexp = cumulative.logcumsumexp
    cov = statistics.cov
    corrcoef = statistics.corrcoef
    norm = statistics.norm
    dist = statistics.dist

    # -- movement

    expand = broadcasting.expand
    expand_as = broadcasting.expand_as
    broadcast_to = broadcasting.broadcast_to
    reshape = shaping.reshape
    view = shaping.view
    flatten = shaping.flatten
    ravel = shaping.ravel
    unflatten = shaping.unflatten
    as_strided = strided.as_strided
    unfold = strided.unfold
    hsplit = slicing.hsplit
    vsplit = slicing.vsplit
    dsplit = slicing.dsplit
    view_as = shaping.view_as
    reshape_as = shaping.reshape_as
    sum_to_size = broadcasting.sum_to_size
    squeeze = shaping.squeeze
    unsqueeze = shaping.unsqueeze
    permute = shaping.permute
    transpose = shaping.transpose
    swapaxes = shaping.swapaxes
    swapdims = shaping.swapdims
    t = shaping.t
    adjoint = shaping.adjoint
    movedim = shaping.movedim
    moveaxis = shaping.moveaxis
    narrow = slicing.narrow
    select = slicing.select
    unbind = slicing.unbind
    split = slicing.split
    chunk = slicing.chunk
    tensor_split = slicing.tensor_split
    flip = padding.flip
    fliplr = padding.fliplr
    flipud = padding.flipud
    repeat = padding.repeat
    tile = padding.tile
    roll = padding.roll
    rot90 = padding.rot90
    tril = diagonals.tril
    triu = diagonals.triu
    clone = copies.clone
    contiguous = copies.contiguous
    atleast_1d = shaping.atleast_1d
    atleast_2d = shaping.atleast_2d
    atleast_3d = shaping.atleast_3d

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

    gather = gathering.gather
    scatter = scattering.scatter
    scatter_add = scattering.scatter_add
    scatter_reduce = scattering.scatter_reduce
    masked_scatter = masks.masked_scatter
    index_put = indexing.index_put
    put = indexing.put
    diagflat = diagonals.diagflat
    diagonal_scatter = diagonals.diagonal_scatter
    select_scatter = indexing.select_scatter
    slice_scatter = indexing.slice_scatter
    take_along_dim = gathering.take_along_dim
    take = index.take
    index_select = index.index_select
    index_add = index.index_add
    index_copy = index.index_copy
    index_fill = index.index_fill
    masked_fill = masks.masked_fill
    masked_select = masks.masked_select
    nonzero = operands.nonzero
    argwhere = operands.argwhere
    diagonal = diagonals.diagonal
    diag = diagonals.diag
    diag_embed = diagonals.diag_embed
    trace = diagonals.trace
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

    cholesky = factoring.cholesky
    cross = powers.cross_along
    det = solving.det
    inverse = solving.inverse
    logdet = solving.logdet
    matrix_exp = powers.matrix_exp
    matrix_power = powers.matrix_power
    pinverse = solving.pinverse
    slogdet = solving.slogdet
    digamma = gamma_functions.digamma
    erf = error_functions.erf
    erfc = error_functions.erfc
    erfinv = error_functions.erfinv
    i0 = bessel_functions.i0
    lgamma = gamma_functions.lgamma
    log_softmax = probabilities.log_softmax
    softmax = probabilities.softmax

    def polygamma(self: Any, n: int) -> Tensor:
        """The n-th derivative of ``digamma`` of each element.

        >>> weft.tensor([1.0]).polygamma(1)
        tensor([1.6449], shape=(1,), dtype=float32)
        """
        return gamma_functions.polygamma(n, self)
