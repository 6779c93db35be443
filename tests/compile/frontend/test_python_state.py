"""Every kind of Python state is followed by compiled functions, or refused."""

import pytest
from fast_path import slowly_then_again
from python_state import TRIALS, tried

from weft.compile.frontend.function import CompiledFunction


@pytest.fixture(autouse=True)
def soon(monkeypatch):
    """The fast path of later calls is there from the second call on."""
    monkeypatch.setattr(CompiledFunction, "_slowly", slowly_then_again)


@pytest.mark.parametrize("name", TRIALS)
def test_state(name):
    word, (eager, compiled) = tried(name)
    assert word != "missed", f"eagerly {eager}\ncompiled {compiled}"
    if name.startswith("handle"):
        assert word == "refused"
    assert not str(eager[0]).endswith("Error"), eager


def test_the_catalogue_has_200_kinds():
    assert len(TRIALS) >= 200
