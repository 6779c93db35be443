"""Sums of columns apart from sums of rows, on targets that cannot do both at once."""

import numpy as np
import pytest
from simulated_gpu import simulated_gpu

import weft
from weft import nn
from weft.compile.program.steps import KernelLaunch
from weft.core.lowering import Reduction

F = nn.functional


@pytest.fixture(scope="module")
def gpu():
    yield weft.register_device(simulated_gpu())
    weft.unregister_device("gpu:0")


def norm_and_gradients(x, weight, bias, slope):
    out = F.layer_norm(x @ x.T, (x.shape[0],), weight, bias) @ x
    return weft.autograd.grad(out, [x, weight, bias], slope)


@pytest.mark.parametrize("dtype", [weft.float32, weft.bfloat16])
def test_the_gradients_of_a_norm_store_no_terms(gpu, rng, dtype):
    size = 96
    shapes = (size, 8), (size,), (size,), (size, 8)
    data = [weft.tensor(rng.standard_normal(s)).to(dtype) for s in shapes]
    given = [t.to(gpu).requires_grad_() for t in data[:3]] + [data[3].to(gpu)]
    exact = [t.double().requires_grad_() for t in data[:3]] + [data[3].double()]
    program = weft.compile(norm_and_gradients)
    found = program(*given)
    want = norm_and_gradients(*exact)
    rounding = {weft.float32: 1e-5, weft.bfloat16: 3e-2}[dtype]
    for one, right in zip(found, want, strict=True):
        right = right.detach().numpy()
        error = np.abs(one.detach().cpu().double().numpy() - right).max()
        assert error < rounding * np.abs(right).max()
    steps = program.latest.lowered.steps
    summing = [
        step for step in steps
        if isinstance(step, KernelLaunch)
        and any(isinstance(n.op.lower, Reduction) and n.role.is_gradient
                for n in step.group.nodes)
    ]  # fmt: skip
    whole = [n for step in summing for n in step.made if n.shape == (size, size)]
    assert len(whole) <= 1  # the gradient of the product, and nothing beside it


def test_sums_that_depend_on_one_another_stay_as_they_are(gpu, rng):
    """A sum of rows that needs the sum of columns cannot come before it."""

    def fn(x):
        y = x * 2
        y = y - y.sum(0)
        return (y * y).sum(1)

    x = weft.tensor(rng.standard_normal((64, 64))).to(gpu).requires_grad_()
    program = weft.compile(lambda x: weft.autograd.grad(fn(x).sum(), [x])[0])
    exact = x.detach().cpu().double().requires_grad_()
    want = weft.autograd.grad(fn(exact).sum(), [exact])[0]
    found = program(x).cpu().double()
    assert (found - want).abs().max() < 1e-4 * want.abs().max()


def test_a_transposed_copy_moves_vectors(gpu, rng):
    x = weft.tensor(rng.standard_normal((2, 3, 5, 64))).bfloat16()

    def merged(x):
        return x.transpose(1, 2).reshape(10, 192)

    program = weft.compile(merged)
    assert weft.equal(program(x.to(gpu)).cpu(), merged(x))
    (kernel,) = program.explain().program.kernels
    assert "8 at once" in kernel.loops
