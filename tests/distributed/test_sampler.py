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


@pytest.mark.parametrize(("before", "then"), [(4, 3), (2, 3), (3, 2), (5, 4)])
def test_processes_go_on_in_the_middle_of_a_step_of_theirs(before, then):
    first, state = seen([loader(before, r) for r in range(before)], 1)
    loaders = [loader(then, r) for r in range(then)]
    rest, middle = seen(loaders, 1, state)
    assert len({*first, *rest}) == 2 * (before + then)  # nothing twice
    assert middle["position"] == before + then
    more, end = seen([loader(2, r) for r in range(2)], 1, middle)
    assert len({*first, *rest, *more}) == 2 * (before + then + 2)
    assert end["position"] == before + then + 2


@pytest.mark.parametrize("drop_last", [False, True])
def test_the_rest_of_an_epoch_is_shared_out(drop_last):
    def one(rank):
        sampler = DistributedSampler(range(23), 3, rank, seed=5, drop_last=drop_last)
        return DataLoader(range(23), batch_size=2, sampler=sampler, seed=1)

    state = {"seed": 1, "epoch": 2, "position": 4}  # 8 samples of 23
    found = []
    for rank in range(3):
        now = one(rank)
        now.load_state_dict(state)
        found.append([n for batch in now for n in batch.tolist()])
        assert now.state_dict() == {"seed": 1, "epoch": 3, "position": 0}
        assert len([n for batch in now for n in batch.tolist()]) == (
            7 if drop_last else 8
        )
    assert [len(one) for one in found] == [5, 5, 5]
    assert len({n for some in found for n in some}) == 15


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
