"""``weft export``: saved programs as C files and as machine code."""

import numpy as np
import pytest
from c_programs import CModel, needs_cc

import weft
from weft import nn
from weft.cli.main import main


@needs_cc
@pytest.mark.parametrize("kind", ["captured", "exported"])
def test_saved_programs(kind, tmp_path, capsys):
    net, x = nn.Sequential(nn.Linear(4, 3), nn.Tanh()), weft.randn(2, 4)
    saved, path = str(tmp_path / "saved"), tmp_path / "net.c"
    if kind == "captured":
        weft.save(weft.graph.capture(net, x, dynamic={"input": {0: "n"}}), saved)
    else:
        dims = ({0: weft.export.Dim("n", min=1)},)
        weft.export.save(weft.export.export(net, (x,), dynamic_shapes=dims), saved)
    assert main(["export", saved, str(path)]) == 0
    assert str(path) in capsys.readouterr().out
    model = CModel(path, 1 << 16)
    for n in (2, 5):
        given, out = weft.randn(n, 4), np.zeros((n, 3), np.float32)
        assert model("run", [given.numpy()], [out]) == "OK"
        np.testing.assert_allclose(out, net(given).detach().numpy(), atol=1e-6)


@needs_cc
def test_machine_code_and_its_options(tmp_path, capsys):
    net, x = nn.Sequential(nn.Linear(4, 3), nn.Tanh()), weft.randn(2, 4)
    saved, path = str(tmp_path / "saved"), tmp_path / "net.so"
    weft.export.save(weft.export.export(net, (x,)), saved)
    assert main(["export", saved, str(path), "--threads", "2"]) == 0
    out = np.zeros((2, 3), np.float32)
    assert CModel(path, 1 << 22)("run", [x.numpy()], [out]) == "OK"
    np.testing.assert_allclose(out, net(x).detach().numpy(), atol=1e-6)
    assert "net_threads" in path.with_suffix(".h").read_text()
    other = [str(tmp_path / "arm.o"), "--target", "aarch64-linux", "--cpu", "a64fx"]
    assert main(["export", saved, *other]) == 0
    assert (tmp_path / "arm.o").read_bytes()[18] == 183  # EM_AARCH64
    assert main(["export", saved, str(tmp_path / "a.o"), "--target", "vax"]) == 1
    assert "expected one of the machines" in capsys.readouterr().err


def test_files_that_are_no_programs(tmp_path, capsys):
    path = str(tmp_path / "weights.safetensors")
    weft.save({"w": weft.ones(2)}, path)
    assert main(["export", path, str(tmp_path / "net.c")]) == 1
    assert "expected a program" in capsys.readouterr().err
    assert main(["export", str(tmp_path / "none"), str(tmp_path / "net.c")]) == 1
