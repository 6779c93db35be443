"""``weft run -n``: one error first and once, and no process left."""

import io
import os
import re
import signal
import subprocess
import sys
import time

import pytest
from launching import alive, launched

from weft.cli.main import main
from weft.distributed import environment, launch
from weft.errors import ArgumentError

PROGRAM = """
import os, signal, subprocess, sys, time
rank, what = int(os.environ["RANK"]), sys.argv[1]
sys.path.insert(0, {folder!r})
from weft.distributed import launch
launch.die_with_launcher()
launch.tell_launcher()
print("hello from", rank, "of", os.environ["WORLD_SIZE"])
print("and so on", file=sys.stderr)
if what in ("sleep", "child") or (what == "one" and rank != 1):
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    print("started", os.getpid(), child.pid, flush=True)
    if what != "child":
        time.sleep(60)
if what == "one" and rank == 1:
    raise ValueError("sample 7 is empty")
if what == "all":
    raise KeyError("everywhere")
if what == "follow":
    from weft.distributed import DistBackendError
    if rank == 1:
        time.sleep(0.2)
        raise ValueError("the cause")
    raise DistBackendError("rank 1 is gone")
if what == "kill" and rank == 0:
    os.kill(os.getpid(), signal.SIGKILL)
if what == "status":
    sys.exit(3 * rank)
"""


@pytest.fixture
def program(tmp_path):
    """A program that needs no Weft but its launcher: it starts faster."""
    source = os.path.dirname(os.path.dirname(os.path.dirname(launch.__file__)))
    path = tmp_path / "program.py"
    path.write_text(PROGRAM.format(folder=source))
    return path


@pytest.fixture
def run(program, monkeypatch):
    monkeypatch.setattr(launch, "GRACE", 0.5)

    def run(what, count=2):
        return launched(launch.Launcher, count, [sys.executable, str(program), what])

    return run


def started(text):
    return [
        int(pid) for some in re.findall(r"started (\d+) (\d+)", text) for pid in some
    ]


def gone(pids, seconds=5):
    until = time.monotonic() + seconds
    while any(map(alive, pids)) and time.monotonic() < until:
        time.sleep(0.02)
    return not any(map(alive, pids))


def test_lines_have_their_rank_in_front(run):
    status, out, err = run("nothing", 3)
    assert status == 0
    assert sorted(out.splitlines()) == [f"[{r}] hello from {r} of 3" for r in range(3)]
    assert sorted(err.splitlines()) == [f"[{r}] and so on" for r in range(3)]


def test_an_error_is_shown_once_and_the_others_end(run):
    status, out, err = run("one")
    assert status == 1
    assert err.count("Traceback") == 1
    assert err.count("ValueError: sample 7 is empty") == 2  # and in the last lines
    assert "weft run: rank 1 raised ValueError: sample 7 is empty\n" in err
    assert "weft run: then rank 0 was ended by SIGTERM\n" in err
    assert gone(started(out))


def test_the_same_error_on_all_ranks_is_shown_once(run):
    status, _, err = run("all", 3)
    assert status == 1
    assert err.count("Traceback") == 1
    assert re.search(
        r"rank \d raised KeyError: 'everywhere', and ranks \d, \d did", err
    )


def test_the_cause_comes_before_what_follows_from_it(run):
    status, _, err = run("follow")
    assert status == 1
    assert err.count("Traceback") == 1
    assert "rank 1 raised ValueError: the cause\n" in err
    assert re.search("then rank 0 raised .*DistBackendError: rank 1 is gone", err)


def test_signals_and_statuses_are_told(run):
    status, _, err = run("kill")
    assert status == 128 + signal.SIGKILL
    assert "rank 0 was ended by SIGKILL" in err
    status, _, err = run("status")
    assert status == 3
    assert "rank 1 exited with 3" in err


def test_what_ranks_leave_behind_is_ended(run):
    status, out, _ = run("child")
    assert status == 0
    assert gone(started(out))


@pytest.mark.skipif(sys.platform != "linux", reason="the kernel does it on Linux")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_no_process_outlives_its_launcher(program, number):
    """Signals are passed on; a launcher that is killed takes its ranks along."""
    code = (
        "import sys\nfrom weft.distributed import launch\n"
        "sys.exit(launch.Launcher().run(2, [sys.executable, *sys.argv[1:]]))"
    )
    launcher = subprocess.Popen(
        [sys.executable, "-c", code, str(program), "sleep"], text=True,
        stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    text = ""
    while len(started(text)) < 4:
        text += launcher.stdout.readline()
    launcher.send_signal(number)
    status = launcher.wait(timeout=20)
    launcher.stdout.close()
    ranks = started(text)[::2]
    assert gone(ranks if number == signal.SIGKILL else started(text))
    assert status == (-number if number == signal.SIGKILL else 128 + number)
    for pid in started(text):  # of children of killed ranks
        if alive(pid):
            os.kill(pid, signal.SIGKILL)


def test_the_command_runs_scripts(tmp_path):
    script = tmp_path / "train.py"
    script.write_text(
        "import torch, torch.distributed as dist\n"
        "dist.init_process_group('gloo')\n"
        "x = torch.ones(2) * dist.get_rank()\n"
        "dist.all_reduce(x)\n"
        "print(x.tolist(), dist.get_backend())\n"
        "dist.destroy_process_group()\n"
    )
    command = [sys.executable, "-m", "weft", "run", "-n", "2", str(script)]
    found = subprocess.run(command, text=True, capture_output=True, timeout=60)
    assert found.returncode == 0, found.stderr
    assert sorted(found.stdout.splitlines()) == [
        f"[{rank}] [1.0, 1.0] gloo" for rank in range(2)
    ]


def test_the_command_says_what_is_wrong(capsys):
    assert main(["run", "-n", "0", __file__]) == 2
    assert "expected -n 1 or more, got 0" in capsys.readouterr().err
    assert main(["run", "-n", "2"]) == 2
    assert "needs a script" in capsys.readouterr().err


# -- the environment


@pytest.mark.parametrize(
    ("variables", "place"),
    [
        ({"RANK": "1", "WORLD_SIZE": "2", "LOCAL_RANK": "0"}, (1, 2, 0, "env")),
        ({"OMPI_COMM_WORLD_RANK": "3", "OMPI_COMM_WORLD_SIZE": "4",
          "OMPI_COMM_WORLD_LOCAL_RANK": "1"}, (3, 4, 1, "mpi")),
        ({"PMI_RANK": "0", "PMI_SIZE": "2", "MPI_LOCALRANKID": "0"}, (0, 2, 0, "mpi")),
        ({"SLURM_PROCID": "5", "SLURM_NTASKS": "8", "SLURM_LOCALID": "1"},
         (5, 8, 1, "slurm")),
        ({}, None),
    ],
)  # fmt: skip
def test_places_of_launchers(variables, place):
    assert environment.place(variables) == place


def test_addresses_of_launchers():
    one = {"MASTER_ADDR": "n1", "MASTER_PORT": "29500"}
    assert environment.address(one) == ("n1", 29500)
    one["TORCHELASTIC_USE_AGENT_STORE"] = "True"
    assert environment.address(one) == ("n1", 29501)
    slurm = {"SLURM_JOB_ID": "40007", "SLURM_NODELIST": "gpu[07-09,12]"}
    assert environment.address(slurm) == ("gpu07", 20007)
    assert environment.address({}) is None


@pytest.mark.parametrize(
    ("variables", "words"),
    [
        ({"RANK": "2", "WORLD_SIZE": "2"}, "expected a rank from 0 to 1"),
        ({"RANK": "-1", "WORLD_SIZE": "2"}, "RANK: expected a whole number"),
        ({"RANK": "0", "WORLD_SIZE": "two"}, "WORLD_SIZE: expected a whole number"),
    ],
)
def test_wrong_environments(variables, words):
    with pytest.raises(ArgumentError, match=words):
        environment.place(variables)


# -- starting again

AGAIN = """
import os, signal, sys, time
rank, start = int(os.environ["RANK"]), int(os.environ["WEFT_RESTARTS"])
memory = [int(one) for one in os.environ["WEFT_MEMORY"].split(":")]
print("start", start, "after", os.pread(memory[(start + 1) % 2], 9, 0).decode())
os.pwrite(memory[start % 2], f"{{start}} of {{rank}}".encode(), 0)
if start == 2:
    sys.exit(0)
if rank == 1 and sys.argv[1] == "killed":
    os.kill(os.getpid(), signal.SIGKILL)
if rank == 1:
    sys.path.insert(0, {folder!r})
    from weft.distributed import launch
    launch.tell_launcher()
    raise ValueError(f"error {{start}}")
time.sleep(60)
"""


@pytest.fixture
def again(tmp_path, monkeypatch):
    source = os.path.dirname(os.path.dirname(os.path.dirname(launch.__file__)))
    path = tmp_path / "again.py"
    monkeypatch.setattr(launch, "GRACE", 0.5)
    path.write_text(AGAIN.format(folder=source))

    def run(what, restarts):
        out, err = io.StringIO(), io.StringIO()
        launcher = launch.Launcher(out, err)
        command = [sys.executable, str(path), what]
        return launcher.run(2, command, restarts), out.getvalue(), err.getvalue()

    return run


@pytest.mark.parametrize("what", ["killed", "errors"])
def test_all_ranks_start_again_with_their_memory(again, what):
    open_before = len(os.listdir("/proc/self/fd"))
    status, out, err = again(what, 5)
    assert status == 0
    assert sorted(out.splitlines()) == [
        "[0] start 0 after ", "[0] start 1 after 0 of 0", "[0] start 2 after 1 of 0",
        "[1] start 0 after ", "[1] start 1 after 0 of 1", "[1] start 2 after 1 of 1",
    ]  # fmt: skip
    assert err.count("all ranks start again") == 2
    assert "weft run: all ranks start again (restart 2 of 5)" in err
    assert len(os.listdir("/proc/self/fd")) == open_before


def test_restarts_come_to_an_end(again):
    status, _, err = again("killed", 1)
    assert status == 128 + signal.SIGKILL
    assert err.count("start again") == 1


def test_the_same_error_at_the_same_step_ends_it(program, monkeypatch):
    out, err = io.StringIO(), io.StringIO()
    command = [sys.executable, str(program), "all"]
    assert launch.Launcher(out, err).run(2, command, 9) == 1
    assert err.getvalue().count("start again") == 1
    assert "weft run: the same error came again at the same step" in err.getvalue()
