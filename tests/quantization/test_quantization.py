"""Quantised models: values, layers, files, errors, C, training."""

import copy
import subprocess
import sys

import numpy as np
import pytest

import weft
from weft import nn
from weft.errors import ArgumentError, AutogradError, DTypeError, ShapeError
from weft.ops import quantized as records
from weft.quantization import (
    DynamicLinear,
    Entropy,
    MinMax,
    Percentile,
    QuantizedConv,
    QuantizedEmbedding,
    QuantizedLinear,
    QuantizedModule,
    WeightOnlyLinear,
    convert,
    prepare_qat,
    report,
)
from weft.quantization.folding import folded
from weft.quantization.numbers import affine, grouped, symmetric

RNG = np.random.default_rng(0)
WAYS = {
    "static": {},
    "dynamic": {"dynamic": True},
    "int8": {"weight_only": True},
    "int4": {"to": "int4", "weight_only": True},
}


def randn(*shape):
    return weft.tensor(RNG.standard_normal(shape).astype(np.float32))


def quantize(model, way, x):
    options = dict(WAYS[way])
    if way == "static":
        options["data"] = [x, x]
    return weft.quantize(model, options.pop("to", "int8"), **options)


def network():
    weft.manual_seed(0)
    net = nn.Sequential(
        nn.Conv2d(2, 6, 3, padding=1), nn.BatchNorm2d(6), nn.ReLU(),
        nn.Conv2d(6, 8, 3, stride=2, groups=2, dilation=2, padding=(2, 1)), nn.ReLU(),
        nn.Flatten(), nn.Linear(96, 10, act="relu"), nn.Linear(10, 4, bias=False),
    )  # fmt: skip
    net(randn(32, 2, 8, 8))  # batch norm has statistics
    return net.eval()


def noise(wanted, got):
    wanted, got = wanted.detach().numpy(), got.detach().numpy()
    return 10 * np.log10((wanted**2).sum() / ((wanted - got) ** 2).sum())


# -- values


LEAST = {"static": 30, "dynamic": 30, "int8": 35, "int4": 12}


@pytest.mark.parametrize(("way", "least"), LEAST.items())
def test_a_network_keeps_its_values_and_compiles_to_the_same_bits(way, least):
    net, x = network(), randn(16, 2, 8, 8)
    before = copy.deepcopy(net.state_dict())
    small = quantize(net, way, x)
    assert not small.training
    assert sum(isinstance(m, QuantizedModule) for m in small.modules()) == 4
    assert not any(isinstance(m, nn.BatchNorm2d) for m in small.modules())
    with weft.no_grad():
        wanted, got = net(x), small(x)
        compiled = weft.compile(small)
        again = [compiled(x) for _ in range(3)][-1]
    assert noise(wanted, got) > least
    if way in ("static", "dynamic"):
        assert np.array_equal(got.numpy(), again.numpy())
    else:
        assert np.allclose(got.numpy(), again.numpy(), rtol=1e-5, atol=1e-5)
    after = net.state_dict()
    assert all(weft.equal(after[k], v) for k, v in before.items())


def test_a_static_linear_layer_is_integer_arithmetic():
    layer, x = nn.Linear(37, 11), randn(5, 37)
    low, high = float(x.min()), float(x.max())
    small = QuantizedLinear(layer, low, high)
    scale, zero = affine(low, high)
    weight, scales = symmetric(layer.weight.detach().numpy())
    numbers = np.clip(np.rint(x.numpy() * (np.float32(1) / scale)) + zero, 0, 255)
    sums = (numbers - zero).astype(np.int64) @ weight.T.astype(np.int64)
    wanted = sums * (scale * scales).astype(np.float64) + layer.bias.detach().numpy()
    assert np.allclose(small(x).numpy(), wanted, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    ("kind", "size", "options"),
    [
        (nn.Conv1d, (9,), {"padding": "same", "dilation": 2}),
        (nn.Conv2d, (6, 7), {"padding": 1, "padding_mode": "circular"}),
        (nn.Conv2d, (6, 7), {"padding": 1, "groups": 4, "stride": (2, 1)}),
        (nn.Conv2d, (6, 7), {"kernel_size": 1, "stride": 2, "padding": 1}),
        (nn.Conv3d, (4, 5, 4), {"padding": (0, 1, 2)}),
    ],
)
def test_a_static_convolution_is_the_convolution_of_rounded_numbers(
    kind, size, options
):
    layer, x = kind(4, 8, **{"kernel_size": 3, **options}), randn(3, 4, *size)
    low, high = float(x.min()), float(x.max())
    small = QuantizedConv(layer, low, high)
    scale, zero = affine(low, high)
    rounded = weft.fake_quantize_per_tensor_affine(x, float(scale), int(zero), 0, 255)
    weight, scales = symmetric(layer.weight.detach().numpy())
    exact = copy.deepcopy(layer).double()
    shape = (-1, *(1,) * (weight.ndim - 1))
    with weft.no_grad():
        exact.weight.copy_(weft.tensor(weight * scales.astype("d").reshape(shape)))
        wanted, got = exact(rounded.double()), small(x)
    assert np.allclose(got.numpy(), wanted.numpy(), rtol=1e-4, atol=1e-4)
    assert np.array_equal(small(x[0]).numpy(), got[0].numpy())  # without a batch


def test_dynamic_rows_do_not_depend_on_other_rows():
    layer, x = DynamicLinear(nn.Linear(64, 8)), randn(5, 64)
    x[3] *= 100.0
    whole = layer(x)
    assert all(weft.equal(layer(x[k : k + 1]), whole[k : k + 1]) for k in range(5))
    for value in ("inf", "nan"):
        x[2, 5] = float(value)
        bad = weft.isfinite(layer(x)).logical_not()
        assert bad[2].all()
        assert not bad[[0, 1, 3, 4]].any()
    assert weft.equal(layer(weft.zeros(2, 64))[0], layer.bias)


@pytest.mark.parametrize("length", [1, 2, 30, 64, 100, 128])
def test_int4_weights_are_within_half_a_step(length):
    rows = RNG.standard_normal((3, length)).astype(np.float32)
    packed, scale = grouped(rows, 32)
    wide = records._dequantized_array(packed, scale, length, 4)
    width = 2 * packed.shape[1] // scale.shape[1]
    step = np.repeat(np.abs(scale), width, 1)[:, :length]
    # 8 steps on one side, 7 on the other: the far end of that one is one step off
    assert (np.abs(wide - rows) <= step * 1.0001).all()
    assert (np.abs(wide - rows) <= step * 0.5001).mean() > 0.9


@pytest.mark.parametrize("bits", [8, 4])
def test_tables_are_looked_up_as_numbers(bits):
    table, ids = nn.Embedding(20, 24), weft.tensor([[1, 5], [19, 0]])
    small = QuantizedEmbedding(table, bits)
    rows = records.dequantized(small.weight, small.scale, size=24, bits=bits)
    assert weft.equal(small(ids), rows[ids])
    assert noise(table(ids), small(ids)) > (40 if bits == 8 else 15)
    compiled = weft.compile(small)
    assert weft.equal(compiled(ids), small(ids))


def test_weights_of_a_shared_layer_are_shared():
    class Twice(nn.Module):
        def __init__(self):
            super().__init__()
            self.a = nn.Linear(4, 4)
            self.b = self.a

        def forward(self, x):
            return self.b(self.a(x))

    small = weft.quantize(Twice(), dynamic=True)
    assert small.a is small.b
    assert isinstance(small.a, DynamicLinear)


@pytest.mark.parametrize("way", WAYS)
def test_a_table_that_serves_both_ends_is_there_once(way, tmp_path):
    net = weft.models.GPT(vocab=50, context=8, width=32, heads=2, layers=1)
    ids = weft.tensor(RNG.integers(0, 50, (4, 8)))
    small = quantize(net, way, ids)
    assert small.head.weight is small.token.weight
    assert noise(net(ids), small(ids)) > (10 if way == "int4" else 25)
    weft.save(small, tmp_path / "small.pt")
    again = weft.load(tmp_path / "small.pt", weights_only=False)
    assert np.shares_memory(again.head.weight.numpy(), again.token.weight.numpy())
    assert weft.equal(again(ids), small(ids))


def test_other_dtypes_come_back():
    layer, x = nn.Linear(8, 4), randn(3, 8)
    ways = QuantizedLinear(layer, -3, 3), DynamicLinear(layer), WeightOnlyLinear(layer)
    for small in ways:
        assert small(x.half()).dtype is weft.float16
        assert noise(layer(x), small(x.half()).float()) > 30


def test_weight_only_layers_have_gradients():
    layer = WeightOnlyLinear(nn.Linear(16, 4), 4)
    x = randn(3, 16).requires_grad_()
    layer(x).sum().backward()
    rows = records.dequantized(layer.weight, layer.scale, size=16, bits=4)
    assert np.allclose(x.grad.numpy(), np.tile(rows.sum(0).numpy(), (3, 1)), atol=1e-5)


def test_gradients_are_not_lost_without_a_word():
    net = nn.Sequential(nn.Linear(8, 8), nn.LayerNorm(8), nn.Linear(8, 4))
    x = randn(3, 8)
    for way in ("static", "dynamic"):
        small = quantize(net, way, x)
        assert not small(x).requires_grad
        with pytest.raises(AutogradError, match="needs no gradient"):
            small(randn(3, 8).requires_grad_())
        with weft.no_grad():
            assert weft.equal(small(x.requires_grad_()), small(x.detach()))
        x.requires_grad_(False)
    assert net[1].weight.requires_grad
    assert quantize(net, "int8", x)[1].weight.requires_grad


def test_layers_with_hooks_are_refused():
    net = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4))
    hook = net[1].register_forward_hook(lambda module, args, out: out)
    with pytest.raises(ArgumentError, match=r"hooks of \['1'\]"):
        weft.quantize(net, dynamic=True)
    assert type(weft.quantize(net, dynamic=True, skip="1")[0]) is DynamicLinear
    hook.remove()
    weft.quantize(net, dynamic=True)


# -- batch norm


class Block(nn.Module):
    """A residual block, as networks write it."""

    def __init__(self, reads_before=False):
        super().__init__()
        self.conv, self.norm = nn.Conv2d(3, 3, 3, padding=1), nn.BatchNorm2d(3)
        self.reads_before = reads_before

    def forward(self, x):
        y = self.conv(x)
        out = x + self.norm(y).relu()
        return out + y if self.reads_before else out


@pytest.mark.parametrize("reads_before", [False, True])
def test_batch_norms_are_folded_where_nothing_else_reads(reads_before):
    block, x = Block(reads_before), randn(4, 3, 5, 5) * 3 + 1
    for _ in range(20):
        block(x)
    block.eval()
    plain = folded(block, lambda net: net(x))
    assert isinstance(plain.norm, nn.BatchNorm2d) == reads_before
    assert np.allclose(plain(x).detach().numpy(), block(x).detach().numpy(), atol=1e-5)
    for options in ({}, {"dynamic": True}, {"weight_only": True}):
        small = weft.quantize(block, data=x, **options)
        assert noise(block(x), small(x)) > 30
        assert isinstance(small.norm, nn.BatchNorm2d) == reads_before


def test_a_norm_after_a_linear_layer_is_folded_where_data_show_how():
    net = nn.Sequential(nn.Linear(6, 5), nn.BatchNorm1d(5))
    flat, stacked = randn(8, 6), randn(8, 5, 6)
    for x, is_folded in ((flat, True), (stacked, False)):
        net.train()(x)
        small = weft.quantize(net.eval(), data=x)
        assert isinstance(small[1], nn.Identity) == is_folded
        assert noise(net(x), small(x)) > 25
    assert isinstance(weft.quantize(net, dynamic=True)[1], nn.BatchNorm1d)


# -- observers


def test_observers_cut_what_is_far_out():
    numbers = np.append(RNG.standard_normal(50_000), [80.0, -0.5])
    ranges = {}
    for kind in (MinMax, Percentile, Entropy):
        observer = kind()
        for part in np.array_split(numbers, 7):
            observer.observe(part)
        ranges[kind] = observer.range()
    assert ranges[MinMax] == (numbers.min(), 80.0)
    for kind in (Percentile, Entropy):
        low, high = ranges[kind]
        assert numbers.min() <= low < -2
        assert 2 < high < 6
    with pytest.raises(ArgumentError, match="percentage above 0"):
        Percentile(0)


def test_entropy_keeps_what_is_rarer_than_a_spike():
    observer = Entropy()
    observer.observe(np.concatenate([np.full(9000, 0.5), RNG.uniform(1, 5, 1000)]))
    assert observer.range()[1] > 4.9


@pytest.mark.parametrize(
    "observer", ["minmax", "percentile", "entropy", lambda: Percentile(99)]
)
def test_observers_by_name_and_by_function(observer):
    net, x = network(), randn(16, 2, 8, 8)
    small = weft.quantize(net, data=x, observer=observer)
    assert noise(net(x), small(x)) > 15


def test_numbers_that_are_all_zero():
    net = nn.Linear(4, 2)
    with weft.no_grad():
        net.weight.zero_()
    small = weft.quantize(net, data=weft.zeros(3, 4))
    assert weft.equal(small(weft.zeros(1, 4))[0], net.bias)
    for observer in (Percentile(), Entropy()):
        observer.observe(np.zeros(5))
        assert observer.range() == (0.0, 0.0)


# -- files, sizes, C


@pytest.mark.parametrize("way", WAYS)
def test_quantised_models_are_saved_and_loaded(way, tmp_path):
    net, x = network(), randn(4, 2, 8, 8)
    small = quantize(net, way, x)
    weft.save(small, tmp_path / "small.pt")
    again = weft.load(tmp_path / "small.pt", weights_only=False)
    assert weft.equal(again(x), small(x))
    weft.save(small.state_dict(), tmp_path / "small.safetensors")
    other = quantize(net, way, 2 * x)
    other.load_state_dict(weft.load(tmp_path / "small.safetensors"))
    assert weft.equal(other(x), small(x))


def test_a_new_process_loads_a_quantised_model(tmp_path):
    small = weft.quantize(weft.models.LeNet(), dynamic=True)
    weft.save(small, tmp_path / "small.pt")
    program = (
        "import weft\n"
        f"net = weft.load({str(tmp_path / 'small.pt')!r}, weights_only=False)\n"
        "print(type(net).__name__, type(net.features[0]).__name__)"
    )
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["LeNet", "DynamicConv"]


def test_files_are_as_small_as_their_numbers(tmp_path):
    net = nn.Sequential(nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 256))
    sizes = {}
    for way in ("none", *WAYS):
        model = net if way == "none" else quantize(net, way, randn(4, 512))
        path = tmp_path / f"{way}.safetensors"
        weft.save(model.state_dict(), path)
        sizes[way] = path.stat().st_size
    for way in ("static", "dynamic", "int8"):
        assert sizes[way] <= 0.27 * sizes["none"]
    assert sizes["int4"] <= 0.16 * sizes["none"]


# -- reports


def test_a_report_names_the_layer_that_loses_most():
    x, y = weft.datasets.Digits().tensors()
    net = nn.Sequential(nn.Flatten(), nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 10))
    with weft.no_grad():
        net[1].weight[0], net[1].bias[0] = 0.0, 0.0
        net[3].weight[:, 0] = 1e3  # which decides on the scales, and on nothing else
    small = weft.quantize(net, "int4", weight_only=True)
    batches = [(x[k : k + 50], y[k : k + 50]) for k in (0, 50)]
    found = report(net, small, batches, compile=False)
    assert set(found.scores) == {"accuracy", "loss"}
    with weft.no_grad():
        right = (net(x[:100]).argmax(1) == y[:100]).float().mean().item()
    assert found.scores["accuracy"][0] == pytest.approx(right)
    assert [layer.name for layer in found.layers] == ["3", "1"]
    assert found.layers[0].suggestion == "float32"
    assert found.nbytes[0] > 5 * found.nbytes[1]
    text = str(found)
    assert all(word in text for word in ("accuracy", "float32", "int4"))


def test_a_report_takes_a_loss_of_its_own():
    net, x = nn.Linear(4, 4), randn(8, 4)
    small = weft.quantize(net, data=x)
    loss = lambda out, batch: out.square().mean()
    found = report(net, small, x, loss=loss, compile=False)
    assert found.scores["loss"][0] == pytest.approx(net(x).square().mean().item())
    with pytest.raises(ArgumentError, match="without quantised layers"):
        report(net, net, x)
    with pytest.raises(ArgumentError, match="that was quantised"):
        report(net, nn.Sequential(small), x)


# -- training for it


def test_training_for_integers_ends_where_conversion_begins():
    weft.manual_seed(1)
    x, y = weft.datasets.Digits().tensors()
    x, y = x[:256], y[:256]
    net = nn.Sequential(
        nn.Conv2d(1, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(),
        nn.Linear(256, 10),
    )  # fmt: skip
    trained = prepare_qat(net)
    assert trained.state_dict().keys() > net.state_dict().keys()
    optimizer = weft.optim.Adam(trained.parameters(), lr=3e-3)

    @weft.compile
    def step(x, y):
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(trained(x), y)
        loss.backward()
        optimizer.step()
        return loss

    losses = [step(x, y).item() for _ in range(40)]
    assert losses[-1] < 0.5 * losses[0]
    small = convert(trained)
    with weft.no_grad():
        wanted, got = trained.eval()(x), small(x)
    assert isinstance(small[1], nn.Identity)
    assert noise(wanted, got) > 35
    assert type(net[0]) is nn.Conv2d


def test_fake_rounding_of_embeddings_and_linear_layers():
    net = nn.Sequential(nn.Embedding(9, 8), nn.Linear(8, 3))
    trained = prepare_qat(net)
    ids = weft.tensor([[1, 2], [3, 8]])
    trained(ids).sum().backward()
    assert trained[0].weight.grad.abs().sum() > 0
    small = convert(trained)
    assert noise(trained.eval()(ids), small(ids)) > 50


# -- mistakes


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "expected data to find"),
        ({"data": []}, "at least one batch"),
        ({"data": 3}, "a tensor or a loader"),
        ({"to": "int3", "dynamic": True}, "one of 'int8', 'int4', got 'int3'"),
        ({"to": "int4", "dynamic": True}, "weight_only=True with 'int4'"),
        ({"dynamic": True, "weight_only": True}, "got both"),
        ({"weight_only": True, "group": 3}, "even group"),
        ({"data": weft.ones(1, 4), "observer": "mean"}, "expected observer"),
        ({"dynamic": True, "skip": ["nope"]}, "skip to name modules"),
        ({"dynamic": True, "skip": ["0", "1"]}, "that is not skipped"),
        ({"data": weft.tensor([[1.0, 2, float("nan"), 0]])}, "input of '0'.*batch 0"),
    ],
)
def test_mistakes_are_told(options, message):
    net = nn.Sequential(nn.Linear(4, 3), nn.Linear(3, 2))
    options = dict(options)
    with pytest.raises(ArgumentError, match=message):
        weft.quantize(net, options.pop("to", "int8"), **options)


def test_wrong_shapes_and_dtypes_are_told():
    net = nn.Sequential(nn.Linear(4, 3))
    with pytest.raises(ShapeError, match="batch 1 of the data"):
        weft.quantize(net, data=[weft.ones(2, 4), weft.ones(2, 5)])
    small = weft.quantize(net, dynamic=True)
    with pytest.raises(ShapeError, match="expected input with 4 features"):
        small(weft.ones(2, 5))
    with pytest.raises(DTypeError, match="expected a floating-point tensor"):
        small(weft.ones(2, 4, dtype=weft.int64))
    for way in WAYS:
        conv = quantize(nn.Conv2d(3, 4, 5), way, weft.ones(1, 3, 6, 6))
        with pytest.raises(ShapeError, match="expected 3 channels"):
            conv(weft.ones(1, 2, 6, 6))
        with pytest.raises(ShapeError):
            conv(weft.ones(1, 3, 4, 6))
        assert conv(weft.ones(0, 3, 6, 6)).shape == (0, 4, 2, 2)
        line = quantize(nn.Linear(4, 3), way, weft.ones(1, 4))
        assert line(weft.ones(2, 0, 4)).shape == (2, 0, 3)
    with pytest.raises(ArgumentError, match=r"expected an nn.Module"):
        weft.quantize(weft.ones(3), dynamic=True)
    with pytest.raises(ArgumentError, match="expected a model with a Linear"):
        weft.quantize(nn.ReLU(), dynamic=True)
    with pytest.raises(ArgumentError, match="more than the"):
        weft.quantize(nn.Linear(70_000, 1), dynamic=True)
    with pytest.raises(ArgumentError, match="expected a model of"):
        convert(net)
    with pytest.raises(ArgumentError, match="no input in training mode"):
        convert(prepare_qat(net))


def test_weights_that_are_no_numbers_are_refused():
    net = nn.Linear(4, 3)
    with weft.no_grad():
        net.weight[0, 0] = float("inf")
    for way in ("dynamic", "int8", "int4"):
        with pytest.raises(ArgumentError, match="finite numbers in a weight"):
            quantize(net, way, None)


def test_a_layer_that_no_data_reach_is_named():
    class Two(nn.Module):
        def __init__(self):
            super().__init__()
            self.used, self.spare = nn.Linear(4, 3), nn.Linear(4, 3)

        def forward(self, x):
            return self.used(x)

    with pytest.raises(ArgumentError, match=r"reached \['spare'\]"):
        weft.quantize(Two(), data=weft.ones(2, 4))
    small = weft.quantize(Two(), data=weft.ones(2, 4), skip="spare")
    assert type(small.spare) is nn.Linear


def test_models_of_other_arguments():
    class Add(nn.Module):
        def __init__(self):
            super().__init__()
            self.map = nn.Linear(4, 3)

        def forward(self, x, y):
            return self.map(x + y)

    batch = {"x": randn(2, 4), "y": randn(2, 4)}
    with pytest.raises(ArgumentError, match="pass forward="):
        weft.quantize(Add(), data=[batch])
    small = weft.quantize(Add(), data=[batch], forward=lambda net, b: net(**b))
    assert isinstance(small.map, QuantizedLinear)
