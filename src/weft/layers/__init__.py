"""The first generation: layers with hand-written forward and backward.

``Layer`` is Caffe's and tinynn's unit in one: written in either form, called in
either, and callable from any tensor program. ``Net`` runs layers, ``Model`` (tinynn)
and ``Solver`` (Caffe) train them, and a net can be read from a text and printed.
"""

from weft.layers.activation import (
    Activation,
    LeakyReLU,
    ReLU,
    Sigmoid,
    Softmax,
    Softplus,
    TanH,
    Tanh,
)
from weft.layers.blob import Blob
from weft.layers.conv import Conv2D, Convolution, ConvTranspose2D, Deconvolution
from weft.layers.layer import Layer
from weft.layers.linear import RNN, Dense, Flatten, InnerProduct
from weft.layers.loss import (
    Accuracy,
    EuclideanLoss,
    HuberLoss,
    Loss,
    MAELoss,
    MSELoss,
    SigmoidCrossEntropy,
    SoftmaxCrossEntropy,
    SoftmaxWithLoss,
)
from weft.layers.merging import Concat, Eltwise
from weft.layers.model import Model
from weft.layers.net import Net
from weft.layers.optimizer import (
    SGD,
    Adadelta,
    Adagrad,
    Adam,
    Momentum,
    Optimizer,
    RAdam,
    RMSProp,
)
from weft.layers.pooling import AvgPool2D, MaxPool2D, Pooling
from weft.layers.registry import find_type, known_types, register, unregister
from weft.layers.regular import BatchNorm, Dropout
from weft.layers.solver import Solver
from weft.layers.wiring import Place

__all__ = [
    "RNN",
    "SGD",
    "Accuracy",
    "Activation",
    "Adadelta",
    "Adagrad",
    "Adam",
    "AvgPool2D",
    "BatchNorm",
    "Blob",
    "Concat",
    "Conv2D",
    "ConvTranspose2D",
    "Convolution",
    "Deconvolution",
    "Dense",
    "Dropout",
    "Eltwise",
    "EuclideanLoss",
    "Flatten",
    "HuberLoss",
    "InnerProduct",
    "Layer",
    "LeakyReLU",
    "Loss",
    "MAELoss",
    "MSELoss",
    "MaxPool2D",
    "Model",
    "Momentum",
    "Net",
    "Optimizer",
    "Place",
    "Pooling",
    "RAdam",
    "RMSProp",
    "ReLU",
    "Sigmoid",
    "SigmoidCrossEntropy",
    "Softmax",
    "SoftmaxCrossEntropy",
    "SoftmaxWithLoss",
    "Softplus",
    "Solver",
    "TanH",
    "Tanh",
    "find_type",
    "known_types",
    "register",
    "unregister",
]
