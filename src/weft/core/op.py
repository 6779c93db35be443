"""Operator records: one object holds everything that is known about an operator.

    mul = Op("mul", inputs="x y", eval=np.multiply, type=elementwise_type,
             vjp={"x": lambda g, y: g * y, "y": lambda g, x: g * x}, ...)

A rule's parameter names say what it needs, and only that is kept for it:

    g, t        first: the cotangent of the output, the tangent of the input
    x, y, ...   an input of the operator, by its name
    x_shape     the shape of an input (the input itself is not kept)
    x_dtype     the dtype of an input
    out         the output (or one of several, by its name)
    need        which inputs want a cotangent (joint rules only)
    dim, ...    a static parameter, by its name

``vjp`` and ``jvp`` are dictionaries with one rule an input, or one joint rule
for all: a joint vjp returns a cotangent for each input (None where not
needed), a joint jvp takes a list of tangents (None where zero) and returns the
output's tangent. Rules are written in Weft's own operators, so they can be
differentiated, batched and captured in turn.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from operator import itemgetter
from typing import Any, NamedTuple

from weft.core.record import Record
from weft.dtype import DType
from weft.errors import ArgumentError

Shape = tuple[Any, ...]
# Where a rule's argument comes from: "in", "shape", "dtype", "out" or "param"; which
# input or output it is; its name.
Source = tuple[str, int, str]
RuleFn = Callable[..., Any]


class TensorType(NamedTuple):
    """The shape and dtype of a tensor, which are known before its value."""

    shape: tuple[Any, ...]  # numbers, or symbolic sizes
    dtype: DType

    def __str__(self) -> str:
        return f"{self.dtype.name}[{', '.join(map(str, self.shape))}]"


class Sample(NamedTuple):
    """Arguments that exercise an operator in tests.

    ``args`` are float64, integer or boolean arrays (floating ones are cast to
    the dtype under test) or Python numbers; ``params`` the static parameters.
    """

    args: tuple[Any, ...]
    params: dict[str, Any] = {}


class Facts(Record):
    """Properties of an operator that passes, planners and emitters ask for.

    A record that says nothing is taken for an operator of which nothing is known: it is
    correct, and perhaps slower. ``ops.elementwise`` fills in what its builders know.
    """

    elementwise: bool = False  # each element follows from the inputs' elements there
    returns: str = "same"  # the result's dtype: "same", "bool" or "real"
    numbers: str = ""  # where an operand may be a Python number: "all", "inexact"
    cost: int = 1  # operations for an element: 0 to move it, 1 to add, 12 for exp
    flops: Callable[..., Shape] | None = None  # of all: factors, from shapes (out, *in)
    commutes: bool = False  # op(x, y) has the bits of op(y, x)
    idempotent: bool = False  # op(op(x, y), y) is op(x, y): reductions do not round
    identity: float | None = None  # op(identity, x) is x: where a reduction starts
    bounds: tuple[float, float] | None = None  # of all results of finite inputs
    keeps_finite: bool = False  # results are finite where the first input is
    exact: bool = False  # results need no rounding: they are numbers of the dtype
    random: bool = False  # results are random numbers: functions of a seed
    effect: bool = False  # each call counts: all run, once, in the program's order
    divides: Callable[..., Any] | None = None  # among processes: see ops.dividing
    terms: str = ""  # operands in which it is linear: "first", "each" or "all" together
    put: Callable[..., Any] | None = (
        None  # of views: x where op(x, **params) is y: put(x, y, **params)
    )
    infix: str = ""  # how expressions show it between its operands


UNSTATED = Facts()


class Step(NamedTuple):
    """One call of a rule during backward.

    An argument is a position into what was saved, or a parameter's name.
    """

    input: int
    fn: RuleFn
    args: tuple[int | str, ...]
    only: int  # the one saved value it takes, or -1 if it takes others


class Plan:
    """A plan to save for, and run, one operator's vjp for one set of inputs."""

    __slots__ = (
        "joint", "keep", "need", "op", "outs", "pick", "saves", "saves_shape", "steps",
        "wants_outs",
    )  # fmt: skip

    def __init__(self, op: Op, need: tuple[bool, ...]) -> None:
        self.op = op
        self.need = need
        self.joint = callable(op.vjp)
        self.keep: list[tuple[str, int]] = []
        rules = op.vjp if op.vjp is not None else {}
        if callable(rules):
            self.steps: tuple[Step, ...] = (self._step(0, rules),)
        else:
            self.steps = tuple(
                self._step(i, rules[name])
                for i, name in enumerate(op.inputs)
                if need[i] and name in rules
            )
        self.outs = tuple(k for k, (kind, _) in enumerate(self.keep) if kind == "out")
        # whether the picker takes the outputs after the arguments
        self.wants_outs = op.variadic or bool(self.outs)
        self.saves = bool(self.keep)
        self.saves_shape = self.keep == [("shape", 0)]  # and nothing else
        self.pick = self._picker()

    def _step(self, index: int, fn: RuleFn) -> Step:
        args: list[int | str] = []
        for kind, position, name in self.op.sources(fn):
            key = (kind, position)
            if kind == "param":
                args.append(name)
                continue
            if key not in self.keep:
                self.keep.append(key)
            args.append(self.keep.index(key))
        only = args[0] if len(args) == 1 and isinstance(args[0], int) else -1
        return Step(index, fn, tuple(args), only)

    def _picker(self) -> Callable[[Sequence[Any]], tuple[Any, ...]]:
        """A function from the arguments (then outputs) to the values that are saved."""
        if not self.keep:
            return _nothing
        if not self.op.variadic and all(kind == "in" for kind, _ in self.keep):
            first, *more = [i for _, i in self.keep]
            one = slice(first, first + 1)  # of which ``itemgetter`` makes a tuple
            return itemgetter(first, *more) if more else itemgetter(one)
        if self.saves_shape and not self.op.variadic:
            return lambda args: (args[0].shape,)
        if self.keep == [("out", 0)] and not self.op.many:
            return lambda args: (args[-1][0].saved_alias(),)
        takes = [self._taker(kind, i) for kind, i in self.keep]
        return lambda args: tuple([take(args) for take in takes])

    def _taker(self, kind: str, i: int) -> Callable[[Sequence[Any]], Any]:
        """A function from the arguments (then outputs) to one value that is saved."""
        if kind == "out":
            if self.op.many:
                return lambda args: [out.saved_alias() for out in args[-1]]
            return lambda args: args[-1][i].saved_alias()
        if self.op.variadic:
            if kind == "in":
                return lambda args: list(args[:-1])
            return lambda args: [getattr(x, kind) for x in args[:-1]]
        if kind == "in":
            return itemgetter(i)
        return lambda args: getattr(args[i], kind)


def _nothing(args: Sequence[Any]) -> tuple[Any, ...]:
    """The picker of a plan that saves nothing."""
    return ()


def rule_names(fn: RuleFn) -> tuple[str, ...]:
    """The names of a plain function's positional parameters."""
    code = fn.__code__
    return code.co_varnames[: code.co_argcount]


class Op:
    """One primitive operator. Calling it applies it to tensors.

    A minimal record has a name, inputs, ``eval`` and ``type``; a missing rule
    is derived where it can be (``jvp`` from ``vjp``, ``batch`` by a loop)
    and otherwise means that the operator is not differentiable.

    ``linear`` says that the output is linear in the one input, so that the jvp
    is the operator itself; ``view`` that the output shares the input's memory
    (``"maybe"``: where the memory's layout allows);
    ``composite`` that ``eval`` is a program over tensors instead of arrays.
    ``inputs="*xs"`` takes any number of inputs, which rules get as one list;
    ``outputs="*outs"`` gives a tuple whose length depends on the parameters (and its
    vjp gets None as the cotangent of an output that nothing depends on).
    ``bulk`` is how many elements an array must have for the compiler's kernel to be
    worth its call in eager mode (``core.eager_kernels``), or such a number for each
    code of the first argument's dtype.
    ``refuses`` names the inputs whose values the evaluation may refuse with an error,
    each with a number that is refused if all elements are equal to it (of whole
    numbers, where it is an int). Programs keep such operators even where nothing needs
    their results: the error is one of their results.
    Every other keyword is one of the ``Facts``.
    """

    __slots__ = (
        "batch", "bulk", "composite", "eval", "facts", "function", "inputs", "jvp",
        "kernel", "linear", "lower", "many", "name", "outputs", "plans", "reference",
        "refuses", "samples", "type", "variadic", "view", "vjp",
    )  # fmt: skip

    def __init__(
        self,
        name: str,
        *,
        inputs: str,
        eval: Callable[..., Any],
        type: Callable[..., Any] | None,
        outputs: str = "out",
        vjp: Mapping[str, RuleFn] | RuleFn | None = None,
        jvp: Mapping[str, RuleFn] | RuleFn | None = None,
        batch: Callable[..., Any] | None = None,
        linear: bool = False,
        view: bool | str = False,
        composite: bool = False,
        samples: Callable[..., Iterable[Sample]] | None = None,
        reference: Callable[..., Any] | None = None,
        lower: Any = None,
        bulk: int | dict[str, int] | None = None,
        refuses: Mapping[str, float] | None = None,
        **facts: Any,
    ) -> None:
        self.name = name
        self.facts = Facts(**facts) if facts else UNSTATED
        self.variadic = inputs.startswith("*")
        self.inputs = tuple(inputs.removeprefix("*").split())
        self.many = outputs.startswith("*")  # as many outputs as the parameters say
        self.outputs = tuple(outputs.removeprefix("*").split())
        self.eval = eval
        self.kernel = eval  # the CPU's function; a device may register a better one
        self.type = type
        self.vjp = vjp
        self.jvp = jvp
        self.batch = batch
        self.linear = linear
        self.view = view
        self.composite = composite
        self.samples = samples
        self.reference = reference
        self.lower: Any = lower  # for the compiler: see core.lowering
        self.function: Any = None  # the public function, where it only promotes
        self.bulk: Any = bulk
        self.refuses: Mapping[str, float] = refuses or {}
        self.plans: dict[tuple[bool, ...], Plan] = {}
        self._check_rules()

    def output_name(self, index: int) -> str:
        return f"{self.outputs[0]}{index}" if self.many else self.outputs[index]

    @property
    def differentiable(self) -> bool:
        return self.vjp is not None

    def _check_rules(self) -> None:
        for rules in (self.vjp, self.jvp):
            if isinstance(rules, Mapping):
                unknown = set(rules) - set(self.inputs)
                if unknown:
                    raise ArgumentError(
                        f"operator {self.name!r}: rules for unknown inputs "
                        f"{sorted(unknown)}; its inputs are {list(self.inputs)}"
                    )

    def sources(self, fn: RuleFn) -> list[Source]:
        """The source of each argument of a rule (after the first)."""
        names = getattr(fn, "names", None)
        if names is None:
            names = rule_names(fn)[1:]
        return [self._source(name) for name in names]

    def _source(self, name: str) -> Source:
        if name in self.inputs:
            return "in", self.inputs.index(name), name
        owner, _, what = name.rpartition("_")
        if what in ("shape", "dtype") and owner in self.inputs:
            return what, self.inputs.index(owner), name
        if name in self.outputs:
            return "out", self.outputs.index(name), name
        return "param", -1, name

    def plan(self, need: tuple[bool, ...]) -> Plan:
        """The saving plan for the inputs that want a gradient."""
        found = self.plans.get(need)
        if found is None:
            found = self.plans[need] = Plan(self, need)
        return found

    def __call__(self, *args: Any, **params: Any) -> Any:
        from weft.core.dispatch import bind

        return bind(self, args, params)

    def __repr__(self) -> str:
        return f"<op {self.name}>"

    def __reduce__(self) -> tuple[Any, ...]:
        return (find_op, (self.name,))


_REGISTRY: dict[str, Op] = {}
_UNLISTED: dict[str, Op] = {}  # records of programs: found by name, in no list
_LATER: list[str] = []  # modules that define others
_OWN: set[Op | None] = set()  # those that Weft's modules register


def register(op: Op) -> Op:
    """Add a record to the registry; a second one of the same name is refused."""
    if op.name in _REGISTRY:
        raise ArgumentError(
            f"an operator named {op.name!r} exists; unregister it first or choose "
            "another name"
        )
    _REGISTRY[op.name] = op
    frame: Any = sys._getframe(1)
    while frame.f_globals.get("__name__") == __name__:
        frame = frame.f_back
    if str(frame.f_globals.get("__name__")).startswith("weft."):
        _OWN.add(op)
    return op


def is_own(op: Op) -> bool:
    """Whether a record is one of Weft's, which its name and Weft's version determine.

    >>> weft.core.op.is_own(weft.core.op.find_op("exp"))
    True
    """
    return op in _OWN


def register_unlisted(op: Op) -> Op:
    """Let a record be found by its name, which a later one of that name replaces."""
    _UNLISTED[op.name] = op
    return op


unregistered: list[Callable[[Op], None]] = []  # called with a record that is gone


def unregister(name: str) -> None:
    """Take a record out of the registry, and its function's public names away."""
    op = _REGISTRY.pop(name, None)
    if op is not None:
        _OWN.discard(op)
        for tell in unregistered:
            tell(op)


def define(name: str, **fields: Any) -> Op:
    """Declare an operator: build its record and register it.

    >>> def type_rule(x):
    ...     return x
    >>> cube = weft.core.op.define(
    ...     "cube", inputs="x", eval=lambda x: x**3, type=type_rule,
    ...     vjp={"x": lambda g, x: 3 * g * x * x},
    ... )
    >>> x = weft.tensor(2.0, requires_grad=True)
    >>> cube(x).backward()
    >>> x.grad
    tensor(12.)
    >>> weft.core.op.unregister("cube")
    """
    return register(Op(name, **fields))


def define_later(*modules: str) -> None:
    """Name modules that define operators when they are imported.

    They are imported when an operator is asked for that is not there yet.
    """
    _LATER.extend(modules)


def _define_all() -> None:
    while _LATER:
        importlib.import_module(_LATER.pop())


def find_op(name: str) -> Op:
    """The record with this name."""
    found = known_op(name)
    if found is None:
        _define_all()
        found = _REGISTRY.get(name)
    if found is None:
        raise ArgumentError(f"no operator is named {name!r}")
    return found


def known_op(name: str) -> Op | None:
    """The record with this name, or None."""
    return _REGISTRY.get(name) or _UNLISTED.get(name)


def all_ops() -> list[Op]:
    """Every registered record, in the order of registration."""
    _define_all()
    return list(_REGISTRY.values())
