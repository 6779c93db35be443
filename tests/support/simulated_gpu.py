"""A GPU whose memory is the host's, and whose kernels the Loop IR interpreter runs.

Everything but the driver is the real thing: schedules, PTX, plans, the pool of memory,
launches and their arguments. Threads of a block that race for an element are an error.
"""

from __future__ import annotations

import ctypes
import math
import time

import numpy as np

from weft.compile.loop.interpret import run_kernel
from weft.compile.loop.ir import Kernel, block_size
from weft.compile.targets.cuda import attention, warpgroup_attention
from weft.compile.targets.cuda.cost_model import COST
from weft.compile.targets.cuda.device import AcceleratorDevice
from weft.compile.targets.cuda.gemm import SIZES
from weft.compile.targets.cuda.ptx import gpu_isa, warpgroup_isa
from weft.compile.targets.cuda.target import CudaTarget
from weft.core.size import evaluate
from weft.dtype import ALL
from weft.runtime.device_memory import Pool

DTYPES = {d.name: d.np for d in ALL}


def memory_at(address, count, dtype):
    """Host memory at an address, as an array."""
    dtype = np.dtype(dtype)
    raw = (ctypes.c_uint8 * (count * dtype.itemsize)).from_address(address)
    return np.frombuffer(raw, dtype)


class SimulatedRuntime:
    """See ``weft.runtime.Runtime``; launches run at once."""

    name = "gpu:0"
    title = "a simulated GPU"
    multiprocessors = 4
    recording = False

    def __init__(self, capacity=1 << 30):
        self.blocks = {}
        self.capacity = capacity
        self.launches = 0
        self.codes = []

    def allocate(self, nbytes):
        if sum(a.nbytes for a in self.blocks.values()) + nbytes > self.capacity:
            raise MemoryError
        raw = np.zeros(nbytes + 512, np.uint8)
        start = raw.ctypes.data
        address = start + -start % 512
        self.blocks[address] = raw
        return address

    def free(self, address):
        del self.blocks[address]

    def upload(self, address, array):
        ctypes.memmove(address, array.ctypes.data, array.nbytes)

    def download(self, array, address):
        ctypes.memmove(array.ctypes.data, address, array.nbytes)

    def copy(self, to, source, nbytes):
        ctypes.memmove(to, source, nbytes)

    def clear(self, address, nbytes):
        ctypes.memset(address, 0, nbytes)

    def load(self, code, kernels):
        self.codes.append(code)
        for one in kernels:
            assert f".entry {one.name}(" in code
        return {one.name: one for one in kernels}

    def host_memory(self, nbytes):
        return np.zeros(nbytes, np.uint8)

    def prepared(self, *launch):
        return lambda: self.launch(*launch)

    def recorded(self, run):
        return None

    def seconds(self, run):
        start = time.perf_counter()
        run()
        return time.perf_counter() - start

    def tensor_map(self, address, dtype, shape, strides, box):
        """The words are the arguments; what the driver would refuse is an error."""
        assert address % 16 == 0
        assert len(shape) == len(box) == len(strides) + 1
        assert all(n > 0 and n % 16 == 0 for n in strides)
        assert all(0 < n <= 256 for n in box)
        assert 2 * box[0] <= 128  # of a swizzle
        words = np.zeros(16, np.int64)
        given = [address, *shape, *strides, *box[:2]]
        words[: len(given)] = given
        return words

    def wait(self):
        pass

    def launch(self, function, blocks, threads, arguments, block_memory=0):
        self.launches += 1
        words = [int(n) for n in arguments[: len(arguments) // 2]]
        if isinstance(function, Kernel):
            self.kernel(function, blocks, threads, words)
        elif function.name.startswith("warpgroup_product"):
            assert block_memory == function.block_memory <= 227 << 10
            self.warpgroup_product(function.name, words)
        elif function.name.startswith("warpgroup_attention"):
            assert block_memory == function.block_memory <= 227 << 10
            with np.errstate(invalid="ignore"):
                self.warpgroup_attention(function.name, words)
        elif function.name.startswith("product"):
            self.product(function.name, words)
        elif function.name.startswith("attention"):
            assert block_memory == function.block_memory
            with np.errstate(all="ignore"):
                self.attention(function.name, blocks, words)
        else:
            self.strided_copy(function.name, words)

    def kernel(self, kernel, blocks, threads, words):
        count = len(kernel.buffers)
        sizes = dict(zip(kernel.sizes, words[count:], strict=False))
        many = words[count + len(kernel.sizes)]
        assert many == math.prod(evaluate(n, sizes) for _, n in kernel.parallel)
        size = block_size(kernel)
        assert threads == (COST.blocks.threads if size == 1 else size)
        assert blocks * (threads if size == 1 else 1) >= many
        arrays = []
        for buffer, address in zip(kernel.buffers, words, strict=False):
            items = math.prod(evaluate(n, sizes) for n in buffer.shape)
            arrays.append(memory_at(address, max(items, 1), buffer.dtype.np)[:items])
        try:
            run_kernel(kernel._replace(given=()), arrays, sizes)
        except (IndexError, ZeroDivisionError):
            memory_at(words[-1], 1, np.int64)[0] = 1

    def product(self, name, words):
        _, operand, result = name.split("_")
        at = dict(zip(SIZES, words[3:], strict=True))
        m, n, k = at["m"], at["n"], at["k"]
        tiles = -(-m // 64) * -(-n // 64)
        assert tiles
        pairs = [("am", "ak", m, k), ("bk", "bn", k, n), ("cm", "cn", m, n)]
        kinds = DTYPES[operand], DTYPES[operand], DTYPES[result]

        def matrix(which, z):
            row, column, rows, columns = pairs[which]
            kind = np.dtype(kinds[which])
            step = at["abc"[which] + "z"]
            start = words[which] + z * step * kind.itemsize
            last = (rows - 1) * at[row] + (columns - 1) * at[column]
            flat = memory_at(start, last + 1, kind)
            strides = at[row] * kind.itemsize, at[column] * kind.itemsize
            return np.lib.stride_tricks.as_strided(flat, (rows, columns), strides)

        wide = np.float32 if np.dtype(kinds[0]).itemsize == 2 else kinds[0]
        for z in range(self.grid // tiles if self.grid else 1):
            a, b = matrix(0, z).astype(wide), matrix(1, z).astype(wide)
            matrix(2, z)[...] = (a @ b).astype(kinds[2])

    def warpgroup_product(self, name, words):
        *_, dtype, sides, width = name.split("_")
        kind = np.dtype(DTYPES[dtype])
        c, m, n, k, count, pitch, batch, *steps = words[32:]

        def matrix(which, z):
            start, inner, outer, many, row, far, *box = words[16 * which :][:8]
            z *= steps[which]
            assert z < many
            by_columns = sides[which] == "t"
            rows, columns = (m, k) if which == 0 else (k, n)
            assert (inner, outer) == (
                (rows, columns) if by_columns else (columns, rows)
            )
            others = 128 if which == 0 else int(width)
            by_depth = by_columns == (which == 0)
            assert box == ([64, 64] if by_depth else [64, others])
            flat = memory_at(start + z * far, (outer - 1) * row // 2 + inner, kind)
            found = np.lib.stride_tricks.as_strided(flat, (outer, inner), (row, 2))
            return (found.T if by_columns else found).astype(np.float32)

        for z in range(count):
            out = memory_at(c + 2 * z * batch, (m - 1) * pitch + n, kind)
            out = np.lib.stride_tricks.as_strided(out, (m, n), (2 * pitch, 2))
            out[...] = (matrix(0, z) @ matrix(1, z)).astype(kind)

    grid = 0

    def attention(self, name, blocks, words):
        """Attention by matrices of which each has strides of its own."""
        *_, kind, dtype, depth = name.split("_")
        form = attention.Form(kind, dtype, int(depth), "causal" in name)
        arrays, count = attention.ARRAYS[kind], len(attention.ARRAYS[kind])
        sizes = dict(zip(attention.SIZES, words[count:], strict=False))
        starts = dict(zip(arrays, words, strict=False))
        strides = np.reshape(words[count + len(sizes) :], (count, 3))
        strides = dict(zip(arrays, strides.tolist(), strict=True))
        own = sizes["n" if kind == "keys" else "m"]
        self.attend(form, sizes, blocks // -(-own // form.rows), starts, strides)

    def warpgroup_attention(self, name, words):
        """The same with tensor maps of the arrays whose tiles are copied."""
        *_, kind, dtype, depth = name.split("_")
        form = warpgroup_attention.Form(kind, dtype, int(depth), "causal" in name)
        maps = np.reshape(words[: 16 * len(form.maps)], (-1, 16)).tolist()
        at = dict(zip(form.arguments, words[16 * len(maps) :], strict=True))
        starts, strides = {}, {}
        for name, words in zip(form.maps, maps, strict=True):
            starts[name], depth, rows, inner, outer, *steps, width, tall = words[:10]
            row, near, far = (n // 2 for n in steps)
            own = name in warpgroup_attention.OWN[kind]
            assert (width, tall) == (64, form.rows if own else form.shape.step)
            assert (depth, rows) == (at["depth"], at["n" if name in "kv" else "m"])
            used = at[f"{name}.outer"], at[f"{name}.inner"]
            assert used == (int(outer > 1), int(inner > 1)) or 1 in (inner, outer)
            strides[name] = far * used[0], near * used[1], row
        for name in form.plain:
            starts[name] = at[name]
            strides[name] = [at[f"{name}.{kind}"] for kind in attention.STRIDES]
        self.attend(form, at, at["matrices"], starts, strides)

    def attend(self, form, sizes, matrices, starts, strides):
        """The formulas of ``weft.ops.attention``, a matrix at a time."""
        kind = form.kind
        scale = np.int64(sizes["scale"]).view(np.float64)
        m, n, width = sizes["m"], sizes["n"], sizes["depth"]

        def matrix(name, z):
            outer, inner, row = strides[name]
            rows = n if name in ("k", "v", "dk", "dv") else m
            short = name not in ("lse", "delta")
            item = np.dtype(DTYPES[form.dtype] if short else np.float32)
            far, near = divmod(z, sizes["inner"])
            start = starts[name] + (far * outer + near * inner) * item.itemsize
            wide = width if short else 1
            flat = memory_at(start, (rows - 1) * row + wide, item)
            steps = row * item.itemsize, item.itemsize
            return np.lib.stride_tricks.as_strided(flat, (rows, wide), steps)

        for z in range(matrices):
            given = {name: matrix(name, z) for name, at in starts.items() if at}
            q, k, v = (given[x].astype(np.float32) for x in "qkv")
            scores = q @ k.T * np.float32(scale)
            if form.causal:
                scores = np.where(np.tri(m, n, dtype=bool), scores, -np.inf)
            if kind == "forward":
                top = scores.max(1, keepdims=True)
                lse = top + np.log(np.exp(scores - top).sum(1, keepdims=True))
                made = {"o": np.exp(scores - lse) @ v, "lse": lse}
            else:
                weights, g = (
                    np.exp(scores - given["lse"]),
                    given["g"].astype(np.float32),
                )
                slopes = weights * (g @ v.T - given["delta"]) * np.float32(scale)
                made = {"dq": slopes @ k, "dk": slopes.T @ q, "dv": weights.T @ g}
            for name in set(made) & set(given):
                given[name][...] = made[name].astype(given[name].dtype)

    def strided_copy(self, name, words):
        _, item, rank = name.split("_")
        rank, (to, source, count), rest = int(rank), words[:3], words[3:]
        shape, far, near = (rest[k * rank : (k + 1) * rank] for k in range(3))
        assert count == math.prod(shape)
        kind = np.dtype(f"V{item}")
        for index in np.ndindex(*shape):
            place = sum(i * s for i, s in zip(index, near, strict=True))
            there = sum(i * s for i, s in zip(index, far, strict=True))
            value = memory_at(source + place * kind.itemsize, 1, kind)
            memory_at(to + there * kind.itemsize, 1, kind)[...] = value


class _Gridded(SimulatedRuntime):
    def launch(self, function, blocks, *rest):
        self.grid = blocks
        super().launch(function, blocks, *rest)


def simulated_gpu(capacity=1 << 30, capability=(9, 0)):
    """A device over the simulation."""
    pool = Pool(_Gridded(capacity))
    target = CudaTarget(gpu_isa(capability), pool, warpgroup_isa(capability))
    return AcceleratorDevice("gpu:0", pool, target)
