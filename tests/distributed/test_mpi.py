"""The backend over MPI gives what the one over sockets gives."""

import importlib.util
import os
import pathlib
import subprocess
import sys

import pytest

HERE = pathlib.Path(__file__).parent
MPIEXEC = pathlib.Path(sys.executable).parent / "mpiexec"
needs_mpi = pytest.mark.skipif(
    importlib.util.find_spec("mpi4py") is None or not MPIEXEC.exists(),
    reason="mpi4py and mpich are not installed",
)


def run(text, size=2):
    """Run a program under mpiexec."""
    program = f"import sys\nsys.path[:0] = [{str(HERE)!r}]\n{text}"
    environment = {**os.environ, "WEFT_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    return subprocess.run(
        [MPIEXEC, "-n", str(size), sys.executable, "-c", program], text=True,
        capture_output=True, timeout=60, env=environment, check=False,
    )  # fmt: skip


@needs_mpi
def test_collectives_over_mpi():
    found = run(
        "import weft.distributed as dist\n"
        "import test_collectives as t\n"
        "dist.init_process_group()\n"
        "assert dist.get_backend() == 'mpi', dist.get_backend()\n"
        "for check in t.CHECKS:\n"
        "    check()\n"
        "dist.destroy_process_group()\n"
        "print('all done')\n"
    )
    assert found.returncode == 0, found.stderr
    assert found.stdout.count("all done") == 2


@needs_mpi
def test_ranks_that_differ_under_mpi():
    found = run(
        "import weft, weft.distributed as dist\n"
        "dist.init_process_group('mpi')\n"
        "try:\n"
        "    dist.all_reduce(weft.ones(2 + dist.get_rank()))\n"
        "except RuntimeError as error:\n"
        "    print('told', 'rank 1 calls all_reduce float32[3]' in str(error))\n"
        "dist.groups._world.engine.mpi.COMM_WORLD.Barrier()\n"
        "dist.groups._world.engine.mpi.Finalize()\n"
    )
    assert found.stdout.count("True") == 2, found  # in lines that may be mixed


def test_mpi_needs_its_launcher(worlds):
    (found,) = worlds.run(asked_for_mpi, 1, init=False)
    assert "mpi4py" in found.text or "start the program with mpiexec" in found.text


def asked_for_mpi():
    import weft.distributed as dist

    os.environ["WORLD_SIZE"], os.environ["RANK"] = "1", "0"
    sys.modules["mpi4py"] = None  # as if it was not installed
    dist.init_process_group("mpi")
