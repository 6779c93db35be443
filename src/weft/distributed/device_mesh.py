"""``weft.distributed.device_mesh``: grids of devices, of which there are none."""

from __future__ import annotations

from typing import Any

from weft.distributed import needing_group


class DeviceMesh:
    """A grid of devices; none can be made here."""

    def __init__(self, *args: Any, **options: Any) -> None:
        needing_group("DeviceMesh")["DeviceMesh"]()


init_device_mesh = needing_group("init_device_mesh")["init_device_mesh"]
