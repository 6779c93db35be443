"""Ensembles of decision trees (``ai.onnx.ml``), as tables that gathers walk through."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

import weft
from weft import Tensor
from weft.onnx.errors import ModelError
from weft.onnx.operators.classical import chosen, labels_of, posted, row_of
from weft.onnx.registry import operator
from weft.onnx.types import tensor

_DOMAIN = "ai.onnx.ml"
_LEAF, _MEMBER = "LEAF", "BRANCH_MEMBER"
_COMPARE: dict[str, Any] = {
    "BRANCH_LEQ": weft.le, "BRANCH_LT": weft.lt, "BRANCH_GTE": weft.ge,
    "BRANCH_GT": weft.gt, "BRANCH_EQ": weft.eq, "BRANCH_NEQ": weft.ne,
}  # fmt: skip
_RULES = [*_COMPARE, _MEMBER]  # in the order of TreeEnsemble's numbers
_AGGREGATES = ["AVERAGE", "SUM", "MIN", "MAX"]
_POSTS = ["NONE", "SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO", "PROBIT"]


class Trees(NamedTuple):
    """Nodes by their numbers; those that are leaves lead nowhere."""

    roots: list[int]
    modes: list[str]
    features: list[int]
    values: Any
    yes: list[int]
    no: list[int]
    missing: list[bool]  # whether NaN goes to yes
    members: list[list[float]]  # what a value is looked for in

    def depth(self) -> int:
        """The most branches on a way; trees without an end are refused."""
        level, depth = set(self.roots), 0
        while True:
            inner = [n for n in level if self.modes[n] != _LEAF]
            level = {k for n in inner for k in (self.yes[n], self.no[n])}
            if not level:
                return depth
            depth += 1
            if depth > len(self.modes):
                raise ModelError("a tree has branches that come back to a node")

    def leaves(self, x: Tensor) -> Tensor:
        """The node (B, trees) at which each example leaves each tree."""
        unknown = {*self.modes} - {*_RULES, _LEAF}
        if unknown:
            raise ModelError(f"a tree has nodes of unknown modes {sorted(unknown)}")
        depth = self.depth()
        at = weft.tensor(self.roots).unsqueeze(0).expand(x.shape[0], -1)
        columns, cuts = weft.tensor(self.features), tensor(self.values).to(x.dtype)
        left, right = weft.tensor(self.yes), weft.tensor(self.no)
        missing, members = weft.tensor(self.missing), self._members().to(x.dtype)
        rules = sorted({*self.modes} - {_LEAF})
        kinds = [-1 if m == _LEAF else rules.index(m) for m in self.modes]
        for _ in range(depth):
            value, cut = weft.gather(x, 1, columns[at]), cuts[at]
            kind = weft.tensor(kinds)[at]
            goes = weft.isnan(value) & missing[at]
            for k, rule in enumerate(rules):
                if rule == _MEMBER:
                    holds = (value.unsqueeze(-1) == members[at]).any(-1)
                else:
                    holds = _COMPARE[rule](value, cut)
                goes = goes | ((kind == k) & holds)
            at = weft.where(kind < 0, at, weft.where(goes, left[at], right[at]))
        return at

    def _members(self) -> Tensor:
        most = max((len(row) for row in self.members), default=0)
        table = np.full((len(self.modes), max(most, 1)), np.nan)
        for row, values in zip(table, self.members, strict=False):
            row[: len(values)] = values
        return tensor(table)


def _results(
    x: Tensor, trees: Trees, weights: Any, outputs: int, aggregate: str
) -> Tensor:
    """What leaves that examples come to add up to; weights are (node, column, w)."""
    if aggregate not in _AGGREGATES:
        raise ModelError(f"expected one of {_AGGREGATES}, got {aggregate!r}")
    empty = {"MIN": np.inf, "MAX": -np.inf}.get(aggregate, 0)
    table = np.full((len(trees.modes), outputs), empty, x.dtype.np)
    for node, column, weight in weights:
        before = table[node, column]
        table[node, column] = weight if np.isinf(before) else before + weight
    found = tensor(table)[trees.leaves(x)]  # (B, trees, outputs)
    if aggregate in ("MIN", "MAX"):
        y = (weft.amin if aggregate == "MIN" else weft.amax)(found, 1)
        return weft.where(weft.isinf(y), weft.zeros_like(y), y)
    y = found.sum(1)
    return y / len(trees.roots) if aggregate == "AVERAGE" else y


def _of_lists(
    ids: Any, trees: Any, modes: Any, features: Any, values: Any, yes: Any, no: Any,
    missing: Any,
) -> tuple[Trees, dict[Any, int]]:  # fmt: skip
    """Trees from the lists of the older operators, and their nodes by name."""
    place = {key: k for k, key in enumerate(zip(trees, ids, strict=True))}

    def jump(targets: Any) -> list[int]:
        found = []
        for tree, target, mode in zip(trees, targets, modes, strict=True):
            if mode != _LEAF and (tree, target) not in place:
                raise ModelError(f"tree {tree} has a branch to {target}, which is not")
            found.append(place[tree, target] if mode != _LEAF else 0)
        return found

    roots = [place[tree, 0] for tree in dict.fromkeys(trees)]
    goes = [bool(m) for m in missing or [False] * len(ids)]
    cuts = np.array(values, np.float32)
    made = Trees(
        roots, list(modes), list(features), cuts, jump(yes), jump(no), goes, []
    )
    return made, place


@operator("TreeEnsembleRegressor", domain=_DOMAIN)
def tree_ensemble_regressor(
    x: Tensor, *, nodes_nodeids: Any, nodes_treeids: Any, nodes_modes: Any,
    nodes_featureids: Any, nodes_values: Any, nodes_truenodeids: Any,
    nodes_falsenodeids: Any, target_ids: Any, target_nodeids: Any, target_treeids: Any,
    target_weights: Any, nodes_missing_value_tracks_true: Any = None,
    nodes_hitrates: Any = None, aggregate_function: str = "SUM",
    base_values: Any = None, n_targets: int = 1, post_transform: str = "NONE",
) -> Tensor:  # fmt: skip
    """The sums of the leaves that examples come to."""
    trees, place = _of_lists(
        nodes_nodeids, nodes_treeids, nodes_modes, nodes_featureids, nodes_values,
        nodes_truenodeids, nodes_falsenodeids, nodes_missing_value_tracks_true,
    )  # fmt: skip
    nodes = [place[key] for key in zip(target_treeids, target_nodeids, strict=True)]
    weights = zip(nodes, target_ids, target_weights, strict=True)
    y = _results(x.float(), trees, weights, n_targets, aggregate_function)
    y = y if base_values is None else y + row_of(base_values)
    return posted(y, post_transform)


@operator("TreeEnsembleClassifier", domain=_DOMAIN)
def tree_ensemble_classifier(
    x: Tensor, *, nodes_nodeids: Any, nodes_treeids: Any, nodes_modes: Any,
    nodes_featureids: Any, nodes_values: Any, nodes_truenodeids: Any,
    nodes_falsenodeids: Any, class_ids: Any, class_nodeids: Any, class_treeids: Any,
    class_weights: Any, nodes_missing_value_tracks_true: Any = None,
    nodes_hitrates: Any = None, base_values: Any = None, post_transform: str = "NONE",
    classlabels_int64s: Any = None, classlabels_strings: Any = None,
) -> Any:  # fmt: skip
    """The class with most in the leaves that examples come to, and all sums."""
    labels = labels_of(classlabels_int64s, classlabels_strings)
    single = len(labels) == 2 and len({*class_ids}) == 1
    trees, place = _of_lists(
        nodes_nodeids, nodes_treeids, nodes_modes, nodes_featureids, nodes_values,
        nodes_truenodeids, nodes_falsenodeids, nodes_missing_value_tracks_true,
    )  # fmt: skip
    nodes = [place[key] for key in zip(class_treeids, class_nodeids, strict=True)]
    columns = [0 if single else c for c in class_ids]
    weights = zip(nodes, columns, class_weights, strict=True)
    y = _results(x.float(), trees, weights, 1 if single else len(labels), "SUM")
    y = y if base_values is None else y + row_of(base_values)
    if not single:
        return chosen(labels, weft.argmax(y, -1)), posted(y, post_transform)
    place_of = (y[:, 0] > (0.5 if post_transform == "NONE" else 0)).long()
    one = posted(y, post_transform)
    return chosen(labels, place_of), weft.cat([1 - one, one], 1)


@operator("TreeEnsemble", domain=_DOMAIN)
def tree_ensemble(
    x: Tensor, *, leaf_targetids: Any, leaf_weights: Any, nodes_falseleafs: Any,
    nodes_falsenodeids: Any, nodes_featureids: Any, nodes_modes: Any,
    nodes_splits: Any, nodes_trueleafs: Any, nodes_truenodeids: Any, tree_roots: Any,
    aggregate_function: int = 1, membership_values: Any = None, n_targets: int = 1,
    nodes_hitrates: Any = None, nodes_missing_value_tracks_true: Any = None,
    post_transform: int = 0,
) -> Tensor:  # fmt: skip
    """The sums of the leaves that examples come to, of branches and leaves apart."""
    inner, ends = len(nodes_modes), len(leaf_targetids)
    modes = [_RULES[m] for m in nodes_modes.tolist()]
    jump = lambda targets, leaf: [  # noqa: E731
        t + inner * bool(is_leaf) for t, is_leaf in zip(targets, leaf, strict=True)
    ]
    yes = jump(nodes_truenodeids, nodes_trueleafs)
    no = jump(nodes_falsenodeids, nodes_falseleafs)
    if not all(0 <= k < inner + ends for k in (*yes, *no, *tree_roots)):
        raise ModelError("a tree has branches to nodes that are not there")
    missing = [bool(m) for m in nodes_missing_value_tracks_true or [False] * inner]
    rest = [0] * ends
    trees = Trees(
        list(tree_roots), modes + [_LEAF] * ends, [*nodes_featureids, *rest],
        np.concatenate([nodes_splits, rest]), yes + rest, no + rest,
        missing + [False] * ends, _sets(modes, membership_values),
    )  # fmt: skip
    nodes = range(inner, inner + ends)
    weights = zip(nodes, leaf_targetids, leaf_weights.tolist(), strict=True)
    y = _results(x, trees, weights, n_targets, _AGGREGATES[aggregate_function])
    return posted(y, _POSTS[post_transform])


def _sets(modes: list[str], values: Any) -> list[list[float]]:
    """What nodes look values up in: one list after the other, with NaN between."""
    lists: list[list[float]] = [[]]
    for value in [] if values is None else values.tolist():
        if value != value:
            lists.append([])
        else:
            lists[-1].append(value)
    rest = iter(lists)
    return [next(rest, []) if mode == _MEMBER else [] for mode in modes]
