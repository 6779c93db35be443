"""``weft quantize``: saved models as smaller ones."""

import pytest

import weft
from weft import nn
from weft.cli.main import main


@pytest.fixture
def saved(tmp_path):
    net = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 8)).eval()
    path = tmp_path / "net.pt"
    weft.save(net, path)
    return net, path


WAYS = (
    ["--dynamic"],
    ["--weight-only", "--to", "int4"],
    ["--weight-only", "--skip", "2"],
)


@pytest.mark.parametrize("options", WAYS)
def test_without_data(options, saved, tmp_path, capsys):
    net, path = saved
    assert main(["quantize", str(path), str(tmp_path / "small.pt"), *options]) == 0
    assert "bytes" in capsys.readouterr().out
    small = weft.load(tmp_path / "small.pt", weights_only=False)
    x = weft.randn(5, 64)
    assert (small(x) - net(x)).abs().max() < 0.1
    assert type(small[0]) is not nn.Linear
    assert (type(small[2]) is nn.Linear) == ("--skip" in options)


def test_with_data(saved, tmp_path, capsys):
    net, path = saved
    x = weft.randn(100, 64)
    weft.save(x, tmp_path / "x.pt")
    data = ["--data", str(tmp_path / "x.pt"), "--batch", "30", "--observer", "entropy"]
    assert main(["quantize", str(path), *data]) == 0
    assert str(tmp_path / "net.int8.pt") in capsys.readouterr().out
    small = weft.load(tmp_path / "net.int8.pt", weights_only=False)
    assert isinstance(small[2], weft.quantization.QuantizedLinear)
    assert (small(x) - net(x)).abs().max() < 0.2


def test_mistakes(saved, tmp_path, capsys):
    net, path = saved
    assert main(["quantize", str(path)]) == 1
    assert "expected data" in capsys.readouterr().err
    assert main(["quantize", str(path), "--to", "int2", "--dynamic"]) == 1
    assert "'int8', 'int4'" in capsys.readouterr().err
    weft.save(net.state_dict(), tmp_path / "state.pt")
    assert main(["quantize", str(tmp_path / "state.pt"), "--dynamic"]) == 1
    assert "expected a module" in capsys.readouterr().err
    assert main(["quantize", str(path), "--data", str(path)]) == 1
    assert capsys.readouterr().err
    assert not (tmp_path / "net.int8.pt").exists()
