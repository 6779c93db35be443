"""Three scorecards of Weft: how much there is to read, to write and to wait for.

    python tools/lines.py

prints lines of code by package and tier with the budget of each tier, lines that a
model, an operator and a target take to write, and speed beside other frameworks.
"""

from __future__ import annotations

import ast
import functools
import re
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from benchmarks.suite.report import Report  # noqa: E402
from benchmarks.suite.table import summary, text  # noqa: E402

SOURCE = ROOT / "src" / "weft"
MEASURED = Report.read((ROOT / "benchmarks" / "results.json").read_text())
# The packages to read in order to know how Weft works.
CORE = ["core", "ops", "autograd", "func", "graph", "compile", "runtime", "nn", "optim"]
# Lines of code that a tier may have: its size, rounded up a little. It is to go down.
BUDGET = {"core": 82_000, "rest": 62_500}  # with exports, servers and plans


class Lines(NamedTuple):
    """Lines of code, and of docstrings and comments; blank lines are neither."""

    code: int
    words: int

    def __add__(self, other: Lines) -> Lines:
        return Lines(self.code + other.code, self.words + other.words)


@functools.cache
def count(source: str) -> Lines:
    """The lines of a program's text.

    >>> count('def f(x):\\n    "Twice x."\\n\\n    # by a sum\\n    return x + x\\n')
    Lines(code=2, words=2)
    """
    tree = ast.parse(source)
    rows = source.split("\n")
    code: set[int] = set()
    words = {k for k, row in enumerate(rows, 1) if row.lstrip().startswith("#")}
    for node in ast.walk(tree):  # a line in a long string may look like a comment
        if isinstance(node, (ast.Constant, ast.JoinedStr)):
            words.difference_update(range(node.lineno + 1, node.end_lineno + 1))
            code.update(range(node.lineno, node.end_lineno + 1))
    for node in _texts(tree):
        lines = range(node.lineno, node.end_lineno + 1)
        words.update(k for k in lines if rows[k - 1].strip())
        code.difference_update(lines)
        before = rows[node.lineno - 1].encode()[: node.col_offset]
        after = rows[node.end_lineno - 1].encode()[node.end_col_offset :]
        if before.strip():
            code.add(node.lineno)
        if after.strip():
            code.add(node.end_lineno)
    code.update(k for k, row in enumerate(rows, 1) if row.strip() and k not in words)
    return Lines(len(code), len(words - code))


def _texts(tree: ast.Module) -> Iterator[ast.expr]:
    """Docstrings, and the ``doc`` of operators that are declared by a call."""
    holders = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    for node in ast.walk(tree):
        if isinstance(node, holders) and ast.get_docstring(node, False) is not None:
            yield node.body[0].value
        elif isinstance(node, ast.keyword) and node.arg == "doc":
            yield node.value


def total(paths: Iterable[Path]) -> Lines:
    """The lines of several files."""
    return sum((count(path.read_text()) for path in paths), Lines(0, 0))


# -- to read


class Package(NamedTuple):
    """A package of Weft's, or the modules that are in none (``*.py``)."""

    name: str
    own: Lines
    tests: int  # lines of code in tests of it alone

    @property
    def tier(self) -> str:
        return "core" if self.name in CORE else "rest"


@functools.cache
def packages() -> list[Package]:
    """Every package, the core tier in the order in which it builds up."""
    names = [p.name for p in SOURCE.iterdir() if (p / "__init__.py").exists()]
    ordered = [*CORE, *sorted(set(names) - set(CORE)), "*.py"]
    return [Package(name, total(_files(name)), _tests(name)) for name in ordered]


def _files(name: str) -> Iterable[Path]:
    return SOURCE.glob(name) if name == "*.py" else (SOURCE / name).rglob("*.py")


def _tests(name: str) -> int:
    return total((ROOT / "tests" / name).rglob("*.py")).code


def sizes() -> dict[str, Lines]:
    """Each tier's lines."""
    found = packages()
    return {
        tier: sum((p.own for p in found if p.tier == tier), Lines(0, 0))
        for tier in BUDGET
    }


def to_read() -> list[list[str]]:
    """Lines by package and tier."""
    table = [["lines", "code", "docstrings, comments", "own tests", "budget"]]
    found = packages()
    for tier, size in sizes().items():
        inside = [p for p in found if p.tier == tier]
        table += [_row(f"  {p.name}", p.own, p.tests) for p in inside]
        tests = sum(p.tests for p in inside)
        table.append([*_row(tier, size, tests)[:4], f"{BUDGET[tier]:,}"])
    every = total((ROOT / "tests").rglob("*.py")).code
    shared = every - sum(p.tests for p in found)
    table.append(_row("tests of several packages", None, shared))
    return [*table, _row("all", sum(sizes().values(), Lines(0, 0)), every)]


def _row(name: str, lines: Lines | None, tests: int) -> list[str]:
    shown = ["", ""] if lines is None else [f"{lines.code:,}", f"{lines.words:,}"]
    return [name, *shown, f"{tests:,}", ""]


# -- to write

# What it is; the file; the definitions in it (none: the whole file), or the heading of
# a page whose blocks count.
WRITTEN = [
    ("a model, and its training", "README.md", "Weft"),
    ("a perceptron for any sizes", "src/weft/models/mlp.py", "MLP"),
    ("a GPT with a cache", "src/weft/models/gpt.py", "CausalSelfAttention Block GPT"),
    ("a training program for it", "examples/char_gpt.py", ""),
    ("an operator, from outside", "docs/all_of_weft.md", "Custom operators"),
    ("an operator, in Weft", "src/weft/ops/transcendental.py", "sinh"),
    ("a layer with its own gradient", "examples/custom_layer.py", ""),
    ("a target, by the interpreter of loops", "tests/support/toy_target.py", ""),
]  # fmt: skip


def to_write() -> list[list[str]]:
    """Lines of code that a model, an operator or a target takes."""
    table = [["to write", "lines"]]
    for what, file, part in WRITTEN:
        source = _part((ROOT / file).read_text(), part, page=file.endswith(".md"))
        table.append([f"{what} ({file})", str(count(source).code)])
    return table


def _part(text: str, part: str, *, page: bool) -> str:
    if page:
        section = re.split(rf"^#+ {part}\n", text, flags=re.M)[1]
        section = re.split(r"^#+ ", section, flags=re.M)[0]
        return "".join(re.findall(r"```python\n(.*?)```", section, re.DOTALL))
    if not part:
        return text
    kept = [node for node in ast.parse(text).body if _name(node) in part.split()]
    lines = text.splitlines(keepends=True)
    return "".join("".join(lines[n.lineno - 1 : n.end_lineno]) for n in kept)


def _name(node: ast.stmt) -> str:
    target = getattr(node, "target", None)
    return getattr(node, "name", "") or getattr(target, "id", "")


# -- to wait for


def to_wait_for() -> list[list[str]]:
    """Speed beside other frameworks, as last measured."""
    return summary(MEASURED.rows, MEASURED.titles)


def main() -> int:
    """Print the scorecards; the exit status says whether the budgets hold."""
    tables = to_read(), to_write(), to_wait_for()
    print(*map(text, tables), sep="\n\n")
    print(f"\nmeasured on {MEASURED.facts['processor']}, {MEASURED.facts['run']}")
    over = [tier for tier, size in sizes().items() if size.code > BUDGET[tier]]
    for tier in over:
        print(f"{tier} is over its budget of lines", file=sys.stderr)
    return bool(over)


if __name__ == "__main__":
    sys.exit(main())
