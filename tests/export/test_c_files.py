"""Programs as C files and as libraries: equal to eager results, or refused."""

import ctypes
import pathlib
import re
import subprocess

import numpy as np
import pytest
from c_programs import CC, STRICT, CModel, compiled, needs_cc

import weft
from weft import nn, optim
from weft.errors import ArgumentError
from weft.nn import functional as F

pytestmark = needs_cc
CHECKED = ("-O1", "-fsanitize=undefined", "-fno-sanitize-recover=all")
BATCH, TIME = (
    weft.export.Dim(name, min=1, max=most)
    for name, most in (("batch", 9), ("time", 64))
)


@pytest.fixture(params=["c", "so"])
def exported(request, tmp_path):
    """A function that exports a program, and gives a model of it."""

    def make(program, example, size=1 << 23, flags=CHECKED, name="net", **how):
        path = tmp_path / f"{name}.{request.param}"
        weft.export(program, example, path, **how)
        init = [bytes(path.with_suffix(".safetensors"))] if "weights" in how else []
        model = CModel(path, size, *init, flags=flags)
        assert model.init_code == "OK"
        return model

    make.kind = request.param
    return make


def call(model, entry, args, like):
    """The code and the results of a call that gives tensors like some others."""
    results = [np.full(t.shape, 7, t.dtype.np) for t in like]
    return model(entry, [np.array(a.numpy()) for a in args], results), results


def check(model, program, *args, entry="run", close=5e-6):
    want = program(*args)
    want = want if isinstance(want, (tuple, list)) else [want]
    code, results = call(model, entry, args, want)
    assert code == "OK"
    for result, w in zip(results, want, strict=True):
        np.testing.assert_allclose(result, w.detach().numpy(), rtol=close, atol=close)


class Dynamic(nn.Module):
    """A loop over rows, a loop that ends when values say so, and a branch."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(4, 4)

    def forward(self, x):
        def step(h, row):
            h = weft.tanh(self.layer(h) + row)
            return h, (h, h * 2)

        h, ys = weft.scan(step, weft.zeros(4), x)
        count, y = weft.while_loop(
            lambda n, v: v.abs().sum() < 100,
            lambda n, v: (n + 1, v * 1.5 + 1),
            (weft.tensor(0), h),
        )
        z = weft.cond(y.sum() > 0, lambda v: v.tanh(), lambda v: v.cos(), y)
        return h, *ys, count, y, z


def image_net():
    return nn.Sequential(
        nn.Conv2d(1, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(8, 12, 3, stride=2, groups=4), nn.GELU(), nn.Flatten(),
        nn.Linear(12, 10), nn.Softmax(-1),
    ).eval()  # fmt: skip


class Sequence(nn.Module):
    def __init__(self):
        super().__init__()
        self.lstm = nn.LSTM(4, 6, num_layers=2, bidirectional=True, batch_first=True)

    def forward(self, x):
        out, (h, c) = self.lstm(x)
        return out, h, c


def orders(x):
    values, places = weft.sort(x, -1)
    best, where = weft.topk(x, 3)
    return values, places, best, where, x.cumsum(0), x.argmax(-1), x.median(-1)[0]


def tokens(*shape):
    return weft.randint(0, 20, shape)


def gpt():
    return weft.models.GPT(vocab=20, context=16, width=16, heads=2, layers=2).eval()


CASES = {
    "images": (image_net, [weft.randn(n, 1, 8, 8) for n in (3, 1, 5)], ({0: BATCH},)),
    "loops": (Dynamic, [weft.randn(n, 4) for n in (3, 1, 7)], ({0: TIME},)),
    "lstm": (Sequence, [weft.randn(2, n, 4) for n in (3, 1, 7)], None),
    "orders": (lambda: orders, [weft.randn(4, 300)], None),
    "gpt": (gpt, [tokens(2, 5), tokens(1, 1), tokens(3, 16)], ({0: BATCH, 1: TIME},)),
    "fixed gpt": (gpt, [tokens(2, 16)], None),
}


@pytest.mark.parametrize("name", CASES)
def test_results_are_those_of_eager_programs(exported, name):
    make, calls, dynamic = CASES[name]
    weft.manual_seed(0)
    program = make()
    model = exported(program, calls[0], dynamic_shapes=dynamic)
    for x in calls if dynamic else calls[:1]:
        check(model, program, x)


def test_products_of_all_types_and_layouts(exported):
    def products(a, b, c, w):
        whole = (b @ b.mT).to(weft.int32), (c @ c).float()
        return a @ a.mT, a.mT @ a, a[0] @ w, a[:, :1] @ w[None], a[::2] @ w, *whole

    a, w = weft.randn(3, 5, 37), weft.randn(37, 300)
    b = weft.randint(-9, 9, (4, 6)).to(weft.int8)
    c = weft.randn(5, 5).to(weft.bfloat16)
    args = a, b, c, w
    check(exported(products, args), products, *args, close=1e-5)


def test_results_of_all_kinds(exported):
    """Arguments, constants, views and doubles as results; numbers and None are none."""
    constant = weft.tensor([1.0, 2.0])

    def results(x, b, s, h, i):
        y = x * 2
        whole = [i // 3, i % 3, i << 2, i.to(weft.uint8)]
        views = {"t": x.T, "slice": x[0, 1:], "cat": weft.cat([x, y], 1)}
        others = s * s, h * h + 1, ~b, b.any(), weft.zeros(3)
        return x, y, y, constant, *whole, *views.values(), *others, 3.5, None

    args = [
        weft.randn(2, 3), weft.tensor([True, False]), weft.tensor(1.5).double(),
        weft.randn(4).half(), weft.tensor([-7, 8, 300]),
    ]  # fmt: skip
    model = exported(results, tuple(args))
    *want, _, _ = results(*args)
    code, found = call(model, "run", args, want)
    assert code == "OK"
    for result, w in zip(found, want, strict=True):
        np.testing.assert_allclose(result, w.numpy(), rtol=1e-6)


def test_a_program_without_arguments(exported):
    model = exported(lambda: weft.arange(3) * 2, ())
    code, (result,) = call(model, "run", [], [weft.arange(3)])
    assert (code, list(result)) == ("OK", [0, 2, 4])


def test_exported_programs_can_be_written(exported):
    net = image_net()
    x = weft.randn(2, 1, 8, 8)
    program = weft.export.export(net, (x,), dynamic_shapes=({0: BATCH},))
    model = exported(program, (x,))
    check(model, net, weft.randn(4, 1, 8, 8))


def test_threads_give_the_same_bits(exported):
    net, x = nn.Sequential(nn.Linear(64, 256), nn.GELU(), nn.LayerNorm(256)), None
    x = weft.randn(99, 64)
    found = []
    for name, flags in {"one": (), "two": ("-DTWO_THREADS=3",)}.items():
        model = exported(net, x, flags=("-O1", *flags), name=name)
        code, results = call(model, "run", [x], [weft.zeros(99, 256)])
        assert code == "OK"
        found.append(results[0])
    np.testing.assert_array_equal(*found)


# -- state


def test_random_numbers_are_those_of_eager_programs(exported):
    def draw(x):
        return F.dropout(x, 0.5), weft.randn(3), weft.randint(0, 9, (4,))

    x = weft.ones(5)
    weft.manual_seed(3)
    model = exported(draw, x)
    weft.manual_seed(3)
    for _ in range(3):
        check(model, draw, x)


def test_a_training_step_and_a_prediction_share_their_state(exported):
    weft.manual_seed(0)
    net = nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Dropout(0.1), nn.Linear(16, 3))
    optimizer = optim.AdamW(net.parameters(), lr=0.05)

    def train(x, y):
        optimizer.zero_grad()
        loss = F.cross_entropy(net(x), y)
        loss.backward()
        optimizer.step()
        return loss

    def predict(x):
        return net(x).softmax(-1)

    x, y = weft.randn(12, 8), weft.randint(0, 3, (12,))
    entries = {"train": train, "predict": predict}
    model = exported(entries, {"train": (x, y), "predict": x})
    losses = []
    for _ in range(6):
        check(model, train, x, y, entry="train", close=1e-5)
        losses.append(train(x, y).item())
        assert call(model, "train", (x, y), [weft.zeros(())])[0] == "OK"
    assert losses[-1] < losses[0]
    check(model, predict, x, entry="predict", close=1e-4)
    want = net[0].weight.detach().numpy()
    np.testing.assert_allclose(state_of(model, "0.weight"), want, rtol=1e-4, atol=1e-5)


def state_of(model, part):
    get = model.library[f"{model.name}_state"]
    get.restype = ctypes.c_void_p
    nbytes = ctypes.c_size_t()
    place = get(model.model, part.encode(), ctypes.byref(nbytes))
    data = ctypes.string_at(place, nbytes.value)
    assert get(model.model, b"nothing", None) is None
    return np.frombuffer(data, np.float32).reshape(-1, 8)


class Cached(nn.Module):
    """Attention of one token to those before it, which a cache holds."""

    def __init__(self):
        super().__init__()
        self.qkv = nn.Linear(8, 24)
        self.register_buffer("keys", weft.zeros(10, 8))
        self.register_buffer("values", weft.zeros(10, 8))
        self.register_buffer("count", weft.zeros((), dtype=weft.int64))

    def forward(self, x):
        q, k, v = self.qkv(x).chunk(3)
        self.keys.index_copy_(0, self.count.view(1), k[None])
        self.values.index_copy_(0, self.count.view(1), v[None])
        seen = weft.arange(10) <= self.count
        scores = (self.keys @ q).masked_fill(~seen, -weft.inf)
        self.count += 1
        return scores.softmax(0) @ self.values


def test_caches_are_state_and_a_failure_leaves_it_as_it_was(exported):
    weft.manual_seed(0)
    net = Cached()
    with weft.no_grad():
        model = exported(net, weft.randn(8))
        for _ in range(10):
            check(model, net, weft.randn(8))
        before = state_of(model, "keys")
        code, _ = call(model, "run", [weft.randn(8)], [weft.zeros(8)])
        assert code == "VALUE"  # there is no place for an eleventh
        np.testing.assert_array_equal(state_of(model, "keys"), before)
        np.testing.assert_allclose(before, net.keys.numpy(), atol=1e-6)
        assert model.init(1 << 22) == "OK"  # begins anew
        assert call(model, "run", [weft.randn(8)], [weft.zeros(8)])[0] == "OK"


# -- bad input


def test_codes_of_wrong_calls(exported):
    net = nn.Embedding(5, 3)
    ids = weft.tensor([[0, 4], [2, 2]])
    model = exported(net, ids, dynamic_shapes=({0: BATCH},))
    out = [weft.zeros(2, 2, 3)]
    check(model, net, ids)
    for wrong in (5, -6, 2**40):
        assert (
            call(model, "run", [weft.tensor([[0, 1], [wrong, 2]])], out)[0] == "VALUE"
        )
    assert call(model, "run", [weft.zeros(2, 3, dtype=weft.int64)], out)[0] == "SHAPE"
    assert call(model, "run", [ids], [weft.zeros(3, 2, 3)])[0] == "SHAPE"
    run = model.library.net_run
    assert run(model.model, None, None, None, None) == 2
    assert run(None, None, None, None, None) == 1
    assert model.init(10) == "MEMORY_TOO_SMALL"
    assert call(model, "run", [ids], out)[0] == "NOT_INITIALIZED"
    assert model.library.net_init(model.model, None, 1 << 20) == 2
    message = model.library.net_message
    message.restype = ctypes.c_char_p
    texts = {message(code) for code in range(-1, 9)}
    assert len(texts) == 8
    assert b"no such code" in texts


def test_mutated_shapes_are_refused(exported):
    net, rng = gpt(), np.random.default_rng(0)
    model = exported(net, tokens(2, 5), dynamic_shapes=({0: BATCH, 1: TIME},))
    needs = model.library.net_run_memory
    needs.restype, needs.argtypes = ctypes.c_size_t, [ctypes.c_int64] * 2
    assert model.init(needs(2, 5)) == "OK"
    ids, out = np.zeros((9, 16), np.int64), np.zeros((9, 16, 20), np.float32)
    run, pointers = model.library.net_run, [model.model]
    odd = [0, 1, 2, 5, 9, 10, 16, 17, -1, -(2**63), 2**31, 2**62, 2**63 - 1]
    codes = set()
    for _ in range(900):
        b, t = (int(n) for n in rng.choice(odd, 2))
        shape = [b, t, 20]
        if rng.random() < 0.5:
            shape[rng.integers(3)] = int(rng.choice(odd))
        a, y = (ctypes.c_int64 * 2)(b, t), (ctypes.c_int64 * 3)(*shape)
        code = run(*pointers, ids.ctypes.data_as(ctypes.c_void_p), a,
                   out.ctypes.data_as(ctypes.c_void_p), y)  # fmt: skip
        fits = 1 <= b <= 9 and 1 <= t <= 16 and shape == [b, t, 20]
        assert (code in (0, 4)) == fits
        assert fits or code == 3
        codes.add(code)
    assert codes == {0, 3, 4}


def test_memory_of_open_sizes(exported):
    net = nn.Sequential(nn.Linear(4, 50), nn.Tanh(), nn.Linear(50, 2))
    x = weft.randn(9, 4)
    model = exported(net, x, dynamic_shapes=({0: BATCH},))
    needs = model.library.net_run_memory
    needs.restype, needs.argtypes = ctypes.c_size_t, [ctypes.c_int64]
    exact = needs(9)
    assert needs(8) < exact
    assert needs(2**62) == 2**64 - 1
    assert model.init(exact) == "OK"
    check(model, net, x)
    assert model.init(exact - 1) == "OK"
    assert call(model, "run", [x], [weft.zeros(9, 2)])[0] == "MEMORY_TOO_SMALL"
    check(model, net, x[:4])


def test_sizes_for_which_others_are_negative_or_empty(exported):
    def later(x, ids):
        return x[3:][ids] + 1

    x, ids = weft.randn(5, 2), weft.tensor([0, 1])
    model = exported(later, (x, ids), dynamic_shapes=({0: BATCH}, None))
    check(model, later, x, ids)
    check(model, later, weft.randn(9, 2), weft.tensor([5, -1]))
    for n in (1, 2, 3):
        code, _ = call(model, "run", [weft.randn(n, 2), ids], [weft.zeros(2, 2)])
        assert code in ("SHAPE", "VALUE")


def test_a_size_of_zero_is_refused(tmp_path):
    with pytest.raises(ArgumentError, match="for these dtypes and shapes"):
        weft.export(
            lambda x, i: x[i], (weft.ones(0, 2), weft.tensor([0])), tmp_path / "a.c"
        )


def test_state_that_begins_as_a_weight_does(exported):
    """One is in the file, the other beside it."""
    weight = weft.randn(64, 50)
    state = weight.clone()

    def step(x):
        y = x @ weight + state.mean(0)
        state.add_(1)
        return y

    x = weft.randn(3, 64)
    model = exported(step, x, weights="beside")
    for _ in range(2):
        check(model, step, x, close=1e-4)


def test_weights_beside_the_file(exported, tmp_path):
    net, x = nn.Linear(64, 50), weft.randn(3, 64)
    model = exported(net, x, weights="beside")
    check(model, net, x)
    path = tmp_path / "net.safetensors"
    whole = path.read_bytes()
    assert weft.load(path)
    assert path.with_suffix(f".{exported.kind}").stat().st_size < 50_000
    for broken in (whole[:-1], whole + b"x", whole[:9], b"", b"x" + whole[1:]):
        path.write_bytes(broken)
        assert model.init(1 << 22, bytes(path)) == "WEIGHTS"
        assert call(model, "run", [x], [weft.zeros(3, 50)])[0] == "NOT_INITIALIZED"
    assert model.init(1 << 22, b"/no/such/file") == "WEIGHTS"


@pytest.mark.parametrize("name", ["net.c", "net.so"])
def test_operators_without_a_form_are_named_at_once(name, tmp_path):
    def f(x):
        y = weft.linalg.svd(x)[1]
        return y, weft.fft.fft(x).abs(), weft.special.bessel_j0(x)

    with pytest.raises(ArgumentError, match="has no form of these operators") as info:
        weft.export(f, weft.randn(3, 3), tmp_path / name)
    text = str(info.value)
    assert all(name in text for name in ("svd", "fft", "bessel_j0"))
    assert "test_c_files.py:" in text
    assert list(tmp_path.iterdir()) == []


def test_the_target_c_needs_no_suffix(tmp_path):
    files = weft.export(nn.ReLU(), weft.ones(2), tmp_path / "net", target="c")
    assert files == [str(tmp_path / "net.c"), str(tmp_path / "net.h")]


def test_refusals(tmp_path):
    def writes(given):
        given["y"] = given["x"] * 2
        return given["x"]

    def changes(x):
        return x.add_(1)

    x = weft.ones(2)
    wrong = {
        "changes lists": (writes, {"x": x}, "a.c", {}),
        "changes an argument": (changes, x, "a.c", {}),
        "ends in .c, .o": (nn.ReLU(), x, "a.pt", {}),
        "expected a path": (nn.ReLU(), x, None, {}),
        "'inside' or 'beside'": (nn.ReLU(), x, "a.c", {"weights": "far"}),
        "a dictionary of examples": ({"f": nn.ReLU()}, x, "a.c", {}),
        "got int": (3, x, "a.c", {}),
    }
    for text, (program, example, name, how) in wrong.items():
        with pytest.raises(ArgumentError, match=text):
            weft.export(program, example, name and tmp_path / name, **how)
    assert list(tmp_path.iterdir()) == []


def test_a_failed_write_leaves_the_old_files(tmp_path, monkeypatch):
    weft.export(nn.ReLU(), weft.ones(2), tmp_path / "net.c")
    before = {p.name: p.read_bytes() for p in tmp_path.iterdir()}

    def fail(*args):
        raise OSError("the disk is full")

    monkeypatch.setattr("os.fsync", fail)
    with pytest.raises(OSError, match="the disk is full"):
        weft.export(nn.Tanh(), weft.ones(3), tmp_path / "net.c")
    assert {p.name: p.read_bytes() for p in tmp_path.iterdir()} == before


def test_names_that_c_does_not_allow(tmp_path):
    def f(m, float, io, x):
        return {"double": m + float, "x": io * x, "0": x}

    args = [weft.ones(2) * k for k in range(4)]
    weft.export(f, tuple(args), tmp_path / "3 nets.c")
    compiled(tmp_path / "3 nets.c", "-O0")
    net, x = nn.Tanh(), weft.ones(2)
    for name in ("int", "exp", "run", "main", "kernel0"):
        weft.export(net, x, tmp_path / f"{name}.c")
        compiled(tmp_path / f"{name}.c", "-O0")
    for entry in ("init", "a b", "größe"):
        with pytest.raises(ArgumentError, match="cannot be the name of a function"):
            weft.export({entry: net}, {entry: x}, tmp_path / "net.c")
    with pytest.raises(ArgumentError, match="give the file another name"):
        weft.export({"f32": net}, {"f32": x}, tmp_path / "tanh.c")
    with pytest.raises(ArgumentError, match="cannot be the name of a C file"):
        weft.export(net, x, tmp_path / 'a"b.c')


@pytest.mark.parametrize("level", ["-O0", "-O3"])
def test_all_optimisation_levels_agree(level, tmp_path):
    net, x = image_net(), weft.randn(2, 1, 8, 8)
    weft.export(net, x, tmp_path / "net.c")
    model = CModel(tmp_path / "net.c", 1 << 22, flags=(level,))
    check(model, net, x)


PAGE = pathlib.Path(__file__).parents[2] / "docs" / "export.md"


@pytest.mark.parametrize("suffix", ["c", "o"])
@pytest.mark.parametrize("flags", [("-O3",), ("-O1", "-fsanitize=address,undefined")])
def test_the_program_of_the_documentation(suffix, flags, tmp_path):
    """The page's C, with the page's model, under both sanitizers as well."""
    (program,) = re.findall(r"```c\n(.*?)```", PAGE.read_text(), re.DOTALL)
    (tmp_path / "main.c").write_text(program)
    net = nn.Sequential(nn.Flatten(), nn.Linear(64, 32), nn.GELU(), nn.Linear(32, 10))
    example = weft.zeros(1, 1, 8, 8)
    made = f"digits.{suffix}"
    weft.export(net, example, tmp_path / made, dynamic_shapes=({0: BATCH},))
    command = [CC, *STRICT, *flags, "main.c", made, "-o", "main", "-lm", "-lpthread"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    ran = subprocess.run([tmp_path / "main"], capture_output=True, text=True)
    assert (ran.returncode, ran.stderr) == (0, "")
    images = (weft.arange(128) % 17).float().view(2, 1, 8, 8) / 16
    best, labels = net(images).max(-1)
    for k, line in enumerate(ran.stdout.splitlines()):
        found = re.fullmatch(r"image (\d) is a (\d): (-?[\d.]+)", line)
        assert (int(found[1]), int(found[2])) == (k, labels[k].item())
        assert abs(float(found[3]) - best[k].item()) < 1e-4
    assert len(ran.stdout.splitlines()) == 2


def test_a_file_needs_libc_and_libm_alone(tmp_path):
    weft.export(image_net(), weft.randn(1, 1, 8, 8), tmp_path / "net.c")
    compiled(tmp_path / "net.c", "-O3")
    symbols = subprocess.run(
        ["nm", "-u", tmp_path / "net.so"], capture_output=True, text=True, check=True
    )
    names = {line.split()[-1].partition("@")[0] for line in symbols.stdout.splitlines()}
    wanted = {name for name in names if not name.startswith("_")}
    assert wanted <= {"memcpy", "memset", "memmove", "floor", "floorf", "fmod", "fmodf"}
    code = (tmp_path / "net.so").stat().st_size
    assert code < 300_000
