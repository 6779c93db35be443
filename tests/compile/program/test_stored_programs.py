"""Programs that a process before has left on disk."""

import os
import subprocess
import sys

import numpy as np
import pytest
from by_loops import kernels_of

import weft
from weft import nn, optim
from weft.compile.program.graph_digest import digest
from weft.compile.targets.cpu import executable as scripts
from weft.core import op as ops
from weft.graph import capture
from weft.nn import functional as F

X = np.random.default_rng(1).standard_normal((6, 8)).astype(np.float32)


@pytest.fixture(autouse=True)
def own_cache(monkeypatch, tmp_path):
    monkeypatch.setenv("WEFT_CACHE_DIR", str(tmp_path / "cache"))
    return tmp_path / "cache"


def was_found(compiled):
    """Whether the last compilation found its program."""
    phases = compiled.compiles[-1].phases
    assert "capture" in phases
    return "passes" not in phases


def twice(fn, *args):
    """What a function gives when it is compiled, and when that is found."""
    made = []
    for found in (False, True):
        compiled = weft.compile(fn)
        made.append(compiled(*args))
        assert was_found(compiled) == found
        assert compiled.compiles[-1].nodes > 0
    return made


def training(seed=0):
    weft.manual_seed(seed)
    model = nn.Sequential(
        nn.Conv2d(1, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(),
        nn.Dropout(0.25), nn.Linear(4 * 48, 5),
    )  # fmt: skip
    optimizer = optim.AdamW(model.parameters(), lr=0.01)

    @weft.compile
    def step(x, y):
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        return loss

    return model, optimizer, step


def test_a_training_step_is_found_and_does_the_same():
    x, y = weft.tensor(X).reshape(1, 1, 6, 8).repeat(3, 1, 1, 1), weft.tensor([0, 4, 2])
    losses, states = [], []
    for found in (False, True):
        model, optimizer, step = training()
        losses.append([step(x, y).item() for _ in range(5)])
        state = optimizer.state_dict()["state"]
        states.append(
            [t.numpy().tobytes() for t in model.state_dict().values()]
            + [t.numpy().tobytes() for s in state.values() for t in s.values()
               if isinstance(t, weft.Tensor)]
        )  # fmt: skip
        # Moments are made by the first step: the second one is another program.
        assert [("passes" not in c.phases) for c in step.compiles] == [
            found for _ in step.compiles
        ]
    assert losses[0] == losses[1]
    assert states[0] == states[1]


PROGRAM = """
import numpy as np, weft
f = weft.compile(lambda x, w: F.softmax(x @ w, -1).sum(0))
from weft.nn import functional as F
x = weft.arange(48.0).reshape(6, 8) / 48
print(f(x, x.T).numpy().tobytes().hex(), sorted(f.compiles[-1].phases))
"""


def test_another_process_finds_it(own_cache):
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    runs = [
        subprocess.run(
            [sys.executable, "-c", PROGRAM], env=env, capture_output=True, text=True,
            check=True,
        ).stdout.split(" ", 1)
        for _ in range(2)
    ]  # fmt: skip
    (bits, made), (again, found) = runs
    assert bits == again
    assert "passes" in made
    assert "passes" not in found


@pytest.mark.parametrize(
    "fn",
    [
        lambda x: (x * 2, x, x.T, x.sum(), x.T),  # views, and the argument itself
        lambda x: x.sort(1).values.cumsum(0),
        lambda x: x.to(weft.bfloat16) + weft.tensor(0.5, dtype=weft.bfloat16),
        lambda x: x[weft.tensor([5, 0, 3])] @ weft.tensor(X.T),
        lambda x: F.conv2d(x.reshape(1, 6, 2, 4), weft.tensor(X[:, :1, None, None])
                           .expand(6, 1, 1, 1), groups=6),
        lambda x: (weft.ones(3, 4), x.amax(1)),
    ],
)  # fmt: skip
def test_programs_of_all_kinds(fn):
    got = []
    for _ in range(2):
        compiled = weft.compile(fn)
        found = compiled(weft.tensor(X))
        found = found if isinstance(found, tuple) else (found,)
        got.append([t.to(weft.float32).numpy().tobytes() for t in found])
    eager = fn(weft.tensor(X))
    eager = eager if isinstance(eager, tuple) else (eager,)
    assert got[0] == got[1]
    for a, b in zip(eager, got[1], strict=True):
        b = np.frombuffer(b, np.float32).reshape(a.shape)
        np.testing.assert_allclose(b, a.to(weft.float32).numpy(), rtol=1e-5, atol=1e-6)


def test_gradients_of_what_is_found():
    w = nn.Parameter(weft.tensor(X.T))
    grads = []
    for _ in range(2):
        w.grad = None
        weft.compile(lambda x: (x @ w).tanh().sum())(weft.tensor(X)).backward()
        grads.append(w.grad.numpy().tobytes())
    assert grads[0] == grads[1]


def test_an_index_is_checked_where_it_is_found():
    def look(table, ids):
        return table[ids] * 2

    table, ids = weft.tensor(X), weft.tensor([1, 2])
    twice(look, table, ids)
    compiled = weft.compile(look)
    compiled(table, ids)
    assert was_found(compiled)
    with pytest.raises(IndexError, match=r"(?s)6.*test_stored_programs\.py"):
        compiled(table, weft.tensor([1, 6]))
    assert compiled(table, ids).tolist() == (X[[1, 2]] * 2).tolist()


def test_explanations_are_made_when_asked_for():
    fn = lambda x: (x @ x.T).exp().sum()
    want, _ = twice(fn, weft.tensor(X))
    compiled = weft.compile(fn)
    compiled(weft.tensor(X))
    explained = compiled.explain(measure=True)
    assert explained.kernels[0].operators == ["exp", "sum"]
    assert compiled(weft.tensor(X)).item() == want.item()
    assert compiled.latest.program.latest is not None


def test_other_sizes_than_those_found():
    fn = lambda x: x.softmax(0)
    twice(fn, weft.tensor(X))
    compiled = weft.compile(fn)
    for rows in (6, 5, 4):
        x = weft.tensor(X[:rows])
        np.testing.assert_allclose(compiled(x), fn(x), rtol=1e-6)
    assert len(compiled.compiles) == 2


@pytest.mark.parametrize("how", ["shorter", "changed", "no code"])
def test_damaged_entries_are_made_again(how, own_cache):
    fn = lambda x: (x * 3).sum()
    want, _ = twice(fn, weft.tensor(X))
    for file in own_cache.iterdir():
        data = file.read_bytes()
        is_script = b'"kernel"' in data
        if how == "no code" and not is_script:
            file.unlink()
        elif how == "shorter":
            file.write_bytes(data[:-5])
        elif how == "changed":
            file.write_bytes(data[:-5] + b"12345")
    compiled = weft.compile(fn)
    assert compiled(weft.tensor(X)).item() == want.item()
    assert not was_found(compiled)


def found_after(fn, change):
    """Whether a program is found when something has changed since it was kept."""
    weft.compile(fn)(weft.tensor(X))
    with change:
        compiled = weft.compile(fn)
        compiled(weft.tensor(X))
    return was_found(compiled)


def test_settings_are_part_of_it(monkeypatch):
    fn = lambda x: x.exp().sum() * 0

    class Threads:
        def __enter__(self):
            self.before = weft.get_num_threads()
            weft.set_num_threads(self.before + 1)

        def __exit__(self, *args):
            weft.set_num_threads(self.before)

    class Strict:
        def __enter__(self):
            weft.config.strict_ieee = True

        def __exit__(self, *args):
            weft.config.strict_ieee = False

    class Rule:
        def __enter__(self):
            self.rule = weft.graph.rewrite.rule(lambda x: x.exp(), lambda x: x.log())
            weft.compile.add_rule(self.rule)

        def __exit__(self, *args):
            weft.compile.remove_rule(self.rule)

    for change in (Threads(), Strict(), Rule()):
        assert not found_after(fn, change)


def test_what_is_not_data_has_no_digest():
    cube = ops.define(
        "cube", inputs="x", eval=lambda x: x**3, type=lambda x: x,
        lower=ops.find_op("exp").lower,
    )  # fmt: skip
    try:
        assert digest(capture(lambda x: cube(x), weft.ones(3)).graph) is None
    finally:
        ops.unregister("cube")
    sizes = {"x": {0: "n"}}
    graph = capture(lambda x: x.reshape(-1, 1), weft.ones(3), dynamic=sizes).graph
    assert digest(graph) is None


def test_digests_tell_programs_apart():
    x = weft.tensor(X)
    programs = [
        lambda x: x + 1, lambda x: x + 1.0, lambda x: x + True, lambda x: x - 1,
        lambda x: x + weft.tensor(X),
        lambda x: x.sum(0), lambda x: x.sum(1), lambda x: x.sum(0, keepdim=True),
        lambda x: x[1:], lambda x: x[:1], lambda x: x[::2], lambda x: (x, x.sum()),
        lambda x: (x.sum(), x), lambda x: x.sum().to(weft.float64),
        lambda x: weft.cond(x.sum() > 0, lambda: x + 1, lambda: x),
        lambda x: weft.cond(x.sum() > 0, lambda: x + 2, lambda: x),
    ]  # fmt: skip
    found = [digest(capture(fn, x).graph) for fn in programs]
    assert None not in found
    assert len(set(found)) == len(programs)
    assert digest(capture(programs[0], x[:5]).graph) not in found
    assert digest(capture(programs[0], x.to(weft.float64)).graph) not in found
    assert [digest(capture(fn, x).graph) for fn in programs] == found
    state = digest(capture(lambda x: x + weft.tensor(-X), x).graph)
    assert state == found[4]  # what a variable is, is not part of the program


def test_scripts_survive_their_way_through_bytes():
    graph = capture(lambda x: (x @ x.T).softmax(1).to(weft.float16), weft.tensor(X))
    executable = kernels_of(graph.graph).executor({}).executable
    again = scripts.from_bytes(scripts.to_bytes(executable))
    for name, a, b in zip(executable._fields, executable, again, strict=True):
        if isinstance(a, np.ndarray):
            assert a.dtype == b.dtype
            np.testing.assert_array_equal(a, b)
        elif name == "jobs":
            assert [np.asarray(x).tolist() for x in a] == [
                np.asarray(x).tolist() for x in b
            ]
        else:
            assert a == b, name


def test_programs_with_calls_are_not_kept():
    fn = lambda x: weft.linalg.inv(x[:, :6]).sum()
    for _ in range(2):
        compiled = weft.compile(fn)
        compiled(weft.tensor(X))
        assert not was_found(compiled)
