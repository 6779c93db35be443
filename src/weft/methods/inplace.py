"""The methods that change a tensor in place."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from weft import dtype as dtypes
from weft.core.inplace import assign, fitted, inplace, inplace_arithmetic, reshaped
from weft.core.tensor import Tensor as _Tensor
from weft.errors import (
    ArgumentError,
    ShapeError,
)
from weft.ops import (
    arithmetic,
    bits,
    comparison,
    creation,
    cumulative,
    diagonals,
    error_functions,
    gamma_functions,
    index,
    indexing,
    masks,
    products,
    random,
    rounding,
    scattering,
    select,
    shaping,
    transcendental,
)

if TYPE_CHECKING:
    from weft.core.tensor import Tensor


class InPlace:
    """The methods whose names end in an underscore, and ``+=`` and its like."""

    add_ = inplace_arithmetic(arithmetic.add, "add_", np.add)
    sub_ = inplace_arithmetic(arithmetic.sub, "sub_", np.subtract)
    mul_ = inplace_arithmetic(arithmetic.mul, "mul_", np.multiply)
    div_ = inplace_arithmetic(arithmetic.div, "div_", np.true_divide)
    neg_ = inplace(arithmetic.neg, "neg_")
    abs_ = inplace(arithmetic.abs, "abs_")
    sign_ = inplace(arithmetic.sign, "sign_")
    square_ = inplace(arithmetic.square, "square_")
    reciprocal_ = inplace(arithmetic.reciprocal, "reciprocal_")
    pow_ = inplace(arithmetic.pow, "pow_", "2")
    remainder_ = inplace(arithmetic.remainder, "remainder_", "2")
    fmod_ = inplace(arithmetic.fmod, "fmod_", "2")
    floor_divide_ = inplace(arithmetic.floor_divide, "floor_divide_", "2")
    clamp_ = inplace(select.clamp, "clamp_", "0, 1")
    clamp_min_ = inplace(select.clamp_min, "clamp_min_", "0")
    clamp_max_ = inplace(select.clamp_max, "clamp_max_", "1")
    clip_ = inplace(select.clip, "clip_", "0, 1")
    nan_to_num_ = inplace(select.nan_to_num, "nan_to_num_")
    eq_ = inplace(comparison.eq, "eq_", "1")
    ne_ = inplace(comparison.ne, "ne_", "1")
    lt_ = inplace(comparison.lt, "lt_", "1")
    le_ = inplace(comparison.le, "le_", "1")
    gt_ = inplace(comparison.gt, "gt_", "1")
    ge_ = inplace(comparison.ge, "ge_", "1")
    logical_and_ = inplace(bits.logical_and, "logical_and_", "x")
    logical_or_ = inplace(bits.logical_or, "logical_or_", "x")
    logical_xor_ = inplace(bits.logical_xor, "logical_xor_", "x")
    logical_not_ = inplace(bits.logical_not, "logical_not_")
    bitwise_and_ = inplace(bits.bitwise_and, "bitwise_and_", "3", "int64")
    bitwise_or_ = inplace(bits.bitwise_or, "bitwise_or_", "3", "int64")
    bitwise_xor_ = inplace(bits.bitwise_xor, "bitwise_xor_", "3", "int64")
    bitwise_not_ = inplace(bits.bitwise_not, "bitwise_not_", "", "int64")
    floor_ = inplace(rounding.floor, "floor_")
    ceil_ = inplace(rounding.ceil, "ceil_")
    trunc_ = inplace(rounding.trunc, "trunc_")
    round_ = inplace(rounding.round, "round_")
    frac_ = inplace(rounding.frac, "frac_")
    copysign_ = inplace(arithmetic.copysign, "copysign_", "-1.0")
    lerp_ = inplace(arithmetic.lerp, "lerp_", "x, 0.5")
    addcmul_ = inplace(arithmetic.addcmul, "addcmul_", "x, x")
    addcdiv_ = inplace(arithmetic.addcdiv, "addcdiv_", "x, x")
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
    tril_ = inplace(diagonals.tril, "tril_")
    triu_ = inplace(diagonals.triu, "triu_")
    cumsum_ = inplace(cumulative.cumsum, "cumsum_", "0")
    cumprod_ = inplace(cumulative.cumprod, "cumprod_", "0")
    scatter_ = inplace(scattering.scatter, "scatter_", "0, weft.tensor([[0]]), 5.0")
    scatter_add_ = inplace(
        scattering.scatter_add, "scatter_add_", "0, weft.tensor([[0]]), x"
    )
    index_add_ = inplace(index.index_add, "index_add_", "0, weft.tensor([0, 1]), x")
    index_copy_ = inplace(index.index_copy, "index_copy_", "0, weft.tensor([1, 0]), x")
    index_fill_ = inplace(index.index_fill, "index_fill_", "0, weft.tensor([0]), 5")
    masked_fill_ = inplace(masks.masked_fill, "masked_fill_", "x > 0, 5")
    addmm_ = inplace(products.addmm, "addmm_", "x, x")
    digamma_ = inplace(gamma_functions.digamma, "digamma_")
    erf_ = inplace(error_functions.erf, "erf_")
    erfc_ = inplace(error_functions.erfc, "erfc_")
    erfinv_ = inplace(error_functions.erfinv, "erfinv_")
    lgamma_ = inplace(gamma_functions.lgamma, "lgamma_")

    scatter_reduce_ = inplace(
        scattering.scatter_reduce, "scatter_reduce_", "0, weft.tensor([[0]]), x, 'amax'"
    )
    index_put_ = inplace(
        indexing.index_put, "index_put_", "(weft.tensor([0]),), weft.tensor(5.0)"
    )
    put_ = inplace(indexing.put, "put_", "weft.tensor([0]), weft.tensor([5.0])")
    masked_scatter_ = inplace(masks.masked_scatter, "masked_scatter_", "x > 0, x * 2")
    sgn_ = inplace(arithmetic.sgn, "sgn_")
    gcd_ = inplace(bits.gcd, "gcd_", "2", "int64")
    lcm_ = inplace(bits.lcm, "lcm_", "2", "int64")
    bitwise_left_shift_ = inplace(
        bits.bitwise_left_shift, "bitwise_left_shift_", "1", "int64"
    )
    bitwise_right_shift_ = inplace(
        bits.bitwise_right_shift, "bitwise_right_shift_", "1", "int64"
    )
    ldexp_ = inplace(arithmetic.ldexp, "ldexp_", "x")
    heaviside_ = inplace(select.heaviside, "heaviside_", "x")
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
    relu_ = inplace(select.relu, "relu_")
    nextafter_ = inplace(rounding.nextafter, "nextafter_", "x * 2")
    t_ = reshaped(shaping.t, "t_")
    transpose_ = reshaped(shaping.transpose, "transpose_", "0, 1")
    swapdims_ = reshaped(shaping.swapdims, "swapdims_", "0, 1")
    swapaxes_ = reshaped(shaping.swapaxes, "swapaxes_", "0, 1")
    squeeze_ = reshaped(shaping.squeeze, "squeeze_")
    unsqueeze_ = reshaped(shaping.unsqueeze, "unsqueeze_", "0")

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
    __imatmul__ = inplace(products.matmul, "__imatmul__", "x")

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
        ids = tuple(_Tensor(p[kept]).to(self.device) for p in places)
        self[ids] = fill_value
        return self

    def copy_(self: Any, src: Any, non_blocking: bool = False) -> Tensor:
        """Take over another tensor's values, broadcast and converted.

        >>> weft.zeros(2).copy_(weft.tensor([1, 2]))
        tensor([1., 2.], shape=(2,), dtype=float32)
        """
        given = indexing.given_value(src, self).to(self.device)
        value = indexing.value_for(self.shape, self, given, "copy_")
        return assign(self, value, "copy_")

    def fill_(self: Any, value: Any) -> Tensor:
        """Set every element to one value.

        >>> weft.zeros(2).fill_(3)
        tensor([3., 3.], shape=(2,), dtype=float32)
        """
        return InPlace.copy_(self, value)

    def zero_(self: Any) -> Tensor:
        """Set every element to 0.

        >>> weft.ones(2).zero_()
        tensor([0., 0.], shape=(2,), dtype=float32)
        """
        return InPlace.copy_(self, 0)

    def _refill(self: Any, values: Any, name: str) -> Tensor:
        return assign(self, fitted(self, values, name), name)

    def uniform_(self: Any, from_: float = 0.0, to: float = 1.0, **options: Any) -> Any:
        """Fill with uniform random numbers.

        >>> weft.zeros(2).uniform_(5, 6).min() >= 5
        tensor(True, dtype=bool)
        """
        values = random.rand(
            self.shape, dtype=self.dtype, device=self.device, **options
        )
        return InPlace._refill(self, values * (to - from_) + from_, "uniform_")

    def normal_(self: Any, mean: float = 0.0, std: float = 1.0, **options: Any) -> Any:
        """Fill with normal random numbers.

        >>> weft.zeros(2, 3).normal_().shape
        (2, 3)
        """
        values = random.randn(
            self.shape, dtype=self.dtype, device=self.device, **options
        )
        return InPlace._refill(self, values * std + mean, "normal_")

    def bernoulli_(self: Any, p: float = 0.5, **options: Any) -> Any:
        """Fill with 1 with probability p, else 0.

        >>> weft.zeros(2).bernoulli_(1.0)
        tensor([1., 1.], shape=(2,), dtype=float32)
        """
        chance = creation.full_like(self, float(p), dtype=dtypes.float32)
        values = random.bernoulli(chance, **options).to(self.dtype)
        return InPlace._refill(self, values, "bernoulli_")

    def exponential_(self: Any, lambd: float = 1.0, **options: Any) -> Any:
        """Fill with exponentially distributed random numbers of rate ``lambd``.

        >>> bool((weft.zeros(2).exponential_(2.0) >= 0).all())
        True
        """
        if not lambd > 0:
            raise ArgumentError(f"exponential_: expected lambd above 0, got {lambd}")
        values = random.rand(
            self.shape, dtype=self.dtype, device=self.device, **options
        )
        return InPlace._refill(self, -(-values).log1p() / lambd, "exponential_")

    def random_(self: Any, from_: int, to: int | None = None, **options: Any) -> Any:
        """Fill with random whole numbers from ``from_`` (or 0) up to ``to``.

        >>> weft.zeros(2).random_(1)
        tensor([0., 0.], shape=(2,), dtype=float32)
        """
        low, high = (0, from_) if to is None else (from_, to)
        values = random.randint(low, high, self.shape, device=self.device, **options)
        return InPlace._refill(self, values.to(self.dtype), "random_")
