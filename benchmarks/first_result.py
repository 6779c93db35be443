"""The time of short scripts, from their start to their first result.

    python benchmarks/first_result.py [--beside PATH/src] [--rounds N]

Each script runs in a fresh process: with an empty cache on disk (the first run after
an installation), and with one that has the kernels (every later run). ``--beside``
names the source folder of another version, which runs in turns with this one.
"""

from __future__ import annotations

import argparse
import os
import pathlib
import subprocess
import sys
import tempfile
import time

HERE = str(pathlib.Path(__file__).parents[1] / "src")
SCRIPTS = {
    "import weft": "import weft",
    "a small step": """
import weft
model = weft.nn.Linear(64, 10)
model(weft.randn(64, 64)).sum().backward()
weft.optim.SGD(model, lr=0.1).step()
""",
    "one convolution": """
import weft
x, w = weft.randn(8, 16, 32, 32), weft.randn(16, 16, 3, 3)
weft.nn.functional.conv2d(x, w, padding=1).numpy()
""",
    "one 512x512 product": """
import weft
x = weft.randn(512, 512)
(x @ x).numpy()
""",
    "one large sum": """
import weft
weft.ones(1 << 20).sum().item()
""",
}


def seconds(code: str, source: str, cache: str) -> float:
    """The time of one process."""
    environment = {
        k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"
    }
    environment |= {"PYTHONPATH": source, "WEFT_CACHE_DIR": cache}
    start = time.perf_counter()
    subprocess.run([sys.executable, "-c", code], check=True, env=environment)
    return time.perf_counter() - start


def measure(source: str, code: str, kept: str, empty: bool) -> float:
    if not empty:
        return seconds(code, source, kept)
    with tempfile.TemporaryDirectory() as cache:
        return seconds(code, source, cache)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--beside", help="the source folder of another version")
    parser.add_argument("--rounds", type=int, default=7)
    args = parser.parse_args()
    sources = {"here": HERE} | ({"beside": args.beside} if args.beside else {})
    print(
        f"{'':24}{'cache':>7}" + "".join(f"{name:>10}" for name in sources) + "  (ms)"
    )
    with tempfile.TemporaryDirectory() as folder:
        kept = {name: os.path.join(folder, name) for name in sources}
        for title, code in SCRIPTS.items():
            for empty in (True, False):
                best = dict.fromkeys(sources, float("inf"))
                for _ in range(args.rounds):
                    for name, source in sources.items():
                        took = measure(source, code, kept[name], empty)
                        best[name] = min(best[name], took)
                times = "".join(f"{t * 1e3:10.0f}" for t in best.values())
                print(f"{title:24}{'empty' if empty else 'kept':>7}{times}", flush=True)


if __name__ == "__main__":
    main()
