"""Timelines of several processes: what they hold, and who is named."""

import json
import time

import pytest

import weft
import weft.distributed as dist
from weft.distributed.timeline import KINDS


def recorded(folder):
    """Rank 1 takes longer; a sum is waited for, and one goes on behind."""
    rank = dist.get_rank()
    step = weft.compile(lambda x: x * 2)
    with dist.Timeline(operators=True) as timeline:
        for _ in range(3):
            with timeline.step():
                time.sleep(0.05 + 0.1 * rank)
                dist.all_reduce(weft.ones(4))
                behind = dist.all_reduce(weft.ones(4), async_op=True)
                step(weft.ones(4))
                behind.wait()
    text = str(timeline)
    timeline.export_chrome_trace(f"{folder}/trace.json")
    if rank:
        return text
    page = step.explain().html(timeline=timeline)
    assert "Processes" in page
    assert "the slowest is rank 1" in page
    with open(f"{folder}/trace.json") as file:
        rows = json.load(file)["traceEvents"]
    shown = {(row["pid"], row["tid"]) for row in rows if row["ph"] == "X"}
    assert shown == {(r, k) for r in (0, 1) for k in range(len(KINDS))}
    names = {row["args"]["name"] for row in rows if row["ph"] == "M"}
    assert names == {"rank 0", "rank 1", *KINDS}
    sums = [row for row in rows if row["name"] == "all_reduce" and row["tid"] == 2]
    assert [row["pid"] for row in sums].count(0) == 3
    assert all(row["args"]["bytes"] == 16 for row in sums)
    first, second = timeline.processes
    assert (first.steps, second.steps) == (3, 3)
    assert first.waits > second.waits
    assert first.sent == second.sent == 32  # two sums of four numbers
    for one in (first, second):
        assert abs(one.compute + one.waits - one.step) < 1e-9
    return text


def test_the_slowest_rank_is_named(worlds, tmp_path):
    first, second = worlds.ok(recorded, 2, str(tmp_path))
    assert first == second
    assert "the slowest is rank 1: it computes" in first
    assert first.splitlines()[0].split()[:2] == ["rank", "steps"]


def refused():
    other = dist.Timeline()
    with dist.Timeline() as one, pytest.raises(ValueError, match="one at a time"):
        other.__enter__()
    with pytest.raises(ValueError, match=r"put each into a block of step\(\)"):
        str(one)


def test_what_is_refused(worlds):
    worlds.ok(refused, 1)
