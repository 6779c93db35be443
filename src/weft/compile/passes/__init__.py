"""The compiler's graph passes: pure functions from graph to graph, one idea a file."""

import importlib as _importlib

_importlib.import_module("weft.nn")  # its operators register themselves

# ruff: noqa: E402
from weft.compile.passes.attention import attention
from weft.compile.passes.canonical import canonical
from weft.compile.passes.checks import checks
from weft.compile.passes.convolution import convolution
from weft.compile.passes.cse import cse
from weft.compile.passes.fold import fold
from weft.compile.passes.freeze import freeze
from weft.compile.passes.joins import joins
from weft.compile.passes.layout import layout
from weft.compile.passes.products import products
from weft.compile.passes.recompute import recompute
from weft.compile.passes.rules import add_rule, remove_rule, rules
from weft.compile.passes.siblings import siblings
from weft.compile.passes.simplify import simplify
from weft.compile.passes.strides import strides
from weft.compile.passes.sums import sums
from weft.compile.passes.views import views
from weft.graph.passes import dead_code

__all__ = [
    "add_rule",
    "attention",
    "canonical",
    "checks",
    "convolution",
    "cse",
    "dead_code",
    "fold",
    "freeze",
    "joins",
    "layout",
    "products",
    "recompute",
    "remove_rule",
    "rules",
    "siblings",
    "simplify",
    "strides",
    "sums",
    "views",
]
