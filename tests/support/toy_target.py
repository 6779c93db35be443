"""A device whose machine is the interpreter of the Loop IR.

It is a whole target in one file: eager operators and compiled programs run as kernels
of loops, one element at a time. What the loops cannot say (matrix products, sorts,
control flow) is a host call: the operator's own evaluation, on the device's memory.
"""

from __future__ import annotations

import functools
from types import SimpleNamespace

import numpy as np

import weft
from weft.compile import pipeline, targets
from weft.compile.emit.support import supported
from weft.compile.loop.interpret import run_kernel
from weft.compile.program.program import compiled
from weft.compile.program.steps import KernelLaunch
from weft.core.op import TensorType
from weft.core.size import evaluate
from weft.dtype import of_array
from weft.errors import WeftError
from weft.graph.interpret import resolve
from weft.graph.ir import CONSTANT, PICK, READ, Builder, Node


class Buffer:
    """Memory of the device; nothing of NumPy's reads it."""

    def __init__(self, array):
        self.shape, self.ndim, self.dtype = array.shape, array.ndim, array.dtype
        self.hidden = (array,)


def array_of(buffer):
    return buffer.hidden[0] if isinstance(buffer, Buffer) else buffer


class LoopTarget:
    """Programs as loops that are interpreted; see ``weft.compile.targets.Target``."""

    name = key = "loops"
    composes_library = False
    in_place = False
    cost = targets.default().cost

    def supports(self, node):
        return supported(node)

    def channels_last(self, node):
        return False

    def library_call(self, node):
        return None

    def refine(self, graph, steps, *, pack_weights, fixed=()):
        return list(steps)

    def library_work(self, calls, sizes):
        return SimpleNamespace(works={}, workspace=0)

    def epilogue_fits(self, call, sizes):
        return False

    def flat_schedule(self, kernel, loops):
        return kernel

    def row_schedule(self, group, kernel, loops):
        return kernel

    def grid_schedule(self, kernel):
        return kernel

    def refuses(self, kernel):
        return ""

    def vectorize(self, kernel):
        return kernel

    def start(self, graph, *, pack_weights):
        pass

    def emit(self, table, kernels):
        return None

    def source(self, kernel):
        return str(kernel)

    assembly = source

    def plan(self, layout, code):
        return SimpleNamespace(layout=layout, timeline=layout.steps)

    def executor(self, plan, code, replay):
        return LoopExecutor(plan.layout, replay)

    def find(self, key, replay):
        return None

    def keep(self, key, executor):
        pass


class LoopExecutor:
    """Runs the steps of a memory layout, each result in memory of its own."""

    results_bytes = 0

    def __init__(self, layout, replay):
        self.layout, self.replay = layout, replay
        self.graph, self.sizes = layout.lowered.graph, layout.sizes

    def run(self, feeds, held, state_buffers=(), write=None, stamps=None):
        given = list(map(array_of, feeds))
        kept = list(map(array_of, held))
        state = dict(zip(self.layout.lowered.reads, kept, strict=True))
        memory = dict(zip(self.graph.inputs, given, strict=True))
        memory |= {
            n: state[n.params["variable"]] for n in self.graph.nodes if n.op is READ
        }
        for step in self.layout.steps:
            if isinstance(step, KernelLaunch):
                try:
                    self.launch(step, memory)
                except (IndexError, ZeroDivisionError):
                    if not self.replay(given, kept):
                        raise
            else:
                self.value(step.node, memory)
        outputs = [Buffer(self.value(o, memory).copy()) for o in self.graph.outputs]
        changed = {
            n.params["variable"].name: Buffer(self.value(n.inputs[0], memory).copy())
            for n in self.layout.lowered.writes
        }
        if write is not None:
            write(changed)
        return outputs, changed

    def launch(self, launch, memory):
        for node in launch.made:
            if node not in memory:  # the pieces of a concatenation share one
                shape = resolve(node.shape, self.sizes)
                memory[node] = np.zeros(shape, node.dtype.np)
        for node in launch.owners:
            memory[node] = np.asarray(self.value(node, memory), order="C")
        run_kernel(launch.kernel, launch.arrays(memory), self.sizes)

    def value(self, node, memory):
        """A value in memory, or one that is computed where it is needed."""
        if node in memory:
            return memory[node]
        if node.op is CONSTANT:
            return node.params["value"]
        args = [
            self.value(i, memory) if type(i) is Node else evaluate(i, self.sizes)
            for i in node.inputs
        ]
        if node.op is PICK:
            return np.asarray(args[0][node.params["index"]])
        found = node.op.kernel(*args, **resolve(node.params, self.sizes))
        memory[node] = found if isinstance(found, tuple) else np.asarray(found)
        return memory[node]


class LoopDevice(weft.Device):
    """A device with memory of its own, for which the loops are interpreted."""

    def __init__(self, name="loops:0"):
        super().__init__(
            name, {}, from_host=lambda a: Buffer(a.copy()),
            to_host=lambda b: b.hidden[0].copy(), target=LoopTarget(),
        )  # fmt: skip
        self.programs = 0  # of single operators

    def copy(self, buffer):
        return Buffer(buffer.hidden[0].copy())

    def write(self, target, source):
        target.hidden[0][...] = source.hidden[0]

    def shares(self, view, base):
        return np.may_share_memory(view.hidden[0], base.hidden[0])

    def kernel(self, op):
        def run(*args, **params):
            with np.errstate(all="ignore"):
                found = None if op.view else self._by_loops(op, args, params)
                if found is None:
                    found = op.eval(*map(array_of, args), **params)
            if isinstance(found, tuple):
                return tuple(Buffer(np.asarray(one)) for one in found)
            return found if isinstance(found, Buffer) else Buffer(np.asarray(found))

        return run

    def _by_loops(self, op, args, params):
        """The result of a program of one operator; None if loops cannot compute it."""
        arrays = [a for a in args if isinstance(a, Buffer)]
        kinds = tuple((a.shape, a.dtype) if isinstance(a, Buffer) else a for a in args)
        try:
            program = _program(op, kinds, tuple(params.items()), self.target)
        except TypeError:  # parameters that cannot be compared
            return None
        if program is None or any(a.ndim == 0 and not arrays for a in arrays):
            return None
        self.programs += 1
        (out,), _ = program.run(arrays)
        return out


@functools.lru_cache(512)
def _program(op, kinds, params, target):
    builder = Builder(op.name)
    args = [
        builder.input(TensorType(kind[0], of_array(np.empty(0, kind[1]))), f"x{k}")
        if isinstance(kind, tuple) else kind
        for k, kind in enumerate(kinds)
    ]  # fmt: skip
    try:
        out = builder.add(op, tuple(args), dict(params))
        graph = builder.finish([out])
        passes = (*pipeline.TENSOR_PASSES, *pipeline.KERNEL_PASSES)
        made = compiled(graph, passes=passes, target=target)
    except (WeftError, TypeError, ValueError):
        return None
    launches = [isinstance(s, KernelLaunch) for s in made.lowered.steps]
    return made if launches and all(launches) else None
