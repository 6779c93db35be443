"""The table of PyTorch's public names in ``docs/pytorch.md``.

    python tools/pytorch_names.py

needs PyTorch. A name is present in Weft under the same path, deliberately absent (with
the reason of ``weft.torch.places``), or missing.
"""

from __future__ import annotations

import importlib
import textwrap
import types
import warnings
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

PAGE = Path(__file__).parents[1] / "docs" / "pytorch.md"
BEGIN, END = "<!-- names: made by tools/pytorch_names.py -->", "<!-- end of names -->"
MODULES = [
    "torch",
    "nn",
    "nn.functional",
    "nn.init",
    "nn.parameter",
    "nn.attention",
    "nn.modules",
    "nn.utils",
    "nn.utils.rnn",
    "nn.utils.parametrize",
    "nn.utils.parametrizations",
    "nn.utils.prune",
    "nn.utils.stateless",
    "optim",
    "optim.lr_scheduler",
    "optim.swa_utils",
    "autograd",
    "autograd.functional",
    "autograd.graph",
    "autograd.forward_ad",
    "func",
    "linalg",
    "special",
    "fft",
    "signal.windows",
    "random",
    "distributions",
    "sparse",
    "utils",
    "utils.data",
    "utils.checkpoint",
    "testing",
    "amp",
    "cuda",
    "cpu",
    "accelerator",
    "mps",
    "xpu",
    "mtia",
    "backends.cudnn",
    "backends.cuda",
    "compiler",
    "jit",
    "fx",
    "export",
    "profiler",
    "library",
    "overrides",
    "multiprocessing",
    "futures",
    "hub",
    "serialization",
    "types",
    "version",
    "distributed",
    "nested",
    "masked",
    "package",
    "monitor",
]
CLASSES = ("Tensor", "nn.Module", "optim.Optimizer", "Generator", "autograd.Function")
# Parts of PyTorch's own machinery that its modules happen to show.
INTERNAL = "a part of PyTorch's own machinery"


class Row(NamedTuple):
    """The names of a module or class of PyTorch's."""

    where: str
    present: list[str]
    absent: dict[str, str]  # with the reason
    missing: list[str]


def public(owner: Any) -> list[str]:
    """The names that users see: ``__all__``, or what is no module and not private."""
    names = getattr(owner, "__all__", None)
    if names is None or owner.__name__ == "torch":
        names = [
            name
            for name in dir(owner)
            if not isinstance(getattr(owner, name, None), types.ModuleType)
        ]
    return sorted({n for n in names if not n.startswith("_") and hasattr(owner, n)})


def internal(owner: Any, name: str) -> bool:
    """Whether a name is machinery: types of the C++ core, helpers, typing's names."""
    value = getattr(owner, name)
    home = str(getattr(value, "__module__", ""))
    if home.startswith(("typing", "collections", "abc", "enum", "torch._jit")):
        return True
    if not hasattr(owner, "__all__") and not home.startswith("torch"):
        return not isinstance(value, (str, bool, int, float)) and bool(home)
    if name.endswith("Tensor") or name in ("Size", "layout", "memory_format"):
        return False  # public types without a docstring
    core = home in ("torch._C", "torch._C._VariableFunctions", "torch", "")
    return core and isinstance(value, type) and not isinstance(value.__doc__, str)


def find(path: str) -> Any:
    """A module or class of ``torch`` or ``weft``; None if there is none."""
    try:
        return importlib.import_module(path)
    except ImportError:
        pass
    package, _, name = path.rpartition(".")
    try:
        return getattr(find(package) if package else None, name, None)
    except ImportError:  # a name that is declared before its module is there
        return None


def rows() -> Iterator[Row]:
    """Every module and class, with its names."""
    from weft.torch.places import why_absent

    for where in (*MODULES, *CLASSES):
        path = "torch" if where == "torch" else f"torch.{where}"
        theirs, ours = find(path), find(path.replace("torch", "weft", 1))
        row = Row(path, [], {}, [])
        for name in public(theirs):
            if ours is not None and hasattr(ours, name):
                row.present.append(name)
            elif reason := why_absent(f"{path}.{name}"):
                row.absent[name] = reason
            elif internal(theirs, name):
                row.absent[name] = INTERNAL
            else:
                row.missing.append(name)
        yield row


def table() -> str:
    """The part of the page between the marks."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = list(rows())
    lines = ["| where | present | absent | missing | share |", "|---|---|---|---|---|"]
    for row in found:
        counts = len(row.present), len(row.absent), len(row.missing)
        cells = " | ".join(map(str, counts))
        lines.append(f"| `{row.where}` | {cells} | {share(counts)} |")
    totals = tuple(map(sum, zip(*(map(len, row[1:]) for row in found), strict=True)))
    lines.append(f"| all | {' | '.join(map(str, totals))} | {share(totals)} |")
    lines += ["", "Absent, and why:", ""]
    reasons: dict[str, list[str]] = defaultdict(list)
    for row in found:
        for name, reason in row.absent.items():
            reasons[reason].append(f"{row.where}.{name}".removeprefix("torch."))
    for reason, names in sorted(reasons.items()):
        lines += _item(reason, names)
    lines += ["", "Missing:", ""]
    for row in found:
        if row.missing:
            lines += _item(f"`{row.where}`", row.missing)
    return "\n".join(lines)


def share(counts: tuple[int, ...]) -> str:
    """The present names out of those that are not absent for a reason.

    >>> share((19, 5, 1))
    '95 %'
    """
    present, _, missing = counts
    wanted = present + missing
    return f"{100 * present / wanted:.0f} %" if wanted else ""


def _item(head: str, names: list[str]) -> list[str]:
    text = f"- {head}: " + ", ".join(f"`{name}`" for name in names)
    return textwrap.wrap(text, 88, subsequent_indent="  ", break_on_hyphens=False)


def page() -> str:
    """The page with the table of today."""
    before, _, rest = PAGE.read_text().partition(BEGIN)
    after = rest.partition(END)[2]
    return f"{before}{BEGIN}\n\n{table()}\n\n{END}{after}"


if __name__ == "__main__":
    PAGE.write_text(page())
