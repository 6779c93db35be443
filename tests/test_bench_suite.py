"""The benchmark's report on made-up numbers, and its protocol with Weft alone."""

import dataclasses
import json
import os
import pathlib
import sys
from xml.etree import ElementTree

import numpy as np
import pytest

ROOT = pathlib.Path(__file__).parent.parent
sys.path.insert(0, str(ROOT))

import benchmarks.suite.__main__ as command  # noqa: E402
from benchmarks.suite import (  # noqa: E402
    client,
    flops,
    installed,
    libs,
    machine,
    report,
    run,
    table,
    workloads,
)
from benchmarks.suite.case import Run  # noqa: E402
from benchmarks.suite.picture import picture  # noqa: E402
from benchmarks.suite.results import Measured, Row, as_json, from_json  # noqa: E402
from benchmarks.suite.roof import Roof  # noqa: E402
from benchmarks.suite.worker import Worker  # noqa: E402

from weft.compile.cost.machine import Machine  # noqa: E402


def row(case="c", **times):
    measured = {name.replace("_", "-"): Measured([t]) for name, t in times.items()}
    return Row("w", case, measured, reference="torch", tolerance=1e-3)


# -- what follows from measurements


def test_ratio_is_the_fastest_peers_time_over_wefts():
    found = row(weft=2.0, weft_eager=0.1, torch=5.0, torch_compile=3.0, jax=4.0)
    assert found.ratio == 1.5
    assert found.fastest_peer == "torch-compile"


def test_eager_weft_stands_for_weft_where_nothing_is_compiled():
    assert row(weft_eager=2.0, torch=1.0).ratio == 0.5


def test_a_peer_that_computed_something_else_does_not_count():
    found = row(weft=2.0, torch=5.0, jax=1.0)
    found.measured["jax"].agrees = False
    assert found.fastest_peer == "torch"
    assert "differs" in table.cell(found.measured["jax"])


def test_there_is_no_ratio_without_weft_or_without_peers():
    assert row(weft=1.0).ratio is None
    assert row(torch=1.0).ratio is None
    wrong = row(weft=1.0, weft_eager=1.0, torch=2.0)
    wrong.measured["weft"].agrees = False
    assert wrong.ratio is None


def test_failures_are_named_and_never_numbers():
    found = row(weft=1.0)
    found.measured["torch"] = Measured(error="OSError: no compiler")
    found.measured["jax"] = Measured(error="ModuleNotFoundError: jax")
    assert table.cell(found.measured["torch"]) == "failed"
    lines = table.failures([found], {"jax": "ModuleNotFoundError: jax"})
    assert lines == [
        "jax.jit: ModuleNotFoundError: jax",
        "PyTorch, w, c: OSError: no compiler",
    ]


def test_quartiles_of_one_round_are_that_round():
    assert Measured([3.0]).quartiles == (3.0, 3.0)


def test_difference_is_relative_to_the_largest_number():
    want = [np.array([0.0, 10.0]), np.zeros(2)]
    assert run.difference([np.array([1.0, 10.0]), np.zeros(2)], want) == 0.1
    assert run.difference([np.zeros(3), np.zeros(2)], want) == float("inf")
    assert run.difference([np.array([0, np.inf]), np.zeros(2)], want) == float("inf")


def test_rows_survive_json():
    found = row(weft=1.0, torch=2.0)
    found.series = ("n", 4.0)
    assert from_json(json.loads(json.dumps(as_json([found])))) == [found]


# -- tables, the picture, the file


def full():
    rows = [row("n = 1", weft=1e-3, torch=2e-3), row("n = 2", weft=4e-3, torch=4e-3)]
    for k, one in enumerate(rows):
        one.series = ("size", k + 1.0)
        one.limit = 5e-4
        one.measured["weft"].memory, one.measured["weft"].process = 3e6, 4e6
        one.measured["weft"].difference = 1e-5
    rows[1].measured["jax"] = Measured(error="it broke")
    return report.Report("today", {"cores": "2"}, {"w": "The work"}, rows)


def test_a_table_has_medians_ratio_and_limit():
    assert table.times(full().rows) == [
        ["", "Weft", "PyTorch", "jax.jit", "fastest peer / Weft", "limit, its share"],
        ["n = 1", "1.00 ms", "2.00 ms", "", "2.00 (PyTorch)", "500 µs, 50 %"],
        ["n = 2", "4.00 ms", "4.00 ms", "failed", "1.00 (PyTorch)", "500 µs, 12 %"],
    ]


def test_growth_memory_and_summary():
    made = full()
    (grown,) = table.series(made.rows)
    assert grown[1] == ["Weft", "1.00 ms", "4.00 ms", "2.0"]
    assert table.memory(made.rows)[1][:2] == ["n = 1", "3.0 MB"]
    assert table.process(made.rows)[1][:2] == ["n = 1", "4.0 MB"]
    assert table.summary(made.rows, made.titles)[1] == [
        "The work", "2", "1.41", "1.00", "2.00"
    ]  # fmt: skip


def test_agreement_is_stated_with_its_tolerance():
    rows = full().rows
    assert table.compared(rows).startswith("All results agree")
    assert "1e-05 (allowed: 0.001)" in table.compared(rows)
    rows[0].measured["weft"].difference = 0.5
    assert table.compared(rows) == ("Weft differs in 'n = 1' by 0.5 (allowed: 0.001).")


def test_the_file_has_everything(tmp_path):
    made = full()
    page, drawn, numbers = made.write(tmp_path)
    text = page.read_text()
    for part in ("today.", "- cores: 2", "## The work", "it broke", "results.svg"):
        assert part in text
    assert report.Report.read(numbers.read_text()) == made
    assert ElementTree.parse(drawn).getroot().tag.endswith("svg")


def test_the_picture_marks_each_measurement_and_no_failure():
    text = picture(full().rows, {})
    assert text.count("<circle") == 4 + 3  # and the legend


def test_text_of_a_run_names_what_is_missing():
    assert "jax.jit, w, n = 2: it broke" in full().text()


def test_the_machine_is_described():
    assert set(machine.facts()) == {"processor", "cores", "caches", "system"}


# -- workloads


@pytest.mark.parametrize("name", workloads.NAMES)
def test_cases_have_names_of_their_own_and_costs(name):
    cases = workloads.cases(name, small=True)
    assert len({case.name for case in cases}) == len(cases)
    assert all(case.flops or case.moved or name == "eager" for case in cases)
    assert workloads.title(name)


def test_flops_of_known_networks():
    from benchmarks.suite.workloads import gpt2, resnet

    net = resnet.plan((3, 4, 6, 3), 224, bottleneck=True, large=True, classes=1000)
    assert net.flops(1) == pytest.approx(2 * 4.09e9, rel=0.01)  # torchvision's count
    assert sum(a.size for a in resnet.weights(net)[0].values()) == 25557032
    tokens = gpt2.GPT2.flops(1, 1) / 2
    assert tokens == pytest.approx(124e6, rel=0.01)  # one multiply-add a parameter
    assert flops.attention(1, 4, 8, causal=False) == 4 * 16 * 8


def test_losses_move_further_than_they_may_differ():
    """Else a step that updates nothing would agree with one that does."""
    lib = libs.load("weft-eager")
    for name in ("mlp", "tiny", "lstm"):
        (case,) = workloads.cases(name, small=True)
        call = case.build(lib).call
        losses = [call().item() for _ in range(case.calls)]
        assert abs(losses[-1] - losses[0]) > 10 * case.tolerance * losses[0]


def test_installed_counts_what_is_required():
    assert {"weft", "numpy", "llvmlite"} <= installed.required("weft", set())
    assert "pytest" not in installed.required("weft", set())
    assert installed.package_bytes("weft") > 1_000_000


# -- the protocol


def options(**given):
    return run.Options(rounds=2, small=True, seconds=0.001, timeout=60, **given)


def test_weft_alone_on_the_tiny_workload():
    told = {"missing": {}, "versions": {}}
    pythons = {"weft": sys.executable, "weft-eager": sys.executable}
    (found,) = run.run_workload("tiny", options(pythons=pythons), told)
    assert found.reference == "weft-eager"
    assert found.measured["weft"].difference < 1e-5
    assert all(len(m.times) == 2 for m in found.measured.values())
    assert all(m.process > m.memory > 0 for m in found.measured.values())
    assert told["versions"]["weft"].startswith("0.")


def test_rounds_of_all_launches_count(monkeypatch):
    (case,) = run.workloads.cases("tiny", small=True)
    twice = dataclasses.replace(case, launches=2)
    monkeypatch.setattr(run.workloads, "cases", lambda name, small: [twice])
    started = []
    start = run.Workers._start
    monkeypatch.setattr(
        run.Workers, "_start", lambda *given: started.append(1) or start(*given)
    )
    asked = options(pythons={"weft-eager": sys.executable})
    (found,) = run.run_workload("tiny", asked, {"missing": {}, "versions": {}})
    assert len(found.measured["weft-eager"].times) == 4
    assert len(started) == 2


def test_a_missing_framework_is_named_with_the_reason(tmp_path):
    broken = tmp_path / "python"
    broken.write_text("#!/bin/sh\necho 'no such thing here' >&2\nexit 3\n")
    broken.chmod(0o755)
    told = {"missing": {}, "versions": {}}
    pythons = {"torch": str(broken)}
    (found,) = run.run_workload("tiny", options(pythons=pythons), told)
    reason = "the process ended with code 3: no such thing here"
    assert found.measured["torch"].error == told["missing"]["torch"] == reason


def test_an_error_in_a_worker_is_an_answer():
    started = client.Client(sys.executable, "weft-eager", 1)
    try:
        with pytest.raises(client.WorkerError, match="ValueError: framework: expected"):
            started.ask(60, do="start", framework="unheard")
        assert started.alive
    finally:
        started.close()


def test_rounds_are_per_call_and_counted():
    worker = Worker()
    worker.lib, calls = libs.load("weft-eager"), []
    worker.run = Run(lambda: calls.append(0))
    assert worker.time(calls=3)["seconds"] > 0
    assert len(calls) == 3


def test_the_order_rotates():
    assert run._rotated(["a", "b", "c"], 1) == ["b", "c", "a"]
    assert run._rotated([], 1) == []


def test_every_process_gets_the_number_of_threads():
    found = client.environment(3, sys.executable)
    assert found["OMP_NUM_THREADS"] == found["WEFT_NUM_THREADS"] == "3"
    assert os.path.dirname(sys.executable) == found["PATH"].split(os.pathsep)[0]


# -- limits


def test_limits_are_the_best_measured_of_bytes_and_operations():
    roof = Roof(options(pythons={}))
    roof.best = Machine(2, ((1, 1e9), (10**9, 1e9)), peak=1e12)
    rows = [Row("w", "a", moved=1e6), Row("w", "b", flops=1e12), Row("w", "c")]
    roof.limit(rows)
    assert [row.limit for row in rows] == [1e-3, 1.0, None]


def test_limits_without_weft_are_not_measured():
    roof = Roof(options(pythons={}))
    roof.measure()
    assert str(roof) == "not measured: Weft is not among those run"


# -- the command


def test_the_command_refuses_what_it_does_not_know():
    with pytest.raises(SystemExit, match="expected some of mlp, tiny"):
        command.names("nonsense", workloads.ALL)
    with pytest.raises(SystemExit, match="--python: expected torch=PATH"):
        command.options_of(command.parsed(["--python", "torch"]))


def test_the_command_takes_interpreters_by_library():
    given = command.parsed(["--python", "torch=/p", "--frameworks", "torch-compile"])
    assert command.options_of(given).pythons == {"torch-compile": "/p"}
