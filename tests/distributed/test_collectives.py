"""Collectives against NumPy, on two and four ranks."""

import warnings

import numpy as np
import pytest

import weft
import weft.distributed as dist

DTYPES = ["float32", "float64", "int64", "int32", "uint8", "float16", "bfloat16"]
SHAPES = [(), (3,), (2, 3), (0, 2), (5000, 3)]  # the last one is sent in pieces


def given(rank, shape):
    """The numbers of a rank, which every rank can compute."""
    return np.random.default_rng(rank).integers(1, 9, shape) * 1.0


def mine(shape, dtype="float64"):
    return weft.tensor(given(dist.get_rank(), shape)).to(getattr(weft, dtype))


def every(shape):
    return [given(rank, shape) for rank in range(dist.get_world_size())]


def same(found, want):
    np.testing.assert_allclose(found.to(weft.float64).numpy(), want, rtol=1e-2, atol=0)
    if found.dtype in (weft.float64, weft.int64):
        np.testing.assert_array_equal(found.to(weft.float64).numpy(), want)


COMBINE = {
    dist.ReduceOp.SUM: lambda xs: sum(xs[1:], xs[0]),
    dist.ReduceOp.PRODUCT: lambda xs: np.prod(np.stack(xs), 0),
    dist.ReduceOp.MIN: lambda xs: np.min(np.stack(xs), 0),
    dist.ReduceOp.MAX: lambda xs: np.max(np.stack(xs), 0),
}


def reductions():
    for shape in SHAPES:
        for op, combine in COMBINE.items():
            for dtype in ["float64", "float32", "int64"]:
                x = mine(shape, dtype)
                assert dist.all_reduce(x, op) is None
                same(x, combine(every(shape)))
                x = mine(shape, dtype)
                before = x.clone()
                dist.reduce(x, 1, op)
                same(
                    x, combine(every(shape)) if dist.get_rank() == 1 else before.numpy()
                )
        x = mine(shape)
        dist.all_reduce(x, dist.ReduceOp.AVG)
        same(x * dist.get_world_size(), sum(every(shape)))
    for dtype in DTYPES:
        x = mine((4,), dtype)
        dist.all_reduce(x)
        assert x.dtype == getattr(weft, dtype)
        same(x, sum(every((4,))))
    x = weft.tensor([1 << dist.get_rank()])
    dist.all_reduce(x, dist.ReduceOp.BOR)
    assert x.item() == (1 << dist.get_world_size()) - 1
    z = mine((3,)).to(weft.complex128) * 1j
    dist.all_reduce(z)
    np.testing.assert_array_equal(z.numpy().imag, sum(every((3,))))


def moves():
    rank, size = dist.get_rank(), dist.get_world_size()
    for shape in SHAPES:
        want = every(shape)
        x = mine(shape)
        dist.broadcast(x, src=1)
        same(x, want[1])
        outs = [weft.zeros(shape, dtype=weft.float64) for _ in range(size)]
        dist.all_gather(outs, mine(shape))
        for one, other in zip(outs, want, strict=True):
            same(one, other)
        outs = [weft.zeros(shape, dtype=weft.float64) for _ in range(size)]
        dist.gather(mine(shape), outs if rank == 0 else None)
        for one, other in zip(outs, want if rank == 0 else outs, strict=True):
            same(one, other if rank == 0 else other.numpy())
        out = weft.zeros(shape, dtype=weft.float64)
        pieces = [mine(shape) + k for k in range(size)]
        dist.scatter(out, pieces if rank == 1 else None, src=1)
        same(out, want[1] + rank)
        dist.reduce_scatter(out, pieces)
        same(out, sum(want) + size * rank)
        outs = [weft.zeros(shape, dtype=weft.float64) for _ in range(size)]
        dist.all_to_all(outs, pieces)
        for k, one in enumerate(outs):
            same(one, want[k] + rank)


def single_tensors():
    rank, size = dist.get_rank(), dist.get_world_size()
    want = every((2, 3))
    for shape in ((size * 2, 3), (size, 2, 3)):
        out = weft.zeros(shape, dtype=weft.float64)
        dist.all_gather_into_tensor(out, mine((2, 3)))
        same(out, np.stack(want).reshape(shape))
    full = mine((size * 2, 3))
    out = weft.zeros(2, 3, dtype=weft.float64)
    dist.reduce_scatter_tensor(out, full)
    same(out, sum(every((size * 2, 3)))[2 * rank : 2 * rank + 2])
    out = weft.zeros(size * 2, 3, dtype=weft.float64)
    dist.all_to_all_single(out, full)
    rows = [one[2 * rank : 2 * rank + 2] for one in every((size * 2, 3))]
    same(out, np.concatenate(rows))
    # rank r sends r + 1 rows to each
    x = weft.full((size * (rank + 1), 2), float(rank))
    out = weft.zeros(sum(range(1, size + 1)), 2)
    dist.all_to_all_single(out, x, list(range(1, size + 1)), [rank + 1] * size)
    assert out[:, 0].tolist() == [float(k) for k in range(size) for _ in range(k + 1)]


def views_and_transposes():
    x = mine((4, 6))
    dist.all_reduce(x.T)
    same(x, sum(every((4, 6))))
    x = mine((4, 6))
    dist.all_reduce(x[1:, ::2])
    want = every((4, 6))[dist.get_rank()]
    want[1:, ::2] = sum(every((4, 6)))[1:, ::2]
    same(x, want)
    p = weft.nn.Parameter(weft.ones(2))
    dist.all_reduce(p)
    assert p.is_leaf
    assert p.requires_grad
    assert p.tolist() == [dist.get_world_size()] * 2


def handles():
    size = dist.get_world_size()
    xs = [weft.full((n,), float(dist.get_rank())) for n in (1, 50_000, 3)]
    works = [dist.all_reduce(x, async_op=True) for x in xs]
    last = weft.ones(1)
    dist.all_reduce(last)  # comes after them
    assert works[0].is_completed()
    for x, work in zip(xs, works, strict=True):
        assert work.wait()
        assert work.is_success()
        assert work.result()[0] is x
        assert x[0].item() == sum(range(size))
    assert last.item() == size
    future = dist.all_gather(
        [weft.zeros(1) for _ in range(size)], weft.ones(1), async_op=True
    ).get_future()
    assert len(future.wait()) == size
    assert dist.barrier(async_op=True).wait()


def messages():
    rank, size = dist.get_rank(), dist.get_world_size()
    left, right = (rank - 1) % size, (rank + 1) % size
    for count in (3, 1_000_000):  # more than connections hold
        x = weft.full((count,), float(rank))
        y = weft.zeros(count)
        ops = [
            dist.P2POp(dist.isend, x, right), dist.P2POp(dist.irecv, y, left)
        ]  # fmt: skip
        for work in dist.batch_isend_irecv(ops):
            work.wait()
        assert y[0].item() == y[-1].item() == left
        works = [dist.irecv(y, left), dist.isend(x * 2, right)]
        for work in works:
            work.wait()
        assert y[-1].item() == 2 * left
    if rank == 0:
        seen = set()
        for _ in range(size - 1):
            y = weft.zeros(1)
            source = dist.recv(y)
            assert y.item() == source
            seen.add(source)
        assert seen == set(range(1, size))
        a, b = weft.zeros(1), weft.zeros(1)
        dist.recv(b, 1, tag=7)  # which was sent second
        dist.recv(a, 1, tag=5)
        assert (a.item(), b.item()) == (50, 70)
    else:
        dist.send(weft.full((1,), float(rank)), 0)
        if rank == 1:
            dist.send(weft.full((1,), 50.0), 0, tag=5)
            dist.send(weft.full((1,), 70.0), 0, tag=7)


def plain_data():
    rank, size = dist.get_rank(), dist.get_world_size()
    value = {"rank": rank, (1, "a"): [None, True, 0.1, 1 + 2j, b"x", {3}, float("inf")],
             "array": np.arange(3) * rank, "tensor": weft.ones(2) * rank}  # fmt: skip
    found = [None] * size
    dist.all_gather_object(found, value)
    for k, one in enumerate(found):
        assert one["rank"] == k
        assert one[1, "a"] == value[1, "a"]
        assert one["array"].tolist() == [0, k, 2 * k]
        assert type(one["tensor"]) is weft.Tensor
    found = [rank, "x"] if rank == 1 else [None, None]
    dist.broadcast_object_list(found, src=1)
    assert found == [1, "x"]
    found = [None] * size if rank == 0 else None
    dist.gather_object(rank * 2, found)
    assert found == ([2 * k for k in range(size)] if rank == 0 else None)
    out = [None]
    dist.scatter_object_list(
        out, [f"for {k}" for k in range(size)] if not rank else None
    )
    assert out == [f"for {rank}"]
    with pytest.raises(
        TypeError, match=r"plain data.*got Linear at the object\['net'\]"
    ):
        dist.all_gather_object([None] * size, {"net": weft.nn.Linear(1, 1)})


def groups():
    rank, size = dist.get_rank(), dist.get_world_size()
    low, high = dist.new_group([0, 1]), dist.new_group(range(1, size))
    assert dist.get_world_size(low) == (2 if rank < 2 else -1)
    x = weft.ones(2) * (rank + 1)
    if rank < 2:
        dist.all_reduce(x, group=low)
        assert x[0].item() == 3
        assert dist.get_process_group_ranks(low) == [0, 1]
    else:
        assert low is dist.GroupMember.NON_GROUP_MEMBER
        assert dist.get_rank(low) == -1
    if rank > 0:
        x = weft.tensor([rank])
        dist.broadcast(x, src=size - 1, group=high)
        assert x.item() == size - 1
        dist.broadcast(x, group_src=0, group=high)
        assert x.item() == size - 1
        assert dist.get_group_rank(high, rank) == rank - 1
        assert dist.get_global_rank(high, 0) == 1
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        if rank == 0:
            dist.all_reduce(x, group=high) if high else None
    assert not seen
    dist.barrier()
    if low:
        dist.destroy_process_group(low)
    assert dist.get_backend() in ("sockets", "mpi")
    assert dist.group.WORLD.size() == size


def mistakes():
    size = dist.get_world_size()
    x = weft.ones(2)
    with pytest.raises(ValueError, match=f"list of {size} tensors"):
        dist.all_gather([x], x)
    with pytest.raises(ValueError, match="no rank 9 in"):
        dist.broadcast(x, src=9)
    with pytest.raises(TypeError, match="expected a tensor, got float"):
        dist.all_reduce(1.0)
    with pytest.raises(ValueError, match="ReduceOp"):
        dist.all_reduce(x, op="median")
    with pytest.raises(TypeError, match="AVG needs floating-point"):
        dist.all_reduce(x.long(), op=dist.ReduceOp.AVG)
    with pytest.raises(RuntimeError, match="to itself"):
        dist.send(x, dist.get_rank())
    with pytest.raises(RuntimeError, match="twice"):
        dist.init_process_group()
    with pytest.raises(ValueError, match="expected different ranks from 0 to"):
        dist.new_group([0, 99])
    with pytest.raises(RuntimeError, match=f"output of {2 * size} elements"):
        dist.all_gather_into_tensor(weft.zeros(1), x)
    dist.all_reduce(x)  # nobody is lost
    assert x[0].item() == size


CHECKS = [
    reductions, moves, single_tensors, views_and_transposes, handles, messages,
    plain_data, groups, mistakes,
]  # fmt: skip


@pytest.mark.parametrize("size", [2, 4])
@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_on_ranks(check, size, worlds):
    worlds.ok(check, size)
