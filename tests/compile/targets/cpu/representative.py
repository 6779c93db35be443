"""Programs that between them use all that is generated, compiled and compared.

``run()`` compares each with its eager run; ``WEFT_CPU`` says for which machine.
"""

import numpy as np

import weft
import weft.nn.functional as F
from weft import nn, optim

RNG = np.random.default_rng(0)


def tensor(*shape, dtype=np.float32):
    return weft.tensor(RNG.normal(size=shape).astype(dtype))


def softmax(x):
    return x.softmax(-1), x.log_softmax(0), F.gelu(x), x.tanh().exp() + x.sin()


def layer_norm(x, w):
    loss = lambda x, w: (F.layer_norm(x, (33,), w) ** 2 * x).sum()
    return F.layer_norm(x, (33,), w), *weft.func.grad(loss, (0, 1))(x, w)


def indexed(x, index):
    picked = x[index]
    added = weft.zeros(9, 33).index_add(0, index, picked)
    return picked, added, x.gather(1, index[:, None] * 3), x.sort(1).values, x.argmax(1)


def halves(x, y):
    a, b = x.to(weft.float16), y.to(weft.bfloat16)
    return a * 3 + 1, (b * b).sum(1), a.exp(), b.softmax(1), x.double().to(a.dtype)


def products(x, y):
    return x @ y.t(), x.t() @ y, (x @ y.t() + 1).relu(), x.double() @ y.double().t()


def whole(n):
    return n // 7, n % 5, n << 2, n * n - 3, n.to(weft.uint8), n.abs().cumsum(0)


def images(x, w):
    y = F.conv2d(x, w, padding=1)
    return y.relu(), F.max_pool2d(y, 2), F.avg_pool2d(y, 2)


def programs():
    x, y = tensor(9, 33), tensor(9, 33)
    index = weft.tensor([3, 0, 8, 3, 2, 1, 0])
    numbers = weft.tensor(RNG.integers(-1000, 1000, 999))
    return {
        "softmax": (softmax, (x,)),
        "layer norm": (layer_norm, (x, tensor(33))),
        "gather and scatter": (indexed, (x, index)),
        "half types": (halves, (x, y)),
        "products": (products, (x, y)),
        "whole numbers": (whole, (numbers,)),
        "images": (images, (tensor(2, 3, 8, 8), tensor(4, 3, 3, 3))),
    }


def unit(array):
    """What results may differ by, at a size of 1."""
    if array.dtype.kind in "biu":
        return 0
    return {2: 2.0**-6, 4: 1e-5, 8: 1e-13}[array.dtype.itemsize]


def compare(name, got, want):
    for k, (a, b) in enumerate(zip(got, want, strict=True)):
        a, b = a.detach().numpy(), b.detach().numpy()
        tolerance = unit(b)
        assert a.dtype == b.dtype, (name, k)
        np.testing.assert_allclose(
            a.astype(np.float64), b.astype(np.float64), tolerance, tolerance,
            err_msg=f"{name}, output {k}",
        )  # fmt: skip


def train(steps, compiled):
    """A classifier's losses."""
    weft.manual_seed(0)
    model = nn.Sequential(
        nn.Linear(12, 32),
        nn.LayerNorm(32),
        nn.GELU(),
        nn.Dropout(0.1),
        nn.Linear(32, 5),
    )
    optimizer = optim.AdamW(model.parameters(), lr=1e-2)
    x, y = weft.randn(37, 12), weft.randint(0, 5, (37,))

    def step(x, y):
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        return loss

    run = weft.compile(step) if compiled else step
    losses = [run(x, y).item() for _ in range(steps)]
    return losses, [p.detach().numpy() for p in model.parameters()]


def run():
    """Everything once; gives the names of what was compared."""
    done = []
    for name, (program, args) in programs().items():
        compare(name, weft.compile(program)(*args), program(*args))
        done.append(name)
    (losses, got), (eager, want) = train(8, True), train(8, False)
    np.testing.assert_allclose(losses, eager, rtol=1e-4)
    assert losses[-1] < losses[0]
    for a, b in zip(got, want, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-2, atol=1e-3)
    return [*done, "training"]


if __name__ == "__main__":
    print("\n".join(run()))
