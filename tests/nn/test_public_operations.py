"""``weft.nn`` is written with what any user has: the public names of the library.

What it takes from inside is listed here, with the reason. The list is exact, so that it
can only be changed on purpose.
"""

import ast
import importlib
import pathlib

import pytest

import weft

FOLDER = pathlib.Path(weft.nn.__file__).parent
PUBLIC = {
    "weft", "weft.autograd", "weft.dtype", "weft.errors", "weft.func", "weft.graph",
    "weft.linalg", "weft.special",
}  # fmt: skip

# Operators whose public function is the one in nn.functional, and their parameters.
OPERATORS = {
    "weft.ops.attention": {"attention"},
    "weft.ops.conv": {
        "Pairs", "Sizes", "col2im_op", "conv_bias_op", "conv_input_grad_op", "conv_op",
        "im2col_op", "window_counts",
    },
    "weft.ops.pooling": {
        "adaptive_bounds", "adaptive_max_index_op", "max_pool_index_op", "max_pool_op",
        "overlap", "picked",
    },
    "weft.ops.resample": {"Taps", "resample_op"},
    "weft.ops.index": {"take_op"},  # after a check that names the layer
}  # fmt: skip
# What public functions do besides operators: checks of arguments, kernels of several
# operators, draws inside a transform, and telling a capture of changes.
INSIDE = {
    "weft.ops.copies": {"in_float32"},
    "weft.ops.elementwise": {"check_accepts"},
    "weft.ops.operands": {"as_index"},
    "weft.ops.require": {"known", "require", "require_index", "require_known"},
    "weft.core.eager_kernels": {"fused", "lstm"},
    "weft.core.dispatch": {"beside"},
    "weft.core.mode": {"mode"},
    "weft.graph.state_cells": {"On"},  # where a capture's guard finds its value
    "weft.autograd.engine": {"at_end"},  # when all gradients of a backward are there
    "weft.core.autocast": {"lowered", "widened"},  # lists of functions
    "weft.core.members": {
        "HOOKS",
        "KINDS",
        "Members",
    },  # the store, which guards know too
}


def imports():
    """What each module of nn takes from the rest of the library."""
    for path in sorted(FOLDER.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith(
                "weft"
            ):
                for alias in node.names:
                    yield path.relative_to(FOLDER), node.module, alias.name
            elif isinstance(node, ast.Import):
                for alias in node.names:
                    if alias.name.startswith("weft."):
                        yield path.relative_to(FOLDER), alias.name, None


def test_nn_uses_public_operations():
    found = {}
    for path, module, name in imports():
        if module == "weft.nn" or module.startswith("weft.nn."):
            continue
        if module in PUBLIC:
            assert name is None or not name.startswith("_"), (path, module, name)
            assert hasattr(importlib.import_module(module), name), (path, name)
        else:
            found.setdefault(module, set()).add(name)
    assert found == {**OPERATORS, **INSIDE}


def test_operators_stay_in_functional():
    for path, module, _ in imports():
        if module in OPERATORS and module != "weft.ops.attention":
            assert path.parts[0] == "functional", path


@pytest.mark.parametrize("module", sorted(PUBLIC))
def test_public_modules_say_what_they_are(module):
    assert importlib.import_module(module).__doc__
