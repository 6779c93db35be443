"""Settings of the library, which a captured function must leave as they were.

What a function computes under a setting that it changes and puts back is part of its
program. A setting that stays changed would be changed by the capture alone.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from weft.config import config
from weft.core.device import set_default_device
from weft.core.mode import mode, set_autocast, set_gradients
from weft.dtype import default_dtype, set_default_dtype
from weft.graph.symbol import refusal
from weft.printing import OPTIONS
from weft.runtime.cpu.pool import get_num_threads, set_num_threads


def _settings() -> dict[str, Any]:
    """All settings by the words that name them in an error."""
    return {
        "whether gradients are recorded": (
            mode.recording, mode.forward, mode.inference,
        ),
        "the default dtype": default_dtype(),
        "the default device": mode.device,
        "the dtypes of autocast": mode.autocast,
        "detect_anomaly": mode.anomaly,
        "the number of threads": get_num_threads(),
        "the print options": dict(vars(OPTIONS)),
        "weft.config": {name: getattr(config, name) for name in _CONFIG},
    }  # fmt: skip


_CONFIG = (
    "batch_invariant", "eager_kernels", "loop_limit", "matmul_precision", "strict_ieee",
)  # fmt: skip


def _put_back(before: dict[str, Any]) -> None:
    set_gradients(*before["whether gradients are recorded"])
    set_default_dtype(before["the default dtype"])
    set_default_device(before["the default device"])
    set_autocast(before["the dtypes of autocast"])
    if mode.anomaly != before["detect_anomaly"]:
        from weft.autograd.anomaly import switch_anomaly

        switch_anomaly(before["detect_anomaly"])
    set_num_threads(before["the number of threads"])
    vars(OPTIONS).clear()
    vars(OPTIONS).update(before["the print options"])
    for name, value in before["weft.config"].items():
        setattr(config, name, value)


@contextmanager
def kept_settings() -> Iterator[None]:
    """Refuse what leaves a setting changed; the settings are put back in any case."""
    before = _settings()
    changed = []
    try:
        yield
    finally:
        now = _settings()
        changed = [name for name in before if now[name] != before[name]]
        if changed:
            _put_back(before)
    if changed:
        raise refusal(
            f"capture: the function changes {' and '.join(changed)}, and leaves it so. "
            "Later calls would not do that; change it outside, or for a block"
        )
