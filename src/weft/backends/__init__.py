"""``weft.backends``: PyTorch's switches for libraries of kernels.

There is nothing to choose: a flag that is set here is kept and given back, and changes
no result. Results are deterministic, and float32 products and convolutions have full
precision, unless ``cuda.matmul.allow_tf32`` lets them be rounded.

>>> weft.backends.cudnn.benchmark = True
>>> weft.backends.cudnn.benchmark
True
>>> weft.backends.cudnn.benchmark = False
>>> weft.backends.cudnn.is_available()
False
"""

from __future__ import annotations

import contextlib
import importlib.machinery
import sys
import types
from collections.abc import Iterator
from typing import Any

from weft.config import config


class Flags(types.ModuleType):
    """A namespace of flags that can be set, for a block too (``flags``)."""

    def __init__(self, name: str, here: bool = False, **flags: Any) -> None:
        super().__init__(f"weft.backends.{name}")
        self.__dict__.update(flags, __file__=__file__)
        self.__spec__ = importlib.machinery.ModuleSpec(self.__name__, None)
        sys.modules[self.__name__] = self  # as ``import weft.backends.cudnn`` wants
        self.is_available = self.is_built = lambda: here
        self.set_flags = self.__dict__.update

    @contextlib.contextmanager
    def flags(self, **settings: Any) -> Iterator[None]:
        """Set flags for a block."""
        before = {name: getattr(self, name, None) for name in settings}
        try:
            for name, value in settings.items():
                setattr(self, name, value)
            yield
        finally:
            for name, value in before.items():
                setattr(self, name, value)

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(f"{self.__name__} has no flag {name!r}")

    def version(self) -> int | None:
        """The library's version: None, as it is not used."""
        return None


class _Products(Flags):
    """The flags of matrix products on GPUs."""

    @property
    def allow_tf32(self) -> bool:
        """Whether operands of float32 products may be rounded to TF32."""
        return config.matmul_precision != "highest"

    @allow_tf32.setter
    def allow_tf32(self, allowed: bool) -> None:
        config.matmul_precision = "high" if allowed else "highest"


def _switch(place: Flags, name: str, value: bool) -> None:
    """Give a namespace a pair of functions that ask for a flag and set it."""
    place.__dict__[f"_{name}"] = value

    def enable(enabled: bool) -> None:
        place.__dict__[f"_{name}"] = bool(enabled)

    place.__dict__[f"enable_{name}"] = enable
    place.__dict__[f"{name}_enabled"] = lambda: place.__dict__[f"_{name}"]


cudnn = Flags(
    "cudnn", enabled=True, benchmark=False, deterministic=False, allow_tf32=True,
    benchmark_limit=10, fp32_precision="none",
)  # fmt: skip
cudnn.set_flags(is_acceptable=lambda tensor: False)
for _part in ("conv", "rnn"):
    cudnn.set_flags(**{_part: Flags(f"cudnn.{_part}", fp32_precision="none")})
cuda = Flags("cuda", preferred_linalg_library=lambda backend=None: "default")
_matmul = _Products(
    "cuda.matmul", fp32_precision="none",
    allow_fp16_reduced_precision_reduction=True,
    allow_bf16_reduced_precision_reduction=True, allow_fp16_accumulation=False,
)  # fmt: skip
_plans = Flags("cuda.cufft_plan_cache", size=0, max_size=0)
cuda.set_flags(matmul=_matmul, cufft_plan_cache=_plans)
for _kernel in ("flash_sdp", "mem_efficient_sdp", "math_sdp", "cudnn_sdp"):
    _switch(cuda, _kernel, True)
cusparselt = Flags("cusparselt")
mps = Flags("mps")
mps.set_flags(is_macos_or_newer=lambda major, minor: False)
mkl = Flags("mkl", VERBOSE_OFF=0, VERBOSE_ON=1, verbose=contextlib.nullcontext)
mkldnn = Flags("mkldnn", enabled=True, deterministic=False, allow_tf32=True)
for _part in ("matmul", "conv", "rnn"):
    mkldnn.set_flags(**{_part: Flags(f"mkldnn.{_part}", fp32_precision="none")})
nnpack = Flags("nnpack")
openmp = Flags("openmp")
opt_einsum = Flags("opt_einsum", enabled=False, strategy=None)
quantized = Flags("quantized", engine="none", supported_engines=["none"])
mha = Flags("mha")
_switch(mha, "fastpath", True)
mha.set_flags(get_fastpath_enabled=mha.fastpath_enabled)
mha.set_flags(set_fastpath_enabled=mha.enable_fastpath)
cpu = Flags("cpu", here=True)


def _capability() -> str:
    from weft.compile.targets.cpu.object_code import host_isa

    return {512: "AVX512", 256: "AVX2"}.get(host_isa().bits, "DEFAULT")


cpu.set_flags(get_cpu_capability=_capability)
