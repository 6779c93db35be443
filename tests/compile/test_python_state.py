"""Every kind of Python state is followed by compiled functions, or refused."""

import pytest
from python_state import TRIALS, tried

from weft.compile.again import lane_of
from weft.compile.api import CompiledFunction


@pytest.fixture(autouse=True)
def soon(monkeypatch):
    """The fast path of later calls is there from the second call on."""

    def slowly(self, exact, args, kwargs, usual=CompiledFunction._slowly):
        found = usual(self, exact, args, kwargs)
        if exact is not None and self.latest is not None:
            self._lane = lane_of(self.latest, args, exact[1])
        return found

    monkeypatch.setattr(CompiledFunction, "_slowly", slowly)


@pytest.mark.parametrize("name", TRIALS)
def test_state(name):
    word, (eager, compiled) = tried(name)
    assert word != "missed", f"eagerly {eager}\ncompiled {compiled}"
    if name.startswith("handle"):
        assert word == "refused"
    assert not str(eager[0]).endswith("Error"), eager


def test_the_catalogue_has_200_kinds():
    assert len(TRIALS) >= 200
