"""Graphs as DOT, SVG and pages: all is there, nothing escapes, size stays linear."""

from __future__ import annotations

import itertools
import json
import re
import shutil
import subprocess
import sys
import xml.etree.ElementTree as ET
from html.parser import HTMLParser

import numpy as np
import pytest

import weft
from weft import nn, optim
from weft.core.op import TensorType
from weft.graph.ir import Builder, Variable
from weft.graph.views.layout import rows_of_groups
from weft.graph.views.outline import Outline
from weft.graph.views.page import FIRST
from weft.graph.views.scene import Scene

F = nn.functional
SVG = "{http://www.w3.org/2000/svg}"
HOSTILE = [
    "<script>document.title='taken'</script>",
    "</script><script>document.title='taken'</script>",
    '"><img src=x onerror="document.title=\'taken\'">',
    "]]><svg onload=document.title='taken'>",
    "{data}{script}",
    "<!--",
    "a\x00b\x07c\ud800",
    'quote" back\\slash\nline',
    "&lt;b&gt;",
]


def train_step():
    net = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3))
    sgd = optim.SGD(net.parameters(), lr=0.1, momentum=0.9)

    def step(x, y):
        sgd.zero_grad()
        loss = F.cross_entropy(net(x), y)
        loss.backward()
        sgd.step()
        return loss

    return weft.graph.capture(
        step, weft.ones(5, 4), weft.zeros(5, dtype=weft.int64),
        dynamic={"x": {0: "B"}, "y": {0: "B"}},
    )  # fmt: skip


def hostile_graph():
    """A graph in which every name is an attack."""
    build = Builder(HOSTILE[0])
    kind = TensorType((2,), weft.float32)
    x = build.input(kind, HOSTILE[1])
    for name in HOSTILE:
        variable = Variable(name, kind)
        with build.scope(name):
            x = build.add(_op("add"), (x, build.read(variable, name)), {}, name=name)
        build.assign(variable, x)
    return build.finish([x])


def _op(name):
    from weft.core.op import all_ops

    return next(op for op in all_ops() if op.name == name)


def chain(count, part=100):
    build = Builder("chain")
    x = build.input(TensorType((2,), weft.float32), "x")
    relu = _op("relu")
    for k in range(count):
        with build.scope(f"part{k // part}"):
            x = build.add(relu, (x,), {})
    return build.finish([x])


def page_data(page):
    return json.loads(re.search(r'id="graph-data">(.*?)</script>', page, re.S)[1])


# -- groups and kinds


def test_nodes_are_grouped_by_module_and_scope():
    outline = Outline(train_step().graph)
    names = {outline.full_name(g) for g in range(1, len(outline.groups))}
    assert {"0", "2", "grad", "grad/0", "grad/2", "SGD"} <= names
    assert any(name.startswith("SGD/") for name in names)
    assert outline.groups[0].count == len(outline.boxes)


def test_kinds_of_a_training_step():
    outline = Outline(train_step().graph)
    kinds = {box.node.name: box.kind for box in outline.boxes}
    assert kinds["x"] == "input"
    assert kinds["relu"] == "forward"
    assert {k for n, k in kinds.items() if n.startswith("grad/")} == {"backward"}
    update = {b.kind for b in outline.boxes if b.node.name.startswith("SGD/")}
    assert update <= {"update", "state"}
    assert "update" in update
    assert {b.kind for b in outline.boxes if b.node.op.name == "assign"} == {"state"}


def test_inference_has_no_updates():
    outline = Outline(weft.graph.capture(nn.Linear(2, 3), weft.ones(1, 2)).graph)
    assert {box.kind for box in outline.boxes} == {"input", "state", "forward"}


def test_inner_graphs_are_groups_beside_their_node():
    inner = chain(3)
    build = Builder("outer")
    x = build.input(TensorType((2,), weft.float32), "x")
    kind = TensorType((2,), weft.float32)
    node = build.add(_op("relu"), (x,), {"body": inner, "more": (inner,)}, kind, "loop")
    outline = Outline(build.finish([node]))
    names = {outline.full_name(g) for g in range(1, len(outline.groups))}
    assert {"loop", "loop/body", "loop/more.0"} <= names
    assert sum(edge.kind == "inner" for edge in outline.edges) == 2
    assert len(outline.boxes) == 2 + 2 * len(inner)
    ET.fromstring(weft.graph.to_svg(build.finish([node])))


# -- layout


def test_rows_hold_each_item_once_and_edges_lead_down():
    outline = Outline(train_step().graph)
    for group, rows in zip(outline.groups, rows_of_groups(outline), strict=True):
        row = {item: k for k, line in enumerate(rows.rows) for item in line}
        assert sorted(i for i in row if i >= 0) == sorted(group.items)
        assert len(row) == sum(map(len, rows.rows))
        assert all(row[a] < row[b] for a, b in rows.links)
        for (a, b), way in rows.bends.items():
            stops = [row[i] for i in (a, *way, b)]
            assert stops in (sorted(stops), sorted(stops, reverse=True))


def test_boxes_do_not_overlap_and_stay_in_their_frames():
    outline = Outline(train_step().graph)
    scene = Scene(outline, set(range(len(outline.groups))))
    assert set(scene.rects) == {i for g in outline.groups for i in g.items}
    for group, found in enumerate(outline.groups):
        rects = [scene.rects[i] for i in found.items]
        for k, a in enumerate(rects):
            for b in rects[:k]:
                apart_x = a.x + a.width <= b.x + 1e-6 or b.x + b.width <= a.x + 1e-6
                apart_y = a.y + a.height <= b.y + 1e-6 or b.y + b.height <= a.y + 1e-6
                assert apart_x or apart_y
        if group:
            frame = scene.rects[outline.item(group)]
            for a in rects:
                assert frame.x <= a.x
                assert frame.y <= a.y
                assert a.x + a.width <= frame.x + frame.width + 1e-6
                assert a.y + a.height <= frame.y + frame.height


def test_opening_stops_at_the_limit():
    outline = Outline(chain(5000))
    for limit in (10, 60, 400):
        seen = sum(len(outline.groups[g].items) for g in outline.opened(limit))
        assert seen <= max(limit, len(outline.groups[0].items))
    assert len(outline.opened(10**9)) == len(outline.groups)


# -- DOT


def test_dot_has_every_node_and_edge():
    graph = train_step().graph
    text = weft.graph.to_dot(graph)
    assert len(re.findall(r"^\s*n\d+ \[", text, re.M)) == len(graph)
    edges = sum(len({i for i in n.inputs if hasattr(i, "op")}) for n in graph)
    assert len(re.findall(r"^  n\d+ -> n\d+ \[", text, re.M)) == edges
    assert text.count("{") == text.count("}")
    assert '[label="float32[B, 8]"]' in text


def test_dot_strings_cannot_be_left():
    text = weft.graph.to_dot(hostile_graph())
    outside = re.sub(r'"(?:[^"\\]|\\.)*"', '""', text)
    assert not re.search(r"script|taken|onerror", outside)
    assert "\x00" not in text
    text.encode("utf-8")


@pytest.mark.skipif(shutil.which("dot") is None, reason="Graphviz is not here")
def test_graphviz_reads_the_text():
    for graph in (train_step().graph, hostile_graph()):
        text = weft.graph.to_dot(graph)
        subprocess.run(["dot", "-Tplain"], input=text, text=True, check=True,
                       capture_output=True)  # fmt: skip


# -- SVG


def test_svg_is_well_formed_and_whole():
    graph = train_step().graph
    root = ET.fromstring(weft.graph.to_svg(graph))
    boxes = [g for g in root.iter(f"{SVG}g") if g.get("class", "").startswith("box")]
    assert len(boxes) == len(graph)
    hints = {box.findtext(f"{SVG}title").partition(": ")[0] for box in boxes}
    assert hints == set(graph.by_name)
    labels = {t.text for t in root.iter(f"{SVG}text") if t.get("class") == "label"}
    assert "float32[B, 8]" in labels
    legend = {t.text for t in root.iter(f"{SVG}text")}
    assert {"forward", "backward", "update", "state", "constant", "input"} <= legend


def test_svg_closes_groups_beyond_the_limit():
    root = ET.fromstring(weft.graph.to_svg(chain(3000), limit=100))
    shown = [g for g in root.iter(f"{SVG}g") if "box" in g.get("class", "")]
    assert len(shown) <= 100
    assert any("closed" in g.get("class") for g in shown)


def test_svg_keeps_hostile_names_as_text():
    root = ET.fromstring(weft.graph.to_svg(hostile_graph()))
    names = {e.tag.removeprefix(SVG) for e in root.iter()}
    allowed = {"svg", "title", "style", "rect", "defs", "marker", "path", "g", "text"}
    assert names <= allowed
    assert root.findtext(f"{SVG}title") == HOSTILE[0]
    for element in root.iter():
        assert not [k for k in element.attrib if k.lower().startswith("on")]


# -- pages


class Elements(HTMLParser):
    """The elements of a page, with what stands in scripts."""

    def __init__(self, page):
        super().__init__()
        self.tags, self.attributes = [], []
        self.feed(page)

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes += attrs

    handle_startendtag = handle_starttag


def test_page_holds_every_node_with_its_facts():
    step = train_step()
    graph = step.graph
    data = page_data(weft.graph.to_html(step))
    assert {box["name"] for box in data["boxes"]} == set(graph.by_name)
    strings = data["strings"]
    relu = next(box for box in data["boxes"] if box["name"] == "relu")
    assert strings[relu["op"]] == "relu"
    assert strings[relu["type"]] == "float32[B, 8]"
    assert strings[relu["module"]] == "1"
    assert "test_views.py" in strings[relu["line"]]
    [source] = relu["inputs"]
    assert data["boxes"][source]["name"] == graph["relu"].inputs[0].name
    total = next(box for box in data["boxes"] if box["name"] == "sum")
    assert "keepdim = " in strings[total["params"]]


def test_page_needs_nothing_from_outside():
    page = weft.graph.to_html(train_step())
    found = Elements(page)
    assert found.tags.count("script") == 2
    assert not {"link", "img", "iframe", "object", "embed"} & set(found.tags)
    keys = {key for key, _ in found.attributes}
    assert not {"src", "href"} & keys
    assert not re.findall(r"https?://(?!www\.w3\.org/)", page)
    assert "default-src 'none'" in page
    assert "innerHTML" not in page


def test_page_keeps_hostile_names_as_text():
    graph = hostile_graph()
    page = weft.graph.to_html(graph)
    plain = Elements(weft.graph.to_html(chain(3)))
    assert Elements(page).tags.count("script") == plain.tags.count("script") == 2
    assert {"img", "svg"} & set(Elements(page).tags) == {"svg"}
    assert {k for k, _ in Elements(page).attributes} == {k for k, _ in plain.attributes}
    names = {box["name"] for box in page_data(page)["boxes"]}
    assert any(HOSTILE[2] in name for name in names)
    page.encode("utf-8")


def test_page_is_written_to_a_path(tmp_path):
    page = weft.graph.to_html(chain(3), tmp_path / "graph.html")
    assert (tmp_path / "graph.html").read_text("utf-8") == page


@pytest.mark.parametrize("part", [100, 100_000])
def test_pages_of_large_graphs_grow_linearly(part):
    sizes, calls = [], []
    for count in (2000, 8000):
        graph = chain(count, part)
        made = itertools.count()
        sys.setprofile(lambda *event, made=made: next(made))
        try:
            page = weft.graph.to_html(graph)
        finally:
            sys.setprofile(None)
        calls.append(next(made))
        sizes.append(len(page))
    assert sizes[1] < 4.6 * sizes[0]
    assert calls[1] < 4.6 * calls[0]


def test_pages_of_large_graphs_open_closed():
    outline = Outline(chain(4000))
    seen = sum(len(outline.groups[g].items) for g in outline.opened(FIRST))
    assert seen <= FIRST


# -- what can be drawn


def test_modules_and_functions_are_captured():
    net = nn.Linear(2, 3)
    assert "@weight" in weft.graph.to_dot(net, examples=[weft.ones(1, 2)])
    assert "relu" in weft.graph.to_svg(F.relu, examples=[weft.ones(2)])
    with pytest.raises(TypeError, match="expected a graph, a captured program"):
        weft.graph.to_html(np.ones(3))


# -- in a browser

BROWSER = next(
    filter(None, map(shutil.which, (
        "chromium-headless-shell", "chromium", "chromium-browser", "google-chrome",
    ))), None,
)  # fmt: skip
needs_browser = pytest.mark.skipif(BROWSER is None, reason="no Chromium is here")


def shown(page, folder):
    """The page's elements after its script has run."""
    path = folder / "page.html"
    path.write_text(page, "utf-8")
    done = subprocess.run(
        [BROWSER, "--headless", "--no-sandbox", "--disable-gpu", "--dump-dom",
         f"--user-data-dir={folder / 'profile'}", "--window-size=1200,800",
         path.as_uri()],
        capture_output=True, check=True, timeout=60,
    )  # fmt: skip
    return done.stdout.decode("utf-8")


def after(page, script):
    """The page with something done to it once it is drawn."""
    free = re.sub(r'<meta http-equiv="Content-Security-Policy"[^>]*>', "", page)
    return free.replace("</body>", f"<script>{script}</script></body>")


@needs_browser
def test_the_page_draws_what_the_picture_draws(tmp_path):
    graph = train_step().graph
    page = weft.graph.to_html(graph)
    dom = shown(page, tmp_path)
    outline = Outline(graph)
    scene = Scene(outline, outline.opened(FIRST))
    found = re.findall(
        r'data-item="(\d+)"><title>[^<]*</title><rect x="([-.\d]+)" y="([-.\d]+)" '
        r'width="([-.\d]+)" height="([-.\d]+)"',
        dom,
    )
    places = {int(item): list(map(float, rect)) for item, *rect in found}
    assert set(places) == set(scene.rects)
    for item, rect in scene.rects.items():
        np.testing.assert_allclose(places[item], rect, atol=1e-6)
    assert len(re.findall(r'<path [^>]*data-from="', dom)) == len(scene.lines)


@needs_browser
def test_opening_searching_and_explaining(tmp_path):
    page = weft.graph.to_html(train_step())
    acts = """
      openAll(false);
      search.value = "relu"; showResults();
      reveal(graph.boxes.findIndex((box) => box.name === "matmul"));
    """
    dom = shown(after(page, acts), tmp_path)
    results = re.search(r'<ul id="results"[^>]*>(.*?)</ul>', dom, re.S)[1]
    assert ">relu</a>" in results
    panel = re.search(r'<aside id="panel"[^>]*>(.*?)</aside>', dom, re.S)[1]
    for text in ("<h2>matmul</h2>", "float32[B, 8]", "test_views.py", ">users</h3>"):
        assert text in panel
    assert re.search(
        r'class="frame forward[^"]*" data-item="\d+"><title>0</title>', dom
    )


@needs_browser
def test_hostile_names_run_nothing(tmp_path):
    page = weft.graph.to_html(hostile_graph())
    acts = "openAll(true); for (let k = 0; k < graph.count; k++) explain(k);"
    for text in (page, after(page, acts)):
        dom = shown(text, tmp_path)
        assert "<title>taken" not in dom
        assert "onerror=" not in re.sub(r">[^<]*<", "><", dom)
