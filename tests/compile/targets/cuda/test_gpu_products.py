"""Products in half precision: layouts, batches, edges; which kernel computes them."""

import itertools

import numpy as np
import pytest
from assembling import assembles_for_warpgroups
from simulated_gpu import simulated_gpu

import weft
from weft.compile.targets.cuda import ptx, warpgroup_gemm
from weft.compile.targets.cuda.code import SharedCode
from weft.compile.targets.cuda.product_choice import ProductChoices
from weft.compile.targets.cuda.warpgroup_gemm import Form

FORMS = [
    Form(dtype, left, right, width)
    for dtype, left, right, width in itertools.product(
        ("bfloat16", "float16"), (False, True), (False, True), warpgroup_gemm.STAGES
    )
]
SHAPES = [  # of A and B
    ((128, 64), (64, 256)), ((72, 40), (40, 8)), ((1, 136), (136, 24)),
    ((3, 136, 200), (3, 200, 264)), ((2, 3, 16, 24), (2, 3, 24, 8)),
    ((5, 16, 8), (1, 8, 16)),
]  # fmt: skip


def stored(x, by_columns):
    """The same numbers, with columns contiguous if they are to be."""
    return x.transpose(-1, -2).contiguous().transpose(-1, -2) if by_columns else x


def launched(gpu):
    return set(gpu.target.shared._warpgroup_products)


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
@pytest.mark.parametrize("sides", list(itertools.product((False, True), repeat=2)))
@pytest.mark.parametrize("shapes", SHAPES)
def test_half_precision_products(gpu, rng, dtype, sides, shapes):
    given = [
        weft.tensor(rng.standard_normal(s, np.float32)).to(getattr(weft, dtype))
        for s in shapes
    ]
    want = np.matmul(*[x.double().numpy() for x in given])
    operands = [
        stored(x.to(gpu), by_columns)
        for x, by_columns in zip(given, sides, strict=True)
    ]
    rounding = {"bfloat16": 2.0**-8, "float16": 2.0**-11}[dtype]
    for product in (weft.matmul, weft.compile(lambda a, b: a @ b)):
        found = product(*operands).double().cpu().numpy()
        scale = np.abs(want).max()
        np.testing.assert_allclose(found, want, rtol=rounding, atol=1e-5 * scale)


def test_warpgroups_compute_what_the_copy_engine_can_read():
    gpu = weft.register_device(simulated_gpu())
    try:
        ones = {n: weft.ones(n, n, device=gpu).bfloat16() for n in (20, 24)}
        assert (ones[20] @ ones[20])[0, 0] == 20  # rows begin at 40 bytes
        assert not launched(gpu)
        assert (ones[24] @ ones[24])[0, 0] == 24
        assert launched(gpu) == {Form("bfloat16", False, False, 256)}
        assert (ones[24].float() @ ones[24].float())[0, 0] == 24
        assert len(launched(gpu)) == 1
    finally:
        weft.unregister_device("gpu:0")


def test_older_and_newer_gpus_have_no_warpgroup_kernels():
    assert ptx.warpgroup_isa((8, 0)) is None
    assert ptx.warpgroup_isa((10, 0)) is None
    assert ptx.warpgroup_isa((9, 0)).cpu == "sm_90a"


class Clock:
    """A runtime whose work takes the seconds that it returns."""

    title, recording = "a clock", False

    def seconds(self, run):
        return run()


def test_the_fastest_candidate_is_chosen_and_kept():
    choices, runs = ProductChoices(Clock(), "chosen"), []

    def taking(seconds):
        return lambda: runs.append(seconds) or seconds

    candidates = {"slow": taking(2.0), "fast": taking(1.0)}
    assert choices.of("some product", candidates) == "fast"
    count = len(runs)
    assert choices.of("some product", candidates) == "fast"
    again = ProductChoices(Clock(), "chosen")
    assert again.of("some product", candidates) == "fast"
    assert len(runs) == count
    more = {**candidates, "faster": taking(0.5)}  # which was not there before
    assert again.of("some product", more) == "faster"


def test_nothing_is_timed_while_launches_are_recorded():
    choices = ProductChoices(Clock(), "recorded")
    choices.runtime.recording = True
    candidates = {"first": lambda: pytest.fail("it ran"), "second": lambda: 0.0}
    assert choices.of("another product", candidates) == "first"


def test_the_assembler_takes_every_form(tmp_path):
    device = simulated_gpu()
    shared: SharedCode = device.target.shared
    for form in FORMS:
        assert form.block_memory <= 227 << 10  # of a multiprocessor
        shared.warpgroup_product(form)
    codes = device.pool.runtime.codes
    assert len(codes) == len(FORMS)
    assembles_for_warpgroups(codes, tmp_path)
