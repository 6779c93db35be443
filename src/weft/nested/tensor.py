"""Nested tensors: sequences of different lengths as one tensor, without padding.

    jagged     values (sum of lengths, …) and offsets; one dimension is ragged
    strided    components that may differ in every dimension, in one flat buffer

A nested tensor takes over the functions it is given to (``weft.overrides``). Functions
of single elements and of trailing dimensions run on the packed values, all others on
one component after the other. Its gradient is that of the packed values.
"""

from __future__ import annotations

import inspect
import itertools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

import weft
from weft import layouts, overrides
from weft.core.dispatch import Interpreter
from weft.core.size import Shape
from weft.core.tensor import Tensor
from weft.core.tensor_of_values import TensorOfValues
from weft.errors import ArgumentError, ShapeError

_numbers = itertools.count(1)


class _Nested(Interpreter):
    """Refuses operators that reach a nested tensor as such."""

    name = "nested"

    def process(self, op: Any, args: tuple[Any, ...], params: dict[str, Any]) -> Any:
        raise refused(op.name)


NESTED = _Nested()
NESTED.level = 1 << 30


def refused(name: str) -> Exception:
    """The error of a function that has no meaning for nested tensors."""
    return NotImplementedError(
        f"{name}: nested tensors do not have it; unbind() gives the components, "
        "to_padded_tensor(padding) a dense tensor"
    )


class RaggedSize:
    """The size of a ragged dimension: equal to itself and to nothing else."""

    def __init__(self) -> None:
        self.number = next(_numbers)

    def __repr__(self) -> str:
        return f"j{self.number}"


class Ragged:
    """The lengths of sequences and their starts in packed values."""

    def __init__(self, starts: np.ndarray, lengths: np.ndarray, total: int) -> None:
        self.starts, self.lengths, self.total = starts, lengths, total
        self.size = RaggedSize()

    @property
    def contiguous(self) -> bool:
        """Whether the sequences follow one another without gaps."""
        ends = np.cumsum(self.lengths)
        return bool(
            (ends[-1:] == self.total).all()
            and np.array_equal(self.starts, ends - self.lengths)
        )

    def same(self, other: Ragged) -> bool:
        """Whether packed values of both lie alike."""
        return self is other or (
            self.total == other.total
            and np.array_equal(self.starts, other.starts)
            and np.array_equal(self.lengths, other.lengths)
        )


def packed(lengths: Sequence[int]) -> Ragged:
    """Sequences of these lengths, one after the other."""
    count = np.asarray(lengths, np.int64)
    ends = np.cumsum(count)
    return Ragged(ends - count, count, int(ends[-1]) if len(ends) else 0)


class NestedTensor(TensorOfValues):
    """A tensor whose components differ in their sizes; ``weft.nested`` makes them.

    >>> x = weft.nested.nested_tensor([weft.ones(2), weft.ones(3)], layout=weft.jagged)
    >>> isinstance(x, weft.Tensor), x.is_nested, (x * 2).unbind()[0]
    (True, True, tensor([2., 2.]))
    """

    _interpreter = NESTED
    _ragged: Ragged | None  # of a tensor with one ragged dimension
    _dim: int  # which that is, counted with the batch
    _shapes: list[tuple[int, ...]]  # of the components, where no such dimension is
    _jagged: bool
    _bounds: tuple[int | None, int | None]  # of the lengths, where they were given

    def __init__(self) -> None:
        raise ArgumentError(
            "NestedTensor: make one with weft.nested.nested_tensor or as_nested_tensor"
        )

    is_nested = True

    @property
    def layout(self) -> Any:
        """``weft.jagged``, or ``weft.strided``."""
        return layouts.jagged if self._jagged else layouts.strided

    # -- sizes

    @property
    def ndim(self) -> int:
        if self._ragged is not None:
            return self._held.ndim + 1
        return len(self._shapes[0]) + 1 if self._shapes else 1

    def dim(self) -> int:
        """The number of dimensions, with that of the components."""
        return self.ndim

    def __len__(self) -> int:
        return len(self._shapes if self._ragged is None else self._ragged.starts)

    @property
    def shape(self) -> Any:
        """The sizes; a ragged one is an object such as ``j1``."""
        if self._ragged is not None and self._jagged:
            sizes: list[Any] = list(self._held.shape)
            sizes[self._dim - 1] = self._ragged.size
            return Shape((len(self), *sizes))
        sizes = [self._uniform(d) for d in range(1, self.ndim)]
        if None in sizes:
            raise RuntimeError(
                f"dimension {sizes.index(None) + 1} of this nested tensor is "
                "irregular, so it has no shape; size(dim) gives the regular ones"
            )
        return Shape((len(self), *sizes))

    def _uniform(self, dim: int) -> int | None:
        found = {shape[dim - 1] for shape in self._component_shapes()}
        return found.pop() if len(found) == 1 else None

    def _component_shapes(self) -> list[tuple[int, ...]]:
        if self._ragged is None:
            return self._shapes
        rest = list(self._held.shape)
        found = []
        for length in self._ragged.lengths.tolist():
            rest[self._dim - 1] = length
            found.append(tuple(rest))
        return found

    def size(self, dim: int | None = None) -> Any:
        """The size of a dimension, or all of them."""
        if dim is None:
            return self.shape
        dim = self._counted(dim)
        if self._ragged is not None and self._jagged:
            return self.shape[dim]
        found = len(self) if dim == 0 else self._uniform(dim)
        if found is None:
            raise RuntimeError(
                f"Given dimension {dim} is irregular and does not have a size."
            )
        return found

    def _counted(self, dim: int, extra: int = 0) -> int:
        rank = self.ndim + extra
        if not -rank <= dim < rank:
            raise IndexError(
                f"Dimension out of range (expected to be in range of [{-rank}, "
                f"{rank - 1}], but got {dim})"
            )
        return dim % rank

    def numel(self) -> int:
        """The number of elements of all components."""
        return sum(math.prod(shape) for shape in self._component_shapes())

    def is_contiguous(self, memory_format: Any = None) -> bool:
        """Whether the components lie one after the other."""
        return self._ragged is None or (self._dim == 1 and self._ragged.contiguous)

    # -- conversions

    def backward(self, gradient: Any = None, *args: Any, **options: Any) -> None:
        """Gradients of the components, given those of this tensor."""
        held = gradient._held if isinstance(gradient, NestedTensor) else gradient
        self._held.backward(held, *args, **options)

    def like(self, held: Tensor, **changes: Any) -> NestedTensor:
        """A tensor of the same structure over other values."""
        made = object.__new__(NestedTensor)
        made.__dict__.update(self.__dict__)
        made.__dict__.update(changes, _held=held)
        return made

    def float(self) -> Any:
        return self.to(weft.float32)

    def double(self) -> Any:
        return self.to(weft.float64)

    def half(self) -> Any:
        return self.to(weft.float16)

    def cpu(self) -> Any:
        return self.to("cpu")

    def cuda(self, device: Any = None, *options: Any) -> Any:
        return self.to("cuda" if device is None else device)

    def contiguous(self, memory_format: Any = None) -> Any:
        if self.is_contiguous():
            return self
        return joined(self.unbind(), self._jagged)

    def array(self) -> np.ndarray:
        raise refused("array")

    # -- components

    def values(self) -> Tensor:
        """The packed values of a jagged tensor."""
        if self._ragged is None:
            return self._held.detach() if not self.requires_grad else self._held
        return self._held

    def offsets(self) -> Tensor:
        """The starts of the sequences in the values, and the end of the last."""
        ragged = self._one_ragged("offsets")
        ends = ragged.starts[-1:] + ragged.lengths[-1:]
        last = ends if ragged.contiguous else np.asarray([ragged.total])
        return weft.tensor(np.concatenate([ragged.starts, last]))

    def lengths(self) -> Tensor | None:
        """The lengths of the sequences, where the values have gaps."""
        ragged = self._one_ragged("lengths")
        return None if ragged.contiguous else weft.tensor(ragged.lengths)

    def _one_ragged(self, name: str) -> Ragged:
        if self._ragged is None:
            raise refused(f"{name} of a tensor with several ragged dimensions")
        return self._ragged

    def unbind(self, dim: int = 0) -> tuple[Tensor, ...]:  # type: ignore[override]
        """The components: views of the values."""
        if self._counted(dim) != 0:
            raise refused(f"unbind({dim})")
        if self._ragged is not None:
            rows = zip(
                self._ragged.starts.tolist(), self._ragged.lengths.tolist(), strict=True
            )
            return tuple(self._held.narrow(self._dim - 1, a, n) for a, n in rows)
        ends = np.cumsum([math.prod(shape) for shape in self._shapes]).tolist()
        pairs = zip([0, *ends], ends, self._shapes, strict=False)
        return tuple(self._held[a:b].reshape(shape) for a, b, shape in pairs)

    def __iter__(self) -> Any:
        return iter(self.unbind())

    def tolist(self) -> Any:
        """The components as nested lists."""
        return [x.tolist() for x in self.unbind()]

    def to_padded_tensor(self, padding: Any, output_size: Any = None) -> Tensor:
        """A dense tensor, in which shorter components end in ``padding``.

        >>> x = weft.nested.nested_tensor([weft.ones(1), weft.ones(2)])
        >>> x.to_padded_tensor(0.0)
        tensor([[1., 0.],
                [1., 1.]])
        """
        shapes = self._component_shapes()
        largest = [max(sizes) for sizes in zip(*shapes, strict=True)]
        if output_size is not None:
            wanted = tuple(output_size)
            fits = len(wanted) == self.ndim and wanted[0] in (-1, len(self))
            want = [
                m if n == -1 else n for n, m in zip(wanted[1:], largest, strict=False)
            ]
            if not fits or any(n < m for n, m in zip(want, largest, strict=True)):
                raise ShapeError(
                    "to_padded_tensor: expected an output_size of at least "
                    f"{(len(self), *largest)}, got {wanted}"
                )
            largest = want
        rows = []
        for x, shape in zip(self.unbind(), shapes, strict=True):
            pad = [p for n, m in zip(shape, largest, strict=True) for p in (m - n, 0)]
            rows.append(weft.nn.functional.pad(x, pad[::-1], value=padding))
        return weft.stack(rows)

    def __repr__(self, *, tensor_contents: Any = None) -> str:
        if self._jagged:
            wants = ", requires_grad=True" if self.requires_grad else ""
            sizes = ", ".join(map(str, self.shape))
            return (
                f"NestedTensor(size=({sizes}), offsets={self.offsets()}{wants}, "
                "contiguous=" + f"{self.is_contiguous()})"
            )
        rows = "".join(
            f"\n  {str(x.detach()).replace(chr(10), chr(10) + '  ')},"
            for x in self.unbind()
        )
        return f"nested_tensor([{rows[:-1]}\n])"

    __str__ = __repr__

    def __hash__(self) -> int:
        return id(self)

    @classmethod
    def __torch_function__(
        cls, func: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        """Run a function on packed values, or on one component after the other."""
        from weft.nested import functions

        with overrides.DisableTorchFunctionSubclass():
            return functions.call(func, args, kwargs or {})


# -- making nested tensors


def made(
    held: Tensor, ragged: Ragged | None, dim: int, shapes: Any, jagged: bool
) -> NestedTensor:
    """A nested tensor of its parts."""
    overrides.enable()
    found = object.__new__(NestedTensor)
    found.__dict__.update(
        _held=held, _ragged=ragged, _dim=dim, _shapes=shapes, _jagged=jagged
    )
    found.__dict__["_bounds"] = (None, None)
    return found


def joined(
    parts: Sequence[Tensor], jagged: bool, dim: int | None = None
) -> NestedTensor:
    """The nested tensor of some components, which share no memory with it.

    ``dim`` is the ragged dimension, counted with the batch; otherwise it is the only
    one in which components differ, or the first where they all agree.
    """
    if not parts:
        return made(weft.zeros(0), packed([]) if jagged else None, 1, [], jagged)
    ranks = {x.ndim for x in parts}
    dtypes = {x.dtype for x in parts}
    if len(ranks) > 1 or len(dtypes) > 1:
        raise RuntimeError(
            "nested tensors: expected components of one dtype and number of "
            f"dimensions, got {sorted(str(d) for d in dtypes)} and {sorted(ranks)}"
        )
    shapes = [tuple(x.shape) for x in parts]
    differ = [k for k, n in enumerate(zip(*shapes, strict=True)) if len(set(n)) > 1]
    if jagged and (len(differ) > 1 or parts[0].ndim == 0):
        raise RuntimeError(
            "layout=torch.jagged: expected components that differ in one dimension "
            f"only, got shapes {shapes[:4]}"
        )
    if len(differ) < 2 and parts[0].ndim:
        place = dim if dim is not None else (differ[0] + 1 if differ else 1)
        if not differ or differ == [place - 1]:
            lengths = [shape[place - 1] for shape in shapes]
            return made(
                weft.cat(list(parts), place - 1), packed(lengths), place, [], jagged
            )
    flat = [x.reshape(-1) for x in parts]
    return made(weft.cat(flat), None, 0, shapes, jagged)


def arguments(func: Any, args: Any, kwargs: Any) -> inspect.BoundArguments:
    """The arguments of a call by their names."""
    return inspect.signature(func).bind(*args, **kwargs)
