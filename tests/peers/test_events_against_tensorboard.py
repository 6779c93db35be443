"""TensorBoard itself reads the event files: scalars, histograms and text."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("tensorboard", reason="reads event files with TensorBoard")

import weft
from weft.training import SummaryWriter


@pytest.fixture
def events(tmp_path):
    from tensorboard.backend.event_processing import event_accumulator

    with SummaryWriter(tmp_path) as writer:
        for step in range(3):
            writer.add_scalar("loss", 1 / (step + 1), step)
            writer.add_histogram("weights", np.arange(100.0) + step, step)
            writer.add_text("note", f"*step* {step}", step)
        writer.add_scalars({"a": 1, "b": weft.tensor(2.0)}, 7)
        writer.add_histogram("constant", weft.ones(4), 1)
    everything = {"scalars": 0, "histograms": 0, "tensors": 0}
    return event_accumulator.EventAccumulator(str(tmp_path), everything).Reload()


def test_scalars(events):
    assert sorted(events.Tags()["scalars"]) == ["a", "b", "loss"]
    found = [(e.step, e.value) for e in events.Scalars("loss")]
    assert found == [(k, pytest.approx(1 / (k + 1))) for k in range(3)]
    assert [(e.step, e.value) for e in events.Scalars("b")] == [(7, 2.0)]


def test_histograms(events):
    assert sorted(events.Tags()["histograms"]) == ["constant", "weights"]
    found = events.Histograms("weights")
    for step, event in enumerate(found):
        values, h = np.arange(100.0) + step, event.histogram_value
        assert (event.step, h.min, h.max, h.num) == (step, step, step + 99, 100)
        assert (h.sum, h.sum_squares) == (values.sum(), np.square(values).sum())
        assert sum(h.bucket) == 100
        assert h.bucket_limit[-1] == step + 99
    [constant] = events.Histograms("constant")
    assert sum(constant.histogram_value.bucket) == 4


def test_text(events):
    [tag] = events.Tags()["tensors"]
    assert tag == "note/text_summary"
    assert events.SummaryMetadata(tag).plugin_data.plugin_name == "text"
    found = [(e.step, e.tensor_proto.string_val) for e in events.Tensors(tag)]
    assert found == [(k, [f"*step* {k}".encode()]) for k in range(3)]
