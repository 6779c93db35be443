"""Quantised models: what they lose, how small and how fast they are.

    python benchmarks/quantization.py [accuracy] [speed] [--data ../shared/data]

Accuracy: LeNet on MNIST, a CNN on the digits that come with Weft, a small ResNet on
MNIST and a GPT over characters are trained and quantised in each way; files are those
of ``weft.save``. Speed: layers of one size, compiled, beside float32 and beside
ONNX Runtime's int8, if it is there; best of runs in turn. Files of MNIST and a text are
in the folder of ``--data``; without them, only the digits are trained.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from collections.abc import Callable
from typing import Any

import numpy as np

import weft
from weft import nn
from weft.ops.quantized import weight_only_matmul_op
from weft.quantization.numbers import grouped, symmetric

RNG = np.random.default_rng(0)
F = nn.functional

# -- accuracy


def trained(
    net: Any, batches: Callable[[], Any], steps: int, rate: float, compile: bool = True
) -> Any:
    """A network after some steps of AdamW, in eval mode."""
    optimizer = weft.optim.AdamW(net.parameters(), lr=rate)
    schedule = weft.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)

    def step(x: Any, y: Any) -> Any:
        optimizer.zero_grad()
        out = net(x)
        loss = F.cross_entropy(out.reshape(-1, out.shape[-1]), y.reshape(-1))
        loss.backward()
        optimizer.step()
        return loss

    run = weft.compile(step) if compile else step
    for _ in range(steps):
        run(*batches())
        schedule.step()
    return net.eval()


def sampler(x: Any, y: Any, size: int) -> Callable[[], Any]:
    def batch() -> Any:
        at = weft.tensor(RNG.integers(0, len(x), size))
        return x[at], y[at]

    return batch


def size_of(model: Any) -> int:
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "model.safetensors")
        weft.save(model.state_dict(), path)
        return os.path.getsize(path)


def score(net: Any, batches: Any, loss: bool) -> float:
    """Accuracy in percent, or the mean loss."""
    run, total, count = weft.compile(net), 0.0, 0
    with weft.no_grad():
        for x, y in batches:
            out = run(x)
            out = out.reshape(-1, out.shape[-1])
            wanted = y.reshape(-1)
            if loss:
                total += float(F.cross_entropy(out, wanted)) * len(out)
            else:
                total += float((out.argmax(1) == wanted).sum())
            count += len(out)
    return total / count * (1 if loss else 100)


WAYS: dict[str, dict[str, Any]] = {
    "int8 static": {},
    "int8 percentile": {"observer": "percentile"},
    "int8 entropy": {"observer": "entropy"},
    "int8 dynamic": {"dynamic": True},
    "int8 weights": {"weight_only": True},
    "int4 weights": {"to": "int4", "weight_only": True},
}


def compare(
    name: str, net: Any, calibration: Any, test: Any, loss: bool = False
) -> None:
    before, nbytes = score(net, test, loss), size_of(net)
    unit = "loss" if loss else "%"
    print(f"{name}: float32 {before:.4f} {unit}, {nbytes:,} bytes")
    for way, options in WAYS.items():
        given = dict(options, data=calibration)
        small = weft.quantize(net, given.pop("to", "int8"), **given)
        after = score(small, test, loss)
        change = after / before * 100 - 100 if loss else after - before
        share = size_of(small) / nbytes
        what = "%" if loss else "points"
        print(f"  {way:16} {after:9.4f}  {change:+.2f} {what:6}  size {share:6.1%}")


def parts(x: Any, y: Any, size: int) -> Any:
    return [
        (x[k : k + size], y[k : k + size]) for k in range(0, len(x) - size + 1, size)
    ]


def mnist(folder: str, train: bool) -> Any:
    found = weft.datasets.MNIST(folder, train=train)
    return found.tensors()


def accuracy(data: str) -> None:
    weft.manual_seed(0)
    (x, y), (u, v) = (weft.datasets.Digits(train=t).tensors() for t in (True, False))
    net = nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(16, 32, 3, padding=1), nn.ReLU(), nn.Flatten(), nn.Linear(512, 10),
    )  # fmt: skip
    trained(net, sampler(x, y, 100), 300, 3e-3)
    compare("CNN on digits", net, parts(x[:500], y[:500], 100), parts(u, v, 60))
    folder = os.path.join(data, "mnist")
    if os.path.isdir(folder):
        x, y = mnist(folder, True)
        test = parts(*mnist(folder, False), 500)
        net = trained(weft.models.LeNet(), sampler(x, y, 128), 1500, 2e-3)
        compare("LeNet on MNIST", net, parts(x[:1000], y[:1000], 250), test)
        three = weft.models.resnet18(classes=10, cifar=True, width=8)
        wide = x[:20000].expand(-1, 3, -1, -1)
        net = trained(three, sampler(wide, y, 64), 250, 3e-3)
        some = [(a.expand(-1, 3, -1, -1), b) for a, b in test[:8]]
        calibration = parts(wide[:512], y[:512], 128)
        compare("ResNet-18 of width 8 on MNIST", net, calibration, some)
    text = os.path.join(data, "tinyshakespeare.txt")
    if os.path.isfile(text):
        corpus = weft.datasets.TextCorpus.from_file(text)
        gpt = weft.models.GPT(len(corpus.vocabulary), 64, 128, 4, 4)
        codes = {part: np.asarray(corpus._parts[part]) for part in ("train", "val")}

        def windows(part: str, starts: Any) -> Any:
            rows = codes[part][starts[:, None] + np.arange(65)]
            return weft.tensor(rows[:, :-1].copy()), weft.tensor(rows[:, 1:].copy())

        def batch() -> Any:
            return windows("train", RNG.integers(0, len(codes["train"]) - 65, 32))

        net = trained(gpt, batch, 500, 2e-3)
        starts = np.arange(0, len(codes["val"]) - 65, 65).reshape(-1)
        test = [windows("val", starts[k : k + 64]) for k in range(0, 512, 64)]
        some = [windows("train", starts[k : k + 32]) for k in (0, 32, 64)]
        compare("GPT over characters", net, some, test, loss=True)


# -- speed


def best_of(calls: dict[str, Callable[[], Any]], rounds: int = 15) -> dict[str, float]:
    """The best milliseconds of each call, taken in turn."""
    times: dict[str, list[float]] = {name: [] for name in calls}
    for call in calls.values():
        for _ in range(4):
            call()
    for _ in range(rounds):
        for name, call in calls.items():
            start = time.perf_counter()
            call()
            times[name].append(time.perf_counter() - start)
    return {name: 1e3 * min(found) for name, found in times.items()}


def ours(model: Any, x: Any) -> Callable[[], Any]:
    run = weft.compile(model.eval())

    def call() -> Any:
        with weft.no_grad():
            return run(x)

    return call


def session(nodes: list[Any], constants: dict[str, Any], x: np.ndarray) -> Any:
    """A call of a model in ONNX Runtime, with as many threads as Weft has."""
    import onnxruntime as ort
    from onnx import TensorProto, helper, numpy_helper

    graph = helper.make_graph(
        nodes, "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, x.shape)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(np.asarray(a), n) for n, a in constants.items()],
    )  # fmt: skip
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    model = helper.make_model(graph, opset_imports=opsets)
    model.ir_version = 8
    options = ort.SessionOptions()
    options.intra_op_num_threads = weft.get_num_threads()
    run = ort.InferenceSession(
        model.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    return lambda: run.run(None, {"x": x})


def theirs_int8(layer: Any, x: np.ndarray) -> Any:
    """The static layer as ONNX Runtime's QLinearMatMul or QLinearConv."""
    from onnx import helper

    weight, scale = symmetric(layer.weight.detach().numpy())
    conv = isinstance(layer, nn.Conv2d)
    zero = np.uint8(128)
    constants = {
        "xs": np.float32(0.03), "xz": zero, "ys": np.float32(0.05), "yz": zero,
        "w": weight if conv else np.ascontiguousarray(weight.T), "ws": scale,
        "wz": np.zeros(len(scale), np.int8),
    }  # fmt: skip
    inputs = ["q", "xs", "xz", "w", "ws", "wz", "ys", "yz"]
    more = {"pads": [*layer.padding, *layer.padding]} if conv else {}
    name = "QLinearConv" if conv else "QLinearMatMul"
    nodes = [
        helper.make_node("QuantizeLinear", ["x", "xs", "xz"], ["q"]),
        helper.make_node(name, inputs, ["r"], **more),
        helper.make_node("DequantizeLinear", ["r", "ys", "yz"], ["y"]),
    ]  # fmt: skip
    return session(nodes, constants, x)


def theirs_weights(weight: np.ndarray, x: np.ndarray, bits: int) -> Any:
    """ONNX Runtime's MatMulNBits, of blocks of 64."""
    from onnx import helper

    n, k = weight.shape
    blocks = weight.reshape(n, k // 64, 64)
    scale = np.abs(blocks).max(-1) / (2 ** (bits - 1) - 1)
    numbers = np.rint(blocks / scale[..., None]) + 2 ** (bits - 1)
    packed = numbers.astype(np.uint8)
    if bits == 4:
        packed = packed[..., ::2] | packed[..., 1::2] << 4
    node = helper.make_node(
        "MatMulNBits", ["x", "w", "s"], ["y"], domain="com.microsoft", K=k, N=n,
        bits=bits, block_size=64, accuracy_level=1,
    )  # fmt: skip
    return session([node], {"w": packed, "s": scale.astype(np.float32).reshape(-1)}, x)


def tried(make: Callable[..., Any], *args: Any) -> Any:
    try:
        return make(*args)
    except Exception as error:  # it is not there, or lacks the operator
        print(f"  ({type(error).__name__} of ONNX Runtime: {str(error)[:60]})")
        return None


def table(
    name: str, calls: dict[str, Any], nbytes: dict[str, int] | None = None
) -> None:
    found = best_of({k: v for k, v in calls.items() if v is not None})
    base = found["float32"]
    print(name)
    for way, ms in found.items():
        text = f"  {way:22} {ms:8.3f} ms  {base / ms:5.2f}x"
        if nbytes and way in nbytes:
            text += f"  {nbytes[way] / ms / 1e6:6.1f} GB/s of weights"
        print(text)


def speed() -> None:
    print(f"{weft.get_num_threads()} threads")
    for m, k, n in (
        (1, 2048, 2048), (16, 1024, 1024), (256, 1024, 1024), (1024, 2048, 2048),
    ):  # fmt: skip
        layer, x = nn.Linear(k, n), weft.tensor(RNG.normal(size=(m, k)).astype("f"))
        table(f"Linear {k} to {n}, {m} rows", {
            "float32": ours(layer, x),
            "int8 static": ours(weft.quantize(layer, data=x), x),
            "int8 dynamic": ours(weft.quantize(layer, dynamic=True), x),
            "int8 ONNX Runtime": tried(theirs_int8, layer, x.numpy()),
        })  # fmt: skip
    for c, o, s, count in ((64, 64, 56, 4), (128, 128, 28, 8), (256, 256, 14, 8)):
        conv = nn.Conv2d(c, o, 3, padding=1)
        x = weft.tensor(RNG.normal(size=(count, c, s, s)).astype("f"))
        table(f"Conv2d 3x3 {c} to {o} of {count} images {s}x{s}", {
            "float32": ours(conv, x),
            "int8 static": ours(weft.quantize(conv, data=x), x),
            "int8 dynamic": ours(weft.quantize(conv, dynamic=True), x),
            "int8 ONNX Runtime": tried(theirs_int8, conv, x.numpy()),
        })  # fmt: skip
    n = k = 8192  # more than caches hold
    weight = RNG.normal(size=(n, k)).astype(np.float32)
    p8, s8 = symmetric(weight)
    p4, s4 = grouped(weight, 64)
    held = {"float32": weight, "int8 weights": p8, "int4 weights": p4}
    tensors = {name: weft.tensor(a) for name, a in held.items()}
    full, t8, t4 = tensors.values()
    scale8, scale4 = weft.tensor(s8[:, None]), weft.tensor(s4)
    nbytes = {name: a.nbytes for name, a in held.items()}
    nbytes["int4 weights"] += s4.nbytes
    ways = {
        "float32": lambda x: x @ full.t(),
        "int8 weights": lambda x: weight_only_matmul_op(x, t8, scale8, bits=8),
        "int4 weights": lambda x: weight_only_matmul_op(x, t4, scale4, bits=4),
    }
    for m in (1, 4, 16):
        x = weft.tensor(RNG.normal(size=(m, k)).astype("f"))
        calls: dict[str, Any] = {}
        for name, way in ways.items():
            made = weft.compile(way)
            calls[name] = lambda made=made, x=x: made(x)
        for bits in (8, 4):
            theirs = tried(theirs_weights, weight, x.numpy(), bits)
            calls[f"int{bits} ONNX Runtime"] = theirs
        table(f"Weights {n} by {k} times {m} rows", calls, nbytes)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("parts", nargs="*", choices=("accuracy", "speed", []))
    parser.add_argument("--data", default="../shared/data")
    options = parser.parse_args()
    if "accuracy" in options.parts or not options.parts:
        accuracy(options.data)
    if "speed" in options.parts or not options.parts:
        with weft.no_grad():
            speed()


if __name__ == "__main__":
    main()
