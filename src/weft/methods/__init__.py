"""The methods of ``weft.Tensor``.

Functions are declared to be methods where they are defined (``ops.public``); here are
the others. Type checkers see ``Methods`` as ``Tensor``'s base; when this module is
imported, the members of its bases are put on ``Tensor`` itself.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from weft.core.op import define_later
from weft.core.tensor import Tensor
from weft.methods.conversion import Casts, Conversion
from weft.methods.gradients import Gradients
from weft.methods.inplace import InPlace
from weft.methods.inspection import Inspection
from weft.methods.layouts import Layouts
from weft.methods.memory import Memory
from weft.methods.operators import Operators
from weft.methods.subclasses import Subclasses
from weft.ops import (  # noqa: F401  # they declare functions and methods
    arithmetic,
    bits,
    broadcasting,
    comparison,
    complex_numbers,
    copies,
    creation,
    extremes,
    gathering,
    index,
    indexing,
    joining,
    operands,
    padding,
    predicates,
    probabilities,
    products,
    random,
    reduce,
    rounding,
    select,
    shaping,
    slicing,
    sorting,
    statistics,
    transcendental,
)
from weft.ops.public import declare_later

# Importing weft stays light without these.
declare_later("weft.linalg.factoring", "cholesky")
declare_later(
    "weft.linalg.checked",
    "cholesky_inverse cholesky_solve qr svd triangular_solve",
)
declare_later("weft.linalg.householder", "geqrf orgqr ormqr")
declare_later("weft.linalg.low_rank", "lobpcg pca_lowrank svd_lowrank", methods="")
declare_later("weft.linalg.lu_factors", "lu lu_solve lu_unpack", methods="lu_solve")
declare_later(
    "weft.ops.compositions",
    "addbmm as_strided_scatter binomial constant_pad_nd "
    "fill frexp frobenius_norm ger gradient index_reduce mvlgamma narrow_copy "
    "nonzero_static norm_except_dim poisson renorm segment_reduce "
    "split_with_sizes unsafe_chunk unsafe_split unsafe_split_with_sizes",
    methods="addbmm addbmm_ as_strided_scatter frexp ger "
    "index_reduce index_reduce_ mvlgamma mvlgamma_ narrow_copy nonzero_static renorm "
    "renorm_ split_with_sizes unsafe_chunk unsafe_split unsafe_split_with_sizes",
)
declare_later(
    "weft.ops.incomplete_gamma", "igamma igammac",
    methods="igamma igamma_ igammac igammac_",
)  # fmt: skip
declare_later("weft.spectrogram", "istft stft")
declare_later(
    "weft.ops.quantized",
    "fake_quantize_per_channel_affine fake_quantize_per_tensor_affine", methods="",
)  # fmt: skip
declare_later(
    "weft.ops.windows",
    "bartlett_window blackman_window hamming_window hann_window kaiser_window",
    methods="",
)
declare_later("weft.ops.histograms", "histogram histogramdd", methods="histogram")
declare_later(
    "weft.ops.from_memory",
    "empty_permuted empty_strided from_file frombuffer", methods="",
)  # fmt: skip
declare_later(
    "weft.ops.ranges",
    "cartesian_prod combinations linspace logspace range tril_indices triu_indices "
    "vander",
    methods="",
)
declare_later("weft.ops.strided", "as_strided", methods="as_strided unfold")
declare_later("weft.linalg.norms", "nuclear_norm", methods="")
declare_later(
    "weft.linalg.powers", "chain_matmul cross matrix_exp matrix_power",
    methods="cross matrix_exp matrix_power",
)  # fmt: skip
declare_later("weft.linalg.solving", "det inverse logdet pinverse slogdet")
declare_later("weft.ops.activation", "relu", methods="relu relu_")
declare_later("weft.ops.bessel_functions", "i0")
declare_later(
    "weft.ops.cumulative",
    "cumprod cumsum cumulative_trapezoid diff logcumsumexp prod trapezoid trapz",
    methods="cumprod cumprod_ cumsum cumsum_ diff logcumsumexp prod",
)
declare_later(
    "weft.ops.diagonals",
    "block_diag diag diag_embed diagflat diagonal diagonal_scatter trace tril triu",
    methods="diag diag_embed diagflat diagonal diagonal_scatter trace tril tril_ triu "
    "triu_",
)
declare_later("weft.ops.einsum", "einsum", methods="")
declare_later(
    "weft.ops.error_functions", "erf erfc erfinv",
    methods="erf erf_ erfc erfc_ erfinv erfinv_",
)  # fmt: skip
declare_later(
    "weft.ops.gamma_functions", "digamma lgamma polygamma",
    methods="digamma digamma_ lgamma lgamma_",
)  # fmt: skip
declare_later("weft.ops.gamma_sampling", "_standard_gamma", methods="")
declare_later(
    "weft.ops.dirichlet_sampling", "_dirichlet_grad _sample_dirichlet", methods=""
)
declare_later(
    "weft.ops.masks", "masked_fill masked_scatter masked_select one_hot",
    methods="masked_fill masked_fill_ masked_scatter masked_scatter_ masked_select",
)  # fmt: skip
declare_later(
    "weft.ops.scattering", "scatter scatter_add scatter_reduce",
    methods="scatter scatter_ scatter_add scatter_add_ scatter_reduce scatter_reduce_",
)  # fmt: skip
declare_later("weft.ops.searching", "bucketize searchsorted", methods="")
define_later(
    "weft.distributed.records",
    "weft.graph.control", "weft.linalg", "weft.ops.activation", "weft.ops.attention",
    "weft.ops.bessel_functions", "weft.ops.conv", "weft.ops.conv_last",
    "weft.ops.cumulative",
    "weft.ops.diagonals", "weft.ops.dirichlet_sampling", "weft.ops.error_functions",
    "weft.ops.masks", "weft.ops.scattering", "weft.ops.strided",
    "weft.ops.gamma_functions", "weft.ops.gamma_sampling",
    "weft.ops.cylinder_functions",
    "weft.ops.incomplete_gamma", "weft.ops.polynomials", "weft.ops.searching",
    "weft.ops.fourier", "weft.ops.pooling", "weft.ops.quantized", "weft.ops.resample",
    "weft.ops.sparse_products",
)  # fmt: skip

if TYPE_CHECKING:
    from weft.methods._declared import Declared
else:
    Declared = object


class Functions:
    """Methods of functions whose first argument is not the tensor."""

    def where(self: Any, condition: Any, other: Any) -> Tensor:
        """This tensor where the condition holds, ``other`` elsewhere.

        >>> x = weft.tensor([-1.0, 4.0])
        >>> x.where(x > 0, 0.0)
        tensor([0., 4.])
        """
        return select.where(condition, self, other)

    def polygamma(self: Any, n: int) -> Tensor:
        """The n-th derivative of ``digamma`` of each element.

        >>> weft.tensor([1.0]).polygamma(1)
        tensor([1.6449])
        """
        from weft.ops import gamma_functions

        return gamma_functions.polygamma(n, self)


class Methods(
    Operators,
    Functions,
    InPlace,
    Inspection,
    Conversion,
    Memory,
    Gradients,
    Layouts,
    Casts,
    Subclasses,
    Declared,
):
    """The methods of ``weft.Tensor``."""


def _install() -> None:
    own = ("__module__", "__dict__", "__weakref__", "__doc__", "__qualname__")
    for part in Methods.__bases__:
        if part is object:
            continue
        for name, value in vars(part).items():
            if name not in own:
                setattr(Tensor, name, value)


_install()
