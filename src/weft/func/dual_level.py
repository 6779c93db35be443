"""Forward mode by hand: tensors that carry a tangent inside a level.

``weft.autograd.forward_ad`` has these names. ``weft.func.jvp`` does the same for a
function.
"""

from __future__ import annotations

from typing import NamedTuple

from weft.core.tensor import Tensor
from weft.errors import AutogradError
from weft.func.jvp import Dual, Forward, _dual

_LEVELS: list[Forward] = []


class UnpackedDualTensor(NamedTuple):
    """A tensor's value, and its tangent or None."""

    primal: Tensor
    tangent: Tensor | None


def enter_dual_level() -> int:
    """Begin a level, in which tensors may carry tangents."""
    if _LEVELS:
        raise AutogradError(
            "Nested forward mode AD is not supported at the moment; use weft.func.jvp"
        )
    run = Forward()
    run.__enter__()
    _LEVELS.append(run)
    return len(_LEVELS) - 1


def exit_dual_level(*, level: int | None = None) -> None:
    """End the level; its tensors have no tangents any more."""
    if not _LEVELS or (level is not None and level != len(_LEVELS) - 1):
        raise AutogradError(
            "exit_dual_level: expected the level that was entered last, got "
            f"{level}; levels end in the order in which they began"
        )
    _LEVELS.pop().__exit__()


class dual_level:
    """A block in which tensors may carry tangents.

    >>> import weft.autograd.forward_ad as fwAD
    >>> with fwAD.dual_level():
    ...     x = fwAD.make_dual(weft.tensor(3.0), weft.tensor(1.0))
    ...     print(fwAD.unpack_dual(x * x).tangent)
    tensor(6., dtype=float32)
    """

    def __enter__(self) -> int:
        return enter_dual_level()

    def __exit__(self, *error: object) -> None:
        exit_dual_level()


def _level(who: str) -> Forward:
    if not _LEVELS:
        raise AutogradError(
            f"{who}: expected to be inside dual_level(), in which tensors carry "
            "tangents"
        )
    return _LEVELS[-1]


def make_dual(tensor: Tensor, tangent: Tensor, *, level: int | None = None) -> Tensor:
    """A tensor that carries a tangent."""
    return _dual(_level("make_dual"), tensor, tangent)


def unpack_dual(tensor: Tensor, *, level: int | None = None) -> UnpackedDualTensor:
    """A tensor's value and its tangent, None where it has none."""
    if not _LEVELS or type(tensor) is not Dual:
        return UnpackedDualTensor(tensor, None)
    return UnpackedDualTensor(*_LEVELS[-1].split(tensor))
