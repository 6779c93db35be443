"""``verify=True``: run a function eagerly as well, and compare everything it did.

The eager run comes first, on copies of the arguments; then all state is put back,
and the compiled program runs for good.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from weft.compile.frontend.specialization import Specialization
from weft.core.mode import mode
from weft.core.pytree import tree_flatten, tree_unflatten
from weft.core.tensor import Tensor
from weft.errors import ArgumentError
from weft.graph.state_cells import Cell, GradCell

TOLERANCE = {8: 1e-7, 4: 1e-3, 2: 3e-2}  # by the width of a real number
Named = dict[str, Any]


class State:
    """What all variables of a program are at some time."""

    def __init__(self, entry: Specialization) -> None:
        self.cells = entry.cells
        self.values = {name: _copied(cell) for name, cell in self.cells.items()}
        self.grads = {
            name: cell.tensor.grad
            for name, cell in self.cells.items()
            if isinstance(cell, GradCell)
        }

    def put_back(self) -> None:
        for name, cell in self.cells.items():
            if name in self.grads:
                cell.tensor.grad = self.grads[name]
            value = self.values[name]
            if value is not None:
                _put(cell, value)


def _copied(cell: Cell) -> np.ndarray | None:
    return None if cell.show() is None else cell.get().copy()


def _put(cell: Cell, value: np.ndarray) -> None:
    if isinstance(cell, GradCell):
        np.copyto(cell.get(), value)
    else:
        cell.set(value)


def verified(
    fn: Any,
    entry: Specialization,
    leaves: list[Any],
    arrays: list[Any],
    args: Any,
    kwargs: Any,
) -> Any:
    """The compiled program's results, once they are known to be the eager ones."""
    before = State(entry)
    given_leaves, structure = tree_flatten((args, kwargs))
    copies = _copies(given_leaves)
    given, named = tree_unflatten(copies, structure)
    try:
        want, _ = tree_flatten(fn(*given, **named))
        _keep_buffers(entry)
        eager = _all(entry, want, copies)
    finally:
        _keep_buffers(entry)
        before.put_back()
    result = entry.run(leaves, arrays, (args, kwargs))
    try:
        got, _ = tree_flatten(result)
        _compare(eager, _all(entry, got, leaves))
    except ArgumentError:
        before.put_back()
        raise
    return result


def _keep_buffers(entry: Specialization) -> None:
    """Buffers that Python set to other tensors, in those that they were: as programs
    have them."""
    for slots, name, tensor in entry.captured.buffers:
        now = slots[name]
        if now is not tensor:
            slots[name] = tensor
            np.copyto(tensor._data, now._data)


def _copies(leaves: list[Any]) -> list[Any]:
    """The arguments with memory of their own; one that comes twice stays one."""
    made: dict[int, Any] = {}
    for leaf in leaves:
        if isinstance(leaf, Tensor):
            twin = leaf.detach().clone()
            made[id(leaf)] = twin.requires_grad_() if leaf._node is not None else twin
        elif isinstance(leaf, np.ndarray):
            made[id(leaf)] = leaf.copy()
    return [made.get(id(leaf), leaf) for leaf in leaves]


def _all(entry: Specialization, results: list[Any], leaves: list[Any]) -> Named:
    """Results, gradients, arguments and state after a run, by name."""
    found: Named = {}
    for k, one in enumerate(results):
        found[f"result {k}"] = _array(one) if isinstance(one, Tensor) else one
    found.update(_gradients(entry, results, leaves))
    tensors = [x for x in leaves if isinstance(x, (Tensor, np.ndarray))]
    for place, _ in entry.captured.rewritten:
        name = entry.captured.graph.inputs[place].name
        found[f"argument {name!r}"] = _array(tensors[place])
    for name, cell in entry.cells.items():
        found[name] = _copied(cell)
    return found


def _gradients(entry: Specialization, results: list[Any], leaves: list[Any]) -> Named:
    """The gradients that the results pass on."""
    from weft.autograd import grad

    if not (entry.differentiable and mode.recording):
        return {}
    roots = [r for r in results if isinstance(r, Tensor) and r._node is not None]
    held = [c.tensor for c in entry.cells.values() if type(c) is Cell]
    names = [n for n, c in entry.cells.items() if type(c) is Cell]
    tensors = [x for x in leaves if isinstance(x, Tensor)]
    names = [*names, *[f"argument {k}" for k in range(len(tensors))]]
    wanted = {
        f"gradient of {n}": t
        for n, t in zip(names, [*held, *tensors], strict=True)
        if t._node is not None
    }
    if not roots or not wanted:
        return {}
    found = grad(
        [r.sum() for r in roots], list(wanted.values()), retain_graph=True,
        allow_unused=True,
    )  # fmt: skip
    return {n: None if g is None else _array(g) for n, g in zip(wanted, found)}  # noqa: B905


def _array(value: Any) -> np.ndarray:
    array = value.detach().to_host() if isinstance(value, Tensor) else value
    return np.array(array)


def _compare(want: Named, got: Named) -> None:
    for name, a in want.items():
        b = got.get(name)
        if isinstance(a, np.ndarray) and isinstance(b, np.ndarray):
            _compare_arrays(name, a, b)
        elif (a is None) != (b is None):
            raise _differs(name, "eagerly " + ("None" if a is None else "there"))
        elif a is not None and not isinstance(a, np.ndarray) and a != b:
            raise _differs(name, f"eagerly {a!r}, compiled {b!r}")


def _compare_arrays(name: str, a: np.ndarray, b: np.ndarray) -> None:
    if a.shape != b.shape or a.dtype != b.dtype:
        raise _differs(
            name, f"eagerly {a.dtype}{list(a.shape)}, compiled {b.dtype}{list(b.shape)}"
        )
    exact = a.dtype.kind not in "fcV"
    if exact and np.array_equal(a, b):
        return
    wide = np.complex128 if a.dtype.kind == "c" else np.float64
    x, y = a.astype(wide), b.astype(wide)
    rtol = 0.0 if exact else TOLERANCE[min(a.real.dtype.itemsize, 8)]
    finite = np.abs(x[np.isfinite(x)])
    atol = rtol * 1e-2 * float(finite.max(initial=0.0))
    close = np.isclose(y, x, rtol=rtol, atol=atol, equal_nan=True)
    if close.all():
        return
    place = tuple(int(i) for i in np.argwhere(~close)[0])
    raise _differs(
        name,
        f"at {list(place)} eagerly {a[place]!r}, compiled {b[place]!r}; "
        f"{int((~close).sum())} of {a.size} elements are apart by more than "
        f"{rtol:g} of the value",
    )


def _differs(name: str, how: str) -> ArgumentError:
    return ArgumentError(
        f"compile(verify=True): {name} differs: {how}. Nothing was changed; please "
        "report this as a bug"
    )
