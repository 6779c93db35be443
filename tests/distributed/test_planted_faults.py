"""Planted faults: every rank says what happened, in seconds, and nobody waits on."""

import os
import re
import signal
import sys
import time

import pytest
from worlds import Failure

import weft
import weft.distributed as dist
from weft.distributed import exchange

SIZE = 3


def impatient():
    exchange.patience.stopped = 0.4
    exchange.patience.stuck = 0.6
    exchange.patience.others = 0.6
    exchange.patience.late = 0.2


def start():
    """A first call, and this rank."""
    impatient()
    dist.all_reduce(weft.ones(4))
    return dist.get_rank()


def other_shape():
    dist.all_reduce(weft.ones(4 + (start() == 1)))


def other_dtype():
    dist.all_reduce(weft.ones(4).to(weft.float64 if start() == 1 else weft.float32))


def other_order():
    if start() == 1:
        dist.broadcast(weft.ones(2), 0)
        dist.all_reduce(weft.ones(2))
    else:
        dist.all_reduce(weft.ones(2))
        dist.broadcast(weft.ones(2), 0)


def skipped_call():
    if start() != 1:
        dist.all_reduce(weft.ones(2))
    dist.all_gather([weft.ones(3)] * SIZE, weft.ones(3))


def other_root():
    dist.broadcast(weft.ones(2), 0 if start() else 2)


def early_exit():
    if start() == 1:
        sys.exit(0)
    dist.all_reduce(weft.ones(2))


def exception():
    if start() == 1:
        raise ValueError("the third sample is empty")
    dist.all_reduce(weft.ones(2))


def killed():
    if start() == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    dist.all_reduce(weft.ones(2))


def stopped():
    if start() == 1:
        os.kill(os.getpid(), signal.SIGSTOP)
    dist.all_reduce(weft.ones(2))


def full_disk():
    if start() == 1:
        with open("/dev/full", "w") as file:
            file.write("a checkpoint")
    dist.barrier()


def too_slow():
    if start() == 1:
        time.sleep(2.5)
    dist.all_reduce(weft.ones(2))


def other_groups():
    first, second = dist.new_group([0, 1, 2]), dist.new_group([0, 1, 2])
    rank = start()
    for group in (second, first) if rank == 1 else (first, second):
        dist.all_reduce(weft.ones(2), group=group)


def in_a_thread():
    """Handles tell of faults as well."""
    work = dist.all_reduce(weft.ones(4 + (start() == 1)), async_op=True)
    assert not work.is_success()
    work.wait()


def no_sender():
    rank = start()
    if rank == 0:
        dist.recv(weft.ones(2), 1)


def wrong_message():
    if start() == 1:
        dist.send(weft.ones(3), 0)
    if dist.get_rank() == 0:
        dist.recv(weft.ones(2), 1)


def afterwards():
    """A caught error is raised again by every later call."""
    try:
        dist.all_reduce(weft.ones(4 + (start() == 1)))
    except RuntimeError:
        dist.all_reduce(weft.ones(2))


EVERY = [0, 1, 2]
OTHERS = [0, 2]
HERE = re.escape(__file__)
# the fault; the ranks that raise an error; what each says; seconds; a call's timeout
FAULTS = [
    (other_shape, EVERY, r"call different things\n"
     r"  rank 0 calls all_reduce float32\[4\] reduce=sum, call 2, at .*other_shape\n"
     r"  rank 1 calls all_reduce float32\[5\]", 1),
    (other_dtype, EVERY, r"rank 1 calls all_reduce float64\[4\]", 1),
    (other_order, EVERY, r"rank 0 calls all_reduce .*\n  rank 1 calls broadcast ", 1),
    (skipped_call, EVERY, r"rank 1 calls all_gather .*\n  rank 2 calls all_reduce", 1),
    (other_root, EVERY, r"rank 0 calls broadcast float32\[2\] src=2.*\n.* src=0", 1),
    (early_exit, OTHERS, r"rank 1 is gone: it ended after 1 calls; its last call was "
     r"all_reduce float32\[4\]", 1),
    (exception, OTHERS, r"rank 1 is gone: it raised ValueError: the third sample is "
     r"empty", 1),
    (killed, OTHERS, r"rank 1 is gone: process \d+ was killed or crashed", 1),
    (stopped, OTHERS, r"rank 1 is stopped \(process \d+\); its last call was", 2),
    (full_disk, OTHERS, r"rank 1 is gone: it raised OSError: \[Errno 28\]", 1),
    (too_slow, OTHERS, r"rank 1 did not come within 1 seconds\n.*\n"
     r"  rank 1 runs, but has not called this; its last call was all_reduce", 2),
    (other_groups, EVERY, r"wait for one another|rank \d is gone: it raised", 3),
    (in_a_thread, EVERY, r"rank 1 calls all_reduce float32\[5\]", 1),
    (no_sender, [0], r"recv: rank 1 is gone\n.*calls recv float32\[2\] src=1", 1),
    (wrong_message, [0], r"sent by send float32\[3\].*\n.* is recv float32\[2\]", 1),
    (afterwards, EVERY, r"no more calls are possible.*\n.*call different things", 1),
]  # fmt: skip


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault[0].__name__)
def test_a_fault_is_told(fault, worlds):
    check, ranks, words, seconds = fault
    found = worlds.run(check, SIZE, timeout=1.0 if check is too_slow else 20.0)
    for rank, one in enumerate(found):
        told = isinstance(one, Failure) and one.kind == "DistBackendError"
        assert told == (rank in ranks), (rank, one)
        if told:
            assert re.search(words, one.text), one.text
            assert one.seconds < seconds + 2  # a busy machine


def slow():
    if start() == 1:
        time.sleep(0.5)
    x = weft.ones(2)
    dist.all_reduce(x)
    return x[0].item()


def test_a_slow_rank_is_waited_for_and_named(worlds, capfd):
    assert worlds.ok(slow, SIZE) == [SIZE] * SIZE


# -- the start


def other_size():
    os.environ["WORLD_SIZE"] = "4" if os.environ["RANK"] == "1" else "3"
    dist.init_process_group(timeout=5)


def same_rank():
    if os.environ["RANK"] == "2":
        os.environ["RANK"] = "1"
    dist.init_process_group(timeout=5)


def absent():
    if os.environ["RANK"] != "1":
        dist.init_process_group(timeout=1)


def unreachable():
    os.environ["MASTER_PORT"] = "9"  # nobody listens there
    if os.environ["RANK"] != "0":
        dist.init_process_group(timeout=0.3)


def port_in_use():
    if os.environ.pop("WEFT_LISTENER", None):
        dist.init_process_group(timeout=1)


def no_number():
    os.environ["RANK"] = "first"
    dist.init_process_group()


def too_high():
    dist.init_process_group(rank=7, world_size=3)


def no_such_backend():
    dist.init_process_group("nccl")


STARTS = [
    (other_size, [0, 1], "rank 0 expects 3 processes, but rank 1 expects 4"),
    (same_rank, [0], "two processes have rank 1"),
    (absent, [0, 2], "of 3 processes, rank 1 did not come in time"),
    (unreachable, [1, 2], r"cannot reach 127.0.0.1:9 .*Check MASTER_ADDR"),
    (port_in_use, [0], r"cannot listen at 127.0.0.1:\d+ .*Choose another MASTER_PORT"),
    (no_number, EVERY, "RANK: expected a whole number, got 'first'"),
    (too_high, EVERY, "expected a rank below world_size=3, got 7"),
    (no_such_backend, EVERY, "got 'nccl': Weft has no collectives on GPUs yet"),
]


@pytest.mark.parametrize("start", STARTS, ids=lambda start: start[0].__name__)
def test_a_bad_start_is_told(start, worlds):
    check, ranks, words = start
    found = worlds.run(check, SIZE, init=False)
    for rank in ranks:
        assert isinstance(found[rank], Failure), (rank, found)
        assert re.search(words, found[rank].text), found[rank].text
        assert found[rank].seconds < 4
