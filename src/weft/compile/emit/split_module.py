"""One module as several, which can be compiled on several threads.

A function that nothing in the module calls is a root; a piece has some roots and all
that they call, so a helper that two pieces call is in both.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from llvmlite import ir

WORTH = 24_000  # characters of IR that are worth a thread: they decide nothing else
_NAME = re.compile(r'@"([^"]*)"')
_VARIANT = re.compile(r"_ZGV_LLVM_[^(]*\(([^)]*)\)")  # what does the same for vectors


def split(module: ir.Module, worth: int = WORTH) -> list[str]:
    """The texts of modules that together have a module's functions.

    >>> from weft.compile.emit.split_module import split
    >>> from llvmlite import ir
    >>> module = ir.Module("two")
    >>> for name in ("f", "g"):
    ...     f = ir.Function(module, ir.FunctionType(ir.VoidType(), []), name)
    ...     _ = ir.IRBuilder(f.append_basic_block()).ret_void()
    >>> [text.count("define") for text in split(module, worth=1)]
    [1, 1]
    """
    texts = {name: str(value) for name, value in module.globals.items()}
    if len(texts) < 2 or sum(map(len, texts.values())) < 2 * worth:
        return [str(module)]
    uses = {name: _uses(name, text, texts) for name, text in texts.items()}
    used = {name for some in uses.values() for name in some}
    roots = [name for name in texts if name not in used]
    return [_text(module, group, texts) for group in _groups(roots, uses, texts, worth)]


def separate(module: ir.Module, count: int) -> list[str]:
    """A module's functions as several modules of about one size, to be linked.

    Unlike ``split`` this needs no function that others do not call.

    >>> from weft.compile.emit.split_module import separate
    >>> from llvmlite import ir
    >>> module = ir.Module("two")
    >>> for name in ("f", "g"):
    ...     f = ir.Function(module, ir.FunctionType(ir.VoidType(), []), name)
    ...     _ = ir.IRBuilder(f.append_basic_block()).ret_void()
    >>> [text.count("define") for text in separate(module, 2)]
    [1, 1]
    """
    texts = {name: str(value) for name, value in module.globals.items()}
    defined = [f for f in module.functions if f.blocks]
    if len(defined) < len(texts) - len([f for f in module.functions if not f.blocks]):
        return [str(module)]  # there is memory to share
    groups: list[list[str]] = [[] for _ in range(count)]
    sizes = [0] * count
    for name in sorted((f.name for f in defined), key=lambda name: -len(texts[name])):
        least = sizes.index(min(sizes))
        groups[least].append(name)
        sizes[least] += len(texts[name])
    return [_linkable(module, set(group), texts) for group in groups if group]


def _linkable(module: ir.Module, group: set[str], texts: Mapping[str, str]) -> str:
    """The text of some functions, visible to other modules, and declarations."""
    needed = {n for name in group for n in _uses(name, texts[name], texts)}
    found: dict[str, str] = {}
    for name, text in texts.items():
        if name in group:
            text = text.replace("define internal", "define hidden", 1)
            found[name] = text
        elif name in needed and not text.startswith("define"):
            found[name] = text
        elif name in needed:
            found[name] = _declared(module.globals[name])
    return _text(module, set(found), found)


def _declared(function: ir.Function) -> str:
    kind = function.ftype
    kinds = ", ".join(map(str, kind.args))
    return f'declare {kind.return_type} @"{function.name}"({kinds})'


def _uses(name: str, text: str, texts: Mapping[str, str]) -> set[str]:
    found = {*_NAME.findall(text), *_VARIANT.findall(text)}
    return {n for n in found if n in texts and n != name}


def _groups(
    roots: list[str], uses: Mapping[str, set[str]], texts: Mapping[str, str], worth: int
) -> Iterator[set[str]]:
    """Roots with what they need, as many together as are worth it."""
    group: set[str] = set()
    for root in roots:
        waiting = [root]
        while waiting:
            name = waiting.pop()
            if name not in group:
                group.add(name)
                waiting += uses[name]
        if sum(len(texts[name]) for name in group) >= worth:
            yield group
            group = set()
    if group:
        yield group


def _text(module: ir.Module, group: set[str], texts: Mapping[str, str]) -> str:
    head = [f'; ModuleID = "{module.name}"', f'target triple = "{module.triple}"']
    body = [text for name, text in texts.items() if name in group]
    return "\n".join([*head, *body, *map(str, module.metadata)])
