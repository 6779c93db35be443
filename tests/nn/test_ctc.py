"""``ctc_loss``, beside the sum over all alignments, eagerly and compiled."""

import numpy as np
import pytest

import weft
from weft.autograd import gradcheck
from weft.errors import ArgumentError, OutOfRangeError, ShapeError
from weft.nn import functional as F

T, N, C = 4, 3, 3
LOGP = weft.tensor(np.random.default_rng(0).normal(size=(T, N, C))).log_softmax(2)
TARGETS = weft.tensor([[1, 2], [2, 2], [1, 0]])
TIMES, SIZES = weft.tensor([4, 4, 3]), weft.tensor([2, 2, 1])


def by_paths(logp, target):
    """Minus the logarithm of the summed probability of all paths to a target."""
    total = 0.0
    for path in np.ndindex(*(logp.shape[1],) * len(logp)):
        kept = [k for j, k in enumerate(path) if j == 0 or k != path[j - 1]]
        if [k for k in kept if k] == list(target):
            total += np.exp(sum(logp[j, k] for j, k in enumerate(path)))
    return -np.log(total) if total else np.inf


def each(logp, times, rows):
    return [by_paths(logp[:t, n].numpy(), r)
            for n, (t, r) in enumerate(zip(times, rows, strict=True))]  # fmt: skip


def loss(logp, targets, times, sizes):
    return F.ctc_loss(logp, targets, times, sizes, reduction="none")


@pytest.mark.parametrize("form", [loss, weft.compile(loss)], ids=["eager", "compiled"])
def test_it_is_the_sum_over_paths(form):
    want = each(LOGP, (4, 4, 3), ([1, 2], [2, 2], [1]))
    in_a_row = weft.tensor([1, 2, 2, 2, 1])
    for targets in (TARGETS, in_a_row, TARGETS.to(weft.int32)):
        got = form(LOGP, targets, TIMES, SIZES)
        np.testing.assert_allclose(got.numpy(), want, rtol=1e-10)


@pytest.mark.parametrize("form", [loss, weft.compile(loss)], ids=["eager", "compiled"])
def test_no_steps_have_no_labels(form):
    got = form(LOGP, TARGETS, weft.tensor([0, 0, 1]), weft.tensor([0, 1, 0]))
    want = [0, np.inf, -LOGP[0, 2, 0].item()]
    np.testing.assert_allclose(got.numpy(), want, rtol=1e-12)


@pytest.mark.parametrize("form", [loss, weft.compile(loss)], ids=["eager", "compiled"])
def test_mistakes_are_refused_in_programs_too(form):
    good = form(LOGP, TARGETS, TIMES, SIZES)
    for times, sizes, targets, kind in (
        ([5, 4, 3], [2, 2, 1], TARGETS, ArgumentError),
        ([4, 4, 3], [2, -1, 1], TARGETS, ArgumentError),
        ([4, 4, 3], [2, 3, 1], TARGETS, ShapeError),
        ([4, 4, 3], [2, 2, 1], TARGETS + 2, OutOfRangeError),
        ([4, 4, 3], [2, 2, 1], weft.tensor([1, 2, 1]), ShapeError),
    ):
        with pytest.raises(kind, match="ctc_loss"):
            form(LOGP, targets, weft.tensor(times), weft.tensor(sizes))
    assert weft.equal(form(LOGP, TARGETS, TIMES, SIZES), good)


def test_gradients():
    logits = LOGP.clone().requires_grad_()
    gradcheck(lambda x: loss(x.log_softmax(2), TARGETS, TIMES, SIZES), (logits,))
    both = [
        weft.func.grad(lambda x, f=f: f(x, TARGETS, TIMES, SIZES).sum())(logits)
        for f in (loss, weft.compile(loss))
    ]
    np.testing.assert_allclose(
        both[0].detach().numpy(), both[1].detach().numpy(), rtol=1e-10
    )
