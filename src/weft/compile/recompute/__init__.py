"""Recomputation: which values of a training step are kept, which computed again.

    policies    what ``weft.compile(f, memory=...)`` can be told
    draft       a program's memory, before there is code for it
    costs       the seconds that a value takes
    segments    a step as a row of stretches, each kept or computed again
    planner     the choice that fits a budget and takes least time
    budget      a graph within a budget, by plans and drafts in turn
    regions     checkpointed functions inside a step
    footprint   all the memory of a step, by what it is for
    shortage    the error of memory that is not there

The rewriting itself is a pass: ``passes/recompute.py``.
"""
