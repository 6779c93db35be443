"""Object code for other machines, run by QEMU; and levels of one kind of CPU."""

import importlib.util
import shutil
import subprocess
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from c_mains import main_of, results_of, zig
from c_programs import CModel, needs_cc
from test_c_files import Cached, Dynamic, Sequence, gpt, image_net, tokens

import weft
from weft import nn
from weft.compile.targets.object.machines import host_name
from weft.errors import ArgumentError
from weft.nn import functional as F

pytestmark = needs_cc
HAS_ZIG = importlib.util.find_spec("ziglang") is not None
needs_zig = pytest.mark.skipif(not HAS_ZIG, reason="ziglang is not installed")
# What runs the programs of a machine, and which: together all of them.
QEMU = {
    "aarch64": ("qemu-aarch64-static", ("images", "loops", "gpt", "random")),
    "riscv64": ("qemu-riscv64-static", ("images", "lstm", "cache", "orders")),
}
on_x86 = pytest.mark.skipif(host_name() != "x86_64-linux", reason="for x86-64 alone")


def draw(x):
    return F.dropout(x, 0.5), weft.randn(3), weft.randint(0, 9, (4,))


def orders(x):
    return weft.sort(x, -1)[0], x.cumsum(0), x.argmax(-1), (x.half() * 3).float()


PROGRAMS = {
    "images": lambda: (image_net(), weft.randn(2, 1, 8, 8)),
    "loops": lambda: (Dynamic(), weft.randn(3, 4)),
    "lstm": lambda: (Sequence(), weft.randn(2, 5, 4)),
    "gpt": lambda: (gpt(), tokens(2, 16)),
    "cache": lambda: (Cached(), weft.randn(8)),
    "random": lambda: (draw, weft.ones(5)),
    "orders": lambda: (orders, weft.randn(4, 30)),
}
CALLS = 2


def leaves(value):
    return value if isinstance(value, (tuple, list)) else [value]


@needs_zig
@pytest.mark.parametrize("family", QEMU)
def test_programs_on_other_machines_agree_with_eager_ones(family, tmp_path):
    command, names = QEMU[family]
    runner = shutil.which(command)
    if runner is None:
        pytest.skip(f"{command} is not installed")
    for name in names:
        weft.manual_seed(0)
        with weft.no_grad():
            program, x = PROGRAMS[name]()
            weft.manual_seed(1)
            path = tmp_path / f"{name}.o"
            weft.export(program, x, path, target=f"{family}-linux", threads=2)
            weft.manual_seed(1)
            want = [
                [t.numpy().copy() for t in leaves(program(x))] for _ in range(CALLS)
            ]
        like = [np.zeros_like(w) for w in want[0]]
        source = main_of(name, [x.numpy()], like, calls=CALLS)
        (tmp_path / f"{name}.c").write_text(source)
        zig("cc", "-target", f"{family}-linux-musl", "-static", f"{name}.c",
            f"{name}.o", "-o", name, cwd=tmp_path)  # fmt: skip
        found = results_of([runner, f"./{name}"], like, cwd=tmp_path, calls=CALLS)
        for some, wanted in zip(found, want, strict=True):
            for got, w in zip(some, wanted, strict=True):
                np.testing.assert_allclose(got, w, rtol=1e-5, atol=1e-5, err_msg=name)


LEVELS = ["x86-64-v2", "x86-64-v3", "x86-64-v4"]


@on_x86
@pytest.mark.parametrize("cpu", ["", "Nehalem", "Haswell"])
def test_a_library_takes_the_best_code_for_the_cpu(cpu, tmp_path):
    """A CPU that lacks AVX stops a program that uses it."""
    runner = shutil.which("qemu-x86_64-static") if cpu else ""
    if runner is None:
        pytest.skip("qemu-x86_64-static is not installed")
    weft.manual_seed(0)
    net, x = image_net(), weft.randn(2, 1, 8, 8)
    weft.export(net, x, tmp_path / "net.o", cpu=LEVELS, threads=1)
    want = net(x).detach().numpy()
    (tmp_path / "main.c").write_text(main_of("net", [x.numpy()], [want]))
    command = [shutil.which("cc"), "-O1", "main.c", "net.o", "-static", "-o", "main"]
    subprocess.run(command, cwd=tmp_path, check=True)
    command = [runner, "-cpu", cpu, "./main"] if cpu else ["./main"]
    ((found,),) = results_of(command, [want], cwd=tmp_path)
    np.testing.assert_allclose(found, want, rtol=1e-5, atol=1e-6)


@on_x86
@pytest.mark.parametrize("cpu", ["x86-64", *LEVELS[:2], "native", None])
def test_code_for_one_cpu(cpu, tmp_path):
    net, x = image_net(), weft.randn(2, 1, 8, 8)
    weft.export(net, x, tmp_path / "net.so", cpu=cpu, threads=1)
    model = CModel(tmp_path / "net.so", 1 << 23)
    want = net(x).detach().numpy()
    found = np.zeros_like(want)
    assert model("run", [x.numpy()], [found]) == "OK"
    np.testing.assert_allclose(found, want, rtol=1e-5, atol=1e-6)


@needs_zig
@pytest.mark.parametrize("suffix", ["dll", "dylib"])
def test_libraries_for_other_machines_are_linked(suffix, tmp_path):
    """Linked they are; nothing here can run them."""
    net = nn.Linear(3, 2)
    path = tmp_path / f"net.{suffix}"
    files = weft.export(net, weft.ones(1, 3), path)
    assert files == [str(path), str(path.with_suffix(".h"))]
    start = {"dll": b"MZ", "dylib": b"\xcf\xfa\xed\xfe"}[suffix]
    code = path.read_bytes()
    assert code.startswith(start)
    assert all(f"net_{name}".encode() in code for name in ("init", "run", "message"))


def test_options_that_do_not_go_together(tmp_path):
    wrong = {
        "expected one of the machines": {"name": "a.so", "target": "vax"},
        "libraries for aarch64-macos end in .dylib": {
            "name": "a.so", "target": "aarch64-macos",
        },
        "'cpu' is an option of machine code": {"name": "a.c", "cpu": "x86-64"},
        "has no threads so far": {
            "name": "a.o", "target": "x86_64-windows", "threads": 2,
        },
        "threads from 1 to 1024": {"name": "a.o", "threads": 0},
        "expected one of the CPUs": {
            "name": "a.o", "target": "x86_64-linux", "cpu": "z80",
        },
        "levels of x86-64": {
            "name": "a.o", "target": "aarch64-linux", "cpu": ["generic", "a64fx"],
        },
    }  # fmt: skip
    for text, how in wrong.items():
        path = tmp_path / how.pop("name")
        with pytest.raises(ArgumentError, match=text):
            weft.export(nn.ReLU(), weft.ones(2), path, **how)
    assert list(tmp_path.iterdir()) == []


def test_open_sizes_need_bounds(tmp_path):
    n = weft.export.Dim("n", min=1)
    with pytest.raises(ArgumentError, match="a plan for each set of open sizes"):
        weft.export(nn.ReLU(), weft.ones(2), tmp_path / "a.o", dynamic_shapes=({0: n},))


def test_without_a_linker_the_error_names_both(tmp_path, monkeypatch):
    monkeypatch.setattr(shutil, "which", lambda name: None)
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ArgumentError, match="ziglang wheel; a C compiler called cc"):
        weft.export(nn.ReLU(), weft.ones(2), tmp_path / "a.so")
    with pytest.raises(ArgumentError, match="no linker for aarch64-linux"):
        weft.export(nn.ReLU(), weft.ones(2), tmp_path / "a.so", target="aarch64-linux")
    assert list(tmp_path.iterdir()) == []


def test_threads_give_the_same_bits_and_several_models_run_at_once(tmp_path):
    """Three threads of the caller, each with a model, share one pool of three."""
    weft.manual_seed(0)
    net, x = wide_net(), weft.randn(99, 64)
    weft.export(net, x, tmp_path / "net.so", threads=3)
    want = net(x).detach().numpy()
    models = [CModel(tmp_path / "net.so", 1 << 23) for _ in range(3)]
    threads = models[0].library.net_threads
    found = {}
    for count in (1, 2, 3, 9):
        assert threads(count) == min(count, 3)
        found[count] = np.zeros_like(want)
        assert models[0]("run", [x.numpy()], [found[count]]) == "OK"
        np.testing.assert_array_equal(found[count], found[1])
    np.testing.assert_allclose(found[1], want, rtol=1e-5, atol=1e-5)

    def often(model):
        out = np.zeros_like(want)
        for _ in range(50):
            out[:] = 0
            assert model("run", [x.numpy()], [out]) == "OK"
            np.testing.assert_array_equal(out, found[1])

    with ThreadPoolExecutor(3) as workers:
        list(workers.map(often, models))


def wide_net():
    return nn.Sequential(nn.Linear(64, 256), nn.GELU(), nn.LayerNorm(256),
                         nn.Linear(256, 64), nn.Softmax(-1))  # fmt: skip


@pytest.mark.skipif(shutil.which("nm") is None, reason="there is no nm")
@pytest.mark.parametrize("target", ["x86_64-linux", "aarch64-linux", "riscv64-linux"])
def test_code_for_one_thread_needs_no_system(target, tmp_path):
    path = tmp_path / "net.o"
    x = weft.randn(2, 1, 8, 8)
    weft.export(image_net(), x, path, target=target, threads=1)
    done = subprocess.run(["nm", path], capture_output=True, text=True, check=True)
    rows = [line.split() for line in done.stdout.splitlines()]
    missing = {row[-1] for row in rows if row[-2] == "U"}
    assert missing <= {"memcpy", "memset", "memmove"}
    seen = {row[-1] for row in rows if row[-2] in "TDBR"}
    assert seen == {"net_init", "net_run", "net_message"}
