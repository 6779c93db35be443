"""Optimizers, learning-rate schedules and weight averaging: ``weft.optim``."""

from weft.optim import lr_scheduler, swa_utils
from weft.optim.adagrad import Adadelta, Adagrad, RMSprop
from weft.optim.adam import Adam, Adamax, AdamW, NAdam, RAdam
from weft.optim.lbfgs import LBFGS
from weft.optim.matrices import Adafactor, Muon, SparseAdam
from weft.optim.optimizer import Optimizer
from weft.optim.rprop import ASGD, Rprop
from weft.optim.sgd import SGD, Lion

__all__ = [
    "ASGD",
    "LBFGS",
    "SGD",
    "Adadelta",
    "Adafactor",
    "Adagrad",
    "Adam",
    "AdamW",
    "Adamax",
    "Lion",
    "Muon",
    "NAdam",
    "Optimizer",
    "RAdam",
    "RMSprop",
    "Rprop",
    "SparseAdam",
    "lr_scheduler",
    "swa_utils",
]
