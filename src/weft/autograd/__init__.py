"""Automatic differentiation on the tape: backward, grad, modes, custom functions."""

from weft.autograd.anomaly import detect_anomaly
from weft.autograd.engine import backward, grad
from weft.autograd.function import Function
from weft.autograd.gradcheck import GradcheckError, gradcheck, gradgradcheck
from weft.autograd.modes import (
    enable_grad,
    inference_mode,
    is_grad_enabled,
    is_inference_mode_enabled,
    no_grad,
    set_grad_enabled,
)

__all__ = [
    "Function",
    "GradcheckError",
    "backward",
    "detect_anomaly",
    "enable_grad",
    "grad",
    "gradcheck",
    "gradgradcheck",
    "inference_mode",
    "is_grad_enabled",
    "is_inference_mode_enabled",
    "no_grad",
    "set_grad_enabled",
]
