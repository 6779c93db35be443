"""Every way in which a record says that it divides, against the whole."""

import numpy as np
import pytest

import weft
from weft.core.op import TensorType, all_ops
from weft.distributed.tensor.dtensor import _local
from weft.distributed.tensor.placements import piece
from weft.ops import dividing

SIZE = 2
OPS = [op for op in all_ops() if op.facts.divides or op.facts.elementwise]


def typed(value):
    if isinstance(value, np.ndarray):
        return TensorType(value.shape, weft.from_numpy(value).dtype)
    return value


def cut(x, dim, rank):
    start, length = piece(x.shape[dim], SIZE, rank)
    return np.take(x, range(start, start + length), dim)


def part_of(x, entry, rank, rng_seed):
    """What a process has of an operand."""
    if entry is None or not isinstance(x, np.ndarray):
        return x
    if isinstance(entry, int):
        return cut(x, entry, rank)
    assert entry == "sum"
    noise = np.random.default_rng(rng_seed).standard_normal(x.shape)
    return noise if rank else x - noise


def joined(parts, entry):
    if isinstance(entry, int):
        return np.concatenate(parts, entry)
    if entry is None:
        np.testing.assert_array_equal(parts[0], parts[1])
        return parts[0]
    combine = {"sum": np.add, "max": np.maximum, "min": np.minimum}[entry]
    return combine(*parts)


def samples(op):
    rng = np.random.default_rng(0)
    for sample in op.samples(rng):
        kinds = np.ndarray, np.generic
        args = [np.asarray(a) if isinstance(a, kinds) else a for a in sample.args]
        yield args, sample.params


def evaluated(op, args, params):
    found = op.eval(*args, **params)
    return found if isinstance(found, tuple) else (found,)


@pytest.mark.parametrize("op", OPS, ids=lambda op: op.name)
def test_parts_make_the_whole(op):
    ways = 0
    with np.errstate(all="ignore"):
        for args, params in samples(op):
            types = [typed(a) for a in args]
            out = op.type(*types, **params)
            outs = out if type(out) is tuple else (out,)
            whole = evaluated(op, args, params)
            for ins, results in dividing.ways(
                op.facts, op.linear, SIZE, out, types, params
            ):
                assert len(ins) == len(args)
                assert len(results) == len(outs)
                found = []
                for rank in range(SIZE):
                    parts = [
                        part_of(a, entry, rank, k)
                        for k, (a, entry) in enumerate(zip(args, ins, strict=True))
                    ]
                    shapes = [
                        tuple(cut(np.empty(t.shape), entry, rank).shape)
                        if isinstance(entry, int)
                        else t.shape
                        for t, entry in zip(outs, results, strict=True)
                    ]
                    local = _local(params, types, outs, shapes)
                    found.append(evaluated(op, parts, local))
                    for one, shape in zip(found[-1], shapes, strict=True):
                        assert np.shape(one) == tuple(shape), (ins, results)
                for k, want in enumerate(whole):
                    got = joined([some[k] for some in found], results[k])
                    np.testing.assert_allclose(
                        got, want, 1e-9, 1e-9, err_msg=f"{ins} {results} {params}"
                    )
                ways += 1
    assert ways


def test_a_wrong_rule_is_found():
    from weft.ops import dividing

    def wrong(size, out, x, *, dim, **params):
        yield from dividing.along(size, out, x, dim=dim)
        yield (dim,), (dim,)

    op = next(op for op in OPS if op.name == "cumsum")
    before = op.facts
    op.facts = type(before)(**{**vars(before), "divides": wrong})
    try:
        with pytest.raises(AssertionError):
            test_parts_make_the_whole(op)
    finally:
        op.facts = before
    assert weft.core.op.find_op("cumsum") is op
