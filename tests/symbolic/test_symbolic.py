"""Formulas: their rules are sound, and derivatives agree with the tape's."""

import math
from fractions import Fraction
from itertools import pairwise

import numpy as np
import pytest

import weft
from weft import symbolic
from weft.errors import ArgumentError, DTypeError
from weft.symbolic.expression import WILD, distinct, number
from weft.symbolic.rules import EXPANDING, RULES, apply, fill


def same(a, b):
    """Equal as real numbers; where the first is none, there is nothing to compare."""
    return not math.isfinite(a) or a == pytest.approx(b, rel=1e-9, abs=1e-12)


# -- the rules

NUMBERS = [-2, -1, 0, 1, 2, 3, Fraction(1, 2), Fraction(-3, 2), 0.3]


def instances(rule, rng):
    """The rule's left side with numbers for its number letters, variables else."""
    letters = sorted({e.value for e in distinct(rule.before) if e.kind == WILD})
    for _ in range(60):
        found = {
            letter: number(NUMBERS[rng.integers(len(NUMBERS))])
            if letter in "abnm"
            else symbolic.expression(symbolic.variables(letter)[0])
            for letter in letters
        }
        if rule.where(found):
            yield found


@pytest.mark.parametrize("rule", [*RULES, *EXPANDING], ids=lambda rule: rule.algebra)
def test_a_rule_keeps_the_value_wherever_there_is_one(rule, rng):
    compared = 0
    for found in instances(rule, rng):
        after = rule.after(found) if callable_rule(rule) else fill(rule.after, found)
        if after is None:
            continue
        before = fill(rule.before, found)
        for point in (-1.3, -0.4, 0.0, 0.7, 2.1):
            names = set(before.variables) | set(after.variables)
            at = dict(zip(sorted(names), np.array([point, 1.7, -0.9]), strict=False))
            at = {k: float(v) for k, v in at.items()}
            compared += math.isfinite(before(**pick(before, at)))
            assert same(before(**pick(before, at)), after(**pick(after, at)))
    assert compared


def callable_rule(rule):
    return not isinstance(rule.after, symbolic.Expression)


def pick(e, at):
    return {k: at[k] for k in e.variables}


def test_an_unsound_rule_would_be_noticed():
    x = symbolic.rules.x
    root = symbolic.rules.Rule("sqrt(x^2) -> x", (x**2) ** Fraction(1, 2), x)
    found = {"x": symbolic.expression(symbolic.variables("x")[0])}
    before, after = fill(root.before, found), fill(root.after, found)
    assert not same(before(x=-2.0), after(x=-2.0))


SIMPLIFIED = [
    (lambda x: x * 1 + 0, "x"),
    (lambda x: x * 0 + 3, "3"),
    (lambda x: x + x + 3 * x, "5*x"),
    (lambda x: x - x, "0"),
    (lambda x: x / x, "1"),
    (lambda x: 2 * (x + 1) - 2, "2*x"),
    (lambda x: x * x * x / x**2, "x"),
    (lambda x: (x**2) ** 3, "x^6"),
    (lambda x: (2 * x) ** 3, "8*x^3"),
    (lambda x: weft.exp(x) * weft.exp(2 * x), "exp(3*x)"),
    (lambda x: weft.exp(weft.log(x)), "x"),
    (lambda x: weft.log(weft.exp(x)), "x"),
    (lambda x: weft.sqrt(x * x), "abs(x)"),
    (lambda x: 3 * weft.sin(x) ** 2 + 3 * weft.cos(x) ** 2, "3"),
    (lambda x: weft.sin(-x) + weft.sin(x), "0"),
    (lambda x: weft.sin(x) / weft.cos(x), "tan(x)"),
    (lambda x: (x + 2) / 4, "x/4 + 1/2"),
    (lambda x: weft.sqrt(x) * weft.sqrt(x), "x"),
    (lambda x: 4**0.5 * x, "2*x"),
    (lambda x: x**0.5 / x, "1/sqrt(x)"),
]


@pytest.mark.parametrize(("fn", "text"), SIMPLIFIED, ids=[t for _, t in SIMPLIFIED])
def test_simplified(fn, text):
    assert str(symbolic.expression(fn).simplify()) == text


def test_simplifying_again_changes_nothing():
    for fn, _ in SIMPLIFIED:
        once = symbolic.expression(fn).simplify()
        assert once.simplify() is once


def test_rules_that_would_change_values_are_not_there():
    assert str(symbolic.simplify(symbolic.expression(lambda x: weft.log(x * x)))) == (
        "ln(x^2)"
    )
    half = symbolic.expression(lambda x: (x**4) ** 0.5).simplify()
    assert half(x=-2.0) == 4


def test_a_rule_leaves_other_formulas_alone():
    x = symbolic.expression(symbolic.variables("x")[0])
    assert all(apply(rule, x) is None for rule in RULES)


# -- texts

TEXTS = [
    (lambda x, y: (x + y) * x, "x*(x + y)"),
    (lambda x, y: x - (y - x), "x - (y - x)"),
    (lambda x, y: -(x + y), "-(x + y)"),
    (lambda x, y: x / (y * x), "x/(x*y)"),
    (lambda x, y: (x / y) ** 2, "(x/y)^2"),
    (lambda x, y: x ** (-y), "x^(-y)"),
    (lambda x, y: (-x) ** 2, "(-x)^2"),
    (lambda x, y: (x**y) ** 2, "(x^y)^2"),
    (lambda x, y: 1 / (1 + x) + y * 0.5, "1/(x + 1) + y/2"),
    (lambda x, y: weft.atan2(x, y), "atan2(x, y)"),
    (lambda x, y: weft.where(x > y, x, y), "where((x > y), x, y)"),
]


@pytest.mark.parametrize(("fn", "text"), TEXTS, ids=[t for _, t in TEXTS])
def test_texts_mean_what_they_say(fn, text):
    e = symbolic.expression(fn)
    assert str(e) == text
    if "where" not in text and "atan" not in text:
        x, y = 1.7, 0.6
        assert eval(text.replace("^", "**")) == pytest.approx(e(x=x, y=y))


def test_latex():
    e = symbolic.expression(lambda x1, x2: weft.sqrt(x1) / (x2 + 1) - x1**2 / 3)
    assert e.latex() == r"\frac{\sqrt{x_{1}}}{x_{2} + 1} - \frac{x_{1}^{2}}{3}"
    assert symbolic.expression(lambda x: weft.log(x) * x).latex() == (
        r"x \ln\left(x\right)"
    )


# -- derivatives

FUNCTIONS = {
    "x²y + sin x": lambda x, y: x * x * y + weft.sin(x),
    "ln(x) + xy - sin(y)": lambda x, y: weft.log(x) + x * y - weft.sin(y),
    "ln(y² + yx) - sin(x)": lambda x, y: weft.log(y**2 + y * x) - weft.sin(x),
    "gauss": lambda x, y: weft.exp(-(x**2 + y**2) / 2) / math.sqrt(2 * math.pi),
    "logistic": lambda x, y: 1 / (1 + weft.exp(-x * y)),
    "sigmoid, tanh": lambda x, y: weft.sigmoid(x) * weft.tanh(y + x),
    "powers": lambda x, y: x**y + y**2.5 + 3**x,
    "quotient": lambda x, y: (x - y) / (x + y) + weft.rsqrt(x),
    "circle": lambda x, y: weft.atan2(y, x) + weft.hypot(x, y) + weft.tan(x / 3),
    "hyperbolic": lambda x, y: weft.sinh(x) - weft.cosh(y) * weft.asinh(x),
    "softplus": lambda x, y: weft.log1p(weft.exp(x)) * weft.expm1(y),
    "where": lambda x, y: weft.where(x > y, x * y, weft.exp(x)) + weft.relu(x - y),
    "special": lambda x, y: weft.special.erf(x) * weft.special.gammaln(y),
    "shared": lambda x, y: (x * y + 1) * weft.exp(x * y + 1) / (x * y + 1),
}


def by_tape(fn, names, at):
    leaves = [weft.tensor(at[n], dtype=weft.float64, requires_grad=True) for n in names]
    fn(*leaves).backward()
    return [leaf.grad.item() for leaf in leaves]


@pytest.mark.parametrize("name", FUNCTIONS)
def test_derivatives_agree_with_the_tape(name, rng):
    fn = FUNCTIONS[name]
    slopes = symbolic.gradient(fn, ["x", "y"])
    raw = symbolic.gradient(fn, ["x", "y"], simplify=False)
    for _ in range(5):
        at = {"x": rng.uniform(0.3, 2.0), "y": rng.uniform(0.3, 2.0)}
        want = by_tape(fn, ["x", "y"], at)
        for k in range(2):
            assert slopes[k](**pick(slopes[k], at)) == pytest.approx(want[k], rel=1e-10)
            assert raw[k](**pick(raw[k], at)) == pytest.approx(want[k], rel=1e-10)
            assert slopes[k].size().tree <= raw[k].size().tree


@pytest.mark.parametrize(
    ("fn", "text"),
    [
        (lambda x: x**3, "3*x^2"),
        (lambda x: 5 * x + 2, "5"),
        (lambda x: weft.log(x), "1/x"),
        (lambda x: weft.exp(-x * x), "-2*x*exp(-x^2)"),
        (lambda x: weft.tanh(x), "1 - tanh(x)^2"),
        (lambda x: weft.sigmoid(x), "(1 - sigmoid(x))*sigmoid(x)"),
        (lambda x: weft.sqrt(1 + x * x), "x/sqrt(x^2 + 1)"),
        (lambda x: weft.sin(x) ** 2 + weft.cos(x) ** 2, "0"),
        (lambda x: weft.atan(x), "1/(x^2 + 1)"),
        (lambda x: 1 / x, "-1/x^2"),
        (lambda x: weft.abs(x), "sign(x)"),
    ],
    ids=lambda v: v if isinstance(v, str) else "",
)
def test_closed_forms(fn, text):
    assert str(symbolic.diff(fn, "x")) == text


def test_the_documents_examples():
    x1, x2 = symbolic.variables("x1 x2")
    f = weft.log(x1) + x1 * x2 - weft.sin(x2)
    assert [str(d) for d in symbolic.gradient(f, [x1, x2])] == [
        "x2 + 1/x1", "x1 - cos(x2)",
    ]  # fmt: skip
    g = weft.log(x2**2 + x2 * x1) - weft.sin(x1)
    d1, d2 = symbolic.gradient(g, [x1, x2])
    assert str(d1) == "x2/(x2^2 + x1*x2) - cos(x1)"
    assert d1(x1=2.0, x2=5.0) == pytest.approx(1 / 7 - math.cos(2), rel=1e-15)
    assert d2(x1=2.0, x2=5.0) == pytest.approx(12 / 35, rel=1e-15)


def test_higher_orders():
    (x,) = symbolic.variables("x")
    e = weft.sin(x) * weft.exp(x)
    fourth = symbolic.diff(e, x, x, x, x)
    assert str(fourth) == "-4*exp(x)*sin(x)"
    assert str(symbolic.diff(x**5, *[x] * 5)) == "120"
    assert str(symbolic.diff(x**5, *[x] * 6)) == "0"


def test_a_variable_that_is_not_there():
    x, y = symbolic.variables("x y")
    assert str(symbolic.diff(x * 2, y)) == "0"
    assert str(symbolic.diff(lambda x: x * 2, "z")) == "0"
    assert str(symbolic.expression(3.5)) == "7/2"


def test_formulas_work_on_tensors(rng):
    d = symbolic.diff(lambda x: weft.exp(x) / x, "x")
    at = weft.tensor(rng.uniform(1, 2, (3, 2)))
    want = (at.exp() / at - at.exp() / at**2).numpy()
    np.testing.assert_allclose(d(x=at).numpy(), want, rtol=1e-12)


# -- the size of formulas


def logistic(times):
    def fn(x):
        for _ in range(times):
            x = 4 * x * (1 - x)
        return x

    return fn


def test_expression_swell():
    """Written out, derivatives explode; with sharing, they grow in step."""
    sizes = [
        symbolic.diff(logistic(n), "x", simplify=False).size() for n in range(1, 9)
    ]
    assert sizes[-1].tree > 1000 * sizes[-1].shared
    assert sizes[-1].tree > 3.5 * sizes[-2].tree
    assert all(b.shared - a.shared < 20 for a, b in pairwise(sizes))
    d = symbolic.diff(logistic(8), "x")
    assert d(x=0.3) == pytest.approx(by_tape(logistic(8), ["x"], {"x": 0.3})[0])


def test_size_counts_equal_parts_once():
    e = symbolic.expression(lambda x: (x + 1) * (x + 1).exp())
    assert e.size() == (8, 5)  # x, 1, x + 1, exp, product
    assert symbolic.expression(lambda x: x).size() == (1, 1)


def test_a_long_chain():
    def chain(x):
        for _ in range(400):
            x = weft.sin(x)
        return x

    d = symbolic.diff(chain, "x")
    assert d.size().shared < 1300
    assert d(x=0.5) == pytest.approx(by_tape(chain, ["x"], {"x": 0.5})[0])


# -- traces


def test_the_first_worked_example():
    """z = x*y + sin(x), by hand at x = 2, y = 3."""
    t = symbolic.traces(lambda x, y: x * y + weft.sin(x), x=2.0, y=3.0)
    assert [(r.name, r.formula) for r in t.forward] == [
        ("x", "2"), ("y", "3"), ("v3", "x*y"), ("v4", "sin(x)"), ("out", "v3 + v4"),
    ]  # fmt: skip
    s, c = math.sin(2), math.cos(2)
    assert [r.value for r in t.forward] == pytest.approx([2, 3, 6, s, 6 + s])
    assert [r.formula for r in t.tangents["x"]] == [
        "1", "0", "dx*y + dy*x", "dx*cos(x)", "dv3 + dv4",
    ]  # fmt: skip
    assert [r.value for r in t.tangents["x"]] == pytest.approx([1, 0, 3, c, 3 + c])
    assert [r.value for r in t.tangents["y"]] == pytest.approx([0, 1, 2, 0, 2])
    assert [(r.name, r.formula) for r in t.adjoint] == [
        ("gout", "1"), ("gv4", "gout"), ("gv3", "gout"), ("gy", "gv3*x"),
        ("gx", "gv3*y + gv4*cos(x)"),
    ]  # fmt: skip
    assert [r.value for r in t.adjoint] == pytest.approx([1, 1, 1, 2, 3 + c])


def test_the_second_worked_example():
    """y = ln(x2² + x2*x1) - sin(x1), by hand at x1 = 2, x2 = 5."""
    t = symbolic.traces(
        lambda x1, x2: weft.log(x2**2 + x2 * x1) - weft.sin(x1), x1=2.0, x2=5.0
    )
    s, c = math.sin(2), math.cos(2)
    assert [(r.name, r.formula) for r in t.forward[2:]] == [
        ("v3", "x2^2"), ("v4", "x1*x2"), ("v5", "v3 + v4"), ("v6", "ln(v5)"),
        ("v7", "sin(x1)"), ("out", "v6 - v7"),
    ]  # fmt: skip
    assert [r.value for r in t.forward] == pytest.approx(
        [2, 5, 25, 10, 35, math.log(35), s, math.log(35) - s]
    )
    assert [r.value for r in t.tangents["x1"]] == pytest.approx(
        [1, 0, 0, 5, 5, 1 / 7, c, 1 / 7 - c]
    )
    assert [r.value for r in t.tangents["x2"]] == pytest.approx(
        [0, 1, 10, 2, 12, 12 / 35, 0, 12 / 35]
    )
    assert [(r.name, r.formula) for r in t.adjoint] == [
        ("gout", "1"), ("gv7", "-gout"), ("gv6", "gout"), ("gv5", "gv6/v5"),
        ("gv4", "gv5"), ("gv3", "gv5"), ("gx2", "2*gv3*x2 + gv4*x1"),
        ("gx1", "gv4*x2 + gv7*cos(x1)"),
    ]  # fmt: skip
    assert [r.value for r in t.adjoint] == pytest.approx(
        [1, -1, 1, 1 / 35, 1 / 35, 1 / 35, 12 / 35, 1 / 7 - c]
    )
    text = str(t)
    assert (
        text.index("forward") < text.index("tangent, dx1 = 1") < text.index("adjoint")
    )


def test_the_formulas_of_a_trace_give_its_values():
    t = symbolic.traces(lambda x, y: weft.exp(x * y) / (x + y * y), x=0.7, y=1.2)
    for rows in (t.forward, *t.tangents.values(), t.adjoint):
        scope = {r.name: r.value for r in (*t.forward, *rows)}
        scope |= {"exp": math.exp, "ln": math.log}
        for row in rows:
            assert eval(row.formula.replace("^", "**"), scope) == pytest.approx(
                row.value
            )


# -- mistakes


def test_mistakes_are_told():
    x, y = symbolic.variables("x y")
    with pytest.raises(ArgumentError, match=r"x\*y: no value for y"):
        symbolic.expression(x * y)(x=1.0)
    with pytest.raises(DTypeError, match="x: expected a number or a tensor, got str"):
        symbolic.expression(x)(x="1")
    with pytest.raises(ArgumentError, match="single numbers"):
        symbolic.expression(weft.stack([x, y]).sum())
    with pytest.raises(DTypeError, match="expected a variable or its name"):
        symbolic.diff(x * y, x * y)
    with pytest.raises(ArgumentError, match="at least one variable"):
        symbolic.diff(x * y)
    with pytest.raises(ArgumentError, match="expected different names"):
        symbolic.variables("x x")
    with pytest.raises(DTypeError, match="expression: expected a tensor"):
        symbolic.expression("x")
    with pytest.raises(ArgumentError, match="expected values for x, y, got x"):
        symbolic.traces(lambda x, y: x * y, x=1.0)
    with pytest.raises(weft.graph.GraphError, match="belongs to"):
        x * symbolic.variables("z")[0]
    with pytest.raises(weft.graph.CaptureError, match="known only when"):
        bool(x > y)


# -- any formula

UNARY = [weft.sin, weft.cos, weft.exp, weft.log, weft.tanh, weft.sqrt, weft.abs,
         weft.sigmoid, lambda v: -v, lambda v: v**2, lambda v: 1 / v]  # fmt: skip
BINARY = [weft.add, weft.sub, weft.mul, weft.div, lambda a, b: a * b * a]
LEAVES = [0, 1, -1, 2, 0.5, 3]


def grown(rng, names, depth):
    """A random formula over the variables."""
    if depth == 0 or rng.uniform() < 0.15:
        if rng.uniform() < 0.6:
            return names[rng.integers(len(names))]
        return names[0] * 0 + LEAVES[rng.integers(len(LEAVES))]
    if rng.uniform() < 0.45:
        return UNARY[rng.integers(len(UNARY))](grown(rng, names, depth - 1))
    parts = [grown(rng, names, depth - 1) for _ in range(2)]
    return BINARY[rng.integers(len(BINARY))](*parts)


def compared(seed):
    """How many values of a formula and its derivative were found unchanged."""
    names = symbolic.variables("x y")
    e = symbolic.expression(grown(np.random.default_rng(seed), names, 5))
    short = e.simplify()
    assert short.simplify() is short
    raw, slope = (symbolic.diff(e, "x", simplify=s) for s in (False, True))
    rng, points = np.random.default_rng(seed + 1000), 0
    for _ in range(8):
        at = {"x": rng.uniform(-2, 2), "y": rng.uniform(-2, 2)}
        value = e(**pick(e, at))
        for long, brief in ((e, short), (raw, slope)):
            want = long(**pick(long, at))
            if math.isfinite(value) and math.isfinite(want) and abs(want) < 1e8:
                points += 1
                found = brief(**pick(brief, at))
                assert found == pytest.approx(want, rel=1e-6, abs=1e-7)
    return points


@pytest.mark.parametrize("start", range(0, 60, 10))
def test_random_formulas_keep_their_values(start):
    assert sum(compared(seed) for seed in range(start, start + 10)) > 40
