"""``weft.vision.version``: Weft's version."""

from weft.version import __version__, cuda, git_version

__all__ = ["__version__", "cuda", "git_version"]
