"""Progress of a run: a bar on a terminal, a line now and then in a log file."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import Any, TextIO

EVERY = 10.0  # seconds between lines where there is no terminal


class Progress:
    """Shows how much of ``total`` is done, with values such as the loss beside it.

    On a terminal it is a bar. Elsewhere, a line is written every ten seconds and at
    the end, so that a log file stays short.

    >>> with weft.training.Progress(3, "epoch 1/1", file=sys.stdout) as progress:
    ...     for done in (1, 2, 3):
    ...         progress.update(done, loss=f"{1 / done:.2f}")
    epoch 1/1: 3/3, loss 0.33
    """

    def __init__(
        self,
        total: int | None,
        label: str,
        *,
        unit: str = "",
        show: bool = True,
        file: TextIO | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.total, self.label, self.unit, self.show = total, label, unit, show
        self.file = sys.stderr if file is None else file
        self.clock = clock
        self.due = clock() + EVERY
        self.state: tuple[int, dict[str, str]] | None = None  # until it is written
        self.bar = self._bar() if show and self.file.isatty() else None

    def _bar(self) -> Any:
        from tqdm import tqdm

        form = "{desc}: {bar} {n_fmt}/{total_fmt}%s [{elapsed}<{remaining}{postfix}]"
        return tqdm(
            total=self.total, desc=self.label, file=self.file, mininterval=0.3,
            bar_format=form % self.unit,
        )  # fmt: skip

    def update(self, done: int, **values: str) -> None:
        """Say how much is done by now, and what came of it."""
        if self.bar is not None:
            self.bar.set_postfix(values, refresh=False)
            self.bar.update(done - self.bar.n)
        elif self.show:
            self.state = done, values
            if self.clock() >= self.due:
                self._write(done, values)

    def _write(self, done: int, values: dict[str, str]) -> None:
        of = "" if self.total is None else f"/{self.total}"
        shown = [f"{self.label}: {done}{of}{self.unit}", *map(" ".join, values.items())]
        print(", ".join(shown), file=self.file, flush=True)
        self.state, self.due = None, self.clock() + EVERY

    def __enter__(self) -> Progress:
        return self

    def __exit__(self, *error: object) -> None:
        if self.bar is not None:
            self.bar.close()
        elif self.state is not None:
            self._write(*self.state)
