"""How long whole training steps take to compile, beside torch.compile and jax.jit.

    python benchmarks/compile_time.py
    python benchmarks/compile_time.py --torch PYTHON --jax PYTHON

Each measurement is a process of its own. *Cold* is with empty caches; *warm* is a new
process that finds what the cold one left on disk. What is measured is the first call of
the compiled step, from its beginning until the loss is known, less a later call; a
step is forward, backward and the optimizer's update. Imports are not part of it, nor
is making the model; the column *import* is what importing the framework takes.

The three frameworks get the same models, written plainly in each: an MLP
(784-512-512-10, Adam), ResNet-18 for 32x32 images (SGD with momentum) and a GPT of six
layers (AdamW). ``--torch`` and ``--jax`` name interpreters that have them; without,
this one is tried.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from typing import Any

MODELS = ("mlp", "resnet", "gpt")
VOCAB, CONTEXT, WIDTH, HEADS, LAYERS = 65, 64, 192, 6, 6


# -- Weft


def weft_step(model: str) -> Callable[[], float]:
    import weft
    from weft import nn, optim

    net: Any
    if model == "mlp":
        net = weft.models.MLP([784, 512, 512, 10])
        optimizer: Any = optim.Adam(net.parameters(), lr=1e-3)
        x, y = weft.randn(64, 784), weft.randint(0, 10, (64,))
    elif model == "resnet":
        net = weft.models.resnet18(classes=10, cifar=True)
        optimizer = optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
        x, y = weft.randn(2, 3, 32, 32), weft.randint(0, 10, (2,))
    else:
        net = weft.models.GPT(VOCAB, CONTEXT, WIDTH, HEADS, LAYERS)
        optimizer = optim.AdamW(net.parameters(), lr=1e-3)
        x, y = (weft.randint(0, VOCAB, (2, CONTEXT)) for _ in "xy")

    @weft.compile
    def step(x: Any, y: Any) -> Any:
        optimizer.zero_grad()
        logits = net(x)
        loss = nn.functional.cross_entropy(logits.reshape(y.numel(), -1), y.flatten())
        loss.backward()
        optimizer.step()
        return loss

    return lambda: step(x, y).item()


# -- PyTorch


def torch_step(model: str) -> Callable[[], float]:
    import torch

    torch.set_num_threads(len(os.sched_getaffinity(0)))
    F = torch.nn.functional
    net = {"mlp": torch_mlp, "resnet": torch_resnet, "gpt": torch_gpt}[model](torch)
    if model == "mlp":
        optimizer: Any = torch.optim.Adam(net.parameters(), lr=1e-3)
        x, y = torch.randn(64, 784), torch.randint(0, 10, (64,))
    elif model == "resnet":
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
        x, y = torch.randn(2, 3, 32, 32), torch.randint(0, 10, (2,))
    else:
        optimizer = torch.optim.AdamW(net.parameters(), lr=1e-3)
        x, y = (torch.randint(0, VOCAB, (2, CONTEXT)) for _ in "xy")

    @torch.compile
    def step(x: Any, y: Any) -> Any:
        optimizer.zero_grad()
        logits = net(x)
        loss = F.cross_entropy(logits.reshape(y.numel(), -1), y.flatten())
        loss.backward()
        optimizer.step()
        return loss

    return lambda: step(x, y).item()


def torch_mlp(torch: Any) -> Any:
    nn = torch.nn
    sizes = [784, 512, 512, 10]
    layers: list[Any] = []
    for n, m in itertools.pairwise(sizes):
        layers += [nn.Linear(n, m), nn.ReLU()]
    return nn.Sequential(*layers[:-1])


def torch_resnet(torch: Any) -> Any:
    nn, F = torch.nn, torch.nn.functional

    def conv(cin: int, cout: int, size: int, stride: int = 1) -> Any:
        return nn.Conv2d(cin, cout, size, stride, size // 2, bias=False)

    class Block(nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self, cin: int, cout: int, stride: int) -> None:
            super().__init__()
            self.conv1, self.bn1 = conv(cin, cout, 3, stride), nn.BatchNorm2d(cout)
            self.conv2, self.bn2 = conv(cout, cout, 3), nn.BatchNorm2d(cout)
            same = stride == 1 and cin == cout
            self.short = nn.Identity() if same else nn.Sequential(
                conv(cin, cout, 1, stride), nn.BatchNorm2d(cout)
            )  # fmt: skip

        def forward(self, x: Any) -> Any:
            y = F.relu(self.bn1(self.conv1(x)))
            return F.relu(self.bn2(self.conv2(y)) + self.short(x))

    blocks, cin = [], 64
    for k, width in enumerate((64, 128, 256, 512)):
        blocks += [Block(cin, width, 2 if k else 1), Block(width, width, 1)]
        cin = width
    stem = [conv(3, 64, 3), nn.BatchNorm2d(64), nn.ReLU()]
    end = [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(512, 10)]
    return nn.Sequential(*stem, *blocks, *end)


def torch_gpt(torch: Any) -> Any:
    nn, F = torch.nn, torch.nn.functional

    class Block(nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.ln1, self.ln2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
            self.qkv, self.proj = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
            self.up = nn.Linear(WIDTH, 4 * WIDTH)
            self.down = nn.Linear(4 * WIDTH, WIDTH)

        def forward(self, x: Any) -> Any:
            q, k, v = (
                part.unflatten(-1, (HEADS, -1)).transpose(1, 2)
                for part in self.qkv(self.ln1(x)).chunk(3, -1)
            )
            y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
            x = x + self.proj(y.transpose(1, 2).flatten(2))
            return x + self.down(F.gelu(self.up(self.ln2(x))))

    class GPT(nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.token = nn.Embedding(VOCAB, WIDTH)
            self.position = nn.Embedding(CONTEXT, WIDTH)
            self.blocks = nn.ModuleList(Block() for _ in range(LAYERS))
            self.norm = nn.LayerNorm(WIDTH)
            self.head = nn.Linear(WIDTH, VOCAB, bias=False)
            self.head.weight = self.token.weight

        def forward(self, ids: Any) -> Any:
            x = self.token(ids) + self.position(torch.arange(ids.shape[-1]))
            for block in self.blocks:
                x = block(x)
            return self.head(self.norm(x))

    return GPT()


# -- JAX


def jax_step(model: str) -> Callable[[], float]:
    import jax

    cache = os.environ["JAX_COMPILATION_CACHE_DIR"]
    jax.config.update("jax_compilation_cache_dir", cache)
    jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0)
    import jax.numpy as jnp
    import numpy as np

    rng = np.random.default_rng(0)
    make = {"mlp": jax_mlp, "resnet": jax_resnet, "gpt": jax_gpt}[model]
    params, stats, loss_of, x, y = make(jax, jnp, rng)
    decay = 0.01 if model == "gpt" else 0.0
    update = jax_momentum if model == "resnet" else jax_adam(jnp, decay)
    zeros = jax.tree.map(jnp.zeros_like, params)
    state = {"p": params, "s": stats, "m": zeros, "v": zeros, "t": jnp.zeros(())}

    @jax.jit
    def step(state: Any, x: Any, y: Any) -> Any:
        grad = jax.value_and_grad(loss_of, has_aux=True)
        (loss, stats), grads = grad(state["p"], state["s"], x, y)
        return {**update(jax, state, grads), "s": stats}, loss

    def run() -> float:
        nonlocal state
        state, loss = step(state, x, y)
        return float(loss)

    jax.block_until_ready(state)
    return run


def jax_adam(jnp: Any, decay: float) -> Any:
    def update(jax: Any, state: Any, grads: Any) -> Any:
        t = state["t"] + 1
        m = jax.tree.map(lambda m, g: 0.9 * m + 0.1 * g, state["m"], grads)
        v = jax.tree.map(lambda v, g: 0.999 * v + 0.001 * g * g, state["v"], grads)

        def new(p: Any, m: Any, v: Any) -> Any:
            size = jnp.sqrt(v / (1 - 0.999**t)) + 1e-8
            return p * (1 - 1e-3 * decay) - 1e-3 * m / (1 - 0.9**t) / size

        return {"p": jax.tree.map(new, state["p"], m, v), "m": m, "v": v, "t": t}

    return update


def jax_momentum(jax: Any, state: Any, grads: Any) -> Any:
    m = jax.tree.map(lambda m, g: 0.9 * m + g, state["m"], grads)
    p = jax.tree.map(lambda p, m: p - 0.1 * m, state["p"], m)
    return {"p": p, "m": m, "v": state["v"], "t": state["t"] + 1}


def jax_loss(jax: Any, jnp: Any, logits: Any, y: Any) -> Any:
    chosen = jnp.take_along_axis(jax.nn.log_softmax(logits), y[:, None], 1)
    return -chosen.mean()


def jax_array(jnp: Any, rng: Any, *shape: int) -> Any:
    return jnp.asarray(rng.normal(0, 0.05, shape), jnp.float32)


def jax_mlp(jax: Any, jnp: Any, rng: Any) -> Any:
    sizes = [784, 512, 512, 10]
    params = [
        (jax_array(jnp, rng, n, m), jnp.zeros(m)) for n, m in itertools.pairwise(sizes)
    ]

    def loss(params: Any, stats: Any, x: Any, y: Any) -> Any:
        for w, b in params[:-1]:
            x = jax.nn.relu(x @ w + b)
        w, b = params[-1]
        return jax_loss(jax, jnp, x @ w + b, y), stats

    return params, (), loss, jax_array(jnp, rng, 64, 784), jnp.arange(64) % 10


def jax_resnet(jax: Any, jnp: Any, rng: Any) -> Any:
    def conv(x: Any, w: Any, stride: int = 1) -> Any:
        pad = [(w.shape[2] // 2,) * 2] * 2
        return jax.lax.conv_general_dilated(x, w, (stride, stride), pad)

    def norm(x: Any, p: Any, s: Any) -> Any:
        mean, var = x.mean((0, 2, 3)), x.var((0, 2, 3))
        new = (0.9 * s[0] + 0.1 * mean, 0.9 * s[1] + 0.1 * var)
        scale = p[0] / jnp.sqrt(var + 1e-5)
        shift = p[1] - mean * scale
        return x * scale[:, None, None] + shift[:, None, None], new

    def pair(n: int) -> Any:
        return jnp.ones(n), jnp.zeros(n)

    def block(cin: int, cout: int, stride: int) -> tuple[Any, Any]:
        p = {
            "w1": jax_array(jnp, rng, cout, cin, 3, 3), "n1": pair(cout),
            "w2": jax_array(jnp, rng, cout, cout, 3, 3), "n2": pair(cout),
        }  # fmt: skip
        s = {"n1": pair(cout), "n2": pair(cout)}
        if stride > 1 or cin != cout:
            p |= {"w3": jax_array(jnp, rng, cout, cin, 1, 1), "n3": pair(cout)}
            s |= {"n3": pair(cout)}
        return p, s

    plan, cin = [], 64
    for k, width in enumerate((64, 128, 256, 512)):
        plan += [(cin, width, 2 if k else 1), (width, width, 1)]
        cin = width
    made = [block(*sizes) for sizes in plan]
    params = {
        "stem": jax_array(jnp, rng, 64, 3, 3, 3), "norm": pair(64),
        "blocks": [p for p, _ in made], "fc": jax_array(jnp, rng, 512, 10),
        "bias": jnp.zeros(10),
    }  # fmt: skip
    stats = {"norm": pair(64), "blocks": [s for _, s in made]}

    def apply(p: Any, s: Any, x: Any, stride: int) -> Any:
        new = {}
        y, new["n1"] = norm(conv(x, p["w1"], stride), p["n1"], s["n1"])
        y, new["n2"] = norm(conv(jax.nn.relu(y), p["w2"]), p["n2"], s["n2"])
        if "w3" in p:
            x, new["n3"] = norm(conv(x, p["w3"], stride), p["n3"], s["n3"])
        return jax.nn.relu(y + x), new

    def loss(params: Any, stats: Any, x: Any, y: Any) -> Any:
        x, first = norm(conv(x, params["stem"]), params["norm"], stats["norm"])
        x, new = jax.nn.relu(x), []
        blocks = zip(params["blocks"], stats["blocks"], plan, strict=True)
        for p, s, (_, _, stride) in blocks:
            x, some = apply(p, s, x, stride)
            new.append(some)
        logits = x.mean((2, 3)) @ params["fc"] + params["bias"]
        return jax_loss(jax, jnp, logits, y), {"norm": first, "blocks": new}

    return params, stats, loss, jax_array(jnp, rng, 2, 3, 32, 32), jnp.arange(2)


def jax_gpt(jax: Any, jnp: Any, rng: Any) -> Any:
    def linear(n: int, m: int) -> Any:
        return jax_array(jnp, rng, n, m), jnp.zeros(m)

    def block() -> Any:
        return {
            "ln1": (jnp.ones(WIDTH), jnp.zeros(WIDTH)), "qkv": linear(WIDTH, 3 * WIDTH),
            "ln2": (jnp.ones(WIDTH), jnp.zeros(WIDTH)), "proj": linear(WIDTH, WIDTH),
            "up": linear(WIDTH, 4 * WIDTH), "down": linear(4 * WIDTH, WIDTH),
        }  # fmt: skip

    params = {
        "token": jax_array(jnp, rng, VOCAB, WIDTH),
        "position": jax_array(jnp, rng, CONTEXT, WIDTH),
        "blocks": [block() for _ in range(LAYERS)],
        "norm": (jnp.ones(WIDTH), jnp.zeros(WIDTH)),
    }

    def norm(x: Any, p: Any) -> Any:
        mean, var = x.mean(-1, keepdims=True), x.var(-1, keepdims=True)
        return (x - mean) / jnp.sqrt(var + 1e-5) * p[0] + p[1]

    def attend(x: Any, p: Any) -> Any:
        rows, length, _ = x.shape
        parts = jnp.split(x @ p["qkv"][0] + p["qkv"][1], 3, -1)
        q, k, v = (a.reshape(rows, length, HEADS, -1).swapaxes(1, 2) for a in parts)
        scores = q @ k.swapaxes(-1, -2) / (WIDTH // HEADS) ** 0.5
        seen = jnp.tril(jnp.ones((length, length), bool))
        y = jax.nn.softmax(jnp.where(seen, scores, -jnp.inf)) @ v
        return y.swapaxes(1, 2).reshape(rows, length, -1) @ p["proj"][0] + p["proj"][1]

    def loss(params: Any, stats: Any, ids: Any, y: Any) -> Any:
        x = params["token"][ids] + params["position"][jnp.arange(ids.shape[-1])]
        for p in params["blocks"]:
            x = x + attend(norm(x, p["ln1"]), p)
            y1 = jax.nn.gelu(norm(x, p["ln2"]) @ p["up"][0] + p["up"][1], False)
            x = x + y1 @ p["down"][0] + p["down"][1]
        logits = norm(x, params["norm"]) @ params["token"].T
        return jax_loss(jax, jnp, logits.reshape(-1, VOCAB), y.reshape(-1)), stats

    ids = jnp.asarray(rng.integers(0, VOCAB, (2, CONTEXT)))
    return params, (), loss, ids, (ids + 1) % VOCAB


# -- measuring

STEPS = {"weft": weft_step, "torch": torch_step, "jax": jax_step}


def measure(framework: str, model: str) -> None:
    """In a process of its own: what importing, the first and a later call take."""
    start = time.perf_counter()
    if framework == "weft":
        import weft

        _ = weft.compile.compile, weft.models, weft.optim
    else:
        __import__("jax.numpy" if framework == "jax" else "torch._dynamo")
    imported = time.perf_counter() - start
    step = STEPS[framework](model)
    start = time.perf_counter()
    step()
    first = time.perf_counter() - start
    times = []
    for _ in range(5):
        start = time.perf_counter()
        step()
        times.append(time.perf_counter() - start)
    found = {"import": imported, "first": first, "later": statistics.median(times)}
    print(json.dumps(found))


def run(python: str, framework: str, model: str, cache: str) -> dict[str, float]:
    """One measurement, with its caches in a folder."""
    env = {
        **os.environ,
        "WEFT_CACHE_DIR": os.path.join(cache, "weft"),
        "TORCHINDUCTOR_CACHE_DIR": os.path.join(cache, "torch"),
        "TORCHINDUCTOR_FX_GRAPH_CACHE": "1",
        "TORCHINDUCTOR_AUTOGRAD_CACHE": "1",
        "JAX_COMPILATION_CACHE_DIR": os.path.join(cache, "jax"),
        "JAX_PLATFORMS": "cpu",
    }
    command = [python, __file__, "--measure", framework, model]
    done = subprocess.run(command, env=env, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(done.stderr[-2000:])
    return json.loads(done.stdout.splitlines()[-1])


def has(python: str, module: str) -> bool:
    command = [python, "-c", f"import {module}"]
    return subprocess.run(command, capture_output=True).returncode == 0


def compare(pythons: dict[str, str], models: list[str], rounds: int) -> None:
    print(f"{'':16}{'import':>9}{'cold':>9}{'warm':>9}{'a step':>9}   cold and warm, ")
    print(f"{'':16}{'s':>9}{'s':>9}{'s':>9}{'ms':>9}   times Weft's")
    for model in models:
        own: tuple[float, float] | None = None
        for framework, python in pythons.items():
            imported, cold, warm, later = medians(python, framework, model, rounds)
            own = own or (cold, warm)
            ratio = f"{cold / own[0]:8.1f}{warm / own[1]:8.1f}"
            print(
                f"{model:8}{framework:8}{imported:9.2f}{cold:9.3f}{warm:9.3f}"
                f"{later * 1e3:9.1f}{ratio}",
                flush=True,
            )


def medians(
    python: str, framework: str, model: str, rounds: int
) -> tuple[float, float, float, float]:
    """Seconds for importing, compiling cold and warm, and a later step."""
    found = []
    for _ in range(rounds):
        with tempfile.TemporaryDirectory() as cache:
            cold, warm = (run(python, framework, model, cache) for _ in range(2))
        later = min(cold["later"], warm["later"])
        found.append(
            (warm["import"], cold["first"] - later, warm["first"] - later, later)
        )
    first, second, third, fourth = map(statistics.median, zip(*found, strict=True))
    return first, second, third, fourth


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--torch", default=sys.executable, help="an interpreter")
    parser.add_argument("--jax", default=sys.executable, help="an interpreter")
    parser.add_argument("--models", nargs="*", default=list(MODELS), choices=MODELS)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--measure", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.measure:
        measure(*options.measure)
        return
    pythons = {"weft": sys.executable}
    for name in ("torch", "jax"):
        python = getattr(options, name)
        if has(python, name):
            pythons[name] = python
        else:
            print(f"{name}: not installed for {python}; left out")
    compare(pythons, options.models, options.rounds)


if __name__ == "__main__":
    main()
