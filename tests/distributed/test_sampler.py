"""Samples are shared among ranks, and a run goes on with other numbers of them."""

import pytest

import weft
import weft.distributed as dist
from weft.utils.data import DataLoader, DistributedSampler


def loader(size, rank, batch=2):
    sampler = DistributedSampler(range(24), size, rank, seed=5)
    return DataLoader(range(24), batch_size=batch, sampler=sampler, seed=1)


def seen(loaders, steps, state=None):
    """The samples of some steps of all ranks, and the state after them."""
    found = []
    for one in loaders:
        if state is not None:
            one.load_state_dict(state)
        batches = iter(one)
        found += [n for _ in range(steps) for n in next(batches).tolist()]
    states = [one.state_dict() for one in loaders]
    assert all(one == states[0] for one in states)
    return found, states[0]


@pytest.mark.parametrize("then", [1, 2, 3, 6])
def test_any_number_of_ranks_goes_on(then):
    first, state = seen([loader(2, r) for r in range(2)], 3)  # 12 of 24 samples
    rest, _ = seen([loader(then, r) for r in range(then)], 6 // then, state)
    assert sorted(first + rest) == list(range(24))


def test_steps_that_no_number_of_ranks_has_done():
    _, state = seen([loader(2, r) for r in range(2)], 1)
    with pytest.raises(ValueError, match="2 batches are no whole number of steps of 3"):
        loader(3, 0).load_state_dict(state)


def test_the_same_ranks_go_on_exactly():
    whole = [batch.tolist() for batch in loader(2, 1)]
    begun = loader(2, 1)
    batches = iter(begun)
    head = [next(batches).tolist() for _ in range(2)]
    again = loader(2, 1)
    again.load_state_dict(begun.state_dict())
    assert head + [batch.tolist() for batch in again] == whole
    assert [batch.tolist() for batch in again] != whole  # another epoch


def in_a_group():
    rank, size = dist.get_rank(), dist.get_world_size()
    sampler = DistributedSampler(range(10), shuffle=False)
    assert (sampler.rank, sampler.num_replicas) == (rank, size)
    every = [None] * size
    dist.all_gather_object(every, list(sampler))
    assert sorted(n for some in every for n in some) == list(range(10))


def test_the_group_says_which_share(worlds):
    worlds.ok(in_a_group, 2)


def test_without_a_group_the_share_has_to_be_said():
    with pytest.raises(RuntimeError, match="init_process_group first, or pass num_re"):
        DistributedSampler(range(3))
    assert weft.distributed.get_node_local_rank(0) == 0
