"""What steps compute again because it costs nothing: fewer bytes, the same bits."""

import numpy as np
import pytest

import weft
from weft import nn, optim
from weft.compile.targets.cpu.cost_model import COST


def convolutions():
    layers = [nn.Conv2d(4, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU()]
    return nn.Sequential(*layers, *layers[:2], nn.ReLU()), weft.randn(2, 4, 64, 64)


def gelus():
    block = [nn.Linear(64, 128), nn.GELU(), nn.Linear(128, 64), nn.LayerNorm(64)]
    return nn.Sequential(*block, *block), weft.randn(512, 64)


def dropouts():
    block = [nn.Linear(64, 64), nn.SiLU(), nn.Dropout(0.3)]
    return nn.Sequential(*block, *block), weft.randn(512, 64)


def residuals():
    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.norm, self.up = nn.LayerNorm(64), nn.Linear(64, 64)

        def forward(self, x):
            return x + nn.functional.tanh(self.up(self.norm(x)))

    return nn.Sequential(*[Block() for _ in range(4)]), weft.randn(512, 64)


def cells():
    class Cells(nn.Module):
        def __init__(self):
            super().__init__()
            self.cell = nn.LSTMCell(64, 64)

        def forward(self, x):
            state = None
            for one in x.split(STEP):
                state = self.cell(one, state)
            return state[0]

    return Cells(), weft.randn(8 * STEP, 64)


STEP = 64  # rows of a cell's input
MODELS = {f.__name__: f for f in (convolutions, gelus, dropouts, residuals, cells)}


def trained(name, memory, rows=None):
    """Losses, parameters and the program of a few steps."""
    weft.manual_seed(0)
    model, x = MODELS[name]()
    optimizer = optim.AdamW(model.parameters(), lr=0.01)

    @weft.compile(memory=memory)
    def step(x):
        optimizer.zero_grad()
        loss = model(x).square().mean()
        loss.backward()
        optimizer.step()
        return loss

    weft.manual_seed(1)
    losses = [step(x[:n]).item() for n in rows or [len(x)] * 3]
    ends = [p.detach().numpy().tobytes() for p in model.parameters()]
    ends += [b.numpy().tobytes() for b in model.buffers()]
    return losses, ends, step.latest.program


@pytest.mark.parametrize("name", MODELS)
def test_the_same_bits_in_less_memory(name):
    losses, ends, native = trained(name, None)
    want, state, whole = trained(name, "keep")
    assert losses == want
    assert ends == state
    assert any(n.role.is_copy for n in native.lowered.graph.nodes)
    assert native.plan.layout.layout.nbytes < 0.9 * whole.plan.layout.layout.nbytes
    assert len(native.plan.layout.launches) <= len(whole.plan.layout.launches)


@pytest.mark.parametrize("name", ["convolutions", "gelus"])
def test_open_sizes(name):
    many = 2 if name == "convolutions" else 512
    rows = [many, many // 2, many, many // 2]
    assert trained(name, None, rows)[:2] == trained(name, "keep", rows)[:2]


def test_a_function_of_one_array_takes_the_place_of_several():
    _, _, native = trained("gelus", None)
    copied = [n for n in native.lowered.graph.nodes if n.role.is_copy]
    assert {"erf", "exp"} <= {n.op.name for n in copied}
    # Of the hidden layer, its value before GELU and after it are kept: no third one.
    buffers = [b for b in native.plan.layout.layout.buffers if b.id.shape == (512, 128)]
    lives = [b for b in buffers if b.last - b.first > 8]
    assert len(lives) <= 2 * 2


def test_a_chain_is_not_computed_again_from_its_beginning():
    _, _, native = trained("cells", None)
    copied = [n for n in native.lowered.graph.nodes if n.role.is_copy]
    assert copied
    assert len(copied) < 16 * 8  # of each of 8 steps, its own functions


def test_small_steps_are_left_alone():
    model = nn.Sequential(nn.Linear(8, 8), nn.GELU(), nn.Linear(8, 1))
    assert COST.recompute.least > 8 * 8

    @weft.compile
    def step(x):
        model(x).sum().backward()

    step(weft.ones(8, 8))
    assert not any(n.role.is_copy for n in step.latest.program.lowered.graph.nodes)


def test_what_is_given_back_is_kept():
    model, _ = gelus()

    @weft.compile
    def step(x):
        h = model[0](x)
        y = nn.functional.gelu(h)
        y.sum().backward()
        return h * 0.5, y

    x = weft.randn(512, 64)
    half, y = (out.detach() for out in step(x))
    want = model[0](x).detach()
    np.testing.assert_allclose(half.numpy(), want.numpy() / 2, rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(
        y.numpy(), nn.functional.gelu(want).numpy(), rtol=1e-4, atol=1e-5
    )
