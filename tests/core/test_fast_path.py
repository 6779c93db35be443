"""Short ways leave behind what ``bind`` leaves: values, views and the tape."""

import numpy as np
import pytest

import weft
from weft.core.mode import observe
from weft.core.tensor import Tensor
from weft.errors import WeftError

CALLS = {
    "reshape": lambda x: x.reshape(2, 6),
    "reshape tuple": lambda x: x.reshape((2, -1)),
    "reshape list": lambda x: x.reshape([6, 2]),
    "reshape -1": lambda x: x.reshape(-1),
    "reshape NumPy's int": lambda x: x.reshape(np.int64(2), 6),
    "reshape to a copy": lambda x: x.T.reshape(12),
    "reshape of a view": lambda x: x[1:].reshape(8),
    "permute": lambda x: x.permute(1, 0),
    "permute negative": lambda x: x.permute(-1, 0),
    "transpose": lambda x: x.transpose(0, -1),
    "T": lambda x: x.T,
    "an index": lambda x: x[-1],
    "a slice": lambda x: x[1:3],
    "a whole slice": lambda x: x[:],
    "a slice beyond": lambda x: x[-100:2, 1:100:2],
    "an empty slice": lambda x: x[3:1],
    "a column": lambda x: x[:, 1],
    "a new axis": lambda x: x[None, :, None, 2],
    "dots": lambda x: x[..., 0],
    "nothing": lambda x: x[()],
    "one element": lambda x: x[1, 2],
    "NumPy's int": lambda x: x[np.int64(1)],
    "dots in the middle": lambda x: x[None, ..., 1:],
    "dots for nothing": lambda x: x[0, ..., 1],
    "dots at the end": lambda x: x[1, ...],
    "dots and a new axis": lambda x: x[..., None],
    "an index tensor": lambda x: x[weft.tensor([2, -1, 0])],
    "an index tensor of two axes": lambda x: x[weft.tensor([[2, 1], [0, 0]])],
    "an empty index tensor": lambda x: x[weft.zeros(0, dtype=weft.int64)],
    "an index tensor of no axes": lambda x: x[weft.tensor(2)],
    "an index tensor of int32": lambda x: x[weft.tensor([2, 1], dtype=weft.int32)],
    "a mask": lambda x: x[weft.tensor([True, False, True])],
    "a mask of none": lambda x: x[weft.tensor([False, False, False])],
    "a mask of all axes": lambda x: x[x > 4],
    "a mask of two axes of three": lambda x: x[:, :, None][x > 4],
    "a mask of a transposed tensor": lambda x: x.T[x.T > 4],
    "a list": lambda x: x[[2, 0, -1]],
    "a list of lists": lambda x: x[[[0, 1], [2, 0]]],
    "a list of booleans": lambda x: x[[True, False, True]],
    "an index of one axis": lambda x: x[0][-1],
    "every other row": lambda x: x[::2],
    "columns by a slice": lambda x: x[:, 1:3],
    "columns by a whole slice": lambda x: x[:, :],
    "a new axis inside": lambda x: x[:, None],
    "columns by an index tensor": lambda x: x[:, weft.tensor([3, -1])],
    "elements by two index tensors": lambda x: x[
        weft.tensor([0, -1]), weft.tensor([[1], [-2]])
    ],
    "expand": lambda x: x.expand(2, 3, 4),
    "expand keeping": lambda x: x[:, :1].expand(-1, 5),
    "expand contiguous": lambda x: x.reshape(3, 1, 4).expand((3, 2, 4)),
    "unsqueeze": lambda x: x.unsqueeze(-1),
    "sum": lambda x: x.sum(),
    "sum along": lambda x: x.sum(-1),
    "sum along both": lambda x: x.sum((0, 1), keepdim=True),
    "sum of nothing named": lambda x: x.sum(()),
    "sum keeping": lambda x: x.sum(keepdim=True),
    "amax": lambda x: x.amax(),
    "amin along": lambda x: x.amin(-1, keepdim=True),
    "add": lambda x: x + x[0],
    "multiply": lambda x: x * x,
    "matmul": lambda x: x @ x.T,
    "exp": lambda x: x.exp(),
    "where": lambda x: weft.where(x > 4, x, x * 2),
    "where it is a number": lambda x: weft.where(x > 4, 1, x),
    "where it is another number": lambda x: weft.where(x > 4, x, 0.5),
    "where it is True": lambda x: weft.where(x > 4, x, True),
    "where it is a large number": lambda x: weft.where(x > 4, x, 2**20),
    "where it is a number of no tensor": lambda x: weft.where(x > 4, 1.0, 0.0),
    "where there are other shapes": lambda x: weft.where(x[:, :1] > 4, x, x[0]),
    "where there is a 0-d tensor": lambda x: weft.where(x > 4, x[0, 0], x),
    "where there is a 0-d condition": lambda x: weft.where(x[0, 0] > 4, x[1, 0], 2.0),
    "where there are two dtypes": lambda x: weft.where(x > 4, x, x.double()),
    "relu": lambda x: (x - 5).relu(),
    "clamp": lambda x: x.clamp(2, 7),
    "masked_fill": lambda x: x.masked_fill(x > 4, -1),
}

WRONG = {
    "reshape": lambda x: x.reshape(5),
    "reshape -2": lambda x: x.reshape(2, -2),
    "reshape two": lambda x: x.reshape(-1, -1),
    "reshape a fraction": lambda x: x.reshape(2.0, 6),
    "reshape None": lambda x: x.reshape(None),
    "permute": lambda x: x.permute(0, 0),
    "permute few": lambda x: x.permute(0),
    "permute None": lambda x: x.permute(None),
    "transpose": lambda x: x.transpose(0, 2),
    "an index": lambda x: x[3],
    "three": lambda x: x[0, 0, 0],
    "step 0": lambda x: x[::0],
    "a fraction": lambda x: x[1.5],
    "dots twice": lambda x: x[..., 0, ...],
    "dots and too many": lambda x: x[0, ..., 0, 0],
    "an index beyond": lambda x: x[weft.tensor([0, 3])],
    "a mask of another size": lambda x: x[weft.tensor([True, False])],
    "expand": lambda x: x.expand(2, 4),
    "expand below": lambda x: x.expand(-2, 3, 4),
    "sum": lambda x: x.sum(2),
    "sum twice": lambda x: x.sum((0, 0)),
    "amax": lambda x: x.amax(2),
    "amin of none": lambda x: x[:0].amin(),
    "matmul": lambda x: x @ x,
    "where": lambda x: weft.where(x > 4, x, x[0, :3]),
    "where a number is chosen by": lambda x: weft.where(x, x, 0),
    "where a text is chosen": lambda x: weft.where(x > 4, x, "0"),
}


def inputs():
    array = np.arange(12.0, dtype=np.float32).reshape(3, 4)
    yield weft.tensor(array)
    yield weft.tensor(array, requires_grad=True)
    yield weft.tensor(array, requires_grad=True) * 2
    yield weft.tensor(array.astype(np.float16))
    yield weft.tensor(array.astype(np.int32))


def watched(call, x):
    """What ``call`` gives by way of ``bind``."""
    with observe(lambda op, args, params, out: None):
        return call(x)


def plain(value):
    """A saved value as something that can be compared."""
    return value.numpy(force=True).tolist() if isinstance(value, Tensor) else value


def history(out):
    """The tape behind a tensor, as text."""
    node, lines = out._node, []
    while node is not None and hasattr(node, "plan"):
        saved = [plain(value) for value in node.saved]
        lines.append((node.name, node.params, saved, node.code.co_filename))
        node = next((p for p in node.parents if p is not None), None)
    return lines


@pytest.mark.parametrize("name", CALLS)
def test_short_ways_leave_what_bind_leaves(name):
    for x in inputs():
        if name == "exp" and not x.dtype.is_inexact:
            continue
        quick, slow = CALLS[name](x), watched(CALLS[name], x)
        assert quick.dtype is slow.dtype
        np.testing.assert_array_equal(quick.detach().numpy(), slow.detach().numpy())
        assert quick.shape == slow.shape
        assert quick.stride() == slow.stride()
        assert (quick is x) == (slow is x)
        assert quick._chain == slow._chain
        assert (quick._base is None) == (slow._base is None)
        if quick._base is not None:
            assert quick._storage is quick._base._storage
            assert quick._data.flags.writeable == slow._data.flags.writeable
            assert any(v is quick for v in quick._storage.live_views())
        assert history(quick) == history(slow)


@pytest.mark.parametrize("name", WRONG)
def test_short_ways_refuse_in_the_same_words(name):
    for x in inputs():
        with pytest.raises(WeftError) as quick:
            WRONG[name](x)
        with pytest.raises(WeftError) as slow:
            watched(WRONG[name], x)
        assert type(quick.value) is type(slow.value)
        assert str(quick.value) == str(slow.value)


def _write(index, value):
    def write(x):
        x[index] = value
        return x

    return write


INDEXED_WRITES = {
    "a row": _write(1, weft.tensor([1.0, 2.0, 3.0, 4.0])),
    "a column": _write((slice(None), 1), 7),
    "a number at an index tensor": _write(weft.tensor([0, -1]), 5),
    "a number at a mask": _write(weft.tensor([True, False, True]), 5),
    "a number at columns": _write((slice(None), weft.tensor([0, 3])), 5),
    "a number at pairs": _write((weft.tensor([0, -1]), weft.tensor([1, -2])), 5),
    "rows at an index tensor": _write(weft.tensor([2, 0]), weft.ones(2, 4)),
    "one row at an index tensor": _write(weft.tensor([2, 0]), weft.ones(4)),
}


@pytest.mark.parametrize("name", INDEXED_WRITES)
def test_short_ways_write_what_bind_writes(name):
    array = np.arange(12.0, dtype=np.float32).reshape(3, 4)
    quick, slow = weft.tensor(array), weft.tensor(array)
    before = [x.storage_record.version for x in (quick, slow)]
    INDEXED_WRITES[name](quick)
    watched(INDEXED_WRITES[name], slow)
    np.testing.assert_array_equal(quick.numpy(), slow.numpy())
    assert quick.storage_record.version > before[0]
    assert slow.storage_record.version > before[1]


@pytest.mark.parametrize(
    "index",
    [
        weft.tensor([0, 3]),
        weft.tensor([-4]),
        (slice(None), weft.tensor([0, 4])),
        (weft.tensor([0]), weft.tensor([9])),
    ],
    ids=["row", "row below", "column", "pair"],
)
@pytest.mark.parametrize("value", [5, weft.ones(())], ids=["number", "tensor"])
def test_refused_writes_leave_the_tensor_as_it_was(index, value):
    x = weft.zeros(3, 4)
    with pytest.raises(WeftError):
        x[index] = value
    assert not x.any()
    with pytest.raises(WeftError):
        x[index]


def test_a_write_at_indices_disturbs_what_was_saved():
    x = weft.ones(3, 4)
    w = weft.ones(3, 4, requires_grad=True)
    out = (w * x).sum()
    x[:, weft.tensor([1, 2])] = 3
    with pytest.raises(WeftError, match="changed in place"):
        out.backward()


def test_the_line_of_a_short_way_is_the_users():
    x = weft.ones(2, 3, requires_grad=True)
    for call in (
        lambda: x.reshape(6),
        lambda: x.flatten(),
        lambda: x.sum(),
        lambda: -x,
        lambda: x.relu(),
        lambda: -x,
    ):
        assert call()._node.code is call.__code__


def test_views_that_are_gone_are_forgotten():
    x = weft.ones(4)
    for _ in range(1000):
        x.reshape(2, 2)
    kept = [x.reshape(2, 2) for _ in range(300)]
    assert len(x._storage.views) < 1000
    assert len(x._storage.live_views()) == len(kept)


def test_backward_ties_no_views():
    x = weft.ones(2, 3, requires_grad=True)
    seen = []
    y = x.reshape(6)
    y.register_hook(lambda g: seen.append(g.reshape(3, 2)._base))
    y.sum().backward()
    assert seen == [None]
    assert x.reshape(6)._base is x


# -- writing

WRITES = {
    "a number": lambda x: x.__setitem__(1, 2.5),
    "an int": lambda x: x.__setitem__((0, 2), 3),
    "a slice": lambda x: x.__setitem__(slice(1, 3), -1.0),
    "dots": lambda x: x.__setitem__((..., 1), 0.5),
    "all": lambda x: x.__setitem__(..., 0.1),
    "a row": lambda x: x.__setitem__(2, x[0].detach().clone()),
    "a row of itself": lambda x: x.__setitem__(2, x[0]),
    "a part of itself": lambda x: x.__setitem__(slice(1, 3), x[:2].detach()),
    "a row for several": lambda x: x.__setitem__(slice(0, 2), x[2].detach()),
    "a 0-d tensor": lambda x: x.__setitem__(1, weft.tensor(7.0)),
    "another dtype": lambda x: x.__setitem__(1, weft.tensor(7.0, dtype=weft.float64)),
    "a list": lambda x: x.__setitem__(1, [1.0, 2.0, 3.0, 4.0]),
    "a mask": lambda x: x.__setitem__(weft.tensor([True, False, True]), 9.0),
    "a mask of all axes": lambda x: x.__setitem__(x.detach() > 4, 9.0),
    "rows": lambda x: x.__setitem__(weft.tensor([2, 0, 2]), 1.5),
    "rows of a view": lambda x: x[1:].__setitem__(weft.tensor([1, 0]), 1.5),
    "one element": lambda x: x.__setitem__(weft.tensor(1), 1.5),
    "True": lambda x: x.__setitem__(1, True),
    "a value with a gradient": lambda x: x.__setitem__(
        1, weft.ones(4, requires_grad=True)
    ),
    "an index beyond": lambda x: x.__setitem__(3, 1.0),
    "rows beyond": lambda x: x.__setitem__(weft.tensor([0, 3]), 1.0),
    "a mask of another size": lambda x: x.__setitem__(weft.tensor([True]), 1.0),
    "a value that does not fit": lambda x: x.__setitem__(1, weft.ones(3)),
    "a huge int": lambda x: x.__setitem__(1, 10**400),
    "memory that repeats": lambda x: x[:1].expand(3, 4).__setitem__(1, 1.0),
}


def outcome(write, x):
    """What a tensor holds and knows after it was written to, or the error."""
    before = x._version
    try:
        write(x)
    except (WeftError, OverflowError) as error:
        return x.numpy(force=True).tolist(), type(error), str(error).split("\n")[0]
    change = x.storage_record.change[0]
    return x.numpy(force=True).tolist(), x._version - before, change, history(x)


@pytest.mark.parametrize("name", WRITES)
def test_writing_by_a_short_way_is_writing(name):
    write = WRITES[name]
    for short, long in zip(inputs(), inputs(), strict=True):
        got = outcome(write, short)
        with observe(lambda op, args, params, out: None):
            assert got == outcome(write, long)


def test_the_line_of_a_write_is_the_users():
    x = weft.ones(3)
    x[1] = 2.0
    code, _ = x.storage_record.change[1:]
    assert code.co_name == "test_the_line_of_a_write_is_the_users"


def test_values_that_were_saved_are_missed_when_written_to():
    x = weft.ones(3)
    y = weft.ones(3, requires_grad=True) * x
    x[0] = 5.0
    with pytest.raises(RuntimeError, match="changed in place"):
        y.sum().backward()


def test_numbers_of_lists_are_those_of_arrays():
    for data in ([1.0, 0.1, 1e-50], [float("nan"), -0.0], [], [1.0, 2], [1.0, True]):
        want = weft.tensor(np.array(data)).to(weft.float32)
        got = weft.tensor(data)
        if all(type(v) is float for v in data):
            assert got.dtype is weft.float32
        np.testing.assert_array_equal(got.numpy(), want.numpy())
