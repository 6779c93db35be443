"""What shares memory eagerly does so in a captured program, and nothing else does."""

import numpy as np
import pytest

import weft
from weft import nn
from weft.errors import ArgumentError
from weft.graph import CaptureError, capture

F = nn.functional

SHOWN = {
    "alias": lambda x: x[...],
    "as_tensor": weft.as_tensor,
    "broadcast_tensors": lambda x: weft.broadcast_tensors(x, x[:1])[0],
    "cat of one": lambda x: weft.cat([x]),
    "chunk": lambda x: x.chunk(2, 0)[0],
    "clone": lambda x: x.clone(),
    "contiguous": lambda x: x.contiguous(),
    "contiguous of a view": lambda x: x[:, 1:].contiguous(),
    "contiguous, turned": lambda x: x.T.contiguous(),
    "data": lambda x: x.data,
    "detach": lambda x: x.detach(),
    "detached and turned": lambda x: x.T.detach().reshape(-1),
    "diagonal": lambda x: x.diagonal(),
    "double": lambda x: x.double(),
    "dropout of nothing": lambda x: F.dropout(x, 0.5, training=False),
    "einsum": lambda x: weft.einsum("ij->ji", x),
    "expand": lambda x: x.expand(4, 6),
    "flatten": lambda x: x.flatten(),
    "flip": lambda x: x.flip(0),
    "float": lambda x: x.float(),
    "identity": nn.Identity(),
    "ints": lambda x: x[1, 2],
    "list": lambda x: x[[1]],
    "mT": lambda x: x.mT,
    "movedim": lambda x: x.movedim(0, 1),
    "narrow": lambda x: x.narrow(0, 1, 2),
    "none": lambda x: x[None],
    "number": lambda x: x[weft.tensor(1)],
    "number, computed": lambda x: x[(x[0, 0] * 0 + 1).long()],
    "number in the middle": lambda x: x[1:, (x[0, 0] * 0 - 2).long()],
    "numbers": lambda x: x[(x[0, 0] * 0).long(), 1:][(x[0, 0] * 0 + 3).long()],
    "number and list": lambda x: x[(x[0, 0] * 0).long(), [1, 2]],
    "permute": lambda x: x.permute(1, 0),
    "ravel": lambda x: x.ravel(),
    "real": lambda x: x.real,
    "reshape": lambda x: x.reshape(-1),
    "roll": lambda x: x.roll(1, 0),
    "select": lambda x: x.select(1, 2),
    "slices": lambda x: x[1:3, ::2],
    "split": lambda x: x.split(2, 1)[1],
    "squeeze": lambda x: x[:1].squeeze(0),
    "stack of one": lambda x: weft.stack([x])[0],
    "to": lambda x: x.to(weft.float32),
    "unbind": lambda x: x.unbind(0)[1],
    "unflatten": lambda x: x.unflatten(1, (2, 3)),
    "unfold": lambda x: x.unfold(0, 2, 2),
    "vmap": weft.func.vmap(lambda row: row),
    "cond": lambda x: weft.cond(x[0, 0] > -1, lambda x: x, lambda x: x * 2, x),
    "cond, closed over": lambda x: weft.cond(
        x[0, 0] > -1, lambda: x[1:], lambda: x[:-1]
    ),
    "while_loop": lambda x: weft.while_loop(
        lambda x: x[0, 0] < -1, lambda x: x * 2, x
    ),
    "scan": lambda x: weft.scan(lambda c, row: (c, row), x, x)[0],
}  # fmt: skip

LAYOUTS = {
    "plain": lambda: weft.arange(24.0).reshape(4, 6) * 1,
    "turned": lambda: (weft.arange(24.0).reshape(6, 4) * 1).T,
    "in steps": lambda: (weft.arange(96.0).reshape(8, 12) * 1)[::2, ::2],
}


def outcome(fn, make):
    """The result and the argument afterwards, or the error."""
    x = make()
    try:
        found = fn(x).tolist()
    except ArgumentError as error:
        found = str(error).splitlines()[0]
    return found, x.tolist()


@pytest.mark.parametrize("mode", [weft.no_grad, weft.inference_mode])
@pytest.mark.parametrize("make", LAYOUTS.values(), ids=LAYOUTS)
@pytest.mark.parametrize("name", SHOWN)
def test_writes_are_seen_where_they_are_eagerly(name, make, mode):
    show = SHOWN[name]

    def written(x):
        y = show(x)
        y.add_(100)
        return y * 1

    def changed(x):
        y = show(x)
        x.mul_(2)
        return y * 1

    with mode():
        for program in (written, changed):
            want = outcome(program, make)
            assert outcome(lambda x, p=program: capture(p, x)(x), make) == want


@pytest.mark.parametrize("name", ["contiguous", "number, computed", "cond"])
def test_compiled_as_captured(name):
    def program(x):
        y = SHOWN[name](x)
        y.add_(100)
        return y * 1

    compiled = weft.compile(program)
    for make in (*LAYOUTS.values(), LAYOUTS["plain"]):
        assert outcome(compiled, make) == outcome(program, make)


def test_several_elements_in_one_place_are_not_written():
    def program(x):
        x[:1].expand(4, 6).add_(1)
        return x

    x = LAYOUTS["plain"]()
    with pytest.raises(ArgumentError, match=r"add_: several elements .* share memory"):
        program(x)
    with pytest.raises(ArgumentError, match=r"add_: several elements .* share memory"):
        capture(program, x)


def test_an_index_that_changes_later_is_as_it_was():
    def program(x, i):
        row = x[i]
        i.add_(1)
        row.mul_(2)
        return x, row, i

    x, i = LAYOUTS["plain"](), weft.tensor(1)
    want = [t.tolist() for t in program(x.clone(), i.clone())]
    assert [t.tolist() for t in capture(program, x, i)(x, i)] == want


def test_each_example_writes_where_its_index_says():
    def program(x, i):
        x = x.clone()
        x[i].add_(1)
        return x

    found = weft.func.vmap(program)(weft.zeros(2, 3, 2), weft.tensor([0, 2]))
    assert found[:, :, 0].tolist() == [[1, 0, 0], [0, 0, 1]]


def test_gradients_through_a_row_that_is_written():
    def program(x, i):
        y = x * 2
        y[i].mul_(3)
        return (y * y).sum()

    x, i = weft.randn(3, 4), weft.tensor(1)
    want = 8 * x.numpy() * np.array([[1.0], [9.0], [1.0]])
    for gradient in (weft.func.grad(program), weft.compile(weft.func.grad(program))):
        np.testing.assert_allclose(gradient(x, i).numpy(), want, rtol=1e-5)


def test_several_indices_with_open_sizes():
    x, i = weft.arange(12).reshape(3, 4), weft.tensor(-1)

    def program(x, i):
        return x[i, [0, 1]], x[i, i]

    captured = capture(program, x, i, dynamic={"x": {0: "n", 1: "m"}})
    for given in (x, x[:2, :3]):
        for got, want in zip(captured(given, i), program(given, i), strict=True):
            assert got.tolist() == want.tolist()


def test_an_argument_that_was_written_still_lies_as_it_did():
    def program(x):
        x.add_(1)
        y = x.reshape(-1)
        y.add_(1)
        return x * 1

    compiled = weft.compile(program)
    for make in (*LAYOUTS.values(), LAYOUTS["plain"]):
        assert outcome(compiled, make) == outcome(program, make)


def test_tensors_from_outside_lie_as_they_do():
    for make in (
        lambda: weft.from_numpy(np.arange(6.0).reshape(2, 3).T),
        lambda: weft.arange(6.0).reshape(2, 3).T * 2,
        lambda: weft.arange(6.0).reshape(2, 3) * 2,
    ):
        mine, other = make(), make()

        def program(x):
            y = x.reshape(-1)
            y.add_(1)
            return x * 1

        compiled = weft.compile(lambda mine=mine: program(mine))
        assert compiled().tolist() == program(other).tolist()
        assert mine.tolist() == other.tolist()


# -- layouts that a program does not know

X = weft.arange(6.0).reshape(2, 3)


def written_reshape(x):
    y = x.T + 1
    z = y.reshape(-1)
    z.add_(100)
    return y


def written_base(x):
    y = x.T.exp()
    z = y.flatten()
    y.mul_(2)
    return z


def written_contiguous(x):
    y = x.T * 2
    z = y.contiguous()
    z.add_(1)
    return y


def both_returned(x):
    y = x.T + 1
    return y, y.reshape(-1)


@pytest.mark.parametrize(
    "fn", [written_reshape, written_base, written_contiguous, both_returned]
)
@pytest.mark.parametrize("way", [weft.compile, lambda fn: weft.graph.capture(fn, X)])
def test_what_depends_on_the_layout_of_computed_values_is_refused(fn, way):
    with pytest.raises(CaptureError, match="decided by how the memory of a transposed"):
        way(fn)(X)


def renamed(x):
    y = x.T + 1
    y = y.reshape(-1)
    y += 100
    return y


def untouched(x):
    y = x.T + 1
    z = y.reshape(-1)
    w = z * 2
    w.add_(1)
    return w + y.sum()


def in_order(x):
    y = x + 1
    z = y.reshape(-1)
    z.add_(100)
    return y, z


def known_view(x):
    y = x + 1
    z = y.T.reshape(-1)  # has to copy, here and there
    z.add_(100)
    return y, z


@pytest.mark.parametrize("fn", [renamed, untouched, in_order, known_view])
def test_what_does_not_is_as_eagerly(fn):
    got, want = weft.compile(fn)(X), fn(X)
    pairs = zip(got, want, strict=True) if isinstance(got, tuple) else [(got, want)]
    assert all(weft.equal(a, b) for a, b in pairs)


def test_pairs_of_which_one_is_gone():
    def f(x):
        y = x.T * 1
        for _ in range(3):
            y.flip((1,)).reshape(-1)
        z = (x.T + 1).reshape(-1)
        y.add_(1)
        return y, z

    assert all(map(weft.equal, weft.compile(f)(X), f(X)))
