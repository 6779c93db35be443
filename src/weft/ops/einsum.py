"""Sums of products named by letters, as matrix products.

    "bij,bjk->bik"     one label a dimension; labels left out of the result
                       are summed; a repeated label takes the diagonal

The operands are combined two at a time: what only one of them needs is summed
first, shared labels that stay become the batch, shared labels that go become
the inner dimension of one matrix product.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np

from weft.core.tensor import Tensor
from weft.errors import ArgumentError, DTypeError, OutOfRangeError, ShapeError
from weft.ops.arithmetic import mul
from weft.ops.broadcasting import expand
from weft.ops.copies import cast
from weft.ops.diagonals import diagonal
from weft.ops.elementwise import result_type
from weft.ops.products import matmul
from weft.ops.public import public
from weft.ops.reduce import sum
from weft.ops.shaping import permute, reshape, squeeze

Label = Any  # a letter, or an int for each dimension under an ellipsis
Labels = tuple[Label, ...]


class Term(NamedTuple):
    """A tensor and the label of each of its dimensions."""

    tensor: Tensor
    labels: Labels


@public()
def einsum(equation: Any, *operands: Any) -> Tensor:
    """The sum of products that an equation of letters describes.

    ``...`` stands for the dimensions without letters, which are broadcast.
    Without ``->`` the result has the letters that appear once, in alphabetical
    order. Instead of an equation, each operand may be followed by a list of
    numbers for its dimensions.

    >>> a, b = weft.ones(2, 3), weft.ones(3, 4)
    >>> weft.einsum("ij,jk->ik", a, b).shape
    (2, 4)
    >>> weft.einsum(a, [0, 1], [1, 0]).shape
    (3, 2)
    """
    if not isinstance(equation, str):
        equation, operands = _from_sublists((equation, *operands))
    if len(operands) == 1 and isinstance(operands[0], (list, tuple)):
        operands = tuple(operands[0])
    tensors = _tensors(operands)
    inputs, output = _parse(equation, tensors)
    terms = [Term(t, ls) for t, ls in zip(tensors, inputs, strict=True)]
    sizes = _sizes(terms)
    return _contract([_with_diagonals(t) for t in terms], output, sizes)


def _tensors(operands: Sequence[Any]) -> list[Tensor]:
    if not operands:
        raise ArgumentError("einsum: expected at least one operand, got none")
    for k, x in enumerate(operands):
        if not isinstance(x, Tensor):
            raise DTypeError(
                f"einsum: expected operand {k} to be a tensor, got {type(x).__name__}"
            )
    dtype = result_type(*[x.dtype for x in operands])
    return [cast(x, dtype) for x in operands]


# -- reading the equation

_LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"


def _from_sublists(args: tuple[Any, ...]) -> tuple[str, tuple[Any, ...]]:
    """The equation for operands that are each followed by a list of numbers."""
    if len(args) < 2:
        raise ArgumentError(
            "einsum: expected an equation, or operands each followed by a list of "
            f"dimensions, got {type(args[0]).__name__}"
        )
    pairs = len(args) // 2
    lists = [_spelled(args[2 * k + 1]) for k in range(pairs)]
    equation = ",".join(lists)
    if len(args) % 2:
        equation += "->" + _spelled(args[-1])
    return equation, tuple(args[2 * k] for k in range(pairs))


def _spelled(numbers: Any) -> str:
    if not isinstance(numbers, (list, tuple)):
        raise ArgumentError(
            "einsum: expected a list of dimensions after an operand, got "
            f"{type(numbers).__name__}"
        )
    return "".join("..." if n is Ellipsis else _letter(n) for n in numbers)


def _letter(n: Any) -> str:
    if not isinstance(n, int) or not 0 <= n < len(_LETTERS):
        raise OutOfRangeError(
            f"einsum: expected dimensions in a list to be 0 to 51 or ..., got {n!r}"
        )
    return _LETTERS[n]


def _parse(equation: str, tensors: list[Tensor]) -> tuple[list[Labels], Labels]:
    """The labels of each operand and of the result."""
    left, arrow, right = equation.replace(" ", "").partition("->")
    parts = left.split(",")
    if len(parts) != len(tensors):
        raise ArgumentError(
            f"einsum: {equation!r} names {len(parts)} operands, but "
            f"{len(tensors)} were given"
        )
    spelled = [_split(equation, p) for p in parts]
    hidden = [
        _hidden(equation, k, s, x)
        for k, (s, x) in enumerate(zip(spelled, tensors, strict=True))
    ]
    most = max(hidden)
    inputs = [_labels(s, n) for s, n in zip(spelled, hidden, strict=True)]
    if arrow:
        output = _output(equation, _split(equation, right), most, inputs)
    else:
        output = _implied(inputs, most)
    return inputs, output


def _split(equation: str, part: str) -> list[str]:
    """The letters of one operand, with the ellipsis as one item."""
    head, dots, tail = part.partition("...")
    for c in head + tail:
        if c not in _LETTERS:
            raise ArgumentError(
                f"einsum: expected letters, '...', ',' and '->' in {equation!r}, got "
                f"{c!r}"
            )
    return [*head, *([dots] if dots else []), *tail]


def _hidden(equation: str, k: int, spelled: list[str], x: Tensor) -> int:
    """The number of dimensions that the ellipsis of operand k stands for."""
    named = len(spelled) - ("..." in spelled)
    if named > x.ndim or (named < x.ndim and "..." not in spelled):
        raise ShapeError(
            f"einsum: operand {k} of {equation!r} names {named} dimensions, but its "
            f"shape is {x.shape}"
        )
    return x.ndim - named


def _labels(spelled: Iterable[str], hidden: int) -> Labels:
    """Hidden dimensions are labelled -1, -2, ... from the last one."""
    out: list[Label] = []
    for item in spelled:
        out.extend(range(-hidden, 0) if item == "..." else [item])
    return tuple(out)


def _output(
    equation: str, spelled: list[str], hidden: int, inputs: list[Labels]
) -> Labels:
    known = {label for labels in inputs for label in labels}
    for item in spelled:
        if item != "..." and item not in known:
            raise ArgumentError(
                f"einsum: {item!r} in the result of {equation!r} is in no operand"
            )
        if spelled.count(item) > 1:
            raise ArgumentError(
                f"einsum: {item!r} appears twice in the result of {equation!r}"
            )
    return _labels(spelled, hidden)


def _implied(inputs: list[Labels], hidden: int) -> Labels:
    letters = [c for labels in inputs for c in labels if isinstance(c, str)]
    once = sorted(c for c in set(letters) if letters.count(c) == 1)
    return (*range(-hidden, 0), *once)


def _sizes(terms: list[Term]) -> dict[Label, int]:
    """The size of each label; a dimension of size 1 is broadcast."""
    sizes: dict[Label, int] = {}
    for k, (x, labels) in enumerate(terms):
        for label, n in zip(labels, x.shape, strict=True):
            known = sizes.setdefault(label, n)
            if n != known and 1 not in (n, known):
                raise ShapeError(
                    f"einsum: {_named(label)} has size {known} and, in operand {k} of "
                    f"shape {x.shape}, size {n}; expected equal sizes or 1"
                )
            sizes[label] = n if known == 1 else known
    return sizes


def _named(label: Label) -> str:
    return f"{label!r}" if isinstance(label, str) else f"axis {label} of the ellipsis"


# -- contracting


def _with_diagonals(term: Term) -> Term:
    """A repeated label's dimensions replaced by their diagonal."""
    x, labels = term
    for label in dict.fromkeys(labels):
        while labels.count(label) > 1:
            a = labels.index(label)
            b = labels.index(label, a + 1)
            x = _equal_sizes(x, a, b)
            x = diagonal(x, 0, a, b)
            rest = [c for k, c in enumerate(labels) if k not in (a, b)]
            labels = (*rest, label)
    return Term(x, labels)


def _equal_sizes(x: Tensor, a: int, b: int) -> Tensor:
    shape = list(x.shape)
    shape[a] = shape[b] = (
        max(shape[a], shape[b]) if 0 not in (shape[a], shape[b]) else 0
    )
    return expand(x, tuple(shape))


def _contract(terms: list[Term], output: Labels, sizes: dict[Label, int]) -> Tensor:
    for i, j in _order(terms, output, sizes):
        others = [t.labels for k, t in enumerate(terms) if k not in (i, j)]
        keep = {*output, *(c for labels in others for c in labels)}
        pair = _multiply(terms[i], terms[j], keep)
        terms = [t for k, t in enumerate(terms) if k not in (i, j)] + [pair]
    x, labels = _summed(terms[0], set(output))
    x = permute(x, tuple(labels.index(c) for c in output if c in labels))
    missing = [k for k, c in enumerate(output) if c not in labels]
    for k in missing:
        x = x.unsqueeze(k)
    return expand(x, tuple(sizes.get(c, 1) for c in output))


def _order(
    terms: list[Term], output: Labels, sizes: dict[Label, int]
) -> list[tuple[int, int]]:
    """The pairs of operands to combine, until one is left."""
    if len(terms) < 3:
        return [(0, 1)] * (len(terms) - 1)
    number = {label: k for k, label in enumerate(sizes)}
    if len(number) > len(_LETTERS):
        return _in_pairs([range(len(terms))], len(terms))
    args: list[Any] = []
    for t in terms:
        shape = [sizes[c] for c in t.labels]
        args += [np.broadcast_to(np.zeros(()), shape), [number[c] for c in t.labels]]
    out = [number[c] for c in output if c in number]
    steps = np.einsum_path(*args, out, optimize="greedy")[0][1:]
    return _in_pairs(steps, len(terms))


def _in_pairs(steps: Iterable[Sequence[int]], count: int) -> list[tuple[int, int]]:
    """Steps that may combine several, as steps that combine two."""
    pairs = []
    for step in steps:
        first, *rest = sorted(step, reverse=True)
        for position in rest:
            pairs.append((first, position))
            count -= 1
            first = count - 1  # the product was put last
    return pairs


def _summed(term: Term, keep: set[Label]) -> Term:
    """Labels that nothing needs any more, summed."""
    x, labels = term
    gone = tuple(k for k, c in enumerate(labels) if c not in keep)
    if not gone:
        return term
    return Term(sum(x, gone), tuple(c for c in labels if c in keep))


def _without(term: Term, label: Label) -> Term:
    position = term.labels.index(label)
    rest = (*term.labels[:position], *term.labels[position + 1 :])
    return Term(squeeze(term.tensor, position), rest)


def _unbroadcast(x: Term, y: Term) -> tuple[Term, Term]:
    """Drop the label of an axis of size 1 where the other operand's is larger."""
    for label in [c for c in x.labels if c in y.labels]:
        nx = x.tensor.shape[x.labels.index(label)]
        ny = y.tensor.shape[y.labels.index(label)]
        if nx == 1 != ny:
            x = _without(x, label)
        elif ny == 1 != nx:
            y = _without(y, label)
    return x, y


def _multiply(x: Term, y: Term, keep: set[Label]) -> Term:
    """Two terms combined; labels that only they have and nothing needs are summed."""
    x, y = _unbroadcast(x, y)
    x = _summed(x, keep | set(y.labels))
    y = _summed(y, keep | set(x.labels))
    shared = [c for c in x.labels if c in y.labels]
    batch = [c for c in shared if c in keep]
    inner = [c for c in shared if c not in keep]
    left = [c for c in x.labels if c not in shared]
    right = [c for c in y.labels if c not in shared]
    if not inner:
        return _aligned_product(x, y, (*batch, *left, *right))
    a = _as_matrix(x, batch, left, inner)
    b = _as_matrix(y, batch, inner, right)
    sizes = dict(zip(y.labels, y.tensor.shape, strict=True))
    sizes.update(zip(x.labels, x.tensor.shape, strict=True))
    labels = (*batch, *left, *right)
    return Term(reshape(matmul(a, b), tuple(sizes[c] for c in labels)), labels)


def _as_matrix(term: Term, *groups: list[Label]) -> Tensor:
    """Dimensions in the order of the groups, each of the last two made one."""
    order = [term.labels.index(c) for group in groups for c in group]
    x = permute(term.tensor, tuple(order))
    ends = np.cumsum([len(group) for group in groups])
    shape = x.shape
    parts = [shape[a:b] for a, b in zip([0, *ends], ends, strict=False)]
    batch = (math.prod(parts[0]),) if parts[0] else ()
    return reshape(x, (*batch, math.prod(parts[1]), math.prod(parts[2])))


def _aligned_product(x: Term, y: Term, labels: Labels) -> Term:
    """The element-wise product, each term broadcast along missing labels."""
    return Term(mul(_aligned(x, labels), _aligned(y, labels)), labels)


def _aligned(term: Term, labels: Labels) -> Tensor:
    x = permute(
        term.tensor, tuple(term.labels.index(c) for c in labels if c in term.labels)
    )
    sizes = dict(zip(term.labels, term.tensor.shape, strict=True))
    return reshape(x, tuple(sizes.get(c, 1) for c in labels))
