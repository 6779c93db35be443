"""Grad modes around functions that pause, in threads, and within one another."""

import asyncio
import functools
import inspect
import threading

import pytest

import weft

# What decorates, and what is on inside: recording, inference.
DECORATORS = {
    "no_grad": (weft.no_grad, (False, False)),
    "no_grad()": (weft.no_grad(), (False, False)),
    "enable_grad": (weft.enable_grad, (True, False)),
    "enable_grad()": (weft.enable_grad(), (True, False)),
    "inference_mode": (weft.inference_mode, (False, True)),
    "inference_mode()": (weft.inference_mode(), (False, True)),
    "inference_mode(False)": (weft.inference_mode(False), (True, False)),
    "set_grad_enabled(False)": (
        lambda fn: weft.set_grad_enabled(False)(fn),
        (False, False),
    ),
    "set_grad_enabled(True)": (
        lambda fn: weft.set_grad_enabled(True)(fn),
        (True, False),
    ),
}
OUTSIDE = {"plain": weft.enable_grad, "no_grad": weft.no_grad}


def now():
    return weft.is_grad_enabled(), weft.is_inference_mode_enabled()


@pytest.fixture(params=DECORATORS)
def decorated(request):
    return DECORATORS[request.param]


@pytest.fixture(params=OUTSIDE)
def outside(request):
    with OUTSIDE[request.param]():
        before = now()
        yield before
        assert now() == before


def test_functions(decorated, outside):
    decorate, inside = decorated

    @decorate
    def fn(depth):
        """What it is."""
        return [now(), *(fn(depth - 1) if depth else [])]

    assert fn(2) == [inside] * 3
    assert now() == outside
    assert (fn.__name__, fn.__doc__) == ("fn", "What it is.")


def test_generators(decorated, outside):
    decorate, inside = decorated
    seen = []

    @decorate
    def fn(n):
        try:
            for k in range(n):
                try:
                    seen.append(now())
                    sent = yield k
                    seen.append((now(), sent))
                except KeyError:
                    seen.append(("caught", now()))
        finally:
            seen.append(("end", now()))
        return "done"

    assert inspect.isgeneratorfunction(fn)
    steps = fn(3)
    assert next(steps) == 0
    assert now() == outside
    assert steps.send("hello") == 1
    assert now() == outside
    assert steps.throw(KeyError("k")) == 2
    assert now() == outside
    with pytest.raises(StopIteration, match="done"):
        next(steps)
    assert now() == outside
    assert seen == [
        inside, (inside, "hello"), inside, ("caught", inside), inside, (inside, None),
        ("end", inside),
    ]  # fmt: skip
    seen.clear()
    steps = fn(3)
    next(steps)
    steps.close()
    assert seen == [inside, ("end", inside)]
    assert now() == outside
    assert list(fn(2)) == [0, 1]


def test_two_generators_in_turns():
    @weft.no_grad()
    def off():
        while True:
            yield now()[0]

    @weft.enable_grad()
    def on():
        while True:
            yield now()[0]

    pairs = list(zip(off(), on(), [now()[0]] * 3, strict=False))
    assert pairs == [(False, True, True)] * 3


def test_decorators_on_one_another():
    @weft.no_grad()
    @weft.enable_grad()
    def inner():
        yield now()[0]
        yield now()[0]

    @weft.enable_grad()
    @weft.no_grad()
    def outer():
        yield from inner()
        yield now()[0]

    assert list(outer()) == [True, True, False]


@pytest.mark.filterwarnings("error")
def test_coroutines(decorated, outside):
    decorate, inside = decorated
    seen = []

    @decorate
    async def fn(n):
        for _ in range(n):
            seen.append(now())
            await asyncio.sleep(0)
        return now()

    async def other():
        for _ in range(4):
            assert now() == outside
            await asyncio.sleep(0)

    async def main():
        return await asyncio.gather(fn(3), other(), fn(2))

    assert inspect.iscoroutinefunction(fn)
    assert asyncio.run(main()) == [inside, None, inside]
    assert seen == [inside] * 5


def test_asynchronous_generators(decorated, outside):
    decorate, inside = decorated
    seen = []

    @decorate
    async def fn():
        try:
            for k in range(3):
                seen.append(now())
                await asyncio.sleep(0)
                seen.append((yield k))
        finally:
            seen.append(("end", now()))

    async def main():
        steps = fn()
        assert await anext(steps) == 0
        assert now() == outside
        assert await steps.asend("hello") == 1
        assert now() == outside
        await steps.aclose()
        assert now() == outside
        return [k async for k in fn()]

    assert inspect.isasyncgenfunction(fn)
    assert asyncio.run(main()) == [0, 1, 2]
    assert seen == [
        inside, "hello", inside, ("end", inside), *[inside, None] * 3, ("end", inside),
    ]  # fmt: skip


def test_methods_and_objects(decorated):
    decorate, inside = decorated

    class Thing:
        @decorate
        @classmethod
        def of_class(cls):
            return cls, now()

        @decorate
        @staticmethod
        def of_none():
            return now()

        @decorate
        def steps(self):
            yield self, now()

        def __call__(self):
            yield now()

    thing = Thing()
    assert Thing.of_class() == thing.of_class() == (Thing, inside)
    assert Thing.of_none() == inside
    assert list(thing.steps()) == [(thing, inside)]
    assert list(decorate(thing)()) == [inside]
    assert list(decorate(functools.partial(Thing.steps, thing))()) == [(thing, inside)]


def test_classes_are_refused(decorated):
    with pytest.raises(TypeError, match=r"expected a function.*class 'Model'.*methods"):

        @decorated[0]
        class Model(weft.nn.Module):
            pass


def test_what_is_no_function_is_refused():
    with pytest.raises(
        TypeError, match="expected a function to decorate, got 'Tensor'"
    ):
        weft.no_grad()(weft.ones(2))


# -- one object many times


@pytest.mark.parametrize(
    "make",
    [weft.no_grad, weft.inference_mode, lambda: weft.set_grad_enabled(False)],
)
def test_one_object_within_itself_and_again(make):
    switch = make()
    with switch:
        with switch:
            assert not now()[0]
            with weft.enable_grad(), switch:
                assert not now()[0]
            assert not now()[0]
        assert not now()[0]
    assert now() == (True, False)
    with switch:
        assert not now()[0]
    assert now() == (True, False)


@pytest.mark.parametrize("make", [weft.no_grad, lambda: weft.set_grad_enabled(False)])
def test_one_object_in_two_threads(make):
    switch = make()
    weft.set_grad_enabled(True)
    found = []
    entered, leave = threading.Event(), threading.Event()

    def worker():
        with weft.no_grad(), switch:  # this thread was not recording before
            entered.set()
            leave.wait(10)
        found.append(now())

    thread = threading.Thread(target=worker)
    with switch:
        thread.start()
        entered.wait(10)
    assert now() == (True, False)
    leave.set()
    thread.join()
    assert found == [(True, False)]
    assert now() == (True, False)
