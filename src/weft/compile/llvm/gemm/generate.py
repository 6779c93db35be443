"""Adding matrix products to a module."""

from __future__ import annotations

from collections.abc import Mapping

from llvmlite import ir

from weft.compile.llvm.gemm.kinds import kind_of
from weft.compile.llvm.gemm.product import KNOWABLE, Product
from weft.compile.llvm.gemm.routine import Library
from weft.compile.llvm.gemm.tasks import emit_pack, emit_tasks
from weft.compile.llvm.gemm.tiling import Tiling, tiling
from weft.compile.llvm.gemm.vectors import itemsize
from weft.compile.llvm.target import Target
from weft.errors import ArgumentError


def emit_gemm(
    module: ir.Module,
    name: str,
    dtype: str,
    target: Target,
    *,
    known: Mapping[str, int] | None = None,
    shape: int = 0,
) -> ir.Function:
    """Add ``name``, ``name_tasks`` and ``name_pack`` to a module; gives ``name``.

    >>> from weft.compile.llvm.gemm import emit_gemm
    >>> from weft.compile.llvm.target import host_target, new_module
    >>> target = host_target()
    >>> module = new_module("products", target)
    >>> known = {"a_col": 1, "b_col": 1, "keep": 0}
    >>> emit_gemm(module, "gemm", "float32", target, known=known).name
    'gemm'
    """
    known = dict(known or {})
    unknown = sorted(known.keys() - KNOWABLE)
    if unknown:
        raise ArgumentError(
            f"emit_gemm: expected known values for some of "
            f"{', '.join(sorted(KNOWABLE))}, got {', '.join(unknown)}"
        )
    kind = kind_of(dtype, target)
    lib = Library(module, name, kind, target, tile_for(dtype, target, shape))
    product = Product(lib, known)
    made = product.emit()
    emit_tasks(lib, made)
    emit_pack(lib, product.packing)
    return made


def workspace_bytes(dtype: str, target: Target, shape: int = 0) -> int:
    """Bytes of workspace that each thread needs.

    >>> from weft.compile.llvm.gemm import workspace_bytes
    >>> from weft.compile.llvm.target import host_target
    >>> workspace_bytes("float64", host_target()) >= 1 << 16
    True
    """
    size = itemsize(kind_of(dtype, target).element)
    return tile_for(dtype, target, shape).workspace * size


def tile_for(dtype: str, target: Target, shape: int = 0) -> Tiling:
    """The tiling of products of an element type; lengths count words."""
    return tiling(itemsize(kind_of(dtype, target).element), target, shape)
