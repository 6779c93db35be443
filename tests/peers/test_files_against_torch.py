"""PyTorch's files: Weft reads what PyTorch writes, and the other way round."""

import io
import math
from collections import Counter, OrderedDict, defaultdict

import numpy as np
import pytest

import weft
from weft.errors import FileFormatError
from weft.serialization.names import LAYERS

torch = pytest.importorskip("torch")

DTYPES = (
    "bool", "uint8", "int8", "int16", "int32", "int64", "float16", "bfloat16",
    "float32", "float64", "complex64", "complex128", "uint16", "uint32", "uint64",
)  # fmt: skip
SHAPES = ((3, 4), (), (0, 2), (1,), (2, 1, 3))


def bytes_of(x):
    if isinstance(x, torch.Tensor):
        x = x.detach().resolve_conj().contiguous()
        return x.reshape(-1).view(torch.uint8).numpy().tobytes() if x.numel() else b""
    return x.detach().array().tobytes()


def same(ours, theirs):
    """Equal in structure, kinds, strides and bits."""
    if isinstance(theirs, torch.Tensor):
        assert ours.dtype.name == str(theirs.dtype).removeprefix("torch.")
        assert tuple(ours.shape) == tuple(theirs.shape)
        assert bytes_of(ours) == bytes_of(theirs)
        assert ours.requires_grad == theirs.requires_grad
        assert isinstance(ours, weft.nn.Parameter) == isinstance(
            theirs, torch.nn.Parameter
        )
        if theirs.numel() and not theirs.is_conj():
            assert tuple(ours.stride()) == tuple(theirs.stride())
    elif isinstance(theirs, dict):
        assert type(ours) is type(theirs)
        assert list(ours) == list(theirs)
        for key in theirs:
            same(ours[key], theirs[key])
    elif isinstance(theirs, torch.Size):
        assert tuple(ours) == tuple(theirs)
    elif isinstance(theirs, (list, tuple)):
        assert type(ours) is type(theirs)
        assert len(ours) == len(theirs)
        for a, b in zip(ours, theirs, strict=True):
            same(a, b)
    elif isinstance(theirs, torch.dtype):
        assert f"torch.{ours.name}" == str(theirs)
    elif isinstance(theirs, torch.device):
        assert str(ours) == str(theirs)
    elif isinstance(theirs, np.ndarray):
        assert ours.dtype == theirs.dtype
        assert np.array_equal(ours, theirs, equal_nan=True)
    else:
        assert type(ours) is type(theirs)
        assert ours == theirs or (math.isnan(ours) and math.isnan(theirs))


def values(name, shape):
    rng = np.random.default_rng(3)
    dtype = getattr(torch, name)
    width = torch.empty(0, dtype=dtype).element_size()
    raw = rng.integers(0, 255, (math.prod(shape), width), dtype=np.uint8)
    if name == "bool":
        raw %= 2
    return torch.from_numpy(raw.reshape(-1)).view(dtype).reshape(shape)


def from_torch(obj, **options):
    file = io.BytesIO()
    torch.save(obj, file, **options)
    file.seek(0)
    return weft.load(file)


def to_torch(obj, weights_only=True, **options):
    file = io.BytesIO()
    weft.save(obj, file, **options)
    file.seek(0)
    return torch.load(file, weights_only=weights_only)


VARIANTS = (
    {}, {"_use_new_zipfile_serialization": False}, {"pickle_protocol": 3},
    {"pickle_protocol": 4}, {"pickle_protocol": 5},
    {"_use_new_zipfile_serialization": False, "pickle_protocol": 4},
)  # fmt: skip


@pytest.mark.parametrize("options", VARIANTS, ids=str)
@pytest.mark.parametrize("dtype", DTYPES)
def test_tensors_of_torch(dtype, options):
    tensors = [values(dtype, shape) for shape in SHAPES]
    same(from_torch(tensors, **options), tensors)


@pytest.mark.parametrize("older", [False, True])
@pytest.mark.parametrize("dtype", DTYPES)
def test_tensors_of_weft(dtype, older):
    theirs = [values(dtype, shape) for shape in SHAPES]
    ours = from_torch(theirs)
    if older and dtype in ("uint16", "uint32", "uint64"):
        pytest.skip("PyTorch reads no such tensors of its own in the older format")
    same(ours, to_torch(ours, _use_new_zipfile_serialization=not older))


def state():
    """A state dict, containers and numbers of every kind."""
    x = torch.arange(24.0).reshape(2, 3, 4)
    net = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.BatchNorm1d(4))
    counted = Counter("abca")
    return {
        "net": net.state_dict(),
        "views": [x, x[1], x[:, ::2], x.permute(2, 0, 1), x[0, 0].expand(3, 4)],
        "parameter": torch.nn.Parameter(torch.ones(2)),
        "frozen": torch.nn.Parameter(torch.ones(2), requires_grad=False),
        "leaf": torch.ones(2, requires_grad=True),
        "conj": torch.tensor([1 + 2j]).conj(),
        "numbers": [0, -1, 255, 256, 65536, 2**31, -(2**31), 2**63, 2**200, -(10**400)],
        "floats": [0.5, -0.0, math.inf, math.nan, 1 + 2j],
        "texts": ["", "ünï", "\ud800", b"\x00\xff", bytearray(b"ab"), "x" * 300],
        "containers": [(), [], {}, {1: (2,), (3, "a"): None}, {1, 2}, counted],
        "ordered": OrderedDict(b=1, a=OrderedDict()),
        "bools": (True, False, None),
        "torch": [torch.float32, torch.int8, torch.Size([2, 3]), torch.device("cpu")],
        7: "int keys",
    }  # fmt: skip


@pytest.mark.parametrize("options", VARIANTS, ids=str)
def test_structures_of_torch(options):
    theirs = state()
    same(from_torch(theirs, **options), theirs)


@pytest.mark.parametrize("older", [False, True])
def test_structures_there_and_back(older):
    theirs = state()
    found = to_torch(from_torch(theirs), _use_new_zipfile_serialization=not older)
    sizes = theirs.pop("torch"), found.pop("torch")
    assert sizes[0][:2] == sizes[1][:2]
    found["conj"] = found["conj"].clone()
    same(from_torch(found), found)
    assert repr(found["net"]) == repr(theirs["net"])
    assert found["net"]._metadata == theirs["net"]._metadata
    for key in ("numbers", "texts", "containers", "ordered", "bools"):
        assert found[key] == theirs[key]
        assert list(map(type, found[key])) == list(map(type, theirs[key]))


def test_kinds_that_torch_reads_with_weights_only_false():
    ours = {"d": defaultdict(list, a=[1]), "f": frozenset({1}), "n": np.arange(3.0),
            "s": np.float64(1.5), "r": range(3), "l": slice(1, None)}  # fmt: skip
    found = to_torch(ours, weights_only=False)
    assert found.pop("n").tolist() == ours["n"].tolist()
    assert found == {key: ours[key] for key in found}
    assert isinstance(found["s"], np.float64)


@pytest.mark.parametrize("protocol", [2, 4, 5])
def test_numpy_in_files_of_torch(protocol):
    theirs = [np.arange(6.0).reshape(2, 3).T, np.float32(1.5), np.array(True),
              np.arange(3, dtype="i2"), np.complex64(1j), np.zeros((0, 2))]  # fmt: skip
    for a, b in zip(from_torch(theirs, pickle_protocol=protocol), theirs, strict=True):
        assert type(a) is type(b)
        same(np.asarray(a), np.asarray(b))


@pytest.mark.parametrize("older", [False, True])
def test_shared_memory_stays_shared(older):
    x = torch.arange(6.0)
    a, b, c = from_torch([x, x[2:4], x.view(2, 3)],
                         _use_new_zipfile_serialization=not older)  # fmt: skip
    b[0] = 50
    assert a.tolist() == [0, 1, 50, 3, 4, 5]
    c[1, 2] = 9
    assert a[5] == 9
    d, e, f = to_torch([a, b, c], _use_new_zipfile_serialization=not older)
    d[2] = 7
    assert e[0] == 7
    assert f[0, 2] == 7


def test_a_small_view_makes_a_small_file():
    file = io.BytesIO()
    weft.save(weft.zeros(100_000)[5:8], file)
    assert len(file.getvalue()) < 3000
    file.seek(0)
    assert torch.load(file).tolist() == [0, 0, 0]


def test_views_that_torch_cannot_have():
    x = weft.arange(6.0)
    found = to_torch([x.flip(0), weft.complex(x, x).real])
    assert found[0].tolist() == [5, 4, 3, 2, 1, 0]
    assert found[1].tolist() == x.tolist()


def test_maps_files_of_torch(tmp_path):
    path = tmp_path / "x.pt"
    theirs = [values(name, (5, 3)) for name in DTYPES]
    torch.save(theirs, path)
    ours = weft.load(path, mmap=True)
    same(ours, theirs)
    ours[9][0] = 5
    same(weft.load(path), theirs)
    weft.save(ours[:9], path)
    same(ours[:9], torch.load(path, mmap=True))


def test_tensors_with_attributes():
    x = torch.ones(2)
    x.note = "hello"
    p = torch.nn.Parameter(torch.ones(2))
    p.group = 3
    ours = from_torch([x, p])
    assert (ours[0].note, ours[1].group) == ("hello", 3)
    found = to_torch(ours)
    assert (found[0].note, found[1].group) == ("hello", 3)


def test_records_without_checksums():
    torch.serialization.set_crc32_options(False)
    try:
        same(from_torch([torch.ones(3)]), [torch.ones(3)])
    finally:
        torch.serialization.set_crc32_options(True)


@pytest.mark.parametrize(
    ("made", "message"),
    [
        (lambda: torch.ones(2).to_sparse(), "a sparse tensor; save .to_dense"),
        (lambda: torch.quantize_per_tensor(torch.ones(2), 1.0, 0, torch.qint8),
         "a quantized tensor|QInt8Storage"),
        (lambda: torch.ones(2, device="meta"), "meta"),
        (lambda: torch.ones(2).to(torch.float8_e4m3fn), "float8_e4m3fn"),
    ],
)  # fmt: skip
@pytest.mark.filterwarnings("ignore")
def test_tensors_that_weft_does_not_have(made, message):
    with pytest.raises(FileFormatError, match=message):
        from_torch([made()])


@pytest.mark.parametrize(
    "name",
    [
        "Adam",
        "AdamW",
        "SGD",
        "RMSprop",
        "Adagrad",
        "NAdam",
        "RAdam",
        "Adamax",
        "Adadelta",
    ],
)
def test_half_a_run_each(name):
    """Half of the training here and half there is the whole training."""
    extra = {"momentum": 0.9} if name in ("SGD", "RMSprop") else {}
    rng = np.random.default_rng(0)
    start = rng.normal(size=(4, 3))
    data = [rng.normal(size=(5, 3)) for _ in range(8)]

    def train(lib, steps, saved=None):
        layer = lib.nn.Linear(3, 4, bias=False).double()
        with lib.no_grad():
            layer.weight.copy_(lib.tensor(start))
        optimizer = getattr(lib.optim, name)(layer.parameters(), lr=0.05, **extra)
        if saved is not None:
            saved.seek(0)
            state = lib.load(saved)
            layer.load_state_dict(state["net"])
            optimizer.load_state_dict(state["optimizer"])
        for k in steps:
            optimizer.zero_grad()
            layer(lib.tensor(data[k])).square().mean().backward()
            optimizer.step()
        file = io.BytesIO()
        lib.save({"net": layer.state_dict(), "optimizer": optimizer.state_dict()}, file)
        return file, layer.weight.detach().numpy().copy()

    _, whole = train(torch, range(8))
    for first, second in ((torch, weft), (weft, torch), (weft, weft)):
        half, _ = train(first, range(4))
        _, both = train(second, range(4, 8), half)
        # PyTorch keeps NAdam's product of momenta in float32
        near = 1e-7 if name == "NAdam" else 1e-11
        np.testing.assert_allclose(both, whole, rtol=near, atol=near / 100)


def layers():
    """Layers with their arguments, and an input for each."""
    rng = np.random.default_rng(0)
    x4 = rng.normal(size=(2, 4, 8, 8)).astype(np.float32)
    x2, x3, x5 = (
        x4[:, :, 0, 0].copy(),
        x4[..., 0].copy(),
        np.repeat(x4[:, :, None], 4, 2),
    )
    table = {
        "Flatten": ((), x4), "Unflatten": ((1, (2, 2)), x2), "Linear": ((4, 3), x2),
        "Bilinear": ((4, 4, 3), x2), "Embedding": ((10, 3), np.arange(4)),
        "Conv1d": ((4, 3, 3), x3), "Conv2d": ((4, 3, 3, 2, 1), x4),
        "Conv3d": ((4, 3, 3), x5), "ConvTranspose1d": ((4, 3, 3), x3),
        "ConvTranspose2d": ((4, 3, 3, 2, 1), x4), "BatchNorm3d": ((4,), x5),
        "BatchNorm2d": ((4,), x4), "InstanceNorm2d": ((4,), x4),
        "GroupNorm": ((2, 4), x4), "Dropout2d": ((), x4), "Softmax": ((1,), x2),
        "LogSoftmax": ((1,), x2), "MaxPool1d": ((2,), x3), "MaxPool2d": ((2,), x4),
        "AvgPool1d": ((2,), x3), "AvgPool2d": ((2,), x4), "Upsample": ((None, 2), x4),
        "AdaptiveAvgPool1d": ((1,), x3), "AdaptiveAvgPool2d": ((1,), x4),
        "AdaptiveMaxPool2d": ((1,), x4), "ZeroPad2d": ((1,), x4),
        "PixelShuffle": ((2,), x4), "LSTMCell": ((4, 3), x2), "GRUCell": ((4, 3), x2),
        "BatchNorm1d": ((4,), x2), "LayerNorm": ((4,), x2), "RMSNorm": ((4,), x2),
    }  # fmt: skip
    containers = {"Sequential", "ModuleList", "ModuleDict"}
    return {name: table.get(name, ((), x2)) for name in LAYERS - containers}


@pytest.mark.parametrize("name", sorted(layers()))
@pytest.mark.parametrize("older", [False, True])
def test_whole_layers_of_torch(name, older):
    args, x = layers()[name]
    theirs = getattr(torch.nn, name)(*args).eval()
    file = io.BytesIO()
    torch.save(theirs, file, _use_new_zipfile_serialization=not older)
    file.seek(0)
    ours = weft.load(file, weights_only=False)
    count = 2 if name == "Bilinear" else 1
    a, b = ours(*[weft.tensor(x)] * count), theirs(*[torch.tensor(x)] * count)
    if isinstance(a, tuple):
        a, b = a[0], b[0]
    np.testing.assert_allclose(
        a.detach().numpy(), b.detach().numpy(), rtol=1e-5, atol=1e-6
    )
    assert list(ours.state_dict()) == list(theirs.state_dict())
    assert repr(ours).startswith(name)
    ours.train()
    for parameter in ours.parameters():
        assert parameter.requires_grad
    if hasattr(ours, "reset_parameters"):
        ours.reset_parameters()


def test_a_whole_model_of_torch():
    nn = torch.nn
    theirs = nn.Sequential(
        nn.ModuleDict({"a": nn.Linear(2, 3)})["a"], nn.ReLU(), nn.Linear(3, 1)
    ).eval()
    theirs.extra = {"note": [1, 2]}
    file = io.BytesIO()
    torch.save([theirs, nn.ModuleList([theirs[0]])], file)
    file.seek(0)
    ours, listed = weft.load(file, weights_only=False)
    assert listed[0] is ours[0]
    assert ours.extra == {"note": [1, 2]}
    x = np.ones((4, 2), np.float32)
    np.testing.assert_allclose(
        ours(weft.tensor(x)).detach().numpy(),
        theirs(torch.tensor(x)).detach().numpy(), rtol=1e-6,
    )  # fmt: skip


def test_shards_that_safetensors_reads(tmp_path):
    from safetensors.torch import load_file

    state = {"a": weft.ones(4), "b": weft.arange(3), "c": weft.ones(2).half()}
    weft.save(state, tmp_path / "model.safetensors", max_shard_size=20)
    found = {}
    for path in tmp_path.glob("*.safetensors"):
        found |= load_file(path)
    same(state, {name: found[name] for name in state})
