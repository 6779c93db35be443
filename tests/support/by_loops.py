"""Native programs, and their kernels run one element at a time."""

import numpy as np

import weft
from weft import graph as G
from weft.compile.fusion.groups import Operand
from weft.compile.loop.interpret import run_kernel
from weft.compile.pipeline import KERNEL_PASSES
from weft.compile.program import program
from weft.compile.program.steps import HostCall, KernelLaunch, launch_of
from weft.compile.targets.cpu.target import CpuTarget
from weft.core.tensor import Tensor
from weft.graph.ir import PICK, READ


def kernels_of(graph, target=None, in_place=()):
    """The program of a graph as it is: passes only shape it for kernels."""
    cpu = None if target is None else CpuTarget(target)
    return program.compiled(graph, in_place, passes=KERNEL_PASSES, target=cpu)


def compiled(fn, *args, dynamic=None):
    return kernels_of(G.capture(fn, *args, dynamic=dynamic).graph)


def whole(native):
    """Whether nothing is called."""
    return not native.lowered.refused and all(
        isinstance(s, KernelLaunch) for s in native.lowered.steps
    )


def run(native, *args):
    feeds = [a.numpy() for a in args if isinstance(a, Tensor)]
    return [r.copy() for r in native.run_named(feeds, {})[0]]


def by_loops(native, *args):
    """What the kernels of a program give, by the interpreter of loops."""
    memory = run_steps(native, [a.numpy() for a in args if isinstance(a, Tensor)], {})
    return [seen(o, memory) for o in native.lowered.graph.outputs]


def run_steps(native, feeds, store):
    """Every value of a program: kernels by the interpreter, calls by NumPy."""
    graph = native.lowered.graph
    memory = dict(zip(graph.inputs, feeds, strict=True))
    for node in graph.nodes:
        if node.op is READ:
            memory[node] = store[node.params["variable"]]
    for step in native.lowered.steps:
        if not isinstance(step, KernelLaunch):
            memory |= called(step, memory)
        launch = launch_of(step)
        if launch is not None:
            run_launch(launch, memory)
    return memory


def called(step, memory):
    """What a call computes, by its operator's own evaluation."""
    node = step.node
    found = node.op.eval(*[seen(i, memory) for i in node.inputs], **node.params)
    picks = step.made if isinstance(step, HostCall) else step.picks
    picks = [n for n in picks if n.op is PICK]
    return {n: found[n.params["index"]] for n in picks} if picks else {node: found}


def run_launch(launch, memory):
    """Run a kernel one element at a time, on copies that lie row by row."""
    for node in launch.made:
        memory[node] = np.zeros(node.shape, node.dtype.np)
    for node in launch.owners:
        if node not in memory:
            memory[node] = node.params["value"]
    memory |= {n: memory[n].copy(order="C") for n in launch.owners}
    run_kernel(launch.kernel, launch.arrays(memory), {})


def seen(node, memory):
    """A value through the views it may be."""
    operand = Operand(node)
    found = memory[operand.base]
    for view in reversed(operand.views):
        found = view.op.kernel(found, **view.params)
    return found


def outputs(fn, *args):
    found = fn(*args)
    return [t.numpy() for t in (found if isinstance(found, tuple) else (found,))]


def same_for_threads(native, *args):
    """What a program gives, which must be the same for 1, 2 and 3 threads."""
    before, found = weft.get_num_threads(), None
    try:
        for threads in (1, 2, 3):
            weft.set_num_threads(threads)
            got = run(native, *args)
            for a, b in zip(got, found or got, strict=True):
                np.testing.assert_array_equal(a, b)
            found = got
    finally:
        weft.set_num_threads(before)
    return found
