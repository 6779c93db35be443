"""``weft.utils._foreach_utils``: lists of tensors by device and dtype."""

from __future__ import annotations

from typing import Any

Lists = list[list[Any]]
Groups = dict[tuple[Any, Any], tuple[Lists, list[int]]]


def _group_tensors_by_device_and_dtype(
    tensorlistlist: Lists, with_indices: bool = False
) -> Groups:
    """Parts of lists whose first list has tensors of one device and dtype there.

    >>> x, y = weft.ones(1), weft.ones(2, dtype=weft.float64)
    >>> group = weft.utils._foreach_utils._group_tensors_by_device_and_dtype
    >>> [places for _, places in group([[x, y, x], [x, y, None]], True).values()]
    [[0, 2], [1]]
    """
    found: Groups = {}
    for place, tensors in enumerate(zip(*tensorlistlist, strict=True)):
        first = tensors[0]
        lists, places = found.setdefault(
            (first.device, first.dtype), ([[] for _ in tensors], [])
        )
        for one, tensor in zip(lists, tensors, strict=True):
            one.append(tensor)
        if with_indices:
            places.append(place)
    return found


def _get_foreach_kernels_supported_devices() -> list[str]:
    """The kinds of devices on which all tensors are changed at once."""
    return ["cuda"]


def _get_fused_kernels_supported_devices() -> list[str]:
    """The kinds of devices on which an optimizer's step may be one kernel."""
    return ["cpu", "cuda"]
