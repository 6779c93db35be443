"""The same layers, losses and models, with only the import changed.

Each case of ``tests/support/layer_cases.py`` runs live under the installed PyTorch and
under Weft: outputs, gradients of inputs and parameters, and buffers must agree.
"""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("torch", reason="compares with PyTorch, which is not installed")

import torch
from layer_cases import CASES, Case

import weft

# A unit in the last place of float64, times the length of the longest sums.
RTOL, ATOL = 1e-9, 1e-11


class Framework:
    """What differs between the two: the import."""

    def __init__(self, module):
        self.module, self.nn, self.tensor = module, module.nn, module.tensor

    def build(self, case: Case):
        self.module.set_default_dtype(self.module.float64)
        try:
            return case.build(self.nn).train(case.train)
        finally:
            self.module.set_default_dtype(self.module.float32)

    def floating(self, x):
        return x.is_floating_point()


OURS, THEIRS = Framework(weft), Framework(torch)


def flat(out):
    for o in out if isinstance(out, (tuple, list)) else [out]:
        if isinstance(o, (tuple, list)):
            yield from flat(o)
        elif o is not None:
            yield o


def arrays(tensors: dict) -> dict[str, np.ndarray]:
    return {k: v.detach().numpy() for k, v in tensors.items() if v is not None}


def run(framework: Framework, module, case: Case, seed: int) -> dict:
    """Everything that a case gives, as named arrays."""
    inputs = [framework.tensor(a) for a in case.arrays(seed)]
    leaves = [x.requires_grad_() for x in inputs if framework.floating(x)]
    outs = [o for o in flat(module(*inputs)) if framework.floating(o)]
    found = {"output": arrays(dict(enumerate(outs)))}
    if case.gradients:
        rng = np.random.default_rng(seed + 1)
        weights = [framework.tensor(rng.normal(size=tuple(o.shape))) for o in outs]
        sum((o * w).sum() for o, w in zip(outs, weights, strict=True)).backward()
        found["gradient of input"] = arrays({k: x.grad for k, x in enumerate(leaves)})
        named = module.named_parameters()
        found["gradient of"] = arrays({k: p.grad for k, p in named})
    found["buffer"] = arrays(dict(module.named_buffers()))
    return found


@pytest.mark.parametrize("name", CASES)
@pytest.mark.filterwarnings("ignore:enable_nested_tensor")  # PyTorch's own advice
def test_layer(name):
    case, seed = CASES[name], list(CASES).index(name)
    torch.manual_seed(seed)
    theirs, ours = THEIRS.build(case), OURS.build(case)
    state = theirs.state_dict()
    ours.load_state_dict({k: weft.tensor(v.numpy()) for k, v in state.items()})
    expected = run(THEIRS, theirs, case, seed)
    got = run(OURS, ours, case, seed)
    for kind, values in expected.items():
        assert list(got[kind]) == list(values), kind
        for key, value in values.items():
            assert got[kind][key].dtype == value.dtype, (kind, key)
            np.testing.assert_allclose(
                got[kind][key], value, RTOL, ATOL, err_msg=f"{kind} {key}"
            )


def test_there_are_enough_cases():
    assert len(CASES) >= 150
