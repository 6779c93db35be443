"""The name of the library in texts: ``weft``, or ``torch`` where programs say so.

Programs read texts such as ``str(x.dtype)``. While ``import torch`` means Weft
(``weft.torch.install``), these texts are PyTorch's.
"""

from __future__ import annotations

_current = "weft"


def library() -> str:
    """The name that programs know this library by.

    >>> weft.naming.library()
    'weft'
    """
    return _current


def is_torch() -> bool:
    """Whether texts are PyTorch's, because ``import torch`` means Weft here.

    >>> weft.naming.is_torch()
    False
    """
    return _current == "torch"


def rename(name: str) -> None:
    """Write texts under another name from now on.

    >>> weft.naming.rename("torch")
    >>> weft.float32, weft.zeros(2, 3).shape
    (torch.float32, torch.Size([2, 3]))
    >>> weft.naming.rename("weft")
    """
    global _current
    _current = name
