"""Texts over HTTP, as OpenAI's interface has them."""

import asyncio
import concurrent.futures
import json

import pytest
from http_server import running, until

import weft
from weft.language import Config, Decoder, LanguageModel, Sampling
from weft.serve import Limits, Server
from weft.serve.writing import Writer

VOCAB = 128


class Bytes:
    """A tokenizer whose tokens are ASCII characters."""

    encode = staticmethod(lambda text: list(text.encode("ascii")))
    decode = staticmethod(lambda tokens: bytes(tokens).decode("ascii"))


@pytest.fixture(scope="module")
def model():
    weft.manual_seed(0)
    config = Config(
        vocab=VOCAB, context=96, width=32, layers=2, heads=4, tied=False, ends=(0,)
    )
    return LanguageModel(Decoder(config), Bytes(), batch=4, chunk=16, compiled=False)


@pytest.fixture(scope="module")
def client(model):
    with running(Server(model, name="small")) as found:
        yield found


@pytest.fixture
def idle(model):
    """The engine holds nothing when a test has ended."""
    yield
    until(lambda: not model.engine.busy)
    assert len(model.engine.free) == model.engine.count


def ask(client, **options):
    return client.post("/v1/completions", options)


def events(client, **options):
    body = {"stream": True, **options}
    status, head, raw = client.ask("POST", "/v1/completions", body)
    assert (status, head["content-type"].partition(";")[0]) == (
        200,
        "text/event-stream",
    )
    pieces = raw.decode().split("\n\n")
    assert pieces[-2:] == ["data: [DONE]", ""]
    return [json.loads(piece.removeprefix("data: ")) for piece in pieces[:-2]]


def test_a_text(client, model, idle):
    expected = model.generate("hello", max_new_tokens=12)
    status, found, _ = ask(client, prompt="hello", max_tokens=12, temperature=0)
    assert status == 200
    assert found["object"] == "text_completion"
    assert found["model"] == "small"
    (choice,) = found["choices"]
    assert choice["text"] == expected
    assert choice["finish_reason"] == "length"
    assert found["usage"] == {
        "prompt_tokens": 5, "completion_tokens": 12, "total_tokens": 17
    }  # fmt: skip


def test_a_stream_is_the_same_text(client, model, idle):
    expected = model.generate("stream", max_new_tokens=10)
    found = events(client, prompt="stream", max_tokens=10, temperature=0)
    assert "".join(one["choices"][0]["text"] for one in found) == expected
    assert len(found) > 5
    reasons = [one["choices"][0]["finish_reason"] for one in found]
    assert reasons == [None] * (len(found) - 1) + ["length"]


def test_several_prompts_and_texts(client, idle):
    options = {"prompt": ["one", "two"], "n": 2, "max_tokens": 6, "seed": 5}
    found = ask(client, **options)[1]["choices"]
    assert [one["index"] for one in found] == [0, 1, 2, 3]
    assert found[0]["text"] != found[1]["text"]  # each has a seed of its own
    again = ask(client, **options)[1]["choices"]
    assert [one["text"] for one in again] == [one["text"] for one in found]
    pieces = [""] * 4
    for one in events(client, **options):
        pieces[one["choices"][0]["index"]] += one["choices"][0]["text"]
    assert pieces == [one["text"] for one in found]


def test_texts_that_stop(client, model, idle):
    whole = model.generate("stop here", max_new_tokens=20)
    assert len(whole) == 20
    stop = whole[7:9]
    expected = whole[: whole.index(stop)]
    options = {"prompt": "stop here", "max_tokens": 20, "temperature": 0, "stop": stop}
    (found,) = ask(client, **options)[1]["choices"]
    assert found["text"] == expected
    assert found["finish_reason"] == "stop"
    assert "".join(one["choices"][0]["text"] for one in events(client, **options)) == (
        expected
    )


def test_token_numbers_as_prompts(client, idle):
    text = ask(client, prompt="abc", max_tokens=5, temperature=0)[1]
    tokens = ask(client, prompt=[97, 98, 99], max_tokens=5, temperature=0)[1]
    both = ask(client, prompt=[[97, 98, 99], [97]], max_tokens=5, temperature=0)[1]
    assert tokens["choices"] == text["choices"] == both["choices"][:1]


def test_many_clients(client, model, idle):
    prompts = [f"prompt {k}" for k in range(12)]
    expected = [model.generate(p, max_new_tokens=8) for p in prompts]
    with concurrent.futures.ThreadPoolExecutor(12) as pool:
        found = pool.map(
            lambda p: ask(client, prompt=p, max_tokens=8, temperature=0)[1], prompts
        )
        assert [one["choices"][0]["text"] for one in found] == expected
    numbers = client.metrics()
    assert numbers['weft_tokens_total{kind="new"}'] >= 12 * 8
    assert numbers["weft_pages_free"] == numbers["weft_pages"]


@pytest.mark.parametrize("stream", [False, True])
def test_a_client_that_leaves_frees_its_pages(client, model, idle, stream):
    body = json.dumps(
        {"prompt": "x", "max_tokens": 90, "stream": stream, "ignore_ends": True}
    ).encode()
    head = b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n"
    written = model.engine
    with client.socket() as link:
        link.sendall(head % len(body) + body)
        until(lambda: written.busy)
    until(lambda: not written.busy)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "prompt must be a text"),
        ({"prompt": 3}, "prompt must be a text"),
        ({"prompt": []}, "prompt must be a text"),
        ({"prompt": ["a", [1]]}, "must not mix"),
        ({"prompt": ""}, "the prompt is empty"),
        ({"prompt": [VOCAB]}, "integers from 0 to 127"),
        ({"prompt": "a", "max_tokens": 96}, "do not fit into the context"),
        ({"prompt": "a", "max_tokens": "x"}, "max_new_tokens must be an integer"),
        ({"prompt": "a", "temperature": -1}, "temperature must be 0 or more"),
        ({"prompt": "a", "temperature": "hot"}, "temperature must be 0 or more"),
        ({"prompt": "a", "top_p": 2}, "top_p must be"),
        ({"prompt": "a", "n": 17}, "from 1 to 16"),
        ({"prompt": "a", "n": 1.5}, "from 1 to 16"),
        ({"prompt": "a", "stop": 3}, "stop must be a text"),
        ({"prompt": "a", "stop": [""]}, "stop must be texts"),
        ({"prompt": "a", "stream": 1}, "stream must be true or false"),
        ({"prompt": "a", "logprobs": 3}, "logprobs is not served"),
        ({"prompt": "a", "echo": True}, "echo is not served"),
        ({"prompt": "a", "best": 3}, "'best' is no option"),
        ({"prompt": ["a", ""], "max_tokens": 90}, "the prompt is empty"),
    ],
)
def test_bad_requests(client, idle, options, message):
    status, found, _ = ask(client, **options)
    assert status == 400
    assert message in found["error"]["message"]


def test_predictions_are_not_texts(client):
    status, found, _ = client.post("/v1/predict", {"inputs": 1})
    assert status == 400
    assert "use /v1/completions" in found["error"]["message"]


def test_a_full_queue(model):
    with running(Server(model, Limits(queue=1))) as client:
        lock = model.engine.lock
        with lock, concurrent.futures.ThreadPoolExecutor(1) as pool:
            model.engine.submit([1], Sampling(max_new_tokens=1))  # waits
            status, found, head = pool.submit(ask, client, prompt="a").result()
        assert (status, head["Retry-After"]) == (503, "1")
        assert "1 requests wait already" in found["error"]["message"]
        assert client.metrics()["weft_refused_total"] == 1
        finish(model)


def finish(model):
    while model.engine.busy:
        model.engine.step()


def test_weights_that_are_not_finite():
    net = Decoder(Config(vocab=9, context=32, width=8, layers=1, heads=2, tied=False))
    with weft.no_grad():
        net.lm_head.weight[3] = float("nan")
    broken = LanguageModel(net, compiled=False)
    with running(Server(broken)) as client:
        status, found, _ = ask(client, prompt=[1, 2], max_tokens=4)
        assert status == 400
        assert "logits are not finite" in found["error"]["message"]
        raw = client.ask("POST", "/v1/completions", {"prompt": [1], "stream": True})[2]
        assert b"logits are not finite" in raw
        assert b"[DONE]" not in raw
    assert len(broken.engine.free) == broken.engine.count


def test_a_step_that_fails_ends_its_texts(model, monkeypatch):
    writer = Writer(model)

    async def write():
        request = writer.submit("abc", Sampling(max_new_tokens=3))
        with pytest.raises(MemoryError):
            async for _ in writer.tokens(request):
                pass
        writer.end(request)
        monkeypatch.undo()
        request = writer.submit("abc", Sampling(max_new_tokens=3))
        return [token async for token in writer.tokens(request)]

    def fails(*arguments):
        raise MemoryError

    monkeypatch.setattr(model.engine, "_forward", fails)
    assert len(asyncio.run(write())) == 3
    writer.stop()
