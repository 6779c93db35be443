"""``weft.distributed.tensor``: no tensor is shared out to processes."""

from __future__ import annotations

from typing import Any

from weft.distributed import needing_group


class DTensor:
    """A tensor in parts on several devices; none can be made here."""

    def __init__(self, *args: Any, **options: Any) -> None:
        needing_group("DTensor")["DTensor"]()


distribute_tensor = needing_group("distribute_tensor")["distribute_tensor"]
implicit_replication = needing_group("implicit_replication")["implicit_replication"]
