"""``weft.special``: special functions, under PyTorch's names."""

from weft.ops.bessel_functions import i0, i0e, i1, i1e
from weft.ops.error_functions import erf, erfc, erfcx, erfinv, log_ndtr, ndtr, ndtri
from weft.ops.gamma_functions import digamma, multigammaln, polygamma
from weft.ops.gamma_functions import lgamma as gammaln
from weft.ops.probabilities import entr, log_softmax, softmax, xlog1py
from weft.ops.rounding import round
from weft.ops.statistics import logsumexp
from weft.ops.transcendental import exp2, expm1, log1p, logit, sinc, xlogy
from weft.ops.transcendental import sigmoid as expit

psi = digamma

__all__ = [
    "digamma", "entr", "erf", "erfc", "erfcx", "erfinv", "exp2", "expit", "expm1",
    "gammaln", "i0", "i0e", "i1", "i1e", "log1p", "log_ndtr", "log_softmax", "logit",
    "logsumexp", "multigammaln", "ndtr", "ndtri", "polygamma", "psi", "round", "sinc",
    "softmax", "xlog1py", "xlogy",
]  # fmt: skip
