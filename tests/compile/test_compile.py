"""Compiled functions do what the Python does: values, state, gradients, errors."""

import numpy as np
import pytest

import weft
from weft import nn, optim
from weft.compile.program.bodies import bodies_of
from weft.compile.program.steps import HostCall
from weft.compile.targets.cpu.control_flow.call import ControlFlow
from weft.errors import ArgumentError
from weft.graph import CaptureError

F = nn.functional


def step_of(model, optimizer, loss_of):
    def step(*batch):
        optimizer.zero_grad()
        loss = loss_of(model, *batch)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        return loss

    return step


def labelled(model, x, y):
    return F.cross_entropy(model(x), y)


def language(model, x, y):
    return F.cross_entropy(model(x).flatten(0, 1), y.flatten())


def squares(model, x):
    out = model(x)
    return ((out[0] if isinstance(out, tuple) else out) ** 2).mean()


class Autoencoder(nn.Module):
    """A variational one: random numbers in the middle."""

    def __init__(self):
        super().__init__()
        self.encoder, self.decoder = nn.Linear(6, 4), nn.Linear(2, 6)

    def forward(self, x):
        mean, spread = self.encoder(x).chunk(2, -1)
        noise = weft.randn(mean.shape, dtype=x.dtype)
        z = mean + noise * (0.5 * spread).exp()
        error = ((self.decoder(z) - x) ** 2).sum(-1)
        penalty = 0.5 * (spread.exp() + mean**2 - 1 - spread).sum(-1)
        return error + penalty


def tokens(*shape):
    return weft.randint(0, 11, shape)


PROGRAMS = {
    "MLP": (
        lambda: nn.Sequential(
            nn.Linear(5, 16), nn.ReLU(), nn.BatchNorm1d(16), nn.Dropout(0.2),
            nn.Linear(16, 3),
        ),
        labelled, lambda: (weft.randn(8, 5), weft.randint(0, 3, (8,))),
    ),
    "LeNet": (
        lambda: weft.models.LeNet(), labelled,
        lambda: (weft.randn(2, 1, 28, 28), weft.randint(0, 10, (2,))),
    ),
    "ResNet": (
        lambda: weft.models.resnet18(classes=3, cifar=True, width=4), labelled,
        lambda: (weft.randn(2, 3, 8, 8), weft.randint(0, 3, (2,))),
    ),
    "GPT": (
        lambda: weft.models.GPT(11, context=8, width=16, heads=2, layers=2),
        language, lambda: (tokens(2, 8), tokens(2, 8)),
    ),
    "LSTM": (lambda: nn.LSTM(3, 4), squares, lambda: (weft.randn(5, 2, 3),)),
    "VAE": (Autoencoder, squares, lambda: (weft.randn(7, 6),)),
}  # fmt: skip


def in_double(tree):
    return [t.double() if t.dtype.is_floating_point else t for t in tree]


@pytest.mark.parametrize("name", PROGRAMS)
def test_training_equals_eager(name):
    """In float64, where rounding cannot hide (or pass for) a difference."""
    build, loss_of, example = PROGRAMS[name]

    def prepared():
        weft.manual_seed(0)
        model = build().double()
        optimizer = optim.AdamW(model.parameters(), lr=1e-3)
        return model, step_of(model, optimizer, loss_of)

    model, step = prepared()
    twin, twin_step = prepared()
    weft.manual_seed(1)
    batches = [in_double(example()) for _ in range(6)]
    compiled = weft.compile(twin_step)
    weft.manual_seed(2)
    want = [step(*batch).item() for batch in batches]
    weft.manual_seed(2)
    got = [compiled(*batch).item() for batch in batches]
    np.testing.assert_allclose(got, want, rtol=1e-7)
    for (key, a), b in zip(
        model.state_dict().items(), twin.state_dict().values(), strict=True
    ):
        np.testing.assert_allclose(
            b.numpy(), a.numpy(), rtol=1e-6, atol=1e-9, err_msg=key
        )
    assert len(compiled.compiles) == 1


def test_single_precision_agrees_within_rounding():
    weft.manual_seed(0)
    model, twin = (nn.Linear(5, 3) for _ in range(2))
    twin.load_state_dict(model.state_dict())
    step, other = (
        step_of(m, optim.SGD(m.parameters(), lr=0.1), labelled) for m in (model, twin)
    )
    compiled = weft.compile(other)
    for _ in range(50):
        x, y = weft.randn(8, 5), weft.randint(0, 3, (8,))
        assert compiled(x, y).item() == pytest.approx(step(x, y).item(), rel=1e-5)


def test_the_same_bits_from_run_to_run():
    def train():
        weft.manual_seed(0)
        model = nn.Sequential(nn.Linear(5, 16), nn.Tanh(), nn.Linear(16, 3))
        step = weft.compile(step_of(model, optim.Adam(model.parameters()), labelled))
        for _ in range(5):
            step(weft.randn(8, 5), weft.randint(0, 3, (8,)))
        return [p.detach().numpy().tobytes() for p in model.parameters()]

    assert train() == train()


# -- sizes


def test_a_hundred_lengths_are_two_compilations():
    @weft.compile
    def f(x):
        return (x.exp().sum(0) / x.shape[0]).log()

    for n in range(2, 102):
        x = weft.randn(n, 3)
        want = (x.exp().sum(0) / n).log().numpy()
        np.testing.assert_allclose(f(x).numpy(), want, rtol=1e-5, atol=1e-6)
    first, second = [c.why for c in f.compiles]
    assert first == "first call"
    assert second == "other sizes: x is (3, 3), was (2, 3)"


def test_sizes_that_agree_stay_together():
    @weft.compile
    def f(x, y):
        return (x * y).sum()

    for n in (3, 5, 9):
        assert f(weft.ones(n), weft.ones(n)).item() == n
    assert len(f.compiles) == 2
    with pytest.raises(ValueError, match="broadcast"):
        f(weft.ones(3), weft.ones(4))


def test_a_branch_on_a_size_is_compiled_for_both_sides():
    @weft.compile
    def f(x):
        return x.sum() if x.shape[0] > 4 else x.sum() * 100

    assert [f(weft.ones(n)).item() for n in (2, 3, 6, 7, 3, 8)] == [
        200, 300, 6, 7, 300, 8,
    ]  # fmt: skip
    assert len(f.compiles) == 3


# -- what Python does meanwhile


class Scaled(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear, self.factor = nn.Linear(2, 2), 2.0

    def forward(self, x):
        out = self.linear(x) * self.factor
        return out if self.training else -out


def test_nothing_is_stale():
    model = Scaled()
    compiled = weft.compile(model)
    x = weft.randn(3, 2)
    with weft.no_grad():
        for change in (
            lambda: None,
            lambda: setattr(model, "factor", 3.0),
            lambda: model.eval(),
            lambda: model.linear.weight.fill_(0.5),
            lambda: setattr(model.linear, "bias", nn.Parameter(weft.ones(2))),
            lambda: setattr(model, "linear", nn.Linear(2, 2)),
        ):
            change()
            np.testing.assert_allclose(compiled(x).numpy(), model(x).numpy(), rtol=1e-6)
    assert "factor changed from 2.0 to 3.0" in compiled.compiles[1].why
    assert "training changed" in compiled.compiles[2].why


SCALE = 2.0


def test_globals_and_closures_are_watched():
    global SCALE
    SCALE, offset = 2.0, 1.0

    @weft.compile
    def f(x):
        return x * SCALE + offset

    assert f(weft.ones(1)).item() == 3
    SCALE = 5.0
    assert f(weft.ones(1)).item() == 6
    offset = 2.0
    assert f(weft.ones(1)).item() == 7


def test_a_schedule_needs_no_compilation():
    model = nn.Linear(3, 1)
    optimizer = optim.SGD(model.parameters(), lr=0.5)
    schedule = optim.lr_scheduler.StepLR(optimizer, 1, 0.1)
    step = weft.compile(step_of(model, optimizer, squares))
    x = weft.ones(2, 3)
    for _ in range(4):
        before = model.weight.detach().clone()
        step(x)
        schedule.step()
        moved = (model.weight.detach() - before).abs().max().item()
    assert moved < 1e-2
    assert len(step.compiles) == 1


def test_python_values_are_arguments_of_the_program():
    f = weft.compile(lambda x, n: x * n)
    assert f(weft.ones(1), 2).item() == 2
    assert f(weft.ones(1), 3).item() == 3
    assert len(f.compiles) == 2


def test_too_many_compilations_are_refused():
    f = weft.compile(lambda x, n: x * n, max_compiles=3)
    for n in range(3):
        f(weft.ones(1), n)
    with pytest.raises(ArgumentError, match="for the 4th time"):
        f(weft.ones(1), 3)


def test_what_cannot_be_captured_is_refused_at_its_line():
    @weft.compile
    def f(x):
        while float(x.sum()) > 1:
            x = x / 2
        return x

    with pytest.raises(CaptureError, match=r"while float\(x\.sum\(\)\) > 1"):
        f(weft.ones(3))


def test_a_failed_step_changes_nothing():
    table = nn.Parameter(weft.ones(3))
    optimizer = optim.SGD([table], lr=1.0)

    @weft.compile
    def step(i):
        optimizer.zero_grad()
        loss = table[i].sum()
        loss.backward()
        optimizer.step()
        return loss

    step(weft.tensor([0, 1]))
    before = table.detach().clone()
    with pytest.raises(IndexError, match="index 7"):
        step(weft.tensor([0, 7]))
    assert weft.equal(table.detach(), before)


# -- inside and around


def test_compiled_modules_are_differentiated():
    weft.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2))
    x = weft.randn(5, 3, requires_grad=True)
    (model(x) ** 2).sum().backward()
    want = [x.grad, *[p.grad for p in model.parameters()]]
    x.grad = None
    model.zero_grad()
    (weft.compile(model)(x) ** 2).sum().backward()
    got = [x.grad, *[p.grad for p in model.parameters()]]
    for a, b in zip(got, want, strict=True):
        np.testing.assert_allclose(a.numpy(), b.numpy(), rtol=1e-5, atol=1e-6)


def test_second_derivatives():
    f = weft.compile(lambda x: (x.exp() * x).sum())
    x = weft.tensor([0.5, -1.0], dtype=weft.float64, requires_grad=True)
    (dx,) = weft.autograd.grad(f(x), x, create_graph=True)
    (ddx,) = weft.autograd.grad(dx.sum(), x)
    want = (x + 2) * x.exp()
    np.testing.assert_allclose(ddx.numpy(), want.detach().numpy(), rtol=1e-12)


def test_nested_and_transformed():
    inner = weft.compile(lambda x: x.sin() * 2)
    outer = weft.compile(lambda x: inner(x).sum())
    x = weft.randn(4)
    assert outer(x).item() == pytest.approx((x.sin() * 2).sum().item(), rel=1e-5)
    rows = weft.func.vmap(inner)(weft.randn(3, 4))
    assert rows.shape == (3, 4)
    tangent = weft.func.jvp(inner, (x,), (weft.ones(4),))[1]
    np.testing.assert_allclose(tangent.numpy(), (x.cos() * 2).numpy(), rtol=1e-5)


def test_buffers_change_in_evaluation_of_gradients_once():
    model = nn.BatchNorm1d(3)
    twin = nn.BatchNorm1d(3)
    x = weft.randn(4, 3, requires_grad=True)
    weft.compile(model)(x).sum().backward()
    twin(x).sum().backward()
    for a, b in zip(model.buffers(), twin.buffers(), strict=True):
        np.testing.assert_allclose(a.numpy(), b.numpy(), rtol=1e-5, atol=1e-7)


def test_trees_and_keywords():
    @weft.compile
    def f(batch, *, scale):
        return {"out": batch["a"] * scale, "n": 3}

    out = f({"a": weft.ones(2)}, scale=weft.tensor(2.0))
    assert out["out"].tolist() == [2, 2]
    assert out["n"] == 3


def test_results_are_the_users_own():
    f = weft.compile(lambda x: x + 1)
    a = f(weft.zeros(3))
    f(weft.ones(3))
    assert a.tolist() == [1, 1, 1]


@pytest.mark.parametrize(
    ("shapes", "program"),
    [
        ([(5, 7), (7, 3)], lambda a, b: a @ b),
        ([(5, 7), (3, 7)], lambda a, b: a @ b.t()),
        ([(7, 5), (7, 3)], lambda a, b: a.t() @ b + 1),
        ([(4, 5, 7), (4, 7, 3)], lambda a, b: (a * 2) @ b),
        ([(4, 5, 7), (7, 3)], lambda a, b: a @ b),
        ([(2, 5, 4, 8), (2, 5, 4, 8)], lambda q, k: q.permute(0, 2, 1, 3)
         @ k.permute(0, 2, 3, 1)),
        ([(6, 8), (8, 6)], lambda a, b: a[1:5, ::2] @ b[::2, 2:]),
        ([(0, 3), (3, 2)], lambda a, b: a @ b),
        ([(2, 0), (0, 3)], lambda a, b: a @ b),
        ([(3, 4), (4,)], lambda a, b: a @ b),
    ],
)  # fmt: skip
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_products(shapes, program, dtype):
    rng = np.random.default_rng(0)
    arrays = [weft.tensor(rng.normal(size=s).astype(dtype)) for s in shapes]
    got, want = weft.compile(program)(*arrays).numpy(), program(*arrays).numpy()
    assert got.shape == want.shape
    scale = 1e-5 if dtype == "float32" else 1e-12
    np.testing.assert_allclose(got, want, rtol=scale, atol=scale)


def test_the_number_of_threads_changes_nothing():
    weft.manual_seed(0)
    model = nn.Sequential(nn.Linear(40, 300), nn.Tanh(), nn.LayerNorm(300))
    x = weft.randn(300, 40)
    program = weft.compile(lambda x: model(x).softmax(-1).sum(0))
    before = weft.get_num_threads()
    found = []
    try:
        with weft.no_grad():
            for threads in (1, 2, 3, 4):
                weft.set_num_threads(threads)
                found.append(program(x).numpy().tobytes())
    finally:
        weft.set_num_threads(before)
    assert len(set(found)) == 1


def test_a_gradient_that_is_kept_does_not_change():
    p = nn.Parameter(weft.ones(3))

    @weft.compile
    def step(x):
        p.grad = None
        (p * x).sum().backward()

    step(weft.tensor([1.0, 2.0, 3.0]))
    held = p.grad
    step(weft.zeros(3))
    assert held.tolist() == [1, 2, 3]
    assert p.grad.tolist() == [0, 0, 0]


def test_sizes_beyond_one_block():
    """Kernels cut axes into blocks; positions are right in each of them."""
    weft.manual_seed(0)
    model = weft.models.GPT(65, context=80, width=128, heads=4, layers=1)
    x, y = weft.randint(0, 65, (2, 80)), weft.randint(0, 65, (2, 80))

    def gradients(x, y):
        model.zero_grad()
        loss = language(model, x, y)
        loss.backward()
        return loss

    gradients(x, y)
    want = {name: p.grad.numpy().copy() for name, p in model.named_parameters()}
    weft.compile(gradients)(x, y)
    for name, p in model.named_parameters():
        scale = np.abs(want[name]).max()
        np.testing.assert_allclose(
            p.grad.numpy(), want[name], rtol=1e-3, atol=1e-4 * scale, err_msg=name
        )


def test_pieces_beyond_one_block():
    parts = [weft.randn(7, n, 33) for n in (70, 129, 64)]

    def program(*parts):
        joined = weft.cat([p.permute(0, 2, 1) for p in parts], -1)
        return joined.sum((0, 1)), joined.reshape(7, -1)[:, 5:].amax(0)

    got, want = weft.compile(program)(*parts), program(*parts)
    for a, b in zip(got, want, strict=True):
        np.testing.assert_allclose(a.numpy(), b.numpy(), rtol=1e-4, atol=1e-4)


def test_bodies_of_loops_are_machine_code():
    w = weft.randn(8, 8) * 0.2

    def run(h, xs):
        def body(h, x):
            for _ in range(6):
                h = (x + h @ w).tanh() * 0.9
            return h, h * 2

        h, ys = weft.scan(body, h, xs)
        return (ys * ys).sum() + h.sum()

    h, xs = weft.randn(4, 8), weft.randn(5, 4, 8)
    compiled = weft.compile(run)
    np.testing.assert_allclose(compiled(h, xs).item(), run(h, xs).item(), rtol=1e-5)
    assert compiled(weft.randn(3, 8), weft.randn(7, 3, 8)).shape == ()
    native = compiled.latest.program
    (scan,) = [s for s in native.lowered.steps if isinstance(s, ControlFlow)]
    (body,) = bodies_of(scan.node)[0].cache.native.values()
    assert body.lowered.kernels
    assert not any(isinstance(s, HostCall) for s in native.lowered.steps)
    gradient = weft.compile(lambda h, xs: weft.func.grad(run, argnums=(0, 1))(h, xs))
    pairs = zip(
        weft.func.grad(run, argnums=(0, 1))(h, xs), gradient(h, xs), strict=True
    )
    for want, got in pairs:
        np.testing.assert_allclose(got.numpy(), want.numpy(), rtol=1e-4, atol=1e-6)


async def later(x):
    return x


def one_by_one(x):
    yield x


@pytest.mark.parametrize(
    ("fn", "options", "text"),
    [(3, {}, "expected a function or a module, got int"),
     (later, {}, "later is a generator or a coroutine"),
     (one_by_one, {}, "one_by_one is a generator or a coroutine"),
     (len, {"dynamic": "yes"}, "expected dynamic to be a bool, got 'yes'"),
     (len, {"max_compiles": 0}, "expected max_compiles of at least 1, got 0")],
)  # fmt: skip
def test_what_cannot_be_compiled(fn, options, text):
    kind = TypeError if fn == 3 else ArgumentError
    with pytest.raises(kind, match=text):
        weft.compile(fn, **options)


CHAINS = {
    "element by element": lambda x, k: x * 0.999 + k,
    "whole numbers": lambda x, k: (x + k) % 7,
    "single numbers": lambda x, k: x.sum() * 0.1 + 1,
    "turned": lambda x, k: x.T + 1,
    "rows": lambda x, k: x - x.mean(0),
}


@pytest.mark.parametrize("name", CHAINS)
def test_long_chains(name):
    """No part of the compiler calls itself once for each step."""
    step = CHAINS[name]

    def chain(x):
        for k in range(400):
            x = step(x, k)
        return x

    x = weft.tensor(np.random.default_rng(0).normal(size=(3, 2)).astype(np.float32))
    x = (x * 10).long() if name == "whole numbers" else x
    np.testing.assert_allclose(
        weft.compile(chain)(x).numpy(), chain(x).numpy(), rtol=1e-3, atol=1e-4
    )
