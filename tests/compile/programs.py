"""Random programs: Python source over Weft's public functions, drawn from a seed.

A program is text, so that what fails can be read, shortened and run by hand. It
grows line by line; a line is kept if the program with it runs eagerly at all its
sizes and does not blow rounding errors up (see ``three_ways.fit``).

Not drawn: complex numbers, results whose shape depends on values
(``nonzero``, ``x[mask]``), aliases between arguments, linear algebra beyond products,
modules and hooks. Where rounding rules are on (``strict`` is not), no value is infinite
or NaN.
"""

import random
import re
from dataclasses import dataclass, replace

HALVES = ("float16", "bfloat16")
FLOATS = ("float32", "float64", "float32", "float64", "float32", *HALVES)
INTEGERS = ("int64", "int32", "int64", "int32", "int16", "int8", "uint8")
DTYPES = (*["float32"] * 6, *["float64"] * 2, *HALVES, *INTEGERS, "bool", "bool")
SIZES = (0, 1, 1, 2, 2, 3, 3, 3, 4, 5, 7, 8, 17, 33)
LARGE = (65, 67, 97, 127, 128, 131, 193, 211, 256, 257, 293)  # beyond a block of 64
KINDS = ("forward", "forward", "inner", "outer", "step")


@dataclass(frozen=True)
class Given:
    """An argument of a program, or a tensor that it finds outside."""

    name: str
    shape: tuple  # numbers, or "n" for the size that differs from call to call
    dtype: str
    layout: str = "plain"  # or turned, or strided: not contiguous

    @property
    def floating(self):
        return self.dtype in FLOATS


@dataclass(frozen=True)
class Program:
    """One program. Its kind says where derivatives are taken.

    forward  nowhere
    inner    in the program, which returns them
    outer    of the program, by its caller
    step     in the program, for an optimizer that changes the state
    """

    seed: int
    kind: str
    strict: bool  # under strict_ieee: no rounding rules, infinities allowed
    inputs: tuple
    state: tuple
    sizes: tuple  # of "n", one a call
    lines: tuple
    outputs: tuple
    optimizer: str = "SGD"

    @property
    def halves(self):
        """Whether some of it is computed in a half precision."""
        return any(name in str(self) for name in HALVES)

    @property
    def logs(self):
        """Whether it has a dictionary to change."""
        return any("log[" in line for line in self.lines)

    @property
    def source(self):
        """The function's text."""
        names = ", ".join(g.name for g in self.inputs)
        names += ", log" * self.logs
        return f"def program({names}):\n" + "\n".join(
            f"    {line}" for line in (*self._opening(), *self.lines, *self._closing())
        )

    def _opening(self):
        return ("optimizer.zero_grad()",) if self.kind == "step" else ()

    def _closing(self):
        outs = ", ".join(self.outputs)
        result = f"return {outs}," if outs else "return ()"
        if self.kind == "forward":
            return (result,)
        terms = " + ".join(f"total({name})" for name in self.outputs) or "total(x0)"
        loss = f"loss = {terms}"
        if self.kind == "outer":
            return loss, "return loss,"
        if self.kind == "step":
            return loss, "loss.backward()", "optimizer.step()", "return loss.detach(),"
        wanted = ", ".join(g.name for g in self.inputs if g.floating)
        grads = f"grads = weft.autograd.grad(loss, [{wanted}], allow_unused=True)"
        return loss, grads, "return loss, *[g for g in grads if g is not None]"

    def __str__(self):
        given = [
            f"# {g.name}: {g.dtype}{list(g.shape)} {g.layout}"
            for g in (*self.inputs, *self.state)
        ]
        lead = (
            f"# seed {self.seed}, {self.kind}, n = {self.sizes}"
            f"{', strict' if self.strict else ''}"
            f"{', ' + self.optimizer if self.kind == 'step' else ''}"
        )
        return "\n".join([lead, *given, self.source])

    def with_lines(self, lines):
        """With other lines, returning those of its outputs that are still made."""
        made = {g.name for g in (*self.inputs, *self.state)}
        for line in lines:
            made |= set(re.findall(r"\bv\d+\b", line.split(" = ")[0]))
        outs = tuple(name for name in self.outputs if name in made)
        return replace(self, lines=tuple(lines), outputs=outs)


class Values:
    """The tensors that a program under construction has so far, by name."""

    def __init__(self, rng, tensors, large=False):
        self.rng = rng
        self.tensors = tensors
        self.most = 30_000 if large else 1200  # elements of a product's factor

    def pick(self, wanted=lambda t: True):
        """The name of a tensor; the newer the likelier."""
        names = [k for k, t in self.tensors.items() if wanted(t)]
        if not names:
            raise NothingToPick
        weights = [1 + 2 * i for i in range(len(names))]
        return self.rng.choices(names, weights)[0]

    def floating(self, dims=None):
        return self.pick(
            lambda t: t.dtype.is_floating_point and (dims is None or t.ndim in dims)
        )

    def factor(self, dims=(1, 2, 3)):
        """A tensor for a product, which stays small."""
        return self.pick(
            lambda t: (
                t.dtype.is_floating_point and t.ndim in dims and t.numel() < self.most
            )
        )

    def integer(self):
        return self.pick(lambda t: t.dtype.name in INTEGERS)

    def number(self):
        return self.pick(lambda t: t.dtype.name != "bool")

    def boolean(self):
        return self.pick(lambda t: t.dtype.name == "bool")

    def shaped(self, dims=(1, 2, 3, 4)):
        return self.pick(lambda t: t.ndim in dims)

    def partner(self, name):
        """A tensor that broadcasts with another one."""
        return self.pick(lambda t: _broadcasts(t.shape, self.shape(name)))

    def twin(self, name):
        """A tensor of the same shape."""
        return self.pick(lambda t: t.shape == self.shape(name))

    def shape(self, name):
        return tuple(self.tensors[name].shape)

    def dim(self, name):
        """One of a tensor's axes, counted from either end."""
        n = len(self.shape(name))
        return self.rng.randrange(-n, n)

    def dims(self, name, least=0):
        n = len(self.shape(name))
        return tuple(self.rng.sample(range(n), self.rng.randint(min(least, n), n)))


def words(text):
    """A list of names, written as one string."""
    return text.split()


class NothingToPick(Exception):
    """No tensor of the kind that a line needs."""


def _broadcasts(a, b):
    pairs = zip(reversed(a), reversed(b), strict=False)
    return all(m == n or 1 in (m, n) for m, n in pairs)


# -- lines: each function draws an expression over the values so far

SMOOTH = words(
    "sin cos tanh sigmoid exp atan erf asinh square neg abs relu sinh expm1 "
    "F.gelu F.silu F.softplus F.elu F.selu F.hardtanh F.mish F.logsigmoid "
    "F.leaky_relu F.hardswish F.softsign F.tanhshrink"
)
HALF = words(  # defined on positive numbers
    "log sqrt rsqrt log1p log2 reciprocal lgamma digamma log10 exp2 weft.special.i0e"
)
SQUASHED = words("asin acos atanh erfinv tan weft.special.ndtri erfc")
STEPS = words("floor ceil round trunc sign frac sgn signbit isnan isfinite isinf")
BINARY = words(
    "add sub mul maximum minimum atan2 hypot fmax fmin copysign logaddexp heaviside"
)
COMPARE = words("eq ne lt le gt ge")
BITS = words("bitwise_and bitwise_or bitwise_xor")
LOGIC = words("logical_and logical_or logical_xor")


def call(name, *args):
    lead = name if "." in name else f"weft.{name}"
    return f"{lead}({', '.join(map(str, args))})"


def unary(v):
    return call(v.rng.choice(SMOOTH), v.floating())


def positive(v):
    return call(v.rng.choice(HALF), f"{v.floating()}.abs() + 0.25")


def squashed(v):
    return call(v.rng.choice(SQUASHED), f"{v.floating()}.tanh() * 0.75")


def edges(v):
    """Outside a function's domain too: NaN and infinity."""
    return call(v.rng.choice(HALF[:6]), v.floating())


def stepping(v):
    return call(v.rng.choice(STEPS), v.floating())


def binary(v):
    a = v.floating()
    return call(v.rng.choice(BINARY), a, v.partner(a))


def scaled(v):
    number = v.rng.choice(["2", "0.5", "-1", "3.0", "0", "1", "1e-3", "-0.75"])
    return f"{v.number()} {v.rng.choice('+-*')} {number}"


def reverse_scaled(v):
    number = v.rng.choice(["2", "0.5", "-1", "3.0", "0", "1"])
    return f"{number} {v.rng.choice('+-*')} {v.number()}"


def mixed(v):
    """Two dtypes: promoted."""
    a = v.number()
    return f"{a} {v.rng.choice(['+', '-', '*'])} {v.partner(a)}"


def divided(v):
    a = v.floating()
    return f"{a} / ({v.partner(a)}.abs() + 0.5)"


def modulo(v):
    op = v.rng.choice(["%", "//"])
    return f"{v.number()} {op} {v.rng.choice(['3', '-2', '5', '1.5', '7'])}"


def fmodulo(v):
    return f"weft.fmod({v.number()}, {v.rng.choice(['3', '-2', '1.5'])})"


def power(v):
    if v.rng.random() < 0.5:
        return f"{v.number()} ** {v.rng.choice('0123')}"
    exponent = v.rng.choice(["0.5", "-1", "1.5", "-0.5", "2.0", v.floating()])
    return f"({v.floating()}.abs() + 0.5) ** {exponent}"


def compared(v):
    a = v.pick()
    other = v.rng.choice(["0", "1", v.partner(a), v.partner(a)])
    return call(v.rng.choice(COMPARE), a, other)


def chosen(v):
    c = v.boolean()
    a = v.partner(c)
    return f"weft.where({c}, {a}, {v.rng.choice(['0.0', '1', v.partner(a)])})"


def logic(v):
    a = v.boolean()
    if v.rng.random() < 0.3:
        return f"~{a}"
    return call(v.rng.choice(LOGIC), a, v.partner(a))


def bits(v):
    a = v.integer()
    if v.rng.random() < 0.3:
        return f"{a} {v.rng.choice(['<<', '>>'])} {v.rng.choice('0123')}"
    return call(v.rng.choice(BITS), a, v.rng.choice(["3", "-4", a, v.integer()]))


def cast(v):
    target = v.rng.choice(DTYPES)
    a = v.pick()
    if target in FLOATS or v.tensors[a].dtype.name not in FLOATS:
        return f"{a}.to(weft.{target})"
    if target == "bool":
        return f"{a}.bool()"
    low = 0 if target == "uint8" else -99
    return f"{a}.nan_to_num(0, 9, -9).clamp({low}, 99).to(weft.{target})"


def clamped(v):
    low, high = sorted(v.rng.sample([-2, -1, -0.5, 0, 0.5, 1, 2], 2))
    return f"{v.number()}.clamp({v.rng.choice([low, None])}, {high})"


def lerped(v):
    a = v.floating()
    return f"weft.lerp({a}, {v.twin(a)}, {v.rng.choice(['0.25', '0.5'])})"


def addc(v):
    a = v.floating()
    return f"weft.addcmul({a}, {v.partner(a)}, {v.partner(a)}, value=0.5)"


# -- where elements are


def reshaped(v):
    a = v.pick()
    shape = list(v.shape(a))
    how = v.rng.random()
    if how < 0.3:
        return f"{a}.reshape(-1)"
    if how < 0.5 and shape:
        k = v.rng.randrange(len(shape))
        return f"{a}.flatten({k})"
    count = 1
    for n in shape:
        count *= n
    parts = []
    for n in v.rng.sample([1, 2, 3, 4, 5, 7], 3):
        if count and count % n == 0 and len(parts) < 2:
            parts.append(n)
            count //= n
    parts.insert(v.rng.randint(0, len(parts)), -1)
    return f"{a}.reshape({tuple(parts)})"


def permuted(v):
    a = v.shaped()
    order = list(range(len(v.shape(a))))
    v.rng.shuffle(order)
    return f"{a}.permute({tuple(order)})"


def turned(v):
    a = v.shaped((2, 3))
    return v.rng.choice([f"{a}.mT", f"{a}.transpose(0, -1)", f"{a}.transpose(-2, -1)"])


def widened(v):
    a = v.pick()
    n = len(v.shape(a))
    return f"{a}.unsqueeze({v.rng.randint(-n - 1, n)})"


def squeezed(v):
    a = v.pick(lambda t: 1 in t.shape)
    return f"{a}.squeeze({v.rng.choice(['', v.shape(a).index(1)])})"


def expanded(v):
    a = v.pick()
    shape = [v.rng.choice([2, 3, 5]) if n == 1 else -1 for n in v.shape(a)]
    if v.rng.random() < 0.5:
        shape.insert(0, v.rng.choice([1, 2, 3]))
    return f"{a}.expand({tuple(shape)})"


def part(rng, n):
    """A subscript of one axis."""
    items = [":", ":", "::2", "1:", ":-1", "-2:", "1:3", "0", "-1", "None, :", "5:2"]
    found = rng.choice(items)
    return ":" if found in ("0", "-1") and n == 0 else found


def subscript(v, name):
    shape = v.shape(name)
    parts = [part(v.rng, n) for n in shape[: v.rng.randint(1, len(shape))]]
    if v.rng.random() < 0.15:
        parts = ["...", *parts[:1]]
    return ", ".join(parts)


def sliced(v):
    a = v.shaped()
    return f"{a}[{subscript(v, a)}]"


def flipped(v):
    a = v.shaped()
    return f"{a}.flip({v.dims(a, 1)})"


def rolled(v):
    a = v.shaped()
    return f"{a}.roll({v.rng.choice([1, -1, 2])}, {v.dim(a)})"


def joined(v):
    a = v.shaped()
    others = [v.rng.choice([a, v.twin(a)]) for _ in range(v.rng.randint(1, 2))]
    names = ", ".join([a, *others])
    return f"{v.rng.choice(['weft.cat', 'weft.stack'])}([{names}], {v.dim(a)})"


def split(v):
    a = v.shaped()
    return f"{a}.chunk(2, {v.dim(a)})[{v.rng.choice([0, -1])}]"


def padded(v):
    a = v.shaped()
    return f"weft.pad({a}, ({v.rng.choice(['1, 0', '0, 2', '1, 1', '-1, 0'])}))"


def triangular(v):
    return f"{v.shaped((2, 3))}.{v.rng.choice(['tril', 'triu'])}({v.rng.choice('01')})"


def diagonal(v):
    return f"{v.shaped((2, 3))}.diagonal()"


def repeated(v):
    a = v.shaped((1, 2))
    times = tuple(v.rng.choice([1, 2]) for _ in v.shape(a))
    return f"{a}.repeat({times})"


def unfolded(v):
    return f"{v.shaped((1, 2))}.unfold(-1, 2, {v.rng.choice('12')})"


def created(v):
    a = v.pick()
    how = v.rng.choice(["zeros_like({})", "ones_like({})", "full_like({}, 2)"])
    return "weft." + how.format(a)


def counted(v):
    a = v.shaped()
    d = v.rng.randrange(len(v.shape(a)))
    kind = v.rng.choice(["", ", dtype=weft.float32", ", dtype=weft.float64"])
    return f"weft.arange({a}.shape[{d}]{kind})"


def constant(v):
    return v.rng.choice(
        ["weft.tensor([0.5, -1.0, 2.0])", "weft.tensor(1.5)", "weft.eye(3)",
         "weft.tensor([1, 2, 3])", "weft.tensor([[True], [False]])",
         "weft.linspace(-1, 1, 5)"]
    )  # fmt: skip


# -- many to one

REDUCE = words("sum mean amax amin sum mean prod logsumexp var std")


def reduced(v):
    a = v.pick(lambda t: t.dtype.is_floating_point and t.ndim > 0)
    name = v.rng.choice(REDUCE)
    keep = v.rng.choice([True, False])
    if name == "prod":
        return f"{a}.prod({v.dim(a)}, keepdim={keep})"
    dims = v.dims(a, 1)
    return f"{a}.{name}({dims}, keepdim={keep})"


def totalled(v):
    a = v.number()
    return f"{a}.{v.rng.choice(['sum', 'sum', 'amax', 'amin'])}()"


def counting(v):
    a = v.pick(lambda t: not t.dtype.is_floating_point and t.ndim > 0)
    name = v.rng.choice(["sum", "any", "all", "amax", "amin"])
    return f"{a}.{name}({v.dim(a)}, keepdim={v.rng.choice([True, False])})"


def normed(v):
    a = v.shaped((1, 2, 3))
    return v.rng.choice(
        [f"{a}.norm()", f"{a}.norm(dim={v.dim(a)})", f"F.normalize({a}, dim=-1)"]
    )


def largest(v):
    a = v.shaped()
    name = v.rng.choice(["argmax", "argmin", "argsort", "cumsum", "cumprod"])
    return f"{a}.{name}({v.dim(a)})"


def ordered(v):
    a = v.shaped()
    name = v.rng.choice(["sort", "max", "min", "cummax", "median"])
    return f"{a}.{name}({v.dim(a)})[{v.rng.choice([0, 1])}]"


def likely(v):
    a = v.floating((1, 2, 3))
    return f"{a}.{v.rng.choice(['softmax', 'log_softmax'])}({v.dim(a)})"


# -- products and layers


def product(v):
    a, b = v.factor(), v.factor()
    return v.rng.choice(
        [f"{a} @ {b}", f"{a} @ {b}.mT", f"{a} @ {a}.mT", f"{b}.mT @ {a}"]
    )


def outer(v):
    a, b = v.factor((1,)), v.factor((1,))
    return v.rng.choice([f"weft.outer({a}, {b})", f"weft.einsum('i,j->ij', {a}, {b})"])


def normalised(v):
    a = v.floating((2, 3))
    last = v.shape(a)[-1]
    return v.rng.choice(
        [f"F.layer_norm({a}, ({last},))", f"F.rms_norm({a}, ({last},))",
         f"F.batch_norm({a}, None, None, training=True)"]
    )  # fmt: skip


def convolved(v):
    a = v.floating((1, 2, 3))
    image = f"{a}.reshape(1, 1, -1)"
    weight = v.rng.choice(
        [
            "weft.tensor([[[0.5, -1.0]]])",
            "weft.tensor([[[1.0, 2.0, -1.0]], [[0.5] * 3]])",
        ]
    )
    pad = v.rng.choice([0, 1, 2])
    step = v.rng.choice([1, 2])
    to = "" if v.tensors[a].dtype.name == "float32" else ".double()"
    return f"F.conv1d({image}, {weight}{to}, padding={pad}, stride={step})"


def pooled(v):
    a = v.floating((1, 2, 3))
    name = v.rng.choice(["max_pool1d", "avg_pool1d"])
    return f"F.{name}({a}.reshape(1, 1, -1), 2)"


def attended(v):
    a = v.factor((2, 3))
    return f"F.scaled_dot_product_attention({a}, {a}, {v.twin(a)})"


def lossy(v):
    a = v.floating((1, 2, 3))
    name = v.rng.choice(["mse_loss", "l1_loss", "smooth_l1_loss", "huber_loss"])
    return f"F.{name}({a}, {v.twin(a)}, reduction={v.rng.choice(['mean', 'none'])!r})"


def crossed(v):
    a = v.floating((2,))
    return f"F.cross_entropy({a}, weft.zeros({a}.shape[0], dtype=weft.int64))"


# -- by index


def safe(v, name, dim):
    """Some integers as indices of an axis."""
    return f"({name} % {v}.shape[{dim}])"


def gathered(v):
    a, how = v.shaped((1, 2, 3)), v.rng.random()
    if how < 0.3:
        d = v.dim(a)
        return f"{a}.gather({d}, {a}.argsort({d}))"
    i = v.integer()
    if how < 0.6:
        return f"{a}[{safe(a, i, 0)}.long()]"
    if how < 0.8:
        return f"{a}.index_select(0, {safe(a, i, 0)}.reshape(-1).long())"
    return f"weft.take({a}, {i}.long() % {a}.numel())"


def masked(v):
    a = v.pick()
    c = v.pick(lambda t: t.dtype.name == "bool" and _broadcasts(t.shape, v.shape(a)))
    return f"{a}.masked_fill({c}, {v.rng.choice(['0', '1'])})"


def scattered(v):
    a = v.floating((1, 2))
    i = v.integer()
    return v.rng.choice(
        [f"weft.zeros_like({a}).index_add(0, {a}.argsort(0).reshape(-1)"
         f"[:{a}.shape[0]] % {a}.shape[0], {a})",
         f"weft.zeros_like({a}).scatter(0, {a}.argsort(0), {a})",
         f"F.one_hot({i} % 5, 5)"]
    )  # fmt: skip


# -- control flow, random numbers


def branched(v):
    a = v.floating()
    test = v.rng.choice([f"{a}.sum() > 0", f"{v.pick()}.any()"])
    left, right = v.rng.sample(["a * 2", "a.sin()", "-a", "a + 1", "a.relu()"], 2)
    return f"weft.cond({test}, lambda a: {left}, lambda a: {right}, {a})"


def scanned(v):
    a = v.floating((1, 2))
    body = v.rng.choice(["c * 0.5 + x", "(c + x).tanh()", "weft.maximum(c, x)"])
    return (
        f"weft.scan(lambda c, x: ({body}, c + x), {a}[0], {a})[{v.rng.choice([0, 1])}]"
    )


def carried(v):
    """Carries that change places, are given as they are, or are written in places."""
    a = v.floating((1, 2))
    body = v.rng.choice(
        ["((c[1], c[0] * 0.5 + x), c[0])", "((c[0] + x, c[1]), c[0])",
         "((x, c[0]), (c[1], x * 2)[0])", "((c[0].sin(), c[1] + 1), c[1] * x)",
         "((x * 0.5, x * 0.5), x)"]
    )  # fmt: skip
    back = v.rng.choice(["False", "True"])
    return (
        f"weft.scan(lambda c, x: {body}, ({a}[0], {a}[-1]), {a}, reverse={back})"
        f"{v.rng.choice(['[0][0]', '[0][1]', '[1]'])}"
    )


def recurrent(v):
    """A state times a matrix in each step."""
    a = v.factor((2,))
    n = v.shape(a)[-1]
    w = f"p0.reshape(-1)[:1] * weft.eye({n}, dtype={a}.dtype)"
    step = v.rng.choice(["(c @ w + x).tanh()", "(x @ w) * c", "c @ w.T + x.sin()"])
    return (
        f"(lambda w: weft.scan(lambda c, x: ({step}, c), {a}[:1], {a}[:, None]))({w})"
        f"[{v.rng.choice([0, 1])}]"
    )


def written(v):
    """Rows of a carry, one after the other."""
    a = v.floating((1, 2))
    if not v.shape(a)[0]:  # a body that no step can run is not captured
        return f"{a} * 2"
    return (
        f"weft.while_loop(lambda b, k: k < {a}.shape[0], lambda b, k: "
        f"(b.index_copy(0, k.reshape(1), {a}[k].unsqueeze(0) * 2), k + 1), "
        f"({a} * 0, weft.tensor(0)))[0]"
    )


def loops_inside(v):
    a = v.floating((1, 2))
    inner = v.rng.choice(
        ["weft.fori_loop(0, 2, lambda i, c: c * 0.5 + x, c)",
         "weft.cond(c.sum() > 0, lambda c: c - x, lambda c: c * 0.5, c)",
         "weft.while_loop(lambda d: d.abs().sum() > 1, lambda d: d * 0.5, c + x)"]
    )  # fmt: skip
    return (
        f"weft.scan(lambda c, x: ({inner}, c * 2), {a}[0], {a})[{v.rng.choice('01')}]"
    )


def switched(v):
    a = v.floating()
    return (
        f"weft.switch({v.integer()}.sum() % 3, [weft.sin, weft.neg, lambda a: a * 2], "
        f"{a})"
    )


def repeated_until(v):
    a = v.floating()
    return (
        f"weft.while_loop(lambda k, a: k < {v.rng.choice('0134')}, "
        f"lambda k, a: (k + 1, a * 0.5 + 1), (weft.tensor(0), -{a}))[1]"
    )


def normal_norms(v):
    """Normalisation whose running statistics are state of the program."""
    a = v.floating((2,))
    n = v.shape(a)[-1]
    return (
        f"F.batch_norm({a}, p0.reshape(-1)[:{n}], p0.reshape(-1)[:{n}] ** 2 + 1, "
        f"training=False)"
    )


def imaged(v):
    """Convolution and pooling in two dimensions."""
    a = v.factor((2, 3))
    image = f"{a}.reshape(1, -1, *{a}.shape[-2:])[:, :1]"
    kind = "" if v.tensors[a].dtype.name == "float32" else ".double()"
    weight = f"weft.ones(2, 1, 2, 2){kind}"
    return v.rng.choice(
        [f"F.conv2d({image}, {weight}, padding={v.rng.choice('01')})",
         f"F.max_pool2d({image}, 2)", f"F.avg_pool2d({image}, 2)",
         f"F.interpolate({image}, scale_factor=2)"]
    )  # fmt: skip


def counted_loop(v):
    a = v.floating()
    return f"weft.fori_loop(0, 3, lambda i, a: a * 0.5 + i, {a})"


def drawn(v):
    a = v.floating()
    return v.rng.choice(
        [f"F.dropout({a}, 0.5)", f"weft.randn_like({a})", f"{a} + weft.rand_like({a})",
         f"weft.rand({a}.shape)", f"weft.randint(0, 4, {a}.shape)"]
    )  # fmt: skip


# -- Python around tensors


def moved(v):
    """To the device where it is."""
    how = v.rng.choice(["to('cpu')", "cpu()", "to(weft.device('cpu'))"])
    return f"{v.pick()}.{how}"


def yielded(v):
    """By a generator function, of which some run without gradients."""
    take = v.rng.choice(["list({})[0]", "list({})[-1]", "sum({})", "next({})"])
    return take.format(f"{v.rng.choice(['halves', 'quiet_halves'])}({v.floating()})")


def generated(v):
    return f"weft.rand({v.floating()}.shape, generator=noise)"


def attempted(v):
    """What one handler makes of an error that depends on shapes and types alone."""
    a, b = v.floating(), v.pick()
    first = v.rng.choice([f"{a} @ {b}", f"weft.cat([{a}, {b}])", f"{a} + {b}"])
    return f"attempt(lambda: {first}, lambda: {a} * 2)"


def decided(v):
    """What a handler must not make of a question that no program can answer."""
    a = v.floating()
    first = v.rng.choice([f"{a} * float({a}.sum())", f"{a} if {a}.max() > 0 else -{a}"])
    return f"attempt(lambda: {first}, lambda: {a} * 100)"


def noted(v):
    """A change of the dictionary that it is given."""
    a = v.pick()
    return v.rng.choice(
        [f"log['seen'].append({a})", f"log['last'] = {a}", "log['n'] += 1",
         f"log['seen'] += [{a}, 2]", f"log.setdefault('more', []).append({a})",
         "log['seen'].reverse()", "log.pop('last', None)"]
    )  # fmt: skip


EXPRESSIONS = (
    *[unary] * 3, positive, squashed, edges, stepping, *[binary] * 3, *[scaled] * 2,
    reverse_scaled, *[mixed] * 2, divided, modulo, fmodulo, power, *[compared] * 2,
    *[chosen] * 2, logic, bits, *[cast] * 3, clamped, lerped, addc,
    *[reshaped] * 2, *[permuted] * 2, turned, widened, squeezed, *[expanded] * 2,
    *[sliced] * 3, flipped, rolled, *[joined] * 2, split, padded, triangular, diagonal,
    repeated, unfolded, created, counted, constant,
    *[reduced] * 4, totalled, counting, normed, largest, ordered, *[likely] * 2,
    *[product] * 3, outer, *[normalised] * 2, normal_norms, convolved, imaged,
    pooled, attended, lossy,
    crossed, *[gathered] * 2, masked, scattered,
    branched, scanned, repeated_until, counted_loop, drawn,
    carried, recurrent, written, loops_inside, switched,
    moved, yielded, attempted, generated,
)  # fmt: skip


# -- in place

CHANGES = (
    "{t}.add_({o})", "{t}.mul_({o})", "{t}.sub_(1)", "{t}.mul_(2)", "{t}.neg_()",
    "{t}.copy_({o})", "{t}.clamp_(-1, 1)", "{t}.zero_()", "{t}.fill_(2)",
    "{t}.tanh_()", "{t}.relu_()", "{t}.abs_()", "{t}.masked_fill_({t} > 0, 1)",
)  # fmt: skip
AUGMENTED = ("{t} += {o}", "{t} *= 2", "{t} -= 1", "{t} = {o}")


def changed(v, names):
    """A statement that changes one of some tensors, or a part of it."""
    t = v.rng.choice(names)
    if v.shape(t) and v.rng.random() < 0.6:
        where = f"{t}[{subscript(v, t)}]"
        o = v.rng.choice(["1", "0.5", f"({where} * 2)", f"{v.pick()}.sum()"])
        text = v.rng.choice(AUGMENTED)
        if v.rng.random() < 0.2:
            a = v.pick(lambda x: x.dtype.name == "bool" and x.shape == v.shape(t))
            return f"{t}[{a}] = {v.rng.choice(['1', '-0.5'])}"
        return text.format(t=where, o=o)
    return v.rng.choice(CHANGES).format(t=t, o=v.partner(t))


def owned(v, name):
    """A copy to change, and views of it."""
    a = v.floating() if v.rng.random() < 0.7 else v.pick()
    return [f"{name} = {a}.clone()"]


def view_of(v, made, name):
    """A view of a tensor that is changed."""
    t = v.rng.choice(made)
    options = [f"{t}.reshape(-1)", f"{t}.unsqueeze(0)", f"{t}.detach()"]
    if v.shape(t):
        options += [f"{t}[{subscript(v, t)}]"] * 3
        options += [f"{t}.transpose(0, -1)"] * 2
    return f"{name} = {v.rng.choice(options)}"


# -- programs


def large_shape(rng):
    """A shape of 5,000 to 20,000 elements: more than one chunk, block or thread."""
    last = rng.choice(LARGE)
    rows = rng.randint(-(-5_000 // last), 20_000 // last)
    few = rng.choice([2, 3, 5, 7])
    whole = rng.choice([4099, 5003, 8191, 16384, 19997])
    return rng.choice(
        [(rows, last), (rows, last), (last, rows), (few, rows // few, last),
         (rows // few, last, few), (whole,), (2, whole // 2)]
    )  # fmt: skip


def givens(rng, kind, dynamic, large):
    """Inputs and state of a program."""
    base = tuple(rng.choice(SIZES[1:]) for _ in range(rng.choice([0, 1, 1, 2, 2, 2])))
    if rng.random() < 0.2:
        base = (*base, rng.choice([1, 2, 3]))
    if large:
        base = (3, rng.choice(LARGE)) if dynamic else large_shape(rng)
    if dynamic:
        base = base or (3,)
        base = ("n", *base[1:])
    found = []
    for k in range(rng.randint(1, 3)):
        shape = list(base)
        if rng.random() < 0.4:
            shape = shape[rng.randint(0, len(shape)) :]
        if rng.random() < 0.3 and shape:
            shape[rng.randrange(len(shape))] = rng.choice([1, 1, rng.choice(SIZES)])
        dtype = rng.choice(DTYPES)
        if k == 0 and kind != "forward":
            dtype = rng.choice(FLOATS)
        layout = rng.choice(["plain", "plain", "turned", "strided"])
        found.append(Given(f"x{k}", tuple(shape), dtype, layout))
    if dynamic and all("n" not in g.shape for g in found):
        found[0] = replace(found[0], shape=("n", *found[0].shape[1:]))
    state = []
    if kind == "step" or rng.random() < 0.3:
        for k in range(rng.randint(1, 2)):
            shape = tuple(1 if n == "n" else n for n in base)
            dtype = rng.choice(FLOATS if kind == "step" else DTYPES)
            state.append(Given(f"p{k}", shape, dtype))
    return tuple(found), tuple(state)


def begin(seed, large=0.05):
    """A program without lines; ``large`` is how likely its tensors are large ones."""
    rng = random.Random(seed)
    kind = rng.choice(KINDS)
    dynamic = rng.random() < 0.3
    inputs, state = givens(rng, kind, dynamic, rng.random() < large)
    sizes = (
        tuple(rng.sample([2, 3, 4, 5, 6, 9, 16, 17, 33, 70, 131], 3)) if dynamic else ()
    )
    optimizer = rng.choice(["SGD", "Adam", "AdamW", "RMSprop"])
    return rng, Program(
        seed, kind, rng.random() < 0.4, inputs, state, sizes, (), (), optimizer
    )


def next_line(rng, program, tensors):
    """The text of another line; it may turn out not to run."""
    large = any(t.numel() >= 4096 for t in tensors.values())
    v = Values(rng, tensors, large)
    count = len(program.lines)
    name = f"v{count}"
    mine = [k for k in tensors if k.startswith("v") and is_owned(program, k)]
    roll = rng.random()
    if roll < 0.06:
        return owned(v, name)[0]
    if mine and roll < 0.14:
        return view_of(v, mine, name)
    if mine and roll < 0.24:
        return changed(v, mine)
    if roll < 0.27 and program.kind in ("forward", "step"):
        names = [k for k in tensors if k[0] in "xp"]
        line = changed(v, names)
        return line if program.kind == "forward" else f"with weft.no_grad(): {line}"
    if roll < 0.30:
        return noted(v)
    if roll > 0.998:
        return f"{name} = {decided(v)}"
    return f"{name} = {rng.choice(EXPRESSIONS)(v)}"


def is_owned(program, name):
    """Whether a name is a copy made to be changed, or a view of one."""
    for line in program.lines:
        left, _, right = line.partition(" = ")
        if left == name:
            source = re.match(r"[xpv]\d+", right)
            return right.endswith(".clone()") or bool(
                source
                and re.fullmatch(
                    r"v\d+(\.reshape\(-1\)|\.unsqueeze\(0\)|\.detach\(\)|\[.*\]"
                    r"|\.transpose\(0, -1\))",
                    right,
                )
                and is_owned(program, source[0])
            )
    return False


class Unfit(AssertionError):
    """A program that cannot be compared whatever its lines: it is too large."""


def draw(seed, run, length=9, tries=40, large=0.05):
    """A random program, and a line (or None) that eager execution refused in it.

    ``run(program)`` gives the tensors it ends with by name, None if the program is
    not fit to be compared, and raises what eager execution raises.
    """
    rng, program = begin(seed, large)
    tensors = run(program)
    if tensors is None:
        raise Unfit(f"the inputs of program {seed} are not fit")
    refused = None
    for _ in range(tries):
        if len(program.lines) >= length:
            break
        try:
            line = next_line(rng, program, tensors)
        except NothingToPick:
            continue
        candidate = replace(program, lines=(*program.lines, line))
        try:
            found = run(candidate)
        except Exception:
            refused = line
            continue
        if found is not None:
            program, tensors = candidate, found
    return replace(program, outputs=_outputs(rng, program, tensors)), refused


def _outputs(rng, program, tensors):
    """The last value, and some others; those of a loss are floating."""
    names = [
        k
        for k, t in tensors.items()
        if k[0] == "v" and (program.kind == "forward" or t.dtype.is_floating_point)
    ]
    if not names:
        return ("x0",)
    others = rng.sample(names[:-1], min(len(names) - 1, rng.randint(0, 3)))
    return (*sorted(others), names[-1])
