"""``weft.distributed.nn``: functions of several processes, which Weft has not."""

from weft.distributed import needing_group

globals().update(
    needing_group("all_gather", "all_reduce", "all_to_all", "broadcast", "reduce")
)
