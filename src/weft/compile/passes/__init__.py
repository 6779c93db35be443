"""The compiler's graph passes: pure functions from graph to graph, one idea a file."""

from weft.compile.passes.canonicalize import canonicalize
from weft.compile.passes.channels_last import channels_last
from weft.compile.passes.concat_padded_sums import concat_padded_sums
from weft.compile.passes.cse import cse
from weft.compile.passes.fold import fold
from weft.compile.passes.fold_into_convolution import fold_into_convolution
from weft.compile.passes.freeze import freeze
from weft.compile.passes.fuse_attention import fuse_attention
from weft.compile.passes.merge_product_sums import merge_product_sums
from weft.compile.passes.merge_sibling_products import merge_sibling_products
from weft.compile.passes.recompute import recompute
from weft.compile.passes.simplify import simplify
from weft.compile.passes.simplify_views import simplify_views
from weft.compile.passes.sink_checks import sink_checks
from weft.compile.passes.sink_permutes import sink_permutes
from weft.compile.passes.slice_strided_convolutions import slice_strided_convolutions
from weft.compile.passes.stack_carries import stack_carries
from weft.compile.passes.sum_after_loops import sum_after_loops
from weft.compile.passes.sum_pool_windows import sum_pool_windows
from weft.compile.passes.transpose_products import transpose_products
from weft.compile.passes.user_rules import add_rule, remove_rule, user_rules
from weft.graph.passes import dead_code

__all__ = [
    "add_rule",
    "canonicalize",
    "channels_last",
    "concat_padded_sums",
    "cse",
    "dead_code",
    "fold",
    "fold_into_convolution",
    "freeze",
    "fuse_attention",
    "merge_product_sums",
    "merge_sibling_products",
    "recompute",
    "remove_rule",
    "simplify",
    "simplify_views",
    "sink_checks",
    "sink_permutes",
    "slice_strided_convolutions",
    "stack_carries",
    "sum_after_loops",
    "sum_pool_windows",
    "transpose_products",
    "user_rules",
]
