"""Running a program's ``main`` with its flags, and the options of sessions."""

from __future__ import annotations

import contextlib
import sys
from typing import Any

from weft.static import flags

__all__ = ["flags", "run"]


def run(main: Any = None, argv: list[str] | None = None) -> None:
    """Read the flags, call ``main`` with the rest of the command line, and exit.

    >>> weft.static.app.run(lambda argv: 3, ["program"])
    Traceback (most recent call last):
    ...
    SystemExit: 3
    """
    rest = flags.FLAGS(argv)
    chosen = main or sys.modules["__main__"].main
    sys.exit(chosen(rest))


class _Options:
    """Settings of another machine, which are taken and change nothing."""

    def __init__(self, *args: Any, **settings: Any) -> None:
        vars(self).update(settings)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        made = _Options()
        setattr(self, name, made)
        return made


class ConfigProto(_Options):
    """Settings of a session: taken, and without effect.

    >>> config = weft.static.ConfigProto(log_device_placement=True)
    >>> config.gpu_options.allow_growth = True
    >>> weft.static.Session(config=config).close()
    """


class GPUOptions(_Options):
    """Settings of a GPU: taken, and without effect.

    >>> weft.static.GPUOptions(allow_growth=True).allow_growth
    True
    """


class OptimizerOptions(_Options):
    """Settings of TensorFlow's graph optimizer: taken, and without effect.

    >>> weft.static.OptimizerOptions().L1 is not None
    True
    """


class GraphOptions(_Options):
    """Settings of TensorFlow's graphs: taken, and without effect.

    >>> weft.static.GraphOptions(place_pruned_graph=True).place_pruned_graph
    True
    """


class RunOptions(_Options):
    """Settings of a run: taken, and without effect.

    >>> options = weft.static.RunOptions(trace_level=weft.static.RunOptions.FULL_TRACE)
    >>> with weft.static.Graph().as_default(), weft.static.Session() as session:
    ...     session.run(weft.static.constant(1), options=options).item()
    1
    """

    NO_TRACE, SOFTWARE_TRACE, HARDWARE_TRACE, FULL_TRACE = 0, 1, 2, 3


def device(device_name_or_function: Any) -> contextlib.nullcontext[None]:
    """A context that changes nothing: a static graph runs on the CPU.

    >>> with weft.static.device("/gpu:0"):
    ...     pass
    """
    return contextlib.nullcontext()


def disable_v2_behavior() -> None:
    """Do nothing: there is no other behavior here.

    >>> weft.static.disable_v2_behavior()
    """


def __getattr__(name: str) -> Any:
    from weft.static import absent

    raise absent.error("app", name)
