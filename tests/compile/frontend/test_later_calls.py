"""The short way of later calls: taken while nothing has changed, and only then."""

import gc
import sys
import threading
import weakref

import numpy as np
import pytest

import weft
from weft import nn, optim
from weft.compile.frontend.fast_path import MISS, FastPath, cpython_layout, path

pytestmark = pytest.mark.skipif(
    sys.version_info[:2] not in cpython_layout._VALUES,
    reason="the layout of objects in this CPython is not known: no short way",
)
F = nn.functional
X, Y = weft.randn(8, 6), weft.randn(8, 1)


@pytest.fixture
def ways(monkeypatch):
    """Which way each call took, if there was a short one: True is the short one."""
    taken = []

    def run(self, args, usual=FastPath.run):
        found = usual(self, args)
        taken.append(found is not MISS)
        return found

    monkeypatch.setattr(FastPath, "run", run)
    return taken


def player(kind=optim.SGD, dropout=0.0, compiled=True, **options):
    """A model, its optimizer, and its training step."""
    weft.manual_seed(0)
    model = nn.Sequential(
        nn.Linear(6, 5, bias=False), nn.BatchNorm1d(5), nn.ReLU(), nn.Dropout(dropout),
        nn.Linear(5, 1),
    )  # fmt: skip
    optimizer = kind(model.parameters(), lr=0.1, **options)

    def step(x, y):
        optimizer.zero_grad()
        loss = F.mse_loss(model(x), y)
        loss.backward()
        optimizer.step()
        return loss

    return model, optimizer, weft.compile(step) if compiled else step


def everything(model, optimizer):
    """All that a step changes."""
    state = optimizer.state_dict()["state"]
    return {
        **{k: v.numpy() for k, v in model.state_dict().items()},
        **{f"{k}.grad": p.grad.numpy() for k, p in model.named_parameters()},
        **{f"{a}.{b}": np.asarray(v) for a, s in state.items() for b, v in s.items()},
        "counter": np.asarray(weft.get_rng_state()),
    }


def agree(one, other):
    want, got = everything(*one[:2]), everything(*other[:2])
    assert list(want) == list(got)
    for name, value in want.items():
        np.testing.assert_allclose(got[name], value, rtol=2e-4, atol=1e-6, err_msg=name)


@pytest.mark.parametrize(
    ("kind", "options"),
    [
        (optim.SGD, {}),
        (optim.SGD, {"momentum": 0.9}),
        (optim.Adam, {}),
        (optim.AdamW, {"amsgrad": True}),
    ],
)
def test_steps_on_the_short_way_are_those_of_eager(ways, kind, options):
    sets = [player(kind, 0.3, compiled, **options) for compiled in (False, True)]
    for _, optimizer, step in sets:
        schedule = optim.lr_scheduler.ExponentialLR(optimizer, 0.9)
        weft.manual_seed(5)
        for k in range(6):
            step(X + k, Y)
            schedule.step()
    assert ways == [True] * 4  # all but the first two
    weft.manual_seed(9)
    agree(*sets)


def changed_value(model, optimizer):
    model[0].weight._data = model[0].weight._data * 2


def changed_in_place(model, optimizer):
    with weft.no_grad():
        model[0].weight.mul_(2)


def other_state(model, optimizer):
    saved = optimizer.state_dict()
    next(iter(saved["state"].values()))["momentum_buffer"].fill_(3)
    optimizer.load_state_dict(saved)


def other_option(model, optimizer):
    optimizer.param_groups[0]["momentum"] = 0.5


def evaluating(model, optimizer):
    model[1].eval()


def frozen(model, optimizer):
    model[4].bias.requires_grad_(False)


def another_layer(model, optimizer):
    model[2] = nn.Tanh()


def another_group(model, optimizer):
    extra = nn.Parameter(weft.ones(2))
    optimizer.add_param_group({"params": [extra]})


def no_gradient(model, optimizer):
    model[0].weight.grad = None


def hooked(model, optimizer):
    model[0].register_forward_hook(lambda module, args, out: out * 2)


def precise(model, optimizer):
    weft.config.strict_ieee = True


CHANGES = {
    change.__name__: (change, short)
    for change, short in [
        (changed_value, False),
        (changed_in_place, True),
        (other_state, False),
        (other_option, False),
        (evaluating, False),
        (frozen, False),
        (another_layer, False),
        (another_group, False),
        (no_gradient, False),
        (hooked, False),
        (precise, None),
    ]
}


@pytest.mark.parametrize("name", CHANGES)
def test_changes_are_noticed(ways, monkeypatch, name):
    monkeypatch.setattr(weft.config, "strict_ieee", False)
    change, short = CHANGES[name]
    sets = [player(compiled=compiled, momentum=0.9) for compiled in (False, True)]
    for model, optimizer, step in sets:
        weft.config.strict_ieee = False
        for _ in range(4):
            step(X, Y)
        assert ways in ([], [True, True])
        change(model, optimizer)
        for _ in range(2):
            step(X, Y)
        for p in model.parameters():
            p.grad = p.grad if p.grad is not None else weft.zeros_like(p)
    assert ways[2:3] == ([] if short is None else [short])
    agree(*sets)


def test_a_gradient_that_somebody_holds_is_left_alone(ways):
    model, _, step = player()
    for _ in range(4):
        step(X, Y)
    held = model[0].weight.grad
    part = model[4].weight.grad[0]
    values = held.numpy().copy(), part.numpy().copy()
    step(X + 1, Y)
    assert ways == [True, True, False]
    np.testing.assert_array_equal(held.numpy(), values[0])
    np.testing.assert_array_equal(part.numpy(), values[1])
    assert model[0].weight.grad is not held


def test_gradients_are_not_kept_alive():
    model, _, step = player()
    for _ in range(4):
        step(X, Y)
    memory = weakref.ref(model[0].weight.grad._data)
    model[0].weight.grad = None
    gc.collect()
    assert memory() is None


def test_arguments_of_another_kind(ways):
    f = weft.compile(lambda x: x * 2)
    for _ in range(4):
        f(weft.ones(4))
    del ways[:]
    for other in (
        weft.ones(5), weft.ones(4, dtype=weft.float64), weft.ones(2, 4)[0],
        weft.ones(4, 2)[:, 0], weft.ones(4, requires_grad=True), weft.ones(8)[::2],
    ):  # fmt: skip
        np.testing.assert_array_equal(
            f(other).detach().numpy(), 2 * other.detach().numpy()
        )
    np.testing.assert_array_equal(f(np.ones(4, np.float32)).numpy(), np.full(4, 2.0))
    assert f(x=weft.ones(4)).shape == (4,)
    with pytest.raises(TypeError):
        f()
    with pytest.raises(TypeError):
        f(weft.ones(4), weft.ones(4))


def test_an_argument_that_is_part_of_the_state(ways):
    sets = [player(compiled=compiled) for compiled in (False, True)]
    for model, _, step in sets:
        for _ in range(4):
            step(X, Y)
        row = model[0].weight.detach()
        step(weft.cat([row, row])[:8], Y)
        step(row[:5], Y[:5])
    agree(*sets)


def test_what_ran_in_between_moves_nothing(ways):
    """Addresses are those of the last run of the usual kind."""
    scale = nn.Parameter(weft.tensor([2.0, 3.0]))
    f = weft.compile(lambda x: x * scale.detach())
    ones = weft.ones(2)
    for _ in range(4):
        f(ones)
    first, second = scale._data, scale._data * 10
    scale._data = second
    assert f(ones).tolist() == [20.0, 30.0]
    scale._data = first
    assert f(ones).tolist() == [2.0, 3.0]
    assert ways == [True, True, False]


def test_an_index_out_of_range(ways):
    table = nn.Embedding(5, 3)
    optimizer = optim.SGD(table.parameters(), lr=1.0)

    @weft.compile
    def step(ids):
        optimizer.zero_grad()
        loss = table(ids).sum()
        loss.backward()
        optimizer.step()
        return loss

    for _ in range(4):
        step(weft.tensor([0, 1]))
    before = table.weight.detach().numpy().copy()
    with pytest.raises(IndexError, match="7"):
        step(weft.tensor([0, 7]))
    assert ways[-1:] != [False]
    np.testing.assert_array_equal(table.weight.detach().numpy(), before)
    step(weft.tensor([0, 1]))
    assert (table.weight.detach().numpy()[:2] == before[:2] - 1).all()


def test_threads_at_once():
    f = weft.compile(lambda x: (x * 3).sum())
    for _ in range(4):
        f(weft.ones(1000))
    wrong = []

    def work(k):
        x = weft.full((1000,), float(k))
        wrong.extend(1 for _ in range(200) if f(x).item() != 3000.0 * k)

    threads = [threading.Thread(target=work, args=(k,)) for k in range(1, 5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_another_number_of_threads(ways):
    f = weft.compile(lambda x: x @ x)
    x = weft.randn(64, 64)
    want = [f(x).numpy() for _ in range(4)][-1]
    before = weft.get_num_threads()
    try:
        weft.set_num_threads(3)
        np.testing.assert_array_equal(f(x).numpy(), want)
    finally:
        weft.set_num_threads(before)


@pytest.mark.parametrize("ran", [False, True])
def test_an_interrupted_run_changes_all_or_nothing(monkeypatch, ran):
    """Python learns of an interrupt when the native look, and the run, are over."""
    sets = player(), player()
    for _, _, step in sets:
        weft.manual_seed(5)
        for _ in range(4):
            step(X, Y)
    short = sets[0][2]._fast_path
    again = short.again
    assert short.direct

    def interrupted(*given):
        again(*given)
        raise KeyboardInterrupt

    monkeypatch.setattr(short, "again", interrupted)
    with pytest.raises(KeyboardInterrupt):
        sets[0][2](X if ran else X[:4], Y)
    if ran:
        sets[1][2](X, Y)
    agree(*sets)


def test_inside_of_others():
    f = weft.compile(lambda x: x * 2)
    for _ in range(4):
        f(weft.ones(3))
    outer = weft.compile(lambda x: f(x) + 1)
    assert outer(weft.ones(3)).tolist() == [3.0] * 3
    assert len(f.compiles) == 1
    assert weft.func.vmap(f)(weft.ones(2, 3)).shape == (2, 3)
    assert weft.func.grad(lambda x: f(x).sum())(weft.ones(3)).tolist() == [2.0] * 3
    assert f.latest is not None


def test_results_that_are_trees(ways):
    kept = weft.ones(3)
    f = weft.compile(lambda x: {"a": x + kept, "b": [x.sum(), 7, x.T]})
    for k in range(5):
        found = f(weft.full((2, 3), float(k)))
        assert found["a"].tolist() == [[k + 1.0] * 3] * 2
        assert found["b"][0].item() == 6 * k
        assert found["b"][1] == 7
        assert found["b"][2].shape == (3, 2)


def test_where_the_interpreter_is_unknown(monkeypatch, ways):
    monkeypatch.setattr(path, "layout", lambda: None)
    sets = [player(compiled=compiled) for compiled in (False, True)]
    for _, _, step in sets:
        for _ in range(4):
            step(X, Y)
    assert not ways
    agree(*sets)


@pytest.mark.skipif(
    sys.implementation.name != "cpython" or sys.version_info >= (3, 13),
    reason="CPython 3.11 and 3.12",
)
def test_the_interpreter_is_known():
    assert cpython_layout.layout() is not None


def test_shorter_ways_are_given_up_where_they_do_not_last(monkeypatch):
    made = []
    monkeypatch.setattr(
        weft.compile.frontend.function,
        "fast_path_of",
        lambda *a: made.append(path.fast_path_of(*a)) or made[-1],
    )
    f = weft.compile(lambda x: x * 2)
    for k in range(200):
        f(weft.ones(3 + k % 2))
    assert 0 < len(made) < 20


def test_gradients_that_a_step_ends_without_are_taken_away(ways):
    """The optimizer has a parameter that the step does not use, and clears all."""
    used, other = nn.Parameter(weft.ones(2)), nn.Parameter(weft.ones(2))
    optimizer = optim.SGD([used, other], lr=0.1)

    @weft.compile
    def step(x):
        (used * x).sum().backward()
        optimizer.step()
        optimizer.zero_grad()

    for _ in range(5):
        other.grad = weft.ones(2)
        step(weft.ones(2))
        assert used.grad is None
        assert other.grad is None
    assert len(step.compiles) == 1
    np.testing.assert_allclose(used.detach().numpy(), 0.5, rtol=1e-6)


def test_floats_that_other_code_reads_are_constants():
    import json

    for read in (json.dumps, repr, lambda t: str([t])):
        fn = weft.compile(lambda x, t, read=read: (x * t, read(t)))
        for t in (1.0, 0.5, 0.25):
            scaled, text = fn(weft.ones(2), t)
            assert (scaled.tolist(), text) == ([t, t], read(t))


def test_an_error_of_the_function_leaves_floats_open():
    @weft.compile
    def scaled(x, t, name):
        if name == "bad":
            raise KeyError(name)
        return x * t

    for t in (1.0, 0.5):
        scaled(weft.ones(2), t, "good")
    count = len(scaled.compiles)
    for t in (0.1, 0.2):
        with pytest.raises(KeyError):
            scaled(weft.ones(2), t, "bad")
    for t in (0.3, 0.4):
        assert scaled(weft.ones(2), t, "good").tolist() == [weft.tensor(t).item()] * 2
    assert len(scaled.compiles) == count
