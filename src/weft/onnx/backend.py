"""ONNX's interface of backends, by which its own tests run models on Weft.

>>> import onnx
>>> node = onnx.helper.make_node("Relu", ["x"], ["y"])
>>> import numpy as np
>>> weft.onnx.backend.run_node(node, [np.array([-1.0, 2.0], np.float32)])[0]
array([0., 2.], dtype=float32)
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from onnx import defs, helper
from onnx.backend.base import Backend, BackendRep, namedtupledict

import weft
from weft.core.tensor import Tensor
from weft.onnx.errors import ModelError
from weft.onnx.model import Model, load
from weft.onnx.types import NUMBERS


def _array(value: Any) -> Any:
    if isinstance(value, list):
        return [_array(one) for one in value]
    if isinstance(value, dict):
        return {key: _array(one) for key, one in value.items()}
    return value.detach().cpu().numpy() if isinstance(value, Tensor) else value


class WeftRep(BackendRep):
    """A model that is ready to run."""

    def __init__(self, model: Model) -> None:
        self.model = model

    def run(self, inputs: Any, **kwargs: Any) -> tuple[Any, ...]:
        """The results, as arrays, for inputs in order or by name."""
        names = self.model.input_names
        if isinstance(inputs, Mapping):
            given = dict(inputs)
        elif isinstance(inputs, (list, tuple)):
            given = dict(zip(names, inputs, strict=False))
        else:
            given = {names[0]: inputs}
        with weft.no_grad():
            found = self.model.run(self.model._arguments((), given))
        results = [_array(value) for value in found]
        return namedtupledict("Outputs", self.model.output_names)(*results)


class WeftBackend(Backend):
    """Weft as a backend of ONNX models."""

    @classmethod
    def is_compatible(cls, model: Any, device: str = "CPU", **kwargs: Any) -> bool:
        """Whether Weft knows all operators of a model."""
        try:
            load(model)
        except ModelError:
            return False
        return cls.supports_device(device)

    @classmethod
    def prepare(cls, model: Any, device: str = "CPU", **kwargs: Any) -> WeftRep:
        """A model that is ready to run."""
        if not cls.supports_device(device):
            raise ModelError(f"expected the device CPU, got {device!r}")
        return WeftRep(load(model).eval())

    @classmethod
    def run_node(
        cls, node: Any, inputs: Sequence[Any], device: str = "CPU",
        outputs_info: Any = None, **kwargs: Any,
    ) -> tuple[Any, ...]:  # fmt: skip
        """The results of one node."""
        arrays = [np.asarray(x) for x in inputs]
        given = [
            helper.make_tensor_value_info(name, _kind(x), list(x.shape))
            for name, x in zip(node.input, arrays, strict=True)
        ]
        wanted = [helper.make_empty_tensor_value_info(name) for name in node.output]
        version = kwargs.get("opset_version", defs.onnx_opset_version())
        opsets = [helper.make_opsetid(node.domain, version)]
        graph = helper.make_graph([node], "node", given, wanted)
        model = helper.make_model(graph, opset_imports=opsets)
        return cls.prepare(model, device).run(arrays)

    @classmethod
    def supports_device(cls, device: str) -> bool:
        """Whether a device is the processor."""
        return device.partition(":")[0].upper() == "CPU"


def _kind(x: np.ndarray) -> int:
    return NUMBERS[weft.dtype.of_array(x)]


prepare = WeftBackend.prepare
run_model = WeftBackend.run_model
run_node = WeftBackend.run_node
supports_device = WeftBackend.supports_device
is_compatible = WeftBackend.is_compatible
