"""Views by strides, offsets and orders in memory."""

import numpy as np
import pytest

import weft
from weft import nn
from weft.autograd import gradcheck

F = nn.functional

# -- unfold


@pytest.mark.parametrize(
    ("shape", "dim", "size", "step"),
    [((7,), 0, 3, 1), ((7,), 0, 2, 3), ((3, 8), -1, 4, 2), ((5, 4), 0, 5, 1)],
)
def test_unfold_is_a_view(shape, dim, size, step):
    x = weft.arange(float(np.prod(shape))).reshape(shape)
    found = x.unfold(dim, size, step)
    d = dim % len(shape)
    moved = np.moveaxis(x.numpy(), d, 0)
    starts = range(0, shape[d] - size + 1, step)
    want = np.stack([moved[k : k + size] for k in starts])  # (count, size, ...)
    want = np.moveaxis(np.moveaxis(want, 1, -1), 0, d)
    np.testing.assert_array_equal(found.numpy(), want)
    assert found.data_ptr() == x.data_ptr()
    x.add_(1)
    np.testing.assert_array_equal(found.numpy(), want + 1)
    compiled = weft.compile(lambda x: x.unfold(dim, size, step) * 2)(x)
    np.testing.assert_array_equal(compiled.numpy(), 2 * found.numpy())


def test_unfold_gradients_and_batches():
    x = weft.rand(3, 6, dtype=weft.float64, requires_grad=True)
    assert gradcheck(lambda x: x.unfold(1, 3, 2) ** 2, x)
    batched = weft.func.vmap(lambda x: x.unfold(0, 3, 1))(x.detach())
    assert weft.equal(batched, x.detach().unfold(1, 3, 1))


def test_windows_that_do_not_overlap_can_be_written():
    x = weft.zeros(6)
    x.unfold(0, 2, 3)[1] = weft.tensor([5.0, 6.0])
    assert x.tolist() == [0, 0, 0, 5, 6, 0]
    with pytest.raises(ValueError, match="share memory"):
        x.unfold(0, 3, 1).add_(1)


def test_unfold_in_a_static_graph():
    with weft.static.Graph().as_default(), weft.static.Session() as session:
        place = weft.static.placeholder(weft.float32, [5])
        found = session.run(place.unfold(0, 2, 1), {place: weft.arange(5.0)})
    assert found.tolist() == [[0, 1], [1, 2], [2, 3], [3, 4]]


def test_unfold_and_fold_of_images_are_transposes():
    x = weft.rand(2, 3, 5, 4, dtype=weft.float64, requires_grad=True)
    assert gradcheck(lambda x: F.unfold(x, 2, padding=1, stride=2) ** 2, x)
    y = F.unfold(x, 2).detach()
    ones = F.fold(F.unfold(weft.ones_like(x), 2), (5, 4), 2)
    assert weft.allclose(F.fold(y, (5, 4), 2), ones * x.detach())


# -- as_strided


def test_as_strided_shares_memory():
    x = weft.arange(12.0).reshape(3, 4)
    y = x.as_strided((2, 2), (4, 2), 1)
    assert y.tolist() == [[1, 3], [5, 7]]
    y.mul_(10)
    assert x[0].tolist() == [0, 10, 2, 30]
    assert x.as_strided((3, 3), (1, 1)).tolist()[2] == [2, 30, 4]
    with pytest.raises(ValueError, match="share memory"):
        x.as_strided((3, 3), (1, 1)).add_(1)


def test_as_strided_of_a_view_looks_at_the_whole_memory():
    x = weft.arange(12)
    view = x.reshape(3, 4)[1:, 1::2]
    assert view.storage_offset() == 5
    assert view.stride() == (4, 2)
    assert weft.equal(view.as_strided(view.shape, view.stride()), view)
    assert view.as_strided((3,), (4,), 0).tolist() == [0, 4, 8]
    turned = weft.arange(6).reshape(2, 3).t()
    assert turned.as_strided((6,), (1,)).tolist() == [0, 1, 2, 3, 4, 5]
    with pytest.raises(ValueError, match="has gaps"):
        weft.from_numpy(np.arange(8)[::2]).as_strided((2,), (1,))


def test_as_strided_gradients_add_up():
    x = weft.rand(9, dtype=weft.float64, requires_grad=True)
    assert gradcheck(lambda x: x.as_strided((3, 4), (2, 1), 1) ** 2, x)
    weft.ones(1)
    (grad,) = weft.autograd.grad(x.as_strided((4, 4), (1, 1)).sum(), x)
    assert grad.tolist() == [1, 2, 3, 4, 3, 2, 1, 0, 0]
    y = weft.rand(3, 4, dtype=weft.float64, requires_grad=True)
    assert gradcheck(lambda y: y[1:].as_strided((2, 3), (3, 2), 1).sin(), y)


def test_as_strided_in_transforms_and_programs():
    def fn(x):
        return x.as_strided((2, 3), (2, 1), 1) * 2

    x = weft.arange(8.0)
    want = fn(x)
    assert weft.equal(weft.compile(fn)(x), want)
    assert weft.equal(weft.graph.capture(fn, x)(x), want)
    both = weft.stack([x, x + 1])
    assert weft.equal(weft.func.vmap(fn)(both), weft.stack([want, fn(x + 1)]))
    _, tangent = weft.func.jvp(fn, (x,), (x,))
    assert weft.equal(tangent, want)
    with weft.static.Graph().as_default(), weft.static.Session() as session:
        place = weft.static.placeholder(weft.float32, [8])
        np.testing.assert_array_equal(session.run(fn(place), {place: x}), want)


@pytest.mark.parametrize(
    ("size", "stride", "offset", "error", "text"),
    [
        ((3, 4), (4, 1), 1, IndexError, "reaches element 12, but the memory has 12"),
        ((2,), (11,), 1, IndexError, "reaches element 12"),
        ((2,), (-1,), 5, ValueError, "at least 0"),
        ((2,), (1,), -1, ValueError, "at least 0"),
        ((2, 2), (1,), 0, ValueError, "as many strides as sizes"),
        (3, (1,), 0, TypeError, "a sequence of ints"),
    ],
)
def test_as_strided_never_leaves_the_memory(size, stride, offset, error, text):
    for call in (
        lambda x: x.as_strided(size, stride, offset),
        weft.compile(lambda x: x.as_strided(size, stride, offset)),
    ):
        with pytest.raises(error, match=text):
            call(weft.zeros(12))
    assert weft.zeros(0).as_strided((0, 3), (1, 1)).shape == (0, 3)


# -- memory formats


def test_channels_last():
    x = weft.arange(120.0).reshape(2, 3, 4, 5)
    y = x.contiguous(memory_format=weft.channels_last)
    assert y.stride() == (60, 1, 15, 3)
    assert weft.equal(x, y)
    assert y.is_contiguous(memory_format=weft.channels_last)
    assert not y.is_contiguous()
    assert not x.is_contiguous(memory_format=weft.channels_last)
    assert y.contiguous(memory_format=weft.channels_last) is y
    assert x.to(memory_format=weft.channels_last).stride() == y.stride()
    assert x.clone(memory_format=weft.channels_last).stride() == y.stride()
    kept = y.clone(memory_format=weft.preserve_format)
    assert kept.stride() == y.stride()
    assert kept.data_ptr() != y.data_ptr()
    assert y.clone(memory_format=weft.contiguous_format).is_contiguous()
    assert weft.empty_like(y).stride() == y.stride()
    assert weft.empty_like(y, memory_format=weft.contiguous_format).is_contiguous()
    made = weft.empty(2, 3, 4, 5, memory_format=weft.channels_last)
    assert made.stride() == y.stride()
    z = weft.zeros(2, 3, 2, 2, 2).contiguous(memory_format=weft.channels_last_3d)
    assert z.stride() == (24, 1, 12, 6, 3)


def test_formats_in_transforms_programs_and_gradients():
    x = weft.rand(2, 3, 4, 5, dtype=weft.float64, requires_grad=True)

    def fn(x):
        return x.contiguous(memory_format=weft.channels_last) ** 2

    assert gradcheck(fn, x)
    plain = x.detach()
    assert weft.equal(weft.compile(fn)(plain), plain**2)
    assert weft.equal(weft.func.vmap(lambda x: x.clone())(plain), plain)


def test_a_module_in_channels_last():
    net = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4))
    x = weft.rand(2, 3, 6, 6)
    want = net.eval()(x)
    assert net.to(memory_format=weft.channels_last) is net
    assert net[0].weight.is_contiguous(memory_format=weft.channels_last)
    assert net[0].bias.is_contiguous()
    images = x.to(memory_format=weft.channels_last)
    assert weft.allclose(net(images), want, atol=1e-6)
    net.train()(images).sum().backward()
    assert net[0].weight.grad.shape == net[0].weight.shape


@pytest.mark.parametrize(
    ("call", "error", "text"),
    [
        (
            lambda: weft.ones(2).contiguous(memory_format=weft.channels_last),
            ValueError, "expected 4 dimensions for channels_last, got shape",
        ),
        (
            lambda: weft.ones(2).clone(memory_format="channels_last"),
            TypeError, "expected memory_format to be",
        ),
        (
            lambda: weft.ones(2).is_contiguous(memory_format=weft.preserve_format),
            ValueError, "no order of its own",
        ),
        (
            lambda: weft.empty(2, memory_format=weft.channels_last),
            ValueError, "expected 4",
        ),
    ],
)  # fmt: skip
def test_formats_that_do_not_fit(call, error, text):
    with pytest.raises(error, match=text):
        call()
