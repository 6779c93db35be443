"""Collections: lists of a graph's things under keys, and the standard keys."""

from __future__ import annotations

import re
from typing import Any

from weft.static.graph import Graph, get_default_graph


class GraphKeys:
    """The names of the standard collections.

    >>> weft.static.GraphKeys.UPDATE_OPS
    'update_ops'
    """

    GLOBAL_VARIABLES = "variables"
    VARIABLES = "variables"
    TRAINABLE_VARIABLES = "trainable_variables"
    LOCAL_VARIABLES = "local_variables"
    MODEL_VARIABLES = "model_variables"
    METRIC_VARIABLES = "metric_variables"
    MOVING_AVERAGE_VARIABLES = "moving_average_variables"
    REGULARIZATION_LOSSES = "regularization_losses"
    LOSSES = "losses"
    UPDATE_OPS = "update_ops"
    SUMMARIES = "summaries"
    SUMMARY_OP = "summary_op"
    GLOBAL_STEP = "global_step"
    TRAIN_OP = "train_op"
    QUEUE_RUNNERS = "queue_runners"
    TABLE_INITIALIZERS = "table_initializer"
    INIT_OP = "init_op"
    LOCAL_INIT_OP = "local_init_op"
    SAVERS = "savers"
    ACTIVATIONS = "activations"
    WEIGHTS = "weights"
    BIASES = "biases"


def collection(graph: Graph, name: str) -> list[Any]:
    """The list that a graph keeps under a name."""
    if name == GraphKeys.GLOBAL_VARIABLES:
        return graph.variables
    return graph.collections.setdefault(name, [])


def add_to_collection(name: str, value: Any) -> None:
    """Put a value into a collection of the default graph.

    >>> with weft.static.Graph().as_default():
    ...     weft.static.add_to_collection("numbers", 1)
    ...     weft.static.get_collection("numbers")
    [1]
    """
    collection(get_default_graph(), name).append(value)


def add_to_collections(names: Any, value: Any) -> None:
    """Put a value into several collections.

    >>> with weft.static.Graph().as_default():
    ...     weft.static.add_to_collections(["a", "b"], 1)
    ...     weft.static.get_collection("b")
    [1]
    """
    for name in dict.fromkeys([names] if isinstance(names, str) else names):
        add_to_collection(name, value)


def get_collection(key: str, scope: str | None = None) -> list[Any]:
    """The values of a collection; with a scope, those whose names begin with it.

    The scope is a regular expression, as in TensorFlow.

    >>> with weft.static.Graph().as_default():
    ...     for name in ("one/w", "two/w"):
    ...         w = weft.static.Variable(1.0, name=name)
    ...     weft.static.get_collection("trainable_variables", "two")
    [<read 'two/w' float32[]>]
    """
    found = list(collection(get_default_graph(), key))
    if scope is None:
        return found
    return [one for one in found if re.match(scope, getattr(one, "name", ""))]


def get_collection_ref(key: str) -> list[Any]:
    """The collection itself, which may be changed.

    >>> with weft.static.Graph().as_default():
    ...     weft.static.get_collection_ref("mine").append(2)
    ...     weft.static.get_collection("mine")
    [2]
    """
    return collection(get_default_graph(), key)
