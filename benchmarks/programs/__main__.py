"""Public PyTorch programs under Weft, beside PyTorch: do they run, agree, and how fast?

    python -m benchmarks.programs --torch ENV/bin/python [name ...]

``--torch`` is a Python that has PyTorch and the packages of the catalog; this Python
needs the packages alone (``pip install --no-deps``). Each program is trained in a
process of its own by PyTorch, by ``weft run`` and by ``weft run --compile``, in turn;
the losses of all steps are compared and the fastest steps of the rounds divided.
"""

import argparse
import json
import math
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

HERE = Path(__file__).parent
ONE = str(HERE / "one.py")
NEAR = 1e-4


def ran(command, name, steps):
    """What a program printed at its end, or the last line of its error."""
    env = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONWARNINGS": "ignore"}
    try:
        done = subprocess.run(
            [*command, ONE, name, str(steps)],
            capture_output=True, text=True, timeout=600, env=env,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        return None, "took more than 10 minutes"
    for line in reversed(done.stdout.splitlines()):
        if line.startswith("RESULT"):
            return json.loads(line.partition(" ")[2]), ""
    lines = [line for line in done.stderr.splitlines() if "Error" in line]
    return None, (lines or ["died"])[-1][:160]


def apart(one, other):
    """The largest relative difference of two lists of losses."""
    pairs = zip(one["losses"], other["losses"], strict=True)
    return max(abs(a - b) / max(abs(a), 1e-3) for a, b in pairs)


def names(python):
    code = (
        f"import sys; sys.path.insert(0, {str(HERE)!r}); import catalog; "
        "print(*[f'{n}:{p}' for n, (_, p) in catalog.PROGRAMS.items()])"
    )
    out = subprocess.run([python, "-c", code], capture_output=True, text=True)
    return [tuple(word.split(":")) for word in out.stdout.split()]


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--torch", required=True, help="a Python that has PyTorch")
    parser.add_argument("--steps", type=int, default=12)
    parser.add_argument("--rounds", type=int, default=1)
    options = parser.parse_args()
    run = [sys.executable, "-m", "weft", "run"]
    ways = {"torch": [options.torch], "eager": run, "compiled": [*run, "--compile"]}
    tally, ratios = Counter(), {"eager": [], "compiled": []}
    print("| program | package | eager | compiled | time eager | compiled |")
    print("|---|---|---|---|---|---|", flush=True)
    for name, package in names(options.torch):
        if options.names and name not in options.names:
            continue
        found, best = {}, {}
        for _ in range(options.rounds):
            for way, command in ways.items():
                found[way], error = ran(command, name, options.steps)
                if found[way] is None:
                    print(f"# {name} {way}: {error}", file=sys.stderr, flush=True)
                    continue
                best[way] = min([*found[way]["times"], best.get(way, math.inf)])
        tally["programs"] += 1
        cells = {}
        for way in ("eager", "compiled"):
            if found["torch"] is None or found[way] is None:
                cells[way] = "fails", ""
                continue
            tally[f"{way} runs"] += 1
            far, ratio = apart(found["torch"], found[way]), best[way] / best["torch"]
            tally[f"{way} agrees"] += far < NEAR
            ratios[way].append(ratio)
            cells[way] = f"{far:.0e}", f"{ratio:.2f}"
        shown = [cells[w][0] for w in cells] + [cells[w][1] for w in cells]
        print(f"| {name} | {package} | {' | '.join(shown)} |", flush=True)
    print(f"\n{dict(tally)}")
    for way, values in ratios.items():
        if values:
            mean = math.exp(sum(map(math.log, values)) / len(values))
            print(f"{way}: Weft's time over PyTorch's, geometric mean {mean:.3f}")


if __name__ == "__main__":
    main()
