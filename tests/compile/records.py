"""Every operator record's samples in every dtype, as one program each.

A ``Case`` is an operator at one sample in one dtype: arrays, and what NumPy makes of
them. The cases of a record are captured as one graph, which is compiled at once.
"""

from typing import Any, NamedTuple

import numpy as np

import weft
import weft.graph
import weft.nn  # its operators register themselves
from weft import dtype as dtypes
from weft.core.lowering import Pointwise, Reduction
from weft.core.op import Op, Sample, all_ops
from weft.core.tensor import Tensor

OPS = {op.name: op for op in all_ops()}
USUAL = (dtypes.float32, dtypes.int64)
STATES = ("uniform", "normal", "random_integers")  # whose inputs are seeds
# for the samples of records that work on elements or along axes, by dimensions
ODD = {1: (8197,), 2: (67, 131), 3: (5, 17, 33)}


class Case(NamedTuple):
    """An operator at one sample in one dtype."""

    op: Op
    dtype: Any
    args: tuple[Any, ...]  # arrays and Python numbers
    params: dict[str, Any]
    want: list[np.ndarray]

    def __call__(self, *tensors: Any) -> Any:
        found = iter(tensors)
        args = [next(found) if isinstance(a, np.ndarray) else a for a in self.args]
        out = self.op(*args, **self.params)
        return out if isinstance(out, tuple) else (out,)

    @property
    def arrays(self) -> list[np.ndarray]:
        return [a for a in self.args if isinstance(a, np.ndarray)]


def cases_of(op: Op) -> list[Case]:
    """All samples in the usual dtypes, and the first and the last one in the others."""
    found = []
    samples = _samples(op)
    for k, sample in enumerate(samples):
        ends = k in (0, len(samples) - 1)
        for dtype in dtypes.ALL:
            if ends or dtype in USUAL or (dtype.is_inexact and not _is_plain(op)):
                found.append(_case(op, sample, dtype))
    return [case for case in found if case is not None]


def _is_plain(op: Op) -> bool:
    """Whether all samples are computed alike."""
    return isinstance(op.lower, (Pointwise, Reduction))


def _samples(op: Op) -> list[Sample]:
    samples = list(op.samples(np.random.default_rng(0)))
    if not _is_plain(op):
        return samples
    return samples + [_enlarged(s) for s in samples if _is_regular(s)]


def _is_regular(sample: Sample) -> bool:
    shapes = {np.shape(a) for a in sample.args}
    return len(shapes) == 1 and 0 not in (shape := shapes.pop()) and len(shape) in ODD


def _enlarged(sample: Sample) -> Sample:
    arrays = [np.resize(a, ODD[np.ndim(a)]) for a in sample.args]
    return Sample(tuple(arrays), sample.params)


def _case(op: Op, sample: Sample, dtype: Any) -> Case | None:
    params = dict(sample.params)
    if "dtype" in params:
        params["dtype"] = dtype
    if op.name in STATES and not _is_drawn(params, dtype):
        return None
    kinds = "" if op.name in STATES else _value_kinds(sample)
    args = tuple(_in_dtype(a, kinds, dtype) for a in sample.args)
    tensors = [Tensor(a) if isinstance(a, np.ndarray) else a for a in args]
    try:
        with np.errstate(all="ignore"):
            out = op(*tensors, **params)
            types = [weft.core.dispatch.type_of(t) for t in tensors]
            told = op.type(*types, **params)
    except (weft.errors.WeftError, TypeError, ValueError, KeyError):
        return None
    outs = out if isinstance(out, tuple) else (out,)
    told = (told,) if isinstance(told, weft.core.op.TensorType) else tuple(told)
    if [o.dtype for o in outs] != [t.dtype for t in told]:
        return None  # see BROKEN
    return Case(op, dtype, args, params, [o.numpy() for o in outs])


def _is_drawn(params: dict[str, Any], dtype: Any) -> bool:
    """Whether random numbers of a dtype are drawn with these parameters."""
    return dtype.is_floating_point if "dtype" in params else dtype is dtypes.int64


def _in_dtype(a: Any, kinds: str, dtype: Any) -> Any:
    """A sample's argument in the dtype under test, if it is one of values."""
    if not isinstance(a, (np.ndarray, np.generic)):
        return a
    a = np.asarray(a)
    if a.dtype.kind not in kinds:
        return a.copy()
    if dtype.is_inexact or a.dtype.kind not in "fc":
        return _cast(a, dtype)
    return _cast(np.sign(a.real) * np.ceil(np.abs(a)), dtype)  # zeros only for zeros


def _value_kinds(sample: Sample) -> str:
    """The kinds of arrays that are values: whole numbers only if no others are."""
    kinds = {np.asarray(a).dtype.kind for a in sample.args}
    return "fc" if kinds & set("fc") else "iu" if kinds & set("iu") else "b"


def _cast(a: np.ndarray, dtype: Any) -> np.ndarray:
    with np.errstate(all="ignore"):
        if not dtype.is_complex:
            a = np.real(a)
        if dtype is dtypes.uint8:
            a = np.abs(a)
        if not dtype.is_inexact:
            a = np.nan_to_num(a, posinf=3, neginf=-3)
        return np.asarray(a).astype(dtype.np)
