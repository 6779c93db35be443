"""Random nets of layers with hand-written backward passes, eagerly and compiled.

A net is drawn as text: a list of layers, each with the same function written over
tensors. Three training steps run eagerly and compiled, the last one with another batch
size; and the gradients of the first are held against the tape's, of the functions. How
far results may differ is measured as ``three_ways`` does it for programs.
"""

import random
from dataclasses import dataclass, replace
from types import SimpleNamespace

import numpy as np
import three_ways

import weft
from weft import layers
from weft.core.tensor import Tensor
from weft.nn import functional as F

ACTIVATIONS = {
    "layers.ReLU()": "weft.relu(x)",
    "layers.Tanh()": "weft.tanh(x)",
    "layers.Sigmoid()": "weft.sigmoid(x)",
    "layers.LeakyReLU(0.25)": "F.leaky_relu(x, 0.25)",
    "layers.Softplus()": "F.softplus(x)",
}
OPTIMIZERS = (
    "layers.SGD(0.125)", "layers.Momentum(0.125)", "layers.Adam(0.125, eps=0.125)",
    "layers.Adagrad(0.125)",
)  # fmt: skip
LOSSES = ("SoftmaxCrossEntropy", "MSELoss", "SigmoidCrossEntropy", "HuberLoss")


@dataclass(frozen=True)
class NetProgram:
    """Layers in order: pairs of a constructor and a function of ``x`` and ``p``."""

    seed: int
    shape: tuple  # of an input, without the batch
    batches: tuple
    lines: tuple
    loss: str
    optimizer: str

    strict = halves = False

    def __str__(self):
        lead = f"# net {self.seed}: inputs {self.shape}, batches {self.batches}"
        body = [f"    {line},  # {function}" for line, function in self.lines]
        end = f"layers.{self.loss}(), {self.optimizer}"
        return "\n".join([lead, "layers.Model(layers.Net([", *body, f"]), {end})"])


def _vector_line(rng, width):
    roll = rng.random()
    if roll < 0.45:
        wide = rng.choice([1, 2, 3, 5, 8, 17])
        return f"layers.Dense({width}, {wide})", "x @ p['w'] + p['b']", wide
    if roll < 0.9:
        return *rng.choice(list(ACTIVATIONS.items())), width
    return "layers.Softmax()", "weft.softmax(x, 1)", width


def _image_line(rng, shape):
    """A layer of images, and the shape it gives; None where it would not fit."""
    channels, *size = shape
    roll = rng.random()
    if roll < 0.4:
        return *rng.choice(list(ACTIVATIONS.items())), shape
    k, step = rng.choice([1, 2, 3]), rng.choice([1, 1, 2])
    pad = rng.choice([0, k // 2])
    if roll < 0.7:
        out = rng.choice([1, 2, 4])
        found = [(n + 2 * pad - k) // step + 1 for n in size]
        made = f"layers.Conv2D({channels}, {out}, {k}, stride={step}, padding={pad})"
        fn = f"F.conv2d(x, p['w'], p['b'], {step}, {pad})"
        shape = (out, *found)
    elif roll < 0.8:
        out = rng.choice([1, 2, 3])
        found = [(n - 1) * step + k for n in size]
        made = f"layers.ConvTranspose2D({channels}, {out}, {k}, stride={step})"
        fn = f"F.conv_transpose2d(x, p['w'], p['b'], {step})"
        shape = (out, *found)
    else:
        kind = rng.choice(["Max", "Avg"])
        found = [(n - k) // step + 1 for n in size]
        made = f"layers.{kind}Pool2D({k}, {step})"
        fn = f"F.{kind.lower()}_pool2d(x, {k}, {step})"
        shape = (channels, *found)
    return (made, fn, shape) if min(found) > 0 and max(found) < 16 else None


def draw(seed):
    """A random net."""
    rng = random.Random(seed)
    lines = []
    shape = (rng.choice([1, 3, 4, 7, 16]),)
    first = shape
    if rng.random() < 0.5:
        size = rng.choice([3, 4, 5, 7, 8])
        first = shape = (rng.choice([1, 2, 3]), size, rng.choice([size, size + 1]))
        for _ in range(rng.randint(1, 4)):
            found = _image_line(rng, shape)
            if found is not None:
                *line, shape = found
                lines.append(tuple(line))
        lines.append(("layers.Flatten()", "x.flatten(1)"))
        shape = (int(np.prod(shape)),)
    width = shape[0]
    for _ in range(rng.randint(1, 4)):
        *line, width = _vector_line(rng, width)
        lines.append(tuple(line))
    n, m = rng.choice([1, 2, 3, 8, 33]), rng.choice([2, 5, 16])
    loss = rng.choice(LOSSES if width > 1 else LOSSES[1:])
    return NetProgram(seed, first, (n, n, m), tuple(lines), loss,
                      rng.choice(OPTIMIZERS))  # fmt: skip


NAMES = {"layers": layers, "weft": weft, "F": F}


class NetWorld:
    """A model with parameters of its own, multiples of 1/8, and data."""

    def __init__(self, program):
        self.program = program
        made = [eval(line, dict(NAMES)) for line, _ in program.lines]
        loss = getattr(layers, program.loss)()
        self.model = layers.Model(
            layers.Net(made), loss, eval(program.optimizer, NAMES)
        )
        rng = np.random.default_rng(program.seed)
        for layer in made:
            for name, p in layer.params.items():
                value = np.round(rng.normal(0, 0.5, p.shape) * 8) / 8
                layer.params[name] = Tensor(value.astype("f")).requires_grad_()

    def data(self, call):
        rng = np.random.default_rng([self.program.seed, call])
        batch = self.program.batches[call]
        x = np.round(rng.normal(size=(batch, *self.program.shape)) * 8) / 8
        with weft.no_grad():
            wide = self.model.net.forward(Tensor(x.astype("f"))).shape[1]
        if self.program.loss == "SoftmaxCrossEntropy":
            y = rng.integers(0, wide, batch)
        else:
            y = rng.integers(0, 2, (batch, wide)).astype("f")
        return Tensor(x.astype("f")), Tensor(y)

    def step(self, x, y):
        out = self.model.forward(x)
        loss, grads = self.model.backward(out, y)
        self.model.apply_grad(grads)
        return out, loss

    def results(self, step):
        """What each call returns, and the parameters after it."""
        found = []
        for call in range(len(self.program.batches)):
            out, loss = step(*self.data(call))
            one = {"out": out, "loss": loss}
            for k, layer in enumerate(self.model.net.layers):
                one |= {f"{k}.{name}": p for name, p in layer.params.items()}
            arrays = {name: t.detach().numpy().copy() for name, t in one.items()}
            found.append(arrays)
        return found

    def gradients(self, by_tape):
        """The first gradient of each parameter, by hand or by the tape."""
        x, y = self.data(0)
        if not by_tape:
            out = self.model.forward(x)
            grads = self.model.net.backward(self.model.loss.grad(out, y))
            return {
                f"{k}.{name}": g.numpy().copy()
                for k, one in enumerate(grads)
                for name, g in one.items()
            }
        params = {}
        for k, (layer, (_, text)) in enumerate(
            zip(self.model.net.layers, self.program.lines, strict=True)
        ):
            mine = {name: p.detach().clone().requires_grad_()
                    for name, p in layer.params.items()}  # fmt: skip
            params |= {f"{k}.{name}": p for name, p in mine.items()}
            x = eval(text, dict(NAMES), {"x": x, "p": mine})
        loss = self.model.loss.loss(x, y)
        if not params:
            return {}
        found = weft.autograd.grad(loss, list(params.values()), allow_unused=True)
        zeros = [np.zeros(p.shape, "f") for p in params.values()]
        return {
            name: zero if g is None else g.numpy()
            for name, g, zero in zip(params, found, zeros, strict=True)
        }


class _Tolerance(three_ways.Tolerance):
    """The results of a net, and what they may differ by."""

    def __init__(self, program, run):
        self.strict = False
        self.want = run()
        self.exact, self.noisy = False, []
        for seed in range(3):
            with three_ways.Noise(SimpleNamespace(strict=False, halves=False), seed):
                self.noisy.append(run())


def _compare(way, allowed, found):
    return three_ways._difference(way, allowed, found)


def judge(program):
    """A word and a sentence, as of ``three_ways.judge``."""

    def eagerly():
        world = NetWorld(program)
        return world.results(world.step)

    def by_hand():
        return [NetWorld(program).gradients(by_tape=False)]

    def by_tape():
        return [NetWorld(program).gradients(by_tape=True)]

    def compiled():
        world = NetWorld(program)
        return world.results(weft.compile(world.step))

    try:
        allowed, slopes = _Tolerance(program, eagerly), _Tolerance(program, by_tape)
    except weft.errors.WeftError as error:
        return "unfit", f"eagerly: {error}"
    if not (allowed.steady() and slopes.steady()):
        return "unfit", "it magnifies rounding errors"
    for way, limit in ((by_hand, slopes), (compiled, allowed)):
        try:
            complaint = _compare(way, limit, way())
        except Exception as error:
            complaint = f"{way.__name__}: {type(error).__name__}: {error}"
        if complaint is not None:
            return "failed", complaint
    return "agreed", ""


def smaller(program, still):
    """The shortest net found that ``still`` holds for, a layer at a time."""
    changed = True
    while changed:
        changed = False
        for k in range(len(program.lines)):
            option = replace(program, lines=program.lines[:k] + program.lines[k + 1 :])
            if option.lines and still(option):
                program, changed = option, True
                break
    return program
