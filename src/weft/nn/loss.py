"""Losses as modules."""

from __future__ import annotations

from weft.nn import functional as F
from weft.nn.functional_module import FunctionalModule


class MSELoss(FunctionalModule):
    """Squared differences.

    >>> weft.nn.MSELoss()(weft.ones(2), weft.zeros(2))
    tensor(1.)
    """

    function = F.mse_loss
    options = {"reduction": "mean"}


class L1Loss(FunctionalModule):
    """Absolute differences."""

    function = F.l1_loss
    options = {"reduction": "mean"}


class SmoothL1Loss(FunctionalModule):
    """Squared below ``beta``, absolute above."""

    function = F.smooth_l1_loss
    options = {"reduction": "mean", "beta": 1.0}


class HuberLoss(FunctionalModule):
    """Squared below ``delta``, linear above."""

    function = F.huber_loss
    options = {"reduction": "mean", "delta": 1.0}


class CrossEntropyLoss(FunctionalModule):
    """Cross-entropy of raw scores with class indices or probabilities.

    >>> weft.nn.CrossEntropyLoss()(weft.zeros(1, 4), weft.tensor([0]))
    tensor(1.3863)
    """

    function = F.cross_entropy
    options = {
        "weight": None, "ignore_index": -100, "reduction": "mean",
        "label_smoothing": 0.0,
    }  # fmt: skip


class NLLLoss(FunctionalModule):
    """The negative log-probability of each target class."""

    function = F.nll_loss
    options = {"weight": None, "ignore_index": -100, "reduction": "mean"}


class BCELoss(FunctionalModule):
    """Cross-entropy of probabilities of two classes."""

    function = F.binary_cross_entropy
    options = {"weight": None, "reduction": "mean"}


class BCEWithLogitsLoss(FunctionalModule):
    """Cross-entropy of raw scores of two classes."""

    function = F.binary_cross_entropy_with_logits
    options = {"weight": None, "reduction": "mean", "pos_weight": None}


class KLDivLoss(FunctionalModule):
    """Kullback-Leibler divergence from log-probabilities."""

    function = F.kl_div
    options = {"reduction": "mean", "log_target": False}


class GaussianNLLLoss(FunctionalModule):
    """The negative log-likelihood of a normal distribution."""

    function = F.gaussian_nll_loss
    options = {"full": False, "eps": 1e-6, "reduction": "mean"}


class PoissonNLLLoss(FunctionalModule):
    """The negative log-likelihood of a Poisson distribution."""

    function = F.poisson_nll_loss
    options = {"log_input": True, "full": False, "eps": 1e-8, "reduction": "mean"}


class HingeEmbeddingLoss(FunctionalModule):
    """``x`` for similar pairs, ``max(0, margin - x)`` for others."""

    function = F.hinge_embedding_loss
    options = {"margin": 1.0, "reduction": "mean"}


class MarginRankingLoss(FunctionalModule):
    """``max(0, -target * (x1 - x2) + margin)``."""

    function = F.margin_ranking_loss
    options = {"margin": 0.0, "reduction": "mean"}


class SoftMarginLoss(FunctionalModule):
    """``log(1 + exp(-target * x))``."""

    function = F.soft_margin_loss
    options = {"reduction": "mean"}


class MultiLabelSoftMarginLoss(FunctionalModule):
    """The mean over classes of binary cross-entropies."""

    function = F.multilabel_soft_margin_loss
    options = {"weight": None, "reduction": "mean"}


class MultiMarginLoss(FunctionalModule):
    """Margins between the target class and every other."""

    function = F.multi_margin_loss
    options = {"p": 1, "margin": 1.0, "weight": None, "reduction": "mean"}


class MultiLabelMarginLoss(FunctionalModule):
    """Margins between every labelled class and every other."""

    function = F.multilabel_margin_loss
    options = {"reduction": "mean"}


class CosineEmbeddingLoss(FunctionalModule):
    """``1 - cos`` for similar pairs, ``max(0, cos - margin)`` for others."""

    function = F.cosine_embedding_loss
    options = {"margin": 0.0, "reduction": "mean"}


class TripletMarginLoss(FunctionalModule):
    """``max(0, d(anchor, positive) - d(anchor, negative) + margin)``."""

    function = F.triplet_margin_loss
    options = {
        "margin": 1.0, "p": 2.0, "eps": 1e-6, "swap": False, "reduction": "mean",
    }  # fmt: skip


class TripletMarginWithDistanceLoss(FunctionalModule):
    """The triplet loss with a given distance function."""

    function = F.triplet_margin_with_distance_loss
    options = {
        "distance_function": None, "margin": 1.0, "swap": False, "reduction": "mean",
    }  # fmt: skip


class CTCLoss(FunctionalModule):
    """Connectionist temporal classification."""

    function = F.ctc_loss
    options = {"blank": 0, "reduction": "mean", "zero_infinity": False}


class CosineSimilarity(FunctionalModule):
    """The cosine of the angle between vectors."""

    function = F.cosine_similarity
    options = {"dim": 1, "eps": 1e-8}


class PairwiseDistance(FunctionalModule):
    """The p-norm of the differences of rows."""

    function = F.pairwise_distance
    options = {"p": 2.0, "eps": 1e-6, "keepdim": False}
