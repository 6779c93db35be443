"""What training steps leave behind, compiled as eagerly: gradients, buffers, counts."""

import numpy as np
import pytest

import weft
from weft import nn, optim
from weft.graph import CaptureError


class Recurrent(nn.Module):
    """Keeps a state, and counts its calls, by setting buffers."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(3, 3)
        self.register_buffer("state", weft.zeros(3))
        self.register_buffer("calls", weft.zeros((), dtype=weft.int64))

    def forward(self, x):
        before = self.state
        self.state = (self.layer(x).sum(0) + before).tanh().detach()
        self.calls = self.calls + 1
        self.calls += 1
        return self.layer(x) * self.state - before


def plain():
    return nn.Sequential(nn.Linear(3, 4, bias=False), nn.Tanh(), nn.Linear(4, 2))


def steps(model, clear, between):
    """A training step that clears gradients somehow and changes them in between."""
    optimizer = optim.Adam(model.parameters(), lr=0.1)

    def step(x):
        clear(model)
        loss = (model(x) ** 2).mean()
        loss.backward()
        between(model)
        optimizer.step()
        return loss

    return step, optimizer


def each_grad(change):
    def all_of(model):
        for p in model.parameters():
            change(p)

    return all_of


def zero(p):
    if p.grad is not None:
        p.grad.zero_()


CLEAR = {
    "none": each_grad(lambda p: setattr(p, "grad", None)),
    "zeros in place": each_grad(zero),
    "new zeros": each_grad(lambda p: setattr(p, "grad", weft.zeros_like(p))),
    "module, zeros": lambda model: model.zero_grad(set_to_none=False),
    "added up": lambda model: None,
}
BETWEEN = {
    "nothing": lambda model: None,
    "clamped": each_grad(lambda p: p.grad.clamp_(-0.01, 0.01)),
    "doubled": each_grad(lambda p: setattr(p, "grad", p.grad * 2)),
    "a row": each_grad(lambda p: p.grad.__setitem__(0, 7.0)),
}


def left(model, optimizer, result):
    """All that a step leaves, as arrays and numbers."""
    found = {"result": result.detach().numpy().copy()}
    for name, p in model.named_parameters():
        found[name] = p.detach().numpy().copy()
        found[f"{name}.grad"] = None if p.grad is None else p.grad.numpy().copy()
        found |= {f"{name}.{k}": v if isinstance(v, int) else v.numpy().copy()
                  for k, v in optimizer.state.get(p, {}).items()}  # fmt: skip
    for name, b in model.named_buffers():
        found[name] = b.numpy().copy()
    return found


def agree(make, clear, between, after=lambda k, model: None, **options):
    rows, compiled = [], None
    for native in (False, True):
        weft.manual_seed(0)
        model = make()
        step, optimizer = steps(model, clear, between)
        if native:
            step = compiled = weft.compile(step, **options)
        rows.append([])
        for k in range(5):
            x = np.random.default_rng(k).normal(size=(4, 3)).astype(np.float32)
            result = step(weft.tensor(x))
            rows[-1].append(left(model, optimizer, result))
            after(k, model)
    for want, got in zip(*rows, strict=True):
        assert want.keys() == got.keys()
        for name, value in want.items():
            if value is None or isinstance(value, int):
                assert got[name] == value, name
            else:
                np.testing.assert_allclose(got[name], value, 1e-4, 1e-5, err_msg=name)
    return compiled


@pytest.mark.parametrize("between", BETWEEN)
@pytest.mark.parametrize("clear", CLEAR)
def test_gradients(clear, between):
    agree(plain, CLEAR[clear], BETWEEN[between])


def test_buffers_that_are_set():
    for verify in (False, True):
        compiled = agree(Recurrent, CLEAR["none"], BETWEEN["nothing"], verify=verify)
        assert len(compiled.compiles) == 1


def test_parameters_that_rest_for_a_while():
    """Their counts of steps are no longer those of the others."""

    def rest(k, model):
        model[0].requires_grad_(k < 1 or k > 2)

    agree(plain, CLEAR["none"], BETWEEN["nothing"], rest)


def test_a_step_that_is_taken_eagerly_in_between():
    def make():
        weft.manual_seed(0)
        model = plain()
        return model, *steps(model, CLEAR["none"], BETWEEN["nothing"])

    x, found = weft.ones(4, 3), []
    for native in (False, True):
        model, step, optimizer = make()
        call = weft.compile(step) if native else step
        for k in range(5):
            call(x)
            model[0].weight.grad = None if k % 2 else model[0].weight.grad
            optimizer.step()
        found.append([optimizer.state[p]["step"] for p in model.parameters()])
    assert found[0] == found[1]
    assert len(set(found[0])) == 2


@pytest.mark.parametrize(
    ("value", "why"),
    [(lambda model, x: weft.zeros(4), r"float32\[3\] becomes float32\[4\]"),
     (lambda model, x: model.state.double(), r"becomes float64\[3\]"),
     (lambda model, x: model.layer(x)[0], "its history would grow"),
     (lambda model, x: model.layer.bias.data, "a tensor that is there already"),
     (lambda model, x: x[0], "a tensor that is there already")],
)  # fmt: skip
def test_buffers_that_cannot_be_kept(value, why):
    model = Recurrent()
    before = model.state

    def step(x):
        model.state = value(model, x)
        return x * 2

    with pytest.raises(CaptureError, match=why):
        weft.compile(step)(weft.ones(4, 3))
    assert model.state is before
    assert before.tolist() == [0, 0, 0]


def test_a_buffer_that_is_a_view():
    model, whole = Recurrent(), weft.zeros(2, 3)
    model.register_buffer("state", whole[1])
    with pytest.raises(CaptureError, match="it is a view of another tensor"):
        weft.compile(model)(weft.ones(4, 3))
