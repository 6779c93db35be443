"""ONNX's own tests of operators, run on Weft: those that fail are listed, exactly."""

import importlib.util
import pathlib

import numpy as np
import onnx
import pytest
from toy_device import Toy

import weft
from weft.errors import DeviceError, WeftError
from weft.onnx import backend

ROOT = pathlib.Path(__file__).parents[2]


def tool():
    path = ROOT / "tools" / "onnx_backend.py"
    spec = importlib.util.spec_from_file_location("onnx_backend", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


TOOL = tool()


@pytest.fixture(scope="module")
def cases():
    """ONNX's tests by their names; ONNX computes what they expect, which takes long."""
    return {case.name: case for case in [*TOOL.cases(), *TOOL.stored()]}


@pytest.fixture(scope="module")
def reasons(cases):
    """Why each of ONNX's tests fails; nothing where it passes."""
    return {name: TOOL.run(case, backend.prepare) for name, case in cases.items()}


@pytest.fixture(scope="module")
def inside(cases):
    """The names of those for tensors of numbers."""
    return {name for name, case in cases.items() if not TOOL.outside(case)}


@pytest.fixture
def toy():
    device = weft.register_device(Toy())
    yield device
    weft.unregister_device(device.name)


def test_the_exceptions_are_those_that_fail(reasons, inside):
    failed = {name for name in inside if reasons[name]}
    assert failed == {name for name in TOOL.EXCEPTIONS if name in reasons}


def test_nearly_all_tests_of_numbers_pass(reasons, inside):
    passed = [name for name in inside if not reasons[name]]
    assert len(passed) >= 0.95 * len(inside) > 1000


def test_other_types_are_refused_with_an_error_of_their_own(reasons, inside):
    others = {name: why for name, why in reasons.items() if why and name not in inside}
    assert len(others) > 100
    kinds = {why.partition(":")[0] for why in others.values()}
    assert kinds == {"ModelError", "DTypeError"}


def test_run_node_and_questions(cases):
    node = onnx.helper.make_node("Add", ["a", "b"], ["c"])
    a, b = np.ones(3, np.float32), np.arange(3, dtype=np.float32)
    assert backend.run_node(node, [a, b])[0].tolist() == [1, 2, 3]
    assert backend.supports_device("CPU")
    assert not backend.supports_device("CUDA")
    model = next(iter(cases.values())).model
    assert backend.is_compatible(model)
    bad = onnx.helper.make_node("Unheard", ["x"], ["y"])
    value = onnx.helper.make_tensor_value_info("x", 1, [1])
    out = onnx.helper.make_tensor_value_info("y", 1, [1])
    graph = onnx.helper.make_graph([bad], "g", [value], [out])
    assert not backend.is_compatible(onnx.helper.make_model(graph))
    with pytest.raises(weft.onnx.ModelError, match="device CPU"):
        backend.prepare(model, "CUDA")


def data_of(case):
    """The arrays of a test; none where there are sequences, or values are absent."""
    inputs, outputs = ([TOOL.plain(x) for x in xs] for xs in case.data_sets[0])
    arrays = all(isinstance(x, np.ndarray) for x in (*inputs, *outputs))
    return (inputs, outputs) if arrays else None


def captured(case):
    """Whether a test passes as a captured program; one that is refused does not."""
    data = data_of(case)
    if data is None:
        return False
    given = [weft.from_numpy(x.copy()) for x in data[0]]
    try:
        with weft.no_grad():
            found = weft.graph.capture(weft.onnx.load(case.model), *given)(*given)
    except WeftError:  # sizes that depend on values
        return False
    found = found if isinstance(found, tuple) else (found,)
    TOOL.compare(data[1], [y.numpy() for y in found], case.rtol, case.atol)
    return True


def test_captured_programs_agree_or_are_refused(cases, inside):
    every = [*cases.values()]
    tested = [c for c in every[::4] if c.name in inside - TOOL.EXCEPTIONS.keys()]
    assert sum(map(captured, tested)) > len(tested) / 2  # others have sizes as inputs


def outcome_on(device, case):
    """The error of a test whose tensors are on a device; nothing if it passes."""
    data = data_of(case)
    if data is None:
        return ""
    inputs, outputs = data
    try:
        net = weft.onnx.load(case.model).to(device)
        with weft.no_grad():
            found = net(*(weft.from_numpy(x.copy()).to(device) for x in inputs))
    except DeviceError as error:
        return str(error)
    found = found if isinstance(found, tuple) else (found,)
    TOOL.compare(outputs, [y.cpu().numpy() for y in found], case.rtol, case.atol)
    return ""


def test_models_run_on_a_second_device(toy, cases, inside):
    names = inside - TOOL.EXCEPTIONS.keys()
    tested = [case for name, case in cases.items() if name in names]
    failed = {c.name for c in tested if outcome_on(toy, c)}
    assert {name for name in failed if not name.startswith("test_bitcast")} == set()
    assert len(toy.ran) > 3000
