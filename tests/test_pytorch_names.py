"""PyTorch's names of tensors: constructors, memory, arguments, lists and settings."""

from __future__ import annotations

import os
import pickle

import numpy as np
import pytest

import weft
from weft.errors import (
    ArgumentError,
    AutogradError,
    DeviceError,
    DTypeError,
    ShapeError,
)


def test_dtypes_and_constants() -> None:
    assert weft.float is weft.float32
    assert weft.int is weft.int32
    assert isinstance(weft.float32, weft.dtype)
    assert not isinstance(3, weft.dtype)
    assert weft.newaxis is None
    assert weft.pi == np.pi
    assert weft.inf == np.inf


def test_a_shape_is_a_size() -> None:
    size = weft.zeros(2, 3).shape
    assert type(size) is weft.Size is type(size[1:]) is type(size + (1,))  # noqa: RUF005

    assert size == (2, 3)
    assert hash(size) == hash((2, 3))
    assert size.numel() == 6
    assert pickle.loads(pickle.dumps(size)) == size


def test_sizes_are_plain_tuples_in_graphs() -> None:
    @weft.compile
    def flat(x):
        return x.reshape(x.shape.numel()).expand((*(2, *x.shape[:1], 4)[:1], 12))

    assert flat(weft.ones(3, 4)).shape == (2, 12)


@pytest.mark.parametrize(
    ("name", "dtype"),
    [
        ("FloatTensor", "float32"),
        ("LongTensor", "int64"),
        ("BoolTensor", "bool"),
        ("HalfTensor", "float16"),
    ],
)
def test_typed_constructors(name: str, dtype: str) -> None:
    kind = getattr(weft, name)
    made = kind([[1, 0], [0, 1]])
    assert made.dtype.name == dtype
    assert isinstance(made, kind)
    assert type(made) is weft.Tensor
    assert kind(2, 3).shape == (2, 3)
    assert kind().shape == (0,)
    assert made.type() == f"torch.{name}"
    assert weft.ones(1).type(kind).dtype is made.dtype
    with pytest.raises(DTypeError, match=r"expected a .* tensor, got"):
        kind(weft.ones(1, dtype=weft.complex64))


def test_data_is_the_same_memory_and_its_changes_are_noticed() -> None:
    x = weft.tensor([1.0, 2.0], requires_grad=True)
    loss = (x * x).sum()
    x.data.mul_(10)
    assert x.tolist() == [10.0, 20.0]
    with pytest.raises(RuntimeError, match="changed in place by 'mul_'"):
        loss.backward()


def test_storages_show_the_memory() -> None:
    x = weft.arange(6.0).reshape(2, 3)
    storage = x[1].storage()
    assert storage.tolist() == [0, 1, 2, 3, 4, 5]
    assert len(storage) == 6
    storage[0] = 9.0
    assert x[0, 0].item() == 9.0
    assert x.t().untyped_storage().nbytes() == 24
    assert weft.is_storage(storage)
    assert isinstance(storage, weft.FloatStorage)
    assert weft.FloatStorage([1, 2]).tolist() == [1.0, 2.0]


def test_resize_and_set() -> None:
    x = weft.tensor([[1, 2], [3, 4]])
    assert x.resize_(3).tolist() == [1, 2, 3]
    assert x.resize_(2, 4).shape == (2, 4)
    assert x.flatten().tolist()[:4] == [1, 2, 3, 4]
    y = weft.zeros(1, dtype=weft.int64).set_(x)
    x[0, 0] = 7
    assert y[0, 0].item() == 7
    z = weft.zeros(1, dtype=weft.int64).set_(x.storage(), 1, (2, 2), (4, 1))
    assert z[:, 0].tolist() == [2, x[1, 1].item()]
    with pytest.raises(ArgumentError, match="outside the storage"):
        z.set_(x.storage(), 6, (3,), (1,))
    with pytest.raises(AutogradError, match="requires grad"):
        weft.ones(2, requires_grad=True).resize_(3)
    with pytest.raises(DTypeError, match="expected a int64 tensor"):
        z.set_(weft.ones(2))


def test_shared_memory_is_seen_by_forked_processes() -> None:
    x = weft.zeros(2).share_memory_()
    child = os.fork()
    if child == 0:
        x.numpy()[0] = 5.0
        os._exit(0)
    os.waitpid(child, 0)
    assert x.tolist() == [5.0, 0.0]
    view = weft.zeros(4)
    part = view[1:]
    with pytest.raises(ArgumentError, match="has views"):
        view.share_memory_()
    assert part.shape == (3,)


def test_where_a_tensor_is() -> None:
    x = weft.zeros(2)
    assert not (x.is_cuda)
    assert not (x.is_sparse)
    assert not (x.is_mps)
    assert not (x.is_meta)
    assert not (x.is_quantized)
    assert x.layout is weft.strided
    assert x.get_device() == -1
    assert x.pin_memory() is x
    assert not x.is_pinned()
    if "cuda" not in {d.type for d in weft.devices()}:
        with pytest.raises((DeviceError, RuntimeError)):
            x.cuda()


# -- arguments


def test_numpys_names_of_arguments() -> None:
    x = weft.arange(6.0).reshape(2, 3)
    assert x.sum(axis=0).tolist() == weft.sum(x, axis=0).tolist() == [3, 5, 7]
    assert weft.mean(x, axis=1, keepdims=True).shape == (2, 1)
    assert x.max(axis=1).indices.tolist() == [2, 2]
    assert weft.cat([x, x], axis=1).shape == (2, 6)
    assert x.argmax(axis=1, keepdims=True).shape == (2, 1)
    with pytest.raises(TypeError):
        weft.sum(x, axes=0)


def test_out_takes_the_result() -> None:
    x, out = weft.tensor([1.0, 4.0]), weft.empty(0)
    assert weft.sqrt(x, out=out) is out
    assert out.tolist() == [1.0, 2.0]
    assert weft.add(x, 1, out=out).tolist() == [2.0, 5.0]
    assert weft.zeros(3, out=out) is out
    assert out.shape == (3,)
    assert weft.matmul(x, x, out=out).item() == 17.0
    best, where = weft.empty(0), weft.empty(0, dtype=weft.int64)
    weft.max(x, 0, out=(best, where))
    assert (best.item(), where.item()) == (4.0, 1)
    with pytest.raises(DTypeError, match="cannot be cast"):
        weft.sqrt(x, out=weft.empty(2, dtype=weft.int64))
    with pytest.raises(AutogradError, match="no derivative"):
        weft.sqrt(x.requires_grad_(), out=out)
    with pytest.raises(DTypeError, match="expected out to be a tensor"):
        weft.exp(weft.ones(2), out=[])


def test_out_in_a_compiled_function() -> None:
    @weft.compile
    def step(x, out):
        weft.mul(x, 2, out=out)
        return out + 1

    x, out = weft.ones(3), weft.zeros(3)
    assert step(x, out).tolist() == [3.0] * 3
    assert out.tolist() == [2.0] * 3


def test_options_of_new_tensors() -> None:
    assert weft.zeros(2, layout=weft.strided, pin_memory=True).shape == (2,)
    assert weft.rand(2, pin_memory=False).shape == (2,)
    image = weft.zeros_like(weft.ones(1, 2, 3, 3), memory_format=weft.channels_last)
    assert image.stride() == (18, 1, 6, 2)
    with pytest.raises(ArgumentError, match="layout"):
        weft.zeros(2, layout=weft.sparse_coo)
    with pytest.raises(TypeError, match="unexpected arguments nothing"):
        weft.ones(2, nothing=1)


def test_a_division_by_the_number_zero_has_an_infinite_gradient() -> None:
    x = weft.ones(2, requires_grad=True)
    (x / 0).sum().backward()
    assert x.grad.tolist() == [np.inf, np.inf]


def test_complex_acosh_has_the_gradient_of_its_branch() -> None:
    """The derivative of a holomorphic function, by a difference in each quadrant."""
    z = np.array([-0.3 + 0.4j, -2 - 1j, 0.2 - 0.7j, 3 + 0.1j])
    x = weft.tensor(z, requires_grad=True)
    x.acosh().real.sum().backward()
    slope = (np.arccosh(z + 1e-6) - np.arccosh(z - 1e-6)) / 2e-6
    np.testing.assert_allclose(x.grad.numpy(), slope.conj(), rtol=1e-6)


def test_complex_convolutions() -> None:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(1, 2, 6)) + 1j * rng.normal(size=(1, 2, 6))
    w = rng.normal(size=(1, 2, 3)) + 1j * rng.normal(size=(1, 2, 3))
    b = np.array([0.5 + 2j])
    want = [(x[0, :, k : k + 3] * w[0]).sum() + b[0] for k in range(4)]
    found = weft.conv1d(*map(weft.tensor, (x, w, b)))
    np.testing.assert_allclose(found.numpy()[0, 0], want, rtol=1e-12)


# -- lists of tensors


def test_functions_over_lists() -> None:
    xs, ys = [weft.ones(2), weft.ones(1)], [weft.ones(2) * 2, weft.ones(1) * 3]
    assert weft._foreach_add_(xs, ys, alpha=2) is None
    assert [x.tolist() for x in xs] == [[5.0, 5.0], [7.0]]
    assert [x.tolist() for x in weft._foreach_mul(xs, [2.0, 3.0])] == [[10, 10], [21]]
    weft._foreach_addcdiv_(xs, ys, ys, value=-1.0)
    assert [x.tolist() for x in xs] == [[4.0, 4.0], [6.0]]
    weft._foreach_addcmul_(xs, ys, ys, [1.0, 0.0])
    assert [x.tolist() for x in xs] == [[8.0, 8.0], [6.0]]
    assert [n.item() for n in weft._foreach_norm(ys)] == pytest.approx([8**0.5, 3.0])
    weft._foreach_maximum_(xs, 7.0)
    assert [x.tolist() for x in xs] == [[8.0, 8.0], [7.0]]
    weft._foreach_zero_(xs)
    assert all(x.sum() == 0 for x in xs)
    with pytest.raises(ArgumentError, match="lists of one length"):
        weft._foreach_add(xs, ys[:1])
    with pytest.raises(AttributeError):
        weft._foreach_nothing


# -- testing


def test_assert_close() -> None:
    close = weft.testing.assert_close
    close({"a": [weft.ones(2), 1.0]}, {"a": [weft.ones(2) + 1e-6, 1.0]})
    with pytest.raises(AssertionError, match="'shape' do not match"):
        close(weft.ones(2), weft.ones(3))
    with pytest.raises(AssertionError, match="'dtype' do not match"):
        close(weft.ones(2), weft.ones(2, dtype=weft.float64))
    close(weft.ones(2), weft.ones(2, dtype=weft.float64), check_dtype=False)
    with pytest.raises(AssertionError, match="1 / 2"):
        close(weft.tensor([1, 2]), weft.tensor([1, 3]))
    nan = weft.tensor([np.nan])
    close(nan, nan, equal_nan=True)
    with pytest.raises(AssertionError):
        close(nan, nan)
    with pytest.raises(AssertionError):
        close(weft.tensor([np.inf]), weft.tensor([1.0]))
    with pytest.raises(AssertionError, match="item \\['b'\\]"):
        close({"b": weft.ones(1)}, {"b": weft.zeros(1)})
    with pytest.raises(ArgumentError, match="both rtol and atol"):
        close(1.0, 1.0, rtol=0.1)
    with pytest.raises(AssertionError, match="mine"):
        close(1.0, 2.0, msg="mine")


def test_random_state_can_be_forked() -> None:
    weft.manual_seed(3)
    with weft.random.fork_rng():
        first = weft.rand(3)
    assert weft.equal(first, weft.rand(3))
    generator = weft.Generator().manual_seed(1)
    weft.rand(4, generator=generator)
    twin = generator.clone_state()
    assert weft.equal(weft.rand(2, generator=twin), weft.rand(2, generator=generator))


# -- values


def test_histograms_against_numpy() -> None:
    rng = np.random.default_rng(0)
    x, weight = rng.normal(size=200), rng.uniform(size=200)
    found = weft.histogram(weft.tensor(x), 7, weight=weft.tensor(weight), density=True)
    want, edges = np.histogram(x, 7, weights=weight, density=True)
    np.testing.assert_allclose(found.hist.numpy(), want, rtol=1e-12)
    np.testing.assert_allclose(found.bin_edges.numpy(), edges, rtol=1e-12)
    points = rng.normal(size=(100, 3))
    grid = weft.histogramdd(weft.tensor(points), [2, 3, 4])
    np.testing.assert_array_equal(
        grid.hist.numpy(), np.histogramdd(points, (2, 3, 4))[0]
    )
    with pytest.raises(ArgumentError, match="rising order"):
        weft.histogram(weft.tensor(x), weft.tensor([1.0, 0.0]).double())


@pytest.mark.parametrize("edge_order", [1, 2])
def test_gradient_against_numpy(edge_order: int) -> None:
    rng = np.random.default_rng(0)
    x, at = rng.normal(size=(4, 5)), np.cumsum(rng.uniform(0.5, 1, 5))
    found = weft.gradient(
        weft.tensor(x), spacing=[0.5, weft.tensor(at)], edge_order=edge_order
    )
    want = np.gradient(x, 0.5, at, edge_order=edge_order)
    for ours, theirs in zip(found, want, strict=True):
        np.testing.assert_allclose(ours.numpy(), theirs, rtol=1e-12)


def test_short_time_transforms_are_inverse_and_have_gradients() -> None:
    rng = np.random.default_rng(0)
    x = weft.tensor(rng.normal(size=(2, 40)))
    window = weft.hann_window(8, dtype=weft.float64)
    spectrum = weft.stft(x, 8, 2, window=window, return_complex=True)
    frame = np.pad(x.numpy(), [(0, 0), (4, 4)], "reflect")[:, 6:14]
    want = np.fft.rfft(frame * window.numpy())
    np.testing.assert_allclose(spectrum[..., 3].numpy(), want, atol=1e-12)
    back = weft.istft(spectrum, 8, 2, window=window, length=40)
    np.testing.assert_allclose(back.numpy(), x.numpy(), atol=1e-12)
    weft.autograd.gradcheck(
        lambda v: weft.istft(
            weft.stft(v, 8, 2, window=window, return_complex=True) * (1 + 2j),
            8, 2, window=window,
        ),
        (x[:1, :20].clone().requires_grad_(),),
    )  # fmt: skip
    with pytest.raises(ArgumentError, match="return_complex"):
        weft.stft(x, 8)
    with pytest.raises(ArgumentError, match="do not overlap enough"):
        weft.istft(spectrum, 8, 8, window=window)


def test_lu_and_householder_products() -> None:
    rng = np.random.default_rng(0)
    for shape in ((4, 4), (5, 3), (2, 3, 5)):
        a = weft.tensor(rng.normal(size=shape))
        p, lower, upper = weft.linalg.lu(a)
        np.testing.assert_allclose((p @ lower @ upper).numpy(), a.numpy(), atol=1e-12)
    a = weft.tensor(rng.normal(size=(5, 3)))
    packed, tau = weft.geqrf(a)
    q = weft.linalg.householder_product(packed, tau)
    np.testing.assert_allclose((q @ packed[:3].triu()).numpy(), a.numpy(), atol=1e-12)
    whole = weft.ormqr(packed, tau, weft.eye(5, dtype=weft.float64))
    np.testing.assert_allclose((whole.T @ whole).numpy(), np.eye(5), atol=1e-12)
    np.testing.assert_allclose(whole[:, :3].numpy(), q.numpy(), atol=1e-12)
    inputs = packed.requires_grad_(), tau.requires_grad_()
    weft.autograd.gradcheck(weft.linalg.householder_product, inputs)


def test_failing_matrices_are_reported() -> None:
    a = weft.stack([weft.eye(2), weft.zeros(2, 2), weft.tensor([[1.0, 2], [2, 4]])])
    found = weft.linalg.inv_ex(a)
    assert found.info.tolist() == [0, 1, 2]
    assert found.inverse[0].tolist() == [[1, 0], [0, 1]]
    assert found.inverse[1].isnan().all()
    with pytest.raises(weft.linalg.LinAlgError):
        weft.linalg.inv_ex(a, check_errors=True)
    assert weft.linalg.cholesky_ex(weft.tensor([[1.0, 0], [0, -1]])).info.item() == 2


def test_igamma_has_no_derivative_by_its_first_operand() -> None:
    x = weft.ones(1, requires_grad=True)
    with pytest.raises(AutogradError, match="by `other` alone"):
        weft.igamma(x, weft.ones(1)).sum().backward()


def test_random_numbers_of_distributions() -> None:
    weft.manual_seed(0)
    x = weft.poisson(weft.full((4000,), 3.0))
    assert abs(x.mean().item() - 3) < 0.15
    assert abs(x.var().item() - 3) < 0.4
    n = weft.binomial(weft.full((4000,), 10.0), weft.full((4000,), 0.3))
    assert abs(n.mean().item() - 3) < 0.15
    assert abs(n.var().item() - 2.1) < 0.3
    assert abs(weft.zeros(4000).geometric_(0.25).mean().item() - 4) < 0.3
    assert abs(weft.zeros(4001).cauchy_(2.0, 0.5).median().item() - 2) < 0.1
    assert abs(weft.zeros(4000).log_normal_(0.0, 0.5).log().std().item() - 0.5) < 0.05
    with pytest.raises(ArgumentError, match="at least 0"):
        weft.poisson(-weft.ones(1))
    with pytest.raises(ShapeError, match="expected a matrix"):
        weft.pdist(weft.ones(3))
