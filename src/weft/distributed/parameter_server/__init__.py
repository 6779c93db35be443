"""``weft.distributed.parameter_server``: servers that have the parameters of training.

    weft run -n 4 --servers 2 train.py

Workers push gradients and pull parameters. Each server has a share of the parameters,
moves it with an optimizer of ``weft.optim``, and keeps it on disk: one that is killed
and starts again has lost nothing that it acknowledged.
"""

from weft.distributed.parameter_server.client import Store, connect, get_role, serve
from weft.distributed.parameter_server.training import Embedding, Optimizer

__all__ = ["Embedding", "Optimizer", "Store", "connect", "get_role", "serve"]
