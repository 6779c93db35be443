"""``detect_anomaly`` in compiled programs and optimizers."""

import pytest

import weft
from weft import nn, optim
from weft.autograd import detect_anomaly, is_anomaly_enabled, set_detect_anomaly
from weft.autograd.anomaly import AnomalyError
from weft.compile.passes.anomaly import with_checks
from weft.compile.program.program import compiled
from weft.graph.ir import ASSIGN

T = weft.tensor
LINE = "test_anomaly.py"


def test_the_switch_holds_until_it_is_turned_off():
    assert not is_anomaly_enabled()
    set_detect_anomaly(True)
    try:
        assert is_anomaly_enabled()
        with pytest.raises(AnomalyError, match="log made a non-finite"):
            weft.log(T([-1.0]))
        with set_detect_anomaly(False):
            weft.log(T([-1.0]))
        assert is_anomaly_enabled()
    finally:
        set_detect_anomaly(False)
    assert not is_anomaly_enabled()
    weft.log(T([-1.0]))


def test_blocks_nest_and_end_with_errors():
    with detect_anomaly(), detect_anomaly(check_inf=False):
        weft.log(T([0.0]))  # an infinity, which is none here
        with pytest.raises(AnomalyError):
            weft.log(T([-1.0]))
    assert not is_anomaly_enabled()
    with set_detect_anomaly(True, check_nan=False, check_inf=False):
        assert not is_anomaly_enabled()


def step(x):
    y = x - 3
    root = y.sqrt()  # the first NaN
    return (root * 2).sum()


def test_a_compiled_program_names_operator_and_line():
    program = weft.compile(step)
    assert program(T([4.0, 7.0])).item() == 6
    with detect_anomaly():
        assert program(T([4.0, 7.0])).item() == 6
        with pytest.raises(AnomalyError) as error:
            program(T([4.0, 1.0]))
    text = str(error.value)
    assert text.startswith("sqrt made a non-finite value from finite ones (1 of 2)")
    assert "x: float32 (2,), from -2 to 1" in text
    assert LINE in text
    assert "root = y.sqrt()  # the first NaN" in text
    assert program(T([1.0])).isnan()


def test_infinities_are_looked_for_if_asked():
    program = weft.compile(lambda x: 1 / x)
    with detect_anomaly(check_inf=False):
        assert program(T([0.0])).isinf()
    with detect_anomaly(), pytest.raises(AnomalyError, match="div made"):
        program(T([0.0]))


def test_what_came_in_from_outside_is_no_anomaly():
    program = weft.compile(lambda x: x * 2 + 1)
    with detect_anomaly():
        for _ in range(3):  # by the short way of later calls, too
            assert program(T([float("nan"), 1.0])).tolist()[1] == 3
    with detect_anomaly():
        assert program(T([2.0, 1.0])).tolist() == [5, 3]


def network():
    weft.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1))


@pytest.mark.parametrize("make", [optim.SGD, optim.AdamW], ids=lambda m: m.__name__)
def test_a_training_step_is_refused_before_it_changes_anything(make):
    model = network()
    optimizer = make(model.parameters(), lr=0.1)

    @weft.compile
    def train(x, y):
        optimizer.zero_grad()
        loss = (model(x) - y).abs().sqrt().mean()  # its slope at 0 is infinite
        loss.backward()
        optimizer.step()
        return loss

    x = weft.rand(5, 4)
    with detect_anomaly():
        for _ in range(3):
            train(x, weft.rand(5, 1))
        before = [p.detach().clone() for p in model.parameters()]
        with pytest.raises(AnomalyError, match="made a non-finite value") as error:
            train(x * float("1e30") * 1e10, weft.rand(5, 1))
        assert LINE in str(error.value)
        for p, old in zip(model.parameters(), before, strict=True):
            assert weft.equal(p.detach(), old)
        assert train(x, weft.rand(5, 1)).isfinite()


def trained(model, optimizer):
    def train(x, y):
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(model(x), y)
        loss.backward()
        optimizer.step()
        return loss

    return train


def test_checked_steps_have_the_bits_of_others():
    x, y = weft.rand(5, 4), weft.rand(5, 1)
    results = []
    for check in (False, True):
        model = network()
        program = weft.compile(trained(model, optim.Adam(model.parameters(), lr=0.1)))
        with set_detect_anomaly(check):
            losses = [program(x, y).item() for _ in range(4)]
        grads = [p.grad.tolist() for p in model.parameters()]
        results.append((losses, grads, [p.tolist() for p in model.parameters()]))
    assert results[0] == results[1]


def test_state_is_written_in_place_behind_the_check():
    model = network()
    optimizer = optim.Adam(model.parameters())
    train = trained(model, optimizer)
    train(weft.rand(5, 4), weft.rand(5, 1))  # makes the optimizer's state
    captured = weft.graph.capture(train, weft.rand(5, 4), weft.rand(5, 1))
    graph = with_checks(captured.graph, (True, True))
    program = compiled(graph, graph.variables.values())
    assigned = {n.params["variable"] for n in graph.nodes if n.op is ASSIGN}
    assert len(assigned) == 17  # four parameters of four arrays each, and a count
    assert set(program.lowered.aliasing.state) == assigned
    flags = [n for n in graph.nodes if n.op.name == "all"]
    assert len(flags) == len(assigned) + 1  # and the loss


def test_state_that_overflows_is_found_where_parameters_stay_finite():
    p = weft.zeros(3, requires_grad=True)
    optimizer = optim.Adam([p])
    squares = weft.compile(lambda: optimizer.step())
    p.grad = weft.full((3,), 1e30)  # its square is infinite, and the step is 0
    with detect_anomaly(), pytest.raises(AnomalyError, match="made a non-finite"):
        squares()


def test_a_backward_pass_that_makes_a_nan_is_named_while_the_loss_is_finite():
    w = T([0.0, 1.0], requires_grad=True)
    optimizer = optim.SGD([w], lr=0.1)

    @weft.compile
    def train(x):
        optimizer.zero_grad()
        loss = ((w * x) ** 0.5).sum()
        loss.backward()
        optimizer.step()
        return loss

    with detect_anomaly(), pytest.raises(AnomalyError) as error:
        train(T([1.0, 1.0]))
    assert "** 0.5" in str(error.value)
    assert w.tolist() == [0, 1]


def test_a_compiled_model_whose_backward_is_outside():
    program = weft.compile(lambda x, w: (x * w).log().sum())
    w = T([1.0, 2.0], requires_grad=True)
    with detect_anomaly():
        program(T([1.0, 1.0]), w).backward()
        assert w.grad.tolist() == [1, 0.5]
        with pytest.raises(AnomalyError, match="log made"):
            program(T([1.0, -1.0]), w)


@pytest.mark.parametrize("many", [1, 100_000])
def test_an_optimizer_that_makes_a_nan_is_named(many):
    p = weft.zeros(many, requires_grad=True)
    optimizer = optim.Adam([p], lr=0.1, eps=0.0)
    p.grad = weft.zeros(many)
    with detect_anomaly(), pytest.raises(AnomalyError) as error:
        optimizer.step()
    text = str(error.value)
    assert text.startswith("Adam.step made a non-finite value of parameter 0")
    assert f"gradient: float32 ({many},), from 0 to 0" in text
    assert LINE in text


def test_the_form_without_a_check_is_kept():
    program = weft.compile(lambda x: x.exp())
    x = T([1.0])
    for _ in range(2):
        program(x)
        with detect_anomaly():
            program(x)
    assert len(program.compiles) == 2
    assert "detect_anomaly" in program.compiles[1].why
