"""L-BFGS: quasi-Newton steps from a short memory, with a line search."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from weft.autograd.modes import enable_grad, no_grad
from weft.core.tensor import Tensor
from weft.errors import ArgumentError, DeviceError
from weft.optim.flat import checked_gradient, touch
from weft.optim.line_search import Point, strong_wolfe
from weft.optim.optimizer import Optimizer

_ROWS = ("old_dirs", "old_stps")  # one row for each remembered step
_VECTORS = ("d", "prev_flat_grad")
_NUMBERS = ("n_iter", "func_evals", "t", "H_diag", "prev_loss", "ro")


class LBFGS(Optimizer):
    """Limited-memory BFGS (Nocedal, 1980), on all parameters as one vector.

    ``step`` needs a closure that clears the gradients, computes the loss, calls
    backward and returns the loss. ``line_search_fn`` is None or "strong_wolfe".

    >>> p = weft.nn.Parameter(weft.tensor([3.0, -2.0]))
    >>> lbfgs = weft.optim.LBFGS([p], line_search_fn="strong_wolfe")
    >>> def closure():
    ...     lbfgs.zero_grad()
    ...     loss = ((p - 1) ** 2).sum()
    ...     loss.backward()
    ...     return loss
    >>> _ = lbfgs.step(closure)
    >>> bool((p.detach() - 1).abs().max() < 1e-5)
    True
    """

    def __init__(
        self,
        params: Any,
        lr: float = 1,
        max_iter: int = 20,
        max_eval: int | None = None,
        tolerance_grad: float = 1e-7,
        tolerance_change: float = 1e-9,
        history_size: int = 100,
        line_search_fn: str | None = None,
    ) -> None:
        defaults = {
            "lr": lr, "max_iter": max_iter,
            "max_eval": max_iter * 5 // 4 if max_eval is None else max_eval,
            "tolerance_grad": tolerance_grad, "tolerance_change": tolerance_change,
            "history_size": history_size, "line_search_fn": line_search_fn,
        }  # fmt: skip
        super().__init__(params, defaults)

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Refused: there is one step for all parameters."""
        if self.param_groups:
            raise ArgumentError("LBFGS: expected all parameters in one group, got two")
        super().add_param_group(param_group)

    def check(self, group: dict[str, Any]) -> None:
        super().check(group)
        if group.get("maximize"):
            raise ArgumentError("LBFGS: it minimises only; negate the loss")
        if group["line_search_fn"] not in (None, "strong_wolfe"):
            raise ArgumentError(
                "LBFGS: expected line_search_fn None or 'strong_wolfe', got "
                f"{group['line_search_fn']!r}"
            )

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Take up to ``max_iter`` quasi-Newton steps; returns the first loss."""
        if closure is None:
            raise ArgumentError(
                "LBFGS.step: expected a closure that computes the loss and its "
                "gradients, got none"
            )
        with no_grad():
            return _Solver(self, closure).run()

    def _entry_problems(
        self, name: str, p: Tensor, entry: Any, group: dict[str, Any]
    ) -> Iterator[str]:
        rows = len(entry.get("ro", ()))
        wants = dict.fromkeys(_ROWS, (rows, *p.shape))
        wants |= dict.fromkeys(_VECTORS, tuple(p.shape))
        for key in (*wants, *_NUMBERS):
            if key not in entry:
                yield f"  missing     {name}.{key}"
        for key, value in entry.items():
            got = tuple(np.shape(value))
            if key not in wants and key not in _NUMBERS:
                yield f"  unexpected  {name}.{key} {got}"
            elif key in wants and got != wants[key]:
                yield f"  wrong shape {name}.{key} {wants[key]}, got {got}"


class _Memory:
    """The state from step to step, as vectors over all parameters."""

    def __init__(self, n: int, dtype: Any) -> None:
        self.n_iter = self.func_evals = 0
        self.t: float = 0.0
        self.H_diag: float = 1.0
        self.prev_loss: float = 0.0
        self.ro: list[float] = []
        self.old_dirs: list[np.ndarray] = []
        self.old_stps: list[np.ndarray] = []
        self.d = np.zeros(n, dtype)
        self.prev_flat_grad = np.zeros(n, dtype)

    def learn(self, y: np.ndarray, s: np.ndarray, limit: int) -> None:
        """Remember how the gradient changed over a step, if it curves upwards."""
        ys = float(y @ s)
        if not ys > 1e-10:
            return
        if len(self.ro) >= limit:
            del self.old_dirs[0], self.old_stps[0], self.ro[0]
        self.old_dirs.append(y)
        self.old_stps.append(s)
        self.ro.append(1.0 / ys)
        self.H_diag = ys / float(y @ y)

    def direction(self, g: np.ndarray) -> np.ndarray:
        """The two-loop product of the inverse Hessian with -g."""
        q = -g
        past = list(zip(self.old_dirs, self.old_stps, self.ro, strict=True))
        weights = []
        for y, s, ro in reversed(past):
            a = float(s @ q) * ro
            q = q - a * y
            weights.append(a)
        q = q * self.H_diag
        for (y, s, ro), a in zip(past, reversed(weights), strict=True):
            q = q + (a - float(y @ q) * ro) * s
        return q


class _Solver:
    """One call of ``step``."""

    def __init__(self, owner: LBFGS, closure: Callable[[], Any]) -> None:
        self.owner, self.closure = owner, closure
        self.group = owner.param_groups[0]
        self.params: list[Tensor] = self.group["params"]
        for p in self.params:
            if not p.is_cpu:
                raise DeviceError(
                    "LBFGS: expected parameters on the CPU, got one on "
                    f"{p.device.name!r}; move the model with .cpu(), or use another "
                    "optimizer"
                )
        kinds = [_reals(p._data).dtype for p in self.params]
        self.dtype = np.result_type(np.float32, *kinds)  # halves are too coarse
        self.sizes = [_reals(p._data).size for p in self.params]
        self.ends = np.cumsum(self.sizes)[:-1]
        self.memory = self._recall()

    def run(self) -> Any:
        memory, group = self.memory, self.group
        first = self._call()
        loss, g = float(first), self._gradient()
        evals = 1
        memory.func_evals += 1
        if _largest(g) > group["tolerance_grad"]:
            for count in range(1, group["max_iter"] + 1):
                loss, g, used, done = self._iterate(loss, g, count, evals)
                evals += used
                memory.func_evals += used
                if done or evals >= group["max_eval"]:
                    break
        self._store()
        return first

    def _iterate(
        self, loss: float, g: np.ndarray, count: int, evals: int
    ) -> tuple[float, np.ndarray, int, bool]:
        """One quasi-Newton step: loss, gradient, evaluations, whether to stop."""
        memory, group = self.memory, self.group
        small = group["tolerance_change"]
        self._turn(g)
        memory.prev_flat_grad, memory.prev_loss = g, loss
        slope = float(g @ memory.d)
        if slope > -small:
            return loss, g, 0, True
        last = count == group["max_iter"]
        if group["line_search_fn"] is None:
            self._move(memory.t, memory.d)
            if last:
                return loss, g, 0, True
            loss, g, used = float(self._call()), self._gradient(), 1
        else:
            loss, g, used = self._search(loss, g, slope, group["max_eval"] - evals)
        return loss, g, used, last or self._settled(loss, g)

    def _turn(self, g: np.ndarray) -> None:
        """Choose the next direction and the length to try first."""
        memory, lr = self.memory, self.group["lr"]
        memory.n_iter += 1
        if memory.n_iter == 1:
            memory.d = -g
            memory.t = min(1.0, 1.0 / float(np.abs(g).sum())) * lr
            return
        step = memory.d * memory.t
        memory.learn(g - memory.prev_flat_grad, step, self.group["history_size"])
        memory.d = memory.direction(g)
        memory.t = lr

    def _settled(self, loss: float, g: np.ndarray) -> bool:
        memory, small = self.memory, self.group["tolerance_change"]
        return (
            _largest(g) <= self.group["tolerance_grad"]
            or _largest(memory.d * memory.t) <= small
            or abs(loss - memory.prev_loss) < small
        )

    def _search(
        self, loss: float, g: np.ndarray, slope: float, limit: int
    ) -> tuple[float, np.ndarray, int]:
        memory = self.memory
        start = [p._data.copy() for p in self.params]
        used = 0

        def at(t: float) -> Point:
            nonlocal used
            used += 1
            self._move(t, memory.d)
            value, g = float(self._call()), self._gradient()
            self._put(start)
            return Point(t, value, g, float(g @ memory.d))

        origin = Point(0.0, loss, g, slope)
        size = _largest(memory.d)
        found = strong_wolfe(at, origin, memory.t, size, limit)
        memory.t = found.t
        self._move(found.t, memory.d)
        return found.f, found.g, used

    # -- between parameters and vectors

    def _call(self) -> Any:
        with enable_grad():
            return self.closure()

    def _gradient(self) -> np.ndarray:
        return np.concatenate([self._flat_gradient(p) for p in self.params])

    def _flat_gradient(self, p: Tensor) -> np.ndarray:
        g = np.zeros_like(p._data) if p.grad is None else checked_gradient(p)._data
        return _reals(g).astype(self.dtype)

    def _move(self, t: float, d: np.ndarray) -> None:
        for p, part in zip(self.params, np.split(t * d, self.ends), strict=True):
            p._data[...] += _shaped(part, p._data)
        touch(self.params, "LBFGS.step")

    def _put(self, values: list[np.ndarray]) -> None:
        for p, value in zip(self.params, values, strict=True):
            p._data[...] = value
        touch(self.params, "LBFGS.step")

    def _recall(self) -> _Memory:
        """The memory, joined from the states of the parameters."""
        memory = _Memory(sum(self.sizes), self.dtype)
        states = [self.owner.state.get(p) for p in self.params]
        if None in states or not states:
            return memory
        held: list[Any] = states
        for key in _NUMBERS:
            setattr(memory, key, held[0][key])
        memory.ro = list(memory.ro)
        for key in _VECTORS:
            parts = [_reals(s[key]._data) for s in held]
            setattr(memory, key, np.concatenate(parts).astype(self.dtype))
        for key in _ROWS:
            rows = range(len(memory.ro))
            joined = [
                np.concatenate([_reals(s[key]._data[i]) for s in held]) for i in rows
            ]
            setattr(memory, key, [row.astype(self.dtype) for row in joined])
        return memory

    def _store(self) -> None:
        """Split the memory into the parameters' states, so that names keep it."""
        memory = self.memory
        starts = [0, *self.ends.tolist()]
        for p, start, size in zip(self.params, starts, self.sizes, strict=True):
            part = slice(start, start + size)
            state: dict[str, Any] = {key: getattr(memory, key) for key in _NUMBERS}
            state["ro"] = list(memory.ro)
            for key in _VECTORS:
                vector = getattr(memory, key)[part]
                state[key] = Tensor(_shaped(vector, p._data).copy())
            for key in _ROWS:
                rows = [_shaped(row[part], p._data) for row in getattr(memory, key)]
                block = np.empty((len(rows), *p.shape), p._data.dtype)
                for i, row in enumerate(rows):
                    block[i] = row
                state[key] = Tensor(block)
            self.owner.state[p] = state


def _reals(array: np.ndarray) -> np.ndarray:
    """An array flat, complex numbers as pairs."""
    flat = np.ascontiguousarray(array).reshape(-1)
    return flat.view(flat.real.dtype) if flat.dtype.kind == "c" else flat


def _shaped(part: np.ndarray, like: np.ndarray) -> np.ndarray:
    if like.dtype.kind == "c":
        part = np.ascontiguousarray(part, like.real.dtype).view(like.dtype)
    return part.astype(like.dtype).reshape(like.shape)


def _largest(vector: np.ndarray) -> float:
    return float(np.abs(vector).max(initial=0))
