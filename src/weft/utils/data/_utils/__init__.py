"""PyTorch's paths of collating functions: ``utils.data._utils.collate``."""

from weft.utils.data import collate, worker

__all__ = ["collate", "worker"]
