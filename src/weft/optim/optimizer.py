"""The base of every optimizer: parameter groups, names, state and saving.

An optimizer is two functions. ``start`` gives a parameter's first state, and
``update`` takes a gradient, a value, their state and the group's options to the
new value (and replaces the state):

    class Plain(Optimizer):
        def __init__(self, params, lr=0.1):
            super().__init__(params, {"lr": lr})

        def update(self, g, p, state, group):
            return p - group["lr"] * g

``update`` is element-wise and is given arrays or tensors, whole or in pieces:
it uses operators and NumPy's functions, which tensors answer too. The number
``state["step"]`` counts a parameter's steps, this one included.
"""

from __future__ import annotations

import difflib
import functools
import itertools
import math
import operator
import re
from collections import Counter, OrderedDict, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import numpy as np

from weft import as_tensor
from weft.autograd.modes import enable_grad, no_grad
from weft.core.mode import mode
from weft.core.tensor import Tensor
from weft.errors import ArgumentError, DTypeError, MemberError
from weft.nn.module import Module, ParameterIterator
from weft.nn.saving import RemovableHandle
from weft.optim.flat import State, check_memory, plan
from weft.runtime.cpu.buffers import shelf

_POSITIVE = (
    "lr", "eps", "weight_decay", "momentum", "lr_decay", "momentum_decay",
    "initial_accumulator_value", "alpha", "tolerance_grad", "tolerance_change",
)  # fmt: skip


OptimizerPreHook = Callable[..., Any]
OptimizerPostHook = Callable[..., Any]
HOOK_KINDS = (
    "_optimizer_step_pre_hooks", "_optimizer_step_post_hooks",
    "_optimizer_state_dict_pre_hooks", "_optimizer_state_dict_post_hooks",
    "_optimizer_load_state_dict_pre_hooks", "_optimizer_load_state_dict_post_hooks",
)  # fmt: skip
STEP_PRE_HOOKS: OrderedDict[int, Any] = OrderedDict()  # of every optimizer
STEP_POST_HOOKS: OrderedDict[int, Any] = OrderedDict()


class _RequiredParameter:
    """The default of an option that every group must give."""

    def __repr__(self) -> str:
        return "<required parameter>"


required = _RequiredParameter()


def register_optimizer_step_pre_hook(hook: OptimizerPreHook) -> RemovableHandle:
    """Call ``hook(optimizer, args, kwargs)`` before each step of every optimizer."""
    return RemovableHandle(STEP_PRE_HOOKS, hook)


def register_optimizer_step_post_hook(hook: OptimizerPostHook) -> RemovableHandle:
    """Call ``hook(optimizer, args, kwargs)`` after each step of every optimizer."""
    return RemovableHandle(STEP_POST_HOOKS, hook)


def _use_grad_for_differentiable(func: Callable[..., Any]) -> Callable[..., Any]:
    """A ``step`` that records no gradients: PyTorch's decorator of optimizers."""

    @functools.wraps(func)
    def step(self: Any, *args: Any, **kwargs: Any) -> Any:
        with no_grad():
            return func(self, *args, **kwargs)

    return step


class Optimizer:
    """The base of all optimizers.

    ``params`` are tensors, (name, tensor) pairs, a module, or groups of these:
    dictionaries with "params" and the options that differ there. Names are known
    from a module, from ``model.parameters()`` itself and from pairs; tensors in a list
    are numbered.

    >>> layer = weft.nn.Parameter(weft.ones(2))
    >>> sgd = weft.optim.SGD([("scale", layer)], lr=0.5)
    >>> (layer * 3).sum().backward()
    >>> sgd.step()
    >>> layer.detach()
    tensor([-0.5000, -0.5000])
    """

    _optimizer_step_pre_hooks: dict[int, Any]
    _optimizer_step_post_hooks: dict[int, Any]
    _optimizer_state_dict_pre_hooks: dict[int, Any]
    _optimizer_state_dict_post_hooks: dict[int, Any]
    _optimizer_load_state_dict_pre_hooks: dict[int, Any]
    _optimizer_load_state_dict_post_hooks: dict[int, Any]
    # Options whose truth decides which states a parameter has.
    switches: tuple[str, ...] = ()

    def __init__(self, params: Any, defaults: dict[str, Any]) -> None:
        self.defaults = defaults
        self.state: dict[Any, State] = defaultdict(dict)
        for kind in HOOK_KINDS:
            setattr(self, kind, OrderedDict())
        self.param_groups: list[dict[str, Any]] = []
        self._plans: dict[int, tuple[Any, list[Tensor], list[Any]]] = {}
        self._alike: dict[str, Any] = {}  # of groups, that a program has stepped last
        groups = _as_groups(params, type(self).__name__)
        if not groups:
            raise ArgumentError(
                f"{type(self).__name__}: got no parameters; pass model.parameters(), "
                "or the model itself"
            )
        for group in groups:
            self.add_param_group(group)

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if "step" in cls.__dict__:
            cls.step = cls.profile_hook_step(cls.step)  # type: ignore[method-assign]

    def __getstate__(self) -> dict[str, Any]:
        """Copies and pickles make plans of their own."""
        return {**vars(self), "_plans": {}, "_alike": {}}

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Take over what ``__getstate__`` gave."""
        self.__dict__.update(state)
        for kind in HOOK_KINDS:
            self.__dict__.setdefault(kind, OrderedDict())

    # -- hooks

    @staticmethod
    def profile_hook_step(func: Callable[..., Any]) -> Callable[..., Any]:
        """A ``step`` that calls the hooks before and after it."""
        if getattr(func, "hooked", False):
            return func

        @functools.wraps(func)
        def wrapper(self: Any, *args: Any, **kwargs: Any) -> Any:
            if "_optimizer_step_pre_hooks" not in self.__dict__:
                return func(self, *args, **kwargs)  # a wrapper of another optimizer
            before = self._optimizer_step_pre_hooks
            after = self._optimizer_step_post_hooks
            if not (before or after or STEP_PRE_HOOKS or STEP_POST_HOOKS):
                return func(self, *args, **kwargs)
            for hook in [*STEP_PRE_HOOKS.values(), *before.values()]:
                found = hook(self, args, kwargs)
                if found is not None:
                    if not isinstance(found, tuple) or len(found) != 2:
                        raise RuntimeError(
                            "a step pre-hook must return None or a tuple "
                            f"(new_args, new_kwargs), got {found!r}"
                        )
                    args, kwargs = found
            out = func(self, *args, **kwargs)
            for hook in [*after.values(), *STEP_POST_HOOKS.values()]:
                hook(self, args, kwargs)
            return out

        wrapper.hooked = True  # type: ignore[attr-defined]
        return wrapper

    def register_step_pre_hook(self, hook: Callable[..., Any]) -> RemovableHandle:
        """Call ``hook(optimizer, args, kwargs)`` before a step; it may replace them.

        >>> sgd = weft.optim.SGD([weft.nn.Parameter(weft.ones(1))], lr=0.1)
        >>> handle = sgd.register_step_pre_hook(lambda opt, *rest: print("step"))
        >>> sgd.step()
        step
        """
        return RemovableHandle(self._optimizer_step_pre_hooks, hook)

    def register_step_post_hook(self, hook: Callable[..., Any]) -> RemovableHandle:
        """Call ``hook(optimizer, args, kwargs)`` after a step."""
        return RemovableHandle(self._optimizer_step_post_hooks, hook)

    def register_state_dict_pre_hook(
        self, hook: Callable[..., Any], prepend: bool = False
    ) -> RemovableHandle:
        """Call ``hook(optimizer)`` before ``state_dict``."""
        return RemovableHandle(self._optimizer_state_dict_pre_hooks, hook, prepend)

    def register_state_dict_post_hook(
        self, hook: Callable[..., Any], prepend: bool = False
    ) -> RemovableHandle:
        """Call ``hook(optimizer, state_dict)`` after it; it may return another one."""
        return RemovableHandle(self._optimizer_state_dict_post_hooks, hook, prepend)

    def register_load_state_dict_pre_hook(
        self, hook: Callable[..., Any], prepend: bool = False
    ) -> RemovableHandle:
        """Call ``hook(optimizer, state_dict)`` before it is loaded; it may return
        another one."""
        return RemovableHandle(self._optimizer_load_state_dict_pre_hooks, hook, prepend)

    def register_load_state_dict_post_hook(
        self, hook: Callable[..., Any], prepend: bool = False
    ) -> RemovableHandle:
        """Call ``hook(optimizer)`` when a state has been loaded."""
        return RemovableHandle(
            self._optimizer_load_state_dict_post_hooks, hook, prepend
        )

    # -- the rule, which a subclass defines

    def start(self, param: Tensor, group: dict[str, Any]) -> State:
        """A parameter's first state: tensors of its shape, and numbers."""
        return {}

    def update(self, g: Any, p: Any, state: State, group: dict[str, Any]) -> Any:
        """The new value of a parameter (or of a piece of several)."""
        raise NotImplementedError(f"{type(self).__name__} has no update rule")

    # -- groups

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Add parameters, with options of their own.

        >>> a, b = weft.nn.Parameter(weft.ones(1)), weft.nn.Parameter(weft.ones(1))
        >>> sgd = weft.optim.SGD([a], lr=0.1)
        >>> sgd.add_param_group({"params": [b], "lr": 0.01})
        >>> [group["lr"] for group in sgd.param_groups]
        [0.1, 0.01]
        """
        who = type(self).__name__
        if not isinstance(param_group, dict) or "params" not in param_group:
            raise DTypeError(
                f"{who}: expected a group to be a dictionary with 'params', got "
                f"{_brief(param_group)}"
            )
        first = sum(len(g["params"]) for g in self.param_groups)
        taken = {name for name, _ in self._named_params()}
        names, params = _named(param_group["params"], first, taken, who)
        options = {k: _plain(v) for k, v in param_group.items() if k not in _OWN}
        group = {**self.defaults, **options}
        for key, value in group.items():
            if value is required:
                raise ArgumentError(
                    "parameter group didn't specify a value of required optimization "
                    f"parameter {key}"
                )
        _check_known(who, options, self.defaults)
        self._check_params(names, params)
        self.check(group)
        self.param_groups.append({"params": params, "param_names": names, **group})

    def _check_params(self, names: list[str], params: list[Tensor]) -> None:
        who = type(self).__name__
        seen = {id(p): name for name, p in self._named_params()}
        taken = set(seen.values())
        for name, p in zip(names, params, strict=True):
            _check_leaf(who, name, p)
            if id(p) in seen:
                raise ArgumentError(
                    f"{who}: {name!r} is the same parameter as {seen[id(p)]!r}; pass "
                    "each one once"
                )
            if name in taken:
                raise ArgumentError(f"{who}: two parameters are named {name!r}")
            seen[id(p)] = name
            taken.add(name)

    def check(self, group: dict[str, Any]) -> None:
        """Refuse options that make no sense."""
        who = type(self).__name__
        if group.get("differentiable"):
            raise ArgumentError(
                f"{who}: differentiable=True is not taken; weft.func.grad "
                "differentiates a step that is written as a function"
            )
        if group.get("fused") and group.get("foreach"):
            raise ArgumentError(f"{who}: expected fused or foreach, got both")
        for key in _POSITIVE:
            if key in group:
                _check_number(who, key, group[key], 0, None)
        for i, beta in enumerate(group.get("betas", ())):
            _check_number(who, f"betas[{i}]", beta, 0, 1)

    def _named_params(self) -> Iterator[tuple[str, Tensor]]:
        for group in self.param_groups:
            yield from zip(group["param_names"], group["params"], strict=True)

    # -- stepping

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Clear the gradients of all parameters."""
        for _, p in self._named_params():
            if mode.capture is not None:
                mode.capture.touch(p._part)
            if set_to_none:
                p.grad = None
            elif p.grad is not None:
                p.grad = p.grad.detach().zero_()

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Update every parameter that has a gradient.

        ``closure``, where given, computes gradients and returns the loss, which is
        returned.
        """
        loss = None
        if closure is not None:
            with enable_grad():
                loss = closure()
        with no_grad(), np.errstate(all="ignore"):
            self._step_sparse()
            if mode.capture is None and mode.anomaly is not None:
                self._step_watched()
            elif mode.capture is None:
                self._step_all()
            else:
                for index, group in enumerate(self.param_groups):
                    self._captured(index, group)
        return loss

    def _step_sparse(self) -> None:
        """The parameters whose gradients are sparse, each by itself."""
        for group in self.param_groups:
            for p in group["params"]:
                if p.grad is not None and p.grad.is_sparse:
                    g = -p.grad if group.get("maximize") else p.grad
                    self.update_sparse(g.coalesce(), p, group)

    def update_sparse(self, g: Any, p: Tensor, group: dict[str, Any]) -> None:
        """Change a parameter by a sparse gradient, if the rule has a form for it."""
        raise ArgumentError(
            f"{type(self).__name__}: got a sparse gradient, which SGD, Adagrad and "
            "SparseAdam take; or make it dense (Embedding(sparse=False))"
        )

    def _step_watched(self) -> None:
        """A step that must leave finite parameters finite."""
        from weft.autograd.anomaly import check_step

        params = [p for g in self.param_groups for p in g["params"]]
        active = [p for p in params if p.grad is not None and not p.grad.is_sparse]
        before = [p.to_host().copy() for p in active]
        self._step_all()
        check_step(f"{type(self).__name__}.step", before, active)

    def _step_all(self) -> None:
        """Everything that needs memory or can be refused, then the writing."""
        name = f"{type(self).__name__}.step"
        self._alike.clear()
        for run, gradient, options in self._prepared():
            run.step(self._signed, options, name, gradient)

    def _prepared(self) -> list[tuple[Any, Any, dict[str, Any]]]:
        """The runs of a step with their gradients; on an error no state has moved."""
        before: dict[Tensor, State | None] = {}
        prepared = []
        try:
            for index, group in enumerate(self.param_groups):
                active = [
                    p
                    for p in group["params"]
                    if p.grad is not None and not p.grad.is_sparse
                ]
                if active:
                    options = {k: _plain(v) for k, v in group.items() if k not in _OWN}
                    runs = self._plan(index, active, options, before)
                    prepared += [(run, run.gradients(), options) for run in runs]
            check_memory()
        except BaseException:
            self._restore(before)
            raise
        return prepared

    def _restore(self, before: dict[Tensor, State | None]) -> None:
        """Put states back that were being made or moved."""
        if before:
            self._plans.clear()
        for p, state in before.items():
            if state is None:
                self.state.pop(p, None)
            else:
                self.state[p].update(state)

    def _captured(self, index: int, group: dict[str, Any]) -> None:
        from weft.optim.captured import step_group

        step_group(self, index, group)

    def _plan(
        self,
        index: int,
        active: list[Tensor],
        group: Any,
        before: dict[Tensor, State | None],
    ) -> list[Any]:
        """The plan for this group's parameters; kept while no memory changes.

        A new plan moves states, which ``before`` takes note of.
        """
        kind = (group.get("foreach"), *[bool(group[key]) for key in self.switches])
        last = self._plans.get(index)
        if last is not None and last[0] == kind and _same(last[1], active):
            runs = last[2]
            if all(run.valid() for run in runs):
                return runs
        for p in active:
            before[p] = dict(self.state[p]) if p in self.state else None
        states = self._states(active, group)
        parts = [p._part for p in active]
        runs = plan(parts, states, group.get("foreach") is not False)
        self._plans[index] = (kind, active, runs)
        return runs

    def _states(self, params: list[Tensor], group: dict[str, Any]) -> list[State]:
        """States of parameters, with whatever they lack, side by side in memory."""
        if mode.states is not None:
            mode.states(self)
        parts = [p._part for p in params]
        with shelf(sum(math.prod(p.shape) * p.dtype.itemsize for p in parts)):
            return [self._state(p, group) for p in params]

    def _state(self, p: Tensor, group: dict[str, Any]) -> State:
        """A parameter's state, with whatever it lacks."""
        state = self.state[p]
        state.setdefault("step", 0)
        for key, value in self.start(p._part, group).items():
            held = state.get(key)
            if held is None:
                state[key] = value
            elif isinstance(value, Tensor) and held.dtype is not value.dtype:
                state[key] = held.to(value.dtype)  # the model was converted
        return state

    def _signed(self, g: Any, p: Any, state: State, group: dict[str, Any]) -> Any:
        return self.update(-g if group.get("maximize") else g, p, state, group)

    # -- saving

    def state_dict(self, *, copy: bool = True) -> dict[str, Any]:
        """A copy of all state and of the groups' options, in PyTorch's form.

        Without ``copy``, its tensors are those that the optimizer goes on to change.
        State is by the parameter's number. Each group has the numbers of its
        parameters in "params" and, where they are known, the names in "param_names".

        >>> p = weft.nn.Parameter(weft.ones(2))
        >>> sgd = weft.optim.SGD([("scale", p)], lr=0.1, momentum=0.9)
        >>> p.sum().backward()
        >>> sgd.step()
        >>> list(sgd.state_dict()["state"][0])
        ['step', 'momentum_buffer']
        >>> sgd.state_dict()["param_groups"][0]["param_names"]
        ['scale']
        """
        for hook in list(self._optimizer_state_dict_pre_hooks.values()):
            hook(self)
        found = self._as_state_dict(_copied if copy else _detached)
        for hook in list(self._optimizer_state_dict_post_hooks.values()):
            replaced = hook(self, found)
            found = found if replaced is None else replaced
        return found

    def _as_state_dict(self, taken: Callable[[Any], Any]) -> dict[str, Any]:
        known = not _numbered([name for name, _ in self._named_params()])
        state: dict[int, State] = {}
        groups = []
        numbers = itertools.count()
        for group in self.param_groups:
            params = {k: p for p, k in zip(group["params"], numbers, strict=False)}
            options = {k: _plain(v) for k, v in group.items() if k not in _OWN}
            names = {"param_names": list(group["param_names"])} if known else {}
            groups.append({**options, "params": list(params), **names})
            for number, p in params.items():
                if p in self.state:
                    held = self.state[p].items()
                    state[number] = {k: _of_whole(taken(v), p) for k, v in held}
        return {"state": state, "param_groups": groups}

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Take over what ``state_dict`` gave, parameter by parameter by name.

        The order of parameters does not matter. Where the saved state or this
        optimizer knows no names (see ``Optimizer``), parameters are matched by their
        position. Entries that are missing, unexpected or of another shape or dtype
        refuse the whole load with the difference.
        """
        state_dict = dict(state_dict) if isinstance(state_dict, Mapping) else state_dict
        for hook in list(self._optimizer_load_state_dict_pre_hooks.values()):
            replaced = hook(self, state_dict)
            state_dict = state_dict if replaced is None else replaced
        self._take_state(state_dict)
        for hook in list(self._optimizer_load_state_dict_post_hooks.values()):
            hook(self)

    def _take_state(self, state_dict: Any) -> None:
        saved, groups = self._by_name(*_parts_of(state_dict))
        problems = [*self._group_problems(groups), *self._state_problems(saved)]
        if problems:
            head = f"load_state_dict: the entries do not fit this {type(self).__name__}"
            raise ArgumentError("\n".join([head, *_shortened(problems)]))
        taken = [self._options_for(mine, groups) for mine in self.param_groups]
        for options in taken:
            self.check(options)
        state = {
            p: self._restored_state(saved[name], p, group)
            for group in self.param_groups
            for name, p in zip(group["param_names"], group["params"], strict=True)
            if name in saved
        }
        for mine, options in zip(self.param_groups, taken, strict=True):
            mine.update(options)
        self.state = defaultdict(dict, state)
        self._plans.clear()

    def _restored_state(self, entry: Any, p: Tensor, group: dict[str, Any]) -> State:
        """A parameter's saved state in the form that this optimizer keeps it in."""
        if type(self).update is Optimizer.update:  # it has states of its own kind
            step = {k: v for k, v in entry.items() if k == "step"}
            rest = {k: _restored(v, p) for k, v in entry.items() if k != "step"}
            return {**{k: _own_step(v, p) for k, v in step.items()}, **rest}
        like = {"step": 0, **self.start(p._part, group)}
        # PyTorch's SGD counts no steps, and what it has saved are not the first ones.
        held = {"step": 1, **entry} if entry else entry
        return {
            k: _restored(v, p) if isinstance(like.get(k), Tensor) else _number(k, v)
            for k, v in held.items()
        }

    def _by_name(self, saved: Any, groups: list[Any]) -> tuple[Any, list[Any]]:
        """Saved state and groups with this optimizer's names for parameters."""
        theirs = _saved_names(groups)
        mine = [list(group["param_names"]) for group in self.param_groups]
        if _numbered(_flat(theirs)) or _numbered(_flat(mine)):
            if list(map(len, mine)) != list(map(len, theirs)):
                raise ArgumentError(
                    f"load_state_dict: without names, this {type(self).__name__} "
                    "expected groups of as many parameters as its own, "
                    f"{_counts(mine)}, got {_counts(theirs)}"
                )
            theirs = mine
        keys = [key for group in groups for key in group["params"]]
        names = dict(zip(keys, _flat(theirs), strict=True))
        found = {names.get(key, key): entry for key, entry in saved.items()}
        pairs = zip(groups, theirs, strict=True)
        return found, [{**group, "params": own} for group, own in pairs]

    def _options_for(self, mine: dict[str, Any], groups: Any) -> dict[str, Any]:
        names = set(mine["param_names"])
        theirs = next(g for g in groups if set(g["params"]) == names)
        given = {k: v for k, v in theirs.items() if k not in _OWN}
        return {**{k: v for k, v in mine.items() if k not in _OWN}, **given}

    def _group_problems(self, groups: list[Any]) -> list[str]:
        """The differences of the saved groups' names from this optimizer's."""
        shapes = {name: tuple(p.shape) for name, p in self._named_params()}
        theirs = [name for group in groups for name in group["params"]]
        known = set(theirs)
        lines = [f"  missing     {n} {shapes[n]}" for n in shapes if n not in known]
        lines += [f"  unexpected  {n}" for n in theirs if n not in shapes]
        lines += [f"  twice       {n}" for n, k in Counter(theirs).items() if k > 1]
        if not lines:
            have = sorted(sorted(g["param_names"]) for g in self.param_groups)
            if have != sorted(sorted(g["params"]) for g in groups):
                lines.append("  the parameters are divided into other groups")
        return lines

    def _state_problems(self, saved: Mapping[str, Any]) -> list[str]:
        """The differences of the saved state from the one that parameters need."""
        lines: list[str] = []
        for group in self.param_groups:
            for name, p in zip(group["param_names"], group["params"], strict=True):
                if name in saved:
                    lines += self._entry_problems(name, p, saved[name], group)
        known = {name for name, _ in self._named_params()}
        return lines + [f"  unexpected  {n}" for n in saved if n not in known]

    def _entry_problems(
        self, name: str, p: Tensor, entry: Any, group: dict[str, Any]
    ) -> Iterator[str]:
        if type(self).update is Optimizer.update:
            return  # it has a step, and so states, of its own
        expected = {"step": 0, **self.start(p._part, group)}
        for key, value in expected.items():
            want = tuple(np.shape(_of_whole(value, p)))
            if key not in entry:
                if key != "step":  # PyTorch's SGD has none
                    yield f"  missing     {name}.{key} {want}"
            elif (got := tuple(np.shape(entry[key]))) != want:
                yield f"  wrong shape {name}.{key} {want}, got {got}"
            elif isinstance(value, Tensor):
                kind = as_tensor(entry[key]).dtype
                if kind is not value.dtype:
                    yield (
                        f"  wrong dtype {name}.{key} {value.dtype.name}, got "
                        f"{kind.name}; convert the model before it is loaded"
                    )
        for key in entry:
            if key not in expected:
                yield f"  unexpected  {name}.{key} {tuple(np.shape(entry[key]))}"

    def __repr__(self) -> str:
        lines = [type(self).__name__ + " ("]
        for i, group in enumerate(self.param_groups):
            lines.append(f"Parameter Group {i}")
            lines += [
                f"    {k}: {v}" for k, v in sorted(group.items()) if k not in _OWN
            ]
        return "\n".join([*lines, ")"])


_OWN = ("params", "param_names")  # the entries of a group beside its options


Optimizer.OptimizerPreHook = OptimizerPreHook  # type: ignore[attr-defined]
Optimizer.OptimizerPostHook = OptimizerPostHook  # type: ignore[attr-defined]
Optimizer.step = Optimizer.profile_hook_step(Optimizer.step)  # type: ignore[method-assign]


def decayed(g: Any, p: Any, group: dict[str, Any]) -> Any:
    """The gradient with that of an L2 penalty added."""
    rate = group["weight_decay"]
    return g + rate * p if rate else g


def power(base: float, exponent: Any) -> Any:
    """``base ** exponent`` by the operator's own kernel, so that a captured step
    gives the same bits."""
    if isinstance(exponent, Tensor):
        return base**exponent
    return float(np.power(base, float(exponent)))


def shrunk(p: Any, group: dict[str, Any]) -> Any:
    """The value after decoupled weight decay."""
    rate = group["weight_decay"]
    return p * (1 - group["lr"] * rate) if rate else p


def _as_groups(params: Any, who: str) -> list[dict[str, Any]]:
    if isinstance(params, Module):
        return [{"params": params}]
    if isinstance(params, (Tensor, str, Mapping)) or not isinstance(params, Iterable):
        raise DTypeError(
            f"{who}: expected an iterable of parameters (or of groups) or a module, "
            f"got {type(params).__name__}; put one tensor in a list"
        )
    items = list(params.named if isinstance(params, ParameterIterator) else params)
    if any(isinstance(item, dict) for item in items):
        return items
    return [{"params": items}] if items else []


def _named(
    params: Any, first: int, taken: set[str], who: str
) -> tuple[list[str], list[Tensor]]:
    """Names and tensors of a group; those without a name are numbered.

    So are those of ``part.parameters()`` if another part of the model has the same.
    """
    if isinstance(params, Module):
        params = params.named_parameters()
    elif isinstance(params, ParameterIterator):
        pairs = list(params.named)
        known = not any(name in taken for name, _ in pairs)
        params = pairs if known else [p for _, p in pairs]
    elif isinstance(params, Tensor):
        params = [params]
    elif isinstance(params, (set, frozenset)):
        raise DTypeError(f"{who}: expected an ordered collection, got a set")
    names, tensors = [], []
    for i, item in enumerate(params, first):
        name, tensor = item if _is_pair(item) else (f"param.{i}", item)
        names.append(name)
        tensors.append(tensor)
    return names, tensors


_NUMBER = re.compile(r"param\.\d+")


def _numbered(names: list[str]) -> bool:
    """Whether no parameter has a name, but for its number."""
    return all(map(_NUMBER.fullmatch, names))


def _saved_names(groups: list[Any]) -> list[list[str]]:
    """The names of saved groups' parameters, or their numbers instead."""
    numbers = itertools.count()
    listed = []
    for group in groups:
        keys = group["params"]
        names = group.get("param_names") or [
            key if isinstance(key, str) else f"param.{number}"
            for key, number in zip(keys, numbers, strict=False)
        ]
        if len(names) != len(keys):
            raise ArgumentError(
                f"load_state_dict: a group has {len(keys)} parameters and "
                f"{len(names)} names"
            )
        listed.append(list(names))
    return listed


def _flat(names: list[list[str]]) -> list[str]:
    return list(itertools.chain.from_iterable(names))


def _counts(names: list[list[str]]) -> str:
    return " and ".join(map(str, map(len, names))) or "none"


def _is_pair(item: Any) -> bool:
    return isinstance(item, tuple) and len(item) == 2 and isinstance(item[0], str)


def _check_leaf(who: str, name: str, p: Any) -> None:
    if not isinstance(p, Tensor):
        raise DTypeError(
            f"{who}: expected {name!r} to be a tensor, got {type(p).__name__}"
        )
    if not p.is_leaf:
        raise ArgumentError(
            f"{who}: {name!r} was made by {p.grad_fn.name!r} and is no leaf, so it "
            "gets no gradient of its own; pass the tensor that you made"
        )


def _check_known(who: str, options: dict[str, Any], defaults: dict[str, Any]) -> None:
    """Refuse a misspelt option; other keys are the user's own."""
    for key in options:
        if key not in defaults:
            close = difflib.get_close_matches(key, defaults, 1, 0.8)
            if close:
                raise ArgumentError(
                    f"{who}: unknown option {key!r} in a group; {close[0]!r} is meant?"
                )


def _check_number(who: str, key: str, value: Any, low: float, high: Any) -> None:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        kind = type(value).__name__
        raise DTypeError(f"{who}: expected {key} to be a number, got {kind}")
    if not value >= low or (high is not None and not value < high):
        text = f"at least {low}" if high is None else f"in [{low}, {high})"
        raise ArgumentError(f"{who}: expected {key} {text}, got {value}")


def _plain(value: Any) -> Any:
    """Numbers of other libraries as Python's, so that they never widen a dtype."""
    if isinstance(value, (np.generic, Tensor)) and np.size(value) == 1:
        return value.item()
    if isinstance(value, (tuple, list)):
        return tuple(_plain(v) for v in value)
    return value


def _copied(value: Any) -> Any:
    return value.detach().clone() if isinstance(value, Tensor) else value


def _detached(value: Any) -> Any:
    return value.detach() if isinstance(value, Tensor) else value


def _restored(value: Any, p: Tensor) -> Any:
    """A saved tensor for a parameter: its own copy, of its dtype and device."""
    if not isinstance(value, (Tensor, np.ndarray)):
        return _plain(value)
    return p._part_of(_as_tensor(value)).to(p.dtype).to(p.device).clone()


def _of_whole(value: Any, p: Tensor) -> Any:
    """A state's value as of the whole parameter, of which this process has a part."""
    return p._with_part(value) if isinstance(value, Tensor) else value


def _as_tensor(value: Any) -> Any:
    foreign = isinstance(value, np.ndarray)
    return as_tensor(value).detach() if foreign else value


def _own_step(value: Any, p: Tensor) -> Any:
    """A count of steps as an optimizer of the user's own keeps it."""
    value = _as_tensor(value)
    return value.detach().to(p.device).clone() if isinstance(value, Tensor) else value


def _number(key: str, value: Any) -> Any:
    """A saved number, of which PyTorch has tensors."""
    if key == "step":
        return int(value)
    return float(value) if np.size(value) == 1 and not isinstance(value, str) else value


def _parts_of(state_dict: Any) -> tuple[Any, Any]:
    if (
        not isinstance(state_dict, Mapping)
        or not {"state", "param_groups"} <= set(state_dict)
        or not all("params" in group for group in state_dict["param_groups"])
    ):
        raise MemberError(
            "load_state_dict: expected a dictionary with 'state' and 'param_groups', "
            f"as state_dict() gives, got {_brief(state_dict)}"
        )
    return state_dict["state"], list(state_dict["param_groups"])


def _brief(value: Any) -> str:
    if isinstance(value, Mapping):
        return f"a dictionary with {', '.join(map(repr, value)) or 'nothing'}"
    return type(value).__name__


def _shortened(lines: list[str]) -> list[str]:
    return (
        [*lines[:40], f"  … and {len(lines) - 40} more"] if len(lines) > 40 else lines
    )


def _same(before: list[Any], now: list[Any]) -> bool:
    return len(before) == len(now) and all(map(operator.is_, before, now))
