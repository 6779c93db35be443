"""``weft.utils.hooks``: the handle that a hook is removed with."""

from weft.nn.module import RemovableHandle

__all__ = ["RemovableHandle"]
