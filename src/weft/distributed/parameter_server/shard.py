"""One server's share of the parameters, and the optimizer that moves it.

All of it follows from the pushes that came, and from their order: a share that takes
them once more from its log ends with the same bits.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

import weft
from weft.core.tensor import Tensor
from weft.distributed.errors import ParameterServerError
from weft.distributed.parameter_server.sharding import cut, initial_rows, summed
from weft.distributed.plain import joined, parted
from weft.dtype import as_dtype
from weft.nn.parameter import Parameter
from weft.optim.flat import BLOCK
from weft.optim.optimizer import Optimizer

Spec = dict[str, Any]


class Push(NamedTuple):
    """Gradients of a worker: of pieces by name, and of rows of tables."""

    dense: dict[str, np.ndarray]
    tables: dict[str, tuple[np.ndarray, np.ndarray]]
    options: list[dict[str, Any]]  # of the optimizer's groups


class Table:
    """The rows of a table that this server has, as far as they were ever changed."""

    def __init__(self, about: Any, number: int, servers: int) -> None:
        self.rows, self.width = about["rows"], about["width"]
        self.std, self.seed = about["std"], about["seed"]
        self.dtype = as_dtype(about["dtype"]).np
        self.number, self.servers = number, servers
        self.slots: dict[int, int] = {}  # where a row is
        self.count = 0
        self.values = np.empty((0, self.width), self.dtype)
        self.state: dict[str, np.ndarray] = {}
        self.numbers: dict[str, Any] = {"step": 0}

    def check(self, rows: np.ndarray) -> None:
        """Refuse rows that are not this server's."""
        wrong = (rows < 0) | (rows >= self.rows) | (rows % self.servers != self.number)
        if wrong.any():
            raise ParameterServerError(
                f"expected rows of server {self.number} from 0 to {self.rows - 1}, got "
                f"{rows[wrong][0]}"
            )

    def read(self, rows: np.ndarray) -> np.ndarray:
        """The values of rows; those that were never changed have their first ones."""
        slots = np.array([self.slots.get(row, -1) for row in rows.tolist()], np.int64)
        known = slots >= 0
        found = np.empty((len(rows), self.width), self.dtype)
        found[known] = self.values[slots[known]]
        if not known.all():
            found[~known] = self._first(rows[~known])
        return found

    def _first(self, rows: np.ndarray) -> np.ndarray:
        return initial_rows(rows, self.width, self.std, self.seed).astype(self.dtype)

    def update(self, rows: np.ndarray, g: np.ndarray, rule: Any, group: Any) -> None:
        """Move rows by their gradients; a step of the table."""
        slots = self._slots(rows, rule, group)
        self.numbers["step"] += 1
        numbers = dict(self.numbers)
        block = max(BLOCK // max(self.width * self.dtype.itemsize, 1), 1)
        for start in range(0, len(rows), block):
            here = slots[start : start + block]
            state = dict(numbers)
            state.update({key: _wide(one[here]) for key, one in self.state.items()})
            gradient = _wide(g[start : start + block])
            sign = -gradient if group.get("maximize") else gradient
            with np.errstate(all="ignore"):
                new = rule.update(sign, _wide(self.values[here]), state, group)
            self.values[here] = new
            for key, one in self.state.items():
                one[here] = state[key]
            self.numbers = {key: state[key] for key in numbers}

    def _slots(self, rows: np.ndarray, rule: Any, group: Any) -> np.ndarray:
        """Where rows are; new ones get a place."""
        new = np.array([r for r in rows.tolist() if r not in self.slots], np.int64)
        if len(new):
            values = self._first(new)
            first = rule.start(Tensor(values), group)
            states = {k: v.numpy() for k, v in first.items() if isinstance(v, Tensor)}
            plain = {k: v for k, v in first.items() if k not in states}
            self.numbers = {**plain, **self.numbers}
            stop = self.count + len(new)
            self.values = self._with(self.values, values)
            for key, value in states.items():
                empty = np.empty((0, *value.shape[1:]), value.dtype)
                self.state[key] = self._with(self.state.get(key, empty), value)
            places = zip(new.tolist(), range(self.count, stop), strict=True)
            self.slots.update(places)
            self.count = stop
        return np.array([self.slots[row] for row in rows.tolist()], np.int64)

    def _with(self, held: np.ndarray, more: np.ndarray) -> np.ndarray:
        """An array with more rows; it grows by halves, so that few copies are made."""
        stop = self.count + len(more)
        if stop > len(held):
            room = np.empty((stop + stop // 2, *more.shape[1:]), more.dtype)
            room[: self.count] = held[: self.count]
            held = room
        held[self.count : stop] = more
        return held

    def changed(self) -> np.ndarray:
        """The rows that were ever changed, in the order of their places."""
        return np.fromiter(self.slots, np.int64, self.count)

    def held(self) -> dict[str, Any]:
        """All of it as plain data, which shares its memory."""
        state = {key: one[: self.count] for key, one in self.state.items()}
        return {"rows": self.changed(), "values": self.values[: self.count],
                "state": state, "numbers": self.numbers}  # fmt: skip

    def load(self, held: dict[str, Any]) -> None:
        """Take over what ``held`` gave."""
        rows = held["rows"].tolist()
        self.slots, self.count = (
            dict(zip(rows, range(len(rows)), strict=True)),
            len(rows),
        )
        self.values, self.state = held["values"], held["state"]
        self.numbers = held["numbers"]


class Shard:
    """The pieces and tables of one server, and who has pushed how often."""

    def __init__(self, spec: Spec, number: int) -> None:
        self.spec, self.number = spec, number
        self.workers, self.servers = spec["workers"], spec["servers"]
        self.synchronous = spec["synchronous"]
        self.steps = [0] * self.workers  # pushes of each worker
        self.waiting: dict[int, Push] = {}  # pushes of a step that is not complete
        self.pieces = cut(sizes(spec), self.servers)[number]
        held = {one.name: one.stop - one.start for one in self.pieces}
        kinds = {name: as_dtype(one["dtype"]) for name, one in spec["dense"].items()}
        params = {
            name: Parameter(weft.zeros(held.get(name, 0), dtype=kinds[name]))
            if name in kinds
            else Parameter(weft.empty(0))
            for group in spec["groups"]
            for name in group["names"]
        }
        self.params = {one.name: params[one.name] for one in self.pieces}
        groups = [
            {
                **group["options"],
                "params": [(name, params[name]) for name in group["names"]],
            }
            for group in spec["groups"]
        ]
        self.optimizer = rule(spec["optimizer"])(groups)
        tables = spec["tables"].items()
        self.tables = {name: Table(one, number, self.servers) for name, one in tables}
        self.group_of = {
            name: k for k, group in enumerate(spec["groups"]) for name in group["names"]
        }
        sized = [*self.params.items(), *self.tables.items()]
        self.kinds = {name: np.dtype(_dtype_of(one)) for name, one in sized}

    @property
    def version(self) -> int:
        """The number of steps that are complete: all workers have pushed them."""
        return min(self.steps)

    # -- reading

    def values(self) -> list[np.ndarray]:
        """The values of all pieces, which go on to change."""
        return [p.detach().numpy() for p in self.params.values()]

    def fill(self, payload: np.ndarray) -> None:
        """Set the first values of all pieces."""
        reader = Reader(payload)
        found = [reader.take(p.shape, self.kinds[k]) for k, p in self.params.items()]
        reader.end()
        for value, array in zip(self.values(), found, strict=True):
            value[...] = array

    # -- pushes

    def parsed(self, about: Any, payload: np.ndarray) -> Push:
        """A push from its parts, checked."""
        reader = Reader(payload)
        unknown = [name for name in about["dense"] if name not in self.params]
        unknown += [name for name in about["tables"] if name not in self.tables]
        if unknown:
            raise ParameterServerError(f"server {self.number} has no {unknown[0]!r}")
        if len(about["options"]) != len(self.optimizer.param_groups):
            raise ParameterServerError("expected options of each of the groups")
        for group, options in zip(
            self.optimizer.param_groups, about["options"], strict=True
        ):
            self.optimizer.check({**group, **options})
        dense = {
            name: reader.take(self.params[name].shape, self.kinds[name])
            for name in about["dense"]
        }
        tables = {}
        for name, count in about["tables"].items():
            table = self.tables[name]
            rows = reader.take((count,), np.dtype(np.int64))
            table.check(rows)
            tables[name] = rows, reader.take((count, table.width), table.dtype)
        reader.end()
        return Push(dense, tables, about["options"])

    def take(self, worker: int, step: int, push: Push) -> None:
        """Take a push; it moves the parameters if no other one has to come before."""
        if not self.synchronous:
            self.steps[worker] = step
            self._move([push])
            return
        self.waiting[worker] = push
        self.steps[worker] = step
        if len(self.waiting) == self.workers:
            self._move([self.waiting[k] for k in range(self.workers)])
            self.waiting = {}

    def _move(self, pushes: Sequence[Push]) -> None:
        """A step of the optimizer with the mean of the gradients."""
        groups = self.optimizer.param_groups
        for group, options in zip(groups, pushes[0].options, strict=True):
            group.update(options)
        for name, p in self.params.items():
            found = [push.dense[name] for push in pushes if name in push.dense]
            p.grad = Tensor(_mean(found, len(pushes))) if found else None
        self.optimizer.step()
        self.optimizer.zero_grad()
        for name, table in self.tables.items():
            some = [push.tables[name] for push in pushes if name in push.tables]
            if some:
                rows, g = summed(
                    np.concatenate([rows for rows, _ in some]),
                    np.concatenate([_wide(g) for _, g in some]),
                )
                g = g if len(pushes) == 1 else g / len(pushes)
                group = groups[self.group_of[name]]
                table.update(rows, g, self.optimizer, group)

    # -- keeping

    def kept(self) -> tuple[bytes, list[np.ndarray]]:
        """All of it as a text and arrays, which share its memory."""
        dense = dict(zip(self.params, self.values(), strict=True))
        waiting = {worker: push._asdict() for worker, push in self.waiting.items()}
        return parted({
            "spec": json.dumps(self.spec), "steps": self.steps, "dense": dense,
            "optimizer": self.optimizer.state_dict(copy=False), "waiting": waiting,
            "tables": {name: table.held() for name, table in self.tables.items()},
        })  # fmt: skip

    @classmethod
    def restored(cls, text: bytes, data: np.ndarray, number: int) -> Shard:
        """The share that ``kept`` gave."""
        held = joined(text, data)
        made = cls(json.loads(held["spec"]), number)
        made.steps = held["steps"]
        for value, array in zip(made.values(), held["dense"].values(), strict=True):
            value[...] = array
        made.optimizer.load_state_dict(held["optimizer"])
        made.waiting = {k: Push(**one) for k, one in held["waiting"].items()}
        for name, one in held["tables"].items():
            made.tables[name].load(one)
        return made


def rule(name: str) -> Any:
    """The optimizer of a name, which has to take parameters in pieces."""
    found = getattr(weft.optim, name, None) if name in weft.optim.__all__ else None
    if not isinstance(found, type) or not issubclass(found, Optimizer):
        raise ParameterServerError(f"weft.optim has no optimizer called {name!r}")
    if found.update is Optimizer.update:
        raise ParameterServerError(
            f"{name} needs whole tensors, and servers have pieces of them; take an "
            "optimizer whose rule is element-wise, such as SGD, Adam or Adagrad"
        )
    return found


def sizes(spec: Spec) -> dict[str, tuple[int, int]]:
    """The elements of each dense parameter, and the bytes of an element."""
    return {
        name: (math.prod(one["shape"]), as_dtype(one["dtype"]).itemsize)
        for name, one in spec["dense"].items()
    }


def difference(mine: Any, theirs: Any, path: str = "") -> str | None:
    """Where two specs differ first, as text.

    >>> from weft.distributed.parameter_server.shard import difference
    >>> difference({"a": [{"b": 1}]}, {"a": [{"b": 2}]})
    'a.0.b is 1 there, and 2 here'
    """
    mine, theirs = _numbered(mine), _numbered(theirs)
    if isinstance(mine, dict) and isinstance(theirs, dict):
        for key in [*mine, *(k for k in theirs if k not in mine)]:
            inner = f"{path}.{key}" if path else str(key)
            found = difference(mine.get(key), theirs.get(key), inner)
            if found is not None:
                return found
        return None
    if mine == theirs:
        return None
    return f"{path} is {_shown(mine)} there, and {_shown(theirs)} here"


def _numbered(value: Any) -> Any:
    """A list of dictionaries as a dictionary by number."""
    alike = isinstance(value, list) and all(isinstance(one, dict) for one in value)
    return dict(enumerate(value)) if alike else value


def _shown(value: Any) -> str:
    return "missing" if value is None else str(value)


def _dtype_of(one: Any) -> Any:
    return one.dtype if isinstance(one, Table) else one.dtype.np


class Reader:
    """Arrays one behind the other in a payload."""

    def __init__(self, payload: np.ndarray) -> None:
        self.payload, self.at = payload, 0

    def take(self, shape: Sequence[int], kind: np.dtype) -> np.ndarray:
        """The next array."""
        stop = self.at + math.prod(shape) * kind.itemsize
        if stop > len(self.payload):
            raise ParameterServerError("a message has fewer numbers than it says")
        found = self.payload[self.at : stop].view(kind).reshape(tuple(shape))
        self.at = stop
        return np.require(found, requirements="A")

    def end(self) -> None:
        """Refuse what is left."""
        if self.at != len(self.payload):
            raise ParameterServerError("a message has more numbers than it says")


def _wide(array: np.ndarray) -> np.ndarray:
    """Half-precision numbers are computed with in float32."""
    return array.astype(np.float32) if array.dtype.itemsize == 2 else array


def _mean(arrays: Sequence[np.ndarray], count: int) -> np.ndarray:
    """The mean of so many arrays, of which those that are not there are zero."""
    if count == 1:
        return arrays[0]
    total = _wide(arrays[0])
    for one in arrays[1:]:
        total = total + one
    return (total / count).astype(arrays[0].dtype)
