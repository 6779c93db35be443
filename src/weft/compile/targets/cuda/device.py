"""GPUs as devices of tensors: eager operators are programs of one operator each.

Such a program serves all sizes of a rank. Operands that are broadcast or transposed
are given as what they are views of, and the program has the view; others that are not
contiguous are copied first. What no kernel computes, the host does.
"""

from __future__ import annotations

import functools
import math
import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from weft import dtype as dtypes
from weft.compile.eager.operator import HINT, holds, is_plain, named_sizes
from weft.compile.pipeline import KERNEL_PASSES, TENSOR_PASSES
from weft.compile.program.program import Program, compiled
from weft.compile.program.strided_views import seen
from weft.compile.targets.cuda.ptx import gpu_isa, warpgroup_isa
from weft.compile.targets.cuda.target import CudaTarget
from weft.config import config
from weft.core.device import Device
from weft.core.lowering import Library, Pointwise
from weft.core.op import Op, TensorType, find_op
from weft.errors import WeftError
from weft.graph.ir import Builder, Node
from weft.runtime.cuda import driver
from weft.runtime.device_memory import DeviceArray, Pool

PROGRAMS = 4096  # that are kept
NUMBERS = 4096  # Python numbers that are kept on the device
_EXPAND, _PERMUTE = find_op("expand"), find_op("permute")


def like_of(args: Sequence[Any]) -> Any:
    """The dtype that Python numbers among an operator's arguments have."""
    arrays = [a for a in args if isinstance(a, (DeviceArray, np.ndarray))]
    return arrays[-1].dtype


class AcceleratorDevice(Device):
    """A device with memory of its own and a target that makes its kernels."""

    __slots__ = ("_kernels", "_launches", "_numbers", "_programs", "pool")

    def __init__(self, name: str, pool: Pool, target: CudaTarget) -> None:
        super().__init__(
            name, {}, from_host=pool.from_host, to_host=self._to_host, target=target
        )
        self.pool = pool
        self._programs: dict[Any, Any] = {}
        self._launches: dict[Any, Any] = {}
        self._numbers: dict[Any, DeviceArray] = {}
        self._kernels: dict[Op, Callable[..., Any]] = {}

    def _to_host(self, buffer: DeviceArray) -> np.ndarray:
        whole = buffer if buffer.contiguous else self.copy(buffer)
        return self.pool.to_host(whole)

    def copy(self, buffer: DeviceArray) -> DeviceArray:
        return self.target.shared.copied(buffer)

    def write(self, target: DeviceArray, source: DeviceArray) -> None:
        axes = zip(target.strides, target.shape, strict=True)
        if any(step == 0 and n > 1 for step, n in axes):
            raise ValueError(
                "several elements of this tensor share memory (it was expanded); "
                "change a .clone() of it"
            )
        if np.may_share_memory(target.outline, source.outline):
            source = self.copy(source)
        self.target.shared.write(target, source)

    def shares(self, view: DeviceArray, base: DeviceArray) -> bool:
        return np.may_share_memory(view.outline, base.outline)

    def number(self, value: Any, dtype: Any) -> DeviceArray:
        """A Python number on the device."""
        key = value, math.copysign(1.0, value), type(value), dtype
        found = self._numbers.get(key)
        if found is None:
            if len(self._numbers) >= NUMBERS:
                self._numbers.clear()
            array = np.asarray(value, dtype)
            found = self._numbers[key] = self.pool.from_host(array)
        return found

    # -- eager operators

    def kernel(self, op: Op) -> Callable[..., Any]:
        found = self._kernels.get(op)
        if found is None:
            run = self._viewing if op.view else self._running
            found = self._kernels[op] = functools.partial(run, op)
        return found

    def _viewing(self, op: Op, x: DeviceArray, **params: Any) -> DeviceArray:
        """Another look at an array; a reshape may have to copy."""
        outline = seen(x.outline, op, params)
        if outline is None:
            outline = seen(self.copy(x).outline, op, params)
        return x.seen(outline)

    def _running(self, op: Op, *args: Any, **params: Any) -> Any:
        """Run an operator: by the launch that is known for such arguments, or anew."""
        items = tuple(params.items()) if params else ()
        try:
            found = self.launched(op, args, items)
        except TypeError:  # parameters that cannot be compared
            return self._on_host(op, args, params)
        return self._run_program(op, args, params, items) if found is None else found

    def launched(self, op: Op, args: Sequence[Any], params: Any = ()) -> Any:
        kinds = [a.kind if type(a) is DeviceArray else type(a) for a in args]
        launch = self._launches.get((op, *kinds, params, config.strict_ieee))
        return None if launch is None else launch(args)

    def _run_program(self, op: Op, args: Any, params: Any, items: Any) -> Any:
        arrays = [a for a in args if isinstance(a, DeviceArray)]
        if not arrays and not any(isinstance(a, np.ndarray) for a in args):
            return self._on_host(op, args, params)
        if not all(map(is_plain, params.values())):
            return self._on_host(op, args, params)
        feeds, patterns = self._feeds(op, args)
        known = [p for p in patterns if p is not None]
        wholes = [p.whole for p in known if p.whole is not None]
        sizes, shapes = named_sizes([*[p.shape for p in known], *wholes])
        key = (op, tuple(patterns), shapes, items, config.strict_ieee)
        found = None
        if not isinstance(op.lower, Library):  # which is chosen by sizes
            found = self._programs.get(key)
            if found is None:
                self._make_room()
                found = _single(op, args, patterns, shapes, params, self.target)
                self._programs[key] = found
        if found is None or not found.program or not holds(found.assumptions, sizes):
            exact = (*key, tuple(sizes.items()))
            if exact not in self._programs:
                self._make_room()
                given = [*[p.shape for p in known], *wholes]
                made = _single(op, args, patterns, given, params, self.target)
                self._programs[exact] = made
            found = self._programs[exact]
        if found.program is None:
            return self._on_host(op, args, params)
        executor: Any = found.program.executor_for(feeds, sizes if wholes else None)
        if len(feeds) == len(args) and found.alone:
            self._keep_launch(executor, op, args, feeds, known, items)
        outputs, _ = executor.run(feeds, ())
        return outputs[0] if found.alone else tuple(outputs)

    def _keep_launch(
        self, executor: Any, op: Op, args: Any, feeds: Any, known: Any, items: Any
    ) -> None:
        """Keep a program's only launch for arguments of the same kinds.

        Those must be read where they are: nothing was copied for the program.
        """
        numbers = [p.number for p in known]
        if not all(map(operator.or_, map(_is_same_memory, feeds, args), numbers)):
            return
        launch = executor.alone(numbers, self, like_of(args))
        if launch is not None:
            kinds = [a.kind if type(a) is DeviceArray else type(a) for a in args]
            self._launches[(op, *kinds, items, config.strict_ieee)] = launch

    def _make_room(self) -> None:
        if len(self._programs) >= PROGRAMS:
            self._programs.clear()
            self._launches.clear()

    def _feeds(self, op: Op, args: Sequence[Any]) -> tuple[list[Any], list[Any]]:
        """The arrays that a program is given, and the patterns of all arguments."""
        feeds: list[Any] = []
        patterns: list[Any] = []
        like = like_of(args)
        for a in args:
            if isinstance(a, np.ndarray):
                a = self.pool.from_host(a)
            elif not isinstance(a, DeviceArray):
                if isinstance(op.lower, Pointwise) and isinstance(a, (int, float)):
                    a = self.number(a, like)
                    patterns.append(Pattern(a.dtype, (), None, None, number=True))
                    feeds.append(a)
                else:
                    patterns.append(None)
                continue
            feed, pattern = self._pattern(a)
            feeds.append(feed)
            patterns.append(pattern)
        return feeds, patterns

    def _pattern(self, a: DeviceArray) -> tuple[DeviceArray, Pattern]:
        """The base of an array, and its view of that: broadcast, transposed or none."""
        if a.contiguous:
            return a, Pattern(a.dtype, a.shape, None, None)
        outline = a.outline
        repeated = tuple(s == 0 and n > 1 for s, n in
                         zip(outline.strides, outline.shape, strict=True))  # fmt: skip
        if any(repeated):
            index = tuple(slice(0, 1) if r else slice(None) for r in repeated)
            outline = outline[index]
        order = tuple(sorted(range(a.ndim), key=lambda d: (-outline.strides[d], d)))
        straight = outline.transpose(order)
        if not straight.flags.c_contiguous or min(outline.strides, default=0) < 0:
            feed = self.copy(a.seen(outline))
            order = tuple(range(a.ndim))
        else:
            feed = a.seen(straight)
        back = None
        if order != tuple(range(a.ndim)):
            back = tuple(int(k) for k in np.argsort(order))
        expand = a.shape if any(repeated) else None
        return feed, Pattern(a.dtype, feed.shape, back, expand)

    def _on_host(self, op: Op, args: Sequence[Any], params: Any) -> Any:
        """The operator's own evaluation, on copies in host memory."""
        hosts = [self._to_host(a) if isinstance(a, DeviceArray) else a for a in args]
        with np.errstate(all="ignore"):
            result = op.kernel(*hosts, **params)
        if isinstance(result, tuple):
            return tuple(self.pool.from_host(one) for one in result)
        return self.pool.from_host(result)


def _is_same_memory(feed: DeviceArray, given: Any) -> bool:
    """Whether a program is given an argument's memory, from its first element on."""
    if not isinstance(given, DeviceArray):
        return False
    return feed.owner is given.owner and feed.address == given.address


@dataclass(frozen=True)
class Pattern:
    """An operand of a program: what it is given, and the view of it that is meant.

    Shapes are left to the program's key, which names equal sizes.
    """

    dtype: Any
    shape: tuple[int, ...] = field(compare=False)
    order: tuple[int, ...] | None  # of the axes, where they are permuted
    whole: tuple[int, ...] | None = field(compare=False)  # the shape it is repeated to
    number: bool = False  # one for all elements

    @property
    def kind(self) -> Any:
        return dtypes.of_array(np.empty(0, self.dtype))


class Single(NamedTuple):
    """A program of one operator; without one, the host computes it."""

    program: Program | None
    assumptions: Sequence[Any] = ()
    alone: bool = True  # whether it has one output


def _single(
    op: Op, args: Any, patterns: Any, shapes: Sequence[Any], params: Any, target: Any
) -> Single:
    """The program of an operator; sizes that are names are arguments."""
    builder = Builder(op.name)
    names = sorted({n for shape in shapes for n in shape if isinstance(n, str)})
    sizes = {n: builder.sizes.symbol(n, HINT + k) for k, n in enumerate(names)}
    axes = [tuple(sizes.get(n, n) for n in shape) for shape in shapes]
    known = [p for p in patterns if p is not None]
    given, wholes = iter(axes), iter(axes[len(known) :])
    inputs: list[Any] = []
    try:
        for k, (a, pattern) in enumerate(zip(args, patterns, strict=True)):
            if pattern is None:
                inputs.append(a)
                continue
            x = builder.input(TensorType(next(given), pattern.kind), f"x{k}")
            if pattern.order is not None:
                x = builder.add(_PERMUTE, (x,), {"dims": pattern.order})
            if pattern.whole is not None:
                x = builder.add(_EXPAND, (x,), {"shape": next(wholes)})
            inputs.append(x)
        numbers = [p is not None and p.number for p in patterns]
        like = next(x for x, n in zip(inputs, numbers, strict=True)
                    if isinstance(x, Node) and not n)  # fmt: skip
        inputs = [
            builder.add(_EXPAND, (x,), {"shape": like.shape}) if number else x
            for x, number in zip(inputs, numbers, strict=True)
        ]
        out = builder.add(op, tuple(inputs), params)
        alone = type(out.type) is not tuple
        outs = [out] if alone else [builder.pick(out, k) for k in range(len(out.type))]
        passes = (*TENSOR_PASSES, *KERNEL_PASSES)
        program = compiled(builder.finish(outs), passes=passes, target=target)
    except (WeftError, TypeError, ValueError, StopIteration):
        return Single(None)
    assumptions = list(program.lowered.graph.sizes.assumptions.values())
    return Single(program, assumptions, alone)


def cuda_device(index: int) -> AcceleratorDevice:
    """The GPU of a number as a device."""
    runtime = driver.runtime(index)
    pool = Pool(runtime)
    target = CudaTarget(
        gpu_isa(runtime.capability), pool, warpgroup_isa(runtime.capability)
    )
    return AcceleratorDevice(f"cuda:{index}", pool, target)
