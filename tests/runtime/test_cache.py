"""Kernels on disk: whole and one's own, or not used at all."""

import errno
import os
import pathlib
import stat
import subprocess
import sys
import tempfile

import pytest

import weft
from weft.runtime.cpu import kernel_cache
from weft.runtime.cpu.kernel_cache import Cache


def never():
    raise AssertionError("the entry was there")


@pytest.fixture
def folder(tmp_path):
    return tmp_path / "kernels"


def files(folder):
    return sorted(folder.iterdir())


def test_code_is_made_once(folder):
    first, second = Cache(folder), Cache(folder)
    assert first.get("key", lambda: b"code") == b"code"
    assert first.get("key", never) == b"code"
    assert second.get("key", never) == b"code"
    assert second.get("another key", lambda: b"other") == b"other"
    assert not first.memory
    assert len(files(folder)) == 2


def test_large_and_empty_code(folder):
    for code in (b"", bytes(range(256)) * 5000):
        Cache(folder).get(f"{len(code)}", lambda code=code: code)
        assert Cache(folder).get(f"{len(code)}", never) == code


def test_an_error_while_making_stores_nothing(folder):
    with pytest.raises(ZeroDivisionError):
        Cache(folder).get("key", lambda: bytes(1 // 0))
    assert Cache(folder).get("key", lambda: b"code") == b"code"


def test_only_the_user_may_read_or_write(folder):
    before = os.umask(0)
    try:
        Cache(folder).get("key", lambda: b"code")
    finally:
        os.umask(before)
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    (entry,) = files(folder)
    assert stat.S_IMODE(entry.stat().st_mode) == 0o600


@pytest.mark.parametrize("where", [0, 5, 20, 40, 60, -1])
def test_a_changed_byte_is_found(folder, where):
    Cache(folder).get("key", lambda: b"code" * 10)
    (entry,) = files(folder)
    data = bytearray(entry.read_bytes())
    data[where] ^= 1
    entry.write_bytes(data)
    assert Cache(folder).get("key", lambda: b"made again") == b"made again"
    assert Cache(folder).get("key", never) == b"made again"  # and was replaced


@pytest.mark.parametrize("length", [0, 3, 14, 46, 60, 95])
def test_a_shortened_entry_is_found(folder, length):
    Cache(folder).get("key", lambda: b"code" * 10)
    (entry,) = files(folder)
    assert entry.stat().st_size > 95
    entry.write_bytes(entry.read_bytes()[:length])
    assert Cache(folder).get("key", lambda: b"made again") == b"made again"
    assert Cache(folder).get("key", never) == b"made again"


def test_an_entry_of_another_key_is_not_used(folder):
    """Even a whole one under this key's name: for another CPU, or version."""
    Cache(folder).get("key for avx512", lambda: b"zmm")
    Cache(folder).get("key", lambda: b"code")
    theirs = folder / kernel_cache._name("key for avx512")
    theirs.replace(folder / kernel_cache._name("key"))
    assert Cache(folder).get("key", lambda: b"made again") == b"made again"


def test_keys_tell_what_code_depends_on():
    base = kernel_cache.key_of("text", "target")
    assert base == kernel_cache.key_of("text", "target")
    others = {
        kernel_cache.key_of("text.", "target"),
        kernel_cache.key_of("text", "target2"),
        kernel_cache.key_of("text", "target", level=2),
    }
    assert len(others | {base}) == 4
    assert f"weft {weft.__version__}, llvmlite " in base


# -- folders that must not be used


@pytest.mark.parametrize("mode", [0o777, 0o720, 0o702])
def test_a_folder_that_others_write_is_refused(folder, mode):
    Cache(folder).get("key", lambda: b"planted")
    folder.chmod(mode)
    one = Cache(folder)
    assert one.get("key", lambda: b"code") == b"code"
    assert one.get("key", never) == b"code"  # from memory
    found = one.report()
    assert found.state.startswith("in memory only: the folder is writable by others")
    with pytest.raises(weft.errors.ArgumentError, match="writable by others"):
        one.clear()


def test_a_folder_of_another_user_is_refused(folder, monkeypatch):
    Cache(folder).get("key", lambda: b"planted")
    own = os.geteuid()
    monkeypatch.setattr(os, "geteuid", lambda: own + 1)
    one = Cache(folder)
    assert one.get("key", lambda: b"code") == b"code"
    assert one.report().state == ("in memory only: the folder belongs to another user")


def test_an_entry_that_others_write_is_replaced(folder):
    Cache(folder).get("key", lambda: b"planted")
    (entry,) = files(folder)
    entry.chmod(0o666)
    assert Cache(folder).get("key", lambda: b"code") == b"code"
    assert stat.S_IMODE(entry.stat().st_mode) == 0o600


def test_a_link_in_an_entry_s_place_is_replaced(folder, tmp_path):
    Cache(folder).get("key", lambda: b"planted")
    (entry,) = files(folder)
    entry.rename(tmp_path / "elsewhere")
    entry.symlink_to(tmp_path / "elsewhere")
    assert Cache(folder).get("key", lambda: b"code") == b"code"
    assert not entry.is_symlink()
    entry.unlink()
    entry.mkdir()
    assert Cache(folder).get("key", lambda: b"code") == b"code"


# -- folders that cannot be used


def as_nobody(action):
    """Whether a check holds for a user without rights (the superuser has them all)."""
    child = os.fork()
    if child == 0:
        status = 1
        try:
            if os.geteuid() == 0:
                os.setgid(65534)
                os.setuid(65534)
            action()
            status = 0
        finally:
            os._exit(status)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


@pytest.fixture
def shared_place():
    """A folder that any user can reach."""
    with tempfile.TemporaryDirectory() as name:
        os.chmod(name, 0o1777)
        yield pathlib.Path(name)


def test_a_read_only_folder(shared_place):
    folder = shared_place / "kernels"

    def check():
        Cache(folder).get("old", lambda: b"old code")
        folder.chmod(0o500)
        one = Cache(folder)
        assert one.get("old", never) == b"old code"  # what is there serves
        assert one.report().state == "in memory only: the folder is read-only"
        assert one.get("new", lambda: b"new code") == b"new code"
        assert one.get("new", never) == b"new code"
        assert one.report().state == "in memory only: permission denied"
        folder.chmod(0o700)

    assert as_nobody(check)


def test_a_read_only_place_above(shared_place):
    shared_place.chmod(0o555)

    def check():
        one = Cache(shared_place / "kernels")
        assert one.report().state == f"in memory only: {shared_place} is read-only"
        assert one.get("new", lambda: b"code") == one.get("new", never) == b"code"
        assert one.report().state == "in memory only: permission denied"

    assert as_nobody(check)


def test_a_file_in_the_folder_s_place(tmp_path):
    (tmp_path / "file").write_text("")
    for folder in (tmp_path / "file", tmp_path / "file" / "below"):
        one = Cache(folder)
        assert one.get("key", lambda: b"code") == one.get("key", never) == b"code"
        assert one.report().state == "in memory only: not a directory"


def test_no_home(monkeypatch, tmp_path):
    for name in ("WEFT_CACHE_DIR", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path / "missing"))
    assert kernel_cache.user_folder() is None
    one = Cache(None)
    assert one.get("key", lambda: b"code") == one.get("key", never) == b"code"
    assert one.report()[:2] == ("nowhere", "in memory only: there is no home folder")
    assert not (tmp_path / "missing").exists()


def test_a_full_disk(folder, monkeypatch):
    def full(*names, **options):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    one = Cache(folder)
    monkeypatch.setattr(os, "replace", full)
    assert one.get("key", lambda: b"code") == one.get("key", never) == b"code"
    assert one.report().state == "in memory only: no space left on device"
    assert not files(folder)  # nothing half written stays
    monkeypatch.undo()
    one.get("other", lambda: b"code")
    assert one.report().state == "on disk"


def test_a_folder_removed_meanwhile(folder):
    one = Cache(folder)
    one.get("key", lambda: b"code")
    for entry in files(folder):
        entry.unlink()
    folder.rmdir()
    assert one.get("key", lambda: b"again") == b"again"
    assert Cache(folder).get("key", never) == b"again"


# -- size


def test_the_least_recently_used_go(folder):
    one = Cache(folder, limit=10_000)
    for k in range(8):
        one.get(f"{k}", lambda: bytes(1000))
        os.utime(folder / kernel_cache._name(f"{k}"), (k, k))
    one.get("0", never)  # used now
    one.get("8", lambda: bytes(1000))
    one.get("9", lambda: bytes(1000))
    kept = {k for k in range(10) if (folder / kernel_cache._name(f"{k}")).exists()}
    assert {0, 8, 9} <= kept
    assert kept == {0, *range(min(kept - {0}), 10)}
    assert one.report().nbytes <= 9_000
    assert len(kept) >= 7


def test_what_other_processes_wrote_counts(folder):
    for k in range(20):
        Cache(folder).get(f"{k}", lambda: bytes(1000))
    Cache(folder, limit=5_000).get("new", lambda: bytes(1000))
    assert Cache(folder).report().nbytes <= 5_000
    assert Cache(folder).get("new", never) == bytes(1000)


def test_memory_is_bounded_too(tmp_path):
    (tmp_path / "file").write_text("")
    one = Cache(tmp_path / "file", limit=5_000)
    for k in range(20):
        one.get(f"{k}", lambda: bytes(1000))
    assert list(one.memory) == ["15", "16", "17", "18", "19"]
    one.get("large", lambda: bytes(9000))
    assert list(one.memory) == ["large"]


def test_unfinished_files_are_cleaned_up(folder):
    one = Cache(folder)
    one.get("key", lambda: b"code")
    old, new = folder / "old.part", folder / "new.part"
    for part in (old, new):
        part.write_bytes(b"half")
    os.utime(old, (1, 1))
    Cache(folder).get("other", lambda: b"code")
    assert not old.exists()
    assert new.exists()  # somebody may still be writing it


def test_other_files_are_left_alone(folder):
    one = Cache(folder, limit=1)
    one.get("key", lambda: b"code")
    (folder / "notes.txt").write_text("mine")
    one.get("other", lambda: b"code")
    one.clear()
    assert [entry.name for entry in files(folder)] == ["notes.txt"]


# -- several processes

WRITER = """
import sys
from weft.runtime.cpu.kernel_cache import Cache
folder, seed = sys.argv[1], int(sys.argv[2])
one = Cache(folder, limit=60_000)
for k in range(300):
    key = (k * 7 + seed * 13) % 40
    code = (f"{key}:" * 1000)[:2000 + key].encode()
    assert one.get(str(key), lambda: code) == code
    if k % 97 == 96:
        one.clear()
print(one.report().state, len(one.memory))
"""


def test_processes_that_write_evict_and_clear_at_once(folder):
    running = [
        subprocess.Popen(
            [sys.executable, "-c", WRITER, folder, str(seed)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for seed in range(4)
    ]
    for process in running:
        out, err = process.communicate(timeout=60)
        assert (process.returncode, out, err) == (0, "on disk 0\n", "")
    assert all(entry.name.endswith(".kernel") for entry in files(folder))
    for key in range(40):
        code = (f"{key}:" * 1000)[: 2000 + key].encode()
        assert Cache(folder).get(str(key), lambda code=code: code) == code


# -- which folder


def test_the_environment_names_the_folder(monkeypatch, tmp_path):
    monkeypatch.delenv("WEFT_CACHE_DIR", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert kernel_cache.user_folder() == tmp_path / "weft"
    monkeypatch.setenv("WEFT_CACHE_DIR", str(tmp_path / "mine"))
    assert kernel_cache.default().folder == tmp_path / "mine"
    kernel_cache.get("key", lambda: b"code")
    assert len(files(tmp_path / "mine")) == 1


@pytest.mark.skipif(sys.platform == "darwin", reason="has another place")
def test_the_usual_folder(monkeypatch, tmp_path):
    monkeypatch.delenv("WEFT_CACHE_DIR", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", "relative/ones/are/ignored")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert kernel_cache.user_folder() == tmp_path / ".cache" / "weft"


def test_the_environment_names_the_limit(monkeypatch):
    monkeypatch.delenv("WEFT_CACHE_SIZE", raising=False)
    assert kernel_cache.default().limit == 512 << 20
    monkeypatch.setenv("WEFT_CACHE_SIZE", "3")
    assert kernel_cache.default().limit == 3 << 20
