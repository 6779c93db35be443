"""``weft.__config__``: how this Weft was built, as text."""

from __future__ import annotations


def show() -> str:
    """The installation and the machine, as ``weft info`` shows them.

    >>> weft.__config__.show().startswith("weft")
    True
    """
    from weft.cli.info import report

    return report()


def parallel_info() -> str:
    """The number of threads, as text.

    >>> "threads" in weft.__config__.parallel_info()
    True
    """
    from weft.runtime.cpu.pool import get_num_threads

    return f"threads: {get_num_threads()}"
