"""Kernels on arrays in host memory, as programs of one operator."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import numpy as np

from weft import dtype as dtypes
from weft.compile.eager.operator import HINT, holds, named_sizes
from weft.compile.pipeline import KERNEL_PASSES, TENSOR_PASSES
from weft.compile.program.program import Program, compiled
from weft.compile.program.steps import KernelLaunch
from weft.config import config
from weft.core.op import Op, TensorType
from weft.errors import WeftError
from weft.graph.ir import Builder

PROGRAMS = 256  # that are kept


def run(op: Op, *arrays: Any, **params: Any) -> Any:
    """The results of a kernel: by machine code, or by the interpreter if that fails.

    The interpreter raises the error that a checked index has; it also runs kernels on
    arrays without elements, for which there is no code.
    """
    arrays = tuple(np.asarray(a) for a in arrays)
    made = op.type(*[TensorType(a.shape, dtypes.of_array(a)) for a in arrays], **params)  # type: ignore[misc]
    results = made if type(made) is tuple else (made,)
    if any(0 in a.shape for a in (*arrays, *results)):
        return op.eval(*arrays, **params)
    sizes, shapes = named_sizes([a.shape for a in arrays])
    codes = tuple(dtypes.of_array(a) for a in arrays)
    key = tuple(params.items())
    for given in (shapes, tuple(a.shape for a in arrays)):
        program = _program(op, codes, given, key, config.strict_ieee)
        if program is not None and holds(_assumptions(program), sizes):
            (outs, _) = program.run(arrays)
            return tuple(outs) if len(outs) > 1 else outs[0]
    return op.eval(*arrays, **params)


def _assumptions(program: Program) -> list[Any]:
    return list(program.lowered.graph.sizes.assumptions.values())


@functools.lru_cache(PROGRAMS)
def _program(
    op: Op, kinds: Sequence[Any], shapes: Any, params: Any, strict: bool
) -> Program | None:
    """The program of a kernel; None if there is no code for it."""
    builder = Builder(op.name)
    names = sorted({n for shape in shapes for n in shape if isinstance(n, str)})
    sizes = {n: builder.sizes.symbol(n, HINT + k) for k, n in enumerate(names)}
    inputs = []
    for k, (kind, shape) in enumerate(zip(kinds, shapes, strict=True)):
        axes = tuple(sizes.get(n, n) for n in shape)
        inputs.append(builder.input(TensorType(axes, kind), op.inputs[k]))

    def replay(feeds: Sequence[Any], variables: Sequence[Any]) -> bool:
        op.eval(*feeds, **dict(params))
        return False

    try:
        node = builder.add(op, tuple(inputs), dict(params))
        several = type(node.type) is tuple
        picks = range(len(op.outputs)) if several else ()
        outs = [builder.pick(node, k) for k in picks] or [node]
        graph = builder.finish(outs)
        passes = (*TENSOR_PASSES, *KERNEL_PASSES)
        program = compiled(graph, passes=passes, replay=replay)
    except WeftError:
        return None
    native = all(isinstance(s, KernelLaunch) for s in program.lowered.steps)
    return program if native else None
