"""Groups that are alike have one kernel, wherever in a value they begin to read."""

import numpy as np
import pytest
from by_loops import by_loops, compiled, run
from hypothesis import given, settings
from hypothesis import strategies as st

import weft
from weft import nn, optim
from weft.compile.lower.deduplicate import Likeness, Window
from weft.compile.program.steps import KernelLaunch
from weft.core.tensor import Tensor

RNG = np.random.default_rng(5)


def floats(*shape):
    """Whole numbers, which add up to the same in any order."""
    return Tensor(RNG.integers(-3, 4, shape).astype(np.float32))


def uses(native):
    return [s for s in native.lowered.steps if isinstance(s, KernelLaunch)]


def check(fn, *args):
    """Native, interpreted and eager results agree; the program."""
    native = compiled(fn, *args)
    want = fn(*args).numpy()
    np.testing.assert_array_equal(run(native, *args)[0], want)
    np.testing.assert_array_equal(by_loops(native, *args)[0], want)
    return native


def apart(*parts):
    """The parts added up by as many kernels: sums in between end a group."""
    total = parts[0].sum()
    for part in parts[1:]:
        total = (part * total).sum()
    return total


def unrolled(x):
    """A loop over steps; nothing joins a running sum."""
    h = x[:, 0].cumsum(-1)
    for t in range(1, 6):
        h = (h + x[:, t].clamp(min=0)).cumsum(-1)
    return h


def test_an_unrolled_loop_has_one_kernel_for_its_steps():
    native = check(unrolled, floats(4, 6, 5))
    moved = [use for use in uses(native) if use.windowed]
    assert len({use.kernel.name for use in moved}) == 1
    gaps = [use.offsets[use.owners.index(use.windowed[0])] for use in moved]
    assert gaps == [4 * 5 * t for t in range(1, 6)]


@pytest.mark.parametrize(
    "part",
    [
        lambda x, t: x[t : t + 2],
        lambda x, t: x[:, t : t + 2],
        lambda x, t: x[:, :, t],
        lambda x, t: x[t, :, 1:],
        lambda x, t: x[:, t].T,
        lambda x, t: x[t + 1 :: 2, t:],
        lambda x, t: x.reshape(25, 5)[5 * t : 5 * t + 5],
        lambda x, t: x.permute(1, 0, 2).reshape(25, 5)[5 * t : 5 * t + 5],
        lambda x, t: x.flip(0)[t : t + 2],
        lambda x, t: x[t : t + 2] - x[t + 1 : t + 3, :1],
    ],
)
def test_parts_of_a_value_are_read_where_they_are(part):
    native = check(lambda x: apart(*[part(x, t) for t in range(3)]), floats(5, 5, 5))
    assert not native.lowered.refused


def test_equal_layers_have_one_kernel():
    model = nn.Sequential(*[nn.Sequential(nn.Linear(6, 6), nn.Tanh(), nn.LayerNorm(6))
                            for _ in range(4)])  # fmt: skip
    step = weft.compile(lambda x: model(x).sum())
    x = floats(3, 6)
    np.testing.assert_allclose(step(x).item(), model(x).sum().item(), atol=1e-5)
    native = step.latest.program
    epilogues = [
        s.epilogue for s in native.lowered.steps if getattr(s, "epilogue", None)
    ]
    assert len(epilogues) == 4
    assert len({use.kernel.name for use in epilogues}) == 1


def test_other_numbers_dtypes_and_shapes_are_not_alike():
    def fn(x, y):
        return apart(x * 2, x * 3, x.exp(), y * 2, (x > 0) * 2, x[1:] * 2)

    native = compiled(fn, floats(4, 6), floats(6, 5))
    assert len(native.lowered.kernels) == len(uses(native)) > 3
    x, y = floats(4, 6), floats(6, 5)
    np.testing.assert_allclose(run(native, x, y)[0], fn(x, y).numpy(), rtol=1e-5)


def test_open_sizes_have_windows_too():
    native = compiled(unrolled, floats(3, 6, 4), dynamic={"x": {0: "B"}})
    assert len({use.kernel.name for use in uses(native) if use.windowed}) == 1
    for rows in (3, 7):
        x = floats(rows, 6, 4)
        np.testing.assert_array_equal(run(native, x)[0], unrolled(x).numpy())


def test_state_that_is_read_in_part_is_not_written_over():
    w = Tensor(np.arange(12, dtype=np.float32).reshape(3, 4))
    w.requires_grad_()
    optimizer = optim.SGD([w], lr=1.0)

    @weft.compile
    def step(x):
        optimizer.zero_grad()
        (w[1:] * w[:2] * x).sum().backward()
        optimizer.step()
        return w[1:] + 0

    x = floats(2, 4)
    before = w.detach().numpy().astype(np.float64)
    for _ in range(2):
        step(x)
        grad = np.zeros((3, 4))
        grad[1:] += before[:2] * x.numpy()
        grad[:2] += before[1:] * x.numpy()
        before = before - grad
        np.testing.assert_allclose(w.detach().numpy(), before, rtol=1e-5)


def test_a_window_ends_with_what_is_read():
    native = compiled(lambda x: x[:, 2] + 1, floats(8, 4, 16))
    (use,) = uses(native)
    (like,) = [Likeness(use.group)]
    assert list(like.windows.values()) == [Window((0, 2, 0), 29, 2)]
    (x,) = [b for b, n in zip(use.kernel.buffers, use.owners, strict=True)
            if n in use.windowed]  # fmt: skip
    assert x.shape == (29, 16)
    assert use.offsets[use.owners.index(use.windowed[0])] == 2 * 16 * 4


@given(
    shape=st.lists(st.integers(1, 5), min_size=1, max_size=3),
    data=st.data(),
)
@settings(max_examples=40, deadline=None)
def test_slices_give_what_eager_ones_do(shape, data):
    def bounds(n):
        first = data.draw(st.integers(0, n - 1))
        return slice(first, data.draw(st.integers(first + 1, n)))

    first, second = (tuple(bounds(n) for n in shape) for _ in "ab")
    fn = lambda x: apart(x[first] * 2, x[second] * 2)
    check(fn, floats(*shape))
