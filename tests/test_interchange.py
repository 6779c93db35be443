"""DLPack and NumPy's protocols, both ways."""

import doctest
import operator

import numpy as np
import pytest

import weft
from weft import dlpack
from weft import dtype as dtypes
from weft import interchange, numpy_protocol
from weft.errors import AutogradError

RNG = np.random.default_rng(11)


def check(got, want, tol=1e-13):
    if isinstance(want, (tuple, list)):
        assert len(got) == len(want)
        for g, w in zip(got, want, strict=True):
            check(g, w, tol)
        return
    want = np.asarray(want)
    assert isinstance(got, weft.Tensor)
    assert tuple(got.shape) == want.shape
    assert got.dtype.np == want.dtype
    np.testing.assert_allclose(got.numpy(), want, rtol=tol, atol=tol)


def T(array):
    return weft.from_numpy(np.array(array))


@pytest.fixture
def device():
    from weft.core.device import Device, register_device, unregister_device

    yield register_device(Device("elsewhere", {}))
    unregister_device("elsewhere")


# -- DLPack

EXPORTED = [d for d in dtypes.ALL if d is not weft.bfloat16]


@pytest.mark.parametrize("dtype", EXPORTED, ids=lambda d: d.name)
@pytest.mark.parametrize("shape", [(2, 3), (), (0, 2)])
def test_dlpack_shares_memory_both_ways(dtype, shape):
    x = weft.ones(shape, dtype=dtype)
    array = np.from_dlpack(x)
    assert array.dtype == dtype.np
    assert array.shape == shape
    back = weft.from_dlpack(array)
    assert back.dtype is dtype
    if x.numel():
        array[...] = 0
        assert not x.any()
        assert not back.any()


def test_dlpack_keeps_strides():
    x = weft.arange(6).reshape(2, 3).T
    array = np.from_dlpack(x)
    assert array.strides == x.array().strides
    assert np.shares_memory(array, x.array())
    assert weft.from_dlpack(np.arange(6)[::2]).tolist() == [0, 2, 4]


def test_dlpack_options():
    x = weft.zeros(3)
    assert x.__dlpack_device__() == (1, 0)
    for options in (
        {},
        {"max_version": (1, 0)},
        {"dl_device": (1, 0)},
        {"copy": False},
    ):
        assert "dltensor" in repr(x.__dlpack__(**options))
    np.from_dlpack(x, copy=True)[0] = 5
    assert x[0] == 0
    source = np.zeros(2)
    weft.from_dlpack(source, copy=True)[0] = 5
    weft.from_dlpack(source, device="cpu")[1] = 6
    assert source.tolist() == [0, 6]
    with pytest.raises(BufferError, match="dl_device"):
        x.__dlpack__(dl_device=(2, 0))
    with pytest.raises(BufferError, match="no streams"):
        x.__dlpack__(stream=1)


def test_dlpack_of_expanded_tensors():
    x = weft.ones(1).expand(3)
    array = np.from_dlpack(x)
    assert array.tolist() == [1, 1, 1]
    assert not array.flags.writeable
    assert "dltensor" in repr(x.__dlpack__())  # a copy for consumers before 1.0


def test_dlpack_refusals(device):
    leaf = weft.ones(2, requires_grad=True)
    for x in (leaf, leaf * 2):
        with pytest.raises(AutogradError, match=r"requires grad.*detach"):
            np.from_dlpack(x)
    assert np.from_dlpack(leaf.detach()).tolist() == [1, 1]
    away = weft.ones(2).to(device)
    with pytest.raises(BufferError, match=r"on 'elsewhere'; move it with \.cpu\(\)"):
        away.__dlpack__()
    with pytest.raises(BufferError):
        away.__dlpack_device__()
    with pytest.raises(ValueError, match="object with __dlpack__, got list"):
        weft.from_dlpack([1, 2])


def test_dlpack_of_bfloat16():
    """NumPy neither gives nor takes it, other libraries do."""
    x = weft.arange(6.0).reshape(2, 3).bfloat16()
    shared = weft.from_dlpack(x.T)
    assert (shared.dtype, shared.shape) == (weft.bfloat16, (3, 2))
    shared[2, 1] = 40
    assert x[1, 2] == 40
    del shared
    assert not dlpack._held
    with pytest.raises(RuntimeError, match="dtype"):
        np.from_dlpack(x)


def test_capsules_are_taken_once_and_forgotten_when_nobody_does():
    x = weft.arange(3.0).bfloat16()
    capsule = x.__dlpack__()
    assert weft.from_dlpack(capsule).tolist() == [0, 1, 2]
    with pytest.raises(BufferError, match="nobody has taken"):
        weft.from_dlpack(capsule)
    unclaimed = x.__dlpack__()
    assert len(dlpack._held) == 1
    del unclaimed
    x.__dlpack__()
    dlpack._sweep()
    assert not dlpack._held


def test_capsules_of_other_devices_and_types_are_refused():
    given = dlpack.capsule(64, (2,), (4,), np.dtype("f4"), (8, 1), None)
    with pytest.raises(BufferError, match=r"NVIDIA GPU, got DLPack's device \(8, 1\)"):
        weft.from_dlpack(given)
    with pytest.raises(BufferError, match="code 9 of 32 bits"):
        dlpack._dtype(9, 32, 1)
    with pytest.raises(BufferError, match="no f of 128 bits"):
        dlpack._dtype(2, 128, 1)


def test_from_dlpack_names_a_producer_that_fails():
    class Broken:
        def __dlpack__(self, **options):
            raise BufferError("out of order")

        def __dlpack_device__(self):
            return (1, 0)

    with pytest.raises(BufferError, match="from_dlpack: Broken: out of order"):
        weft.from_dlpack(Broken())


# -- np.asarray


def test_array_shares_memory():
    x = weft.zeros(3)
    np.asarray(x)[0] = 1
    np.array(x)[1] = 2
    np.asarray(x, copy=False)[2] = 3
    assert x.tolist() == [1, 0, 3]
    assert np.asarray(x, dtype=np.int8).dtype == np.int8
    assert np.asarray(weft.tensor(2.5)).shape == ()
    assert np.asarray(weft.ones(2, dtype=weft.bfloat16)).dtype == dtypes.bfloat16.np
    with pytest.raises(ValueError, match="needs a copy"):
        np.asarray(x, dtype=np.int8, copy=False)


def test_array_of_a_recorded_tensor_is_refused():
    x = weft.ones(2, requires_grad=True)
    for y in (x, x * 2):
        with pytest.raises(
            AutogradError, match=r"np.asarray: this tensor requires grad"
        ):
            np.asarray(y)
    with weft.no_grad():
        assert np.asarray(x * 2).tolist() == [2, 2]


def test_array_inside_a_transform_is_refused():
    with pytest.raises(AutogradError, match=r"np\.asarray: this tensor is inside"):
        weft.func.jvp(lambda x: weft.from_numpy(np.asarray(x)), (weft.ones(2),), (
            weft.ones(2),))  # fmt: skip
    with pytest.raises(AutogradError, match=r"np\.asarray"):
        weft.func.vmap(lambda x: weft.from_numpy(np.asarray(x)))(weft.ones(2, 2))


def test_lists_of_tensors_still_make_tensors():
    x = weft.tensor([1.0, 2.0], dtype=weft.float64, requires_grad=True)
    made = weft.tensor([x, x * 2])
    check(made, np.array([[1.0, 2.0], [2.0, 4.0]]))
    assert weft.tensor([x[0], 3]).dtype is weft.float64
    assert weft.tensor([weft.ones(2, dtype=weft.bfloat16)]).dtype is weft.bfloat16
    assert weft.tensor([1, weft.tensor(2)]).tolist() == [1, 2]


def test_numpy_testing_takes_tensors():
    np.testing.assert_allclose(weft.ones(2), np.ones(2))
    with pytest.raises(AssertionError):
        np.testing.assert_allclose(weft.ones(2), np.zeros(2))


# -- ufuncs

POSITIVE = {"log", "log2", "log10", "sqrt", "power", "arccosh"}
SMALL = {"arcsin", "arccos", "arctanh"}
WHOLE = {
    "bitwise_and", "bitwise_or", "bitwise_xor", "gcd", "lcm", "left_shift",
    "right_shift", "invert",
}  # fmt: skip


def arguments(ufunc):
    if ufunc.__name__ in WHOLE:
        return [RNG.integers(0, 6, (2, 3)) for _ in range(ufunc.nin)]
    low, high = (0.1, 0.9) if ufunc.__name__ in SMALL else (0.5, 3.0)
    if ufunc.__name__ == "arccosh":
        low, high = 1.5, 3.0
    shape = (3, 3)
    return [RNG.uniform(low, high, shape) for _ in range(ufunc.nin)]


@pytest.mark.parametrize("ufunc", numpy_protocol.UFUNCS, ids=lambda u: u.__name__)
def test_ufuncs_become_operators(ufunc):
    args = arguments(ufunc)
    check(ufunc(*map(T, args)), ufunc(*args))
    if ufunc.nin == 2:
        check(ufunc(args[0], T(args[1])), ufunc(*args))
        check(ufunc(T(args[0]), args[1]), ufunc(*args))


DIFFERENTIABLE = [
    u for u in numpy_protocol.UFUNCS
    if u.types and u.types[-1][-1] != "?" and u.__name__ not in WHOLE
    and u.__name__ not in ("floor_divide", "vecdot")
    and "?" not in {t[-1] for t in u.types if "d" in t}
]  # fmt: skip


@pytest.mark.parametrize("ufunc", DIFFERENTIABLE, ids=lambda u: u.__name__)
def test_ufuncs_are_recorded(ufunc):
    args = [T(a).requires_grad_() for a in arguments(ufunc)]
    assert ufunc(*args).requires_grad


def test_ufunc_gradients():
    x = T(RNG.uniform(0.5, 2, 3)).requires_grad_()
    weight = RNG.uniform(size=3)
    assert weft.autograd.gradcheck(
        lambda x: np.sin(x) * weight + np.hypot(x, 2.0), (x,)
    )
    assert weft.autograd.gradcheck(lambda x: weight / np.sqrt(weight @ x + x), (x,))


@pytest.mark.parametrize(
    "op",
    [operator.add, operator.sub, operator.mul, operator.truediv, operator.floordiv,
     operator.mod, operator.pow, operator.lt, operator.le, operator.gt, operator.ge,
     operator.eq, operator.ne, operator.matmul],
    ids=lambda f: f.__name__,
)  # fmt: skip
def test_operators_between_arrays_and_tensors(op):
    a, b = RNG.uniform(1, 3, (2, 2)), RNG.uniform(1, 3, (2, 2))
    check(op(a, T(b)), op(a, b))
    check(op(T(a), T(b)), op(a, b))
    check(op(T(a), b), op(a, b))
    if op is not operator.matmul:
        check(op(np.float64(2), T(b)), op(np.float64(2), b))
        check(op(T(a), np.float64(2)), op(a, np.float64(2)))


def test_bits_between_arrays_and_tensors():
    a, b = np.array([6, 5]), np.array([3, 1])
    for op in (operator.and_, operator.or_, operator.xor, operator.lshift):
        check(op(a, T(b)), op(a, b))
        check(op(T(a), b), op(a, b))


def test_unfitting_shapes_are_an_error_of_wefts():
    with pytest.raises(weft.errors.ShapeError, match="cannot broadcast"):
        np.ones(2) + weft.ones(3)


def test_ufuncs_into_out():
    array, x = np.zeros(2), weft.ones(2, dtype=weft.float64)
    assert np.add(x, 2, out=array) is array
    assert array.tolist() == [3, 3]
    held = array
    array += x
    assert held is array
    assert array.tolist() == [4, 4]
    target = weft.zeros(2)
    assert np.multiply(array, x, out=target) is target
    assert target.tolist() == [4, 4]
    with pytest.raises(ValueError, match="out has"):
        np.add(x, 2, out=np.zeros(3))
    with pytest.raises(AutogradError, match="out=array"):
        np.add(weft.ones(2, requires_grad=True), 2, out=array)
    assert array.tolist() == [4, 4]


def test_ufunc_dtype():
    check(np.add(T([1.5]), T([2.0]), dtype=np.float32), np.array([3.5], np.float32))


def test_ufuncs_without_an_operator_run_on_values():
    x = T([1.5, -2.25])
    check(np.frexp(x), np.frexp(x.numpy()))
    check(np.cbrt(x), np.cbrt(x.numpy()))
    with pytest.raises(
        AutogradError, match=r"np\.cbrt: Weft has no differentiable form"
    ):
        np.cbrt(x.requires_grad_())


@pytest.mark.parametrize(
    "ufunc", [np.add, np.multiply, np.maximum, np.minimum], ids=lambda u: u.__name__
)
def test_ufunc_methods(ufunc):
    a = RNG.uniform(0.5, 2, (3, 4))
    for axis in (0, 1, -1):
        check(ufunc.reduce(T(a), axis=axis), ufunc.reduce(a, axis=axis))
        check(ufunc.accumulate(T(a), axis=axis), ufunc.accumulate(a, axis=axis))
    check(ufunc.reduce(T(a)), ufunc.reduce(a))
    check(ufunc.reduce(T(a), axis=None), ufunc.reduce(a, axis=None))
    check(ufunc.reduce(T(a), axis=(0, 1), keepdims=True), ufunc.reduce(
        a, axis=(0, 1), keepdims=True))  # fmt: skip
    check(ufunc.outer(T(a), a[0]), ufunc.outer(a, a[0]))
    x = T(a).requires_grad_()
    assert ufunc.reduce(x).requires_grad
    assert ufunc.accumulate(x).requires_grad
    assert ufunc.outer(x, x).requires_grad


def test_other_ufunc_methods():
    a = np.array([True, False])
    check(np.logical_and.reduce(T(a)), np.array(False))
    check(np.logical_or.reduce(T(a)), np.array(True))
    check(np.hypot.reduce(T([3.0, 4.0])), np.hypot.reduce([3.0, 4.0]))
    check(np.subtract.accumulate(T([3.0, 4.0])), np.array([3.0, -1.0]))
    x = weft.ones(3)
    for call in (
        lambda: np.add.at(x, [0], 1),
        lambda: np.add.reduceat(x, [0, 1]),
    ):
        with pytest.raises(TypeError, match=r"np\.add\.\w+: not available on tensors"):
            call()
    assert x.tolist() == [1, 1, 1]
    with pytest.raises(TypeError, match=r"np\.add: where= is not available"):
        np.add(x, 1, where=np.array([True, False, True]), out=np.zeros(3))
    with pytest.raises(AutogradError, match=r"np\.hypot\.reduce"):
        np.hypot.reduce(weft.ones(2, requires_grad=True))


# -- functions

M = RNG.uniform(0.5, 2, (2, 3))
SQUARE = RNG.normal(size=(3, 3)) + 3 * np.eye(3)
CALLS = {
    "sum": lambda x: np.sum(x),
    "sum axis": lambda x: np.sum(x, 0, keepdims=True),
    "prod": lambda x: np.prod(x, axis=1),
    "mean": lambda x: np.mean(x, 1),
    "mean all": lambda x: np.mean(x, axis=(0, 1), keepdims=True),
    "var": lambda x: np.var(x, axis=0, ddof=1),
    "std": lambda x: np.std(x),
    "max": lambda x: np.max(x, axis=0),
    "amin": lambda x: np.amin(x, axis=1, keepdims=True),
    "nansum": lambda x: np.nansum(x, axis=0),
    "nanmean": lambda x: np.nanmean(x),
    "cumsum": lambda x: np.cumsum(x),
    "cumsum axis": lambda x: np.cumsum(x, axis=0),
    "cumprod": lambda x: np.cumprod(x, axis=1),
    "diff": lambda x: np.diff(x, n=2),
    "trace": lambda x: np.trace(x),
    "concatenate": lambda x: np.concatenate([x, x], axis=1),
    "concatenate none": lambda x: np.concatenate((x, np.ones((1, 3))), axis=None),
    "stack": lambda x: np.stack([x, x], axis=-1),
    "hstack": lambda x: np.hstack([x, x]),
    "vstack": lambda x: np.vstack([x, x]),
    "dstack": lambda x: np.dstack([x, x]),
    "reshape": lambda x: np.reshape(x, (3, -1)),
    "ravel": lambda x: np.ravel(x),
    "transpose": lambda x: np.transpose(x),
    "transpose axes": lambda x: np.transpose(x, (1, 0)),
    "swapaxes": lambda x: np.swapaxes(x, 0, 1),
    "moveaxis": lambda x: np.moveaxis(x, 0, -1),
    "squeeze": lambda x: np.squeeze(x[:, :1]),
    "squeeze axis": lambda x: np.squeeze(x[:, :1], axis=1),
    "expand_dims": lambda x: np.expand_dims(x, (0, 2)),
    "broadcast_to": lambda x: np.broadcast_to(x, (4, 2, 3)),
    "flip": lambda x: np.flip(x, 0),
    "roll": lambda x: np.roll(x, 2, axis=1),
    "tile": lambda x: np.tile(x, 2),
    "repeat": lambda x: np.repeat(x, 2, axis=0),
    "tril": lambda x: np.tril(x),
    "triu": lambda x: np.triu(x, k=1),
    "diagonal": lambda x: np.diagonal(x, 1),
    "unstack": lambda x: np.unstack(x, axis=1),
    "where": lambda x: np.where(x > 1, x, 0.0),
    "where array": lambda x: np.where(M > 1, x, M),
    "where number": lambda x: np.where(M.astype(int), x, 1.0),
    "clip": lambda x: np.clip(x, 0.7, 1.5),
    "clip none": lambda x: np.clip(x, None, 1.5),
    "take": lambda x: np.take(x, [0, 4]),
    "take axis": lambda x: np.take(x, np.array([[0, 2], [1, 1]]), axis=1),
    "take_along_axis": lambda x: np.take_along_axis(x, np.array([[0], [2]]), axis=1),
    "sort": lambda x: np.sort(x, axis=0),
    "sort flat": lambda x: np.sort(x, axis=None),
    "nan_to_num": lambda x: np.nan_to_num(x),
    "sinc": lambda x: np.sinc(x),
    "copy": lambda x: np.copy(x),
    "real": lambda x: np.real(x),
    "dot": lambda x: np.dot(x, x.T),
    "dot vector": lambda x: np.dot(x, np.ones(3)),
    "dot number": lambda x: np.dot(2.0, x),
    "dot deep": lambda x: np.dot(x, np.ones((2, 3, 4))),
    "matmul": lambda x: np.matmul(np.ones((2, 2)), x),
    "inner": lambda x: np.inner(x, x),
    "outer": lambda x: np.outer(x, x),
    "tensordot": lambda x: np.tensordot(x, x, axes=(1, 1)),
    "vecdot": lambda x: np.vecdot(x, np.ones(3)),
    "einsum": lambda x: np.einsum("ij,kj->ik", x, x),
    "matrix_transpose": lambda x: np.matrix_transpose(x),
    "inv": lambda x: np.linalg.inv(x @ SQUARE @ x.T),
    "det": lambda x: np.linalg.det(x @ SQUARE @ x.T),
    "solve": lambda x: np.linalg.solve(SQUARE, x.T),
}


@pytest.mark.parametrize("name", CALLS)
def test_functions_give_numpys_values_and_gradients(name):
    call = CALLS[name]
    check(call(T(M)), call(M), 1e-10)
    x = T(M).requires_grad_()
    assert weft.autograd.gradcheck(call, (x,))


PLAIN = {
    "argmax": lambda x: np.argmax(x, axis=1),
    "argmin": lambda x: np.argmin(x),
    "argsort": lambda x: np.argsort(x, axis=0),
    "all": lambda x: np.all(x > 0, axis=0),
    "any": lambda x: np.any(x > 1),
    "count_nonzero": lambda x: np.count_nonzero(x > 1, axis=0),
    "nonzero": lambda x: np.nonzero(x > 1),
    "zeros_like": lambda x: np.zeros_like(x),
    "ones_like": lambda x: np.ones_like(x, dtype=np.int64),
    "full_like": lambda x: np.full_like(x, 2.0),
    "median": lambda x: np.median(x, axis=0),
    "histogram": lambda x: np.histogram(x, bins=3),
    "unique": lambda x: np.unique(x),
    "percentile": lambda x: np.percentile(x, 30, axis=1),
    "kron": lambda x: np.kron(x, x),
    "cov": lambda x: np.cov(x),
    "sum initial": lambda x: np.sum(x, initial=5.0),
    "linalg svd": lambda x: np.linalg.svd(x, compute_uv=False),
    "split": lambda x: np.split(x, 3, axis=1),
    "fft": lambda x: np.fft.fft(x),
    "isclose": lambda x: np.isclose(x, x + 1e-9),
}


@pytest.mark.parametrize("name", PLAIN)
def test_functions_of_values(name):
    check(PLAIN[name](T(M)), PLAIN[name](M), 1e-12)


def test_functions_that_answer_in_python():
    x = T(M).requires_grad_()
    assert np.shape(x) == (2, 3)
    assert np.ndim(x) == 2
    assert np.size(x) == 6
    assert np.size(x, 1) == 3
    assert np.empty_like(x).shape == (2, 3)
    assert np.allclose(T(M), M) is True
    assert np.array_equal(T(M), M + 1) is False


def test_functions_without_a_derivative_name_themselves():
    x = T(M).requires_grad_()
    for call, name in [
        (lambda: np.median(x), r"np\.median"),
        (lambda: np.sum(x, where=M > 1), r"np\.sum"),
        (lambda: np.fft.fft(x), r"np\.fft\.fft"),
        (lambda: np.kron(M, x), r"np\.kron"),
    ]:
        with pytest.raises(AutogradError, match=name + ": Weft has no differentiable"):
            call()


def test_functions_inside_transforms():
    x = T(M)
    got = weft.func.vmap(lambda row: np.sum(np.sin(row)))(x)
    check(got, np.sin(M).sum(1))
    value, tangent = weft.func.jvp(lambda x: np.mean(x * x), (x,), (weft.ones_like(x),))
    check(value, (M * M).mean())
    check(tangent, (2 * M).mean())
    with pytest.raises(AutogradError, match=r"np\.median: this tensor is inside"):
        weft.func.vmap(np.median)(x)


def test_errors_inside_functions_stay_clear():
    with pytest.raises(weft.errors.ShapeError):
        np.concatenate([T(M), weft.ones(2)], axis=0)


def test_examples():
    result = doctest.testmod(interchange, extraglobs={"weft": weft, "np": np})
    assert result.attempted > 0
    assert result.failed == 0
