"""Texts written with a cache in pages are those of the network without one."""

import threading

import numpy as np
import pytest

import weft
from weft.errors import ArgumentError
from weft.language import Config, Decoder, Engine, LanguageModel, Sampling
from weft.language.engine import PAGE
from weft.language.sampling import chances, choose

CONFIG = Config(
    vocab=60, context=96, width=32, layers=2, heads=4, key_heads=2, inner=48, tied=False
)


@pytest.fixture(scope="module")
def net():
    weft.manual_seed(0)
    return Decoder(CONFIG).eval()


def naive(net, prompt, count):
    """What the network takes as the likeliest tokens, without a cache."""
    ids = list(prompt)
    with weft.no_grad():
        for _ in range(count):
            ids.append(int(net(weft.tensor([ids]))[0, -1].argmax()))
    return ids[len(prompt) :]


def finish(engine):
    for _ in range(1000):
        if not engine.busy:
            return
        engine.step()
    pytest.fail("the engine does not end")


@pytest.mark.parametrize("compiled", [False, True])
def test_texts_side_by_side(net, compiled):
    engine = Engine(net, batch=4, chunk=16, compiled=compiled)
    prompts = [list(range(k, 9 * k + 1)) for k in range(1, 7)]
    requests = [
        engine.submit(p, Sampling(max_new_tokens=10 + len(p) % 3)) for p in prompts
    ]
    finish(engine)
    for request in requests:
        expected = naive(net, request.prompt, request.sampling.max_new_tokens)
        assert request.tokens == expected
        assert request.finish == "length"
    assert sorted(engine.free) == list(range(1, engine.count + 1))
    assert not engine.cache[:, :, :PAGE].any()  # the page that fills tables


@pytest.mark.parametrize("chunk", [1, 24, 96])
def test_texts_as_long_as_tables(net, chunk):
    """A step's last key may be the last of a table, or the first of a longer one."""
    for length in (62, 63, 64, 65):
        engine = Engine(net, chunk=chunk)
        request = engine.submit(
            [k % 60 for k in range(length)], Sampling(max_new_tokens=4)
        )
        finish(engine)
        assert request.tokens == naive(net, request.prompt, 4)


def test_a_text_gives_way_and_is_written_all_the_same(net):
    needs = Engine(net, batch=4, chunk=16, compiled=False).needs
    limit = needs["weights"] + needs["work"] + 8 * needs["page"]
    engine = Engine(net, batch=4, chunk=16, compiled=False, memory=limit)
    assert engine.count == 7
    assert engine.memory <= limit
    prompts = [list(range(k, 8 * k + 2)) for k in range(1, 6)]
    requests = [engine.submit(p, Sampling(max_new_tokens=30)) for p in prompts]
    finish(engine)
    for request in requests:
        assert request.tokens == naive(net, request.prompt, 30)
    assert len(engine.free) == 7


def test_memory_that_is_too_small(net):
    with pytest.raises(ArgumentError, match=r"too few: the weights take .* at least"):
        Engine(net, memory=1000)
    least = LanguageModel(net, memory="3MB", chunk=16, batch=1)
    assert least.memory <= 3_000_000


def test_threads_write_their_own_texts(net):
    model = LanguageModel(net, batch=3, compiled=False)
    prompts = [[k, k + 1, k + 2] for k in range(5)]
    found = {}

    def write(k):
        found[k] = model.generate(prompts[k], max_new_tokens=8)

    threads = [threading.Thread(target=write, args=(k,)) for k in range(5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == {k: naive(net, p, 8) for k, p in enumerate(prompts)}


def test_a_stream_that_is_closed_frees_its_pages(net):
    model = LanguageModel(net, compiled=False)
    stream = model.stream([1, 2, 3], max_new_tokens=50)
    assert next(stream) == naive(net, [1, 2, 3], 1)[0]
    stream.close()
    assert len(model.engine.free) == model.engine.count
    assert not model.engine.busy


def test_tokens_that_end_a_text(net):
    first, second = naive(net, [1, 2, 3], 2)
    assert first != second
    ending = Decoder(Config(**{**CONFIG.__dict__, "ends": (second,)}))
    ending.load_state_dict(net.state_dict())
    model = LanguageModel(ending, compiled=False)
    assert model.generate([1, 2, 3], max_new_tokens=9) == [first]
    more = model.generate([1, 2, 3], max_new_tokens=9, ignore_ends=True)
    assert more == naive(net, [1, 2, 3], 9)


def test_seeds(net):
    model = LanguageModel(net, compiled=False)
    options = {"max_new_tokens": 12, "temperature": 1.5, "top_k": 30, "top_p": 0.95}
    first = model.generate([4, 5], seed=3, **options)
    assert model.generate([4, 5], seed=3, **options) == first
    assert model.generate([4, 5], seed=4, **options) != first
    weft.manual_seed(8)
    drawn = [model.generate([4, 5], **options) for _ in range(2)]
    weft.manual_seed(8)
    assert drawn == [model.generate([4, 5], **options) for _ in range(2)]
    assert drawn[0] != drawn[1]


def test_draws_follow_the_chances():
    logits, sampling = np.log([0.5, 0.3, 0.15, 0.05]), Sampling(temperature=1.0)
    generator = np.random.Generator(np.random.Philox(0))
    drawn = [choose(logits, sampling, [], generator) for _ in range(20_000)]
    shares = np.bincount(drawn, minlength=4) / len(drawn)
    np.testing.assert_allclose(shares, [0.5, 0.3, 0.15, 0.05], atol=0.012)


def test_no_token_without_a_chance_is_drawn():
    class Last:
        def random(self):
            return np.nextafter(1.0, 0)

    logits = np.array([0.0, 0.0, -1e9])
    assert choose(logits, Sampling(temperature=1.0), [], Last()) == 1


@pytest.mark.parametrize(
    "options", [{"temperature": 1e-308}, {"repetition_penalty": 1e308}]
)
def test_extreme_options_still_have_chances(options):
    logits, options = np.array([-3.0, -1.0, -2.0]), {"temperature": 1.0} | options
    found = chances(logits, Sampling(**options), [0, 1, 2])
    assert found.sum() == pytest.approx(1)
    assert np.isfinite(found).all()


def test_chances_of_logits_that_are_not_finite():
    with pytest.raises(ArgumentError, match="not finite"):
        chances(np.array([0.0, np.nan]), Sampling())


@pytest.mark.parametrize(
    ("prompt", "options", "message"),
    [
        ([], {}, "prompt is empty"),
        ([60], {}, "integers from 0 to 59, got 60"),
        ([1.0], {}, "got 1.0"),
        ([1], {"max_new_tokens": 96}, "do not fit into the context, which holds 96"),
        ("text", {}, "no tokenizer"),
        ([1], {"stop": "x"}, "stop needs a prompt that is a text"),
        ([1], {"top": 1}, "'top' is no option; there are max_new_tokens"),
        ([1], {"top_p": 0}, "above 0 and at most 1, got 0"),
        ([1], {"max_new_tokens": 0}, "an integer from 1 on, got 0"),
        ([1], {"temperature": float("nan")}, "temperature must be 0 or more"),
        ([1], {"repetition_penalty": 0}, "above 0, got 0"),
    ],
)
def test_bad_requests(net, prompt, options, message):
    model = LanguageModel(net, compiled=False)
    with pytest.raises(ArgumentError, match=message):
        model.generate(prompt, **options)
    assert not model.engine.busy
