"""Names inside names: ``math.log``, ``random.normal``, ``contrib.layers.flatten``."""

from __future__ import annotations

from typing import Any

from weft.static import (
    absent,
    arrays,
    clipping,
    contrib_layers,
    elementwise,
    indexing,
    matrices,
    nn,
    rnn_cell,
    segments,
)
from weft.static import (
    initializers as _initializers,
)
from weft.static import (
    math as _math,
)
from weft.static import (
    random as _random,
)


class Namespace:
    """A set of names under a name; one that is not there says so.

    >>> weft.static.linalg
    <namespace 'linalg', 29 names>
    """

    def __init__(self, name: str, **members: Any) -> None:
        vars(self).update(members, __name__=name)

    def __getattr__(self, name: str) -> Any:
        raise absent.error(self.__name__, name)

    def __dir__(self) -> list[str]:
        return [name for name in vars(self) if not name.startswith("__")]

    def __repr__(self) -> str:
        return f"<namespace {self.__name__!r}, {len(dir(self))} names>"


_ARRAYS = arrays, clipping, elementwise, indexing, matrices, segments


def _from(modules: Any, names: str) -> dict[str, Any]:
    """The values of these names in a module, or in the first of several that has it."""
    places = modules if isinstance(modules, tuple) else (modules,)
    return {
        name: next(vars(place)[name] for place in places if name in vars(place))
        for name in names.split()
    }


math = Namespace(
    "math",
    **_from(
        _math,
        "abs add add_n ceil cos divide equal exp floor floordiv greater greater_equal "
        "less less_equal log logical_and logical_not logical_or maximum minimum mod "
        "multiply negative not_equal pow reciprocal reduce_all reduce_any reduce_max "
        "reduce_mean reduce_min reduce_prod reduce_sum rsqrt sigmoid sign sin sqrt "
        "square subtract tan tanh truediv",
    ),
    **_from(
        _ARRAYS,
        "accumulate_n acos acosh argmax argmin asin asinh atan atan2 atanh bincount "
        "confusion_matrix cosh count_nonzero cumprod cumsum digamma erf erfc expm1 "
        "floormod is_finite is_inf is_nan lgamma log1p logical_xor reduce_logsumexp "
        "reduce_std reduce_variance rint round sinh squared_difference "
        "unsorted_segment_max unsorted_segment_mean unsorted_segment_min "
        "unsorted_segment_prod unsorted_segment_sum xdivy xlogy xlog1py erfinv ndtri "
        "igamma igammac zeta real imag conj angle multiply_no_nan reciprocal_no_nan "
        "invert_permutation scalar_mul",
    ),
    **_from(nn, "in_top_k l2_normalize log_softmax log_sigmoid softmax softplus "
            "softsign top_k zero_fraction"),
    divide_no_nan=elementwise.div_no_nan,
)  # fmt: skip

linalg = Namespace(
    "linalg",
    **_from(
        _ARRAYS,
        "cholesky cross diag diag_part einsum eye matrix_transpose norm qr svd "
        "tensordot trace logdet matvec cholesky_solve",
    ),
    matmul=_math.matmul,
    set_diag=matrices.matrix_set_diag,
    triangular_solve=matrices.matrix_triangular_solve,
    eigvalsh=matrices.self_adjoint_eigvals,
    transpose=matrices.matrix_transpose,
    tensor_diag=matrices.diag,
    tensor_diag_part=matrices.diag_part,
    band_part=matrices.matrix_band_part,
    det=matrices.matrix_determinant,
    eigh=matrices.self_adjoint_eig,
    inv=matrices.matrix_inverse,
    solve=matrices.matrix_solve,
    l2_normalize=nn.l2_normalize,
    global_norm=clipping.global_norm,
)

random = Namespace(
    "random",
    normal=_random.random_normal,
    uniform=_random.random_uniform,
    truncated_normal=_random.truncated_normal,
    shuffle=_random.random_shuffle,
    multinomial=_random.multinomial,
    categorical=_random.multinomial,
    set_random_seed=_random.set_random_seed,
)

initializers = Namespace(
    "initializers",
    zeros=_initializers.Zeros,
    ones=_initializers.Ones,
    constant=_initializers.Constant,
    random_normal=_initializers.RandomNormal,
    random_uniform=_initializers.RandomUniform,
    truncated_normal=_initializers.TruncatedNormal,
    variance_scaling=_initializers.VarianceScaling,
    orthogonal=_initializers.Orthogonal,
    identity=_initializers.Identity,
    **_from(
        _initializers,
        "glorot_normal glorot_uniform he_normal he_uniform lecun_normal lecun_uniform",
    ),
)

contrib = Namespace(
    "contrib",
    layers=contrib_layers,
    rnn=Namespace(
        "contrib.rnn",
        **_from(rnn_cell, " ".join(rnn_cell.__all__)),
        **_from(nn, "static_bidirectional_rnn static_rnn"),
    ),
)


def _is_gpu_available(*args: Any, **kwargs: Any) -> bool:
    return False  # a static graph runs on the CPU


test = Namespace("test", is_gpu_available=_is_gpu_available)
