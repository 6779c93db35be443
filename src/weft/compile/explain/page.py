"""An explanation as one HTML page that needs nothing else.

All that is shown is in the page from the start, closed where it is long. The script
only moves a cursor through the memory's picture and opens the views of the graphs,
which are pages of their own in a frame that may do nothing but draw.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Any

from weft.compile.cost.machine import machine
from weft.compile.explain.memory import Value, short_line
from weft.compile.explain.passes import Pass
from weft.compile.explain.program import Break, Kernel, Program, Whole
from weft.compile.explain.report import headline
from weft.core.rows import Rows, counted, nbytes, percent, seconds
from weft.graph.ir import Graph
from weft.graph.text import print_graph
from weft.graph.views import page as graph_page
from weft.graph.views.data import read
from weft.graph.views.escape import embedded_json, markup, printable
from weft.graph.views.html import (
    Html,
    code,
    folded,
    joined,
    table,
    tag,
    unfolding,
)
from weft.graph.views.palette import style
from weft.memory.timeline import legend
from weft.memory.timeline import timeline as memory_timeline

if TYPE_CHECKING:
    from weft.compile.explain import Explanation
    from weft.distributed.timeline import Timeline

SHOWN = 400  # lines of a list that are worth having in a page
_PACKAGE = "weft.compile.explain.data"


def to_page(
    about: Explanation, *, code: bool = True, timeline: Timeline | None = None
) -> str:
    """The page."""
    script = "\n" + read("page.js", _PACKAGE)
    programs = [_Section(k, p, code) for k, p in enumerate(about.programs)]
    sections = [section.html() for section in programs]
    data = [section.data() for section in programs]
    graphs = [g for section in programs for g in section.graphs]
    fields = {
        "policy": graph_page.policy(script, graph_page.script()),
        "title": markup(f"{about.name}, explained"),
        "name": markup(about.name),
        "summary": markup(counted(len(about.compilations), "compilation")),
        "style": style() + read("page.css", _PACKAGE),
        "cards": _cards(about),
        "compilations": joined([_compilations(about), *_processes(timeline)]),
        "programs": joined(sections),
        "data": embedded_json(data),
        "graphs": joined(_held_graph(k, page) for k, page in enumerate(graphs)),
        "script": script,
    }
    return graph_page.filled(read("page.html", _PACKAGE), fields)


def _held_graph(number: int, page: str) -> Html:
    """A page inside the page, as text until it is asked for."""
    return Html(
        f'<script type="application/json" id="graph-{number}">'
        f"{embedded_json(page)}</script>\n"
    )


# -- the top of the page


def _cards(about: Explanation) -> Html:
    if not about.programs:
        return tag("p", "Not compiled yet: call the function once.")
    program = about.program
    first, *_, last = program.traffic
    memory = program.memory
    found = [
        ("kernels a run", f"{first.kernels:,} → {last.kernels:,}",
         "a kernel a node, and fused"),
        ("bytes moved", f"{nbytes(first.moved)} → {nbytes(last.moved)}",
         f"{percent(last.moved / max(first.moved, 1))} of before"),
        ("arena", nbytes(memory.layout.nbytes),
         f"{nbytes(memory.total)} if no place were used twice"),
        ("compiled in", seconds(about.compilations[-1].seconds),
         about.compilations[-1].cached),
    ]  # fmt: skip
    if program.seconds is not None:
        found.append(("a run takes", seconds(program.seconds), "all steps, one by one"))
    return joined(_card(*one) for one in found)


def _card(title: str, value: str, note: str) -> Html:
    return tag(
        "div", tag("h3", title), tag("strong", value), tag("small", note), kind="card"
    )


def _compilations(about: Explanation) -> Html:
    parts = [tag("h2", "Compilations"), table(about.compilations)]
    if about.measured:
        note = f"Measured roof of this machine: {machine()}."
        parts.append(tag("p", note, kind="note"))
    return joined(parts)


def _processes(timeline: Timeline | None) -> list[Html]:
    """Who computes and who waits, where several processes train."""
    if timeline is None:
        return []
    note = str(timeline).rpartition("\n")[2]
    rows = timeline.processes
    return [tag("h2", "Processes"), table(rows), tag("p", note, kind="note")]


# -- one program


class _Section:
    """A program's part of the page."""

    def __init__(self, number: int, program: Program, code: bool) -> None:
        self.number = number
        self.program = program
        self.code = code
        self.graphs: list[str] = []

    def html(self) -> Html:
        program = self.program
        sizes = ", ".join(f"{k} = {n}" for k, n in program.sizes.items())
        note = f"{headline(program)}{'; sizes ' if sizes else ''}{sizes}"
        parts = [
            tag("h2", program.title[0].upper() + program.title[1:]),
            tag("p", note, kind="note"),
            *(
                [tag("p", f"Not measured: {program.problem}")]
                if program.problem
                else []
            ),
            tag("h3", "Before and after fusion"),
            table(program.traffic),
            *self._works("Kernels", program.kernels, self._kernel),
            *self._works("Products and convolutions", program.products, _whole),
            *self._works("Calls", program.calls, _whole),
            *_breaks(program.breaks),
            *_again(program.again),
            *self._memory(),
            *self._passes(),
            *self._stages(),
            *self._graphs(),
        ]
        return tag("section", *parts, kind="program", id=f"program-{self.number}")

    def _works(self, title: str, rows: Rows, inside: Any) -> list[Html]:
        return [tag("h3", title), unfolding(rows, inside)] if rows else []

    def _kernel(self, kernel: Kernel) -> Html:
        parts = [code(kernel.loops)]
        if kernel.why:
            parts.insert(0, tag("p", f"Begins here because {kernel.why}.", kind="note"))
        parts.append(folded("where it comes from", code("\n".join(kernel.places))))
        parts.append(folded(*_launches(kernel)))
        if self.code:
            parts.append(folded("LLVM", code(kernel.llvm)))
            parts.append(folded("machine code", code(kernel.assembly)))
        return joined(parts)

    # -- memory

    def _memory(self) -> list[Html]:
        memory = self.program.memory
        if not memory.values:
            return []
        note = (
            f"Peak {nbytes(memory.peak)} at step {memory.peak_step} of {memory.steps}, "
            f"in an arena of {nbytes(memory.layout.nbytes)}. Point at a step to see "
            "what is live."
        )
        return [
            tag("h3", "Memory over time"),
            tag("p", note, legend(), kind="note"),
            memory_timeline(memory),
            tag("div", kind="live"),
            folded(
                f"the {len(memory.top)} values that make the peak", table(memory.top)
            ),
        ]

    def data(self) -> dict[str, Any]:
        """What the script needs to know of the memory."""
        memory, places = self.program.memory, dict[str, int]()
        return {
            "steps": [_step(launch) for launch in self.program.launches],
            "values": [_value(v, places) for v in (*memory.values, *memory.results)],
            "places": list(places),
        }

    # -- passes and graphs

    def _passes(self) -> list[Html]:
        rows = self.program.passes
        notes = [tag("h3", "Passes"), unfolding(rows, _diff)]
        if rows and len(rows[-1].after) != len(self.program.graph):
            text = "The passes are others now than when this was compiled."
            notes.insert(1, tag("p", text, kind="note"))
        return notes

    def _stages(self) -> list[Html]:
        """The stages after the passes."""
        texts = self.program.stages.items()
        found = [folded(stage, code(_cut(text))) for stage, text in texts]
        return [tag("h3", "Groups, aliases and steps"), *found]

    def _graphs(self) -> list[Html]:
        program = self.program
        return [
            tag("h3", "Graphs"),
            self._graph("as captured", program.source),
            self._graph("as compiled", program.graph),
        ]

    def _graph(self, title: str, graph: Graph) -> Html:
        number = f"{2 * self.number + len(self.graphs)}"
        self.graphs.append(graph_page.to_html(graph))
        text = folded("text", code(print_graph(graph, lines=True)))
        frame = tag("div", kind="frame-of-graph")
        body = [text, frame]
        head = tag("summary", f"{title}: {counted(len(graph), 'node')}")
        return tag("details", head, *body, kind="more graph", **{"data-graph": number})


def _cut(text: str) -> str:
    """The lines of a text that are worth having in a page."""
    lines = text.split("\n")
    more = [f"… {len(lines) - SHOWN:,} more lines"] if len(lines) > SHOWN else []
    return "\n".join([*lines[:SHOWN], *more])


def _launches(work: Any) -> tuple[str, Html]:
    lines = [
        f"step {x.step}: {x.nodes[-1].name}"
        + (f"  {seconds(x.seconds)}" if x.seconds is not None else "")
        for x in work.launches[:SHOWN]
    ]
    return counted(len(work.launches), "run"), code("\n".join(lines))


def _whole(work: Whole) -> Html:
    parts = [folded(*_launches(work)), folded("where", code("\n".join(work.places)))]
    if work.why:
        parts.insert(0, tag("p", f"No kernel: {work.why}.", kind="note"))
    return joined([code(f"{work.name}: {work.types}"), *parts])


def _again(rows: Rows) -> list[Html]:
    return [tag("h3", "Computed again for backward"), table(rows)] if rows else []


def _breaks(rows: Rows) -> list[Html]:
    """Why kernels end, by reason."""
    found: dict[str, list[Break]] = defaultdict(list)
    for one in rows:
        found[one.why].append(one)
    if not found:
        return []
    parts = [
        folded(f"{len(some):,} × {why}", table(rows, some[:SHOWN]))
        for why, some in sorted(found.items(), key=lambda pair: -len(pair[1]))
    ]
    return [tag("h3", "Why nodes began another kernel"), *parts]


def _diff(one: Pass) -> Html:
    if not one.lines:
        return tag("p", "Nothing to do.", kind="note")
    kinds = {"-": "gone", "+": "new"}
    lines = [tag("span", f"{s} {text}\n", kind=kinds[s]) for s, text in one.lines]
    return tag("pre", *lines, kind="diff")


def _step(launch: Any) -> str:
    return printable(f"{launch.name} → {launch.nodes[-1].name}")


def _value(value: Value, places: dict[str, int]) -> list[Any]:
    where = "  ".join(filter(None, (value.node.module, short_line(value.node))))
    place = places.setdefault(printable(where), len(places))
    return [printable(value.node.name), value.nbytes, value.first, value.last, place]
