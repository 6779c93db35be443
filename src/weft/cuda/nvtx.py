"""``weft.cuda.nvtx``: marks for NVIDIA's profiler, which needs a GPU."""

from weft.core.absent import needing

_NEED_ONE = """
    range_push range_pop range mark
"""
globals().update(needing("cuda", _NEED_ONE))
