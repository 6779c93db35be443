"""Reading and writing by index, against PyTorch."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("torch", reason="compares with PyTorch, which is not installed")

from compare import both, compare

# Applied to x of shape (3, 4), w of shape (2, 3, 4), and s, a 0-d tensor.
INDICES = """
x[0]
x[-1]
x[3]
x[-4]
x[0, 1]
x[0, 4]
x[0, 1, 2]
x[1:]
x[:2, 1:3]
x[::2]
x[5:]
x[2:1]
x[-2:]
x[::0]
x[:, None]
x[None, ..., None]
x[..., 0]
x[..., None]
x[...]
x[()]
x[None]
x[T.tensor(1)]
x[T.tensor(1):]
x[T.tensor([0, 2])]
x[T.tensor([0, -1])]
x[T.tensor([0, 3])]
x[T.tensor([], dtype=T.int64)]
x[[]]
x[[0, 2]]
x[[0, 2], [1, 3]]
x[(0, 1)]
x[[True, False, True]]
x[T.tensor([True, False, True])]
x[T.tensor([True, False])]
x[:, T.tensor([True, False, True, False])]
x[b]
x[~b]
x[x > 0]
x[b, 0]
x[T.tensor([[0, 1], [2, 0]])]
x[:, T.tensor([0, 2])]
x[T.tensor([0, 2]), T.tensor([1, 3])]
x[T.tensor([[0], [2]]), T.tensor([1, 3])]
x[T.tensor([0, 2]), 1]
x[1, T.tensor([0, 2])]
x[1:, T.tensor([0, 2])]
x[T.tensor([0, 2]), 1:3]
x[T.tensor([0, 2]), None]
x[None, T.tensor([0, 2])]
x[..., T.tensor([0, 2])]
x[T.tensor([0, 1, 2]), T.tensor([0, 1])]
x[T.tensor([0.5])]
x[0.5]
x["a"]
x[True]
x[False]
x[T.tensor(True)]
x[T.tensor(False)]
x[True, 0]
x[np.array([0, 2])]
x[np.int64(1)]
x[range(2)]
x[T.tensor([0, 2], dtype=T.int32)]
x[T.tensor([0, 2], dtype=T.int16)]
w[0, T.tensor([0, 2])]
w[T.tensor([0, 1]), :, T.tensor([1, 2])]
w[:, T.tensor([0, 2]), T.tensor([1, 2])]
w[T.tensor([0, 1]), T.tensor([0, 2])]
w[0, :, T.tensor([1, 2])]
w[T.tensor([1, 0]), ..., 0]
w[..., T.tensor([1, 2]), 0]
w[T.tensor([[0, 1]]), T.tensor([[2], [0]]), 1:3]
w[bt2]
w[:, bt3]
w[bt2, bt3[:2]]
w[:, b34]
w[0, b34]
w[b23]
w[b23, 0]
w[b23, 1:]
w[..., bt4]
w[None, b23, None]
w[bt2, :, T.tensor([1])]
w[T.tensor([0]), bt3]
w[1, None, ..., T.tensor([0, 3])]
w[:, T.tensor([0]), None, T.tensor([1])]
w[T.tensor(1), :, T.tensor([1, 2])]
w[0, T.tensor(1), T.tensor([1, 2])]
w[[0, 1], [0, 1], [0, 1]]
w[:, [0], [1]]
w[[1], :, [0, 2, 3]]
s[()]
s[...]
s[None]
s[0]
s[True]
s[T.tensor(True)]
z[0:0]
z[T.tensor([], dtype=T.int64)]
z[:, 1]
z[0]
z[T.zeros(0, dtype=T.bool)]
n[1:, 0]
n[T.tensor([0, 2])]
n[..., T.tensor([True, False])]
"""
# Written to a copy of x or w.
VALUES = ("5", "T.tensor(7.0)", "T.tensor([1, 2])", "V", "V + 0.5", "9.0 * V[..., :1]")
LINES = INDICES.strip().splitlines()


def make_inputs() -> dict:
    rng = np.random.default_rng(0)
    w = rng.uniform(-2, 2, (2, 3, 4)).astype(np.float32)
    ours, theirs = both(w)
    return {
        "np": (np, np),
        "x": both(rng.uniform(-2, 2, (3, 4)).astype(np.float32)),
        "w": (ours, theirs),
        "n": (ours.transpose(0, 2), theirs.transpose(0, 2)),
        "s": both(np.float32(3)),
        "z": both(np.zeros((0, 3), np.float32)),
        "b": both(rng.uniform(size=(3, 4)) < 0.5),
        "bt2": both(np.array([True, False])),
        "bt3": both(np.array([True, False, True])),
        "bt4": both(np.array([True, False, True, True])),
        "b23": both(rng.uniform(size=(2, 3)) < 0.6),
        "b34": both(rng.uniform(size=(3, 4)) < 0.6),
    }


@pytest.mark.parametrize("expression", LINES)
def test_reading(expression: str) -> None:
    assert not (problem := compare(expression, make_inputs())), problem


@pytest.mark.parametrize("expression", LINES)
def test_writing(expression: str) -> None:
    name = expression[0]
    target = expression.replace(name, "t", 1)
    for value in VALUES:
        if expression == "x[False]" and value == "T.tensor([1, 2])":
            continue  # PyTorch checks no shape when nothing is written
        program = f"V = {expression} * 0 + 3; t = {name}.clone(); {target} = {value}; t"
        assert not (problem := compare(program, make_inputs())), f"{value}: {problem}"


@pytest.mark.parametrize("expression", LINES)
@pytest.mark.parametrize("operator", ["+=", "*=", "-="])
def test_augmented_assignment(expression: str, operator: str) -> None:
    name = expression[0]
    target = expression.replace(name, "t", 1)
    program = f"t = {name}.clone(); {target} {operator} 2; t"
    assert not (problem := compare(program, make_inputs())), problem


MORE_WRITES = """
t = x.clone(); t[T.tensor([0, 0])] = T.tensor([[1.0], [2.0]]); t.sum(1)[1:]
t = x.clone(); t[b] = T.arange(12.0)[:int(b.sum())]; t
t = x.clone(); t[b] = T.ones(1); t
t = x.clone(); t[b] = T.ones(99); t
t = x.clone(); t[0] = T.ones(3); t
t = x.clone(); t[0] = T.ones(1, 1, 4); t
t = x.clone(); t[:, 0] = T.ones(1, 3); t
t = x.clone(); t[1:] = t[:-1]; t
t = x.clone(); t[:-1] = t[1:]; t
t = x.clone(); t[1:] += t[:-1]; t
t = x.clone(); t[:] = t.flip(0); t
t = x.clone(); t[...] = 1; t
t = x.clone(); t[()] = 2; t
t = x.clone(); t[None] = 3; t
t = x.clone(); t[True] = 4; t
t = x.clone(); t[False] = 4; t
t = x.clone(); t[0] = 1j; t
t = x.clone().long(); t[0] = 2.7; t
t = x.clone().long(); t[0] = T.tensor(2.7); t
t = x.clone().bool(); t[0] = 2.7; t
t = x.clone(); t[0] = [1.0, 2.0, 3.0, 4.0]; t
t = x.clone(); t[0] = np.arange(4); t
t = x.clone(); t[0] = "a"; t
t = x.clone(); t[0] = None; t
t = s.clone(); t[()] = 2; t
t = s.clone(); t[...] = 2; t
t = x.clone(); v = t[0]; v[1] = 9; t
t = x.clone(); v = t.T; v[1] = 9; t
t = x.clone(); v = t.view(-1); v[5] = 9; t
t = x.clone(); v = t.unsqueeze(0)[0, 1:]; v.mul_(2); t
t = x.clone(); t[1:].zero_(); t
t = x.clone(); t.diagonal().fill_(0); t
t = x.clone(); t.select(1, 2).add_(1); t
t = x.clone(); t.narrow(1, 1, 2).copy_(T.ones(3, 2)); t
t = x.clone(); t.flatten()[0] = 7; t
t = x.clone(); a, c = t.split([1, 3], 1); c.neg_(); t
t = x.clone(); [r.mul_(k) for k, r in enumerate(t)]; t
t = x.clone(); t.unbind(1)[2].fill_(4); t
t = x.clone(); t.chunk(2, 1)[1].fill_(4); t
t = x.clone(); t.movedim(0, 1)[0].fill_(4); t
t = x.clone(); t.T.T[0].fill_(4); t
t = x.clone(); t[T.tensor([0, 1])].fill_(9); t
t = x.clone(); t[T.tensor([0, 1])] += 1; t
t = x.clone(); t[T.tensor([0, 0])] += 1; t
t = x.clone(); t.data[0] = 3; t
t = x.clone(); t.detach()[0] = 3; t
"""


@pytest.mark.parametrize("program", MORE_WRITES.strip().splitlines())
def test_more_writes(program: str) -> None:
    assert not (problem := compare(program, make_inputs())), problem
