"""Branches and loops of rewritten functions, while they run.

A variable of a branch or loop is kept as it is where no side changes it. A tensor that
a side sets is a result of ``cond``, ``while_loop`` or ``scan``; one that it changes in
place takes the result over. Other values must be the same whatever happens.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

from weft.core.mode import mode
from weft.core.pytree import tree_flatten, tree_unflatten
from weft.core.size import Size, same_shape
from weft.core.tensor import Tensor
from weft.graph.control.branch import as_predicate, cond
from weft.graph.control.loop import while_loop
from weft.graph.control.repeat import scan
from weft.graph.control.staging import Staged
from weft.graph.ir import type_text
from weft.graph.python_control.effects import without_effects
from weft.graph.symbol import Building, Symbol, refusal
from weft.ops import creation
from weft.ops.copies import clone
from weft.ops.inplace import assign

NEVER = False
LIFTED = ("_weft_left", "_weft_skip", "_weft_at")  # names of `rewrite`'s own variables


class _Undefined:
    """The value of a variable that has none."""

    def __repr__(self) -> str:
        return "undefined"


UNDEFINED: Any = _Undefined()
Names = tuple[str, ...]


def value_of(read: Callable[[], Any]) -> Any:
    """A variable's value, or UNDEFINED."""
    try:
        return read()
    except NameError:
        return UNDEFINED


def known(truth: Any) -> bool:
    """Whether Python knows a value's truth."""
    return not isinstance(truth, Symbol)


def countable(rows: Any) -> bool:
    """Whether Python can run over something: not over a number of rows to be known."""
    return not (
        isinstance(rows, Symbol) and rows.ndim > 0 and isinstance(rows.shape[0], Size)
    )


def count_of(numbers: Any) -> int:
    """How many numbers a loop over a range has."""
    return len(numbers)


def number_at(numbers: Any, at: Any) -> Any:
    """A number of a range; none by an index that a run decides."""
    return numbers[at] if isinstance(at, int) else UNDEFINED


def set_flag(flag: Any) -> Any:
    """True, as Python's or as the tensor's that a flag is."""
    return True if isinstance(flag, bool) else creation.ones_like(flag)


def clear_flag(flag: Any) -> Any:
    """False, as Python's or as the tensor's that a flag is."""
    return False if isinstance(flag, bool) else creation.zeros_like(flag)


def _lifted(names: Names, values: Any) -> tuple[Any, ...]:
    """The values, with tensors for the flags and counters of rewritten loops."""
    return tuple(
        creation.tensor(value) if name.startswith(LIFTED) and type(value) in (bool, int)
        else value
        for name, value in zip(names, values, strict=True)
    )  # fmt: skip


def goes_on(truth: Any) -> bool:
    """Whether a loop goes on in Python."""
    return known(truth) and bool(truth)


def refuse(value: Any, reason: str) -> NoReturn:
    """Refuse a statement over a symbol."""
    where = f"\n  made at {value.node.line}" if isinstance(value, Symbol) else ""
    kind = f" ({type_text(value.node.type)})" if isinstance(value, Symbol) else ""
    raise refusal(
        f"the value of a tensor{kind} decides here, and is known only when the graph "
        f"runs; as part of the graph this is not possible: {reason}. Use weft.where, "
        f"weft.cond, weft.while_loop or weft.scan{where}"
    )


def refuse_symbol(truth: Any, reason: str) -> Any:
    """Refuse a statement if it is over a symbol."""
    return truth if known(truth) else refuse(truth, reason)


# -- conditions


def negation(truth: Any) -> Any:
    return not truth if known(truth) else ~as_predicate("not", truth)


def both(*parts: Callable[[], Any]) -> Any:
    """``and``, of which only the truth counts."""
    return _joined(parts, True, lambda a, b: a & b)


def one_of(*parts: Callable[[], Any]) -> Any:
    """``or``, of which only the truth counts."""
    return _joined(parts, False, lambda a, b: a | b)


def _joined(parts: Sequence[Callable[[], Any]], neutral: bool, join: Any) -> Any:
    found: Any = neutral
    for part in parts:
        if known(found):
            truth = part()
        else:  # Python might not come here
            truth = _run("a condition", part, ())
        if not known(truth):
            truth = as_predicate("a condition", truth)
            found = truth if known(found) else join(found, truth)
        elif bool(truth) is not neutral:
            return not neutral  # whatever the others are
    return found


def chained(parts: Sequence[Callable[[], Any]], tests: Sequence[Any]) -> Any:
    """``a < b < c``, of which only the truth counts."""
    values = [parts[0]()]

    def compare(k: int) -> Any:
        values.append(parts[k + 1]())
        return tests[k](values[k], values[k + 1])

    return both(*[lambda k=k: compare(k) for k in range(len(tests))])


def either(truth: Any, then: Callable[[], Any], other: Callable[[], Any]) -> Any:
    """``then() if truth else other()``."""
    if known(truth):
        return then() if truth else other()
    sides = [lambda: (then(),), lambda: (other(),)]
    return _Choice("a conditional expression", truth, sides, ()).value()


def branch(
    truth: Any, then: Any, other: Any, values: Any, names: Names, live: Names
) -> tuple[Any, ...]:
    """The variables after an ``if``."""
    what, values = "a side of the `if`", _lifted(names, values)
    return _Choice(what, truth, [then, other], values, names, live).results()


def result(truth: Any, then: Any, other: Any, values: Any) -> Any:
    """What a function returns after an ``if`` of which a side returns."""
    sides = [lambda *v, side=side: (side(*v),) for side in (then, other)]
    return _Choice("a side of the `if`", truth, sides, values).value()


# -- runs of sides and bodies


def _outermost() -> Any:
    run = mode.capture
    while getattr(run, "outer", None) is not None:
        run = run.outer
    return run


def _run(what: str, fn: Callable[..., Any], values: Any) -> Any:
    from weft.graph.capture import captured_call

    frame = sys._getframe(1)
    while frame.f_globals is globals() or frame.f_globals.get(
        "__name__", ""
    ).startswith("weft."):
        if frame.f_back is None:
            break
        frame = frame.f_back
    return without_effects(_outermost(), what, fn, values, frame, captured_call)


class _Trial:
    """A side or body, run on symbols of its own to see what it does."""

    def __init__(
        self, what: str, fn: Any, values: tuple[Any, ...], more: Sequence[Any] = ()
    ) -> None:
        self.leaves, self.structure = tree_flatten(values)
        self.operands = [x for x in self.leaves if isinstance(x, Tensor)]
        self.own: list[Any] = []

        def run(*tensors: Any) -> tuple[()]:
            self.run: Building = mode.capture
            self.own = list(tensors[: len(self.operands)])
            self.nodes = [x.node for x in self.own]
            self.values = self.with_tensors(self.own)
            self.out = _run(what, fn, (*tensors[len(self.operands) :], *self.values))
            return ()

        given = [*self.operands, *more]
        shape = tree_flatten(tuple(range(len(given))))[1]
        self.staged = Staged("trial", mode.capture, run, given, shape)

    def with_tensors(self, tensors: Sequence[Any]) -> tuple[Any, ...]:
        """The variables' values, with other tensors in them."""
        given = iter(tensors)
        leaves = [next(given) if isinstance(x, Tensor) else x for x in self.leaves]
        return tree_unflatten(leaves, self.structure)

    def is_kept(self, k: int) -> bool:
        """Whether a variable is what it was before, though perhaps changed in place."""
        if self.out[k] is self.values[k]:
            return True
        return not isinstance(self.out[k], Tensor) and _same(
            self.out[k], self.values[k]
        )

    def is_mutated(self, k: int) -> bool:
        """Whether a tensor in a variable is changed in place."""
        inside = {id(x) for x in tree_flatten(self.values[k])[0]}
        return any(
            x.node is not node and id(x) in inside
            for x, node in zip(self.own, self.nodes, strict=True)
        )

    def root(self, tensor: Any) -> Any:
        """The tensor outside whose memory a result shows; None if it is new."""
        from weft.graph.effects import origin

        found = origin(tensor)[0]
        for own, outside in zip(self.own, self.operands, strict=True):
            if found is own:
                return outside
        return None if found._interpreter is self.run else found

    def check_aliases(self, name: str) -> None:
        """Refuse a change in place where the tensor has another name as well."""
        storages = [id(x.storage_record) for x in self.operands]
        outside = [id(t.storage_record) for t, _ in self.staged.run.outside.values()]
        if len(set(storages)) < len(storages) or set(storages) & set(outside):
            raise refusal(
                f"{name!r} is changed in place in a branch or loop over a tensor's "
                "value, and its memory has another name there; set it to a new tensor"
            )


def _same(a: Any, b: Any) -> bool:
    """Whether two Python values are the same, whatever a program does with them."""
    if a is b:
        return True
    if type(a) is not type(b) or isinstance(a, Tensor):
        return False
    if isinstance(a, (bool, int, str, bytes)):
        return bool(a == b)
    if isinstance(a, (float, complex)):
        return repr(a) == repr(b)
    if type(a) is tuple:
        return len(a) == len(b) and all(map(_same, a, b))
    return False


def _mismatch(a: Any, b: Any) -> str | None:
    """Why two values of a variable cannot be one; None if they can."""
    if a is UNDEFINED or b is UNDEFINED:
        return "has a value on one way only"
    (xs, shape), (ys, other) = tree_flatten(a), tree_flatten(b)
    if shape != other:
        return f"is {_kind(a)} on one way and {_kind(b)} on the other"
    for x, y in zip(xs, ys, strict=True):
        tensors = isinstance(x, Tensor) + isinstance(y, Tensor)
        if tensors == 2:
            if x.dtype is not y.dtype or not same_shape(x.shape, y.shape):
                return f"is {_kind(x)} on one way and {_kind(y)} on the other"
        elif tensors or not _same(x, y):
            hint = "" if tensors else "; make it a tensor"
            return f"is {_kind(x)} on one way and {_kind(y)} on the other{hint}"
    return None


def _kind(value: Any) -> str:
    if isinstance(value, Tensor):
        return f"a tensor {value.dtype.name}{list(value.shape)}"
    if isinstance(value, (bool, int, float, str, type(None))):
        return f"{value!r:.40}"
    return f"a {type(value).__name__}"


def _tensors(value: Any) -> list[Any]:
    return [x for x in tree_flatten(value)[0] if isinstance(x, Tensor)]


def _rebuilt(value: Any, tensors: Any) -> Any:
    leaves, structure = tree_flatten(value)
    new = [next(tensors) if isinstance(x, Tensor) else x for x in leaves]
    return tree_unflatten(new, structure)


def _freeze(*tensors: Any) -> None:
    """Refuse later changes in place: eagerly, these may share their memory."""
    for tensor in tensors:
        _outermost().freeze(tensor)


class _Choice:
    """One of two sides, and the variables after it.

    Without names it gives one value, and its variables are not used afterwards.
    """

    def __init__(
        self, what: str, truth: Any, sides: Sequence[Any], values: Any,
        names: Names | None = None, live: Names = (),
    ) -> None:  # fmt: skip
        self.what, self.truth, self.sides, self.values = what, truth, sides, values
        self.ends = names is None
        self.names = ("the result",) if names is None else names
        self.live = self.names if names is None else live
        self.trials = [_Trial(what, side, values) for side in sides]
        self.chosen = [self.kind(k) for k in range(len(self.names))]

    def kind(self, k: int) -> str:
        """What becomes of a variable: kept, changed in place, a result, or lost."""
        if not self.ends:
            kept = all(t.is_kept(k) for t in self.trials)
            if any(t.is_mutated(k) for t in self.trials):
                self.check_mutated(k, kept)
                return "mutated"
            if kept:
                return "kept"
        why = _mismatch(*[t.out[k] for t in self.trials])
        if why is None:
            return "result"
        if self.names[k] in self.live:
            self.refuse(k, why)
        return "lost"

    def check_mutated(self, k: int, kept: bool) -> None:
        if not kept or not isinstance(self.values[k], Tensor):
            self.refuse(k, "is changed in place on one way and set on the other")
        for t in self.trials:
            t.check_aliases(self.names[k])

    def value(self) -> Any:
        """The value of an expression, or what the function returns."""
        for t in self.trials:
            if any(x.node is not node for x, node in zip(t.own, t.nodes, strict=True)):
                self.refuse(0, "is made by changing a variable in place")
        return self.results()[0]

    def refuse(self, k: int, why: str) -> NoReturn:
        refuse(self.truth, f"{self.names[k]} {why}")

    def results(self) -> tuple[Any, ...]:
        some = [
            k for k, kind in enumerate(self.chosen) if kind in ("mutated", "result")
        ]
        draws = any(t.staged.changed() for t in self.trials)
        found: list[Any] = []
        if some or draws:
            pick = [self.picked(side, some) for side in self.sides]
            found = list(cond(self.truth, *pick, *self.operands()))
        self.freeze(found, some)
        tensors = iter(found)
        return tuple(self.after(k, tensors) for k in range(len(self.names)))

    def operands(self) -> list[Any]:
        """The tensors of the variables; copies of those that change in place, because
        derivatives may need the old values."""
        changes = [v for v, kind in zip(self.values, self.chosen, strict=False)
                   if kind == "mutated"]  # fmt: skip
        given = self.trials[0].operands
        return [clone(x) if any(x is y for y in changes) else x for x in given]

    def picked(self, side: Any, some: list[int]) -> Callable[..., Any]:
        trial = self.trials[0]

        def run(*tensors: Any) -> tuple[Any, ...]:
            out = _run(self.what, side, trial.with_tensors(tensors))
            return tuple(x for k in some for x in _tensors(out[k]))

        return run

    def freeze(self, found: list[Any], some: list[int]) -> None:
        """Freeze results that show memory from outside, or that of one another."""
        for t in self.trials:
            seen: dict[int, Any] = {}
            tensors = iter(found)
            for k in some:
                for x in _tensors(t.out[k]):
                    made, outside = next(tensors), t.root(x)
                    if self.chosen[k] == "mutated":
                        continue
                    if outside is not None:
                        _freeze(made, outside)
                    elif id(x.storage_record) in seen:
                        _freeze(made, seen[id(x.storage_record)])
                    seen[id(x.storage_record)] = made

    def after(self, k: int, tensors: Any) -> Any:
        kind = self.chosen[k]
        if kind == "kept":
            return self.values[k]
        if kind == "lost":
            return UNDEFINED
        if kind == "mutated":
            assign(self.values[k], next(tensors), "an assignment in a branch")
            return self.values[k]
        return _rebuilt(self.trials[0].out[k], tensors)


# -- loops


def loop(
    asked: Any, body: Any, values: Any, names: Names, live: Names
) -> tuple[Any, ...]:
    """The variables after a ``while``."""
    values = _lifted(names, values)
    return _Loop(
        "the body of the `while`", asked, body, None, values, names, live
    ).run()


def over_rows(
    rows: Any, body: Any, values: Any, names: Names, live: Names, targets: Names
) -> tuple[Any, ...]:
    """The variables after a ``for`` over the rows of a tensor."""
    for name in targets:
        if name in live:
            refuse(rows, f"{name!r} is used after the `for`, which may have no steps")
    given = tuple(
        UNDEFINED if name in targets else value
        for name, value in zip(names, values, strict=True)
    )
    return _Loop("the body of the `for`", None, body, rows, given, names, live).run()


class _Loop:
    """A loop whose number of steps is known when the graph runs."""

    def __init__(
        self, what: str, asked: Any, body: Any, rows: Any, values: tuple[Any, ...],
        names: Names, live: Names,
    ) -> None:  # fmt: skip
        self.what, self.asked, self.body, self.rows = what, asked, body, rows
        self.names, self.live = names, live
        self.given = self.values = values
        self.trial = self.try_body()
        self.kinds = [self.kind(k) for k in range(len(names))]
        if "temporary" in self.kinds:  # their values of before are not to be read
            self.values = tuple(
                UNDEFINED if kind == "temporary" else value
                for kind, value in zip(self.kinds, values, strict=True)
            )
            self.trial = self.try_body()
            self.kinds = [self.kind(k) for k in range(len(names))]

    def try_body(self) -> _Trial:
        row = [] if self.rows is None else [_row_type(self.rows)]
        return _Trial(self.what, self.body, self.values, row)

    def kind(self, k: int) -> str:
        """What becomes of a variable: kept, carried, changed in place, temporary."""
        trial, before = self.trial, self.values[k]
        if before is UNDEFINED:
            if self.names[k] in self.live:
                self.refuse(k, "has no value if the loop takes no step")
            return "temporary"
        if trial.is_mutated(k):
            if not trial.is_kept(k) or not isinstance(before, Tensor):
                self.refuse(k, "is changed in place and then set")
            trial.check_aliases(self.names[k])
            return "mutated"
        if trial.is_kept(k):
            return "kept"
        why = _mismatch(before, trial.out[k])
        if why is None:
            return "carried"
        if self.names[k] in self.live:
            self.refuse(k, why.replace("one way", "the first step").replace(
                "the other", "the next"))  # fmt: skip
        return "temporary"

    def refuse(self, k: int, why: str) -> NoReturn:
        raise refusal(
            f"the number of steps of this loop is known only when the graph runs, and "
            f"{self.names[k]!r} {why}"
        )

    def run(self) -> tuple[Any, ...]:
        some = [
            k for k, kind in enumerate(self.kinds) if kind in ("carried", "mutated")
        ]
        start = tuple(
            clone(x) if self.kinds[k] == "mutated" else x
            for k in some
            for x in _tensors(self.values[k])
        )
        if not start and (self.rows is None or not self.trial.staged.changed()):
            if self.rows is None:
                raise refusal(
                    "this loop changes no tensor, so that its condition would stay as "
                    "it is"
                )
            return tuple(map(self.without_steps, range(len(self.names))))
        found = self.stage(some, start)
        _freeze(*found)
        for k in some:
            if self.kinds[k] == "carried":
                _freeze(*_tensors(self.values[k]))
        tensors = iter(found)
        return tuple(self.after(k, tensors) for k in range(len(self.names)))

    def stage(self, some: list[int], start: tuple[Any, ...]) -> list[Any]:
        def step(*carry: Any, row: Any = ()) -> tuple[Any, ...]:
            out = _run(self.what, self.body, (*row, *self.current(some, carry)))
            return tuple(x for k in some for x in _tensors(out[k]))

        if self.rows is not None:
            carry, _ = scan(lambda c, r: (step(*c, row=(r,)), None), start, self.rows)
            return list(carry)

        def ask(*carry: Any) -> Any:
            return _run("the condition", self.asked, self.current(some, carry))

        return list(while_loop(ask, step, start))

    def current(self, some: list[int], carry: Sequence[Any]) -> tuple[Any, ...]:
        """The variables in a step."""
        tensors = iter(carry)
        return tuple(
            _rebuilt(value, tensors) if k in some else value
            for k, value in enumerate(self.values)
        )

    def without_steps(self, k: int) -> Any:
        return UNDEFINED if self.kinds[k] == "temporary" else self.values[k]

    def after(self, k: int, tensors: Any) -> Any:
        kind = self.kinds[k]
        if kind == "mutated":
            assign(self.values[k], next(tensors), "an assignment in a loop")
            return self.values[k]
        if kind == "carried":
            return _rebuilt(self.values[k], tensors)
        return self.without_steps(k)


def _row_type(rows: Any) -> Any:
    from weft.core.op import TensorType

    return TensorType(rows.shape[1:], rows.dtype)
