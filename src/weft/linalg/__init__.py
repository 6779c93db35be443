"""``weft.linalg``: linear algebra, under PyTorch's names.

Every function works on the last two dimensions and takes batches in front of
them, in float32, float64, complex64 and complex128; float16 and bfloat16 are
computed in float32.
"""

from weft.linalg.checked import (
    cholesky_ex,
    inv_ex,
    solve_ex,
    tensorinv,
    tensorsolve,
    vander,
)
from weft.linalg.factoring import (
    cholesky,
    eig,
    eigh,
    eigvals,
    eigvalsh,
    qr,
    svd,
    svdvals,
)
from weft.linalg.householder import householder_product
from weft.linalg.ldl_factors import ldl_factor, ldl_factor_ex, ldl_solve
from weft.linalg.lu_factors import lu, lu_factor, lu_factor_ex, lu_solve
from weft.linalg.norms import cond, matrix_norm, matrix_rank, norm, vector_norm
from weft.linalg.powers import (
    cross,
    diagonal,
    matrix_exp,
    matrix_power,
    multi_dot,
    vecdot,
)
from weft.linalg.solving import (
    det,
    inv,
    lstsq,
    pinv,
    slogdet,
    solve,
    solve_triangular,
)
from weft.ops.linalg.algebra import LinAlgError
from weft.ops.products import matmul, outer, tensordot

__all__ = [
    "LinAlgError", "cholesky", "cholesky_ex", "cond", "cross", "det", "diagonal",
    "eig", "eigh", "eigvals", "eigvalsh", "householder_product", "inv", "inv_ex",
    "ldl_factor", "ldl_factor_ex", "ldl_solve", "lstsq", "lu", "lu_factor",
    "lu_factor_ex", "lu_solve", "matmul", "matrix_exp",
    "matrix_norm", "matrix_power", "matrix_rank", "multi_dot", "norm", "outer", "pinv",
    "qr", "slogdet", "solve", "solve_ex", "solve_triangular", "svd", "svdvals",
    "tensordot", "tensorinv", "tensorsolve", "vander", "vecdot", "vector_norm",
]  # fmt: skip
