"""Losses as modules."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

from weft import Tensor
from weft.nn import functional as F
from weft.nn.functional.loss import old_reduction, with_old_options
from weft.nn.functional_module import FunctionalModule
from weft.nn.linear import Linear
from weft.nn.module import Module


class _Loss(FunctionalModule):
    """The base of losses, which take ``size_average`` and ``reduce`` as well."""

    options = {"size_average": None, "reduce": None, "reduction": "mean"}
    size_average_before = "reduction"
    shows = ""  # its name says enough

    def __init_subclass__(cls, old: bool = True, **kwargs: Any) -> None:
        if "options" in cls.__dict__ and old:
            names = with_old_options(list(cls.options), cls.size_average_before)
            cls.options = {name: cls.options.get(name) for name in names}
        super().__init_subclass__(**kwargs)

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        fields = self.__dict__
        old = fields.pop("size_average", None), fields.pop("reduce", None)
        if old != (None, None):
            self.reduction = old_reduction(*old)

    def chosen(self) -> dict[str, Any]:
        own = (name for name in self.options if name not in ("size_average", "reduce"))
        return {name: getattr(self, name) for name in own}


class _WeightedLoss(_Loss):
    """The base of losses with a weight of each class or element."""

    options = {"weight": None, "reduction": "mean"}


class MSELoss(_Loss):
    """Squared differences.

    >>> weft.nn.MSELoss()(weft.ones(2), weft.zeros(2))
    tensor(1.)
    """

    function = F.mse_loss
    options = {"reduction": "mean"}


class L1Loss(_Loss):
    """Absolute differences."""

    function = F.l1_loss
    options = {"reduction": "mean"}


class SmoothL1Loss(_Loss):
    """Squared below ``beta``, absolute above."""

    function = F.smooth_l1_loss
    options = {"reduction": "mean", "beta": 1.0}


class HuberLoss(_Loss, old=False):
    """Squared below ``delta``, linear above."""

    function = F.huber_loss
    options = {"reduction": "mean", "delta": 1.0}


class CrossEntropyLoss(_WeightedLoss):
    """Cross-entropy of raw scores with class indices or probabilities.

    >>> weft.nn.CrossEntropyLoss()(weft.zeros(1, 4), weft.tensor([0]))
    tensor(1.3863)
    """

    function = F.cross_entropy
    size_average_before = "ignore_index"
    options = {
        "weight": None, "ignore_index": -100, "reduction": "mean",
        "label_smoothing": 0.0,
    }  # fmt: skip


class NLLLoss(_WeightedLoss):
    """The negative log-probability of each target class."""

    function = F.nll_loss
    size_average_before = "ignore_index"
    options = {"weight": None, "ignore_index": -100, "reduction": "mean"}


class BCELoss(_WeightedLoss):
    """Cross-entropy of probabilities of two classes."""

    function = F.binary_cross_entropy
    options = {"weight": None, "reduction": "mean"}


class BCEWithLogitsLoss(_Loss):
    """Cross-entropy of raw scores of two classes."""

    function = F.binary_cross_entropy_with_logits
    options = {"weight": None, "reduction": "mean", "pos_weight": None}


class KLDivLoss(_Loss):
    """Kullback-Leibler divergence from log-probabilities."""

    function = F.kl_div
    options = {"reduction": "mean", "log_target": False}


class GaussianNLLLoss(_Loss, old=False):
    """The negative log-likelihood of a normal distribution."""

    function = F.gaussian_nll_loss
    options = {"full": False, "eps": 1e-6, "reduction": "mean"}


class PoissonNLLLoss(_Loss):
    """The negative log-likelihood of a Poisson distribution."""

    function = F.poisson_nll_loss
    size_average_before = "eps"
    options = {"log_input": True, "full": False, "eps": 1e-8, "reduction": "mean"}


class HingeEmbeddingLoss(_Loss):
    """``x`` for similar pairs, ``max(0, margin - x)`` for others."""

    function = F.hinge_embedding_loss
    options = {"margin": 1.0, "reduction": "mean"}


class MarginRankingLoss(_Loss):
    """``max(0, -target * (x1 - x2) + margin)``."""

    function = F.margin_ranking_loss
    options = {"margin": 0.0, "reduction": "mean"}


class SoftMarginLoss(_Loss):
    """``log(1 + exp(-target * x))``."""

    function = F.soft_margin_loss
    options = {"reduction": "mean"}


class MultiLabelSoftMarginLoss(_WeightedLoss):
    """The mean over classes of binary cross-entropies."""

    function = F.multilabel_soft_margin_loss
    options = {"weight": None, "reduction": "mean"}


class MultiMarginLoss(_WeightedLoss):
    """Margins between the target class and every other."""

    function = F.multi_margin_loss
    options = {"p": 1, "margin": 1.0, "weight": None, "reduction": "mean"}


class MultiLabelMarginLoss(_Loss):
    """Margins between every labelled class and every other."""

    function = F.multilabel_margin_loss
    options = {"reduction": "mean"}


class CosineEmbeddingLoss(_Loss):
    """``1 - cos`` for similar pairs, ``max(0, cos - margin)`` for others."""

    function = F.cosine_embedding_loss
    options = {"margin": 0.0, "reduction": "mean"}


class TripletMarginLoss(_Loss):
    """``max(0, d(anchor, positive) - d(anchor, negative) + margin)``."""

    function = F.triplet_margin_loss
    options = {
        "margin": 1.0, "p": 2.0, "eps": 1e-6, "swap": False, "reduction": "mean",
    }  # fmt: skip


class TripletMarginWithDistanceLoss(_Loss, old=False):
    """The triplet loss with a given distance function."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        if self.distance_function is None:
            self.distance_function = PairwiseDistance()

    function = F.triplet_margin_with_distance_loss
    options = {
        "distance_function": None, "margin": 1.0, "swap": False, "reduction": "mean",
    }  # fmt: skip


class CTCLoss(_Loss, old=False):
    """Connectionist temporal classification."""

    function = F.ctc_loss
    options = {"blank": 0, "reduction": "mean", "zero_infinity": False}


class CosineSimilarity(FunctionalModule):
    """The cosine of the angle between vectors."""

    function = F.cosine_similarity
    options = {"dim": 1, "eps": 1e-8}
    shows = ""


class PairwiseDistance(FunctionalModule):
    """The p-norm of the differences of rows."""

    function = F.pairwise_distance
    options = {"p": 2.0, "eps": 1e-6, "keepdim": False}
    shows = ""


class NLLLoss2d(NLLLoss):
    """``NLLLoss`` under its older name."""


@dataclasses.dataclass(frozen=True)
class LinearCrossEntropyOptions:
    """How PyTorch divides ``linear_cross_entropy``: results do not depend on it.

    Here scores are computed at once, and compiled programs fuse the rest.
    """

    allow_retain_graph: bool = False
    batch_chunk_size: int | None = None
    chunking_method: str | None = "auto"
    acc_policy: str = "auto"
    acc_dtype: Any = None


class LinearCrossEntropyLoss(Module):
    """A linear layer and the cross-entropy of its scores.

    >>> loss = weft.nn.LinearCrossEntropyLoss(8, 10)
    >>> loss(weft.zeros(2, 8), weft.tensor([1, 2]))
    tensor(2.3026, dtype=float32, grad_fn=<cross_entropy>)
    """

    def __init__(
        self,
        in_features: int,
        num_classes: int,
        *,
        out_features: tuple[int, ...] = (),
        bias: bool = False,
        device: Any = None,
        dtype: Any = None,
        reduction: str = "mean",
        weight: Tensor | None = None,
        ignore_index: int | None = None,
        label_smoothing: float = 0.0,
        options: LinearCrossEntropyOptions | None = None,
    ) -> None:
        super().__init__()
        self.register_buffer("weight", weight)
        self.reduction, self.num_classes = reduction, num_classes
        self.out_features, self.ignore_index = out_features, ignore_index
        self.label_smoothing, self.options = label_smoothing, options
        count = math.prod(out_features, start=num_classes)
        self.linear = Linear(in_features, count, bias=bias, device=device, dtype=dtype)

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        shape = (self.num_classes, *self.out_features)
        bias = self.linear.bias
        return F.linear_cross_entropy(
            input, self.linear.weight.reshape(*shape, -1), target,
            linear_bias=None if bias is None else bias.reshape(shape),
            weight=self.weight, reduction=self.reduction,
            ignore_index=self.ignore_index, label_smoothing=self.label_smoothing,
            options=self.options,
        )  # fmt: skip

    def extra_repr(self) -> str:
        return (
            f"in_features={self.linear.in_features}, num_classes={self.num_classes}, "
            f"out_features={self.out_features}, bias={self.linear.bias is not None}, "
            f"reduction={self.reduction}, ignore_index={self.ignore_index}, "
            f"label_smoothing={self.label_smoothing}, options={self.options}"
        )
