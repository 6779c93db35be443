"""An optimizer's step as part of a captured program.

The rule runs on symbols. Every run reads learning rate and step count anew, moments
are variables, and the other options are those that the program was captured with (a
change is refused, not ignored).
"""

from __future__ import annotations

import functools
from typing import Any

from weft import float64
from weft.core.mode import mode
from weft.core.tensor import Tensor
from weft.graph.capture import paused
from weft.graph.state_cells import On
from weft.ops.inplace import assign, fitted
from weft.optim.flat import State, checked_gradient
from weft.optim.stamps import Stamp, likeness


def step_group(
    optimizer: Any,
    index: int,
    group: dict[str, Any],
    params: Any = None,
    lr: Any = None,
) -> None:
    """Update a group's parameters that have gradients, as nodes of the graph.

    ``params`` stand for the group's own, and ``lr`` for its learning rate.
    """
    run = mode.capture
    who = type(optimizer).__name__
    own = vars(optimizer)
    run.guard(f"{who}.state's identity", lambda: id(optimizer.state),
              On(own, "state", optimizer.state))  # fmt: skip
    groups = optimizer.param_groups
    parts = [part for one in groups for part in (
        On(one, "params", one["params"]), _items(one["params"]))]  # fmt: skip
    run.guard(
        f"{who}: the numbers of parameters in its groups",
        lambda: tuple([len(held["params"]) for held in optimizer.param_groups]),
        On(own, "param_groups", groups), _items(groups), *parts,
    )  # fmt: skip
    rows = zip(
        group["param_names"], group["params"], params or group["params"], strict=True
    )
    found = [(name, own, p) for name, own, p in rows if p.grad is not None]
    active = [(name, p._part) for name, _, p in found]
    options = _options(optimizer, index, group, lr)
    with paused():
        states = optimizer._states([own for _, own, _ in found], group)
    shelves: dict[Any, list[int]] = {}
    for i, state in enumerate(states):
        shelves.setdefault(tuple(_numbers(state).items()), []).append(i)
    names = [[active[i][0] for i in shelf] for shelf in shelves.values()]
    together = [[states[i] for i in shelf] for shelf in shelves.values()]
    alike = _Alike(optimizer, index, names, together)
    run.guard(f"{who}: parameters that had taken as many steps still have",
              alike.holds, On(alike.known, alike.key, alike.names))  # fmt: skip
    for shelf in shelves.values():
        numbers = _read_numbers(run, who, [states[i] for i in shelf], alike)
        numbers["step"] = numbers["step"] + 1
        after = numbers
        update = _Update(optimizer, numbers, options)
        for i in shelf:
            name, p = active[i]
            with run.builder.scope(f"{type(optimizer).__name__}/{name}"):
                after = update(name, p, states[i])
        for key, value in after.items():
            if key in numbers:
                run.set_number((id(states[shelf[0]]), key), value)


class _Alike:
    """The parameters of a group that have their numbers, as of steps, in common.

    A program reads such a number once. A step outside may give parameters different
    numbers: it leaves the names of those that it kept together.
    """

    def __init__(
        self, optimizer: Any, index: int, names: list[list[str]],
        states: list[list[State]],
    ) -> None:  # fmt: skip
        self.known: dict[str, Any] = optimizer._alike
        self.key = str(index)
        self.names = _one(tuple(map(tuple, names)))
        self.states = states

    def holds(self) -> bool:
        """Whether they are still alike; compared if a step was taken elsewhere."""
        if self.known.get(self.key) is self.names:
            return True
        first = [_numbers(some[0]) for some in self.states]
        pairs = zip(first, self.states, strict=True)
        found = all(_numbers(state) == one for one, some in pairs for state in some)
        if found:
            self.keep()
        return found

    def keep(self) -> None:
        self.known[self.key] = self.names


@functools.cache
def _one(names: Any) -> Any:
    """One object for equal names."""
    return names


def _items(some: list[Any]) -> On:
    return On(some, value=list(some))


def _options(
    optimizer: Any, index: int, group: dict[str, Any], lr: Any
) -> dict[str, Any]:
    """The group's options: the learning rate as a symbol, the others guarded."""
    run = mode.capture
    plain = {k: v for k, v in group.items() if k not in ("params", "param_names")}
    who = type(optimizer).__name__
    for key in plain:
        if key != "lr":
            run.guard(f"{who}.param_groups[{index}][{key!r}]", functools.partial(
                group.get, key), On(group, key, group[key]))  # fmt: skip
    if lr is not None:
        return {**plain, "lr": lr}
    lr = run.number(
        (id(group), "lr"), f"{who}.{index}.lr", lambda: group["lr"],
        functools.partial(group.__setitem__, "lr"), (group, "lr"),
    )  # fmt: skip
    return {**plain, "lr": lr}


def _numbers(state: State) -> State:
    return {k: v for k, v in state.items() if not isinstance(v, Tensor)}


def _read_numbers(run: Any, who: str, states: list[State], alike: _Alike) -> State:
    """The numbers that several parameters' states have in common, as symbols."""
    numbers = {}
    for key in _numbers(states[0]):

        def get(key: str = key) -> Any:
            return states[0][key]

        def set(value: Any, key: str = key) -> None:
            for state in states:
                state[key] = value
            alike.keep()

        name = f"{who}.{key}"
        on = states[0], key
        numbers[key] = run.number((id(states[0]), key), name, get, set, on, float64)
    return numbers


class _Update:
    """An optimizer's rule for parameters whose states have their numbers in common."""

    def __init__(self, optimizer: Any, numbers: State, options: Any) -> None:
        self.rule = optimizer._signed
        self.who = f"{type(optimizer).__name__}.step"
        self.numbers, self.options = numbers, options
        self.stamps: dict[Any, Stamp] = {}

    def __call__(self, name: str, p: Tensor, state: State) -> State:
        """Update a parameter and its state's tensors; returns the numbers after."""
        run = mode.capture
        held = {k: v for k, v in state.items() if isinstance(v, Tensor)}
        for key, tensor in held.items():
            run.names[id(tensor)] = f"{name}.{key}"
            run.slots[id(tensor)] = state, key
        run.names.setdefault(id(p), name)
        new, local = self.result(checked_gradient(p), p, held)
        for key, tensor in held.items():
            _store(tensor, local[key], self.who)
        _store(p, new, self.who)
        return {k: v for k, v in local.items() if k not in held}

    def result(self, g: Any, p: Tensor, held: State) -> tuple[Any, State]:
        """The result of the rule, by a copy of the nodes of a parameter like this if
        there is one."""
        tensors = [g, p, *held.values()]
        like = likeness(tensors)
        key = like, *held
        if key in self.stamps:
            return self.stamps[key].apply(tensors)
        nodes = mode.capture.builder.nodes
        first = len(nodes)
        local = {k: _flat(v) for k, v in held.items()} | self.numbers
        new = self.rule(_flat(g), _flat(p), local, self.options)
        if like is not None:
            stamp = Stamp(nodes[first:], tensors, new, local)
            if stamp.fits and stamp.began_as(like):
                self.stamps[key] = stamp
        return new, local


def _flat(value: Any) -> Any:
    """Half precision is computed in float32; a 0-d value never meets 0-d numbers,
    whose float64 would win."""
    wide = value.float() if value.dtype.itemsize == 2 else value
    return wide.reshape(1) if wide.ndim == 0 else wide


def _store(target: Tensor, value: Any, name: str) -> None:
    if value.shape != target.shape or value.dtype is not target.dtype:
        value = fitted(target, value.reshape(target.shape).to(target.dtype), name)
    assign(target, value, name)
