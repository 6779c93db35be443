"""Summaries: values to look at in TensorBoard, fetched like other nodes."""

from __future__ import annotations

from typing import Any

import numpy as np

from weft.errors import ArgumentError
from weft.static.graph import StaticTensor, check_member, get_default_graph
from weft.static.text import Text

__all__ = [
    "FileWriter", "Summary", "histogram", "image", "merge", "merge_all", "scalar",
    "text",
]  # fmt: skip


def scalar(
    name: str, tensor: StaticTensor, collections: Any = None, family: str | None = None
) -> dict[str, Any]:
    """A number to follow.

    >>> g = weft.static.Graph()
    >>> with g.as_default():
    ...     loss = weft.static.constant(1.5, name="loss")
    ...     weft.static.summary.scalar("loss", loss)
    {'scalar:loss': <constant 'loss' float32[]>}
    """
    return _add("scalar", _within(family, name), tensor)


def histogram(
    name: str, values: StaticTensor, collections: Any = None, family: str | None = None
) -> dict[str, Any]:
    """The distribution of a tensor's values.

    >>> g = weft.static.Graph()
    >>> with g.as_default():
    ...     weft.static.summary.histogram("w", weft.static.constant([1.0, 2.0]))
    {'histogram:w': <constant 'Const' float32[2]>}
    """
    return _add("histogram", _within(family, name), values)


def image(
    name: str, tensor: StaticTensor, max_outputs: int = 3, collections: Any = None,
    family: str | None = None,
) -> dict[str, Any]:  # fmt: skip
    """The first images of a batch (batch, height, width, channels).

    >>> with weft.static.Graph().as_default():
    ...     x = weft.static.constant(np.zeros((2, 4, 4, 1), "uint8"), name="x")
    ...     weft.static.summary.image("digits", x)
    {'image:digits': <slice 'slice' uint8[2, 4, 4, 1]>}
    """
    if tensor.ndim != 4:
        raise ArgumentError(
            f"image: expected (batch, height, width, channels), got {tensor.shape}"
        )
    return _add("image", _within(family, name), tensor[:max_outputs])


def text(
    name: str, tensor: Any, collections: Any = None, family: str | None = None
) -> dict[str, Any]:
    """A text to show.

    >>> with weft.static.Graph().as_default():
    ...     weft.static.summary.text("note", weft.static.constant("a run"))
    {'text:note': <text 'Const'>}
    """
    return _add("text", _within(family, name), tensor)


def _within(family: str | None, name: str) -> str:
    return name if family is None else f"{family}/{name}"


def _add(kind: str, name: str, tensor: Any) -> dict[str, Any]:
    graph = get_default_graph()
    if not isinstance(tensor, Text):
        check_member(graph, tensor)
    key = full = f"{kind}:{graph.builder.prefix}{name}"
    k = 0
    while key in graph.summaries:
        k += 1
        key = f"{full}_{k}"
    graph.summaries[key] = tensor
    return {key: tensor}


def merge(
    inputs: list[dict[str, Any]], collections: Any = None, name: str | None = None
) -> dict[str, Any]:
    """Several summaries as one fetch.

    >>> weft.static.summary.merge([])
    {}
    """
    return {key: tensor for one in inputs for key, tensor in one.items()}


def merge_all(key: str = "summaries", scope: str | None = None) -> dict[str, Any]:
    """All summaries of the default graph as one fetch.

    >>> with weft.static.Graph().as_default():
    ...     weft.static.summary.merge_all()
    {}
    """
    return dict(get_default_graph().summaries)


def _pixels(image: np.ndarray) -> np.ndarray:
    """Floats as bytes: zero is black and the largest white; grey if some are less."""
    if image.dtype == np.uint8:
        return image
    finite = np.nan_to_num(image.astype(np.float64), posinf=0, neginf=0)
    top = abs(finite).max() or 1.0
    if finite.min() < 0:
        return (127 + finite / top * 127).astype(np.uint8)
    return (finite / top * 255).astype(np.uint8)


class _Value:
    def __init__(self, tag: str = "", simple_value: float = 0.0) -> None:
        self.tag, self.simple_value = tag, float(simple_value)

    def __repr__(self) -> str:
        return f"{self.tag} = {self.simple_value}"


class _Values(list[_Value]):
    def add(self, **fields: Any) -> _Value:
        """Append a number under a name."""
        self.append(_Value(**fields))
        return self[-1]


class Summary:
    """Numbers under names, made in Python, for ``FileWriter.add_summary``.

    >>> numbers = weft.static.Summary()
    >>> numbers.value.add(tag="reward", simple_value=1.5)
    reward = 1.5
    """

    Value = _Value

    def __init__(self, value: Any = ()) -> None:
        self.value = _Values(value)


class FileWriter:
    """Writes fetched summaries as a TensorBoard event file.

    >>> import tempfile
    >>> writer = weft.static.summary.FileWriter(tempfile.mkdtemp())
    >>> writer.add_summary({"scalar:loss": np.float32(2.0)}, 1)
    >>> writer.close()
    """

    def __init__(
        self, logdir: str, graph: Any = None, max_queue: int = 10, flush_secs: int = 120
    ) -> None:
        from weft.training.events import SummaryWriter

        self.logdir = logdir
        self.writer = SummaryWriter(logdir)
        if graph is not None:
            self.add_graph(graph)

    def add_graph(self, graph: Any, global_step: int = 0) -> None:
        """Write a graph, as text."""
        self.writer.add_text("graph", str(graph), global_step)

    def add_summary(self, summary: Any, global_step: Any = 0) -> None:
        """Write the result of ``session.run(summary.merge_all())``, or a ``Summary``.

        ``global_step`` is a number: of a variable, ``session.run(step)``.
        """
        if isinstance(summary, Summary):
            summary = {f"scalar:{v.tag}": v.simple_value for v in summary.value}
        global_step = int(global_step or 0)
        for key, value in summary.items():
            kind, _, name = key.partition(":")
            if kind == "scalar":
                self.writer.add_scalar(name, float(np.asarray(value)), global_step)
            elif kind == "image":
                for k, one in enumerate(np.asarray(value)):
                    self.writer.add_image(
                        f"{name}/image/{k}", _pixels(one), global_step
                    )
            elif kind == "text":
                lines = [line.decode() for line in np.ravel(np.asarray(value, object))]
                self.writer.add_text(name, "\n".join(lines), global_step)
            else:
                self.writer.add_histogram(name, np.asarray(value), global_step)

    def add_run_metadata(
        self, run_metadata: Any, tag: str, global_step: int = 0
    ) -> None:
        """Write which nodes a run executed, as text."""
        self.writer.add_text(
            tag, "\n".join(run_metadata.executed), int(global_step or 0)
        )

    def add_session_log(self, session_log: Any, global_step: int = 0) -> None:
        """Do nothing: event files here have no log of sessions."""

    def get_logdir(self) -> str:
        """The folder of the event file."""
        return self.logdir

    def flush(self) -> None:
        self.writer.flush()

    def close(self) -> None:
        self.writer.close()


def __getattr__(name: str) -> Any:
    from weft.static import absent

    raise absent.error("summary", name)
