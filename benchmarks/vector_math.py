"""Times the compiler's vector math beside NumPy's and PyTorch's, on one thread.

    python benchmarks/vector_math.py            all functions, float32
    python benchmarks/vector_math.py float64 exp tanh

Nanoseconds an element over 2**20 elements: the median of runs in turn.
"""

from __future__ import annotations

import importlib.util
import sys
import time
from typing import Any

import numpy as np

from weft.compile.emit.math import emit
from weft.compile.targets.cpu.math_arrays import apply
from weft.compile.targets.cpu.object_code import host_isa

SIZE = 1 << 20
# name: (NumPy's function or None, from, to)
FUNCTIONS: dict[str, tuple[Any, float, float]] = {
    "exp": (np.exp, -5, 5),
    "exp2": (np.exp2, -5, 5),
    "expm1": (np.expm1, -5, 5),
    "log": (np.log, 0.01, 10),
    "log2": (np.log2, 0.01, 10),
    "log10": (np.log10, 0.01, 10),
    "log1p": (np.log1p, -0.9, 10),
    "sin": (np.sin, -5, 5),
    "cos": (np.cos, -5, 5),
    "tan": (np.tan, -5, 5),
    "asin": (np.arcsin, -0.99, 0.99),
    "acos": (np.arccos, -0.99, 0.99),
    "atan": (np.arctan, -5, 5),
    "sinh": (np.sinh, -5, 5),
    "cosh": (np.cosh, -5, 5),
    "tanh": (np.tanh, -5, 5),
    "asinh": (np.arcsinh, -5, 5),
    "acosh": (np.arccosh, 1, 10),
    "atanh": (np.arctanh, -0.99, 0.99),
    "sigmoid": (None, -5, 5),
    "erf": (None, -3, 3),
    "erfc": (None, -3, 3),
    "erfinv": (None, -0.99, 0.99),
    "lgamma": (None, 0.01, 20),
    "digamma": (None, 0.01, 20),
    "pow": (np.power, 0.01, 10),
    "atan2": (np.arctan2, -5, 5),
    "hypot": (np.hypot, -5, 5),
    "logaddexp": (np.logaddexp, -5, 5),
    "fmod": (np.fmod, -5, 5),
    "remainder": (np.remainder, -5, 5),
    "floor_divide": (np.floor_divide, -5, 5),
    "maximum": (np.maximum, -5, 5),
    "sqrt": (np.sqrt, 0.01, 10),
    "rsqrt": (None, 0.01, 10),
    "floor": (np.floor, -5, 5),
}
PAIRS = {"pow", "atan2", "hypot", "logaddexp", "fmod", "remainder", "floor_divide"}
PAIRS |= {"maximum"}


def peer(name: str, xs: list[np.ndarray]) -> Any:
    """PyTorch's function on the same data, if it is there."""
    if importlib.util.find_spec("torch") is None:
        return None
    import torch

    torch.set_num_threads(1)
    tensors = [torch.from_numpy(x) for x in xs]
    out = torch.empty_like(tensors[0])
    return lambda: getattr(torch, name)(*tensors, out=out)


def times(functions: list[Any], repeats: int = 15) -> list[float]:
    """Nanoseconds an element of each, in turn; NaN for None."""
    taken: list[list[float]] = [[] for _ in functions]
    for _ in range(repeats):
        for k, fn in enumerate(functions):
            start = time.perf_counter()
            if fn is not None:
                fn()
            taken[k].append(time.perf_counter() - start if fn else float("nan"))
    return [float(np.median(t)) / SIZE * 1e9 for t in taken]


def row(name: str, dtype: Any) -> str:
    numpy_function, low, high = FUNCTIONS[name]
    rng, target = np.random.default_rng(0), host_isa()
    inputs = 2 if name in PAIRS else 1
    xs = [rng.uniform(low, high, SIZE).astype(dtype) for _ in range(inputs)]
    out, other = np.empty(SIZE, dtype), np.empty(SIZE, dtype)

    def body(b: Any, *values: Any) -> Any:
        return emit(name, b, *values, fused=target.fused)

    vector = apply(body, [dtype] * inputs, dtype)
    scalar = apply(body, [dtype] * inputs, dtype, lanes=1)
    versions = [
        lambda: vector(*xs, out=out),
        lambda: scalar(*xs, out=out),
        numpy_function and (lambda: numpy_function(*xs, out=other)),
        peer(name, xs),
    ]
    found = times(versions)
    ratios = [t / found[0] for t in found[2:]]
    cells = [*found, *ratios]
    return f"{name:>12}" + "".join(f"{c:11.2f}" for c in cells)


def main() -> None:
    words = sys.argv[1:]
    dtype = np.dtype(words.pop(0)) if words and words[0].startswith("float") else "f4"
    names = ("", "vectors", "scalars", "NumPy", "PyTorch", "NumPy/us", "PyTorch/us")
    print(f"{names[0]:>12}" + "".join(f"{n:>11}" for n in names[1:]))
    for name in words or FUNCTIONS:
        print(row(name, np.dtype(dtype)), flush=True)


if __name__ == "__main__":
    main()
