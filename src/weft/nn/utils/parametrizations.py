"""Parametrizations of weights: normalised, of spectral norm one, orthogonal."""

from __future__ import annotations

from typing import Any

import weft
from weft import Tensor, no_grad
from weft.errors import ArgumentError
from weft.nn import functional as F
from weft.nn.module import Module
from weft.nn.utils import parametrize


def norm_except_dim(v: Tensor, dim: int | None) -> Tensor:
    """The norms of a tensor's slices along a dimension, or of the whole for -1."""
    if dim is None or dim == -1:
        return v.norm()
    others = [d for d in range(v.ndim) if d != dim % v.ndim]
    return (v * v).sum(others, keepdim=True).sqrt()


class _WeightNorm(Module):
    """A direction times a length."""

    def __init__(self, dim: int | None = 0) -> None:
        super().__init__()
        self.dim = -1 if dim is None else dim

    def forward(self, weight_g: Tensor, weight_v: Tensor) -> Tensor:
        return weight_v * (weight_g / norm_except_dim(weight_v, self.dim))

    def right_inverse(self, weight: Tensor) -> tuple[Tensor, Tensor]:
        return norm_except_dim(weight, self.dim), weight.clone()


def weight_norm(module: Module, name: str = "weight", dim: int | None = 0) -> Module:
    """A weight as a direction and the norm of each slice along ``dim``.

    >>> layer = weft.nn.utils.parametrizations.weight_norm(weft.nn.Linear(3, 2))
    >>> layer.parametrizations.weight.original0.shape
    (2, 1)
    """
    parametrize.register_parametrization(module, name, _WeightNorm(dim), unsafe=True)
    first, second = f"{name}_g", f"{name}_v"

    def rename(state: Any, prefix: str, *rest: Any) -> None:
        if prefix + first in state and prefix + second in state:
            lead = f"{prefix}parametrizations.{name}.original"
            state[f"{lead}0"] = state.pop(prefix + first)
            state[f"{lead}1"] = state.pop(prefix + second)

    module._register_load_state_dict_pre_hook(rename)
    return module


class _SpectralNorm(Module):
    """A weight divided by its largest singular value, by power iteration."""

    def __init__(
        self, weight: Tensor, n_power_iterations: int = 1, dim: int = 0,
        eps: float = 1e-12,
    ) -> None:  # fmt: skip
        super().__init__()
        if not -weight.ndim <= dim < weight.ndim:
            raise IndexError(
                f"spectral_norm: dimension {dim} is out of range for shape "
                f"{tuple(weight.shape)}"
            )
        if n_power_iterations <= 0:
            raise ValueError(
                "Expected n_power_iterations to be positive, but got "
                f"n_power_iterations={n_power_iterations}"
            )
        self.dim = dim % weight.ndim
        self.eps, self.n_power_iterations = eps, n_power_iterations
        if weight.ndim > 1:
            matrix = self._matrix(weight.detach())
            u, v = (weft.randn(n, dtype=weight.dtype) for n in matrix.shape)
            self.register_buffer("_u", F.normalize(u, dim=0, eps=eps))
            self.register_buffer("_v", F.normalize(v, dim=0, eps=eps))
            with no_grad():
                self._iterate(matrix, 15)

    def _matrix(self, weight: Tensor) -> Tensor:
        return weight.movedim(self.dim, 0).flatten(1)

    def _iterate(self, matrix: Tensor, times: int) -> None:
        for _ in range(times):
            self._u.copy_(F.normalize(matrix.mv(self._v), dim=0, eps=self.eps))
            self._v.copy_(F.normalize(matrix.T.mv(self._u), dim=0, eps=self.eps))

    def forward(self, weight: Tensor) -> Tensor:
        if weight.ndim == 1:
            return F.normalize(weight, dim=0, eps=self.eps)
        matrix = self._matrix(weight)
        if self.training:
            with no_grad():
                self._iterate(matrix.detach(), self.n_power_iterations)
        u, v = self._u.clone(), self._v.clone()
        return weight / u.dot(matrix.mv(v))

    def right_inverse(self, value: Tensor) -> Tensor:
        return value


def _usual_dim(module: Module, dim: int | None) -> int:
    """The dimension of outputs: the second for transposed convolutions."""
    if dim is not None:
        return dim
    from weft.nn.conv import _ConvTranspose

    return 1 if isinstance(module, _ConvTranspose) else 0


def spectral_norm(
    module: Module, name: str = "weight", n_power_iterations: int = 1,
    eps: float = 1e-12, dim: int | None = None,
) -> Module:  # fmt: skip
    """A weight divided by its largest singular value (Miyato et al., 2018).

    >>> layer = weft.nn.utils.parametrizations.spectral_norm(weft.nn.Linear(4, 4))
    >>> bool(abs(weft.linalg.norm(layer.weight.detach(), 2) - 1) < 0.1)
    True
    """
    weight = getattr(module, name)
    made = _SpectralNorm(weight, n_power_iterations, _usual_dim(module, dim), eps)
    return parametrize.register_parametrization(module, name, made)


_MAPS = ("matrix_exp", "cayley", "householder")


class _Orthogonal(Module):
    """A matrix with orthonormal columns (or rows, if there are fewer)."""

    base: Any

    def __init__(self, weight: Tensor, kind: str) -> None:
        super().__init__()
        self.kind = kind
        self.register_buffer("base", None)

    def forward(self, X: Tensor) -> Tensor:
        wide = X.shape[-2] < X.shape[-1]
        x = X.mT if wide else X
        q = self._product(x) if self.kind == "householder" else self._rotation(x)
        if self.base is not None:
            q = self.base @ q
        return q.mT if wide else q

    def _rotation(self, x: Tensor) -> Tensor:
        """The rotation of a skew-symmetric matrix, by its lower triangle."""
        n, k = x.shape[-2:]
        x = x.tril()
        if n != k:
            x = weft.cat([x, x.new_zeros(*x.shape[:-1], n - k)], -1)
        skew = x - x.mT
        if self.kind == "matrix_exp":
            return weft.linalg.matrix_exp(skew)[..., :k]
        one = weft.eye(n, dtype=x.dtype)
        return weft.linalg.solve(one - skew / 2, one + skew / 2)[..., :k]

    def _product(self, x: Tensor) -> Tensor:
        """The product of Householder's reflections in the columns."""
        n, k = x.shape[-2:]
        lower = x.tril(-1)
        scale = 2 / (1 + (lower * lower).sum(-2))
        q = weft.eye(n, k, dtype=x.dtype).expand(*x.shape[:-2], n, k)
        for i in reversed(range(k)):
            v = lower[..., i : i + 1] + weft.eye(n, k, dtype=x.dtype)[:, i : i + 1]
            q = q - scale[..., i].unsqueeze(-1).unsqueeze(-1) * v @ (v.mT @ q)
        signs = x.diagonal(dim1=-2, dim2=-1).sign()
        return q * signs.detach().unsqueeze(-2)

    def right_inverse(self, Q: Tensor) -> Tensor:
        wide = Q.shape[-2] < Q.shape[-1]
        q = Q.mT if wide else Q
        n, k = q.shape[-2:]
        if n != k and self.kind != "householder":
            q = weft.cat([q, weft.randn(*q.shape[:-1], n - k, dtype=q.dtype)], -1)
        if n != k and self.kind == "householder":
            q = weft.cat([q, weft.randn(*q.shape[:-1], n - k, dtype=q.dtype)], -1)
        full, r = weft.linalg.qr(q)
        signs = r.diagonal(dim1=-2, dim2=-1).sign().unsqueeze(-2)
        self.base = full * signs  # the orthogonal matrix next to the one given
        start = weft.zeros(n, k, dtype=Q.dtype)
        start.diagonal().fill_(-1.0)
        start = start.expand(*q.shape[:-2], n, k).clone()
        return start.mT.contiguous() if wide else start


def orthogonal(
    module: Module, name: str = "weight", orthogonal_map: str | None = None, *,
    use_trivialization: bool = True,
) -> Module:  # fmt: skip
    """A weight that is orthogonal, and stays so when it is trained.

    >>> layer = weft.nn.utils.parametrizations.orthogonal(weft.nn.Linear(3, 3))
    >>> q = layer.weight.detach()
    >>> bool((q @ q.T - weft.eye(3)).abs().max() < 1e-5)
    True
    """
    weight = getattr(module, name)
    if weight.ndim < 2:
        raise ValueError(
            "Expected a matrix or batch of matrices. Got a tensor of "
            f"{weight.ndim} dimensions."
        )
    square = weight.shape[-2] == weight.shape[-1]
    kind = orthogonal_map or ("matrix_exp" if square else "householder")
    if kind not in _MAPS:
        raise ValueError(
            'orthogonal_map has to be one of "matrix_exp", "cayley", "householder". '
            f"Got: {kind}"
        )
    if not use_trivialization:
        raise ArgumentError(
            "orthogonal: use_trivialization=False is not taken; leave it out"
        )
    return parametrize.register_parametrization(
        module, name, _Orthogonal(weight, kind), unsafe=True
    )
