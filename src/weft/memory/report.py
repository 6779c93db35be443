"""The error of memory that is not there: who has it, and what would help."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

from weft.core.op import Op
from weft.core.rows import nbytes
from weft.errors import AllocationError
from weft.memory.scan import KINDS, Held, Scan, Usage

LARGEST = 5  # live tensors that are listed
REMEDIES = 2


def refusal(name: str, asked: int, *, limit: int) -> AllocationError:
    """The error of an allocation that would exceed the limit."""
    scan = Scan()
    usage = scan.usage()
    return AllocationError(
        f"{name}: {nbytes(asked)} ({asked:,} bytes) more would exceed the limit of "
        f"{nbytes(limit)} that set_memory_limit has set; {nbytes(usage.total)} are in "
        f"use{_details(scan, usage, asked)}"
    )


def failure(name: str, asked: int, error: Any) -> AllocationError:
    """The error of an allocation that the system refused."""
    shape, dtype = getattr(error, "shape", None), getattr(error, "dtype", None)
    if shape is not None and dtype is not None:  # NumPy's error says what it wanted
        asked = max(asked, math.prod(shape) * dtype.itemsize)
    scan = Scan()
    usage = scan.usage()
    wanted = f"{nbytes(asked)} ({asked:,} bytes)" if asked else "memory"
    return AllocationError(
        f"{name}: the system refused {wanted}: {error}{_details(scan, usage, asked)}"
    )


def beyond(text: str, asked: int) -> AllocationError:
    """The error of an allocation that no system could grant."""
    scan = Scan()
    return AllocationError(text + _details(scan, scan.usage(), asked))


def failed(op: Op, args: tuple[Any, ...], params: Any, error: Any) -> AllocationError:
    """The error of an operator that ran out of memory."""
    from weft.memory.ledger import predicted

    return failure(op.name, predicted(op, args, params), error)


def lacking(
    name: str, asked: int, why: str, made: list[Held], ways: list[tuple[int, str]]
) -> AllocationError:
    """The error of a program whose values do not fit, with the largest that it makes
    and ways to need less."""
    scan = Scan()
    usage = scan.usage()
    details = _details(scan, usage, asked, made, ways)
    return AllocationError(
        f"{name}: {nbytes(asked)} ({asked:,} bytes) for what it computes {why}; "
        f"{nbytes(usage.total)} are in use{details}"
    )


def _details(
    scan: Scan, usage: Usage, asked: int, made: Iterable[Held] = (),
    ways: Iterable[tuple[int, str]] = (),
) -> str:  # fmt: skip
    held = sorted([*made, *scan.held()], key=lambda one: -one.nbytes)
    lines = [f"\n  peak {nbytes(usage.total + asked)}: " + ", ".join(
        [*(f"{kind} {nbytes(n)}" for kind, n in zip(KINDS, usage, strict=True)),
         f"asked for {nbytes(asked)}"]
    )]  # fmt: skip
    if held:
        lines.append("\n  largest:")
        lines += [f"\n    {one}" for one in held[:LARGEST]]
    lines.append("\n  what would help:")
    known = list(ways) or remedies(usage, held, asked)
    for saving, text in sorted(known, reverse=True)[:REMEDIES]:
        lines.append(f"\n    {text}: saves about {nbytes(saving)}")
    return "".join(lines)


def remedies(usage: Usage, held: list[Held], asked: int) -> list[tuple[int, str]]:
    """Remedies with the bytes that each would save, the best first."""
    ways = [(asked // 2, "the same work in two halves, one after the other")]
    values = sum(h.kind == "activations" for h in held)
    if values > 4:
        left = 2 / math.sqrt(values)
        ways.append((
            int(usage.activations * (1 - left)),
            f'checkpoint_sequential(model, "sqrt", x), which keeps about '
            f"{left:.0%} of the activations",
        ))  # fmt: skip
    if usage.activations:
        ways.append(((usage.activations + asked) // 2, "half the batch"))
    if usage.optimizer > 1.5 * usage.parameters:
        text = "SGD with momentum, which has half of Adam's state"
        ways.append((usage.optimizer // 2, text))
    elif usage.optimizer:
        ways.append((usage.optimizer, "SGD without momentum, which has no state"))
    if usage.gradients:
        ways.append((usage.gradients, "optimizer.zero_grad() before the forward run"))
    wide = sum(h.nbytes for h in held if h.dtype == "float64")
    if wide:
        ways.append((wide // 2, "float32 in place of float64"))
    loose = [h.nbytes for h in held if h.kind == "other"]
    if loose:
        ways.append((max(loose), "`del` of the largest tensor of kind 'other'"))
    return sorted(ways, reverse=True)
