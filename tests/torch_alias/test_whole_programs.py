"""Whole programs in PyTorch's style under ``weft run``, eagerly and compiled."""

import json
import os
import pathlib
import subprocess
import sys

import numpy as np
import pytest

PROGRAMS = pathlib.Path(__file__).parent / "programs"
NAMES = ("classifier", "gpt", "vae", "reinforce")


def weft_run(*arguments, folder=None):
    return subprocess.run(
        [sys.executable, "-m", "weft", "run", *map(str, arguments)],
        capture_output=True, text=True, timeout=300, cwd=folder,
        env={**os.environ, "OPENBLAS_NUM_THREADS": "1"},
    )  # fmt: skip


def result(run):
    assert run.returncode == 0, run.stderr
    return json.loads(run.stdout.splitlines()[-1])


@pytest.mark.parametrize("name", NAMES)
def test_a_program_learns_and_compiled_it_does_the_same(name):
    eager = result(weft_run(PROGRAMS / f"{name}.py"))
    run = weft_run("--compile", PROGRAMS / f"{name}.py")
    compiled = result(run)
    np.testing.assert_allclose(
        compiled["losses"], eager["losses"], rtol=2e-4, atol=2e-5
    )
    np.testing.assert_allclose(compiled["score"], eager["score"], rtol=2e-4)
    if name != "reinforce":
        assert eager["losses"][-1] < 0.95 * eager["losses"][0]
        assert "refused" not in run.stderr
    assert "weft run: " in run.stderr
    assert "0 compilations" not in run.stderr.splitlines()[0]


def test_a_scripts_arguments_and_path_are_its_own(tmp_path):
    (tmp_path / "beside.py").write_text("value = 5")
    script = tmp_path / "show.py"
    script.write_text(
        "import sys, beside, torch\n"
        "print(__name__, __file__, sys.argv, sys.path[0], beside.value)\n"
        "print(torch.__version__)\n"
    )
    run = weft_run(script, "--compile", "-m", "x", "--", "y", folder="/")
    shown = run.stdout.splitlines()
    arguments = [str(script), "--compile", "-m", "x", "--", "y"]
    assert shown[0] == f"__main__ {script} {arguments} {tmp_path} 5"
    assert shown[1] == "2.13.0+weft"
    assert run.stderr == ""


def test_a_module_is_run_from_the_current_folder(tmp_path):
    (tmp_path / "part").mkdir()
    (tmp_path / "part" / "__main__.py").write_text(
        "import sys, torch\nprint(__name__, sys.argv[1:], torch.ones(2).sum().item())"
    )
    run = weft_run("-m", "part", "--lr", "1", folder=tmp_path)
    assert run.stdout == "__main__ ['--lr', '1'] 2.0\n", run.stderr


def test_exit_statuses_are_the_scripts(tmp_path):
    script = tmp_path / "ends.py"
    for text, status in {
        "raise SystemExit(3)": 3,
        "import sys; sys.exit('a reason')": 1,
        "exit()": 0,
        "1 / 0": 1,
        "raise KeyboardInterrupt": 130,
    }.items():
        script.write_text(text)
        run = weft_run(script)
        assert run.returncode == status, text
        assert ("a reason" in run.stderr) == ("reason" in text)
    assert weft_run(tmp_path / "none.py").returncode == 2
    assert weft_run().returncode == 2


def test_an_error_shows_the_users_lines_alone(tmp_path):
    script = tmp_path / "wrong.py"
    script.write_text(
        "import torch\n"
        "import torch.nn as nn\n"
        "def train():\n"
        "    return nn.Linear(3, 2)(torch.ones(2, 4))\n"
        "train()\n"
    )
    run = weft_run(script)
    frames = [line for line in run.stderr.splitlines() if line.startswith("  File")]
    assert run.returncode == 1
    assert len(frames) == 2, run.stderr
    assert all("wrong.py" in frame for frame in frames)
    assert run.stderr.startswith("Traceback (most recent call last):")


BAD = {
    "import torch\ntorch.zork(1)": "AttributeError: Weft has no name 'torch.zork'",
    "from torch.nn import Zork": "ImportError: Weft has no name 'torch.nn.Zork'",
    "from torch.utils.cpp_extension import load": "no C++ or CUDA extensions",
    "import torch\ntorch.zeros(2, device='cuda')": "device 'cuda' is not available",
    "import torch\ntorch.nn.Linear(2, 2).to('cuda')": "device 'cuda' is not available",
    "import torch\ntorch.cuda.synchronize()": "device 'cuda' is not available",
    "import torch.distributed as d\nd.init_process_group('nccl')": "on GPUs yet",
}


@pytest.mark.parametrize("text", BAD)
def test_what_cannot_run_is_one_clear_error(tmp_path, text):
    script = tmp_path / "bad.py"
    script.write_text(text)
    run = weft_run(script)
    assert run.returncode == 1
    assert BAD[text] in run.stderr
    assert run.stderr.count("Traceback") == 1
    assert run.stderr.count("  File") == 1, run.stderr


def test_refusals_are_reported_with_their_line(tmp_path):
    script = tmp_path / "counts.py"
    script.write_text(
        "import torch\n"
        "class Net(torch.nn.Module):\n"
        "    def __init__(self):\n"
        "        super().__init__()\n"
        "        self.inner = torch.nn.Sequential(torch.nn.Linear(2, 2),"
        " torch.nn.Tanh())\n"
        "        self.calls = 0\n"
        "    def forward(self, x):\n"
        "        self.calls += 1\n"
        "        return self.inner(x)\n"
        "net = Net()\n"
        "for _ in range(5):\n"
        "    net(torch.ones(1, 2))\n"
        "print(net.calls)\n"
    )
    run = weft_run("--compile", script)
    assert run.stdout == "5\n"
    assert "Net: 0 compilations; 4 calls were eager" in run.stderr  # after the first
    assert "counts.py:8, in forward" in run.stderr
    assert "Sequential: 1 compilations" in run.stderr  # what is inside was compiled


def test_explanations_are_printed_and_written(tmp_path):
    script = tmp_path / "small.py"
    script.write_text(
        "import torch\nnet = torch.nn.Sequential(torch.nn.Linear(2, 2),"
        " torch.nn.Tanh())\nfor _ in range(2):\n    net(torch.ones(1, 2))\n"
    )
    run = weft_run("--explain", "--html", tmp_path / "pages", script)
    assert "kernels" in run.stderr, run.stderr
    page = tmp_path / "pages" / "00-Sequential.html"
    assert page.read_text().startswith("<!DOCTYPE html>")


def test_spawned_processes_have_it_too(tmp_path):
    script = tmp_path / "many.py"
    script.write_text(
        "import torch\n"
        "import torch.multiprocessing as mp\n"
        "def work(rank, scale, queue):\n"
        "    queue.put((rank, (torch.ones(2) * scale * rank).sum().item()))\n"
        "def fail(rank):\n"
        "    raise ValueError(f'in {rank}')\n"
        "if __name__ == '__main__':\n"
        "    queue = mp.get_context('spawn').SimpleQueue()\n"
        "    mp.spawn(work, args=(3.0, queue), nprocs=2)\n"
        "    print(sorted(queue.get() for _ in range(2)))\n"
        "    try:\n"
        "        mp.spawn(fail, nprocs=1)\n"
        "    except mp.ProcessRaisedException as error:\n"
        "        print('ValueError: in 0' in str(error), error.error_index)\n"
    )
    run = weft_run(script)
    assert run.stdout == "[(0, 0.0), (1, 6.0)]\nTrue 0\n", run.stderr
