"""Adding matrix products to a module."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import SimpleNamespace

from llvmlite import ir

from weft.compile.emit.isa import Isa
from weft.compile.emit.values import itemsize
from weft.compile.targets.cpu.matmul.functions import Library
from weft.compile.targets.cpu.matmul.kinds import kind_of
from weft.compile.targets.cpu.matmul.product import KNOWABLE, Product
from weft.compile.targets.cpu.matmul.skinny import conditions, find_units
from weft.compile.targets.cpu.matmul.tasks import emit_pack, emit_tasks
from weft.compile.targets.cpu.matmul.tiling import Tiling, tiling
from weft.compile.targets.cpu.matmul.transposed import is_flat
from weft.errors import ArgumentError


def emit_gemm(
    module: ir.Module,
    name: str,
    dtype: str,
    isa: Isa,
    *,
    known: Mapping[str, int] | None = None,
    shape: int = 0,
    few: bool = True,
) -> ir.Function:
    """Add ``name``, ``name_tasks`` and ``name_pack`` to a module; gives ``name``.

    Without ``few``, it is not for products that ``is_few`` holds for.

    >>> from weft.compile.targets.cpu.matmul import emit_gemm
    >>> from weft.compile.emit.isa import new_module
    >>> from weft.compile.targets.cpu.object_code import host_isa
    >>> isa = host_isa()
    >>> module = new_module("products", isa)
    >>> known = {"a_col": 1, "b_col": 1, "keep": 0}
    >>> emit_gemm(module, "gemm", "float32", isa, known=known).name
    'gemm'
    """
    known = dict(known or {})
    unknown = sorted(known.keys() - KNOWABLE)
    if unknown:
        raise ArgumentError(
            f"emit_gemm: expected known values for some of "
            f"{', '.join(sorted(KNOWABLE))}, got {', '.join(unknown)}"
        )
    kind = kind_of(dtype, isa)
    lib = Library(module, name, kind, isa, tile_for(dtype, isa, shape))
    product = Product(lib, known, few)
    function = product.emit()
    emit_tasks(lib, function)
    emit_pack(lib, product.packing)
    return function


def is_few(
    dtype: str, isa: Isa, shape: int, sizes: Sequence[int],
    a: Sequence[int], b: Sequence[int], *, ready: bool = False
) -> bool:  # fmt: skip
    """Whether a product of sizes (m, n, k) and strides is one of few rows or columns.

    Those have code of their own (``skinny``). ``ready`` tells that B is packed.

    >>> from weft.compile.targets.cpu.matmul.generate import is_few
    >>> from weft.compile.targets.cpu.object_code import host_isa
    >>> isa = host_isa()
    >>> is_few("float32", isa, 0, (1, 512, 512), (512, 1), (512, 1))
    True
    >>> is_few("float32", isa, 0, (64, 512, 512), (512, 1), (512, 1))
    False
    """
    (m, n, k), (a_row, a_col), (b_row, b_col) = sizes, a, b
    values = SimpleNamespace(
        m=m,
        n=n,
        k=k,
        a_row=a_row,
        a_col=a_col,
        b_row=b_row,
        b_col=b_col,
        keep=0,
        ready=ready,
    )
    find_units(values)
    tile, kind = tile_for(dtype, isa, shape), kind_of(dtype, isa)
    values.is_flat = is_flat(values, tile, kind)
    return any(conditions(values, tile, kind))


def workspace_bytes(dtype: str, isa: Isa, shape: int = 0) -> int:
    """Bytes of workspace that each thread needs.

    >>> from weft.compile.targets.cpu.matmul import workspace_bytes
    >>> from weft.compile.targets.cpu.object_code import host_isa
    >>> workspace_bytes("float64", host_isa()) >= 1 << 16
    True
    """
    size = itemsize(kind_of(dtype, isa).element)
    return tile_for(dtype, isa, shape).workspace * size


def tile_for(dtype: str, isa: Isa, shape: int = 0) -> Tiling:
    """The tiling of products of an element type; lengths count words."""
    return tiling(itemsize(kind_of(dtype, isa).element), isa, shape)
