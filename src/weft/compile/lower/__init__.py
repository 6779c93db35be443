"""Lowering: from a group of nodes to the loops of one kernel.

    group             the kernel of a group; groups without reductions
    rows              reductions, and values computed from them
    base              the values of both; scatters, scans and sorts use it too
    scans, sorts      loops in which an element depends on others
    pairwise_sums     sums in several levels
    contiguous_runs   loops over runs that are contiguous in memory
    deduplicate       one kernel for groups that are alike

Loops are those of the group's shape; the target's schedule transforms them.
"""
