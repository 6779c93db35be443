"""Softmax over very many classes, by frequency (Grave et al., 2017)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import weft
from weft import Tensor
from weft.errors import ArgumentError, ShapeError
from weft.nn import functional as F
from weft.nn.containers import ModuleList, Sequential
from weft.nn.linear import Linear
from weft.nn.module import Module


class _ASMoutput(NamedTuple):
    """Each sample's log-probability of its target, and the mean loss."""

    output: Tensor
    loss: Tensor


class AdaptiveLogSoftmaxWithLoss(Module):
    """Log-softmax whose rare classes are in clusters with smaller projections.

    Classes are sorted by frequency, the most frequent first; ``cutoffs`` divide them.

    >>> loss = weft.nn.AdaptiveLogSoftmaxWithLoss(16, 20, [5, 10], div_value=2.0)
    >>> loss.log_prob(weft.zeros(3, 16)).shape
    (3, 20)
    """

    def __init__(
        self,
        in_features: int,
        n_classes: int,
        cutoffs: Sequence[int],
        div_value: float = 4.0,
        head_bias: bool = False,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__()
        cut = [int(c) for c in cutoffs]
        if not cut or cut != sorted(set(cut)) or cut[0] <= 0 or cut[-1] > n_classes - 1:
            raise ArgumentError(
                "AdaptiveLogSoftmaxWithLoss: expected cutoffs that are positive, "
                f"increasing and below n_classes={n_classes}, got {list(cutoffs)}"
            )
        options = {"device": device, "dtype": dtype}
        self.in_features, self.n_classes = in_features, n_classes
        self.cutoffs = [*cut, n_classes]
        self.div_value, self.head_bias = div_value, head_bias
        self.shortlist_size = self.cutoffs[0]
        self.n_clusters = len(self.cutoffs) - 1
        self.head_size = self.shortlist_size + self.n_clusters
        self.head = Linear(in_features, self.head_size, bias=head_bias, **options)
        self.tail = ModuleList()
        for i in range(self.n_clusters):
            width = int(in_features // div_value ** (i + 1))
            count = self.cutoffs[i + 1] - self.cutoffs[i]
            self.tail.append(
                Sequential(
                    Linear(in_features, width, bias=False, **options),
                    Linear(width, count, bias=False, **options),
                )
            )

    def reset_parameters(self) -> None:
        """Initialise anew."""
        self.head.reset_parameters()
        for first, second in self.tail:
            first.reset_parameters()
            second.reset_parameters()

    def forward(self, input_: Tensor, target_: Tensor) -> _ASMoutput:
        single = target_.ndim == 0
        if (single and input_.ndim != 1) or (not single and input_.ndim != 2):
            raise ShapeError(
                "AdaptiveLogSoftmaxWithLoss: expected input of shape (N, "
                f"{self.in_features}) and targets (N,), or ({self.in_features},) and "
                f"(), got {input_.shape} and {target_.shape}"
            )
        x = input_.unsqueeze(0) if single else input_
        target = target_.unsqueeze(0) if single else target_
        output = self.log_prob(x).gather(1, target.unsqueeze(1)).squeeze(1)
        loss = -output.mean()
        return _ASMoutput(output.squeeze(0) if single else output, loss)

    def log_prob(self, input: Tensor) -> Tensor:
        """The log-probabilities of all classes: (N, n_classes)."""
        head = F.log_softmax(self.head(input), 1)
        short = self.shortlist_size
        parts = [head[:, :short]]
        for i, cluster in enumerate(self.tail):
            inside = F.log_softmax(cluster(input), 1)
            parts.append(inside + head[:, short + i : short + i + 1])
        return weft.cat(parts, 1)

    def predict(self, input: Tensor) -> Tensor:
        """The class with the highest probability of each sample."""
        return self.log_prob(input).argmax(1)
