"""Checking an operator record from its own samples and reference.

``check_op(op)`` runs every check that applies and returns a row of the coverage
matrix: ``ok``, ``-`` (does not apply, for the reason that the check states) or
the text of the failure. The project's own operators and a user's are checked
the same way.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from weft import dtype as dtypes
from weft.autograd import grad
from weft.comparing import (  # noqa: F401  # names of PyTorch's testing
    assert_allclose,
    assert_close,
    make_tensor,
)
from weft.core.dispatch import Evaluator, type_of
from weft.core.op import Op, Sample, all_ops
from weft.core.tensor import Tensor
from weft.dtype import DType
from weft.errors import DTypeError
from weft.func import jvp, vjp, vmap

EPS = 1e-6
HALF = {"float16": 2e-3, "bfloat16": 1.6e-2}
TOLERANCE = {"float64": 1e-9, "float32": 2e-5, **HALF}


class Mismatch(AssertionError):
    """A rule that disagrees with its oracle."""


class NotApplicable(Exception):
    """A check that has no meaning for this operator."""


# -- counting


class count_ops(Evaluator):
    """Counts, by name, the operators whose kernels run on this thread.

    A result that is reused without running its operator is not counted.

    >>> with weft.testing.count_ops() as counts:
    ...     _ = (weft.ones(2) * 3).exp()
    >>> counts["mul"], counts["exp"]
    (1, 1)
    """

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()

    def __enter__(self) -> Counter[str]:
        super().__enter__()
        return self.counts

    def process(self, op: Op, args: tuple[Any, ...], params: dict[str, Any]) -> Any:
        self.counts[op.name] += 1
        return super().process(op, args, params)


# -- samples as tensors


def _samples(op: Op, seed: int = 0) -> list[Sample]:
    if op.samples is None:
        raise Mismatch("the record has no samples")
    return list(op.samples(np.random.default_rng(seed)))


def _is_float(a: Any) -> bool:
    return isinstance(a, (np.ndarray, np.floating)) and a.dtype.kind in "fc"


def _tensors(sample: Sample, dtype: DType = dtypes.float64) -> list[Any]:
    """A sample's arrays as tensors, the floating ones in the dtype under test."""
    out = []
    for a in sample.args:
        if not isinstance(a, (np.ndarray, np.generic)):
            out.append(a)
            continue
        array = np.asarray(a)
        if array.dtype.kind == "f":
            array = array.astype(dtype.np)
        elif array.dtype.kind == "c" and dtype.name != "float64":
            array = array.astype(dtype.to_complex().np)
        out.append(Tensor(array.copy()))
    return out


def _outputs(value: Any) -> tuple[Tensor, ...]:
    return value if isinstance(value, tuple) else (value,)


def _arrays(value: Any) -> list[np.ndarray]:
    return [np.asarray(o.detach().array()) for o in _outputs(value)]


def _wide(array: np.ndarray) -> np.ndarray:
    return array.astype(np.complex128 if array.dtype.kind == "c" else np.float64)


def _close(what: str, got: Any, expected: Any, tolerance: float) -> None:
    got, expected = np.asarray(got), np.asarray(expected)
    if got.shape != expected.shape:
        raise Mismatch(f"{what}: shape {got.shape}, expected {expected.shape}")
    if got.dtype.kind in "biu" and expected.dtype.kind in "biu":
        good = bool((got == expected).all())
    else:
        scale = tolerance * (1 + np.abs(_finite(expected)).max(initial=0.0))
        good = np.allclose(
            _wide(got), _wide(expected), rtol=tolerance, atol=scale, equal_nan=True
        )
    if not good:
        raise Mismatch(f"{what}: got {got!r}, expected {expected!r}")


def _finite(array: np.ndarray) -> np.ndarray:
    return np.where(np.isfinite(_wide(array)), _wide(array), 0)


# -- differentiated functions


class Case:
    """An operator at one sample, as a function of its floating inputs."""

    def __init__(self, op: Op, sample: Sample) -> None:
        self.op = op
        self.params = sample.params
        self.args = _tensors(sample)
        self.places = [k for k, a in enumerate(sample.args) if _is_float(a)]
        self.primals = tuple(self.args[k] for k in self.places)

    def __call__(self, *moved: Any) -> tuple[Tensor, ...]:
        args = list(self.args)
        for k, x in zip(self.places, moved, strict=True):
            args[k] = x
        outs = _outputs(self.op(*args, **self.params))
        return tuple(o for o in outs if o.dtype.is_inexact)


def _cases(op: Op) -> Iterable[Case]:
    cases = [Case(op, sample) for sample in _samples(op)]
    cases = [c for c in cases if c.places]
    for case in cases:
        outs = case(*case.primals)
        if outs and not op.differentiable:
            raise Mismatch("floating inputs and outputs, but no vjp")
        if outs and op.facts.random:
            raise NotApplicable("samples are moved implicitly, not by differences")
        if outs:
            yield case
    if not op.differentiable:
        raise NotApplicable("no floating input and output")


def _noise(x: Tensor, rng: np.random.Generator) -> Tensor:
    v = rng.standard_normal(x.shape)
    if x.dtype.is_complex:
        v = v + 1j * rng.standard_normal(x.shape)
    return Tensor(np.asarray(v).astype(x.dtype.np))


def _dot(us: Iterable[Any], vs: Iterable[Any]) -> float:
    pairs = zip(_each(us), _each(vs), strict=True)
    return float(sum(np.vdot(u, v).real for u, v in pairs))


def _each(values: Iterable[Any]) -> list[np.ndarray]:
    return [
        np.asarray(v.detach().array() if isinstance(v, Tensor) else v) for v in values
    ]


def _difference(fn: Callable[..., Any], xs: Any, vs: Any) -> list[np.ndarray]:
    """Central differences of all outputs along one direction."""

    def at(sign: float) -> list[np.ndarray]:
        moved = [
            Tensor(np.asarray(x._data + sign * EPS * v._data))
            for x, v in zip(xs, vs, strict=True)
        ]
        return _arrays(fn(*moved))

    return [(a - b) / (2 * EPS) for a, b in zip(at(1), at(-1), strict=True)]


def _pull(fn: Callable[..., Any], n: int) -> Callable[..., Any]:
    """The vjp as a function of n primals and then the cotangents."""

    def pulled(*values: Any) -> tuple[Tensor, ...]:
        _, back = vjp(lambda *xs: tuple(fn(*xs)), *values[:n])
        return back(tuple(values[n:]))

    return pulled


# -- the checks


def check_value(op: Op, dtype: DType = dtypes.float64) -> None:
    """The evaluation agrees with the independent NumPy expression."""
    if op.reference is None:
        raise Mismatch("the record has no reference")
    for sample in _samples(op):
        if dtype is not dtypes.float64 and not any(_is_float(a) for a in sample.args):
            raise NotApplicable("no floating input")
        args = _tensors(sample, dtype)
        try:
            got = op(*args, **sample.params)
        except DTypeError:
            if dtype is dtypes.float64:
                raise
            raise NotApplicable(f"not defined for {dtype.name}") from None
        plain = [_wide_input(a) for a in args]
        with np.errstate(all="ignore"):
            expected = op.reference(*plain, **sample.params)
        expected = expected if isinstance(expected, tuple) else (expected,)
        for k, (g, e) in enumerate(zip(_outputs(got), expected, strict=True)):
            name = g.dtype.to_real().name
            _close(f"output {k} of {sample}", g.array(), e, TOLERANCE.get(name, 0.0))


def _wide_input(a: Any) -> Any:
    if not isinstance(a, Tensor):
        return a
    array = np.array(a.array())
    return _wide(array) if a.dtype.is_inexact else array


def check_type(op: Op) -> None:
    """The type rule predicts the shapes and dtypes of the evaluation."""
    for sample in _samples(op):
        args = _tensors(sample)
        got = _outputs(op(*args, **sample.params))
        if op.type is None:
            raise Mismatch("the record has no type rule")
        told = op.type(*[type_of(a) for a in args], **sample.params)
        told = (told,) if hasattr(told, "shape") else tuple(told)
        for g, t in zip(got, told, strict=True):
            if (tuple(g.shape), g.dtype) != (tuple(t.shape), t.dtype):
                raise Mismatch(f"told {t}, got {type_of(g)} for {sample}")


def check_vjp(op: Op) -> None:
    """Reverse mode agrees with central differences."""
    rng = np.random.default_rng(1)
    for case in _cases(op):
        vs = [_noise(x, rng) for x in case.primals]
        us = [_noise(o, rng) for o in case(*case.primals)]
        found = _pull(case, len(vs))(*case.primals, *us)
        expected = _dot(us, _difference(case, case.primals, vs))
        _close("vjp along a direction", _dot(found, vs), expected, 1e-6)
        for g, x in zip(found, case.primals, strict=True):
            if g.dtype is not x.dtype or g.shape != x.shape:
                raise Mismatch(f"vjp: {type_of(g)} for an input {type_of(x)}")


def check_jvp(op: Op) -> None:
    """Forward mode agrees with central differences."""
    rng = np.random.default_rng(2)
    for case in _cases(op):
        vs = tuple(_noise(x, rng) for x in case.primals)
        _, found = jvp(lambda *xs, c=case: tuple(c(*xs)), case.primals, vs)
        expected = _difference(case, case.primals, vs)
        for t, e in zip(found, expected, strict=True):
            _close("jvp along a direction", t.array(), e, 1e-6)


def _second_order(op: Op, compare: Callable[..., None]) -> None:
    rng = np.random.default_rng(3)
    for case in _cases(op):
        us = [_noise(o, rng) for o in case(*case.primals)]
        first = _pull(case, len(case.primals))
        xs = (*case.primals, *us)
        vs = tuple(_noise(x, rng) for x in xs)
        compare(first, xs, vs, _difference(first, xs, vs), rng)


def check_vjp_of_vjp(op: Op) -> None:
    """Reverse mode over reverse mode agrees with differences of the vjp."""

    def compare(first: Any, xs: Any, vs: Any, expected: Any, rng: Any) -> None:
        ws = [_noise(o, rng) for o in first(*xs)]
        found = _pull(first, len(xs))(*xs, *ws)
        _close("vjp of vjp", _dot(found, vs), _dot(ws, expected), 1e-6)

    _second_order(op, compare)


def check_jvp_of_vjp(op: Op) -> None:
    """Forward mode over reverse mode agrees with differences of the vjp."""

    def compare(first: Any, xs: Any, vs: Any, expected: Any, rng: Any) -> None:
        _, found = jvp(first, xs, vs)
        for t, e in zip(found, expected, strict=True):
            _close("jvp of vjp", t.array(), e, 1e-6)

    _second_order(op, compare)


def check_tape(op: Op) -> None:
    """``autograd.grad`` on the tape gives what ``func.vjp`` gives."""
    rng = np.random.default_rng(4)
    for case in _cases(op):
        leaves = [x.clone().requires_grad_() for x in case.primals]
        outs = case(*leaves)
        us = [_noise(o, rng) for o in outs]
        if not any(o.requires_grad for o in outs):
            continue
        live = [(o, u) for o, u in zip(outs, us, strict=True) if o.requires_grad]
        found = grad(
            [o for o, _ in live], leaves, [u for _, u in live], materialize_grads=True
        )
        expected = _pull(case, len(leaves))(*case.primals, *us)
        for g, e in zip(found, expected, strict=True):
            _close("tape", g.array(), e.array(), 1e-12)


def check_batch(op: Op) -> None:
    """``vmap`` equals a Python loop, for each way of batching the inputs."""
    for draws in zip(*[_samples(op, seed) for seed in range(3)], strict=True):
        rows = [_tensors(sample) for sample in draws]
        places = [k for k, a in enumerate(rows[0]) if isinstance(a, Tensor)]
        if not places:
            raise NotApplicable("no tensor input")
        choices = [places] if len(places) == 1 else [places, places[:1], places[-1:]]
        for chosen in choices:
            _compare_batch(op, rows, chosen, draws[0].params)


def _compare_batch(op: Op, draws: list[Any], chosen: list[int], params: Any) -> None:
    rows = [
        [other[k] if k in chosen else a for k, a in enumerate(draws[0])]
        for other in draws
    ]
    stacked = [
        Tensor(np.stack([r[k].array() for r in rows])) if k in chosen else a
        for k, a in enumerate(draws[0])
    ]
    in_dims = tuple(0 if k in chosen else None for k in range(len(stacked)))
    mapped = _outputs(vmap(lambda *xs: op(*xs, **params), in_dims)(*stacked))
    looped = [_outputs(op(*row, **params)) for row in rows]
    for k, got in enumerate(mapped):
        expected = np.stack([out[k].array() for out in looped])
        _close(f"output {k} batched over {chosen}", got.array(), expected, 1e-12)


def check_strides(op: Op) -> None:
    """Transposed and reversed memory gives the same result as contiguous."""
    for sample in _samples(op):
        args = _tensors(sample)
        expected = _arrays(op(*args, **sample.params))
        for turn in (_transposed, _reversed):
            odd = [turn(a) if isinstance(a, Tensor) else a for a in args]
            for g, e in zip(_arrays(op(*odd, **sample.params)), expected, strict=True):
                _close(f"with {turn.__name__} inputs", g, e, 1e-12)


def _transposed(x: Tensor) -> Tensor:
    return Tensor(np.asarray(np.array(x.array(), order="F")))


def _reversed(x: Tensor) -> Tensor:
    flipped = np.flip(x.array()).copy()
    return Tensor(np.asarray(np.flip(flipped)))


def check_unmodified(op: Op) -> None:
    """Evaluating, and running the rules, leaves the inputs as they were."""
    for sample in _samples(op):
        args = _tensors(sample)
        before = [a.array().tobytes() for a in args if isinstance(a, Tensor)]
        leaves = [
            a.requires_grad_() if isinstance(a, Tensor) and a.dtype.is_inexact else a
            for a in args
        ]
        for out in _outputs(op(*leaves, **sample.params)):
            if out.requires_grad:
                out.backward(gradient=out.detach() * 0 + 1, retain_graph=True)
        after = [a.array().tobytes() for a in args if isinstance(a, Tensor)]
        if before != after:
            raise Mismatch(f"an input was changed for {sample}")


def check_sizes(op: Op) -> None:
    """The samples hold a case without elements."""
    samples = _samples(op)
    shapes = [s.params["shape"] for s in samples if "shape" in s.params]
    shapes += [(s.params["count"],) for s in samples if "count" in s.params]
    shapes += [np.shape(a) for s in samples for a in s.args]
    if not any(0 in shape for shape in shapes):
        raise Mismatch("no sample has zero size")


def check_scalars(op: Op) -> None:
    """Element-wise operators have a sample without dimensions."""
    shapes = [np.shape(a) for s in _samples(op) for a in s.args]
    if () in shapes:
        return
    if op.function is not None:
        raise Mismatch("no sample is 0-d")
    raise NotApplicable("works along axes")


# What PyTorch's rules give for pairs of dtypes.
PROMOTED = {
    (dtypes.int32, dtypes.float32): dtypes.float32,
    (dtypes.float16, dtypes.float32): dtypes.float32,
    (dtypes.bfloat16, dtypes.float16): dtypes.float32,
    (dtypes.float64, dtypes.float16): dtypes.float64,
    (dtypes.int8, dtypes.uint8): dtypes.int16,
    (dtypes.bool_, dtypes.int64): dtypes.int64,
    (dtypes.int64, dtypes.int16): dtypes.int64,
    (dtypes.int64, dtypes.bfloat16): dtypes.bfloat16,
    (dtypes.float32, dtypes.complex64): dtypes.complex64,
    (dtypes.float64, dtypes.complex64): dtypes.complex128,
}


def check_promotion(op: Op) -> None:
    """The public function promotes its operands, then applies the operator."""
    if op.function is None:
        raise NotApplicable("promotion is the public functions' part")
    for both, promoted in PROMOTED.items():
        pair = both[: len(op.inputs)]
        common = promoted if len(pair) == 2 else pair[0]
        args = [Tensor(np.ones(2, d.np)) for d in pair]
        for target in (common, dtypes.float32):
            cast = [a.to(target) for a in args]
            try:
                op.type(*[type_of(c) for c in cast])  # type: ignore[misc]
                expected = op(*cast)
                break
            except DTypeError:
                continue  # integers may have to become floating, or be refused
        else:
            expected = None
        try:
            got = op.function(*args)
        except DTypeError:
            continue
        if expected is None or got.dtype is not expected.dtype:
            raise Mismatch(f"{[d.name for d in pair]}: {got.dtype.name}")
        _close(f"promoted {pair}", got.array(), expected.array(), 0.0)


def _in(dtype: DType) -> Callable[[Op], None]:
    def check(op: Op) -> None:
        check_value(op, dtype)

    return check


CHECKS: dict[str, Callable[[Op], None]] = {
    "f64": check_value,
    "f32": _in(dtypes.float32),
    "f16": _in(dtypes.float16),
    "bf16": _in(dtypes.bfloat16),
    "type": check_type,
    "vjp": check_vjp,
    "jvp": check_jvp,
    "vjp²": check_vjp_of_vjp,
    "jvp∘vjp": check_jvp_of_vjp,
    "tape": check_tape,
    "vmap": check_batch,
    "strides": check_strides,
    "intact": check_unmodified,
    "empty": check_sizes,
    "0-d": check_scalars,
    "promote": check_promotion,
}


def check_op(op: Op, only: Iterable[str] | None = None) -> dict[str, str]:
    """One row of the matrix: each check's name with ``ok``, ``-`` or the failure.

    >>> weft.testing.check_op(weft.sin.op, only=["f64", "vjp"])
    {'f64': 'ok', 'vjp': 'ok'}
    """
    row = {}
    for name in only or CHECKS:
        try:
            CHECKS[name](op)
            row[name] = "ok"
        except NotApplicable:
            row[name] = "-"
        except Exception as error:
            row[name] = f"{type(error).__name__}: {error}"
    return row


def table(rows: dict[str, dict[str, str]]) -> str:
    """Rows by operator as a text table; failures show as ``FAIL``.

    >>> print(weft.testing.table({"sin": {"f64": "ok", "vjp": "-"}}))
    operator  f64  vjp
    sin        ok   -
    """
    width = max(len("operator"), *(len(name) for name in rows))
    columns = list(next(iter(rows.values())))
    lines = ["operator".ljust(width) + "  " + "  ".join(columns)]
    for name, row in rows.items():
        cells = [
            (row[c] if row[c] in ("ok", "-", "call") else "FAIL").center(len(c))
            for c in columns
        ]
        lines.append((name.ljust(width) + "  " + "  ".join(cells)).rstrip())
    return "\n".join(lines)


if __name__ == "__main__":
    print(table({op.name: check_op(op) for op in all_ops()}))
