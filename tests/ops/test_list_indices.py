"""A list as an index: positions, or one index for each axis, as PyTorch decides it."""

import numpy as np
import pytest

import weft

X = np.arange(24).reshape(2, 3, 4)
T = weft.tensor

# lists, and the index of NumPy's that means the same
CASES = {
    "slices": ([slice(0, 1)], (slice(0, 1),)),
    "slice and int": ([slice(None), 1], (slice(None), 1)),
    "int and slice": ([0, slice(None)], (0, slice(None))),
    "slice to a tensor": ([slice(0, T(2)), 0], (slice(0, 2), 0)),
    "None": ([None, 0], (None, 0)),
    "dots": ([..., 0], (..., 0)),
    "tensor and int": ([T([0]), 1], ([0], 1)),
    "tensors": ([T([0, 1]), T([1, 0])], ([0, 1], [1, 0])),
    "numbers in tensors": ([T(0), T(1)], (0, 1)),
    "lists": ([[0, 1], [1, 0]], ([0, 1], [1, 0])),
    "tuples": ([(0, 1), (1, 0)], ([0, 1], [1, 0])),
    "a list of one": ([[0, 1]], ([0, 1],)),
    "arrays": ([np.array([0, 1]), np.array([2, 1])], ([0, 1], [2, 1])),
    "positions": ([1, 0, 1], [1, 0, 1]),
    "a mask": ([True, False], [True, False]),
    "nothing": ([], []),
    "many positions": ([1, 0] * 40, [1, 0] * 40),
}


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("way", ["eager", "compiled", "recorded"])
def test_reading(name, way):
    index, same = CASES[name]
    if way == "compiled" and name in ("slice to a tensor", "numbers in tensors"):
        with pytest.raises(weft.errors.WeftError, match="is known only when the graph"):
            weft.compile(lambda x: x[index])(weft.ones(2, 3, 4))
        return
    x = T(X.astype(np.float32), requires_grad=way == "recorded")
    read = weft.compile(lambda x: x[index]) if way == "compiled" else lambda x: x[index]
    same = np.array(same, int) if same == [] else same
    np.testing.assert_array_equal(read(x).detach().numpy(), X[same])


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("dtype", [np.float32, np.int64])
def test_writing(name, dtype):
    index, same = CASES[name]
    want = X.astype(dtype)
    x = T(want.copy())
    x[index] = 7
    want[np.array(same, int) if same == [] else same] = 7
    np.testing.assert_array_equal(x.numpy(), want)


def test_numbers_may_be_tensors():
    a = T([3, 6, 9])
    assert weft.add(a, a, alpha=T(2)).tolist() == [9, 18, 27]
    assert weft.sub(a, a, alpha=T(2)).tolist() == [-3, -6, -9]
    assert a.clone().add_(a, alpha=T(2)).tolist() == [9, 18, 27]
    assert weft.compile(lambda a, s: weft.add(a, a, alpha=s))(a, T(3)).tolist() == [
        12, 24, 36,
    ]  # fmt: skip
    assert [p.tolist() for p in a.split(T(2))] == [[3, 6], [9]]
    assert weft.linspace(0, 1, T(3)).tolist() == [0, 0.5, 1]
    assert weft.ones(2, 2).tril(T(-1)).tolist() == [[0, 0], [1, 0]]
    assert weft.randint(T(3), T(4), (2,)).tolist() == [3, 3]
    assert weft.histc(a.float(), T(3)).tolist() == [1, 1, 1]
    for alpha, error in ((T(2.5), ValueError), (T([2]), TypeError)):
        with pytest.raises(error, match="expected alpha to be"):
            weft.add(a, a, alpha=alpha)


def test_the_type_of_a_device():
    device = weft.device("cpu")
    assert type(device) is weft.device
    assert isinstance(device, weft.device)
    assert weft.zeros(1).device is device
    with pytest.raises(TypeError, match=r"a name such as 'cpu', got 3\.0"):
        weft.device(3.0)


class Table(weft.nn.Module):
    """Rows by positions that are the module's own, as relative positions are."""

    def __init__(self):
        super().__init__()
        self.rows = weft.nn.Parameter(weft.arange(6.0).reshape(3, 2))
        self.register_buffer("at", T([[2, 0], [1, 1]]))

    def forward(self):
        return (
            self.rows[self.at],
            self.rows[self.at, 0],
            self.rows.put(self.at, self.at.float()),
        )


def test_positions_from_outside_of_a_compiled_function():
    table = Table()
    found = weft.compile(table)()
    for one, want in zip(found, table(), strict=True):
        assert one.tolist() == want.tolist()
    table.at[0, 0] = 3
    with pytest.raises(IndexError, match="index 3"):
        weft.compile(table)()
