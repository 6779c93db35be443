"""``conj()`` shows changes of its source, and is not changed itself."""

import gc

import numpy as np
import pytest

import weft
from weft.errors import ArgumentError, AutogradError
from weft.graph import CaptureError

MADE = {
    "conj": lambda x: x.conj(),
    "mH": lambda x: x.mH,
    "adjoint": lambda x: x.adjoint(),
    "a row": lambda x: x.conj()[0],
    "a part": lambda x: x.conj().imag,
    "pairs": lambda x: weft.view_as_real(x.conj()),
    "twice": lambda x: x.conj().conj(),
}


def complex_tensor():
    return weft.tensor([[1 + 2j, 3j], [4 + 0j, 5 - 1j]])


@pytest.mark.parametrize("made", MADE)
@pytest.mark.parametrize(
    "change",
    [
        lambda x: x.mul_(2),
        lambda x: x.zero_(),
        lambda x: x.__setitem__((0, 0), 7),
        lambda x: x.real.add_(1),
        lambda x: weft.view_as_real(x).neg_(),
        lambda x: x[1].copy_(x[0].clone()),
        lambda x: weft.compile(lambda a: a.add_(1j))(x),
    ],
)
def test_changes_of_the_source_are_seen(made, change):
    x = complex_tensor()
    seen = MADE[made](x)
    gc.collect()  # the conjugate itself may have no name
    change(x)
    np.testing.assert_array_equal(seen, MADE[made](complex_copy(x)))


def complex_copy(x):
    return weft.tensor(np.array(x))


@pytest.mark.parametrize("made", MADE)
@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize(
    "change",
    [
        lambda y: y.add_(1),
        lambda y: y.__setitem__(0, 0),
        lambda y: y.zero_(),
        lambda y: weft.add(y, y, out=y),
    ],
)
def test_a_conjugate_cannot_be_changed(made, change, compiled):
    def run(x):
        change(MADE[made](x))
        return x * 2

    x = complex_tensor()
    with pytest.raises(ArgumentError, match=r"is the conj\(\) of another one"):
        (weft.compile(run) if compiled else run)(x)
    np.testing.assert_array_equal(x, complex_tensor())


@pytest.mark.parametrize(
    "copied",
    [
        lambda x: x.conj().clone(),
        lambda x: x.conj().resolve_conj(),
        lambda x: x.conj_physical(),
        lambda x: x.conj() * 1,
        lambda x: weft.array_api.conj(x),
        lambda x: np.conjugate(x),
    ],
)
def test_copies_can_be_changed(copied):
    x = complex_tensor()
    copied(x).zero_()
    np.testing.assert_array_equal(x, complex_tensor())
    assert not copied(x).is_conj()


def test_a_real_tensor_is_its_own_conjugate():
    x = weft.ones(2)
    assert x.conj() is x
    assert not x.is_conj()


def test_a_saved_conjugate_that_changed_is_noticed():
    x = complex_tensor()
    w = complex_tensor().requires_grad_()
    loss = (x.conj() * w).abs().sum()
    x.add_(1)
    with pytest.raises(AutogradError, match="changed"):
        loss.backward()


def test_gradients_of_conjugates_are_memory_of_their_own():
    w = complex_tensor().requires_grad_()
    (w.conj() * 3).real.sum().backward()
    assert w.grad.mul_(2).tolist() == [[6, 6], [6, 6]]


def test_conjugates_that_nobody_holds_are_forgotten():
    x = complex_tensor()
    for _ in range(50):
        x.conj()
    assert len(x.storage_record.conjugated) < 3
    x.add_(1)
    assert x.storage_record.conjugated is None


@pytest.mark.parametrize(
    ("fn", "text"),
    [
        (lambda x: x.conj(), r"a result is the conj\(\)"),
        (lambda x: x.conj().mT, r"a result is the conj\(\)"),
        (lambda x: [y := x.conj(), x.mul_(2), y * 2][2], r"a conj\(\) of this tensor"),
    ],
)
def test_programs_refuse_what_would_have_to_show_changes(fn, text):
    with pytest.raises(CaptureError, match=text):
        weft.compile(fn)(complex_tensor())


@pytest.mark.parametrize(
    "fn",
    [
        lambda x: x @ x.mH,
        lambda x: (x * 2).conj(),
        lambda x: x.conj_physical(),
        lambda x: x.conj().clone().mul_(2) + x,
    ],
)
def test_programs_compute_with_conjugates(fn):
    np.testing.assert_allclose(weft.compile(fn)(complex_tensor()), fn(complex_tensor()))
