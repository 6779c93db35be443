"""Files under TensorFlow 1's names: the functions of Python's own modules."""

from __future__ import annotations

import glob as _glob
import os
import shutil
from typing import Any

__all__ = [
    "Copy", "DeleteRecursively", "Exists", "FastGFile", "GFile", "Glob", "IsDirectory",
    "ListDirectory", "MakeDirs", "MkDir", "Open", "Remove", "Rename", "Stat", "Walk",
]  # fmt: skip

GFile = Open = FastGFile = open
Exists, IsDirectory, ListDirectory = os.path.exists, os.path.isdir, os.listdir
Glob, Remove, Stat, Walk = _glob.glob, os.remove, os.stat, os.walk
MkDir, DeleteRecursively = os.mkdir, shutil.rmtree


def MakeDirs(dirname: Any) -> None:
    """Make a folder and those around it; one that is there already is no error.

    >>> import tempfile
    >>> weft.static.gfile.MakeDirs(tempfile.mkdtemp() + "/a/b")
    """
    os.makedirs(dirname, exist_ok=True)


def Copy(oldpath: Any, newpath: Any, overwrite: bool = False) -> None:
    """Copy a file; one that is there is replaced only if told.

    >>> import os, tempfile
    >>> path = os.path.join(tempfile.mkdtemp(), "a")
    >>> with weft.static.gfile.Open(path, "w") as file:
    ...     _ = file.write("text")
    >>> weft.static.gfile.Copy(path, path + "2")
    >>> weft.static.gfile.Exists(path + "2")
    True
    """
    _check_free(newpath, overwrite)
    shutil.copyfile(oldpath, newpath)


def Rename(oldname: Any, newname: Any, overwrite: bool = False) -> None:
    """Rename a file; one that is there is replaced only if told.

    >>> import os, tempfile
    >>> path = os.path.join(tempfile.mkdtemp(), "a")
    >>> weft.static.gfile.Open(path, "w").close()
    >>> weft.static.gfile.Rename(path, path + "2")
    >>> weft.static.gfile.Exists(path)
    False
    """
    _check_free(newname, overwrite)
    os.replace(oldname, newname)


def _check_free(path: Any, overwrite: bool) -> None:
    from weft.static.errors import AlreadyExistsError

    if not overwrite and os.path.exists(path):
        raise AlreadyExistsError(f"{path} exists; pass overwrite=True to replace it")


def __getattr__(name: str) -> Any:
    from weft.static import absent

    raise absent.error("gfile", name)
