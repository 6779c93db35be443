"""In-place changes: memory, views, and the gradients that follow."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import weft

VIEWS: dict[str, Callable[[Any], Any]] = {
    "row": lambda x: x[1],
    "column": lambda x: x[:, 2],
    "slice": lambda x: x[1:, ::2],
    "transpose": lambda x: x.t(),
    "flat": lambda x: x.view(-1),
    "cut": lambda x: x.view(-1)[3:9],
    "narrow": lambda x: x.narrow(1, 1, 2),
    "select": lambda x: x.select(0, 2),
    "unsqueeze": lambda x: x.unsqueeze(1),
    "movedim": lambda x: x.movedim(0, 1)[1],
    "unbind": lambda x: x.unbind(1)[3],
    "split": lambda x: x.split([1, 2])[1],
    "chunk": lambda x: x.chunk(2, 1)[0],
    "unflatten": lambda x: x.unflatten(1, (2, 2))[:, 1],
    "diagonal": lambda x: x.diagonal(1),
    "view of a view": lambda x: x.t()[1:3].t()[:, 0],
    "detach": lambda x: x.detach()[0],
    "itself": lambda x: x[...],
}
WRITES: dict[str, Callable[[Any, Any], Any]] = {
    "mul_": lambda v, w: v.mul_(w),
    "add_": lambda v, w: v.add_(w, alpha=2),
    "copy_": lambda v, w: v.copy_(w * 3),
    "exp_": lambda v, w: v.exp_(),
    "setitem": lambda v, w: v.__setitem__(..., w * w),
    "zero_": lambda v, w: v.zero_(),
    "clamp_": lambda v, w: v.clamp_(-0.5, 0.5),
    "iadd": lambda v, w: v.__iadd__(w),
}


@pytest.mark.parametrize("name", VIEWS)
def test_views_share_memory(name: str) -> None:
    x = weft.arange(12.0).reshape(3, 4)
    view = VIEWS[name](x)
    first = view.data_ptr() - x.data_ptr()
    assert 0 <= first < 12 * 4
    view.fill_(-1)
    assert (x == -1).sum().item() == view.numel()
    x.zero_()
    assert (view == 0).all()


def region(name: str) -> np.ndarray:
    """The places of the base that a view shows."""
    places = weft.arange(12).reshape(3, 4)
    return VIEWS[name](places).numpy()


@pytest.mark.parametrize("write", WRITES)
@pytest.mark.parametrize("name", [v for v in VIEWS if v != "detach"])
def test_writing_through_a_view_has_the_right_gradient(name: str, write: str) -> None:
    """Compared with the same program written without any in-place change."""
    rng = np.random.default_rng(0)
    places = region(name)
    start, factor = rng.normal(size=(3, 4)), rng.normal(size=places.shape)
    weights = weft.tensor(rng.normal(size=(3, 4)))

    def changed(x: Any, w: Any) -> Any:
        base = x * 1
        view = VIEWS[name](base)
        WRITES[write](view, w)
        return (base * base * weights).sum() + (view * view).sum()

    def rewritten(x: Any, w: Any) -> Any:
        base = x * 1
        ids = weft.tensor(places.reshape(-1))
        new = WRITES_OUT_OF_PLACE[write](base.flatten()[ids].reshape(places.shape), w)
        flat = base.flatten().scatter(0, ids, new.flatten())
        base = flat.reshape(3, 4)
        return (base * base * weights).sum() + (new * new).sum()

    results = []
    for program in (changed, rewritten):
        x = weft.tensor(start, requires_grad=True)
        w = weft.tensor(factor, requires_grad=True)
        out = program(x, w)
        out.backward()
        zero = weft.zeros_like(w)
        results.append((out.detach(), x.grad, zero if w.grad is None else w.grad))
    for a, b in zip(*results, strict=True):
        np.testing.assert_allclose(a.numpy(), b.numpy(), rtol=1e-12, atol=1e-12)


WRITES_OUT_OF_PLACE: dict[str, Callable[[Any, Any], Any]] = {
    "mul_": lambda v, w: v * w,
    "add_": lambda v, w: v + 2 * w,
    "copy_": lambda v, w: w * 3,
    "exp_": lambda v, w: v.exp(),
    "setitem": lambda v, w: w * w,
    "zero_": lambda v, w: v * 0,
    "clamp_": lambda v, w: v.clamp(-0.5, 0.5),
    "iadd": lambda v, w: v + w,
}


@settings(max_examples=40, deadline=None)
@given(
    st.lists(
        st.tuples(
            st.sampled_from(sorted(set(VIEWS) - {"detach"})),
            st.sampled_from(sorted(WRITES)),
        ),
        min_size=1, max_size=4,
    )
)  # fmt: skip
def test_several_writes_in_a_row(steps: list[tuple[str, str]]) -> None:
    """Any sequence of writes through any views, with its gradient."""
    start = np.linspace(-0.9, 0.8, 12).reshape(3, 4)
    results = []
    for in_place in (True, False):
        x = weft.tensor(start, requires_grad=True)
        base = x * 1
        for k, (name, write) in enumerate(steps):
            places = region(name)
            w = weft.full(places.shape, 0.3 + 0.1 * k, dtype=weft.float64)
            if in_place:
                WRITES[write](VIEWS[name](base), w)
                continue
            ids = weft.tensor(places.reshape(-1))
            new = WRITES_OUT_OF_PLACE[write](base.flatten()[ids], w.flatten())
            base = base.flatten().scatter(0, ids, new).reshape(3, 4)
        (base**2).sum().backward()
        results.append((base.detach().numpy(), x.grad.numpy()))
    np.testing.assert_allclose(results[0][0], results[1][0], rtol=1e-12)
    np.testing.assert_allclose(results[0][1], results[1][1], rtol=1e-12, atol=1e-12)


def test_views_follow_a_change_of_their_base() -> None:
    x = weft.ones(2, 2, dtype=weft.float64, requires_grad=True)
    base = x * 2
    view = base[0]
    base.mul_(3)
    assert view.tolist() == [6, 6]
    view.sum().backward()
    assert x.grad.tolist() == [[6, 6], [0, 0]]


def test_the_result_is_the_tensor_itself() -> None:
    x = weft.ones(3)
    y = x
    x += 1
    x *= 2
    x -= 1
    x /= 3
    assert x is y
    assert y.tolist() == [1, 1, 1]
    b = weft.tensor([6, 5])
    c = b
    b &= 3
    b |= 8
    b <<= 1
    b //= 2
    b %= 7
    b **= 2
    assert b is c
    assert b.tolist() == [9, 4]


def test_the_dtype_never_changes() -> None:
    x = weft.ones(2, dtype=weft.float16)
    x += weft.ones(2, dtype=weft.float64)
    assert x.dtype is weft.float16
    i = weft.tensor([1, 2])
    i *= True
    assert i.dtype is weft.int64
    f = weft.ones(2)
    assert f.lt_(2).dtype is weft.float32


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda i, x: i.add_(1.5), "add_: the result is float32"),
        (lambda i, x: i.div_(2), "div_: the result is float32"),
        (lambda i, x: i.sqrt_(), "sqrt_: the result is float32"),
        (lambda i, x: x.mul_(1j), "mul_: the result is complex64"),
        (lambda i, x: x[0].add_(x), r"add_: .*\(2, 2\).*\(2,\)"),
        (lambda i, x: x[:1].expand(2, 2).add_(1), "add_: several elements"),
    ],
)
def test_what_does_not_fit_is_refused_and_nothing_changes(
    change: Any, words: str
) -> None:
    i, x = weft.tensor([[1, 2], [3, 4]]), weft.ones(2, 2)
    with pytest.raises((TypeError, ValueError), match=words):
        change(i, x)
    assert i.tolist() == [[1, 2], [3, 4]]
    assert x.tolist() == [[1, 1], [1, 1]]


def test_read_only_arrays_are_not_written() -> None:
    array = np.zeros(3)
    array.flags.writeable = False
    x = weft.from_numpy(array)
    with pytest.raises(ValueError, match="read-only"):
        x.add_(1)
    assert array.tolist() == [0, 0, 0]


# -- views that replace the tensor's own shape


def test_shapes_in_place() -> None:
    x = weft.arange(6.0).reshape(2, 3).clone()
    pointer = x.data_ptr()
    assert x.t_().shape == (3, 2)
    assert x.unsqueeze_(0).shape == (1, 3, 2)
    assert x.transpose_(1, 2).shape == (1, 2, 3)
    assert x.squeeze_().shape == (2, 3)
    assert x.swapdims_(0, 1).shape == (3, 2)
    assert x.data_ptr() == pointer
    assert x.tolist() == [[0, 3], [1, 4], [2, 5]]
    x[0, 1] = 9
    assert x.tolist() == [[0, 9], [1, 4], [2, 5]]


def test_shapes_in_place_keep_gradients() -> None:
    x = weft.ones(2, 3, dtype=weft.float64, requires_grad=True)
    y = x * 2
    y.t_()
    y[0].mul_(5)
    (y * y).sum().backward()
    assert x.grad.tolist() == [[200, 8, 8], [200, 8, 8]]


def test_shapes_in_place_of_a_view() -> None:
    x = weft.ones(2, 3, dtype=weft.float64, requires_grad=True)
    base = x * 1
    view = base[:, :2]
    view.t_()
    view[0] = 0
    base.sum().backward()
    assert base.tolist() == [[0, 1, 1], [0, 1, 1]]
    assert x.grad.tolist() == [[0, 1, 1], [0, 1, 1]]


def test_shapes_in_place_are_refused_where_views_exist() -> None:
    x = weft.zeros(2, 3)
    view = x[0]
    with pytest.raises(RuntimeError, match="t_: this tensor has views"):
        x.t_()
    assert view.shape == (3,)
    del view
    assert x.t_().shape == (3, 2)


# -- what the tape remembers


def test_saved_inputs_are_guarded_but_unsaved_ones_are_not() -> None:
    x = weft.ones(3, requires_grad=True)
    y = x * 1
    z = (y + 1).sum()  # add saves nothing
    y.mul_(5)
    z.backward()
    assert x.grad.tolist() == [1, 1, 1]


def test_in_place_on_its_own_operand() -> None:
    x = weft.tensor([2.0, 3.0], dtype=weft.float64, requires_grad=True)
    y = x * 1
    y.mul_(y)
    y.mul_(x)
    y.sum().backward()
    np.testing.assert_allclose(x.grad.numpy(), [12, 27])


def test_no_grad_changes_leaves() -> None:
    x = weft.ones(2, requires_grad=True)
    with weft.no_grad():
        x.sub_(0.5)
        x[0] = 3
    assert x.tolist() == [3, 0.5]
    assert x.is_leaf
    assert x.requires_grad


def test_versions_count_changes() -> None:
    x = weft.zeros(3)
    before = x._version
    view = x[1:]
    view.add_(1)
    x.mul_(2)
    assert x._version == view._version == before + 2


def test_shapes_in_place_inside_transforms() -> None:
    def program(x: Any) -> Any:
        y = x * 1
        y.t_()
        y[0] = 5
        return y

    x = weft.arange(12.0).reshape(2, 2, 3)
    expected = weft.stack([program(x[0]), program(x[1])])
    assert weft.equal(weft.func.vmap(program)(x), expected)
    value, moved = weft.func.jvp(program, (x[0],), (weft.ones(2, 3),))
    assert weft.equal(value, expected[0])
    assert moved.tolist() == [[0, 0], [1, 1], [1, 1]]


REGIONS = {
    "row": lambda x: x[1],
    "column of the transposed": lambda x: x.t()[:, 0],
    "flat": lambda x: x.reshape(-1)[2:5],
    "diagonal": lambda x: x.diagonal(),
    "of a view": lambda x: x[1:].t()[::2],
}


@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize("name", REGIONS)
def test_written_regions_have_first_and_second_derivatives(name, turned):
    def f(x, y):
        base = (x.t() * 2).t() if turned else x * 2
        REGIONS[name](base).mul_(y)
        REGIONS[name](base).copy_(y.sin() * REGIONS[name](base).clone())
        return base**3

    x = weft.rand(4, 3, dtype=weft.float64, requires_grad=True)
    y = weft.rand(REGIONS[name](x).shape, dtype=weft.float64, requires_grad=True)
    assert weft.autograd.gradcheck(f, (x, y))
    assert weft.autograd.gradgradcheck(f, (x, y))


OVERWRITTEN = {
    "zero_": lambda v: v.zero_(),
    "fill_": lambda v: v.fill_(2.0),
    "copy_": lambda v: v.copy_(weft.ones(1)),
    "uniform_": lambda v: v.uniform_(),
    "bernoulli_": lambda v: v.bernoulli_(),
    "[:]": lambda v: v.__setitem__(slice(None), 3.0),
    "[...]": lambda v: v.__setitem__(..., 3.0),
    "view": lambda v: v.view(3).zero_(),
    "transpose": lambda v: v.transpose(0, -1).zero_(),
    "expand": lambda v: v.expand(3).zero_(),
    "slice": lambda v: v[:].zero_(),
}


@pytest.mark.parametrize("how", OVERWRITTEN)
@pytest.mark.parametrize("prepare", [lambda f: f, weft.compile], ids=["eager", "comp"])
def test_what_is_overwritten_as_a_whole_has_a_gradient_of_zero(how, prepare):
    """None would let optimizers skip it, with their momentum and weight decay."""
    x = weft.nn.Parameter(weft.ones(3))

    def step():
        y = x.clone()
        OVERWRITTEN[how](y)
        y.sum().backward()

    prepare(step)()
    assert x.grad.tolist() == [0, 0, 0]


def test_an_overwritten_element_gets_a_gradient_of_zero_even_from_nan():
    x = weft.ones(3, requires_grad=True)
    y = x * 1
    y[1] = 0.0
    y.backward(weft.tensor([1.0, float("nan"), 2.0]))
    assert x.grad.tolist() == [1.0, 0.0, 2.0]


def test_filling_a_buffer_row_by_row_takes_no_copies_of_it():
    """As networks keep the states of a loop."""
    w = weft.ones(2, requires_grad=True)
    rows = weft.zeros(5000, 2)
    memory = rows.data_ptr()
    with weft.memory.record() as used:
        for k in range(20):
            rows[k] = w * k
    assert rows.data_ptr() == memory
    assert used.peak - used.start < rows.nbytes
    rows.sum().backward()
    assert w.grad.tolist() == [190.0, 190.0]
