"""A captured function and the world: printing, logging, the debugger, files, threads.

``print``, loggers, warnings and writes to ``sys.stdout`` and ``sys.stderr`` become
effects that every run of the program has, with that run's values. A text made of a
tensor holds a mark instead. ``breakpoint`` ends the capture with
``DebuggerWanted``; a file that is opened or a thread that is started ends it with a
refusal.
"""

from __future__ import annotations

import builtins
import copy
import io
import logging
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Thread
from typing import Any

from weft.core.mode import mode
from weft.core.tensor import Tensor
from weft.errors import called_by_user
from weft.graph.effects import Built, Constant, Printed, Text
from weft.graph.symbol import refusal
from weft.graph.value_texts import is_marked, text_recipe


class DebuggerWanted(BaseException):
    """The captured function called the debugger: values must be there to look at."""


class Console:
    """Replaces the functions and streams that write to people, for one capture."""

    def __init__(self, run: Any) -> None:
        self.run = run
        self.print = builtins.print
        self.show_warning = getattr(warnings, "_showwarnmsg_impl", None)

    @contextmanager
    def listening(self) -> Iterator[None]:
        """Exchange the functions and streams until the block ends."""
        pdb: Any = sys.modules.get("pdb")
        patches: list[tuple[Any, str, Any]] = [
            (builtins, "print", self._instead(builtins.print, self._print)),
            (builtins, "input", self._instead(builtins.input, self._input)),
            (builtins, "open", self._opening(builtins.open)),
            (io, "open", self._opening(io.open)),
            (Thread, "start", self._threading(Thread.start)),
            (warnings, "warn", self._warning(warnings.warn)),
            (logging.Logger, "handle", self._handling(logging.Logger.handle)),
            (sys, "stdout", _Stream(self, "stdout")),
            (sys, "stderr", _Stream(self, "stderr")),
            (sys, "breakpointhook", self._instead(sys.breakpointhook, _debugger)),
        ]
        pools: Any = sys.modules.get("concurrent.futures.thread")
        if pools is not None:
            kind = pools.ThreadPoolExecutor
            patches.append((kind, "submit", self._threading(kind.submit)))
        if pdb is not None:
            trace = self._instead(pdb.set_trace, _debugger)
            patches.append((pdb, "set_trace", trace))
        before = [getattr(owner, name) for owner, name, _ in patches]
        for owner, name, value in patches:
            setattr(owner, name, value)
        try:
            yield
        finally:
            for (owner, name, _), value in zip(patches, before, strict=True):
                setattr(owner, name, value)

    def active(self) -> bool:
        if self.run.branching and mode.capture is not None:
            raise refusal(
                "a side of a branch or the body of a loop over a tensor's value "
                "prints, logs, warns or opens a file. Both sides are captured, and a "
                "body once for all steps; do it outside"
            )
        return mode.capture is self.run

    def _instead(self, usual: Any, own: Callable[..., Any]) -> Any:
        def call(*args: Any, **kwargs: Any) -> Any:
            return (own if self.active() else usual)(*args, **kwargs)

        return call

    def _print(self, *args: Any, **kwargs: Any) -> None:
        if kwargs.get("file") is None and type(sys.stdout) is not _Stream:
            kwargs["file"] = sys.stdout  # where the function itself has sent it
        self.add(self.print, args, kwargs)

    def _input(self, *args: Any) -> None:
        raise refusal(
            "compile: the function asks for input, once, when it is captured. Ask "
            "outside, and pass the answer as an argument"
        )

    def _opening(self, usual: Any) -> Any:
        def open(file: Any, *args: Any, **kwargs: Any) -> Any:
            if self.active() and called_by_user(sys._getframe(1)):
                raise refusal(
                    f"compile: the function opens the file {file!r}, once, when it is "
                    "captured; later calls would not do that fresh. Read or write "
                    "files outside the function"
                )
            return usual(file, *args, **kwargs)

        return open

    def _threading(self, usual: Any) -> Any:
        def start(*args: Any, **kwargs: Any) -> Any:
            if self.active() and called_by_user(sys._getframe(1)):
                raise refusal(
                    "compile: the function has another thread do some work, which is "
                    "no part of a program. Do all of it in one thread: compiled code "
                    "uses all cores by itself"
                )
            return usual(*args, **kwargs)

        return start

    def _handling(self, usual: Any) -> Any:
        def handle(logger: Any, record: Any) -> None:
            if self.active() and called_by_user(sys._getframe(3)):
                bare = copy.copy(record)
                bare.msg = bare.args = None
                self.add(_log, (usual, logger, bare, record.msg, record.args), {})
            else:
                usual(logger, record)

        return handle

    def _filtered(
        self, usual: Any, message: Any, category: Any, level: int, args: Any,
        kwargs: Any,
    ) -> None:  # fmt: skip
        """Warn inside the function's own ``catch_warnings``, which decides what becomes
        of it: an error, an item of a list, nothing, or a message after each run."""
        if is_marked(str(message)):
            raise refusal(
                "compile: the function warns of a tensor's value inside "
                "warnings.catch_warnings, which needs the value now. Warn outside of it"
            )
        module: Any = warnings
        if module._showwarnmsg_impl is not self.show_warning:  # they are recorded
            return usual(message, category, level + 1, *args, **kwargs)
        shown: list[Any] = []
        before, module._showwarnmsg = module._showwarnmsg, shown.append
        try:
            usual(message, category, level + 1, *args, **kwargs)
        finally:
            module._showwarnmsg = before
        for one in shown:
            self.add(before, (Constant(one),), {})

    def _warning(self, usual: Any) -> Any:
        filters = warnings.filters

        def warn(
            message: Any, category: Any = None, stacklevel: int = 1, *args: Any,
            **kwargs: Any,
        ) -> None:  # fmt: skip
            if not (self.active() and called_by_user(sys._getframe(1))):
                usual(message, category, stacklevel + 1, *args, **kwargs)
                return
            if warnings.filters is not filters:
                self._filtered(usual, message, category, stacklevel + 2, args, kwargs)
                return
            frame = sys._getframe(stacklevel)
            kind = type(message) if isinstance(message, Warning) else category
            names = frame.f_globals
            place = frame.f_code.co_filename, frame.f_lineno, names.get("__name__")
            known = names.setdefault("__warningregistry__", {})  # of those shown
            given = str(message), kind or UserWarning, *place
            self.add(warnings.warn_explicit, given, {"registry": Constant(known)})

        return warn

    # -- effects

    def add(self, call: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Let every run call a function, with values for the tensors of now."""
        named = {k: self.recipe(v) for k, v in kwargs.items()}
        recipes = tuple(map(self.recipe, args))
        self.run.effects.append(Printed(call, recipes, named))

    def recipe(self, value: Any) -> Any:
        if isinstance(value, Constant):
            return value
        if isinstance(value, Tensor):
            return self.run.lift(value)
        if isinstance(value, str):
            return text_recipe(self.run, value)
        if isinstance(value, (list, tuple, dict)):
            return Built.of(value, self.recipe)
        return value

    def show(self) -> None:
        """Print the texts from before the capture failed, without values."""
        effects, self.run.effects = self.run.effects, []
        for effect in effects:
            args = [_described(a) for a in effect.args]
            effect.call(*args, **{k: _described(v) for k, v in effect.kwargs.items()})


def _described(recipe: Any) -> Any:
    """A recipe's value where nothing was run."""
    if isinstance(recipe, Text):
        return "".join(p if isinstance(p, str) else repr(p[0]) for p in recipe.parts)
    if isinstance(recipe, Constant):
        return recipe.value
    if isinstance(recipe, Built):
        items = [_described(item) for item in recipe.items]
        if recipe.keys is None:
            return items if recipe.kind is list else tuple(items)
        return dict(zip(recipe.keys, items, strict=True))
    return recipe


def _debugger(*args: Any, **kwargs: Any) -> None:
    raise DebuggerWanted


def _log(handle: Any, logger: Any, record: Any, message: Any, args: Any) -> None:
    fresh = copy.copy(record)
    fresh.msg, fresh.args, fresh.created = message, args, time.time()
    handle(logger, fresh)


class _Stream:
    """A stream of text during a capture."""

    def __init__(self, console: Console, name: str) -> None:
        self._console, self._name, self._stream = console, name, getattr(sys, name)

    def write(self, text: str) -> int:
        if self._console.active() and called_by_user(sys._getframe(1)):
            self._console.add(self._now, (text,), {})
            return len(text)
        return self._now(text)

    def _now(self, text: str) -> int:
        """Write to the stream that has this one's name now."""
        now = getattr(sys, self._name)
        return (self._stream if now is self else now).write(text)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)
