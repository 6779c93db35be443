"""``autocast``: products in bfloat16 or float16, losses in float32, on one device.

While it is on, functions of PyTorch's list for the CPU cast their arguments: matrix
products, linear layers, convolutions, attention and ``prelu`` to the lower dtype,
losses and some poolings to float32 (see ``weft.core.autocast``). All others compute in
the dtypes that they are given. A compiled function has a program for each setting.
"""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable
from typing import Any

from weft.core.device import AbsentDevice, device
from weft.core.mode import mode, set_autocast
from weft.core.pytree import tree_map
from weft.core.tensor import Tensor
from weft.dtype import DType, bfloat16, float16, float32, float64
from weft.errors import DTypeError

# Of blocks that name no dtype, by type of device.
_dtypes: dict[str, DType] = {"cpu": bfloat16, "cuda": float16}
_state: dict[str, Any] = {"cache": True}


def _now(device_type: str) -> DType | None:
    """The dtype of products on a type of device; None where autocast is off."""
    return dict(mode.autocast or ()).get(device_type)


def _set(device_type: str, dtype: DType | None) -> None:
    pairs = dict(mode.autocast or ())
    pairs.pop(device_type, None)
    if dtype is not None:
        pairs[device_type] = dtype
    set_autocast(frozenset(pairs.items()) or None)


class autocast:
    """A block, or with ``@`` a function, whose products are of lower precision.

    >>> x, w = weft.ones(2, 3), weft.ones(3, 2)
    >>> with weft.autocast("cpu", dtype=weft.bfloat16):
    ...     print((x @ w).dtype, (x + 1).dtype)
    weft.bfloat16 weft.float32
    """

    def __init__(
        self,
        device_type: str,
        dtype: DType | None = None,
        enabled: bool = True,
        cache_enabled: bool | None = None,
    ) -> None:
        if not isinstance(device_type, str):
            raise ValueError(
                f"Expected `device_type` of type `str`, got: `{type(device_type)}`"
            )
        self.device = self.device_type = device_type
        self.fast_dtype = get_autocast_dtype(device_type) if dtype is None else dtype
        self.cache_enabled = cache_enabled  # casts are not kept, so it changes nothing
        self.enabled = self._allowed(enabled)
        self._before: list[Any] = []

    def _allowed(self, enabled: bool) -> bool:
        if not enabled:
            return False
        if not is_autocast_available(self.device_type):
            warnings.warn(
                f"User provided device_type of {self.device_type!r}, but it is not "
                "available. Disabling",
                stacklevel=3,
            )
            return False
        if self.fast_dtype not in (bfloat16, float16, float32):
            warnings.warn(
                "In CPU autocast, but the target dtype is not supported. Disabling "
                "autocast. CPU Autocast only supports dtype of weft.bfloat16, "
                f"weft.float16 currently, got {self.fast_dtype}.",
                stacklevel=3,
            )
            return False
        return self.fast_dtype is not float32

    def __enter__(self) -> autocast:
        self._before.append(mode.autocast)
        if is_autocast_available(self.device_type):
            _set(self.device_type, self.fast_dtype if self.enabled else None)
        return self

    def __exit__(self, *error: object) -> None:
        set_autocast(self._before.pop())

    def __call__(self, func: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(func)
        def decorated(*args: Any, **kwargs: Any) -> Any:
            with self:
                return func(*args, **kwargs)

        return decorated


def is_autocast_available(device_type: str) -> bool:
    """Whether autocast has an effect on a type of device.

    >>> weft.amp.is_autocast_available("cpu")
    True
    """
    return device_type == "cpu" or not isinstance(device(device_type), AbsentDevice)


def is_autocast_enabled(device_type: str | None = None) -> bool:
    """Whether autocast is on; without an argument, on a GPU.

    >>> with weft.autocast("cpu"):
    ...     print(weft.is_autocast_enabled("cpu"))
    True
    """
    return _now(device_type or "cuda") is not None


def is_autocast_cpu_enabled() -> bool:
    """Whether autocast is on for the CPU.

    >>> with weft.autocast("cpu"):
    ...     print(weft.is_autocast_cpu_enabled())
    True
    """
    return _now("cpu") is not None


def get_autocast_dtype(device_type: str = "cpu") -> DType:
    """The dtype that products have inside autocast.

    >>> weft.get_autocast_dtype("cpu")
    weft.bfloat16
    """
    return _now(device_type) or _dtypes.get(device_type, float16)


def get_autocast_cpu_dtype() -> DType:
    """``get_autocast_dtype("cpu")``.

    >>> weft.get_autocast_cpu_dtype()
    weft.bfloat16
    """
    return get_autocast_dtype("cpu")


def set_autocast_dtype(device_type: str, dtype: DType) -> None:
    """Choose the dtype of blocks that name none.

    >>> weft.set_autocast_dtype("cpu", weft.float16)
    >>> weft.get_autocast_dtype("cpu")
    weft.float16
    >>> weft.set_autocast_dtype("cpu", weft.bfloat16)
    """
    if dtype not in (bfloat16, float16):
        raise DTypeError(f"set_autocast_dtype: expected a half type, got {dtype}")
    _dtypes[device_type] = dtype


def set_autocast_enabled(device_type: str, enabled: bool) -> None:
    """Switch autocast on or off without a block.

    >>> weft.set_autocast_enabled("cpu", True)
    >>> weft.is_autocast_enabled("cpu")
    True
    >>> weft.set_autocast_enabled("cpu", False)
    """
    if is_autocast_available(device_type):
        _set(device_type, get_autocast_dtype(device_type) if enabled else None)


def is_autocast_cache_enabled() -> bool:
    """The setting of the cache of casts, which changes nothing here.

    >>> weft.is_autocast_cache_enabled()
    True
    """
    return _state["cache"]


def set_autocast_cache_enabled(enabled: bool) -> None:
    """Set what ``is_autocast_cache_enabled`` says.

    >>> weft.set_autocast_cache_enabled(True)
    """
    _state["cache"] = enabled


def clear_autocast_cache() -> None:
    """Nothing to do: casts of parameters are made anew each time.

    >>> weft.clear_autocast_cache()
    """


def _casted(value: Any, dtype: DType) -> Any:
    def cast(one: Any) -> Any:
        floating = isinstance(one, Tensor) and one.dtype.is_floating_point
        return one.to(dtype) if floating and one.dtype is not float64 else one

    return tree_map(cast, value)


def custom_fwd(
    fwd: Callable[..., Any] | None = None,
    *,
    device_type: str,
    cast_inputs: DType | None = None,
) -> Callable[..., Any]:
    """A Function's ``forward`` that runs in a dtype, or as autocast has it.

    With ``cast_inputs`` floating-point arguments are cast and autocast is off inside.
    """
    if fwd is None:
        return functools.partial(
            custom_fwd, device_type=device_type, cast_inputs=cast_inputs
        )

    @functools.wraps(fwd)
    def decorated(*args: Any, **kwargs: Any) -> Any:
        args[0]._dtype = get_autocast_dtype(device_type)
        on = is_autocast_enabled(device_type)
        args[0]._fwd_used_autocast = on and cast_inputs is None
        if cast_inputs is None or not on:
            return fwd(*args, **kwargs)
        with autocast(device_type, enabled=False):
            return fwd(*_casted(args, cast_inputs), **_casted(kwargs, cast_inputs))

    return decorated


def custom_bwd(
    bwd: Callable[..., Any] | None = None, *, device_type: str
) -> Callable[..., Any]:
    """A Function's ``backward`` under the autocast that its ``forward`` ran under."""
    if bwd is None:
        return functools.partial(custom_bwd, device_type=device_type)

    @functools.wraps(bwd)
    def decorated(*args: Any, **kwargs: Any) -> Any:
        with autocast(
            device_type, enabled=args[0]._fwd_used_autocast, dtype=args[0]._dtype
        ):
            return bwd(*args, **kwargs)

    return decorated
