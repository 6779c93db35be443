"""Runs of a launcher, and whether processes are left: for tests of ``weft run``."""

import io
import os


def launched(make, count, command, restarts=0, servers=0, **options):
    """The status of a launcher's run, and what it and its ranks print."""
    out, err = io.StringIO(), io.StringIO()
    status = make(out, err).run(count, command, restarts, servers, **options)
    return status, out.getvalue(), err.getvalue()


def alive(pid):
    """Whether a process runs; one that has ended, and is not waited for, does not."""
    try:
        os.kill(pid, 0)
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rpartition(")")[2].split()[0] != "Z"
    except (ProcessLookupError, FileNotFoundError):
        return False
