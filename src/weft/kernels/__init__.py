"""Kernels in Python: ``weft.kernel`` makes an operator of grids, loops and loads.

signature   the types of arguments and results
source      the function as a syntax tree
scalars     numbers of the source, their dtypes and functions
translate   from the source to statements of the Loop IR
loops       the memory that a grid point owns, and the whole kernel
tensors     the body as a function of tensors, for its gradient
native      machine code for arrays in host memory
operator    the record, the call and changes in place
"""

from weft.kernels.operator import Kernel, kernel
from weft.kernels.source import KernelError
from weft.kernels.translate import grid

__all__ = ["Kernel", "KernelError", "grid", "kernel"]
