"""The CPU's library: nodes that generated code computes as a whole."""

from __future__ import annotations

from collections.abc import Mapping

from weft.compile.emit.isa import Isa
from weft.compile.program.steps import LibraryCall
from weft.compile.targets.cpu.attention.arrays import compiled as attention_code
from weft.compile.targets.cpu.attention.call import (
    Attention,
    is_attention,
    usual_function,
)
from weft.compile.targets.cpu.control_flow.call import ControlFlow
from weft.compile.targets.cpu.convolution.arrays import compiled as convolution_code
from weft.compile.targets.cpu.convolution.call import Convolution, is_convolution
from weft.compile.targets.cpu.driver import driver
from weft.compile.targets.cpu.executable import Symbol
from weft.compile.targets.cpu.matmul.arrays import compiled as product_code
from weft.compile.targets.cpu.matmul.arrays import named
from weft.compile.targets.cpu.matmul.call import (
    Product,
    need_few,
    product_kind,
    usual_shape,
)
from weft.compile.targets.cpu.matmul.weight_only import WeightOnly, is_weight_only
from weft.compile.targets.cpu.matmul.weight_only import compiled as weight_only_code
from weft.compile.targets.cpu.object_code import Library
from weft.graph.ir import Graph, Node

LIBRARY: tuple[type[LibraryCall], ...] = (
    Product, WeightOnly, Convolution, Attention, ControlFlow
)  # fmt: skip


def library_call_of(node: Node) -> type[LibraryCall] | None:
    """The library call that computes a node, if there is one.

    >>> from weft.compile.targets.cpu.library import library_call_of
    >>> graph = weft.graph.capture(lambda a: a @ a + 1, weft.ones(2, 2)).graph
    >>> [library_call_of(node) for node in graph.nodes[1:]]
    [<class 'weft.compile.targets.cpu.matmul.call.Product'>, None]
    """
    return next((kind for kind in LIBRARY if kind.computes(node)), None)


def start_library(graph: Graph, isa: Isa, *, pack_weights: bool) -> None:
    """Compile the library's code in the background, while kernels are lowered."""
    driver.start()
    few = pack_weights or need_few(graph.nodes, isa)
    for node in graph.nodes:
        if kind := product_kind(node):
            product_code(kind, isa, usual_shape(node), few).start()
        elif is_convolution(node):
            convolution_code(node.dtype.name, isa).start()
        elif is_weight_only(node):
            weight_only_code.start(node.params["bits"], isa)
        elif is_attention(node):
            code = attention_code(node.inputs[0].dtype.name, isa)
            code.start(usual_function(node))


def address_of(symbol: Symbol, libraries: Mapping[str, Library], isa: Isa) -> int:
    """The address of a function; kernels' code is among the libraries, by its key."""
    if symbol.kind == "kernel":
        return libraries[symbol.of].address(symbol.name)
    if symbol.kind == "control":
        return driver().library.address(symbol.name)
    if symbol.kind == "gemm":
        return named(symbol.of, isa).library.address(symbol.name)
    if symbol.kind == "weight_only":
        return weight_only_code(int(symbol.of), isa).address(symbol.name)
    if symbol.kind == "conv":
        return convolution_code(symbol.of, isa).address(symbol.name)
    return attention_code(symbol.of, isa).address(symbol.name)
