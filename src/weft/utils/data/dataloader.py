"""The loader under PyTorch's path ``utils.data.dataloader``."""

from weft.utils.data.collate import default_collate, default_convert
from weft.utils.data.loader import DataLoader
from weft.utils.data.worker import get_worker_info

__all__ = ["DataLoader", "default_collate", "default_convert", "get_worker_info"]
