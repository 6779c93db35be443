"""Summaries: values to look at in TensorBoard, fetched like other nodes."""

from __future__ import annotations

from typing import Any

import numpy as np

from weft.errors import ArgumentError
from weft.static.graph import StaticTensor, check_member, get_default_graph

__all__ = ["FileWriter", "histogram", "merge", "merge_all", "scalar"]


def scalar(name: str, tensor: StaticTensor) -> dict[str, Any]:
    """A number to follow.

    >>> g = weft.static.Graph()
    >>> with g.as_default():
    ...     loss = weft.static.constant(1.5, name="loss")
    ...     weft.static.summary.scalar("loss", loss)
    {'scalar:loss': <constant 'loss' float32[]>}
    """
    return _add("scalar", name, tensor)


def histogram(name: str, values: StaticTensor) -> dict[str, Any]:
    """The distribution of a tensor's values.

    >>> g = weft.static.Graph()
    >>> with g.as_default():
    ...     weft.static.summary.histogram("w", weft.static.constant([1.0, 2.0]))
    {'histogram:w': <constant 'Const' float32[2]>}
    """
    return _add("histogram", name, values)


def _add(kind: str, name: str, tensor: Any) -> dict[str, Any]:
    graph = get_default_graph()
    check_member(graph, tensor)
    key = f"{kind}:{graph.builder.prefix}{name}"
    if key in graph.summaries:
        raise ArgumentError(f"summary: {name!r} is there already")
    graph.summaries[key] = tensor
    return {key: tensor}


def merge(inputs: list[dict[str, Any]]) -> dict[str, Any]:
    """Several summaries as one fetch.

    >>> weft.static.summary.merge([])
    {}
    """
    return {key: tensor for one in inputs for key, tensor in one.items()}


def merge_all() -> dict[str, Any]:
    """All summaries of the default graph as one fetch.

    >>> with weft.static.Graph().as_default():
    ...     weft.static.summary.merge_all()
    {}
    """
    return dict(get_default_graph().summaries)


class FileWriter:
    """Writes fetched summaries as a TensorBoard event file.

    >>> import tempfile
    >>> writer = weft.static.summary.FileWriter(tempfile.mkdtemp())
    >>> writer.add_summary({"scalar:loss": np.float32(2.0)}, 1)
    >>> writer.close()
    """

    def __init__(self, logdir: str, graph: Any = None) -> None:
        from weft.training.events import SummaryWriter

        self.writer = SummaryWriter(logdir)
        if graph is not None:
            self.writer.add_text("graph", str(graph), 0)

    def add_summary(self, summary: dict[str, Any], global_step: int = 0) -> None:
        """Write the result of ``session.run(summary.merge_all())``.

        ``global_step`` is a number: of a variable, ``session.run(step)``.
        """
        for key, value in summary.items():
            kind, _, name = key.partition(":")
            if kind == "scalar":
                self.writer.add_scalar(name, float(np.asarray(value)), global_step)
            else:
                self.writer.add_histogram(name, np.asarray(value), global_step)

    def flush(self) -> None:
        self.writer.flush()

    def close(self) -> None:
        self.writer.close()
