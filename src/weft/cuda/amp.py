"""``weft.cuda.amp``: mixed precision on GPUs, which is off where there is none.

As in PyTorch's CPU build, a block of ``autocast`` computes in its tensors' own types,
and a ``GradScaler`` leaves losses and gradients as they are; each says so once made.
"""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable
from typing import Any


def _warn(name: str) -> None:
    warnings.warn(
        f"torch.cuda.amp.{name}: there is no GPU, so it is disabled", stacklevel=3
    )


class autocast:
    """A block that computes in the types that its tensors have.

    >>> with weft.cuda.amp.autocast(enabled=False):
    ...     (weft.ones(2) @ weft.ones(2)).dtype
    weft.float32
    """

    def __init__(
        self, enabled: bool = True, dtype: Any = None, cache_enabled: bool = True
    ) -> None:
        if enabled:
            _warn("autocast")

    def __enter__(self) -> autocast:
        return self

    def __exit__(self, *error: object) -> None:
        pass

    def __call__(self, func: Callable[..., Any]) -> Callable[..., Any]:
        return func


class GradScaler:
    """A scaler that is disabled: a scale of 1, and plain optimizer steps.

    >>> scaler = weft.cuda.amp.GradScaler(enabled=False)
    >>> scaler.is_enabled(), scaler.scale(3.0)
    (False, 3.0)
    """

    def __init__(
        self, init_scale: float = 2.0**16, growth_factor: float = 2.0,
        backoff_factor: float = 0.5, growth_interval: int = 2000, enabled: bool = True,
    ) -> None:  # fmt: skip
        if enabled:
            _warn("GradScaler")

    def is_enabled(self) -> bool:
        """False: there is no GPU."""
        return False

    def get_scale(self) -> float:
        """The factor of losses: 1."""
        return 1.0

    def scale(self, outputs: Any) -> Any:
        """The losses as they are."""
        return outputs

    def unscale_(self, optimizer: Any) -> None:
        """Leave the gradients, which were never scaled."""

    def step(self, optimizer: Any, *args: Any, **kwargs: Any) -> Any:
        """``optimizer.step()``."""
        return optimizer.step(*args, **kwargs)

    def update(self, new_scale: Any = None) -> None:
        """Leave the scale at 1."""

    def state_dict(self) -> dict[str, Any]:
        """An empty state."""
        return {}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Take any state, as none is used."""


def custom_fwd(fwd: Any = None, *, cast_inputs: Any = None) -> Any:
    """The function itself, or a decorator that gives it: nothing is cast.

    >>> weft.cuda.amp.custom_fwd(abs) is abs
    True
    """
    return (
        functools.partial(custom_fwd, cast_inputs=cast_inputs) if fwd is None else fwd
    )


def custom_bwd(bwd: Any) -> Any:
    """The function itself: nothing was cast.

    >>> weft.cuda.amp.custom_bwd(abs) is abs
    True
    """
    return bwd
