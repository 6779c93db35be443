"""Classical models (``ai.onnx.ml``): linear models, scaling, labels."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np

import weft
from weft import Tensor
from weft.onnx.errors import ModelError
from weft.onnx.registry import operator
from weft.onnx.types import tensor

_DOMAIN = "ai.onnx.ml"


def posted(scores: Tensor, kind: str) -> Tensor:
    """Scores as probabilities."""
    if kind == "LOGISTIC":
        return weft.sigmoid(scores)
    if kind == "SOFTMAX":
        return weft.softmax(scores, -1)
    if kind == "SOFTMAX_ZERO":
        return weft.where(scores == 0, scores, weft.softmax(scores, -1))
    if kind == "PROBIT":
        return 2**0.5 * weft.erfinv(2 * scores - 1)
    return scores


def row_of(values: Any) -> Tensor:
    """A vector of some numbers."""
    return weft.tensor(list(values), dtype=weft.float32)


@operator("Binarizer", domain=_DOMAIN)
def binarizer(x: Tensor, *, threshold: float = 0.0) -> Tensor:
    """One above a threshold, else zero."""
    return (x > threshold).to(x.dtype)


@operator("Scaler", domain=_DOMAIN)
def scaler(x: Tensor, *, offset: Any = (0.0,), scale: Any = (1.0,)) -> Tensor:
    """Columns moved and scaled."""
    return (x.float() - row_of(offset)) * row_of(scale)


@operator("Imputer", domain=_DOMAIN)
def imputer(
    x: Tensor, *, imputed_value_floats: Any = None, imputed_value_int64s: Any = None,
    replaced_value_float: float = 0.0, replaced_value_int64: int = 0,
) -> Tensor:  # fmt: skip
    """One value of columns replaced by another."""
    if x.dtype.is_floating_point:
        new, old = row_of(imputed_value_floats).to(x.dtype), replaced_value_float
        hit = weft.isnan(x) if np.isnan(old) else x == old
    else:
        new = weft.tensor(list(imputed_value_int64s)).to(x.dtype)
        hit = x == replaced_value_int64
    return weft.where(hit, new, x)


@operator("Normalizer", domain=_DOMAIN)
def normalizer(x: Tensor, *, norm: str = "MAX") -> Tensor:
    """Rows divided by their largest element, sum or length."""
    x = x.float()
    if norm == "MAX":
        size = weft.amax(x.abs(), -1, keepdim=True)
    elif norm == "L1":
        size = x.abs().sum(-1, keepdim=True)
    else:
        size = weft.sqrt((x * x).sum(-1, keepdim=True))
    return weft.where(size == 0, x, x / size)


@operator("FeatureVectorizer", domain=_DOMAIN)
def feature_vectorizer(*xs: Tensor, inputdimensions: Any = None) -> Tensor:
    """Columns of some tensors, side by side."""
    return weft.cat([x.float().reshape(x.shape[0], -1) for x in xs], 1)


@operator("OneHotEncoder", domain=_DOMAIN)
def one_hot_encoder(
    x: Tensor, *, cats_int64s: Any = None, cats_strings: Any = None, zeros: int = 1
) -> Tensor:
    """A vector for each category."""
    if cats_int64s is None:
        raise ModelError("categories that are strings are not supported")
    return (x.long().unsqueeze(-1) == weft.tensor(list(cats_int64s))).float()


@operator("LabelEncoder", domain=_DOMAIN)
def label_encoder(
    x: Tensor, *, keys_int64s: Any = None, values_int64s: Any = None,
    keys_floats: Any = None, values_floats: Any = None, default_float: float = -0.0,
    default_int64: int = -1, keys_tensor: Any = None, values_tensor: Any = None,
    default_tensor: Any = None, keys_strings: Any = None, values_strings: Any = None,
    default_string: str = "_Unused", classes_strings: Any = None,
) -> Tensor:  # fmt: skip
    """Keys replaced by values."""
    values: Any
    default: Any
    texts = (keys_tensor, values_tensor)
    if (keys_strings or values_strings or classes_strings
            or any(t is not None and t.dtype.kind == "U" for t in texts)):  # fmt: skip
        raise ModelError("labels that are strings are not supported")
    keys = keys_int64s or keys_floats or keys_tensor.tolist()
    if values_tensor is not None:
        values = tensor(values_tensor)
        default = tensor(default_tensor).reshape(())
    elif values_int64s:
        values, default = weft.tensor(list(values_int64s)), default_int64
    else:
        values, default = row_of(values_floats), default_float
    out = weft.zeros(x.shape, dtype=values.dtype) + default
    for key, value in zip(keys, values, strict=True):
        hit = weft.isnan(x) if key != key else x == weft.tensor(key).to(x.dtype)
        out = weft.where(hit, value, out)
    return out


@operator("LinearRegressor", domain=_DOMAIN)
def linear_regressor(
    x: Tensor, *, coefficients: Any, intercepts: Any = None,
    post_transform: str = "NONE", targets: int = 1,
) -> Tensor:  # fmt: skip
    """Sums of weighted columns."""
    y = x.float() @ row_of(coefficients).reshape(targets, -1).T
    return posted(y if intercepts is None else y + row_of(intercepts), post_transform)


@operator("LinearClassifier", domain=_DOMAIN)
def linear_classifier(
    x: Tensor, *, coefficients: Any, intercepts: Any = None, multi_class: int = 0,
    post_transform: str = "NONE", classlabels_ints: Any = None,
    classlabels_strings: Any = None,
) -> Any:  # fmt: skip
    """The class of the largest weighted sum, and all sums."""
    labels = labels_of(classlabels_ints, classlabels_strings)
    rows = len(coefficients) // x.shape[-1]
    y = x.float() @ row_of(coefficients).reshape(rows, -1).T
    y = y if intercepts is None else y + row_of(intercepts)
    return _classified(y, labels, post_transform)


def labels_of(ints: Any, strings: Any) -> list[Any]:
    """The labels of classes, whichever kind is given."""
    if not ints and not strings:
        raise ModelError("expected labels of classes")
    return list(ints or strings)


def chosen(labels: list[Any], place: Tensor) -> Any:
    """The labels at some places: a tensor, or an array of strings."""
    if isinstance(labels[0], str):
        return np.array(labels)[place.cpu().numpy()]
    return weft.tensor(labels)[place]


def _classified(y: Tensor, labels: list[Any], post: str) -> tuple[Any, Tensor]:
    if y.shape[-1] == 1 and len(labels) == 2:
        place = (y[:, 0] > (0.5 if post == "NONE" else 0)).long()
        positive = posted(y, "NONE" if post == "SOFTMAX" else post)
        rest = 1 - positive if post == "LOGISTIC" else -positive
        scores = weft.cat([rest, positive], 1)
        if post == "SOFTMAX":
            scores = weft.softmax(scores, -1)
    else:
        place, scores = weft.argmax(y, -1), posted(y, post)
    return chosen(labels, place), scores


@operator("ZipMap", domain=_DOMAIN)
def zip_map(
    x: Tensor, *, classlabels_int64s: Any = None, classlabels_strings: Any = None
) -> Any:
    """For each example a dictionary of scores by labels."""
    labels = labels_of(classlabels_int64s, classlabels_strings)
    return ([dict(zip(labels, row, strict=True)) for row in x],)


@operator("TfIdfVectorizer")
def tf_idf_vectorizer(
    x: Tensor, *, max_gram_length: int, max_skip_count: int, min_gram_length: int,
    mode: str, ngram_counts: Any, ngram_indexes: Any, pool_int64s: Any = None,
    pool_strings: Any = None, weights: Any = None,
) -> Tensor:  # fmt: skip
    """How often each of some n-grams of whole numbers is in a row."""
    if pool_int64s is None:
        raise ModelError("n-grams of strings are not supported")
    ends = [*ngram_counts, len(pool_int64s)]
    columns, place = {}, 0
    for size, (start, end) in enumerate(itertools.pairwise(ends), 1):
        for at in range(start, end, size):
            columns[pool_int64s[at : at + size]] = ngram_indexes[place]
            place += 1
    rows = x.reshape(-1, x.shape[-1]).tolist()
    counts = np.zeros((len(rows), max(ngram_indexes) + 1), np.float32)
    for row, count in zip(rows, counts, strict=True):
        for size in range(min_gram_length, max_gram_length + 1):
            for step in range(1, (1 if size == 1 else max_skip_count + 1) + 1):
                for start in range(len(row) - (size - 1) * step):
                    gram = tuple(row[start : start + (size - 1) * step + 1 : step])
                    if gram in columns:
                        count[columns[gram]] += 1
    share = np.ones(counts.shape[1], np.float32)
    if weights is not None and mode != "TF":
        share[list(ngram_indexes)] = weights
    counts = (counts > 0) * share if mode == "IDF" else counts * share
    found = tensor(counts.astype(np.float32))
    return found.reshape(*x.shape[:-1], counts.shape[1])
