"""The fast path of later calls, from the second call on: for tests of what it sees."""

from weft.compile.frontend.fast_path import fast_path_of
from weft.compile.frontend.function import CompiledFunction


def slowly_then_again(self, exact, args, kwargs, usual=CompiledFunction._slowly):
    """A call by the usual way, after which the fast path is there."""
    found = usual(self, exact, args, kwargs)
    if exact is not None and self.latest is not None:
        self._fast_path = fast_path_of(self.latest, args, exact[1])
    return found
