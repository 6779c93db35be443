"""Random programs eagerly, interpreted and compiled: ``python tools/fuzz.py 5000``.

Prints every program on which they differ, shortened to the lines that matter.
"""

import argparse
import collections
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "compile"))

import programs
import three_ways


def kind_of(complaint):
    """What sort of failure it is, so that shortening does not change it."""
    return " ".join(complaint.split(":")[:2]).split(",")[0][:60]


def failing(kind):
    def still(program):
        word, reason = three_ways.judge(program)
        return word == "failed" and kind_of(reason) == kind

    return still


def one(seed, shorten, large):
    """What became of a program: a word, and a report."""
    try:
        program, refused = programs.draw(seed, three_ways.fit, large=large)
    except programs.Unfit as reason:
        return "unfit", f"# {reason}"
    program, word, reason = three_ways.judged(program)
    if word == "failed" and shorten:
        program = three_ways.smaller(program, failing(kind_of(reason)))
        reason = three_ways.judge(program)[1] or reason
    if word == "agreed" and refused and three_ways.accepts(program, refused):
        word, reason = "failed", f"refused eagerly, but compiled: {refused}"
    return word, f"# {reason}\n{program}"


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("count", type=int, nargs="?", default=100)
    parser.add_argument("--seed", type=int, default=0, help="of the first program")
    parser.add_argument("--whole", action="store_true", help="do not shorten")
    parser.add_argument("--show", default="failed", help="of which words")
    parser.add_argument(
        "--large", type=float, default=0.05, help="share of programs on large tensors"
    )
    options = parser.parse_args()
    tally = collections.Counter()
    start = time.perf_counter()
    for seed in range(options.seed, options.seed + options.count):
        word, report = one(seed, not options.whole, options.large)
        tally[word] += 1
        if word in options.show:
            print(f"\n# {word}\n{report}", flush=True)
        if (seed + 1 - options.seed) % 250 == 0:
            print(f"# {dict(tally)}", flush=True)
    took = time.perf_counter() - start
    print(f"\n{dict(tally)}, {took / options.count * 1e3:.0f} ms a program")
    return tally["failed"] > 0


if __name__ == "__main__":
    sys.exit(main())
