"""Weft's layers give PyTorch's outputs, gradients and buffers.

The values were recorded by ``record_golden.py`` with PyTorch 2.13 in float64.
"""

import pathlib

import numpy as np
import pytest
from layer_cases import CASES

import weft
from weft import nn

PATH = pathlib.Path(__file__).parent.parent / "golden" / "layers.safetensors"


@pytest.fixture(scope="module")
def golden():
    by_case = {}
    for key, value in weft.load(PATH).items():
        name, kind, rest = key.split("|")
        by_case.setdefault(name, {}).setdefault(kind, {})[rest] = value
    return by_case


def flat(out):
    outs = out if isinstance(out, (tuple, list)) else [out]
    for o in outs:
        if isinstance(o, (tuple, list)):
            yield from flat(o)
        elif o is not None:
            yield o


def close(got, expected, what):
    np.testing.assert_allclose(
        got.detach().numpy(), expected.numpy(), rtol=1e-9, atol=1e-10, err_msg=what
    )


@pytest.mark.parametrize("name", CASES)
def test_layer(name, golden):
    case, kept = CASES[name], golden[name]
    seed = list(CASES).index(name)
    weft.set_default_dtype(weft.float64)
    try:
        module = case.build(nn).train(case.train)
    finally:
        weft.set_default_dtype(weft.float32)
    module.load_state_dict(kept.get("state", {}))
    inputs = [weft.tensor(a) for a in case.arrays(seed)]
    leaves = [x.requires_grad_() for x in inputs if x.dtype.is_floating_point]
    outs = [o for o in flat(module(*inputs)) if o.dtype.is_floating_point]
    assert len(outs) == len(kept["out"])
    for k, out in enumerate(outs):
        close(out, kept["out"][str(k)], f"output {k}")
    if not case.gradients:
        return
    rng = np.random.default_rng(seed + 1)
    total = sum((o * weft.tensor(rng.normal(size=o.shape))).sum() for o in outs)
    total.backward()
    for k, x in enumerate(leaves):
        if str(k) in kept.get("grad", {}):
            close(x.grad, kept["grad"][str(k)], f"gradient of input {k}")
    parameters = dict(module.named_parameters())
    for k, expected in kept.get("param", {}).items():
        close(parameters[k].grad, expected, f"gradient of {k}")
    buffers = dict(module.named_buffers())
    for k, expected in kept.get("after", {}).items():
        close(buffers[k], expected, f"buffer {k}")


def test_every_layer_has_a_case():
    used = set()
    for case in CASES.values():
        used |= {kind.__name__ for m in case.build(nn).modules() for kind in bases(m)}
    left = {name for name in nn.__all__ if name[0].isupper()} - used
    lazy = {name for name in left if name.startswith("Lazy")}
    # Lazy layers become plain ones; two names stand for Linear; the rest are no layers
    # or have their tests in test_more_layers.py.
    assert left - lazy == {
        "AdaptiveLogSoftmaxWithLoss", "Buffer", "CrossMapLRN2d",
        "DataParallel", "Dense", "FractionalMaxPool2d", "FractionalMaxPool3d",
        "LinearCrossEntropyLoss", "LinearCrossEntropyOptions", "NLLLoss2d",
        "Parameter", "SyncBatchNorm", "UninitializedBuffer", "UninitializedParameter",
    }  # fmt: skip


def bases(module):
    return type(module).__mro__
