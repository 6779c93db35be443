"""Modules and functions as ONNX files: equal for ONNX's reference and onnxruntime."""

import contextlib
import itertools

import numpy as np
import onnx
import pytest
from onnx.reference import ReferenceEvaluator

import weft
from weft import nn
from weft.cli.main import main
from weft.core.op import find_op
from weft.errors import ArgumentError
from weft.nn import functional as F
from weft.onnx import ModelError

BATCH, TIME = (weft.export.Dim(name, min=1, max=64) for name in ("batch", "time"))


def evaluators(model):
    """Functions from arrays by name to results: of whoever is installed."""
    yield "reference", lambda feed: ReferenceEvaluator(model).run(None, feed)
    loaded = weft.onnx.load(model)
    yield (
        "weft",
        lambda feed: [
            y.detach().numpy()
            for y in loaded.run({k: weft.from_numpy(v) for k, v in feed.items()})
        ],
    )
    with contextlib.suppress(ImportError):
        import onnxruntime

        session = onnxruntime.InferenceSession(
            model.SerializeToString(), providers=["CPUExecutionProvider"]
        )
        yield "onnxruntime", lambda feed: session.run(None, feed)


def check(program, *examples, close=2e-5, without="", **how):
    """The same results as the program's, for each tuple of arguments."""
    model = weft.onnx.export(program, examples[0], **how)
    names = [i.name for i in model.graph.input]
    runs = [run for who, run in evaluators(model) if who != without]
    for run, args in itertools.product(runs, examples):
        with weft.no_grad():
            want = program(*args)
        want = want if isinstance(want, (tuple, list)) else [want]
        feed = {n: np.array(a.numpy()) for n, a in zip(names, args, strict=True)}
        found = run(feed)
        assert len(found) == len(want)
        for have, w in zip(found, want, strict=True):
            assert have.dtype == w.dtype.np
            np.testing.assert_allclose(have, w.detach().numpy(), rtol=close, atol=close)
    return model


def image(*shape):
    return (weft.randn(*shape),)


def text(*shape):
    return (weft.randint(0, 20, shape),)


@pytest.fixture(autouse=True)
def seeded():
    weft.manual_seed(0)


@pytest.mark.parametrize("opset", [17, 18, 21, 24])
def test_lenet_for_any_batch(opset):
    net = weft.models.LeNet().eval()
    model = check(
        net, image(2, 1, 28, 28), image(5, 1, 28, 28),
        dynamic_shapes=({0: BATCH},), opset=opset,
    )  # fmt: skip
    assert model.opset_import[0].version == opset
    names = {t.name for t in model.graph.initializer}
    assert names == dict(net.named_parameters()).keys()


def test_resnet():
    net = weft.models.resnet18(classes=10, cifar=True, width=4)
    net.train()(weft.randn(4, 3, 16, 16))  # running statistics that are not 0 and 1
    check(net.eval(), image(1, 3, 16, 16), image(3, 3, 16, 16),
          dynamic_shapes=({0: BATCH},))  # fmt: skip


def test_lstm_for_any_time():
    net = weft.models.CharLSTM(vocab=20, width=8).eval()
    check(lambda x: net(x)[0], text(2, 5), text(3, 7),
          dynamic_shapes=({0: BATCH, 1: TIME},))  # fmt: skip


def test_gpt_for_any_time():
    net = weft.models.GPT(vocab=20, context=64, width=16, heads=2, layers=2).eval()
    check(net, text(2, 5), text(1, 8), dynamic_shapes=({0: BATCH, 1: TIME},))


def test_an_encoder_with_padding():
    net = weft.models.EncoderClassifier(vocab=20, classes=3, width=8, heads=2).eval()
    ids = weft.tensor([[1, 2, 3, 0, 0], [4, 5, 6, 7, 8]])
    check(net, (ids,), (ids[:1],), dynamic_shapes=({0: BATCH},))


def newton(a):
    better = lambda x, n: ((x + a / x) / 2, n + 1)
    return weft.while_loop(lambda x, n: (x * x - a).abs().sum() > 1e-4, better, (a, 0))


def halved(x):
    while x.sum() > 4:
        x = x / 2
    if x.sum() > 3:
        x = x - 1
    return x


def running(x):
    back = weft.scan(lambda c, v: (c + v, c * x.shape[0]), weft.zeros(3), x)
    return (*back, weft.cond(x.sum() > 0, lambda: x + 1, lambda: x * 2))


@pytest.mark.parametrize("program", [newton, halved, running])
def test_loops_and_branches(program):
    check(program, (weft.tensor([[2.0, 3.0, 9.0]]),), (weft.ones(1, 3) * -1 + 2,))


def test_a_scan_from_the_end():
    def program(x):
        step = lambda c, v: (c * 2 + v, c + v)
        return weft.scan(step, weft.zeros(3), x, reverse=True)

    check(program, (weft.randn(4, 3),), without="reference")  # which has none


def test_sizes_are_computed_from_inputs():
    def program(x):
        n = x.shape[0]
        padded = F.pad(x, (0, 0, 0, 2 * n))
        return padded[n:], x.reshape(-1, 2, 3), weft.arange(n * 2), x.mean(0) * n

    check(program, (weft.randn(2, 6),), (weft.randn(5, 6),),
          dynamic_shapes=({0: BATCH},))  # fmt: skip


def test_windows_and_resizing():
    def program(x):
        return (
            F.avg_pool2d(x, 3, 2, 1), F.max_pool2d(x, 2, ceil_mode=True),
            F.adaptive_avg_pool2d(x, 4), F.pad(x, (1, 2, 0, 1), "reflect"),
            F.interpolate(x, scale_factor=1.5, mode="bicubic"),
            F.interpolate(x, size=(5, 7), mode="bilinear"),
            F.conv_transpose2d(x, weft.ones(4, 2, 3, 3), stride=2, output_padding=1),
            F.unfold(x, 3), F.group_norm(x, 2), F.pixel_shuffle(x, 2),
        )  # fmt: skip

    check(program, image(2, 4, 9, 8))


def test_overlapping_windows_are_one_node():
    model = check(
        lambda x: F.max_pool2d(x, 3, 2, 1), image(2, 3, 7, 7), image(1, 3, 7, 7),
        dynamic_shapes=({0: BATCH},),
    )  # fmt: skip
    assert "Gather" not in {node.op_type for node in model.graph.node[-2:]}
    assert model.graph.node[-2].op_type == "MaxPool"


def test_places_that_are_written_and_read():
    def program(x):
        x = x.clone()
        x[:, 0] = 1.0
        x[:, :, ::2] *= 2
        index = weft.tensor([[0], [2]])
        return x, x.flip(1), x.topk(2, -1)[1], x[index, 1], x.roll(1, 0), x.tril()

    check(program, (weft.randn(3, 4, 5),))


def test_a_model_goes_there_and_back_and_learns(tmp_path):
    net = nn.Sequential(nn.Linear(4, 8), nn.GELU(), nn.LayerNorm(8), nn.Linear(8, 2))
    path = tmp_path / "net.onnx"
    weft.onnx.export(net, weft.ones(3, 4), path, dynamic_shapes=({0: BATCH},))
    again = weft.onnx.load(path)
    assert again.state_dict().keys() == net.state_dict().keys()
    x, y = weft.randn(6, 4), weft.randn(6, 2)
    for one in (net, again):
        optimizer = weft.optim.SGD(one.parameters(), lr=0.1)
        for _ in range(3):
            optimizer.zero_grad()
            F.mse_loss(one(x), y).backward()
            optimizer.step()
    for name, value in net.state_dict().items():
        np.testing.assert_allclose(
            again.state_dict()[name].numpy(), value.numpy(), rtol=1e-4, atol=1e-5
        )
    check(again, (x,))
    files = weft.export(again, x, tmp_path / "net.c")
    assert len(files) == 2


def test_a_gpt_goes_there_and_back_and_learns():
    net = weft.models.GPT(vocab=20, context=16, width=16, heads=2, layers=1).eval()
    ids = weft.randint(0, 20, (2, 8))
    again = weft.onnx.load(weft.onnx.export(net, ids))
    for one in (net, again):
        F.cross_entropy(one(ids).reshape(-1, 20), ids.reshape(-1)).backward()
    mine = dict(again.named_parameters())
    assert mine.keys() == dict(net.named_parameters()).keys()
    for name, value in net.named_parameters():
        np.testing.assert_allclose(
            mine[name].grad.numpy(), value.grad.numpy(), rtol=1e-4, atol=1e-6
        )


def test_suffix_and_weights_beside(tmp_path):
    net = nn.Linear(4, 2)
    path = str(tmp_path / "net.onnx")
    assert weft.export(net, weft.ones(1, 4), path) == [path]
    assert onnx.load(path).graph.initializer[0].raw_data
    files = weft.export(net, weft.ones(1, 4), path, weights="beside")
    assert files == [path, f"{path}.data"]
    bare = onnx.load(path, load_external_data=False)
    assert not bare.graph.initializer[0].raw_data
    x = weft.randn(1, 4)
    assert weft.allclose(weft.onnx.load(path)(x), net(x))
    assert not [f for f in tmp_path.iterdir() if f.name.endswith(".tmp")]


def test_weights_that_are_too_large_for_one_file_go_beside_it(tmp_path, monkeypatch):
    monkeypatch.setattr(weft.onnx.exporting, "LARGEST", 100)
    net, path = nn.Linear(8, 4), str(tmp_path / "net.onnx")
    assert weft.export(net, weft.ones(1, 8), path) == [path, f"{path}.data"]
    x = weft.randn(1, 8)
    assert weft.allclose(weft.onnx.load(path)(x), net(x))
    with pytest.raises(ArgumentError, match="weights need a path"):
        weft.onnx.export(net, x)


@pytest.mark.parametrize("dtype", [weft.float16, weft.bfloat16, weft.float64])
def test_weights_of_other_types(dtype):
    net = nn.Sequential(nn.Linear(8, 4), nn.ReLU()).to(dtype)
    x = weft.randn(3, 8).to(dtype)
    again = weft.onnx.load(weft.onnx.export(net, x))
    assert again(x).dtype is dtype
    assert (again(x) == net(x)).all()


def test_the_command_writes_onnx(tmp_path, capsys):
    program = tmp_path / "net.pt2"
    net = nn.Linear(3, 2)
    weft.export.save(weft.export.export(net, (weft.ones(1, 3),)), program)
    path = str(tmp_path / "net.onnx")
    assert main(["export", str(program), path]) == 0
    assert capsys.readouterr().out == f"{path}\n"
    assert weft.allclose(weft.onnx.load(path)(weft.ones(1, 3)), net(weft.ones(1, 3)))


def test_numbers_have_the_dtype_of_the_result():
    where = find_op("where")
    condition = weft.tensor([True, False])
    check(lambda c, x: where(c, x, 2.5), (condition, weft.ones(2)))
    check(lambda x: (x > 1, 2 - x, x * 2.5, 7 // x), (weft.tensor([1, 2]),))


def test_bits_of_unsigned_numbers_are_shifted():
    x = weft.tensor([1, 6, 255], dtype=weft.uint8)
    check(lambda x: (x << 1, x >> 2), (x,))
    with pytest.raises(ModelError, match="unsigned numbers alone"):
        weft.onnx.export(lambda x: x << 1, weft.tensor([1]))


def test_names_and_several_results():
    model = weft.onnx.export(
        lambda x, y: {"sum": x + y, "parts": (x, y)}, (weft.ones(2), weft.ones(2)),
        input_names=["a", "b"],
    )  # fmt: skip
    assert [i.name for i in model.graph.input] == ["a", "b"]
    assert [o.name for o in model.graph.output] == ["sum", "parts_0", "parts_1"]
    with pytest.raises(ArgumentError, match="expected 1 different output_names"):
        weft.onnx.export(weft.exp, weft.ones(2), output_names=["a", "b"])


def test_what_onnx_has_not_is_refused_all_at_once(tmp_path):
    def program(x):
        y = weft.erfc(x)
        return weft.linalg.inv(x) + weft.lgamma(y)

    with pytest.raises(ModelError, match="3 operators cannot be written") as error:
        weft.onnx.export(program, weft.eye(2), tmp_path / "m.onnx")
    for text in ("erfc", "inv", "lgamma", "y = weft.erfc(x)"):
        assert text in str(error.value)
    assert list(tmp_path.iterdir()) == []


def test_training_is_refused_with_what_to_do():
    net = nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2), nn.Dropout(0.5))
    with pytest.raises(ModelError, match=r"call \.eval\(\) on the module"):
        weft.onnx.export(net, weft.ones(4, 2))
    check(net.eval(), (weft.randn(4, 2),))


@pytest.mark.parametrize("opset", [1, 16, 1000])
def test_opsets_have_bounds(opset):
    with pytest.raises(ArgumentError, match="expected an opset from 17"):
        weft.onnx.export(weft.exp, weft.ones(2), opset=opset)


def test_an_exported_program_is_written():
    program = weft.export.export(nn.Linear(3, 2), (weft.ones(1, 3),))
    model = weft.onnx.export(program)
    assert len(model.graph.initializer) == 2
