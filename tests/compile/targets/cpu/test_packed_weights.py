"""Weights that are packed once: the same bits, and never those of an old value."""

import copy
import gc

import numpy as np
import pytest

import weft
from weft import nn, optim
from weft.compile.targets.cpu import packed_weights

ROWS = 70  # more than are computed as dot products, and no multiple of anything


@pytest.fixture
def layer():
    weft.manual_seed(0)
    return nn.Linear(150, 130)


@pytest.fixture
def x():
    return weft.tensor(
        np.random.default_rng(1).normal(size=(ROWS, 150)), dtype=weft.float32
    )


def instances(function):
    return list(function.latest.program.executors.values())


def is_packed(function):
    """Whether the last run's products found their weights packed."""
    (instance,) = instances(function)
    assert instance.weights.all
    return [one.panels is not None for one in instance.weights.all] == [True] * len(
        instance.weights.all
    )


def bits(tensor):
    return np.array(tensor.detach().to_host()).tobytes()


def pair(layer):
    """A function with packed weights, and one without."""
    return (
        weft.compile(lambda x: layer(x).relu(), pack_weights=True),
        weft.compile(lambda x: layer(x).relu()),
    )


def test_it_is_packed_in_the_second_run_and_gives_the_same_bits(layer, x):
    ready, plain = pair(layer)
    with weft.no_grad():
        want = bits(plain(x))
        assert bits(ready(x)) == want
        assert not is_packed(ready)
        for _ in range(3):
            assert bits(ready(x)) == want
            assert is_packed(ready)
        (instance,) = instances(plain)
        assert not instance.weights.all


def eager_step(kind):
    def change(layer):
        optimizer = kind(layer.parameters(), lr=0.1)
        layer(weft.ones(2, 150)).square().mean().backward()
        optimizer.step()

    return change


def compiled_step(layer):
    optimizer = optim.SGD(layer.parameters(), lr=0.1)

    @weft.compile
    def step(x):
        optimizer.zero_grad()
        loss = layer(x).square().mean()
        loss.backward()
        optimizer.step()
        return loss

    step(weft.ones(2, 150))
    step(weft.ones(2, 150))


def lbfgs(layer):
    optimizer = optim.LBFGS(layer.parameters(), max_iter=2)

    def closure():
        optimizer.zero_grad()
        loss = layer(weft.ones(2, 150)).square().mean()
        loss.backward()
        return loss

    optimizer.step(closure)


def without_gradient(change):
    def changed(layer):
        with weft.no_grad():
            change(layer.weight)

    return changed


def in_inference(change):
    def changed(layer):
        with weft.inference_mode():
            change(layer.weight)

    return changed


def exchange(layer):
    layer.weight = nn.Parameter(weft.randn(130, 150))


def reload(layer):
    layer.load_state_dict({k: v.clone() * 2 for k, v in layer.state_dict().items()})


# Ways to change a weight that Weft notes: it is packed again.
NOTED = {
    "mul_": without_gradient(lambda w: w.mul_(2)),
    "copy_": without_gradient(lambda w: w.copy_(weft.ones(130, 150))),
    "an index": without_gradient(lambda w: w.__setitem__(3, 5.0)),
    "a view": without_gradient(lambda w: w[1:].add_(1)),
    "a view of a view": without_gradient(lambda w: w.T[2:][:, 1:].zero_()),
    "data": lambda layer: layer.weight.data.fill_(2),
    "detach": lambda layer: layer.weight.detach().mul_(3),
    "a shallow copy": without_gradient(lambda w: copy.copy(w).add_(1)),
    "inference mode": in_inference(lambda w: w.mul_(2)),
    "a view in inference mode": in_inference(lambda w: w.detach()[4:].mul_(2)),
    "init": lambda layer: nn.init.normal_(layer.weight),
    "load_state_dict": reload,
    "state_dict": lambda layer: layer.state_dict()["weight"].zero_(),
    "SGD": eager_step(optim.SGD),
    "AdamW": eager_step(optim.AdamW),
    "LBFGS": lbfgs,
    "a compiled step": compiled_step,
}
# Ways that nobody notes: who gives memory away is not packed any more.
UNNOTED = {
    "numpy": lambda layer: layer.weight.detach().numpy().__setitem__(0, 9.0),
    "a view's numpy": lambda layer: layer.weight.detach()[1:].numpy().fill(2.0),
    "asarray": lambda layer: np.asarray(layer.weight.detach()).fill(3.0),
    "dlpack": lambda layer: np.from_dlpack(layer.weight.detach()).fill(4.0),
}


@pytest.mark.parametrize("way", NOTED)
def test_a_change_is_seen(layer, x, way):
    ready, plain = pair(layer)
    with weft.no_grad():
        for _ in range(3):
            before = bits(ready(x))
    NOTED[way](layer)
    with weft.no_grad():
        for _ in range(3):
            want = bits(plain(x))
            assert want != before
            assert bits(ready(x)) == want
        assert is_packed(ready)


@pytest.mark.parametrize("way", UNNOTED)
def test_memory_that_others_write_to_is_not_packed(layer, x, way):
    ready, plain = pair(layer)
    with weft.no_grad():
        for _ in range(3):
            before = bits(ready(x))
    for _ in range(2):
        UNNOTED[way](layer)
        with weft.no_grad():
            for _ in range(3):
                want = bits(plain(x))
                assert want != before
                assert bits(ready(x)) == want
            assert not is_packed(ready)
        layer.weight.data.add_(1)  # so that the next writing is a change


def test_a_weight_that_is_exchanged(layer, x):
    ready, plain = pair(layer)
    with weft.no_grad():
        for _ in range(3):
            ready(x)
        exchange(layer)
        for _ in range(3):
            assert bits(ready(x)) == bits(plain(x))


def test_a_weight_over_an_array_of_the_users(x):
    array = np.random.default_rng(0).normal(size=(150, 130)).astype(np.float32)
    w = weft.from_numpy(array)
    ready = weft.compile(lambda x: x @ w, pack_weights=True)
    for _ in range(3):
        ready(x)
        array *= 2
        want = weft.compile(lambda x: x @ w)(x)
        assert bits(ready(x)) == bits(want)


@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "int8", "uint8", "float64"])
def test_other_dtypes(dtype):
    rng = np.random.default_rng(0)
    kind = getattr(weft, dtype)
    low = 0 if dtype == "uint8" else -100
    x, w = (
        weft.tensor(rng.integers(low, 100, s)).to(kind)
        for s in ((ROWS, 201), (130, 201))
    )
    ready = weft.compile(lambda x: x @ w.T, pack_weights=True)
    want = bits(weft.compile(lambda x: x @ w.T)(x))
    assert [bits(ready(x)) for _ in range(3)] == [want] * 3
    assert is_packed(ready)
    w.add_(1)
    assert bits(ready(x)) == bits(weft.compile(lambda x: x @ w.T)(x))


def test_programs_share_panels_and_forget_them(layer, x):
    gc.collect()
    first = len(packed_weights._shared)
    with weft.no_grad():
        one, _ = pair(layer)
        other = weft.compile(lambda x: layer(x) + 1, pack_weights=True)
        for f in (one, other):
            for rows in (ROWS, ROWS + 3, ROWS):
                for _ in range(2):
                    f(weft.ones(rows, 150))
    assert len(packed_weights._shared) == first + 1
    del one, other, f
    gc.collect()
    assert len(packed_weights._shared) == first


def test_open_sizes(layer):
    ready, plain = pair(layer)
    with weft.no_grad():
        for rows in (64, 65, 300, 3, 64, 65):
            x = weft.ones(rows, 150) * rows
            for _ in range(2):
                assert bits(ready(x)) == bits(plain(x))


def test_weights_that_the_program_changes_are_not_packed(layer, x):
    @weft.compile(pack_weights=True)
    def step(x):
        with weft.no_grad():
            out = layer(x)
            layer.weight.mul_(0.5)
        return out

    eager = copy.deepcopy(layer)
    for _ in range(4):
        want = eager(x).detach().to_host()
        np.testing.assert_allclose(
            step(x).detach().to_host(), want, rtol=1e-4, atol=1e-5
        )
        with weft.no_grad():
            eager.weight.mul_(0.5)
    assert all(not one.weights.all for one in instances(step))


def test_few_rows_and_small_weights_stay_as_they_are(layer):
    ready, plain = pair(layer)
    with weft.no_grad():
        few = weft.ones(2, 150)
        for _ in range(3):
            assert bits(ready(few)) == bits(plain(few))
        (instance,) = instances(ready)
        assert not instance.weights.all
    small = nn.Linear(20, 30)
    tiny = weft.compile(lambda x: small(x), pack_weights=True)
    with weft.no_grad():
        tiny(weft.ones(ROWS, 20))
    assert all(not one.weights.all for one in instances(tiny))


def test_recorded_programs_differentiate_all_the_same(layer, x):
    ready, plain = pair(layer)
    for _ in range(3):
        gradients = []
        for f in (ready, plain):
            layer.zero_grad()
            f(x).square().mean().backward()
            gradients.append(bits(layer.weight.grad))
        assert gradients[0] == gradients[1]


def test_a_stored_program_packs_too(layer, x, tmp_path, monkeypatch):
    monkeypatch.setenv("WEFT_CACHE_DIR", str(tmp_path / "cache"))
    with weft.no_grad():
        for _ in range(2):  # the second is found on disk
            ready, plain = pair(layer)
            want = bits(plain(x))
            assert [bits(ready(x)) for _ in range(3)] == [want] * 3
            assert is_packed(ready)
        assert ready.latest.program._lowered is None
