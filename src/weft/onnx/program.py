"""From an ONNX graph to a list of steps: names and attributes checked, once.

    program = inputs, steps, outputs         each by name
    step    = operator, inputs, attributes, outputs, the names that end with it

Functions of the model, and those by which ONNX itself defines operators that have no
entry in the table, become steps that run programs. What is lacking is collected, and
refused all at once.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

from weft.onnx.errors import ModelError, library
from weft.onnx.reading import array_of
from weft.onnx.registry import TABLE, Operator

OLDEST = 6  # the version from which on operators are read
MOST_STEPS = 200_000
DEEPEST = 64  # functions in functions, graphs in graphs


class Step(NamedTuple):
    """One operator, applied to values by name."""

    operator: Operator
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    attributes: dict[str, Any]
    label: str
    program: Program | None = None  # of a function
    schema: Any = None  # of an operator whose program depends on its inputs' types
    ends: tuple[str, ...] = ()  # names that no later step needs


class Program:
    """A graph that can be run."""

    __slots__ = ("inputs", "name", "opsets", "outputs", "state", "steps")

    def __init__(self, name: str, opsets: dict[str, int]) -> None:
        self.name = name
        self.opsets = opsets
        self.inputs: tuple[str, ...] = ()
        self.outputs: tuple[str, ...] = ()
        self.steps: list[Step] = []
        self.state: dict[str, Any] = {}  # keys of initializers, by their names here


def domain_of(name: str) -> str:
    return "" if name == "ai.onnx" else name


def label_of(node: Any) -> str:
    """A node's operator, and its name or that of its first result."""
    name = node.name or next((o for o in node.output if o), "")
    return f"{node.op_type} {name!r}"


def _check_version(domain: str, version: int) -> None:
    """Refuse versions of operators whose meaning is not known here."""
    newest = library().defs.onnx_opset_version() if domain == "" else version
    if not 1 <= version <= newest:
        raise ModelError(
            f"operators of {domain or 'ai.onnx'}: expected a version from 1 to "
            f"{newest}, got {version}"
        )


def _check_age(label: str, schema: Any, version: int) -> None:
    """Refuse operators that meant something else before the oldest version read."""
    if version < OLDEST and schema is not None and schema.domain == "":
        then = schema_of(schema.name, OLDEST, "")
        if then is None or then.since_version != schema.since_version:
            raise ModelError(
                f"{label}: operators of version {version} are not read where they "
                f"changed before {OLDEST}; onnx.version_converter makes a newer model"
            )


class Preparer:
    """Makes programs of a model's graphs and functions."""

    def __init__(self, model: Any, folder: str | None = None) -> None:
        self.folder = folder
        self.opsets = {domain_of(o.domain): o.version for o in model.opset_import}
        for domain, version in self.opsets.items():
            _check_version(domain, version)
        self.functions = {
            (domain_of(f.domain), f.name, f.overload): f for f in model.functions
        }
        self.missing: list[str] = []
        self.initial: dict[str, Any] = {}  # initializers, by key
        self.uses: dict[str, list[tuple[Operator, int]]] = {}  # of them, by key
        self.count = 0

    def graph(
        self, graph: Any, scope: dict[str, Any], opsets: Any, refs: Any, depth: int = 0
    ) -> Program:
        """The program of a graph; ``scope`` has the names around it."""
        if depth > DEEPEST:
            raise ModelError(f"graph {graph.name!r}: more than {DEEPEST} graphs deep")
        program = Program(graph.name, opsets)
        names: dict[str, Any] = dict(scope)
        own: set[str] = set()
        if graph.sparse_initializer:
            raise ModelError(f"graph {graph.name!r}: sparse initializers are unknown")
        for proto in graph.initializer:
            key = proto.name
            while key in self.initial:
                key = f"{key}_"
            if not proto.name or proto.name in own:
                raise ModelError(f"graph {graph.name!r}: two initializers {key!r}")
            own.add(proto.name)
            self.initial[key] = proto
            names[proto.name] = program.state[proto.name] = key
        program.inputs = tuple(i.name for i in graph.input)
        if len(set(program.inputs)) < len(program.inputs):
            raise ModelError(f"graph {graph.name!r}: two inputs of the same name")
        for name in program.inputs:
            own.add(name)
            names.setdefault(name, None)
            if name not in program.state:
                names[name] = None
        self._steps(program, graph.node, names, own, refs, depth)
        program.outputs = tuple(o.name for o in graph.output)
        self._finish(program, names)
        return program

    def function(self, proto: Any, node: Any, depth: int) -> Program:
        """The program of a function, for the attributes of one call of it."""
        if depth > DEEPEST:
            raise ModelError(
                f"function {proto.name!r}: functions that call themselves, or more "
                f"than {DEEPEST} deep"
            )
        given = {a.name: a for a in proto.attribute_proto}
        given |= {a.name: a for a in node.attribute}
        opsets = {domain_of(o.domain): o.version for o in proto.opset_import}
        opsets = {**self.opsets, **opsets}
        program = Program(proto.name, opsets)
        program.inputs, program.outputs = tuple(proto.input), tuple(proto.output)
        names: dict[str, Any] = dict.fromkeys(proto.input)
        refs = {name: given.get(name) for name in (*proto.attribute, *given)}
        self._steps(program, proto.node, names, set(names), refs, depth)
        self._finish(program, names)
        return program

    def _steps(
        self, program: Program, nodes: Any, names: Any, own: Any, refs: Any, depth: int
    ) -> None:
        later = {o for node in nodes for o in node.output}
        for node in nodes:
            self.count += 1
            if self.count > MOST_STEPS:
                raise ModelError(f"expected at most {MOST_STEPS} nodes")
            for name in node.input:
                if name and name not in names:
                    why = (
                        "which a later node makes: nodes must be in order, without "
                        "cycles" if name in later else "which nothing makes"
                    )  # fmt: skip
                    raise ModelError(f"{label_of(node)}: its input is {name!r}, {why}")
            step = self._step(program, node, names, refs, depth)
            for name in node.output:
                if name and name in own:
                    raise ModelError(f"{label_of(node)}: a second value {name!r}")
                own.add(name)
                names[name] = None
            if step is not None:
                program.steps.append(step)

    def _finish(self, program: Program, names: dict[str, Any]) -> None:
        for name in program.outputs:
            if name not in names:
                raise ModelError(
                    f"graph {program.name!r}: its result {name!r} is made by no node"
                )
        kept, steps = set(program.outputs), []
        for step in reversed(program.steps):
            mine = {*filter(None, (*step.inputs, *step.outputs)), *_outside(step)}
            steps.append(step._replace(ends=tuple(mine - kept)))
            kept |= mine
        program.steps = steps[::-1]

    def _step(
        self, program: Program, node: Any, names: Any, refs: Any, depth: int
    ) -> Step | None:
        domain, label = domain_of(node.domain), label_of(node)
        inputs, outputs = tuple(node.input), tuple(node.output)
        local = self.functions.get((domain, node.op_type, node.overload))
        found = TABLE.get((domain, node.op_type))
        if local is not None:
            self._arity(label, inputs, outputs, local)
            body = self.function(local, _resolved(node, refs), depth + 1)
            return Step(_FUNCTION, inputs, outputs, {}, label, body)
        version = program.opsets.get(domain, 0)
        schema = schema_of(node.op_type, version, domain)
        if version == 0 and found is not None:
            raise ModelError(
                f"{label}: the model names no version of the operators {domain!r}"
            )
        if schema is not None:
            _check_counts(label, schema, node)
        _check_age(label, schema, version)
        if found is None:
            return self._defined(node, schema, refs, names, program, depth)
        for place, name in enumerate(inputs):
            key = names.get(name)
            if key is not None:
                self.uses.setdefault(key, []).append((found, place))
        attributes = self._attributes(found, node, schema, names, program, refs, depth)
        return Step(found, inputs, outputs, attributes, label)

    def _arity(self, label: str, inputs: Any, outputs: Any, proto: Any) -> None:
        if len(inputs) > len(proto.input) or len(outputs) > len(proto.output):
            raise ModelError(
                f"{label}: the function has {len(proto.input)} inputs and "
                f"{len(proto.output)} results, got {len(inputs)} and {len(outputs)}"
            )

    def _defined(
        self,
        node: Any,
        schema: Any,
        refs: Any,
        names: Any,
        program: Program,
        depth: int,
    ) -> Step | None:
        """A step by ONNX's own definition, if there is one."""
        label, domain = label_of(node), domain_of(node.domain)
        inputs, outputs = tuple(node.input), tuple(node.output)
        if schema is not None and schema.has_function:
            body = self.function(schema.function_body, _resolved(node, refs), depth + 1)
            return Step(_FUNCTION, inputs, outputs, {}, label, body)
        if schema is not None and schema.has_context_dependent_function:
            resolved = _resolved(node, refs)
            return Step(
                _FUNCTION, inputs, outputs, {"node": resolved}, label, None, schema
            )
        version = program.opsets.get(domain)
        place = f"{domain or 'ai.onnx'} {version}"
        self.missing.append(f"{label} ({place})")
        return None

    def _attributes(
        self, found: Operator, node: Any, schema: Any, names: Any, program: Program,
        refs: Any, depth: int,
    ) -> dict[str, Any]:  # fmt: skip
        label = label_of(node)
        values: dict[str, Any] = {}
        for attribute in _resolved(node, refs).attribute:
            name = attribute.name
            if name in values:
                raise ModelError(f"{label}: two attributes {name!r}")
            known = schema.attributes if schema is not None else None
            kind = None if known is None or name not in known else known[name].type
            if kind is not None and int(kind.value) != attribute.type:
                raise ModelError(
                    f"{label}: expected the attribute {name!r} to be a {kind.name}"
                )
            if name not in found.attributes:
                raise ModelError(
                    f"{label}: expected the attributes {sorted(found.attributes)}, "
                    f"got {name!r}"
                )
            inner = lambda graph: self.graph(  # noqa: E731
                graph, names, program.opsets, refs, depth + 1
            )
            values[name] = attribute_value(attribute, inner, self.folder)
        lacking = found.required - values.keys()
        if lacking:
            raise ModelError(
                f"{label}: its attribute {sorted(lacking)[0]!r} is missing"
            )
        return values


def attribute_value(attribute: Any, inner: Any, folder: str | None = None) -> Any:
    """An attribute as Python's data; ``inner`` makes programs of graphs."""
    kind = attribute.type
    if kind in (1, 2):
        return attribute.f if kind == 1 else attribute.i
    if kind == 3:
        return attribute.s.decode("utf-8", "replace")
    if kind == 4:
        return array_of(attribute.t, folder)
    if kind == 5:
        return inner(attribute.g)
    if kind in (6, 7):
        return tuple(attribute.floats if kind == 6 else attribute.ints)
    if kind == 8:
        return tuple(s.decode("utf-8", "replace") for s in attribute.strings)
    if kind == 9:
        return tuple(array_of(t, folder) for t in attribute.tensors)
    if kind in (11, 13):
        return attribute.sparse_tensor if kind == 11 else attribute.tp
    raise ModelError(f"attribute {attribute.name!r}: its type {kind} is unknown")


def schema_of(name: str, version: int, domain: str) -> Any:
    """ONNX's own description of an operator, or None."""
    onnx = library()
    try:
        return onnx.defs.get_schema(name, version, domain)
    except (onnx.defs.SchemaError, TypeError, OverflowError):
        return None


def _check_counts(label: str, schema: Any, node: Any) -> None:
    few, many = schema.min_input, schema.max_input
    if not few <= len(node.input) <= many:
        raise ModelError(
            f"{label}: expected {few} to {many} inputs, got {len(node.input)}"
        )
    if not len(node.output) <= schema.max_output:
        raise ModelError(
            f"{label}: expected at most {schema.max_output} results, got "
            f"{len(node.output)}"
        )


def _resolved(node: Any, refs: Any) -> Any:
    """A node whose attributes are values, not names of a function's attributes."""
    if not any(a.ref_attr_name for a in node.attribute):
        return node
    made = type(node)()
    made.CopyFrom(node)
    del made.attribute[:]
    for attribute in node.attribute:
        if not attribute.ref_attr_name:
            made.attribute.add().CopyFrom(attribute)
            continue
        if attribute.ref_attr_name not in refs:
            raise ModelError(
                f"{label_of(node)}: its function has no attribute "
                f"{attribute.ref_attr_name!r}"
            )
        value = refs[attribute.ref_attr_name]
        if value is not None:
            one = made.attribute.add()
            one.CopyFrom(value)
            one.name = attribute.name
    return made


def _outside(step: Step) -> Iterable[str]:
    """The names outside that graphs among a step's attributes need."""
    for value in step.attributes.values():
        if isinstance(value, Program):
            own = {*value.inputs, *value.state}
            for inner in value.steps:
                yield from (
                    n for n in (*inner.inputs, *_outside(inner)) if n not in own
                )
                own |= set(inner.outputs)
            yield from (n for n in value.outputs if n not in own)


def _function() -> None:
    """Stands for functions, whose steps have programs."""


_FUNCTION = Operator(
    "function", _function, frozenset(), frozenset(), (), (), (), True
)  # fmt: skip
