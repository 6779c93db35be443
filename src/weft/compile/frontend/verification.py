"""``verify=True``: run a function eagerly as well, and compare everything it did.

The eager run comes first, on copies of the arguments; then all state is put back,
and the compiled program runs for good.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from weft.compile.frontend.guards.kinds import PLAIN
from weft.compile.frontend.specialization import Specialization
from weft.core.mode import mode
from weft.core.pytree import tree_flatten, tree_unflatten
from weft.core.tensor import Tensor
from weft.errors import ArgumentError
from weft.graph.outside_tensors import ABSENT
from weft.graph.state_cells import Cell, GradCell

TOLERANCE = {8: 1e-7, 4: 1e-3, 2: 3e-2}  # by the width of a real number
Named = dict[str, Any]


class State:
    """A snapshot of all variables of a program."""

    def __init__(self, specialization: Specialization) -> None:
        self.cells = specialization.cells
        self.values = {name: _copied(cell) for name, cell in self.cells.items()}
        self.grads = {
            name: cell.tensor.grad
            for name, cell in self.cells.items()
            if isinstance(cell, GradCell)
        }
        kept = specialization.kept
        self.kept = [(one, one.slots.get(one.name, ABSENT)) for one in kept]

    def put_back(self) -> None:
        for one, value in self.kept:
            if value is ABSENT:
                one.slots.pop(one.name, None)
            else:
                one.slots[one.name] = value
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
    specialization: Specialization,
    leaves: list[Any],
    arrays: list[Any],
    args: Any,
    kwargs: Any,
) -> Any:
    """Run the compiled program, and check that it does what the eager function does."""
    before = State(specialization)
    own_leaves, structure = tree_flatten((args, kwargs))
    copies = _copies(specialization, own_leaves)
    copied_args, copied_kwargs = tree_unflatten(copies, structure)
    try:
        want, _ = tree_flatten(fn(*copied_args, **copied_kwargs))
        _keep_buffers(specialization)
        eager = _all(specialization, want, copies)
    finally:
        _keep_buffers(specialization)
        before.put_back()
    result = specialization.run(leaves, arrays, (args, kwargs))
    try:
        got, _ = tree_flatten(result)
        _compare(eager, _all(specialization, got, leaves))
    except ArgumentError:
        before.put_back()
        raise
    return result


def _keep_buffers(specialization: Specialization) -> None:
    """Copy buffers that Python set to other tensors back into the tensors they were.

    A program changes them in place.
    """
    for slots, name, tensor in specialization.captured.buffers:
        now = slots[name]
        if now is not tensor:
            slots[name] = tensor
            np.copyto(tensor._data, now._data)


def _copies(specialization: Specialization, leaves: list[Any]) -> list[Any]:
    """Copies of the arguments; an argument that occurs twice has one copy."""
    held = {id(one.before) for one in specialization.captured.needed if one.read}
    copies: dict[int, Any] = {}
    for leaf in leaves:
        if isinstance(leaf, Tensor):
            twin = leaf.detach().clone()
            copies[id(leaf)] = twin.requires_grad_() if leaf._node is not None else twin
            if leaf.grad is not None:
                is_state = id(leaf.grad) in held
                twin.grad = leaf.grad if is_state else leaf.grad.detach().clone()
        elif isinstance(leaf, np.ndarray):
            copies[id(leaf)] = leaf.copy()
    return [copies.get(id(leaf), leaf) for leaf in leaves]


def _all(
    specialization: Specialization, results: list[Any], leaves: list[Any]
) -> Named:
    """Results, gradients, arguments and state after a run, by name."""
    values: Named = {}
    for k, one in enumerate(results):
        values[f"result {k}"] = _array(one) if isinstance(one, Tensor) else one
    values.update(_gradients(specialization, results, leaves))
    tensors = [x for x in leaves if isinstance(x, (Tensor, np.ndarray))]
    for k, _ in specialization.captured.rewritten:
        name = specialization.captured.graph.inputs[k].name
        values[f"argument {name!r}"] = _array(tensors[k])
    for one in specialization.captured.needed:
        grad = leaves[one.position].grad
        values[f"{one.name}.grad"] = None if grad is None else _array(grad)
    for name, cell in specialization.cells.items():
        values[name] = _copied(cell)
    for number, one in enumerate(specialization.kept):
        for k, value in enumerate(tree_flatten(one.slots[one.name])[0]):
            name = f"attribute {one.name!r}, {number}.{k}"
            if isinstance(value, Tensor):
                values[name] = _array(value)
            elif isinstance(value, PLAIN):
                values[name] = value
    return values


def _gradients(
    specialization: Specialization, results: list[Any], leaves: list[Any]
) -> Named:
    """The gradients of the sum of all results."""
    from weft.autograd import grad

    if not (specialization.differentiable and mode.recording):
        return {}
    roots = [r for r in results if isinstance(r, Tensor) and r._node is not None]
    variables = [c.tensor for c in specialization.cells.values() if type(c) is Cell]
    names = [n for n, c in specialization.cells.items() if type(c) is Cell]
    tensors = [x for x in leaves if isinstance(x, Tensor)]
    names = [*names, *[f"argument {k}" for k in range(len(tensors))]]
    wanted = {
        f"gradient of {n}": t
        for n, t in zip(names, [*variables, *tensors], strict=True)
        if t._node is not None
    }
    if not roots or not wanted:
        return {}
    gradients = grad(
        [r.sum() for r in roots], list(wanted.values()), retain_graph=True,
        allow_unused=True,
    )  # fmt: skip
    pairs = zip(wanted, gradients, strict=True)
    return {n: None if g is None else _array(g) for n, g in pairs}


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
    index = tuple(int(i) for i in np.argwhere(~close)[0])
    raise _differs(
        name,
        f"at {list(index)} eagerly {a[index]!r}, compiled {b[index]!r}; "
        f"{int((~close).sum())} of {a.size} elements are apart by more than "
        f"{rtol:g} of the value",
    )


def _differs(name: str, how: str) -> ArgumentError:
    return ArgumentError(
        f"compile(verify=True): {name} differs: {how}. Nothing was changed; please "
        "report this as a bug"
    )
