"""Choices by measurement, with times that are made up: none depends on a clock."""

import json
import subprocess
import sys

import numpy as np
import pytest
from by_loops import kernels_of

import weft
from weft.compile.targets.cpu.matmul.arrays import compiled
from weft.compile.targets.cpu.matmul.tasks import split
from weft.compile.targets.cpu.object_code import host_isa
from weft.compile.tuning import choices, search, seconds_of
from weft.compile.tuning.choices import Columns, Cut, Loops, Measured, Table
from weft.compile.tuning.search import Search, Tried, Tuned, text
from weft.compile.tuning.subjects import subjects
from weft.compile.tuning.trials import Memory
from weft.errors import ArgumentError
from weft.graph import capture
from weft.runtime.cpu import kernel_cache


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch):
    """A cache with nothing in it, choices that only this test knows, two threads."""
    monkeypatch.setenv("WEFT_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setattr(choices, "_table", [])
    before = weft.get_num_threads()
    weft.set_num_threads(2)
    yield
    weft.set_num_threads(before)


def native_of(fn, *args):
    graph = capture(fn, *args).graph
    return kernels_of(graph), {}


def program(x, w):
    return (x @ w).exp().sum(0), (x * 2 + 1).tanh(), x.T.contiguous() + 1


def arguments():
    rng = np.random.default_rng(0)
    shapes = (96, 130), (130, 70)
    return [weft.tensor(rng.normal(size=s).astype(np.float32)) for s in shapes]


def picture(x, w):
    return weft.nn.functional.conv2d(x, w, padding=1)


class Made:
    """Times by what is tried: those that ``fast`` picks out take half as long."""

    def __init__(self, monkeypatch, fast=lambda choice: False):
        self.fast, self.names, self.seen = fast, {}, []
        found = search._trial

        def noted(one, choice, memory):
            trial = found(one, choice, memory)
            self.names[id(trial)] = trial, one, choice
            return trial

        monkeypatch.setattr(search, "_trial", noted)

    def __call__(self, runs, rounds):
        found = []
        for run in runs:
            _, one, choice = self.names[id(run)]
            self.seen.append((one.name, choice))
            found.append([0.5 if self.fast(choice) else 1.0] * rounds)
        return found


def measured_by(monkeypatch, made):
    """Have searches that nobody tells otherwise measure so."""
    usual = Search.__init__.__kwdefaults__
    monkeypatch.setattr(Search.__init__, "__kwdefaults__", {**usual, "measure": made})


# -- what may be chosen


def test_every_candidate_gives_the_same_bits():
    """Of products, loops and convolutions, along every axis."""
    x, w = arguments()
    pictures = weft.randn(2, 20, 12, 12), weft.randn(24, 20, 3, 3)
    strided = lambda x, w: weft.nn.functional.conv2d(x, w, stride=2)
    kinds = set()
    for fn, args in [(program, (x, w)), (picture, pictures), (strided, pictures)]:
        for one in subjects(*native_of(fn, *args)):
            memory = one.memory()
            want = one.make(one.default, memory).result()
            assert len(set(want)) > 1
            for axis in one.axes:
                for choice in axis(one.default):
                    trial = one.make(choice, memory)
                    assert trial.result() == want, (one.name, choice)
                    kinds.add((type(choice).__name__, text(choice).split("=")[0]))
    assert {kind for kind, _ in kinds} == {"Cut", "Loops", "Columns"}
    wanted = {"chunk", "square", "wide", "grain", "across", "shape", "columns"}
    if weft.compile.targets.cpu.object_code.host_isa().bits == 512:
        wanted.add("tiles")
    assert wanted <= {name for _, name in kinds}


def test_kernels_that_are_alike_are_one_subject():
    x, _ = arguments()
    w = weft.randn(130, 130)
    native, sizes = native_of(lambda x, w: ((x @ w).relu() @ w).relu() @ w, x, w)
    products = [s for s in subjects(native, sizes) if isinstance(s.default, Cut)]
    assert sum(s.runs for s in products) == 3
    assert len(products) < 3


# -- the search


def test_the_default_stays_where_nothing_is_faster(monkeypatch):
    native, sizes = native_of(program, *arguments())
    found = Search(measure=Made(monkeypatch)).run(native, sizes)
    assert found.tried
    assert not found.changed
    assert all(one.choice == one.default for one in found.tried)
    assert all("default" in one.times for one in found.tried)


def test_what_is_faster_is_chosen_stored_and_used(monkeypatch):
    x, w = arguments()
    before = native_of(program, x, w)[0]
    fast = Made(monkeypatch, lambda c: getattr(c, "chunk", 0) == 1024)
    found = Search(measure=fast).run(*native_of(program, x, w))
    (one,) = found.changed
    assert one.choice == Loops(chunk=1024)
    assert (one.before, one.after) == (1.0, 0.5)
    assert str(one).endswith("chunk=1024, 2.00 times as fast")
    after = native_of(program, x, w)[0]
    cut = {after.lowered.table.cut(k)[1] for k in after.lowered.kernels.values()}
    assert Loops(chunk=1024) in cut
    assert str(before.lowered.kernels) != str(after.lowered.kernels)
    for got, want in zip(*(n.run_named([x.numpy(), w.numpy()], {})[0]
                           for n in (before, after)), strict=True):  # fmt: skip
        assert got.tobytes() == want.tobytes()


def test_products_are_cut_as_was_found(monkeypatch):
    x, w = arguments()
    fast = Made(monkeypatch, lambda c: c[:2] == (1, 8) and len(c) == 3)
    found = Search(measure=fast).run(*native_of(lambda x, w: x @ w, x, w))
    (one,) = found.changed
    assert one.choice == Cut(1, 8, 0)
    native, _ = native_of(lambda x, w: x @ w, x, w)
    (got,), _ = native.run_named([x.numpy(), w.numpy()], {})
    (work,) = native.plan.layout.jobs.works.values()
    tile = compiled("float32", host_isa()).tile
    assert work.tasks == split(tile, 96, 70, 130, blocks=(1, 8)).tasks > 1
    np.testing.assert_allclose(got, x.numpy() @ w.numpy(), rtol=1e-4, atol=1e-4)


def test_no_thread_is_left_without_work(monkeypatch):
    """One piece is the best on a busy machine, and only there."""
    fast = Made(monkeypatch, lambda c: c[:2] == (1, 1))
    args = weft.randn(200, 300), weft.randn(300, 256)
    found = Search(measure=fast).run(*native_of(lambda x, w: x @ w, *args))
    assert found.tried
    assert not found.changed
    assert not any(choice[:2] == (1, 1) for _, choice in fast.seen)


def test_a_little_faster_is_not_faster():
    assert search._faster([1.0] * 10, [0.9] * 10)
    assert not search._faster([1.0] * 10, [0.96] * 10)
    assert not search._faster([1.0] * 10, [0.5] * 7 + [1.1] * 3)


def test_a_candidate_that_gives_other_bits_is_dropped(monkeypatch):
    native, sizes = native_of(program, *arguments())
    fast = Made(monkeypatch, lambda choice: choice != type(choice)())
    plain = search._trial

    def broken(one, choice, memory):
        trial = plain(one, choice, memory)
        if choice != one.default:
            trial.result = lambda: b"other"
        return trial

    monkeypatch.setattr(search, "_trial", broken)
    assert not Search(measure=fast).run(native, sizes).changed


def test_the_limit_of_time_is_kept(monkeypatch):
    """Times of all by default, then one after the other until it is over."""
    native, sizes = native_of(program, *arguments())
    made, now = Made(monkeypatch), [0.0]
    many = len(subjects(native, sizes))

    def slow(runs, rounds):
        now[0] += 1.0
        return made(runs, rounds)

    tuned = Search(many + 0.5, measure=slow, clock=lambda: now[0]).run(native, sizes)
    assert len(tuned.tried) == 1
    assert tuned.left == many - 1
    assert "no time for" in str(tuned)


def test_kernels_that_take_no_time_are_left_alone(monkeypatch):
    native, sizes = native_of(program, *arguments())
    quick = Search(measure=lambda runs, rounds: [[1e-6] * rounds for _ in runs])
    assert quick.run(native, sizes).tried == []


def test_times_are_measured_in_turns():
    seen = []
    runs = [lambda: seen.append(0), lambda: seen.append(1)]
    monkey = search.measure(runs, 3)
    assert [len(times) for times in monkey] == [3, 3]
    first, last = seen.index(1, 4), len(seen) - 1 - seen[::-1].index(0)
    assert first < last  # both ran before either was done


# -- what is stored


def test_another_process_takes_what_was_found(monkeypatch):
    x, w = arguments()
    fast = Made(monkeypatch, lambda c: getattr(c, "chunk", 0) == 1024)
    Search(measure=fast).run(*native_of(program, x, w))
    code = (
        "import numpy as np, weft\n"
        "from weft.compile.pipeline import KERNEL_PASSES\n"
        "from weft.compile.program.program import compiled\n"
        "from weft.graph import capture\n"
        "weft.set_num_threads(2)\n"
        "x = weft.zeros(96, 130)\n"
        "graph = capture(lambda x: (x * 2 + 1).tanh(), x).graph\n"
        "native = compiled(graph, passes=KERNEL_PASSES)\n"
        "found = native.lowered\n"
        "cut = {found.table.cut(k)[1].chunk for k in found.kernels.values()}\n"
        "print(sorted(cut))\n"
    )
    alone = native_of(lambda x: (x * 2 + 1).tanh(), x)[0]
    assert {
        alone.lowered.table.cut(k)[1].chunk for k in alone.lowered.kernels.values()
    } == {1024}
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "[1024]"


def test_a_second_search_measures_nothing_again(monkeypatch):
    native, sizes = native_of(program, *arguments())
    first = Search(measure=Made(monkeypatch)).run(native, sizes)
    again = Made(monkeypatch)
    second = Search(measure=again).run(native, sizes)
    assert not again.seen
    assert {t.key for t in second.tried} == {t.key for t in first.tried}
    assert all(t.stored for t in second.tried)


@pytest.mark.parametrize(
    "stored",
    [
        b"", b"no json", b"[1, 2]", b"3", b'{"a": 1}', b'{"a": [[1], 2]}',
        b'{"a": [["x"], {}]}', b'{"a": [[-1], {}]}', b'{"a": [[1], {"b": "c"}]}',
        b'{"a": [[true], {}]}', b"\xff\xfe",
    ],
)  # fmt: skip
def test_damaged_records_are_none(stored):
    kernel_cache.default().put(choices._cache_key(), stored)
    table = Table()
    table.load()
    assert table.stamp() == ""


def test_a_sound_record_beside_a_damaged_one_counts():
    key = choices._digest("k")
    text_ = json.dumps({"bad": 1, key: [[1, 2], {"default": 0.5}]})
    kernel_cache.default().put(choices._cache_key(), text_.encode())
    table = Table()
    table.load()
    assert table.find("k") == Measured((1, 2), {"default": 0.5})


def test_a_file_that_was_cut_short_is_no_record(tmp_path):
    table = Table()
    table.keep({"k": Measured((1,), {})})
    table.save()
    (file,) = (tmp_path / "cache").glob("*.kernel")
    file.write_bytes(file.read_bytes()[:-3])
    fresh = Table()
    fresh.load()
    assert fresh.find("k") is None


def test_stored_numbers_of_another_form_are_not_taken():
    choices.table().keep(
        {"k": Measured((1, 2), {}), "z": Measured((0, 16, 64, 1024, 9), {})}
    )
    assert choices.chosen("k", Loops()) == Loops()
    assert choices.chosen("z", Loops()) == Loops()  # no pieces of 0 elements
    assert choices.chosen("unknown", Columns()) == Columns()


def test_choices_add_up_over_processes():
    one, other = Table(), Table()
    one.keep({"a": Measured((1,), {})})
    one.save()
    other.keep({"b": Measured((2,), {})})
    other.save()
    both = Table()
    both.load()
    assert both.find("a")
    assert both.find("b")
    assert both.stamp() != one.stamp() != ""


# -- weft.compile


def test_compile_says_what_was_chosen(monkeypatch):
    fast = Made(monkeypatch, lambda c: getattr(c, "chunk", 0) == 1024)
    measured_by(monkeypatch, fast)
    x, w = arguments()
    plain, tuned = weft.compile(program), weft.compile(program, tune=100.0)
    for got, want in zip(tuned(x, w), plain(x, w), strict=True):
        assert got.numpy().tobytes() == want.numpy().tobytes()
    (compilation,) = tuned.compiles
    assert "tuned: 1 of" in str(compilation)
    assert len(compilation.tuned.changed) == 1
    rows = tuned.explain().choices
    assert len(rows) == len(compilation.tuned.tried)
    report = str(tuned.explain())
    assert "measured choices" in report
    assert "chunk=1024" in report
    assert "measured choices" not in str(plain.explain())


def test_state_is_not_touched_by_a_search(monkeypatch):
    """Trials run on arrays of their own: a step that is tuned is one step."""
    measured_by(monkeypatch, Made(monkeypatch))
    found = []
    for tune in (False, 10.0):
        weft.manual_seed(0)
        layer = weft.nn.Linear(70, 60)
        optimizer = weft.optim.Adam(layer.parameters(), lr=0.1)

        @weft.compile(tune=tune)
        def step(x, layer=layer, optimizer=optimizer):
            optimizer.zero_grad()
            loss = layer(x).square().mean()
            loss.backward()
            optimizer.step()
            return loss

        x = weft.ones(80, 70)
        losses = [step(x).item() for _ in range(3)]
        found.append((losses, layer.weight.detach().numpy().tobytes()))
    assert found[0] == found[1]


def test_open_sizes_are_tuned_for_those_of_the_call(monkeypatch):
    measured_by(monkeypatch, Made(monkeypatch))
    f = weft.compile(lambda x: (x * 2).exp(), dynamic=True, tune=10.0)
    for n in (100, 333):
        x = weft.ones(n, 70)
        np.testing.assert_allclose(f(x).numpy(), np.exp(2 * x.numpy()), rtol=1e-5)


def test_tune_is_checked():
    assert seconds_of(True) == search.SECONDS
    for wrong in (-1.0, "yes", None):
        with pytest.raises(ArgumentError, match="tune=True or seconds, got tune="):
            weft.compile(lambda x: x, tune=wrong)


def test_a_summary_names_what_there_was_no_time_for():
    one = Tried("k", "key", 1, Loops(), Loops(), {"default": 1.0})
    assert str(one) == "k: as by default"
    found = str(Tuned([one], 1.0, 2))
    assert found == "0 of 1 kernels cut otherwise, 1.0 s, no time for 2"


def test_memory_of_trials_is_safe_to_index():
    native, sizes = native_of(lambda x, i: x[i], weft.randn(9, 3), weft.tensor([8, 1]))
    memory = Memory(sizes)
    assert (memory[native.lowered.graph.inputs[1]] == 0).all()
    assert memory[native.lowered.graph.inputs[0]].any()
