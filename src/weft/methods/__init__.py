"""The methods of ``weft.Tensor``.

``Methods`` is what type checkers see as ``Tensor``'s base; when this module is
imported the members of its parts are put on ``Tensor`` itself.
"""

from __future__ import annotations

from weft.core.tensor import Tensor
from weft.methods.casts import Casts
from weft.methods.conversion import Conversion
from weft.methods.functions import Functions
from weft.methods.inplace import InPlace
from weft.methods.inspection import Inspection
from weft.methods.operators import Operators


class Methods(Operators, Functions, InPlace, Inspection, Conversion, Casts):
    """The methods of ``weft.Tensor``."""


def _install() -> None:
    own = ("__module__", "__dict__", "__weakref__", "__doc__", "__qualname__")
    for part in Methods.__bases__:
        for name, value in vars(part).items():
            if name not in own:
                setattr(Tensor, name, value)


_install()
