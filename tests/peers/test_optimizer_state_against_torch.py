"""Optimizers step as PyTorch's do, and load one another's state."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import weft

torch = pytest.importorskip(
    "torch", reason="compares with PyTorch, which is not installed"
)

OPTIONS: dict[str, dict[str, Any]] = {
    "SGD": {"lr": 0.1, "momentum": 0.9, "dampening": 0.3}, "Adam": {"amsgrad": True},
    "AdamW": {}, "Rprop": {}, "ASGD": {"t0": 2}, "Adafactor": {"lr": 0.3}, "Muon": {},
    "RMSprop": {"momentum": 0.5}, "Adagrad": {}, "Adadelta": {}, "NAdam": {},
    "RAdam": {}, "Adamax": {},
}  # fmt: skip


def converted(state: Any, kind: Any, to: Any) -> Any:
    if isinstance(state, dict):
        return {k: converted(v, kind, to) for k, v in state.items()}
    return to(state.detach().numpy().copy()) if isinstance(state, kind) else state


@pytest.mark.parametrize("name", OPTIONS)
def test_steps_and_states(name: str) -> None:
    rng = np.random.default_rng(0)
    first = rng.standard_normal((3, 4)).astype("f")
    theirs = torch.nn.Parameter(torch.tensor(first.copy()))
    ours = weft.nn.Parameter(weft.tensor(first.copy()))

    def made(package: Any, p: Any) -> Any:
        return getattr(package.optim, name)([p], **OPTIONS[name])

    def step(a: Any, b: Any) -> None:
        for _ in range(3):
            g = rng.standard_normal((3, 4)).astype("f")
            theirs.grad, ours.grad = torch.tensor(g), weft.tensor(g)
            a.step()
            b.step()
        off = np.abs(theirs.detach().numpy() - ours.detach().numpy()).max()
        assert off < (2e-3 if name == "Muon" else 2e-6)  # Muon computes in bfloat16

    a, b = made(torch, theirs), made(weft, ours)
    step(a, b)
    b = made(weft, ours)
    b.load_state_dict(converted(a.state_dict(), torch.Tensor, weft.tensor))
    step(a, b)
    a = made(torch, theirs)
    a.load_state_dict(converted(b.state_dict(), weft.Tensor, torch.tensor))
    step(a, b)
