"""Exported libraries beside ``weft.compile``, onnxruntime and exported C.

    python benchmarks/exported_libraries.py [resnet18 resnet50 bert] [--rounds 15]

ResNet-18 and ResNet-50 on a picture of 224 x 224 and an encoder of BERT-base's size on
128 tokens, in float32, for a batch of one, with two threads. All run in this process in
turns, with a pause between; printed are medians and the least in milliseconds, and the
median of the ratios to the library of the same round. PyTorch writes the ONNX file, so
that needs torch, onnx and onnxruntime; without them, Weft's own are measured.

Then the time from the start of a process to the first answer of ResNet-18, and the
size of machine code of a small network for digits in C.
"""

from __future__ import annotations

import argparse
import ctypes
import pathlib
import re
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable
from typing import Any

import numpy as np

import weft

THREADS, C_ROUNDS = 2, 3

START = """\
#include <stdio.h>
#include <stdlib.h>
#include "resnet18.h"

static float x[3 * 224 * 224], y[1000];

int main(void) {
  static resnet18_model model;
  void *memory = malloc(RESNET18_MEMORY);
  if (resnet18_init(&model, memory, RESNET18_MEMORY)) return 1;
  if (resnet18_run(&model, x, (int64_t[]){1, 3, 224, 224}, y, (int64_t[]){1, 1000}))
    return 1;
  printf("%g\\n", y[0]);
  return 0;
}
"""


# -- the models, of PyTorch's layers or of Weft's


def resnet(nn: Any, counts: list[int], *, deep: bool) -> Any:
    grow = 4 if deep else 1

    def conv(given: int, made: int, size: int, stride: int = 1) -> list[Any]:
        pad = size // 2
        return [nn.Conv2d(given, made, size, stride, pad, bias=False),
                nn.BatchNorm2d(made)]  # fmt: skip

    class Block(nn.Module):
        def __init__(self, given: int, width: int, stride: int) -> None:
            super().__init__()
            made = width * grow
            if deep:
                layers = [*conv(given, width, 1), nn.ReLU(),
                          *conv(width, width, 3, stride), nn.ReLU(),
                          *conv(width, made, 1)]  # fmt: skip
            else:
                layers = [*conv(given, made, 3, stride), nn.ReLU(),
                          *conv(made, made, 3)]  # fmt: skip
            self.body = nn.Sequential(*layers)
            other = stride != 1 or given != made
            self.short = nn.Sequential(*(conv(given, made, 1, stride) if other else []))

        def forward(self, x: Any) -> Any:
            return (self.body(x) + self.short(x)).relu()

    layers = [*conv(3, 64, 7, 2), nn.ReLU(), nn.MaxPool2d(3, 2, 1)]
    given = 64
    for stage, count in enumerate(counts):
        for k in range(count):
            width = 64 << stage
            layers.append(Block(given, width, 2 if stage and not k else 1))
            given = width * grow
    head = [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(given, 1000)]
    return nn.Sequential(*layers, *head)


def bert(nn: Any, *, width: int = 768, heads: int = 12, layers: int = 12) -> Any:
    class Layer(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
            self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
            self.mlp = nn.Sequential(
                nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width)
            )

        def forward(self, x: Any) -> Any:
            b, t, c = 1, 128, width
            q, k, v = (
                one.reshape(b, t, heads, c // heads).transpose(1, 2)
                for one in self.qkv(x).split(c, -1)
            )
            scores = (q @ k.transpose(-2, -1)) * (c // heads) ** -0.5
            y = (scores.softmax(-1) @ v).transpose(1, 2).reshape(b, t, c)
            x = self.norm1(x + self.out(y))
            return self.norm2(x + self.mlp(x))

    class Encoder(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.words = nn.Embedding(30522, width)
            self.places = nn.Embedding(128, width)
            self.norm = nn.LayerNorm(width)
            self.layers = nn.Sequential(*[Layer() for _ in range(layers)])

        def forward(self, ids: Any) -> Any:
            return self.layers(self.norm(self.words(ids) + self.places.weight))

    return Encoder()


MODELS: dict[str, Callable[[Any], Any]] = {
    "resnet18": lambda nn: resnet(nn, [2, 2, 2, 2], deep=False),
    "resnet50": lambda nn: resnet(nn, [3, 4, 6, 3], deep=True),
    "bert": bert,
}


def given(name: str) -> np.ndarray:
    rng = np.random.default_rng(0)
    if name == "bert":
        return rng.integers(0, 30522, (1, 128))
    return rng.standard_normal((1, 3, 224, 224), np.float32)


# -- what runs them


class Called:
    """A library's model on one example."""

    def __init__(self, path: pathlib.Path, x: np.ndarray, y: np.ndarray, *init: Any):
        name = path.stem
        library = ctypes.CDLL(str(path))
        header = path.with_suffix(".h").read_text()
        found = re.search(r"_MEMORY (\d+)", header)
        assert found is not None
        size = int(found[1])
        self.memory, self.model = np.zeros(size, np.uint8), (ctypes.c_int64 * 8)()
        given = ctypes.c_void_p(self.memory.ctypes.data), ctypes.c_size_t(size)
        assert library[f"{name}_init"](self.model, *given, *init) == 0
        self.x, self.y = x, y
        self.run, self.arguments = library[f"{name}_run"], [self.model]
        for array in (x, y):
            self.arguments.append(ctypes.c_void_p(array.ctypes.data))
            self.arguments.append((ctypes.c_int64 * array.ndim)(*array.shape))

    def __call__(self) -> np.ndarray:
        assert self.run(*self.arguments) == 0
        return self.y


def in_c(net: Any, x: Any, want: np.ndarray, name: str, folder: pathlib.Path) -> Called:
    """The C file of a program, by the system's compiler."""
    folder.mkdir()
    weft.export(net, x, folder / f"{name}.c", weights="beside")
    flags = ["-O3", "-march=native", f"-D{name.upper()}_THREADS={THREADS}"]
    command = ["cc", *flags, "-shared", "-fPIC", f"{name}.c", "-o", f"{name}.so",
               "-lm", "-lpthread"]  # fmt: skip
    subprocess.run(command, cwd=folder, check=True)
    beside = bytes(folder / f"{name}.safetensors")
    return Called(folder / f"{name}.so", x.numpy(), np.zeros_like(want), beside)


def in_onnxruntime(module: Any, x: np.ndarray, path: str) -> Callable[[], np.ndarray]:
    import onnxruntime
    import torch

    torch.onnx.export(
        module, (torch.from_numpy(x),), path, dynamo=False, opset_version=17,
        input_names=["x"],
    )  # fmt: skip
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = THREADS
    session = onnxruntime.InferenceSession(path, options, ["CPUExecutionProvider"])
    return lambda: session.run(None, {"x": x})[0]


def modules(name: str) -> tuple[Any, Any]:
    """Weft's module and PyTorch's with the same weights, if that is here."""
    weft.manual_seed(0)
    ours = MODELS[name](weft.nn).eval()
    try:
        import onnxruntime  # noqa: F401
        import torch
    except ImportError:
        return ours, None
    theirs = MODELS[name](torch.nn).eval()
    state = {
        k: torch.from_numpy(v.numpy().copy()) for k, v in ours.state_dict().items()
    }
    theirs.load_state_dict(state)
    return ours, theirs


# -- measuring


def measured(name: str, rounds: int, folder: pathlib.Path) -> None:
    net, theirs = modules(name)
    a = given(name)
    x = weft.tensor(a)
    with weft.no_grad():
        compiled = weft.compile(net)
        want = compiled(x).numpy()
        path = folder / f"{name}.so"
        start = time.perf_counter()
        weft.export(net, x, path, threads=THREADS)
        took = time.perf_counter() - start
        runs: dict[str, Callable[[], Any]] = {
            "library": Called(path, a, np.zeros_like(want)),
            "weft.compile": lambda: compiled(x).numpy(),
        }
        if theirs is not None:
            runs["onnxruntime"] = in_onnxruntime(theirs, a, str(folder / "m.onnx"))
        runs["C, gcc -O3"] = in_c(net, x, want, name, folder / f"{name}_c")
        for who, run in runs.items():
            np.testing.assert_allclose(run(), want, rtol=1e-2, atol=2e-3, err_msg=who)
        times: dict[str, list[float]] = {who: [] for who in runs}
        for k in range(rounds):
            turn = k % len(runs)
            order = [*runs.items()]
            for who, run in order[turn:] + order[:turn]:
                if who.startswith("C,") and k >= C_ROUNDS:
                    continue
                time.sleep(0.02)  # threads of the others go to sleep
                run()
                start = time.perf_counter()
                run()
                times[who].append((time.perf_counter() - start) * 1e3)
    size = path.stat().st_size / 1e6
    print(f"{name}: exported in {took:.1f} s, {size:.0f} MB")
    for who, some in times.items():
        ratios = [a / b for a, b in zip(some, times["library"], strict=False)]
        print(f"  {who:14} {statistics.median(some):9.2f} ms   "
            f"{min(some):9.2f} ms at least   "
              f"{statistics.median(ratios):6.2f} times the library's")  # fmt: skip


def first_answer(folder: pathlib.Path) -> None:
    (folder / "start.c").write_text(START)
    command = ["cc", "-O2", "start.c", "resnet18.so", "-Wl,-rpath,.", "-o", "start"]
    subprocess.run(command, cwd=folder, check=True)
    times = []
    for _ in range(15):
        start = time.perf_counter()
        subprocess.run(["./start"], cwd=folder, check=True, capture_output=True)
        times.append((time.perf_counter() - start) * 1e3)
    print(f"resnet18 from the start of a process to its end: median "
          f"{statistics.median(times):.1f} ms, least {min(times):.1f} ms")  # fmt: skip


def code_size(folder: pathlib.Path) -> None:
    nn = weft.nn
    net = nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(16, 32, 3, padding=1), nn.ReLU(), nn.AdaptiveAvgPool2d(1),
        nn.Flatten(), nn.Linear(32, 10),
    ).eval()  # fmt: skip
    x = weft.zeros(1, 1, 8, 8)
    weft.export(net, x, folder / "digits.c")
    command = ["cc", "-O3", "-c", "digits.c", "-o", "digits_c.o"]
    subprocess.run(command, cwd=folder, check=True)
    weft.export(net, x, folder / "digits.o", threads=1)
    for name, path in (("C, gcc -O3", "digits_c.o"), ("object code", "digits.o")):
        done = subprocess.run(
            ["size", path], cwd=folder, capture_output=True, text=True
        )
        text, data, *_ = done.stdout.splitlines()[1].split()
        print(f"digits, {name}: {int(text) + int(data):,} bytes of code and weights")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("models", nargs="*", default=list(MODELS))
    parser.add_argument("--rounds", type=int, default=15)
    options = parser.parse_args()
    weft.set_num_threads(THREADS)
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        for model in options.models or MODELS:
            measured(model, options.rounds, folder)
        if "resnet18" in options.models:
            first_answer(folder)
        code_size(folder)


if __name__ == "__main__":
    main()
