"""Control flow: eager, captured, differentiated and batched, all alike."""

import numpy as np
import pytest

import weft
from weft import nn
from weft.autograd import gradcheck, gradgradcheck
from weft.core.op import TensorType, find_op
from weft.func import grad, hessian, jacfwd, jacrev, jvp, vmap
from weft.graph import Builder, Building, CaptureError, Program, capture
from weft.testing import check_op

RECORDS = ("cond", "scan", "sized", "while_loop")


def f64(*values):
    return weft.tensor(values if len(values) > 1 else values[0], dtype=weft.float64)


def same(a, b, tolerance=1e-12):
    xs, structure = weft.tree_flatten(a)
    ys, other = weft.tree_flatten(b)
    assert structure == other
    for x, y in zip(xs, ys, strict=True):
        assert x.dtype is y.dtype
        assert x.shape == y.shape
        np.testing.assert_allclose(
            x.detach().numpy(), y.detach().numpy(), rtol=tolerance, atol=tolerance
        )


def ops(captured):
    return [node.op.name for node in captured.graph.nodes]


# -- programs: each runs eagerly, captured, differentiated and batched


def branches(x):
    return weft.cond(x.sum() > 0, lambda x: x.sin() * x, lambda x: x.exp() - x, (x,))


def running(x):
    """A carry of several kinds, stacked outputs, a tensor from outside."""

    def step(carry, row):
        state, count = carry["h"], carry["n"]
        new = (state * x[0] + row).tanh()
        return {"h": new, "n": count + 1}, (new * row, state.sum())

    init = {"h": x * 0.5, "n": 0}
    last, ys = weft.scan(step, init, weft.stack([x, x * x, x.sin()]))
    return last["h"].sum() * last["n"] + ys[0].sum(0) + ys[1].sum()


def backwards(x):
    return weft.scan(
        lambda c, r: (c * r + x, c), x, weft.stack([x, x + 1]), None, True
    )[1]


def collatz(x):
    """As many steps as the values say."""
    body = lambda v, n: (v * 0.7 + 0.1 * v.sin(), n + 1)
    v, n = weft.while_loop(lambda v, n: v.abs().sum() > 0.5, body, (x, 0))
    return v * n


def powers(x):
    return weft.fori_loop(1, 4, lambda i, c: c * x + i, x)


def powers_of(x):
    n = (x.abs().sum() * 2.2).to(weft.int64)
    return weft.fori_loop(0, n, lambda i, c: c * x.sin() + i, x)


def squares(x):
    return weft.map(lambda v: v * v * x.sum(), x)


def nested(x):
    """A loop with a branch, in a scan."""

    def inner(v):
        turn = lambda v: weft.cond(v.sum() > 1, lambda v: v * 0.5, lambda v: v - 0.3, v)
        return weft.while_loop(lambda v: v.sum() > 0.4, turn, v)

    def step(carry, row):
        new = inner(carry * row + 1)
        return new, new * carry

    last, ys = weft.scan(step, x, weft.stack([x, x * 2, x + 0.5]))
    return last + ys.sum(0)


PROGRAMS = [
    branches, running, backwards, collatz, powers, powers_of, squares, nested,
]  # fmt: skip
POINT = (0.7, -0.2, 1.1)
BATCH = np.array([[0.7, -0.2, 1.1], [-1.3, 0.4, -0.6], [2.1, 1.7, 0.3]])

programs = pytest.mark.parametrize("program", PROGRAMS, ids=lambda p: p.__name__)


@programs
def test_captured_is_eager(program):
    x = f64(*POINT)
    step = capture(program, x)
    for row in BATCH:
        same(step(weft.tensor(row)), program(weft.tensor(row)))
    assert set(ops(step)) & set(RECORDS)


@programs
def test_gradients_agree_with_differences(program):
    x = f64(*POINT).requires_grad_()
    assert gradcheck(program, (x,))
    assert gradgradcheck(program, (x,))


@programs
@pytest.mark.parametrize(
    "derive",
    [
        lambda f: grad(lambda x: f(x).sum()),
        lambda f: jacfwd(f),
        lambda f: jacrev(f),
        lambda f: hessian(lambda x: f(x).sum()),
        lambda f: grad(lambda x: grad(lambda x: f(x).sin().sum())(x).sin().sum()),
        lambda f: jacfwd(jacfwd(f)),
        lambda f: vmap(f),
        lambda f: vmap(grad(lambda x: f(x).sum())),
        lambda f: vmap(jacfwd(f)),
        lambda f: grad(lambda x: vmap(f)(x).sin().sum()),
        lambda f: lambda x: jvp(vmap(f), (x,), (x.cos(),)),
    ],
    ids=[
        "grad", "jacfwd", "jacrev", "hessian", "grad²", "jvp²", "vmap", "vmap∘grad",
        "vmap∘jvp", "grad∘vmap", "jvp∘vmap",
    ],
)  # fmt: skip
def test_transforms_captured_are_eager(program, derive, request):
    """Each transform of the eager loop, and of the operator in a captured program."""
    transformed = derive(program)
    batch = "vmap" in request.node.callspec.id
    x = weft.tensor(BATCH) if batch else f64(*POINT)
    step = capture(transformed, x)
    same(step(x), transformed(x), 1e-9)
    again = weft.tensor(BATCH[::-1].copy()) if batch else f64(-0.4, 0.9, 0.8)
    same(step(again), transformed(again), 1e-9)


@programs
def test_gradients_of_the_graph_itself(program):
    """As ``weft.graph.gradients`` appends them, of a program captured forward."""
    x = f64(*POINT)
    g = weft.graph.gradients(capture(lambda x: program(x).sum(), x).graph)
    (_, found) = weft.graph.Program(g, g.outputs).run([x.numpy()], {})[0]
    expected = grad(lambda x: program(x).sum())(x)
    np.testing.assert_allclose(found, expected.numpy(), rtol=1e-10)


@programs
def test_gradients_of_gradients_of_the_graph(program):
    """What the first derivative keeps of the way there has a derivative too."""
    x = f64(*POINT)
    slope = grad(lambda x: program(x).sin().sum())
    g = weft.graph.gradients(capture(lambda x: slope(x).cos().sum(), x).graph)
    (_, found) = Program(g, g.outputs).run([x.numpy()], {})[0]
    expected = grad(lambda x: slope(x).cos().sum())(x)
    np.testing.assert_allclose(found, expected.numpy(), rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize(
    "program", [branches, running, collatz], ids=lambda p: p.__name__
)
def test_third_derivatives(program):
    f = lambda x: program(x * weft.ones(3, dtype=weft.float64)).sum()
    third = grad(grad(grad(f)))
    x = f64(0.8)
    same(capture(third, x)(x), third(x), 1e-8)


@programs
def test_text_can_be_read_back(program):
    x = f64(*POINT)
    slope = capture(grad(lambda x: program(x).sum()), x)
    text = weft.graph.print_graph(slope.graph, constants="full")
    read = weft.graph.parse_graph(text)
    found = Program(read, read.outputs).run([x.numpy()], {})[0][0]
    np.testing.assert_array_equal(found, slope(x).numpy())


@programs
def test_batched_is_one_by_one(program):
    xs = weft.tensor(BATCH)
    rows = weft.stack([program(row) for row in xs])
    same(vmap(program)(xs), rows)


@programs
def test_a_batch_of_any_size(program):
    for f in (vmap(program), vmap(grad(lambda x: program(x).sum()))):
        xs = weft.tensor(BATCH)
        step = capture(lambda x, f=f: f(x), xs, dynamic={"x": {0: "B"}})
        for n in (3, 1, 0):
            same(step(xs[:n]), f(xs[:n]), 1e-9)


@programs
def test_batches_of_batches(program):
    xs = weft.tensor(np.stack([BATCH, BATCH[::-1] * 0.9]))
    for f in (vmap(vmap(program)), vmap(vmap(grad(lambda x: program(x).sum())))):
        same(capture(f, xs)(xs), f(xs), 1e-9)


@programs
def test_linearized(program):
    f = lambda x: weft.func.linearize(program, x)[1](x.cos())
    x = f64(*POINT)
    same(capture(f, x)(x), f(x), 1e-9)


@programs
def test_verified_and_printed(program):
    step = capture(jacrev(program), f64(*POINT))
    weft.graph.verify(step.graph)
    assert "scan(" in str(step.graph) or "cond(" in str(step.graph)


@pytest.mark.parametrize("name", RECORDS)
def test_records(name):
    row = check_op(find_op(name))
    only_float64 = {"f32", "f16", "bf16", "promote"}  # a graph has dtypes of its own
    assert {check for check, text in row.items() if text == "-"} == only_float64
    assert {text for text in row.values() if text != "-"} == {"ok"}


# -- cond


def test_cond_runs_one_branch_only():
    seen = []
    take = lambda name: lambda x: seen.append(name) or x
    weft.cond(weft.tensor(True), take("yes"), take("no"), (weft.ones(2),))
    assert seen == ["yes"]
    step = capture(
        lambda p, x: weft.cond(p, lambda x: x * 2, lambda x: x, x),
        weft.tensor(True),
        weft.ones(2),
    )
    same(step(weft.tensor(True), weft.ones(2)), weft.full((2,), 2.0))
    same(step(weft.tensor(False), weft.ones(2)), weft.ones(2))


def test_cond_takes_operands_in_every_form():
    a, b = weft.tensor(1.0), weft.tensor(2.0)
    add, sub = (lambda a, b: a + b), (lambda a, b: a - b)
    forms = [
        lambda p: weft.cond(p, add, sub, (a, b)),
        lambda p: weft.cond(p, add, sub, [a, b]),
        lambda p: weft.cond(p, add, sub, a, b),
        lambda p: weft.cond(p, add, sub, operands=(a, b)),
        lambda p: weft.cond(p, lambda: a + b, lambda: a - b),
    ]
    for form in forms:
        for run in (form, capture(form, weft.tensor(True))):
            assert float(run(weft.tensor(True))) == 3
            assert float(run(weft.tensor(False))) == -1


def test_python_predicates_choose_now():
    step = capture(lambda x: weft.cond(True, weft.neg, weft.exp, x), weft.ones(2))
    assert ops(step) == ["input", "neg"]


def test_predicates_of_other_kinds():
    for run in (lambda f, p: f(p), lambda f, p: capture(f, p)(p)):
        f = lambda p: weft.cond(p, lambda: weft.tensor(1), lambda: weft.tensor(2))
        assert int(run(f, weft.tensor([3.0]))) == 1
        assert int(run(f, weft.tensor(0))) == 2
        with pytest.raises(ValueError, match=r"one element, got shape \(2,\)"):
            run(f, weft.ones(2))


def test_branches_must_agree():
    p, x = weft.tensor(True), weft.ones(2)
    with pytest.raises(
        TypeError,
        match=r"leaf 0 is float32\[2\] in true_fn and float32\[\] in false_fn",
    ):
        capture(lambda p, x: weft.cond(p, weft.neg, weft.sum, x), p, x)
    with pytest.raises(
        ValueError, match=r"true_fn has tuple\(\*, \*\) and in false_fn"
    ):
        capture(lambda p, x: weft.cond(p, lambda x: (x, x), lambda x: x, x), p, x)
    with pytest.raises(TypeError, match="cond: the branches' results must agree"):
        vmap(lambda v: weft.cond(v > 0, lambda: v, lambda: weft.zeros(2)))(x)
    with pytest.raises(TypeError, match="expected tensors or numbers, got str"):
        capture(lambda p: weft.cond(p, lambda: "a", lambda: "b"), p)


def test_no_nan_from_the_branch_not_taken():
    f = lambda x: weft.cond(x > 0, weft.log, lambda x: x * 0, x)
    xs = f64(2.0, 0.0, -1.0)
    for run in (lambda g: g(xs), lambda g: capture(g, xs)(xs)):
        same(run(vmap(f)), f64(np.log(2.0), 0.0, 0.0))
        same(run(vmap(grad(f))), f64(0.5, 0.0, 0.0))
        same(run(vmap(jacfwd(f))), f64(0.5, 0.0, 0.0))


def test_cond_with_trees_and_static_operands():
    def f(p, tree):
        pick = lambda t, name, k: {"out": t[name] * k, "n": 1}
        other = lambda t, name, k: {"out": t[name] + k, "n": 2}
        return weft.cond(p, pick, other, (tree, "b", 3))

    tree = {"a": weft.ones(2), "b": weft.arange(2.0)}
    step = capture(f, weft.tensor(True), tree)
    for p in (True, False):
        same(step(weft.tensor(p), tree)["out"], f(weft.tensor(p), tree)["out"])
    assert int(step(weft.tensor(False), tree)["n"]) == 2


# -- scan


def test_scan_follows_jax():
    f = lambda c, x: (c + x, c * x)
    xs = weft.tensor([1.0, 2.0, 3.0])
    for run in (lambda: weft.scan(f, 0.0, xs), capture(lambda: weft.scan(f, 0.0, xs))):
        carry, ys = run()
        assert float(carry) == 6
        assert ys.tolist() == [0, 2, 9]
    carry, ys = weft.scan(f, 0.0, xs, reverse=True)
    assert ys.tolist() == [5, 6, 0]
    carry, ys = weft.scan(lambda c, _: (c * 2, c), 1, length=4)
    assert (int(carry), ys.tolist()) == (16, [1, 2, 4, 8])


def test_scan_without_steps():
    f = lambda c, x: (c + x.sum(), {"a": x[:2] * c, "b": None, "c": 1})
    init, xs = f64(2.0), weft.zeros(0, 3, dtype=weft.float64)
    step = capture(lambda i, x: weft.scan(f, i, x), init, xs)
    for run in (weft.scan, lambda f, i, x: step(i, x)):
        carry, ys = run(f, init, xs)
        assert float(carry) == 2
        assert ys["a"].shape == (0, 2)
        assert ys["b"] is None
        assert ys["c"].dtype is weft.int64
    slope = grad(lambda i: weft.scan(f, i, xs)[0])
    same(slope(init), f64(1.0))
    same(capture(slope, init)(init), f64(1.0))


def test_scan_along_a_symbolic_length():
    f = lambda h, x: ((h * x).tanh() + x, h)
    total = lambda h, xs: sum(v.sum() for v in weft.scan(f, h, xs))
    h = f64(0.1, 0.2)
    draw = lambda n: weft.tensor(np.random.default_rng(n).standard_normal((n, 2)))
    both = lambda h, xs: (total(h, xs), grad(total, (0, 1))(h, xs))
    step = capture(both, h, draw(3), dynamic={"xs": {0: "T"}})
    for n in (1, 3, 7, 0):
        same(step(h, draw(n)), both(h, draw(n)))


def test_symbolic_sizes_inside_a_body():
    """Sizes of tensors outside are numbers inside, also where no input has them."""

    def f(x, y):
        n = y.shape[0]
        body = lambda c, r: (c + weft.ones(n).sum() * r.mean(), (r + n).reshape(-1))
        return weft.scan(body, x.sum(), x)

    x, y = weft.ones(3, 4), weft.zeros(5)
    step = capture(f, x, y, dynamic={"x": {1: "W"}, "y": {0: "N"}})
    for w, n in ((4, 5), (2, 9)):
        x, y = weft.ones(3, w), weft.zeros(n)
        same(step(x, y), f(x, y))


@pytest.mark.parametrize("run", [lambda f, *a: f(*a), lambda f, *a: capture(f, *a)])
def test_mistakes_in_scans(run):
    xs = weft.ones(3)
    with pytest.raises(
        TypeError, match=r"leaf 0 is int64\[\] before a step and float32\[\] after it"
    ):
        run(lambda xs: weft.scan(lambda c, x: (c + x, None), 0, xs), xs)
    with pytest.raises(ValueError, match=r"before a step has \* and after it tuple"):
        run(lambda xs: weft.scan(lambda c, x: ((c, x), None), 0.0, xs), xs)
    with pytest.raises(ValueError, match=r"expected f to return \(carry, y\)"):
        run(lambda xs: weft.scan(lambda c, x: c + x, 0.0, xs), xs)
    with pytest.raises(ValueError, match="one number of steps, got 2, 3"):
        run(lambda xs: weft.scan(lambda c, x: (c, x), 0.0, xs, length=2), xs)
    with pytest.raises(ValueError, match="expected xs or length"):
        run(lambda xs: weft.scan(lambda c, x: (c, x), xs), xs)
    with pytest.raises(ValueError, match="a 0-d tensor"):
        run(lambda xs: weft.scan(lambda c, x: (c, x), 0.0, xs.sum()), xs)
    with pytest.raises(ValueError, match="expected length to be an int, got"):
        run(lambda xs: weft.scan(lambda c, x: (c, x), 0.0, None, xs.sum()), xs)


# -- loops


def test_while_takes_tuples_and_trees():
    big = lambda c: c["v"] > 1
    halve = lambda c: {"v": c["v"] / 2}
    for run in (lambda f, x: f(x), lambda f, x: capture(f, x)(x)):
        x = f64(12.0)
        found = run(lambda x: weft.while_loop(big, halve, {"v": x}), x)
        assert float(found["v"]) == 0.75
        one = lambda x: weft.while_loop(lambda v: v > 1, lambda v: v / 2, (x,))
        assert float(run(one, x)[0]) == 0.75
        bare = lambda x: weft.while_loop(lambda v: v > 1, lambda v: v / 2, x)
        assert float(run(bare, x)) == 0.75


def test_no_trips():
    f = lambda x: weft.while_loop(lambda v: v.sum() > 100, lambda v: v.exp(), x)
    x = f64(1.0, 2.0)
    step = capture(lambda x: (f(x), grad(lambda x: f(x).sum())(x)), x)
    same(step(x), (x, weft.ones(2, dtype=weft.float64)))
    loop = lambda x: weft.fori_loop(3, 1, lambda i, c: c * 2, x)
    same(loop(x), x)
    same(capture(loop, x)(x), x)


def test_each_example_has_its_own_number_of_trips():
    def newton(a):
        """The square root, with the number of steps that it took."""
        body = lambda x, n: ((x + a / x) / 2, n + 1)
        return weft.while_loop(lambda x, n: (x * x - a).abs() > 1e-12, body, (a, 0))

    a = f64(1.5, 2.5, 1e6)
    counts = [int(newton(v)[1]) for v in a]
    assert len(set(counts)) == 3
    for f in (vmap(newton), capture(vmap(newton), a)):
        root, n = f(a)
        np.testing.assert_allclose(root.numpy(), np.sqrt(a.numpy()), rtol=1e-12)
        assert n.tolist() == counts
    slope = vmap(grad(lambda a: newton(a)[0]))
    for f in (slope, capture(slope, a)):
        np.testing.assert_allclose(f(a).numpy(), 0.5 / np.sqrt(a.numpy()), rtol=1e-6)


def test_a_trip_that_is_over_gives_no_nan():
    """Examples that are done go on beside the others, without a trace."""
    f = lambda x: weft.while_loop(lambda v: v > 0.5, lambda v: (v - 1).sqrt(), x)
    xs = f64(0.25, 3.0)
    for run in (lambda g: g(xs), lambda g: capture(g, xs)(xs)):
        assert not np.isnan(run(vmap(f)).numpy()[:1]).any()
        slopes = run(vmap(grad(f))).numpy()
        assert slopes[0] == 1


def test_loops_with_random_numbers():
    def walk(x):
        step = lambda c, _: (c + weft.randn(2), weft.rand(1))
        last, ys = weft.scan(step, x, length=3)
        n, total = weft.while_loop(
            lambda n, t: t < 2,
            lambda n, t: (n + 1, t + weft.rand(())),
            (0, weft.zeros(())),
        )
        more = weft.cond(x.sum() > 0, lambda: weft.randn(2), lambda: weft.zeros(2))
        return last, ys, n, total, more, weft.rand(2)

    step = capture(walk, weft.ones(2))
    for x in (weft.ones(2), -weft.ones(2)):
        weft.manual_seed(3)
        expected = [walk(x), walk(x)]
        weft.manual_seed(3)
        same([step(x), step(x)], expected, 1e-6)


def test_dropout_in_the_steps_of_a_trained_program():
    w = nn.Parameter(f64(0.3, 0.5))
    drop = nn.functional.dropout

    def step(xs):
        w.grad = None
        out = weft.scan(lambda h, x: (drop((h * w + x).tanh()), None), w * 0, xs)[0]
        more = lambda n, v: (n + 1, drop(v * w, 0.3))
        out = weft.while_loop(lambda n, v: n < 3, more, (0, out))[1]
        out.sum().backward()
        return out

    xs = weft.ones(4, 2, dtype=weft.float64)
    program = capture(step, xs)
    for seed in range(4):
        found = []
        for run in (program, step):
            weft.manual_seed(seed)
            found.append((run(xs), w.grad, weft.get_rng_state()))
            w.grad = None
        same(*found)


def test_complex_numbers_and_integers():
    x = weft.tensor([1 + 2j, 0.5 - 1j], dtype=weft.complex128)
    step = lambda c, _: (c * c.sin() + 1, c)
    f = lambda x: weft.scan(step, x, length=3)[0].abs().log().sum()
    same(capture(grad(f), x)(x), grad(f)(x), 1e-9)
    g = lambda k: weft.scan(lambda c, _: (c * 2, c), k, length=3)
    k = weft.tensor([1, 2])
    same(capture(g, k)(k), g(k))


def test_random_numbers_in_a_batch_of_captured_loops():
    f = lambda x: weft.scan(lambda c, _: (c + weft.rand(()), None), x, length=2)[0]
    xs = weft.zeros(3)
    with pytest.raises(ValueError, match="draw the numbers outside"):
        capture(vmap(f, randomness="different"), xs)
    step = capture(vmap(f, randomness="same"), xs)
    weft.manual_seed(1)
    got = step(xs)
    weft.manual_seed(1)
    same(got, vmap(f, randomness="same")(xs), 1e-6)
    with pytest.raises(ValueError, match="cond_fn draws random numbers"):
        capture(
            lambda x: weft.while_loop(lambda v: v < weft.rand(()), lambda v: v + 1, x),
            f64(0.0),
        )


@pytest.mark.parametrize("run", [lambda f, *a: f(*a), lambda f, *a: capture(f, *a)])
def test_mistakes_in_loops(run):
    x = weft.ones(2)
    with pytest.raises(ValueError, match=r"one element, got shape \(2,\)"):
        run(lambda x: weft.while_loop(lambda v: v < 3, lambda v: v + 1, x), x)
    with pytest.raises(TypeError, match=r"float32\[2\] before a step and float32\[4\]"):
        run(
            lambda x: weft.while_loop(
                lambda v: v.sum() < 3, lambda v: weft.cat([v, v]), x
            ),
            x,
        )
    with pytest.raises(TypeError, match="bounds that are ints or integer tensors"):
        run(lambda x: weft.fori_loop(0, 2.5, lambda i, c: c, x), x)


# -- what bodies use and may not do


class Cell(nn.Module):
    def __init__(self, inner=4):
        super().__init__()
        self.mix = nn.Linear(3 + inner, inner)
        self.read = nn.Linear(inner, 1)

    def forward(self, xs):
        def step(h, x):
            h = self.mix(weft.cat([x, h], -1)).tanh()
            return h, self.read(h)

        return weft.scan(step, weft.zeros(xs.shape[1], 4), xs)[1]


def unrolled(cell, xs):
    h, outs = weft.zeros(xs.shape[1], 4), []
    for x in xs:
        h = cell.mix(weft.cat([x, h], -1)).tanh()
        outs.append(cell.read(h))
    return weft.stack(outs)


def trained(run, captured):
    weft.manual_seed(0)
    cell = Cell()
    optimizer = weft.optim.Adam(cell.parameters(), lr=0.05)
    xs = weft.randn(6, 5, 3)
    target = xs.sum(-1, keepdim=True).cumsum(0).tanh()

    def step(xs, target):
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(run(cell, xs), target)
        loss.backward()
        optimizer.step()
        return loss

    program = capture(step, xs, target) if captured else step
    losses = [float(program(xs, target)) for _ in range(30)]
    return losses, [p.detach().clone() for p in cell.parameters()], program


def test_training_a_recurrent_net_is_the_same_in_every_form():
    forms = [
        trained(lambda cell, xs: cell(xs), True), trained(unrolled, True),
        trained(lambda cell, xs: cell(xs), False), trained(unrolled, False),
    ]  # fmt: skip
    losses, weights, program = forms[0]
    assert losses[-1] < losses[0] / 4
    assert ops(program).count("scan") >= 2
    for other, theirs, _ in forms[1:]:
        np.testing.assert_allclose(losses, other, rtol=1e-4)
        same(weights, theirs, 1e-4)


def test_parameters_used_inside_get_their_gradients():
    w = nn.Parameter(f64(0.3, -0.4))

    def loss(x):
        inside = weft.cond(x.sum() > 0, lambda: (w * x).sin(), lambda: w * w)
        return weft.while_loop(
            lambda v: v.sum() > 0.1, lambda v: v * w[0], inside
        ).sum()

    def step(x):
        w.grad = None
        loss(x).backward()

    program = capture(step, f64(1.0, 2.0))
    for x in (f64(1.0, -0.5), f64(-1.0, -2.0), f64(3.0, -2.0)):
        step(x)
        expected = w.grad
        w.grad = None
        program(x)
        same(w.grad, expected)


@pytest.mark.parametrize(
    "change",
    [
        lambda x, t: t.add_(x.sum()),
        lambda x, t: t.copy_(t * 2),
        lambda x, t: t[0].zero_(),
        lambda x, t: t.__setitem__(0, 1.0),
    ],
)
def test_tensors_outside_are_not_changed(change):
    table = weft.ones(2)

    def f(x):
        def body(c, _):
            change(x, table)
            return c, None

        return weft.scan(body, x, length=2)[0]

    with pytest.raises(RuntimeError, match="from outside cannot be changed in place"):
        capture(f, weft.ones(2))
    assert table.tolist() == [1, 1]


def test_own_tensors_may_be_changed_in_place():
    def f(x):
        def body(c, row):
            new = c * 1
            new[0] = row
            new += weft.tensor([1.0, 2.0])
            return new, new.sum()

        return weft.scan(body, x, weft.arange(3.0))

    same(capture(f, weft.ones(2))(weft.ones(2)), f(weft.ones(2)))


def test_backward_inside_a_body_is_refused():
    w = nn.Parameter(weft.ones(2))

    def f(x):
        def body(c, _):
            (w * c).sum().backward()
            return c, None

        return weft.scan(body, x, length=2)[0]

    before = w.grad = weft.full((2,), 3.0)
    with pytest.raises(RuntimeError, match=r"use weft\.func\.grad there"):
        capture(f, weft.ones(2))
    assert w.grad is before
    descend = lambda c, _: (c - 0.1 * grad(lambda v: (w * v * v).sum())(c), None)
    g = lambda x: weft.scan(descend, x, length=3)[0]
    same(capture(g, weft.ones(2))(weft.ones(2)), g(weft.ones(2)), 1e-6)


def test_symbols_of_a_body_do_not_escape():
    kept = []

    def f(x):
        weft.map(lambda v: kept.append(v * 2) or v, x)
        return kept[0] + 1

    with pytest.raises(CaptureError, match="which is over"):
        capture(f, weft.ones(2))


def test_a_python_branch_in_a_body_is_refused():
    with pytest.raises(CaptureError, match=r"Use weft.where or weft.cond"):
        capture(lambda x: weft.map(lambda v: v if v > 0 else -v, x), weft.ones(2))


def test_no_grad_inside_a_body_cuts():
    def f(x):
        def body(c, r):
            with weft.no_grad():
                scale = c.sum()
            return c * r * scale + c.detach(), None

        return weft.scan(body, x, weft.stack([x, x]))[0].sum()

    x = f64(0.5, 2.0)
    same(capture(grad(f), x)(x), grad(f)(x))


def test_the_way_there_is_taken_once():
    """A captured training step keeps what its backward needs of a scan."""
    w = nn.Parameter(f64(0.3, 0.5))

    def step(xs):
        w.grad = None
        out = weft.scan(lambda h, x: ((h * w + x).tanh(), None), w * 0, xs)[0]
        out.sum().backward()

    xs = weft.ones(4, 2, dtype=weft.float64)
    program = capture(step, xs)
    assert ops(program).count("scan") == 2
    back = [n for n in program.graph.nodes if n.op.name == "scan"][-1].params["body"]
    assert "tanh" not in [n.op.name for n in back.nodes]
    program(xs)
    got, w.grad = w.grad, None
    step(xs)
    same(got, w.grad)


def test_many_steps_need_no_stack():
    f = lambda x: weft.while_loop(
        lambda n, v: n < 5000, lambda n, v: (n + 1, v + x), (0, x)
    )
    x = f64(1.0)
    slope = capture(grad(lambda x: f(x)[1]), x)
    assert float(slope(x)) == 5001


def test_a_saved_operand_that_changes_is_an_error():
    def f(x):
        y = x * 1
        out = weft.scan(lambda c, _: (c * c, None), y, length=2)[0]
        y += 1
        out.sum().backward()

    x = weft.ones(2, requires_grad=True)
    with pytest.raises(RuntimeError, match="changed in place"):
        capture(f, x)


def test_an_operator_of_a_static_graph():
    """Symbols that no capture takes."""
    build = Building(Builder("static"))
    x = build.symbol(build.builder.input(TensorType((), weft.float32), "x"))
    y = weft.cond(x > 0, lambda: x * 2, lambda: x * 10)
    z = weft.while_loop(lambda v: v < x, lambda v: v + 1, weft.tensor(0.0))
    graph = build.builder.finish([y.node, z.node])
    run = Program(graph, graph.outputs)
    for v, want in ((3.0, [6, 3]), (-1.0, [-10, 0])):
        assert run.run([np.asarray(v, np.float32)], {})[0] == want


# -- an output that nobody uses is no part of the derivative

INFINITY = weft.tensor([float("inf")] * 2)


def _branch(x, i):
    yes = lambda x: (x * 2, x * i)
    return weft.cond(x.sum() > 0, yes, lambda x: (x, x), x)[0]


def _scan(x, i):
    return weft.scan(lambda k, x: (x * i[0] * k, x * 2), x[0], x)[1]


def _scan_two_steps_late(x, i):
    """The first carry gets its cotangent two steps before the end."""
    step = lambda k, x: ((k[0] * i[0], k[0] * x), x * 2 + k[1])
    return weft.scan(step, (x[0], x[1]), x)[1]


def _scan_backwards(x, i):
    step = lambda k, x: (x * i[0] * k, x * 2)
    return weft.scan(step, x[0], x, reverse=True)[1]


def _wandering(x, i):
    step = lambda k, x: ((k[1], k[0], k[2] * i[0]), None)
    return weft.scan(step, (x[0], x[1], x[0]), x)[0][0]


def _while(x, i):
    step = lambda k, a, b: (k + 1, a * 2, b * i)
    start = (weft.tensor(0), x, x)
    return weft.while_loop(lambda k, a, b: k < 3, step, start)[1]


def _for(x, i):
    return weft.fori_loop(0, 3, lambda k, s: (s[0] * 2, s[1] * i), (x, x))[0]


def _map(x, i):
    return weft.map(lambda x: (x * 2, x * i), x)[0]


@pytest.mark.parametrize("strict", [False, True])
@pytest.mark.parametrize(
    "f",
    [
        _branch, _scan, _scan_two_steps_late, _scan_backwards, _wandering, _while,
        _for, _map,
    ],
)  # fmt: skip
def test_unused_results_give_no_gradient(f, strict):
    """Zero times infinity is NaN, so a cotangent of zeros is not the same as none."""
    gradient = weft.func.grad(lambda x, i: f(x, i).sum())
    x = weft.tensor([1.0, 2.0])
    with weft.config.using(strict_ieee=strict):
        expected = gradient(x, INFINITY)
        assert expected.isfinite().all()
        found = weft.compile(gradient)(x, INFINITY)
    np.testing.assert_array_equal(found.numpy(), expected.numpy())


@pytest.mark.parametrize("strict", [False, True])
def test_unused_results_of_a_compiled_function_give_no_gradient(strict):
    x = weft.tensor([1.0, 2.0], requires_grad=True)
    with weft.config.using(strict_ieee=strict):
        f = weft.compile(lambda x, i: (x * 2, x * i, x.sum()))
        f(x, INFINITY)[0].sum().backward()
        np.testing.assert_array_equal(x.grad.numpy(), [2, 2])
        _, _, total = f(x, INFINITY)
        x.grad = None
        total.backward()
    np.testing.assert_array_equal(x.grad.numpy(), [1, 1])
