"""Views of and as the parts of complex numbers share memory, as in PyTorch."""

import numpy as np
import pytest
from simulated_gpu import simulated_gpu

import weft
from weft.core.op import all_ops
from weft.errors import ArgumentError, DTypeError, ShapeError

GIVEN = [[1 + 2j, 3 + 4j], [5 + 6j, 7 + 8j]]


def zeroed_parts(T, z):
    z.real[0].zero_()
    z.imag.mul_(2)


def written_pairs(T, z):
    pairs = T.view_as_real(z)
    pairs[..., 0] = pairs[..., 1] * 3
    pairs[1] += 1


def written_numbers(T, z):
    T.view_as_complex(T.view_as_real(z).view(2, 2, 2)[:, 1]).mul_(1j)


def set_parts(T, z):
    z.real, z[:, 0].imag = z.imag * 2, 5


def transposed(T, z):
    z.T.real[0] = z.T[1].imag
    T.view_as_real(z.t())[1, 0].copy_(z[1, 1].real)


def flattened(T, z):
    z.real.reshape(-1)[1:3] = 9
    T.view_as_real(z).view(-1)[0] *= -1


# the programs' arguments afterwards, and the gradients of sum(|z|²) there: PyTorch's
KNOWN = {
    zeroed_parts: (
        [[4j, 8j], [5 + 12j, 7 + 16j]],
        [[16j, 32j], [10 + 48j, 14 + 64j]],
    ),
    written_pairs: (
        [[6 + 2j, 12 + 4j], [19 + 7j, 25 + 9j]],
        [[40j, 80j], [128j, 168j]],
    ),
    written_numbers: (
        [[1 + 2j, -4 + 3j], [5 + 6j, -8 + 7j]],
        [[2 + 4j, 6 + 8j], [10 + 12j, 14 + 16j]],
    ),
    set_parts: (
        [[4 + 5j, 8 + 4j], [12 + 5j, 16 + 8j]],
        [[16j, 40j], [48j, 80j]],
    ),
    transposed: (
        [[4 + 2j, 7 + 7j], [8 + 6j, 7 + 8j]],
        [[4j, 8j], [12j, 42 + 32j]],
    ),
    flattened: (
        [[-1 + 2j, 9 + 4j], [9 + 6j, 7 + 8j]],
        [[2 + 4j, 8j], [12j, 14 + 16j]],
    ),
}
PROGRAMS = pytest.mark.parametrize("program", KNOWN, ids=lambda f: f.__name__)


def changed(program):
    def run(z):
        z = z * 1
        program(weft, z)
        return z

    return run


@pytest.fixture(params=["eager", "compiled"])
def ran(request):
    """Run a function as it is, or compiled."""
    return weft.compile if request.param == "compiled" else lambda f: f


@PROGRAMS
def test_writing_through_a_view_changes_the_tensor(program, ran):
    z = weft.tensor(GIVEN)
    before = z._version
    ran(lambda z: program(weft, z))(z)
    assert z.tolist() == KNOWN[program][0]
    assert z._version > before


@PROGRAMS
def test_gradients_through_written_views(program, ran):
    z = weft.tensor(GIVEN, requires_grad=True)
    out = ran(changed(program))(z)
    assert out.tolist() == KNOWN[program][0]
    out.abs().square().sum().backward()
    np.testing.assert_allclose(z.grad.numpy(), KNOWN[program][1], rtol=1e-5)


@PROGRAMS
def test_batches_and_tangents_of_written_views(program):
    z, run = weft.tensor(GIVEN), changed(program)
    many = weft.vmap(run)(weft.stack([z, z * 2]))
    assert weft.equal(many, weft.stack([run(z), run(z * 2)]))
    step = 1e-3 * (1 - 2j)
    _, tangent = weft.func.jvp(run, (z,), (weft.full_like(z, step),))
    np.testing.assert_allclose(tangent, run(z + step) - run(z), atol=2e-5)


@PROGRAMS
def test_written_views_on_another_device(program, ran):
    device = weft.register_device(simulated_gpu())
    try:
        z = weft.tensor(GIVEN).to(device)
        ran(lambda z: program(weft, z))(z)
        assert z.cpu().tolist() == KNOWN[program][0]
    finally:
        weft.unregister_device(device.name)


def test_views_of_tensors_from_outside_a_program():
    z = weft.tensor([1 + 2j])
    part = z.real
    bump = weft.compile(lambda: (part.add_(1), z * 1)[1])
    assert bump().tolist() == [2 + 2j]
    assert bump().tolist() == [3 + 2j]
    returned = weft.compile(lambda z: z.imag)(z)
    returned.zero_()
    assert z.tolist() == [3]


def test_a_change_of_a_part_is_noticed_by_the_tape():
    z = weft.tensor([1 + 2j], requires_grad=True) * 1
    total = (z * z).abs().sum()
    z.imag.zero_()
    with pytest.raises(RuntimeError, match="changed in place"):
        total.backward()
    pairs = weft.ones(3, 2, requires_grad=True)
    with pytest.raises(RuntimeError, match="view of a leaf"):
        weft.view_as_complex(pairs).zero_()


def test_layouts_of_views():
    z = weft.tensor(GIVEN)
    assert z.imag.stride() == (4, 2)
    assert z.imag.storage_offset() == 1
    assert z.imag._base is z
    assert z[1].real.as_strided((3,), (1,), 1).tolist() == [2, 3, 4]
    pairs = weft.arange(4.0).reshape(2, 2)
    assert weft.view_as_complex(pairs)[1].as_strided((2,), (1,), 0).tolist() == [
        1j,
        2 + 3j,
    ]
    assert weft.view_as_real(weft.zeros(0, dtype=weft.complex64)).shape == (0, 2)
    assert weft.view_as_complex(weft.zeros(0, 2)).shape == (0,)


@pytest.mark.parametrize(
    ("make", "error"),
    [
        (lambda: weft.ones(2, 3).t(), ArgumentError),
        (lambda: weft.ones(4, 3)[:, :2], ArgumentError),
        (lambda: weft.ones(5)[1:3], ArgumentError),
        (lambda: weft.ones(1).expand(3, 2), ArgumentError),
        (lambda: weft.ones(4, 3), ShapeError),
        (lambda: weft.tensor(1.0), ShapeError),
        (lambda: weft.arange(2), DTypeError),
        (lambda: weft.ones(2, dtype=weft.bfloat16), DTypeError),
    ],
)
def test_pairs_that_are_no_complex_numbers_memory(make, error):
    with pytest.raises(error, match="view_as_complex: expected"):
        weft.view_as_complex(make())
    with pytest.raises(DTypeError, match="view_as_real: expected"):
        weft.view_as_real(make())


def test_pairs_with_gaps_between_them():
    spread = weft.arange(8.0).reshape(2, 4)[:, 2:]
    weft.view_as_complex(spread).mul_(2)
    assert spread.tolist() == [[4, 6], [12, 14]]
    assert weft.view_as_complex(weft.ones(1, 3)[:, :2]).tolist() == [1 + 1j]
    assert weft.view_as_complex(weft.ones(2).expand(3, 2)).tolist() == [1 + 1j] * 3


VIEWS = [op for op in all_ops() if op.view]


@pytest.mark.parametrize("op", VIEWS, ids=lambda op: op.name)
def test_a_view_shows_what_is_put_there(op, rng):
    put = op.facts.put
    for sample in op.samples(rng):
        x = weft.tensor(sample.args[0])
        shown = op(x, **sample.params)
        assert shown.dtype is x.dtype or put is not None
        if put is not None:
            new = weft.randn_like(shown)
            there = put(x, new, **sample.params)
            assert weft.equal(op(there, **sample.params), new)
            assert weft.equal(put(there, shown, **sample.params), x)
