"""Results that pass caches by, because they are larger."""

import numpy as np
import pytest
from by_loops import kernels_of

import weft
from weft import graph as G
from weft.compile.emit.isa import new_module
from weft.compile.targets.cpu.cost_model import COST
from weft.compile.targets.cpu.kernel import emit_kernel
from weft.compile.targets.cpu.object_code import assembly, host_isa

SHAPE = 2900, 2897  # rows begin anywhere in a line
LEVELS = [None, "avx2", "baseline"]
PROGRAMS = {
    "flat": lambda x: x * 2 + 1,
    "rows": lambda x: x - x.amax(1, keepdim=True),
    "columns": lambda x: x[:, ::2].repeat_interleave(2, 1),
    "turned": lambda x: x.T.contiguous(),
    "doubles": lambda x: x[:1500].double() * 0.5,
    "two": lambda x: (x.abs(), -x),
    "copied": lambda x: x[:, 1:].clone(),
    "joined": lambda x: weft.cat([x[:, 5:], x[:, :5]], 1),
    "moved": lambda x: _whole(x).reshape(64, 32, 16, 256).transpose(1, 2).contiguous(),
    "squares": lambda x: _whole(x).T.contiguous(),
    "squares, doubled": lambda x: _whole(x).T * 2,
    "looked up": lambda x: x[(weft.arange(2900) * 7) % 2900 - 2900],
}
COPIES = ("copied", "moved", "squares", "looked up")


def _whole(x):
    """As many rows and columns as whole squares have, and many enough."""
    return x.reshape(-1)[: 1 << 23].reshape(2048, 4096)


def x86(target):
    return target.triple.startswith(("x86", "i686"))


def text_of(function, *examples, level=None):
    """The assembly of a program's kernels."""
    target = host_isa(level)
    module = new_module("streams", target)
    native = kernels_of(G.capture(function, *examples).graph, target)
    for kernel in native.lowered.kernels.values():
        emit_kernel(module, kernel, target)
    return assembly(module, target)


@pytest.fixture(scope="module")
def large():
    values = np.random.default_rng(0).normal(size=SHAPE).astype(np.float32)
    assert values.nbytes >= COST.streaming.large
    return weft.tensor(values)


@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.parametrize("level", LEVELS)
def test_results_are_as_before(large, name, level):
    program = PROGRAMS[name]
    native = kernels_of(G.capture(program, large).graph, host_isa(level))
    wanted = program(large)
    wanted = wanted if isinstance(wanted, tuple) else (wanted,)
    found, _ = native.run_named([large.numpy()], {})
    for got, want in zip(found, wanted, strict=True):
        assert np.array_equal(got, want.numpy())


@pytest.mark.parametrize("level", LEVELS)
def test_they_pass_caches_by(large, level):
    if not x86(host_isa(level)):
        pytest.skip("other machines have no such stores here")
    for name in ("flat", "rows", "turned", "squares, doubled", *COPIES):
        text = text_of(PROGRAMS[name], large, level=level)
        assert "movnt" in text, name
        assert "sfence" in text, name


def test_copies_pass_by_from_half_that_size_on():
    if not x86(host_isa(None)):
        pytest.skip("other machines have no such stores here")
    x = weft.ones(COST.streaming.copied // 4096, 1025)
    assert "movnt" in text_of(lambda x: x[:, 1:].clone(), x)
    assert "movnt" not in text_of(lambda x: x[:, 1:] * 2, x)
    assert "movnt" not in text_of(lambda x: x[1:, 1:].clone(), x)


def test_small_results_stay_in_caches():
    for name, program in PROGRAMS.items():
        if name not in ("moved", "squares", "squares, doubled", "looked up"):
            assert "movnt" not in text_of(program, weft.ones(3000, 20))


def test_what_is_read_beside_squares_keeps_them_in_order(large):
    square = weft.ones(2900, 2900)
    assert "movnt" not in text_of(lambda x, y: x.T + y, square, square)
