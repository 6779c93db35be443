"""PyTorch's ``SummaryWriter`` writes what the reader reads back."""

import numpy as np
import pytest

import weft
from weft.errors import ArgumentError
from weft.training import read_events
from weft.utils.tensorboard import SummaryWriter


def events(writer):
    return list(read_events(writer.path))[1:]


def test_scalars_histograms_and_texts(tmp_path):
    with SummaryWriter(tmp_path) as writer:
        writer.add_scalar("loss", weft.tensor(0.25), 3)
        writer.add_histogram("weights", weft.randn(100), 1, bins=10)
        writer.add_text("note", "**bold**", global_step=2)
        writer.add_hparams({"lr": 0.1}, {"accuracy": 0.5})
        writer.flush()
    found = events(writer)
    assert [(e["step"], e.get("loss")) for e in found[:1]] == [(3, 0.25)]
    assert "weights" in found[1]
    assert "note/text_summary" in found[2]
    assert found[-1]["accuracy"] == 0.5
    assert writer.get_logdir() == str(tmp_path)


def test_several_scalars_have_files_of_their_own(tmp_path):
    with SummaryWriter(tmp_path) as writer:
        writer.add_scalars("run", {"a": 1.0, "b": 2.0}, 5)
    for name, value in {"run_a": 1.0, "run_b": 2.0}.items():
        [file] = (tmp_path / name).iterdir()
        [event] = list(read_events(file))[1:]
        assert (event["step"], event["run"]) == (5, value)


def test_pictures_of_any_order_of_axes(tmp_path):
    image = np.arange(24, dtype=np.uint8).reshape(2, 4, 3)  # height, width, channels
    with SummaryWriter(tmp_path) as writer:
        writer.add_image("hwc", image, dataformats="HWC")
        writer.add_image("chw", weft.tensor(image.transpose(2, 0, 1)))
        writer.add_image("floats", weft.tensor(image / 255.0).permute(2, 0, 1))
        writer.add_images("all", weft.zeros(2, 3, 2, 4))
        writer.add_image("grey", image[..., 0], dataformats="HW")
        with pytest.raises(ArgumentError, match="do not fit"):
            writer.add_image("bad", image, dataformats="HW")
    found = events(writer)
    assert found[0]["hwc"] == found[1]["chw"] == found[2]["floats"]
    assert {"all", "grey"} <= {*found[3], *found[4]}


def test_a_models_graph_is_text(tmp_path):
    with SummaryWriter(tmp_path) as writer:
        writer.add_graph(weft.nn.Linear(2, 3), weft.ones(1, 2))
        with pytest.raises(ArgumentError, match="expected an input"):
            writer.add_graph(weft.nn.Linear(2, 3))
    [event] = events(writer)
    assert "matmul" in str(event["graph/text_summary"])
