"""Models, each short enough to read in one sitting: ``weft.models``."""

from weft.models.generative import Autoencoder, Discriminator, Generator
from weft.models.gpt import GPT
from weft.models.graph import GCN, normalized_adjacency
from weft.models.lenet import LeNet
from weft.models.mlp import MLP
from weft.models.resnet import ResNet, resnet18, resnet34, resnet50
from weft.models.sequence import CharLSTM, EncoderClassifier
from weft.models.vgg import VGG

__all__ = [
    "GCN",
    "GPT",
    "MLP",
    "VGG",
    "Autoencoder",
    "CharLSTM",
    "Discriminator",
    "EncoderClassifier",
    "Generator",
    "LeNet",
    "ResNet",
    "normalized_adjacency",
    "resnet18",
    "resnet34",
    "resnet50",
]
