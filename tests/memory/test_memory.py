"""Live bytes by kind, recordings, limits, and loops that do not grow."""

import gc
import re
import threading
import tracemalloc

import numpy as np
import pytest

import weft
from weft import nn
from weft.core.mode import RECORDING, mode
from weft.errors import AllocationError, ArgumentError, DTypeError
from weft.memory import live, parse_bytes, peak, record, reset_peak, snapshot
from weft.runtime import allocation
from weft.utils.checkpoint import checkpoint


@pytest.fixture(autouse=True)
def _no_limit():
    gc.collect()
    yield
    weft.set_memory_limit(None)
    assert allocation.ledger is None
    assert mode.state == RECORDING


def difference(before):
    """How the live bytes of each kind have changed."""
    pairs = zip(live(), before, strict=True)
    changed = dict(zip(before._fields, (a - b for a, b in pairs), strict=True))
    return {kind: n for kind, n in changed.items() if n}


# -- what is live


def test_kinds_of_a_training_step():
    before = live()
    model = nn.Sequential(nn.Linear(10, 20), nn.BatchNorm1d(20), nn.Tanh())
    parameters = 4 * sum(p.numel() for p in model.parameters())
    buffers = 20 * 4 * 2 + 8
    assert difference(before) == {"parameters": parameters, "buffers": buffers}
    x = weft.randn(8, 10)
    assert difference(before)["other"] == 4 * 8 * 10
    loss = model(x).sum()
    found = difference(before)
    assert found["activations"] >= 4 * 8 * 20 * 2  # at least of the norm and the tanh
    assert found["parameters"] == parameters
    loss.backward()
    found = difference(before)
    assert found.pop("other") >= 4 * 8 * 10
    assert found == {
        "parameters": parameters, "buffers": buffers, "gradients": parameters,
    }  # fmt: skip
    optimizer = weft.optim.Adam(model.parameters())
    optimizer.step()
    found = difference(before)
    assert found["optimizer"] >= 2 * parameters  # and room to work in
    assert found["gradients"] == parameters
    del model, optimizer, loss, x
    assert difference(before) == {}


def test_memory_returns_after_del():
    before = live().total
    x = weft.zeros(1000)
    y = x.reshape(10, 100)  # a view has no memory of its own
    assert live().total - before == 4000
    del x
    assert live().total - before == 4000
    del y
    assert live().total == before


def test_what_a_checkpoint_holds_are_activations():
    x = weft.zeros(1000, requires_grad=True)
    before = live()
    y = checkpoint(lambda x: x.exp().sin().exp(), x * 1)
    assert difference(before) == {"activations": 4000, "other": 4000}
    z = checkpoint(lambda x: x.exp().sin().exp(), x * 1, policy={"sin"})
    assert difference(before) == {"activations": 12000, "other": 8000}
    del y, z
    assert difference(before) == {}


def test_snapshot_names_parameters():
    gc.collect()  # of models of other tests, which have the same names
    model = nn.Sequential(nn.Linear(300, 300))
    model(weft.ones(1, 300)).sum().backward()
    held = snapshot()
    names = {h.name: h for h in held}
    assert names["Sequential.0.weight"].nbytes == 360000
    assert names["Sequential.0.weight"].shape == (300, 300)
    assert names["Sequential.0.weight.grad"].kind == "gradients"
    assert [h.nbytes for h in held] == sorted((h.nbytes for h in held), reverse=True)
    assert "Sequential.0.weight" in str(held)


def test_activations_have_a_line_and_a_parameter_without_a_recording():
    model = nn.Sequential(nn.Linear(300, 300), nn.Sequential(nn.Tanh(), nn.Sigmoid()))
    x = weft.ones(2000, 300, requires_grad=True)
    loss = model(x * 2).exp().sum()
    held = [h for h in snapshot() if h.shape == (2000, 300) and h.kind == "activations"]
    names = {h.name for h in held}
    after = {f"for {op} after Sequential.0.bias" for op in ("tanh", "sigmoid", "exp")}
    assert names == {"mul", *after}
    assert all("test_memory.py" in h.line for h in held)
    assert loss.shape == ()


def test_backward_frees_as_it_goes():
    x = weft.zeros(1 << 15, requires_grad=True)
    seen = []
    h = x
    for _ in range(10):
        h = h.exp()
        h.register_hook(lambda g: seen.append(live().activations))
    loss = h.sum()
    del h
    loss.backward()
    steps = np.diff(seen)
    assert len(seen) == 10
    assert (steps < 0).all()


# -- the pool of large arrays


def test_the_pool_reports_and_releases():
    more = weft.compile(lambda x: x + 1)
    zeros = weft.zeros(1 << 22)  # larger than what the system keeps by itself
    more(zeros)
    weft.memory.release()
    used, kept = weft.memory.pool_bytes()
    assert kept == 0
    x = more(zeros)
    assert weft.memory.pool_bytes().used - used >= 4 << 22
    del x
    assert weft.memory.pool_bytes().used == used
    waiting = weft.memory.pool_bytes().kept
    assert waiting >= 4 << 22
    assert weft.memory.release() == waiting
    assert weft.memory.pool_bytes() == (used, 0)


# -- recordings


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(50, 60), nn.Linear(60, 50)

    def forward(self, x):
        return self.second(self.first(x).tanh())


def test_recording_finds_the_peak_and_its_makers():
    model = Model()
    x = weft.randn(100, 50)
    with record() as memory:
        model(x).sum().backward()
        inside = snapshot()
    assert memory.start <= memory.peak == max(memory.bytes)
    assert memory.bytes[memory.peak_moment] == memory.peak
    assert sum(e.nbytes for e in memory.top) == memory.peak
    tanh = next(e for e in memory.top if e.op == "tanh")
    assert tanh.nbytes == 100 * 60 * 4
    assert tanh.shape == (100, 60)
    assert "model (Model)" in tanh.name
    assert "test_memory.py" in tanh.line
    assert {"forward", "parameters"} <= {e.kind for e in memory.top}
    assert any(h.line for h in inside)
    assert memory.bytes[-1] >= memory.start


def test_recorded_peak_is_that_of_the_allocator():
    x = weft.zeros(1 << 16, requires_grad=True)
    x.grad = weft.zeros(1 << 16)

    def run():
        h = x
        for _ in range(8):
            h = h.exp()
        h.sum().backward()

    run()
    tracemalloc.start()
    try:
        run()
        tracemalloc.reset_peak()
        base = tracemalloc.get_traced_memory()[0]
        run()
        true = tracemalloc.get_traced_memory()[1] - base
    finally:
        tracemalloc.stop()
    with record() as memory:
        run()
    assert memory.peak - memory.start == pytest.approx(true, rel=0.15)
    assert memory.bytes[-1] == memory.start


def test_recording_as_text_and_page(tmp_path):
    with record() as memory:
        kept = (weft.zeros(1000) + 1).exp()
    text = str(memory)
    assert re.match(r"peak .*B at \d+ of \d+ changes; .*B at the beginning\n", text)
    assert "add" in text
    assert "test_memory.py" in text
    page = memory.to_html(tmp_path / "memory.html")
    assert (tmp_path / "memory.html").read_text() == page
    assert page.startswith("<!DOCTYPE html>")
    assert "<svg" in page
    assert "float32[1000]" in page
    assert not re.search(r"(src|href)=", page)  # nothing from elsewhere
    assert kept.shape == (1000,)


def test_recordings_nest_and_end_on_errors():
    with record() as outer:
        a = weft.zeros(100)
        inner = record()
        try:
            with inner:
                b = weft.zeros(100)
                raise KeyError
        except KeyError:
            pass
        c = weft.zeros(100)
    assert outer.bytes[-1] - outer.start == 1200
    assert inner.bytes[-1] - inner.start == 400
    del a, b, c


def test_peak_and_its_reset():
    reset_peak()
    start = peak()
    with record():
        _ = weft.zeros(10_000).exp().sum()
    assert peak() - start >= 80_000
    reset_peak()
    assert peak() <= start + 1000


# -- limits


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("8GB", 8 * 10**9), ("1.5 GiB", 3 * 2**29), ("512MB", 512 * 10**6),
        ("512 mb", 512 * 10**6), ("4KiB", 4096), ("1e3kB", 10**6), ("700", 700),
        ("12_000 B", 12000), ("1,000B", 1000), (4096, 4096), (1e6, 10**6),
    ],
)  # fmt: skip
def test_sizes(text, count):
    assert parse_bytes(text) == count


@pytest.mark.parametrize(
    ("size", "error", "text"),
    [
        ("8XB", ArgumentError, "'xb' in '8XB' is no unit"),
        ("8 apples", ArgumentError, "is no unit"),
        ("GB", ArgumentError, "expected a size such as"),
        ("", ArgumentError, "expected a size such as"),
        ("1.2.3MB", ArgumentError, "does not begin with a number"),
        ("-3GB", ArgumentError, "more than 0 bytes"),
        (-1, ArgumentError, "more than 0 bytes"),
        (0, ArgumentError, "more than 0 bytes"),
        (float("nan"), ArgumentError, "more than 0 bytes"),
        (True, DTypeError, "got bool"),
        ([1], DTypeError, "got list"),
    ],
)
def test_sizes_that_are_none(size, error, text):
    with pytest.raises(error, match=text):
        weft.set_memory_limit(size)


def test_limit_is_exact():
    weft.set_memory_limit(live().total + 8000)
    x = weft.zeros(1000)
    y = x.exp()
    with pytest.raises(AllocationError, match="more would exceed the limit"):
        x + y
    del y
    z = x + 1
    with pytest.raises(AllocationError):
        weft.empty(1)
    weft.set_memory_limit(None)
    assert (x + z).shape == (1000,)


def test_limit_error_tells_all():
    model = nn.Sequential(*[nn.Sequential(nn.Linear(64, 64), nn.Tanh())] * 12)
    optimizer = weft.optim.Adam(model.parameters())
    model(weft.ones(2, 64)).sum().backward()
    optimizer.step()
    before = [p.detach().numpy().tobytes() for p in model.parameters()]
    x = weft.randn(4096, 64)  # larger than what other tests may have left
    weft.set_memory_limit(live().total + 6 * (1 << 20))
    with pytest.raises(AllocationError) as caught:
        model(x).sum().backward()
    text = str(caught.value)
    assert "1.05 MB (1,048,576 bytes) more would exceed the limit of" in text
    for kind in ("parameters", "gradients", "optimizer", "activations"):
        assert re.search(rf"{kind}[a-z ]* [\d.]+ [kM]?B", text)
    listed = text.partition("largest:")[2].partition("what would help")[0]
    lines = [line for line in listed.splitlines() if line.strip()]
    assert len(lines) == 5
    assert sum("model[" in line and "test_memory.py" in line for line in lines) >= 3
    help = text.partition("what would help:")[2]
    assert len(re.findall(r"saves about [\d.]+ [kM]?B", help)) == 2
    assert "checkpoint_sequential" in help or "half the batch" in help
    assert before == [p.detach().numpy().tobytes() for p in model.parameters()]


def test_checkpointing_fits_where_the_plain_run_does_not():
    layers = [weft.tanh] * 36
    x = weft.zeros(10_000, requires_grad=True)
    x.grad = weft.zeros(10_000)
    weft.set_memory_limit(live().total + 20 * 40_000)
    with pytest.raises(AllocationError):
        nn.Sequential(*[nn.Tanh()] * 36)(x)
    weft.utils.checkpoint.checkpoint_sequential(layers, "sqrt", x).sum().backward()


def test_limit_holds_in_other_threads():
    weft.set_memory_limit(live().total + 1000)
    errors = []

    def work():
        try:
            weft.zeros(1000)
        except AllocationError as error:
            errors.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert len(errors) == 1


def test_limit_of_compiled_programs():
    step = weft.compile(lambda x: (x.exp() + 1).sum(0) @ x.T)
    x = weft.zeros(500, 500)
    weft.set_memory_limit(live().total + 1000)
    with pytest.raises(AllocationError):
        step(x)


def test_the_limit_is_returned():
    assert weft.set_memory_limit("1GB") is None
    assert weft.memory.get_memory_limit() == 10**9
    assert weft.set_memory_limit(None) == 10**9


# -- when the system has no memory


def test_memory_errors_of_numpy_are_explained(monkeypatch):
    tall, wide = weft.ones(10**6, 1), weft.ones(10**7)
    with pytest.raises(AllocationError, match=r"add: the system refused 40\.0 TB") as e:
        tall + wide
    assert "largest:" in str(e.value)
    assert "what would help" in str(e.value)

    def refuse(*args, **params):
        raise MemoryError("no more")

    for name, call in {
        "exp": lambda x: x.exp(), "mul": lambda x: x * x, "prod": lambda x: x.prod(),
    }.items():  # fmt: skip
        monkeypatch.setattr(weft.core.op.find_op(name), "kernel", refuse)
        with pytest.raises(AllocationError, match=f"{name}: the system refused"):
            call(weft.ones(4, requires_grad=True))


def test_more_than_the_machine_has_is_explained():
    kept = weft.ones(300, 300, requires_grad=True).exp()
    with pytest.raises(AllocationError, match=r"zeros: .* this machine has") as error:
        weft.zeros(10**14)
    text = str(error.value)
    assert re.search(r"peak 400 TB: parameters .*, asked for 400 TB", text)
    assert "largest:" in text
    assert len(re.findall("saves about", text)) == 2
    assert kept.shape == (300, 300)


@pytest.mark.parametrize("kernels", [False, True])
def test_a_product_without_memory_is_explained(kernels, monkeypatch):
    monkeypatch.setattr(weft.config, "eager_kernels", kernels)
    # The result has 10^12 elements; the factors take none.
    tall = weft.from_numpy(np.ones((1, 1), np.float32)).expand(10**6, 1)
    with pytest.raises(AllocationError, match=r"matmul: the system refused 4\.00 TB"):
        tall @ tall.T


# -- steps that fail


def parameters(count=3):
    return [nn.Parameter(weft.full((n + 2,), 1.0)) for n in range(count)]


def state_bits(optimizer):
    return {
        id(p): {k: np.asarray(v).tobytes() for k, v in state.items()}
        for p, state in optimizer.state.items()
    }


@pytest.mark.parametrize("make", [weft.optim.Adam, weft.optim.RMSprop])
def test_a_step_without_memory_for_state_changes_nothing(make, monkeypatch):
    ps = parameters()
    optimizer = make([{"params": [p]} for p in ps])
    for p in ps:
        p.grad = weft.ones(p.shape)
    calls = []
    start = optimizer.start

    def failing(p, group):
        calls.append(p)
        if len(calls) == 3:
            raise MemoryError
        return start(p, group)

    monkeypatch.setattr(optimizer, "start", failing)
    with pytest.raises(MemoryError):
        optimizer.step()
    assert len(calls) == 3
    assert not optimizer.state
    assert all((p == 1).all() for p in ps)
    optimizer.step()
    assert all((p != 1).all() for p in ps)
    assert all(int(s["step"]) == 1 for s in optimizer.state.values())


def test_a_later_step_that_fails_changes_nothing():
    ps = parameters()
    optimizer = weft.optim.Adam([{"params": [p]} for p in ps])
    for p in ps:
        p.grad = weft.ones(p.shape)
    optimizer.step()
    values, states = [p.detach().numpy().copy() for p in ps], state_bits(optimizer)
    ps[2].grad = weft.ones(7)  # refused: it does not fit
    with pytest.raises(weft.errors.ShapeError):
        optimizer.step()
    for p, value in zip(ps, values, strict=True):
        np.testing.assert_array_equal(p.detach().numpy(), value)
    assert state_bits(optimizer) == states


def test_a_limit_that_state_exceeds_leaves_parameters_alone():
    ps = [nn.Parameter(weft.ones(1000)) for _ in range(4)]
    optimizer = weft.optim.Adam([{"params": [p]} for p in ps])
    for p in ps:
        p.grad = weft.ones(1000)
    weft.set_memory_limit(live().total + 20_000)
    with pytest.raises(AllocationError):
        optimizer.step()
    assert all((p == 1).all() for p in ps)
    assert not optimizer.state
    weft.set_memory_limit(None)
    optimizer.step()
    assert all((p != 1).all() for p in ps)


# -- loops


class Training:
    """A model, its optimizer, and ways of going on."""

    def __init__(self):
        self.model = nn.Sequential(
            nn.Linear(8, 16), nn.Tanh(), nn.Dropout(0.1), nn.Linear(16, 1)
        )
        self.optimizer = weft.optim.Adam(self.model.parameters())
        self.x = weft.randn(4, 8)
        self.total = weft.zeros(())

    def step(self, x):
        self.optimizer.zero_grad()
        loss = (self.model(x) ** 2).mean()
        loss.backward()
        self.optimizer.step()
        return loss

    def eager(self):
        return lambda: self.step(self.x)

    def captured(self):
        run = weft.graph.capture(self.step, self.x)
        return lambda: run(self.x)

    def compiled(self):
        run = weft.compile(self.step)
        return lambda: run(self.x)

    def running_total(self):
        def run():
            loss = (self.model(self.x) ** 2).mean()
            loss.backward()
            self.total += loss

        return run

    def checkpointed(self):
        def run():
            self.optimizer.zero_grad()
            checkpoint(self.model, self.x, policy="selective").sum().backward()

        return run


def static_step():
    graph = weft.static.Graph()
    with graph.as_default():
        w = weft.static.Variable(np.ones((8, 1), np.float32), name="w")
        loss = weft.static.reduce_mean(weft.static.square(weft.ones(4, 8) @ w))
        run = weft.static.train.GradientDescentOptimizer(0.01).minimize(loss)
        start = weft.static.global_variables_initializer()
    session = weft.static.Session(graph=graph)
    session.run(start)
    return lambda: session.run(run)


WAYS = ("eager", "running_total", "checkpointed", "captured", "compiled")
LOOPS = {way: lambda way=way: getattr(Training(), way)() for way in WAYS}
LOOPS["static"] = static_step


@pytest.mark.parametrize("name", LOOPS)
def test_loops_keep_memory_flat(name):
    step = LOOPS[name]()
    for _ in range(20):
        step()
    gc.collect()
    before = live().total
    tracemalloc.start()
    try:
        for _ in range(120):  # lists of views and caches fill up at first
            step()
        gc.collect()
        traced = tracemalloc.get_traced_memory()[0]
        for _ in range(180):
            step()
        gc.collect()
        grown = tracemalloc.get_traced_memory()[0] - traced
    finally:
        tracemalloc.stop()
    assert live().total <= before + 64
    assert grown < 20_000
