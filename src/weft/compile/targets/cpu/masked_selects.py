"""A fault of LLVM 22.1 for AVX-512, and how modules avoid it.

Where a choice between bits by a constant mask, as ``copysign`` makes one, is an arm of
a vector ``select``, and a source of these bits is the other arm, LLVM makes one
instruction of both (a masked VPTERNLOG), with the wrong table of bits
(llvm-project issue 157929). An empty piece of assembly code between the two keeps them
apart; it costs no instruction.
"""

from __future__ import annotations

import re

_NAME = r'%(?:"[^"]*"|[-\w.$]+)'
_DEFINED = re.compile(rf"^  ({_NAME}) = (.*)$", re.MULTILINE)
_SELECT = re.compile(
    r"select [a-z ]*<(\d+) x i1> [^,]+, <\1 x (i32|i64|float|double)> (.+), <\1 x \2> "
    r"([^,]+)"
)
_SAME = re.compile(rf"(?:bitcast|freeze) <[^>]*> ({_NAME})")
_LOGIC = re.compile(
    rf"(?:or|xor)(?: disjoint)? <[^>]*> {_NAME}, {_NAME}|.*call .*@llvm\.copysign\."
)


def kept_apart(text: str) -> str:
    """A module's text, with nothing in it that LLVM would merge wrongly.

    >>> from weft.compile.targets.cpu.masked_selects import kept_apart
    >>> bits, chosen = "%c = or <4 x i32> %a, %b", "<4 x i32> %a, <4 x i32> %c"
    >>> print(kept_apart(f"\\n  {bits}\\n  %d = select <4 x i1> %m, {chosen}\\n"))
    <BLANKLINE>
      %c = or <4 x i32> %a, %b
      %apart.0 = call <4 x i32> asm "", "=v,0"(<4 x i32> %c)
      %d = select <4 x i1> %m, <4 x i32> %a, <4 x i32> %apart.0
    <BLANKLINE>
    """
    if "x i1>" not in text:
        return text
    return "\ndefine ".join(map(_function, text.split("\ndefine ")))


def _function(text: str) -> str:
    defined: dict[str, str] = dict(_DEFINED.findall(text))
    count = 0
    for name, rhs in defined.items():
        match = _SELECT.match(rhs)
        if match is None:
            continue
        lanes, kind, *arms = match.groups()
        lines, now = "", list(arms)
        for k, arm in enumerate(arms):
            if _is_logic(arm, defined):
                now[k] = f"%apart.{count}"
                lines += _barrier(now[k], arm, int(lanes), kind)
                count += 1
        if lines:
            of = f"<{lanes} x {kind}> "
            changed = rhs.replace(
                f"{of}{arms[0]}, {of}{arms[1]}", f"{of}{now[0]}, {of}{now[1]}"
            )
            text = text.replace(
                f"\n  {name} = {rhs}\n", f"\n{lines}  {name} = {changed}\n"
            )
    return text


def _is_logic(name: str, defined: dict[str, str]) -> bool:
    """Whether a value may be a choice between the bits of two others."""
    rhs = defined.get(name, "")
    while same := _SAME.match(rhs):
        rhs = defined.get(same.group(1), "")
    return _LOGIC.match(rhs) is not None


def _barrier(name: str, value: str, lanes: int, kind: str) -> str:
    """Lines that give a value another name, which LLVM cannot look through."""
    vector = f"<{lanes} x {kind}>"
    bits = lanes * {"i32": 32, "i64": 64, "float": 32, "double": 64}[kind]
    if bits in (128, 256, 512):
        return f'  {name} = call {vector} asm "", "=v,0"({vector} {value})\n'
    if bits == 64:
        return (
            f"  {name}.in = bitcast {vector} {value} to double\n"
            f'  {name}.out = call double asm "", "=v,0"(double {name}.in)\n'
            f"  {name} = bitcast double {name}.out to {vector}\n"
        )
    half, lines = lanes // 2, ""  # wider than a register: in halves
    for k in range(2):
        lines += (
            f"  {name}.in{k} = shufflevector {vector} {value}, {vector} poison, "
            f"{_lanes(half * k, half * (k + 1))}\n"
        ) + _barrier(f"{name}.out{k}", f"{name}.in{k}", half, kind)
    return lines + (
        f"  {name} = shufflevector <{half} x {kind}> {name}.out0, "
        f"<{half} x {kind}> {name}.out1, {_lanes(0, lanes)}\n"
    )


def _lanes(start: int, end: int) -> str:
    numbers = ", ".join(f"i32 {k}" for k in range(start, end))
    return f"<{end - start} x i32> <{numbers}>"
