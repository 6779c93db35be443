"""The state of the current thread: recording or not, watched or not."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

# The states that fast paths tell apart: WATCHED sends every operator through
# ``bind``, where observers see it, a capture keeps it and ``inference_mode`` marks
# its results; else the tape is written (RECORDING) or not (QUIET).
WATCHED, QUIET, RECORDING = range(3)
VIEWS = 4  # added to it in ``quick`` where views are tied to their bases

Observer = Callable[[Any, tuple[Any, ...], dict[str, Any], Any], None]


class _Mode(threading.local):
    state: int = RECORDING
    quick: int = RECORDING | VIEWS  # the state, for fast paths
    recording: bool = True
    forward: bool = True  # do tangents propagate?
    inference: bool = False
    views: bool = True  # are views tied to their bases?
    observers: tuple[Observer, ...] = ()
    capture: Any = None  # the running capture: operators become nodes of its graph
    evaluator: Any = None  # stands between ``bind`` and the kernels
    taker: Any = None  # the capture or else the evaluator: it receives operators
    taking: bool = False  # does it get all of them, fast paths too?
    measured: bool = False  # allocations are counted: see weft.memory
    changes: Callable[[Any], None] | None = None  # told of changes in place before
    draws: Callable[[Any], None] | None = None  # told of a generator before it draws
    states: Callable[[Any], None] | None = None  # told of an optimizer that makes some
    refusals: list[Any] | None = None  # refusals of the running capture, in order
    undone: tuple[Any, ...] = ()  # effects of a failed capture that are still to happen
    refilled: list[Any] | None = None  # weakly, values that backward has recomputed
    device: Any = None  # the device of new tensors, unless it is the CPU
    outer_devices: tuple[Any, ...] = ()  # of the blocks around
    depth: int = 0  # the number of running transforms
    batching: tuple[Any, ...] = ()  # the running vmaps, outermost first
    backward_node: Any = None  # the node whose rule is running
    anomaly: tuple[bool, bool] | None = None  # are NaN, infinities looked for?
    running: Any = None  # the run of the tape backwards
    saved_hooks: tuple[Any, ...] = ()  # (pack, unpack) of tensors that the tape saves
    saved_refusal: str | None = None  # why there may be no such hooks
    # the dtypes of products by type of device, as pairs, while autocast is on
    autocast: Any = None

    def __init__(self) -> None:
        """Each thread has its own values for the switches: see ``_settle``."""
        names = (
            "recording forward inference views observers capture taker taking autocast"
        )
        self.__dict__.update({name: getattr(_Mode, name) for name in names.split()})


mode = _Mode()


def _settle() -> None:
    own = mode.__dict__  # one look for all: ``no_grad`` is entered often
    state = RECORDING if own["recording"] else QUIET
    if own["inference"] or own["observers"] or own["taking"] or mode.measured:
        state = WATCHED
    own["state"] = state
    if own["taker"] is not None or own["autocast"] is not None:
        own["quick"] = WATCHED
    else:
        own["quick"] = state | VIEWS if state and own["views"] else state


def set_autocast(dtypes: Any) -> None:
    """Choose the dtypes of products by type of device (None: that of the arguments)."""
    mode.autocast = dtypes
    _settle()


def set_recording(recording: bool) -> bool:
    """Switch the tape on or off; returns the old state."""
    before = mode.recording
    mode.recording = recording
    _settle()
    return before


def set_gradients(
    recording: bool, forward: bool, inference: bool
) -> tuple[bool, bool, bool]:
    """Switch all modes of gradients; returns the old ones."""
    own = mode.__dict__
    before = own["recording"], own["forward"], own["inference"]
    own["recording"], own["forward"], own["inference"] = recording, forward, inference
    if recording:  # also in a backward pass, which itself ties no views
        own["views"] = True
    _settle()
    return before


def set_views(views: bool) -> bool:
    """Tie views to their bases or don't; returns the old mode."""
    before = mode.views
    mode.views = views
    _settle()
    return before


def set_tape(recording: bool, views: bool) -> tuple[bool, bool]:
    """Switch the tape and the tie of views, in one go; returns the old modes."""
    before = mode.recording, mode.views
    mode.recording, mode.views = recording, views
    _settle()
    return before


def set_inference(inference: bool) -> None:
    """Switch inference mode on or off."""
    mode.inference = inference
    _settle()


def set_capture(capture: Any) -> Any:
    """Let a capture (or none) take all operators; returns the one before."""
    before = mode.capture
    mode.capture = capture
    _choose_taker()
    return before


def set_evaluator(evaluator: Any) -> Any:
    """Let an evaluator (or none) run the operators; returns the one before."""
    before = mode.evaluator
    mode.evaluator = evaluator
    _choose_taker()
    return before


def _choose_taker() -> None:
    capture, evaluator = mode.capture, mode.evaluator
    mode.taker = evaluator if capture is None else capture
    mode.taking = capture is not None or (evaluator is not None and evaluator.takes_all)
    _settle()


def set_watchers(
    observers: tuple[Observer, ...], evaluator: Any, measured: bool | None
) -> tuple[Any, Any, Any]:
    """Exchange all that watch this thread's operators; returns those before.

    ``measured`` is False to hide from ``weft.memory`` here, None not to.
    """
    before = mode.observers, mode.evaluator, vars(mode).get("measured")
    mode.observers = observers
    vars(mode).pop("measured", None)
    if measured is not None:
        mode.measured = measured
    set_evaluator(evaluator)
    return before


def set_measured(measured: bool) -> None:
    """Send every thread's operators through ``bind``, where they are measured.

    A thread that has switched modes before notices at its next switch.
    """
    _Mode.measured = measured
    _Mode.state = WATCHED if measured else RECORDING
    _Mode.quick = WATCHED if measured else RECORDING | VIEWS
    _settle()


@contextmanager
def observe(observer: Observer) -> Iterator[None]:
    """Call ``observer(op, args, params, out)`` after each operator of this thread.

    >>> seen = []
    >>> with weft.core.mode.observe(lambda op, args, params, out: seen.append(op.name)):
    ...     _ = weft.ones(2) + 1
    >>> seen
    ['full', 'add']
    """
    before = mode.observers
    mode.observers = (*before, observer)
    _settle()
    try:
        yield
    finally:
        mode.observers = before
        _settle()
