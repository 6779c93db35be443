"""Recomputation: which values of a training step are kept, which computed again.

    lean        cheap values that every step recomputes
    policies    the argument ``memory`` of ``weft.compile``
    draft       a program's memory, before there is code for it
    segments    a step as a sequence of segments, each kept or recomputed
    planner     the choice that fits a budget and takes least time
    budget      a graph within a budget, by plans and drafts in turn
    regions     checkpointed functions inside a step
    footprint   all the memory of a step, by kind
    shortage    the error when there is not enough memory

The rewriting itself is a pass: ``passes/recompute.py``.
"""
