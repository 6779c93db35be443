"""Tensors on their way to other processes: an array, and its attributes.

``pickle`` (and its users ``multiprocessing`` and ``concurrent.futures``) asks a tensor
how to rebuild it. The answer is one of the functions here, which put arrays into
tensors and do nothing else. ``weft.load`` reads no pickles.

A view is sent with the tensor that it is a view of, so both share memory on arrival if
they are sent together. A computed tensor that requires a gradient becomes a leaf in a
pickle: its value, without its tape. On its way to another process it is refused, for
its gradient would be lost there. Both are as in PyTorch.
"""

from __future__ import annotations

import sys
from typing import Any

import numpy as np

from weft.autograd.modes import no_grad
from weft.core.dispatch import unable
from weft.core.op import Op
from weft.core.tensor import Tensor
from weft.errors import WeftError

# Attributes that belong to this process, or are sent in another way.
_OWN = frozenset((
    "_data", "_node", "_storage", "_base", "_chain", "_interpreter", "_inference",
    "_capture", "_parameter", "device", "grad",
))  # fmt: skip


class PickleRefused(WeftError, TypeError):
    """A tensor that cannot be sent to another process."""


def reduce(self: Any, protocol: Any = None) -> tuple[Any, ...]:
    """The function and values that rebuild a tensor: ``pickle``'s protocol."""
    if self._interpreter is not None:
        raise unable(
            PickleRefused(
                f"pickle: a value inside {self._interpreter.name} stands for others "
                "and has none of its own; pickle the results of the call"
            ),
            self,
        )
    if not self.is_leaf and _sent():
        raise PickleRefused(
            f"pickle: this tensor was made by {self._node.name!r}, and a tape does not "
            "go from one process to another; send .detach()"
        )
    marks = (self.requires_grad, self._parameter)
    state = {k: v for k, v in vars(self).items() if k not in _OWN} or None
    if self._base is not None and all(type(op) is Op for op, _ in self._chain):
        return rebuild_view, (self._base, self._chain, *marks), state
    kind = Tensor if not self.is_cpu else type(self)
    return rebuild_tensor, (kind, self.array(), self.device, *marks), state


def _sent() -> bool:
    """Whether the pickle that is being made is one of ``multiprocessing``'s."""
    caller = sys._getframe(2).f_globals.get("__name__")
    return caller == "multiprocessing.reduction"


def rebuild_tensor(
    kind: type, array: np.ndarray, device: Any, requires_grad: bool, parameter: bool
) -> Tensor:
    """A tensor over an array.

    >>> weft.pickling.rebuild_tensor(weft.Tensor, np.ones(2), "cpu", True, False)
    tensor([1., 1.], dtype=weft.float64, requires_grad=True)
    """
    made: Any = object.__new__(kind)
    made._data, made._node = array, None
    return _marked(made.to(device), requires_grad, parameter)


def rebuild_view(
    base: Tensor, chain: Any, requires_grad: bool, parameter: bool
) -> Tensor:
    """A view of a tensor, by the operators that made it.

    >>> x = weft.zeros(2, 3)
    >>> _ = weft.pickling.rebuild_view(x, x[0]._chain, False, False).add_(1)
    >>> x
    tensor([[1., 1., 1.],
            [0., 0., 0.]])
    """
    out = base
    with no_grad():
        for op, params in chain:
            out = op(out, **params)
    return _marked(out, requires_grad, parameter)


def _marked(made: Any, requires_grad: bool, parameter: bool) -> Any:
    if parameter:
        made._parameter = True
    return made.requires_grad_() if requires_grad else made
