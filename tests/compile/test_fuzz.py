"""Random programs agree eagerly, interpreted and compiled; mistakes do not survive.

``tools/fuzz.py`` runs as many as one likes, and shortens those that fail.
"""

import collections
import os

import pytest
from programs import draw
from three_ways import accepts, fit, judged

import weft.compile.frontend.specialization
import weft.compile.lower.values
from weft.compile.loop.ir import Const
from weft.compile.targets.cpu import kernel, object_code
from weft.core.lowering import View
from weft.core.op import find_op
from weft.graph.state_cells import Cell

BATCH = 20


@pytest.mark.parametrize("first", range(0, 100, BATCH))
def test_programs_agree(first):
    words = collections.Counter()
    for seed in range(first, first + BATCH):
        program, refused = draw(seed, fit)
        program, word, reason = judged(program)
        words[word] += 1
        assert word != "failed", f"{reason}\n{program}"
        if word == "agreed" and refused:
            assert not accepts(program, refused), f"{refused}\n{program}"
    assert words["agreed"] + words["sizes"] >= 0.8 * BATCH, words


def test_the_same_seed_is_the_same_program():
    assert draw(7, fit) == draw(7, fit)
    assert draw(7, fit) != draw(8, fit)


def test_programs_are_of_all_kinds():
    programs = [draw(seed, fit)[0] for seed in range(200)]
    assert {p.kind for p in programs} == {"forward", "inner", "outer", "step"}
    assert any(p.sizes for p in programs)
    assert any(g.layout != "plain" for p in programs for g in p.inputs)
    text = "\n".join(line for p in programs for line in p.lines)
    for part in (
        "softmax", "@", ".sum(", "weft.cat", "clone()", "_(", "] =", "weft.scan",
        "weft.cond", "weft.where", "permute", "expand", "flip", "gather", "conv1d",
        "rand", ".to(weft.", "no_grad", "layer_norm",
    ):  # fmt: skip
        assert part in text, part


# -- mistakes that are planted


def caught(seeds):
    """Whether one of some programs fails."""
    return any(judged(draw(seed, fit)[0])[1] == "failed" for seed in seeds)


def wrong_index(patch):
    """A reshaped tensor is read from its end."""
    op = find_op("reshape")
    right = op.lower.at

    def at(out, x_shape, *, shape):
        found = right(out, x_shape, shape=shape)
        return tuple(n - 1 - i for i, n in zip(found, x_shape, strict=True))

    patch.setattr(op, "lower", View(at))


def dropped_store(patch):
    """The second store of a kernel is forgotten."""
    right = kernel._Emitter._store
    seen = {}

    def store(self, stmt):
        seen[id(self)] = seen.get(id(self), 0) + 1
        if seen[id(self)] != 2:
            right(self, stmt)

    patch.setattr(kernel._Emitter, "_store", store)
    # another compiler, whose code is kept apart
    patch.setattr(
        object_code, "sources", lambda: f"dropped store {os.urandom(8).hex()}"
    )


def stale_constant(patch):
    """A variable is read once and for all."""
    kept = {}

    def get(self):
        return kept.setdefault(id(self), (self, self.tensor._data.copy()))[1]

    patch.setattr(Cell, "get", get)


def lost_write(patch):
    """Arguments changed in place stay as they were."""
    patch.setattr(weft.compile.frontend.specialization, "rewrite", lambda *args: None)


def wrong_start(patch):
    """Sums begin at one."""
    right = weft.compile.lower.values.identity

    def identity(combine, dtype):
        return Const(1, dtype) if combine == "add" else right(combine, dtype)

    patch.setattr(weft.compile.lower.values, "identity", identity)


def same_size_for_all(patch):
    """A compiled form is used for arguments of other sizes than its own."""
    patch.setattr(
        weft.compile.frontend.specialization.Specialization,
        "fits",
        lambda self, arrays: True,
    )


MISTAKES = (
    wrong_index, dropped_store, stale_constant, lost_write, wrong_start,
    same_size_for_all,
)  # fmt: skip


@pytest.mark.parametrize("mistake", MISTAKES, ids=lambda m: m.__name__)
def test_a_mistake_is_caught(mistake, monkeypatch, tmp_path):
    monkeypatch.setenv("WEFT_CACHE_DIR", str(tmp_path))  # code that is wrong stays here
    mistake(monkeypatch)
    assert caught(range(60)), mistake.__doc__
