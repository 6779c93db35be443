"""The table of operators: ONNX's names, and Weft's functions of the same meaning.

    @operator("Softmax")
    def softmax(x, *, axis=None, opset=13): ...

An operator's inputs are positional; one that is absent is None. Its attributes are
keywords, whose defaults are ONNX's. A function that asks for it gets

    opset       the version of the operators that the model uses
    outputs     the number of outputs that are wanted
    outside     values outside of a graph among its attributes, by name
    model       the model that runs, for graphs among its attributes

Inputs are tensors. Those at ``static`` places decide how the program looks, such as a
shape: they may be arrays that are known before anything runs (see ``known``). Those at
``frozen`` places are no parameters, as training does not change them. A ``plain``
operator takes all values as they are: arrays, sequences, and None.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, NamedTuple

CONTEXT = ("opset", "outputs", "outside", "model")


class Operator(NamedTuple):
    """A function for an operator of ONNX."""

    name: str
    run: Callable[..., Any]
    attributes: frozenset[str]
    required: frozenset[str]
    context: tuple[str, ...]
    static: tuple[int, ...]  # inputs whose values decide how the program looks
    frozen: tuple[int, ...]  # inputs that training does not change
    plain: bool  # arrays that are known stay arrays


TABLE: dict[tuple[str, str], Operator] = {}


def operator(
    names: str,
    *,
    domain: str = "",
    static: tuple[int, ...] = (),
    frozen: tuple[int, ...] = (),
    plain: bool = False,
) -> Callable[[Any], Any]:
    """Enter a function into the table under some names."""

    def enter(run: Any) -> Any:
        for name in names.split():
            TABLE[domain, name] = _record(name, run, static, frozen, plain)
        return run

    return enter


def enter(name: str, run: Callable[..., Any], **options: Any) -> None:
    """Enter a function that has no definition of its own."""
    operator(name, **options)(run)


def _record(name: str, run: Any, static: Any, frozen: Any, plain: bool) -> Operator:
    options = [
        p for p in inspect.signature(run).parameters.values()
        if p.kind is p.KEYWORD_ONLY
    ]  # fmt: skip
    attributes = [p for p in options if p.name not in CONTEXT]
    return Operator(
        name,
        run,
        frozenset(p.name for p in attributes),
        frozenset(p.name for p in attributes if p.default is p.empty),
        tuple(p.name for p in options if p.name in CONTEXT),
        static,
        frozen,
        plain,
    )
