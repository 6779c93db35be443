"""Launchers of several machines: ranks start together, and again after a loss."""

import os
import re
import signal
import socket
import subprocess
import sys

import pytest

from weft.cli.main import main
from weft.distributed import launch

LAUNCHER = """
import sys
sys.path.insert(0, {folder!r})
from weft.distributed import launch, machines
machines.SETTLE = machines.ANSWER = 0.5
port, least, most, restarts, identity, count, *command = sys.argv[1:]
wanted = machines.Wanted(
    ("127.0.0.1", int(port)), identity, int(least), int(most), int(restarts)
)
try:
    sys.exit(machines.run(launch.Launcher(), int(count), command, wanted))
except launch.DistError as error:
    sys.exit(str(error))
"""
RANK = """
import ctypes, os, signal, sys, time
ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # ends with its launcher, as ranks do
names = "RANK WORLD_SIZE LOCAL_RANK LOCAL_WORLD_SIZE WEFT_NODES WEFT_RESTARTS"
print(*(os.environ[name] for name in names.split()), os.getpid())
what, start = sys.argv[1], int(os.environ["WEFT_RESTARTS"])
if what == "fail" and os.environ["RANK"] == "1":
    sys.path.insert(0, {folder!r})
    from weft.distributed import launch
    launch.tell_launcher()
    raise ValueError("of the other machine")
if what == "wait" and start < 2:
    time.sleep(60)
"""


@pytest.fixture
def machine(tmp_path):
    """Starts a launcher; what it prints is in files."""
    source = os.path.dirname(os.path.dirname(os.path.dirname(launch.__file__)))
    paths = {"launcher": LAUNCHER, "rank": RANK}
    for name, text in paths.items():
        paths[name] = tmp_path / f"{name}.py"
        paths[name].write_text(text.format(folder=source))
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    started = []

    def start(what, least=2, most=2, restarts=0, identity="", count=1):
        log = tmp_path / f"log-{len(started)}"
        settings = map(str, (port, least, most, restarts, identity, count))
        with open(log, "w") as file:
            process = subprocess.Popen(
                [sys.executable, paths["launcher"], *settings, sys.executable,
                 str(paths["rank"]), what],
                stdout=file, stderr=file,
            )  # fmt: skip
        process.log = log
        started.append(process)
        return process

    yield start
    for process in started:
        process.kill()
        process.wait()


def until(process, pattern):
    """Wait until a launcher has printed something."""
    while not re.search(pattern, process.log.read_text(), re.MULTILINE):
        assert process.poll() is None, process.log.read_text()
        try:
            process.wait(0.02)
        except subprocess.TimeoutExpired:
            pass


def places(process):
    """What ranks were told of their place: all but the process."""
    return re.findall(r"^\[\d+\] (\d.*) \d+$", process.log.read_text(), re.MULTILINE)


def test_machines_count_their_ranks_together(machine):
    head = machine("end", count=2)
    until(head, "1 of 2 machines are here")
    other = machine("end", count=1)
    assert [head.wait(), other.wait()] == [0, 0]
    assert sorted(places(head)) == ["0 3 0 2 2,1 0", "1 3 1 2 2,1 0"]
    assert places(other) == ["2 3 0 1 2,1 0"]


def test_a_failure_on_one_machine_ends_all(machine):
    one, other = machine("fail"), machine("fail")
    assert [one.wait() != 0, other.wait() != 0] == [True, True]
    texts = one.log.read_text() + other.log.read_text()
    assert texts.count("ValueError: of the other machine") == 2  # the trace, the end
    assert "ranks of another machine have failed" in texts


def test_machines_that_are_lost_and_that_come(machine):
    head = machine("wait", 1, 2, restarts=1)
    until(head, "^.0. 0 1 0 1 1 0")  # alone
    lost = machine("wait", 1, 2)
    until(lost, "^.1. 1 2 0 1 1,1 1")
    lost.send_signal(signal.SIGKILL)
    assert head.wait() == 0
    assert places(head) == ["0 1 0 1 1 0", "0 2 0 1 1,1 1", "0 1 0 1 1 2"]
    text = head.log.read_text()
    assert "weft run: a machine has come\n" in text
    assert "weft run: a machine with 1 ranks is gone\n" in text
    assert "weft run: all ranks start again (restart 1 of 1)\n" in text


def test_without_the_head_all_end(machine):
    head = machine("wait", 1, 2, restarts=9)
    until(head, "^.0. 0 1")
    other = machine("wait", 1, 2, restarts=9)
    until(other, "^.1. 1 2")
    pid = int(re.search(r"(\d+)$", other.log.read_text(), re.MULTILINE).group())
    head.kill()
    assert other.wait() == 1
    assert re.search(r"the launcher at 127.0.0.1:\d+ is gone", other.log.read_text())
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


def test_another_job_is_refused(machine):
    head = machine("wait", 1, 2, identity="one")
    until(head, "^.0. 0 1")
    other = machine("wait", 1, 2, identity="other")
    assert other.wait() == 1
    assert "refuses this launcher: it runs another job" in other.log.read_text()


@pytest.mark.parametrize(
    ("options", "text"),
    [
        (["--nnodes", "4:2", "--rdzv-endpoint", "a:1"], "expected --nnodes 2 or 2:4"),
        (["--nnodes", "2"], "expected --rdzv-endpoint host:port"),
        (["--rdzv-endpoint", "host:x"], "expected --rdzv-endpoint host:port"),
        (["-n", "0"], "expected -n 1 or more, got 0"),
        (["--max-restarts", "-1"], "expected --max-restarts 0 or more, got -1"),
        (["--rdzv-endpoint", "no such host:9"], "no machine is called no such host"),
    ],
)
def test_options_that_make_no_sense(capsys, options, text):
    assert main(["run", *options, __file__]) in (1, 2)
    assert text in capsys.readouterr().err
