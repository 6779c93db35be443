"""Pruning: weights times a mask of zeros and ones.

The parameter becomes ``weight_orig`` and the mask the buffer ``weight_mask``;
``weight`` is their product. ``remove`` makes it a parameter again.
"""

from __future__ import annotations

import numbers
from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import Any

import weft
from weft import Tensor
from weft.nn.module import Module
from weft.nn.parameter import Parameter
from weft.nn.utils.computed import compute, computed, restore


class BasePruningMethod(ABC):
    """A way of pruning: ``compute_mask`` gives the mask of a tensor."""

    PRUNING_TYPE = "unstructured"
    _tensor_name: str = ""

    def __call__(self, module: Any, inputs: Any = None) -> Tensor:
        return self.apply_mask(module)

    @abstractmethod
    def compute_mask(self, t: Tensor, default_mask: Tensor) -> Tensor:
        """The mask of a tensor of importances, given the one before."""

    def apply_mask(self, module: Any) -> Tensor:
        """The pruned tensor of a module."""
        mask = getattr(module, f"{self._tensor_name}_mask")
        orig = getattr(module, f"{self._tensor_name}_orig")
        return mask.to(orig.dtype) * orig

    def prune(
        self, t: Tensor, default_mask: Tensor | None = None,
        importance_scores: Tensor | None = None,
    ) -> Tensor:  # fmt: skip
        """A tensor without the elements of little importance."""
        scores = t if importance_scores is None else importance_scores
        before = weft.ones_like(t) if default_mask is None else default_mask
        return t * self.compute_mask(scores, default_mask=before)

    def remove(self, module: Any) -> None:
        """Make the pruned tensor a parameter of the module again."""
        name = self._tensor_name
        value = self.apply_mask(module).detach()
        orig = module._parameters[f"{name}_orig"]
        restore(module, name)
        del module._parameters[f"{name}_orig"], module._buffers[f"{name}_mask"]
        orig.data = value
        module.register_parameter(name, orig)

    @classmethod
    def apply(
        cls, module: Any, name: str, *args: Any,
        importance_scores: Tensor | None = None, **kwargs: Any,
    ) -> BasePruningMethod:  # fmt: skip
        """Prune a parameter of a module, on top of what was pruned before."""
        method: Any = cls(*args, **kwargs)
        method._tensor_name = name
        value = getattr(module, name)
        if importance_scores is None:
            importance_scores = value
        elif importance_scores.shape != value.shape:
            raise AssertionError(
                "importance_scores should have the same shape as parameter "
                f"{name} of {module}"
            )
        before = computed(module, name)
        if isinstance(before, BasePruningMethod):
            held = before if isinstance(before, PruningContainer) else (
                PruningContainer(before)
            )  # fmt: skip
            held.add_pruning_method(method)
            mask = getattr(module, f"{name}_mask").detach().clone()
            mask = held.compute_mask(importance_scores.detach(), default_mask=mask)
            module._buffers[f"{name}_mask"] = mask
            compute(module, name, held)
            return held
        ones = weft.ones_like(value.detach())
        mask = method.compute_mask(importance_scores.detach(), default_mask=ones)
        delattr(module, name)
        module.register_parameter(f"{name}_orig", value)
        module.register_buffer(f"{name}_mask", mask)
        compute(module, name, method)
        return method


class PruningContainer(BasePruningMethod):
    """Several ways of pruning one tensor, one after the other."""

    def __init__(self, *args: Any) -> None:
        self._pruning_methods: tuple[Any, ...] = ()
        if len(args) == 1 and isinstance(args[0], Iterable):
            args = tuple(args[0])
        for method in args:
            self._tensor_name = self._tensor_name or method._tensor_name
            self.add_pruning_method(method)

    def add_pruning_method(self, method: Any) -> None:
        """Add a way of pruning the same tensor."""
        if not isinstance(method, BasePruningMethod) and method is not None:
            raise TypeError(f"{type(method)} is not a BasePruningMethod subclass")
        if method is not None and self._tensor_name != method._tensor_name:
            raise ValueError(
                "Can only add pruning methods acting on the parameter named "
                f"'{self._tensor_name}' to PruningContainer {self}. Found "
                f"'{method._tensor_name}'"
            )
        self._pruning_methods += (method,)

    def __len__(self) -> int:
        return len(self._pruning_methods)

    def __iter__(self) -> Any:
        return iter(self._pruning_methods)

    def __getitem__(self, index: Any) -> Any:
        return self._pruning_methods[index]

    def compute_mask(self, t: Tensor, default_mask: Tensor) -> Tensor:
        """The mask of the last method, on what is left of those before."""
        method = self._pruning_methods[-1]
        mask = default_mask.to(t.dtype).clone()
        if method.PRUNING_TYPE == "unstructured":
            part: Any = mask == 1
        elif method.PRUNING_TYPE == "structured":
            dim = method.dim % t.ndim
            rest = [d for d in range(t.ndim) if d != dim]
            part = (*(slice(None),) * dim, mask.sum(rest) != 0)
        elif method.PRUNING_TYPE == "global":
            part = ...
        else:
            raise ValueError(f"Unrecognized PRUNING_TYPE {method.PRUNING_TYPE}")
        found = method.compute_mask(t[part], default_mask=mask[part])
        mask[part] = found.to(mask.dtype)
        return mask


class Identity(BasePruningMethod):
    """Prunes nothing, but has a mask."""

    def compute_mask(self, t: Tensor, default_mask: Tensor) -> Tensor:
        return default_mask


class RandomUnstructured(BasePruningMethod):
    """Prunes elements at random: a share of them, or a number."""

    def __init__(self, amount: float) -> None:
        _check_amount(amount)
        self.amount = amount

    def compute_mask(self, t: Tensor, default_mask: Tensor) -> Tensor:
        count = _count(self.amount, t.numel())
        return _without(default_mask, weft.rand(t.numel()), count)


class L1Unstructured(RandomUnstructured):
    """Prunes the elements of the smallest absolute value."""

    def compute_mask(self, t: Tensor, default_mask: Tensor) -> Tensor:
        return _without(default_mask, t.abs(), _count(self.amount, t.numel()))


class RandomStructured(BasePruningMethod):
    """Prunes slices along a dimension at random."""

    PRUNING_TYPE = "structured"

    def __init__(self, amount: float, dim: int = -1) -> None:
        _check_amount(amount)
        self.amount, self.dim = amount, dim

    def _scores(self, t: Tensor) -> Tensor:
        return weft.rand(t.shape[self.dim])

    def compute_mask(self, t: Tensor, default_mask: Tensor) -> Tensor:
        if t.ndim <= 1:
            raise ValueError(
                "Structured pruning can only be applied to multidimensional tensors. "
                f"Found tensor of shape {tuple(t.shape)} with {t.ndim} dims"
            )
        slices = t.shape[self.dim]
        count = _count(self.amount, slices)
        kept = _without(weft.ones(slices), self._scores(t), count)
        shape = [1] * t.ndim
        shape[self.dim] = slices
        return default_mask * kept.reshape(shape).to(default_mask.dtype)


class LnStructured(RandomStructured):
    """Prunes the slices along a dimension of the smallest norm."""

    def __init__(self, amount: float, n: Any, dim: int = -1) -> None:
        super().__init__(amount, dim)
        self.n = n

    def _scores(self, t: Tensor) -> Tensor:
        rows = t.movedim(self.dim, 0).flatten(1)
        return weft.linalg.vector_norm(rows, float(self.n), 1)


class CustomFromMask(BasePruningMethod):
    """Prunes by a mask that is given."""

    PRUNING_TYPE = "global"

    def __init__(self, mask: Tensor) -> None:
        self.mask = mask

    def compute_mask(self, t: Tensor, default_mask: Tensor) -> Tensor:
        return default_mask * self.mask.to(default_mask.dtype)


def _check_amount(amount: Any) -> None:
    if not isinstance(amount, numbers.Real):
        raise TypeError(f"Invalid type for amount: {amount}. Must be int or float.")
    whole = isinstance(amount, numbers.Integral)
    if amount < 0 or (not whole and amount > 1):
        raise ValueError(
            f"amount={amount} should either be a float in the range [0.0, 1.0] or a "
            "non-negative integer"
        )


def _count(amount: Any, size: int) -> int:
    """The number of elements that an amount stands for."""
    if not isinstance(amount, numbers.Integral):
        return round(float(amount) * size)
    if amount > size:
        raise ValueError(
            f"amount={amount} should be smaller than the number of parameters to "
            f"prune={size}"
        )
    return int(amount)


def _without(mask: Tensor, scores: Tensor, count: int) -> Tensor:
    """A mask without the elements of the lowest scores."""
    flat = mask.clone().reshape(-1)
    if count:
        lowest = scores.reshape(-1).topk(count, largest=False).indices
        flat[lowest] = 0
    return flat.reshape(mask.shape)


def identity(module: Module, name: str) -> Module:
    """Prepare a parameter for pruning, with a mask of ones."""
    Identity.apply(module, name)
    return module


def random_unstructured(module: Module, name: str, amount: float) -> Module:
    """Prune elements at random.

    >>> from weft.nn.utils import prune
    >>> layer = prune.random_unstructured(weft.nn.Linear(2, 3), "weight", amount=1)
    >>> int((layer.weight == 0).sum())
    1
    """
    RandomUnstructured.apply(module, name, amount)
    return module


def l1_unstructured(
    module: Module, name: str, amount: float, importance_scores: Any = None
) -> Module:
    """Prune the elements of the smallest absolute value.

    >>> from weft.nn.utils import prune
    >>> layer = prune.l1_unstructured(weft.nn.Linear(4, 4), "weight", amount=0.25)
    >>> sorted(layer.state_dict())
    ['bias', 'weight_mask', 'weight_orig']
    """
    L1Unstructured.apply(module, name, amount, importance_scores=importance_scores)
    return module


def random_structured(module: Module, name: str, amount: float, dim: int) -> Module:
    """Prune slices along a dimension at random."""
    RandomStructured.apply(module, name, amount, dim)
    return module


def ln_structured(
    module: Module, name: str, amount: float, n: Any, dim: int,
    importance_scores: Any = None,
) -> Module:  # fmt: skip
    """Prune the slices along a dimension of the smallest norm."""
    LnStructured.apply(
        module, name, amount, n, dim, importance_scores=importance_scores
    )
    return module


def custom_from_mask(module: Module, name: str, mask: Tensor) -> Module:
    """Prune by a mask that is given."""
    CustomFromMask.apply(module, name, mask)
    return module


def global_unstructured(
    parameters: Any, pruning_method: Any, importance_scores: Any = None, **kwargs: Any
) -> None:
    """Prune (module, name) pairs together, as if they were one tensor."""
    if not isinstance(parameters, Iterable):
        raise TypeError("global_unstructured(): parameters is not an Iterable")
    given = {} if importance_scores is None else importance_scores
    if not isinstance(given, dict):
        raise TypeError("global_unstructured(): importance_scores must be of type dict")
    pairs = list(parameters)
    values = [getattr(module, name).detach() for module, name in pairs]
    scores = [given.get(p, v).reshape(-1) for p, v in zip(pairs, values, strict=True)]
    masks = [
        getattr(module, f"{name}_mask", weft.ones_like(value)).reshape(-1)
        for (module, name), value in zip(pairs, values, strict=True)
    ]
    method = pruning_method(**kwargs)
    if method.PRUNING_TYPE != "unstructured":
        raise TypeError(
            'Only "unstructured" PRUNING_TYPE supported for the `pruning_method`. '
            f"Found method {pruning_method} of type {method.PRUNING_TYPE}"
        )
    whole = PruningContainer(method).compute_mask(weft.cat(scores), weft.cat(masks))
    start = 0
    for (module, name), value in zip(pairs, values, strict=True):
        part = whole[start : start + value.numel()].reshape(value.shape)
        custom_from_mask(module, name, part)
        start += value.numel()


def remove(module: Module, name: str) -> Module:
    """Make a pruned tensor a parameter again."""
    method = computed(module, name)
    if not isinstance(method, BasePruningMethod):
        raise ValueError(
            f"Parameter '{name}' of module {module} has to be pruned before pruning "
            "can be removed"
        )
    method.remove(module)
    return module


def is_pruned(module: Module) -> bool:
    """Whether a parameter of the module or of one below it is pruned.

    >>> from weft.nn.utils import prune
    >>> prune.is_pruned(weft.nn.Linear(2, 2))
    False
    """
    return any(
        isinstance(computed(one, name), BasePruningMethod)
        for one in module.modules()
        for name in getattr(type(one), "_computed", {})
    )


__all__ = [
    "BasePruningMethod", "CustomFromMask", "Identity", "L1Unstructured",
    "LnStructured", "Parameter", "PruningContainer", "RandomStructured",
    "RandomUnstructured", "custom_from_mask", "global_unstructured", "identity",
    "is_pruned", "l1_unstructured", "ln_structured", "random_structured",
    "random_unstructured", "remove",
]  # fmt: skip
