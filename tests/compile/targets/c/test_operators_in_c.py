"""Every operator record in C: one file of many functions, against eager results."""

import numpy as np
import pytest
from c_programs import CModel, needs_cc
from on_device import flat

import weft
from weft.compile.emit.scalar import has_function
from weft.compile.targets.c.compiled import c_file, lowered
from weft.compile.targets.c.program import refused
from weft.core.lowering import Pointwise
from weft.core.op import all_ops
from weft.errors import WeftError
from weft.export.programs import Program

LARGEST = 4  # cases of an operator


def arrays_of(sample):
    return [a for a in sample.args if isinstance(a, (np.ndarray, np.generic))]


def graph_of(op, sample, dtype):
    """A program of one operator, its arguments and eager results; None for errors."""
    floats = np.float64 if dtype is None else dtype
    given = [
        np.asarray(a, floats if a.dtype == np.float64 else a.dtype)
        for a in arrays_of(sample)
    ]

    def call(*tensors):
        values = iter(tensors)
        args = [
            next(values) if isinstance(a, (np.ndarray, np.generic)) else a
            for a in sample.args
        ]
        return tuple(flat(op(*args, **sample.params)))

    tensors = [weft.tensor(a.copy("C")) for a in given]
    try:
        want = call(*tensors)
        return weft.graph.capture(call, *tensors).graph, tensors, want
    except WeftError:
        return None


def cases(rng):
    """Programs of single operators that C has a form of, and all other operators."""
    found, without = [], set()
    for op in all_ops():
        mine = []
        for sample in op.samples(rng):
            single = any(a.dtype == np.float64 for a in arrays_of(sample))
            for dtype in (None, np.float32)[: 1 + single]:
                case = graph_of(op, sample, dtype)
                if case and len(mine) < LARGEST and has_form(case[0]):
                    mine.append((op.name, *case))
        found += mine
        if not mine:
            without.add(op)
    return found, without


def has_form(graph):
    return not refused(lowered(graph))


@pytest.fixture(scope="module")
def everything(tmp_path_factory):
    found, without = cases(np.random.default_rng(0))
    programs = [
        Program(f"run{k}", graph, {}, [f"out{j}" for j in range(len(want))], {})
        for k, (_, graph, _, want) in enumerate(found)
    ]
    made = c_file("every", programs, {})
    folder = tmp_path_factory.mktemp("c")
    (folder / "every.c").write_text(made.source)
    (folder / "every.h").write_text(made.header)
    return found, without, folder / "every.c"


@needs_cc
def test_every_operator(everything):
    found, _, source = everything
    model = CModel(source, 1 << 22, flags=("-O0",))
    assert model.init_code == "OK"
    wrong = []
    for k, (name, _, tensors, want) in enumerate(found):
        results = [np.zeros(w.shape, w.dtype.np) for w in want]
        arrays = [np.array(t.numpy()) for t in tensors]
        assert model(f"run{k}", arrays, results) == "OK", name
        for result, w in zip(results, want, strict=True):
            try:
                same(result, w.detach().numpy(), arrays)
            except AssertionError as error:
                wrong.append(f"{name}: {error}")
    assert not wrong, "\n".join(wrong)


def same(result, want, arrays):
    """Equal within rounding, of numbers as large as the arguments or the result."""
    if want.dtype.kind not in "fV":
        np.testing.assert_array_equal(result, want)
        return
    close = {2: 1e-2, 4: 1e-5, 8: 1e-12}[want.itemsize]
    a, b = result.astype(np.float64), want.astype(np.float64)
    given = [b, *[x.astype(np.float64) for x in arrays if x.dtype.kind == "f"]]
    scale = max(np.abs(x[np.isfinite(x)]).max(initial=0) for x in given)
    np.testing.assert_allclose(a, b, rtol=close, atol=close * scale)


def test_every_operator_with_loops_has_a_form_in_c(everything):
    found, without, _ = everything
    names = {name for name, *_ in found}
    assert {"cond", "scan", "while_loop", "matmul", "conv", "attention"} <= names
    assert len(names) >= 150
    rules = [op.lower for op in without if op.lower is not None]
    assert all(isinstance(rule, Pointwise) for rule in rules)
    kinds = [weft.float64, weft.float64]
    assert not any(has_function(r.scalar, kinds, weft.float64) for r in rules)
