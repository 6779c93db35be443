"""``torch.distributed.checkpoint.state_dict``: states of models, in parts or whole."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import weft
from weft.core.tensor import Tensor
from weft.distributed import groups
from weft.distributed.objects import broadcast_object_list
from weft.distributed.tensor.dtensor import DTensor
from weft.errors import ArgumentError

__all__ = [
    "StateDictOptions", "get_model_state_dict", "get_optimizer_state_dict",
    "get_state_dict", "set_model_state_dict", "set_optimizer_state_dict",
    "set_state_dict",
]  # fmt: skip


@dataclass
class StateDictOptions:
    """What a state has: with ``full_state_dict``, whole tensors.

    With ``cpu_offload`` as well, rank 0 alone has them; with
    ``broadcast_from_rank0``, the others take them from there.
    """

    full_state_dict: bool = False
    cpu_offload: bool = False
    ignore_frozen_params: bool = False
    strict: bool = True
    broadcast_from_rank0: bool = False


def get_model_state_dict(
    model: Any, *, submodules: Any = None, options: StateDictOptions | None = None
) -> dict[str, Any]:
    """A model's state; all processes call this.

    >>> dist = weft.distributed
    >>> dist.init_process_group(rank=0, world_size=1)
    >>> net = dist.fsdp.fully_shard(weft.nn.Linear(3, 2))
    >>> state = dist.full_state.get_model_state_dict(
    ...     net, options=dist.full_state.StateDictOptions(full_state_dict=True))
    >>> type(state["weight"]) is weft.Tensor
    True
    >>> dist.destroy_process_group()
    """
    found = options or StateDictOptions()
    if submodules is not None or found.ignore_frozen_params:
        raise ArgumentError(
            "get_model_state_dict: submodules and ignore_frozen_params are not there; "
            "take what you need of the whole state"
        )
    return _as_asked(_inner(model).state_dict(), found)


def get_optimizer_state_dict(
    model: Any, optimizers: Any, *, submodules: Any = None,
    options: StateDictOptions | None = None,
) -> dict[str, Any]:  # fmt: skip
    """An optimizer's state; all processes call this."""
    return _as_asked(_one(optimizers).state_dict(), options or StateDictOptions())


def get_state_dict(
    model: Any, optimizers: Any, *, submodules: Any = None,
    options: StateDictOptions | None = None,
) -> tuple[dict[str, Any], dict[str, Any]]:  # fmt: skip
    """The states of a model and its optimizer; all processes call this."""
    return (
        get_model_state_dict(model, submodules=submodules, options=options),
        get_optimizer_state_dict(model, optimizers, options=options),
    )


def set_model_state_dict(
    model: Any, model_state_dict: Any, *, options: StateDictOptions | None = None
) -> Any:
    """Load a model's state, in parts or whole."""
    found = options or StateDictOptions()
    state = _given(model_state_dict, found)
    return _inner(model).load_state_dict(state, strict=found.strict)


def set_optimizer_state_dict(
    model: Any, optimizers: Any, optim_state_dict: Any, *,
    options: StateDictOptions | None = None,
) -> None:  # fmt: skip
    """Load an optimizer's state, in parts or whole."""
    state = _given(optim_state_dict, options or StateDictOptions())
    _one(optimizers).load_state_dict(state)


def set_state_dict(
    model: Any, optimizers: Any, *, model_state_dict: Any, optim_state_dict: Any,
    options: StateDictOptions | None = None,
) -> Any:  # fmt: skip
    """Load the states of a model and its optimizer."""
    set_optimizer_state_dict(model, optimizers, optim_state_dict, options=options)
    return set_model_state_dict(model, model_state_dict, options=options)


def _inner(model: Any) -> Any:
    """The module whose names count: that of a ``DistributedDataParallel``."""
    parallel = isinstance(model, weft.nn.parallel.DistributedDataParallel)
    return model.module if parallel else model


def _one(optimizers: Any) -> Any:
    if not isinstance(optimizers, (list, tuple)):
        return optimizers
    if len(optimizers) != 1:
        raise ArgumentError(
            f"expected one optimizer, got {len(optimizers)}; save each by itself"
        )
    return optimizers[0]


def _as_asked(state: Any, options: StateDictOptions) -> Any:
    if not options.full_state_dict:
        return state
    whole = weft.tree_map(_whole, dict(state))
    first = not groups.initialized() or groups.world().links.rank == 0
    return {} if options.cpu_offload and not first else whole


def _whole(value: Any) -> Any:
    if isinstance(value, DTensor):
        return value.full_tensor()
    return value.clone() if isinstance(value, Tensor) else value


def _given(state: Any, options: StateDictOptions) -> Any:
    if not options.broadcast_from_rank0:
        return state
    held = [dict(state) if groups.world().links.rank == 0 else None]
    broadcast_object_list(held, 0)
    return held[0]
