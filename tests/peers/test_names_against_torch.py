# ruff: noqa: E501
"""PyTorch's less usual names, argument by argument, against PyTorch."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("torch", reason="compares with PyTorch, which is not installed")

from cases import arrays
from compare import both, compare

CASES = """
x.shape
x.size()
x.shape[1:]
x.shape + (2,)
x.shape.numel()
T.Size([2, 3]).numel()
x.data
(T.pi, T.e, T.inf, T.newaxis)
T.float, T.int, T.bool, T.double, T.long
T.FloatTensor([1, 2])
T.LongTensor([[1, 2], [3, 4]])
T.FloatTensor(2, 3).shape
T.IntTensor(2).dtype
T.BoolTensor([0, 1, 1])
T.ByteTensor([1, 2]).type()
isinstance(x, T.FloatTensor)
isinstance(x, T.DoubleTensor)
isinstance(i, T.LongTensor)
isinstance(x, T.Tensor)
isinstance(x.dtype, T.dtype)
x.type()
i.type('torch.FloatTensor')
x.type(T.LongTensor)
x.new([1, 2])
i.new(2, 3).shape
x.new_empty_strided((2, 3), (1, 2)).stride()
T.empty_strided((2, 3), (1, 2)).stride()
T.empty_permuted((2, 3, 4), (0, 2, 1)).stride()
T.frombuffer(bytearray([1, 0, 2, 0]), dtype=T.int16)
T.range(1, 4)
T.range(1, 4, 0.5)
x.is_cuda, x.is_sparse, x.is_quantized, x.is_meta, x.is_mps, x.is_nested
str(x.layout).split('.')[1]
x.get_device()
x.is_pinned(), x.is_shared()
x.element_size()
x.untyped_storage().nbytes()
x[1:].untyped_storage().nbytes()
x[1:].untyped_storage().data_ptr() == x.data_ptr()
x[1:, 2:].storage().tolist()
x.storage().size()
i.storage()[3]
a = x.clone(); a.resize_(2, 2); a
a = x.clone(); a.resize_(3, 4); a
a = x.clone(); a.resize_as_(v[:3]); a
a = T.zeros(2); a.set_(x); a
a = T.zeros(2); a.set_(x.storage(), 2, (2, 2), (4, 1)); a
a = x.clone(); a.data.mul_(2); a
a = x.clone(); a.data = y; a
x.dim_order()
x.t().dim_order()
x.is_set_to(x), x.is_set_to(x[1:])
a = v.clone(); a.apply_(lambda e: e * 2); a
a = v.clone(); a.map_(v, lambda e, f: e + f); a
c.is_conj() or True
c.resolve_conj()
x.split_with_sizes([1, 2])
x.unsafe_split(2)
x.unsafe_chunk(2)
x.narrow_copy(1, 1, 2)
T.permute_copy(x, (1, 0))
T.view_copy(x, (4, 3))
T.slice_copy(x, 1, 0, 4, 2)
T.split_copy(x, 2)
T.unbind_copy(x)
T.fill(x, 3.0)
T.conj_physical(c)
T.constant_pad_nd(x, (1, 2), 5.0)
T.as_strided_scatter(x, T.zeros(2, 2), (2, 2), (1, 2))
T.relu_(x.clone())
T.abs_(x.clone())
T.addbmm(T.ones(3, 3), w, w.mT, beta=2, alpha=3)
T.chain_matmul(m, m, m)
T.ger(v, v)
T.frobenius_norm(x, (0, 1))
T.nuclear_norm(m)
T.norm_except_dim(x, 2, 0)
T.norm_except_dim(w, 2, 1)
T.renorm(x, 2, 0, 1.0)
T.renorm(w, 1, 1, 0.5)
x.index_reduce(0, k[:3] % 3, y, 'amax')
x.index_reduce(0, k[:3] % 3, y, 'prod', include_self=False)
x.index_reduce(1, k, y, 'mean')
x.index_reduce(1, k, y, 'sum')
T.segment_reduce(v, 'max', lengths=T.tensor([2, 0, 3]))
T.segment_reduce(v, 'mean', lengths=T.tensor([2, 3]))
T.segment_reduce(x, 'sum', lengths=T.tensor([1, 2]))
T.segment_reduce(v, 'min', offsets=T.tensor([0, 2, 5]))
T.segment_reduce(v, 'prod', lengths=T.tensor([2, 3]), initial=2.0)
T.gradient(v)
T.gradient(x)
T.gradient(x, spacing=2.0, dim=1)
T.gradient(v, spacing=(T.tensor([0.0, 1.0, 3.0, 4.0, 7.0]),))
T.gradient(v, spacing=(T.tensor([0.0, 1.0, 3.0, 4.0, 7.0]),), edge_order=2)
T.gradient(x, dim=(0, 1), edge_order=1)
T.gradient(x, edge_order=2)
T.frexp(x)
T.frexp(o)
x.nonzero_static(size=3)
i.nonzero_static(size=14, fill_value=-7)
T.mvlgamma(y + 2, 3)
T.histogram(v, 3)
T.histogram(v, 4, range=(-1.0, 1.0))
T.histogram(v, T.tensor([-1.0, 0.0, 1.0]), weight=v.abs())
T.histogram(v, 4, density=True)
T.histogramdd(x[:, :2], bins=[2, 3])
T.histogramdd(x[:, :2], bins=3, density=True)
T.histogramdd(x[:, :2], bins=[2, 3], range=[-2.0, 2.0, -1.0, 1.0])
T.poisson(T.zeros(3))
T.binomial(T.tensor([3.0, 5.0]), T.tensor([1.0, 0.0]))
T.typename(x)
T.linalg.lu(d)
T.linalg.lu(d.T)
T.linalg.lu(dm)
T.linalg.lu(dw)
T.linalg.lu(cd)
T.linalg.lu_factor(d)
T.linalg.lu_factor_ex(dm)
T.linalg.lu_solve(*T.linalg.lu_factor(dm), dm)
T.linalg.lu_solve(*T.linalg.lu_factor(dm), dm, left=False)
T.linalg.lu_solve(*T.linalg.lu_factor(dm), dm, adjoint=True)
T.linalg.lu_solve(*T.linalg.lu_factor(cd), cd, left=False, adjoint=True)
T.lu_solve(dm, *T.linalg.lu_factor(dm))
T.lu_unpack(*T.linalg.lu_factor(d))
T.lu(dm)
dm.geqrf()
T.linalg.householder_product(*T.geqrf(dm))
T.orgqr(*T.geqrf(d.T))
T.ormqr(*T.geqrf(dm), dm)
T.ormqr(*T.geqrf(dm), dm, True, True)
T.ormqr(*T.geqrf(dm), dm, False, True)
T.ormqr(*T.geqrf(cd), cd, True, True)
T.linalg.inv_ex(dm)
T.linalg.inv_ex(T.zeros(2, 2)).info
T.linalg.solve_ex(dm, dm)
T.linalg.cholesky_ex(dm @ dm.T + T.eye(4))
T.linalg.cholesky_ex(-T.eye(3)).info
T.linalg.tensorinv(dm.reshape(2, 2, 4), 2)
T.linalg.tensorsolve(dm.reshape(2, 2, 4), dm[:2, :2])
T.linalg.vander(v.double())
T.linalg.vander(v.double(), N=3)
T.cholesky_solve(dm, T.linalg.cholesky(dm @ dm.T + T.eye(4)))
T.cholesky_inverse(T.linalg.cholesky(dm @ dm.T + T.eye(4)))
T.cholesky_inverse(T.linalg.cholesky(dm @ dm.T + T.eye(4)).mT, upper=True)
T.triangular_solve(dm, dm)
T.triangular_solve(dm, dm, upper=False, transpose=True)
T.svd(dm)[1]
T.qr(dm)[1].abs()
T.svd_lowrank(dm, q=4)[1]
T.pca_lowrank(dm, q=3)[1]
T.lobpcg(dm @ dm.T, 1)[0]
T.hann_window(7)
T.hann_window(7, periodic=False)
T.hann_window(1)
T.hann_window(0)
T.hamming_window(6, True, 0.5, 0.4)
T.blackman_window(9, dtype=T.float64)
T.bartlett_window(6)
T.bartlett_window(7, False)
T.kaiser_window(8, True, 3.0, dtype=T.float64)
T.kaiser_window(8, False, dtype=T.float64)
T.signal.windows.hann(6)
T.signal.windows.hamming(6, sym=False)
T.signal.windows.blackman(6, dtype=T.float64)
T.signal.windows.bartlett(6)
T.signal.windows.bartlett(7, sym=False)
T.signal.windows.kaiser(6, beta=2.0)
T.signal.windows.cosine(6)
T.signal.windows.cosine(6, sym=False)
T.signal.windows.gaussian(6, std=0.7)
T.signal.windows.gaussian(7, sym=False)
T.signal.windows.exponential(6, tau=2.0)
T.signal.windows.exponential(6, center=1, tau=2.0, sym=False)
T.signal.windows.general_cosine(6, a=[0.4, 0.3, 0.2])
T.signal.windows.general_hamming(6, alpha=0.6)
T.signal.windows.nuttall(7)
T.signal.windows.hann(-1)
T.stft(sig, 8, return_complex=True)
T.stft(sig, 8, 3, 6, T.hann_window(6, dtype=T.float64), return_complex=True)
T.stft(sig, 8, 3, window=T.hann_window(8, dtype=T.float64), center=False, return_complex=True)
T.stft(sig[0], 8, 2, normalized=True, return_complex=True)
T.stft(sig, 8, 3, onesided=False, return_complex=True)
T.stft(sig, 8, 3, pad_mode='constant', return_complex=False)
T.stft(sig + 1j * sig, 8, 3, return_complex=True)
T.stft(sig, 8)
T.stft(sig, 64, return_complex=True)
sig.stft(8, return_complex=True)
h = T.hann_window(8, dtype=T.float64); T.istft(T.stft(sig, 8, window=h, return_complex=True), 8, window=h)
h = T.hann_window(8, dtype=T.float64); T.istft(T.stft(sig, 8, 2, window=h, return_complex=True), 8, 2, window=h, length=18)
h = T.hann_window(6, dtype=T.float64); T.istft(T.stft(sig, 8, 2, 6, h, normalized=True, return_complex=True), 8, 2, 6, h, normalized=True)
T.istft(T.stft(sig, 8, 2, center=False, return_complex=True), 8, 2, center=False)
T.istft(T.stft(sig, 8, 2, onesided=False, return_complex=True), 8, 2, onesided=False, return_complex=True)
T.istft(sig, 8)
a = sig.clone().requires_grad_(); T.stft(a, 8, 3, return_complex=True).abs().sum().backward(); a.grad
a = T.stft(sig, 8, 2, return_complex=True).requires_grad_(); (T.istft(a, 8, 2) ** 2).sum().backward(); a.grad
T.special.gammainc(dy, dy + 1)
T.special.gammaincc(dy, dy + 1)
T.igamma(dy, dy), T.igammac(dy, dy)
T.special.zeta(dy + 1, dy)
a = dy.clone().requires_grad_(); T.igamma(dy, a).sum().backward(); a.grad
a = dy.clone().requires_grad_(); T.special.zeta(dy + 1, a).sum().backward(); a.grad
T.special.chebyshev_polynomial_t(d, 5)
T.special.chebyshev_polynomial_u(d, T.tensor([0.0, 1.0, 2.5, 7.0]).double())
T.special.chebyshev_polynomial_v(d, -1)
T.special.shifted_chebyshev_polynomial_w(d, 3)
T.special.hermite_polynomial_h(d, 4)
T.special.hermite_polynomial_he(d, 4)
T.special.laguerre_polynomial_l(d, 4)
T.special.legendre_polynomial_p(d, 4)
T.special.modified_bessel_i0(d), T.special.modified_bessel_i1(d)
T.special.spherical_bessel_j0(d)
T.special.airy_ai(y)
T.special.bessel_j0(x), T.special.bessel_j1(x)
T.special.bessel_y0(y), T.special.bessel_y1(y)
T.special.modified_bessel_k0(y), T.special.modified_bessel_k1(y)
T.special.scaled_modified_bessel_k0(y), T.special.scaled_modified_bessel_k1(y)
""".strip().splitlines()  # fmt: skip


def make_inputs() -> dict:
    found = {name: both(*given) for name, given in arrays().items()}
    for new, old in (("dm", "m"), ("dw", "w")):
        found[new] = tuple(t.double() for t in found[old])
    found["dy"] = tuple(t.double() for t in found["y"])
    found["sig"] = both(np.sin(np.arange(40.0) ** 1.3).reshape(2, 20))
    rows = [t.double() for t in found["m"]]
    found["cd"] = tuple(r + 1j * r.T for r in rows)
    return found


@pytest.mark.parametrize("expression", CASES)
def test_same_as_pytorch(expression: str) -> None:
    assert not (problem := compare(expression, make_inputs())), problem
