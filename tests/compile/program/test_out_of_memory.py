"""A compiled step for which there is no memory: the error, and nothing has changed."""

import re

import numpy as np
import pytest

import weft
from weft import nn, optim
from weft.errors import AllocationError
from weft.runtime.cpu import arena


@pytest.fixture(autouse=True)
def _no_limit():
    yield
    weft.set_memory_limit(None)


def training(rows=2048, width=32, depth=6):
    weft.manual_seed(0)
    blocks = [nn.Sequential(nn.Linear(width, width), nn.GELU()) for _ in range(depth)]
    model = nn.Sequential(*blocks)
    optimizer = optim.Adam(model.parameters())

    def step(x):
        optimizer.zero_grad()
        loss = model(x).square().mean()
        loss.backward()
        optimizer.step()
        return loss

    return model, optimizer, step, weft.randn(rows, width)


def everything(model, optimizer):
    found = [p.detach().numpy().copy() for p in model.parameters()]
    for p in model.parameters():
        found += [np.array(v) for v in optimizer.state[p].values()]
    return found


def test_a_limit_says_what_needs_the_memory_and_what_would_help():
    _, _, step, x = training()
    compiled = weft.compile(step)
    needs = weft.plan(step, x)
    weft.set_memory_limit(weft.memory.live().total + needs.parts.activations // 2)
    with pytest.raises(AllocationError) as error:
        compiled(x)
    text = str(error.value)
    assert f"({needs.parts.activations:,} bytes) for what it computes would" in text
    assert re.search(r"peak .*: parameters .*, gradients .*, optimizer .*, asked", text)
    largest = re.findall(
        r"\n    .* activations: float32\[2048, 32\] (.*) at (.*)", text
    )
    assert len(largest) == 5
    assert all(" in " in made for made, _ in largest)
    assert all(line.startswith("test_out_of_memory.py:") for _, line in largest)
    ways = re.findall(r"\n    (.*): saves about (.*)", text)
    assert len(ways) == 2
    assert any(way.startswith("weft.compile(step, memory=") for way, _ in ways)


def test_the_remedy_helps():
    _, _, step, x = training()
    plans = [weft.plan(step, x, memory=way) for way in ("selective", None)]
    few, more = (plan.parts.activations for plan in plans)
    assert few < more
    weft.set_memory_limit(weft.memory.live().total + (few + more) // 2)
    with pytest.raises(AllocationError, match='memory="selective"'):
        weft.compile(step)(x)
    weft.compile(step, memory="selective")(x)


def test_state_is_as_it_was():
    model, optimizer, step, x = training(rows=64)
    compiled = weft.compile(step)
    compiled(x)
    before = everything(model, optimizer)
    grads = [p.grad.numpy().copy() for p in model.parameters()]
    weft.set_memory_limit(weft.memory.live().total + 100_000)
    with pytest.raises(AllocationError):
        compiled(weft.ones(2048, 32))
    weft.set_memory_limit(None)
    pairs = zip(before, everything(model, optimizer), strict=True)
    assert all(np.array_equal(a, b) for a, b in pairs)
    pairs = zip(grads, [p.grad.numpy() for p in model.parameters()], strict=True)
    assert all(np.array_equal(a, b) for a, b in pairs)
    compiled(x)  # and it goes on


def test_what_the_system_refuses(monkeypatch):
    _, _, step, x = training()

    def refused(nbytes):
        raise MemoryError("there is none")

    monkeypatch.setattr(arena, "_mapped", refused)
    text = r"are not to be had: the system refused [\d,]+ bytes \(there is none\)"
    with pytest.raises(AllocationError, match=text) as error:
        weft.compile(step)(x)
    assert "test_out_of_memory.py" in str(error.value).splitlines()[-2]


def test_without_gradients_there_is_the_batch():
    weft.set_memory_limit(weft.memory.live().total + 1_000_000)
    f = weft.compile(lambda x: (x @ x.T).sum() + (x.T @ x).exp().sum())
    with pytest.raises(AllocationError, match="half the batch: saves about"):
        f(weft.ones(1000, 4))


def test_results_count():
    f = weft.compile(lambda x: x.exp())
    x = weft.ones(100_000)
    f(x)
    weft.set_memory_limit(weft.memory.live().total + 300_000)
    with pytest.raises(AllocationError, match="400 kB"):
        f(x)
    weft.set_memory_limit(None)
    f(x)
