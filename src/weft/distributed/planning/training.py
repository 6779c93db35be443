"""A strategy that runs: a module, shared out to the processes, and a step of training.

mesh        (pipeline, data, tensor) processes, as the strategy says
tensor      layers in parts, in the styles that their operators allow
pipeline    this process's stage, and a schedule of microbatches
data        ``DistributedDataParallel``, or ``fully_shard`` for each large layer
optimizer   the one of the script, with the parameters that this process has now
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import weft
from weft.core.tensor import Tensor
from weft.distributed import collectives, groups
from weft.distributed.calls import recorded
from weft.distributed.collectives import ReduceOp, refuse_capture
from weft.distributed.device_mesh import init_device_mesh
from weft.distributed.fsdp import FSDPModule, fully_shard
from weft.distributed.objects import all_gather_object
from weft.distributed.pipelining import PipelineStage, Schedule1F1B
from weft.distributed.pipelining.pipe import Pipe
from weft.distributed.pipelining.stage import sharded_units
from weft.distributed.planning.strategy import Strategy, microbatches, stages_of
from weft.distributed.planning.traffic import shared_units, tied
from weft.distributed.planning.work import Layer, Model
from weft.distributed.tensor.parallel import parallelize_module
from weft.errors import ArgumentError
from weft.nn import Module
from weft.nn.parallel.distributed import DistributedDataParallel, share


class TrainingStep:
    """A step of training under a strategy: ``step(*inputs, target)`` gives the loss.

    Every process passes the whole batch, of which it works on its share, and gets the
    loss of all. ``module`` are the layers that this process has. ``Plan.training_step``
    makes one.

    >>> dist = weft.distributed
    >>> dist.init_process_group(rank=0, world_size=1)
    >>> net, batch = weft.nn.Linear(3, 2), (weft.ones(4, 3), weft.zeros(4, 2))
    >>> sgd = weft.optim.SGD(net.parameters(), lr=0.1)
    >>> plan = weft.parallel(
    ...     net, batch, loss_fn=weft.nn.functional.mse_loss, optimizer=sgd)
    >>> step = plan.training_step()
    >>> losses = [step(*batch) for _ in range(3)]
    >>> bool(losses[2] < losses[0])
    True
    >>> dist.destroy_process_group()
    """

    def __init__(self, model: Model, strategy: Strategy) -> None:
        refuse_capture("training_step")
        if model.loss_fn is None or model.optimizer is None:
            raise ArgumentError(
                "training_step: expected a plan with loss_fn and optimizer; pass them "
                "to parallel"
            )
        self.loss_fn: Callable[[Any, Any], Any] = model.loss_fn
        self.strategy, self.optimizer = strategy, model.optimizer
        self.work = model.work(strategy.tensor)
        self.count = microbatches(self.work, strategy)
        self._check(model)
        self.mesh = init_device_mesh(
            "cpu", (strategy.pipeline, strategy.data, strategy.tensor),
            mesh_dim_names=("pipeline", "data", "tensor"),
        )  # fmt: skip
        self.place, self.share_of, _ = self.mesh.get_coordinate() or (0, 0, 0)
        before = list(model.module.named_parameters(remove_duplicate=False))
        share([*model.module.parameters(), *model.module.buffers()], None)
        self.stages = stages_of(self.work, strategy)
        self.module: Any = self._own(model)
        if strategy.tensor > 1:
            self._tensor(model)
        self._tied = list(self._groups_of_tied())
        self._runs = self._data(model)
        self._exchange(before)
        self._schedule = self._scheduled()

    def _check(self, model: Model) -> None:
        strategy, size = self.strategy, groups.started().groups[""].size()
        if strategy.world != size:
            raise ArgumentError(
                f"training_step: expected a strategy for the {size} processes that "
                f"there are, got {strategy}, which is for {strategy.world}"
            )
        if strategy.rounds > 1 or strategy.recompute or strategy.sequence:
            raise ArgumentError(
                "training_step: expected one stage a process, without recompute and "
                f"sequence, which are simulated only, got {strategy}"
            )
        if self.optimizer.state:
            raise ArgumentError(
                "training_step: expected an optimizer that has made no step yet; load "
                "its state afterwards"
            )
        known = {id(p) for p in model.module.parameters()}
        for name, p in self.optimizer._named_params():
            if id(p) not in known:
                raise ArgumentError(
                    f"training_step: the optimizer's {name!r} is no parameter of the "
                    "module that was planned for"
                )

    # -- sharing the module out

    def _own(self, model: Model) -> Module:
        """The layers that this process has; the memory of others is let go."""
        module: Module = model.module
        if self.strategy.pipeline == 1:
            return module
        rows = self.strategy.microbatch
        example = tuple(
            x[:rows] if isinstance(x, Tensor) and x.ndim else x for x in model.inputs
        )
        found = recorded(module, example, model.layers)
        paths = [call.path for call in found.calls]
        bounds = [paths.index(layers[0].name) for layers in self.stages[1:]]
        mine: Module = Pipe(module, found, bounds).stages[self.place]
        kept = {id(p) for p in mine.parameters()}
        for p in module.parameters():
            if id(p) not in kept:
                p.data = weft.empty(0, dtype=p.dtype)
        return mine

    def _tensor(self, model: Model) -> None:
        held = {name for name, _ in self.module.named_modules()}
        styles = model.styles(self.strategy.tensor).styles()
        mine = {path: style for path, style in styles.items() if path in held}
        parallelize_module(self.module, self.mesh["tensor"], mine)

    @property
    def _layers(self) -> list[Layer]:
        return self.stages[self.place]

    def _data(self, model: Model) -> Any:
        """The module that runs: with what combines gradients around it."""
        parameters = list(self.module.parameters())
        if self.strategy.data == 1 or not parameters:
            return self.module
        if self.strategy.sharding == "none":
            return DistributedDataParallel(
                self.module, process_group=self.mesh.get_group("data"), init_sync=False
            )
        again = self.strategy.sharding == "all"
        for layer in shared_units(self._layers):
            part = self.module.get_submodule(layer.name) if layer.name else self.module
            fully_shard(part, mesh=self.mesh["data"], reshard_after_forward=again)
        if not isinstance(self.module, FSDPModule):
            fully_shard(self.module, mesh=self.mesh["data"])
        return self.module

    def _exchange(self, before: list[tuple[str, Tensor]]) -> None:
        """Let the optimizer have this process's parameters in place of whole ones."""
        now = dict(self.module.named_parameters(remove_duplicate=False))
        mine = {id(p): now[name] for name, p in before if name in now}
        for group in self.optimizer.param_groups:
            pairs = [
                (own, mine[id(p)])
                for own, p in zip(group["param_names"], group["params"], strict=True)
                if id(p) in mine
            ]
            group["param_names"] = [own for own, _ in pairs]
            group["params"] = [p for _, p in pairs]
        self.optimizer._plans.clear()

    def _groups_of_tied(self) -> Iterator[tuple[str, Any]]:
        """Parameters that other stages have as well, and the groups of those stages."""
        for weight, stages in tied(self.stages):
            for ranks in self.mesh.mesh_array[stages].reshape(len(stages), -1).T:
                group = groups.new_group(ranks.tolist(), None, groups.line_here())
                if group is not None:
                    yield self._path_of(weight.place), group

    def _path_of(self, place: int) -> str:
        return next(w.path for x in self._layers for w in x.weights if w.place == place)

    def _scheduled(self) -> Schedule1F1B | None:
        if self.strategy.pipeline == 1:
            return None
        stage = PipelineStage(
            self._runs, self.place, self.strategy.pipeline,
            group=self.mesh.get_group("pipeline"),
        )  # fmt: skip
        stage.each = self.strategy.sharding in ("gradients", "all")
        return Schedule1F1B(stage, self.count, self.loss_fn)

    # -- a step

    def __call__(self, *args: Any) -> Tensor:
        """Train on a batch: the model's inputs, and the target as the last one."""
        if len(args) < 2:
            raise ArgumentError(
                f"step: expected inputs and a target, got {len(args)} arguments"
            )
        refuse_capture("step")
        *inputs, target = weft.tree_map(self._share, args)
        self.optimizer.zero_grad()
        kept = self._kept_whole()
        for unit in kept:
            unit.keeps = True
            unit.unshard()
        loss = self._pipelined(inputs, target) if self._schedule else self._all_of_it(
            inputs, target
        )  # fmt: skip
        for unit in kept:
            unit.keeps, unit.whole = False, None
        self._add_tied()
        self.optimizer.step()
        return self._of_all(loss)

    def _share(self, x: Any) -> Any:
        """This process's rows of a tensor of the batch."""
        if not isinstance(x, Tensor) or not x.ndim:
            return x
        if x.shape[0] != self.work.batch:
            raise ArgumentError(
                f"step: expected a whole batch of {self.work.batch}, as in the "
                f"example, got {x.shape[0]} rows; leave out the last, smaller batch "
                "(drop_last=True)"
            )
        rows = self.work.batch // self.strategy.data
        return x[self.share_of * rows : (self.share_of + 1) * rows]

    def _kept_whole(self) -> list[Any]:
        """What is gathered once in a step, where states or gradients are in parts."""
        if self.strategy.sharding in ("none", "all") or self._runs is None:
            return []
        return sharded_units(self.module)

    def _pipelined(self, inputs: list[Any], target: Any) -> Tensor:
        assert self._schedule is not None
        last = self.place == self.strategy.pipeline - 1
        losses: list[Tensor] = []
        self._schedule.step(
            *([] if self.place else inputs), target=target if last else None,
            losses=losses, return_outputs=False,
        )  # fmt: skip
        return weft.stack(losses).mean() if last else weft.zeros(())

    def _all_of_it(self, inputs: list[Any], target: Any) -> Tensor:
        rows = self.strategy.microbatch
        total = None
        for k in range(self.count):
            mine = slice(k * rows, (k + 1) * rows)
            part = weft.tree_map(
                lambda x, mine=mine: x[mine] if isinstance(x, Tensor) and x.ndim else x,
                (inputs, target),
            )
            self._sync(k == self.count - 1)
            loss = self.loss_fn(self._runs(*part[0]), part[1]) / self.count
            loss.backward()
            total = loss.detach() if total is None else total + loss.detach()
        assert total is not None
        return total

    def _sync(self, last: bool) -> None:
        """Say whether the next backward combines gradients."""
        if isinstance(self._runs, DistributedDataParallel):
            self._runs.require_backward_grad_sync = last
        if self.strategy.sharding == "states":
            for unit in sharded_units(self.module):
                unit.syncs = last

    def _add_tied(self) -> None:
        """Add up gradients of parameters that several stages have."""
        now = dict(self.module.named_parameters()) if self._tied else {}
        with weft.no_grad():
            for path, group in self._tied:
                p = now[path]
                g = p.grad._part if p.grad is not None else weft.zeros_like(p._part)
                collectives.all_reduce(g, ReduceOp.SUM, group)
                p._part.grad = g

    def _of_all(self, loss: Tensor) -> Tensor:
        """The loss of the whole batch, on all processes."""
        last = self.place == self.strategy.pipeline - 1
        of = self.strategy.data * self.strategy.tensor
        kind = next((w.dtype for x in self.work.layers for w in x.weights), loss.dtype)
        found = loss.to(kind) / of if last else weft.zeros((), dtype=kind)
        collectives.all_reduce(found, ReduceOp.SUM)
        return found

    # -- the whole model

    def full_state_dict(self) -> dict[str, Tensor]:
        """The state of the whole model, on every process; all have to call this."""
        mine = {
            name: (x.full_tensor() if hasattr(x, "full_tensor") else x).detach().numpy()
            for name, x in self.module.state_dict().items()
        }
        group = self.mesh.get_group("pipeline")
        every: list[Any] = [None] * group.size()
        all_gather_object(every, mine, group)
        return {name: weft.tensor(x) for one in every for name, x in one.items()}
