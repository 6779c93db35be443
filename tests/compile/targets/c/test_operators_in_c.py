"""Every operator record in C: one file of many functions, against eager results."""

import numpy as np
import pytest
from c_programs import CModel, needs_cc
from on_device import flat

import weft
from weft.compile.targets.c.compiled import c_file, lowered
from weft.compile.targets.c.program import refused
from weft.core.op import all_ops
from weft.errors import WeftError
from weft.export.programs import Program

SINGLE = {np.dtype(np.float64): np.float32}


def cases(rng):
    """Graphs of single operators with their arguments, and those that C refuses."""
    found, without = [], {}
    for op in all_ops():
        done = 0
        for sample in op.samples(rng):
            for single in (False, True):
                case = graph_of(op, sample, single)
                if case is None:
                    continue
                graph, arrays, want = case
                nodes = refused(lowered(graph))
                if nodes or any(w.dtype.is_complex for w in want):
                    without.setdefault(op.name, set()).update(n.op.name for n in nodes)
                else:
                    found.append((op.name, graph, arrays, want))
                    done += 1
    return found, without


def graph_of(op, sample, single):
    arrays = [a for a in sample.args if isinstance(a, (np.ndarray, np.generic))]
    if single:
        if not any(a.dtype == np.float64 for a in arrays):
            return None
        arrays = [np.asarray(a, SINGLE.get(a.dtype, a.dtype)) for a in arrays]

    def call(*tensors):
        values = iter(tensors)
        args = [
            next(values) if isinstance(a, (np.ndarray, np.generic)) else a
            for a in sample.args
        ]
        return tuple(flat(op(*args, **sample.params)))

    tensors = [weft.tensor(np.ascontiguousarray(a)) for a in arrays]
    try:
        want = call(*tensors)
        return weft.graph.capture(call, *tensors).graph, tensors, want
    except WeftError:
        return None


def sizes(case):
    return [t.numel() for t in (*case[2], *case[3])]


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
    model = CModel(source, 1 << 22)
    assert model.init_code == "OK"
    wrong = []
    for k, (name, _, tensors, want) in enumerate(found):
        results = [np.zeros(w.shape, w.dtype.np) for w in want]
        code = model(f"run{k}", [np.array(t.numpy()) for t in tensors], results)
        assert code == "OK", name
        for result, w in zip(results, want, strict=True):
            try:
                same(result, w)
            except AssertionError as error:
                wrong.append(f"{name}: {error}")
    assert not wrong, "\n".join(wrong)


def same(result, want):
    want = want.detach().numpy()
    close = {2: 1e-2, 4: 2e-5, 8: 1e-11}[max(want.itemsize, 2)]
    if want.dtype.kind not in "fV":
        np.testing.assert_array_equal(result, want)
        return
    a, b = result.astype(np.float64), want.astype(np.float64)
    scale = np.abs(b[np.isfinite(b)]).max(initial=1e-30)
    np.testing.assert_allclose(a, b, rtol=close, atol=close * scale)


def test_operators_that_c_lacks_are_known(everything):
    found, without, _ = everything
    print(len(found), without)
