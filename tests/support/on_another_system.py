"""A program for an imitated system: eager mode, training, compiling, files, loading."""

import sys
import tempfile
from pathlib import Path

import numpy as np

import weft
from weft import nn, optim
from weft.compile.targets.cpu import pool_code
from weft.runtime.cpu import kernel_cache, pool
from weft.utils.data import DataLoader, TensorDataset


def training(compiled):
    """The losses of a small network, and its state."""
    weft.manual_seed(0)
    x = weft.rand(64, 8)
    y = (x.sum(1) > 4).long()
    net = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 2))
    optimizer = optim.AdamW(net.parameters(), lr=0.05)

    def step(x, y):
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(net(x), y)
        loss.backward()
        optimizer.step()
        return loss

    run = weft.compile(step) if compiled else step
    return [run(x, y).item() for _ in range(20)], net.state_dict()


def threads():
    """Workers of the pool start, share a loop out, sleep, and end."""
    weft.set_num_threads(2)
    x = weft.rand(2048, 512)
    fn = weft.compile(lambda x: (x.exp() + 1).log().sum(1))
    want = np.log(np.exp(x.numpy()) + 1).sum(1)
    for _ in range(5):
        np.testing.assert_allclose(fn(x).numpy(), want, rtol=1e-4)
    assert pool.default().workers == 1
    weft.set_num_threads(1)
    assert pool.default().workers == 0


def files(state):
    with tempfile.TemporaryDirectory() as folder:
        for name in ("net.pt", "net.safetensors"):
            path = Path(folder, name)
            weft.save(state, path)
            for mapped in (False, True):
                for key, value in weft.load(path, mmap=mapped).items():
                    assert (value == state[key]).all()
                del value  # a file that is mapped cannot be deleted on Windows


def loading():
    data = TensorDataset(weft.arange(100_000.0).reshape(10, 10_000))
    sums = [
        [batch[0].sum().item() for batch in DataLoader(data, 2, num_workers=workers)]
        for workers in (0, 2)
    ]
    assert sums[0] == sums[1]


def main():
    eager, state = training(compiled=False)
    compiled, _ = training(compiled=True)
    assert eager[-1] < eager[0]
    np.testing.assert_allclose(compiled, eager, rtol=1e-3)
    threads()
    files(state)
    loading()
    report = kernel_cache.default().report()
    assert report.entries
    print(pool_code.waiting_kind(), report.state)


if __name__ == "__main__":
    sys.exit(main())
