"""Connectionist temporal classification: the loss of label sequences without places.

Labels are sparse tensors (batch, position), as TensorFlow 1 has them, and the blank is
the last class. A row with more labels than steps cannot be aligned: its loss is
infinite.
"""

from __future__ import annotations

from typing import Any

import weft
from weft.errors import ShapeError
from weft.nn.functional.ctc import alignments
from weft.static.building import as_node, function
from weft.static.sparse import SparseTensor


@function
def ctc_loss(
    labels: Any, inputs: Any = None, sequence_length: Any = None,
    preprocess_collapse_repeated: bool = False, ctc_merge_repeated: bool = True,
    ignore_longer_outputs_than_inputs: bool = False, time_major: bool = True,
    logits: Any = None,
) -> Any:  # fmt: skip
    """The negative log-likelihood of each row of labels, over all alignments.

    >>> with weft.static.Graph().as_default(), weft.static.Session() as session:
    ...     labels = weft.static.SparseTensor([[0, 0], [0, 1]], [0, 1], [1, 2])
    ...     logits = np.zeros((4, 1, 3), "f")
    ...     session.run(weft.static.nn.ctc_loss(labels, logits, [4])).round(4)
    array([1.6864], dtype=float32)
    """
    x = as_node(logits if inputs is None else inputs)
    x = x if time_major else x.permute(1, 0, 2)
    if x.ndim != 3:
        raise ShapeError(f"ctc_loss: expected (time, batch, classes), got {x.shape}")
    steps, batch, classes = x.shape
    times = as_node(sequence_length).to(weft.int64)
    table, sizes = _table(labels, batch, steps, classes - 1)
    loss = alignments(weft.log_softmax(x, 2), table, sizes, times, classes - 1)
    if ignore_longer_outputs_than_inputs:
        loss = weft.where(sizes > times, 0.0, loss)
    return loss


def _table(labels: SparseTensor, batch: Any, width: Any, blank: Any) -> Any:
    """Labels as (batch, width), as far as they fit, and how many each row has."""
    row, column = labels.indices[:, 0], labels.indices[:, 1]
    ones = weft.ones_like(row)
    sizes = weft.index_add(weft.zeros((batch,), dtype=weft.int64), 0, row, ones)
    place = weft.where(column < width, row * width + column, batch * width)
    start = weft.full((batch * width + 1,), blank, dtype=weft.int64)
    flat = weft.index_copy(start, 0, place, labels.values.to(weft.int64))
    return flat.narrow(0, 0, batch * width).reshape(batch, width), sizes
