"""WebAssembly modules and pages: run by Node and by a browser, where these are."""

import html
import importlib.util
import json
import shutil
import subprocess

import numpy as np
import pytest
from test_c_files import gpt, tokens
from test_other_machines import CALLS, PROGRAMS, leaves

import weft
from weft import nn
from weft.errors import ArgumentError
from weft.nn import functional as F

NODE = shutil.which("node")
HAS_ZIG = importlib.util.find_spec("ziglang") is not None
needs_zig = pytest.mark.skipif(not HAS_ZIG, reason="ziglang is not installed")
needs_node = pytest.mark.skipif(NODE is None, reason="Node is not installed")
CHROME = next(filter(None, map(shutil.which, ("chromium", "google-chrome"))), None)
RUN = """\
const net = require("./@NAME.js");
(async () => {
  const model = await net.load("@NAME.wasm");
  const all = [];
  const plain = (key, x) => ArrayBuffer.isView(x) ? Array.from(x, Number) : x;
  for (const [name, ...inputs] of @CALLS) {
    try {
      all.push(model[name](...inputs.map(({data, shape, big}) =>
        ({data: big ? data.map(BigInt) : data, shape}))));
    } catch (error) { all.push(error.message); }
  }
  console.log(JSON.stringify(all, plain));
})();
"""


def called(folder, name, calls):
    """The results of calls, or the messages of their errors."""
    plain = [
        [entry, *[{"data": x.ravel().tolist(), "shape": x.shape, "big": x.dtype == int}
                  for x in inputs]]
        for entry, *inputs in calls
    ]  # fmt: skip
    text = RUN.replace("@NAME", name).replace("@CALLS", json.dumps(plain))
    (folder / "run.js").write_text(text)
    done = subprocess.run([NODE, "run.js"], cwd=folder, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@needs_zig
@needs_node
@pytest.mark.parametrize("name", PROGRAMS)
def test_programs_agree_with_eager_ones(name, tmp_path):
    weft.manual_seed(0)
    with weft.no_grad():
        program, x = PROGRAMS[name]()
        weft.manual_seed(1)
        weft.export(program, x, tmp_path / "net.wasm")
        weft.manual_seed(1)
        want = [[t.numpy().copy() for t in leaves(program(x))] for _ in range(CALLS)]
    found = called(tmp_path, "net", [["run", x.numpy()]] * CALLS)
    for some, wanted in zip(found, want, strict=True):
        for got, w in zip(some.values(), wanted, strict=True):
            assert got["shape"] == list(w.shape)
            given = np.array(got["data"]).reshape(w.shape)
            np.testing.assert_allclose(given, w, rtol=1e-5, atol=1e-5)
    assert (tmp_path / "net.wasm").stat().st_size < 300_000


@needs_zig
@needs_node
def test_open_sizes_several_functions_and_errors(tmp_path):
    net = nn.Embedding(5, 3)
    n = weft.export.Dim("n", min=1, max=4)
    programs = {"look": net, "twice": lambda ids: weft.cat([ids, ids + 1], 0)}
    ids = weft.tensor([[0, 1], [2, 4]])
    weft.export(programs, dict.fromkeys(programs, ids), tmp_path / "net.wasm",
                dynamic_shapes=({0: n},))  # fmt: skip
    given = [np.array(some) for some in ([[0, 1]], [[7, 1]], [[0, 1]] * 5, [[0]])]
    calls = [[name, some] for name in programs for some in given]
    found = called(tmp_path, "net", calls)
    np.testing.assert_allclose(found[0]["out"]["data"],
                               net.weight.detach().numpy()[:2].ravel())  # fmt: skip
    assert "an index is out of range" in found[1]
    assert "a shape is not one" in found[2]
    assert found[4]["out"] == {"data": [0, 1, 1, 2], "shape": [2, 2]}


@needs_zig
def test_what_javascript_cannot_have(tmp_path):
    with pytest.raises(ArgumentError, match="no arrays of float16"):
        weft.export(lambda x: x.half(), weft.ones(2), tmp_path / "a.wasm")
    with pytest.raises(ArgumentError, match="weights beside need files"):
        weft.export(nn.ReLU(), weft.ones(2), tmp_path / "a.wasm", weights="beside")
    assert list(tmp_path.iterdir()) == []


def dump(path):
    """The document of a page after its scripts have run."""
    command = [CHROME, "--headless", "--no-sandbox", "--disable-gpu", "--dump-dom",
               "--virtual-time-budget=5000", path.as_uri()]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    return done.stdout


class Corners(nn.Module):
    """Says how much of a picture is in each of its quarters."""

    def forward(self, x):
        return 9 * F.avg_pool2d(x, 4).flatten(1)


DRAW = """<script>
ready.then(() => {
  const box = field.getBoundingClientRect();
  const fire = (kind, [x, y], on) => on.dispatchEvent(new PointerEvent(kind,
    {clientX: box.left + x, clientY: box.top + y, bubbles: true}));
  fire("pointerdown", [60, 60], field);
  for (const at of [[240, 60], [240, 240], [150, 240], [150, 200], [240, 200]])
    fire("pointermove", at, field);
  fire("pointerup", [240, 240], window);
});
</script>"""


@needs_zig
@pytest.mark.skipif(CHROME is None, reason="no browser is installed")
def test_a_page_to_draw_on(tmp_path):
    weft.export(Corners(), weft.zeros(1, 1, 8, 8), tmp_path / "corners.html")
    path = tmp_path / "corners.html"
    path.write_text(path.read_text() + DRAW)
    text = dump(path)
    assert "It is a 3." in text  # most of the line is in the last quarter
    assert text.count("<i style=") == 4


@needs_zig
@pytest.mark.skipif(CHROME is None, reason="no browser is installed")
@pytest.mark.parametrize("is_open", [False, True])
def test_a_page_to_write_in(is_open, tmp_path):
    weft.manual_seed(0)
    letters, net = "abcdefghij <klmnopqr", gpt()
    time = weft.export.Dim("time", min=1, max=16)
    shapes = ({1: time},) if is_open else None
    path = tmp_path / "gpt.html"
    weft.export(net, tokens(1, 16), path, vocabulary=letters, dynamic_shapes=shapes)
    go = """<script>find("heat").value = 0; find("field").value = "abc";
    go(20).then(() => { document.title = "wrote:" + find("field").value; });</script>"""
    path.write_text(path.read_text() + go)
    ids = [0, 1, 2]
    for _ in range(20):
        ids.append(net(weft.tensor([ids[-16:]]))[0, -1].argmax().item())
    want = html.escape("".join(letters[k] for k in ids))
    assert f"wrote:{want}<" in dump(path)


@needs_zig
def test_pages_for_other_programs_are_refused(tmp_path):
    wrong = [(nn.Linear(3, 2), weft.ones(1, 3), {}),
             (gpt(), tokens(1, 4), {"vocabulary": "abc"})]  # fmt: skip
    for program, example, how in wrong:
        with pytest.raises(ArgumentError, match="pages are for pictures"):
            weft.export(program, example, tmp_path / "a.html", **how)
    with pytest.raises(ArgumentError, match="an option of pages"):
        weft.export(nn.ReLU(), weft.ones(2), tmp_path / "a.so", vocabulary="abc")
    assert list(tmp_path.iterdir()) == []
