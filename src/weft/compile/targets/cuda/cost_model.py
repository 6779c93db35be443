"""The GPU's cost model: every threshold that decides how programs run, and why.

Passes, fusion and lowering read the records that all targets have (see
``targets.CostModel``); the others are this target's own.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from weft.compile.targets.cpu import cost_model as cpu


@dataclass(frozen=True)
class Blocks:
    """How the iterations of kernels are given to threads."""

    threads: int = 256  # of a block whose threads each take iterations of their own
    vector: int = 16  # bytes that a thread loads and stores at once
    long: int = 1 << 22  # elements from which waiting for memory is all that counts
    long_loads: int = 2  # of a thread there: more hide what it computes with the first
    short_row: int = 128  # bytes of a row that one thread takes alone: a cache's line
    column: int = 8  # bytes of a row that a thread takes, where it sums columns
    columns: int = 1 << 16  # threads that must be left, to have several columns each
    loads: int = 8  # of a thread in a row: fewer would leave the memory idle
    loads_again: int = 4  # the same, where a row is read again: more threads hide more
    least_row: int = 32  # threads of a row: a warp
    most_row: int = 512  # threads of a row: more wait for one another too long
    held: int = 64  # numbers of rows that a thread keeps: more registers, fewer warps
    unknown_row: int = 256  # threads for rows whose length is an argument
    scratch: int = 4096  # bytes of a kernel's own memory: more would spill to DRAM


@dataclass(frozen=True)
class Attention:
    """The shape of a block of attention: see ``targets.cuda.attention``."""

    tiles: int  # of 16 rows, a warp: more use what is loaded more often
    warps: int
    step: int  # other rows at a time: more take more registers


# Measured on an H200: blocks of few warps wait for one another less.
_ATTENTION = {
    ("forward", 64): Attention(tiles=2, warps=4, step=64),
    ("forward", 128): Attention(tiles=1, warps=8, step=128),
    ("queries", 64): Attention(tiles=2, warps=4, step=32),
    ("queries", 128): Attention(tiles=1, warps=4, step=64),
    ("keys", 64): Attention(tiles=1, warps=4, step=64),
    ("keys", 128): Attention(tiles=1, warps=4, step=32),
}


@dataclass(frozen=True)
class WarpgroupAttention:
    """The shape of a block of ``targets.cuda.warpgroup_attention``."""

    groups: int  # warpgroups that multiply: three have fewer registers each
    step: int  # other rows at a time
    stages: int  # tiles of others in memory; an even number
    own: int  # tiles of the block's own: with two, the next one is there in time


_WARPGROUP_ATTENTION = {
    ("forward", 64): WarpgroupAttention(groups=2, step=128, stages=4, own=2),
    ("forward", 128): WarpgroupAttention(groups=2, step=128, stages=4, own=2),
    ("queries", 64): WarpgroupAttention(groups=2, step=128, stages=4, own=2),
    ("queries", 128): WarpgroupAttention(groups=2, step=64, stages=4, own=1),
    ("keys", 64): WarpgroupAttention(groups=2, step=64, stages=4, own=2),
    ("keys", 128): WarpgroupAttention(groups=2, step=64, stages=4, own=1),
}


@dataclass(frozen=True)
class Products:
    """Which kernels compute a product."""

    measured: int = 1 << 29  # multiplications: a smaller one is not worth a trial
    widths: tuple[int, ...] = (256, 128)  # of tiles of C: wide ones read less


@dataclass(frozen=True)
class Convolutions:
    """Which of cuDNN's algorithms compute a convolution."""

    workspace: int = 1 << 28  # bytes: an algorithm that needs more is not used
    candidates: int = 3  # that are timed, of the ones that cuDNN expects to be fast


# A block adds up a task; enough tasks keep all multiprocessors busy.
_REDUCTIONS = cpu.Reductions(
    serial=1 << 30,  # threads share the loop: each adds up few numbers
    serial_columns=1 << 30,
    task=1 << 13,
    few_results=1024,
    least_rows=16,
    most_rows=128,
    most_tasks=1024,
)
_LOOPS = cpu.Loops(least_run=1 << 40)  # threads need no runs
# Rows are not combined in scratch memory, which no GPU has enough of.
# Values are computed again rather than stored: threads wait for memory.
_FUSION = cpu.Fusion(
    recomputed=64, widest_row=0, copied_view=1, separate_sums=True,
    recomputed_reads=True,
)  # fmt: skip
_ORDERING = cpu.Ordering(pairs=1 << 10, scatter_blocks=4096, window_sums=True)
_RECOMPUTE = cpu.Recompute()
_SPLIT_K = cpu.SplitK(least_k=1 << 40)  # the library's products split themselves


@dataclass(frozen=True)
class CudaCostModel:
    """The thresholds of a GPU, by area."""

    blocks: Blocks = Blocks()
    attention: Mapping[tuple[str, int], Attention] = field(
        default_factory=lambda: _ATTENTION
    )
    warpgroup_attention: Mapping[tuple[str, int], WarpgroupAttention] = field(
        default_factory=lambda: _WARPGROUP_ATTENTION
    )
    products: Products = Products()
    convolutions: Convolutions = Convolutions()
    loops: cpu.Loops = _LOOPS
    reductions: cpu.Reductions = _REDUCTIONS
    fusion: cpu.Fusion = _FUSION
    ordering: cpu.Ordering = _ORDERING
    recompute: cpu.Recompute = _RECOMPUTE
    split_k: cpu.SplitK = _SPLIT_K


COST = CudaCostModel()
