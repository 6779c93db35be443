"""NVIDIA's assembler on the code that a simulated GPU was given."""

import shutil
import subprocess

import pytest


def assembles_for_warpgroups(codes, folder):
    """Assert that kernels of warpgroups assemble without a loss; skip without it."""
    if shutil.which("ptxas") is None:
        pytest.skip("ptxas is not installed")
    for number, code in enumerate(codes):
        assert "wgmma.mma_async" in code
        path = folder / f"{number}.ptx"
        path.write_text(code)
        done = subprocess.run(
            ["ptxas", "-arch=sm_90a", "-v", str(path), "-o", "/dev/null"],
            capture_output=True,
            text=True,
        )
        said = done.stdout + done.stderr
        assert done.returncode == 0, said[:2000]
        assert "serialized" not in said  # sums are not moved between instructions
        assert "setmaxnreg" not in said  # nor is the exchange of registers ignored
