"""A tensor and the tape: backward, hooks, and tensors cut off from gradients."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from weft.autograd import engine
from weft.core.mode import mode
from weft.core.tensor import Tensor as _Tensor
from weft.errors import AutogradError, DTypeError

if TYPE_CHECKING:
    from weft.core.tensor import Tensor


class Gradients:
    """Methods of a tensor's node on the tape."""

    def detach(self: Any) -> Tensor:
        """The same memory, cut off from gradients and tangents.

        >>> weft.ones(1, requires_grad=True).detach().requires_grad
        False
        """
        return self.stopped()

    def backward(
        self: Any,
        gradient: Any = None,
        retain_graph: bool | None = None,
        create_graph: bool = False,
        inputs: Any = None,
    ) -> None:
        """Add this tensor's gradients to the ``.grad`` of the leaves it comes from.

        >>> x = weft.tensor([1.0, 2.0], requires_grad=True)
        >>> (x * x).backward(gradient=weft.ones(2))
        >>> x.grad
        tensor([2., 4.])
        """
        seeds = None if gradient is None else [gradient]
        engine.backward([self], seeds, retain_graph, create_graph, inputs=inputs)

    register_hook = engine.register_hook
    register_post_accumulate_grad_hook = engine.register_post_accumulate_grad_hook
    retain_grad = engine.retain_grad

    @property
    def retains_grad(self: Any) -> bool:
        """Whether ``retain_grad`` was called on this intermediate tensor."""
        return self._node is not None and not self.is_leaf and bool(self._node.hooks)

    @property
    def data(self: Any) -> Tensor:
        """The same memory, cut off the tape.

        A change of it is noticed, other than in PyTorch: a backward that needs the old
        value says so, and compiled programs see the new one.

        >>> weft.ones(1, requires_grad=True).data.requires_grad
        False
        """
        return self.detach()

    @data.setter
    def data(self: Any, value: Any) -> None:
        """Refer to another tensor's memory, of any shape, dtype and device."""
        _check_data(self, value)
        if value._data is self._data:
            return
        self.storage_record.touch("data")  # a tape that has saved the old value says so
        self.__class__ = type(value)
        self._data = value._data
        self.__dict__.pop("device", None)
        if not value.is_cpu:
            self.device = value.device

    def detach_(self: Any) -> Any:
        """Cut this tensor off the tape, in place.

        >>> (weft.ones(2, requires_grad=True) * 2).detach_().requires_grad
        False
        """
        if self._base is not None and self._node is not None:
            raise AutogradError(
                "detach_: a view cannot be cut off its base; use detach()"
            )
        self._node = None
        return self


def _check_data(x: Any, value: Any) -> None:
    if not isinstance(value, _Tensor):
        raise DTypeError(f"data: expected a tensor, got {type(value).__name__}")
    running = mode.capture or x._interpreter or value._interpreter
    if running is not None:
        raise running.unable(
            AutogradError(
                "data: a tensor's memory cannot be exchanged inside "
                f"{getattr(running, 'name', 'a captured function')}; use copy_"
            )
        )
    if x._node is not None and not value.dtype.is_inexact:
        raise DTypeError(
            "data: this tensor requires grad and cannot hold "
            f"{value.dtype.name}; use requires_grad_(False) first"
        )
