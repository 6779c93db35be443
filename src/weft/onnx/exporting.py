"""``weft.onnx.export``: modules and functions as ONNX files."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

import weft
from weft.autograd.modes import no_grad
from weft.errors import ArgumentError
from weft.export.exported_program import ExportedProgram
from weft.export.programs import captured_entry, output_names_of
from weft.graph import ir
from weft.graph.captured_program import TENSOR, Captured
from weft.graph.labels import labels_of
from weft.graph.passes import dead_code
from weft.onnx.errors import ModelError, library
from weft.serialization.atomic import replacing

OLDEST, USUAL = 17, 18
LARGEST = 2_000_000_000  # bytes of weights in one file: protobuf's limit is 2 GiB


def export(
    program: Any,
    example: Any = None,
    path: str | os.PathLike[str] | None = None,
    *,
    dynamic_shapes: Any = None,
    opset: int | None = None,
    input_names: Sequence[str] | None = None,
    output_names: Sequence[str] | None = None,
    external_data: bool | None = None,
) -> Any:
    """Write a module or function as an ONNX model; gives the ``ModelProto``.

    ``example`` has its arguments, ``dynamic_shapes`` names sizes that are open (see
    ``weft.export.Dim``). Weights are initializers with the module's names; those of
    more than 2 GB go to a file beside the model, ``path`` with ``.data``, and smaller
    ones if ``external_data`` says so. Operators that ONNX does not have are refused all
    at once, with your lines. The model is checked before it is written, and without a
    ``path`` it is not written at all.

    >>> net = weft.nn.Linear(3, 2)
    >>> model = weft.onnx.export(net, weft.ones(1, 3))
    >>> [tensor.name for tensor in model.graph.initializer]
    ['weight', 'bias']
    >>> again = weft.onnx.load(model)
    >>> bool(weft.allclose(again(weft.ones(1, 3)), net(weft.ones(1, 3))))
    True
    """
    onnx = library()
    newest = onnx.defs.onnx_opset_version()
    opset = USUAL if opset is None else opset
    if not OLDEST <= opset <= newest:
        raise ArgumentError(
            f"onnx.export: expected an opset from {OLDEST} to {newest}, got {opset}"
        )
    with no_grad():
        run, _ = captured_entry("model", program, example, dynamic_shapes)
    labels = _labels(program, example, run)
    model, weights = _model(run, labels, opset, input_names, output_names)
    place = None if path is None else os.fspath(path)
    size = sum(array.nbytes for array in weights.values())
    outside = size > LARGEST if external_data is None else external_data
    if outside and place is None:
        raise ArgumentError(
            f"onnx.export: {size} bytes of weights need a path, to write a file beside"
        )
    if outside and size > LARGEST:  # too large for a checker of one message
        _store(model, weights, place)
        onnx.checker.check_model(place, full_check=True)
        return model
    _fill(model, weights)
    onnx.checker.check_model(model, full_check=True)
    if place is not None and outside:
        bare = onnx.ModelProto()
        bare.CopyFrom(model)
        del bare.graph.initializer[:]
        _store(bare, weights, place)
    elif place is not None:
        with replacing(place) as file:
            file.write(model.SerializeToString())
    return model


def _labels(program: Any, example: Any, run: Captured) -> list[str]:
    """Names of the arguments that are tensors."""
    if isinstance(program, Captured):
        return [node.name for node in run.graph.inputs]
    args, options = example if isinstance(example, tuple) else (example,), {}
    if isinstance(program, ExportedProgram):
        args, options = program._examples()
        program = program.module()
    names = labels_of(program, args, options)
    return [n for n, given in zip(names, run.given, strict=True) if given is TENSOR]


def _model(
    run: Captured, labels: list[str], opset: int, inputs: Any, outputs: Any
) -> tuple[Any, dict[str, np.ndarray]]:
    """The model without its weights, and the weights by name."""
    from onnx import helper

    from weft.onnx.writing import load_all
    from weft.onnx.writing.control import value_info
    from weft.onnx.writing.writer import Writer

    load_all()
    graph = dead_code(run.graph)
    w = Writer(opset)
    ends = _named("output_names", outputs, output_names_of(run))
    starts = _named("input_names", inputs, labels)
    w.taken |= {*starts, *ends}
    weights: dict[str, np.ndarray] = {}
    for name, cell in run.cells.items():
        variable = run.graph.variables.get(name, cell.variable)
        if _is_read(graph, variable):
            own = w.name(name)
            w.cells[variable] = own
            if not name.startswith("generator"):
                weights[own] = np.array(cell.get(), order="C")
    infos = []
    for node, name in zip(graph.inputs, starts, strict=True):
        w.values[node] = name
        infos.append(value_info(name, node.type))
        w.know_sizes(node, name)
    w.write(graph)
    results = []
    found = [v for v in run.values if hasattr(v, "type")]
    for node, name in zip(found, ends, strict=True):
        if not w.refused:
            last = helper.make_node("Identity", [w.read(node)], [name], name=name)
            w.nodes.append(last)
        results.append(value_info(name, node.type))
    if w.refused:
        raise _refusal(w.refused)
    used = {name for node in w.nodes for name in _names(node)}
    weights = {k: v for k, v in weights.items() if k in used}
    made = helper.make_graph(_needed(w.nodes, ends), "weft", infos, results)
    ids = [helper.make_opsetid("", opset)]
    model = helper.make_model(
        made, producer_name="weft", producer_version=weft.__version__,
        opset_imports=ids, ir_version=helper.find_min_ir_version_for(ids),
    )  # fmt: skip
    return model, weights


def _named(what: str, given: Any, default: list[str]) -> list[str]:
    if given is None:
        return default
    if len(given) != len(default) or len(set(given)) != len(given):
        raise ArgumentError(
            f"onnx.export: expected {len(default)} different {what}, got {list(given)}"
        )
    return list(given)


def _is_read(graph: ir.Graph, variable: Any) -> bool:
    nodes = (n for n in graph.nodes if n.op is ir.READ)
    return any(n.params["variable"] is variable for n in nodes)


def _refusal(refused: Sequence[Any]) -> ModelError:
    lines: dict[str, list[str]] = {}
    for one in refused:
        lines.setdefault(one.what, []).append(one.line)
    texts = [
        f"  {what}\n    at {where[0].replace(chr(10), chr(10) + '    ')}"
        + (f"\n    and at {len(where) - 1} more" if len(where) > 1 else "")
        for what, where in lines.items()
    ]
    return ModelError(
        f"onnx.export: {len(refused)} operators cannot be written:\n" + "\n".join(texts)
    )


# -- what is needed


def _names(node: Any) -> set[str]:
    """The values that a node reads, and graphs inside of it."""
    found = {*node.input}
    for attribute in node.attribute:
        if attribute.HasField("g"):
            for inner in attribute.g.node:
                found |= _names(inner)
            found |= {o.name for o in attribute.g.output}
    return found


def _needed(nodes: Sequence[Any], ends: Sequence[str]) -> list[Any]:
    """The nodes that results depend on, in order; copies of one value at the end go."""
    wanted, kept = set(ends), []
    for node in reversed(nodes):
        if wanted & {*node.output}:
            kept.append(node)
            wanted |= _names(node)
    return kept[::-1]


# -- weights


def _fill(model: Any, weights: Mapping[str, np.ndarray]) -> None:
    from onnx import numpy_helper

    model.graph.initializer.extend(
        numpy_helper.from_array(array, name) for name, array in weights.items()
    )


def _store(model: Any, weights: Mapping[str, np.ndarray], place: Any) -> None:
    """Write a model whose weights are in a file beside it."""
    from onnx import helper

    beside, offset = f"{place}.data", 0
    with contextlib.ExitStack() as stack:
        data = stack.enter_context(replacing(beside))
        for name, array in weights.items():
            tensor = model.graph.initializer.add()
            tensor.name, tensor.dims[:] = name, array.shape
            tensor.data_type = helper.np_dtype_to_tensor_dtype(array.dtype)
            tensor.data_location = 1
            where = {"location": os.path.basename(beside), "offset": offset,
                     "length": array.nbytes}  # fmt: skip
            for key, value in where.items():
                entry = tensor.external_data.add()
                entry.key, entry.value = key, str(value)
            data.write(array.astype(array.dtype.newbyteorder("<")).tobytes())
            offset += array.nbytes
        file = stack.enter_context(replacing(os.fspath(place)))
        file.write(model.SerializeToString())
