"""Pooling over windows of images (N, C, H, W)."""

from __future__ import annotations

import math
from typing import Any

import weft
from weft.core.tensor import Tensor
from weft.errors import ArgumentError
from weft.layers.layer import Layer
from weft.layers.registry import register
from weft.nn import functional as F
from weft.nn.functional.conv import sizes_of
from weft.ops.index import add_at
from weft.ops.pooling import into_all, max_pool_grad_op, overlap


class _Pool(Layer):
    def __init__(
        self, kernel: Any, stride: Any, padding: Any, ceil_mode: bool, name: str | None
    ) -> None:
        super().__init__(name)
        kind = type(self).__name__
        self.kernel = sizes_of(kind, "the kernel", kernel, 2, 1)
        stride = self.kernel if stride is None else stride
        self.stride = sizes_of(kind, "stride", stride, 2, 1)
        self.padding = sizes_of(kind, "padding", padding, 2)
        self.ceil_mode = ceil_mode

    def _largest(self, x: Tensor) -> Tensor:
        self.shape, self.inputs = x.shape, x
        apart = not overlap(self.kernel, self.stride)
        out = F.max_pool2d(
            x, self.kernel, self.stride, self.padding, ceil_mode=self.ceil_mode,
            return_indices=not apart,
        )  # fmt: skip
        if apart:
            return out
        out, index = out
        self.index = into_all(x.shape, index)
        return out

    def _from_largest(self, grad: Tensor) -> Tensor:
        """Each window's gradient goes to the element it picked; some are shared."""
        if not overlap(self.kernel, self.stride):
            return max_pool_grad_op(
                grad, self.inputs,
                kernel=self.kernel, stride=self.stride, padding=self.padding,
            )  # fmt: skip
        places, size = self.index.reshape(-1), math.prod(self.shape)
        added = add_at(grad.reshape(-1), places, size=size)
        return added.reshape(self.shape)

    def _mean(self, x: Tensor) -> Tensor:
        self.shape = x.shape
        return F.avg_pool2d(
            x, self.kernel, self.stride, self.padding, ceil_mode=self.ceil_mode
        )

    def _from_mean(self, grad: Tensor) -> Tensor:
        """Each window's gradient is shared evenly by its elements."""
        n, c, h, w = self.shape
        g = grad / self._areas(grad)
        rows, columns = grad.shape[2:]
        (kh, kw), (sh, sw), (ph, pw) = self.kernel, self.stride, self.padding
        taps = g.reshape(n * c, 1, rows * columns).expand(n * c, kh * kw, -1)
        span = ((rows - 1) * sh + kh, (columns - 1) * sw + kw)  # what windows reach
        full = F.fold(taps, span, self.kernel, stride=self.stride)
        full = full.reshape(n, c, *span)[:, :, ph : ph + h, pw : pw + w]
        return F.pad(full, (0, w - full.shape[3], 0, h - full.shape[2]))

    def _areas(self, grad: Tensor) -> Tensor:
        """The number of elements, padding included, of each window: (rows, cols)."""
        high, wide = (
            [min(i * s + k, n + 2 * p) - i * s for i in range(count)]
            for k, s, p, n, count in zip(
                self.kernel, self.stride, self.padding, self.shape[2:],
                grad.shape[2:], strict=True,
            )
        )  # fmt: skip
        return weft.outer(
            weft.tensor(high, dtype=grad.dtype), weft.tensor(wide, dtype=grad.dtype)
        )


@register
class MaxPool2D(_Pool):
    """The largest element of each window.

    >>> layer = weft.layers.MaxPool2D(2)
    >>> layer.forward(weft.arange(4.0).reshape(1, 1, 2, 2))
    tensor([[[[3.]]]])
    """

    def __init__(
        self, kernel: Any = 2, stride: Any = None, padding: Any = 0,
        ceil_mode: bool = False, *, name: str | None = None,
    ) -> None:  # fmt: skip
        super().__init__(kernel, stride, padding, ceil_mode, name)

    def forward(self, inputs: Tensor) -> Tensor:
        return self._largest(inputs)

    def backward(self, grad: Tensor, propagate_down: Any = (True,)) -> Tensor | None:
        return self._from_largest(grad) if propagate_down[0] else None


@register
class AvgPool2D(_Pool):
    """The mean of each window, padding counted as zeros.

    >>> layer = weft.layers.AvgPool2D(2)
    >>> layer.forward(weft.arange(4.0).reshape(1, 1, 2, 2))
    tensor([[[[1.5000]]]])
    """

    def __init__(
        self, kernel: Any = 2, stride: Any = None, padding: Any = 0,
        ceil_mode: bool = False, *, name: str | None = None,
    ) -> None:  # fmt: skip
        super().__init__(kernel, stride, padding, ceil_mode, name)

    def forward(self, inputs: Tensor) -> Tensor:
        return self._mean(inputs)

    def backward(self, grad: Tensor, propagate_down: Any = (True,)) -> Tensor | None:
        return self._from_mean(grad) if propagate_down[0] else None


@register
class Pooling(_Pool):
    """Caffe's pooling, ``MAX`` or ``AVE``; the last window may hang over the edge.

    >>> layer = weft.layers.Pooling(pool="AVE", kernel_size=3, stride=2)
    >>> layer.forward(weft.zeros(1, 1, 6, 6)).shape
    (1, 1, 3, 3)
    """

    def __init__(
        self, pool: str = "MAX", kernel_size: Any = 2, stride: Any = 1, pad: Any = 0,
        *, name: str | None = None,
    ) -> None:  # fmt: skip
        super().__init__(kernel_size, stride, pad, True, name)
        if pool not in ("MAX", "AVE"):
            raise ArgumentError(f"Pooling: expected pool MAX or AVE, got {pool!r}")
        self.pool = pool

    def forward(self, inputs: Tensor) -> Tensor:
        return self._largest(inputs) if self.pool == "MAX" else self._mean(inputs)

    def backward(self, grad: Tensor, propagate_down: Any = (True,)) -> Tensor | None:
        if not propagate_down[0]:
            return None
        pull = self._from_largest if self.pool == "MAX" else self._from_mean
        return pull(grad)
