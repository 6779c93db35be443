"""What a mistake says: which operator, what was expected, what came, and where.

Each row plants one mistake. The error must be of the built-in class a user would
catch, its text must match the words, name the user's own line last, and leave
every tensor it was given as it was.
"""

from __future__ import annotations

import inspect
import random
import re
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
import pytest

import weft
from weft.core.argument_errors import takes_tensor

F = weft.float32


class Double(weft.autograd.Function):
    """A Function whose backward returns one gradient too many."""

    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        return x * 2

    @staticmethod
    def backward(ctx: Any, g: Any) -> Any:
        return g * 2, g


class WrongShape(Double):
    """A Function whose backward returns a gradient of another shape."""

    @staticmethod
    def backward(ctx: Any, g: Any) -> Any:
        return g.sum()


class NoTensor(Double):
    """A Function whose forward returns a number."""

    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        return 3.0


a34 = weft.arange(12.0).reshape(3, 4)
a43 = weft.ones(4, 3)
a23 = weft.ones(2, 3)
v5 = weft.arange(5.0)
v3 = weft.arange(3.0)
i34 = weft.arange(12).reshape(3, 4)
b3 = weft.tensor([True, False, True])
b34 = i34 > 4
c2 = weft.tensor([1j, 2.0])
s0 = weft.tensor(2.0)
u3 = weft.tensor([1, 0, 1], dtype=weft.uint8)
ids = weft.tensor([0, 7, 1])
low = weft.tensor([0, -9])
ones_i = weft.tensor([[0, 1], [1, 9], [0, 0]])
empty = weft.zeros(0, 3)
leaf = weft.ones(3, requires_grad=True)
grown = leaf * 2
half = weft.ones(2, dtype=weft.float16)
prob = weft.tensor([0.2, 1.7])
GIVEN = {k: v for k, v in globals().items() if isinstance(v, weft.Tensor)}


class Mistake(NamedTuple):
    call: Callable[[], Any]
    error: type[Exception]
    words: str


def second_backward() -> None:
    y = (leaf * leaf).sum()
    y.backward(inputs=[leaf])
    y.backward(inputs=[leaf])


def saved_value_changed() -> None:
    x = weft.ones(3, requires_grad=True)
    y = x * 1
    z = (y * y).sum()
    y.add_(1)
    z.backward()


def saved_output_changed() -> None:
    x = weft.ones(3, requires_grad=True)
    y = x.exp()
    y.mul_(2)
    y.sum().backward()


def leaf_view_changed() -> None:
    leaf[:2].mul_(2)


def leaf_index_changed() -> None:
    leaf[0] = 5


def leaf_augmented() -> None:
    global leaf
    leaf += 1


def set_grad_on_result() -> None:
    grown.requires_grad_(False)


def wrong_count() -> None:
    Double.apply(leaf).sum().backward()


def wrong_shape() -> None:
    WrongShape.apply(leaf).sum().backward()


def inference_kept() -> None:
    with weft.inference_mode():
        x = weft.ones(2)
    x.requires_grad_()


def random_in_vmap() -> None:
    weft.func.vmap(lambda x: x + weft.rand(()))(v3)


def item_in_vmap() -> None:
    weft.func.vmap(lambda x: x * x.item())(v3)


def mask_in_vmap() -> None:
    weft.func.vmap(lambda x: x[x > 1])(a34)


def index_in_vmap() -> None:
    weft.func.vmap(lambda k: a34[k, k])(ids)


MISTAKES = [
    # shapes that do not fit
    Mistake(lambda: a34 + v5, ValueError, r"add: .*\(3, 4\) and \(5,\).*4 and 5"),
    Mistake(lambda: weft.sub(a34, a23), ValueError, r"sub: .*\(3, 4\) and \(2, 3\)"),
    Mistake(lambda: a34 * a43, RuntimeError, r"mul: .*\(3, 4\) and \(4, 3\)"),
    Mistake(lambda: v3 / v5, ValueError, r"div: .*\(3,\) and \(5,\).*3 and 5"),
    Mistake(lambda: v3 < v5, ValueError, r"lt: .*\(3,\) and \(5,\)"),
    Mistake(lambda: v3**v5, ValueError, r"pow: .*\(3,\) and \(5,\)"),
    Mistake(lambda: weft.maximum(v3, v5), ValueError, r"maximum: .*\(3,\) and \(5,\)"),
    Mistake(lambda: weft.where(b3, v5, 0), ValueError, r"where: .*\(3,\).*\(5,\)"),
    Mistake(lambda: a34.clamp(min=v5), ValueError, r"lt: .*\(3, 4\) and \(5,\)"),
    Mistake(lambda: a34 @ a34, ValueError, r"matmul: .*\(3, 4\).*size 4.*size 3"),
    Mistake(lambda: a34 @ v5, RuntimeError, r"matmul: .*\(3, 4\) and \(5,\)"),
    Mistake(lambda: a34 @ s0, ValueError, r"matmul: .*at least one.*0-d.*use \*"),
    Mistake(lambda: weft.mm(v3, a34), ValueError, r"mm: expected 2-d.*\(3,\)"),
    Mistake(lambda: weft.dot(a34, a34), ValueError, r"dot: expected 1-d.*\(3, 4\)"),
    Mistake(lambda: weft.cat([a34, a43]), ValueError, r"cat: .*\(3, 4\).*\(4, 3\)"),
    Mistake(lambda: weft.cat([a34, v3]), ValueError, r"cat: .*rank.*\(3, 4\).*\(3,\)"),
    Mistake(
        lambda: weft.cat([s0, s0]), ValueError, r"cat: .*tensor 0 is 0-d; use stack"
    ),
    Mistake(lambda: weft.cat([]), ValueError, r"cat: expected a list.*empty"),
    Mistake(lambda: weft.cat(a34), TypeError, r"cat: expected a list.*Tensor"),
    Mistake(lambda: weft.cat([a34, 3]), TypeError, r"cat: .*int at position 1"),
    Mistake(lambda: weft.stack([v3, v5]), ValueError, r"stack: .*\(3,\).*\(5,\)"),
    Mistake(lambda: a34.reshape(5, 2), ValueError, r"reshape: .*12 elements.*10"),
    Mistake(lambda: a34.reshape(-1, 5), ValueError, r"reshape: .*-1.*\(3, 4\).*12"),
    Mistake(lambda: a34.reshape(-1, -1), ValueError, r"reshape: .*one -1.*\(-1, -1\)"),
    Mistake(lambda: a34.reshape(2.5), TypeError, r"reshape: .*integers, got float"),
    Mistake(lambda: a34.view(7), RuntimeError, r"view: .*\(3, 4\).*12.*\(7,\)"),
    Mistake(lambda: a34.t().view(12), ValueError, r"view: .*strides.*use .reshape"),
    Mistake(lambda: a34.view(weft.complex128)[0].view(3), ValueError, r"view: "),
    Mistake(lambda: a34.expand(2, 4), ValueError, r"expand: .*\(3, 4\) to \(2, 4\)"),
    Mistake(lambda: v3.expand(-1, 3), ValueError, r"expand: .*new dimension.*-1"),
    Mistake(lambda: a34.unflatten(1, (3, 2)), ValueError, r"unflatten: .*4.*\(3, 2\)"),
    Mistake(lambda: a34.split([1, 1]), ValueError, r"split: .*add up to 2.*size 3"),
    Mistake(lambda: a34.split(0), ValueError, r"split: .*positive.*0"),
    Mistake(lambda: a34.chunk(0), ValueError, r"chunk: .*positive.*0"),
    Mistake(lambda: a34.repeat(2), ValueError, r"repeat: .*at least 2.*\(3, 4\)"),
    Mistake(lambda: a34.narrow(0, 2, 5), ValueError, r"narrow: .*2 to 7.*size 3"),
    Mistake(lambda: s0.unbind(), ValueError, r"unbind: .*one dimension.*0-d"),
    Mistake(lambda: a34.trace().diag(), ValueError, r"diag: .*1 or 2.*\(\)"),
    Mistake(lambda: weft.cdist(a34, a43), ValueError, r"cdist: .*\(3, 4\).*\(4, 3\)"),
    # dimensions
    Mistake(lambda: a34.sum(2), IndexError, r"sum: dim 2 .*2-d .*-2 to 1"),
    Mistake(lambda: a34.mean(-3), IndexError, r"mean: dim -3 .*2-d"),
    Mistake(lambda: a34.sum((0, 0)), ValueError, r"sum: .*twice in \(0, 0\)"),
    Mistake(lambda: a34.sum("0"), TypeError, r"sum: .*int, got str"),
    Mistake(lambda: a34.argmax(5), IndexError, r"argmax: dim 5 .*2-d"),
    Mistake(lambda: a34.softmax(4), IndexError, r"softmax: dim 4 .*2-d"),
    Mistake(lambda: a34.transpose(0, 2), IndexError, r"transpose: dim 2 .*2-d"),
    Mistake(lambda: a34.permute(0), ValueError, r"permute: expected 2 dims.*\(0,\)"),
    Mistake(lambda: a34.permute(0, 0), ValueError, r"permute: .*twice in \(0, 0\)"),
    Mistake(lambda: a34.unsqueeze(4), IndexError, r"unsqueeze: dim 4 "),
    Mistake(lambda: a34.movedim((0, 1), 0), ValueError, r"movedim: 2 .* 1 "),
    Mistake(lambda: a34.diagonal(0, 1, 1), ValueError, r"diagonal: .*1 and 1"),
    Mistake(lambda: a34.size(2), IndexError, r"size: dim 2 .*2-d"),
    Mistake(lambda: empty.max(), ValueError, r"amax: .*at least one.*\(0, 3\)"),
    Mistake(lambda: empty.argmin(0), ValueError, r"argmin: .*\(0, 3\)"),
    Mistake(lambda: a34.topk(9), ValueError, r"topk: k is 9.*size 4"),
    Mistake(lambda: a34.kthvalue(0), ValueError, r"kthvalue: k is 0.*size 4"),
    Mistake(lambda: a34.quantile(1.5), ValueError, r"quantile: .*0 to 1.*1\.5"),
    # indices out of range
    Mistake(lambda: a34[3], IndexError, r"getitem: index 3 .*axis 0 of size 3"),
    Mistake(lambda: a34[0, -5], IndexError, r"getitem: index -5 .*axis 1 of size 4"),
    Mistake(lambda: a34[0, 0, 0], IndexError, r"getitem: 3 indices .*2-d.*\(3, 4\)"),
    Mistake(lambda: a34[ids], IndexError, r"getitem: index 7 at .*1.*axis 0 of size 3"),
    Mistake(lambda: a34[:, low], IndexError, r"getitem: index -9 .*axis 1 of size 4"),
    Mistake(lambda: a34[ids, 0], IndexError, r"getitem: index 7 .*axis 0 of size 3"),
    Mistake(lambda: a34[1, ids], IndexError, r"getitem: index 7 .*axis 1 of size 4"),
    Mistake(lambda: a34[v3], IndexError, r"getitem: expected integer.*float32.*long"),
    Mistake(lambda: a34[u3], IndexError, r"getitem: a uint8 .*\.bool\(\) or \.long"),
    Mistake(lambda: a34[0.5], IndexError, r"getitem: expected ints.*float"),
    Mistake(lambda: a34["x"], IndexError, r"getitem: expected ints.*str"),
    Mistake(lambda: a34[::0], ValueError, r"getitem: .*must not be 0, got 0"),
    Mistake(lambda: a34[..., ...], IndexError, r"getitem: expected at most one \.\.\."),
    Mistake(lambda: v5[b3], IndexError, r"getitem: a mask of shape \(3,\).*\(5,\)"),
    Mistake(lambda: a34[b34, 0], IndexError, r"getitem: 3 indices .*\(3, 4\)"),
    Mistake(lambda: s0[0], IndexError, r"getitem: 1 ind.*0-d.*\(\)"),
    Mistake(
        lambda: a34.gather(1, ones_i), IndexError, r"gather: index 9 at .*axis 1.*4"
    ),
    Mistake(lambda: a34.gather(1, ids), ValueError, r"gather: .*\(3, 4\) and \(3,\)"),
    Mistake(lambda: a34.gather(1, a34), IndexError, r"gather: .*integer.*float32"),
    Mistake(lambda: a34.scatter(1, ones_i, 1.0), IndexError, r"scatter: index 9 .*4"),
    Mistake(
        lambda: a34.scatter(1, ones_i, i34), TypeError, r"scatter: .*float32.*int64"
    ),
    Mistake(
        lambda: a34.scatter_add(1, ones_i, a34), IndexError, r"scatter_add: index 9 .*4"
    ),
    Mistake(lambda: a34.index_select(0, ids), IndexError, r"index_select: index 7 .*3"),
    Mistake(lambda: a34.index_select(0, ones_i), ValueError, r"index_select: .*1-d"),
    Mistake(lambda: a34.index_add(0, ids, a34), IndexError, r"index_add: index 7 .*3"),
    Mistake(lambda: a34.index_copy(0, ids, v3), ValueError, r"index_copy: .*\(3, 4\)"),
    Mistake(lambda: a34.index_fill(0, ids, 0), IndexError, r"index_fill: index 7 .*3"),
    Mistake(
        lambda: v3.take(ids), IndexError, r"take: index 7 at .*1.*axis 0 of size 3"
    ),
    Mistake(lambda: v3.put(ids, v3), IndexError, r"put: index 7 at .*1.*size 3"),
    Mistake(lambda: a34.select(0, 4), IndexError, r"select: index 4 .*dim 0 of size 3"),
    Mistake(lambda: weft.one_hot(ids, 3), IndexError, r"one_hot: index 7 at .*size 3"),
    Mistake(lambda: weft.one_hot(low), IndexError, r"one_hot: .*negative.*-9"),
    Mistake(lambda: a34.masked_fill(i34, 0), TypeError, r"masked_fill: .*bool.*int64"),
    Mistake(lambda: a34.masked_select(b3), ValueError, r"masked_select: .*\(3, 4\)"),
    Mistake(
        lambda: a34.masked_scatter(b34, v3), ValueError, r"masked_scatter: .*7.*3 el"
    ),
    # writing
    Mistake(lambda: a34.__setitem__(0, v5), ValueError, r"setitem: .*\(4,\).*\(5,\)"),
    Mistake(lambda: a34.__setitem__(9, 0), IndexError, r"setitem: index 9 .*axis 0.*3"),
    Mistake(lambda: a34.__setitem__(ids, 0), IndexError, r"setitem: index 7 .*size 3"),
    Mistake(lambda: a34.__setitem__(0, 1j), TypeError, r"setitem: .*complex.*float32"),
    Mistake(lambda: a34.__setitem__(0, "a"), TypeError, r"tensor: .*number.*str"),
    Mistake(lambda: a34.add_(v5), ValueError, r"add: .*\(3, 4\) and \(5,\)"),
    Mistake(lambda: v3.add_(a43), ValueError, r"add_: .*\(4, 3\).*\(3,\)"),
    Mistake(lambda: i34.add_(0.5), TypeError, r"add_: .*float32.*int64"),
    Mistake(lambda: i34.div_(2), TypeError, r"div_: .*float32.*int64"),
    Mistake(lambda: a34.mul_(1j), TypeError, r"mul_: .*complex64.*float32"),
    Mistake(
        lambda: v3.expand(2, 3).add_(1), ValueError, r"add_: .*share memory.*clone"
    ),
    Mistake(lambda: a34.copy_(v5), ValueError, r"copy_: .*\(3, 4\).*\(5,\)"),
    # dtypes and values
    Mistake(lambda: weft.tensor([[1, 2], [3]]), ValueError, r"tensor: .*lengths 2, 1"),
    Mistake(
        lambda: weft.tensor("abc"), TypeError, r"tensor: expected numbers, got str"
    ),
    Mistake(lambda: weft.tensor([1, None]), TypeError, r"tensor: .*numbers, got"),
    Mistake(lambda: weft.tensor(2**70), ValueError, r"tensor: .*int64"),
    Mistake(
        lambda: weft.tensor([300], dtype=weft.uint8), ValueError, r"tensor: 300 .*uint8"
    ),
    Mistake(lambda: weft.tensor([1j], dtype=F), TypeError, r"tensor: complex.*float32"),
    Mistake(lambda: weft.zeros(2, dtype="int7"), TypeError, r"dtype 'int7'; .*float32"),
    Mistake(
        lambda: weft.zeros(2, device="tpu"), RuntimeError, r"'tpu' .*available.*cpu"
    ),
    Mistake(lambda: weft.zeros(-1), ValueError, r"zeros: .*at least 0.*-1"),
    Mistake(lambda: weft.ones(2, 2.5), TypeError, r"ones: .*integer sizes, got float"),
    Mistake(
        lambda: weft.full((2,), "a"), TypeError, r"full: expected a number, got str"
    ),
    Mistake(lambda: weft.arange(0, 5, 0), ValueError, r"arange: step must not be 0"),
    Mistake(lambda: weft.arange(5, 0), ValueError, r"arange: .*5 to 0.*1"),
    Mistake(lambda: weft.linspace(0, 1, -1), ValueError, r"linspace: .*-1"),
    Mistake(lambda: weft.eye(-2), ValueError, r"eye: .*-2"),
    Mistake(lambda: b3 - b3, TypeError, r"sub: expected a non-boolean dtype, got bool"),
    Mistake(lambda: -b3, TypeError, r"neg: .*bool"),
    Mistake(lambda: ~a34, TypeError, r"bitwise_not: .*integer.*float32"),
    Mistake(lambda: a34 & 1, TypeError, r"bitwise_and: .*integer.*float32"),
    Mistake(lambda: c2 < c2, TypeError, r"lt: expected a real dtype, got complex64"),
    Mistake(lambda: c2.max(), TypeError, r"amax: expected a real.*complex64"),
    Mistake(lambda: c2.sort(), TypeError, r"sort: expected a real.*complex64"),
    Mistake(lambda: c2 // 2, TypeError, r"floor_divide: expected a real.*complex64"),
    Mistake(lambda: v3.imag, TypeError, r"imag: expected a complex.*float32"),
    Mistake(lambda: i34.mean(), TypeError, r"mean: .*floating.*int64.*float\(\)"),
    Mistake(lambda: i34.std(), TypeError, r"std: .*floating.*int64"),
    Mistake(lambda: i34**-1, ValueError, r"pow: .*negative integer powers"),
    Mistake(lambda: i34 // 0, ZeroDivisionError, r"floor_divide: .*by zero"),
    Mistake(lambda: i34 % 0, ZeroDivisionError, r"remainder: .*by zero"),
    Mistake(lambda: weft.where(a34, 1, 0), TypeError, r"where: .*boolean.*float32"),
    Mistake(lambda: a34 + "b", TypeError, r"add: .*tensor or a number, got str"),
    Mistake(lambda: weft.exp("b"), TypeError, r"exp: .*tensor or a number, got str"),
    Mistake(lambda: weft.sum([1, 2]), TypeError, r"sum: .*`input` .*tensor, got list"),
    Mistake(lambda: weft.topk(v3, "2"), TypeError, r"topk: .*`k` .*int, got str"),
    Mistake(lambda: weft.flip(3, 0), TypeError, r"flip: .*`input` .*tensor, got int"),
    Mistake(lambda: weft.arange("3"), TypeError, r"arange: expected numbers, got str"),
    Mistake(lambda: weft.device([1]), RuntimeError, r"device \[1\] .*available"),
    Mistake(lambda: a34 @ [1, 2], TypeError, r"matmul: .*two tensors, got list"),
    Mistake(
        lambda: weft.div(v3, 2, rounding_mode="up"), ValueError, r"div: .*'floor'.*'up'"
    ),
    Mistake(
        lambda: weft.clamp(v3), ValueError, r"clamp: .*at least one of min and max"
    ),
    Mistake(lambda: weft.pad(v3, (1,)), ValueError, r"pad: .*even.*\(3,\).*1"),
    Mistake(lambda: weft.pad(v3, (1, 1), "mirror"), ValueError, r"pad: .*'mirror'"),
    Mistake(lambda: weft.pad(v3, (3, 0), "reflect"), ValueError, r"pad: .*size 3"),
    Mistake(lambda: v3.norm("nuclear"), ValueError, r"norm: .*'nuclear'"),
    Mistake(lambda: v3.to("moon"), RuntimeError, r"'moon' .*available"),
    Mistake(lambda: v3.to(3), TypeError, r"dtype 3"),
    Mistake(
        lambda: v3.scatter_reduce(0, low, v3, "best"), ValueError, r"reduce: .*'best'"
    ),
    Mistake(lambda: weft.meshgrid(v3, indexing="yx"), ValueError, r"meshgrid: .*'yx'"),
    Mistake(
        lambda: weft.searchsorted(v3, v3, side="up"), ValueError, r"sorted: .*'up'"
    ),
    Mistake(lambda: weft.bincount(low), ValueError, r"bincount: .*negative.*-9"),
    Mistake(
        lambda: weft.from_numpy([1]), TypeError, r"from_numpy: .*ndarray, got list"
    ),
    Mistake(lambda: weft.promote_types(F, "x"), TypeError, r"unknown dtype 'x'"),
    Mistake(lambda: weft.set_default_dtype(int), TypeError, r"default_dtype: .*int64"),
    # sizes that no machine has
    Mistake(
        lambda: weft.zeros(10**12), MemoryError, r"zeros: .*4,000,000,000,000 bytes"
    ),
    Mistake(
        lambda: weft.rand(10**7, 10**7), MemoryError, r"rand: .*10000000, 10000000"
    ),
    Mistake(lambda: weft.arange(10**14), MemoryError, r"arange: .*bytes"),
    Mistake(lambda: weft.eye(10**8), MemoryError, r"eye: .*bytes"),
    Mistake(lambda: weft.full((10**6, 10**8), 1.0), MemoryError, r"full: .*bytes"),
    Mistake(lambda: weft.empty(2**62, 2**62), MemoryError, r"empty: .*bytes"),
    Mistake(
        lambda: weft.zeros_like(v3.expand(10**13, 3)), MemoryError, r"zeros_like: "
    ),
    Mistake(lambda: v3.expand(10**14, 3) + 1, MemoryError, r"add: .*allocate"),
    Mistake(lambda: v3.repeat(10**14), MemoryError, r"reshape|repeat"),
    Mistake(lambda: weft.one_hot(low.abs(), 10**15), MemoryError, r"one_hot: .*bytes"),
    # a single number
    Mistake(lambda: a34.item(), ValueError, r"item: expected one.*\(3, 4\)"),
    Mistake(lambda: bool(a34), ValueError, r"bool: .*\(3, 4\).*ambiguous"),
    Mistake(lambda: float(v3), ValueError, r"item: .*\(3,\)"),
    Mistake(lambda: range(s0), TypeError, r"index: expected an integer.*float32"),
    Mistake(lambda: len(s0), TypeError, r"len: .*0-d"),
    Mistake(lambda: list(s0), TypeError, r"iter: .*0-d"),
    # random numbers
    Mistake(lambda: weft.bernoulli(prob), ValueError, r"bernoulli: .*0 and 1"),
    Mistake(lambda: weft.bernoulli(i34), TypeError, r"bernoulli: .*floating.*int64"),
    Mistake(lambda: weft.randint(5, 5, (2,)), ValueError, r"randint: .*low < high.*5"),
    Mistake(lambda: weft.randint(5), ValueError, r"randint: expected randint\(high"),
    Mistake(lambda: weft.randperm(-1), ValueError, r"randperm: .*at least 0.*-1"),
    Mistake(lambda: weft.rand(2, dtype=weft.int64), TypeError, r"rand: .*float.*int64"),
    Mistake(lambda: weft.normal(0.0, -1.0, (2,)), ValueError, r"normal: .*std.*-1"),
    Mistake(lambda: weft.multinomial(-v3, 1), ValueError, r"multinomial: .*at least 0"),
    Mistake(lambda: weft.multinomial(v3, 3), ValueError, r"multinomial: .*3 .*2 "),
    Mistake(lambda: weft.multinomial(v3 * 0, 1), ValueError, r"multinomial: .*up to 0"),
    Mistake(lambda: weft.manual_seed("a"), ValueError, r"manual_seed: .*int, got str"),
    Mistake(lambda: weft.set_rng_state(v3), TypeError, r"set_state: .*float32.*\(3,\)"),
    # gradients
    Mistake(lambda: grown.backward(), RuntimeError, r"backward: .*one element.*\(3,\)"),
    Mistake(lambda: v3.sum().backward(), RuntimeError, r"backward: .*not require grad"),
    Mistake(
        lambda: grown.backward(v5),
        ValueError,
        r"backward: .*\(5,\).*output has .*\(3,\)",
    ),
    Mistake(second_backward, RuntimeError, r"backward: .*'sum'.*freed.*retain_graph"),
    Mistake(saved_value_changed, RuntimeError, r"backward: .*\(3,\).*'mul'.*'add_'"),
    Mistake(saved_output_changed, RuntimeError, r"backward: .*'exp'.*'mul_'"),
    Mistake(lambda: leaf.add_(1), RuntimeError, r"add_: .*leaf.*no_grad"),
    Mistake(lambda: leaf.t_(), RuntimeError, r"t_: .*leaf.*no_grad"),
    Mistake(leaf_view_changed, RuntimeError, r"mul_: .*view of a leaf.*no_grad"),
    Mistake(leaf_index_changed, RuntimeError, r"setitem: .*leaf.*no_grad"),
    Mistake(leaf_augmented, RuntimeError, r"add_: .*leaf.*no_grad"),
    Mistake(lambda: leaf.numpy(), RuntimeError, r"numpy: .*requires grad.*detach"),
    Mistake(lambda: i34.requires_grad_(), RuntimeError, r"requires_grad: .*int64"),
    Mistake(
        lambda: weft.tensor([1], requires_grad=True),
        TypeError,
        r"requires_grad: .*int64",
    ),
    Mistake(set_grad_on_result, RuntimeError, r"requires_grad_.*leaf.*'mul'.*detach"),
    Mistake(lambda: v3.register_hook(print), RuntimeError, r"register_hook: "),
    Mistake(lambda: v3.retain_grad(), RuntimeError, r"retain_grad: "),
    Mistake(
        lambda: weft.autograd.grad(grown.sum(), v3),
        RuntimeError,
        r"grad: .*not require",
    ),
    Mistake(
        lambda: weft.autograd.grad((leaf * 2).sum(), weft.ones(2, requires_grad=True)),
        RuntimeError,
        r"grad: input 0 of shape \(2,\) was not used.*allow_unused",
    ),
    Mistake(wrong_count, RuntimeError, r"Double.backward: expected 1 .*got 2"),
    Mistake(wrong_shape, RuntimeError, r"WrongShape.backward: .*\(\).*\(3,\)"),
    Mistake(lambda: NoTensor.apply(leaf), RuntimeError, r"NoTensor.forward: .*float"),
    Mistake(inference_kept, RuntimeError, r"requires_grad: .*inference_mode.*clone"),
    Mistake(
        lambda: weft.autograd.gradcheck(lambda x: x * x, leaf),
        TypeError,
        r"gradcheck: .*float32.*float64",
    ),
    # transforms
    Mistake(lambda: weft.func.grad(weft.sin)(v3), ValueError, r"grad: .*one.*\(3,\)"),
    Mistake(lambda: weft.func.grad(weft.sum)(i34), TypeError, r"grad: .*int64"),
    Mistake(
        lambda: weft.func.grad(weft.sum, argnums=2)(v3),
        ValueError,
        r"grad: argnums 2 .*1",
    ),
    Mistake(
        lambda: weft.func.jvp(weft.sin, (v3,), (v5,)),
        ValueError,
        r"jvp: .*\(3,\).*\(5,\)",
    ),
    Mistake(
        lambda: weft.func.jvp(weft.sin, v3, v3), ValueError, r"jvp: .*tuple.*Tensor"
    ),
    Mistake(lambda: weft.func.vmap(weft.sin)(s0), ValueError, r"vmap: "),
    Mistake(lambda: weft.func.vmap(weft.add)(v3, v5), ValueError, r"vmap: .*3.*5"),
    Mistake(random_in_vmap, ValueError, r"rand: .*vmap.*randomness="),
    Mistake(item_in_vmap, RuntimeError, r"vmap"),
    Mistake(index_in_vmap, IndexError, r"take: index 7 at .*size 3"),
    Mistake(mask_in_vmap, ValueError, r"nonzero: .*vmap.*where"),
]


FOREIGN = (
    "x", None, (0, 1), [1, 2], (), [], 2.5, -3, 7, True, {"a": 1}, slice(1), object(),
    np.ones(2), [weft.ones(2), weft.ones(3)],
    a34, v3, i34, b3, c2, s0, empty, low, leaf,
)  # fmt: skip


def tensor_functions() -> dict[str, Any]:
    """The public functions whose first argument is a tensor."""
    public = {k: v for k, v in vars(weft).items() if k[0] != "_"}
    return {k: v for k, v in public.items() if takes_tensor(inspect.unwrap(v))}


@pytest.mark.parametrize("name", sorted(tensor_functions()))
def test_no_foreign_error_comes_through(name: str) -> None:
    """Arguments without sense, drawn at random: only Weft's own errors come out."""
    function = tensor_functions()[name]
    rng = random.Random(name)
    places = [p for p in inspect.signature(function).parameters.values() if p.kind <= 2]
    for _ in range(12):
        args = [rng.choice(FOREIGN) for _ in range(rng.randint(1, len(places)))]
        try:
            function(*args)
        except weft.errors.WeftError:
            continue
        except TypeError as error:
            if "argument" not in str(error):  # else the call itself cannot be
                raise


@pytest.fixture
def toy() -> Iterator[Any]:
    """A second device, with one kernel."""
    device = weft.register_device(weft.Device("toy", {"add": np.add}))
    yield device
    weft.unregister_device("toy")


def snapshot() -> dict[str, bytes]:
    return {k: v.detach().numpy().tobytes() for k, v in GIVEN.items()}


def check_place(text: str, code: Any) -> None:
    """The text ends with a line of the function that made the mistake."""
    found = re.search(r"\n  at (.+):(\d+), in \S+(\n    .*)?\Z", text)
    assert found, f"no place at the end of {text!r}"
    lines = {line for _, _, line in code.co_lines()}
    inner = [c for c in code.co_consts if isinstance(c, type(code))]
    lines |= {line for c in inner for _, _, line in c.co_lines()}
    assert found[1] == __file__
    assert int(found[2]) in lines


@pytest.mark.parametrize(
    "mistake",
    MISTAKES,
    ids=lambda m: f"{m.call.__name__}:{m.call.__code__.co_firstlineno}",
)
def test_mistake(mistake: Mistake) -> None:
    before = snapshot()
    with pytest.raises(mistake.error) as caught:
        mistake.call()
    text = str(caught.value)
    assert isinstance(caught.value, weft.errors.WeftError), (
        f"{type(caught.value)}: {text}"
    )
    said = text[: text.rindex("\n  at ")]  # the source line quotes the words themselves
    assert re.search(mistake.words, said, re.DOTALL), text
    check_place(text, mistake.call.__code__)
    assert snapshot() == before


def test_there_are_many() -> None:
    assert len(MISTAKES) >= 70


def test_two_devices(toy: Any) -> None:
    there = v3.to("toy")
    with pytest.raises(RuntimeError, match=r"add: .*one device.*'cpu' and 'toy'.*\.to"):
        v3 + there


def test_missing_kernel(toy: Any) -> None:
    there = v3.to("toy")
    with pytest.raises(
        RuntimeError, match=r"mul: no kernel for device 'toy'; it has add"
    ):
        there * there


def test_numpy_of_another_device(toy: Any) -> None:
    with pytest.raises(RuntimeError, match=r"numpy: .*'toy'; move it with .cpu"):
        v3.to("toy").numpy()
