"""Compiled functions as files: they run where the Python is not."""

import io
import json
import os
import subprocess
import sys

import numpy as np
import pytest

import weft
from weft import nn, optim
from weft.compile.targets.cpu.executor import Executor
from weft.errors import ArgumentError, FileFormatError
from weft.serialization.loaded import Loaded

F = nn.functional


def again(obj):
    file = io.BytesIO()
    weft.save(obj, file)
    return weft.load(io.BytesIO(file.getvalue()))


def model_of():
    weft.manual_seed(0)
    return nn.Sequential(
        nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Dropout(0.3), nn.GELU(), nn.Linear(8, 3)
    )


def training(model):
    optimizer = optim.AdamW(model.parameters(), lr=0.05)

    def step(x, y):
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        return {"loss": loss, "rows": 3}

    return step


def test_a_module():
    model = model_of().eval()
    compiled = weft.compile(model)
    x = weft.randn(5, 4)
    with weft.no_grad():
        want = compiled(x)
        loaded = again(compiled)
        assert isinstance(loaded, Loaded)
        assert loaded(x).numpy().tobytes() == want.numpy().tobytes()
    assert "0.weight" in loaded.state_dict()
    assert loaded.fixed["model[1].training"] == "False"


def test_any_size_that_was_opened():
    compiled = weft.compile(model_of().eval())
    with weft.no_grad():
        for n in (3, 5):
            compiled(weft.randn(n, 4))
        loaded = again(compiled)
        x = weft.randn(11, 4)
        assert loaded(x).tolist() == compiled(x).tolist()
        with pytest.raises(ValueError, match=r"expected float32\[s0, 4\], got"):
            loaded(weft.randn(11, 5))


def test_a_training_step_goes_on_bit_by_bit():
    model = model_of()
    compiled = weft.compile(training(model))
    rng = np.random.default_rng(0)
    batches = [
        (weft.tensor(rng.normal(size=(6, 4)).astype("float32")),
         weft.tensor(rng.integers(0, 3, 6)))
        for _ in range(6)
    ]  # fmt: skip
    for batch in batches[:3]:
        compiled(*batch)
    loaded = again(compiled)
    want = [compiled(*batch)["loss"].item() for batch in batches[3:]]
    got = [loaded(*batch) for batch in batches[3:]]
    assert [g["loss"].item() for g in got] == want
    assert got[0]["rows"] == 3
    state = loaded.state_dict()
    for name, p in model.named_parameters():
        assert state[name].numpy().tobytes() == p.detach().numpy().tobytes()
    assert loaded.fixed["AdamW.param_groups[0]['weight_decay']"] == "0.01"


def test_it_runs_as_machine_code(monkeypatch):
    compiled = weft.compile(lambda x: x.exp() + 1)
    x = weft.randn(3)
    want = compiled(x).tolist()
    loaded = again(compiled)
    runs = []
    run = Executor.run
    monkeypatch.setattr(Executor, "run", lambda *a: runs.append(1) or run(*a))
    assert loaded(x).tolist() == want
    assert runs == [1]


def test_arguments_that_change():
    def f(x, y):
        x.mul_(2)
        y += x
        return x.sum()

    compiled = weft.compile(f)
    compiled(weft.ones(3), weft.ones(3))
    for program in (compiled, weft.graph.capture(f, weft.ones(3), weft.ones(3))):
        x, y = weft.ones(3), weft.ones(3)
        assert again(program)(x, y).item() == 6
        assert x.tolist() == [2, 2, 2]
        assert y.tolist() == [3, 3, 3]


def test_gradients_pass_through():
    model = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 1))
    compiled = weft.compile(model)
    x = weft.randn(2, 3)
    compiled(x)
    loaded = again(compiled)
    loaded(x).sum().backward()
    model(x).sum().backward()
    held = loaded.state_dict()
    for name, p in model.named_parameters():
        np.testing.assert_allclose(
            held[name].grad.numpy(), p.grad.numpy(), rtol=1e-5, atol=1e-6
        )


def test_a_loaded_one_is_saved_again():
    compiled = weft.compile(lambda x: x * 2)
    compiled(weft.ones(2))
    assert again(again(compiled))(weft.ones(2)).tolist() == [2, 2]


def test_before_its_first_call():
    with pytest.raises(ArgumentError, match="has not been called yet"):
        weft.save(weft.compile(lambda x: x), io.BytesIO())


def test_where_the_code_is_not(tmp_path):
    compiled = weft.compile(model_of().eval())
    x = weft.randn(2, 4)
    with weft.no_grad():
        compiled(x)
    weft.save(compiled, tmp_path / "net.safetensors")
    weft.save(x, tmp_path / "x.safetensors")
    program = (
        "import weft; f = weft.load('net.safetensors'); "
        "print(f(weft.load('x.safetensors')).tolist())"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True,
        env={**os.environ, "PYTHONWARNINGS": "error"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    with weft.no_grad():
        assert json.loads(done.stdout) == compiled(x).tolist()


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("changed", [[5, False]]),
        ("changed", [[0, 1]]),
        ("changed", [[0, False], [0, False]]),
        ("changed", [[True, False]]),
        ("fixed", [["a", 3]]),
        ("fixed", [["a", "b" * 2000]]),
        ("native", [1]),
        ("native", [True] * 7),
        ("version", None),
    ],
)
def test_damaged_files_are_refused(key, value):
    from weft.serialization import container, program

    compiled = weft.compile(lambda x: x.mul_(2).sum())
    compiled(weft.ones(2))
    made = program.encode_program(
        compiled.latest.captured, compiled.latest.fixed(), native=True
    )
    made.metadata[key] = "7" if value is None else json.dumps(value)
    file = io.BytesIO()
    container.write(file, *container.layout(made))
    with pytest.raises(FileFormatError):
        weft.load(io.BytesIO(file.getvalue()))
