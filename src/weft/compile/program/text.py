"""Groups, steps, aliases and memory layouts as text that can be read aloud.

    group    group number over [extent, …], reduced along axes {
               view %name: type = op(argument, …)      read through, never computed
               %name: type = op(argument, …)
             } → %result, …
    call     call number {
               %name: type = op(argument, …)
             }
    step     launch kernel(%value, …, size = n, …) → %result, …
             call op(%operand, …) → %result, then kernel(%value, …) → %result, …
             host op(%operand, …) → %result
    layout   arena of n bytes
             wave number
               step, with a place behind each result: → %result in place, …
             assign @variable = %value
             return %value, …
    place    arena[first:end], output, @variable, or %value

A launch names its values in the order of the kernel's buffers, those that it makes
among them, and the sizes that it gives the loops. An operand that is a view is
``%view of %base``. The place of a result that shares another one's memory is that
value. An MLP's hidden layer reads

    wave 0
      call matmul(%x, %permute of %0.weight) → %matmul in %relu, then kernel0(%matmul,
          %0.bias, %relu) → %relu in arena[0:192]
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence

from weft.compile.fusion.groups import Call, Fusion, Group, Operand, inlined
from weft.compile.loop.text import wrapped
from weft.compile.lower.epilogue import Epilogue
from weft.compile.program.aliasing import Aliasing
from weft.compile.program.memory_layout import MemoryLayout
from weft.compile.program.steps import HostCall, KernelLaunch, Step, launch_of
from weft.core.lowering import View
from weft.graph.interpret import resolve
from weft.graph.ir import ASSIGN, GROUP, PICK, Graph, Node
from weft.graph.text import node_text

Name = Callable[[Node], str]

# -- groups


def groups_text(fusion: Fusion) -> str:
    """The groups and calls of a fused graph, in order.

    >>> from weft.compile import targets
    >>> from weft.compile.fusion.groups import Fusion
    >>> from weft.compile.program.text import groups_text
    >>> g = weft.graph.capture(lambda x: x.exp() @ x.T, weft.ones(2, 3)).graph
    >>> print(groups_text(Fusion(g, targets.default().supports)))
    group 0 over [2, 3] {
      %exp: float32[2, 3] = exp(%x)
    } → %exp
    call 1 {
      view %permute: float32[3, 2] = permute(%x, dims=(1, 0))
      %matmul: float32[2, 2] = matmul(%exp, %permute)
    }
    """
    return "\n".join(_unit(k, unit) for k, unit in enumerate(fusion.units))


def _unit(number: int, unit: Group | Call) -> str:
    body: list[str] = []
    seen: set[Node] = set()
    for node in unit.nodes:
        _add_views(node, seen, body)
        body.append(f"  {node_text(node)}")
    if isinstance(unit, Group):
        gives = ", ".join(f"%{node.name}" for node in unit.outputs)
        return "\n".join([_head(number, unit), *body, f"}} → {gives}"])
    if unit.node.op in (ASSIGN, GROUP, PICK):  # they name a value, and compute nothing
        return "\n".join(line.removeprefix("  ") for line in body)
    return "\n".join([f"call {number} {{", *body, "}"])


def _head(number: int, group: Group) -> str:
    text = f"group {number} over [{', '.join(map(str, group.shape))}]"
    axes = group.reduced or group.tall
    if axes:
        word = "axis" if len(axes) == 1 else "axes"
        text += f", reduced along {word} {', '.join(map(str, axes))}"
    return f"{text} {{"


def _add_views(node: Node, seen: set[Node], lines: list[str]) -> None:
    """Add the lines of values that a node reads and whoever reads them computes."""
    for given in node.inputs:
        if type(given) is not Node or given in seen:
            continue
        if isinstance(given.op.lower, View) or inlined(given):
            seen.add(given)
            _add_views(given, seen, lines)
            lines.append(f"  view {node_text(given)}")


# -- steps


def step_text(step: Step, name: Name = lambda node: f"%{node.name}") -> str:
    """One step; ``name`` writes the values it makes."""
    if isinstance(step, KernelLaunch):
        return f"launch {_launch(step, name)}"
    nodes = step.node.inputs if isinstance(step, HostCall) else step.inputs
    given = ", ".join(_operand(n) for n in nodes if type(n) is Node)
    call = f"{step.node.op.name}({given}) → "
    if isinstance(step, HostCall):
        return f"host {call}{name(step.node)}"
    text = f"call {call}{', '.join(map(name, step.picks or [step.node]))}"
    then = step.epilogue
    return text if then is None else f"{text}, then {_launch(then, name)}"


def _operand(node: Node) -> str:
    base = Operand(node).base
    return f"%{node.name}" if base is node else f"%{node.name} of %{base.name}"


def _launch(launch: KernelLaunch, name_of: Name) -> str:
    offsets = launch.offsets or [0] * len(launch.owners)
    given = [
        f"%{node.name} from byte {at}" if at else f"%{node.name}"
        for node, at in zip(launch.owners, offsets, strict=True)
    ]
    if not isinstance(launch, Epilogue):  # the call gives it its columns
        given += [f"{name} = {size}" for name, size in launch.kernel.given]
    return f"{launch.name}({', '.join(given)}) → {', '.join(map(name_of, launch.made))}"


def steps_text(steps: Sequence[Step], *, loops: bool = False) -> str:
    """The steps in order; with ``loops``, each kernel after the first that uses it.

    >>> from weft.compile import pipeline, targets
    >>> from weft.compile.program.text import steps_text
    >>> g = weft.graph.capture(lambda x: x.exp() @ x.T, weft.ones(2, 3)).graph
    >>> print(steps_text(pipeline.lower(g, targets.default()).steps))
    launch kernel0(%exp, %x, count = 6) → %exp
    call matmul(%exp, %permute of %x) → %matmul
    """
    lines: list[str] = []
    seen: set[int] = set()
    for step in steps:
        lines += wrapped(step_text(step))
        launch = launch_of(step)
        if loops and launch is not None and id(launch.kernel.body) not in seen:
            seen.add(id(launch.kernel.body))
            lines.append(str(launch.kernel))
    return "\n".join(lines)


# -- memory


def aliasing_text(aliasing: Aliasing) -> str:
    """Which values share a buffer, one a line.

    %b over %a          %b is written where %a was, which nothing reads any more
    %a becomes %b       one step makes both, the second in the first one's place
    @w becomes %b       %b is the variable's new value, and written over the old one
    %a inside %b from 6 %a is a piece of %b, and computed there
    """
    lines = [f"%{a.name} over %{b.name}" for a, b in aliasing.over.items()]
    lines += [f"%{a.name} becomes %{b.name}" for a, b in aliasing.joint.items()]
    lines += [f"@{v.name} becomes %{n.name}" for v, n in aliasing.state.items()]
    lines += [
        f"%{a.name} inside %{place.whole.name} from {place.start}"
        for a, place in aliasing.inside.items()
    ]
    return "\n".join(lines) or "no value shares a buffer"


def layout_text(layout: MemoryLayout) -> str:
    """The steps by waves, with the place of each result.

    >>> from weft.compile import pipeline, targets
    >>> from weft.compile.program.memory_layout import lay_out
    >>> from weft.compile.program.text import layout_text
    >>> g = weft.graph.capture(lambda x: x.exp() @ x.T, weft.ones(2, 3)).graph
    >>> print(layout_text(lay_out(pipeline.lower(g, targets.default()), {})))
    arena of 64 bytes
    wave 0
      launch kernel0(%exp, %x, count = 6) → %exp in arena[0:24]
    wave 1
      call matmul(%exp, %permute of %x) → %matmul in output
    return %matmul
    """
    lines = [f"arena of {layout.layout.nbytes} bytes"]
    pairs = zip(layout.order.waves, layout.steps, strict=True)
    for wave, some in itertools.groupby(pairs, key=lambda pair: pair[0]):
        lines.append(f"wave {wave}")
        for _, step in some:
            lines += wrapped(step_text(step, lambda n: _placed(layout, n)), "  ")
    return "\n".join([*lines, *_ends(layout.lowered.graph)])


def _ends(graph: Graph) -> list[str]:
    """The new values of variables, and the results."""
    writes = [(n.params["variable"], n) for n in graph.nodes if n.op is ASSIGN]
    lines = [f"assign @{v.name} = {_operand(n.inputs[0])}" for v, n in writes]
    outputs = ", ".join(map(_operand, graph.outputs))
    return [*lines, f"return {outputs}"] if outputs else lines


def _placed(layout: MemoryLayout, node: Node) -> str:
    """A result and its place."""
    name = f"%{node.name}"
    if node in layout.offsets:
        first = layout.offsets[node]
        count = math.prod(resolve(node.shape, layout.sizes))
        return f"{name} in arena[{first}:{first + count * node.dtype.itemsize}]"
    if node in layout.joint:
        return f"{name} in %{layout.joint[node].name}"
    state = [v.name for v, made in layout.state.items() if made is node]
    if state:
        return f"{name} in @{state[0]}"
    return f"{name} in output" if node in layout.fresh else name
