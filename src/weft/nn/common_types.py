"""Types of sizes, under PyTorch's names: ``_size_2_t`` is one number or two."""

from __future__ import annotations

from typing import Any

from weft import Tensor

_scalar_or_tuple_any_t = Any
_scalar_or_tuple_1_t = _size_1_t = int | tuple[int]
_scalar_or_tuple_2_t = _size_2_t = int | tuple[int, int]
_scalar_or_tuple_3_t = _size_3_t = int | tuple[int, int, int]
_scalar_or_tuple_4_t = _size_4_t = int | tuple[int, int, int, int]
_scalar_or_tuple_5_t = _size_5_t = int | tuple[int, int, int, int, int]
_scalar_or_tuple_6_t = _size_6_t = int | tuple[int, int, int, int, int, int]
_size_any_t = int | tuple[int, ...]
_size_any_opt_t = int | tuple[int | None, ...]
_size_2_opt_t = int | tuple[int | None, int | None]
_size_3_opt_t = int | tuple[int | None, int | None, int | None]
_ratio_2_t = _ratio_3_t = _ratio_any_t = float | tuple[float, ...]
_tensor_list_t = Tensor | list[Tensor]
_maybe_indices_t = Tensor | tuple[Tensor, Tensor]
