"""Methods of functions whose first argument is not the tensor."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from weft.ops import gamma_functions, select

if TYPE_CHECKING:
    from weft.core.tensor import Tensor


class Functions:
    """The functions whose tensor is not their first argument."""

    def where(self: Any, condition: Any, other: Any) -> Tensor:
        """This tensor where the condition holds, ``other`` elsewhere.

        >>> x = weft.tensor([-1.0, 4.0])
        >>> x.where(x > 0, 0.0)
        tensor([0., 4.], shape=(2,), dtype=float32)
        """
        return select.where(condition, self, other)

    def polygamma(self: Any, n: int) -> Tensor:
        """The n-th derivative of ``digamma`` of each element.

        >>> weft.tensor([1.0]).polygamma(1)
        tensor([1.6449], shape=(1,), dtype=float32)
        """
        return gamma_functions.polygamma(n, self)
