"""Modules over several processes or devices.

``DistributedDataParallel`` trains one module in several processes. ``DataParallel``
runs its module, as PyTorch's does where there is no GPU.
"""

from __future__ import annotations

from typing import Any

from weft.errors import DeviceError
from weft.nn.module import Module
from weft.nn.parallel.distributed import DistributedDataParallel

__all__ = ["DataParallel", "DistributedDataParallel", "data_parallel", "scatter"]


class DataParallel(Module):
    """A module, under the path ``module``.

    >>> net = weft.nn.DataParallel(weft.nn.Linear(2, 3))
    >>> net(weft.zeros(1, 2)).shape, list(net.state_dict())
    ((1, 3), ['module.weight', 'module.bias'])
    """

    def __init__(
        self,
        module: Module,
        device_ids: Any = None,
        output_device: Any = None,
        dim: int = 0,
    ) -> None:
        super().__init__()
        _refuse_devices("DataParallel", device_ids)
        self.module, self.dim = module, dim
        self.device_ids: list[Any] = []
        self.output_device = output_device

    def forward(self, *inputs: Any, **kwargs: Any) -> Any:
        return self.module(*inputs, **kwargs)


def data_parallel(
    module: Module,
    inputs: Any,
    device_ids: Any = None,
    output_device: Any = None,
    dim: int = 0,
    module_kwargs: Any = None,
) -> Any:
    """Run a module on the inputs.

    >>> weft.nn.parallel.data_parallel(weft.nn.Identity(), weft.ones(1))
    tensor([1.])
    """
    _refuse_devices("data_parallel", device_ids)
    args = inputs if isinstance(inputs, tuple) else (inputs,)
    return module(*args, **(module_kwargs or {}))


def _refuse_devices(who: str, device_ids: Any) -> None:
    if device_ids:
        raise DeviceError(
            f"{who}: expected no device_ids, as there is no GPU here, got "
            f"{list(device_ids)}; leave them out"
        )


def scatter(inputs: Any, target_gpus: Any, dim: int = 0) -> Any:
    """Refused: there are no GPUs to share tensors among."""
    raise DeviceError(
        f"scatter: there are no GPUs {target_gpus} to share tensors among"
    )
