"""The time to import weft beside numpy alone, in fresh processes taken in turns.

python benchmarks/import_time.py
"""

from __future__ import annotations

import os
import subprocess
import sys
import time

# Bytecode is written once, as an installation does.
ENVIRONMENT = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}


def seconds(module: str, python: str = sys.executable) -> float:
    start = time.perf_counter()
    subprocess.run([python, "-c", f"import {module}"], check=True, env=ENVIRONMENT)
    return time.perf_counter() - start


def main(rounds: int = 15) -> None:
    names = ("sys", "numpy", "weft")
    best = dict.fromkeys(names, float("inf"))
    for _ in range(rounds):
        for name in names:
            best[name] = min(best[name], seconds(name))
    numpy, weft = (best[n] - best["sys"] for n in ("numpy", "weft"))
    print(f"bare interpreter {best['sys'] * 1e3:6.1f} ms")
    print(f"import numpy     {numpy * 1e3:6.1f} ms beyond it")
    print(f"import weft      {weft * 1e3:6.1f} ms beyond it, ratio {weft / numpy:.2f}")


if __name__ == "__main__":
    main()
