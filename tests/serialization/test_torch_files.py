"""PyTorch's files without PyTorch: what it wrote, what we write, and hostile files."""

import collections
import dataclasses
import enum
import functools
import io
import os
import pickle
import random
import struct
import sys
import tracemalloc
from pathlib import Path

import numpy as np
import pytest
from torch_file_mutations import packed, parts, run

import weft
from weft import nn, serialization
from weft.errors import ArgumentError, DeviceError, DTypeError, FileFormatError
from weft.serialization import machine
from weft.serialization.pickler import Pickler, plain_pickle

GOLDEN = Path(__file__).parent.parent / "golden" / "files"
STATES = ("torch_zip.pt", "torch_zip_protocol4.pt", "torch_older.pt")


def saved(obj, **options):
    file = io.BytesIO()
    weft.save(obj, file, **options)
    return file.getvalue()


def loaded(raw, **options):
    return weft.load(io.BytesIO(raw), **options)


def roundtrip(obj, **options):
    return loaded(saved(obj), **options)


# -- files that PyTorch wrote


@pytest.mark.parametrize("name", STATES)
@pytest.mark.parametrize("mmap", [False, True])
def test_files_of_torch(name, mmap):
    if mmap and "older" in name:
        with pytest.raises(ArgumentError, match="older format, which cannot be mapped"):
            weft.load(GOLDEN / name, mmap=True)
        return
    found = weft.load(GOLDEN / name, mmap=mmap)
    assert type(found) is collections.OrderedDict
    assert found["weight"].tolist() == [[0, 1, 2], [3, 4, 5]]
    assert found["turned"].stride() == (1, 3)
    numbers = {"half": [0.5, -2], "brain": [1.5], "flags": [True, False],
               "whole": [-(2**40)], "byte": [255], "z": [1 + 2j], "u": [65535],
               "p": [3.0]}  # fmt: skip
    assert {key: found[key].tolist() for key in numbers} == numbers
    kinds = ("float16", "bfloat16", "bool", "int64", "uint8", "complex64", "uint16",
             "float32")  # fmt: skip
    assert tuple(found[key].dtype.name for key in numbers) == kinds
    assert isinstance(found["p"], nn.Parameter)
    assert found["p"].requires_grad
    assert found["empty"].shape == (0, 2)
    plain = {"step": 7, "lr": 0.5, "names": ["a", ("b", None, True)], "sets": {1, 2},
             "size": (2, 3), "dtype": weft.float32, "raw": b"\x00\xff"}  # fmt: skip
    assert {key: found[key] for key in plain} == plain


@pytest.mark.parametrize("name", STATES)
def test_tensors_of_one_storage_share_memory(name):
    found = weft.load(GOLDEN / name)
    found["row"][0] = 30
    found["turned"][2, 0] = 20
    assert found["weight"].tolist() == [[0, 1, 20], [30, 4, 5]]
    x = found["weight"].requires_grad_()
    y = (x * x).sum()
    with weft.no_grad():
        found["row"].add_(1)  # notes a change of x, which y's gradient needs
    with pytest.raises(weft.errors.AutogradError, match=r"in place|changed"):
        y.backward()


def test_a_whole_model_of_torch():
    net = weft.load(GOLDEN / "torch_model.pt", weights_only=False)
    assert [type(m) for m in net] == [nn.Linear, nn.ReLU, nn.BatchNorm1d]
    assert not net.training
    out = net(weft.tensor([[1.0, 2.0]]))
    expected = [[0.7393380999565125, 0.0, 0.044134799391031265]]
    np.testing.assert_allclose(out.detach().numpy(), expected, rtol=1e-6)
    with pytest.raises(FileFormatError, match=r"needs torch\.nn\.modules\.container"):
        weft.load(GOLDEN / "torch_model.pt")
    layers = [nn.Sequential, nn.Linear, nn.ReLU, nn.BatchNorm1d]
    with serialization.safe_globals(layers):
        assert weft.load(GOLDEN / "torch_model.pt")[0].weight.shape == (3, 2)
    assert serialization.get_unsafe_globals_in_checkpoint(
        GOLDEN / "torch_model.pt"
    ) == [
        "torch.nn.modules.activation.ReLU", "torch.nn.modules.batchnorm.BatchNorm1d",
        "torch.nn.modules.container.Sequential", "torch.nn.modules.linear.Linear",
    ]  # fmt: skip


def test_a_class_with_its_source_in_an_older_file():
    name = b"ctorch.nn.modules.activation\nReLU\n"
    body = b"\x80\x02(X\x06\x00\x00\x00module" + name + b"NNtQ)\x81}b."
    raw = OLDER + body + plain_pickle([])
    assert type(loaded(raw, weights_only=False)) is nn.ReLU
    with pytest.raises(FileFormatError, match=r"needs torch\.nn\.modules\.activation"):
        loaded(raw)


def test_an_optimizer_of_torch():
    state = weft.load(GOLDEN / "torch_adam.pt")
    layer = nn.Linear(2, 3)
    adam = weft.optim.Adam(layer.parameters(), lr=0.1)
    adam.load_state_dict(state)
    assert adam.param_groups[0]["lr"] == 0.25
    assert adam.state[layer.bias]["step"] == 1
    np.testing.assert_allclose(adam.state[layer.bias]["exp_avg"].numpy(), 0.1)


def test_sgd_of_torch_counts_no_steps():
    p = nn.Parameter(weft.ones(2))
    sgd = weft.optim.SGD([p], lr=1.0, momentum=0.5)
    buffer = {"momentum_buffer": weft.tensor([2.0, 4.0])}
    group = {**sgd.state_dict()["param_groups"][0], "fused": None}
    sgd.load_state_dict({"state": {0: buffer}, "param_groups": [group]})
    p.sum().backward()
    sgd.step()
    assert p.tolist() == [1 - 2, 1 - 3]
    sgd.load_state_dict(
        {"state": {0: {"momentum_buffer": None}}, "param_groups": [group]}
    )
    assert not sgd.state


# -- what save writes


def test_the_path_tells_the_format(tmp_path):
    state = {"w": weft.ones(2)}
    for name, start in (("a.pt", b"PK"), ("b", b"PK"), ("c.bin", b"PK"),
                        ("d.safetensors", b"")):  # fmt: skip
        weft.save(state, tmp_path / name)
        raw = (tmp_path / name).read_bytes()
        assert raw.startswith(start)
        assert (raw[8:9] == b"{") == name.endswith(".safetensors")
        assert weft.load(tmp_path / name)["w"].tolist() == [1, 1]
    assert saved(state, format="safetensors")[8:9] == b"{"
    weft.save(state, tmp_path / "d.safetensors", format="torch")
    assert (tmp_path / "d.safetensors").read_bytes().startswith(b"PK")
    with pytest.raises(ArgumentError, match="expected format 'torch' or"):
        weft.save(state, tmp_path / "e", format="pickle")
    program = weft.graph.capture(lambda x: x + 1, weft.ones(2))
    assert saved(program)[8:9] == b"{"
    with pytest.raises(ArgumentError, match="a program is a safetensors file"):
        saved(program, format="torch")


def test_paths_that_can_also_read(tmp_path):
    class Both(type(tmp_path)):
        def read(self):
            raise AssertionError

        write = read

    path = Both(tmp_path / "x.pt")
    weft.save([1, 2], path)
    assert weft.load(path) == [1, 2]


class Plain:
    """A class of the program."""

    def __init__(self, value):
        self.value = value


@dataclasses.dataclass
class Config:
    width: int
    rate: float = 0.5


class Color(enum.Enum):
    RED = 1
    BLUE = "b"


Point = collections.namedtuple("Point", "x y")


class Net(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.config = config
        self.blocks = nn.ModuleList([nn.Linear(2, 2), nn.Dropout(0.5)])
        self.register_buffer("scale", weft.tensor([2.0]))
        self.register_buffer("cache", None, persistent=False)
        self.act = nn.functional.relu
        self.tied = self.blocks[0]
        self.kinds = [Color.RED, Point(1, 2)]

    def forward(self, x):
        return self.act(self.blocks[0](x)) * self.scale


def test_whole_modules():
    net = Net(Config(3)).eval()
    raw = saved(net)
    again = loaded(raw, weights_only=False)
    x = weft.tensor([[1.0, -2.0]])
    assert weft.equal(again(x), net(x))
    assert type(again) is Net
    assert again.tied is again.blocks[0]
    assert again.config == Config(3)
    assert again.kinds == [Color.RED, Point(1, 2)]
    assert list(again.state_dict()) == list(net.state_dict())
    assert repr(again) == repr(net)
    assert set(vars(again)) == set(vars(net))
    assert not again.training
    again.train()(x).sum().backward()
    assert again.blocks[0].weight.grad is not None
    assert net.blocks[0].weight.grad is None
    with pytest.raises(FileFormatError, match="It is a module: load the file with"):
        loaded(raw)
    allowed = [Net, Config, Color, Point, nn.ModuleList, nn.Linear, nn.Dropout,
               nn.functional.relu]  # fmt: skip
    with serialization.safe_globals(allowed):
        assert weft.equal(loaded(raw)(x), net(x))
    assert serialization.get_safe_globals() == []


def test_modules_with_hooks_are_refused():
    net = nn.Linear(2, 2)
    net.register_forward_hook(print)
    with pytest.raises(DTypeError, match="has hooks, which are code"):
        saved(net)


def test_classes_that_do_more_than_hold_attributes_are_refused():
    class Inner:
        pass

    with pytest.raises(DTypeError, match="defined inside of a function"):
        saved(Inner())
    with pytest.raises(DTypeError, match="cannot save a generator"):
        saved(x for x in "ab")
    raw = saved(functools.partial(print, 1))
    for weights_only in (True, False):
        with pytest.raises(FileFormatError, match=r"needs functools\.partial"):
            loaded(raw, weights_only=weights_only)
    raw = saved(Armed())
    with pytest.raises(FileFormatError, match=r"needs test_torch_files\.Armed"):
        loaded(raw, weights_only=False)
    with serialization.safe_globals([Armed]):
        assert loaded(raw).state == {"fired": False}


class Armed:
    """A class whose state is code's affair."""

    def __init__(self):
        self.fired = False

    def __setstate__(self, state):
        self.state = state


def test_a_class_that_is_allowed():
    raw = saved([Plain(weft.ones(1))])
    with pytest.raises(serialization.UnsafeGlobalError) as info:
        loaded(raw)
    assert "add_safe_globals([Plain])" in str(info.value)
    assert isinstance(info.value, pickle.UnpicklingError)
    serialization.add_safe_globals([(Plain, "test_torch_files.Plain")])
    try:
        assert loaded(raw)[0].value.tolist() == [1]
    finally:
        serialization.clear_safe_globals()
    with pytest.raises(ArgumentError, match=r"os\.system|posix\.system"):
        serialization.add_safe_globals([os.system])
    with pytest.raises(ArgumentError, match="the name that files have for it"):
        serialization.add_safe_globals([(Plain, 3)])
    with pytest.raises(DTypeError, match="expected classes and functions, got int"):
        serialization.add_safe_globals([3])


def test_structures_that_contain_themselves():
    loop = [1]
    loop.append({"again": loop})
    found = roundtrip(loop)
    assert found[1]["again"] is found
    shared = [1]
    a, b = roundtrip([shared, shared])
    assert a is b
    pair = ([],)
    pair[0].append(pair)
    with pytest.raises(DTypeError, match="a tuple contains itself"):
        saved(pair)


def test_nesting_of_any_depth():
    deep = weft.ones(2)
    for k in range(50_000):
        deep = ([deep], {"k": deep}, (deep,))[k % 3]
    found = roundtrip(deep)
    for k in reversed(range(50_000)):
        found = found["k"] if k % 3 == 1 else found[0]
    assert found.tolist() == [1, 1]


def test_tensors_of_two_dtypes_on_one_memory():
    x = weft.ones(4)
    with pytest.raises(ArgumentError, match="float32 and int32 are over the same"):
        saved([x, x.view(weft.int32)])


def test_only_the_pickle_protocol_of_torch():
    with pytest.raises(ArgumentError, match="protocol 2, got 4"):
        saved(1, pickle_protocol=4)
    with pytest.raises(ArgumentError, match="expected no pickle_module"):
        saved(1, pickle_module=io)
    assert loaded(saved(1, pickle_module=pickle), pickle_module=pickle) == 1


def test_a_failure_leaves_the_old_file(tmp_path):
    path = tmp_path / "x.pt"
    weft.save([1], path)
    with pytest.raises(DTypeError, match="defined inside of a function"):
        weft.save([weft.ones(2), lambda: 0], path)
    assert os.listdir(tmp_path) == ["x.pt"]
    assert weft.load(path) == [1]


@pytest.mark.parametrize("older", [False, True])
def test_several_files_in_one(older):
    file = io.BytesIO(b"before")
    file.seek(6)
    weft.save(weft.ones(2), file, _use_new_zipfile_serialization=not older)
    if older:
        weft.save(weft.zeros(1), file, _use_new_zipfile_serialization=False)
    file.seek(6)
    assert weft.load(file).tolist() == [1, 1]
    if older:
        assert weft.load(file).tolist() == [0]


# -- map_location


def test_map_location():
    raw = packed({**parts(saved(weft.ones(2)))})
    moved = raw.replace(b"X\x03\x00\x00\x00cpu", b"X\x03\x00\x00\x00toy")
    records = parts(saved(weft.ones(2)))
    records["data.pkl"] = records["data.pkl"].replace(b"cpu", b"gpu")
    there = packed(records)
    assert moved != raw
    with pytest.raises(DeviceError, match=r"saved on 'gpu'.*map_location='cpu'"):
        loaded(there)
    seen = []

    def look(storage, location):
        seen.append((storage.size(), storage.dtype, storage.nbytes(), location))
        return storage

    for where in ("cpu", weft.device("cpu"), {"gpu": "cpu"}, look,
                  lambda s, _: s.cpu()):  # fmt: skip
        assert loaded(there, map_location=where).tolist() == [1, 1]
        assert loaded(raw, map_location=where).tolist() == [1, 1]
        plain = saved({"w": weft.ones(2)}, format="safetensors")
        assert loaded(plain, map_location=where)["w"].tolist() == [1, 1]
    assert seen[0] == (2, weft.float32, 8, "gpu")
    with pytest.raises(DTypeError, match="expected map_location to be a device"):
        loaded(there, map_location=3)
    with pytest.raises(DTypeError, match="return a storage or None, got int"):
        loaded(there, map_location=lambda s, w: 3)


# -- settings


def test_big_endian_files():
    records = parts(saved([weft.tensor([1.5, 2.0]), weft.tensor([1 + 2j]).to(
        weft.complex64)]))  # fmt: skip
    swapped = {**records, "byteorder": b"big",
               "data/0": np.array([1.5, 2.0], ">f4").tobytes(),
               "data/1": np.array([1 + 2j], ">c8").tobytes()}  # fmt: skip
    assert [x.tolist() for x in loaded(packed(swapped))] == [[1.5, 2.0], [1 + 2j]]
    del swapped["byteorder"]
    serialization.set_default_load_endianness(serialization.LoadEndianness.BIG)
    try:
        assert loaded(packed(swapped))[0].tolist() == [1.5, 2.0]
        serialization.set_default_load_endianness(serialization.LoadEndianness.NATIVE)
        assert loaded(packed(swapped))[0].tolist() != [1.5, 2.0]
    finally:
        serialization.set_default_load_endianness(None)
    with pytest.raises(DTypeError, match="expected a LoadEndianness or None"):
        serialization.set_default_load_endianness("big")
    with pytest.raises(FileFormatError, match="expected the byte order little or big"):
        loaded(packed({**records, "byteorder": b"middle"}))


def test_settings():
    serialization.set_crc32_options(False)
    try:
        raw = saved(weft.ones(2))
    finally:
        serialization.set_crc32_options(True)
    assert loaded(raw).tolist() == [1, 1]
    with pytest.raises(ArgumentError, match=r"expected mmap\.MAP_PRIVATE"):
        serialization.set_default_mmap_options(1 << 20)
    with serialization.skip_data():
        assert loaded(saved(weft.ones(2))).shape == (2,)
    with pytest.raises(ArgumentError, match="no fake tensors"):
        serialization.skip_data(materialize_fake_tensors=True)


# -- hostile files

OLDER = b"".join(plain_pickle(x) for x in (0x1950A86A20F9469CFC6C, 1001, {}))


def archive_of(body, **records):
    return packed({"data.pkl": body, "byteorder": b"little", **records})


def with_name(module, name):
    return b"\x80\x02c" + module + b"\n" + name + b"\n"


EVIL = {
    "reduce": with_name(b"os", b"system") + b"X\x04\x00\x00\x00exit\x85R.",
    "posix": with_name(b"posix", b"system") + b"X\x04\x00\x00\x00exit\x85R.",
    "eval": with_name(b"__builtin__", b"eval") + b"X\x01\x00\x00\x001\x85R.",
    "getattr": with_name(b"builtins", b"getattr") + b"NN\x86R.",
    "inst": b"(X\x04\x00\x00\x00exitios\nsystem\n.",
    "obj": b"(cos\nsystem\nX\x04\x00\x00\x00exito.",
    "newobj": with_name(b"subprocess", b"Popen") + b"X\x02\x00\x00\x00ls\x85\x81.",
    "newobj_ex": b"\x80\x04csubprocess\nPopen\n)}\x92.",
    "stack_global": b"\x80\x04\x8c\x02os\x8c\x06system\x93X\x01\x00\x00\x00a\x85R.",
    "build": with_name(b"argparse", b"Namespace") + b")\x81}b.",
    "import": with_name(b"importlib", b"import_module") + b"X\x02\x00\x00\x00os\x85R.",
    "attribute": with_name(b"torch", b"load") + b".",
    "method": with_name(b"collections", b"OrderedDict.update") + b".",
    "dunder": with_name(b"torch", b"Tensor.__init__") + b".",
    "runner": with_name(b"torch.utils.collect_env", b"run") + b".",
}


@pytest.mark.parametrize("weights_only", [True, False])
@pytest.mark.parametrize("name", EVIL)
def test_nothing_is_executed(name, weights_only, monkeypatch):
    for module, attribute in ((os, "system"), (__builtins__, "eval")):
        if not isinstance(module, dict):
            monkeypatch.setattr(module, attribute, lambda *a: 1 / 0)
    for raw in (archive_of(EVIL[name]), OLDER + EVIL[name] + plain_pickle([])):
        with pytest.raises(FileFormatError, match=r"may not use|no file may use"):
            loaded(raw, weights_only=weights_only)


@pytest.mark.parametrize("name", ["reduce", "posix", "eval", "stack_global"])
def test_no_advice_to_allow_what_runs_programs(name):
    with pytest.raises(FileFormatError, match="do not trust it") as error:
        loaded(archive_of(EVIL[name]))
    assert "add_safe_globals" not in str(error.value)


def persistent(*args):
    """A tensor's pickle, over a storage with this persistent id."""
    storage = b"".join(args)
    return b"\x80\x02(" + storage + b"tQ."


WORD = b"X\x07\x00\x00\x00storage"
FLOAT = b"ctorch\nFloatStorage\n"
ZERO = b"X\x01\x00\x00\x000"
CPU = b"X\x03\x00\x00\x00cpu"

WRONG = {
    "unknown instruction": (b"\x80\x02\xff.", "unknown instruction"),
    "extension": (b"\x80\x02\x82\x01.", "an extension"),
    "persistent name": (b"Pabc\n.", "a persistent name"),
    "buffer": (b"\x80\x05\x97.", "a buffer outside of it"),
    "empty stack": (b"\x80\x02.", "takes more from its stack"),
    "below a mark": (b"\x80\x02K\x01(\x85.", "takes more from its stack"),
    "no mark": (b"\x80\x02t.", "a mark that it never set"),
    "no memo": (b"\x80\x02h\x09.", "object 9, which it lacks"),
    "cut": (b"\x80\x02X\xff\xff\xff\x7fabc", "ends in the middle"),
    "huge": (b"\x80\x04\x8d" + b"\xff" * 8 + b"a.", "ends in the middle"),
    "no end": (b"\x80\x02K\x01", "ends in the middle"),
    "append to a tuple": (b"\x80\x02)K\x01a.", "expected a list to append to"),
    "set an item of a list": (b"\x80\x02]K\x01K\x02s.", "expected a dictionary"),
    "odd items": (b"\x80\x02}(K\x01u.", "a key without a value"),
    "list as key": (b"\x80\x02}]K\x01s.", "expected keys of numbers"),
    "call a number": (b"\x80\x02K\x01)R.", "which is not a name that files may call"),
    "call a class": (with_name(b"torch", b"Tensor") + b")R.", "may call"),
    "arguments": (with_name(b"collections", b"OrderedDict") + b"K\x01R.", "a tuple"),
    "wrong arguments": (
        with_name(b"torch._utils", b"_rebuild_tensor_v2") + b"K\x01\x85R.",
        "wrong arguments",
    ),
    "state": (b"\x80\x02]}b.", "a list has a state"),
    "number": (b"Iabc\n.", "a number that is none"),
    "quotes": (b"Sabc\n.", "a string without quotes"),
    "text": (b"\x80\x02X\x01\x00\x00\x00\xff.", "is no utf-8"),
    "set": (b"\x80\x04](K\x01\x90.", "expected a set to add to"),
    "keywords": (
        b"\x80\x04ccollections\nOrderedDict\n)}K\x01K\x02s\x92.", "keywords"),
    "id of a string": (b"\x80\x02X\x01\x00\x00\x00aQ.", "refer to storages"),
    "id of a number": (b"\x80\x02K\x01Q.", "refer to storages"),
    "id of a module": (persistent(b"X\x06\x00\x00\x00module", FLOAT), "refer to"),
    "id of a list": (persistent(WORD, b"]", ZERO, CPU, b"K\x01"), "refer to storages"),
    "negative count": (
        persistent(WORD, FLOAT, ZERO, CPU, b"J\xff\xff\xff\xff"), "refer to storages"),
    "wrong count": (persistent(WORD, FLOAT, ZERO, CPU, b"K\x07"), "should have 28"),
    "no such storage": (
        persistent(WORD, FLOAT, b"X\x01\x00\x00\x005", CPU, b"K\x01"), "no record"),
    "storage outside": (
        persistent(WORD, FLOAT, b"X\x05\x00\x00\x00../..", CPU, b"K\x01"), "no record"),
    "sparse": (
        with_name(b"torch._utils", b"_rebuild_sparse_tensor") + b".", "a sparse tensor"
    ),
    "factory": (
        with_name(b"collections", b"defaultdict")
        + b"cnumpy\nndarray\n\x85R.", "factory of a defaultdict"),
    "numpy objects": (
        with_name(b"numpy", b"dtype") + b"X\x01\x00\x00\x00O\x85R.", "of numbers"),
}  # fmt: skip


@pytest.mark.parametrize("name", WRONG)
def test_wrong_pickles(name):
    body, message = WRONG[name]
    raw = archive_of(body, **{"data/0": bytes(8)})
    with pytest.raises(FileFormatError, match=message):
        loaded(raw)


def tensor_pickle(offset, size, stride, numel=4, dtype=b"Float"):
    """The pickle of one tensor with any numbers."""
    pickler = Pickler()
    numbers = pickler.run((offset, size, stride, False, {}))[0][2:-1]
    numbers = numbers[: numbers.rindex(b"t")]
    storage = persistent(
        WORD, b"ctorch\n" + dtype + b"Storage\n", ZERO, CPU, b"K" + bytes([numel])
    )[2:-1]
    head = b"\x80\x02ctorch._utils\n_rebuild_tensor_v2\n("
    return head + storage + numbers[1:] + b"tR."


@pytest.mark.parametrize(
    ("numbers", "message"),
    [
        ((0, (5,), (1,)), "needs 5 elements; its storage has 4"),
        ((4, (1,), (1,)), "needs 5 elements"),
        ((-1, (1,), (1,)), "an offset of 0 or more"),
        ((0, (-1,), (1,)), "sizes and strides of a tensor to be 0 or more"),
        ((0, (2,), (-1,)), "sizes and strides of a tensor to be 0 or more"),
        ((0, (2**62,), (0,)), "is too large"),
        ((0, (2**40, 2**40), (0, 0)), "is too large"),
        ((0, (1,), (2**62,)), "too large"),
        ((0, (2, 2), (1,)), "as many strides as sizes"),
        ((0, (1,) * 65, (1,) * 65), "at most 64"),
        ((0, 3, 1), "sizes and strides"),
        ((0, (True,), (1,)), "sizes and strides"),
        ((2**70, (1,), (1,)), "needs"),
        ((1.5, (1,), (1,)), "an offset of 0 or more"),
    ],
)
def test_tensors_that_do_not_fit_their_storage(numbers, message):
    raw = archive_of(tensor_pickle(*numbers), **{"data/0": bytes(16)})
    with pytest.raises(FileFormatError, match=message):
        loaded(raw)


def test_tensors_of_overlapping_elements_are_not_written_to():
    raw = archive_of(tensor_pickle(0, (10**6, 4), (0, 1)), **{"data/0": bytes(16)})
    x = loaded(raw)
    assert x.shape == (10**6, 4)
    assert not x.array().flags.writeable


def test_booleans_of_other_bytes():
    raw = archive_of(
        tensor_pickle(0, (4,), (1,), dtype=b"Bool"), **{"data/0": b"\2" * 4}
    )
    with pytest.raises(FileFormatError, match="expected booleans of 0 and 1"):
        loaded(raw)


def test_archives_that_lie():
    raw = saved(weft.ones(4))
    good = parts(raw)
    at = raw.rindex(b"PK\x05\x06")
    entry = raw.index(b"PK\x01\x02")
    last = raw.rindex(b"PK\x01\x02")
    cases = [
        (raw[:-30], "no end"),
        (b"PK\x03\x04" + bytes(40), "no end"),
        (raw[:entry] + b"PK\x01\x09" + raw[entry + 4 :], "directory is damaged"),
        (raw[: entry + 10] + b"\x08\x00" + raw[entry + 12 :], "compressed or"),
        (raw[: entry + 8] + b"\x01\x08" + raw[entry + 10 :], "compressed or encrypted"),
        (raw[: last + 42] + bytes(4) + raw[last + 46 :], "overlap"),
        (raw[: at - 16] + b"\xff" * 12 + raw[at - 4 :], "does not have"),
        (raw[: at - 76] + b"PK\x06\x09" + raw[at - 72 :], "no end"),
        (raw[: at - 20] + bytes(20) + raw[at:-6] + b"\xff" * 6, "not inside|damaged"),
        (b"PK\x05\x06" + bytes(18), "is empty"),
        (raw.replace(b"archive/data/0", b"archive/version"), "."),
        (packed({"byteorder": b"little"}), "no record 'data.pkl"),
        (packed({**good, "constants.pkl": b""}), "TorchScript"),
        (raw.replace(b"\x00\x00\x80?", b"\x00\x00\x80@", 1), "wrong checksum"),
    ]  # fmt: skip
    for number, (case, message) in enumerate(cases):
        with pytest.raises(FileFormatError, match=message):
            print(number, loaded(case))
    twice = io.BytesIO()
    from weft.serialization.archive import Writer

    writer = Writer(twice.write, "archive", True)
    for _ in range(2):
        writer.add("data.pkl", b"\x80\x02N.")
    writer.finish()
    with pytest.raises(FileFormatError, match=r"two records 'archive/data\.pkl'"):
        loaded(twice.getvalue())


def test_older_files_that_lie():
    raw = saved(weft.ones(4), _use_new_zipfile_serialization=False)
    numel = struct.pack("<q", 4)
    cases = [
        (raw[:-1], "should have 4 elements"),
        (raw.replace(numel, struct.pack("<q", -1)), "should have 4 elements"),
        (raw.replace(numel, struct.pack("<q", 2**62)), "should have 4 elements"),
        (pickle.dumps({"a": 1}, 2), "without torch.save's magic number"),
        (plain_pickle(0x1950A86A20F9469CFC6C) + plain_pickle(3), "without torch.save"),
        (OLDER[: -len(plain_pickle({}))] + plain_pickle(3), "expected facts"),
        (OLDER + plain_pickle(1) + plain_pickle(["a"]), "not those that the pickle"),
        (OLDER + plain_pickle(1) + plain_pickle(3), "not those that the pickle"),
    ]  # fmt: skip
    for case, message in cases:
        with pytest.raises(FileFormatError, match=message):
            loaded(case)


def test_pickles_that_would_take_much_memory(monkeypatch):
    monkeypatch.setattr(machine, "ALLOWANCE", 1 << 20)
    count = 100_000
    for body in (b"\x80\x02(" + b"]" * count, b"\x80\x04(" + b"\x8f" * count,
                 b"\x80\x02" + b"(" * count, b"\x80\x02)" + b"\x85" * count,
                 b"\x80\x02c__builtin__\nset\nq\x00" + b"h\x00)R" * count):  # fmt: skip
        tracemalloc.start()
        with pytest.raises(FileFormatError, match="32 times the memory of its pickle"):
            loaded(archive_of(body))
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert peak < (2 << 20) + 40 * len(body)


def test_tensors_where_words_and_numbers_belong():
    """Comparing a tensor gives a tensor, whose truth is an error of another kind."""
    tensor = tensor_pickle(0, (4,), (1,))[2:-1]
    for body in (tensor + b"0N.", b"(" + tensor + FLOAT + ZERO + CPU + b"K\x01tQ.",
                 b"ccollections\nOrderedDict\n)" + tensor + b"\x92.",
                 b"ccollections\ndefaultdict\n" + tensor + b"\x85R.",
                 b"c_codecs\nencode\n" + ZERO + tensor + b"\x86R.",
                 b"ctorch.nn.parameter\nParameter\n" + tensor * 2 + b"\x86R.",
                 tensor + tensor + b"b."):  # fmt: skip
        raw = archive_of(b"\x80\x02" + body, **{"data/0": bytes(16)})
        if body.endswith(b"0N."):
            assert loaded(raw) is None
        else:
            with pytest.raises(FileFormatError):
                loaded(raw)
    array = pickle.dumps(np.ones(2), 2)
    with pytest.raises(FileFormatError, match="magic number"):
        loaded(array)


def test_keys_that_take_long_to_hash():
    nested = b"K\x01\x85" + b"2\x86" * 60
    body = b"\x80\x02}" + nested + b"K\x01s."
    with pytest.raises(FileFormatError, match="expected keys of numbers"):
        loaded(archive_of(body))


def test_strings_of_python_2():
    body = b"\x80\x02}(U\x01aU\x02\xc3\xa9S'b\\n'\nI01\nu."
    assert loaded(archive_of(body)) == {"a": "é", "b\n": True}
    assert loaded(archive_of(body), encoding="bytes")[b"a"] == "é".encode()
    assert loaded(archive_of(body), encoding="latin1")["a"] == "Ã©"
    with pytest.raises(FileFormatError, match="no ascii"):
        loaded(archive_of(body), encoding="ascii")


def test_protocol_0():
    value = {"a": [1, -2, 2**70, 1.5, None, True, "ü"], "b": (1, (2, 3, 4, 5))}
    for protocol in range(6):
        body = pickle.dumps(value, protocol)
        assert loaded(archive_of(body)) == value
        mixed = [bytearray(b"a"), b"bytes", {1, 2}, frozenset({3}), 1 + 2j]
        assert loaded(archive_of(pickle.dumps(mixed, protocol))) == mixed


def test_mutations():
    seeds = [path.read_bytes() for path in sorted(GOLDEN.glob("torch_*.pt"))]
    found = run(seeds, 400, random.randrange(1 << 30))
    assert sum(found.values()) == 400
    assert found["refused"] > 200


def test_loading_torch_files_takes_about_their_size(tmp_path):
    path = tmp_path / "large.pt"
    weft.save({str(k): weft.zeros(50_000) for k in range(8)}, path)
    tracemalloc.start()
    found = weft.load(path)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    size = sum(x.nbytes for x in found.values())
    assert size <= peak < 1.2 * path.stat().st_size


def test_the_module_is_the_one_that_tests_name():
    assert sys.modules[Plain.__module__].Plain is Plain
