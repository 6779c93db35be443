"""NumPy's ufuncs of tensors: the functions that are declared to answer them."""

from __future__ import annotations

from typing import Any

from weft.core.tensor import Tensor
from weft.ops.public import UFUNCS

_PLAIN = (int, float)


def plain_call(ufunc: Any, args: tuple[Any, ...]) -> Any:
    """A ufunc of tensors and Python numbers; None where it takes more than that.

    >>> weft.ufuncs.plain_call(np.sqrt, (weft.tensor([4.0, 9.0]),))
    tensor([2., 3.], shape=(2,), dtype=float32)
    """
    name = UFUNCS.get(ufunc)
    if name is None:
        return None
    for a in args:
        if not isinstance(a, Tensor) and type(a) not in _PLAIN:
            return None
    import weft

    return getattr(weft, name)(*args)
