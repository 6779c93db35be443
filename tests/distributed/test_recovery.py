"""Training goes on after processes were lost, with the bits of a run without losses."""

import os
import random
import re
import signal

import numpy as np
import pytest
from worlds import Failure

import weft
import weft.distributed as dist
from weft import nn, optim
from weft.cli.main import main
from weft.distributed import pieces, snapshots
from weft.utils.data import DataLoader, DistributedSampler


@pytest.fixture
def files(tmp_path):
    """Memories that outlive a world, as a launcher's do: two files for each rank."""

    def made(rank):
        paths = [str(tmp_path / f"{rank}-{k}") for k in range(2)]
        for path in paths:
            open(path, "ab").close()
        return paths

    return made


def has_memory(paths, start=0, nodes=""):
    """Let this rank have the memories of these files."""
    found = [os.open(path, os.O_RDWR) for path in paths[dist.get_rank()]]
    os.environ[snapshots.MEMORY] = ":".join(map(str, found))
    os.environ[snapshots.RESTARTS] = str(start)
    os.environ[snapshots.NODES] = nodes


def train(paths, steps, start=0, nodes="", dies=None):
    """What a run ends with; ``dies`` is a rank, and the step in which it is killed."""
    has_memory(paths, start, nodes)
    rank = dist.get_rank()
    weft.manual_seed(rank)
    random.seed(rank)
    data = weft.arange(480.0).reshape(120, 4).sin()
    sampler = DistributedSampler(data, seed=3)
    loader = DataLoader(data, batch_size=2, sampler=sampler, seed=1)
    body = nn.Sequential(nn.Linear(4, 5), nn.Dropout(0.2), nn.Linear(5, 1))
    net = nn.parallel.DistributedDataParallel(body)
    optimizer = optim.Adam(net.parameters(), lr=0.1)
    schedule = optim.lr_scheduler.StepLR(optimizer, 2)
    sums, mine = {"loss": 0.0}, weft.zeros(1)
    recovery = dist.Recovery(
        {"net": net, "optimizer": optimizer, "schedule": schedule, "data": loader,
         "sums": sums},
        {"mine": mine} if dies != "elastic" else {},
    )  # fmt: skip
    first, batches = None, None
    for step in recovery.steps(steps):
        first = step if first is None else first
        batches = batches or iter(loader)
        if dies == [rank, step]:
            os.kill(os.getpid(), signal.SIGKILL)
        optimizer.zero_grad()
        loss = net(next(batches)).square().mean()
        loss.backward()
        dist.all_reduce(loss.detach())
        optimizer.step()
        schedule.step()
        sums["loss"] += 1.0
        mine += random.random() + np.random.random() * 0
    numbers = [p.tolist() for p in net.parameters()]
    ends = [mine.item(), weft.rand(1).item(), random.random()]
    return {"first": first, "numbers": numbers, "sums": sums, "ends": ends}


def test_a_killed_rank_costs_its_step_and_no_bits(worlds, files):
    paths = [files(rank) for rank in range(4)]
    whole = worlds.ok(train, 2, paths[2:], 7)
    assert [one["first"] for one in whole] == [0, 0]
    lost = worlds.run(train, 2, paths, 7, 0, "", [1, 4])
    assert [type(one) for one in lost] == [Failure, Failure]
    assert "rank 1 is gone" in lost[0].text
    again = worlds.run(train, 2, paths, 7, 1, "", [0, 6])  # and once more
    assert [type(one) for one in again] == [Failure, Failure]
    found = worlds.ok(train, 2, paths, 7, 2)
    assert [one.pop("first") for one in found] == [6, 6]
    assert found == [{k: v for k, v in one.items() if k != "first"} for one in whole]


def test_a_lost_machine_is_replaced_from_the_copies(worlds, files):
    paths = [files(rank) for rank in range(6)]
    whole = worlds.ok(train, 4, [files(9 + k) for k in range(4)], 5)
    worlds.run(train, 4, paths, 5, 0, "2,2", [3, 3])
    replaced = [*paths[:2], *paths[4:]]  # ranks 2 and 3 come back with nothing
    found = worlds.ok(train, 4, replaced, 5, 1, "2,2")
    assert [one.pop("first") for one in found] == [3] * 4
    assert [one["numbers"] for one in found] == [one["numbers"] for one in whole]
    assert [one["ends"] for one in found] == [one["ends"] for one in whole]


@pytest.mark.parametrize("then", [2, 5])
def test_fewer_and_more_processes_go_on(worlds, files, then):
    paths = [files(rank) for rank in range(then + 4)]
    worlds.run(train, 4, paths, 6, 0, "2,2", "elastic")
    found = worlds.ok(train, then, paths[:2] + paths[4:], 8, 1, "", "elastic")
    assert [one["first"] for one in found] == [6] * then
    assert all(one["numbers"] == found[0]["numbers"] for one in found)
    # the state is of these processes' shares at once: one more loss is no harm
    again = worlds.ok(train, then, paths[:2] + paths[4:], 9, 2, "", "elastic")
    assert [one["first"] for one in again] == [8] * then


def test_what_is_lost_for_good_is_no_new_beginning(worlds, files):
    paths = [files(rank) for rank in range(3)]
    worlds.ok(train, 2, paths, 4)
    found = worlds.run(train, 2, [paths[0], paths[2]], 4, 1)
    for one in found:
        assert one.kind == "RecoveryError"
        assert (
            "of step 4, a share of rank 1 and the own state of rank 1 are left now"
            in (one.text)
        )


def test_states_of_their_own_need_as_many_processes(worlds, files):
    paths = [files(rank) for rank in range(2)]
    worlds.ok(train, 2, paths, 2, 0, "1,1")
    (found,) = worlds.run(train, 1, paths, 4, 1)
    assert "2 processes kept states of their own (mine), which 1 cannot" in found.text


# -- mistakes


def unlike(paths, what):
    has_memory(paths)
    rank = dist.get_rank()
    one = weft.full((2,), rank if what == "values" else 0)
    recovery = dist.Recovery({"one": one} if what != "given" or rank else {})
    if what == "steps":
        recovery.step += rank
    recovery.keep()
    if what == "names":
        dist.Recovery({"two": one}).restore()


@pytest.mark.parametrize(
    ("what", "text"),
    [
        ("values", "the shared state 'one' of rank 1 is not that of rank 0; give"),
        ("given", "processes have given different names"),
        ("steps", r"processes have done \[1, 2\] steps"),
        ("names", r"\['one'\] were kept, and \['two'\] are to go on"),
    ],
)
def test_mistakes_are_told_by_all(worlds, files, what, text):
    for one in worlds.run(unlike, 2, [files(0), files(1)], what):
        assert one.kind == "RecoveryError"
        assert re.search(text, one.text)


def test_copies_that_differ_are_refused():
    sums = [{("share", 0): 5}, {("share", 0): 6}]
    with pytest.raises(dist.RecoveryError, match="rank 1 kept is not that of rank 0"):
        pieces.check_copies(sums)


def test_what_cannot_be_kept():
    dist.init_process_group(rank=0, world_size=1)
    try:
        with pytest.raises(ValueError, match="tensors or dictionaries, got int as 'n'"):
            dist.Recovery({"n": 3})
        with pytest.raises(ValueError, match="every=1 or more, got 0"):
            dist.Recovery({}, every=0)
        recovery = dist.Recovery({"n": {"n": 1}})
        assert list(recovery.steps(2)) == [0, 1]  # without a launcher
        assert recovery.restore() == 2
    finally:
        dist.destroy_process_group()


# -- memories


def test_a_snapshot_is_whole_or_not_there(tmp_path):
    descriptor = os.open(tmp_path / "memory", os.O_RDWR | os.O_CREAT)
    memory = snapshots.Memory(descriptor)
    assert memory.read() is None
    assert snapshots.step_of(descriptor) == -1
    data = np.arange(100, dtype=np.uint8)
    memory.write(7, b"text", [data[:30], data[30:]])
    found = snapshots.Memory(descriptor).read()  # of the process that comes next
    assert (found.step, found.text, found.data.tolist()) == (
        7,
        b"text",
        list(range(100)),
    )
    assert snapshots.step_of(descriptor) == 7
    memory.write(8, b"more text", [np.zeros(5000, np.uint8)])  # it grows
    assert memory.read().data.nbytes == 5000

    whole = (tmp_path / "memory").read_bytes()
    for changed in (
        whole[:200],
        bytes(32) + whole[32:],
        whole[:70] + b"x" + whole[71:],
    ):
        other = os.open(tmp_path / "other", os.O_RDWR | os.O_CREAT | os.O_TRUNC)
        os.write(other, changed)
        assert snapshots.Memory(other).read() is None
        os.close(other)
    os.close(descriptor)


def test_a_memory_without_a_name_outlives_its_process():
    descriptor = snapshots.new_memory()
    if not os.fork():
        snapshots.Memory(descriptor).write(3, b"", [np.ones(3, np.uint8)])
        os._exit(0)
    os.wait()
    assert snapshots.Memory(descriptor).read().data.tolist() == [1, 1, 1]
    os.close(descriptor)


# -- with the launcher

PROGRAM = """
import os, signal
import weft, weft.distributed as dist
dist.init_process_group()
weight = weft.ones(2)
recovery = dist.Recovery({"weight": weight})
for step in recovery.steps(4):
    if step == 2 and dist.get_rank() == 1 and os.environ["WEFT_RESTARTS"] == "0":
        os.kill(os.getpid(), signal.SIGKILL)
    update = weight * step
    dist.all_reduce(update)
    weight += update
print(weight.tolist())
dist.destroy_process_group()
"""


def test_the_command_goes_on(tmp_path, capfd):
    path = tmp_path / "program.py"
    path.write_text(PROGRAM)
    assert main(["run", "-n", "2", "--max-restarts", "1", str(path)]) == 0
    out, err = capfd.readouterr()
    weight = 1.0
    for step in range(4):
        weight += 2 * weight * step
    assert sorted(out.splitlines()) == [f"[{k}] [{weight}, {weight}]" for k in range(2)]
    assert "rank 1 was ended by SIGKILL" in err
