"""Files: tensors, structures of them, and whole programs, as safetensors."""

from weft.serialization.atomic import about, replacing, sweep
from weft.serialization.files import load, save

__all__ = ["about", "load", "replacing", "save", "sweep"]
