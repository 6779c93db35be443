"""The compiler can be seen at every stage: printed, checked, and run by hand."""

import pathlib
import re

import eight_programs
import numpy as np
import pytest
from by_loops import run_steps, seen
from eight_programs import PROGRAMS, any_machine, lowered, program, stages

from weft.compile import pipeline
from weft.errors import ArgumentError
from weft.graph.ir import GraphError

# -- golden texts


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_program_reads_as_it_is_stored(name, golden):
    with any_machine():
        parts = stages(PROGRAMS[name]())
    text = "\n\n".join(f"== {stage} ==\n\n{part}" for stage, part in parts.items())
    golden(f"pipeline/{name}", text)


@pytest.mark.parametrize("level", ["baseline", "avx512"])
def test_texts_do_not_depend_on_the_machine(level, monkeypatch):
    with any_machine():
        here = stages(PROGRAMS["mlp_step"]())
    monkeypatch.setattr(eight_programs, "LEVEL", level)
    monkeypatch.setattr(eight_programs, "THREADS", 7)
    with any_machine():
        assert stages(PROGRAMS["mlp_step"]()) == here


def test_a_text_that_differs_is_shown_and_the_cure_is_named(golden, tmp_path):
    stored = tmp_path / "some.txt"
    stored.write_text("one\ntwo\n")
    golden.update = False
    with pytest.raises(pytest.fail.Exception) as raised:
        golden.file(stored, "one\nthree\n")
    assert "-two\n+three" in str(raised.value)
    assert "pytest --update-golden" in str(raised.value)
    golden.update = True
    golden.file(stored, "one\nthree\n")
    assert stored.read_text() == "one\nthree\n"


# -- WEFT_PRINT


def printed(monkeypatch, capfd, asked):
    """The headings that a compilation prints."""
    monkeypatch.setenv("WEFT_PRINT", asked)
    example = PROGRAMS["scatter"]()
    program(example).run(example.feeds)
    return re.findall(r"^# (.*)", capfd.readouterr().err, re.M)


PASSES = [name for name, _ in pipeline.PASSES]


@pytest.mark.parametrize("stage", [*PASSES, *pipeline.STAGES])
def test_a_stage_can_be_printed_alone(stage, monkeypatch, capfd):
    headings = printed(monkeypatch, capfd, stage)
    if stage in pipeline.STAGES:
        assert headings == [f"after {stage}"]
    elif len(headings) == 1:
        assert headings == [f"{stage}: nothing to do"]
    else:
        heads = [head.partition(":")[0] for head in headings]
        assert heads == [f"before {stage}", f"after {stage}"]


def test_all_stages_are_printed_in_order(monkeypatch, capfd):
    headings = printed(monkeypatch, capfd, "all")
    names = [re.sub("^(before|after) |:.*", "", head) for head in headings]
    assert list(dict.fromkeys(names)) == [*PASSES, *pipeline.STAGES]


def test_an_unknown_stage_is_refused_with_those_that_there_are(monkeypatch):
    monkeypatch.setenv("WEFT_PRINT", "fuze")
    with pytest.raises(ArgumentError) as raised:
        program(PROGRAMS["scatter"]())
    text = str(raised.value)
    assert "got 'fuze'" in text
    assert all(name in text for name in (*PASSES, *pipeline.STAGES))


# -- WEFT_VERIFY: faults are planted in what a stage gives


def spoilt(stage, spoil):
    """A stage of the pipeline whose result is spoilt."""
    right = getattr(pipeline, stage)
    return lambda *args: spoil(right(*args))


def without_kernels(found):
    steps, _ = found
    return steps, {}


def one_place(layout):
    """A memory layout in which all values begin where the first one does."""
    offsets = layout.layout.offsets
    return with_offsets(layout, dict.fromkeys(offsets, min(offsets.values())))


def far_away(layout):
    """A memory layout in which a value lies behind the arena."""
    offsets = dict(layout.layout.offsets)
    offsets[max(offsets, key=offsets.get)] = layout.layout.nbytes
    return with_offsets(layout, offsets)


def with_offsets(layout, offsets):
    layout.layout = layout.layout._replace(offsets=offsets)
    return layout


def one_wave(layout):
    """A memory layout whose steps all run side by side."""
    layout.order.waves = [0] * len(layout.steps)
    return layout


FAULTS = {
    "ordered": [
        (lambda steps: steps[::-1], "a step reads '.*' before it is made"),
        (lambda steps: [*steps, steps[0]], "two steps make"),
        (lambda steps: steps[:-1], "no step makes"),
    ],
    "name_kernels": [(without_kernels, "no kernel is named 'kernel0'")],
    "lay_out": [
        (one_place, "live at the same time in one place"),
        (far_away, "beyond the end of the arena"),
        (one_wave, "the waves of a plan are not those of its steps"),
    ],
}
PLANTED = [(stage, *fault) for stage, faults in FAULTS.items() for fault in faults]


def through_the_pipeline(example):
    low = lowered(example)
    pipeline.plan(low, pipeline.emit(low), {})


@pytest.mark.parametrize(("stage", "spoil", "message"), PLANTED)
def test_a_planted_fault_is_found(stage, spoil, message, monkeypatch):
    example = PROGRAMS["scatter"]()
    monkeypatch.setenv("WEFT_VERIFY", "1")
    through_the_pipeline(example)
    monkeypatch.setattr(pipeline, stage, spoilt(stage, spoil))
    with pytest.raises(GraphError, match=message):
        through_the_pipeline(example)


@pytest.mark.parametrize("name", PROGRAMS)
def test_programs_pass_the_checks(name, monkeypatch):
    monkeypatch.setenv("WEFT_VERIFY", "1")
    with any_machine():
        through_the_pipeline(PROGRAMS[name]())


# -- the Loop IR says what runs


@pytest.mark.parametrize("name", PROGRAMS)
def test_printed_kernels_give_what_the_program_gives(name):
    example = PROGRAMS[name]()
    native = program(example)
    memory = run_steps(native, example.feeds, example.store)
    store = example.copies()
    outputs, changed = native.run_named(example.feeds, store)
    store |= changed
    graph = native.lowered.graph
    pairs = list(zip(graph.outputs, outputs, strict=True))
    for node in native.lowered.writes:
        pairs.append((node.inputs[0], store[node.params["variable"]]))
    assert pairs
    assert native.lowered.kernels
    for node, array in pairs:
        np.testing.assert_allclose(seen(node, memory), array, 2e-6, 1e-6)


# -- the documentation


def test_the_page_of_passes_has_all_of_them_in_order():
    page = (pathlib.Path(__file__).parents[2] / "docs" / "passes.md").read_text()
    listed = page.partition("| pass | does |")[2].partition("\n\n")[0]
    assert re.findall(r"^\| `(\w+)` \|", listed, re.M) == PASSES
    assert all(f"`{stage}`" in page for stage in pipeline.STAGES)
