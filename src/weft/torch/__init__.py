"""``import torch`` as Weft: unchanged PyTorch programs run here.

``install`` puts a finder in front of Python's own, so that ``import torch``,
``from torch.nn.modules.conv import Conv2d`` and ``import torchvision`` give Weft's
modules in this process. ``weft run script.py`` does this for a whole program
(``docs/pytorch.md``).

>>> weft.torch.install()
>>> import torch.nn.functional as F
>>> F.relu is weft.nn.functional.relu
True
>>> weft.torch.uninstall()
"""

from weft.torch.alias import install, installed, uninstall
from weft.torch.version import VERSION, TorchVersion

__all__ = ["VERSION", "TorchVersion", "install", "installed", "uninstall"]
