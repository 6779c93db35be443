"""Random nodes: new numbers in every run, and the same ones from the same seed."""

import numpy as np
import pytest

import weft
from weft import static


def draws(seed, runs=3, which=(0, 1)):
    with static.Graph().as_default() as graph, static.Session(graph) as session:
        static.set_random_seed(seed)
        nodes = [static.random_normal([4]), static.random_uniform([3])]
        return [session.run([nodes[k] for k in which]) for _ in range(runs)]


def flat(found):
    return np.concatenate([a for run in found for a in run])


def test_new_numbers_every_run_and_the_same_from_the_same_seed():
    one, two, other = draws(1), draws(1), draws(2)
    assert len(set(flat(one))) == len(flat(one))
    np.testing.assert_array_equal(flat(one), flat(two))
    assert not np.isin(flat(other), flat(one)).any()


def test_several_draws_of_one_run_differ(session):
    static.set_random_seed(0)
    a, b = static.random_uniform([5]), static.random_uniform([5])
    first, second, third = session.run([a, b, a])
    np.testing.assert_array_equal(first, third)
    assert not np.isin(first, second).any()


def test_one_draw_alone():
    every = flat(draws(1, which=(1,)))
    assert len(set(every)) == len(every) == 9


def test_the_first_draw_is_that_of_an_eager_generator(session):
    static.set_random_seed(5)
    found = session.run(static.random_uniform([6]))
    eager = weft.rand(6, generator=weft.Generator().manual_seed(5)).numpy()
    np.testing.assert_array_equal(found, eager)


def test_sessions_start_the_same_sequence(graph):
    x = static.random_normal([2], seed=3)
    runs = []
    for _ in range(2):
        with static.Session(graph) as session:
            runs.append([session.run(x).tolist() for _ in range(2)])
    assert runs[0] == runs[1]
    assert runs[0][0] != runs[0][1]


def test_a_seed_of_its_own(session):
    a = [static.random_normal([2], seed=s) for s in (1, 1, 2)]
    one, again, other = (v.tolist() for v in session.run(a))
    assert one == again != other


def test_a_draw_whose_size_is_open(session):
    """Draws after it must not need its size, nor repeat its numbers."""
    x = static.placeholder(weft.float32, [None])
    open_draw = static.nn.dropout(x, rate=0.5)
    fixed = weft.nn.functional.dropout(static.constant(np.ones(64)), 0.5)
    alone = [session.run(fixed) for _ in range(2)]
    assert (alone[0] != alone[1]).any()
    both = session.run([open_draw, fixed], {x: np.ones(64)})
    assert (both[0] != both[1]).any()
    assert session.run(open_draw, {x: np.ones(7)}).shape == (7,)


def test_a_variable_is_drawn_when_it_is_initialised(graph, session):
    w = static.Variable(static.random_normal([3]))
    found = []
    for _ in range(2):
        session.run(w.initializer)
        found.append(session.run(w).tolist())
        assert session.run(w).tolist() == found[-1]
    assert found[0] != found[1]


def test_distributions(session):
    static.set_random_seed(0)
    n = 200_000
    normal, uniform, cut = session.run(
        [
            static.random_normal([n], 1.0, 2.0),
            static.random_uniform([n], -1.0, 3.0),
            static.truncated_normal([n], 0.0, 1.0),
        ]
    )
    assert normal.mean() == pytest.approx(1, abs=0.02)
    assert normal.std() == pytest.approx(2, abs=0.02)
    assert uniform.min() >= -1
    assert uniform.max() < 3
    assert uniform.mean() == pytest.approx(1, abs=0.02)
    assert np.abs(cut).max() <= 2
    assert cut.std() == pytest.approx(0.8796, abs=0.01)  # of the cut distribution


def test_gradients_do_not_draw_again(session):
    static.set_random_seed(0)
    x = static.placeholder(weft.float32, [64])
    y = static.nn.dropout(x, rate=0.5)
    (dx,) = static.gradients(y.sum(), x)
    out, slope = session.run([y, dx], {x: np.ones(64)})
    np.testing.assert_array_equal(out, slope)
