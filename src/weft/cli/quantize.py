"""``weft quantize``: a saved model, with integers for its weights.

The file is one of ``weft.save(model, path)``, of modules that Weft has. A model of
classes of one's own is quantised where these are, by ``weft.quantize``.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import weft
from weft.errors import ArgumentError
from weft.nn.module import Module


def run(options: Any) -> Iterator[str]:
    """Quantise the model of a file into another; gives a line that says so."""
    model = weft.load(options.model, weights_only=False)
    if not isinstance(model, Module):
        raise ArgumentError(
            f"quantize: expected a module in {options.model}, got a "
            f"{type(model).__name__}; weft.save(model, path) writes one, and its "
            "state alone does not say what to compute"
        )
    given: dict[str, Any] = {
        "dynamic": options.dynamic, "weight_only": options.weight_only,
        "skip": options.skip,
    }  # fmt: skip
    if options.data is not None:
        given["data"] = _batches(options.data, options.batch)
        given["observer"] = options.observer
    small = weft.quantize(model, options.to, **given)
    target = options.output or _beside(options.model, options.to)
    weft.save(small, target)
    before, after = (os.path.getsize(path) for path in (options.model, target))
    yield f"{target}: {after:,} bytes, {after / before:.1%} of {before:,}"


def _beside(path: str, to: str) -> str:
    stem, ending = os.path.splitext(path)
    return f"{stem}.{to}{ending or '.pt'}"


def _batches(path: str, size: int) -> list[Any]:
    """The tensor of a file, in batches."""
    found = weft.load(path)
    if isinstance(found, dict) and len(found) == 1:
        (found,) = found.values()
    if not isinstance(found, weft.Tensor) or not found.ndim:
        raise ArgumentError(
            f"quantize: expected one tensor of examples in {path}, got a "
            f"{type(found).__name__}; weft.save(x, path) writes one"
        )
    return list(found.split(size))
