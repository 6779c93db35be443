"""``weft.version``: Weft's version, and the libraries it was built with: none."""

from __future__ import annotations

import weft

__version__ = weft.__version__
debug = False
cuda: str | None = None
hip: str | None = None
rocm: str | None = None
xpu: str | None = None
git_version = "unknown"
