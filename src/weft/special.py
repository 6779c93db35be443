"""``weft.special``: special functions, under PyTorch's names."""

from weft.ops.bessel_functions import i0, i0e, i1, i1e
from weft.ops.cylinder_functions import (
    airy_ai,
    bessel_j0,
    bessel_j1,
    bessel_y0,
    bessel_y1,
    modified_bessel_k0,
    modified_bessel_k1,
    scaled_modified_bessel_k0,
    scaled_modified_bessel_k1,
    spherical_bessel_j0,
)
from weft.ops.error_functions import erf, erfc, erfcx, erfinv, log_ndtr, ndtr, ndtri
from weft.ops.gamma_functions import digamma, multigammaln, polygamma
from weft.ops.gamma_functions import lgamma as gammaln
from weft.ops.incomplete_gamma import igamma as gammainc
from weft.ops.incomplete_gamma import igammac as gammaincc
from weft.ops.incomplete_gamma import zeta
from weft.ops.polynomials import (
    chebyshev_polynomial_t,
    chebyshev_polynomial_u,
    chebyshev_polynomial_v,
    chebyshev_polynomial_w,
    hermite_polynomial_h,
    hermite_polynomial_he,
    laguerre_polynomial_l,
    legendre_polynomial_p,
    shifted_chebyshev_polynomial_t,
    shifted_chebyshev_polynomial_u,
    shifted_chebyshev_polynomial_v,
    shifted_chebyshev_polynomial_w,
)
from weft.ops.probabilities import entr, log_softmax, softmax, xlog1py
from weft.ops.rounding import round
from weft.ops.statistics import logsumexp
from weft.ops.transcendental import exp2, expm1, log1p, logit, sinc, xlogy
from weft.ops.transcendental import sigmoid as expit

psi = digamma
modified_bessel_i0, modified_bessel_i1 = i0, i1

__all__ = [
    "airy_ai", "bessel_j0", "bessel_j1", "bessel_y0", "bessel_y1",
    "chebyshev_polynomial_t", "chebyshev_polynomial_u", "chebyshev_polynomial_v",
    "chebyshev_polynomial_w", "digamma", "entr", "erf", "erfc", "erfcx", "erfinv",
    "exp2", "expit", "expm1", "gammainc", "gammaincc", "gammaln",
    "hermite_polynomial_h", "hermite_polynomial_he", "i0", "i0e", "i1", "i1e",
    "laguerre_polynomial_l", "legendre_polynomial_p", "log1p", "log_ndtr",
    "log_softmax", "logit", "logsumexp", "modified_bessel_i0", "modified_bessel_i1",
    "modified_bessel_k0", "modified_bessel_k1", "multigammaln", "ndtr", "ndtri",
    "polygamma", "psi", "round", "scaled_modified_bessel_k0",
    "scaled_modified_bessel_k1", "shifted_chebyshev_polynomial_t",
    "shifted_chebyshev_polynomial_u", "shifted_chebyshev_polynomial_v",
    "shifted_chebyshev_polynomial_w", "sinc", "softmax", "spherical_bessel_j0",
    "xlog1py", "xlogy", "zeta",
]  # fmt: skip

for _name in __all__:  # what weft itself has not is found here by pickles
    if globals()[_name].__module__.startswith("weft.core"):
        globals()[_name].__module__ = "weft.special"
