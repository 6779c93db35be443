"""Losses: a value, and its gradient with respect to the prediction.

Each is a layer of two inputs as well: ``forward(prediction, target)``, then
``backward()``.
"""

from __future__ import annotations

from typing import Any

import weft
from weft.core.tensor import Tensor
from weft.errors import ShapeError
from weft.layers.layer import Layer
from weft.layers.registry import register
from weft.nn import functional as F


class Loss(Layer):
    """The base of losses: write ``loss`` and ``grad``.

    ``loss_weight`` scales both where the loss is a layer of a net.

    >>> mse = weft.layers.MSELoss()
    >>> mse.grad(weft.tensor([3.0, 1.0]), weft.tensor([1.0, 1.0]))
    tensor([2., 0.])
    """

    def __init__(self, loss_weight: float = 1.0, *, name: str | None = None) -> None:
        super().__init__(name)
        self.loss_weight = loss_weight

    def loss(self, predicted: Tensor, actual: Tensor) -> Tensor:
        """The loss of a prediction: a 0-d tensor."""
        raise NotImplementedError(f"{type(self).__name__} has no loss")

    def grad(self, predicted: Tensor, actual: Tensor) -> Tensor:
        """The loss's gradient with respect to the prediction."""
        raise NotImplementedError(f"{type(self).__name__} has no grad")

    def forward(self, predicted: Tensor, actual: Tensor) -> Tensor:
        self.predicted, self.actual = predicted, actual
        value = self.loss(predicted, actual)
        return value if self.loss_weight == 1 else value * self.loss_weight

    def backward(self, grad: Any = 1.0, propagate_down: Any = (True, False)) -> Any:
        if not propagate_down[0]:
            return None
        slope = self.grad(self.predicted, self.actual)
        return slope * (grad * self.loss_weight)


@register
class MSELoss(Loss):
    """The mean of squared differences.

    >>> weft.layers.MSELoss().loss(weft.tensor([3.0, 1.0]), weft.tensor([1.0, 1.0]))
    tensor(2.)
    """

    def loss(self, predicted: Tensor, actual: Tensor) -> Tensor:
        return F.mse_loss(predicted, actual)

    def grad(self, predicted: Tensor, actual: Tensor) -> Tensor:
        return 2 * (predicted - actual) / actual.numel()


@register
class EuclideanLoss(Loss):
    """Caffe's: half the squared distance, a mean over the batch.

    >>> loss = weft.layers.EuclideanLoss()
    >>> loss.loss(weft.tensor([[3.0, 1.0]]), weft.tensor([[1.0, 1.0]]))
    tensor(2.)
    """

    def loss(self, predicted: Tensor, actual: Tensor) -> Tensor:
        return F.mse_loss(predicted, actual, "sum") / (2 * predicted.shape[0])

    def grad(self, predicted: Tensor, actual: Tensor) -> Tensor:
        return (predicted - actual) / predicted.shape[0]


@register
class MAELoss(Loss):
    """The mean of absolute differences.

    >>> weft.layers.MAELoss().loss(weft.tensor([3.0, 1.0]), weft.tensor([1.0, 1.0]))
    tensor(1.)
    """

    def loss(self, predicted: Tensor, actual: Tensor) -> Tensor:
        return F.l1_loss(predicted, actual)

    def grad(self, predicted: Tensor, actual: Tensor) -> Tensor:
        return (predicted - actual).sign() / actual.numel()


@register
class HuberLoss(Loss):
    """Half the square of differences below ``delta``, linear above it.

    >>> weft.layers.HuberLoss().loss(weft.tensor([3.0]), weft.tensor([1.0]))
    tensor(1.5000)
    """

    def __init__(
        self, delta: float = 1.0, loss_weight: float = 1.0, *, name: str | None = None
    ) -> None:
        super().__init__(loss_weight, name=name)
        self.delta = delta

    def loss(self, predicted: Tensor, actual: Tensor) -> Tensor:
        return F.huber_loss(predicted, actual, delta=self.delta)

    def grad(self, predicted: Tensor, actual: Tensor) -> Tensor:
        off = predicted - actual
        return off.clamp(-self.delta, self.delta) / actual.numel()


@register(block="loss_param")
class SoftmaxCrossEntropy(Loss):
    """Cross-entropy of raw scores (N, C) with classes (N,) or probabilities (N, C).

    Classes may be stored as floating-point numbers, as Caffe stores them.

    >>> loss = weft.layers.SoftmaxCrossEntropy()
    >>> loss.loss(weft.zeros(1, 4), weft.tensor([2]))
    tensor(1.3863)
    """

    def loss(self, predicted: Tensor, actual: Tensor) -> Tensor:
        return F.cross_entropy(predicted, self._target(predicted, actual))

    def grad(self, predicted: Tensor, actual: Tensor) -> Tensor:
        target = self._target(predicted, actual)
        count = predicted.numel() // predicted.shape[1]
        p = weft.softmax(predicted, 1)
        if target.shape != predicted.shape:
            hot = F.one_hot(target, predicted.shape[1])  # (N, ..., C)
            return (p - hot.movedim(-1, 1).to(p.dtype)) / count
        return (p * target.sum(1, keepdim=True) - target) / count

    def _target(self, predicted: Tensor, actual: Tensor) -> Tensor:
        if predicted.ndim < 2:
            raise ShapeError(
                f"{self._title}: expected scores (N, classes), got {predicted.shape}"
            )
        if actual.shape == predicted.shape:
            return actual.to(predicted.dtype)
        return actual.long() if actual.dtype.is_floating_point else actual


@register(block="loss_param")
class SoftmaxWithLoss(SoftmaxCrossEntropy):
    """``SoftmaxCrossEntropy`` under Caffe's name."""


@register(block="loss_param")
class SigmoidCrossEntropy(Loss):
    """Binary cross-entropy of raw scores.

    >>> weft.layers.SigmoidCrossEntropy().loss(weft.zeros(1), weft.ones(1))
    tensor(0.6931)
    """

    def loss(self, predicted: Tensor, actual: Tensor) -> Tensor:
        return F.binary_cross_entropy_with_logits(predicted, actual)

    def grad(self, predicted: Tensor, actual: Tensor) -> Tensor:
        return (predicted.sigmoid() - actual) / actual.numel()


@register(block="accuracy_param")
class Accuracy(Layer):
    """The share of rows whose largest score is the given class; has no gradient.

    >>> scores = weft.tensor([[0.1, 0.9], [0.8, 0.2]])
    >>> weft.layers.Accuracy().forward(scores, weft.tensor([1, 1]))
    tensor(0.5000)
    """

    def forward(self, scores: Tensor, classes: Tensor) -> Tensor:
        return (scores.argmax(1) == classes.long()).to(scores.dtype).mean()

    def backward(self, grad: Tensor) -> Any:
        return None
