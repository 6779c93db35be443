"""A small model here, a large one elsewhere: the remote is asked where it is unsure."""

from __future__ import annotations

import http.client
import threading
import time
import urllib.parse
from collections.abc import Callable, Sequence

import numpy as np

from weft.errors import ArgumentError
from weft.serve.program import Field
from weft.serve.wire import RAW, arrays_of_raw, to_raw

LIMIT = 256 << 20  # bytes of an answer
Arrays = Sequence[np.ndarray]


class RemoteFailed(Exception):
    """The remote gave no answer, or one that does not fit."""


def confidence(outputs: Arrays) -> np.ndarray:
    """For each row, the probability of its likeliest class; the first output is logits.

    >>> confidence([np.log([[0.9, 0.1], [0.5, 0.5]])]).round(3)
    array([0.9, 0.5])
    """
    logits = np.asarray(outputs[0], np.float64)
    logits = logits.reshape(len(logits), -1)
    shares = np.exp(logits - logits.max(1, keepdims=True))
    return 1 / shares.sum(1)


class Remote:
    """Another server's ``/v1/predict``, left alone for a while after a failure."""

    def __init__(self, url: str, *, timeout: float = 2.0, rest: float = 5.0) -> None:
        parts = urllib.parse.urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ArgumentError(
                f"serve: the remote must be http://host:port or https://…, got {url!r}"
            )
        self.parts, self.timeout, self.rest = parts, timeout, rest
        self.until = 0.0
        self.lock = threading.Lock()

    @property
    def resting(self) -> bool:
        return time.monotonic() < self.until

    def __call__(
        self, arrays: Arrays, inputs: Sequence[Field], outputs: Sequence[Field]
    ) -> list[np.ndarray]:
        if self.resting:
            raise RemoteFailed("the remote failed a moment ago")
        try:
            return self._ask(arrays, inputs, outputs)
        except (
            OSError,
            http.client.HTTPException,
            ArgumentError,
            RemoteFailed,
        ) as error:
            with self.lock:
                self.until = time.monotonic() + self.rest
            raise RemoteFailed(str(error) or type(error).__name__) from None

    def _ask(
        self, arrays: Arrays, inputs: Sequence[Field], outputs: Sequence[Field]
    ) -> list[np.ndarray]:
        secure = self.parts.scheme == "https"
        kind = http.client.HTTPSConnection if secure else http.client.HTTPConnection
        assert self.parts.hostname is not None
        link = kind(self.parts.hostname, self.parts.port, timeout=self.timeout)
        deadline = time.monotonic() + self.timeout
        try:
            path = f"{self.parts.path.rstrip('/')}/v1/predict"
            headers = {"Content-Type": RAW, "Accept": RAW}
            link.request("POST", path, to_raw(arrays, inputs), headers)
            answer = link.getresponse()
            if answer.status != 200:
                raise RemoteFailed(f"the remote answered {answer.status}")
            body = bytearray()
            while piece := answer.read1(1 << 20):
                body += piece
                if len(body) > LIMIT or time.monotonic() > deadline:
                    raise RemoteFailed("the remote's answer is too long or too late")
        finally:
            link.close()
        return arrays_of_raw(bytes(body), outputs)


class Cascade:
    """Rows of which the local model is surer than ``threshold`` are its own answers."""

    def __init__(
        self,
        remote: Remote,
        threshold: float,
        sure: Callable[[Arrays], np.ndarray] = confidence,
    ) -> None:
        if not 0 <= threshold <= 1:
            raise ArgumentError(
                f"serve: the threshold must be from 0 to 1, got {threshold}"
            )
        self.remote, self.threshold, self.sure = remote, threshold, sure

    def unsure(self, outputs: Arrays) -> np.ndarray:
        """The rows that the remote is to answer."""
        sure = self.sure(outputs)
        return np.flatnonzero(~(sure >= self.threshold))
