"""One GPU beside PyTorch in one run: kernels that wait for memory, products, steps.

python benchmarks/gpu.py [--only NAME]

Each row is the median of timed batches between events of the driver, in turns with
PyTorch's eager operator on the same data.
"""

from __future__ import annotations

import argparse
import functools
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
        mine = milliseconds(functools.partial(product, x, y), *events(weft))
        peer = milliseconds(functools.partial(torch.matmul, u, v), *events(torch))
        rate = 2e-9 * m * n * k
        print(
            f"{m}x{k}x{n} {kind:9} {rate / mine:7.1f} TFLOP/s   PyTorch "
            f"{rate / peer:7.1f}   ratio {peer / mine:5.2f}   error {error:.1e}"
        )


def attention(torch):
    """Causal attention in bfloat16, forward and with backward, in TFLOP/s."""
    shapes = (4, 16, 4096, 64), (32, 12, 1024, 64), (4, 16, 4096, 128)
    for shape in shapes:
        rng = np.random.default_rng(0)
        data = [rng.standard_normal(shape, np.float32) for _ in range(4)]
        results, times = [], []
        for module in (weft, torch):
            q, k, v, g = (module.tensor(x).to("cuda").to(module.bfloat16) for x in data)
            given = [x.requires_grad_() for x in (q, k, v)]

            def forward(q, k, v, attend=module.nn.functional):
                return attend.scaled_dot_product_attention(q, k, v, is_causal=True)

            def both(q, k, v, g, module=module, forward=forward):
                out = forward(q, k, v)
                return out, *module.autograd.grad(out, [q, k, v], g)

            if module is weft:
                forward, both = weft.compile(forward), weft.compile(both)
            results.append([x.detach().float().cpu().numpy() for x in both(*given, g)])
            with module.no_grad():
                alone = functools.partial(forward, *given)
                times.append(milliseconds(alone, *events(module)))
            whole = functools.partial(both, *given, g)
            times.append(milliseconds(whole, *events(module)))
        errors = [
            np.abs(a - b).max() / np.abs(b).max() for a, b in zip(*results, strict=True)
        ]
        *lead, rows, width = shape
        rate = 2e-9 * np.prod(lead) * rows * rows * width
        rates = [rate / times[0], 3.5 * rate / times[1]]
        peer = [rate / times[2], 3.5 * rate / times[3]]
        print(
            f"{'x'.join(map(str, shape))} forward {rates[0]:.0f} TFLOP/s "
            f"(PyTorch {peer[0]:.0f}), with backward {rates[1]:.0f} ({peer[1]:.0f})   "
            f"errors {' '.join(f'{e:.0e}' for e in errors)}"
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


def gpt(module, layers, width, heads, words, length):
    """A GPT of the same names in both frameworks."""
    nn = module.nn

    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.ln1, self.ln2 = nn.LayerNorm(width), nn.LayerNorm(width)
            self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
            self.up, self.down = (
                nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
            )  # fmt: skip

        def forward(self, x):
            b, t, c = x.shape
            q, k, v = (
                part.reshape(b, t, heads, c // heads).transpose(1, 2)
                for part in self.qkv(self.ln1(x)).split(c, dim=2)
            )
            y = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
            x = x + self.out(y.transpose(1, 2).reshape(b, t, c))
            return x + self.down(nn.functional.gelu(self.up(self.ln2(x))))

    class Gpt(nn.Module):
        def __init__(self):
            super().__init__()
            self.tokens = nn.Embedding(words, width)
            self.places = nn.Embedding(length, width)
            self.blocks = nn.ModuleList([Block() for _ in range(layers)])
            self.ln = nn.LayerNorm(width)

        def forward(self, x, places):
            x = self.tokens(x) + self.places(places)
            for block in self.blocks:
                x = block(x)
            return self.ln(x) @ self.tokens.weight.T

    return Gpt()


def training(module, model, data, compiled):
    """A step of AdamW on a language model."""
    optimizer = module.optim.AdamW(model.parameters(), lr=1e-4)
    x, y, places = data

    def forward():
        logits = model(x, places)
        flat = logits.reshape(-1, logits.shape[-1]).float()
        return module.nn.functional.cross_entropy(flat, y.reshape(-1))

    def step():
        optimizer.zero_grad()
        loss = forward()
        loss.backward()
        optimizer.step()
        return loss

    if not compiled:
        return step
    if module is weft:
        return weft.compile(step)
    model.compile()
    return step


def gpt2(torch, layers=12, width=768, heads=12, words=50304, length=1024, batch=32):
    """GPT-2 124M, pure bfloat16, AdamW: tokens a second."""
    rng = np.random.default_rng(0)
    x, y = rng.integers(0, words, (2, batch, length))
    weft.manual_seed(0)
    sizes = layers, width, heads, words, length
    net = gpt(weft, *sizes)
    weights = {k: v.numpy() for k, v in net.state_dict().items()}
    for module, compiled in ((weft, True), (torch, False), (torch, True)):
        model = gpt(module, *sizes)
        model.load_state_dict({k: module.tensor(v) for k, v in weights.items()})
        model = model.to("cuda").to(module.bfloat16)
        data = [module.tensor(t).to("cuda") for t in (x, y, np.arange(length))]
        step = training(module, model, data, compiled)
        start = time.perf_counter()
        losses = [float(step().item()) for _ in range(3)]
        first = time.perf_counter() - start
        module.cuda.reset_peak_memory_stats()
        took = milliseconds(step, *events(module), repeats=3, times=4)
        peak = module.cuda.max_memory_allocated() / 2**30
        print(
            f"{module.__name__} compiled={compiled}: "
            f"{1e3 * batch * length / took:,.0f} tokens/s, {took:.1f} ms, "
            f"{peak:.1f} GiB, three steps {first:.1f} s, losses {losses}"
        )
        del step, model, data
        module.cuda.empty_cache()


def resnet50(torch, batch=256):
    """ResNet-50 on 224 x 224, pure bfloat16, SGD with momentum: images a second."""
    from torchvision.models import resnet50 as theirs

    rng = np.random.default_rng(0)
    images = rng.standard_normal((batch, 3, 224, 224), np.float32)
    labels = rng.integers(0, 1000, batch)
    weft.manual_seed(0)
    weights = {k: v.numpy() for k, v in weft.models.resnet50().state_dict().items()}
    makers = {weft: weft.models.resnet50, torch: theirs}
    for module, compiled in ((weft, True), (torch, False), (torch, True)):
        model = makers[module]()
        model.load_state_dict({k: module.tensor(v) for k, v in weights.items()})
        model = model.to("cuda").to(module.bfloat16)
        x = module.tensor(images).to("cuda").to(module.bfloat16)
        y = module.tensor(labels).to("cuda")
        if module is torch:
            model = model.to(memory_format=torch.channels_last)
            x = x.to(memory_format=torch.channels_last)
        optimizer = module.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)

        def step(module=module, model=model, optimizer=optimizer, x=x, y=y):
            optimizer.zero_grad()
            loss = module.nn.functional.cross_entropy(model(x).float(), y)
            loss.backward()
            optimizer.step()
            return loss

        if module is weft:
            step = weft.compile(step)
        elif compiled:
            model.compile()
        losses = [float(step().item()) for _ in range(3)]
        module.cuda.reset_peak_memory_stats()
        took = milliseconds(step, *events(module), repeats=3, times=2)
        peak = module.cuda.max_memory_allocated() / 2**30
        print(
            f"{module.__name__} compiled={compiled}: {1e3 * batch / took:,.0f} "
            f"images/s, {took:.1f} ms, {peak:.1f} GiB, losses {losses}",
            flush=True,
        )
        del step, model, optimizer, x, y
        module.cuda.empty_cache()


_PARTS = memory_bound, products, attention, mlp, eager, gpt2, resnet50
PARTS = {part.__name__: part for part in _PARTS}


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
