"""Sizes that may differ from call to call of an exported program.

A specification gives a ``Dim`` for each such dimension: by the argument's name and the
dimension's number, or as a tuple in the order of the arguments.
"""

from __future__ import annotations

import dataclasses
import enum
import inspect
import itertools
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from weft.core.pytree import custom_node, register_pytree_node, tree_flatten
from weft.core.tensor import Tensor
from weft.errors import ArgumentError

LARGEST = 2**63 - 1


class _DimHint(enum.Enum):
    """How a dimension behaves that has no name."""

    AUTO = "AUTO"  # open if the program allows
    DYNAMIC = "DYNAMIC"  # open, or an error
    STATIC = "STATIC"  # the size of the example


class Dim:
    """A named size, with the least and the largest number it may be.

    ``2 * batch`` and ``batch + 1`` are sizes that follow from it.

    >>> weft.export.Dim("batch", min=2, max=64)
    Dim('batch', min=2, max=64)
    """

    AUTO, DYNAMIC, STATIC = _DimHint.AUTO, _DimHint.DYNAMIC, _DimHint.STATIC

    def __init__(
        self, name: str, *, min: int | None = None, max: int | None = None
    ) -> None:
        if not name.isidentifier():
            raise ArgumentError(f"Dim: expected a name in Python's sense, got {name!r}")
        self.__name__ = name
        self.min, self.max = min or 0, LARGEST if max is None else max
        self.root, self.scale, self.offset = self, 1, 0
        if self.min >= self.max:
            raise ArgumentError(
                f"Dim {name!r}: expected min below max, got {self.min} and {self.max}"
            )

    def _derived(self, scale: int, offset: int) -> Dim:
        if scale < 1:
            raise ArgumentError(
                f"Dim {self.__name__!r}: expected a factor of 1 or more"
            )
        made = Dim(f"_{self.root.__name__}_{scale}_{offset}".replace("-", "m"))
        made.root, made.scale, made.offset = self.root, scale, offset
        return made

    def __add__(self, other: int) -> Dim:
        return self._derived(self.scale, self.offset + other)

    def __sub__(self, other: int) -> Dim:
        return self + -other

    def __mul__(self, other: int) -> Dim:
        return self._derived(self.scale * other, self.offset * other)

    __radd__, __rmul__ = __add__, __mul__

    def __repr__(self) -> str:
        if self.root is not self:
            factor = f"{self.scale}*" if self.scale > 1 else ""
            rest = f"{self.offset:+}" if self.offset else ""
            return f"{factor}{self.root.__name__}{rest}"
        top = "" if self.max == LARGEST else f", max={self.max}"
        low = f", min={self.min}" if self.min else ""
        return f"Dim({self.__name__!r}{low}{top})"


def dims(*names: str, min: int | None = None, max: int | None = None) -> Any:
    """A ``Dim`` for each name.

    >>> weft.export.dims("batch", "time")
    (Dim('batch'), Dim('time'))
    """
    return tuple(Dim(name, min=min, max=max) for name in names)


class ValueRange(NamedTuple):
    """The least and the largest number a size may be."""

    lower: int
    upper: int


class ShapesCollection:
    """Specifications by tensor, for arguments that are nested deeply.

    >>> x = weft.ones(4, 3)
    >>> shapes = weft.export.ShapesCollection()
    >>> shapes[x] = {0: weft.export.Dim("batch")}
    >>> shapes.dynamic_shapes(None, (x,))
    ({0: Dim('batch')},)
    """

    def __init__(self) -> None:
        self._shapes: dict[int, tuple[Any, Any]] = {}

    def __setitem__(self, t: Tensor, shape: Any) -> None:
        if not isinstance(t, Tensor):
            raise ArgumentError(
                f"ShapesCollection: expected a tensor as key, got {type(t).__name__}"
            )
        self._shapes[id(t)] = t, shape

    def __getitem__(self, t: Tensor) -> Any:
        return self._shapes[id(t)][1]

    def __len__(self) -> int:
        return len(self._shapes)

    def dynamic_shapes(
        self, m: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        """The specification of some arguments, in their order."""
        known = {id(x) for x in tree_flatten((args, dict(kwargs or {})))[0]}
        for t, _ in self._shapes.values():
            if id(t) not in known:
                raise ArgumentError(
                    f"ShapesCollection: a tensor of shape {tuple(t.shape)} is none of "
                    "the arguments"
                )
        return tuple(map(self._spec, (*args, *(kwargs or {}).values())))

    def _spec(self, value: Any) -> Any:
        if isinstance(value, dict):
            return {k: self._spec(v) for k, v in value.items()}
        if isinstance(value, (list, tuple)):
            return tuple(map(self._spec, value))
        return self._shapes.get(id(value), (None, None))[1]


class AdditionalInputs:
    """Further examples: a dimension whose size differs among them is dynamic.

    >>> more = weft.export.AdditionalInputs()
    >>> more.add((weft.ones(5, 3),))
    >>> more.dynamic_shapes(None, (weft.ones(4, 3),))
    ((<_DimHint.DYNAMIC: 'DYNAMIC'>, None),)
    """

    def __init__(self) -> None:
        self._examples: list[tuple[Any, Any]] = []

    def add(self, args: tuple[Any, ...], kwargs: Any = None) -> None:
        """Add an example of the arguments."""
        self._examples.append((args, dict(kwargs or {})))

    def dynamic_shapes(
        self, m: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        """The specification that all examples together need."""
        every = [(args, dict(kwargs or {})), *self._examples]
        rows = [(*a, *k.values()) for a, k in every]
        return tuple(_varying(values) for values in zip(*rows, strict=True))

    def verify(self, ep: Any) -> None:
        """Run an exported program on each of the examples."""
        for args, kwargs in self._examples:
            ep.module()(*args, **kwargs)


def _varying(values: tuple[Any, ...]) -> Any:
    first = values[0]
    if isinstance(first, Tensor):
        shapes = zip(*(x.shape for x in values), strict=True)
        return tuple(Dim.DYNAMIC if len(set(sizes)) > 1 else None for sizes in shapes)
    if isinstance(first, dict):
        return {k: _varying(tuple(v[k] for v in values)) for k in first}
    if isinstance(first, (list, tuple)):
        return tuple(map(_varying, zip(*values, strict=True)))
    return None


# -- from a specification to named sizes


class Wanted(NamedTuple):
    """The dimensions that shall be open, by argument, and the dims by name."""

    dynamic: dict[str, dict[int, str]]
    dims: dict[str, Any]


def named_sizes(
    forward: Any, args: Any, kwargs: Any, spec: Any, labels: list[str]
) -> Wanted:
    """The names of open sizes for each argument's label."""
    if isinstance(spec, (ShapesCollection, AdditionalInputs)):
        spec = spec.dynamic_shapes(None, args, kwargs)
    if spec is None:
        return Wanted({}, {})
    bound = inspect.signature(forward).bind(*args, **kwargs).arguments
    if isinstance(spec, Mapping):
        unknown = sorted(set(spec) - set(bound))
        if unknown:
            raise ArgumentError(
                f"export: dynamic_shapes names {unknown}, but the arguments are "
                f"{list(bound)}"
            )
        pairs: Any = ((value, spec.get(name)) for name, value in bound.items())
    else:
        values = [*args, *kwargs.values()]
        if len(values) != len(spec):
            raise ArgumentError(
                f"export: expected dynamic_shapes for {len(values)} arguments, got "
                f"{len(spec)}"
            )
        pairs = zip(values, spec, strict=True)
    leaves = [leaf for value, one in pairs for leaf in _leaves(value, one)]
    wanted = Wanted({}, {})
    count = itertools.count()
    for label, (tensor, spec_of) in zip(labels, leaves, strict=True):
        found = dict(_open(tensor, spec_of, label, wanted.dims, count))
        if found:
            wanted.dynamic[label] = found
    return wanted


def _leaves(value: Any, spec: Any) -> Iterator[tuple[Any, Any]]:
    """The leaves of an argument, each with its specification."""
    node = custom_node(type(value))
    if isinstance(value, dict):
        for key, item in value.items():
            yield from _leaves(item, None if spec is None else spec.get(key))
    elif isinstance(value, (list, tuple)) or node is not None:
        items = value if node is None else node[0](value)[0]
        each = [None] * len(items) if spec is None else list(spec)
        for item, one in zip(items, each, strict=True):
            yield from _leaves(item, one)
    elif value is not None:
        yield value, spec


def _open(
    tensor: Any, spec: Any, label: str, dims: dict[str, Any], count: Iterator[int]
) -> Iterator[tuple[int, str]]:
    if spec is None:
        return
    if not isinstance(tensor, Tensor):
        raise ArgumentError(f"export: {label!r} is no tensor and has no dynamic shape")
    items = spec.items() if isinstance(spec, Mapping) else enumerate(spec)
    for dim, want in items:
        if want is None or want is Dim.STATIC:
            continue
        size = tensor.shape[dim]
        if isinstance(want, int):
            if want != size:
                raise ArgumentError(
                    f"export: dimension {dim} of {label!r} is {size}, and "
                    f"dynamic_shapes says {want}"
                )
            continue
        if not isinstance(want, (Dim, _DimHint)):
            raise ArgumentError(
                f"export: expected a Dim for dimension {dim} of {label!r}, got {want!r}"
            )
        name = want.__name__ if isinstance(want, Dim) else f"s{next(count)}"
        dims[name] = want
        yield dim, name


def register_dataclass(cls: type, *, serialized_type_name: str | None = None) -> None:
    """Let objects of a data class be arguments and results of exported programs.

    >>> import dataclasses
    >>> @dataclasses.dataclass
    ... class Pair:
    ...     a: object
    ...     b: object
    >>> weft.export.register_dataclass(Pair)
    """
    if not dataclasses.is_dataclass(cls):
        raise AssertionError(f"Only dataclasses can be registered with this: {cls}")
    names = [f.name for f in dataclasses.fields(cls)]
    register_pytree_node(
        cls,
        lambda x: ([getattr(x, name) for name in names], None),
        lambda children, _: cls(**dict(zip(names, children, strict=True))),
    )
