"""Files: tensors, structures of them, and whole programs; PyTorch's and safetensors."""

from weft.serialization.atomic import about, replacing, sweep
from weft.serialization.files import get_unsafe_globals_in_checkpoint, load, save
from weft.serialization.names import (
    UnsafeGlobalError,
    add_safe_globals,
    clear_safe_globals,
    get_safe_globals,
    safe_globals,
)
from weft.serialization.options import (
    LoadEndianness,
    get_crc32_options,
    get_default_load_endianness,
    get_default_mmap_options,
    set_crc32_options,
    set_default_load_endianness,
    set_default_mmap_options,
    skip_data,
)

__all__ = [
    "LoadEndianness", "UnsafeGlobalError", "about", "add_safe_globals",
    "clear_safe_globals", "get_crc32_options", "get_default_load_endianness",
    "get_default_mmap_options", "get_safe_globals", "get_unsafe_globals_in_checkpoint",
    "load", "replacing", "safe_globals", "save", "set_crc32_options",
    "set_default_load_endianness", "set_default_mmap_options", "skip_data", "sweep",
]  # fmt: skip
