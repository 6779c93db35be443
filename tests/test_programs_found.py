"""Faults that public programs have shown, each in a few lines."""

import numpy as np
import pytest

import weft
from weft import nn
from weft.errors import ArgumentError, ShapeError

X = weft.randn(2, 3, 4)
ROWS = weft.tensor([0, 1])


@pytest.mark.parametrize(
    "made",
    [
        lambda x: x[:, ROWS],
        lambda x: x.index_select(1, ROWS),
        lambda x: x.transpose(0, 1).softmax(-1),
        lambda x: weft.cat([x.transpose(0, 1)] * 2),
        lambda x: x.transpose(0, 1) @ x.permute(1, 2, 0),
        lambda x: x.permute(2, 0, 1).sum(0),
        lambda x: nn.functional.layer_norm(x.transpose(0, 1), (4,)),
    ],
)
@pytest.mark.parametrize("wanted", [False, True])
def test_results_that_are_in_order_in_pytorch_can_be_viewed(made, wanted):
    x = X.clone().requires_grad_(wanted)
    y = made(x)
    seen = y.view(-1)
    np.testing.assert_array_equal(seen.detach(), made(x).detach().reshape(-1))
    weights = weft.arange(float(seen.numel()))
    if wanted:
        (seen * weights).sum().backward()
        got, x.grad = x.grad.clone(), None
        (made(x).reshape(-1) * weights).sum().backward()
        np.testing.assert_array_equal(got, x.grad)
    else:
        seen[0] = 7.0  # it is a view
        assert float(y.flatten()[0]) == 7.0


def test_memory_that_others_see_is_not_laid_out_anew():
    fortran = np.asfortranarray(np.ones((2, 3), np.float32))

    def result():
        return X.transpose(0, 1).softmax(-1)

    seen = {
        "a view": X.transpose(0, 1),
        "NumPy's": weft.from_numpy(fortran),
        "shown to NumPy": (y := result(), y.numpy())[0],
        "detached": (y := result(), held.append(y.detach()))[0],
        "sliced": (y := result(), held.append(y[0]))[0],
    }
    for x in seen.values():
        with pytest.raises(ShapeError, match="without copying"):
            x.view(-1)


held = []


def test_broadcast_shapes_is_a_size():
    assert weft.broadcast_shapes((2, 1), (3,)).numel() == 6


def test_a_sparse_constant_is_an_argument_of_a_function():
    class Product(weft.autograd.Function):
        @staticmethod
        def forward(ctx, sparse, dense):
            ctx.sparse = sparse
            return weft.sparse.mm(sparse, dense)

        @staticmethod
        def backward(ctx, g):
            return None, weft.sparse.mm(ctx.sparse.t(), g)

    places, values = weft.tensor([[0, 1], [1, 0]]), weft.tensor([2.0, 3.0])
    matrix = weft.sparse.FloatTensor(places, values, weft.Size([2, 2]))
    x = weft.ones(2, 1, requires_grad=True)
    out = Product.apply(matrix, x)
    out.sum().backward()
    assert out.flatten().tolist() == [2.0, 3.0]
    assert x.grad.flatten().tolist() == [3.0, 2.0]


def test_old_names_of_sparse_tensors():
    assert weft.sparse.DoubleTensor(2, 3).shape == (2, 3)
    assert weft.sparse.LongTensor(weft.Size([2])).dtype is weft.int64


def test_arguments_that_share_memory_run_eagerly_where_that_is_allowed():
    def step(x, y):
        x.add_(1)
        return y * 2

    x = weft.zeros(3)
    compiled = weft.jit.script(step)
    assert compiled(weft.zeros(3), weft.zeros(3)).tolist() == [0.0] * 3
    assert compiled(x, x).tolist() == [2.0] * 3
    with pytest.raises(ArgumentError, match="shares its memory"):
        weft.compile(step)(x, x)


def test_a_group_may_be_empty_but_not_all_of_them():
    weight = weft.ones(1, requires_grad=True)
    optimizer = weft.optim.Adam([{"params": []}, {"params": [weight]}], lr=0.1)
    weight.sum().backward()
    optimizer.step()
    assert float(weight.detach()) < 1
    with pytest.raises(ValueError, match="no parameters"):
        weft.optim.Adam([])


def test_a_module_that_loads_leniently_misses_nothing():
    class Lenient(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("bound", weft.ones(1))

        def _load_from_state_dict(self, state_dict, prefix, meta, strict, *lists):
            super()._load_from_state_dict(state_dict, prefix, meta, False, *lists)

    assert nn.Sequential(Lenient()).load_state_dict({}).missing_keys == []


def test_writes_into_parts_are_recorded_in_a_backward_that_records():
    """A derivative computed inside of a backward pass, as linear operators do."""

    class Doubled(weft.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x * 2

        @staticmethod
        def backward(ctx, g):
            (x,) = ctx.saved_tensors
            x = x.detach().requires_grad_()
            with weft.enable_grad():
                whole = weft.zeros(5)
                whole[:3] = x
                whole[3:].copy_(x[1:] * 3)
                (found,) = weft.autograd.grad(whole.sum() * 2, x)
            return g * found

    x = weft.ones(3, requires_grad=True)
    Doubled.apply(x).sum().backward()
    assert x.grad.tolist() == [2.0, 8.0, 8.0]


def test_an_operator_of_the_users_gets_its_arguments_by_position():
    def scaled(x: weft.Tensor, by: weft.Tensor, plus: float = 1.0) -> weft.Tensor:
        return x * by + plus

    def keep(ctx, inputs, output):
        ctx.x, ctx.by, ctx.plus = inputs

    def back(ctx, g):
        return g * ctx.by, g * ctx.x, None

    op = weft.library.custom_op("found::scaled", scaled, mutates_args=())
    op.register_autograd(back, setup_context=keep)
    x, by = (weft.tensor([v], requires_grad=True) for v in (2.0, 3.0))
    op(x, by=by).sum().backward()
    assert (x.grad.tolist(), by.grad.tolist()) == ([3.0], [2.0])
