"""Function transforms that compose in any order."""

from weft.func.ensembles import (
    functionalize,
    grad_and_value,
    replace_all_batch_norm_modules_,
    stack_module_state,
)
from weft.func.functional_call import functional_call
from weft.func.functional_call import replaced as replaced
from weft.func.jacobian import hessian, jacfwd, jacobian, jacrev
from weft.func.jvp import jvp
from weft.func.linearize import linearize
from weft.func.rearrange import debug_unwrap, rearrange
from weft.func.vjp import grad, value_and_grad, vjp
from weft.func.vmap import vmap

__all__ = [
    "debug_unwrap",
    "functional_call",
    "functionalize",
    "grad",
    "grad_and_value",
    "hessian",
    "jacfwd",
    "jacobian",
    "jacrev",
    "jvp",
    "linearize",
    "rearrange",
    "replace_all_batch_norm_modules_",
    "stack_module_state",
    "value_and_grad",
    "vjp",
    "vmap",
]
