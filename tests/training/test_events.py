"""Event files are what TensorBoard's format says, and read back."""

import numpy as np
import pytest

import weft
from weft.training import SummaryWriter, read_events
from weft.training.events import crc32c


def test_checksum_vectors():
    # from RFC 3720, appendix B.4
    assert crc32c(b"\0" * 32) == 0x8A9136AA
    assert crc32c(b"\xff" * 32) == 0x62A8AB43
    assert crc32c(bytes(range(32))) == 0x46DD794E


def test_round_trip(tmp_path):
    with SummaryWriter(tmp_path) as writer:
        for step in range(5):
            writer.add_scalar("loss", 1.0 / (step + 1), step)
        writer.add_scalars({"a": 1, "b": weft.tensor(2.0)}, 7)
        writer.add_histogram("weights", weft.randn(100), 8)
        writer.add_text("note", "some *text*", 9)
    events = list(read_events(writer.path))
    assert [e["step"] for e in events] == [0, 0, 1, 2, 3, 4, 7, 8, 9]
    assert events[3]["loss"] == pytest.approx(1 / 3)
    assert (events[6]["a"], events[6]["b"]) == (1.0, 2.0)
    assert b"some *text*" in events[8]["note/text_summary"]


def test_damage_is_noticed(tmp_path):
    with SummaryWriter(tmp_path) as writer:
        writer.add_scalar("loss", 1.0, 1)
    data = bytearray(writer.path.read_bytes())
    data[-6] ^= 1
    writer.path.write_bytes(data)
    with pytest.raises(ValueError, match="wrong checksum"):
        list(read_events(writer.path))
    writer.path.write_bytes(data[:-9])
    with pytest.raises(ValueError, match=r"damaged|cut off"):
        list(read_events(writer.path))


def test_non_finite_values_are_left_out_of_histograms(tmp_path):
    with SummaryWriter(tmp_path) as writer:
        writer.add_histogram("w", np.array([np.nan, np.inf]), 1)
        writer.add_histogram("w", np.array([np.nan, 1.0]), 2)
    assert len(list(read_events(writer.path))) == 2
