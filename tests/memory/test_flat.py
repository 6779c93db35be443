"""Ten thousand steps in each way of training: resident memory stays where it is."""

import gc
import os
import subprocess
import sys

import numpy as np
import pytest

import weft
from weft import layers, nn, optim, static
from weft.memory import live
from weft.utils.checkpoint import checkpoint_sequential

ALLOWED = 1 << 20  # bytes that the allocator may move
STEPS = 10_000


def resident():
    with open("/proc/self/status") as file:
        line = next(row for row in file if row.startswith("VmRSS"))
    return int(line.split()[1]) * 1024


def tensors():
    model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1))
    optimizer = optim.Adam(model.parameters())
    x = weft.randn(8, 4)

    def step():
        optimizer.zero_grad()
        loss = model(x).square().mean()
        loss.backward()
        optimizer.step()
        return loss

    return step


def checkpointed():
    blocks = [nn.Sequential(nn.Linear(4, 4), nn.Tanh()) for _ in range(4)]
    optimizer = optim.SGD(nn.Sequential(*blocks).parameters(), lr=0.01)
    x = weft.randn(8, 4)

    def step():
        optimizer.zero_grad()
        checkpoint_sequential(blocks, 2, x).square().mean().backward()
        optimizer.step()

    return step


def sessions():
    with static.Graph().as_default() as graph:
        x = static.placeholder(weft.float32, [None, 2], name="x")
        w = static.Variable(static.random_normal([2, 1]), name="w")
        loss = static.reduce_mean(static.square(static.matmul(x, w)))
        train = static.train.AdamOptimizer(0.1).minimize(loss)
        start = static.global_variables_initializer()
    session = static.Session(graph=graph)
    session.run(start)
    data = np.ones((4, 2), np.float32)
    return lambda: session.run([loss, train], feed_dict={x: data})


def by_layers():
    net = layers.Net([layers.Dense(2, 4), layers.Tanh(), layers.Dense(4, 1)])
    model = layers.Model(net, layers.MSELoss(), layers.Adam(lr=0.02))
    x, y = weft.randn(8, 2), weft.randn(8, 1)

    def step():
        pred = model.forward(x)
        _, grads = model.backward(pred, y)
        model.apply_grad(grads)

    return step


WAYS = {
    "compiled": (lambda: weft.compile(tensors()), STEPS),
    "budget": (lambda: weft.compile(tensors(), memory="recompute"), STEPS),
    "static": (sessions, STEPS),
    "eager": (tensors, STEPS),
    "layers": (by_layers, STEPS),
    "checkpointed": (checkpointed, STEPS // 5),  # takes longest
}


def growth(way):
    """Bytes of live tensors, and of all that is resident, that steps have added."""
    make, steps = WAYS[way]
    step = make()
    for _ in range(steps // 5):  # caches fill up
        step()
    gc.collect()
    before, held = resident(), live().total
    for _ in range(steps):
        step()
    gc.collect()
    return live().total - held, resident() - before


@pytest.mark.skipif(sys.platform != "linux", reason="asks the system what is resident")
@pytest.mark.parametrize("way", WAYS)
def test_memory_is_flat(way):
    """In a process of its own: what other tests leave behind moves, too."""
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    run = [sys.executable, __file__, way]
    said = subprocess.run(run, env=env, capture_output=True, text=True, check=True)
    tensors, pages = map(int, said.stdout.split())
    assert tensors <= 64
    assert pages < ALLOWED


if __name__ == "__main__":
    print(*growth(sys.argv[1]))
