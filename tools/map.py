"""The map of Weft's source: one line a module, by room in reading order.

    python tools/map.py

writes ``docs/map.md`` from the first line of each module's docstring. A room is a
package; its line is that of its ``__init__.py``. In a room, a module comes after the
ones that it imports.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable
from pathlib import Path

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "weft"
PAGE = ROOT / "docs" / "map.md"
QUOTES = '"' * 3  # around a docstring
# Rooms in reading order; those that are not named follow the one around them.
ORDER = """. core ops autograd func graph
compile compile/frontend compile/passes compile/fusion compile/lower compile/loop
compile/emit compile/program compile/targets compile/targets/cpu compile/cost
compile/tuning compile/recompute compile/explain compile/eager
runtime nn optim utils training memory serialization linalg methods models datasets
kernels symbolic static layers array_api cli"""
HEAD = """\
# Map of the source

Every module in a line, by room (package) in reading order: from tensors and operators
through graphs and the compiler to networks, optimizers and the rest. In a room, a
module comes after the ones that it imports. The page is made by `python tools/map.py`
from the first lines of the modules' docstrings:

```python
import weft.compile.pipeline

print(weft.compile.pipeline.__doc__)
```

How the rooms work together is told in [Architecture](architecture.md).
"""


def first_line(path: Path) -> str:
    """The first line of a module's docstring."""
    text = path.read_text(encoding="utf-8")
    end = text.find(QUOTES, len(QUOTES)) + len(QUOTES)
    first = text[:end] if text.startswith(QUOTES) else text
    return (ast.get_docstring(ast.parse(first)) or "").partition("\n")[0]


def rooms() -> list[Path]:
    """The packages of Weft, in reading order."""
    order = {SOURCE / name: at for at, name in enumerate(ORDER.split())}
    found = {path.parent for path in SOURCE.rglob("*.py")}

    def place(room: Path) -> tuple[int, str]:
        near = next(p for p in (room, *room.parents) if p in order)
        return order[near], str(room)

    return sorted(found, key=place)


def modules(room: Path) -> list[Path]:
    """The modules of a room, each after those that it imports."""
    every = sorted(path for path in room.glob("*.py") if path.stem != "__init__")
    known = {_name(path): path for path in every}
    done: dict[Path, None] = {}
    entered: set[Path] = set()

    def visit(path: Path) -> None:
        if path not in entered:
            entered.add(path)
            for name in sorted(_imports(path) & known.keys()):
                visit(known[name])
            done[path] = None

    for path in every:
        visit(path)
    return list(done)


def _name(path: Path) -> str:
    return ".".join(path.relative_to(SOURCE.parent).with_suffix("").parts)


def _imports(path: Path) -> set[str]:
    """The modules that a module imports when it is imported, by name."""
    found: set[str] = set()
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            found.add(node.module)
            found.update(f"{node.module}.{alias.name}" for alias in node.names)
    return found


def page() -> str:
    """The text of ``docs/map.md``."""
    return "\n".join([HEAD, *map(_room, rooms())])


def _room(room: Path) -> str:
    where = room.relative_to(SOURCE.parent)
    head = f"## {where}\n\n{_line(room / '__init__.py')}\n"
    return "\n".join([head, *_entries(modules(room))])


def _line(path: Path) -> str:
    place = path.relative_to(SOURCE.parent).as_posix()
    return f"[`{path.name}`](../src/{place}): {first_line(path)}"


def _entries(paths: Iterable[Path]) -> list[str]:
    return [f"- {_line(path)}" for path in paths] + [""]


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
