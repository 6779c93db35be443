"""Boxes of images."""

from __future__ import annotations

from typing import Any

import numpy as np

import weft
from weft import Tensor
from weft.onnx.registry import operator
from weft.onnx.types import number


@operator("NonMaxSuppression", static=(2, 3, 4))
def non_max_suppression(
    boxes: Tensor, scores: Tensor, most: Any = None, overlap: Any = None,
    least: Any = None, *, center_point_box: int = 0,
) -> Tensor:  # fmt: skip
    """The boxes of each class, best first, that overlap no better one much."""
    most, overlap = int(number(most, 0)), number(overlap, 0.0)
    least = number(least, None)
    points = boxes.detach().cpu().numpy().astype(np.float64)
    if center_point_box:
        middle, half = points[..., :2], points[..., 2:] / 2
        low, high = middle - half, middle + half
    else:
        low = np.minimum(points[..., :2], points[..., 2:])
        high = np.maximum(points[..., :2], points[..., 2:])
    areas = (high - low).prod(-1)
    chosen = []
    values = scores.detach().cpu().numpy()
    for batch, classes in enumerate(values):
        for label, row in enumerate(classes):
            order = np.argsort(-row, kind="stable")
            if least is not None:
                order = order[row[order] > least]
            kept = 0
            while len(order) and kept < most:
                best, order = order[0], order[1:]
                chosen.append((batch, label, best))
                kept += 1
                inner = np.minimum(high[batch, best], high[batch, order])
                inner = inner - np.maximum(low[batch, best], low[batch, order])
                shared = np.clip(inner, 0, None).prod(-1)
                union = areas[batch, best] + areas[batch, order] - shared
                with np.errstate(invalid="ignore", divide="ignore"):
                    order = order[~(shared / union > overlap)]
    return weft.tensor(np.array(chosen, np.int64).reshape(-1, 3))


def _lines(
    size: int, start: float, step: float, count: int, samples: int
) -> tuple[np.ndarray, np.ndarray]:
    """Weights (count, samples, size) of the lower and the upper neighbour."""
    at = start + (np.arange(count * samples) + 0.5) * (step / samples)
    low = np.zeros((count * samples, size))
    high = np.zeros_like(low)
    inside = (at >= -1) & (at <= size)
    at = np.clip(at, 0, size - 1)
    floor = np.minimum(np.floor(at).astype(int), size - 1)
    rows = np.arange(len(at))
    low[rows, floor] = np.where(inside, 1 - (at - floor), 0)
    high[rows, np.minimum(floor + 1, size - 1)] = np.where(inside, at - floor, 0)
    shape = (count, samples, size)
    return low.reshape(shape), high.reshape(shape)


@operator("RoiAlign")
def roi_align(
    x: Tensor, rois: Tensor, batch: Tensor, *, mode: str = "avg",
    output_height: int = 1, output_width: int = 1, sampling_ratio: int = 0,
    spatial_scale: float = 1.0, coordinate_transformation_mode: Any = None, opset: int,
) -> Tensor:  # fmt: skip
    """The mean or the largest of samples in the cells of boxes of images."""
    half = coordinate_transformation_mode
    shift = (
        0.5 if (half or ("half_pixel" if opset >= 16 else "")) == "half_pixel" else 0
    )
    size = (output_height, output_width)
    out = []
    for box, image in zip(rois.tolist(), batch.tolist(), strict=True):
        ends = np.array(box) * spatial_scale - shift  # x1, y1, x2, y2
        spans = (ends[3] - ends[1], ends[2] - ends[0])
        if not shift:
            spans = tuple(max(s, 1.0) for s in spans)
        terms = []
        for start, span, count, n in zip(
            (ends[1], ends[0]), spans, size, x.shape[2:], strict=True
        ):
            samples = sampling_ratio or max(1, int(np.ceil(span / count)))
            lines = _lines(n, start, span / count, count, samples)
            terms.append([weft.tensor(w).to(x.dtype) for w in lines])
        rows, columns = terms
        if mode == "avg":
            y, z = rows[0] + rows[1], columns[0] + columns[1]
            out.append(weft.einsum("chw,ash,btw->cab", x[image], y, z)
                       / (y.shape[1] * z.shape[1]))  # fmt: skip
            continue
        parts = [
            weft.einsum("chw,ash,btw->casbt", x[image], y, z)
            for y in rows for z in columns
        ]  # fmt: skip
        best = parts[0]
        for part in parts[1:]:
            best = weft.maximum(best, part)
        out.append(weft.amax(best, (2, 4)))
    if not out:
        return weft.zeros((0, x.shape[1], *size), dtype=x.dtype)
    return weft.stack(out)
