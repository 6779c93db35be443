"""``weft.special``: special functions, under PyTorch's names."""

from weft.ops.elementwise import round
from weft.ops.reduce import logsumexp
from weft.ops.special import (
    digamma,
    entr,
    erf,
    erfc,
    erfcx,
    erfinv,
    i0,
    i0e,
    i1,
    i1e,
    log_ndtr,
    log_softmax,
    multigammaln,
    ndtr,
    ndtri,
    polygamma,
    softmax,
    xlog1py,
)
from weft.ops.special import lgamma as gammaln
from weft.ops.transcendental import exp2, expm1, log1p, logit, sinc, xlogy
from weft.ops.transcendental import sigmoid as expit

psi = digamma

__all__ = [
    "digamma", "entr", "erf", "erfc", "erfcx", "erfinv", "exp2", "expit", "expm1",
    "gammaln", "i0", "i0e", "i1", "i1e", "log1p", "log_ndtr", "log_softmax", "logit",
    "logsumexp", "multigammaln", "ndtr", "ndtri", "polygamma", "psi", "round", "sinc",
    "softmax", "xlog1py", "xlogy",
]  # fmt: skip
