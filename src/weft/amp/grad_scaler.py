"""``GradScaler``: losses scaled up, so that gradients in float16 do not vanish."""

from __future__ import annotations

import warnings
from collections.abc import Iterable
from typing import Any

from weft import isfinite
from weft.amp.autocast_mode import is_autocast_available
from weft.autograd.modes import no_grad
from weft.core.tensor import Tensor
from weft.errors import ArgumentError

_READY, _UNSCALED, _STEPPED = "ready", "unscaled", "stepped"


class GradScaler:
    """Scales a loss, and skips steps whose gradients are not finite.

    >>> p = weft.nn.Parameter(weft.ones(1))
    >>> sgd, scaler = weft.optim.SGD([p], lr=0.5), weft.amp.GradScaler("cpu")
    >>> scaler.scale((p * 1).sum()).backward()
    >>> scaler.step(sgd)
    >>> scaler.update()
    >>> p.detach(), scaler.get_scale()
    (tensor([0.5000]), 65536.0)
    """

    def __init__(
        self,
        device: str = "cuda",
        init_scale: float = 2.0**16,
        growth_factor: float = 2.0,
        backoff_factor: float = 0.5,
        growth_interval: int = 2000,
        enabled: bool = True,
    ) -> None:
        self._device, self._enabled = device, enabled
        if enabled and not is_autocast_available(str(device)):
            warnings.warn(
                f"GradScaler is enabled, but {device} is not available. Disabling.",
                stacklevel=2,
            )
            self._enabled = False
        if self._enabled and not (growth_factor > 1 and 0 < backoff_factor < 1):
            raise ArgumentError(
                "GradScaler: expected a growth factor above 1 and a backoff factor "
                f"between 0 and 1, got {growth_factor} and {backoff_factor}"
            )
        self._scale, self._growth_tracker = float(init_scale), 0
        self._growth_factor, self._backoff_factor = growth_factor, backoff_factor
        self._growth_interval = growth_interval
        self._stages: dict[int, str] = {}
        self._found: dict[int, bool] = {}

    def scale(self, outputs: Any) -> Any:
        """A tensor times the scale, or several in their container."""
        if not self._enabled:
            return outputs
        if isinstance(outputs, Tensor):
            return outputs * self._scale
        if isinstance(outputs, Iterable):
            scaled = map(self.scale, outputs)
            return (
                type(outputs)(scaled) if isinstance(outputs, list | tuple) else scaled
            )
        raise ValueError("outputs must be a Tensor or an iterable of Tensors")

    def unscale_(self, optimizer: Any) -> None:
        """Divide an optimizer's gradients by the scale, and look whether all are
        finite; once a step, before gradients are clipped."""
        if not self._enabled:
            return
        stage = self._stages.get(id(optimizer), _READY)
        if stage == _UNSCALED:
            raise RuntimeError(
                "unscale_() has already been called on this optimizer since the last "
                "update()."
            )
        if stage == _STEPPED:
            raise RuntimeError("unscale_() is being called after step().")
        found = False
        with no_grad():
            for group in optimizer.param_groups:
                for p in group["params"]:
                    if p.grad is not None:
                        p.grad.mul_(1 / self._scale)
                        found = found or not bool(isfinite(p.grad).all())
        self._found[id(optimizer)] = found
        self._stages[id(optimizer)] = _UNSCALED

    def step(self, optimizer: Any, *args: Any, **kwargs: Any) -> Any:
        """The optimizer's step, unless a gradient is not finite."""
        if not self._enabled:
            return optimizer.step(*args, **kwargs)
        if "closure" in kwargs:
            raise RuntimeError(
                "Closure use is not currently supported if GradScaler is enabled."
            )
        stage = self._stages.get(id(optimizer), _READY)
        if stage == _STEPPED:
            raise RuntimeError(
                "step() has already been called since the last update()."
            )
        if stage == _READY:
            self.unscale_(optimizer)
        self._stages[id(optimizer)] = _STEPPED
        if self._found[id(optimizer)]:
            return None
        return optimizer.step(*args, **kwargs)

    def update(self, new_scale: float | Tensor | None = None) -> None:
        """Lower the scale after a skipped step, raise it after many good ones."""
        if not self._enabled:
            return
        if new_scale is not None:
            self._scale = float(new_scale)
        elif not self._found:
            raise RuntimeError("No inf checks were recorded prior to update.")
        elif any(self._found.values()):
            self._scale *= self._backoff_factor
            self._growth_tracker = 0
        else:
            self._growth_tracker += 1
            if self._growth_tracker == self._growth_interval:
                self._scale *= self._growth_factor
                self._growth_tracker = 0
        self._stages.clear()
        self._found.clear()

    def get_scale(self) -> float:
        """The scale, or 1 if it is not enabled."""
        return self._scale if self._enabled else 1.0

    def get_growth_factor(self) -> float:
        """The factor by which the scale grows."""
        return self._growth_factor

    def set_growth_factor(self, new_factor: float) -> None:
        """Choose the factor by which the scale grows."""
        self._growth_factor = new_factor

    def get_backoff_factor(self) -> float:
        """The factor of the scale after a skipped step."""
        return self._backoff_factor

    def set_backoff_factor(self, new_factor: float) -> None:
        """Choose the factor of the scale after a skipped step."""
        self._backoff_factor = new_factor

    def get_growth_interval(self) -> int:
        """The number of good steps after which the scale grows."""
        return self._growth_interval

    def set_growth_interval(self, new_interval: int) -> None:
        """Choose the number of good steps after which the scale grows."""
        self._growth_interval = new_interval

    def is_enabled(self) -> bool:
        """Whether it scales at all."""
        return self._enabled

    def state_dict(self) -> dict[str, Any]:
        """The numbers needed to go on; none if it is not enabled."""
        if not self._enabled:
            return {}
        return {
            "scale": self._scale,
            "growth_factor": self._growth_factor,
            "backoff_factor": self._backoff_factor,
            "growth_interval": self._growth_interval,
            "_growth_tracker": self._growth_tracker,
        }

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Go on from where ``state_dict`` was taken."""
        if not self._enabled:
            return
        if not state_dict:
            raise RuntimeError(
                "The source state dict is empty, possibly because it was saved from a "
                "disabled instance of GradScaler."
            )
        self._scale = float(state_dict["scale"])
        self._growth_factor = state_dict["growth_factor"]
        self._backoff_factor = state_dict["backoff_factor"]
        self._growth_interval = state_dict["growth_interval"]
        self._growth_tracker = state_dict["_growth_tracker"]
