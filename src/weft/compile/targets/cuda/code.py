"""Kernels as functions of a GPU: a program's own, and those that all programs share."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from llvmlite import ir

from weft.compile.emit.isa import Isa
from weft.compile.loop.ir import Kernel
from weft.compile.lower.deduplicate import KernelTable
from weft.compile.targets.cuda import warpgroup_attention, warpgroup_gemm
from weft.compile.targets.cuda.attention import Form, emit_attention
from weft.compile.targets.cuda.copying import (
    ITEMS,
    RANKS,
    copy_arguments,
    copy_name,
    emit_copies,
)
from weft.compile.targets.cuda.cost_model import COST
from weft.compile.targets.cuda.gemm import emit_product
from weft.compile.targets.cuda.kernel import emit_kernel
from weft.compile.targets.cuda.product_choice import ProductChoices
from weft.compile.targets.cuda.ptx import known_ptx, new_module
from weft.config import config
from weft.dtype import DType
from weft.errors import DeviceError
from weft.runtime import argument_words
from weft.runtime.cuda import cublas, cudnn
from weft.runtime.device_memory import DeviceArray, Pool


class Function(NamedTuple):
    """A function to launch, and whether it has an error flag."""

    handle: Any
    checks: bool = False


class Named(NamedTuple):
    """A function of the shared library, as the runtime is asked for it."""

    name: str
    block_memory: int = 0  # bytes that a launch asks for


class SharedCode:
    """Functions that all programs on one GPU share."""

    def __init__(self, pool: Pool, isa: Isa, warpgroups: Isa | None = None) -> None:
        self.pool, self.isa = pool, isa
        self.warpgroups = warpgroups  # the instruction set that has them, if it exists
        self.product_choices = ProductChoices(pool.runtime, isa.key)
        self._products: dict[Any, Any] = {}
        self._warpgroup_products: dict[warpgroup_gemm.Form, Any] = {}
        self._attention: dict[Any, Any] = {}

    def _loaded(
        self,
        text: str,
        emit: Callable[[ir.Module], None],
        names: Iterable[Named],
        isa: Isa | None = None,
    ) -> dict[str, Any]:
        isa = isa or self.isa

        def make() -> ir.Module:
            module = new_module("library", isa)
            emit(module)
            return module

        code = known_ptx(text, make, isa)
        return self.pool.runtime.load(code, list(names))

    def product(self, operand: DType, result: DType) -> Any:
        """The function of matrix products of a dtype."""
        key = operand, result
        if key not in self._products:
            name = f"product_{operand.name}_{result.name}"
            self._products[key] = self._loaded(
                name,
                lambda module: emit_product(module, name, operand, result, self.isa),
                [Named(name)],
            )[name]
        return self._products[key]

    def warpgroup_product(self, form: warpgroup_gemm.Form) -> Any:
        """The function of a form of products by warpgroups."""
        if form not in self._warpgroup_products:
            self._warpgroup_products[form] = self._loaded(
                form.name,
                lambda module: warpgroup_gemm.emit_warpgroup_product(module, form),
                [Named(form.name, form.block_memory)],
                self.warpgroups,
            )[form.name]
        return self._warpgroup_products[form]

    def attention(self, form: Form | warpgroup_attention.Form) -> Any:
        """The function of a form of attention."""
        if form not in self._attention:
            by_warpgroups = isinstance(form, warpgroup_attention.Form)
            emit: Any = emit_attention
            if by_warpgroups:
                emit = warpgroup_attention.emit_warpgroup_attention
            self._attention[form] = self._loaded(
                f"{form.name} {form.shape}",
                lambda module: emit(module, form),
                [Named(form.name, form.block_memory)],
                self.warpgroups if by_warpgroups else self.isa,
            )[form.name]
        return self._attention[form]

    @functools.cached_property
    def cublas(self) -> cublas.Cublas | None:
        """NVIDIA's library of products, where it is installed."""
        runtime: Any = self.pool.runtime
        if not hasattr(runtime, "stream") or not cublas.is_installed():
            return None
        self._workspace = self.pool.empty((cublas.WORKSPACE,), "uint8")
        return cublas.Cublas(runtime, self._workspace.address)

    @functools.cached_property
    def cudnn(self) -> cudnn.Cudnn | None:
        """NVIDIA's library of convolutions, where it is installed."""
        runtime: Any = self.pool.runtime
        if not hasattr(runtime, "stream") or cudnn.library() is None:
            return None
        return cudnn.Cudnn(cudnn.library(), runtime)

    @functools.cached_property
    def _copies(self) -> dict[str, Any]:
        names = [Named(copy_name(item, k)) for item in ITEMS for k in RANKS]
        return self._loaded("copies", emit_copies, names)

    def write(self, target: DeviceArray, source: DeviceArray) -> None:
        """Copy elements into another array of the same shape and dtype."""
        if target.shape != source.shape or target.dtype != source.dtype:
            raise DeviceError(
                f"write: expected {target.dtype} of shape {target.shape}, got "
                f"{source.dtype} of shape {source.shape}"
            )
        if not target.size:
            return
        runtime = self.pool.runtime
        if target.contiguous and source.contiguous:
            runtime.copy(target.address, source.address, target.nbytes)
            return
        axes = copy_arguments(target.outline, source.outline)
        if axes is None:
            shape = ", ".join(map(str, target.shape))
            raise DeviceError(f"write: too many strides for a copy of shape ({shape})")
        words = [target.address, source.address, target.size]
        arguments = argument_words([*words, *axes[0], *axes[1], *axes[2]])
        threads = COST.blocks.threads
        name = copy_name(target.itemsize, len(axes[0]))
        blocks = -(-target.size // threads)
        runtime.launch(self._copies[name], blocks, threads, arguments)

    def copied(self, array: DeviceArray) -> DeviceArray:
        """A contiguous copy of an array."""
        made = self.pool.empty(array.shape, array.dtype)
        self.write(made, array)
        return made


class Code:
    """The functions of a program's kernels, with variants.

    Buffers may share memory, and may begin at any address.
    """

    def __init__(self, table: KernelTable, shared: SharedCode) -> None:
        self.table, self.shared = table, shared
        self.copied = shared.copied
        self._functions: dict[Any, Function] = {}

    def add(self, kernels: Iterable[Kernel], *, aligned: bool = True) -> None:
        """Make one module of kernels, and load it."""
        kernels = list(kernels)
        if not kernels:
            return
        isa = self.shared.isa
        texts = [f"{kernel.name}: {self.table.text(kernel)}" for kernel in kernels]
        key = [f"strict: {config.strict_ieee}, aligned: {aligned}", *texts]

        def make() -> ir.Module:
            module = new_module("kernels", isa)
            for kernel in kernels:
                emit_kernel(module, kernel, isa, aligned=aligned)
            return module

        code = known_ptx("\n".join(key), make, isa)
        handles = self.shared.pool.runtime.load(code, kernels)
        for kernel in kernels:
            self._functions[kernel.name, kernel.shared, aligned] = Function(
                handles[kernel.name], kernel.checks
            )

    def function(
        self, kernel: Kernel, shared: tuple[tuple[str, str], ...], aligned: bool
    ) -> Function:
        """A kernel's function for buffers of which these share memory."""
        key = kernel.name, shared, aligned
        if key not in self._functions:
            self.add([kernel._replace(shared=shared)], aligned=aligned)
        return self._functions[key]
