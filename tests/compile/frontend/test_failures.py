"""What compiled functions do when something goes wrong, and ``verify=True``."""

import numpy as np
import pytest

import weft
from weft import nn, optim
from weft.compile.frontend import specialization as entries
from weft.compile.program.program import Program
from weft.errors import ArgumentError
from weft.graph import CaptureError
from weft.runtime.cpu import arena

F = nn.functional


class Words(nn.Module):
    """An embedding, batch norm and dropout: parameters, buffers and random state."""

    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(5, 4)
        self.norm = nn.BatchNorm1d(4)
        self.drop = nn.Dropout(0.5)
        self.out = nn.Linear(4, 3)

    def forward(self, ids):
        return self.out(self.drop(self.norm(self.table(ids))))


def training(**options):
    weft.manual_seed(0)
    model = Words()
    optimizer = optim.AdamW(model.parameters(), lr=0.1)

    def step(ids, labels):
        optimizer.zero_grad()
        loss = F.cross_entropy(model(ids), labels)
        loss.backward()
        optimizer.step()
        return loss

    return model, optimizer, weft.compile(step, **options)


def everything(model, optimizer):
    """All state as bytes, and the gradients."""
    found = {k: v.numpy().tobytes() for k, v in model.state_dict().items()}
    for name, entry in optimizer.state_dict()["state"].items():
        for key, value in entry.items():
            array = value.numpy() if isinstance(value, weft.Tensor) else value
            found[f"{name}.{key}"] = np.asarray(array).tobytes()
    for name, p in model.named_parameters():
        found[f"{name}.grad"] = None if p.grad is None else p.grad.numpy().tobytes()
    found["random"] = weft.get_rng_state().numpy().tobytes()
    return found


IDS, LABELS = weft.tensor([0, 1, 2, 3]), weft.tensor([0, 1, 2, 0])
BAD = weft.tensor([0, 1, 9, 3])


@pytest.mark.parametrize("begun", [False, True])
def test_a_bad_index_changes_nothing(begun):
    model, optimizer, step = training()
    if begun:
        step(IDS, LABELS)
    before = everything(model, optimizer)
    with pytest.raises(IndexError, match=r"9"):
        step(BAD, LABELS)
    after = everything(model, optimizer)
    assert {k: v for k, v in after.items() if k in before} == before
    want = training()[2]
    if begun:
        want(IDS, LABELS)
    weft.set_rng_state(weft.tensor(np.frombuffer(before["random"], np.int64).copy()))
    got = step(IDS, LABELS).item()
    weft.set_rng_state(weft.tensor(np.frombuffer(before["random"], np.int64).copy()))
    assert got == want(IDS, LABELS).item()


def test_lack_of_memory_changes_nothing(monkeypatch):
    model, optimizer, step = training()
    step(IDS, LABELS)
    before = everything(model, optimizer)

    def full(nbytes):
        raise MemoryError(f"no {nbytes} bytes")

    with monkeypatch.context() as patch:
        patch.setattr(arena, "Arena", full)
        with pytest.raises(MemoryError):
            step(weft.cat([IDS, IDS]), weft.cat([LABELS, LABELS]))
    assert everything(model, optimizer) == before
    step(weft.cat([IDS, IDS]), weft.cat([LABELS, LABELS]))  # and it goes on


@pytest.mark.parametrize("late", [False, True])
def test_an_interrupted_run_changes_all_or_nothing(monkeypatch, late):
    """Python learns of an interrupt when native code has ended."""
    model, optimizer, step = training()
    step(IDS, LABELS)
    weft.manual_seed(3)
    before = everything(model, optimizer)
    instance = step.latest.program.latest
    native = instance.native

    def interrupted(*args):
        native(*args)
        if (args[1] > 0) == late:  # launches before those that write state are first
            raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(instance, "native", interrupted)
        with pytest.raises(KeyboardInterrupt):
            step(IDS, LABELS)
    after = everything(model, optimizer)
    assert (after == before) != late
    if late:
        weft.manual_seed(0)
        twin, other, again = training()
        again(IDS, LABELS)
        weft.manual_seed(3)
        again(IDS, LABELS)
        assert everything(twin, other) == after


def test_an_interrupt_while_state_is_written_waits(monkeypatch):
    """Half of a step's state is never left behind."""
    model, optimizer, step = training()
    twin, other, plain = training()
    step(IDS, LABELS)
    weft.manual_seed(3)
    step(IDS, LABELS)
    want = everything(model, optimizer)
    weft.manual_seed(0)
    twin, other, plain = training()
    plain(IDS, LABELS)
    weft.manual_seed(3)
    count = 0
    put = weft.graph.state_cells.Cell.set

    def once(self, value):
        nonlocal count
        count += 1
        if count == 3:
            raise KeyboardInterrupt
        put(self, value)

    monkeypatch.setattr(weft.graph.state_cells.Cell, "set", once)
    with pytest.raises(KeyboardInterrupt):
        plain(IDS, LABELS)
    assert everything(twin, other) == want


def test_a_refused_capture_leaves_everything():
    model, optimizer, _ = training()

    @weft.compile
    def step(ids, labels):
        optimizer.zero_grad()
        loss = F.cross_entropy(model(ids), labels)
        loss.backward()
        optimizer.step()
        if loss > 3:
            raise ValueError
        return loss

    before = everything(model, optimizer)
    with pytest.raises(CaptureError, match=r"if loss > 3"):
        step(IDS, LABELS)
    after = everything(model, optimizer)
    assert {k: after[k] for k in before} == before
    assert all(type(p) is weft.Tensor for p in model.parameters())


def test_errors_stand_at_their_line():
    @weft.compile
    def f(x, y):
        z = x + 1
        return z @ y

    f(weft.ones(2, 3), weft.ones(3, 2))
    with pytest.raises(ValueError, match=r"return z @ y"):
        f(weft.ones(2, 3), weft.ones(4, 2))


def test_a_failed_compilation_is_not_kept():
    f = weft.compile(lambda x, n: x.reshape(n))
    with pytest.raises(ValueError, match="reshape"):
        f(weft.ones(4), 3)
    assert f.compiles == []
    assert f(weft.ones(4), 4).shape == (4,)


# -- verify=True


def test_verified_training_equals_plain_training():
    model, optimizer, step = training(verify=True)
    twin, other, plain = training()
    batches = [(IDS, LABELS), (IDS.flip(0), LABELS), (IDS[:3], LABELS[:3])]
    weft.manual_seed(1)
    losses = [step(*batch).item() for batch in batches]
    weft.manual_seed(1)
    assert losses == [plain(*batch).item() for batch in batches]
    assert everything(model, optimizer) == everything(twin, other)


def test_verified_modules_pass_gradients_on():
    model = nn.Sequential(nn.Linear(3, 4), nn.Tanh())
    x = weft.randn(2, 3, requires_grad=True)
    weft.compile(model, verify=True)(x).sum().backward()
    got, x.grad = x.grad, None
    model(x).sum().backward()
    np.testing.assert_allclose(got.numpy(), x.grad.numpy(), rtol=1e-5, atol=1e-6)


def test_verified_arguments_that_change():
    f = weft.compile(lambda x: x.mul_(2).sum(), verify=True)
    x = weft.ones(3)
    assert f(x).item() == 6
    assert x.tolist() == [2, 2, 2]


def spoil(monkeypatch, change):
    """Let the native program give something else."""
    run = Program.run

    def wrong(self, feeds, held=(), state_buffers=(), write=None, stamps=None):
        outs, writes = run(self, feeds, held, state_buffers)
        store = dict(zip([v.name for v in self.reads], held, strict=True))
        there = {v.name: store[v.name].copy() for v in self.state}
        outs, writes = change(self, list(outs), {**there, **writes})
        for name in there:
            np.copyto(store[name], writes.pop(name))
        if write is not None:
            write(writes)
        return outs, writes

    monkeypatch.setattr(Program, "run", wrong)


def test_a_wrong_result_is_found(monkeypatch):
    f = weft.compile(lambda x: x * 2, verify=True)
    f(weft.ones(3))
    apart = np.array([0, 0.1, 0], "float32")
    spoil(monkeypatch, lambda n, outs, writes: ([outs[0] + apart], writes))
    text = r"result 0 differs: at \[1\] eagerly .*2\.0.*, compiled .*2\.1.*1 of 3"
    with pytest.raises(ArgumentError, match=text):
        f(weft.ones(3))


@pytest.mark.parametrize(
    "name", ["out.weight", "norm.running_mean", "exp_avg", "generator.counter", ".grad"]
)
def test_wrong_state_is_found(name, monkeypatch):
    model, optimizer, step = training(verify=True)
    step(IDS, LABELS)
    before = everything(model, optimizer)

    def change(native, outs, writes):
        for variable, value in writes.items():
            if variable.endswith(name) or name in variable:
                writes[variable] = value + np.ones_like(value)
                break
        else:
            raise AssertionError([v.name for v in writes])
        return outs, writes

    spoil(monkeypatch, change)
    with pytest.raises(ArgumentError, match=rf"{name}.* differs: at "):
        step(IDS, LABELS)
    assert everything(model, optimizer) == before


def test_a_wrong_gradient_is_found(monkeypatch):
    w = nn.Parameter(weft.ones(3))
    f = weft.compile(lambda x: (x * w).sum(), verify=True)
    f(weft.ones(3))
    held = next(e for some in f._specializations.values() for e in some)
    assert isinstance(held, entries.Specialization)
    back = held.function.pullback((True,)).program
    spoil(
        monkeypatch,
        lambda n, outs, writes: ([o * 2 if n is back else o for o in outs], writes),
    )
    with pytest.raises(ArgumentError, match=r"gradient of w differs"):
        f(weft.ones(3))
