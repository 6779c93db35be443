"""``weight_norm`` and ``spectral_norm`` under their older paths in ``nn.utils``."""

from __future__ import annotations

from typing import Any

from weft import Tensor
from weft.nn.module import Module
from weft.nn.parameter import Parameter
from weft.nn.utils.computed import compute, computed, restore
from weft.nn.utils.parametrizations import (
    _SpectralNorm,
    _usual_dim,
    norm_except_dim,
)


class WeightNorm:
    """Computes a weight from its direction and lengths."""

    def __init__(self, name: str, dim: int | None) -> None:
        self.name, self.dim = name, -1 if dim is None else dim

    def compute_weight(self, module: Any) -> Tensor:
        """The weight."""
        g, v = (getattr(module, f"{self.name}_{part}") for part in "gv")
        return v * (g / norm_except_dim(v, self.dim))

    __call__ = compute_weight


def weight_norm(module: Module, name: str = "weight", dim: int | None = 0) -> Module:
    """A weight as ``weight_v``, a direction, and ``weight_g``, its lengths.

    >>> layer = weft.nn.utils.weight_norm(weft.nn.Linear(3, 2))
    >>> sorted(layer.state_dict())
    ['bias', 'weight_g', 'weight_v']
    """
    if isinstance(computed(module, name), WeightNorm):
        raise RuntimeError(
            "Cannot register two weight_norm hooks on the same parameter " + name
        )
    weight = getattr(module, name)
    made = WeightNorm(name, dim)
    delattr(module, name)
    lengths = norm_except_dim(weight.detach(), made.dim)
    module.register_parameter(f"{name}_g", Parameter(lengths))
    module.register_parameter(f"{name}_v", Parameter(weight.detach().clone()))
    compute(module, name, made)
    return module


def _taken_off(module: Module, name: str, kind: type, parts: Any) -> Module:
    """A module whose computed weight is a parameter again."""
    if not isinstance(computed(module, name), kind):
        what = kind.__name__
        raise ValueError(f"{what} of '{name}' not found in {module}")
    value = getattr(module, name).detach()
    restore(module, name)
    for part in parts:
        delattr(module, f"{name}_{part}")
    module.register_parameter(name, Parameter(value))
    return module


def remove_weight_norm(module: Module, name: str = "weight") -> Module:
    """The weight as one parameter again.

    >>> layer = weft.nn.utils.weight_norm(weft.nn.Linear(3, 2))
    >>> sorted(weft.nn.utils.remove_weight_norm(layer).state_dict())
    ['bias', 'weight']
    """
    return _taken_off(module, name, WeightNorm, "gv")


class SpectralNorm(WeightNorm):
    """Computes a weight from the original one and its singular vectors."""

    def __init__(self, name: str, dim: int, eps: float, iterations: int) -> None:
        super().__init__(name, dim)
        self.eps, self.n_power_iterations = eps, iterations

    def _run(self, module: Any) -> Any:
        run = _SpectralNorm.__new__(_SpectralNorm)
        Module.__init__(run)
        run.dim, run.eps = self.dim, self.eps
        run.n_power_iterations, run.training = self.n_power_iterations, False
        run._buffers["_u"] = getattr(module, f"{self.name}_u")
        run._buffers["_v"] = getattr(module, f"{self.name}_v")
        return run

    def compute_weight(self, module: Any) -> Tensor:
        """The weight, by the vectors as they are."""
        weight = getattr(module, f"{self.name}_orig")
        return self._run(module)(weight)

    __call__ = compute_weight

    def before(self, module: Any, args: Any) -> None:
        """Bring the vectors nearer, before each call in training."""
        if module.training:
            from weft import no_grad

            run = self._run(module)
            with no_grad():
                matrix = run._matrix(getattr(module, f"{self.name}_orig").detach())
                run._iterate(matrix, self.n_power_iterations)


def spectral_norm(
    module: Module, name: str = "weight", n_power_iterations: int = 1,
    eps: float = 1e-12, dim: int | None = None,
) -> Module:  # fmt: skip
    """A weight divided by its largest singular value, from ``weight_orig``.

    >>> layer = weft.nn.utils.spectral_norm(weft.nn.Linear(3, 2))
    >>> sorted(layer.state_dict())
    ['bias', 'weight_orig', 'weight_u', 'weight_v']
    """
    if isinstance(computed(module, name), SpectralNorm):
        raise RuntimeError(
            "Cannot register two spectral_norm hooks on the same parameter " + name
        )
    weight = getattr(module, name)
    first = _SpectralNorm(weight, n_power_iterations, _usual_dim(module, dim), eps)
    made = SpectralNorm(name, first.dim, eps, n_power_iterations)
    delattr(module, name)
    module.register_parameter(f"{name}_orig", weight)
    module.register_buffer(f"{name}_u", first._u)
    module.register_buffer(f"{name}_v", first._v)
    compute(module, name, made)
    module.register_forward_pre_hook(made.before)
    return module


def remove_spectral_norm(module: Module, name: str = "weight") -> Module:
    """The normalised weight as one parameter again.

    >>> layer = weft.nn.utils.spectral_norm(weft.nn.Linear(2, 2))
    >>> _ = weft.nn.utils.remove_spectral_norm(layer)
    >>> [name for name, _ in layer.named_parameters()]
    ['bias', 'weight']
    """
    made = computed(module, name)
    out = _taken_off(module, name, SpectralNorm, ("orig", "u", "v"))
    hooks = module._forward_pre_hooks
    for key, hook in list(hooks.items()):
        if getattr(hook, "__self__", None) is made:
            del hooks[key]
    return out
