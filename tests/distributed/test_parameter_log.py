"""A server's log: what was written is there, a torn end is not, damage is an error."""

import errno
import os

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from weft.distributed import ParameterServerError
from weft.distributed.parameter_server import log as logs
from weft.distributed.parameter_server.log import Log

RECORDS = st.lists(
    st.tuples(st.binary(max_size=20), st.binary(max_size=60)), max_size=6
)


def append(log, record):
    text, data = record
    log.append(text, [np.frombuffer(data, np.uint8)])


def read(folder):
    log = Log(str(folder))
    try:
        return [(text, data.tobytes()) for text, data in log.recover()]
    finally:
        log.close()


def written(folder, records):
    """A folder's log; where each of its records ends."""
    log, ends = Log(str(folder)), []
    assert list(log.recover()) == []
    for record in records:
        append(log, record)
        ends.append(log.size)
    log.close()
    return folder / "log-0", ends


@pytest.fixture
def fresh(tmp_path_factory):
    return lambda: tmp_path_factory.mktemp("log")


@settings(max_examples=25)
@given(RECORDS, st.data())
def test_a_torn_end_is_dropped(tmp_path_factory, records, data):
    folder = tmp_path_factory.mktemp("log")
    path, ends = written(folder, records)
    whole = path.read_bytes()
    cut = data.draw(st.integers(0, len(whole)))
    path.write_bytes(whole[:cut] + bytes(data.draw(st.integers(0, 40))) * (cut in ends))
    complete = sum(end <= cut for end in ends)
    assert read(folder) == records[:complete]
    log = Log(str(folder))  # and it goes on there
    list(log.recover())
    append(log, (b"next", b"one"))
    log.close()
    assert read(folder) == [*records[:complete], (b"next", b"one")]


@settings(max_examples=40)
@given(st.data())
def test_damage_before_the_end_is_an_error(tmp_path_factory, data):
    folder = tmp_path_factory.mktemp("log")
    records = [(b"first", b"11111111"), (b"second", b"2222"), (b"third", b"3")]
    path, ends = written(folder, records)
    whole = bytearray(path.read_bytes())
    at = data.draw(st.integers(0, ends[1] - 1))
    whole[at] ^= 1 << data.draw(st.integers(0, 7))
    path.write_bytes(whole)
    with pytest.raises(
        ParameterServerError, match=r"log-0 is damaged at byte \d+, and"
    ):
        read(folder)


def test_a_snapshot_begins_a_new_log(tmp_path):
    log = Log(str(tmp_path))
    list(log.recover())
    for k in range(5):
        append(log, (b"old", bytes([k])))
    log.replace(b"state", [np.arange(3, dtype=np.uint8), np.arange(2, dtype=np.uint8)])
    assert log.size == 0
    append(log, (b"new", b"1"))
    log.close()
    assert sorted(os.listdir(tmp_path)) == ["lock", "log-1", "snapshot-1"]
    found = read(tmp_path)
    assert found == [(b"state", bytes([0, 1, 2, 0, 1])), (b"new", b"1")]


def test_an_end_between_snapshot_and_log_loses_nothing(tmp_path, monkeypatch):
    log = Log(str(tmp_path))
    list(log.recover())
    append(log, (b"old", b"1"))
    monkeypatch.setattr(log, "_open", lambda: (_ for _ in ()).throw(KeyboardInterrupt))
    with pytest.raises(KeyboardInterrupt):
        log.replace(b"state", [])
    log.close()
    (tmp_path / ".snapshot-2.0123456789ab.tmp").write_bytes(b"a part")
    assert {"log-0", "snapshot-1"} < set(os.listdir(tmp_path))
    assert read(tmp_path) == [(b"state", b"")]
    assert sorted(os.listdir(tmp_path)) == ["lock", "log-1", "snapshot-1"]


def test_a_full_disk_leaves_the_log_as_it_was(tmp_path, monkeypatch):
    log = Log(str(tmp_path))
    list(log.recover())
    append(log, (b"first", b"1"))

    def full(file, text, arrays):
        file.write(b"a part")
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr(logs, "_write", full)
        with pytest.raises(OSError, match=r"No space left on device.*log-0"):
            append(log, (b"second", b"2"))
        with pytest.raises(OSError, match=r"No space left on device.*snapshot-1"):
            log.replace(b"state", [])
    append(log, (b"third", b"3"))
    log.close()
    assert read(tmp_path) == [(b"first", b"1"), (b"third", b"3")]


def test_a_damaged_or_missing_snapshot_is_an_error(tmp_path):
    log = Log(str(tmp_path))
    list(log.recover())
    log.replace(b"state", [np.zeros(9)])
    log.close()
    path = tmp_path / "snapshot-1"
    whole = path.read_bytes()
    path.write_bytes(whole[:-1])
    with pytest.raises(ParameterServerError, match="snapshot-1 is damaged: it is not"):
        read(tmp_path)
    path.unlink()
    with pytest.raises(
        ParameterServerError, match=r"snapshot-1 is missing, which .*log"
    ):
        read(tmp_path)


def test_one_server_has_a_folder(tmp_path):
    log = Log(str(tmp_path))
    with pytest.raises(ParameterServerError, match="is in use by another server"):
        Log(str(tmp_path))
    log.close()
    Log(str(tmp_path)).close()


@pytest.mark.parametrize("sync", [False, True])
def test_records_are_safe_after_a_flush(tmp_path, monkeypatch, sync):
    synced = []
    monkeypatch.setattr(os, "fsync", synced.append)
    log = Log(str(tmp_path), sync=sync)
    list(log.recover())
    synced.clear()
    append(log, (b"one", b""))
    append(log, (b"two", b""))
    log.flush()
    log.flush()
    assert len(synced) == sync  # once for both
    log.close()
