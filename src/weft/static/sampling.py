"""Losses for many classes that look at a sample of them alone."""

from __future__ import annotations

from typing import Any

import numpy as np

import weft
from weft.core.op import Op, TensorType
from weft.dtype import float64, int64
from weft.errors import ArgumentError
from weft.nn import functional as F
from weft.static.building import as_node, function
from weft.static.random import _generator


def _draw(seed: Any, *, count: int, range_max: int, unique: bool, even: bool) -> Any:
    """Draws until there are enough; returns them and how many tries that took."""
    stream = np.random.default_rng([int(n) for n in np.ravel(seed)])
    drawn: dict[int, None] | list[int] = {} if unique else []
    tries = 0
    while len(drawn) < count:
        u = stream.random()
        one = u * range_max if even else np.exp(u * np.log(range_max + 1.0)) - 1
        one = min(int(one), range_max - 1)
        tries += 1
        if isinstance(drawn, dict):
            drawn[one] = None
        else:
            drawn.append(one)
    return np.fromiter(drawn, np.int64, count), np.asarray(tries, np.int64)


candidates_op = Op(
    "candidates",
    inputs="seed",
    outputs="ids tries",
    eval=_draw,
    type=lambda seed, *, count, range_max, unique, even: (
        TensorType((count,), int64),
        TensorType((), int64),
    ),
)


def _sampler(name: str, even: bool) -> Any:
    def call(
        true_classes: Any, num_true: int, num_sampled: int, unique: bool,
        range_max: int, seed: int | None = None,
    ) -> tuple[Any, Any, Any]:  # fmt: skip
        if unique and num_sampled > range_max:
            raise ArgumentError(
                f"{name}: {num_sampled} different classes of {range_max} were asked for"
            )
        bits = weft.randint(0, 2**31, (2,), generator=_generator(seed))
        ids, tries = candidates_op(
            bits, count=num_sampled, range_max=range_max, unique=unique, even=even
        )

        def expected(of: Any) -> Any:
            at = of.to(float64)
            if even:
                p = at * 0 + 1 / range_max
            else:
                p = weft.log((at + 2) / (at + 1)) / float(np.log(range_max + 1.0))
            if unique:
                return -weft.expm1(tries.to(float64) * weft.log1p(-p))
            return p * num_sampled

        classes = as_node(true_classes)
        counts = [expected(of).to(weft.float32) for of in (classes, ids)]
        return ids, counts[0], counts[1]

    call.__name__ = call.__qualname__ = name
    kind = "uniform" if even else "log-uniform (of ids ordered by how common they are)"
    call.__doc__ = f"""Classes drawn from a {kind} distribution.

    Returns the ids, and how often the true and the drawn ones are to be expected.

    >>> with weft.static.Graph().as_default(), weft.static.Session() as session:
    ...     drawn = weft.static.nn.{name}([[3]], 1, 4, True, 9)
    ...     [value.shape for value in session.run(drawn)]
    [(4,), (1, 1), (4,)]
    """
    return function(call)


log_uniform_candidate_sampler = _sampler("log_uniform_candidate_sampler", False)
uniform_candidate_sampler = _sampler("uniform_candidate_sampler", True)


def _sampled_logits(
    weights: Any, biases: Any, labels: Any, inputs: Any, num_sampled: int,
    num_classes: int, num_true: int, sampled_values: Any, remove_hits: bool,
) -> tuple[Any, Any]:  # fmt: skip
    """Scores of the true classes, then of the drawn ones, and their labels."""
    w, b, x = as_node(weights), as_node(biases), as_node(inputs)
    classes = as_node(labels).to(int64).reshape(-1, num_true)
    if sampled_values is None:
        sampled_values = log_uniform_candidate_sampler(
            classes, num_true, num_sampled, True, num_classes
        )
    ids, true_count, drawn_count = [as_node(v).detach() for v in sampled_values]
    true_w = w[classes]  # (batch, true, width)
    true = (x.unsqueeze(1) * true_w).sum(-1) + b[classes] - weft.log(true_count)
    drawn = x @ w[ids].transpose(0, 1) + b[ids] - weft.log(drawn_count)
    if remove_hits:
        hits = (classes.unsqueeze(-1) == ids).any(1)
        drawn = weft.where(hits, float(np.finfo(np.float32).min), drawn)
    ones = weft.full_like(true, 1 / num_true)
    return weft.cat([true, drawn], 1), weft.cat([ones, weft.zeros_like(drawn)], 1)


@function
def nce_loss(
    weights: Any, biases: Any, labels: Any, inputs: Any, num_sampled: int,
    num_classes: int, num_true: int = 1, sampled_values: Any = None,
    remove_accidental_hits: bool = False, partition_strategy: str = "mod",
) -> Any:  # fmt: skip
    """The noise-contrastive loss of each row: true classes against drawn ones.

    >>> with weft.static.Graph().as_default(), weft.static.Session() as session:
    ...     loss = weft.static.nn.nce_loss(
    ...         np.zeros((9, 2), "f"), np.zeros(9, "f"), [[3]], [[1.0, 2.0]], 4, 9)
    ...     session.run(loss).shape
    (1,)
    """
    logits, truth = _sampled_logits(
        weights, biases, labels, inputs, num_sampled, num_classes, num_true,
        sampled_values, remove_accidental_hits,
    )  # fmt: skip
    return (F.softplus(logits) - logits * truth).sum(1)


@function
def sampled_softmax_loss(
    weights: Any, biases: Any, labels: Any, inputs: Any, num_sampled: int,
    num_classes: int, num_true: int = 1, sampled_values: Any = None,
    remove_accidental_hits: bool = True, partition_strategy: str = "mod",
    seed: int | None = None,
) -> Any:  # fmt: skip
    """The softmax cross entropy of each row, among true and drawn classes.

    >>> with weft.static.Graph().as_default(), weft.static.Session() as session:
    ...     loss = weft.static.nn.sampled_softmax_loss(
    ...         np.zeros((9, 2), "f"), np.zeros(9, "f"), [[3]], [[1.0, 2.0]], 4, 9)
    ...     session.run(loss).shape
    (1,)
    """
    logits, truth = _sampled_logits(
        weights, biases, labels, inputs, num_sampled, num_classes, num_true,
        sampled_values, remove_accidental_hits,
    )  # fmt: skip
    return -(truth * F.log_softmax(logits, 1)).sum(1)
