"""Kernels whose bounds were proven before, by this compiler.

A proof takes longer than all else that lowering does. Proven kernels are remembered on
disk beside their code, and as safely; another version of the compiler proves anew.
"""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Callable

from weft.compile.program.compiler_version import sources
from weft.runtime.cpu import kernel_cache

_MOST = 8192  # kernels that are remembered
_LENGTH = 16  # bytes of each one's digest


class Proofs:
    """The kernels that are known to stay in bounds, by all of their text.

    >>> from weft.compile.loop.proof_cache import Proofs
    >>> proofs = Proofs()
    >>> proofs.check("some kernel", lambda: print("proven"))
    proven
    >>> proofs.check("some kernel", lambda: print("proven"))
    """

    def __init__(self) -> None:
        self._known: dict[bytes, None] = {}
        self._new = False
        self._lock = threading.Lock()

    def check(self, text: str, prove: Callable[[], None]) -> None:
        """Verify a kernel, unless that was done before; an error is the verifier's."""
        digest = hashlib.sha256(text.encode()).digest()[:_LENGTH]
        if digest not in self._known:
            prove()
            with self._lock:
                self._known[digest] = None
                self._new = True

    def load(self) -> None:
        """Load the proofs of other processes."""
        data = kernel_cache.default().find(_key()) or b""
        found = [data[k : k + _LENGTH] for k in range(0, len(data), _LENGTH)]
        with self._lock:
            self._known = {**dict.fromkeys(found), **self._known}

    def save(self) -> None:
        """Save them for other processes, if there are new ones."""
        with self._lock:
            if not self._new:
                return
            self._new = False
            last = list(self._known)[-_MOST:]
        kernel_cache.default().put(_key(), b"".join(last))


def _key() -> str:
    return kernel_cache.key_of(f"proofs {sources()}", "any")
