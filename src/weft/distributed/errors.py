"""Errors of several processes, under the names of PyTorch's."""

from __future__ import annotations

from weft.errors import WeftError


class DistError(WeftError, RuntimeError):
    """An error of communication between processes."""


class DistBackendError(DistError):
    """Processes that call different things, or one that is gone, stopped or late."""


class DistNetworkError(DistError):
    """An address that cannot be reached, or a port that is in use."""


class DistStoreError(DistError):
    """Processes that do not find together."""


class RecoveryError(DistError):
    """Kept states that do not fit together, or of which too much is lost."""


class CheckpointError(DistError):
    """A checkpoint that cannot be written, or does not hold what is to be loaded."""


class ParameterServerError(DistError):
    """A server that refuses what it is asked, or has lost what it kept."""


class NotInitializedError(WeftError, ValueError, RuntimeError):
    """A question that only a process group can answer."""


for _one in (
    DistError, DistBackendError, DistNetworkError, DistStoreError, RecoveryError,
    CheckpointError, ParameterServerError,
):  # fmt: skip
    _one.__module__ = "weft.distributed"  # where users find them
