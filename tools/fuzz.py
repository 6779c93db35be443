"""Random programs eagerly, interpreted, compiled and in sessions, and nets of layers.

    python tools/fuzz.py 5000 --jobs 16

Prints every program on which they differ, shortened to the lines that matter, and a
tally at the end: ``failed`` must not be in it.
"""

import argparse
import collections
import multiprocessing
import os
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "compile"))


def kind_of(complaint):
    """What sort of failure it is, so that shortening does not change it."""
    return " ".join(complaint.split(":")[:2]).split(",")[0][:60]


def failing(kind, judge):
    def still(program):
        word, reason = judge(program)
        return word == "failed" and kind_of(reason) == kind

    return still


def one(seed, options):
    """What became of a program: a word, and a report."""
    import programs
    import three_ways

    if is_net(seed, options.layers):
        return one_net(seed, not options.whole)
    try:
        program, refused = programs.draw(seed, three_ways.fit, large=options.large)
    except programs.Unfit as reason:
        return "unfit", f"# {reason}"
    program, word, reason = three_ways.judged(program)
    if word == "failed" and not options.whole:
        still = failing(kind_of(reason), three_ways.judge)
        program = three_ways.smaller(program, still)
        reason = three_ways.judge(program)[1] or reason
    if word == "agreed" and refused and three_ways.accepts(program, refused):
        word, reason = "failed", f"refused eagerly, but compiled: {refused}"
    return word, f"# {reason}\n{program}"


def is_net(seed, share):
    """Whether a seed draws a net of layers, as this share of them does."""
    return (seed * 0x9E3779B1 >> 8) % 1000 < share * 1000


def one_net(seed, shorten):
    """What became of a net of layers."""
    import nets

    program = nets.draw(seed)
    word, reason = nets.judge(program)
    if word == "failed" and shorten:
        program = nets.smaller(program, failing(kind_of(reason), nets.judge))
        reason = nets.judge(program)[1] or reason
    return ("layers" if word == "agreed" else word), f"# {reason}\n{program}"


def one_of(task):
    """``one`` for a pool; an error of the fuzzer itself is a failure too."""
    seed, options = task
    try:
        return one(seed, options)
    except Exception as error:
        return "failed", f"# seed {seed}: {type(error).__name__}: {error}"


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("count", type=int, nargs="?", default=100)
    parser.add_argument("--seed", type=int, default=0, help="of the first program")
    parser.add_argument("--whole", action="store_true", help="do not shorten")
    parser.add_argument("--show", default="failed", help="of which words")
    parser.add_argument("--jobs", type=int, default=1, help="processes")
    parser.add_argument(
        "--large", type=float, default=0.05, help="share of programs on large tensors"
    )
    parser.add_argument(
        "--layers", type=float, default=0.1, help="share of nets of layers"
    )
    options = parser.parse_args()
    if options.jobs > 1:  # the processes share the cores out
        os.environ.setdefault("WEFT_NUM_THREADS", "2")
        os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    tally = collections.Counter()
    start = time.perf_counter()
    tasks = [(options.seed + k, options) for k in range(options.count)]
    with multiprocessing.get_context("spawn").Pool(options.jobs) as pool:
        found = pool.imap(one_of, tasks) if options.jobs > 1 else map(one_of, tasks)
        for k, (word, report) in enumerate(found, 1):
            tally[word] += 1
            if word in options.show:
                print(f"\n# {word}\n{report}", flush=True)
            if k % 250 == 0:
                print(f"# {k}: {dict(tally)}", flush=True)
    took = time.perf_counter() - start
    print(
        f"\n{options.count} programs from seed {options.seed}: {dict(tally)}, "
        f"{took:.0f} s, {took / options.count * 1e3:.0f} ms a program"
    )
    return tally["failed"] > 0


if __name__ == "__main__":
    sys.exit(main())
