"""Function transforms that compose in any order."""

from weft.func.functional_call import functional_call
from weft.func.jacobian import hessian, jacfwd, jacobian, jacrev
from weft.func.jvp import jvp
from weft.func.linearize import linearize
from weft.func.vjp import grad, value_and_grad, vjp
from weft.func.vmap import vmap

__all__ = [
    "functional_call",
    "grad",
    "hessian",
    "jacfwd",
    "jacobian",
    "jacrev",
    "jvp",
    "linearize",
    "value_and_grad",
    "vjp",
    "vmap",
]
