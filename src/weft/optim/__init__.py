"""Optimizers, learning-rate schedules and weight averaging: ``weft.optim``."""

from weft.optim import lr_scheduler, swa_utils
from weft.optim.adagrad import Adadelta, Adagrad, RMSprop
from weft.optim.adam import Adam, Adamax, AdamW, NAdam, RAdam
from weft.optim.lbfgs import LBFGS
from weft.optim.optimizer import Optimizer
from weft.optim.sgd import SGD, Lion

__all__ = [
    "LBFGS",
    "SGD",
    "Adadelta",
    "Adagrad",
    "Adam",
    "AdamW",
    "Adamax",
    "Lion",
    "NAdam",
    "Optimizer",
    "RAdam",
    "RMSprop",
    "lr_scheduler",
    "swa_utils",
]
