"""Nested tensors: structure, refusals and gradients; PyTorch's numbers are in peers."""

import numpy as np
import pytest

import weft
from weft.nested import (
    as_nested_tensor,
    masked_select,
    narrow,
    nested_tensor,
    nested_tensor_from_jagged,
    to_padded_tensor,
)


def jagged(*lengths, width=4):
    return nested_tensor(
        [weft.arange(n * width * 1.0).reshape(n, width) for n in lengths],
        layout=weft.jagged,
    )


def test_structure():
    x = jagged(2, 3)
    assert x.is_nested
    assert not weft.ones(1).is_nested
    assert x.layout is weft.jagged
    assert (x.ndim, x.dim(), len(x), x.numel()) == (3, 3, 2, 20)
    assert x.shape[0] == 2
    assert x.shape[2] == 4
    assert x.shape[1] is x.size(1)
    assert x.size(1) != 3
    assert x.offsets().tolist() == [0, 2, 5]
    assert x.lengths() is None
    assert x.values().shape == (5, 4)
    assert [tuple(c.shape) for c in x] == [(2, 4), (3, 4)]
    assert x.is_contiguous()
    assert not x.transpose(1, 2).is_contiguous()
    assert "NestedTensor(size=(2, j" in repr(x)
    assert isinstance(x, weft.Tensor)


def test_strided_sizes_that_differ_are_refused():
    x = nested_tensor([weft.ones(2, 3), weft.ones(4, 3)])
    assert x.layout is weft.strided
    assert x.size(2) == 3
    with pytest.raises(RuntimeError, match="dimension 1 is irregular"):
        x.size(1)
    with pytest.raises(RuntimeError, match="irregular, so it has no shape"):
        _ = x.shape


def test_a_copy_and_a_view():
    part = weft.ones(2)
    assert nested_tensor([part, weft.ones(3)]).unbind()[0] is not part
    values = weft.arange(5.0)
    x = nested_tensor_from_jagged(values, weft.tensor([0, 2, 5]))
    values.mul_(2)
    assert x.unbind()[1].tolist() == [4.0, 6.0, 8.0]
    x.add_(1)
    assert values.tolist() == [1.0, 3.0, 5.0, 7.0, 9.0]


def test_gradients_of_a_leaf_are_nested():
    x = nested_tensor([weft.ones(2), weft.ones(3)], requires_grad=True)
    (x * x).to_padded_tensor(0.0).sum().backward()
    assert x.grad.is_nested
    assert x.grad.unbind()[1].tolist() == [2.0, 2.0, 2.0]


def test_gradients_pass_checks():
    offsets = weft.tensor([0, 2, 5])

    def f(values):
        x = nested_tensor_from_jagged(values, offsets)
        y = weft.nn.functional.layer_norm(x.tanh(), (4,)) * x
        heads = y.unflatten(-1, [2, 2]).transpose(1, 2)
        out = weft.nn.functional.scaled_dot_product_attention(heads, heads, heads)
        return out.transpose(1, 2).flatten(-2).to_padded_tensor(0.0)

    weft.manual_seed(0)
    values = weft.randn(5, 4, dtype=weft.float64, requires_grad=True)
    assert weft.autograd.gradcheck(f, (values,))


def test_tensors_with_a_batch_meet_their_components():
    x = jagged(2, 3)
    y = x * weft.tensor([[[2.0]], [[3.0]]])
    np.testing.assert_allclose(y.unbind()[1], x.unbind()[1] * 3)
    z = x + as_nested_tensor(list(x.unbind()), layout=weft.jagged)
    np.testing.assert_allclose(z.values(), x.values() * 2)


def test_indices():
    x = jagged(2, 3, 4)
    assert x[1].shape == (3, 4)
    assert len(x[1:]) == 2
    assert x[0, 1].tolist() == x.unbind()[0][1].tolist()
    assert x[:, 0].shape == (3, 4)
    assert x[..., 0].unbind()[2].shape == (4,)


def test_reductions_keep_or_lose_the_ragged_dimension():
    x = jagged(2, 3)
    assert x.sum(1).shape == (2, 4)
    assert x.sum(-1).is_nested
    assert x.amax(dim=1)[1].tolist() == [8.0, 9.0, 10.0, 11.0]
    assert x.mean().item() == pytest.approx(x.values().mean().item())
    best = x.max(dim=-1)
    assert best.values.is_nested
    assert best.indices.unbind()[0].tolist() == [3, 3]


def test_equal_lengths_stay_ragged():
    x = jagged(3, 3)
    assert (x.transpose(1, 2).softmax(-1)).unbind()[0].shape == (4, 3)
    assert x.cumsum(1).is_nested
    assert x.cumsum(1).unbind()[0].shape == (3, 4)


def test_values_with_gaps():
    dense = weft.arange(8.0).reshape(2, 4)
    x = narrow(dense, 1, weft.tensor([1, 0]), weft.tensor([2, 3]), layout=weft.jagged)
    assert x.lengths().tolist() == [2, 3]
    assert x.sum().item() == 1 + 2 + 4 + 5 + 6
    assert x.contiguous().values().tolist() == [1.0, 2.0, 4.0, 5.0, 6.0]
    assert narrow(dense, 1, 1, 2).unbind()[1].tolist() == [5.0, 6.0]
    rows = masked_select(dense, dense % 2 == 0)
    assert [r.tolist() for r in rows.unbind()] == [[0.0, 2.0], [4.0, 6.0]]


@pytest.mark.parametrize(
    "function",
    [
        lambda x: weft.nn.functional.batch_norm(x, None, None, training=True),
        lambda x: weft.linalg.inv(x),
        lambda x: weft.nn.functional.mse_loss(x, x),
        lambda x: x.sum(0),
        lambda x: x.transpose(0, 1),
        lambda x: x.numpy(),
        lambda x: weft.stack([x, x]),
    ],
)
def test_functions_without_a_meaning_are_refused(function):
    with pytest.raises((NotImplementedError, RuntimeError), match=r"nested|batch"):
        function(jagged(2, 3))


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda: nested_tensor([weft.ones(1), weft.ones(1, 1)]), "of one dtype"),
        (lambda: nested_tensor([weft.ones(1, 2), weft.ones(2, 1)], layout=weft.jagged),
         "differ in one dimension"),
        (lambda: nested_tensor([weft.ones(1)], layout=weft.sparse_coo), "layout"),
        (lambda: nested_tensor_from_jagged(weft.ones(3)), "offsets or lengths"),
        (lambda: nested_tensor_from_jagged(weft.ones(3), weft.tensor([0, 4])), r"of 3"),
        (lambda: nested_tensor_from_jagged(weft.ones(3), weft.ones(2)), "integers"),
        (lambda: nested_tensor_from_jagged(weft.ones(3), weft.tensor([0, 3]),
                                           weft.tensor([1, 1])), "1 sequences"),
        (lambda: narrow(weft.ones(2, 3), 1, 2, 2), "inside of rows"),
        (lambda: to_padded_tensor(weft.ones(1), 0.0), "expected a nested"),
        (lambda: jagged(2, 3).to_padded_tensor(0.0, (2, 2, 4)), "at least"),
        (lambda: jagged(2, 3).view(2, 5, 4), "begin with"),
        (lambda: jagged(2, 3) + jagged(2, 3, 4), "2 and 3 components|3 and 2"),
    ],
)  # fmt: skip
def test_wrong_calls_say_what_is_expected(make, text):
    with pytest.raises((RuntimeError, ValueError), match=text):
        make()


def test_other_arguments_of_as_nested_tensor():
    with pytest.raises(TypeError, match="list elements to be tensors"):
        as_nested_tensor([1, 2])
    with pytest.raises(TypeError, match="Expected first argument"):
        as_nested_tensor(3)
    x = jagged(2, 3)
    assert as_nested_tensor(x) is not None
    assert as_nested_tensor(x, layout=weft.strided).layout is weft.strided
    assert as_nested_tensor(x, dtype=weft.float64).dtype is weft.float64
    assert as_nested_tensor(weft.ones(2, 3)).size(1) == 3
