"""Programs as C files beside the same programs compiled in-process.

    python benchmarks/c_files.py

Both run on one thread, in turns; the figure is the least processor time of a call in
microseconds. The calls of compiled programs come from Python, those of C from C.
"""

from __future__ import annotations

import math
import pathlib
import subprocess
import tempfile
import time

import weft
from weft import nn

ROUNDS, CALLS = 100, 5
LEVELS = ("-O3", "-O3 -march=x86-64-v3", "-O3 -march=native")

MAIN = """\
#define _POSIX_C_SOURCE 199309L
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include "net.h"

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
  return (double)t.tv_sec * 1e6 + (double)t.tv_nsec * 1e-3;
}

int main(void) {
  static net_model model;
  static @TYPE x[@GIVEN];
  static float y[@MADE];
  double best = 1e30;
  if (net_init(&model, malloc(NET_MEMORY), NET_MEMORY) != NET_OK) return 1;
  for (int k = 0; k < @ROUNDS; k++) {
    const double start = now();
    for (int c = 0; c < @CALLS; c++)
      if (net_run(&model, x, (int64_t[]){@X}, y, (int64_t[]){@Y}) != NET_OK) return 1;
    const double took = (now() - start) / @CALLS;
    if (took < best) best = took;
  }
  printf("%g\\n", best);
  return 0;
}
"""


def digits() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(16, 32, 3, padding=1), nn.ReLU(), nn.AdaptiveAvgPool2d(1),
        nn.Flatten(), nn.Linear(32, 10),
    )  # fmt: skip


def cases() -> dict[str, tuple[nn.Module, weft.Tensor]]:
    mlp = nn.Sequential(nn.Linear(64, 128), nn.GELU(), nn.Linear(128, 10))
    cnn, gpt = digits(), weft.models.GPT(65, 64, width=128, heads=4, layers=4)
    return {
        "MLP, batch 1": (mlp, weft.randn(1, 64)),
        "MLP, batch 64": (mlp, weft.randn(64, 64)),
        "digits CNN, batch 1": (cnn, weft.randn(1, 1, 8, 8)),
        "digits CNN, batch 64": (cnn, weft.randn(64, 1, 8, 8)),
        "GPT, 1 token": (gpt, weft.zeros(1, 1, dtype=weft.int64)),
        "GPT, 64 tokens": (gpt, weft.zeros(1, 64, dtype=weft.int64)),
    }


def program(folder: pathlib.Path, x: weft.Tensor, y: weft.Tensor, flags: str) -> str:
    """The path of a program that prints the time of a call of ``net.c``."""
    values = {
        "TYPE": "int64_t" if x.dtype is weft.int64 else "float",
        "GIVEN": math.prod(x.shape), "MADE": math.prod(y.shape), "ROUNDS": ROUNDS,
        "CALLS": CALLS, "X": ", ".join(map(str, x.shape)),
        "Y": ", ".join(map(str, y.shape)),
    }  # fmt: skip
    text = MAIN
    for name, value in values.items():
        text = text.replace(f"@{name}", str(value))
    (folder / "main.c").write_text(text)
    made = str(folder / flags.replace(" ", ""))
    command = ["cc", "-std=c99", *flags.split(), "main.c", "net.c", "-o", made, "-lm"]
    subprocess.run(command, cwd=folder, check=True)
    return made


def compiled_time(call: weft.Tensor, x: weft.Tensor) -> float:
    best = math.inf
    for _ in range(ROUNDS):
        start = time.thread_time()
        for _ in range(CALLS):
            call(x)
        best = min(best, (time.thread_time() - start) / CALLS)
    return best * 1e6


def row(net: nn.Module, x: weft.Tensor) -> list[float]:
    """The times of C at each level, and of the compiled function."""
    call = weft.compile(net.eval())
    with tempfile.TemporaryDirectory() as name, weft.no_grad():
        folder = pathlib.Path(name)
        weft.export(net, x, folder / "net.c")
        programs = [program(folder, x, net(x), flags) for flags in LEVELS]
        found = [math.inf] * (len(LEVELS) + 1)
        for _ in range(3):
            times = [
                float(subprocess.run([p], capture_output=True, check=True).stdout)
                for p in programs
            ]
            found = list(map(min, found, [*times, compiled_time(call, x)]))
    return found


def main() -> None:
    weft.set_num_threads(1)
    weft.manual_seed(0)
    heads = [*[flags.removeprefix("-O3 ") for flags in LEVELS], "weft.compile"]
    print(f"{'':22}" + "".join(f"{head:>20}" for head in heads))
    for name, (net, x) in cases().items():
        times = row(net, x)
        print(f"{name:22}" + "".join(f"{t:>20.1f}" for t in times), flush=True)


if __name__ == "__main__":
    main()
