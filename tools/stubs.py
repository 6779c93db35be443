"""Write the stubs of declared names: what editors and type checkers see of them.

    python tools/stubs.py            writes them
    python tools/stubs.py --check    says which are out of date

Functions say where they are defined under which names they are found
(``weft.ops.public``). Weft derives its functions, ``Tensor``'s methods and the array
API's functions from that when it is imported; the stubs say the same beforehand.
"""

from __future__ import annotations

import ast
import importlib
import inspect
import pathlib
import sys
import types
from collections.abc import Iterator

import weft
from weft.ops import public

for late in set(public.LATER.values()):
    importlib.import_module(late)  # which declares functions too

ROOT = pathlib.Path(weft.__file__).parent
HEAD = "# Written by tools/stubs.py from the declarations of functions.\n\n"


def homes() -> dict[int, tuple[str, str]]:
    """The module and the name that each declared function is defined under, by id."""
    found: dict[int, tuple[str, str]] = {}
    for name, module in sorted(sys.modules.items()):
        if name.startswith(("weft.ops.", "weft.linalg.", "weft.spectrogram")):
            for bound in _bound(module):
                found.setdefault(id(getattr(module, bound)), (name, bound))
    return found


def _bound(module: types.ModuleType) -> Iterator[str]:
    """The names that a module's own statements bind; imports are not its own."""
    for stmt in ast.parse(inspect.getsource(module)).body:
        if isinstance(stmt, ast.FunctionDef):
            yield stmt.name
        targets = stmt.targets if isinstance(stmt, ast.Assign) else []
        for target in [stmt.target] if isinstance(stmt, ast.AnnAssign) else targets:
            if isinstance(target, ast.Name) and hasattr(module, target.id):
                yield target.id


def functions() -> str:
    """The stub of ``weft``'s functions."""
    home = homes()
    imports, others = [], []
    for fn, names, every in _declared():
        module, bound = home[id(fn)]
        if names.exported:
            # a stub gives its own names on, and those imported as what they are called
            given_on = f" as {bound}" if bound in every else ""
            imports.append(f"from {module} import {bound}{given_on}")
            others += [f"{name} = {bound}" for name in every if name != bound]
    return HEAD + "\n".join([*sorted(imports), "", *sorted(others)]) + "\n"


def methods() -> str:
    """The stub of ``Tensor``'s methods."""
    home = homes()
    plain, inplace, modules = [], [], set()
    for fn, names, every in _declared():
        package, _, module = home[id(fn)][0].rpartition(".")
        if names.method:
            modules.add(f"from {package} import {module}")
            plain += [f"    {name} = {module}.{home[id(fn)][1]}" for name in every]
        if names.inplace is not False:
            given = "self, *args: Any, **kwargs: Any"
            inplace += [f"    def {name}_({given}) -> Tensor: ..." for name in every]
    return (
        f"{HEAD}from typing import Any\n\nfrom weft.core.tensor import Tensor\n"
        + "\n".join(sorted(modules))
        + "\n\nclass Declared:\n"
        + "\n".join([*sorted(plain), *sorted(inplace)])
        + "\n"
    )


def array_api() -> str:
    """The stub of the array API's functions."""
    lines = []
    for name, fn in sorted(public.array_api().items()):
        one = fn.__code__.co_argcount == 1
        given = "x: Array, /" if one else "x1: Any, x2: Any, /"
        lines.append(f"def {name}({given}) -> Array: ...")
    head = "from typing import Any\n\nfrom weft.array_api._common import Array\n\n"
    return HEAD + head + "\n".join(lines) + "\n"


def _declared() -> Iterator[
    tuple[object, public.Names | public.public, tuple[str, ...]]
]:
    """The declarations of Weft's own functions, each with all its names."""
    for name, (fn, names) in public.DECLARED.items():
        yield fn, names, (name, *names.also)


STUBS = {
    ROOT / "_declared.pyi": functions,
    ROOT / "methods" / "_declared.pyi": methods,
    ROOT / "array_api" / "_declared.pyi": array_api,
}


def outdated() -> list[pathlib.Path]:
    """The stubs that are not what would be written."""
    return [
        path
        for path, text in STUBS.items()
        if not path.exists() or path.read_text() != text()
    ]


def main(arguments: list[str]) -> int:
    wrong = outdated()
    if "--check" in arguments:
        for path in wrong:
            print(f"{path} is out of date; run tools/stubs.py")
        return bool(wrong)
    for path in wrong:
        path.write_text(STUBS[path]())
        print(f"wrote {path}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
