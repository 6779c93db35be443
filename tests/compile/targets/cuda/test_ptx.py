"""PTX: what kernels look like, and that NVIDIA's assembler takes all of them."""

import math
import shutil
import subprocess

import llvmlite.binding as llvm
import numpy as np
import pytest
from simulated_gpu import simulated_gpu

import weft
from weft import nn
from weft.compile.targets.cuda import attention, ptx
from weft.compile.targets.cuda.code import SharedCode
from weft.core.op import all_ops
from weft.runtime.device_memory import Pool, rounded

F = nn.functional
PROGRAMS = {  # a function and the shapes of its arguments
    "elements": (lambda x, y: x * y + 1, (16, 16), (16, 16)),
    "rows": (lambda x: x - x.mean(1, keepdim=True), (8, 256)),
    "columns": (lambda x: x.sum(0), (8, 100)),
    "scatter": (
        lambda x, y: x.index_add(0, (y[:, 0] * 0).long(), y), (4, 64), (3, 64)
    ),
}  # fmt: skip


@pytest.fixture
def gpu():  # the simulated one alone: these tests look at code
    yield weft.register_device(simulated_gpu())
    weft.unregister_device("gpu:0")


def kernels(gpu, fn, *shapes):
    program = weft.compile(fn)
    program(*[weft.randn(*shape).to(gpu) for shape in shapes])
    return list(program.latest.lowered.kernels.values())


def test_elements_are_read_and_written_by_16_bytes(gpu):
    (kernel,) = kernels(gpu, lambda x: x * 2 + 1, (64, 64))
    code = gpu.target.assembly(kernel)
    assert "4 at once" in str(kernel)
    assert "ld.global.nc.v4.b32" in code
    assert "st.global.v4.b32" in code
    assert ".target sm_90" in code


def test_rows_are_shared_by_the_threads_of_a_block(gpu):
    for length, threads in ((512, 32), (4096, 256)):
        (kernel,) = kernels(gpu, lambda x: x.softmax(1), (4, length))
        assert str(kernel).count(f"4 at once, on {threads} threads") == 3
        code = gpu.target.assembly(kernel)
        assert "shfl.sync.bfly" in code
        assert ("bar.sync" in code or "barrier.sync" in code) == (threads > 32)


def test_rows_are_read_once_and_kept_in_registers(gpu):
    (kernel,) = kernels(gpu, lambda x: x.softmax(1), (4, 1024))
    (before, after), out = kernel.buffers, "b1"
    assert after.name == out
    assert "on 64 threads, 4 times each" in str(kernel)
    code = gpu.target.assembly(kernel)
    assert code.count("ld.global.nc.v4") == 4
    assert code.count("div.rn") == 16
    assert code.count("0f3FB8AA3B") == 16  # exp, once an element
    # where the result takes the argument's memory, too
    code = gpu.target.assembly(kernel._replace(shared=((before.name, out),)))
    assert code.count("ld.global") == code.count("ld.global.v4") == 4
    assert code.count("0f3FB8AA3B") == 16
    # threads cannot share these rows out evenly
    (kernel,) = kernels(gpu, lambda x: x.softmax(1), (4, 1000))
    assert "times each" not in str(kernel)
    assert gpu.target.assembly(kernel).count("ld.global.nc") == 3


def test_rows_of_several_arrays_have_more_threads(gpu):
    def product(*arrays):
        return math.prod(arrays).softmax(1)

    for count, threads in ((1, 64), (8, 128)):
        (kernel,) = kernels(gpu, product, *[(4, 1024)] * count)
        assert f"on {threads} threads, {256 // threads} times each" in str(kernel)


def test_long_loops_have_several_loads_on_their_way(gpu):
    (kernel,) = kernels(gpu, lambda x: x * 2 + 1, (1 << 22,))
    assert "4 at once, on 256 threads, 2 times each" in str(kernel)
    lines = gpu.target.assembly(kernel).splitlines()
    moves = [s for s in lines if ".v4.b32" in s]
    assert ["ld" in s for s in moves] == [True, True, False, False]


def test_short_rows_have_a_thread_each(gpu):
    (kernel,) = kernels(gpu, lambda x: (x * x).sum(1), (8, 32))
    assert "threads" not in str(kernel)
    assert gpu.target.assembly(kernel).count("ld.global.nc.v4") == 8


def test_rows_of_several_axes_are_read_by_16_bytes(gpu):
    (kernel,) = kernels(gpu, lambda x, b: x + b, (6, 64), (64,))
    assert "4 at once" in str(kernel)
    assert gpu.target.assembly(kernel).count("ld.global.nc.v4") == 2
    (kernel,) = kernels(gpu, lambda x, b: x + b, (6, 63), (63,))
    assert "at once" not in str(kernel)


def test_bfloat16_is_rounded_in_one_instruction(gpu):
    x = weft.randn(64).bfloat16().to(gpu)
    program = weft.compile(lambda x: x * 3)
    program(x)
    (kernel,) = program.latest.lowered.kernels.values()
    assert "cvt.rn.bf16x2.f32" in gpu.target.assembly(kernel)


def test_columns_have_a_thread_each(gpu):
    (kernel,) = kernels(gpu, lambda x: x.sum(0), (8, 100))
    assert "threads" not in str(kernel)
    assert kernel.parallel == (("i1", 100),)


def test_sums_have_the_same_bits_in_every_run(gpu):
    total = weft.compile(lambda x: x.sum())
    x = weft.randn(3000).to(gpu)
    found = {total(x).item() for _ in range(3)}
    assert len(found) == 1
    np.testing.assert_allclose(found.pop(), x.cpu().double().sum().item(), rtol=1e-4)


def test_buffers_that_begin_anywhere_are_read_by_elements(gpu):
    x = weft.randn(4099).to(gpu)
    step = weft.compile(lambda x: weft.cat([x[:5], x[3:4098] * 2, x[1:3], x[:1], x]))
    np.testing.assert_array_equal(step(x).cpu().numpy(), step.fn(x.cpu()).numpy())


def test_kernels_with_much_scratch_memory_are_left_to_the_host(gpu):
    x = weft.randn(2, 5000).to(gpu)
    order = weft.compile(lambda x: x.sort(1).values)
    np.testing.assert_array_equal(
        order(x).cpu().numpy(), x.cpu().sort(1).values.numpy()
    )
    assert "scratch memory" in " ".join(order.latest.lowered.refused.values())


@pytest.mark.skipif(
    llvm.llvm_version_info != (22, 1, 0), reason="another LLVM writes other PTX"
)
@pytest.mark.parametrize("name", PROGRAMS)
def test_ptx_is_what_it_was(gpu, golden, name):
    """Look at what has changed, and store it: ``pytest --update-golden``."""
    fn, *shapes = PROGRAMS[name]
    found = [
        f"{kernel}\n\n{gpu.target.assembly(kernel)}"
        for kernel in kernels(gpu, fn, *shapes)
    ]
    golden(f"ptx/{name}", "\n".join(found).replace("\t", "    ").strip())


def test_old_gpus_are_refused():
    with pytest.raises(weft.errors.DeviceError, match=r"8\.0 or newer, got 7\.5"):
        ptx.gpu_isa((7, 5))


def test_sizes_of_blocks_waste_at_most_an_eighth():
    for nbytes in range(1, 1 << 16, 37):
        assert nbytes <= rounded(nbytes) <= max(512, nbytes + nbytes // 8 + 512)


@pytest.mark.parametrize("capability", [(8, 0), (9, 0)])
def test_the_assembler_takes_every_kernel(capability, tmp_path, rng):
    """All kernels of all operators' samples, in a few files."""
    if shutil.which("ptxas") is None:
        pytest.skip("ptxas is not installed")
    device = weft.register_device(simulated_gpu(capability=capability))
    try:
        for op in all_ops():
            for sample in list(op.samples(rng))[:1]:
                arrays = [a for a in sample.args if isinstance(a, np.ndarray)]
                if not arrays or sum(a.size for a in arrays) > 200:
                    continue
                args = [weft.tensor(a).to(device) if isinstance(a, np.ndarray) else a
                        for a in sample.args]  # fmt: skip
                op(*args, **sample.params)
        shared = SharedCode(Pool(device.pool.runtime), ptx.gpu_isa(capability))
        for kind in attention.ARRAYS:
            for depth in attention.DEPTHS:
                for dtype, causal in (("float16", False), ("bfloat16", True)):
                    shared.attention(attention.Form(kind, dtype, depth, causal))
        for name in ("float32", "bfloat16", "float64", "int64"):
            dtype = getattr(weft, name)
            shared.product(dtype, dtype)
        shared.write(device.pool.from_host(np.zeros((2, 3))).seen(
            device.pool.from_host(np.zeros((3, 2))).outline.T),
            device.pool.from_host(np.zeros((2, 3))))  # fmt: skip
        codes = dict.fromkeys(device.pool.runtime.codes)
    finally:
        weft.unregister_device("gpu:0")
    assert len(codes) > 100
    path, arch = tmp_path / "all.ptx", f"-arch=sm_{capability[0]}{capability[1]}"
    path.write_text(joined(codes))
    done = subprocess.run(
        ["ptxas", arch, "-O0", str(path), "-o", "/dev/null"],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr[:2000]


def joined(codes):
    """One module of many, with names of their own."""
    head, bodies = "", []
    for number, code in enumerate(codes):
        lines = code.splitlines()
        first = next(
            k for k, line in enumerate(lines) if line.startswith(".address_size")
        )
        head = "\n".join(lines[: first + 1])
        body = "\n".join(lines[first + 1 :])
        for name in ("kernel", "weft_", "product_", "copy_", "totals"):
            body = body.replace(name, f"m{number}_{name}")
        bodies.append(body)
    return "\n".join([head, *bodies])
