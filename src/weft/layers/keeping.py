"""Objects of this generation whose state in Python every run of a program renews."""

from __future__ import annotations

from typing import Any

from weft.core.mode import mode


class Keeping:
    """The base of what is no module and has state: models, optimizers, solvers.

    What a captured function sets here is put back when the capture ends, and set to
    the values of each run afterwards.
    """

    _keeps = True
    _made_inside = False

    def __new__(cls, *args: Any, **kwargs: Any) -> Any:
        made = super().__new__(cls)
        if mode.capture is not None:
            made.__dict__["_made_inside"] = True
        return made

    def __setattr__(self, name: str, value: Any) -> None:
        if mode.capture is not None:
            mode.capture.note_attribute(self, name)
        object.__setattr__(self, name, value)
