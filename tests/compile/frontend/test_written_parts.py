"""Parts of tensors that compiled functions write, and what that leaves of the rest."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

import weft
from weft import nn


class Cache(nn.Module):
    """Writes parts of a buffer, and reads all of it."""

    def __init__(self, shape, *parts):
        super().__init__()
        count = int(np.prod(shape))
        self.register_buffer("kept", weft.arange(float(count)).reshape(shape))
        self.parts = parts

    def forward(self, *values):
        for index, value in zip(self.parts, values, strict=True):
            self.kept[index] = value * 2
        return self.kept + 1


@settings(max_examples=8, deadline=None)
@given(st.data())
def test_any_parts_that_slices_tell(data):
    shape = data.draw(arrays.array_shapes(max_dims=3, max_side=5))
    indices = arrays.basic_indices(shape, allow_newaxis=False)
    parts = data.draw(st.lists(indices, min_size=1, max_size=6))
    want = np.arange(float(np.prod(shape)), dtype=np.float32).reshape(shape)
    values = [np.array(k - want[index]) for k, index in enumerate(parts)]
    model = Cache(shape, *parts)
    out = weft.compile(model)(*map(weft.tensor, values))
    for index, value in zip(parts, values, strict=True):
        want[index] = value * 2
    np.testing.assert_array_equal(model.kept.numpy(), want)
    np.testing.assert_array_equal(out.numpy(), want + 1)


def test_views_of_views_and_open_sizes():
    def fn(x, y):
        x.permute(1, 0, 2)[1:, :, 0] = y
        x.view(-1, 6)[::2] += 1
        x.transpose(0, 2)[1, 2] *= 3
        return x.sum((1, 2))

    compiled = weft.compile(fn, dynamic=True)
    for rows in (2, 3, 5, 7):
        a = weft.randn(rows, 4, 6)
        b, y = a.clone(), weft.randn(3, rows)
        want, found = fn(a, y), compiled(b, y)
        weft.testing.assert_close(found, want)
        assert weft.equal(a, b)
    assert len(compiled.explain().programs) <= 2


def test_gradients_of_written_parts():
    def fn(x, y):
        out = x.clone()
        out[1:, ::2] = y * y
        out[:, 1] = out[:, 0] * 3
        return (out * out).sum()

    x, y = weft.randn(3, 4, dtype=weft.float64), weft.randn(2, 2, dtype=weft.float64)
    grads = []
    for step in (fn, weft.compile(fn)):
        a, b = x.clone().requires_grad_(), y.clone().requires_grad_()
        step(a, b).backward()
        grads.append((a.grad, b.grad))
    for one, other in zip(*grads, strict=True):
        weft.testing.assert_close(one, other, rtol=1e-12, atol=1e-12)
    a, b = x.requires_grad_(), y.requires_grad_()
    assert weft.autograd.gradcheck(fn, (a, b))


class Rows(nn.Module):
    """Writes rows of a buffer at indices that are known when it runs."""

    def __init__(self, write):
        super().__init__()
        self.register_buffer("kept", weft.arange(60.0).reshape(3, 5, 4))
        self.write = write

    def forward(self, at, rows):
        self.write(self.kept, at, rows)
        return self.kept.sum((0, 2))


def by_index(kept, at, rows):
    kept[:, at] = rows


def by_copy(kept, at, rows):
    kept.index_copy_(1, at, rows)


@pytest.mark.parametrize(
    ("write", "at"),
    [(by_index, [3, -5]), (by_index, 2), (by_index, [1, 1, 4]), (by_copy, [4, 0])],
)
def test_rows_at_indices_that_are_tensors(write, at):
    at = weft.tensor(at)
    rows = weft.randn(3, *at.shape, 4)
    model, eager = Rows(write), Rows(write)
    compiled = weft.compile(model)
    weft.testing.assert_close(compiled(at, rows), eager(at, rows))
    assert weft.equal(model.kept, eager.kept)
    for wrong in (5, -6):
        with pytest.raises(IndexError, match=str(wrong)):
            compiled(at.clone().fill_(wrong), rows)
        assert weft.equal(model.kept, eager.kept)


@pytest.mark.parametrize("shape", [(2,), (2, 2), ()])
@pytest.mark.parametrize("axis", [0, 1, 2])
def test_rows_in_a_batch_of_examples(shape, axis):
    def write(x, at, rows):
        out = x.clone()
        out[(slice(None),) * axis + (at,)] = rows
        return out

    x, at = weft.randn(3, 4, 4, 5), weft.randint(0, 4, (3, *shape))
    rows = weft.randn(3, *x.shape[1 : 1 + axis], *shape, *x.shape[2 + axis :])
    each = weft.func.vmap(write)(x, at, rows)
    alike = weft.func.vmap(write, in_dims=(0, None, 0))(x, at[0], rows)
    for k in range(3):
        assert weft.equal(each[k], write(x[k], at[k], rows[k]))
        assert weft.equal(alike[k], write(x[k], at[0], rows[k]))


def test_a_refused_run_leaves_the_part_as_it_was():
    model = Cache((4, 3), 1)

    @weft.compile
    def step(x, at):
        out = model(x)
        return out[at]

    step(weft.ones(3), weft.tensor(2))
    before = model.kept.clone()
    with pytest.raises(IndexError, match="4"):
        step(weft.zeros(3), weft.tensor(4))
    assert weft.equal(model.kept, before)
    step(weft.zeros(3), weft.tensor(0))
    assert model.kept[1].tolist() == [0, 0, 0]
