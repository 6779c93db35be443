"""Branches and loops: graphs among the attributes of operators."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

import weft
from weft import Tensor
from weft.graph import capturing
from weft.onnx.errors import ModelError
from weft.onnx.program import Program
from weft.onnx.registry import operator
from weft.onnx.types import tensor


def _is_known(value: Any) -> bool:
    return isinstance(value, np.ndarray) or not capturing()


def _truth(value: Any) -> bool:
    return bool(value.reshape(-1)[0])


def _tensors(values: Any) -> list[Any]:
    return [tensor(v) if isinstance(v, np.ndarray) else v for v in values]


@operator("If", plain=True)
def if_(
    condition: Any, *, then_branch: Program, else_branch: Program,
    outside: Mapping[str, Any], model: Any,
) -> Any:  # fmt: skip
    """The results of one of two graphs."""
    if _is_known(condition):
        branch = then_branch if _truth(condition) else else_branch
        return tuple(model.call(branch, {}, outside))

    def run(branch: Program) -> Any:
        return lambda: tuple(_tensors(model.call(branch, {}, outside)))

    found = weft.cond(condition.reshape(()), run(then_branch), run(else_branch))
    return tuple(found)


def _steady(body: Program) -> bool:
    """Whether a loop's body passes its condition on as it is, or as true."""
    name = body.outputs[0]
    for step in reversed(body.steps):
        if name in step.outputs:
            if step.operator.name == "Identity":
                name = step.inputs[0]
                continue
            value = step.attributes.get("value")
            return step.operator.name == "Constant" and bool(np.all(value))
    return name == body.inputs[1]


@operator("Loop", plain=True)
def loop(
    most: Any = None, condition: Any = None, *carried: Any, body: Program,
    outside: Mapping[str, Any], model: Any,
) -> Any:  # fmt: skip
    """A graph run again and again; what it carries, and what it makes each time."""
    if len(body.inputs) != 2 + len(carried) or len(body.outputs) < 1 + len(carried):
        raise ModelError(
            f"its body has {len(body.inputs)} inputs and {len(body.outputs)} results, "
            f"and {len(carried)} values are carried"
        )
    given = list(carried)

    def call(values: Any) -> Any:
        return model.call(body, dict(zip(body.inputs, values, strict=True)), outside)

    sure = condition is None or (_is_known(condition) and _truth(condition))
    if not capturing() or not all(isinstance(v, Tensor) for v in _tensors(given)):
        return _in_python(most, condition, given, call, len(body.outputs))
    given = _tensors(given)
    if _is_known(most) and most is not None and sure and _steady(body):
        count = int(np.asarray(most).reshape(-1)[0])
        return _counted(count, given, call)
    if len(body.outputs) > 1 + len(given):
        raise ModelError(
            "a loop that collects results needs a number of steps that is known when "
            "it is captured"
        )
    return _while(most, condition, given, call)


def _in_python(most: Any, condition: Any, carried: Any, call: Any, results: int) -> Any:
    count = len(carried)
    limit = None if most is None else int(most.reshape(-1)[0])
    goes_on = True if condition is None else _truth(condition)
    rows: list[list[Any]] = [[] for _ in range(results - 1 - count)]
    step = 0
    while goes_on and (limit is None or step < limit):
        now = np.array(step, np.int64)
        found = call([now, np.array(goes_on), *carried])
        goes_on = _truth(found[0])
        carried = found[1 : 1 + count]
        for row, value in zip(rows, found[1 + count :], strict=True):
            row.append(tensor(value))
        step += 1
    return (*carried, *(weft.stack(row) if row else weft.empty(0) for row in rows))


def _counted(count: int, carried: Any, call: Any) -> Any:
    def body(state: Any, now: Tensor) -> Any:
        found = _tensors(call([now, np.array(True), *state])[1:])
        return tuple(found[: len(state)]), tuple(found[len(state) :])

    last, every = weft.scan(body, tuple(carried), weft.arange(count))
    return (*last, *every)


def _while(most: Any, condition: Any, carried: Any, call: Any) -> Any:
    first = weft.tensor(True) if condition is None else tensor(condition).reshape(())
    limit = None if most is None else tensor(most).reshape(())

    def goes_on(now: Tensor, holds: Tensor, *state: Any) -> Tensor:
        return holds if limit is None else holds & (now < limit)

    def body(now: Tensor, holds: Tensor, *state: Any) -> Any:
        found = _tensors(call([now, holds, *state]))
        return (now + 1, found[0].reshape(()), *found[1:])

    start = (weft.tensor(0), first, *carried)
    return tuple(weft.while_loop(goes_on, body, start)[2:])


@operator("Scan", plain=True)
def scan(
    *values: Any, body: Program, num_scan_inputs: int, scan_input_axes: Any = None,
    scan_output_axes: Any = None, scan_input_directions: Any = None,
    scan_output_directions: Any = None, directions: Any = None,
    outside: Mapping[str, Any], model: Any, opset: int,
) -> Any:  # fmt: skip
    """A graph run for each slice of some tensors."""
    if opset < 9:
        return _batched(values, body, num_scan_inputs, directions, outside, model)
    count = len(values) - num_scan_inputs
    states, rows = _tensors(values[:count]), _tensors(values[count:])
    if count < 0 or len(body.inputs) != len(values):
        raise ModelError(f"its body has {len(body.inputs)} inputs, not {len(values)}")
    axes = scan_input_axes or (0,) * len(rows)
    turned = scan_input_directions or (0,) * len(rows)
    xs = []
    for row, axis, backwards in zip(rows, axes, turned, strict=True):
        row = row.movedim(axis, 0)
        xs.append(row.flip(0) if backwards else row)

    def step(state: Any, now: Any) -> Any:
        given = dict(zip(body.inputs, (*state, *now), strict=True))
        found = _tensors(model.call(body, given, outside))
        return tuple(found[:count]), tuple(found[count:])

    last, every = weft.scan(step, tuple(states), tuple(xs))
    ends = []
    for k, out in enumerate(every):
        if scan_output_directions and scan_output_directions[k]:
            out = out.flip(0)
        ends.append(out.movedim(0, scan_output_axes[k]) if scan_output_axes else out)
    return (*last, *ends)


def _batched(
    values: Any, body: Program, inputs: int, directions: Any, outside: Any, model: Any
) -> Any:
    """Scan of opset 8: for each example of a batch, of a length of its own."""
    lengths, *values = values
    every = []
    for k in range(values[-1].shape[0]):
        given = [tensor(v)[k] for v in values]
        if lengths is not None:
            end = int(lengths.reshape(-1)[k])
            given[-inputs:] = [v[:end] for v in given[-inputs:]]
        every.append(scan(
            *given, body=body, num_scan_inputs=inputs, outside=outside, model=model,
            scan_input_directions=directions, opset=9,
        ))  # fmt: skip
    return tuple(weft.stack(parts) for parts in zip(*every, strict=True))
