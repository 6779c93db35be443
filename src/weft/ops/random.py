"""Random numbers from a counter: Philox 4x32 with ten rounds.

Every draw is a pure function of (seed, counter): the operators ``uniform``,
``normal`` and ``random_integers`` take both as tensors, and a ``Generator`` only
hands out counters. The same seed therefore gives the same numbers in any mode
and for any number of threads.
"""

from __future__ import annotations

import math
import threading
from operator import index
from typing import Any

import numpy as np

from weft import dtype as dtypes
from weft.core.device import cpu
from weft.core.device import device as find_device
from weft.core.dims import as_int
from weft.core.dispatch import beside, bind, unable
from weft.core.eager_kernels import SLOW
from weft.core.lowering import Element
from weft.core.meta import without_values
from weft.core.mode import mode
from weft.core.op import Op, Sample, TensorType, define
from weft.core.size import OpenSizeError
from weft.core.tensor import Tensor
from weft.dtype import DType, as_dtype, default_dtype
from weft.errors import ArgumentError, DTypeError, ShapeError
from weft.ops.complex_numbers import view_as_complex
from weft.ops.creation import (
    WITHOUT_EFFECT,
    arange,
    check_memory,
    full_like,
    on_meta,
    optioned,
    parse_size,
    placed,
)
from weft.ops.elementwise import check_accepts, device_of
from weft.ops.joining import stack
from weft.ops.public import public
from weft.ops.require import require
from weft.ops.select import where
from weft.ops.slicing import along
from weft.ops.sorting import argsort

_M0, _M1 = np.uint64(0xD2511F53), np.uint64(0xCD9E8D57)
_W0, _W1 = 0x9E3779B9, 0xBB67AE85
_LOW = np.uint64(0xFFFFFFFF)
_MASK = (1 << 64) - 1  # of a seed's bits
_32 = np.uint64(32)


def philox(
    counter: tuple[Any, Any, Any, Any], key: tuple[int, int]
) -> tuple[Any, Any, Any, Any]:
    """Ten rounds of Philox 4x32 on four arrays of 32-bit counters (as uint64)."""
    c0, c1, c2, c3 = counter
    k0, k1 = key
    for _ in range(10):
        p0, p1 = _M0 * c0, _M1 * c2
        c0, c1, c2, c3 = (
            (p1 >> _32) ^ c1 ^ np.uint64(k0),
            p1 & _LOW,
            (p0 >> _32) ^ c3 ^ np.uint64(k1),
            p0 & _LOW,
        )
        k0, k1 = (k0 + _W0) & 0xFFFFFFFF, (k1 + _W1) & 0xFFFFFFFF
    return c0, c1, c2, c3


def random_words(seed: int, counter: int, count: int) -> np.ndarray:
    """``count`` random 32-bit words, the first at block number ``counter``."""
    blocks = np.arange(-(-count // 4), dtype=np.uint64) + np.uint64(counter)
    zero = np.zeros_like(blocks)
    seed &= _MASK
    words = philox(
        (blocks & _LOW, blocks >> _32, zero, zero), (seed & 0xFFFFFFFF, seed >> 32)
    )
    return np.stack(words, -1).reshape(-1)[:count]


def _unit(words: np.ndarray, dtype: DType) -> np.ndarray:
    """Words as numbers in [0, 1), on the grid that the dtype holds exactly."""
    if dtype.name == "float64":
        high, low = words[0::2] >> np.uint64(5), words[1::2] >> np.uint64(6)
        return (high * 67108864.0 + low) * 2.0**-53
    bits = {"float32": 24, "float16": 11, "bfloat16": 8}[dtype.name]
    grid = (words >> np.uint64(32 - bits)).astype(np.float32)
    return (grid * np.float32(2.0**-bits)).astype(dtype.np)


def _words_each(dtype: DType) -> int:
    return 2 if dtype.name == "float64" else 1


def _uniform_eval(
    seed: Any, counter: Any, *, shape: tuple[int, ...], dtype: DType
) -> Any:
    n = math.prod(shape)
    words = random_words(int(seed), int(counter), n * _words_each(dtype))
    return _unit(words, dtype).reshape(shape)


def _normal_eval(
    seed: Any, counter: Any, *, shape: tuple[int, ...], dtype: DType
) -> Any:
    """Box and Muller's transform of pairs of uniform numbers."""
    n = math.prod(shape)
    pairs = -(-n // 2)
    wide = dtypes.float64 if dtype.name == "float64" else dtypes.float32
    words = random_words(int(seed), int(counter), 2 * pairs * _words_each(wide))
    unit = _unit(words, wide)
    radius = np.sqrt(-2 * np.log1p(-unit[0::2]))
    angle = unit[1::2] * wide.np.type(2 * math.pi)
    both = np.stack([radius * np.cos(angle), radius * np.sin(angle)], -1)
    return both.reshape(-1)[:n].reshape(shape).astype(dtype.np)


def _integers_eval(
    seed: Any, counter: Any, *, shape: tuple[int, ...], low: int, high: int
) -> Any:
    n = math.prod(shape)
    span = high - low
    words = random_words(int(seed), int(counter), 2 * n)
    if span <= 1 << 32:
        scaled = (
            (words[0::2] * np.uint64(span)) >> _32 if span < 1 << 32 else words[0::2]
        )
    else:
        scaled = ((words[0::2] << _32) | words[1::2]) % np.uint64(span)
    return (scaled.astype(np.int64) + low).reshape(shape)


def _state_samples(params: list[dict[str, Any]]) -> Any:
    def samples(rng: np.random.Generator) -> Any:
        for given in params:
            yield Sample((rng.integers(0, 2**40), rng.integers(0, 2**40)), given)

    return samples


def _scalar_philox(
    seed: int, counter: int, count: int, rest: tuple[int, int] = (0, 0)
) -> list[int]:
    """Philox in Python's integers, a word at a time."""
    out: list[int] = []
    for block in range(-(-count // 4)):
        n = counter + block
        c = [n & 0xFFFFFFFF, n >> 32, *rest]
        k = [seed & 0xFFFFFFFF, seed >> 32]
        for _ in range(10):
            a, b = 0xD2511F53 * c[0], 0xCD9E8D57 * c[2]
            c = [(b >> 32) ^ c[1] ^ k[0], b & 0xFFFFFFFF, (a >> 32) ^ c[3] ^ k[1],
                 a & 0xFFFFFFFF]  # fmt: skip
            k = [(k[0] + _W0) & 0xFFFFFFFF, (k[1] + _W1) & 0xFFFFFFFF]
        out += c
    return out[:count]


def _uniform_reference(seed: Any, counter: Any, *, shape: Any, dtype: Any) -> Any:
    n = math.prod(shape)
    if dtype.name == "float64":
        w = _scalar_philox(int(seed), int(counter), 2 * n)
        flat = [
            ((w[2 * i] >> 5) * 2**26 + (w[2 * i + 1] >> 6)) / 2**53 for i in range(n)
        ]
    else:
        flat = [(w >> 8) / 2**24 for w in _scalar_philox(int(seed), int(counter), n)]
    return np.array(flat).reshape(shape)


def _normal_reference(seed: Any, counter: Any, *, shape: Any, dtype: Any) -> Any:
    n = math.prod(shape)
    even = (2 * -(-n // 2),)
    u = _uniform_reference(seed, counter, shape=even, dtype=dtype)
    z = np.sqrt(-2 * np.log(1 - u[0::2])) * np.exp(2j * np.pi * u[1::2])
    return np.stack([z.real, z.imag], -1).reshape(-1)[:n].reshape(shape)


def _integers_reference(
    seed: Any, counter: Any, *, shape: Any, low: int, high: int
) -> Any:
    n = math.prod(shape)
    w = _scalar_philox(int(seed), int(counter), 2 * n)[0::2]
    return np.array([low + (x * (high - low) >> 32) for x in w]).reshape(shape)


_FLOAT_PARAMS = [
    {"shape": (3, 5), "dtype": dtypes.float32},
    {"shape": (7,), "dtype": dtypes.float64},
    {"shape": (0, 2), "dtype": dtypes.float32},
    {"shape": (), "dtype": dtypes.float64},
]


def _float_type(
    seed: TensorType, counter: TensorType, *, shape: tuple[int, ...], dtype: DType
) -> TensorType:
    return TensorType(shape, dtype)


# -- one element, for kernels: a block of four words each, of which it takes some


def _unit_at(k: Any, seed: Any, counter: Any, word: Any, dtype: DType) -> Any:
    """The uniform number that begins at a word of the stream."""
    block = k.call("add", counter[()], k.at(word // 4))
    return k.call("random_unit", seed[()], block, k.at(word % 4), dtype=dtype)


def _uniform_element(
    k: Any, out: Any, seed: Any, counter: Any, *, shape: Any, dtype: DType
) -> Any:
    return _unit_at(k, seed, counter, k.flat(out) * _words_each(dtype), dtype)


def _normal_element(
    k: Any, out: Any, seed: Any, counter: Any, *, shape: Any, dtype: DType
) -> Any:
    wide = dtypes.float64 if dtype.name == "float64" else dtypes.float32
    at, each = k.flat(out), _words_each(dtype)
    first = at // 2 * (2 * each)
    unit, turn = (_unit_at(k, seed, counter, first + w, wide) for w in (0, each))
    log = k.call("log1p", k.call("neg", unit))
    radius = k.call("sqrt", k.call("mul", k.number(-2, wide), log))
    angle = k.call("mul", turn, k.number(2 * math.pi, wide))
    even = k.call("eq", k.at(at % 2), k.at(0))
    part = k.call("where", even, k.call("cos", angle), k.call("sin", angle))
    found = k.call("mul", radius, part)
    return found if dtype is wide else k.call("cast", found, dtype=dtype)


def _integers_element(
    k: Any, out: Any, seed: Any, counter: Any, *, shape: Any, low: int, high: int
) -> Any:
    word = k.flat(out) * 2
    block = k.call("add", counter[()], k.at(word // 4))
    lane, span = k.at(word % 4), k.number(high - low)
    found = k.call("random_below", seed[()], block, lane, span)
    return k.call("add", found, k.number(low))


uniform_op: Op = define(
    "uniform",
    bulk=SLOW,
    inputs="seed counter",
    lower=Element(_uniform_element, cheap=False),
    eval=_uniform_eval,
    type=_float_type,
    cost=40,
    bounds=(0, 1),
    random=True,
    samples=_state_samples(_FLOAT_PARAMS),
    reference=_uniform_reference,
)

normal_op: Op = define(
    "normal",
    inputs="seed counter",
    lower=Element(_normal_element, cheap=False),
    eval=_normal_eval,
    type=_float_type,
    cost=60,
    random=True,
    samples=_state_samples(_FLOAT_PARAMS),
    reference=_normal_reference,
)

integers_op: Op = define(
    "random_integers",
    inputs="seed counter",
    lower=Element(_integers_element, cheap=False),
    eval=_integers_eval,
    type=lambda seed, counter, *, shape, low, high: TensorType(shape, dtypes.int64),
    cost=40,
    random=True,
    samples=_state_samples(
        [
            {"shape": (3, 4), "low": -5, "high": 20},
            {"shape": (), "low": 0, "high": 3},
            {"shape": (0,), "low": 0, "high": 1},
        ]
    ),
    reference=_integers_reference,
)


class Generator:
    """A stream of random numbers: a seed, and how far the counter has come.

    >>> a = weft.Generator().manual_seed(7)
    >>> x = weft.rand(2, generator=a)
    >>> weft.equal(x, weft.rand(2, generator=weft.Generator().manual_seed(7)))
    True
    """

    def __init__(self, device: Any = "cpu") -> None:
        find_device(device)  # an unknown one is refused
        self._seed = 0
        self._counter = 0
        self._lock = threading.Lock()
        if _replayed():  # each run of a captured program makes it anew
            self._restart_captured(0)

    def __reduce__(self) -> Any:
        return Generator, (), (self._seed, self._counter)

    def __setstate__(self, state: tuple[int, int]) -> None:
        self._seed, self._counter = state

    def manual_seed(self, seed: int) -> Generator:
        """Restart from a seed."""
        if isinstance(seed, bool) or not isinstance(seed, (int, np.integer)):
            raise ArgumentError(
                f"manual_seed: expected an int, got {type(seed).__name__}"
            )
        if _replayed():
            return self._restart_captured(int(seed))
        self._seed = int(seed) & _MASK
        self._counter = 0
        return self

    def initial_seed(self) -> int:
        """The seed this generator was started from."""
        self._check_known("initial_seed")
        return self._seed

    def seed(self) -> int:
        """Restart from an unpredictable seed, which is returned."""
        import secrets

        self._check_known("seed")
        self.manual_seed(secrets.randbits(63))
        return self._seed

    @property
    def device(self) -> Any:
        """The device of the generator: the CPU, whatever the tensors' device."""
        return cpu

    def clone_state(self) -> Generator:
        """Another generator that goes on from where this one is.

        >>> a = weft.Generator().manual_seed(1)
        >>> a.clone_state().initial_seed()
        1
        """
        return Generator().set_state(self.get_state())

    def get_offset(self) -> int:
        """How far the counter has come.

        >>> weft.Generator().get_offset()
        0
        """
        self._check_known("get_offset")
        return self._counter

    def set_offset(self, offset: int) -> None:
        """Go to a place of the stream."""
        if _replayed():
            self._set_captured(self._captured()[0], Tensor(np.asarray(int(offset))))
        else:
            self._counter = int(offset)

    def get_state(self) -> Tensor:
        """Seed and counter as a tensor of two integers."""
        if _replayed():
            return stack(self._captured())
        return Tensor(np.array([self._signed_seed(), self._counter], np.int64))

    def set_state(self, state: Tensor) -> Generator:
        """Go on from a state that ``get_state`` gave."""
        if mode.refusals is not None and state.shape == (2,):
            seed, counter = state.to(dtypes.int64).unbind()
            return self._set_captured(seed.clone(), counter.clone())
        array = np.asarray(state.array())
        if array.shape != (2,) or array.dtype != np.int64 or array[1] < 0:
            raise DTypeError(
                "set_state: expected the int64 tensor of two elements that get_state "
                f"gives, got {array.dtype} of shape {array.shape}"
            )
        self._seed = int(array[0]) & _MASK
        self._counter = int(array[1])
        return self

    def take(self, words: int) -> tuple[Tensor, Tensor]:
        """The seed and the next free counter, for a draw of some words."""
        if mode.capture is not None:
            return self._take_captured(words)
        try:
            words = index(words)
        except OpenSizeError as open_size:  # a size of a graph that is being built
            with open_size.build.taking():
                return self._take_captured(words)
        if mode.draws is not None:
            mode.draws(self)
        with self._lock:
            counter = self._counter
            self._counter += -(-words // 4)
        return Tensor(np.asarray(self._signed_seed())), Tensor(np.asarray(counter))

    def _take_captured(self, words: Any) -> tuple[Tensor, Tensor]:
        """The result of ``take``, with seed and counter as variables of the program."""
        seed, counter = self._captured()
        mode.capture.set_number((self, "counter"), counter + -(-words // 4))
        return seed, counter

    def _captured(self) -> tuple[Tensor, Tensor]:
        """Seed and counter as the running capture knows them: its variables."""
        name = "generator" if self is default_generator else "generator_own"
        seed = mode.capture.number(
            (self, "seed"), f"{name}.seed", self._signed_seed,
            lambda n: setattr(self, "_seed", n & _MASK), (vars(self), "_seed"),
            dtypes.int64,
        )  # fmt: skip
        counter = mode.capture.number(
            (self, "counter"), f"{name}.counter", lambda: self._counter,
            lambda n: setattr(self, "_counter", n), (vars(self), "_counter"),
            dtypes.int64,
        )  # fmt: skip
        return seed, counter

    def _set_captured(self, seed: Tensor, counter: Tensor) -> Generator:
        """Let every run of the captured program set seed and counter here."""
        run = mode.capture
        self._captured()
        for key, value in (("seed", seed), ("counter", counter)):
            run.set_number((self, key), run.symbol(run.lift(value)))
        return self

    def _restart_captured(self, seed: int) -> Generator:
        return self._set_captured(
            Tensor(np.asarray(_signed(seed))), Tensor(np.asarray(0))
        )

    def _check_known(self, name: str) -> None:
        """Refuse to make a Python number of what only a run of a program knows."""
        if _replayed():
            raise unable(
                ArgumentError(
                    f"{name}: a generator's state is known only when the captured "
                    "program runs; ask for it outside, or use get_state()"
                )
            )

    def _signed_seed(self) -> int:
        return _signed(self._seed)


def _replayed() -> bool:
    """Whether what happens to a generator now must happen in every run of a program."""
    return mode.capture is not None and mode.capture.replays


def _signed(seed: int) -> int:
    """The int64 with the bits of a seed."""
    seed &= _MASK
    return seed - (1 << 64) if seed >> 63 else seed


default_generator = Generator()


@public()
def manual_seed(seed: int) -> Generator:
    """Start the default generator from a seed.

    >>> _ = weft.manual_seed(0)
    >>> a = weft.rand(3)
    >>> _ = weft.manual_seed(0)
    >>> weft.equal(a, weft.rand(3))
    True
    """
    return default_generator.manual_seed(seed)


@public()
def initial_seed() -> int:
    """The default generator's seed.

    >>> _ = weft.manual_seed(5)
    >>> weft.initial_seed()
    5
    """
    return default_generator.initial_seed()


@public()
def seed() -> int:
    """Start the default generator from an unpredictable seed, which is returned.

    >>> 0 <= weft.seed() < 2**63
    True
    """
    return default_generator.seed()


@public()
def get_rng_state() -> Tensor:
    """The default generator's state.

    >>> weft.get_rng_state().shape
    (2,)
    """
    return default_generator.get_state()


@public()
def set_rng_state(new_state: Tensor) -> None:
    """Put the default generator into a state.

    >>> state = weft.get_rng_state()
    >>> a = weft.rand(2)
    >>> weft.set_rng_state(state)
    >>> weft.equal(a, weft.rand(2))
    True
    """
    default_generator.set_state(new_state)


def _given(generator: Any, name: str) -> Any:
    """The generator that was asked for, or the usual one."""
    if generator is None:
        return default_generator
    if not isinstance(generator, Generator):
        raise DTypeError(
            f"{name}: expected generator to be a weft.Generator or None, got "
            f"{type(generator).__name__}"
        )
    return generator


def _draw(
    op: Op, name: str, shape: tuple[int, ...], words: int, generator: Any, params: Any
) -> Tensor:
    """One draw, or one for each example of the running vmaps."""
    lead, separate = _examples(name)
    state = _given(generator, name).take(words * math.prod(lead))
    out = bind(op, state, {"shape": (*lead, *shape), **params})
    for run in separate:
        out = run.batched(out)
    return out


def random_blocks(
    name: str, shape: tuple[int, ...], generator: Generator | None
) -> tuple[Tensor, Tensor]:
    """The seed, and a block of random words for each element of a shape.

    An element may use the block's number in any Philox counter that begins with it.
    """
    lead, separate = _examples(name)
    full = (*lead, *shape)
    count = math.prod(full)
    seed, counter = _given(generator, name).take(4 * count)
    block = (arange(count) + counter).reshape(full)
    for run in separate:
        block = run.batched(block)
    return seed, block


def _examples(name: str) -> tuple[tuple[int, ...], list[Any]]:
    """The sizes of the running vmaps whose examples differ, and these vmaps."""
    lead: tuple[int, ...] = ()
    separate = []
    for run in mode.batching:
        if run.randomness == "error":
            raise ArgumentError(
                f"{name}: a random operator inside vmap needs to know whether examples "
                "share their numbers; pass randomness='same' or 'different' to vmap"
            )
        if run.randomness == "different":
            lead += (run.size,)
            separate.append(run)
    return lead, separate


def _random_float(
    op: Op, name: str, shape: tuple[int, ...], dtype: Any, generator: Any,
    device: Any = None,
) -> Tensor:  # fmt: skip
    dtype = default_dtype() if dtype is None else as_dtype(dtype)
    if dtype.is_complex:  # two parts; a normal one has variance 1 as a whole
        parts = _random_float(op, name, (*shape, 2), dtype.to_real(), generator, device)
        return view_as_complex(parts * 0.5**0.5 if op is normal_op else parts)
    if not dtype.is_floating_point:
        raise DTypeError(
            f"{name}: expected a floating-point or complex dtype, got {dtype.name}"
        )
    if on_meta(device):
        return without_values(shape, dtype)
    check_memory(name, shape, dtype)
    words = (math.prod(shape) + 1) * _words_each(dtype)
    return _draw(op, name, shape, words, generator, {"dtype": dtype})


@public()
def rand(
    *sizes: Any,
    size: Any = None,
    generator: Generator | None = None,
    dtype: Any = None,
    device: Any = None,
    requires_grad: bool = False,
    **more: Any,
) -> Tensor:
    """Uniform random numbers in [0, 1).

    >>> x = weft.rand(2, 3)
    >>> bool(((x >= 0) & (x < 1)).all())
    True
    """
    if more:
        return optioned(
            rand,
            more,
            *sizes,
            size=size,
            generator=generator,
            dtype=dtype,
            device=device,
            requires_grad=requires_grad,
        )
    shape = parse_size("rand", sizes if size is None else (size,))
    out = _random_float(uniform_op, "rand", shape, dtype, generator, device)
    return placed(out, device, requires_grad)


@public()
def randn(
    *sizes: Any,
    size: Any = None,
    generator: Generator | None = None,
    dtype: Any = None,
    device: Any = None,
    requires_grad: bool = False,
    **more: Any,
) -> Tensor:
    """Normally distributed random numbers, mean 0 and variance 1.

    >>> weft.randn(2, 3).shape
    (2, 3)
    """
    if more:
        return optioned(
            randn,
            more,
            *sizes,
            size=size,
            generator=generator,
            dtype=dtype,
            device=device,
            requires_grad=requires_grad,
        )
    shape = parse_size("randn", sizes if size is None else (size,))
    out = _random_float(normal_op, "randn", shape, dtype, generator, device)
    return placed(out, device, requires_grad)


@public()
def randint(
    low: Any = None,
    high: Any = None,
    size: Any = None,
    *,
    generator: Generator | None = None,
    dtype: Any = None,
    device: Any = None,
    requires_grad: bool = False,
    **more: Any,
) -> Tensor:
    """Random whole numbers from ``low`` up to (not including) ``high``.

    >>> x = weft.randint(3, 7, (100,))
    >>> int(x.min()) >= 3, int(x.max()) < 7
    (True, True)
    """
    if more:
        return optioned(
            randint,
            more,
            low,
            high,
            size,
            generator=generator,
            dtype=dtype,
            device=device,
            requires_grad=requires_grad,
        )
    if size is None:  # randint(high, size)
        low, high, size = None, low, high
    elif high is None:
        low, high = None, low
    low = 0 if low is None else low
    if size is None or high is None:
        raise ArgumentError(
            "randint: expected randint(high, size) or (low, high, size)"
        )
    low, high = (as_int("randint", v, "int limits") for v in (low, high))
    if not low < high:
        raise ArgumentError(f"randint: expected low < high, got {low} and {high}")
    shape = parse_size("randint", (size,))
    chosen = dtypes.int64 if dtype is None else as_dtype(dtype)
    check_memory("randint", shape, chosen)
    params = {"low": int(low), "high": int(high)}
    words = 2 * math.prod(shape)
    out = _draw(integers_op, "randint", shape, words, generator, params)
    return placed(out.to(chosen), device, requires_grad)


@public()
def randperm(
    n: int,
    *,
    generator: Generator | None = None,
    dtype: Any = None,
    device: Any = None,
    **more: Any,
) -> Tensor:
    """The numbers 0 to n-1 in random order.

    >>> weft.randperm(5).sort().values
    tensor([0, 1, 2, 3, 4])
    """
    if more:
        return optioned(
            randperm, more, n, generator=generator, dtype=dtype, device=device
        )
    if not isinstance(n, (int, np.integer)):
        raise DTypeError(f"randperm: expected an int, got {type(n).__name__}")
    if n < 0:
        raise ShapeError(f"randperm: expected n of at least 0, got {n}")
    keys = rand(n, generator=generator, dtype=dtypes.float64)
    out = argsort(keys).to(dtypes.int64 if dtype is None else as_dtype(dtype))
    return placed(out, device, False)


def _like(input: Tensor, dtype: Any, options: dict[str, Any]) -> dict[str, Any]:
    given = {k: v for k, v in options.items() if k not in WITHOUT_EFFECT}
    return {"dtype": dtype or input.dtype, "device": input.device, **given}


@public()
def rand_like(input: Tensor, *, dtype: Any = None, **options: Any) -> Tensor:
    """Uniform random numbers with another tensor's shape and dtype.

    >>> weft.rand_like(weft.zeros(2, 3)).shape
    (2, 3)
    """
    with beside(input):
        return rand(input.shape, **_like(input, dtype, options))


@public()
def randn_like(input: Tensor, *, dtype: Any = None, **options: Any) -> Tensor:
    """Normal random numbers with another tensor's shape and dtype.

    >>> weft.randn_like(weft.zeros(2, 3)).shape
    (2, 3)
    """
    with beside(input):
        return randn(input.shape, **_like(input, dtype, options))


@public()
def randint_like(
    input: Tensor, low: int, high: int | None = None, *, dtype: Any = None,
    **options: Any,
) -> Tensor:  # fmt: skip
    """Random whole numbers with another tensor's shape and dtype.

    >>> weft.randint_like(weft.zeros(2, 3), 10).shape
    (2, 3)
    """
    low, high = (0, low) if high is None else (low, high)
    with beside(input):
        return randint(low, high, input.shape, **_like(input, dtype, options))


@public(method=True)
def bernoulli(
    input: Tensor, p: float | None = None, *, generator: Generator | None = None
) -> Tensor:
    """1 with each element's probability, or one for all elements, else 0.

    >>> weft.bernoulli(weft.tensor([0.0, 1.0]))
    tensor([0., 1.])
    """
    if p is None and not input.dtype.is_floating_point:
        raise DTypeError(
            f"bernoulli: expected floating-point probabilities, got {input.dtype.name}"
        )
    given = input.detach() if p is None else full_like(input, p, dtype=dtypes.float32)
    chances = require(
        given,
        lambda p: (p >= 0) & (p <= 1),
        "bernoulli: expected probabilities between 0 and 1, got {value}{where}",
    )
    with beside(input):
        there, shape = input.device, input.shape
        u = _random_float(
            uniform_op, "bernoulli", shape, dtypes.float32, generator, there
        )
    drawn = placed(u, there) < chances.to(dtypes.float32)
    return drawn_with(drawn.to(input.dtype), input)


def drawn_with(numbers: Tensor, *parameters: Any) -> Tensor:
    """Random numbers, with a gradient of 0 for the tensors that they were drawn with.

    ``distributions`` has the samples that follow their parameters (``rsample``).
    """
    numbers = numbers.detach()
    for given in parameters:
        if isinstance(given, Tensor) and given.requires_grad:
            numbers = where(False, given.to(numbers.dtype), numbers)
    return numbers


@public()
def normal(
    mean: Any = 0.0,
    std: Any = 1.0,
    size: Any = None,
    *,
    generator: Generator | None = None,
    dtype: Any = None,
    device: Any = None,
    requires_grad: bool = False,
    **more: Any,
) -> Tensor:
    """Normal random numbers with a mean and a standard deviation.

    >>> weft.normal(0.0, 1.0, (2, 3)).shape
    (2, 3)
    """
    if more:
        return optioned(
            normal, more, mean, std, size, generator=generator, dtype=dtype,
            device=device, requires_grad=requires_grad,
        )  # fmt: skip
    for value in (mean, std):
        if not isinstance(value, (Tensor, int, float, np.generic)):
            raise DTypeError(
                "normal: expected mean and std to be numbers or tensors, got "
                f"{type(value).__name__}"
            )
    if not isinstance(std, Tensor) and std < 0:
        raise ArgumentError(f"normal: expected std of at least 0, got {std}")
    if size is None:
        like = mean if isinstance(mean, Tensor) else std
        if not isinstance(like, Tensor):
            raise ArgumentError("normal: give size when mean and std are numbers")
        both = (
            mean + std if isinstance(mean, Tensor) or isinstance(std, Tensor) else like
        )
        size, dtype = both.shape, dtype or both.dtype
    if isinstance(std, Tensor) and std.dtype.is_floating_point:
        text = "normal: expected std of at least 0, got {value}{where}"
        std = require(std, lambda s: s >= 0, text)
    shape = parse_size("normal", (size,))
    given = [v for v in (mean, std) if isinstance(v, Tensor)]
    there = device_of(given) if device is None else device
    z = placed(
        _random_float(normal_op, "normal", shape, dtype, generator, there), there
    )
    out = drawn_with(z * std + mean, mean, std)
    return out.requires_grad_() if requires_grad else out


@public(method=True)
def multinomial(
    input: Tensor,
    num_samples: int,
    replacement: bool = False,
    *,
    generator: Generator | None = None,
) -> Tensor:
    """Indices drawn by weight from each row.

    >>> weft.multinomial(weft.tensor([0.0, 1.0, 0.0]), 2, replacement=True)
    tensor([1, 1])
    """
    check_accepts("multinomial", "floating", input.dtype)
    if input.ndim not in (1, 2):
        raise ShapeError(f"multinomial: expected 1 or 2 dimensions, got {input.shape}")
    if num_samples < 1:
        raise ArgumentError(
            f"multinomial: expected at least one sample, got {num_samples}"
        )
    if not replacement and num_samples > input.shape[-1]:
        raise ArgumentError(
            f"multinomial: cannot draw {num_samples} different samples of "
            f"{input.shape[-1]}; pass replacement=True or draw fewer"
        )
    weights = _weights(input, num_samples, replacement)
    drawn = num_samples if replacement else input.shape[-1]
    with beside(input):
        shape = (*input.shape[:-1], drawn)
        u = rand(shape, generator=generator, dtype=dtypes.float64, device=input.device)
    if replacement:
        edges = weights.cumsum(-1)
        aim = u * edges[..., -1].unsqueeze(-1)
        found = (edges.unsqueeze(-2) <= aim.unsqueeze(-1)).sum(-1)
        last = (weights > 0).flip(-1).to(dtypes.int64).argmax(-1, keepdim=True)
        return found.minimum(weights.shape[-1] - 1 - last)
    # The largest of log(u) / w are a draw without replacement.
    keys = where(weights > 0, (-u).log1p() / weights, -math.inf)
    order = argsort(keys, -1, descending=True)
    return along(order, order.ndim - 1, slice(0, num_samples))


def _weights(input: Tensor, num_samples: int, replacement: bool) -> Tensor:
    """The weights to draw by, each row with enough of them."""
    weights = require(
        input.detach().to(dtypes.float64),
        lambda w: (w >= 0) & (w < math.inf),
        "multinomial: expected finite weights of at least 0, got {value}{where}",
    )
    possible = require(
        (weights > 0).to(dtypes.int64).sum(-1, keepdim=True),
        lambda n: n > 0,
        "multinomial: a row's weights add up to 0",
    )
    if not replacement:
        possible = require(
            possible,
            lambda n: n >= num_samples,
            f"multinomial: cannot draw {num_samples} different samples from {{value}} "
            "with positive weight",
        )
    return where(possible > 0, weights, 0.0)
