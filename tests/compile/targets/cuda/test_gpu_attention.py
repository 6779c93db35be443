"""Attention by tensor cores, beside the operator's formulas in float64."""

import itertools

import numpy as np
import pytest
from assembling import assembles_for_warpgroups
from simulated_gpu import simulated_gpu

import weft
from weft import nn
from weft.compile.targets.cuda import warpgroup_attention
from weft.compile.targets.cuda.attention import DEPTHS
from weft.compile.targets.cuda.attention_call import Attention
from weft.ops.attention import attention

F = nn.functional
ROUNDING = {weft.bfloat16: 8e-3, weft.float16: 1e-3}
# leading sizes, queries, keys, features, causal: parts of tiles, and several
SHAPES = [
    ((2, 3), 130, 70, 64, False),
    ((2,), 65, 200, 40, True),
    ((1, 2), 140, 140, 128, True),
    ((), 1, 129, 8, False),
    ((2, 1, 2), 200, 33, 72, True),
]


def outputs(q, k, v, g, causal):
    out = F.scaled_dot_product_attention(q, k, v, is_causal=causal)
    return out, *weft.autograd.grad(out, [q, k, v], g)


def given(arrays, dtype, device):
    tensors = [weft.tensor(a).to(dtype).to(device) for a in arrays]
    return [x.requires_grad_() for x in tensors[:3]] + tensors[3:]


def far(found, want):
    want = want.detach().numpy()
    return np.abs(found.detach().cpu().double().numpy() - want).max() / abs(want).max()


def calls(program):
    return [s for s in program.latest.lowered.steps if isinstance(s, Attention)]


@pytest.mark.parametrize("dtype", ROUNDING)
@pytest.mark.parametrize("shape", SHAPES)
def test_attention_and_its_gradients(gpu, rng, shape, dtype):
    lead, m, n, depth, causal = shape
    sizes = [(*lead, rows, depth) for rows in (m, n, n, m)]
    arrays = [rng.standard_normal(size) for size in sizes]
    exact = [x.detach().double() for x in given(arrays, dtype, "cpu")]
    want = outputs(*[x.requires_grad_() for x in exact], causal)
    program = weft.compile(lambda *args: outputs(*args, causal))
    for run in (program, program.fn):
        for one, right in zip(run(*given(arrays, dtype, gpu)), want, strict=True):
            assert one.dtype is dtype
            assert far(one, right) < ROUNDING[dtype]
    assert len(calls(program)) == 2


def test_operands_are_read_where_they_are(gpu, rng):
    """Queries, keys and values are cut out of one product, as transformers do it."""
    heads, width = 2, 16
    x = weft.tensor(rng.standard_normal((3, 40, 3 * heads * width))).bfloat16()

    def attend(x):
        parts = x.reshape(3, 40, 3, heads, width).permute(2, 0, 3, 1, 4)
        return F.scaled_dot_product_attention(*parts.unbind(0), is_causal=True)

    program = weft.compile(attend)
    found = program(x.to(gpu))
    assert far(found, attend(x.double())) < ROUNDING[weft.bfloat16]
    (call,) = calls(program)
    assert len({operand.base for operand in call.operands}) == 1


@pytest.mark.parametrize("which", [0, 1, 2])
def test_gradients_that_nobody_reads_are_not_stored(gpu, rng, which):
    arrays = [rng.standard_normal((2, 20, 16)) for _ in range(4)]

    def fn(*args):
        out = F.scaled_dot_product_attention(*args[:3])
        return weft.autograd.grad(out, [args[which]], args[3])[0]

    exact = [x.detach().double() for x in given(arrays, weft.float16, "cpu")]
    want = fn(*[x.requires_grad_() for x in exact])
    program = weft.compile(fn)
    found = program(*given(arrays, weft.float16, gpu))
    assert far(found, want) < ROUNDING[weft.float16]
    assert len(calls(program)) == 2


@pytest.mark.parametrize(
    "odd", ["mask", "features", "wide", "scale", "values", "empty"]
)
def test_what_tensor_cores_do_not_compute_is_composed(gpu, rng, odd):
    depth = {"features": 10, "wide": 136}.get(odd, 16)
    width = 8 if odd == "values" else depth
    rows = 0 if odd == "empty" else 9
    shapes = [(2, rows, depth), (2, 7, depth), (2, 7, width)]
    q, k, v = (weft.tensor(rng.standard_normal(s)).bfloat16() for s in shapes)
    mask = weft.tensor(rng.random((9, 7)) > 0.3) if odd == "mask" else None
    scale = -0.5 if odd == "scale" else 0.3

    def attend(q, k, v, *mask):
        return attention(q, k, v, *mask, scale=scale)

    args = [q, k, v, *([] if mask is None else [mask])]
    found = weft.compile(attend)(*[x.to(gpu) for x in args])
    want = attend(*[x if x.dtype is weft.bool else x.double() for x in args])
    assert found.shape == want.shape
    if rows:
        assert far(found, want) < ROUNDING[weft.bfloat16]


def test_a_row_of_infinities_is_not_a_number(gpu):
    q = weft.full((1, 3, 8), float("inf"), dtype=weft.float16)
    k = weft.ones(1, 3, 8, dtype=weft.float16)
    found = weft.compile(F.scaled_dot_product_attention)(
        *[x.to(gpu) for x in (q, k, k)]
    )
    assert found.isnan().all()


def test_rows_are_scattered_by_threads_that_look_ahead(gpu, rng):
    """Updates come in their order: the sums have the bits of the host's."""
    table = nn.Embedding(50, 96).to(gpu)
    rows = rng.integers(0, 50, (4, 70))
    factors = rng.standard_normal((4, 70, 96)).astype(np.float32)

    def step(rows, factors):
        return weft.autograd.grad((table(rows) * factors).sum(), [table.weight])[0]

    program = weft.compile(step)
    found = program(weft.tensor(rows).to(gpu), weft.tensor(factors).to(gpu))
    want = np.zeros((50, 96), np.float32)
    np.add.at(want, rows, factors)
    np.testing.assert_array_equal(found.cpu().numpy(), want)
    texts = map(str, program.latest.lowered.kernels.values())
    assert any("looking 32 ahead" in text for text in texts)
    bad = weft.tensor(np.where(rows == rows[0, 0], 50, rows)).to(gpu)
    with pytest.raises(IndexError, match="50"):
        program(bad, weft.tensor(factors).to(gpu))


def test_registers_of_warpgroups_are_those_of_the_launch():
    """More than the launch has would let a block wait for ever."""
    for groups, (copying, multiplying) in warpgroup_attention.REGISTERS.items():
        threads = (groups + 1) * 128
        each = 65536 // threads // 8 * 8
        assert 128 * (copying + groups * multiplying) <= each * threads


def test_the_assembler_takes_every_form(tmp_path):
    device = simulated_gpu()
    shared = device.target.shared
    for kind, depth in itertools.product(warpgroup_attention.OWN, DEPTHS):
        for dtype, causal in (("float16", False), ("bfloat16", True)):
            form = warpgroup_attention.Form(kind, dtype, depth, causal)
            assert form.block_memory <= 227 << 10  # of a multiprocessor
            assert form.shape.stages % 2 == 0  # numbers go with every other tile
            shared.attention(form)
    assembles_for_warpgroups(device.pool.runtime.codes, tmp_path)


def test_older_gpus_multiply_by_warps(rng):
    """Without warpgroups, attention is computed by single warps' tensor cores."""
    gpu = weft.register_device(simulated_gpu(capability=(8, 0)))
    try:
        q, k, v = (weft.tensor(rng.standard_normal((2, 40, 16))).half() for _ in "qkv")
        found = F.scaled_dot_product_attention(*[x.to(gpu) for x in (q, k, v)])
        want = F.scaled_dot_product_attention(*[x.double() for x in (q, k, v)])
        assert far(found, want) < ROUNDING[weft.float16]
        forms = [form.name for form in gpu.target.shared._attention]
        assert forms == ["attention_forward_float16_64"]
    finally:
        weft.unregister_device("gpu:0")
