"""Lowering: from a group of nodes to the loops of one kernel.

    group             the way from a group to its kernel
    flat              groups in which nothing is reduced
    rows              reductions, and what is computed from them
    base              the values of both; scatters, scans and sorts use it too
    scans, sorts      loops in which an element depends on others
    pairwise_sums     sums in several levels
    contiguous_runs   loops of their own for what is contiguous in memory
    deduplicate       one kernel for groups that are alike

The plain loops are those of the group's shape; the target's schedule says what
becomes of them.
"""
