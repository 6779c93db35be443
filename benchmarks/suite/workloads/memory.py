"""What waits for memory, on 64 MB: chains, softmax, norms, sums, copies."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from benchmarks.suite import data
from benchmarks.suite.case import Case, Lib, Run


def case(
    name: str, passes: float, function: Callable[..., Any], *arrays: np.ndarray
) -> Case:
    """``passes`` over the first array are what must be moved."""

    def build(lib: Lib) -> Run:
        run = lib.function(lambda *given: function(lib, *given))
        inputs = [lib.array(a) for a in arrays]
        return Run(lambda: run(*inputs))

    moved = passes * arrays[0].nbytes
    return Case(name=name, build=build, moved=moved, eager=True, tinygrad=True)


def chain(lib: Lib, x: Any, y: Any) -> Any:
    return lib.tanh(x * y + 0.5) * lib.exp(-x * x) - y


def layer_norm(lib: Lib, x: Any, weight: Any, bias: Any) -> Any:
    return lib.layer_norm(x, {"n.weight": weight, "n.bias": bias}, "n")


def cases(small: bool) -> list[Case]:
    side = 64 if small else 4096
    x, y = data.normal("x", side, side), data.normal("y", side, side)
    weight, bias = data.normal("weight", side), data.normal("bias", side)
    return [
        case("x * 2", 2, lambda lib, x: x * 2, x),
        case("tanh(x*y + 0.5) * exp(-x*x) - y", 3, chain, x, y),
        case("gelu", 2, lambda lib, x: lib.gelu(x), x),
        case("softmax of rows", 2, lambda lib, x: lib.softmax(x), x),
        case("layer norm of rows", 2, layer_norm, x, weight, bias),
        case("sum of all", 1, lambda lib, x: lib.sum(x, None), x),
        case("sum over axis 0", 1, lambda lib, x: lib.sum(x, 0), x),
        case("sum over axis 1", 1, lambda lib, x: lib.sum(x, 1), x),
        case("transposed copy", 2, lambda lib, x: lib.transposed_copy(x), x),
    ]
