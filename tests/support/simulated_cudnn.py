"""cuDNN for a simulated GPU: the functions of its C interface, computed by NumPy.

What cuDNN would refuse is a status: a descriptor that was not set, arrays that do not
fit together, a workspace that is too small.
"""

import ctypes
import itertools
import math
from types import SimpleNamespace

import ml_dtypes
import numpy as np
from simulated_gpu import memory_at

from weft.runtime.cuda.cudnn import Cudnn, Performance

SUCCESS, BAD_PARAM, NOT_SUPPORTED = 0, 2000, 3000
DTYPES = {0: np.float32, 2: np.float16, 9: ml_dtypes.bfloat16}
ARRAYS = {"Forward": "xwy", "BackwardData": "wyx", "BackwardFilter": "xyw"}
# number, status, bytes, whether it is deterministic, arithmetic
ALGORITHMS = {
    "Forward": [(1, 0, 4096, 1, 1), (6, NOT_SUPPORTED, 0, 1, 1), (0, 0, 0, 1, 0)],
    "BackwardData": [(0, 0, 0, 0, 1), (1, 0, 1 << 40, 1, 1), (5, 0, 512, 1, 1)],
    "BackwardFilter": [(0, 0, 0, 0, 1), (3, 0, 0, 0, 0), (1, 0, 8192, 1, 1)],
}


def strided(address, sizes, strides, dtype):
    """The array at an address, of strides in elements."""
    dtype = np.dtype(dtype)
    last = sum((n - 1) * s for n, s in zip(sizes, strides, strict=True))
    flat = memory_at(address, last + 1, dtype)
    steps = [s * dtype.itemsize for s in strides]
    return np.lib.stride_tricks.as_strided(flat, sizes, steps)


def taps(x, w, stride, padding, dilation):
    """Each position in a kernel, and the part of padded x (N, C, ...) under it."""
    wide = np.pad(x, [(0, 0), (0, 0), *[(p, p) for p in padding]])
    for tap in itertools.product(*map(range, w.shape[2:])):
        index = []
        for t, k, s, d, n in zip(
            tap, w.shape[2:], stride, dilation, wide.shape[2:], strict=True
        ):
            count = (n - d * (k - 1) - 1) // s + 1
            index.append(slice(t * d, t * d + (count - 1) * s + 1, s))
        yield tap, (slice(None), slice(None), *index)


class Function:
    """A function of the library, whose type of result may be set."""

    def __init__(self, run):
        self.run, self.restype = run, ctypes.c_int

    def __call__(self, *args):
        return self.run(*args)


class SimulatedLibrary:
    """See the documentation of cuDNN 9."""

    def __init__(self, version=91002):
        self.made, self.calls, self.refuses = {}, [], None
        self.version = version

    def __getattr__(self, name):
        if not name.startswith("cudnn"):
            raise AttributeError(name)
        found = Function(getattr(self, f"_{name}", None) or self._generic(name))
        setattr(self, name, found)
        return found

    def _generic(self, name):
        for kind in ("Tensor", "Filter", "Convolution"):
            if name == f"cudnnCreate{kind}Descriptor":
                return lambda out: self._create(kind, out)
        for kind in ARRAYS:
            if name == f"cudnnGetConvolution{kind}Algorithm_v7":
                return lambda *args: self._heuristics(kind, *args)
            if name == f"cudnnConvolution{kind}":
                return lambda *args: self._run(kind, *args)
        raise AttributeError(name)

    def _create(self, kind, out):
        key = len(self.made) + 1
        self.made[key] = SimpleNamespace(kind=kind)
        out._obj.value = key
        return SUCCESS

    def _at(self, descriptor, kind):
        found = self.made[descriptor.value]
        assert found.kind == kind
        return found

    # -- the library

    def _cudnnGetVersion(self):
        return self.version

    def _cudnnGetErrorString(self, code):
        return {BAD_PARAM: b"BAD_PARAM"}.get(code, b"NOT_SUPPORTED")

    def _cudnnGetLastErrorString(self, out, size):
        assert size.value == len(out)
        out.value = b"what was wrong"

    def _cudnnCreate(self, out):
        return self._create("Handle", out)

    def _cudnnSetStream(self, handle, stream):
        self._at(handle, "Handle").stream = stream.value
        return SUCCESS

    # -- descriptors

    def _cudnnSetTensorNdDescriptor(self, made, dtype, count, sizes, strides):
        assert count == len(sizes) == len(strides)
        if not 4 <= count <= 8:
            return NOT_SUPPORTED
        one = self._at(made, "Tensor")
        one.dtype, one.sizes, one.strides = DTYPES[dtype], [*sizes], [*strides]
        return SUCCESS

    def _cudnnSetFilterNdDescriptor(self, made, dtype, layout, count, sizes):
        assert count == len(sizes)
        assert layout in (0, 1)
        one, axes = self._at(made, "Filter"), list(range(count))
        order = [0, *axes[2:], 1] if layout else axes
        one.dtype, one.sizes, one.strides = DTYPES[dtype], [*sizes], [0] * count
        for k, axis in enumerate(order):
            one.strides[axis] = math.prod(sizes[d] for d in order[k + 1 :])
        return SUCCESS

    def _cudnnSetConvolutionNdDescriptor(
        self, made, count, padding, stride, dilation, mode, dtype
    ):
        assert (mode, dtype) == (1, 0)
        if not count == len(padding) == len(stride) == len(dilation):
            return BAD_PARAM
        if min(padding) < 0 or min(*stride, *dilation) < 1:
            return BAD_PARAM
        one = self._at(made, "Convolution")
        one.windows = [*stride], [*padding], [*dilation]
        return SUCCESS

    def _cudnnSetConvolutionGroupCount(self, made, groups):
        self._at(made, "Convolution").groups = groups
        return SUCCESS

    def _cudnnSetConvolutionMathType(self, made, arithmetic):
        self._at(made, "Convolution").math = arithmetic
        return SUCCESS

    # -- convolutions

    def _arrays(self, kind, descriptors):
        return {
            name: self._at(one, "Filter" if name == "w" else "Tensor")
            for name, one in zip(ARRAYS[kind], descriptors, strict=True)
        }

    def _fits(self, arrays, operator):
        """Whether sizes are those of a convolution."""
        x, w, y = (arrays[name].sizes for name in "xwy")
        counts = [
            (n + 2 * p - d * (k - 1) - 1) // s + 1
            for n, k, s, p, d in zip(x[2:], w[2:], *operator.windows, strict=True)
        ]
        groups = operator.groups
        return (
            y == [x[0], w[0], *counts] and x[1] == w[1] * groups and w[0] % groups == 0
        )

    def _heuristics(self, kind, handle, a, b, operator, out, most, count, results):
        if self.refuses:
            return self.refuses
        operator = self._at(operator, "Convolution")
        if not self._fits(self._arrays(kind, (a, b, out)), operator):
            return BAD_PARAM
        assert ctypes.sizeof(Performance) == 48
        found = ALGORITHMS[kind]
        assert len(found) <= most
        for one, numbers in zip(results, found, strict=False):
            number, status, memory, same, arithmetic = numbers
            one.algorithm, one.status, one.memory = number, status, memory
            one.determinism, one.math = same, arithmetic
        count._obj.value = len(found)
        return SUCCESS

    def _run(
        self, kind, handle, alpha, a, pa, b, pb, operator, number, workspace, size,
        beta, out, pout,
    ):  # fmt: skip
        assert (alpha._obj.value, beta._obj.value) == (1, 0)
        needs, same = next((m, d) for n, _, m, d, _ in ALGORITHMS[kind] if n == number)
        assert same, "results must have the same bits in every run"
        if size.value < needs:
            return BAD_PARAM
        if needs:  # which it may write
            memory_at(workspace.value, needs, np.uint8)[:] = 0xFF
        operator = self._at(operator, "Convolution")
        arrays = self._arrays(kind, (a, b, out))
        assert self._fits(arrays, operator)
        self.calls.append((kind, number, operator.math))
        places = zip(ARRAYS[kind], (pa, pb, pout), strict=True)
        memory = {
            name: strided(
                at.value, arrays[name].sizes, arrays[name].strides, arrays[name].dtype
            )
            for name, at in places
        }
        result = ARRAYS[kind][2]
        given = {
            name: np.zeros(array.shape) if name == result else array.astype(np.float64)
            for name, array in memory.items()
        }
        self._compute(given, result, operator)
        memory[result][...] = given[result]
        return SUCCESS

    def _compute(self, given, result, operator):
        """Add up the products of elements in the result's array."""
        x, w, y = (given[name] for name in "xwy")
        stride, padding, dilation = operator.windows
        inner = np.pad(x, [(0, 0), (0, 0), *[(p, p) for p in padding]])
        each, per = w.shape[1], w.shape[0] // operator.groups
        for tap, index in taps(x, w, stride, padding, dilation):
            for g in range(operator.groups):
                part = inner[index][:, g * each : (g + 1) * each]
                weights = w[(slice(g * per, (g + 1) * per), slice(None), *tap)]
                rows = y[:, g * per : (g + 1) * per]
                if result == "y":
                    rows += np.einsum("nc...,oc->no...", part, weights)
                elif result == "x":
                    part += np.einsum("no...,oc->nc...", rows, weights)
                else:
                    flat = [t.reshape(*t.shape[:2], -1) for t in (rows, part)]
                    weights += np.einsum("nop,ncp->oc", *flat)
        if result == "x":
            index = [slice(p, p + n) for p, n in zip(padding, x.shape[2:], strict=True)]
            x[...] = inner[(slice(None), slice(None), *index)]


def with_cudnn(gpu, version=91002):
    """Give a simulated GPU cuDNN, and return the library."""
    library = SimulatedLibrary(version)
    queue = SimpleNamespace(stream=7, enter=lambda: None)
    gpu.target.shared.cudnn = Cudnn(library, queue)
    return library
