"""``Model``: a net, a loss and an optimizer, in three calls."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import weft
from weft import as_tensor, no_grad
from weft.core.tensor import Tensor
from weft.errors import ArgumentError, FileFormatError
from weft.layers.keeping import Keeping
from weft.layers.net import Net
from weft.layers.wiring import PHASES


class Model(Keeping):
    """tinynn's whole: ``forward``, ``backward`` and ``apply_grad``.

    >>> net = weft.layers.Net([weft.layers.Dense(3, 1)])
    >>> model = weft.layers.Model(net, weft.layers.MSELoss(), weft.layers.SGD(0.1))
    >>> x, y = weft.ones(4, 3), weft.zeros(4, 1)
    >>> for _ in range(50):
    ...     pred = model.forward(x)
    ...     loss, grads = model.backward(pred, y)
    ...     model.apply_grad(grads)
    >>> float(loss) < 1e-4
    True
    """

    def __init__(self, net: Net, loss: Any, optimizer: Any) -> None:
        self.net, self.loss, self.optimizer = net, loss, optimizer

    def forward(self, inputs: Any) -> Any:
        """The net's prediction; all that inference needs."""
        return self.net.forward(inputs)

    def backward(self, preds: Any, targets: Any) -> tuple[Tensor, list[dict[str, Any]]]:
        """The loss, and the step that the optimizer proposes for each layer."""
        preds, targets = as_tensor(preds), as_tensor(targets)
        with no_grad():
            loss = self.loss.loss(preds, targets)
            grad = self.loss.grad(preds, targets)
        grads = self.net.backward(grad)
        return loss, self.optimizer.compute_step(grads, self.net.get_parameters())

    def apply_grad(self, grads: Sequence[Mapping[str, Any]]) -> None:
        """Add the steps that ``backward`` gave to the parameters."""
        add_steps(self.net, grads)

    def set_phase(self, phase: str) -> None:
        """``TRAIN`` or ``TEST``: dropout and batch norm differ."""
        if phase not in PHASES:
            raise ArgumentError(
                f"set_phase: expected {' or '.join(PHASES)}, got {phase!r}"
            )
        self.net.train(phase == "TRAIN")

    def save(self, path: Any) -> None:
        """Write parameters, buffers and the optimizer's state to one file."""
        state: dict[str, Any] = {"net": dict(self.net.state_dict())}
        state["optimizer"] = self.optimizer.state_dict()
        weft.save(state, path, format="safetensors")

    def load(self, path: Any) -> None:
        """Take over what ``save`` wrote; a net without input gets its shapes, too."""
        state = weft.load(path)
        if not isinstance(state, dict) or not {"net", "optimizer"} <= set(state):
            raise FileFormatError(
                f"{path}: expected a model's file with 'net' and 'optimizer'"
            )
        self.net.load_state_dict(state["net"])
        self.optimizer.load_state_dict(state["optimizer"])


def add_steps(net: Net, steps: Sequence[Mapping[str, Any]]) -> None:
    """Add a step to each parameter that learns, in place."""
    if len(steps) != len(net.layers):
        raise ArgumentError(
            f"apply_grad: expected steps for {len(net.layers)} layers, got {len(steps)}"
        )
    with no_grad():
        for layer, step in zip(net.layers, steps, strict=True):
            for key, p in layer.all_params().items():
                if key not in step:
                    raise ArgumentError(
                        f"apply_grad: {layer._title}: no step for {key!r}"
                    )
                if p.requires_grad:
                    p += step[key]
