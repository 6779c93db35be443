"""cuDNN, where it is installed: convolutions by NVIDIA's own kernels.

    cudnn = Cudnn(library(), runtime)
    call = cudnn.convolution(Shape(...))     descriptors, made once
    call.algorithms(most)                    deterministic ones, the best guess first
    call.run(algorithm, x, w, y, workspace)

A convolution is known by its three arrays, in all of its passes: ``forward`` computes y
of x and w, ``input_grad`` x of w and y, ``weight_grad`` w of x and y.
"""

from __future__ import annotations

import ctypes
import functools
import math
from collections.abc import Sequence
from typing import Any, NamedTuple

from weft.errors import DeviceError
from weft.runtime.cuda.libraries import from_system, from_wheels

NAMES = ("libcudnn.so.9",)
NEEDED = (
    ("libcublasLt.so.13", "libcublasLt.so.12"),
    ("libnvrtc.so.13", "libnvrtc.so.12"),
)
OLDEST = 90000  # of 9.0.0: where the numbers of errors and versions are these
KINDS = {"float32": 0, "float16": 2, "bfloat16": 9}  # cudnnDataType_t
COMPUTE = KINDS["float32"]  # the dtype of sums and scales
NCHW, NHWC = 0, 1  # cudnnTensorFormat_t
CROSS_CORRELATION = 1  # cudnnConvolutionMode_t
DEFAULT_MATH, TENSOR_CORES, NO_TENSOR_CORES = 0, 1, 3  # cudnnMathType_t
LEAST_AXES = 4  # of a descriptor: an image of one axis has another one of size 1
MOST_ALGORITHMS = 16  # cuDNN knows ten, some of them in two kinds of arithmetic
Sizes = tuple[int, ...]


class Pass(NamedTuple):
    """The functions of one of a convolution's passes, and its arrays: two, and one."""

    heuristics: str
    run: str
    arrays: tuple[str, str, str]


PASSES = {
    "forward": Pass(
        "cudnnGetConvolutionForwardAlgorithm_v7",
        "cudnnConvolutionForward",
        ("x", "w", "y"),
    ),
    "input_grad": Pass(
        "cudnnGetConvolutionBackwardDataAlgorithm_v7",
        "cudnnConvolutionBackwardData",
        ("w", "y", "x"),
    ),
    "weight_grad": Pass(
        "cudnnGetConvolutionBackwardFilterAlgorithm_v7",
        "cudnnConvolutionBackwardFilter",
        ("x", "y", "w"),
    ),
}


class Performance(ctypes.Structure):
    """cuDNN's ``cudnnConvolution*AlgoPerf_t``: what it expects of an algorithm."""

    _fields_ = [
        ("algorithm", ctypes.c_int), ("status", ctypes.c_int),
        ("time", ctypes.c_float), ("memory", ctypes.c_size_t),
        ("determinism", ctypes.c_int), ("math", ctypes.c_int),
        ("reserved", ctypes.c_int * 3),
    ]  # fmt: skip


class Algorithm(NamedTuple):
    """A way to compute one pass of a convolution."""

    number: int
    math: int  # whether tensor cores are used
    workspace: int  # bytes


class Shape(NamedTuple):
    """A pass of a convolution of arrays whose axes are (N, C, ...) and (O, C, ...).

    In memory, channels come last if ``channels_last`` says so, and else where they are.
    """

    kind: str
    dtype: str
    x: Sizes
    w: Sizes
    y: Sizes
    stride: Sizes
    padding: Sizes  # before and after
    dilation: Sizes
    groups: int
    channels_last: bool
    tf32: bool = False  # whether float32 may be rounded to TF32

    def widened(self) -> Shape:
        """The same convolution with as many axes as descriptors need."""
        if len(self.x) >= LEAST_AXES:
            return self
        x, w, y = ((*s[:2], 1, *s[2:]) for s in (self.x, self.w, self.y))
        return self._replace(
            x=x, w=w, y=y, stride=(1, *self.stride), padding=(0, *self.padding),
            dilation=(1, *self.dilation),
        )  # fmt: skip


@functools.cache
def library() -> Any:
    """cuDNN, of a wheel or of the system; None if there is none.

    A wheel comes first: other packages in the process use its parts.
    """
    for names in NEEDED:
        from_system(names) or from_wheels(names)
    return from_wheels(NAMES) or from_system(NAMES)


class Cudnn:
    """A handle for the queue of one GPU."""

    def __init__(self, library: Any, runtime: Any) -> None:
        self.library, self.runtime = library, runtime
        library.cudnnGetVersion.restype = ctypes.c_size_t
        library.cudnnGetErrorString.restype = ctypes.c_char_p
        self.version = int(library.cudnnGetVersion())
        if self.version < OLDEST:
            raise DeviceError(
                f"cuda: expected cuDNN 9.0 or newer, got version {self.version}: "
                "pip install nvidia-cudnn-cu13"
            )
        self.handle = ctypes.c_void_p()
        runtime.enter()
        self.call("cudnnCreate", ctypes.byref(self.handle))
        stream = ctypes.c_void_p(int(runtime.stream))
        self.call("cudnnSetStream", self.handle, stream)
        self._convolutions: dict[Shape, Convolution] = {}

    def call(self, name: str, *args: Any) -> None:
        """Call a function; raise its error in cuDNN's words."""
        code = getattr(self.library, name)(*args)
        if code:
            words = self.library.cudnnGetErrorString(code).decode()
            more = ctypes.create_string_buffer(512)
            self.library.cudnnGetLastErrorString(more, ctypes.c_size_t(len(more)))
            said = more.value.decode(errors="replace").strip()
            raise DeviceError(
                f"cuda: {name} of cuDNN {self.version} failed: {words} ({code})"
                + (f": {said}" if said else "")
            )

    def convolution(self, shape: Shape) -> Convolution:
        """A pass of a convolution; descriptors are kept for the next one like it."""
        if shape not in self._convolutions:
            self._convolutions[shape] = Convolution(self, shape)
        return self._convolutions[shape]


class Convolution:
    """The descriptors of one pass of a convolution."""

    def __init__(self, cudnn: Cudnn, shape: Shape) -> None:
        self.cudnn, self.shape = cudnn, shape
        self.functions = PASSES[shape.kind]
        wide = shape.widened()
        self.arrays = {
            "x": self._tensor(wide.x), "w": self._filter(wide.w),
            "y": self._tensor(wide.y),
        }  # fmt: skip
        self.operators = {
            arithmetic: self._operator(wide, arithmetic)
            for arithmetic in (DEFAULT_MATH, TENSOR_CORES, NO_TENSOR_CORES)
        }
        self.one, self.zero = ctypes.c_float(1), ctypes.c_float(0)

    def _descriptor(self, kind: str) -> ctypes.c_void_p:
        made = ctypes.c_void_p()
        self.cudnn.call(f"cudnnCreate{kind}Descriptor", ctypes.byref(made))
        return made

    def _tensor(self, sizes: Sizes) -> ctypes.c_void_p:
        made = self._descriptor("Tensor")
        axes = list(range(len(sizes)))
        order = [0, *axes[2:], 1] if self.shape.channels_last else axes
        strides = [0] * len(sizes)
        for k, axis in enumerate(order):
            strides[axis] = math.prod(sizes[d] for d in order[k + 1 :])
        self.cudnn.call(
            "cudnnSetTensorNdDescriptor", made, KINDS[self.shape.dtype], len(sizes),
            _ints(sizes), _ints(strides),
        )  # fmt: skip
        return made

    def _filter(self, sizes: Sizes) -> ctypes.c_void_p:
        made = self._descriptor("Filter")
        self.cudnn.call(
            "cudnnSetFilterNdDescriptor", made, KINDS[self.shape.dtype],
            NHWC if self.shape.channels_last else NCHW, len(sizes), _ints(sizes),
        )  # fmt: skip
        return made

    def _operator(self, wide: Shape, arithmetic: int) -> ctypes.c_void_p:
        made = self._descriptor("Convolution")
        self.cudnn.call(
            "cudnnSetConvolutionNdDescriptor", made, len(wide.stride),
            _ints(wide.padding), _ints(wide.stride), _ints(wide.dilation),
            CROSS_CORRELATION, COMPUTE,
        )  # fmt: skip
        self.cudnn.call("cudnnSetConvolutionGroupCount", made, wide.groups)
        self.cudnn.call("cudnnSetConvolutionMathType", made, arithmetic)
        return made

    def algorithms(self, most: int) -> list[Algorithm]:
        """Deterministic algorithms that need at most so many bytes.

        The one that cuDNN expects to be fastest comes first.
        """
        exact = self.shape.dtype == "float32" and not self.shape.tf32
        usual = DEFAULT_MATH if self.shape.dtype == "float32" else TENSOR_CORES
        asked = NO_TENSOR_CORES if exact else usual
        a, b, out = (self.arrays[name] for name in self.functions.arrays)
        found, results = ctypes.c_int(), (Performance * MOST_ALGORITHMS)()
        self.cudnn.runtime.enter()
        self.cudnn.call(
            self.functions.heuristics, self.cudnn.handle, a, b, self.operators[asked],
            out, MOST_ALGORITHMS, ctypes.byref(found), results,
        )  # fmt: skip
        fit = [
            Algorithm(one.algorithm, asked if exact else one.math, one.memory)
            for one in results[: found.value]
            if not one.status and one.determinism == 1 and one.memory <= most
            and one.math in self.operators
        ]  # fmt: skip
        by_tensor_cores = [one for one in fit if one.math == TENSOR_CORES]
        return list(dict.fromkeys(by_tensor_cores or fit))

    def run(
        self, algorithm: Algorithm, addresses: dict[str, int], workspace: int
    ) -> None:
        """Put the pass into the queue; ``addresses`` are those of x, w and y."""
        a, b, out = self.functions.arrays
        place = {name: ctypes.c_void_p(at) for name, at in addresses.items()}
        self.cudnn.runtime.enter()
        self.cudnn.call(
            self.functions.run, self.cudnn.handle, ctypes.byref(self.one),
            self.arrays[a], place[a], self.arrays[b], place[b],
            self.operators[algorithm.math], algorithm.number,
            ctypes.c_void_p(workspace), ctypes.c_size_t(algorithm.workspace),
            ctypes.byref(self.zero), self.arrays[out], place[out],
        )  # fmt: skip


def _ints(numbers: Sequence[int]) -> Any:
    return (ctypes.c_int * len(numbers))(*numbers)
