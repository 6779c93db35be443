"""Each operator that can be written gives its own results when the file is run."""

import contextlib

import numpy as np
import pytest
from onnx.reference import ReferenceEvaluator

import weft
import weft.graph  # their operators register themselves
import weft.nn
from weft.core.op import all_ops
from weft.onnx import ModelError
from weft.onnx.writing import load_all
from weft.onnx.writing.writer import RULES
from weft.testing import _close, _outputs, _samples, _tensors

load_all()
OPS = {op.name: op for op in all_ops()}
STRUCTURE = {"cond", "while_loop", "scan", "require", "renew", "detach", "alias"}
UNSIGNED = {"bitwise_left_shift", "bitwise_right_shift"}  # samples have signs
# ONNX's reference in Python cannot run these, or forgets an attribute.
REFERENCE_DIFFERS = {
    "conv_input_grad": "ConvTranspose in groups along one axis",
    "im2col": "Pad by numbers below 0",
    "max_pool_index": "MaxPool's places where windows have gaps",
}
OPSET = {"cumprod": 26}


def program(op, sample):
    """A function of a sample's arrays alone, and those arrays as tensors."""
    args = _tensors(sample, weft.float32)
    given = [a for a in args if isinstance(a, weft.Tensor)]

    def call(*tensors):
        found = iter(tensors)
        filled = [next(found) if isinstance(a, weft.Tensor) else a for a in args]
        return op(*filled, **sample.params)

    return call, given


def outcomes(name, limit=None):
    """Why each sample's file gives other results; nothing where it does not."""
    op = OPS[name]
    for sample in _samples(op)[:limit]:
        call, given = program(op, sample)
        if any(t.dtype.is_complex for t in given):
            continue
        with np.errstate(all="ignore"), weft.no_grad():
            want = [t.numpy() for t in _outputs(call(*given))]
        try:
            model = weft.onnx.export(call, tuple(given), opset=OPSET.get(name, 18))
        except ModelError as why:
            yield f"refused: {why}"
            continue
        names = [i.name for i in model.graph.input]
        feed = {n: np.array(t.numpy()) for n, t in zip(names, given, strict=True)}
        with weft.no_grad():
            mine = weft.onnx.load(model).run(
                {n: weft.from_numpy(a.copy()) for n, a in feed.items()}
            )
        runs = {"weft": [t.numpy() for t in mine]}
        if name not in REFERENCE_DIFFERS:
            with np.errstate(all="ignore"):
                runs["reference"] = ReferenceEvaluator(model).run(None, feed)
        with contextlib.suppress(ImportError):
            import onnxruntime

            options = onnxruntime.SessionOptions()
            options.log_severity_level = 4
            with contextlib.suppress(
                onnxruntime.capi.onnxruntime_pybind11_state.NotImplemented
            ):
                session = onnxruntime.InferenceSession(
                    model.SerializeToString(), options, ["CPUExecutionProvider"]
                )
                runs["onnxruntime"] = session.run(None, feed)
        for who, results in runs.items():
            for have, w in zip(results, want, strict=True):
                assert have.dtype == w.dtype, (who, have.dtype, w.dtype)
                _close(f"{name} by {who}", have, w, 2e-5)
        yield ""


@pytest.mark.parametrize(
    "name", sorted(RULES.keys() & OPS.keys() - STRUCTURE - UNSIGNED)
)
def test_rule(name):
    found = list(outcomes(name))
    assert "" in found
