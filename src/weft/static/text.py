"""Texts in graphs: constants that a run fetches and summaries show.

A graph computes numbers. Texts are constants beside it, which is what programs use them
for: a greeting, a name, a note for TensorBoard.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from weft.core.pytree import tree_flatten, tree_unflatten


class _StringType:
    """The dtype of texts.

    >>> weft.static.string
    string
    """

    name = "string"

    def __repr__(self) -> str:
        return self.name


string = _StringType()


class Text:
    """A constant text, or an array of them; a run gives bytes, as in TensorFlow.

    >>> with weft.static.Graph().as_default(), weft.static.Session() as session:
    ...     session.run(weft.static.constant("Hello"))
    b'Hello'
    """

    dtype = string

    def __init__(self, value: Any, name: str = "Const") -> None:
        found = np.asarray(value, object)
        coded = [v.encode() if isinstance(v, str) else v for v in found.ravel()]
        self.name = name
        self.value = coded[0]
        if found.ndim:
            self.value = np.array(coded, object).reshape(found.shape)

    @property
    def shape(self) -> tuple[int, ...]:
        return np.shape(self.value)

    def get_shape(self) -> Any:
        from weft.core.size import TensorShape

        return TensorShape(self.shape)

    def eval(self, feed_dict: Any = None, session: Any = None) -> Any:
        """The text as bytes."""
        return self.value

    def __str__(self) -> str:
        return self.value.decode() if isinstance(self.value, bytes) else str(self.value)

    def __repr__(self) -> str:
        return f"<text {self.name!r}>"


def is_text(value: Any) -> bool:
    """Whether a value is a text, or a list of texts."""
    if isinstance(value, (list, tuple)) and value:
        return all(map(is_text, value))
    if isinstance(value, np.ndarray):
        return value.dtype.kind in "US"
    return isinstance(value, (str, bytes))


def with_texts(fetches: Any, run: Any) -> Any:
    """The fetched values, of which ``run`` gives those that are no texts."""
    leaves, structure = tree_flatten(fetches)
    rest = iter(run([leaf for leaf in leaves if not isinstance(leaf, Text)]))
    values = [leaf.value if isinstance(leaf, Text) else next(rest) for leaf in leaves]
    return tree_unflatten(values, structure)


def has_texts(fetches: Any) -> bool:
    """Whether some fetches are texts."""
    return any(isinstance(leaf, Text) for leaf in tree_flatten(fetches)[0])
