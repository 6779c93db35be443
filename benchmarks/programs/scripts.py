"""Unchanged scripts of public packages under ``weft run``, beside PyTorch.

    python -m benchmarks.programs.scripts FOLDER --torch ENV/bin/python [--only WORD]

FOLDER holds source distributions, unpacked (``pip download --no-binary :all:``), under
the names in ``scripts.toml``; ``--only`` keeps the scripts whose path contains a word.
``--torch`` is a Python that has PyTorch. Each script runs in processes of its own: by
PyTorch, by ``weft run`` and by ``weft run --compile``, with the random numbers of
``script.py``.

A script counts if PyTorch runs it to its last step or its end. Weft fails if it does
not come as far with as many losses; it agrees if all losses do, to 1e-4. A ratio of
times is of the steps after the fourth, so that it leaves compilation out.
"""

import argparse
import json
import math
import os
import subprocess
import sys
import tempfile
import tomllib
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

HERE = Path(__file__).parent
NEAR = 1e-4
WARM = 4  # steps that are not timed
WAYS = ("eager", "compiled")


def scripts(folder, word):
    """``(path, arguments, steps, environment)`` of each script in the list."""
    packages = tomllib.loads((HERE / "scripts.toml").read_text())["package"]
    for package in packages:
        root = folder / package["root"]
        paths = [str(root), str(root / "src"), os.environ.get("PYTHONPATH", "")]
        env = {**os.environ, **package.get("env", {})}
        env["PYTHONPATH"] = os.pathsep.join(p for p in paths if p)
        for line in package["scripts"]:
            name, *arguments = line.split()
            path = root / package["folder"] / name
            if word in str(path):
                yield path, arguments, package["steps"], env


def ran(command, script, limit):
    """The result of one process, with ``error`` where it did not come to its end."""
    path, arguments, steps, env = script
    quiet = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "MPLBACKEND": "Agg"}
    with tempfile.TemporaryDirectory() as place:
        out = Path(place, "result.json")
        line = [*command, HERE / "script.py", out, str(steps), path, *arguments]
        try:
            done = subprocess.run(
                [*map(str, line)], cwd=place, env={**env, **quiet},
                capture_output=True, text=True, timeout=limit,
            )  # fmt: skip
        except subprocess.TimeoutExpired:
            return {"losses": [], "times": [], "error": f"more than {limit} s"}
        if out.exists():
            return json.loads(out.read_text())
        last = (done.stderr.strip().splitlines() or ["died"])[-1]
        return {"losses": [], "times": [], "error": last}


def apart(ours, theirs):
    """The largest relative difference of losses; None if there are none."""
    pairs = zip(ours["losses"], theirs["losses"], strict=True)
    return max((difference(a, b) for a, b in pairs), default=None)


def difference(a, b):
    if a == b or (math.isnan(a) and math.isnan(b)):
        return 0.0
    far = abs(a - b) / max(abs(b), 1e-3)
    return far if math.isfinite(far) else math.inf


def ratio(ours, theirs):
    """Time over PyTorch's of the steps after the fourth; None where they are few."""
    if len(ours["times"]) < 2 * WARM:
        return None
    return spent(ours) / spent(theirs)


def spent(result):
    return result["times"][-1] - result["times"][WARM - 1]


def compared(script, commands, limit):
    """A row: the number of steps, and for each way ``(state, difference, ratio)``."""
    theirs = ran(commands["torch"], script, limit)
    row = {"torch": theirs}
    for way in WAYS if not theirs["error"] else ():
        ours = ran(commands[way], script, 2 * limit)
        steps, all_steps = len(ours["losses"]), len(theirs["losses"])
        if not ours["error"] and steps != all_steps:
            ours["error"] = f"{steps} steps where PyTorch takes {all_steps}"
        if ours["error"]:
            row[way] = "fails", None, None
            print(f"# {script[0]} {way}: {ours['error']}", file=sys.stderr, flush=True)
        else:
            far = apart(ours, theirs)
            state = "no loss" if far is None else "agrees" if far < NEAR else "differs"
            row[way] = state, far, ratio(ours, theirs)
    if theirs["error"]:
        print(f"# {script[0]} torch: {theirs['error']}", file=sys.stderr, flush=True)
    return script[0], row


def shown(value, form):
    return "" if value is None else format(value, form)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--only", default="", help="a word of the paths to run")
    parser.add_argument("--torch", required=True, help="a Python that has PyTorch")
    parser.add_argument("--jobs", type=int, default=1, help="scripts at a time")
    parser.add_argument("--limit", type=int, default=90, help="seconds for PyTorch")
    options = parser.parse_args()
    run = [sys.executable, "-m", "weft", "run"]
    commands = {"torch": [options.torch], "eager": run, "compiled": [*run, "--compile"]}
    folder = options.folder.resolve()
    tally, ratios = Counter(), {way: [] for way in WAYS}
    print("| script | steps | eager | compiled | loss apart | time eager | compiled |")
    print("|---|---|---|---|---|---|---|", flush=True)
    with ThreadPoolExecutor(options.jobs) as pool:
        wanted = scripts(folder, options.only)
        rows = pool.map(lambda s: compared(s, commands, options.limit), wanted)
        for path, row in rows:
            tally["tried"] += 1
            if row["torch"]["error"]:
                continue
            tally["PyTorch runs"] += 1
            for way in WAYS:
                tally[f"{way} runs"] += row[way][0] != "fails"
                tally[f"{way} {row[way][0]}"] += 1
                ratios[way] += [row[way][2]] if row[way][2] else []
            states, fars, times = zip(*(row[way] for way in WAYS), strict=True)
            far = max((f for f in fars if f is not None), default=None)
            cells = [f"`{path.relative_to(folder)}`", len(row["torch"]["losses"])]
            cells += [*states, shown(far, ".1e"), *(shown(t, ".2f") for t in times)]
            print("|", " | ".join(map(str, cells)), "|", flush=True)
    print(f"\n{dict(tally)}")
    for way, values in ratios.items():
        if values:
            mean = math.exp(sum(map(math.log, values)) / len(values))
            print(f"{way}: geometric mean over PyTorch's of {len(values)}: {mean:.2f}")


if __name__ == "__main__":
    main()
