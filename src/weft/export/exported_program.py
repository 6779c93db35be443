"""Exported programs: a graph of operators, its state, and how to call it."""

from __future__ import annotations

import copy
import inspect
import warnings
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

from weft.core.pytree import Structure, tree_flatten, tree_unflatten
from weft.core.tensor import Tensor
from weft.errors import ArgumentError, DTypeError, ShapeError
from weft.export.dynamic_shapes import Dim, ValueRange, Wanted, named_sizes
from weft.export.graph_signature import (
    ExportGraphSignature,
    InputKind,
    OutputKind,
)
from weft.export.lift import Lifter
from weft.fx.graph import Graph
from weft.fx.graph_module import GraphModule
from weft.fx.interpreter import Interpreter
from weft.graph.capture import capture
from weft.graph.captured_program import Captured
from weft.graph.effects import Printed
from weft.graph.labels import labels_of
from weft.graph.state_cells import Cell
from weft.nn import Module, Parameter


class CallSpec(NamedTuple):
    """The structures of the arguments and of the result."""

    in_spec: Structure
    out_spec: Structure


class ExportedProgram:
    """A program that ``export`` captured, with the state that it reads and changes.

    ``graph`` has parameters, buffers and constants as inputs and no effects; ``module``
    gives a module that runs, trains and can be compiled.

    >>> ep = weft.export.export(weft.nn.Linear(3, 2), (weft.ones(1, 3),))
    >>> ep.module()(weft.ones(1, 3)).shape
    (1, 2)
    """

    dialect = "TRAINING"

    def __init__(
        self,
        program: Captured,
        kinds: dict[str, tuple[InputKind, bool]],
        ranges: dict[str, ValueRange],
        names: list[str],
        example_inputs: Any = None,
    ) -> None:
        self._names = names  # of the leaves of the arguments
        graph, self._signature, constants = Lifter(program, kinds, names).run()
        values = {name: program.cells[name].tensor for name in kinds}
        self._state: dict[str, Any] = {}
        self._constants = {n: x.detach().clone() for n, x in constants.items()}
        for name, (kind, persistent) in kinds.items():
            kept = kind is InputKind.PARAMETER or (
                kind is InputKind.BUFFER and persistent
            )
            (self._state if kept else self._constants)[name] = values[name]
        self.range_constraints = ranges
        self.example_inputs = example_inputs
        self._inputs, self._sizes = program.graph.inputs, program.graph.sizes
        self.call_spec = CallSpec(program.ins, program.outs)
        self.graph_module = GraphModule({}, graph)

    @property
    def graph(self) -> Graph:
        """The program as an ``fx`` graph of operators."""
        return self.graph_module.graph

    @property
    def graph_signature(self) -> ExportGraphSignature:
        """The meaning of the graph's inputs and outputs."""
        return self._signature

    @property
    def state_dict(self) -> dict[str, Any]:
        """Parameters and persistent buffers by name."""
        return self._state

    @property
    def constants(self) -> dict[str, Any]:
        """The other tensors that the program reads, by name."""
        return self._constants

    tensor_constants = constants

    def parameters(self) -> Iterator[Parameter]:
        """The parameters."""
        return (value for _, value in self.named_parameters())

    def named_parameters(self) -> Iterator[tuple[str, Parameter]]:
        """The parameters with their names."""
        for name in self._signature.parameters:
            yield name, self._state[name]

    def buffers(self) -> Iterator[Tensor]:
        """The buffers."""
        return (value for _, value in self.named_buffers())

    def named_buffers(self) -> Iterator[tuple[str, Tensor]]:
        """The buffers with their names."""
        for name in self._signature.buffers:
            yield name, self._value(name)

    def _value(self, name: str) -> Any:
        return self._state[name] if name in self._state else self._constants[name]

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        raise RuntimeError(
            "Unable to call ExportedProgram directly. You should use `module()` "
            "instead."
        )

    def module(self, check_guards: bool = True) -> GraphModule:
        """A module that runs the program; its state is the program's own.

        >>> ep = weft.export.export(weft.nn.Linear(3, 2), (weft.ones(1, 3),))
        >>> list(dict(ep.module().named_parameters()))
        ['weight', 'bias']
        """
        return ExportedModule(self, check_guards)

    def run_decompositions(
        self,
        decomp_table: Mapping[Any, Callable[..., Any]] | None = None,
        decompose_custom_triton_ops: bool = False,
    ) -> ExportedProgram:
        """The program with functions of a table in place of operators.

        Its operators are primitive, so without a table there is nothing to decompose.

        >>> ep = weft.export.export(weft.nn.ReLU(), (weft.ones(1),))
        >>> ep.run_decompositions() is ep
        True
        """
        targets = {node.target for node in self.graph.nodes}
        table = {k: f for k, f in (decomp_table or {}).items() if k in targets}
        if not table:
            return self
        args, kwargs = self._examples()
        module = self.module()
        call = _decomposed(module, table)
        return _exported(module, call, args, kwargs, self._wanted(args, kwargs))

    def _examples(self) -> Any:
        if self.example_inputs is None:
            raise ArgumentError("this exported program has no example inputs")
        return self.example_inputs

    def _wanted(self, args: Any, kwargs: Any) -> Wanted:
        """The open sizes, for a capture of the module."""
        tensors = iter(self._inputs)
        leaves = tree_flatten((args, kwargs))[0]
        dynamic: dict[str, dict[int, str]] = {}
        labels = labels_of(self.module(), args, kwargs)
        for label, leaf in zip(labels, leaves, strict=True):
            if isinstance(leaf, Tensor):
                shape = next(tensors).shape
                found = {
                    dim: size.symbol_name
                    for dim, size in enumerate(shape)
                    if hasattr(size, "symbol_name")
                }
                if found:
                    dynamic[label] = found
        dims = {
            name: Dim(name, min=low, max=high)
            for name, (low, high) in self.range_constraints.items()
        }
        return Wanted(dynamic, dims)

    def validate(self) -> None:
        """Check that the graph is well formed."""
        self.graph.lint()

    def __str__(self) -> str:
        code = self.graph_module.print_readable(print_output=False)
        body = code.replace("\n", "\n    ")
        ranges = {k: tuple(v) for k, v in self.range_constraints.items()}
        return (
            f"ExportedProgram:\n    {body}\nGraph signature: "
            f"{self._signature}\nRange constraints: {ranges}\n"
        )


class ExportedModule(GraphModule):
    """The module of an exported program: flat code between two structures."""

    def __init__(self, program: ExportedProgram, check: bool = True) -> None:
        signature = program.graph_signature
        graph, checks = _unlifted(program.graph, signature), check
        state: dict[str, Any] = {}
        for spec in signature.input_specs:
            if spec.target is not None:
                state[spec.target] = program._value(spec.target)
        hidden = {*signature.non_persistent_buffers, *signature.lifted_tensor_constants}
        self.__dict__["_call"] = program.call_spec
        self.__dict__["_guards"] = (
            (program._inputs, program._sizes, program.range_constraints)
            if checks
            else None
        )
        self.__dict__["_names"] = program._names
        self.__dict__["_given"] = [
            getattr(spec.arg, "value", _TENSOR)
            for spec in signature.input_specs
            if spec.kind is InputKind.USER_INPUT
        ]
        super().__init__(state, graph)
        for name in hidden:
            *path, last = name.split(".")
            owner = self.get_submodule(".".join(path))
            owner._non_persistent_buffers_set.add(last)

    def recompile(self) -> Any:
        """Make ``forward`` anew from the graph."""
        code = super().recompile()
        flat = type(self).forward
        signature = _signature(self._call.in_spec, self._names)

        def forward(self: ExportedModule, *args: Any, **kwargs: Any) -> Any:
            leaves = self._leaves(*_sorted(signature, args, kwargs))
            found = flat(self, *leaves)
            return tree_unflatten(found, self._call.out_spec)

        own = inspect.Parameter("self", inspect.Parameter.POSITIONAL_ONLY)
        named = [own, *signature.parameters.values()]
        forward.__signature__ = inspect.Signature(named)  # type: ignore[attr-defined]
        setattr(type(self), "forward", forward)  # noqa: B010
        return code

    def _leaves(self, args: Any, kwargs: Any) -> list[Any]:
        want = self._call.in_spec
        leaves, structure = tree_flatten((args, kwargs))
        if structure != want:
            raise ArgumentError(
                "this exported program was made for arguments of the structure "
                f"{_described(want)}, got {_described(structure)}"
            )
        tensors = []
        for given, leaf in zip(self._given, leaves, strict=True):
            if given is _TENSOR:
                tensors.append(leaf)
            elif type(given) is not type(leaf) or given != leaf:
                raise ArgumentError(
                    f"this program was exported with the value {given!r}, got {leaf!r}"
                )
        if self._guards is not None:
            _check(tensors, *self._guards)
        return leaves

    def __deepcopy__(self, memo: Any) -> Any:
        made = super().__deepcopy__(memo)
        made.__class__ = type(type(self).__name__, (ExportedModule,), {})
        for name in ("_call", "_guards", "_given", "_names"):
            made.__dict__[name] = self.__dict__[name]
        made.recompile()
        return made


_TENSOR: Any = object()


def _signature(spec: Structure, labels: list[str]) -> inspect.Signature:
    """The arguments by the names that they had in the module."""
    args, options = spec.children
    names: list[str] = []
    rest = iter(labels)
    for k, child in enumerate(args.children):
        mine = [next(rest) for _ in range(child.num_leaves)]
        name = mine[0].partition(".")[0] if mine else f"arg{k}"
        taken = name in names or name in (options.keys or ()) or not name.isidentifier()
        names.append(f"arg{k}" if taken else name)
    both, only = (
        inspect.Parameter.POSITIONAL_OR_KEYWORD,
        inspect.Parameter.KEYWORD_ONLY,
    )
    return inspect.Signature(
        [
            *(inspect.Parameter(name, both) for name in names),
            *(inspect.Parameter(name, only) for name in options.keys or ()),
        ]
    )


def _sorted(signature: inspect.Signature, args: Any, kwargs: Any) -> Any:
    """The arguments in the order in which the program takes them."""
    try:
        bound = signature.bind(*args, **kwargs)
    except TypeError as error:
        raise ArgumentError(
            f"this exported program takes {signature}: {error}"
        ) from None
    return bound.args, bound.kwargs


def _described(structure: Structure) -> str:
    places = iter(range(structure.num_leaves))
    args, kwargs = tree_unflatten([f"<{k}>" for k in places], structure)
    return str((*args, kwargs) if kwargs else args)


def _check(
    tensors: list[Any], inputs: Any, scope: Any, ranges: Mapping[str, ValueRange]
) -> None:
    """Refuse arguments for which the program would be another one."""
    for node, leaf in zip(inputs, tensors, strict=True):
        if not isinstance(leaf, Tensor):
            raise DTypeError(f"{node.name}: expected {node.type}, got {leaf!r}")
        want, have = node.type, tuple(leaf.shape)
        static = all(
            hasattr(n, "symbol_name") or n == m
            for n, m in zip(want.shape, have, strict=False)
        )
        if leaf.dtype is not want.dtype or len(have) != len(want.shape) or not static:
            raise ShapeError(
                f"{node.name}: this program was exported for {want}, got "
                f"{leaf.dtype.name}{list(have)}; name a size in dynamic_shapes to "
                "leave it open"
            )
    sizes: dict[str, Any] = {}
    for node, leaf in zip(inputs, tensors, strict=True):
        for size, have in zip(node.type.shape, leaf.shape, strict=True):
            name = getattr(size, "symbol_name", "")
            if name and sizes.setdefault(name, have) != have:
                raise ShapeError(
                    f"{node.name}: the size {name} is {sizes[name]} in one argument "
                    f"and {have} in another"
                )
    for name, (low, high) in ranges.items():
        if name in sizes and not low <= sizes[name] <= high:
            raise ShapeError(
                f"the size {name} is {sizes[name]}, and this program was exported for "
                f"{low} to {high}"
            )
    scope.check(sizes)


def _unlifted(lifted: Graph, signature: ExportGraphSignature) -> Graph:
    """The graph with state as attributes, which it changes itself."""
    graph = copy.deepcopy(lifted)
    places = [node for node in graph.nodes if node.op == "placeholder"]
    attributes: dict[str, Any] = {}
    user: dict[str, Any] = {}
    for node, spec in zip(places, signature.input_specs, strict=True):
        if spec.target is None:
            user[spec.arg.name] = node
            continue
        with graph.inserting_before(node):
            made = graph.create_node("get_attr", spec.target, name=spec.target)
        node.replace_all_uses_with(made)
        graph.erase_node(node)
        attributes[spec.target] = made
    end = graph.output_node()
    results = []
    with graph.inserting_before(end):
        for value, out in zip(end.args[0], signature.output_specs, strict=True):
            if out.kind is OutputKind.USER_OUTPUT:
                results.append(value)
            else:
                target = attributes.get(str(out.target)) or user[str(out.target)]
                graph.call_function(renew, (target, value))
    end.args = (tuple(results),)
    return graph


def renew(target: Tensor, value: Tensor) -> None:
    """Give a buffer, parameter or argument its new value, in place."""
    if (target.requires_grad and target.is_leaf) or not value.requires_grad:
        target.detach().copy_(value.detach())
    else:
        target.copy_(value)


class _Decomposing(Interpreter):
    """Runs a module with functions of a table in place of operators."""

    def __init__(self, module: ExportedModule, table: Mapping[Any, Any]) -> None:
        super().__init__(module)
        self.table = table

    def call_function(self, target: Any, args: Any, kwargs: Any) -> Any:
        return self.table.get(target, target)(*args, **kwargs)


def _decomposed(module: Any, table: Mapping[Any, Any]) -> Callable[..., Any]:
    """The module's ``forward``, with functions of a table in place of operators."""

    def forward(*args: Any, **kwargs: Any) -> Any:
        found = _Decomposing(module, table).run(*module._leaves(args, kwargs))
        return tree_unflatten(found, module._call.out_spec)

    forward.__signature__ = inspect.signature(module.forward)  # type: ignore[attr-defined]
    return forward


# -- exporting


def export(
    mod: Module,
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any] | None = None,
    *,
    dynamic_shapes: Any = None,
    strict: bool = False,
    preserve_module_call_signature: tuple[str, ...] = (),
    prefer_deferred_runtime_asserts_over_guards: bool = False,
) -> ExportedProgram:
    """Capture a module's ``forward`` as a program of its own.

    Sizes are those of the example unless ``dynamic_shapes`` names them. Branches and
    loops of Python over tensors' values become part of the program.

    >>> batch = weft.export.Dim("batch", min=1)
    >>> ep = weft.export.export(
    ...     weft.nn.Linear(3, 2), (weft.ones(4, 3),), dynamic_shapes=({0: batch},))
    >>> ep.module()(weft.ones(7, 3)).shape
    (7, 2)
    """
    if not isinstance(mod, Module):
        raise ValueError(
            f"Expected `mod` to be an instance of `torch.nn.Module`, got {type(mod)}."
        )
    if not isinstance(args, tuple):
        raise TypeError(
            f"export: expected a tuple of example arguments, got {type(args).__name__}"
        )
    options = dict(kwargs or {})
    labels = labels_of(mod, args, options)
    wanted = named_sizes(mod.forward, args, options, dynamic_shapes, labels)
    return _exported(mod, mod, args, options, wanted)


draft_export = export


def _exported(
    mod: Module, call: Any, args: Any, kwargs: Any, wanted: Wanted
) -> ExportedProgram:
    program = captured(call, args, kwargs, wanted)
    _check_effects(program)
    return ExportedProgram(
        program,
        _kinds(program, mod),
        ranges_of(program, wanted.dims),
        labels_of(call, args, kwargs),
        (args, kwargs),
    )


def captured(call: Any, args: Any, kwargs: Any, wanted: Wanted) -> Captured:
    """The program of a call, with those open sizes that it allows."""
    while True:
        program = capture(call, *args, dynamic=wanted.dynamic, **kwargs)
        fixed = _fixed(program, wanted.dims)
        if not fixed:
            break
        for names in wanted.dynamic.values():
            for dim in [d for d, name in names.items() if name in fixed]:
                del names[dim]
    _relate(program, wanted.dims)
    return program


def recaptured(
    ep: ExportedProgram,
) -> tuple[Captured, dict[str, tuple[InputKind, bool]]]:
    """The program of the graph as it is now, and the kinds of its variables."""
    module = ep.module()
    args, kwargs = ep._examples()
    dynamic = ep._wanted(args, kwargs).dynamic
    program = capture(module, *args, dynamic=dynamic, **kwargs)
    kinds = _kinds(program, module)
    for name in ep.graph_signature.lifted_tensor_constants:
        if name in kinds:
            kinds[name] = InputKind.CONSTANT_TENSOR, False
    return program, kinds


def _fixed(program: Captured, dims: Mapping[str, Any]) -> set[str]:
    """The open sizes that the program needs to be numbers, where they may be."""
    found: set[str] = set()
    for assumption in program.graph.sizes.assumptions.values():
        sides = (assumption.left, assumption.right)
        if assumption.relation != "==" or not all(map(_is_plain, sides)):
            continue  # each call is checked for it
        names = {s for side in sides for s in getattr(side, "symbols", ())}
        if all(dims.get(name) is Dim.AUTO for name in names):
            if any(type(side) is int for side in sides):
                found |= names
            continue
        if any(getattr(dims.get(name), "root", None) is not dims.get(name)
               for name in names):  # fmt: skip
            continue  # a derived size: its relation is checked in each call
        raise ArgumentError(
            f"export: dynamic_shapes leaves {sorted(names)} open, but the program "
            f"needs {assumption}; use the same Dim, Dim.AUTO or the number itself"
            f"\n  assumed at {assumption.line}"
        )
    return found


def _is_plain(side: Any) -> bool:
    return type(side) is int or bool(side.symbol_name)


def _relate(program: Captured, dims: Mapping[str, Any]) -> None:
    """Assume what derived sizes say, so that each call is checked for it."""
    scope = program.graph.sizes
    for name, dim in dims.items():
        root = getattr(dim, "root", dim)
        if root is not dim and {name, root.__name__} <= scope.hints.keys():
            other = scope.symbol(root.__name__) * dim.scale + dim.offset
            scope.assume(scope.symbol(name), "==", other)


def _check_effects(program: Captured) -> None:
    others = [effect for effect in program.effects if not isinstance(effect, Printed)]
    if others or program.emptied:
        raise ArgumentError(
            "export: the module changes Python objects outside itself (lists, "
            "dictionaries or gradients), which an exported program cannot; return "
            "the values instead"
        )
    if program.effects:
        warnings.warn(
            "export: what the module prints is not part of the exported program",
            stacklevel=4,
        )


def _kinds(program: Captured, mod: Module) -> dict[str, tuple[InputKind, bool]]:
    """For each variable of the program: parameter, buffer or constant; whether kept."""
    parameters = {id(x): n for n, x in mod.named_parameters(remove_duplicate=False)}
    buffers = {id(x): n for n, x in mod.named_buffers(remove_duplicate=False)}
    kept = mod.state_dict(keep_vars=True)
    kinds: dict[str, tuple[InputKind, bool]] = {}
    for name, cell in program.cells.items():
        if name.startswith("generator") and not cell.has_memory:
            if name.startswith("generator_own"):
                raise ArgumentError(
                    "export: the module draws from a generator of its own; use the "
                    "default generator"
                )
            continue
        if type(cell) is not Cell and not hasattr(cell, "tensor"):
            raise ArgumentError(
                f"export: the module reads {name!r}, which is no tensor of its own"
            )
        key = id(cell.tensor)
        if key in parameters:
            kinds[name] = InputKind.PARAMETER, True
        elif key in buffers:
            kinds[name] = InputKind.BUFFER, buffers[key] in kept
        else:
            kinds[name] = InputKind.CONSTANT_TENSOR, False
    return kinds


def ranges_of(program: Captured, dims: Mapping[str, Any]) -> dict[str, ValueRange]:
    """The least and the largest number that each open size may be."""
    ranges: dict[str, ValueRange] = {}
    for name in program.graph.sizes.hints:
        dim = dims.get(name)
        if isinstance(dim, Dim) and dim.root is dim:
            ranges[name] = ValueRange(dim.min, dim.max)
        elif name in dims and isinstance(dim, Dim):
            low, high = (
                n * dim.scale + dim.offset for n in (dim.root.min, dim.root.max)
            )
            ranges[name] = ValueRange(max(low, 0), high)
        elif name in dims:
            ranges[name] = ValueRange(0, 2**63 - 1)
    return ranges
