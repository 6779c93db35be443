"""Automatic differentiation on the tape: backward, grad, modes, custom functions."""

from typing import TYPE_CHECKING, Any

from weft.autograd.engine import backward, grad
from weft.autograd.function import Function
from weft.autograd.modes import (
    enable_grad,
    inference_mode,
    is_grad_enabled,
    is_inference_mode_enabled,
    no_grad,
    set_grad_enabled,
)

if TYPE_CHECKING:
    from weft.autograd.anomaly import (
        detect_anomaly,
        is_anomaly_enabled,
        set_detect_anomaly,
    )
    from weft.autograd.grad_mode import set_multithreading_enabled
    from weft.autograd.variable import Variable
    from weft.func.checking import GradcheckError, gradcheck, gradgradcheck

# Checks of gradients are loaded when first used.
_LAZY = {
    "detect_anomaly": "autograd.anomaly",
    "is_anomaly_enabled": "autograd.anomaly",
    "set_detect_anomaly": "autograd.anomaly",
    "GradcheckError": "func.checking",
    "gradcheck": "func.checking",
    "gradgradcheck": "func.checking",
    "Variable": "autograd.variable",
    "set_multithreading_enabled": "autograd.grad_mode",
}
_MODULES = ("forward_ad", "functional", "grad_mode", "graph", "variable")


def __getattr__(name: str) -> Any:
    import importlib

    if name in _MODULES:
        return importlib.import_module(f"weft.autograd.{name}")
    if name not in _LAZY:
        raise AttributeError(f"module 'weft.autograd' has no attribute {name!r}")
    module = importlib.import_module(f"weft.{_LAZY[name]}")
    found = globals()[name] = getattr(module, name)
    return found


__all__ = [
    "Function",
    "GradcheckError",
    "Variable",
    "backward",
    "detect_anomaly",
    "enable_grad",
    "grad",
    "gradcheck",
    "gradgradcheck",
    "inference_mode",
    "is_anomaly_enabled",
    "is_grad_enabled",
    "is_inference_mode_enabled",
    "no_grad",
    "set_detect_anomaly",
    "set_grad_enabled",
    "set_multithreading_enabled",
]
