"""One program eagerly, by the interpreter, compiled, in a session: do they agree?

How far results may differ is measured, not guessed. Every operator whose last bits
depend on who computes it (sums, products of matrices, transcendental functions; and
all arithmetic where rounding rules are on) is run eagerly with a relative error of
``NOISE`` units in the last place. What that does to a result, doubled, is what the
three may differ by; where no such operator ran, they must agree to the bit.
Programs that magnify the noise much more than well-made ones do are not compared:
there, any answer is as good as another.
"""

import contextlib
import warnings
import zlib
from dataclasses import replace

import ml_dtypes
import numpy as np
from programs import words

import weft
import weft.nn
import weft.static
from weft import optim
from weft.core.mode import set_measured
from weft.core.op import all_ops
from weft.core.tensor import Tensor
from weft.errors import ShapeError, WeftError
from weft.graph import CaptureError

NOISE = 64  # units in the last place; of a half precision, which has few, one
GROWTH = 512  # how much larger than the noise its effect may be

# Operators that move values or decide between them: the same bits everywhere.
MOVING = words(
    "cast logical_and logical_or logical_xor logical_not bitwise_and bitwise_or "
    "bitwise_xor bitwise_left_shift bitwise_right_shift gcd lcm bitwise_not isnan "
    "isinf isfinite isposinf isneginf signbit maximum minimum where conj floor ceil "
    "trunc round neg abs sign copysign relu eq ne lt le gt ge clone flip full arange "
    "take put place cat real imag complex gather scatter argmax argmin argsort "
    "cummax_index cummin_index uniform random_integers any all amax amin "
    "max_pool max_pool_index adaptive_max_index diagonal"
)
# Correctly rounded ones, which rounding rules may still replace by others.
ARITHMETIC = words(
    "add sub mul div floor_divide remainder fmod sqrt square reciprocal nextafter "
    "absorb"
)


def is_float(array):
    return array.dtype.kind == "f" or array.dtype == ml_dtypes.bfloat16


def eps(array):
    """One unit in the last place of 1."""
    return float(ml_dtypes.finfo(array.dtype).eps)


def noise_of(array):
    """The relative error that operators are given."""
    return (1 if array.itemsize == 2 else NOISE) * eps(array)


class Noise:
    """Operators that err, by as much as ``NOISE`` says; counts those that ran."""

    def __init__(self, program, seed=0, size=1.0):
        self.exact = {*MOVING, *(ARITHMETIC if program.strict else ())}
        if program.halves:  # which half a number becomes is decided by its last bits
            self.exact -= {"cast"}
        self.rng = np.random.default_rng(seed)
        self.size = size
        self.count = 0

    def __enter__(self):
        self.kept = {
            op: op.kernel
            for op in all_ops()
            if op.name not in self.exact and not op.view and not op.composite
        }
        for op, kernel in self.kept.items():
            op.kernel = self._noisy(kernel, op.name.startswith("attention"))
        set_measured(True)  # so that none takes a short way to NumPy
        return self

    def __exit__(self, *error):
        set_measured(False)
        for op, kernel in self.kept.items():
            op.kernel = kernel

    def _noisy(self, kernel, weighs):
        def run(*args, **params):
            if weighs:  # an error of the scores, which are powers of e
                query = args[0]
                args = (query * self._off(np.ones_like(query[..., :1])), *args[1:])
            found = kernel(*args, **params)
            if type(found) is tuple:
                return tuple(map(self._off, found))
            return self._off(found)

        return run

    def _off(self, array):
        array = np.asarray(array)
        if not is_float(array):
            return array
        self.count += 1
        if not self.size:
            return array
        error = self.size * noise_of(array) * self.rng.uniform(-1, 1, array.shape)
        return (array.astype(float) * (1 + error)).astype(array.dtype)


# -- running


def total(value):
    """One number that depends on every element of a tensor in its own way."""
    flat = value.reshape(-1)
    weights = (weft.arange(flat.shape[0], dtype=flat.dtype) * 0.7).sin() + 1.25
    return (flat * weights).sum()


def data(given, n, seed):
    """An array for an argument: multiples of 1/8, so that arithmetic is exact."""
    shape = tuple(n if s == "n" else s for s in given.shape)
    rng = np.random.default_rng([seed, zlib.crc32(given.name.encode())])
    if given.dtype == "bool":
        return rng.random(shape) < 0.5
    if given.floating:
        return (np.round(rng.normal(0, 1, shape) * 8) / 8).astype(given.dtype)
    return rng.integers(-4, 9, shape).astype(given.dtype)


def laid_out(array, layout):
    """The same array, perhaps not contiguous."""
    if layout == "turned":
        return np.ascontiguousarray(array.T).T
    if layout == "strided" and array.ndim:
        wide = np.zeros((*array.shape[:-1], 2 * array.shape[-1]), array.dtype)
        wide[..., ::2] = array
        return wide[..., ::2]
    return array


def attempt(first, other):
    """What the first function gives, or where that fails the other one."""
    try:
        return first()
    except Exception:
        return other()


def halves(value):
    yield value * 0.5
    yield value - 0.25


@weft.no_grad()
def quiet_halves(value):
    yield value * 0.5
    yield value - 0.25


class World:
    """A program's function, with state of its own."""

    def __init__(self, program, every=False):
        self.program = program
        self.state = {
            g.name: Tensor(np.array(data(g, 0, program.seed))) for g in program.state
        }
        names = {
            "weft": weft, "F": weft.nn.functional, "total": total, "attempt": attempt,
            "halves": halves, "quiet_halves": quiet_halves, **self.state,
        }  # fmt: skip
        self.noise = names["noise"] = weft.Generator()
        if program.kind == "step":
            for tensor in self.state.values():
                tensor.requires_grad_()
            make = getattr(optim, program.optimizer)
            # eps: a step must not depend on the last bits of a gradient near zero
            more = {} if program.optimizer == "SGD" else {"eps": 0.125}
            names["optimizer"] = make(list(self.state.values()), lr=0.125, **more)
        source = program.source
        if every:
            source = source[: source.rindex("return")] + "return dict(locals())"
        exec(compile(source, f"<program {program.seed}>", "exec"), names)
        self.function = names["program"]

    def arguments(self, call):
        sizes = self.program.sizes
        n = sizes[call % len(sizes)] if sizes else 0
        found = []
        for g in self.program.inputs:
            array = laid_out(data(g, n, self.program.seed + 1000 * call), g.layout)
            tensor = Tensor(np.asarray(array))
            if g.floating and self.program.kind in ("inner", "outer"):
                tensor.requires_grad_()
            found.append(tensor)
        if self.program.logs:
            found.append({"seen": [], "n": 0, "last": None})
        return found

    def call(self, function, call, pull=True):
        """What a call returns and changes, by name."""
        args = self.arguments(call)
        weft.manual_seed(call)
        self.noise.manual_seed(call)
        results = function(*args)
        log = args.pop() if self.program.logs else {}
        if self.program.kind == "outer" and pull and results[0].requires_grad:
            results[0].backward()
        found = {f"output {k}": r for k, r in enumerate(results)}
        pairs = zip(self.program.inputs, args, strict=True)
        found |= {g.name: a for g, a in pairs}
        if pull:
            found |= {f"{g.name}.grad": a.grad for g, a in pairs}
        found |= self.state
        found |= {f"{k}.grad": p.grad for k, p in self.state.items()}
        found |= {f"log {k}": weft.tensor(v) for k, v in log.items() if k == "n"}
        for k, value in log.items():
            items = value if isinstance(value, list) else [value]
            found |= {f"log {k} {i}": t for i, t in enumerate(items) if k != "n"}
        arrays = {k: _host(t) for k, t in found.items() if t is not None}
        if pull:  # the interpreter's results are always its own
            shown = [_host(t) for t in (*results, *args)]
            sharing = [[np.may_share_memory(a, b) for a in shown] for b in shown]
            arrays["memory"] = np.array(sharing)
        return {k: a.copy() for k, a in arrays.items()}


def _host(value):
    if isinstance(value, weft.Tensor):
        return value.detach().numpy()
    return np.asarray(value)


@contextlib.contextmanager
def settings(program):
    """The modes a program is run in."""
    before = weft.config.strict_ieee
    weft.config.strict_ieee = program.strict
    try:
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore", RuntimeWarning)
            yield
    finally:
        weft.config.strict_ieee = before


def calls(program):
    return max(len(program.sizes), 2)


def eagerly(program, noise=None):
    """The results of each call."""
    with settings(program), noise or contextlib.nullcontext():
        world = World(program)
        return [world.call(world.function, k) for k in range(calls(program))]


def interpreted(program):
    """The results of each call, and how often it was captured."""
    with settings(program):
        world = World(program)
        try:
            captured, count = _captured(world, 0, _dynamic(program)), 1
        except Exception:  # if the sizes are to blame, it works without them
            captured, count = _captured(world, 0, None), 1 + bool(program.sizes)
        found = []
        for k in range(calls(program)):
            try:
                found.append(world.call(captured, k, pull=False))
            except ShapeError:
                if not program.sizes:
                    raise
                captured, count = _captured(world, k, None), count + 1
                found.append(world.call(captured, k, pull=False))
        return found, count


def _captured(world, call, dynamic):
    args = world.arguments(call)
    return weft.graph.capture(world.function, *args, dynamic=dynamic)


def _dynamic(program):
    found = {
        g.name: {d: "n" for d, s in enumerate(g.shape) if s == "n"}
        for g in program.inputs
    }
    return {k: v for k, v in found.items() if v} or None


def compiled(program):
    """The results of each call, and how often it was compiled."""
    with settings(program):
        world = World(program)
        function = weft.compile(world.function)
        results = [world.call(function, k) for k in range(calls(program))]
        return results, len(function.compiles)


STATEFUL = ("_(", "] =", " +=", " -=", " *=", "rand", "dropout", "noise", "log[",
            "no_grad", "quiet", "attempt")  # fmt: skip


def by_session(program):
    """The results of each call of what the function builds as a static graph.

    Derivatives inside of a program are those of ``static.gradients``. Programs with
    effects, of which a graph has others, are built by no function: None.
    """
    forward = replace(program, kind="forward")
    if program.kind in ("step", "outer") or any(s in forward.source for s in STATEFUL):
        return None
    with settings(program):
        world = World(forward)
        with weft.static.Graph().as_default() as graph:
            placeholders = []
            for g, a in zip(program.inputs, world.arguments(0), strict=True):
                shape = list(a.shape)  # a layout may add an axis
                for d, n in enumerate(g.shape):
                    shape[d] = None if n == "n" else shape[d]
                placeholders.append(weft.static.placeholder(a.dtype, shape))
            outs = world.function(*placeholders)
            if program.kind == "inner":
                outs = _with_gradients(program, outs, placeholders)
            nodes = [o for o in outs if isinstance(o, weft.static.StaticTensor)]
            start = weft.static.global_variables_initializer()
        found = []
        with weft.static.Session(graph) as session:
            session.run(start)
            for k in range(calls(program)):
                args = [_host(a) for a in world.arguments(k)]
                feeds = dict(zip(placeholders, args, strict=True))
                arrays = iter(session.run(nodes, feeds))
                found.append({
                    f"output {j}": np.asarray(next(arrays))
                    for j, o in enumerate(outs)
                    if isinstance(o, weft.static.StaticTensor)
                })  # fmt: skip
        return found


def _with_gradients(program, outs, placeholders):
    """The loss of a program, and its derivatives, as the program's closing has them."""
    loss = sum(map(total, outs[1:]), total(outs[0]))
    pairs = zip(program.inputs, placeholders, strict=True)
    wanted = [node for given, node in pairs if given.floating]
    if not isinstance(loss, weft.static.StaticTensor):
        return [loss]
    found = weft.static.gradients(loss, wanted) if wanted else []
    return [loss, *[g for g in found if g is not None]]


# -- comparing


class Tolerance:
    """What the results of a program may differ by."""

    def __init__(self, program):
        self.strict = program.strict
        self.want = eagerly(program)
        counter = Noise(program, size=0)
        eagerly(program, counter)
        self.exact = counter.count == 0
        self.noisy = []
        if not self.exact:
            self.noisy = [eagerly(program, Noise(program, s)) for s in range(3)]

    def off(self, call, name):
        """How far noise moves a result, at most."""
        want = self.want[call][name]
        if not self.noisy or not is_float(want):
            return 0.0
        return max(_gap(run[call][name], want) for run in self.noisy)

    def steady(self):
        """Whether the noise stays noise (and no rule for finite numbers applies)."""
        for k, results in enumerate(self.want):
            for name, want in results.items():
                if not self.strict and not np.isfinite(want).all():
                    return False
                for run in self.noisy:
                    if name not in run[k] or not _similar(run[k][name], want):
                        return False
        return True

    def complaint(self, call, name, got):
        """What is wrong with a result, or None."""
        want = self.want[call][name]
        if got.shape != want.shape or got.dtype != want.dtype:
            return f"{got.dtype}{got.shape} instead of {want.dtype}{want.shape}"
        if self.exact or not is_float(want):
            same = np.array_equal(got, want, equal_nan=is_float(want))
            return None if same else f"{_shown(got)} instead of {_shown(want)}"
        allowed = 2 * self.off(call, name) + 8 * eps(want) * _size(want)
        if _same_ends(got, want) and _gap(got, want) <= allowed:
            return None
        return (
            f"off by {_gap(got, want):.3g}, allowed {allowed:.3g}: "
            f"{_shown(got)} instead of {_shown(want)}"
        )


def _shown(array):
    return np.array2string(array.reshape(-1)[:8], precision=9)


def _size(array):
    finite = array[np.isfinite(array)]
    return float(np.abs(finite).max()) if finite.size else 0.0


def _gap(a, b):
    with np.errstate(all="ignore"):
        both = np.isfinite(a) & np.isfinite(b)
        found = np.abs(a.astype(float) - b.astype(float))[both]
    return float(found.max()) if found.size else 0.0


def _same_ends(a, b):
    """Whether infinities and NaN are in the same places."""
    keep = ~np.isfinite(a) | ~np.isfinite(b)
    return np.array_equal(a[keep], b[keep], equal_nan=True)


def _similar(noisy, want):
    if noisy.shape != want.shape:
        return False
    if not is_float(want):
        return np.array_equal(noisy, want)
    limit = GROWTH * noise_of(want) * max(_size(want), 1.0)
    return _same_ends(noisy, want) and _gap(noisy, want) <= limit


def fit(program):
    """The tensors a program ends with; None if its results say nothing."""
    body = replace(program, kind="forward") if program.kind != "step" else program
    with settings(program):
        ends = [_ends(body, k) for k in range(max(len(program.sizes), 1))]
        with Noise(program):
            noisy = _ends(body, 0)
    for end in ends:
        arrays = [t.detach().numpy() for t in end.values()]
        if any(a.size > 100_000 for a in arrays):
            return None
        if not program.strict and not all(np.isfinite(a).all() for a in arrays):
            return None
        if _sees_signs(program) and any((a == 0).any() for a in arrays):
            return None
    for name, tensor in ends[0].items():
        want, other = tensor.detach().numpy(), noisy[name].detach().numpy()
        if not _similar(other, want) or _size(want.astype(float)) > 1e6:
            return None
    return ends[0]


def _sees_signs(program):
    """Whether a program tells zeros of either sign apart, where rules do not."""
    names = "copysign", "signbit", "atan2"
    return not program.strict and any(name in program.source for name in names)


def _ends(program, call):
    quiet = replace(program, kind="forward", outputs=())
    world = World(quiet, every=True)
    weft.manual_seed(call)
    found = world.function(*world.arguments(call))
    found |= world.state
    return {k: t for k, t in found.items() if isinstance(t, Tensor)}


def judge(program):
    """What becomes of a program, in a word and a sentence.

    agreed   all ways give the same; programs without effects in a session too
    sizes    they do, with more captures than one for all sizes: it asks about them
    refused  capturing says that it cannot be captured, and why
    unfit    eager execution refuses it, or rounding errors decide its results
    failed   anything else
    """
    try:
        allowed = Tolerance(program)
    except Exception as error:
        return "unfit", f"eagerly: {error}"
    if not allowed.steady():
        return "unfit", "it magnifies rounding errors"
    word = "agreed"
    for way in (interpreted, compiled):
        try:
            found, count = way(program)
        except Exception as error:
            return _refusal(way, error)
        if way is interpreted and count > 1:
            word = "sizes"
        elif way is compiled and count > (2 if word == "agreed" else calls(program)):
            return "failed", f"compiled: {count} times"
        complaint = _difference(way, allowed, found)
        if complaint is not None:
            return "failed", complaint
    return _judge_static(program, allowed, word)


def _judge_static(program, allowed, word):
    """The word, if a session agrees too; a graph may refuse what a size decides."""
    try:
        found = by_session(program)
    except WeftError as error:
        if program.sizes or isinstance(error, CaptureError):
            return word, ""
        return "failed", f"by_session: {type(error).__name__}: {error}"
    if found is not None:
        complaint = _difference(by_session, allowed, found)
        if complaint is not None:
            return "failed", complaint
    return word, ""


def judged(program):
    """The program, without its derivatives where those are unfit; word and reason."""
    word, reason = judge(program)
    if word == "unfit" and program.kind != "forward":
        program = replace(program, kind="forward")
        word, reason = judge(program)
    return program, word, reason


REFUSALS = (
    "shape depends on values",  # of nonzero, masked_select, ...
    "saved for its gradient was changed in place",  # control flow is one operator
)


def _refusal(way, error):
    text = f"{way.__name__}: {type(error).__name__}: {error}"
    meant = isinstance(error, CaptureError) or (
        isinstance(error, WeftError) and any(part in str(error) for part in REFUSALS)
    )
    return "refused" if meant else "failed", text


def _difference(way, allowed, found):
    for call, (results, want) in enumerate(zip(found, allowed.want, strict=True)):
        lead = f"{way.__name__}, call {call}"
        if way is compiled and set(want) != set(results):
            return f"{lead}: has {sorted(results)} instead of {sorted(want)}"
        for name, got in results.items():
            complaint = allowed.complaint(call, name, got)
            if complaint:
                return f"{lead}, {name}: {complaint}"
    return None


def accepts(program, line):
    """Whether compiling takes a line that eager execution refuses."""
    made = (line.split(" = ")[0],) if line.startswith("v") and " = " in line else ()
    outputs = (*program.outputs, *[name for name in made if name.isidentifier()])
    wrong = replace(
        program, kind="forward", lines=(*program.lines, line), outputs=outputs
    )
    try:
        eagerly(wrong)
    except Exception:
        pass
    else:
        return False  # refused for its noise
    try:
        compiled(wrong)
    except Exception:
        return False
    return True


def smaller(program, still):
    """The shortest program found that ``still`` holds for, a line at a time."""
    changed = True
    while changed:
        changed = False
        for option in _shorter(program):
            if still(option):
                program, changed = option, True
                break
    return program


def _shorter(program):
    for k in reversed(range(len(program.lines))):
        shorter = program.with_lines(program.lines[:k] + program.lines[k + 1 :])
        if shorter.outputs or not program.outputs:
            yield shorter
    for name in program.outputs if len(program.outputs) > 1 else ():
        yield replace(program, outputs=tuple(o for o in program.outputs if o != name))
    if program.kind != "forward":
        yield replace(program, kind="forward")
    if not program.strict:
        yield replace(program, strict=True)
    for k, given in enumerate(program.inputs):
        if given.layout != "plain":
            changed = replace(given, layout="plain")
            yield replace(
                program, inputs=(*program.inputs[:k], changed, *program.inputs[k + 1 :])
            )
        if (
            not any(given.name in line for line in program.lines)
            and len(program.inputs) > 1
        ):
            yield replace(program, inputs=program.inputs[:k] + program.inputs[k + 1 :])
