"""The documentation as a site: ``make docs``.

Pages are those of this folder; ``index.md`` orders them, by its links. The reference is
made from docstrings: a page for each namespace, in ``reference/``.
"""

import ast
import functools
import importlib
import inspect
import pathlib
import re
import shutil
import types

import weft

HERE = pathlib.Path(__file__).parent
SOURCE = HERE.parent / "src" / "weft"

project = "Weft"
author = "The Weft developers"
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.viewcode"]
html_theme = "furo"
html_title = "Weft"
html_show_sphinx = False
html_show_copyright = False
exclude_patterns = ["_build"]
myst_heading_anchors = 3
autodoc_typehints = "none"  # signatures stay short; docstrings say what matters
autodoc_member_order = "bysource"
autodoc_inherit_docstrings = False  # a method is shown where it is described
add_module_names = False
toc_object_entries = False
pygments_style = "friendly"
suppress_warnings = ["myst.xref_missing"]  # tests/test_docs.py checks every link

# The namespaces of the reference, in the order of its sidebar.
NAMESPACES = [
    "weft", "weft.Tensor", "weft.autograd", "weft.func", "weft.nn",
    "weft.nn.functional", "weft.nn.init", "weft.nn.utils", "weft.optim",
    "weft.optim.lr_scheduler", "weft.utils.data", "weft.utils.transforms",
    "weft.utils.checkpoint", "weft.datasets", "weft.models", "weft.metrics",
    "weft.training", "weft.graph", "weft.compile", "weft.memory", "weft.linalg",
    "weft.special", "weft.fft", "weft.static", "weft.layers", "weft.symbolic",
    "weft.array_api", "weft.testing", "weft.config",
]  # fmt: skip
TENSOR = """\
weft.Tensor
===========

.. autoclass:: weft.Tensor
   :members:
"""


def write_reference(app: object) -> None:
    """Write a page for each namespace, and one for the tensor's methods."""
    folder = HERE / "reference"
    folder.mkdir(exist_ok=True)
    seen: set[int] = set()
    for name in NAMESPACES:
        page = folder / f"{name}.rst"
        text = TENSOR if name == "weft.Tensor" else reference(name, seen)
        if not page.exists() or page.read_text() != text:  # else it is not built again
            page.write_text(text)
    for name in ("RESULTS.md", "results.svg"):
        shutil.copyfile(HERE.parent / "benchmarks" / name, folder / name)


def reference(name: str, seen: set[int]) -> str:
    """The page of a namespace: its docstring, and its names under headings."""
    module = importlib.import_module(name)
    about = literal_blocks((module.__doc__ or "").split("\n"))
    parts = [_heading(name, "="), f".. py:module:: {name}", "\n".join(about)]
    for title, names in _sections(module).items():
        own = [n for n in names if getattr(module, n).__name__ == n]
        others = [
            f"``{n}`` (``{getattr(module, n).__name__}``)"
            for n in names
            if n not in own
        ]
        parts += [_heading(title, "-")] if title else []
        parts += [_entry(module, public, seen) for public in own]
        parts += [f"Other names: {', '.join(others)}."] if others else []
    return "\n\n".join(parts) + "\n"


def _sections(module: types.ModuleType) -> dict[str, list[str]]:
    """Public names: of ``weft`` by the operators' modules, of others all in one."""
    names = sorted(
        filter(functools.partial(_shown, module), _public(module)), key=str.lower
    )
    if module.__name__ != "weft":
        return {"": names}
    rest = "Types, devices, files and settings"
    homes, found = _homes(), {}
    for name in names:
        title = homes.get(getattr(module, name).__name__, rest)
        found.setdefault(title, []).append(name)
    largest = sorted(found.items(), key=lambda item: -len(item[1]))
    return dict(sorted(largest, key=lambda item: item[0] == rest))


def _public(module: types.ModuleType) -> list[str]:
    """The names a module lists, or else those that it defines (of ``weft``, all)."""
    if hasattr(module, "__all__"):
        return list(module.__all__)
    names = [name for name in dir(module) if not name.startswith("_")]
    if module is weft:
        return names
    homes = {n: getattr(getattr(module, n), "__module__", "") for n in names}
    return [name for name in names if homes[name] == module.__name__]


def _shown(module: types.ModuleType, name: str) -> bool:
    value = getattr(module, name)
    home = getattr(value, "__module__", None) or ""
    named = hasattr(value, "__name__") and value is not weft.Tensor
    return callable(value) and named and home.startswith("weft") and bool(value.__doc__)


def _homes() -> dict[str, str]:
    """For each operator, the first words of its module's docstring, as a heading."""
    found = {}
    for path in sorted((SOURCE / "ops").rglob("*.py")):
        tree = ast.parse(path.read_text())
        title = (ast.get_docstring(tree) or "").split("\n")[0].replace("``", "")
        for node in tree.body:
            target = getattr(
                node, "target", (getattr(node, "targets", None) or [None])[0]
            )
            name = getattr(node, "name", getattr(target, "id", ""))
            found[name] = re.split(r"\.(?!\.)(?<!\.\.)|[:;]", title)[0]
    return found


def _entry(module: types.ModuleType, name: str, seen: set[int]) -> str:
    """The directive for a name; what another page has shown is not indexed again."""
    value = getattr(module, name)
    kind = "class" if inspect.isclass(value) else "function"
    lines = [f".. auto{kind}:: {module.__name__}.{name}"]
    lines += ["   :members:", "   :exclude-members: function"] * (kind == "class")
    lines += ["   :no-index:"] * (id(value) in seen)
    seen.add(id(value))
    return "\n".join(lines)


def _heading(text: str, line: str) -> str:
    return f"{text}\n{line * len(text)}"


def literal_blocks(lines: list[str]) -> list[str]:
    """A docstring in which indented formulas and programs are blocks of code."""
    made: list[str] = []
    last = ""  # the last line that was not indented
    for line in lines:
        if line.startswith(" ") and made and not made[-1] and last:
            if not last.endswith("::") and not last.startswith((">>>", "- ")):
                made += ["::", ""]
            last = ""
        elif line and not line.startswith(" "):
            last = line
        made.append(line)
    return made


def keep_blocks(
    app: object, what: str, name: str, it: object, options: object, lines: list[str]
) -> None:
    """Do so in every docstring."""
    lines[:] = literal_blocks(lines)


def order_pages(app: object, name: str, source: list[str]) -> None:
    """Give the index a table of contents: its sections, and the pages they link to."""
    source[0] = source[0].replace("../benchmarks/RESULTS.md", "reference/RESULTS.md")
    if name != "index":
        return
    sections = re.split(r"^## ", source[0], flags=re.MULTILINE)[1:]
    for section in sections:
        title, _, text = section.partition("\n")
        pages = dict.fromkeys(re.findall(r"\]\(([\w/.]+)\.md\)", text))
        source[0] += _contents(title, list(pages))
    source[0] += _contents(
        "Reference", [f"reference/{n}" for n in (*NAMESPACES, "RESULTS")]
    )


def _contents(caption: str, pages: list[str]) -> str:
    rows = "\n".join(pages)
    return f"\n```{{toctree}}\n:hidden:\n:caption: {caption}\n\n{rows}\n```\n" * bool(
        pages
    )


def setup(app: object) -> None:
    """Connect all of this to the build."""
    app.connect("builder-inited", write_reference)
    app.connect("autodoc-process-docstring", keep_blocks)
    app.connect("source-read", order_pages)
