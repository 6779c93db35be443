"""Outermost calls of modules, compiled without being asked: ``weft run --compile``.

While this is on, a module that is called from outside any other a second time becomes
a compiled function, forward and backward; where its capture is refused, it runs eagerly
and its submodules are tried instead. A class whose modules are made again and again, as
an equation solver makes one for each call, is left to run eagerly.
"""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Iterator
from types import MethodType
from typing import Any, NamedTuple
from weakref import WeakSet

from weft import late
from weft.compile.frontend.function import CompiledFunction
from weft.core.mode import mode

MAX_COMPILES = 16
MOST_LATE = 3  # modules of a class that may come after others were compiled


class Compiled(NamedTuple):
    """A module that was tried: its class, and its compiled function."""

    name: str
    function: CompiledFunction

    def __str__(self) -> str:
        f = self.function
        made = f"{self.name}: {len(f.compiles)} compilations"
        if f.compiles:
            made += f" in {sum(c.seconds for c in f.compiles):.1f} s"
        if f.eager_calls:
            made += f"; {f.eager_calls} calls were eager"
        for reason in dict.fromkeys(f.refused.values()):
            made += "\n    refused: " + reason.replace("\n", "\n    ")
        return made


@contextlib.contextmanager
def compiled_modules() -> Iterator[list[Compiled]]:
    """Compile outermost calls of modules in a block; gives those that were tried.

    >>> net = weft.nn.Sequential(weft.nn.Linear(2, 3), weft.nn.Tanh())
    >>> with weft.compile.frontend.automatic.compiled_modules() as tried:
    ...     [net(weft.ones(1, 2)).shape for _ in range(2)]
    [(1, 3), (1, 3)]
    >>> tried[0].name, len(tried[0].function.compiles)
    ('Sequential', 1)
    """
    Module = late.find("Module")
    eager = Module.__call__
    functions: dict[Any, CompiledFunction] = {}
    met: WeakSet[Any] = WeakSet()  # modules that were called once
    kinds: Counter[type] = Counter()  # compiled modules of a class
    late_ones: Counter[type] = Counter()  # which came after others were compiled
    tried: list[Compiled] = []
    running: list[CompiledFunction] = []

    def made(self: Any) -> CompiledFunction | None:
        kind = type(self)
        if late_ones[kind] > MOST_LATE or not _worthwhile(self):
            return None
        if self not in met:
            met.add(self)
            late_ones[kind] += kinds[kind] > 0
            return None
        kinds[kind] += 1
        function = functions[self] = CompiledFunction(
            MethodType(eager, self), None, False, MAX_COMPILES, fullgraph=False
        )
        tried.append(Compiled(kind.__name__, function))
        return function

    def __call__(self: Any, *args: Any, **kwargs: Any) -> Any:
        if mode.capture is not None or (running and running[-1].warming):
            return eager(self, *args, **kwargs)
        if mode.changes is not None:  # a checkpointed function, which runs twice alike
            return eager(self, *args, **kwargs)
        function = functions.get(self) or made(self)
        if function is None:
            return eager(self, *args, **kwargs)
        running.append(function)
        try:
            return function(*args, **kwargs)
        finally:
            running.pop()

    Module.__call__ = __call__
    try:
        yield tried
    finally:
        Module.__call__ = eager


def _worthwhile(module: Any) -> bool:
    """Whether a module is worth compiling: a layer of Weft's is a kernel already."""
    ours = type(module).__module__.startswith("weft.")
    return not ours or bool(next(iter(module.children()), None))
