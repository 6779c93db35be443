"""The CPU's cost model: every threshold that decides how programs run, and why.

    COST.loops.chunk            elements of one iteration of a flat loop

Each area of the compiler has a record. A field's comment gives its unit and its reason.
They suit CPUs with 32 KiB of first cache. Tuning may replace those of
``tuning.choices``, which has its defaults from here. Fields that say so decide the
order of sums, hence rounding: they are the same on every machine and are never tuned.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Caches:
    """Sizes of caches, in bytes."""

    line: int = 64  # a cache line, written as one by streaming stores
    alias: int = 4096  # addresses this far apart share a set of the first cache
    half_alias: int = 2048  # rows at multiples of this share few sets
    second: int = 512 << 10  # second cache, where the system does not tell
    least_second: int = 256 << 10  # a smaller answer is not believed


@dataclass(frozen=True)
class Threads:
    """How loops are shared out."""

    chunks: int = 64  # at most, of a loop without a grain, however many threads


@dataclass(frozen=True)
class Loops:
    """How the loops of kernels are cut."""

    chunk: int = 4096  # elements of one iteration: 16 KiB of float32, half a cache
    square: int = 16  # side of a square that is transposed: lines fill whole vectors
    block: int = 64  # columns of a reduction that one iteration takes
    wide: int = 1024  # the same, where there are iterations enough for all threads
    grain: int = 1 << 15  # operations that are worth handing to another thread
    chunks: int = 32  # chunks of a long loop for a thread: memory is read in order
    long_row: int = 512  # elements of a row from which on blocks are four times as wide
    far: int = 1 << 23  # bytes that near caches do not hold: squares go in read order
    jammed_rows: int = 8  # rows combined at a time: totals are read and written less
    jammed_operations: int = 4  # at most, of a loop that waits for memory
    scalar_moves: int = 8  # elements that a loop of moves is unrolled to: no vectors
    totals: tuple[int, ...] = (64, 32, 16)  # of one sum, side by side; decides rounding
    shared_quotient: int = 4  # iterations with one quotient that are written out
    stride: int = 4  # elements from one to the next that vectors are shuffled for
    least_run: int = 16  # elements of a contiguous run that is worth its own loop


@dataclass(frozen=True)
class Reductions:
    """How sums are cut. All of these decide rounding."""

    serial: int = 4096  # elements that one innermost loop adds up
    serial_columns: int = 512  # the same, where columns are added up row after row
    serial_totals: int = 512  # totals of inner loops that one loop adds up
    nested: int = 64  # elements that nested loops add up in one total
    task: int = 1 << 14  # elements that are worth a task of their own
    few_results: int = 8  # fewer leave threads without work, so tasks share each
    least_rows: int = 64  # rows of a task that adds up columns, at least
    most_rows: int = 512  # the same, at most: they are added one after the other
    most_tasks: int = 128  # of columns: their totals are added up at the end
    least_tasks: int = 4  # fewer are not worth a second kernel


@dataclass(frozen=True)
class Streaming:
    """When results are stored past the caches."""

    large: int = 1 << 25  # bytes of a result of which caches would keep little
    copied: int = 1 << 24  # bytes of a mere copy, which waits for memory alone
    chunk: int = 1024  # elements that are computed before they are stored: 4 KiB
    least_row: int = 64  # elements of a row that is worth it, unless in scratch memory


@dataclass(frozen=True)
class Fusion:
    """When values are computed together, apart or ahead of their turn."""

    recomputed: int = 1  # cost of a value that a later loop over a row computes again
    widest_row: int = 4096  # elements of rows combined in scratch memory: half a cache
    beside: int = 1 << 12  # elements, up to which updates with a number in common join:
    #                        more would be more streams than a processor prefetches
    early: int = 1 << 14  # elements of a group that may run before its turn, so that
    #                       another becomes an epilogue
    hoisted: int = 1 << 14  # elements of a value that is hoisted: as ``early``
    copied_view: int = 4096  # elements of an output view that is worth a launch
    concat_pieces: int = 5  # that are copied one by one; fewer are loops of one kernel
    merged_sums: int = 4  # terms whose operands are worth concatenating
    recomputed_reads: bool = False  # whether cheap values are computed where they are
    #                                 read, if that reads no more bytes
    separate_sums: bool = False  # whether sums of columns compute their terms apart
    #                              from sums of rows; here one kernel does both


@dataclass(frozen=True)
class Ordering:
    """Sorts, scans and scatters."""

    pairs: int = 128  # elements, up to which comparing all pairs in vectors is fastest
    long: int = 4096  # elements, from which on 11-bit digits pay for larger counts
    scatter_blocks: int = 8  # blocks of rows, each of which reads all updates
    window_sums: bool = False  # whether gradients of overlapping pools are sums over
    #                            the windows of each element; here they are scattered
    scatter_width: int = 16  # elements behind an index that fill a vector


@dataclass(frozen=True)
class Recompute:
    """When gradients recompute a cheap value instead of reading it."""

    least: int = 1 << 12  # elements, below which keeping the value costs little
    steps: int = 4  # cheap operations that take less time than reading does
    smaller: int = 8  # times: a value so much smaller costs nothing to keep


@dataclass(frozen=True)
class SplitK:
    """Products with a long k and few results, cut along k. It decides rounding."""

    blocks: int = 4  # of k: products that threads share
    least_k: int = 2048  # multiplications of a result, below which one task does
    most_results: int = 1 << 14  # more are cut by rows and columns instead


@dataclass(frozen=True)
class Matmul:
    """Matrix products: C[m, n] = A[m, k] @ B[k, n]."""

    # Tiles
    depth: int = 1024  # bytes of a row that are summed at a time; decides rounding
    packed_rows: int = 14  # rows of A packed at a time, at most: lines are read whole
    wide_tile: int = 1024  # m, n and k from which on a wide tile is worth its code
    # Cutting C into tasks. Times count multiplications for each step of k.
    serial: int = 1 << 19  # multiplications that are not worth sharing
    matrices: int = 4  # of a batch, for each thread: they need no cutting
    packing: int = 8  # time of packing an element of A or B
    tasks: tuple[int, ...] = (1, 2, 3, 4)  # for each thread: more balance, more packing
    late: int = 24  # a late thread has this fraction of a task still to do, say
    most_jobs: int = 256  # of a product with irregular strides: more are a host call
    # Packed operands
    weight: int = 1 << 14  # elements of a variable that is worth packing once
    weight_rows: int = 512  # of A: beyond, packing is little beside the product
    readers: int = 4  # products that read one operand: worth packing it once
    reread: int = 32  # multiplications that take as long as reading a result again
    copied_rows: int = 8  # of B packed at a time: a panel alone touches many pages
    cached: int = 1 << 20  # elements of B that caches may hold from strip to strip
    # Strips of register tiles
    prefetch_k: int = 128  # steps of k that leave time to fetch ahead
    short_strip: int = 8  # rows of the last strip but one where two rows would be left
    row_pointers: int = 8  # general registers for addresses of rows
    # C' = B' A', for few rows of C
    transposed_k: int = 128  # steps of k that pay for transposing the result back
    transposed_panels: int = 8  # of rows of C' that are transposed back at a time
    # Few rows or columns
    few: int = 4  # rows or columns of C: one operand is read once, nothing is packed
    long: int = 4  # vectors that the other sizes fill at least
    dot_rows: int = 32  # rows of C for which dot products cost less than packing B
    dot_bytes: int = 4096  # of a row for such dot products: four rows of each operand
    #                        fill the first cache; decides rounding
    dots_ahead: int = 2  # blocks of rows ahead that are prefetched
    sums: int = 16384 + 512  # bytes of a row of sums; no multiple of a page, because a
    #                          load waits for a store with the same last twelve bits
    small: int = 16384 - 512  # bytes of the small operand packed at a time; decides
    #                           rounding
    added_columns: int = 8  # at a time: their scales are held in registers


@dataclass(frozen=True)
class Convolution:
    """Convolutions and their gradients. Times count multiplications per step of k."""

    # Which way
    product_pixels: int = 192  # of an image that is worth a product of its own
    full_pixels: int = 400  # of an image that fill vectors well
    packed_channels: int = 256  # from which on packing pixels is little beside the sums
    packed_images: int = 4  # from which on their pixels are packed together
    direct_rows: int = 8  # rows of C that do not pay for packing windows
    dots_columns: int = 8  # columns of the weights' gradient that are dot products
    # Cutting C into tasks
    columns: int = 256  # pixels: their windows fill half of a second cache
    packing: int = 8  # time of packing an element of weights, or of a run of windows
    transposed_packing: int = 16  # time of packing a gradient that is transposed
    scattered_packing: int = 32  # time of packing a weight from anywhere
    heavy: int = 1 << 21  # bytes of weights that are read for more columns at a time
    tall: int = 18  # strips of the weights' gradient that a task has at most
    even: int = 2  # rows of a task are a multiple of this: tiles of one row are slow
    equal_tasks: int = 16  # for each thread, that are as good as equal shares
    late: int = 32  # a late thread has this fraction of a task still to do, say
    direct_task: int = 1 << 17  # multiplications that are worth a task
    dots_sums: int = 1 << 14  # elements of sums that stay in the first cache
    short: int = 2  # a block of 1 / this of the depth costs more than packing does
    # Code
    heights: tuple[int, ...] = (8, 4, 2, 1)  # of register tiles without packing
    direct_sums: int = 16  # vectors of sums that are held at a time
    patch_rows: int = 4  # of windows that are copied without waiting
    epilogue: int = 1 << 13  # elements of a result in the first cache for an epilogue
    epilogue_rows: int = 8  # of them, at least


@dataclass(frozen=True)
class Winograd:
    """Convolutions with 3x3 and 5x5 kernels by tiles of 2x2 results."""

    least_channels: int = 16  # fewer are not worth the transforms
    least_tiles: int = 12  # fewer fill no vector
    tiles: int = 128  # of a task, which take 16 numbers each; half of 5x5 kernels'
    block: int = 128  # channels summed at a time; decides rounding
    weight_rows: int = 126  # channels of x in a task of the weights' gradient
    weight_columns: int = 256  # channels of y in such a task
    weight_block: int = 128  # tiles summed at a time; decides rounding
    wide_block: int = 32  # the same for 5x5 kernels, whose tiles take 49 numbers
    wide_channels: int = 32  # for whose gradient fewer are not worth the transforms


@dataclass(frozen=True)
class Attention:
    """Attention by blocks of scores. Block sizes decide rounding."""

    forward_keys: int = 128  # of a block: its scores stay in the first cache
    backward_keys: int = 256  # of a block, for gradients
    backward_rows: int = 56  # a multiple of the tallest register tiles
    causal_rows: int = 28  # the same where half a square is hidden: less in vain
    few_rows: int = 6  # queries that are computed one after the other
    panels: int = 4  # of queries for a task: each block of keys is read for all
    heads: int = 4  # for each thread: fewer are cut into blocks
    feature_vectors: int = 4  # that few queries sum at once


@dataclass(frozen=True)
class ControlFlow:
    """Loops whose iterations run natively."""

    poll: int = 1 << 22  # operations after which an interrupt is looked for
    launch: int = 1 << 10  # operations that launching one kernel is worth


@dataclass(frozen=True)
class WeightOnly:
    """Few rows times packed weights."""

    rows: int = 64  # for more, weights are worth unpacking to memory
    # Rows of weights in a task, multiples of those multiplied at a time. What a thread
    # fetches ahead at the end of a task is often another one's, so tasks are long.
    least_task_rows: int = 64  # if there are many threads
    most_task_rows: int = 384  # if threads are few: a late one delays all by a task
    serial: int = 1 << 17  # bytes of weights, times rows, that are not worth sharing
    # A processor by itself begins anew with each page. Each vector of a line asks for
    # the same one ahead: when all that can wait for memory does, asking has no effect.
    ahead: int = 16 << 10  # bytes of weights, from those read to those prefetched


@dataclass(frozen=True)
class CpuCostModel:
    """The thresholds of a CPU, by area."""

    caches: Caches = Caches()
    threads: Threads = Threads()
    loops: Loops = Loops()
    reductions: Reductions = Reductions()
    streaming: Streaming = Streaming()
    fusion: Fusion = Fusion()
    ordering: Ordering = Ordering()
    recompute: Recompute = Recompute()
    split_k: SplitK = SplitK()
    matmul: Matmul = Matmul()
    convolution: Convolution = Convolution()
    winograd: Winograd = Winograd()
    attention: Attention = Attention()
    control_flow: ControlFlow = ControlFlow()
    weight_only: WeightOnly = WeightOnly()
    stored_executable: int = 64 << 20  # bytes: an eighth of the cache on disk


COST = CpuCostModel()
