"""Broken ONNX files: each is loaded and run, or refused with an error of Weft's own.

python tools/onnx_fuzz.py [--count 100000] [--seed 0]

Some small models are changed, in their bytes or field by field. Anything but results
or a ``WeftError`` is a failure: other exceptions, more than some seconds, more memory
than the limit, a crash. A model with a loop may run for as long as it says.
"""

from __future__ import annotations

import argparse
import collections
import contextlib
import random
import resource
import signal
import sys
import traceback
import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
from onnx import ModelProto, helper, numpy_helper
from onnx.parser import parse_model

import weft
from weft.errors import WeftError
from weft.onnx.operators import load_all
from weft.onnx.registry import TABLE

load_all()
OPERATORS = sorted({name for _, name in TABLE})
SECONDS, MEMORY = 10, 8 << 30
HEAD = '<ir_version: 9, opset_import: ["" : 18, "own" : 1]>\n'
OWN = '\n<opset_import: ["" : 18], domain: "own">\n'
TEXTS = {
    "mlp": "g (float[N, 4] x) => (float[N, 2] y) {"
    " h = Gemm <transB = 1> (x, w, b) a = Relu(h) y = MatMul(a, v) }",
    "image": "g (float[1, 2, 6, 6] x) => (float[1, 2, 4, 4] y) <float[4] s = {1., 1.,"
    " 2., 2.}> { p = MaxPool <kernel_shape = [2, 2], strides = [2, 2]> (x)"
    " n = BatchNormalization (p, c, c, c, c) r = Resize <mode = \"linear\"> (n, , s)"
    " y = AveragePool <kernel_shape = [3, 3]> (r) }",
    "sizes": "g (float[N, 6] x) => (float[M, K] y) <int64 zero = {0}, int64[1] last ="
    " {-1}> { s = Shape(x) n = Gather(s, zero) a = Constant <value_ints = [0]> ()"
    " m = Unsqueeze(n, a) t = Concat <axis = 0> (m, last) r = Reshape(x, t)"
    " p = Slice(r, a, m) e = Expand(p, s) y = Tile(e, s) }",
    "branches": "g (float[3] x) => (float[3] y, float[3] z) <float ten = {10.0}> {"
    " s = ReduceSum <keepdims = 0> (x) big = Greater(s, ten)"
    " y = If (big) <then_branch = t () => (float[3] a) { a = Neg(x) },"
    " else_branch = e () => (float[3] b) { b = Add(x, ten) }>"
    " n = Constant <value_int = 3> () go = Constant <value = bool {1}> ()"
    " z = Loop (n, go, x) <body = b (int64 i, bool c, float[3] v) =>"
    " (bool d, float[3] w) { d = Identity(c) w = Add(v, v) }> }",
    "function": "g (float[N] x) => (float[N] y) { y = own.scaled <by = 3.0> (x) }" + OWN
    + "scaled <by> (v) => (w) { k = Constant <value_float: float = @by> ()"
    " w = Mul(v, k) }",
    "quantized": "g (float[2, 3] x) => (float[2, 3] y) <float s = {0.1}, uint8 z = {7}>"
    " { q = QuantizeLinear(x, s, z) m = QLinearMatMul(q, s, z, u, s, z, s, z)"
    " y = DequantizeLinear(m, s, z) }",
    "recurrent": "g (float[3, 1, 2] x) => (float[3, 1, 1, 2] y) {"
    " y = LSTM <hidden_size = 2> (x, lw, lr) }",
    "sequence": "g (float[4] x) => (float[4] y) { q = SplitToSequence <axis = 0> (x)"
    " i = Constant <value_int = 1> () a = SequenceAt(q, i) o = SequenceErase(q, i)"
    " r = SequenceInsert(o, a) y = ConcatFromSequence <axis = 0> (r) }",
}  # fmt: skip
WEIGHTS = {"w": (3, 4), "b": (3,), "v": (3, 2), "c": (2,), "lw": (1, 8, 2),
           "lr": (1, 8, 2), "u": (3, 3)}  # fmt: skip


def models() -> dict[str, ModelProto]:
    """The models before they are changed."""
    found = {}
    for name, text in TEXTS.items():
        model = parse_model(HEAD + text)
        used = {i for node in model.graph.node for i in node.input}
        for key in sorted(used & WEIGHTS.keys()):
            kind = np.uint8 if key == "u" else np.float32
            array = np.arange(1, 1 + np.prod(WEIGHTS[key])).reshape(WEIGHTS[key])
            model.graph.initializer.append(
                numpy_helper.from_array(array.astype(kind), key)
            )
        found[name] = model
    return found


# -- changes

NUMBERS = [0, 1, -1, 2, 3, 7, 8, 16, 99, 255, 1 << 20, 1 << 31, (1 << 40), -(1 << 40),
           (1 << 62), (1 << 63) - 1, -(1 << 63)]  # fmt: skip
FLOATS = [0.0, -1.0, 0.5, 1e-30, 1e30, float("inf"), float("nan")]


def in_bytes(content: bytes, rng: random.Random) -> bytes:
    """Bytes changed, taken out, put in, or cut off."""
    data = bytearray(content)
    for _ in range(rng.choice((1, 1, 2, 4))):
        at = rng.randrange(len(data) or 1)
        kind = rng.randrange(5)
        if kind == 0:
            data[at : at + 1] = bytes([rng.randrange(256)])
        elif kind == 1:
            del data[at : at + rng.choice((1, 2, 8, 64))]
        elif kind == 2:
            data[at:at] = bytes(rng.randrange(256) for _ in range(rng.randrange(1, 6)))
        elif kind == 3:
            other = rng.randrange(len(data) or 1)
            data[at:at] = data[other : other + rng.randrange(1, 40)]
        elif rng.random() < 0.2:
            del data[at:]
        else:
            data[at : at + 1] = bytes(
                [data[at] ^ (1 << rng.randrange(8))] if data else []
            )
    return bytes(data)


def messages(message: Any) -> Iterator[Any]:
    """A message and all those in it."""
    yield message
    for field, value in message.ListFields():
        if field.message_type is None:
            continue
        inner = [value] if hasattr(value, "ListFields") else value
        for one in inner:
            yield from messages(one)


def in_fields(content: bytes, rng: random.Random) -> bytes:
    """Fields of some messages changed, repeated, exchanged or taken out."""
    model = ModelProto.FromString(content)
    for _ in range(rng.choice((1, 1, 2, 3))):
        every = list(messages(model))  # anew: changes take messages away
        message = rng.choice(every)
        fields = message.ListFields()
        if not fields:
            continue
        field, value = rng.choice(fields)
        with contextlib.suppress(TypeError, ValueError, AttributeError):
            changed(message, field, value, every, rng)
    return model.SerializeToString()


def changed(
    message: Any, field: Any, value: Any, every: list[Any], rng: random.Random
) -> None:
    repeated = hasattr(value, "extend")
    if rng.random() < 0.15:
        message.ClearField(field.name)
    elif repeated and rng.random() < 0.5:
        kind = rng.randrange(3)
        at = rng.randrange(len(value))
        if kind == 0:
            del value[at]
        elif kind == 1:
            value.append(value[at])
        else:
            rest = list(value)
            rng.shuffle(rest)
            del value[:]
            value.extend(rest)
    elif field.message_type is None:
        new = fresh(field, value, every, rng)
        if repeated:
            value[rng.randrange(len(value))] = new
        else:
            setattr(message, field.name, new)
    elif not repeated:
        twins = [m for m in every if type(m) is type(value)]
        twin = rng.choice(twins).SerializeToString()
        value.ParseFromString(twin)


def fresh(field: Any, value: Any, every: list[Any], rng: random.Random) -> Any:
    kind = field.cpp_type
    if kind in (field.CPPTYPE_FLOAT, field.CPPTYPE_DOUBLE):
        return rng.choice(FLOATS)
    if kind == field.CPPTYPE_STRING:
        if field.type == field.TYPE_BYTES:
            return rng.choice((b"", b"\xff" * 3, b"linear", b"0" * 100))
        names = [m.op_type for m in every if hasattr(m, "op_type")]
        names += [o for m in every if hasattr(m, "op_type") for o in m.output]
        return rng.choice([*names, "", "x", "y", *OPERATORS])
    return rng.choice(NUMBERS)


# -- trying


class Late(BaseException):
    """More than the seconds that a model may take."""


def _late(*given: Any) -> None:
    raise Late


def given_to(model: Any) -> list[Any]:
    """Arguments of the shapes that the model declares, small where they are open."""
    found = []
    for name in model.input_names:
        kind = model._inputs[name].tensor_type
        shape = [d.dim_value if 0 < d.dim_value < 9 else 2 for d in kind.shape.dim]
        dtype = helper.tensor_dtype_to_np_dtype(kind.elem_type or 1)
        found.append(np.ones(shape, dtype))
    return found


def attempt(content: bytes) -> str:
    """What became of a file: ran, refused, or a failure with its text."""
    signal.signal(signal.SIGPROF, _late)
    signal.setitimer(signal.ITIMER_PROF, SECONDS)
    loops = False
    try:
        model = weft.onnx.load(content)
        text = repr(model._program.steps)
        loops = "Loop" in text or "Scan" in text
        with weft.no_grad():
            model(*given_to(model))
        return "ran"
    except WeftError:
        return "refused"
    except Late:
        return "long loops" if loops else "failure: it takes too long"
    except BaseException as error:
        if given_fault(error):
            return "no arguments"
        return f"failure: {traceback.format_exc(limit=-4)}"
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)


def given_fault(error: BaseException) -> bool:
    """Whether the fault is in making the arguments here."""
    frames = traceback.extract_tb(error.__traceback__)
    return any(frame.name == "given_to" for frame in frames)


def run(
    count: int, seed: int, show: bool = False
) -> tuple[collections.Counter[str], list[str]]:
    """Try some changed models; gives counts of outcomes, and failures."""
    rng = random.Random(seed)
    contents = [m.SerializeToString() for m in models().values()]
    counts: collections.Counter[str] = collections.Counter()
    failures = []
    for k in range(count):
        change = in_bytes if rng.random() < 0.5 else in_fields
        content = change(rng.choice(contents), rng)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            outcome = attempt(content)
        counts[outcome.partition(":")[0]] += 1
        if outcome.startswith("failure"):
            failures.append(outcome)
            if show:
                print(k, outcome, flush=True)
        if show and k % 5000 == 4999:
            print(k + 1, dict(counts), flush=True)
    return counts, failures


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    counts, failures = run(options.count, options.seed, show=True)
    print(dict(counts))
    sys.exit(bool(failures))


if __name__ == "__main__":
    main()
