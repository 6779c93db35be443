"""One module as several, which can be compiled side by side.

A function that nothing in the module calls is the root of a part; a part has what its
roots need, so a helper that two parts need is in both.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from llvmlite import ir

WORTH = 24_000  # characters that are worth a module of their own
_NAME = re.compile(r'@"([^"]*)"')


def parts(module: ir.Module, worth: int = WORTH) -> list[str]:
    """The texts of modules that together have a module's functions.

    >>> from weft.compile.llvm.parts import parts
    >>> from llvmlite import ir
    >>> module = ir.Module("two")
    >>> for name in ("f", "g"):
    ...     f = ir.Function(module, ir.FunctionType(ir.VoidType(), []), name)
    ...     _ = ir.IRBuilder(f.append_basic_block()).ret_void()
    >>> [text.count("define") for text in parts(module, worth=1)]
    [1, 1]
    """
    texts = {name: str(value) for name, value in module.globals.items()}
    if len(texts) < 2 or sum(map(len, texts.values())) < 2 * worth:
        return [str(module)]
    uses = {name: _uses(name, text, texts) for name, text in texts.items()}
    used = {name for some in uses.values() for name in some}
    roots = [name for name in texts if name not in used]
    return [_text(module, group, texts) for group in _groups(roots, uses, texts, worth)]


def _uses(name: str, text: str, texts: Mapping[str, str]) -> set[str]:
    return {n for n in _NAME.findall(text) if n in texts and n != name}


def _groups(
    roots: list[str],
    uses: Mapping[str, set[str]],
    texts: Mapping[str, str],
    worth: int,
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
