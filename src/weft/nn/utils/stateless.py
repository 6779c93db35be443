"""``functional_call`` under its older path, and the block that it consists of."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager
from typing import Any

from weft import Tensor
from weft.func import functional_call, replaced

__all__ = ["functional_call"]


def _reparametrize_module(
    module: Any,
    parameters_and_buffers: Mapping[str, Tensor],
    tie_weights: bool = False,
    strict: bool = False,
    stack_weights: bool = False,
) -> AbstractContextManager[None]:
    """Let a module have other tensors in a block: a name that programs use."""
    return replaced(module, parameters_and_buffers)
