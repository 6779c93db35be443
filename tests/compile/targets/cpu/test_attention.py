"""Attention whose scores are never stored: generated code against NumPy in float64."""

import math

import llvmlite.binding as llvm
import numpy as np
import pytest
from guarded import at_the_end_of_a_page

import weft
from weft import nn, optim
from weft.autograd import gradcheck, gradgradcheck
from weft.compile import pipeline
from weft.compile.emit.isa import Isa, new_module
from weft.compile.targets.cpu.attention import (
    attend,
    attend_backward,
    emit_attention,
    plan,
)
from weft.compile.targets.cpu.attention.arrays import compiled
from weft.compile.targets.cpu.attention.call import Attention, is_apart
from weft.compile.targets.cpu.attention.generate import UNITS
from weft.compile.targets.cpu.attention.plan import Options
from weft.compile.targets.cpu.cost_model import COST
from weft.compile.targets.cpu.object_code import host_isa
from weft.errors import ArgumentError, DTypeError, ShapeError
from weft.graph import capture

F = nn.functional
TARGETS = [None, "avx2", "baseline"]
UNIT = {"float32": 2e-6, "float64": 4e-15}


def weights_of(q, k, mask, causal, scale):
    """Weights and the logarithms of sums, as the textbook has them, in float64."""
    scores = scale * (q.astype(np.float64) @ np.swapaxes(k, -1, -2).astype(np.float64))
    if mask is not None:
        scores = (
            np.where(mask, scores, -np.inf) if mask.dtype == bool else scores + mask
        )
    if causal:
        rows, keys = scores.shape[-2:]
        seen = np.arange(keys) <= np.arange(rows)[:, None]
        scores = np.where(seen, scores, -np.inf)
    top = scores.max(-1, keepdims=True)
    e = np.exp(scores - np.where(top == -np.inf, 0, top))
    total = e.sum(-1, keepdims=True)
    with np.errstate(divide="ignore"):
        return e / np.where(total == 0, 1, total), (top + np.log(total))[..., 0]


def reference(q, k, v, g, mask=None, *, causal=False, scale=None):
    """Output, logarithms of sums, and the three gradients."""
    scale = 1 / math.sqrt(q.shape[-1]) if scale is None else scale
    p, lse = weights_of(q, k, mask, causal, scale)
    q, k, v, g = (x.astype(np.float64) for x in (q, k, v, g))
    out = p @ v
    slopes = p * (g @ np.swapaxes(v, -1, -2) - (g * out).sum(-1, keepdims=True)) * scale
    back = np.swapaxes(slopes, -1, -2)
    return out, lse, slopes @ k, back @ q, np.swapaxes(p, -1, -2) @ g


def both(q, k, v, g, mask=None, **options):
    """All five from the generated code."""
    out, lse = attend(q, k, v, mask, **options)
    delta = (g * out).sum(-1)
    return out, lse, *attend_backward(q, k, v, lse, g, delta, mask, **options)


def arrays(shape, dtype="float32", lead=(2,), seed=0):
    """q, k, v and g for (rows, keys, depth, width)."""
    rows, keys, depth, width = shape
    rng = np.random.default_rng(seed)
    sizes = (rows, depth), (keys, depth), (keys, width), (rows, width)
    return [rng.standard_normal((*lead, *s)).astype(dtype) for s in sizes]


def near(got, want, dtype, allowed=8):
    """As near as rounding of the largest values lets it be."""
    for a, b in zip(got, want, strict=True):
        assert a.shape == b.shape
        assert a.dtype == dtype
        np.testing.assert_array_equal(np.isfinite(a), np.isfinite(b))
        there = np.isfinite(b)
        scale = np.max(np.abs(b[there]), initial=1)
        off = np.max(np.abs(a[there] - b[there]), initial=0)
        assert off <= allowed * UNIT[dtype] * scale


SHAPES = [  # rows, keys, depth, width
    (1, 1, 1, 1),
    (1, 77, 8, 8),
    (COST.attention.few_rows, 3, 2, 7),
    (COST.attention.few_rows + 1, COST.attention.forward_keys + 1, 17, 65),
    (2, 300, 40, 70),
    (33, 65, 17, 16),
    (64, 64, 64, 64),
    (57, COST.attention.forward_keys + 1, 15, 33),
    (130, 2 * COST.attention.forward_keys + 3, 32, 1),
    (29, COST.attention.backward_keys + 30, 128, 100),
    (300, 40, 3, 128),
]


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_values_and_gradients(shape, dtype, causal):
    given = arrays(shape, dtype)
    near(both(*given, causal=causal), reference(*given, causal=causal), dtype)


@pytest.mark.parametrize("target", TARGETS[1:])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_narrower_vectors(target, dtype):
    machine = host_isa(target)
    for shape in SHAPES[1:8]:
        given = arrays(shape, dtype)
        for causal in (False, True):
            got = both(*given, causal=causal, isa=machine)
            near(got, reference(*given, causal=causal), dtype)


def masks(rows, keys, dtype, rng):
    """Masks of every kind, as strides see them."""
    numbers = rng.standard_normal((2, 3, rows, keys)).astype(dtype)
    chosen = rng.random((2, 3, rows, keys)) < 0.6
    chosen[..., 0] = True
    whole = numbers.shape
    yield numbers
    yield chosen
    yield np.broadcast_to(numbers[0, 0], whole)  # one for all heads
    yield np.broadcast_to(chosen[:, :1, :1], whole)  # of keys, as padding is
    yield np.broadcast_to(numbers[..., :1], whole)  # of rows: changes nothing
    yield np.broadcast_to(chosen[..., :1, :1], whole)
    yield np.where(chosen, numbers, -np.inf).astype(dtype)
    yield np.broadcast_to(numbers[:, :, ::2][:, :, :1], whole)


@pytest.mark.parametrize("rows", [3, 37])
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_masks(target, dtype, rows):
    machine = host_isa(target)
    keys = COST.attention.forward_keys + 9
    given = arrays((rows, keys, 6, 5), dtype, (2, 3))
    for mask in masks(rows, keys, dtype, np.random.default_rng(1)):
        for causal in (False, True):
            got = both(*given, mask, causal=causal, isa=machine)
            near(got, reference(*given, mask, causal=causal), dtype)


@pytest.mark.parametrize("rows", [5, 40])
@pytest.mark.parametrize("kind", [bool, np.float32])
def test_rows_that_see_nobody(kind, rows):
    given = arrays((rows, 150, 8, 8))
    mask = np.ones((2, rows, 150), bool)
    mask[0, 3] = mask[1, rows - 1] = False
    if kind is not bool:
        mask = np.where(mask, 0, -np.inf).astype(kind)
    got = both(*given, mask)
    near(got, reference(*given, mask), "float32")
    assert not got[0][0, 3].any()
    assert got[1][1, rows - 1] == -np.inf
    out, lse, *grads = both(*given, mask, zeros=False)  # as softmax has it
    assert np.isnan(out[0, 3]).all()
    assert np.isnan(lse[0, 3])
    assert np.isfinite(out[0, 4]).all()
    assert all(np.isnan(d).any() for d in grads)


@pytest.mark.parametrize("rows", [2, 40])
def test_large_scores(rows):
    """Nothing overflows, whatever comes first."""
    q, k, v, g = arrays((rows, 300, 4, 4), "float64")
    for order in (1, -1):
        moved = k * np.linspace(1, 2000, 300)[::order, None]
        got, want = both(q, moved, v, g), reference(q, moved, v, g)
        assert np.isfinite(got[0]).all()
        np.testing.assert_allclose(got[0], want[0], rtol=1e-9, atol=1e-9)
        np.testing.assert_allclose(got[1], want[1], rtol=1e-12)


@pytest.mark.parametrize("rows", [5, 20])
def test_what_is_not_a_number_is_seen(rows):
    q, k, v, _ = arrays((rows, 200, 4, 4))
    k[0, 150, 0] = np.nan
    q[1, 2, :] = np.inf
    out, lse = attend(q, k, v)
    assert np.isnan(out[0]).all()
    assert np.isnan(lse[0]).all()
    assert np.isnan(out[1, 2]).all()
    assert np.isfinite(out[1, [0, 1, 3, 4]]).all()


def test_scales():
    given = arrays((20, 30, 8, 8))
    for scale in (-0.7, 0.0, 1.0, 3.0):
        got = both(*given, scale=scale)
        near(got, reference(*given, scale=scale), "float32", 32)


def test_operands_where_they_lie():
    """Heads inside rows, rows that overlap, one key head for many: no copies."""
    rng = np.random.default_rng(0)
    joined = rng.standard_normal((2, 50, 3, 4, 8)).astype(np.float32)  # (B, T, 3, H, D)
    q, k, v = (joined[:, :, i].transpose(0, 2, 1, 3) for i in range(3))
    g = rng.standard_normal((2, 50, 4, 8)).astype(np.float32).transpose(0, 2, 1, 3)
    near(both(q, k, v, g, causal=True), reference(q, k, v, g, causal=True), "float32")
    k, v = (np.broadcast_to(x[:, :1], x.shape) for x in (k, v))
    near(both(q, k, v, g), reference(q, k, v, g), "float32")
    deep = [x.reshape(2, 2, 2, 50, 8) for x in map(np.ascontiguousarray, (q, k, v, g))]
    got, want = both(*deep), both(q, k, v, g)
    for a, b in zip(got, want, strict=True):
        np.testing.assert_array_equal(a.reshape(b.shape), b)


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("heads", [1, 5, 40])
def test_threads_change_no_bit(heads, causal):
    """Heads are shared out whole, or in blocks of rows and of keys."""
    given = arrays((150, 300, 16, 8), lead=(heads,))
    before = weft.get_num_threads()
    found = []
    try:
        for threads in (1, 2, 3):
            weft.set_num_threads(threads)
            found.append(both(*given, causal=causal, threads=threads))
    finally:
        weft.set_num_threads(before)
    first, *others = found
    for other in others:
        for a, b in zip(first, other, strict=True):
            assert a.tobytes() == b.tobytes()


def test_bad_arrays_are_refused():
    q, k, v, g = arrays((5, 6, 4, 4))
    with pytest.raises(ShapeError, match=r"expected k of shape \(2, 6, 4\)"):
        attend(q, k[..., :3].copy(), v)
    with pytest.raises(ShapeError, match="expected mask of shape"):
        attend(q, k, v, np.ones((2, 5, 5), bool))
    with pytest.raises(DTypeError, match="one dtype"):
        attend(q, k.astype(np.float64), v)
    with pytest.raises(ArgumentError, match="contiguous"):
        attend(q, np.swapaxes(np.swapaxes(k, -1, -2).copy(), -1, -2), v)
    with pytest.raises(ShapeError, match="expected delta of shape"):
        attend_backward(q, k, v, q[..., 0], g, q[0, ..., 0])


@pytest.mark.parametrize("target", TARGETS)
def test_nothing_is_touched_beyond_the_arrays(target):
    code = compiled("float32", host_isa(target))
    for shape in SHAPES[1:8]:
        q, k, v, g = arrays(shape)
        rows, keys, _, _ = shape
        made = {"o": g, "lse": g[..., 0], "dq": q, "dk": k, "dv": v}
        masks = np.ones((2, rows, keys), bool), np.zeros((2, rows, keys), np.float32)
        for mask in masks:
            given = {"q": q, "k": k, "v": v, "g": g, "delta": g[..., 0], "mask": mask}
            pairs = {n: at_the_end_of_a_page(a) for n, a in (given | made).items()}
            guarded = {name: pair[0] for name, pair in pairs.items()}
            options = Options(causal=False, scale=0.5, zeros=True)
            for kind in (plan.forward, plan.backward):
                code.run(kind(guarded, options, code.tile, 1), 1)
            want = attend(q, k, v, mask, scale=0.5, isa=host_isa(target))
            np.testing.assert_array_equal(guarded["o"], want[0])
            np.testing.assert_array_equal(guarded["lse"], want[1])
            assert np.isfinite(guarded["dq"]).all()


@pytest.mark.parametrize("part", UNITS)
def test_code_for_other_machines_compiles(part):
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    target = Isa("aarch64-unknown-linux-gnu", "generic", "", 128)
    module = new_module("attention", target)
    emit_attention(module, "float32", target, part)
    parsed = llvm.parse_assembly(str(module))
    parsed.verify()
    machine = llvm.Target.from_triple(target.triple).create_target_machine(opt=3)
    assert "fmla" in machine.emit_assembly(parsed)


# -- programs


def attended(q, k, v, *mask, **options):
    """Output and gradients of a program."""
    out = F.scaled_dot_product_attention(q, k, v, *mask, **options)
    return out.detach(), *weft.autograd.grad((out * out).sum(), (q, k, v))


def leaves(*shapes, dtype=weft.float64):
    weft.manual_seed(0)
    return [weft.randn(*s, dtype=dtype, requires_grad=True) for s in shapes]


def routines(fn):
    return [s for s in fn.explain().programs[0].steps if isinstance(s, Attention)]


@pytest.mark.parametrize("causal", [False, True])
def test_compiled_is_eager(causal):
    q, k, v = leaves((2, 3, 20, 8), (2, 3, 31, 8), (2, 3, 31, 5))
    fn = weft.compile(lambda q, k, v: attended(q, k, v, is_causal=causal))
    for got, want in zip(fn(q, k, v), attended(q, k, v, is_causal=causal), strict=True):
        np.testing.assert_allclose(got.numpy(), want.numpy(), rtol=1e-10, atol=1e-12)


def test_compiled_masks_and_groups():
    q, k, v = leaves((2, 6, 9, 8), (2, 3, 11, 8), (2, 3, 11, 8))
    weft.manual_seed(1)
    pad = weft.rand(2, 1, 1, 11) < 0.7
    for mask in (pad, weft.randn(9, 11, dtype=weft.float64)):

        def run(q, k, v, mask=mask):
            return attended(q, k, v, mask, enable_gqa=True)

        for got, want in zip(weft.compile(run)(q, k, v), run(q, k, v), strict=True):
            np.testing.assert_allclose(
                got.numpy(), want.numpy(), rtol=1e-10, atol=1e-12
            )
        repeated = [x.repeat_interleave(2, dim=1) for x in (k, v)]
        plain = F.scaled_dot_product_attention(q, *repeated, attn_mask=mask)
        np.testing.assert_allclose(
            run(q, k, v)[0].numpy(), plain.detach().numpy(), rtol=1e-12, atol=1e-14
        )


def test_empty_sizes():
    for rows, keys in ((0, 3), (3, 0), (0, 0)):
        q, k, v = leaves((2, rows, 4), (2, keys, 4), (2, keys, 5))
        got, want = weft.compile(attended)(q, k, v), attended(q, k, v)
        for a, b in zip(got, want, strict=True):
            np.testing.assert_array_equal(a.numpy(), b.numpy())
        assert not want[0].numpy().any()


def test_derivatives_of_every_order():
    q, k, v = leaves((2, 3, 2), (2, 4, 2), (2, 4, 3))
    mask = weft.randn(3, 4, dtype=weft.float64, requires_grad=True)

    def fn(q, k, v, mask):
        return F.scaled_dot_product_attention(q, k, v, mask, scale=0.7)

    assert gradcheck(fn, (q, k, v, mask))
    assert gradgradcheck(fn, (q, k, v, mask))
    causal = lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=True)
    assert gradgradcheck(causal, (q, k, v))


def test_forward_mode_and_batches():
    q, k, v = (x.detach() for x in leaves((5, 3, 2), (5, 4, 2), (5, 4, 3)))
    ts = (x.detach() for x in leaves((5, 3, 2), (5, 4, 2), (5, 4, 3)))
    fn = lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=True)
    one = weft.func.vmap(fn, (0, 0, None))(q, k, v[0])
    want = weft.stack([fn(a, b, v[0]) for a, b in zip(q, k, strict=True)])
    np.testing.assert_allclose(one.numpy(), want.numpy(), rtol=1e-12)
    _, moved = weft.func.jvp(fn, (q, k, v), tuple(ts))
    assert moved.shape == (5, 3, 3)


def test_a_gpt_step_is_the_eager_one():
    def make():
        weft.manual_seed(0)
        net = weft.models.GPT(vocab=17, context=24, width=32, heads=4, layers=2)
        optimizer = optim.AdamW(net.parameters(), lr=1e-2)

        def step(x, y):
            optimizer.zero_grad()
            loss = F.cross_entropy(net(x).flatten(0, 1), y.flatten())
            loss.backward()
            optimizer.step()
            return loss

        return step

    x, y = weft.randint(0, 17, (3, 24)), weft.randint(0, 17, (3, 24))
    eager, compiled = make(), weft.compile(make())
    for _ in range(3):
        assert compiled(x, y).item() == pytest.approx(eager(x, y).item(), rel=1e-5)
    found = routines(compiled)
    assert len(found) == 4  # two layers, forward and backward
    inputs = [i for routine in found for i in routine.inputs]
    assert not [i for i in inputs if i.op.name == "copy"]


def test_open_sizes():
    fn = weft.compile(lambda q: F.scaled_dot_product_attention(q, q, q, is_causal=True))
    for rows in (5, 9, 140):
        q = weft.randn(2, rows, 8)
        want = F.scaled_dot_product_attention(q, q, q, is_causal=True)
        np.testing.assert_allclose(fn(q).numpy(), want.numpy(), rtol=1e-4, atol=1e-5)
    assert len(fn.compiles) == 2


def test_multihead_attention():
    weft.manual_seed(0)
    attention = nn.MultiheadAttention(12, 3, batch_first=True).requires_grad_(False)
    x, y = weft.randn(2, 7, 12), weft.randn(2, 9, 12)
    left_out = weft.rand(2, 9) < 0.3
    shown, weights = attention(x, y, y, left_out)
    plain, none = attention(x, y, y, left_out, need_weights=False)
    assert none is None
    assert weights is not None
    np.testing.assert_allclose(plain.numpy(), shown.numpy(), rtol=1e-5, atol=1e-6)
    nobody = weft.ones(2, 9, dtype=weft.bool)
    for needed in (True, False):
        out, _ = attention(x, y, y, nobody, need_weights=needed)
        assert np.isnan(out.numpy()).all()


# -- attention that was written out


def names(fn, *args):
    return [n.op.name for n in pipeline.run(capture(fn, *args).graph) if n.inputs]


def causal_chosen(s):
    seen = weft.ones(s.shape[-2], s.shape[-1], dtype=weft.bool).tril()
    return s.masked_fill(~seen, -math.inf)


def causal_added(s):
    return s + weft.full((s.shape[-2], s.shape[-1]), -math.inf).triu(1)


WRITTEN = {
    "plain": lambda q, k, v: (q @ k.mT).softmax(-1) @ v,
    "scaled": lambda q, k, v: (q @ k.mT / math.sqrt(q.shape[-1])).softmax(-1) @ v,
    "before": lambda q, k, v: ((q * 0.3) @ k.mT).softmax(-1) @ v,
    "chosen": lambda q, k, v: causal_chosen(0.25 * (q @ k.mT)).softmax(-1) @ v,
    "added": lambda q, k, v: causal_added(q @ k.mT * 0.25).softmax(-1) @ v,
    "other": lambda q, k, v: (q @ k.mT + q[..., :1].tanh()).softmax(-1) @ v,
}


@pytest.mark.parametrize("name", WRITTEN)
def test_written_out(name):
    fn = WRITTEN[name]
    weft.manual_seed(0)
    q, k, v = weft.randn(2, 3, 40, 8), weft.randn(2, 3, 50, 8), weft.randn(2, 3, 50, 4)
    got = weft.compile(fn)(q, k, v)
    np.testing.assert_allclose(got.numpy(), fn(q, k, v).numpy(), rtol=1e-4, atol=1e-5)
    found = names(fn, q, k, v)
    assert "attention" in found
    assert "exp" not in found
    node = next(
        n for n in pipeline.run(capture(fn, q, k, v).graph) if n.op.name == "attention"
    )
    assert node.params["causal"] == (name in ("chosen", "added"))


KEPT = {
    "weights": lambda q, k, v: ((p := (q @ k.mT).softmax(-1)) @ v, p),
    "columns": lambda q, k, v: (q @ k.mT).softmax(-2) @ v,
    "no product": lambda q, k, v: (q - k).softmax(-1) @ v,
    "scores": lambda q, k, v: ((s := q @ k.mT).softmax(-1) @ v, s + 1),
}  # fmt: skip


@pytest.mark.parametrize("name", KEPT)
def test_what_is_something_else_stays(name):
    q = weft.randn(3, 5, 5)
    assert "attention" not in names(KEPT[name], q, q, q)


def test_strict_mode_leaves_it():
    q = weft.randn(3, 5, 5)
    weft.config.strict_ieee = True
    try:
        assert "attention" not in names(WRITTEN["plain"], q, q, q)
    finally:
        weft.config.strict_ieee = False


def test_which_operands_are_copied():
    def program(x):
        q, k, v = (
            part.unflatten(-1, (2, -1)).transpose(1, 2) for part in x.chunk(3, -1)
        )
        return (
            q,
            k,
            v.expand(3, *v.shape),
            q.mT,
            x[..., ::2],
            x.transpose(0, 1).flatten(1),
        )

    outs = capture(program, weft.ones(2, 4, 12)).graph.outputs
    assert [is_apart(n) for n in outs] == [False] * 3 + [True] * 3
