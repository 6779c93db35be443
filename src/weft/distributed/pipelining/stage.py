"""One stage of a model: what comes from the stage before, and goes to the one after."""

from __future__ import annotations

from typing import Any

import weft
from weft import nn
from weft.core.tensor import Tensor
from weft.distributed import messages
from weft.distributed.collectives import refuse_capture
from weft.distributed.fsdp import FSDPModule, _units
from weft.distributed.groups import group_of
from weft.errors import ArgumentError
from weft.nn import Module

_FORWARD, _BACKWARD = 0, 1
_MOST = 1 << 20  # microbatches of a stage, and tensors of one, that tags tell apart


class PipelineStage:
    """A part of a model, which this process runs.

    Stage ``k`` is on the process with number ``k`` in the group, or ``k`` modulo its
    size if there are more stages than processes. It takes what the stage before
    returns: a tensor, or a tuple of tensors.

    >>> dist = weft.distributed
    >>> dist.init_process_group(rank=0, world_size=1)
    >>> stage = dist.pipelining.PipelineStage(weft.nn.Linear(2, 2), 0, 1)
    >>> stage.is_first, stage.is_last
    (True, True)
    >>> dist.destroy_process_group()
    """

    def __init__(
        self,
        submodule: Any,
        stage_index: int,
        num_stages: int,
        device: Any = None,
        input_args: Any = None,
        output_args: Any = None,
        output_grads: Any = None,
        input_grads: Any = None,
        group: Any = None,
        dw_builder: Any = None,
        get_mesh: Any = None,
    ) -> None:
        refuse_capture("PipelineStage")
        if not isinstance(submodule, Module):
            raise ArgumentError(
                f"PipelineStage: expected a module, got {type(submodule).__name__}"
            )
        if dw_builder is not None or get_mesh is not None:
            raise ArgumentError(
                "PipelineStage: dw_builder and get_mesh are not there; leave them out"
            )
        if not 0 <= stage_index < num_stages:
            raise ArgumentError(
                f"Stage index {stage_index} is out of range of {num_stages}"
            )
        self.submod: Any = submodule
        self.stage_index, self.num_stages = stage_index, num_stages
        self.group = group_of(group)
        size = self.group.size()
        if size > num_stages:
            raise ArgumentError(
                f"Pipeline group size {size} cannot be larger than number of stages "
                f"{num_stages}"
            )
        if self._place(stage_index) != self.group.rank():
            raise ArgumentError(
                f"PipelineStage: stage {stage_index} belongs to process "
                f"{self._place(stage_index)} of {self.group!r}, and this is "
                f"{self.group.rank()}"
            )
        self.inputs: dict[int, Any] = {}  # by microbatch, until its backward
        self.outputs: dict[int, Any] = {}
        self.most = 0  # microbatches that were held at once
        self.each = False  # whether each microbatch's gradients are shared out at once
        self._works: list[tuple[Any, Tensor]] = []
        self._here: dict[tuple[int, int], Any] = {}  # between stages of one process

    @property
    def is_first(self) -> bool:
        """Whether the batch's inputs go in here."""
        return self.stage_index == 0

    @property
    def is_last(self) -> bool:
        """Whether the model's outputs come out here."""
        return self.stage_index == self.num_stages - 1

    def _place(self, stage: int) -> int:
        return stage % self.group.size()

    # -- microbatches

    def forward_one(self, k: int, args: tuple[Any, ...], kwargs: Any) -> Any:
        """Run a microbatch, whose inputs are ``args`` in the first stage."""
        if not self.is_first:
            if args:
                raise ArgumentError(
                    f"step: stage {self.stage_index} takes its inputs from the stage "
                    f"before, and got {len(args)} arguments; pass them on the first"
                )
            args = tuple(self._receive(self.stage_index - 1, _FORWARD, k))
        out = self.submod(*args, **kwargs)
        outs = out if isinstance(out, tuple) else (out,)
        if not all(isinstance(one, Tensor) for one in outs):
            raise ArgumentError(
                f"step: expected stage {self.stage_index} to return a tensor or a "
                f"tuple of tensors, got {[type(one).__name__ for one in outs]}"
            )
        if weft.is_grad_enabled():
            self.inputs[k], self.outputs[k] = args, outs
            self.most = max(self.most, len(self.outputs))
        if not self.is_last:
            self._send(self.stage_index + 1, _FORWARD, k, outs)
        return out

    def backward_one(self, k: int, loss: Any) -> None:
        """Run a microbatch's backward: from its loss in the last stage."""
        args, outs = self.inputs.pop(k), self.outputs.pop(k)
        if self.is_last:
            loss.backward()
        else:
            grads = self._receive(self.stage_index + 1, _BACKWARD, k)
            ends = [one for one in outs if one.requires_grad]
            if ends:
                weft.autograd.backward(ends, list(grads))
        if not self.is_first:
            found = [
                weft.zeros_like(x) if x.grad is None else x.grad
                for x in args
                if isinstance(x, Tensor) and x.requires_grad
            ]
            self._send(self.stage_index - 1, _BACKWARD, k, tuple(found))

    # -- to and from the stages beside

    def _tag(self, to: int, way: int, k: int, number: int) -> int:
        return ((to * 2 + way) * _MOST + k) * _MOST + number

    def _send(self, to: int, way: int, k: int, tensors: tuple[Tensor, ...]) -> None:
        place = self._place(to)
        if place == self.group.rank():
            values = [(one.detach(), one.requires_grad) for one in tensors]
            self._here[to, way * _MOST + k] = values
            return
        self._works = [one for one in self._works if not one[0].is_completed()]
        shown = tensors or (weft.zeros(0),)
        for number, one in enumerate(shown):
            value = one.detach().contiguous()
            work = messages.sent(
                value, self.group, place, self._tag(to, way, k, number),
                count=len(tensors), grad=one.requires_grad,
            )  # fmt: skip
            self._works.append((work, value))

    def _receive(self, source: int, way: int, k: int) -> list[Tensor]:
        place = self._place(source)
        key = self.stage_index, way * _MOST + k
        if place == self.group.rank():
            return [_entered(x, wants) for x, wants in self._here.pop(key)]
        what = f"{'gradients' if way else 'inputs'} of microbatch {k}"
        found: list[Tensor] = []
        count = 1
        while len(found) < count:
            tag = self._tag(self.stage_index, way, k, len(found))
            x, about = messages.received(self.group, place, tag, what)
            count = int(about["count"])
            if count:
                found.append(_entered(x, bool(about["grad"])))
        return found

    def finish(self) -> None:
        """Wait until everything is sent."""
        for work, _ in self._works:
            work.wait()
        self._works.clear()

    # -- averages over copies of the stage

    def hold_gradients(self) -> None:
        """Let a stage that is parallel itself keep its gradients to itself."""
        if isinstance(self.submod, nn.parallel.DistributedDataParallel):
            self.submod.require_backward_grad_sync = False
        for unit in () if self.each else sharded_units(self.submod):
            unit.syncs = False

    def share_gradients(self) -> None:
        """Combine them with the other copies' of the stage, once."""
        if isinstance(self.submod, nn.parallel.DistributedDataParallel):
            self.submod.require_backward_grad_sync = True
            self.submod._reducer.average()
        for unit in () if self.each else sharded_units(self.submod):
            unit.syncs = True
            unit.send_pending()


def sharded_units(module: Any) -> list[Any]:
    """The groups of parameters that ``fully_shard`` gathers together in a module."""
    found = [m for m in module.modules() if isinstance(m, FSDPModule)]
    return [unit for m in found for unit in _units(m, False)]


def _entered(x: Tensor, wants: bool) -> Tensor:
    return x.requires_grad_() if wants and x.dtype.is_inexact else x
