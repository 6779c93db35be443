"""``weft.vision.ops``: boxes, and small layers of detection models."""

from __future__ import annotations

import math

import numpy as np

from weft import nn
from weft.core.tensor import Tensor
from weft.nn import functional as F
from weft.ops.creation import tensor
from weft.ops.joining import stack
from weft.ops.select import maximum, minimum
from weft.vision.ops.misc import FrozenBatchNorm2d

__all__ = [
    "FrozenBatchNorm2d",
    "StochasticDepth",
    "batched_nms",
    "box_area",
    "box_convert",
    "box_iou",
    "clip_boxes_to_image",
    "complete_box_iou",
    "distance_box_iou",
    "generalized_box_iou",
    "nms",
    "remove_small_boxes",
    "sigmoid_focal_loss",
    "stochastic_depth",
]


def box_area(boxes: Tensor) -> Tensor:
    """The areas of boxes (N, 4) with corners x1, y1, x2, y2.

    >>> weft.vision.ops.box_area(weft.tensor([[0.0, 0.0, 2.0, 3.0]])).item()
    6.0
    """
    return (boxes[:, 2] - boxes[:, 0]) * (boxes[:, 3] - boxes[:, 1])


def box_iou(boxes1: Tensor, boxes2: Tensor) -> Tensor:
    """The overlap of all pairs (N, M): intersections over unions.

    >>> box = weft.tensor([[0.0, 0.0, 2.0, 2.0]])
    >>> round(weft.vision.ops.box_iou(box, box + 1).item(), 4)
    0.1429
    """
    low = maximum(boxes1[:, None, :2], boxes2[:, :2])  # (N, M, 2)
    high = minimum(boxes1[:, None, 2:], boxes2[:, 2:])
    inner = (high - low).clamp(min=0).prod(2)
    return inner / (box_area(boxes1)[:, None] + box_area(boxes2) - inner)


def _unions(boxes1: Tensor, boxes2: Tensor) -> tuple[Tensor, ...]:
    """For each pair: the quotient, the union, and corners of the box around both."""
    low = maximum(boxes1[:, None, :2], boxes2[:, :2])
    high = minimum(boxes1[:, None, 2:], boxes2[:, 2:])
    inside = (high - low).clamp(min=0).prod(-1)
    union = box_area(boxes1)[:, None] + box_area(boxes2) - inside
    around_low = minimum(boxes1[:, None, :2], boxes2[:, :2])
    around_high = maximum(boxes1[:, None, 2:], boxes2[:, 2:])
    return inside / union, union, around_low, around_high


def generalized_box_iou(boxes1: Tensor, boxes2: Tensor) -> Tensor:
    """``box_iou`` less the share of the box around both that neither covers.

    >>> a = weft.tensor([[0.0, 0.0, 1.0, 1.0]])
    >>> weft.vision.ops.generalized_box_iou(a, a + 1)
    tensor([[-0.5000]])
    """
    iou, union, low, high = _unions(boxes1, boxes2)
    around = (high - low).clamp(min=0).prod(-1)
    return iou - (around - union) / around


def distance_box_iou(boxes1: Tensor, boxes2: Tensor, eps: float = 1e-7) -> Tensor:
    """``box_iou`` less the squared distance of centers, by the diagonal around both.

    >>> a = weft.tensor([[0.0, 0.0, 1.0, 1.0]])
    >>> weft.vision.ops.distance_box_iou(a, a + 1)
    tensor([[-0.2500]])
    """
    iou, _, low, high = _unions(boxes1, boxes2)
    diagonal = (high - low).clamp(min=0).square().sum(-1) + eps
    centers = [(boxes[:, :2] + boxes[:, 2:]) / 2 for boxes in (boxes1, boxes2)]
    apart = (centers[0][:, None] - centers[1]).square().sum(-1)
    return iou - apart / diagonal


def complete_box_iou(boxes1: Tensor, boxes2: Tensor, eps: float = 1e-7) -> Tensor:
    """``distance_box_iou`` less a penalty of different proportions.

    >>> a = weft.tensor([[0.0, 0.0, 1.0, 1.0]])
    >>> weft.vision.ops.complete_box_iou(a, a + 1)
    tensor([[-0.2500]])
    """
    iou = _unions(boxes1, boxes2)[0]
    angles = [
        ((boxes[:, 2] - boxes[:, 0]) / (boxes[:, 3] - boxes[:, 1])).atan()
        for boxes in (boxes1, boxes2)
    ]
    unlike = 4 / math.pi**2 * (angles[0][:, None] - angles[1]).square()
    weight = (unlike / (1 - iou + unlike + eps)).detach()
    return distance_box_iou(boxes1, boxes2, eps) - weight * unlike


def nms(boxes: Tensor, scores: Tensor, iou_threshold: float) -> Tensor:
    """The boxes that no better box overlaps by more, best first, by their numbers.

    >>> boxes = weft.tensor([[0.0, 0, 2, 2], [0, 0, 2, 2.1], [5, 5, 6, 6]])
    >>> weft.vision.ops.nms(boxes, weft.tensor([0.8, 0.9, 0.5]), 0.5).tolist()
    [1, 2]
    """
    overlap = box_iou(boxes, boxes).detach().numpy() > iou_threshold
    order = np.argsort(-scores.detach().numpy(), kind="stable")
    gone = np.zeros(len(order), bool)
    kept = []
    for k in order:
        if not gone[k]:
            kept.append(k)
            gone |= overlap[k]
    return tensor(np.array(kept, np.int64))


def batched_nms(
    boxes: Tensor, scores: Tensor, idxs: Tensor, iou_threshold: float
) -> Tensor:
    """``nms`` among the boxes of each class.

    >>> boxes = weft.tensor([[0.0, 0, 2, 2], [0, 0, 2, 2.1]])
    >>> scores, kinds = weft.tensor([0.8, 0.9]), weft.tensor([0, 1])
    >>> weft.vision.ops.batched_nms(boxes, scores, kinds, 0.5).tolist()
    [1, 0]
    """
    if boxes.numel() == 0:
        return tensor(np.zeros(0, np.int64))
    apart = idxs.to(boxes.dtype) * (boxes.max() + 1)
    return nms(boxes + apart[:, None], scores, iou_threshold)


def box_convert(boxes: Tensor, in_fmt: str, out_fmt: str) -> Tensor:
    """Boxes in another form: xyxy, xywh or cxcywh.

    >>> box = weft.tensor([[1.0, 1.0, 2.0, 4.0]])
    >>> weft.vision.ops.box_convert(box, "xywh", "cxcywh").tolist()
    [[2.0, 3.0, 2.0, 4.0]]
    """
    forms = ("xyxy", "xywh", "cxcywh")
    if in_fmt not in forms or out_fmt not in forms:
        raise ValueError(
            f"box_convert: expected forms of {forms}, got {in_fmt, out_fmt}"
        )
    a, b, c, d = boxes.unbind(-1)
    if in_fmt == "xywh":
        c, d = a + c, b + d
    elif in_fmt == "cxcywh":
        a, b, c, d = a - c / 2, b - d / 2, a + c / 2, b + d / 2
    if out_fmt == "xywh":
        c, d = c - a, d - b
    elif out_fmt == "cxcywh":
        a, b, c, d = (a + c) / 2, (b + d) / 2, c - a, d - b
    return stack([a, b, c, d], dim=-1)


def clip_boxes_to_image(boxes: Tensor, size: tuple[int, int]) -> Tensor:
    """Boxes whose corners are inside a picture (height, width).

    >>> box = weft.tensor([[-1.0, 0.0, 9.0, 4.0]])
    >>> weft.vision.ops.clip_boxes_to_image(box, (3, 5)).tolist()
    [[0.0, 0.0, 5.0, 3.0]]
    """
    x = boxes[..., 0::2].clamp(0, size[1])
    y = boxes[..., 1::2].clamp(0, size[0])
    return stack([x, y], dim=-1).flatten(-2)


def remove_small_boxes(boxes: Tensor, min_size: float) -> Tensor:
    """The numbers of boxes with sides of at least a size.

    >>> boxes = weft.tensor([[0.0, 0, 2, 2], [0, 0, 1, 2]])
    >>> weft.vision.ops.remove_small_boxes(boxes, 2).tolist()
    [0]
    """
    wide = boxes[:, 2] - boxes[:, 0] >= min_size
    tall = boxes[:, 3] - boxes[:, 1] >= min_size
    return (wide & tall).nonzero()[:, 0]


def sigmoid_focal_loss(
    inputs: Tensor, targets: Tensor, alpha: float = 0.25, gamma: float = 2,
    reduction: str = "none",
) -> Tensor:  # fmt: skip
    """Binary cross entropy that gives hard examples more weight (Lin et al., 2017).

    >>> logits, truth = weft.zeros(1), weft.ones(1)
    >>> round(weft.vision.ops.sigmoid_focal_loss(logits, truth).item(), 4)
    0.0433
    """
    p = inputs.sigmoid()
    cross = F.binary_cross_entropy_with_logits(inputs, targets, reduction="none")
    right = p * targets + (1 - p) * (1 - targets)
    loss = cross * (1 - right) ** gamma
    if alpha >= 0:
        loss = loss * (alpha * targets + (1 - alpha) * (1 - targets))
    if reduction not in ("none", "mean", "sum"):
        raise ValueError(
            f"expected reduction 'none', 'mean' or 'sum', got {reduction!r}"
        )
    return loss if reduction == "none" else getattr(loss, reduction)()


def stochastic_depth(
    input: Tensor, p: float, mode: str, training: bool = True
) -> Tensor:
    """A residual branch that is dropped for the batch, or for each row of it.

    >>> weft.vision.ops.stochastic_depth(weft.ones(2, 1), 0.5, "row", False).tolist()
    [[1.0], [1.0]]
    """
    if not 0 <= p <= 1 or mode not in ("batch", "row"):
        raise ValueError(f"stochastic_depth: expected p in [0, 1], got {p}, {mode!r}")
    if not training or p == 0:
        return input
    count = input.shape[0] if mode == "row" else 1
    shape = (count,) + (1,) * (input.ndim - 1)
    kept = input.new_empty(shape).bernoulli_(1 - p)
    return input * (kept / (1 - p) if p < 1 else kept)


class StochasticDepth(nn.Module):
    """``stochastic_depth`` as a module."""

    def __init__(self, p: float, mode: str) -> None:
        super().__init__()
        self.p, self.mode = p, mode

    def forward(self, input: Tensor) -> Tensor:
        return stochastic_depth(input, self.p, self.mode, self.training)
