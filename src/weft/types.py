"""``weft.types``: types for annotations, under PyTorch's names."""

from __future__ import annotations

import builtins
import os
from typing import IO, Any, TypeAlias

from weft.core.device import Device as _Device
from weft.core.tensor import Tensor
from weft.dtype import DType

Number: TypeAlias = builtins.int | builtins.float | builtins.bool
Device: TypeAlias = _Device | str | builtins.int | None
FileLike: TypeAlias = str | os.PathLike[str] | IO[bytes]
_TensorOrTensors: TypeAlias = Tensor | tuple[Tensor, ...]
_dtype: TypeAlias = DType
_device: TypeAlias = _Device
_size: TypeAlias = tuple[builtins.int, ...] | list[builtins.int]
_int, _float, _bool, _complex = (
    builtins.int,
    builtins.float,
    builtins.bool,
    builtins.complex,
)
Storage: TypeAlias = Any
