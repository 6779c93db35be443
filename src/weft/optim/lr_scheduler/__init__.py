"""Learning-rate schedules, with PyTorch's names and semantics.

A scheduler changes ``group["lr"]`` of an optimizer's groups. Most compute the
new rate from the present one, so that several can be chained; what they need
to go on after a break is numbers, in ``state_dict``.
"""

from weft.optim.lr_scheduler.base import (
    LRScheduler,
)
from weft.optim.lr_scheduler.combined import (
    ChainedScheduler,
    SequentialLR,
    WarmupLR,
)
from weft.optim.lr_scheduler.curves import (
    ConstantLR,
    CosineAnnealingLR,
    CosineAnnealingWarmRestarts,
    ExponentialLR,
    LambdaLR,
    LinearLR,
    MultiplicativeLR,
    MultiStepLR,
    PolynomialLR,
    StepLR,
)
from weft.optim.lr_scheduler.cycles import (
    CyclicLR,
    OneCycleLR,
)
from weft.optim.lr_scheduler.plateau import (
    ReduceLROnPlateau,
)

_LRScheduler = LRScheduler  # the older name of the base

__all__ = [
    "ChainedScheduler",
    "ConstantLR",
    "CosineAnnealingLR",
    "CosineAnnealingWarmRestarts",
    "CyclicLR",
    "ExponentialLR",
    "LRScheduler",
    "LambdaLR",
    "LinearLR",
    "MultiStepLR",
    "MultiplicativeLR",
    "OneCycleLR",
    "PolynomialLR",
    "ReduceLROnPlateau",
    "SequentialLR",
    "StepLR",
    "WarmupLR",
]
