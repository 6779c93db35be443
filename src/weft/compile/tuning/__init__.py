"""Choices by measurement: ``weft.compile(fn, tune=True)``.

choices     the numbers that may be chosen, their defaults, and the table on disk
subjects    the kernels of a program that have choices
trials      a kernel that runs on arrays of its own
search      the measurements
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from weft.core.device import cpu
from weft.errors import ArgumentError

if TYPE_CHECKING:
    from weft.compile.frontend.specialization import Specialization
    from weft.compile.tuning.search import Tuned


def seconds_of(tune: Any) -> float:
    """The seconds that a search may take; 0 for no search.

    >>> from weft.compile.tuning import seconds_of
    >>> seconds_of(False), seconds_of(2)
    (0.0, 2.0)
    """
    if tune is True:
        from weft.compile.tuning.search import SECONDS

        return SECONDS
    if isinstance(tune, (bool, int, float)) and tune >= 0:
        return float(tune)
    raise ArgumentError(f"compile: expected tune=True or seconds, got tune={tune!r}")


def tuned(
    specialization: Specialization, arrays: list[Any], seconds: float
) -> tuple[Specialization, Tuned]:
    """The specialization with the best choices for its kernels, and these choices."""
    from tqdm import tqdm

    from weft.compile.frontend.specialization import Specialization
    from weft.compile.tuning.search import Search
    from weft.graph.interpret import bind_sizes

    if specialization.device is not cpu:
        raise ArgumentError(
            "compile: tune measures kernels of the CPU, but the arguments are on "
            f"{specialization.device.name!r}; leave tune out"
        )

    def progress(what: Any) -> Any:
        return tqdm(what, "tuning", leave=False, delay=2.0, disable=None)

    sizes = bind_sizes(specialization.captured.graph.inputs, arrays)
    result = Search(seconds, progress=progress).run(specialization.program, sizes)
    if result.changed:
        pack = specialization.pack_weights
        specialization = Specialization(
            specialization.captured, specialization.reads, pack_weights=pack
        )
    return specialization, result
