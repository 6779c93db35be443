"""Whole runs with parameter servers: ``weft run --servers``, and roles by hand."""

import io
import os
import re
import signal
import socket
import subprocess
import sys
import time

import pytest
from launching import alive, launched

from weft.cli.main import main
from weft.distributed import environment, launch
from weft.errors import ArgumentError

PROGRAM = """
import hashlib, sys, time
import weft
from weft import nn, optim
from weft.distributed import parameter_server
store = parameter_server.connect()
print("is", parameter_server.get_role(), store.rank, "of", store.workers, flush=True)
weft.manual_seed(store.rank)
table = parameter_server.Embedding(10**12, 4, std=0.1)
net = nn.Sequential(table, nn.Flatten(), nn.Linear(12, 3), nn.Tanh())
adam = parameter_server.Optimizer(store, net, optim.Adam, lr=0.05)
weft.manual_seed(10 + store.rank)
for step in range(adam.steps_done, 30):
    rows = weft.randint(0, 9, (4, 3)) * 10**11
    adam.zero_grad()
    net(rows).square().sum().backward()
    adam.step()
    if step == 10:
        print("step", step, flush=True)
    {middle}
values = [net[2].weight, net[2].bias, weft.tensor(table.pull(table.changed().numpy()))]
text = b"".join(v.detach().numpy().tobytes() for v in values)
print("ends with", adam.steps_done, hashlib.sha256(text).hexdigest()[:12])
store.close()
"""


class Watched(launch.Launcher):
    """A launcher that kills a process once a text was printed."""

    kills, text = None, "step 10"

    def _step(self):
        super()._step()
        if self.kills and self.text in self.output.getvalue():
            name, self.kills = self.kills, None
            (rank,) = (one for one in self.ranks if one.name == name)
            os.kill(rank.process.pid, signal.SIGKILL)

    def _start_one(self, *args, **options):
        super()._start_one(*args, **options)
        self.pids = [*getattr(self, "pids", []), self.ranks[-1].process.pid]


@pytest.fixture(scope="module")
def by_hand(tmp_path_factory):
    """What processes print of which each was told its role."""
    path = tmp_path_factory.mktemp("roles") / "program.py"
    path.write_text(PROGRAM.replace("{middle}", "pass"))
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    common = {
        **os.environ, "WEFT_WORKERS": "2", "WEFT_SERVERS": "1", "WEFT_NUM_THREADS": "1",
        "WEFT_COORDINATOR": f"127.0.0.1:{port}",
    }  # fmt: skip
    script = [str(path)]
    starts = [
        ("worker", ["-m", "weft", "run", "-n", "2", *script]),
        ("server", script),
        ("coordinator", script),
    ]
    processes = [
        subprocess.Popen(
            [sys.executable, *command], text=True, stdout=subprocess.PIPE,
            env={**common, "WEFT_ROLE": role, "RANK": "0"},
        )
        for role, command in starts
    ]  # fmt: skip
    texts = [process.communicate(timeout=20)[0] for process in processes]
    assert [process.returncode for process in processes] == [0] * 3
    return texts


@pytest.fixture
def run(tmp_path, monkeypatch):
    monkeypatch.setattr(launch, "GRACE", 2.0)
    path = tmp_path / "program.py"

    def run(kills=None, restarts=0, count=1, servers=1, middle="pass", **options):
        path.write_text(PROGRAM.replace("{middle}", middle))
        made = []

        def make(out, err):
            made.append(Watched(out, err))
            made[0].kills = kills
            return made[0]

        command = [sys.executable, "-m", "weft", "run", str(path)]
        found = launched(make, count, command, restarts, servers, **options)
        assert not any(map(alive, made[0].pids))
        return found

    return run


def ends(out):
    return re.findall(r"ends with (\d+) (\w+)", out)


def test_one_script_has_three_roles(by_hand):
    workers, server, coordinator = by_hand
    assert (server, coordinator) == ("", "")
    assert sorted(re.findall("is .*", workers)) == [
        f"is worker {k} of 2" for k in (0, 1)
    ]
    assert ends(workers) == [("30", ends(workers)[0][1])] * 2


def test_a_killed_server_costs_no_bits(run, tmp_path, by_hand):
    wanted = ends(by_hand[0])
    state = tmp_path / "state"
    status, out, err = run("server 1", 1, count=2, servers=2, state=str(state))
    assert status == 0
    assert err == "weft run: server 1 was killed, and starts again (restart 1 of 1)\n"
    assert ends(out) == wanted
    assert sorted(os.listdir(state)) == ["server-0", "server-1"]


def test_a_killed_worker_starts_again_with_all(run):
    # what it computes again is as it was, and is taken once
    status, out, err = run("rank 0", restarts=2, middle="time.sleep(0.01)")
    assert status == 0
    assert "weft run: rank 0 was ended by SIGKILL\n" in err
    assert "weft run: all ranks start again (restart 1 of 2)\n" in err
    assert [steps for steps, _ in ends(out)] == ["30"]
    assert out.count("step 10") == 1


def test_a_killed_server_ends_all_without_restarts(run):
    start = time.monotonic()
    status, out, err = run("server 0", middle="time.sleep(0.01)")
    assert status == 128 + signal.SIGKILL
    assert "weft run: server 0 was ended by SIGKILL\n" in err
    assert ends(out) == []
    assert time.monotonic() - start < 10


def test_a_killed_worker_is_named_by_the_others(run):
    status, _, err = run("rank 1", count=2, middle="time.sleep(0.01)")
    assert status == 128 + signal.SIGKILL
    assert "weft run: rank 1 was ended by SIGKILL\n" in err
    assert re.search(
        r"then rank 0 raised .*ParameterServerError: server 0 at 127.0.0.1:\d+: worker "
        r"1 is gone: process \d+ was killed or crashed, and the others wait for it", err
    )  # fmt: skip


def test_a_damaged_log_is_told(run, tmp_path):
    folder = tmp_path / "state" / "server-0"
    folder.mkdir(parents=True)
    (folder / "log-0").write_bytes(b"no log at all, but long enough to be a record")
    status, _, err = run(state=str(tmp_path / "state"))
    assert status == 1
    assert err.count("\nweft.distributed.ParameterServerError: ") == 1
    assert re.search(
        r"server 0 raised .*ParameterServerError: .*log-0 is damaged at", err
    )


def test_a_stopped_server_is_named(run):
    middle = """if step == 3 and store.rank == 0:
        import os, signal
        from weft.distributed import patience
        patience.stopped = 0.3
        os.kill(store._links[0].about["pid"], signal.SIGSTOP)"""
    status, _, err = run(middle=middle)
    assert status == 1
    assert re.search(r"rank 0 raised .*server 0 at 127.*:\d+ is stopped \(process", err)


def test_a_script_that_needs_no_servers_ends(tmp_path):
    path = tmp_path / "program.py"
    path.write_text("import os\nprint(os.environ['WEFT_ROLE'], os.environ['RANK'])\n")
    out, err = io.StringIO(), io.StringIO()
    launcher = launch.Launcher(out, err)
    command = [sys.executable, "-m", "weft", "run", str(path)]
    assert launcher.run(1, command, servers=1) == 0
    assert (out.getvalue(), err.getvalue()) == ("[0] worker 0\n", "")


# -- the environment, and the command


def test_roles_of_launchers():
    given = {"WEFT_WORKERS": "4", "WEFT_SERVERS": "2", "WEFT_COORDINATOR": "n1:29400"}
    assert environment.role({}) is None
    found = environment.role({**given, "WEFT_ROLE": "coordinator"})
    assert found == ("coordinator", 0, 4, 2, ("n1", 29400))
    found = environment.role({**given, "WEFT_ROLE": "worker", "RANK": "3"})
    assert found == ("worker", 3, 4, 2, ("n1", 29400))
    for more, words in (
        (
            {"WEFT_ROLE": "boss"},
            "expected one of worker, server, coordinator, got 'boss",
        ),
        ({"WEFT_ROLE": "server", "RANK": "2"}, "expected a server's number below 2"),
        ({"WEFT_ROLE": "server"}, "RANK: expected a whole number, got ''"),
        (
            {"WEFT_ROLE": "server", "WEFT_COORDINATOR": "n1"},
            "expected host:port, where",
        ),
    ):
        with pytest.raises(ArgumentError, match=words):
            environment.role({**given, **more})


def test_the_command_says_what_is_wrong(capsys):
    assert main(["run", "--servers", "-1", __file__]) == 2
    assert "expected --servers 0 or more, got -1" in capsys.readouterr().err
    assert main(["run", "-n", "1", "--state", "x", __file__]) == 2
    assert "--state is the folder of parameter servers" in capsys.readouterr().err
    elsewhere = ["--nnodes", "2", "--rdzv-endpoint", "localhost:1"]
    assert main(["run", "--servers", "1", *elsewhere, __file__]) == 2
    assert "set WEFT_ROLE and WEFT_COORDINATOR" in capsys.readouterr().err
