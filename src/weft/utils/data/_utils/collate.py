"""``default_collate`` and ``default_convert`` under PyTorch's path."""

from weft.utils.data.collate import default_collate, default_convert

__all__ = ["default_collate", "default_convert"]
