"""Memory plans: nothing overlaps, little is wasted; and the arena itself."""

import mmap
import pathlib
import resource

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given

import weft
from weft.runtime.cpu.arena import ALIGNMENT, Arena, Buffer, Plan, lifetimes, plan


@st.composite
def buffers(draw, most=25):
    """Buffers in order of their first step; some take over one that has died."""
    found, free = [], set()
    steps = sorted(draw(st.lists(st.integers(0, 12), max_size=most)))
    for k, first in enumerate(steps):
        nbytes = draw(st.sampled_from([0, 1, 63, 64, 65, 1000, 4096]))
        last = first + draw(st.integers(0, 6))
        alignment = draw(st.sampled_from([1, 16, 64, 256]))
        dead = sorted(
            o for o in free if found[o].last <= first and found[o].first < first
        )
        shares = draw(st.sampled_from([None, *dead]))
        free.discard(shares)
        free.add(k)
        found.append(Buffer(k, nbytes, first, last, alignment, shares))
    return found


def overlaps(made):
    """All pairs that are live together and overlap, the slow way."""
    handed = {(b.shares, b.id) for b in made.buffers}
    for a in made.buffers:
        for b in made.buffers:
            together = a.first <= b.last and b.first <= a.last
            x, y = made.offsets[a.id], made.offsets[b.id]
            meet = x < y + b.nbytes and y < x + a.nbytes and a.nbytes and b.nbytes
            over = (a.id, b.id) in handed and a.last == b.first
            back = (b.id, a.id) in handed and b.last == a.first
            if a.id != b.id and together and meet and not over and not back:
                yield a, b


def most_live(made):
    """The most bytes live in one step, the slow way; sharing counts once."""
    root = {}
    for b in made.buffers:
        root[b.id] = b.id if b.shares is None else root[b.shares]
    most = 0
    for step in range(20):
        here = {root[b.id]: 0 for b in made.buffers if b.first <= step <= b.last}
        for b in made.buffers:
            if root[b.id] in here and b.first <= step <= b.last:
                here[root[b.id]] = max(here[root[b.id]], b.nbytes)
        most = max(most, sum(here.values()))
    return most


@given(buffers())
def test_plans_hold(given_buffers):
    made = plan(given_buffers)
    assert not list(overlaps(made))
    assert set(made.offsets) == {b.id for b in given_buffers}
    for b in given_buffers:
        assert made.offsets[b.id] % b.alignment == 0
        assert 0 <= made.offsets[b.id] <= made.nbytes - b.nbytes
        if b.shares is not None:
            assert made.offsets[b.id] == made.offsets[b.shares]
    assert most_live(made) <= made.bound <= made.nbytes


@given(buffers(most=10), st.data())
def test_verify_agrees_with_all_pairs(given_buffers, data):
    """Offsets at random: verify refuses exactly those with an overlap."""
    alike = [b._replace(alignment=64) for b in given_buffers]
    places = st.integers(0, 12).map(lambda k: 64 * k)
    offsets = {}
    for b in alike:
        drawn = data.draw(places)
        offsets[b.id] = drawn if b.shares is None else offsets[b.shares]
    made = Plan(tuple(alike), offsets, 64 * 13 + 4096, 0)
    if list(overlaps(made)):
        with pytest.raises(weft.errors.ArgumentError, match="overlap in step"):
            made.verify()
    else:
        made.verify()


@pytest.mark.parametrize(
    ("offsets", "message"),
    [
        ({"a": 32, "b": 64}, "not aligned to 64"),
        ({"a": -64, "b": 64}, "outside the arena"),
        ({"a": 128, "b": 128}, "ends at 228, after the arena's 192 bytes"),
        ({"a": 0, "b": 64}, "not where 'a' is"),
    ],
)
def test_verify_names_what_is_wrong(offsets, message):
    pair = (Buffer("a", 100, 0, 1), Buffer("b", 100, 1, 2, shares="a"))
    with pytest.raises(weft.errors.ArgumentError, match=message):
        Plan(pair, offsets, 192, 192).verify()


def test_sharing_is_in_place():
    chain = [Buffer(k, 1000, k, k + 1, shares=k - 1 if k else None) for k in range(9)]
    made = plan(chain)
    assert set(made.offsets.values()) == {0}
    assert made.nbytes == made.bound == 1024
    apart = plan([b._replace(shares=None) for b in chain])
    assert apart.nbytes == 2048


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ([Buffer("a", -1, 0, 1)], "got -1 bytes from step 0 to 1"),
        ([Buffer("a", 8, 2, 1)], "got 8 bytes from step 2 to 1"),
        ([Buffer("a", 8, 0, 1, 48)], "a power of two, got 48"),
        ([Buffer("a", 8, 0, 1), Buffer("a", 8, 0, 1)], "two buffers are called 'a'"),
        ([Buffer("b", 8, 0, 1, 64, "a")], "which does not come before it"),
        ([Buffer("a", 8, 0, 1, 64, "a")], "which does not come before it"),
        (
            [Buffer("a", 8, 0, 3), Buffer("b", 8, 1, 4, 64, "a")],
            "cannot take over 'a' in step 1",
        ),
        (
            [Buffer("a", 8, 1, 1), Buffer("b", 8, 1, 4, 64, "a")],
            "cannot take over 'a' in step 1",
        ),
        (
            [Buffer("a", 8, 0, 1), *(Buffer(k, 8, 1, 4, 64, "a") for k in "bc")],
            "another buffer has taken it over",
        ),
    ],
)
def test_wrong_lifetimes(wrong, message):
    with pytest.raises(weft.errors.ArgumentError, match=message):
        plan(wrong)


def test_nothing_to_plan():
    assert plan([])[1:] == ({}, 0, 0)
    assert plan([Buffer("a", 0, 0, 5)]).nbytes == 0
    assert plan([]).overhead == 0


def random_buffers(rng, count):
    first = rng.integers(0, count, count)
    last = first + rng.exponential(60, count).astype(int)
    sizes = (2 ** rng.uniform(6, 22, count)).astype(int)
    rows = zip(sizes, first, last, strict=True)
    return [Buffer(k, *map(int, row)) for k, row in enumerate(rows)]


def test_ten_thousand_buffers(rng):
    """How long that takes is what ``benchmarks/arena.py`` shows."""
    assert plan(random_buffers(rng, 10_000)).overhead < 0.05


# -- training steps


def gpt_step():
    model = weft.models.GPT(65, context=16, width=32, heads=4, layers=3)
    optimizer = weft.optim.AdamW(model.parameters(), lr=1e-3)

    def step(x, y):
        optimizer.zero_grad()
        loss = weft.nn.functional.cross_entropy(model(x).flatten(0, 1), y.flatten())
        loss.backward()
        optimizer.step()
        return loss

    tokens = weft.randint(0, 65, (4, 16))
    return weft.graph.capture(step, tokens, tokens).graph


def resnet_step():
    model = weft.models.resnet18(classes=10, cifar=True, width=8)
    optimizer = weft.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)

    def step(x, y):
        optimizer.zero_grad()
        loss = weft.nn.functional.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        return loss

    return weft.graph.capture(
        step, weft.randn(2, 3, 16, 16), weft.randint(0, 10, (2,))
    ).graph


@pytest.mark.parametrize("make", [gpt_step, resnet_step])
def test_training_steps_come_close_to_the_bound(make):
    graph = make()
    values = lifetimes(graph)
    made = plan(values)
    assert len(values) > 300
    assert made.overhead < 0.02
    assert made.nbytes < sum(b.nbytes for b in values) / 3


def test_lifetimes_reach_from_a_node_to_its_last_use():
    def program(x):
        first, second = weft.linalg.qr(x)
        y = second * 2
        return y.exp() + y, first

    graph = weft.graph.capture(program, weft.ones(3, 2)).graph
    step = {node.name: k for k, node in enumerate(graph.nodes)}
    found = {b.id: b for b in lifetimes(graph)}
    end = len(graph.nodes)
    assert found["mul"][1:4] == (16, step["mul"], step["add"])
    assert found["exp"][1:4] == (16, step["exp"], step["add"])
    assert found["add"][1:4] == (16, step["add"], end)
    assert found["qr.0"][1:4] == (24, step["qr"], end)
    assert found["qr.1"][1:4] == (16, step["qr"], end)
    assert "x" not in found


# -- the arena


@pytest.mark.parametrize("nbytes", [0, 1, 64, 5000, 3 << 20])
def test_arenas_are_aligned_and_zero(nbytes):
    arena = Arena(nbytes)
    assert arena.address % ALIGNMENT == 0
    assert arena.memory.shape == (nbytes,)
    assert not arena.memory.any()


def test_views_share_the_arena_s_memory():
    arena = Arena(256)
    x = arena.view(64, (2, 4), np.float32)
    x[...] = 1
    assert x.ctypes.data == arena.address + 64
    assert x.flags.writeable
    assert (arena.view(64, (8,), np.int32) == np.float32(1).view(np.int32)).all()
    assert arena.view(256, (0, 3), np.float64).shape == (0, 3)
    assert arena.view(0, (), np.int64).shape == ()
    del arena
    assert x.sum() == 8


@pytest.mark.parametrize(
    ("offset", "shape"), [(-8, (1,)), (64, (1,)), (0, (9,)), (2**62, (1,))]
)
def test_views_stay_within(offset, shape):
    with pytest.raises(weft.errors.ArgumentError, match="are not within 64"):
        Arena(64).view(offset, shape, np.float64)


def test_too_large_an_arena():
    with pytest.raises(weft.errors.AllocationError, match="1,125,899,906,842,624 byt"):
        Arena(2**50)
    with pytest.raises(weft.errors.ArgumentError, match="at least 0, got -1"):
        Arena(-1)


def test_the_system_refuses(monkeypatch):
    def refuse(*arguments, **options):
        raise OSError(12, "Cannot allocate memory")

    monkeypatch.setattr(mmap, "mmap", refuse)
    with pytest.raises(weft.errors.AllocationError, match="refused 1,000 bytes"):
        Arena(1000)


def test_a_second_use_faults_no_pages():
    arena = Arena(8 << 20)
    x = arena.view(0, (2 << 20,), np.float32)

    def faults():
        before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
        x.fill(1)
        return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

    assert faults() > 0
    assert faults() == 0


def test_memory_goes_back_with_the_last_view():
    def mapped():
        return int(pathlib.Path("/proc/self/statm").read_text().split()[0])

    before = mapped()
    view = Arena(64 << 20).view(0, (1,), np.float32)
    pages = (64 << 20) // resource.getpagesize()
    assert mapped() - before >= pages
    del view
    assert mapped() - before < pages
