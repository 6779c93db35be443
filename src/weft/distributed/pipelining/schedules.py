"""Schedules: in which order a process runs its stages' microbatches.

GPipe              all forward, then all backward: every microbatch is held
1F1B               as many forward as stages follow, then one backward for each
Interleaved 1F1B   the same with several stages on each process: less waiting
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import weft
from weft.core.tensor import Tensor
from weft.distributed.collectives import refuse_capture
from weft.distributed.objects import all_gather_object
from weft.distributed.pipelining import orders
from weft.distributed.pipelining.orders import Action
from weft.distributed.pipelining.stage import PipelineStage
from weft.errors import ArgumentError


class Schedule:
    """The base of schedules."""

    def __init__(
        self,
        stages: Sequence[PipelineStage],
        n_microbatches: int,
        loss_fn: Callable[..., Any] | None,
        specs: Sequence[Any],
        scale_grads: bool,
    ) -> None:
        who = type(self).__name__
        if any(one is not None for one in specs):
            raise ArgumentError(
                f"{who}: args_chunk_spec, kwargs_chunk_spec and output_merge_spec are "
                "not there: batches are cut along dimension 0"
            )
        if type(n_microbatches) is not int or n_microbatches < 1:
            raise ArgumentError(
                f"{who}: expected n_microbatches of at least 1, got {n_microbatches}"
            )
        self.stages = {stage.stage_index: stage for stage in stages}
        first = next(iter(self.stages.values()))
        self.num_stages, self.group = first.num_stages, first.group
        expected = range(self.group.rank(), self.num_stages, self.group.size())
        if sorted(self.stages) != list(expected):
            raise ArgumentError(
                f"{who}: expected the stages {list(expected)} on process "
                f"{self.group.rank()} of {self.group.size()}, got "
                f"{sorted(self.stages)}"
            )
        for one in self.stages.values():  # what goes from one to the other here
            one._here = first._here
        self.count, self.loss_fn, self.scale = n_microbatches, loss_fn, scale_grads
        self._agreed = False

    def actions(self) -> Iterator[Action]:
        """The order of this process."""
        raise NotImplementedError(f"{type(self).__name__} says no order")

    def step(
        self,
        *args: Any,
        target: Any = None,
        losses: list[Any] | None = None,
        return_outputs: bool = True,
        loss_kwargs: dict[str, Any] | None = None,
        **kwargs: Any,
    ) -> Any:
        """Run a batch, forward and backward.

        The first stage's process passes the inputs, the last one's ``target``, and gets
        the outputs; ``losses`` is filled there. Gradients are those of the mean of the
        microbatches' losses, or of their sum without ``scale_grads``.
        """
        if self.loss_fn is None:
            raise ArgumentError(
                "step: a schedule without loss_fn has no backward; pass loss_fn to it "
                "on all processes, or call eval"
            )
        last = self.stages.get(self.num_stages - 1)
        if last is not None and target is None:
            raise ArgumentError("step: the last stage's process has to pass target")
        for stage in self.stages.values():
            stage.hold_gradients()
        run = _Run(self, args, kwargs, target, loss_kwargs or {}, return_outputs)
        run.do(self.actions())
        for stage in self.stages.values():
            stage.share_gradients()
        if losses is not None:
            losses[:] = run.losses
        return run.merged() if return_outputs else None

    def eval(
        self, *args: Any, target: Any = None, losses: list[Any] | None = None,
        **kwargs: Any,
    ) -> Any:  # fmt: skip
        """Run a batch forward only."""
        run = _Run(self, args, kwargs, target, {})
        with weft.no_grad():
            run.do(one for one in self.actions() if one.kind == "F")
        if losses is not None:
            losses[:] = run.losses
        return run.merged()

    def agree(self) -> None:
        """Raise an error on all processes if their schedules differ."""
        refuse_capture("step")
        if self._agreed or self.group.size() == 1:
            return
        every: list[Any] = [None] * self.group.size()
        mine = [type(self).__name__, self.num_stages, self.count, self.scale,
                self.loss_fn is not None]  # fmt: skip
        all_gather_object(every, mine, self.group)
        names = "the schedule", "num_stages", "n_microbatches", "scale_grads", "loss_fn"
        for rank, theirs in enumerate(every):
            for name, one, other in zip(names, every[0], theirs, strict=True):
                if one != other:
                    raise ArgumentError(
                        f"step: {name} is {one} on process 0 and {other} on process "
                        f"{rank}; all need the same"
                    )
        self._agreed = True


class _Run:
    """One batch in microbatches."""

    def __init__(
        self, schedule: Schedule, args: Any, kwargs: Any, target: Any, more: Any,
        keeps: bool = True,
    ) -> None:  # fmt: skip
        schedule.agree()
        self.schedule, self.more, self.keeps = schedule, more, keeps
        self.args = _cut(args, schedule.count)
        self.kwargs = _cut(kwargs, schedule.count)
        self.targets = _cut(target, schedule.count)
        self.has_target = target is not None
        self.losses: list[Any] = []
        self.outs: list[Any] = []
        self.ends: dict[int, Any] = {}

    def do(self, actions: Any) -> None:
        stages = self.schedule.stages
        for kind, index, k in actions:
            if kind == "F":
                self._forward(stages[index], k)
            else:
                stages[index].backward_one(k, self.ends.pop(k, None))
        for stage in stages.values():
            stage.finish()

    def _forward(self, stage: PipelineStage, k: int) -> None:
        out = stage.forward_one(k, self.args[k] if stage.is_first else (),
                                self.kwargs[k])  # fmt: skip
        if not stage.is_last:
            return
        if self.keeps:
            self.outs.append(weft.tree_map(_detached, out))
        if self.schedule.loss_fn is not None and self.has_target:
            loss = self.schedule.loss_fn(out, self.targets[k], **self.more)
            self.losses.append(loss.detach())
            many = self.schedule.count if self.schedule.scale else 1
            self.ends[k] = loss / many

    def merged(self) -> Any:
        if not self.outs:
            return None
        if isinstance(self.outs[0], tuple):
            return tuple(weft.cat(some) for some in zip(*self.outs, strict=True))
        return weft.cat(self.outs)


def _detached(x: Any) -> Any:
    return x.detach() if isinstance(x, Tensor) else x


def _cut(tree: Any, count: int) -> list[Any]:
    """A tree's tensors in as many pieces along dimension 0; other values stay."""

    def piece(k: int) -> Callable[[Any], Any]:
        def take(x: Any) -> Any:
            if not isinstance(x, Tensor) or not x.ndim:
                return x
            if x.shape[0] % count:
                raise ArgumentError(
                    f"step: a batch of {x.shape[0]} does not divide into {count} equal "
                    "microbatches, and their mean would not be the batch's"
                )
            size = x.shape[0] // count
            return x[k * size : (k + 1) * size]

        return take

    return [weft.tree_map(piece(k), tree) for k in range(count)]


class ScheduleGPipe(Schedule):
    """All microbatches forward, then all backward (Huang et al., 2019)."""

    def __init__(
        self,
        stage: PipelineStage,
        n_microbatches: int,
        loss_fn: Callable[..., Any] | None = None,
        args_chunk_spec: Any = None,
        kwargs_chunk_spec: Any = None,
        output_merge_spec: Any = None,
        scale_grads: bool = True,
    ) -> None:
        specs = args_chunk_spec, kwargs_chunk_spec, output_merge_spec
        super().__init__([stage], n_microbatches, loss_fn, specs, scale_grads)

    def actions(self) -> Iterator[Action]:
        (index,) = self.stages
        return orders.gpipe(index, self.count)


class Schedule1F1B(ScheduleGPipe):
    """A backward after each forward, once the pipeline is full (PipeDream-flush).

    A stage holds as many microbatches as stages follow, and itself, at most.
    """

    def actions(self) -> Iterator[Action]:
        (index,) = self.stages
        return orders.one_forward_one_backward(index, self.num_stages, self.count)


class ScheduleInterleaved1F1B(Schedule):
    """1F1B with several stages on each process (Narayanan et al., 2021).

    Process ``r`` of ``P`` has the stages ``r``, ``r + P``, ``r + 2P``, …
    """

    def __init__(
        self,
        stages: Sequence[PipelineStage],
        n_microbatches: int,
        loss_fn: Callable[..., Any] | None = None,
        args_chunk_spec: Any = None,
        kwargs_chunk_spec: Any = None,
        output_merge_spec: Any = None,
        scale_grads: bool = True,
        backward_requires_autograd: bool = True,
        defer_pp_recv: bool = False,
    ) -> None:
        if not isinstance(stages, (list, tuple)) or not stages:
            raise ArgumentError(
                "ScheduleInterleaved1F1B: expected a list of this process's stages, "
                f"got {stages!r}"
            )
        specs = args_chunk_spec, kwargs_chunk_spec, output_merge_spec
        super().__init__(stages, n_microbatches, loss_fn, specs, scale_grads)
        rounds = max(1, self.count // self.group.size())
        if self.count % rounds:
            raise ArgumentError(
                "Interleaved 1F1B requires the number of microbatches to be a multiple "
                f"of the number of rounds ({rounds}), but got {self.count}."
            )

    def actions(self) -> Iterator[Action]:
        size, rank = self.group.size(), self.group.rank()
        return orders.interleaved(rank, size, len(self.stages), self.count)
