"""Explanations tell the truth: counts by hand, sums that add up, safe pages."""

from __future__ import annotations

import base64
import hashlib
import re
import shutil
import subprocess
from html.parser import HTMLParser

import llvmlite.binding as llvm
import numpy as np
import pytest

import weft
from weft import nn, optim
from weft.compile.cost.machine import MOVED, Machine, machine
from weft.compile.cost.work import bytes_read, flops, unfused
from weft.compile.explain.page import _cut
from weft.compile.explain.passes import changes
from weft.compile.pipeline import PASSES
from weft.compile.program.phases import phase, recording
from weft.compile.program.steps import KernelLaunch
from weft.errors import ArgumentError
from weft.graph.text import node_text

F = nn.functional


def trained(rows=(8,)):
    """A compiled training step that has run, and its model."""
    net = nn.Sequential(nn.Linear(6, 16), nn.GELU(), nn.LayerNorm(16), nn.Linear(16, 3))
    adam = optim.AdamW(net.parameters(), lr=1e-2)

    @weft.compile
    def train(x, y):
        adam.zero_grad()
        loss = F.cross_entropy(net(x), y)
        loss.backward()
        adam.step()
        return loss

    for n in rows:
        train(weft.randn(n, 6), weft.randint(0, 3, (n,)))
    return train, net


@pytest.fixture(scope="module")
def step():
    return trained()[0]


def captured(fn, *args):
    return weft.graph.capture(fn, *args).graph


# -- what nodes cost


@pytest.mark.parametrize(
    ("fn", "shapes", "want"),
    [
        (lambda a, b: a @ b, [(5, 7), (7, 3)], 2 * 5 * 7 * 3),
        (lambda a, b: a @ b, [(4, 5, 7), (4, 7, 3)], 4 * 2 * 5 * 7 * 3),
        (lambda a: a.exp() + a, [(5, 7)], 2 * 35),
        (lambda a: a.sum(0), [(5, 7)], 35),
        (lambda a: a.T.reshape(35), [(5, 7)], 0),
        (lambda a: (a > 0).sum(), [(5, 7)], 35),  # the comparison; counting is integer
        (
            lambda x, w: F.conv2d(x, w, padding=1),
            [(2, 3, 8, 8), (4, 3, 3, 3)],
            2 * (2 * 4 * 8 * 8) * (3 * 3 * 3),
        ),
    ],
)
def test_operations_by_hand(fn, shapes, want):
    graph = captured(fn, *[weft.ones(shape) for shape in shapes])
    assert sum(flops(node, {}) for node in graph.nodes) == want


def test_gradients_of_convolutions_cost_as_much_as_the_convolution():
    w = weft.ones(4, 3, 3, 3, requires_grad=True)
    x = weft.ones(2, 3, 8, 8, requires_grad=True)

    def step(x, w):
        return weft.autograd.grad(F.conv2d(x, w, stride=2).sum(), [x, w])

    graph = captured(step, x, w)
    found = {
        n.op.name: flops(n, {}) for n in graph.nodes if n.op.name.startswith("conv")
    }
    assert set(found) >= {"conv_input_grad", "conv_weight_grad"}
    assert set(found.values()) == {2 * (2 * 4 * 3 * 3) * 27}


def test_an_unknown_cost_is_not_made_up():
    graph = captured(lambda x: weft.linalg.cholesky(x), weft.eye(3))
    assert None in [flops(node, {}) for node in graph.nodes]


@pytest.mark.parametrize(
    ("fn", "elements"),
    [
        (lambda x: x + x, 40),  # once
        (lambda x: x[:2] + 1, 20),
        (lambda x: x[:2, :3].expand(5, 2, 3) + 1, 6),
        (lambda x: x.T + 1, 40),
        (lambda x: x[:2] + x[2:], 40),
        (lambda x: x[:3] + x[1:], 40),  # no more than there are
    ],
)
def test_views_are_read_once_and_in_part(fn, elements):
    graph = captured(fn, weft.ones(4, 10))
    add = next(n for n in graph.nodes if n.op.name == "add")
    assert bytes_read([add], {}) == 4 * elements


def test_traffic_before_and_after_fusion_by_hand():
    @weft.compile
    def f(x):
        return ((x * 2 + 1).exp()).sum(1)

    f(weft.ones(10, 20))
    before, _, after = f.explain().traffic
    assert before[1:] == (4, 4 * 800, 3 * 800 + 40)
    assert after[1:] == (1, 800, 40)
    assert before[1:] == unfused(captured(f.fn, weft.ones(10, 20)), {})


def test_sizes_that_are_symbolic_are_those_of_the_last_new_run():
    f = weft.compile(lambda x: x.exp().sum())
    for n in (3, 5, 9):
        f(weft.ones(n))
    (kernel,) = f.explain().kernels
    assert (kernel.read, kernel.written, kernel.flops) == (36, 4, 18)


# -- when and why


def whys(f):
    return [c.why for c in f.explain().compilations]


def test_reasons_name_the_argument():
    f = weft.compile(lambda x, scale=1: x * scale)
    x = weft.ones(2, 3)
    f(x)
    f(weft.ones(2, 4))
    f(x, 2)
    f(x, 3)
    f(x.double())
    with weft.no_grad():
        f(x)
    f([x][0].T.numpy())
    first, sizes, structure, scale, dtype, grads, array = whys(f)
    assert first == "first call"
    assert sizes == "other sizes: x is (2, 4), was (2, 3)"
    assert structure == "other arguments: their number or structure"
    assert scale == "other arguments: scale is 3, was 2"
    assert dtype == (
        "other arguments: x is float64 of 2 dimensions, was float32 of 2 dimensions"
    )
    assert grads == "other arguments: recording gradients is False, was True"
    assert array.startswith("other arguments: ")


def test_many_differences_are_not_all_listed():
    f = weft.compile(lambda *xs: sum(xs))
    f(*[weft.ones(2)] * 5)
    f(*[weft.ones(3)] * 5)
    assert whys(f)[1].endswith("; and 2 more")


def test_phases_add_up(monkeypatch, tmp_path):
    monkeypatch.setenv("WEFT_CACHE_DIR", str(tmp_path / "cache"))
    step = weft.compile(lambda x: (x @ x).exp().sum())
    step(weft.ones(30, 30))
    (found,) = step.explain().compilations
    every = {"capture", "look up", "passes", "lowering", "LLVM"}
    assert set(found.phases) == every
    assert all(seconds >= 0 for seconds in found.phases.values())
    assert 0.5 * found.seconds < sum(found.phases.values()) <= found.seconds


def test_a_phase_inside_another_counts_once(monkeypatch):
    clock = iter([0.0, 1.0, 3.0, 10.0])
    monkeypatch.setattr("time.perf_counter", lambda: next(clock))
    with recording() as record, phase("outer"), phase("inner"):
        pass
    assert record.seconds == {"inner": 2.0, "outer": 8.0}


def test_the_cache_is_mentioned(tmp_path, monkeypatch):
    monkeypatch.setenv("WEFT_CACHE_DIR", str(tmp_path / "kernels"))
    found = []
    for _ in range(2):
        f = weft.compile(lambda x: (x * 3).cosh())
        f(weft.ones(5))
        found.append(f.explain().compilations[0].cached)
    assert found == ["compiled", "from the cache"]
    empty = weft.compile(lambda x: x)
    empty(weft.ones(2))
    assert empty.explain().compilations[0].cached == "no kernels"


def test_not_compiled_yet():
    about = weft.compile(lambda x: x).explain()
    assert "not compiled yet" in str(about)
    assert "Not compiled yet" in about.html()
    with pytest.raises(ArgumentError, match="call it once"):
        _ = about.kernels


# -- passes


def test_differences_lead_from_each_graph_to_the_next(step):
    passes = step.explain().passes
    assert [p.name for p in passes] == [name for name, _ in PASSES]
    for one in passes:
        before = sorted(map(node_text, one.before.nodes))
        after = sorted(map(node_text, one.after.nodes))
        for sign, text in one.lines:
            before.remove(text) if sign == "-" else before.append(text)
        assert sorted(before) == after
    assert sum(p.gone for p in passes) > 20
    assert len(passes[-1].after) == len(step.explain().program.graph)


def test_stages_after_the_passes_are_text(step, page):
    stages = step.explain().stages
    assert list(stages) == ["fuse", "alias", "plan"]
    for node in step.explain().program.lowered.graph.outputs:
        assert f"%{node.name}" in stages["fuse"]
        assert f"%{node.name} in output" in stages["plan"]
    for kernel in step.explain().kernels:
        assert f"{kernel.name}(" in stages["plan"]
    for text in stages.values():
        first = text.splitlines()[0]
        assert first.replace(">", "&gt;").replace("<", "&lt;") in page


def test_a_long_text_is_cut_in_the_page():
    lines = [str(k) for k in range(1000)]
    assert _cut("\n".join(lines)) == "\n".join([*lines[:400], "… 600 more lines"])
    assert _cut("one\ntwo") == "one\ntwo"


def test_an_equal_graph_has_no_differences():
    graph = captured(lambda x: x.exp() + 1, weft.ones(3))
    again = captured(lambda x: x.exp() + 1, weft.ones(3))
    assert changes(graph, graph) == changes(graph, again) == []


# -- kernels


def test_every_step_is_somewhere(step):
    about = step.explain()
    works = [*about.kernels, *about.products, *about.calls]
    steps = sorted(x.step for work in works for x in work.launches)
    assert steps == [x.step for x in about.program.runs]
    assert sum(work.read + work.written for work in works) == about.traffic[-1].moved
    assert len(steps) == about.traffic[-1].kernels < about.traffic[0].kernels / 3


def test_kernels_compute_the_nodes_of_their_group(step):
    about = step.explain()
    uses = [s for s in about.program.steps if isinstance(s, KernelLaunch)]
    assert sum(len(k.launches) for k in about.kernels) == len(uses)
    for kernel in about.kernels:
        texts = {str(u.kernel) for u in uses if u.name == kernel.name}
        assert texts == {kernel.loops}


def test_code_of_one_kernel_alone(step):
    about = step.explain()
    kernel = about.kernels[0]
    llvm.parse_assembly(kernel.llvm).verify()
    assert f"\n{kernel.name}:\n" in "\n" + kernel.assembly
    others = [k.name for k in about.kernels if k.name != kernel.name]
    assert others
    assert not any(re.search(rf"\b{name}\b", kernel.assembly) for name in others)


def test_reasons_for_not_fusing():
    @weft.compile
    def f(x):
        y = weft.linalg.cholesky(x @ x.T + 4 * weft.eye(3))
        return y.exp().half()

    f(weft.ones(3, 3))
    about = f.explain()
    why = {call.name: call.why for call in about.calls}
    assert why["cholesky"] == "its record has no lowering to loops"
    assert any("cholesky" in one.why for one in about.breaks)
    assert [p.name for p in about.products] == ["matmul"]


def test_dtypes_without_kernels_are_named():
    f = weft.compile(lambda x: x.exp())
    f(weft.ones(3, dtype=weft.complex64))
    (call,) = f.explain().calls
    assert "complex64" in call.why


def test_gradients_are_programs_too():
    f = weft.compile(lambda x: x.exp().sum())
    x = weft.ones(4, requires_grad=True)
    y = f(x)
    assert [p.title for p in f.explain().programs] == ["compilation 1"]
    y.backward()
    titles = [p.title for p in f.explain(measure=True).programs]
    assert titles == ["compilation 1", "compilation 1, gradient"]


# -- memory


def test_memory_over_time_adds_up(step):
    about = step.explain()
    memory = about.memory
    for at, live in enumerate(memory.live):
        assert live == sum(v.nbytes for v in memory.values if v.first <= at <= v.last)
    assert memory.peak == memory.layout.bound
    assert memory.peak == sum(v.nbytes for v in memory.top)
    assert memory.peak <= memory.layout.nbytes < memory.total
    sizes = [v.nbytes for v in memory.top]
    assert sizes == sorted(sizes, reverse=True)
    assert all(re.fullmatch(r"test_explain\.py:\d+", v.line) for v in memory.top)
    assert {v.node.module for v in memory.values} >= {"1", "2", "3"}


def test_results_of_calls_are_outside_the_arena():
    f = weft.compile(lambda x: weft.linalg.cholesky(x).exp().sum(1).exp())
    f(weft.eye(4))
    memory = f.explain().memory
    inside = {v.node for v in memory.values}
    outside = {v.node for v in memory.results}
    assert "cholesky" in {n.op.name for n in outside}
    assert not inside & outside
    assert memory.outside[-1] == sum(v.nbytes for v in memory.results)
    assert memory.outside == sorted(memory.outside)


# -- measuring


def test_measuring_times_everything_and_changes_nothing():
    train, net = trained()
    before = {k: v.numpy().copy() for k, v in net.state_dict().items()}
    about = train.explain(measure=True)
    assert all(x.seconds > 0 for x in about.program.launches)
    assert about.program.seconds == sum(x.seconds for x in about.program.launches)
    for work in (*about.kernels, *about.products):
        assert np.isfinite(work.share)
        assert work.share > 0
    times = [kernel.seconds for kernel in about.kernels]
    assert times == sorted(times, reverse=True)
    for key, value in net.state_dict().items():
        np.testing.assert_array_equal(value.numpy(), before[key])
    assert len(train.compiles) == 1


def test_a_program_that_made_up_arguments_do_not_suit_says_so():
    f = weft.compile(lambda x: weft.linalg.cholesky(x).exp())
    f(weft.eye(4))
    about = f.explain(measure=True)
    assert "not measured: " in str(about)
    assert all(kernel.seconds is None for kernel in about.kernels)
    assert "Not measured: " in about.html(code=False)


def test_the_roof_is_the_slower_of_moving_and_computing():
    roof = Machine(1, ((100, 50.0), (10_000, 10.0)), 1000.0)
    assert roof.bandwidth_at(1) == roof.bandwidth_at(100) == 50
    assert roof.bandwidth_at(1000) == pytest.approx(30)
    assert roof.bandwidth_at(1e9) == 10
    assert roof.least_seconds(10_000, 0) == 1000
    assert roof.least_seconds(10_000, 2_000_000) == 2000
    assert roof.least_seconds(10_000, 2_000_000, itemsize=8) == 4000


def test_this_machine_is_measured_once():
    found = machine()
    assert found is machine()
    assert [size for size, _ in found.bandwidth] == list(MOVED)
    rates = [rate for _, rate in found.bandwidth]
    assert rates == sorted(rates, reverse=True)
    assert 1e8 < rates[-1] < 1e13
    assert 1e9 < found.peak < 1e15


# -- the report


def test_the_report_reads_well(step):
    text = str(step.explain())
    assert max(map(len, text.splitlines())) < 200
    for part in ("train: 1 compilation", "kernels", "products", "peak", "fused"):
        assert part in text
    assert "time" not in text.split("kernels\nname")[1].splitlines()[0]
    assert repr(step.explain().kernels).startswith("name")


# -- the page


class Elements(HTMLParser):
    """What a page consists of."""

    VOID = ("meta",)

    def __init__(self, page):
        super().__init__()
        self.tags, self.stack, self.scripts = [], [], []
        self.feed(page)
        assert not self.stack

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        if tag not in self.VOID:
            self.stack.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag):
        assert self.stack.pop() == tag

    def handle_data(self, data):
        if self.stack and self.stack[-1] == "script":
            self.scripts.append(data)


def hash_of(text):
    return base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


@pytest.fixture(scope="module")
def page(step):
    return step.explain(measure=True).html()


def test_the_page_is_complete_and_loads_nothing(step, page):
    found = Elements(page)
    names = {tag for tag, _ in found.tags}
    assert not names & {"link", "img", "iframe", "object", "base", "a"}
    assert not any({"src", "href", "onclick"} & attrs.keys() for _, attrs in found.tags)
    (policy,) = [a["content"] for _, a in found.tags if "http-equiv" in a]
    script = found.scripts[-1]
    assert f"'sha256-{hash_of(script)}'" in policy
    assert f"'sha256-{hash_of(weft.graph.views.page.script())}'" in policy
    assert "'none'" in policy
    about = step.explain()
    kinds = [attrs.get("class") for _, attrs in found.tags]
    rows = len(about.kernels) + len(about.products) + len(about.calls) + len(PASSES)
    assert kinds.count("item") == rows
    assert kinds.count("more graph") == 2
    for kernel in about.kernels:
        assert kernel.loops.splitlines()[-1].strip().replace("<", "&lt;") in page
        assert re.search(rf"[\n>]{kernel.name}:\n", page)


def test_code_can_be_left_out(step, page):
    short = step.explain().html(code=False)
    assert "machine code</summary>" in page
    assert "machine code</summary>" not in short
    assert len(short) < len(page)


def test_the_page_is_written(step, tmp_path):
    text = step.explain().html(tmp_path / "page.html", code=False)
    assert (tmp_path / "page.html").read_text("utf-8") == text


HOSTILE = "</script><script>document.title='taken'</script><img src=x onerror=alert(1)>"


def hostile_page():
    def f(batch):
        return batch[HOSTILE].exp()

    f.__name__ = HOSTILE
    made = weft.compile(f)
    made({HOSTILE: weft.ones(2)})
    made({HOSTILE: weft.ones(3)})
    return made.explain().html()


def test_hostile_names_stay_text():
    page = hostile_page()
    found = Elements(page)
    assert "img" not in {tag for tag, _ in found.tags}
    kinds = [a.get("type") for tag, a in found.tags if tag == "script"]
    assert kinds.count(None) == 1
    assert "&lt;img src=x onerror" in page


# -- in a browser

BROWSER = next(
    filter(None, map(shutil.which, (
        "chromium-headless-shell", "chromium", "chromium-browser", "google-chrome",
    ))), None,
)  # fmt: skip
needs_browser = pytest.mark.skipif(BROWSER is None, reason="no Chromium is here")


def shown(page, folder):
    """The page's elements after its scripts have run, and what the browser says."""
    path = folder / "page.html"
    path.write_text(page, "utf-8")
    done = subprocess.run(
        [BROWSER, "--headless", "--no-sandbox", "--disable-gpu", "--dump-dom",
         "--enable-logging=stderr", f"--user-data-dir={folder / 'profile'}",
         "--window-size=1200,800", path.as_uri()],
        capture_output=True, check=True, timeout=60,
    )  # fmt: skip
    said = done.stderr.decode("utf-8", "replace")
    return done.stdout.decode("utf-8"), [x for x in said.splitlines() if "CONSOLE" in x]


@needs_browser
def test_graphs_open_in_a_frame_under_the_pages_policy(page, tmp_path):
    opened = page.replace(
        '<details class="more graph"', '<details open="" class="graph"'
    )
    dom, said = shown(opened, tmp_path)
    assert dom.count('<iframe sandbox="allow-scripts"') == 2
    assert not said
    assert hash_of(weft.graph.views.page.script()) in opened  # what the policy allows


@needs_browser
def test_pointing_at_a_step_tells_what_is_live(step, page, tmp_path):
    memory = step.explain().memory
    acts = """
      const picture = document.querySelector(".timeline");
      const { left, width } = picture.getBoundingClientRect();
      const x = left + width * (70 + 930 * (STEP + 0.5) / COUNT) / 1000;
      picture.dispatchEvent(new PointerEvent("pointermove", { clientX: x }));
    """.replace("STEP", str(memory.peak_step)).replace("COUNT", str(memory.steps))
    free = re.sub(r'<meta http-equiv="Content-Security-Policy"[^>]*>', "", page)
    dom, said = shown(
        free.replace("</body>", f"<script>{acts}</script></body>"), tmp_path
    )
    live = re.search(r'<div class="live">(.*?)</div>', dom, re.S)[1]
    assert not said
    assert f"step {memory.peak_step}: " in live
    outside = [v for v in memory.results if v.first <= memory.peak_step]
    assert f"in {len(memory.top) + len(outside)} values" in live
    assert f">{memory.top[0].node.name}</td>" in live


@needs_browser
def test_hostile_names_run_nothing(tmp_path):
    page = hostile_page().replace("<details ", '<details open="" ')
    dom, _ = shown(page, tmp_path)
    assert "<title>taken" not in dom
    assert "<img" not in dom
