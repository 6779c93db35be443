"""Run one script with common random numbers and write its losses and times to a file.

    python script.py RESULT STEPS SCRIPT [args]                    # PyTorch
    weft run [--compile] script.py RESULT STEPS SCRIPT [args]      # Weft

The script itself is unchanged. Random numbers, initial weights and the order of batches
are NumPy's, dropout keeps every element, and the data sets of torchvision hold random
pictures: all that two libraries cannot agree on. Each ``backward()`` counts as a step,
and the script ends after STEPS of them.

Two variables of the environment tell rounding from wrong answers. The default dtype is
``SCRIPT_DTYPE``. ``SCRIPT_NUDGE=SEED`` changes each parameter by half the type's
epsilon, up or down, when an optimizer takes it: losses of one library's runs are then
as far apart as rounding makes them.
"""

import functools
import importlib
import json
import os
import random
import runpy
import sys
import time
import traceback
from collections import Counter

import numpy as np
import torch
from torch import nn

draws = np.random.default_rng(0)
start = 0.0
result = {"losses": [], "times": [], "end": "", "error": ""}
file_of_result = os.path.abspath(sys.argv[1])


def finish(end, error=""):
    """Write the result and leave, whatever threads and workers still run."""
    result.update(end=end, error=error)
    with open(file_of_result, "w") as file:
        json.dump(result, file)
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)


# -- random numbers


def tensor(values, dtype=None, requires_grad=False, **_):
    made = torch.from_numpy(np.array(values, order="C"))
    return made.to(dtype or torch.get_default_dtype()).requires_grad_(requires_grad)


def shape_of(size):
    if len(size) == 1 and not isinstance(size[0], int):
        size = size[0]
    return tuple(int(s) for s in size)


def factory(draw):
    """``torch.rand`` and its like: sizes in a row or in a tuple."""

    def made(*size, generator=None, out=None, **options):
        size = size or (options.pop("size"),)
        return tensor(draw(shape_of(size)), **options)

    return made


def like(draw):
    def made(x, dtype=None, requires_grad=False, **_):
        return tensor(draw(tuple(x.shape)), dtype or x.dtype, requires_grad)

    return made


def in_place(own, draw):
    """A method like ``uniform_``; layers and loaders of the library keep their own."""

    def filled(self, *args, generator=None, **options):
        caller = sys._getframe(1).f_globals.get("__name__", "")
        if caller.partition(".")[0] in ("torch", "weft"):
            return own(self, *args, generator=generator, **options)
        with torch.no_grad():
            return self.copy_(tensor(draw(tuple(self.shape), *args, **options)))

    return filled


def uniform(shape, low=0.0, high=1.0, **named):
    low, high = named.get("from", low), named.get("to", high)
    return draws.random(shape) * (high - low) + low


def gaussian(shape, mean=0.0, std=1.0):
    return draws.standard_normal(shape) * std + mean


def integers(shape, low=0, high=None, **named):
    low, high = named.get("from", low), named.get("to", high)
    low, high = (low, high) if high is not None else (0, low or 2**24)
    return draws.integers(low, high, shape)


def coins(shape, p=0.5):
    p = p.detach().numpy() if isinstance(p, torch.Tensor) else p
    return draws.random(shape) < p


def randint(low, high=None, size=None, dtype=torch.int64, **_):
    if size is None:
        low, high, size = 0, low, high
    size = size if isinstance(size, (tuple, list)) else (size,)
    return tensor(draws.integers(low, high, tuple(size)), dtype)


def randperm(n, dtype=torch.int64, **_):
    return tensor(draws.permutation(n), dtype)


def normal(mean=0.0, std=1.0, size=None, **_):
    if size is None:
        both = torch.broadcast_tensors(torch.as_tensor(mean), torch.as_tensor(std))
        size = both[0].shape
    return tensor(draws.standard_normal(tuple(size))) * std + mean


def bernoulli(x, p=None, **_):
    return tensor(coins(tuple(x.shape), x if p is None else p), x.dtype)


def chosen(weights, count, replacement):
    """Indices for each row of weights, as many as asked."""
    rows = weights.reshape(-1, weights.shape[-1])
    picks = [draws.choice(len(w), count, replacement, w / w.sum()) for w in rows]
    return np.asarray(picks).reshape(*weights.shape[:-1], count)


def multinomial(x, num_samples, replacement=False, **_):
    found = chosen(x.detach().double().numpy(), num_samples, replacement)
    return tensor(found, torch.int64)


def categorical_sample(self, sample_shape=()):
    count = int(np.prod(sample_shape)) if len(sample_shape) else 1
    found = chosen(self.probs.detach().double().numpy(), count, True)
    found = np.moveaxis(found, -1, 0)
    return tensor(found.reshape((*sample_shape, *found.shape[1:])), torch.int64)


def normal_rsample(self, sample_shape=()):
    shape = tuple(self._extended_shape(torch.Size(sample_shape)))
    noise = tensor(draws.standard_normal(shape), self.loc.dtype)
    return self.loc + self.scale * noise


def normal_sample(self, sample_shape=()):
    with torch.no_grad():
        return normal_rsample(self, sample_shape)


def batches(self):
    count = len(self.data_source)
    if self.replacement:
        return iter(draws.integers(0, count, self.num_samples).tolist())
    return iter(draws.permutation(count)[: self.num_samples].tolist())


def kept(input, p=0.5, training=True, inplace=False):
    return input


def share_random_numbers():
    np.random.seed(0)
    random.seed(0)
    torch.rand, torch.randn = factory(uniform), factory(gaussian)
    torch.rand_like, torch.randn_like = like(uniform), like(gaussian)
    torch.randint, torch.randperm, torch.normal = randint, randperm, normal
    torch.bernoulli, torch.multinomial = bernoulli, multinomial
    methods = {
        "uniform_": uniform,
        "normal_": gaussian,
        "random_": integers,
        "bernoulli_": coins,
        "exponential_": lambda shape, lambd=1.0: draws.exponential(1 / lambd, shape),
    }
    for name, draw in methods.items():
        own = getattr(torch.Tensor, name)
        setattr(torch.Tensor, name, in_place(own, draw))
    torch.distributions.Categorical.sample = categorical_sample
    torch.distributions.Normal.rsample = normal_rsample
    torch.distributions.Normal.sample = normal_sample
    torch.utils.data.RandomSampler.__iter__ = batches
    for axes in ("", "1d", "2d", "3d"):
        setattr(nn.functional, f"dropout{axes}", kept)
        getattr(nn, f"Dropout{axes}").forward = lambda _, x: x


# -- initial weights


def is_constant(values):
    """Whether a parameter was not drawn; a single number may be a layer's bias."""
    first = values.reshape(-1)[0]
    return first in (0, 1) if values.size == 1 else bool((values == first).all())


def fill(parameters, number):
    """Give parameters values that do not depend on the library; constants stay."""
    for place, p in enumerate(parameters):
        if not torch.is_floating_point(p) or not p.numel():
            continue
        if is_constant(p.detach().numpy()):
            continue
        own = np.random.default_rng((number, place, *p.shape))
        scale = np.prod(p.shape[1:]) ** -0.5 if p.ndim > 1 else 0.05
        with torch.no_grad():
            p.copy_(tensor(own.standard_normal(tuple(p.shape)) * scale, p.dtype))


def nudge(p):
    """Change a parameter by about its rounding, where SCRIPT_NUDGE asks for it."""
    if seed := os.environ.get("SCRIPT_NUDGE"):
        own = np.random.default_rng((int(seed), *p.shape))
        with torch.no_grad():
            half = torch.finfo(p.dtype).eps / 2
            p.add_(tensor(half * own.choice([-1, 1], tuple(p.shape)), p.dtype))


def share_weights():
    """Fill the parameters of each layer when it is made, and of each optimizer."""
    depth, made, taken, alike = 0, 0, {}, Counter()

    def filling(init):
        @functools.wraps(init)
        def __init__(self, *args, **options):
            nonlocal depth, made
            depth += 1
            try:
                init(self, *args, **options)
            finally:
                depth -= 1
            if not depth and not any(map(nn.parameter.is_lazy, self.parameters())):
                made += 1
                fill(self.parameters(), made)

        return __init__

    for kind in {k for k in vars(nn).values() if isinstance(k, type)}:
        resets = hasattr(kind, "reset_parameters") or hasattr(kind, "_reset_parameters")
        if resets and issubclass(kind, nn.Module):
            kind.__init__ = filling(kind.__init__)
    add = torch.optim.Optimizer.add_param_group

    def add_param_group(self, group):
        given = group["params"]
        given = [given] if isinstance(given, torch.Tensor) else list(given)
        group["params"] = given
        for p in (p[1] if isinstance(p, tuple) else p for p in given):
            if id(p) not in taken:
                taken[id(p)] = p
                alike[p.shape] += 1  # some programs keep parameters in a set
                if p.numel() > 1:  # numbers of a program's own are often constants
                    fill([p], 10**6 + alike[p.shape])
                nudge(p)
        return add(self, group)

    torch.optim.Optimizer.add_param_group = add_param_group


# -- losses


def record_losses(steps):
    backward = torch.Tensor.backward

    @functools.wraps(backward)
    def recorded(self, *args, **options):
        done = backward(self, *args, **options)
        result["losses"].append(float(self.detach().double().sum()))
        result["times"].append(time.process_time() - start)
        if len(result["losses"]) >= steps:
            finish("steps")
        return done

    torch.Tensor.backward = recorded


# -- data sets


class Pictures(torch.utils.data.Dataset):
    """A data set of torchvision with random pictures."""

    shape, kinds = (28, 28), 10

    def __init__(self, root=None, *args, **options):
        flags = [a for a in args if isinstance(a, bool)]
        calls = [a for a in args if callable(a)]
        self.train = options.get("train", flags[0] if flags else True)
        self.transform = options.get("transform", calls[0] if calls else None)
        self.target_transform = options.get("target_transform")
        own = np.random.default_rng(1 + bool(self.train))
        self.pictures = own.integers(0, 256, (1280, *self.shape)).astype("uint8")
        self.labels = own.integers(0, self.kinds, 1280)
        self.data = torch.from_numpy(self.pictures)
        self.targets = torch.from_numpy(self.labels)
        self.classes = [str(k) for k in range(self.kinds)]

    def __len__(self):
        return len(self.pictures)

    def __getitem__(self, place):
        from PIL import Image

        x, y = Image.fromarray(self.pictures[place]), int(self.labels[place])
        x = self.transform(x) if self.transform else x
        return x, self.target_transform(y) if self.target_transform else y


class Colours(Pictures):
    shape = 32, 32, 3


class HundredColours(Colours):
    kinds = 100


class Fake(Pictures):
    """``FakeData``: pictures of the shape and number that are asked for."""

    def __init__(
        self, size=1000, image_size=(3, 224, 224), num_classes=10, transform=None,
        target_transform=None, random_offset=0,
    ):  # fmt: skip
        self.transform, self.target_transform = transform, target_transform
        own = np.random.default_rng(random_offset)
        pixels = own.integers(0, 256, (min(size, 64), *image_size[1:], image_size[0]))
        self.pictures = pixels.astype("uint8").repeat(-(-size // 64), 0)[:size]
        self.labels = own.integers(0, num_classes, size)


def stand_in_data():
    try:
        sets = importlib.import_module("torchvision.datasets")
    except ImportError:
        return
    for name in ("MNIST", "FashionMNIST", "KMNIST", "QMNIST", "EMNIST"):
        setattr(sets, name, Pictures)
    sets.CIFAR10 = sets.SVHN = Colours
    sets.CIFAR100, sets.FakeData = HundredColours, Fake


def main():
    global start
    steps, script = int(sys.argv[2]), sys.argv[3]
    torch.set_num_threads(1)
    torch.set_default_dtype(getattr(torch, os.environ.get("SCRIPT_DTYPE", "float32")))
    share_random_numbers()
    share_weights()
    record_losses(steps)
    stand_in_data()
    sys.argv = sys.argv[3:]
    sys.path[0] = os.path.dirname(os.path.realpath(script))
    start = time.process_time()
    end, error = "end", ""
    try:
        runpy.run_path(script, run_name="__main__")
    except SystemExit as left:
        if left.code not in (None, 0, False):
            end, error = "error", f"exit status {left.code}"
    except BaseException as raised:
        traceback.print_exc()
        end, error = "error", f"{type(raised).__name__}: {raised}"
    finish(end, error)


main()
