"""Groups, steps and memory layouts as text.

kernel0(%x, %b) → %y                      a launch
matmul(%x, %w) → %h, kernel1(%b) → %y     a library call and its epilogue
host cumsum(%x) → %c                      a host call
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from weft.compile.fusion.groups import Fusion, Group
from weft.compile.program.aliasing import Aliasing
from weft.compile.program.memory_layout import MemoryLayout
from weft.compile.program.steps import HostCall, KernelLaunch, Step, launch_of
from weft.graph.ir import Node
from weft.graph.text import node_text


def groups_text(fusion: Fusion) -> str:
    """The groups and calls of a fused graph, in order."""
    return "\n".join(
        _group(number, unit)
        if isinstance(unit, Group)
        else f"call {node_text(unit.node)}"
        for number, unit in enumerate(fusion.units)
    )


def _group(number: int, group: Group) -> str:
    shape = ", ".join(map(str, group.shape))
    reduced = ""
    if group.reduced is not None:
        reduced = f", reduced along {', '.join(map(str, group.reduced))}"
    lines = [f"  {node_text(node)}" for node in group.nodes]
    gives = _names(group.outputs)
    return "\n".join(
        [f"group {number} over [{shape}]{reduced} {{", *lines, f"}} → {gives}"]
    )


def _names(nodes: Iterable[Node]) -> str:
    return ", ".join(f"%{node.name}" for node in nodes)


def step_text(step: Step) -> str:
    """One step in a line."""
    if isinstance(step, KernelLaunch):
        return _launch(step)
    given = [i for i in step.node.inputs if type(i) is Node]
    text = f"{step.node.op.name}({_names(given)})"
    if isinstance(step, HostCall):
        return f"host {text} → {_names(step.made)}"
    own = list(step.picks) or [step.node]
    text = f"{text} → {_names(own)}"
    return text if step.epilogue is None else f"{text}, {_launch(step.epilogue)}"


def _launch(launch: KernelLaunch) -> str:
    made = set(launch.made)
    reads = [n for n in launch.owners if n not in made]
    return f"{launch.name}({_names(reads)}) → {_names(launch.made)}"


def steps_text(steps: Sequence[Step], *, loops: bool = False) -> str:
    """The steps in order; with ``loops``, each kernel after the first that uses it."""
    lines: list[str] = []
    seen: set[int] = set()
    for step in steps:
        lines.append(step_text(step))
        launch = launch_of(step)
        if loops and launch is not None and id(launch.kernel.body) not in seen:
            seen.add(id(launch.kernel.body))
            lines.append(str(launch.kernel))
    return "\n".join(lines)


def aliasing_text(aliasing: Aliasing) -> str:
    """Which values share a buffer, and why they may."""
    lines = [f"%{a.name} over %{b.name}" for a, b in aliasing.over.items()]
    lines += [f"%{a.name} becomes %{b.name}" for a, b in aliasing.joint.items()]
    lines += [f"{v.name} becomes %{n.name}" for v, n in aliasing.state.items()]
    lines += [
        f"%{a.name} inside %{place.whole.name} from {place.start}"
        for a, place in aliasing.inside.items()
    ]
    return "\n".join(lines) or "no value shares a buffer"


def layout_text(layout: MemoryLayout) -> str:
    """The steps by waves, and where in the arena their results lie."""
    lines = [f"arena of {layout.layout.nbytes} bytes"]
    wave = -1
    for step, number in zip(layout.steps, layout.order.waves, strict=True):
        if number != wave:
            lines.append(f"wave {number}")
            wave = number
        places = ", ".join(_place(layout, node) for node in step.made)
        lines.append(f"  {step_text(step)}  [{places}]")
    return "\n".join(lines)


def _place(layout: MemoryLayout, node: Node) -> str:
    if node in layout.offsets:
        return f"arena + {layout.offsets[node]}"
    state = {made: variable for variable, made in layout.state.items()}
    if node in state:
        return f"variable {state[node].name}"
    return "output" if node in layout.fresh else "shared"
