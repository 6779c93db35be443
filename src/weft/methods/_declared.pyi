# Written by tools/stubs.py from the declarations of functions.

from typing import Any

from weft.core.tensor import Tensor
from weft import spectrogram
from weft.linalg import checked
from weft.linalg import factoring
from weft.linalg import householder
from weft.linalg import lu_factors
from weft.linalg import powers
from weft.linalg import solving
from weft.ops import activation
from weft.ops import arithmetic
from weft.ops import bessel_functions
from weft.ops import bits
from weft.ops import broadcasting
from weft.ops import comparison
from weft.ops import complex_numbers
from weft.ops import compositions
from weft.ops import copies
from weft.ops import cumulative
from weft.ops import diagonals
from weft.ops import error_functions
from weft.ops import extremes
from weft.ops import gamma_functions
from weft.ops import gathering
from weft.ops import histograms
from weft.ops import incomplete_gamma
from weft.ops import index
from weft.ops import indexing
from weft.ops import masks
from weft.ops import operands
from weft.ops import padding
from weft.ops import predicates
from weft.ops import probabilities
from weft.ops import products
from weft.ops import random
from weft.ops import reduce
from weft.ops import rounding
from weft.ops import scattering
from weft.ops import select
from weft.ops import shaping
from weft.ops import slicing
from weft.ops import sorting
from weft.ops import statistics
from weft.ops import strided
from weft.ops import transcendental

class Declared:
    abs = arithmetic.abs
    absolute = arithmetic.abs
    acos = transcendental.acos
    acosh = transcendental.acosh
    add = arithmetic.add
    addbmm = compositions.addbmm
    addcdiv = arithmetic.addcdiv
    addcmul = arithmetic.addcmul
    addmm = products.addmm
    addmv = products.addmv
    addr = products.addr
    adjoint = shaping.adjoint
    all = reduce.all
    allclose = comparison.allclose
    amax = extremes.amax
    amin = extremes.amin
    aminmax = extremes.aminmax
    angle = transcendental.angle
    any = reduce.any
    arccos = transcendental.acos
    arccosh = transcendental.acosh
    arcsin = transcendental.asin
    arcsinh = transcendental.asinh
    arctan = transcendental.atan
    arctan2 = transcendental.atan2
    arctanh = transcendental.atanh
    argmax = extremes.argmax
    argmin = extremes.argmin
    argsort = sorting.argsort
    argwhere = operands.argwhere
    as_strided = strided.as_strided
    as_strided_scatter = compositions.as_strided_scatter
    asin = transcendental.asin
    asinh = transcendental.asinh
    atan = transcendental.atan
    atan2 = transcendental.atan2
    atanh = transcendental.atanh
    atleast_1d = shaping.atleast_1d
    atleast_2d = shaping.atleast_2d
    atleast_3d = shaping.atleast_3d
    baddbmm = products.baddbmm
    bernoulli = random.bernoulli
    bincount = sorting.bincount
    bitwise_and = bits.bitwise_and
    bitwise_left_shift = bits.bitwise_left_shift
    bitwise_not = bits.bitwise_not
    bitwise_or = bits.bitwise_or
    bitwise_right_shift = bits.bitwise_right_shift
    bitwise_xor = bits.bitwise_xor
    bmm = products.bmm
    broadcast_to = broadcasting.broadcast_to
    ceil = rounding.ceil
    cholesky = factoring.cholesky
    cholesky_inverse = checked.cholesky_inverse
    cholesky_solve = checked.cholesky_solve
    chunk = slicing.chunk
    clamp = select.clamp
    clamp_max = select.clamp_max
    clamp_min = select.clamp_min
    clip = select.clamp
    clone = copies.clone
    conj = complex_numbers.conj
    conj_physical = complex_numbers.conj_physical
    contiguous = copies.contiguous
    copysign = arithmetic.copysign
    corrcoef = statistics.corrcoef
    cos = transcendental.cos
    cosh = transcendental.cosh
    count_nonzero = reduce.count_nonzero
    cov = statistics.cov
    cross = powers.cross_along
    cummax = sorting.cummax
    cummin = sorting.cummin
    cumprod = cumulative.cumprod
    cumsum = cumulative.cumsum
    deg2rad = transcendental.deg2rad
    det = solving.det
    diag = diagonals.diag
    diag_embed = diagonals.diag_embed
    diagflat = diagonals.diagflat
    diagonal = diagonals.diagonal
    diagonal_scatter = diagonals.diagonal_scatter
    diff = cumulative.diff
    digamma = gamma_functions.digamma
    dist = statistics.dist
    div = arithmetic.div
    divide = arithmetic.div
    dot = products.dot
    dsplit = slicing.dsplit
    eq = comparison.eq
    equal = comparison.equal
    erf = error_functions.erf
    erfc = error_functions.erfc
    erfinv = error_functions.erfinv
    exp = transcendental.exp
    exp2 = transcendental.exp2
    expand = broadcasting.expand
    expand_as = broadcasting.expand_as
    expm1 = transcendental.expm1
    fix = rounding.trunc
    flatten = shaping.flatten
    flip = padding.flip
    fliplr = padding.fliplr
    flipud = padding.flipud
    float_power = arithmetic.float_power
    floor = rounding.floor
    floor_divide = arithmetic.floor_divide
    fmax = select.fmax
    fmin = select.fmin
    fmod = arithmetic.fmod
    frac = rounding.frac
    frexp = compositions.frexp
    gather = gathering.gather
    gcd = bits.gcd
    ge = comparison.ge
    geqrf = householder.geqrf
    ger = compositions.ger
    greater = comparison.gt
    greater_equal = comparison.ge
    gt = comparison.gt
    heaviside = select.heaviside
    histc = sorting.histc
    histogram = histograms.histogram
    hsplit = slicing.hsplit
    hypot = transcendental.hypot
    i0 = bessel_functions.i0
    igamma = incomplete_gamma.igamma
    igammac = incomplete_gamma.igammac
    index_add = index.index_add
    index_copy = index.index_copy
    index_fill = index.index_fill
    index_put = indexing.index_put
    index_reduce = compositions.index_reduce
    index_select = index.index_select
    inner = products.inner
    inverse = solving.inverse
    is_nonzero = predicates.is_nonzero
    is_same_size = predicates.is_same_size
    isclose = comparison.isclose
    isfinite = predicates.isfinite
    isinf = predicates.isinf
    isnan = predicates.isnan
    isneginf = predicates.isneginf
    isposinf = predicates.isposinf
    isreal = complex_numbers.isreal
    istft = spectrogram.istft
    kron = products.kron
    kthvalue = sorting.kthvalue
    lcm = bits.lcm
    ldexp = arithmetic.ldexp
    le = comparison.le
    lerp = arithmetic.lerp
    less = comparison.lt
    less_equal = comparison.le
    lgamma = gamma_functions.lgamma
    log = transcendental.log
    log10 = transcendental.log10
    log1p = transcendental.log1p
    log2 = transcendental.log2
    log_softmax = probabilities.log_softmax
    logaddexp = transcendental.logaddexp
    logaddexp2 = transcendental.logaddexp2
    logcumsumexp = cumulative.logcumsumexp
    logdet = solving.logdet
    logical_and = bits.logical_and
    logical_not = bits.logical_not
    logical_or = bits.logical_or
    logical_xor = bits.logical_xor
    logit = transcendental.logit
    logsumexp = statistics.logsumexp
    lt = comparison.lt
    lu_solve = lu_factors.lu_solved
    masked_fill = masks.masked_fill
    masked_scatter = masks.masked_scatter
    masked_select = masks.masked_select
    matmul = products.matmul
    matrix_exp = powers.matrix_exp
    matrix_power = powers.matrix_power
    max = extremes.max
    maximum = select.maximum
    mean = statistics.mean
    median = sorting.median
    min = extremes.min
    minimum = select.minimum
    mm = products.mm
    mode = sorting.mode
    moveaxis = shaping.movedim
    movedim = shaping.movedim
    msort = sorting.msort
    mul = arithmetic.mul
    multinomial = random.multinomial
    multiply = arithmetic.mul
    mv = products.mv
    mvlgamma = compositions.mvlgamma
    nan_to_num = select.nan_to_num
    nanmean = statistics.nanmean
    nanmedian = sorting.nanmedian
    nanquantile = sorting.nanquantile
    nansum = reduce.nansum
    narrow = slicing.narrow
    narrow_copy = compositions.narrow_copy
    ne = comparison.ne
    neg = arithmetic.neg
    negative = arithmetic.neg
    nextafter = rounding.nextafter
    nonzero = operands.nonzero
    nonzero_static = compositions.nonzero_static
    norm = statistics.norm
    not_equal = comparison.ne
    orgqr = householder.orgqr
    ormqr = householder.ormqr
    outer = products.outer
    permute = shaping.permute
    pinverse = solving.pinverse
    positive = arithmetic.positive
    pow = arithmetic.pow
    prod = cumulative.prod
    put = indexing.put
    qr = checked.qr_of
    quantile = sorting.quantile
    rad2deg = transcendental.rad2deg
    ravel = shaping.ravel
    reciprocal = arithmetic.reciprocal
    relu = activation.relu
    remainder = arithmetic.remainder
    renorm = compositions.renorm
    repeat = padding.repeat
    repeat_interleave = index.repeat_interleave
    reshape = shaping.reshape
    reshape_as = shaping.reshape_as
    roll = padding.roll
    rot90 = padding.rot90
    round = rounding.round
    rsqrt = transcendental.rsqrt
    scatter = scattering.scatter
    scatter_add = scattering.scatter_add
    scatter_reduce = scattering.scatter_reduce
    select = slicing.select
    select_scatter = indexing.select_scatter
    sgn = arithmetic.sgn
    sigmoid = transcendental.sigmoid
    sign = arithmetic.sign
    signbit = predicates.signbit
    sin = transcendental.sin
    sinc = transcendental.sinc
    sinh = transcendental.sinh
    slice_scatter = indexing.slice_scatter
    slogdet = solving.slogdet
    softmax = probabilities.softmax
    sort = sorting.sort
    split = slicing.split
    split_with_sizes = compositions.split_with_sizes
    sqrt = transcendental.sqrt
    square = arithmetic.square
    squeeze = shaping.squeeze
    std = statistics.std
    stft = spectrogram.stft
    sub = arithmetic.sub
    subtract = arithmetic.sub
    sum = reduce.sum
    sum_to_size = broadcasting.sum_to_size
    svd = checked.svd_of
    swapaxes = shaping.transpose
    swapdims = shaping.transpose
    t = shaping.t
    take = index.take
    take_along_dim = gathering.take_along_dim
    tan = transcendental.tan
    tanh = transcendental.tanh
    tensor_split = slicing.tensor_split
    tile = padding.tile
    topk = sorting.topk
    trace = diagonals.trace
    transpose = shaping.transpose
    triangular_solve = checked.triangular_solve
    tril = diagonals.tril
    triu = diagonals.triu
    true_divide = arithmetic.div
    trunc = rounding.trunc
    unbind = slicing.unbind
    unflatten = shaping.unflatten
    unfold = strided.unfold
    unique = sorting.unique
    unique_consecutive = sorting.unique_consecutive
    unsafe_chunk = compositions.unsafe_chunk
    unsafe_split = compositions.unsafe_split
    unsafe_split_with_sizes = compositions.unsafe_split_with_sizes
    unsqueeze = shaping.unsqueeze
    var = statistics.var
    vdot = products.vdot
    view = shaping.view
    view_as = shaping.view_as
    vsplit = slicing.vsplit
    xlogy = transcendental.xlogy
    def abs_(self, *args: Any, **kwargs: Any) -> Tensor: ...
    def absolute_(self, *args: Any, **kwargs: Any) -> Tensor: ...
    def acos_(self, *args: Any, **kwargs: Any) -> Tensor: ...
    def acosh_(self, *args: Any, **kwargs: Any) -> Tensor: ...
    def add_(self, *args: Any, **kwargs: Any) -> Tensor: ...
    def addbmm_(self, *args: Any, **kwargs: Any) -> Tensor: ...
    def addcdiv_(self, *args: Any, **kwargs: Any) -> Tensor: ...
    def addcmul_(self, *args: Any, **kwargs: Any) -> Tensor: ...
    def addmm_(self, *args: Any, **kwargs: Any) -> Tensor: ...
    def addmv_(self, *args: Any, **kwargs: Any) -> Tensor: ...
    def addr_(self, *args: Any, **kwargs: Any) -> Tensor: ...
    def arccos_(self, *args: Any, **kwargs: Any) -> Tensor: ...
    def arccosh_(self, *args: Any, **kwargs: Any) -> Tensor: ...
    def arcsin_(self, *args: Any, **kwargs: Any) -> Tensor: ...
    def arcsinh_(self, *args: Any, **kwargs: Any) -> Tensor: ...
    def arctan2_(self, *args: Any, **kwargs: Any) -> Tensor: ...
    def arctan_(self, *args: Any, **kwargs: Any) -> Tensor: ...
    def arctanh_(self, *args: Any, **kwargs: Any) -> Tensor: ...
    def asin_(self, *args: Any, **kwargs: Any) -> Tensor: ...
    def asinh_(self, *args: Any, **kwargs: Any) -> Tensor: ...
    def atan2_(self, *args: Any, **kwargs: Any) -> Tensor: ...
    def atan_(self, *args: Any, **kwargs: Any) -> Tensor: ...
    def atanh_(self, *args: Any, **kwargs: Any) -> Tensor: ...
    def bitwise_and_(self, *args: Any, **kwargs: Any) -> Tensor: ...
    def bitwise_left_shift_(self, *args: Any, **kwargs: Any) -> Tensor: ...
    def bitwise_not_(self, *args: Any, **kwargs: Any) -> Tensor: ...
    def bitwise_or_(self, *args: Any, **kwargs: Any) -> Tensor: ...
    def bitwise_right_shift_(self, *args: Any, **kwargs: Any) -> Tensor: ...
    def bitwise_xor_(self, *args: Any, **kwargs: Any) -> Tensor: ...
    def ceil_(self, *args: Any, **kwargs: Any) -> Tensor: ...
    def clamp_(self, *args: Any, **kwargs: Any) -> Tensor: ...
    def clamp_max_(self, *args: Any, **kwargs: Any) -> Tensor: ...
    def clamp_min_(self, *args: Any, **kwargs: Any) -> Tensor: ...
    def clip_(self, *args: Any, **kwargs: Any) -> Tensor: ...
    def conj_physical_(self, *args: Any, **kwargs: Any) -> Tensor: ...
    def copysign_(self, *args: Any, **kwargs: Any) -> Tensor: ...
    def cos_(self, *args: Any, **kwargs: Any) -> Tensor: ...
    def cosh_(self, *args: Any, **kwargs: Any) -> Tensor: ...
    def cumprod_(self, *args: Any, **kwargs: Any) -> Tensor: ...
    def cumsum_(self, *args: Any, **kwargs: Any) -> Tensor: ...
    def deg2rad_(self, *args: Any, **kwargs: Any) -> Tensor: ...
    def digamma_(self, *args: Any, **kwargs: Any) -> Tensor: ...
    def div_(self, *args: Any, **kwargs: Any) -> Tensor: ...
    def divide_(self, *args: Any, **kwargs: Any) -> Tensor: ...
    def eq_(self, *args: Any, **kwargs: Any) -> Tensor: ...
    def erf_(self, *args: Any, **kwargs: Any) -> Tensor: ...
    def erfc_(self, *args: Any, **kwargs: Any) -> Tensor: ...
    def erfinv_(self, *args: Any, **kwargs: Any) -> Tensor: ...
    def exp2_(self, *args: Any, **kwargs: Any) -> Tensor: ...
    def exp_(self, *args: Any, **kwargs: Any) -> Tensor: ...
    def expm1_(self, *args: Any, **kwargs: Any) -> Tensor: ...
    def fix_(self, *args: Any, **kwargs: Any) -> Tensor: ...
    def float_power_(self, *args: Any, **kwargs: Any) -> Tensor: ...
    def floor_(self, *args: Any, **kwargs: Any) -> Tensor: ...
    def floor_divide_(self, *args: Any, **kwargs: Any) -> Tensor: ...
    def fmod_(self, *args: Any, **kwargs: Any) -> Tensor: ...
    def frac_(self, *args: Any, **kwargs: Any) -> Tensor: ...
    def gcd_(self, *args: Any, **kwargs: Any) -> Tensor: ...
    def ge_(self, *args: Any, **kwargs: Any) -> Tensor: ...
    def greater_(self, *args: Any, **kwargs: Any) -> Tensor: ...
    def greater_equal_(self, *args: Any, **kwargs: Any) -> Tensor: ...
    def gt_(self, *args: Any, **kwargs: Any) -> Tensor: ...
    def heaviside_(self, *args: Any, **kwargs: Any) -> Tensor: ...
    def hypot_(self, *args: Any, **kwargs: Any) -> Tensor: ...
    def igamma_(self, *args: Any, **kwargs: Any) -> Tensor: ...
    def igammac_(self, *args: Any, **kwargs: Any) -> Tensor: ...
    def index_add_(self, *args: Any, **kwargs: Any) -> Tensor: ...
    def index_copy_(self, *args: Any, **kwargs: Any) -> Tensor: ...
    def index_fill_(self, *args: Any, **kwargs: Any) -> Tensor: ...
    def index_put_(self, *args: Any, **kwargs: Any) -> Tensor: ...
    def index_reduce_(self, *args: Any, **kwargs: Any) -> Tensor: ...
    def lcm_(self, *args: Any, **kwargs: Any) -> Tensor: ...
    def ldexp_(self, *args: Any, **kwargs: Any) -> Tensor: ...
    def le_(self, *args: Any, **kwargs: Any) -> Tensor: ...
    def lerp_(self, *args: Any, **kwargs: Any) -> Tensor: ...
    def less_(self, *args: Any, **kwargs: Any) -> Tensor: ...
    def less_equal_(self, *args: Any, **kwargs: Any) -> Tensor: ...
    def lgamma_(self, *args: Any, **kwargs: Any) -> Tensor: ...
    def log10_(self, *args: Any, **kwargs: Any) -> Tensor: ...
    def log1p_(self, *args: Any, **kwargs: Any) -> Tensor: ...
    def log2_(self, *args: Any, **kwargs: Any) -> Tensor: ...
    def log_(self, *args: Any, **kwargs: Any) -> Tensor: ...
    def logical_and_(self, *args: Any, **kwargs: Any) -> Tensor: ...
    def logical_not_(self, *args: Any, **kwargs: Any) -> Tensor: ...
    def logical_or_(self, *args: Any, **kwargs: Any) -> Tensor: ...
    def logical_xor_(self, *args: Any, **kwargs: Any) -> Tensor: ...
    def logit_(self, *args: Any, **kwargs: Any) -> Tensor: ...
    def lt_(self, *args: Any, **kwargs: Any) -> Tensor: ...
    def masked_fill_(self, *args: Any, **kwargs: Any) -> Tensor: ...
    def masked_scatter_(self, *args: Any, **kwargs: Any) -> Tensor: ...
    def mul_(self, *args: Any, **kwargs: Any) -> Tensor: ...
    def multiply_(self, *args: Any, **kwargs: Any) -> Tensor: ...
    def mvlgamma_(self, *args: Any, **kwargs: Any) -> Tensor: ...
    def nan_to_num_(self, *args: Any, **kwargs: Any) -> Tensor: ...
    def ne_(self, *args: Any, **kwargs: Any) -> Tensor: ...
    def neg_(self, *args: Any, **kwargs: Any) -> Tensor: ...
    def negative_(self, *args: Any, **kwargs: Any) -> Tensor: ...
    def nextafter_(self, *args: Any, **kwargs: Any) -> Tensor: ...
    def not_equal_(self, *args: Any, **kwargs: Any) -> Tensor: ...
    def pow_(self, *args: Any, **kwargs: Any) -> Tensor: ...
    def put_(self, *args: Any, **kwargs: Any) -> Tensor: ...
    def rad2deg_(self, *args: Any, **kwargs: Any) -> Tensor: ...
    def reciprocal_(self, *args: Any, **kwargs: Any) -> Tensor: ...
    def relu_(self, *args: Any, **kwargs: Any) -> Tensor: ...
    def remainder_(self, *args: Any, **kwargs: Any) -> Tensor: ...
    def renorm_(self, *args: Any, **kwargs: Any) -> Tensor: ...
    def round_(self, *args: Any, **kwargs: Any) -> Tensor: ...
    def rsqrt_(self, *args: Any, **kwargs: Any) -> Tensor: ...
    def scatter_(self, *args: Any, **kwargs: Any) -> Tensor: ...
    def scatter_add_(self, *args: Any, **kwargs: Any) -> Tensor: ...
    def scatter_reduce_(self, *args: Any, **kwargs: Any) -> Tensor: ...
    def sgn_(self, *args: Any, **kwargs: Any) -> Tensor: ...
    def sigmoid_(self, *args: Any, **kwargs: Any) -> Tensor: ...
    def sign_(self, *args: Any, **kwargs: Any) -> Tensor: ...
    def sin_(self, *args: Any, **kwargs: Any) -> Tensor: ...
    def sinc_(self, *args: Any, **kwargs: Any) -> Tensor: ...
    def sinh_(self, *args: Any, **kwargs: Any) -> Tensor: ...
    def sqrt_(self, *args: Any, **kwargs: Any) -> Tensor: ...
    def square_(self, *args: Any, **kwargs: Any) -> Tensor: ...
    def squeeze_(self, *args: Any, **kwargs: Any) -> Tensor: ...
    def sub_(self, *args: Any, **kwargs: Any) -> Tensor: ...
    def subtract_(self, *args: Any, **kwargs: Any) -> Tensor: ...
    def swapaxes_(self, *args: Any, **kwargs: Any) -> Tensor: ...
    def swapdims_(self, *args: Any, **kwargs: Any) -> Tensor: ...
    def t_(self, *args: Any, **kwargs: Any) -> Tensor: ...
    def tan_(self, *args: Any, **kwargs: Any) -> Tensor: ...
    def tanh_(self, *args: Any, **kwargs: Any) -> Tensor: ...
    def transpose_(self, *args: Any, **kwargs: Any) -> Tensor: ...
    def tril_(self, *args: Any, **kwargs: Any) -> Tensor: ...
    def triu_(self, *args: Any, **kwargs: Any) -> Tensor: ...
    def true_divide_(self, *args: Any, **kwargs: Any) -> Tensor: ...
    def trunc_(self, *args: Any, **kwargs: Any) -> Tensor: ...
    def unsqueeze_(self, *args: Any, **kwargs: Any) -> Tensor: ...
    def xlogy_(self, *args: Any, **kwargs: Any) -> Tensor: ...
