"""One GPU beside PyTorch in the same run: kernels that wait for memory, products, steps.

python benchmarks/gpu.py [--only NAME]

Each row is the median of timed batches between events of the driver, in turns with
PyTorch's eager operator on the same data.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time

import numpy as np

import weft
from weft import nn, optim

F = nn.functional
MEGABYTES = 256


def milliseconds(run, start, stop, repeats=7, times=20):
    """The median time of a call, in batches between two events."""
    for _ in range(3):
        run()
    found = []
    for _ in range(repeats):
        start.record()
        for _ in range(times):
            run()
        stop.record()
        stop.synchronize()
        found.append(start.elapsed_time(stop) / times)
    return statistics.median(found)


def events(module):
    return module.cuda.Event(enable_timing=True), module.cuda.Event(enable_timing=True)


def memory_bound(torch):
    """Kernels on 256 MB: the bytes that must be moved, per second."""
    rows, columns = MEGABYTES * 2**20 // 4 // 1024, 1024
    data = np.random.default_rng(0).standard_normal((rows, columns), np.float32)
    x, y = weft.tensor(data).to("cuda"), torch.tensor(data).cuda()
    one = MEGABYTES * 2**20
    tests = {
        "copy": (lambda x: x.clone(), lambda y: y.clone(), 2),
        "gelu": (F.gelu, torch.nn.functional.gelu, 2),
        "softmax": (lambda x: x.softmax(1), lambda y: y.softmax(1), 2),
        "layer_norm": (
            lambda x: F.layer_norm(x, (columns,)),
            lambda y: torch.nn.functional.layer_norm(y, (columns,)),
            2,
        ),
        "sum": (lambda x: x.sum(), lambda y: y.sum(), 1),
        "sum(0)": (lambda x: x.sum(0), lambda y: y.sum(0), 1),
        "sum(1)": (lambda x: x.sum(1), lambda y: y.sum(1), 1),
    }
    for name, (ours, theirs, times) in tests.items():
        compiled = weft.compile(ours)
        want = theirs(y).cpu().numpy()
        found = compiled(x).cpu().numpy()
        error = np.abs(found - want).max() / max(np.abs(want).max(), 1e-9)
        mine = milliseconds(lambda f=compiled: f(x), *events(weft))
        peer = milliseconds(lambda f=theirs: f(y), *events(torch))
        rate = times * one / 1e6
        print(
            f"{name:12} {rate / mine:8.0f} GB/s   PyTorch {rate / peer:8.0f}   "
            f"ratio {peer / mine:5.2f}   error {error:.1e}"
        )


def products(torch):
    """Matrix products, in TFLOP/s."""
    cases = [
        (4096, 4096, 4096, "bfloat16"), (32768, 768, 3072, "bfloat16"),
        (4096, 4096, 4096, "float32"), (512, 512, 512, "float32"),
    ]  # fmt: skip
    rng = np.random.default_rng(0)
    for m, k, n, kind in cases:
        a, b = (rng.standard_normal(s, np.float32) for s in ((m, k), (k, n)))
        x, y = (weft.tensor(t).to("cuda").to(getattr(weft, kind)) for t in (a, b))
        u, v = (torch.tensor(t).cuda().to(getattr(torch, kind)) for t in (a, b))
        product = weft.compile(lambda x, y: x @ y)
        error = np.abs(
            product(x, y).float().cpu().numpy() - (u @ v).float().cpu().numpy()
        ).max()
        mine = milliseconds(lambda: product(x, y), *events(weft))
        peer = milliseconds(lambda: u @ v, *events(torch))
        rate = 2e-9 * m * n * k
        print(
            f"{m}x{k}x{n} {kind:9} {rate / mine:7.1f} TFLOP/s   PyTorch "
            f"{rate / peer:7.1f}   ratio {peer / mine:5.2f}   error {error:.1e}"
        )


def mlp(torch):
    """A training step of 784-512-512-10, batch 64, Adam."""
    rng = np.random.default_rng(0)
    x, y = rng.standard_normal((64, 784), np.float32), rng.integers(0, 10, 64)
    sizes = [(784, 512), (512, 512), (512, 10)]

    def layers(module):
        made = []
        for a, b in sizes:
            made += [module.nn.Linear(a, b), module.nn.ReLU()]
        return module.nn.Sequential(*made[:-1])

    weft.manual_seed(0)
    net = layers(weft)
    peer = layers(torch)
    peer.load_state_dict(
        {k: torch.tensor(v.numpy()) for k, v in net.state_dict().items()}
    )
    net, peer = net.to("cuda"), peer.cuda()
    optimizer = optim.Adam(net.parameters(), lr=1e-3)
    theirs = torch.optim.Adam(peer.parameters(), lr=1e-3)
    data = weft.tensor(x).to("cuda"), weft.tensor(y).to("cuda")
    given = torch.tensor(x).cuda(), torch.tensor(y).cuda()

    def step(x, y):
        optimizer.zero_grad()
        loss = F.cross_entropy(net(x), y)
        loss.backward()
        optimizer.step()
        return loss

    compiled = weft.compile(step)

    def torch_step():
        theirs.zero_grad()
        loss = torch.nn.functional.cross_entropy(peer(given[0]), given[1])
        loss.backward()
        theirs.step()
        return loss

    start = time.perf_counter()
    losses = [compiled(*data).item()]
    print(f"first call {time.perf_counter() - start:.2f} s")
    losses += [compiled(*data).item() for _ in range(9)]
    want = [torch_step().item() for _ in range(10)]
    print("losses", np.abs(np.array(losses) - want).max())
    mine = milliseconds(lambda: compiled(*data), *events(weft))
    eager = milliseconds(torch_step, *events(torch))
    print(f"mlp step {1e3 * mine:.0f} us, PyTorch eager {1e3 * eager:.0f} us")


def eager(torch):
    """The time of one small eager operator, recorded."""
    x = weft.randn(4, 4).to("cuda").requires_grad_()
    y = torch.randn(4, 4).cuda().requires_grad_()

    def timed(run, wait, count=2000):
        for _ in range(100):
            run()
        wait()
        start = time.perf_counter()
        for _ in range(count):
            run()
        wait()
        return 1e6 * (time.perf_counter() - start) / count

    mine = timed(lambda: x + x, weft.cuda.synchronize)
    peer = timed(lambda: y + y, torch.cuda.synchronize)
    print(f"x + x recorded: {mine:.1f} us, PyTorch {peer:.1f} us")


PARTS = {f.__name__: f for f in (memory_bound, products, mlp, eager)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", choices=PARTS, action="append")
    chosen = parser.parse_args().only or PARTS
    if not weft.cuda.is_available():
        sys.exit("there is no GPU here")
    import torch

    print(weft.cuda.get_device_name(), "PyTorch", torch.__version__)
    for name in chosen:
        print(f"-- {name}")
        PARTS[name](torch)


if __name__ == "__main__":
    main()
