"""``weft.hub``: models from folders on this machine; nothing is downloaded.

A folder has a file ``hubconf.py`` whose public functions make models.
"""

from __future__ import annotations

import builtins
import importlib.util
import os
import pathlib
import re
import sys
import urllib.parse
from typing import Any

from weft.errors import ArgumentError

_folder: str | None = None
HASH_REGEX = re.compile(r"-([a-f0-9]*)\.")  # of a file's contents, in its name
urlparse = urllib.parse.urlparse


def get_dir() -> str:
    """The folder of files that were put there before (``checkpoints/`` in it).

    >>> isinstance(weft.hub.get_dir(), str)
    True
    """
    if _folder is not None:
        return _folder
    cache = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    home = os.environ.get("TORCH_HOME") or os.path.join(cache, "torch")
    return os.path.join(home, "hub")


def set_dir(d: str | os.PathLike[str]) -> None:
    """Choose that folder.

    >>> before = weft.hub.get_dir()
    >>> weft.hub.set_dir(before)
    """
    global _folder
    _folder = os.path.expanduser(d)


def _module(folder: Any, source: str) -> Any:
    path = pathlib.Path(folder) / "hubconf.py"
    if source != "local":
        raise ArgumentError(
            f"hub: source={source!r} would download {str(folder)!r}; fetch the "
            "repository yourself and pass its folder with source='local'"
        )
    if not path.is_file():
        raise FileNotFoundError(f"hub: there is no file {str(path)!r}")
    sys.path.insert(0, str(path.parent))
    try:
        spec = importlib.util.spec_from_file_location("hubconf", path)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
    finally:
        sys.path.remove(str(path.parent))
    return module


def _entries(module: Any) -> dict[str, Any]:
    return {
        name: value
        for name, value in vars(module).items()
        if callable(value) and not name.startswith("_")
    }


def _entry(module: Any, model: str) -> Any:
    found = _entries(module)
    if model not in found:
        have = ", ".join(found) or "none"
        raise RuntimeError(f"hub: there is no model {model!r}; there are: {have}")
    return found[model]


def list(
    github: Any, force_reload: bool = False, *, source: str = "github", **_: Any
) -> builtins.list[str]:
    """The names of a folder's models.

    >>> weft.hub.list("models", source="local")
    Traceback (most recent call last):
        ...
    FileNotFoundError: hub: there is no file 'models/hubconf.py'
    """
    return builtins.list(_entries(_module(github, source)))


def help(
    github: Any, model: str, force_reload: bool = False, *, source: str = "github",
    **_: Any,
) -> str | None:  # fmt: skip
    """The docstring of a model's function.

    >>> weft.hub.help("models", "resnet", source="local")
    Traceback (most recent call last):
        ...
    FileNotFoundError: hub: there is no file 'models/hubconf.py'
    """
    return _entry(_module(github, source), model).__doc__


def load(
    repo_or_dir: Any, model: str, *args: Any, source: str = "github",
    trust_repo: Any = None, force_reload: bool = False, verbose: bool = True,
    skip_validation: bool = False, **kwargs: Any,
) -> Any:  # fmt: skip
    """A model: the result of ``hubconf.py``'s function of that name.

    >>> weft.hub.load("models", "resnet", source="local")
    Traceback (most recent call last):
        ...
    FileNotFoundError: hub: there is no file 'models/hubconf.py'
    """
    return _entry(_module(repo_or_dir, source), model)(*args, **kwargs)


def download_url_to_file(url: str, dst: str, *args: Any, **kwargs: Any) -> None:
    """Raise an error: fetch the file yourself.

    >>> weft.hub.download_url_to_file("https://host/a.pt", "a.pt")
    Traceback (most recent call last):
        ...
    RuntimeError: hub: Weft downloads nothing; fetch https://host/a.pt ...
    """
    raise RuntimeError(
        f"hub: Weft downloads nothing; fetch {url} yourself and put it at {dst!r}"
    )


def load_state_dict_from_url(
    url: str, model_dir: str | None = None, map_location: Any = None,
    progress: bool = True, check_hash: bool = False, file_name: str | None = None,
    weights_only: bool = False,
) -> Any:  # fmt: skip
    """The state dict in a file that was put into ``get_dir()/checkpoints`` before.

    >>> weft.hub.load_state_dict_from_url("https://host/no.pt", model_dir="none")
    Traceback (most recent call last):
        ...
    RuntimeError: hub: Weft downloads nothing; fetch https://host/no.pt ...
    """
    import weft

    folder = model_dir or os.path.join(get_dir(), "checkpoints")
    name = file_name or os.path.basename(urllib.parse.urlparse(url).path)
    path = os.path.join(folder, name)
    if not os.path.exists(path):
        download_url_to_file(url, path)
    return weft.load(path)
