"""The two forms in which a layer's forward and backward are written and called.

    tinynn   forward(inputs) -> outputs      backward(grad) -> gradient of the inputs
    Caffe    forward(bottom, top)            backward(top, propagate_down, bottom)

Caffe's form is told by the name of its first parameter. A method written in one form
can be called in the other: each class below states its form's call, and the other in
terms of it.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from weft import as_tensor
from weft.core.tensor import Tensor
from weft.errors import ArgumentError, DTypeError, ShapeError
from weft.layers.blob import Blob

Method = Callable[..., Any]


class Seen(NamedTuple):
    """The shapes of a layer's last forward."""

    ins: tuple[tuple[int, ...], ...]
    outs: tuple[tuple[int, ...], ...]


def _shapes(tensors: Sequence[Any]) -> tuple[tuple[int, ...], ...]:
    return tuple(t.shape for t in tensors)


def are_blobs(value: Any) -> bool:
    """Whether an argument is a list of blobs (a layer may have no bottom)."""
    return isinstance(value, (list, tuple)) and all(isinstance(b, Blob) for b in value)


def tensors_of(out: Any) -> tuple[Any, ...]:
    """A method's results as a tuple of tensors (None stays)."""
    parts = out if isinstance(out, (tuple, list)) else (out,)
    return tuple(p if p is None else as_tensor(p) for p in parts)


def single(parts: tuple[Any, ...]) -> Any:
    """One value bare, several as a tuple."""
    return parts[0] if len(parts) == 1 else parts


class TensorForward:
    """``forward(self, inputs)``."""

    def __init__(self, fn: Method) -> None:
        self.fn = fn
        self.least, self.most = _arity(fn)

    def prepare(self, layer: Any, inputs: Sequence[Tensor]) -> None:
        """Let the layer make the parameters whose shapes its inputs decide."""
        self.check(layer, inputs)
        layer.setup(*inputs)

    def check(self, layer: Any, inputs: Sequence[Tensor]) -> None:
        """Refuse another number of inputs than the layer takes."""
        if not self.least <= len(inputs) <= self.most:
            most = "any number of" if self.most == math.inf else self.most
            least = "" if self.least == self.most else f"at least {self.least}, "
            raise ArgumentError(
                f"{layer._title}: expected {least}{most} inputs, got {len(inputs)}"
            )

    def tensors(self, layer: Any, inputs: Sequence[Tensor]) -> tuple[Any, ...]:
        self.check(layer, inputs)
        outs = tensors_of(self.fn(layer, *inputs))
        if any(out is None for out in outs):
            raise DTypeError(
                f"{layer._title}: expected forward to return tensors, got None"
            )
        layer._seen = Seen(_shapes(inputs), _shapes(outs))
        return outs

    def blobs(self, layer: Any, bottom: list[Blob], top: list[Blob]) -> None:
        fill(layer, top, self.tensors(layer, [b.data for b in bottom]))


class BlobForward:
    """``forward(self, bottom, top)``, with Caffe's ``setup`` and ``reshape``."""

    def __init__(self, fn: Method) -> None:
        self.fn = fn

    def prepare(self, layer: Any, inputs: Sequence[Tensor]) -> None:
        layer.setup([Blob(x) for x in inputs], _tops(layer))

    def tensors(self, layer: Any, inputs: Sequence[Tensor]) -> tuple[Any, ...]:
        bottom, top = [Blob(x) for x in inputs], _tops(layer)
        self.blobs(layer, bottom, top)
        layer._blobs_seen = (bottom, top)
        return tuple(t.data for t in top)

    def blobs(self, layer: Any, bottom: list[Blob], top: list[Blob]) -> None:
        layer.reshape(bottom, top)
        self.fn(layer, bottom, top)
        layer._seen = Seen(_shapes(bottom), _shapes(top))


def _tops(layer: Any) -> list[Blob]:
    return [Blob() for _ in range(layer.num_tops)]


def fill(layer: Any, top: list[Blob], outs: Sequence[Tensor]) -> None:
    """Copy outputs into the blobs that wait for them."""
    if len(top) != len(outs):
        raise ShapeError(
            f"{layer._title}: expected {len(outs)} top blobs, one for each output, got "
            f"{len(top)}"
        )
    for blob, out in zip(top, outs, strict=True):
        blob.fill(out)


class TensorBackward:
    """``backward(self, grad)``, which may take ``propagate_down`` by keyword."""

    def __init__(self, fn: Method) -> None:
        self.fn = fn
        self.selective = "propagate_down" in inspect.signature(fn).parameters

    def tensors(
        self, layer: Any, grads: Sequence[Any], needs: Sequence[bool]
    ) -> tuple[Any, ...]:
        options = {"propagate_down": tuple(needs)} if self.selective else {}
        return tensors_of(self.fn(layer, *grads, **options))

    def blobs(
        self, layer: Any, top: list[Blob], needs: Sequence[bool], bottom: list[Blob]
    ) -> None:
        found = self.tensors(layer, [t.diff for t in top], needs)
        hand_down(bottom, padded(layer, found, needs))


def padded(layer: Any, found: Sequence[Any], needs: Sequence[bool]) -> tuple[Any, ...]:
    """A gradient or None for each input; unwanted ones are dropped."""
    if len(found) > len(needs):
        raise ShapeError(
            f"{layer._title}: backward gave {len(found)} gradients for {len(needs)} "
            "inputs"
        )
    full = (*found, *(None,) * (len(needs) - len(found)))
    return tuple(g if need else None for g, need in zip(full, needs, strict=True))


def hand_down(bottom: Sequence[Blob], grads: Sequence[Any]) -> None:
    """Put gradients where there are any."""
    for blob, grad in zip(bottom, grads, strict=True):
        if grad is not None:
            blob.fill_diff(grad)


class BlobBackward:
    """``backward(self, top, propagate_down, bottom)``."""

    def __init__(self, fn: Method) -> None:
        self.fn = fn

    def tensors(
        self, layer: Any, grads: Sequence[Any], needs: Sequence[bool]
    ) -> tuple[Any, ...]:
        bottom, top = layer._blobs_seen
        for blob, grad in zip(top, grads, strict=True):
            blob.fill_diff(grad)
        self.blobs(layer, top, needs, bottom)
        pairs = zip(bottom, needs, strict=True)
        return tuple(blob.diff if need else None for blob, need in pairs)

    def blobs(
        self, layer: Any, top: list[Blob], needs: Sequence[bool], bottom: list[Blob]
    ) -> None:
        self.fn(layer, top, list(needs), bottom)


def _arity(fn: Method) -> tuple[int, float]:
    """The least and the most inputs that a method takes after ``self``."""
    given = list(inspect.signature(fn).parameters.values())[1:]
    plain = [p for p in given if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    most = math.inf if any(p.kind is p.VAR_POSITIONAL for p in given) else len(plain)
    return sum(p.default is p.empty for p in plain), most


def _first_name(fn: Method) -> str:
    return [*inspect.signature(fn).parameters, "", ""][1]


def forward_form(fn: Method) -> TensorForward | BlobForward:
    """The form in which a forward is written."""
    return BlobForward(fn) if _first_name(fn) == "bottom" else TensorForward(fn)


def backward_form(fn: Method) -> TensorBackward | BlobBackward:
    """The form in which a backward is written."""
    return BlobBackward(fn) if _first_name(fn) == "top" else TensorBackward(fn)
