"""ONNX's own tests of operators on Weft: how many pass, and why others do not.

python tools/onnx_backend.py [--peer] [--show] [NAME ...]
"""

from __future__ import annotations

import argparse
import time
import warnings
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

# Element types that Weft has no tensors of: strings, and those narrower than a byte or
# floats of eight bits.
OTHER_TYPES = {8: "strings"} | dict.fromkeys((*range(17, 27),), "narrow types")
EXCEPTIONS = {
    "test_attention_4d_causal_fp16": "rounds less often in float16",
    "test_attention_4d_causal_fp16_expanded": "rounds less often in float16",
    "test_basic_deform_conv_with_padding": "2e-7 where a sum is 0",
    "test_bernoulli": "random numbers are Weft's",
    "test_bernoulli_double": "random numbers are Weft's",
    "test_bernoulli_double_expanded": "random numbers are Weft's",
    "test_bernoulli_expanded": "random numbers are Weft's",
    "test_bernoulli_seed": "random numbers are Weft's",
    "test_bernoulli_seed_expanded": "random numbers are Weft's",
    "test_dft_inverse": "1e-15 where float32's transform leaves 2e-7",
    "test_dft_inverse_opset19": "1e-15 where float32's transform leaves 2e-7",
    "test_gradient_of_add": "Gradient is not known; modules have gradients",
    "test_gradient_of_add_and_mul": "Gradient is not known; modules have gradients",
    "test_training_dropout": "random numbers are Weft's",
    "test_training_dropout_default": "random numbers are Weft's",
    "test_training_dropout_default_mask": "random numbers are Weft's",
    "test_training_dropout_mask": "random numbers are Weft's",
}


def cases() -> list[Any]:
    """All tests of single operators, with their models and data."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from onnx.backend.test.case.node import collect_testcases

        return collect_testcases(None)


class Stored(NamedTuple):
    """A test of the onnx package's own files."""

    name: str
    model: Any
    data_sets: list[Any]
    rtol: float
    atol: float


def stored() -> Iterator[Stored]:
    """Tests of whole models: simple ones, and those that PyTorch once wrote."""
    import onnx
    from onnx.backend.test.loader import load_model_tests

    for kind in ("simple", "pytorch-converted", "pytorch-operator"):
        for test in load_model_tests(kind=kind):
            model = onnx.load(f"{test.model_dir}/model.onnx")
            sets = []
            for folder in sorted(Path(test.model_dir).glob("test_data_set*")):
                inputs = _values(folder, "input", model.graph.input)
                sets.append((inputs, _values(folder, "output", model.graph.output)))
            yield Stored(test.name, model, sets, test.rtol, test.atol)


def _values(folder: Path, kind: str, infos: Any) -> list[Any]:
    import onnx

    found = []
    for k in range(len(list(folder.glob(f"{kind}_*.pb")))):
        content = (folder / f"{kind}_{k}.pb").read_bytes()
        if infos[k].type.HasField("sequence_type"):
            found.append(
                onnx.numpy_helper.to_list(onnx.SequenceProto.FromString(content))
            )
        else:
            found.append(plain(onnx.TensorProto.FromString(content)))
    return found


def outside(case: Any) -> str:
    """Why a test is not one of float, integer and boolean tensors; or nothing."""
    graph = case.model.graph
    if any(node.op_type == "ImageDecoder" for node in graph.node):
        return "files of images"
    kinds = [t.data_type for t in graph.initializer]
    for value in (*graph.input, *graph.output):
        kinds += _types(value.type)
    for node in graph.node:
        for attribute in node.attribute:
            kinds.append(attribute.t.data_type)
            kinds += [8] * bool(attribute.strings and node.op_type == "LabelEncoder")
    return next((OTHER_TYPES[k] for k in kinds if k in OTHER_TYPES), "")


def _types(type: Any) -> Iterator[int]:
    kind = type.WhichOneof("value")
    if kind == "tensor_type":
        yield type.tensor_type.elem_type
    elif kind is not None:
        yield from _types(getattr(type, kind).elem_type)


def run(case: Any, prepare: Any) -> str:
    """Why a test fails; nothing if it passes."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            rep = prepare(case.model)
            for inputs, outputs in case.data_sets:
                found = rep.run([plain(x) for x in inputs])
                compare([plain(y) for y in outputs], found, case.rtol, case.atol)
    except Exception as error:
        return f"{type(error).__name__}: {str(error).strip()[:300]}"
    return ""


def plain(value: Any) -> Any:
    """A value as an array."""
    from onnx import TensorProto, numpy_helper

    return numpy_helper.to_array(value) if isinstance(value, TensorProto) else value


def compare(wanted: Any, found: Any, rtol: float, atol: float) -> None:
    """Refuse results that are not the expected ones, as ONNX's runner does."""
    assert len(wanted) == len(found), f"{len(found)} results, not {len(wanted)}"
    for want, have in zip(wanted, found, strict=True):
        if isinstance(want, (list, tuple)):
            compare(want, have, rtol, atol)
            continue
        want, have = np.asarray(want), np.asarray(have)
        assert want.dtype == have.dtype, f"{have.dtype}, not {want.dtype}"
        assert want.shape == have.shape, f"shape {have.shape}, not {want.shape}"
        near = rtol
        if want.dtype.name == "bfloat16":  # ONNX's runner allows two units here
            near = max(rtol, 2**-6)
            want, have = want.astype(np.float32), have.astype(np.float32)
        np.testing.assert_allclose(have, want, rtol=near, atol=atol)


def peer() -> Any:
    """onnxruntime as a backend."""
    import onnxruntime

    class Session:
        def __init__(self, model: Any) -> None:
            options = onnxruntime.SessionOptions()
            options.log_severity_level = 4
            self.session = onnxruntime.InferenceSession(
                model.SerializeToString(), options, ["CPUExecutionProvider"]
            )

        def run(self, inputs: Any) -> Any:
            names = [i.name for i in self.session.get_inputs()]
            given = {n: x for n, x in zip(names, inputs, strict=False) if x is not None}
            return self.session.run(None, given)

    return Session


def report(name: str, found: list[Any], prepare: Any) -> dict[str, str]:
    """Print how many tests pass; gives the reasons of the others."""
    start = time.perf_counter()
    reasons = {case.name: run(case, prepare) for case in found}
    took = time.perf_counter() - start
    mine = [case.name for case in found if not outside(case)]
    good = sum(not reasons[n] for n in mine)
    every = sum(not why for why in reasons.values())
    print(
        f"{name}: {good} of {len(mine)} tests of float, integer and boolean tensors "
        f"pass ({good / max(len(mine), 1):.1%}); of all, {every} of {len(found)} "
        f"({took:.1f} s)"
    )
    return reasons


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--peer", action="store_true", help="onnxruntime, too")
    parser.add_argument("--show", action="store_true", help="the reason of each")
    parser.add_argument("names", nargs="*")
    options = parser.parse_args()
    from weft.onnx import backend

    found = [c for c in cases() if not options.names or c.name in options.names]
    reasons = report("weft", found, backend.prepare)
    if options.show:
        for name, why in sorted(reasons.items()):
            if why:
                print(f"  {name}: {why.splitlines()[0]}")
    whole = list(stored())
    report("weft, whole models", whole, backend.prepare)
    print(" ", dict(Counter(filter(None, map(outside, found + whole)))), "are outside")
    if options.peer:
        report("onnxruntime", found, peer())
        report("onnxruntime, whole models", whole, peer())


if __name__ == "__main__":
    main()
