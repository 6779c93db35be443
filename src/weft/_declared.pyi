# Written by tools/stubs.py from the declarations of functions.

from weft.linalg.checked import cholesky_inverse as cholesky_inverse
from weft.linalg.checked import cholesky_solve as cholesky_solve
from weft.linalg.checked import qr_of
from weft.linalg.checked import svd_of
from weft.linalg.checked import triangular_solve as triangular_solve
from weft.linalg.factoring import cholesky as cholesky
from weft.linalg.householder import geqrf as geqrf
from weft.linalg.householder import orgqr as orgqr
from weft.linalg.householder import ormqr as ormqr
from weft.linalg.low_rank import lobpcg as lobpcg
from weft.linalg.low_rank import pca_lowrank as pca_lowrank
from weft.linalg.low_rank import svd_lowrank as svd_lowrank
from weft.linalg.lu_factors import lu_of
from weft.linalg.lu_factors import lu_solved
from weft.linalg.lu_factors import lu_unpack as lu_unpack
from weft.linalg.norms import nuclear_norm as nuclear_norm
from weft.linalg.powers import chain_matmul as chain_matmul
from weft.linalg.powers import cross_along
from weft.linalg.powers import matrix_exp as matrix_exp
from weft.linalg.powers import matrix_power as matrix_power
from weft.linalg.solving import det as det
from weft.linalg.solving import inverse as inverse
from weft.linalg.solving import logdet as logdet
from weft.linalg.solving import pinverse as pinverse
from weft.linalg.solving import slogdet as slogdet
from weft.ops.activation import relu as relu
from weft.ops.arithmetic import abs as abs
from weft.ops.arithmetic import add as add
from weft.ops.arithmetic import addcdiv as addcdiv
from weft.ops.arithmetic import addcmul as addcmul
from weft.ops.arithmetic import copysign as copysign
from weft.ops.arithmetic import div as div
from weft.ops.arithmetic import float_power as float_power
from weft.ops.arithmetic import floor_divide as floor_divide
from weft.ops.arithmetic import fmod as fmod
from weft.ops.arithmetic import ldexp as ldexp
from weft.ops.arithmetic import lerp as lerp
from weft.ops.arithmetic import mul as mul
from weft.ops.arithmetic import neg as neg
from weft.ops.arithmetic import positive as positive
from weft.ops.arithmetic import pow as pow
from weft.ops.arithmetic import reciprocal as reciprocal
from weft.ops.arithmetic import remainder as remainder
from weft.ops.arithmetic import rsub as rsub
from weft.ops.arithmetic import sgn as sgn
from weft.ops.arithmetic import sign as sign
from weft.ops.arithmetic import square as square
from weft.ops.arithmetic import sub as sub
from weft.ops.bessel_functions import i0 as i0
from weft.ops.bits import bitwise_and as bitwise_and
from weft.ops.bits import bitwise_left_shift as bitwise_left_shift
from weft.ops.bits import bitwise_not as bitwise_not
from weft.ops.bits import bitwise_or as bitwise_or
from weft.ops.bits import bitwise_right_shift as bitwise_right_shift
from weft.ops.bits import bitwise_xor as bitwise_xor
from weft.ops.bits import gcd as gcd
from weft.ops.bits import lcm as lcm
from weft.ops.bits import logical_and as logical_and
from weft.ops.bits import logical_not as logical_not
from weft.ops.bits import logical_or as logical_or
from weft.ops.bits import logical_xor as logical_xor
from weft.ops.broadcasting import _public_broadcast_shapes
from weft.ops.broadcasting import broadcast_tensors as broadcast_tensors
from weft.ops.broadcasting import broadcast_to as broadcast_to
from weft.ops.broadcasting import expand as expand
from weft.ops.broadcasting import meshgrid as meshgrid
from weft.ops.comparison import allclose as allclose
from weft.ops.comparison import eq as eq
from weft.ops.comparison import equal as equal
from weft.ops.comparison import ge as ge
from weft.ops.comparison import gt as gt
from weft.ops.comparison import isclose as isclose
from weft.ops.comparison import le as le
from weft.ops.comparison import lt as lt
from weft.ops.comparison import ne as ne
from weft.ops.complex_numbers import complex as complex
from weft.ops.complex_numbers import conj as conj
from weft.ops.complex_numbers import conj_physical as conj_physical
from weft.ops.complex_numbers import imag as imag
from weft.ops.complex_numbers import isreal as isreal
from weft.ops.complex_numbers import polar as polar
from weft.ops.complex_numbers import real as real
from weft.ops.complex_numbers import view_as_complex as view_as_complex
from weft.ops.complex_numbers import view_as_real as view_as_real
from weft.ops.compositions import addbmm as addbmm
from weft.ops.compositions import as_strided_scatter as as_strided_scatter
from weft.ops.compositions import binomial as binomial
from weft.ops.compositions import constant_pad_nd as constant_pad_nd
from weft.ops.compositions import fill as fill
from weft.ops.compositions import frexp as frexp
from weft.ops.compositions import frobenius_norm as frobenius_norm
from weft.ops.compositions import ger as ger
from weft.ops.compositions import gradient as gradient
from weft.ops.compositions import index_reduce as index_reduce
from weft.ops.compositions import mvlgamma as mvlgamma
from weft.ops.compositions import narrow_copy as narrow_copy
from weft.ops.compositions import nonzero_static as nonzero_static
from weft.ops.compositions import norm_except_dim as norm_except_dim
from weft.ops.compositions import poisson as poisson
from weft.ops.compositions import renorm as renorm
from weft.ops.compositions import segment_reduce as segment_reduce
from weft.ops.compositions import split_with_sizes as split_with_sizes
from weft.ops.compositions import unsafe_chunk as unsafe_chunk
from weft.ops.compositions import unsafe_split as unsafe_split
from weft.ops.compositions import unsafe_split_with_sizes as unsafe_split_with_sizes
from weft.ops.copies import clone as clone
from weft.ops.copies import detach as detach
from weft.ops.creation import arange as arange
from weft.ops.creation import as_tensor as as_tensor
from weft.ops.creation import asarray as asarray
from weft.ops.creation import empty as empty
from weft.ops.creation import empty_like as empty_like
from weft.ops.creation import eye as eye
from weft.ops.creation import from_numpy as from_numpy
from weft.ops.creation import full as full
from weft.ops.creation import full_like as full_like
from weft.ops.creation import ones as ones
from weft.ops.creation import ones_like as ones_like
from weft.ops.creation import scalar_tensor as scalar_tensor
from weft.ops.creation import tensor as tensor
from weft.ops.creation import zeros as zeros
from weft.ops.creation import zeros_like as zeros_like
from weft.ops.cumulative import cumprod as cumprod
from weft.ops.cumulative import cumsum as cumsum
from weft.ops.cumulative import cumulative_trapezoid as cumulative_trapezoid
from weft.ops.cumulative import diff as diff
from weft.ops.cumulative import logcumsumexp as logcumsumexp
from weft.ops.cumulative import prod as prod
from weft.ops.cumulative import trapezoid as trapezoid
from weft.ops.diagonals import block_diag as block_diag
from weft.ops.diagonals import diag as diag
from weft.ops.diagonals import diag_embed as diag_embed
from weft.ops.diagonals import diagflat as diagflat
from weft.ops.diagonals import diagonal as diagonal
from weft.ops.diagonals import diagonal_scatter as diagonal_scatter
from weft.ops.diagonals import trace as trace
from weft.ops.diagonals import tril as tril
from weft.ops.diagonals import triu as triu
from weft.ops.dirichlet_sampling import dirichlet_grad
from weft.ops.dirichlet_sampling import sample_dirichlet
from weft.ops.einsum import einsum as einsum
from weft.ops.error_functions import erf as erf
from weft.ops.error_functions import erfc as erfc
from weft.ops.error_functions import erfinv as erfinv
from weft.ops.extremes import amax as amax
from weft.ops.extremes import amin as amin
from weft.ops.extremes import aminmax as aminmax
from weft.ops.extremes import argmax as argmax
from weft.ops.extremes import argmin as argmin
from weft.ops.extremes import max as max
from weft.ops.extremes import min as min
from weft.ops.from_memory import empty_permuted as empty_permuted
from weft.ops.from_memory import empty_strided as empty_strided
from weft.ops.from_memory import from_file as from_file
from weft.ops.from_memory import frombuffer as frombuffer
from weft.ops.gamma_functions import digamma as digamma
from weft.ops.gamma_functions import lgamma as lgamma
from weft.ops.gamma_functions import polygamma as polygamma
from weft.ops.gamma_sampling import standard_gamma
from weft.ops.gathering import gather as gather
from weft.ops.gathering import take_along_dim as take_along_dim
from weft.ops.histograms import histogram as histogram
from weft.ops.histograms import histogramdd as histogramdd
from weft.ops.incomplete_gamma import igamma as igamma
from weft.ops.incomplete_gamma import igammac as igammac
from weft.ops.index import index_add as index_add
from weft.ops.index import index_copy as index_copy
from weft.ops.index import index_fill as index_fill
from weft.ops.index import index_select as index_select
from weft.ops.index import repeat_interleave as repeat_interleave
from weft.ops.index import take as take
from weft.ops.indexing import index_put as index_put
from weft.ops.indexing import put as put
from weft.ops.indexing import select_scatter as select_scatter
from weft.ops.indexing import slice_scatter as slice_scatter
from weft.ops.joining import cat as cat
from weft.ops.joining import column_stack as column_stack
from weft.ops.joining import dstack as dstack
from weft.ops.joining import hstack as hstack
from weft.ops.joining import stack as stack
from weft.ops.joining import vstack as vstack
from weft.ops.masks import masked_fill as masked_fill
from weft.ops.masks import masked_scatter as masked_scatter
from weft.ops.masks import masked_select as masked_select
from weft.ops.masks import one_hot as one_hot
from weft.ops.operands import argwhere as argwhere
from weft.ops.operands import nonzero as nonzero
from weft.ops.operands import unravel_index as unravel_index
from weft.ops.padding import flip as flip
from weft.ops.padding import fliplr as fliplr
from weft.ops.padding import flipud as flipud
from weft.ops.padding import pad as pad
from weft.ops.padding import repeat as repeat
from weft.ops.padding import roll as roll
from weft.ops.padding import rot90 as rot90
from weft.ops.padding import tile as tile
from weft.ops.predicates import can_cast as can_cast
from weft.ops.predicates import is_complex as is_complex
from weft.ops.predicates import is_floating_point as is_floating_point
from weft.ops.predicates import is_nonzero as is_nonzero
from weft.ops.predicates import is_same_size as is_same_size
from weft.ops.predicates import is_signed as is_signed
from weft.ops.predicates import is_tensor as is_tensor
from weft.ops.predicates import isfinite as isfinite
from weft.ops.predicates import isinf as isinf
from weft.ops.predicates import isnan as isnan
from weft.ops.predicates import isneginf as isneginf
from weft.ops.predicates import isposinf as isposinf
from weft.ops.predicates import numel as numel
from weft.ops.predicates import signbit as signbit
from weft.ops.probabilities import log_softmax as log_softmax
from weft.ops.probabilities import softmax as softmax
from weft.ops.products import addmm as addmm
from weft.ops.products import addmv as addmv
from weft.ops.products import addr as addr
from weft.ops.products import baddbmm as baddbmm
from weft.ops.products import bmm as bmm
from weft.ops.products import dot as dot
from weft.ops.products import inner as inner
from weft.ops.products import kron as kron
from weft.ops.products import matmul as matmul
from weft.ops.products import mm as mm
from weft.ops.products import mv as mv
from weft.ops.products import outer as outer
from weft.ops.products import tensordot as tensordot
from weft.ops.products import vdot as vdot
from weft.ops.quantized import fake_quantize_per_channel_affine as fake_quantize_per_channel_affine
from weft.ops.quantized import fake_quantize_per_tensor_affine as fake_quantize_per_tensor_affine
from weft.ops.random import bernoulli as bernoulli
from weft.ops.random import get_rng_state as get_rng_state
from weft.ops.random import initial_seed as initial_seed
from weft.ops.random import manual_seed as manual_seed
from weft.ops.random import multinomial as multinomial
from weft.ops.random import normal as normal
from weft.ops.random import rand as rand
from weft.ops.random import rand_like as rand_like
from weft.ops.random import randint as randint
from weft.ops.random import randint_like as randint_like
from weft.ops.random import randn as randn
from weft.ops.random import randn_like as randn_like
from weft.ops.random import randperm as randperm
from weft.ops.random import seed as seed
from weft.ops.random import set_rng_state as set_rng_state
from weft.ops.ranges import cartesian_prod as cartesian_prod
from weft.ops.ranges import combinations as combinations
from weft.ops.ranges import linspace as linspace
from weft.ops.ranges import logspace as logspace
from weft.ops.ranges import range_
from weft.ops.ranges import tril_indices as tril_indices
from weft.ops.ranges import triu_indices as triu_indices
from weft.ops.ranges import vander as vander
from weft.ops.reduce import all as all
from weft.ops.reduce import any as any
from weft.ops.reduce import count_nonzero as count_nonzero
from weft.ops.reduce import nansum as nansum
from weft.ops.reduce import sum as sum
from weft.ops.rounding import ceil as ceil
from weft.ops.rounding import floor as floor
from weft.ops.rounding import frac as frac
from weft.ops.rounding import nextafter as nextafter
from weft.ops.rounding import round as round
from weft.ops.rounding import trunc as trunc
from weft.ops.scattering import scatter as scatter
from weft.ops.scattering import scatter_add as scatter_add
from weft.ops.scattering import scatter_reduce as scatter_reduce
from weft.ops.searching import bucketize as bucketize
from weft.ops.searching import searchsorted as searchsorted
from weft.ops.select import clamp as clamp
from weft.ops.select import clamp_max as clamp_max
from weft.ops.select import clamp_min as clamp_min
from weft.ops.select import fmax as fmax
from weft.ops.select import fmin as fmin
from weft.ops.select import heaviside as heaviside
from weft.ops.select import maximum as maximum
from weft.ops.select import minimum as minimum
from weft.ops.select import nan_to_num as nan_to_num
from weft.ops.select import where as where
from weft.ops.shaping import adjoint as adjoint
from weft.ops.shaping import atleast_1d as atleast_1d
from weft.ops.shaping import atleast_2d as atleast_2d
from weft.ops.shaping import atleast_3d as atleast_3d
from weft.ops.shaping import flatten as flatten
from weft.ops.shaping import movedim as movedim
from weft.ops.shaping import permute as permute
from weft.ops.shaping import ravel as ravel
from weft.ops.shaping import reshape as reshape
from weft.ops.shaping import squeeze as squeeze
from weft.ops.shaping import t as t
from weft.ops.shaping import transpose as transpose
from weft.ops.shaping import unflatten as unflatten
from weft.ops.shaping import unsqueeze as unsqueeze
from weft.ops.slicing import chunk as chunk
from weft.ops.slicing import dsplit as dsplit
from weft.ops.slicing import hsplit as hsplit
from weft.ops.slicing import narrow as narrow
from weft.ops.slicing import select as select
from weft.ops.slicing import split as split
from weft.ops.slicing import tensor_split as tensor_split
from weft.ops.slicing import unbind as unbind
from weft.ops.slicing import vsplit as vsplit
from weft.ops.sorting import argsort as argsort
from weft.ops.sorting import bincount as bincount
from weft.ops.sorting import cummax as cummax
from weft.ops.sorting import cummin as cummin
from weft.ops.sorting import histc as histc
from weft.ops.sorting import isin as isin
from weft.ops.sorting import kthvalue as kthvalue
from weft.ops.sorting import median as median
from weft.ops.sorting import mode as mode
from weft.ops.sorting import msort as msort
from weft.ops.sorting import nanmedian as nanmedian
from weft.ops.sorting import nanquantile as nanquantile
from weft.ops.sorting import quantile as quantile
from weft.ops.sorting import sort as sort
from weft.ops.sorting import topk as topk
from weft.ops.sorting import unique as unique
from weft.ops.sorting import unique_consecutive as unique_consecutive
from weft.ops.statistics import cdist as cdist
from weft.ops.statistics import corrcoef as corrcoef
from weft.ops.statistics import cov as cov
from weft.ops.statistics import dist as dist
from weft.ops.statistics import logsumexp as logsumexp
from weft.ops.statistics import mean as mean
from weft.ops.statistics import nanmean as nanmean
from weft.ops.statistics import norm as norm
from weft.ops.statistics import std as std
from weft.ops.statistics import std_mean as std_mean
from weft.ops.statistics import var as var
from weft.ops.statistics import var_mean as var_mean
from weft.ops.strided import as_strided as as_strided
from weft.ops.transcendental import acos as acos
from weft.ops.transcendental import acosh as acosh
from weft.ops.transcendental import angle as angle
from weft.ops.transcendental import asin as asin
from weft.ops.transcendental import asinh as asinh
from weft.ops.transcendental import atan as atan
from weft.ops.transcendental import atan2 as atan2
from weft.ops.transcendental import atanh as atanh
from weft.ops.transcendental import cos as cos
from weft.ops.transcendental import cosh as cosh
from weft.ops.transcendental import deg2rad as deg2rad
from weft.ops.transcendental import exp as exp
from weft.ops.transcendental import exp2 as exp2
from weft.ops.transcendental import expm1 as expm1
from weft.ops.transcendental import hypot as hypot
from weft.ops.transcendental import log as log
from weft.ops.transcendental import log10 as log10
from weft.ops.transcendental import log1p as log1p
from weft.ops.transcendental import log2 as log2
from weft.ops.transcendental import logaddexp as logaddexp
from weft.ops.transcendental import logaddexp2 as logaddexp2
from weft.ops.transcendental import logit as logit
from weft.ops.transcendental import rad2deg as rad2deg
from weft.ops.transcendental import rsqrt as rsqrt
from weft.ops.transcendental import sigmoid as sigmoid
from weft.ops.transcendental import sin as sin
from weft.ops.transcendental import sinc as sinc
from weft.ops.transcendental import sinh as sinh
from weft.ops.transcendental import sqrt as sqrt
from weft.ops.transcendental import tan as tan
from weft.ops.transcendental import tanh as tanh
from weft.ops.transcendental import xlogy as xlogy
from weft.ops.windows import bartlett_window as bartlett_window
from weft.ops.windows import blackman_window as blackman_window
from weft.ops.windows import hamming_window as hamming_window
from weft.ops.windows import hann_window as hann_window
from weft.ops.windows import kaiser_window as kaiser_window
from weft.spectrogram import istft as istft
from weft.spectrogram import stft as stft

_dirichlet_grad = dirichlet_grad
_sample_dirichlet = sample_dirichlet
_standard_gamma = standard_gamma
absolute = abs
arccos = acos
arccosh = acosh
arcsin = asin
arcsinh = asinh
arctan = atan
arctan2 = atan2
arctanh = atanh
broadcast_shapes = _public_broadcast_shapes
clip = clamp
concat = cat
concatenate = cat
cross = cross_along
divide = div
fix = trunc
greater = gt
greater_equal = ge
less = lt
less_equal = le
lu = lu_of
lu_solve = lu_solved
moveaxis = movedim
multiply = mul
negative = neg
not_equal = ne
qr = qr_of
range = range_
row_stack = vstack
subtract = sub
svd = svd_of
swapaxes = transpose
swapdims = transpose
trapz = trapezoid
true_divide = div
