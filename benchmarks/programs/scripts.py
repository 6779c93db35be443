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

Where losses are further apart, PyTorch runs the script three times more with parameters
that are changed by one rounding, and in float64. The difference is rounding if no loss
is more than ten times as far from PyTorch's as PyTorch's own losses have come from one
another by that step. The table also has how far the losses of both libraries are apart
in float64.
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
from itertools import accumulate
from pathlib import Path

HERE = Path(__file__).parent
NEAR = 1e-4
WARM = 4  # steps that are not timed
NUDGES = 3  # further runs of PyTorch where losses differ
GROWTH = 10  # times PyTorch's own spread that is still called rounding
WAYS = ("eager", "compiled")
HEADS = (
    "script", "steps", "eager", "compiled", "loss apart", "PyTorch's own", "in float64",
    "time eager", "compiled",
)  # fmt: skip


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


def differences(ours, theirs):
    """The relative difference of each loss."""
    pairs = zip(ours["losses"], theirs["losses"], strict=False)
    return [difference(a, b) for a, b in pairs]


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


def changed(script, **variables):
    """The same script with other variables in its environment."""
    return *script[:3], {**script[3], **variables}


def spread(script, command, theirs, wide, limit):
    """How far PyTorch's own losses have come from one another by each step.

    They are those of the script with other roundings: of parameters that are changed
    by one, and in float64 (``wide``).
    """
    runs = [
        ran(command, changed(script, SCRIPT_NUDGE=str(seed)), limit)
        for seed in range(1, NUDGES + 1)
    ]
    runs += [] if wide["error"] else [wide]
    far = zip(*(differences(run, theirs) for run in runs), strict=False)
    return list(accumulate(map(max, far), max))


def is_rounding(far, own, wide):
    """Whether no difference is much larger than PyTorch's own by that step.

    Where PyTorch's own losses have come apart without bound, only losses that agree in
    float64 (``wide``) tell.

    >>> is_rounding([0, 1e-3], [0, 2e-4], None), is_rounding([1e-3, 0], [0, 2e-4], None)
    (True, False)
    """
    known = wide is not None and wide < NEAR
    return len(own) == len(far) and all(
        a <= max(GROWTH * b, NEAR) and (known or b < math.inf)
        for a, b in zip(far, own, strict=True)
    )


def state(ours, theirs):
    """What became of a script; its losses may yet differ by rounding."""
    steps, all_steps = len(ours["losses"]), len(theirs["losses"])
    if not ours["error"] and steps != all_steps:
        ours["error"] = f"{steps} steps where PyTorch takes {all_steps}"
    if ours["error"]:
        return "fails"
    far = differences(ours, theirs)
    return "no loss" if not far else "agrees" if max(far) < NEAR else "differs"


def compared(script, commands, limit):
    """A row: PyTorch's result, each way's, and how far losses are from one another."""
    row = {"torch": ran(commands["torch"], script, limit)}
    for way in WAYS if not row["torch"]["error"] else ():
        row[way] = ran(commands[way], script, 2 * limit)
        row[way]["state"] = state(row[way], row["torch"])
    for way in row:
        if row[way]["error"]:
            error = row[way]["error"]
            print(f"# {script[0]} {way}: {error}", file=sys.stderr, flush=True)
    if "differs" in [row[way]["state"] for way in WAYS if way in row]:
        explain(row, script, commands, limit)
    return script[0], row


def explain(row, script, commands, limit):
    """Find out which differences are rounding."""
    in_float64 = changed(script, SCRIPT_DTYPE="float64")
    wide = ran(commands["torch"], in_float64, limit)
    ours = ran(commands["eager"], in_float64, 2 * limit)
    known = not wide["error"] and not ours["error"]
    row["float64"] = max(differences(ours, wide), default=None) if known else None
    own = spread(script, commands["torch"], row["torch"], wide, limit)
    row["own"] = max(own, default=None)
    for way in WAYS:
        far = differences(row[way], row["torch"])
        if row[way]["state"] == "differs" and is_rounding(far, own, row["float64"]):
            row[way]["state"] = "rounding"


def cells(path, row):
    """A row as texts: steps, states, differences and times over PyTorch's."""
    theirs, ways = row["torch"], [row[way] for way in WAYS]
    right = [way for way in ways if way["state"] != "fails"]
    far = max((f for way in right for f in differences(way, theirs)), default=None)
    apart = [far, row.get("own"), row.get("float64")]
    times = [ratio(way, theirs) if way in right else None for way in ways]
    return [
        f"`{path}`", str(len(theirs["losses"])), *(way["state"] for way in ways),
        *(shown(f, ".1e") for f in apart), *(shown(t, ".2f") for t in times),
    ]  # fmt: skip


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
    print("| " + " | ".join(HEADS) + " |\n|" + "---|" * len(HEADS), flush=True)
    with ThreadPoolExecutor(options.jobs) as pool:
        wanted = scripts(folder, options.only)
        rows = pool.map(lambda s: compared(s, commands, options.limit), wanted)
        for path, row in rows:
            tally["tried"] += 1
            if row["torch"]["error"]:
                continue
            tally["PyTorch runs"] += 1
            for way in WAYS:
                tally[f"{way} {row[way]['state']}"] += 1
                if row[way]["state"] != "fails" and (
                    took := ratio(row[way], row["torch"])
                ):
                    ratios[way].append(took)
            print(
                "|", " | ".join(cells(path.relative_to(folder), row)), "|", flush=True
            )
    print(f"\n{dict(tally)}")
    for way, values in ratios.items():
        if values:
            mean = math.exp(sum(map(math.log, values)) / len(values))
            print(f"{way}: geometric mean over PyTorch's of {len(values)}: {mean:.2f}")


if __name__ == "__main__":
    main()
