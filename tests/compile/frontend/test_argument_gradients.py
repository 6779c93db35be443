"""Gradients of arguments: what a compiled function leaves there, reads, or refuses."""

import re

import pytest

import weft
from weft.core.pytree import tree_flatten
from weft.errors import AutogradError, WeftError


def leaf(*values, grad=None):
    x = weft.tensor(list(values), requires_grad=True)
    x.grad = None if grad is None else weft.tensor(grad)
    return x


def pair():
    return leaf(1.0, 2.0), weft.tensor([3.0, 4.0])


def pair_with_grad():
    return leaf(1.0, 2.0, grad=[5.0, 6.0]), weft.tensor([3.0, 4.0])


def parameters():
    return [leaf(1.0, 2.0), leaf(3.0, 4.0)], weft.tensor([1.0, 2.0])


def backward(a, t):
    (a * t).sum().backward()


def returned(a, t):
    (a * t).sum().backward()
    return a.grad


def twice(a, t):
    (a * t).sum().backward()
    g = a.grad
    (a * a).sum().backward()
    return g * 1


def taken(a, t):
    (a * t).sum().backward()
    g = a.grad
    del a.grad
    return g


def read(a, t):
    return t if a.grad is None else a.grad + t


def assigned(a, t):
    a.grad = t * 2
    return a


def another(a, t):
    a.grad = t


def higher(a, t):
    (a**3 * t).sum().backward(create_graph=True)
    return a.grad.sum().detach()


def in_place(a, t):
    (a * t).sum().backward()
    with weft.no_grad():
        a.sub_(a.grad)
    a.grad.mul_(2)


def view(a, t):
    (a[0] * t).sum().backward()


def loss_of(ps, x):
    return ((ps[0] * x + ps[1]) ** 2).sum()


def step(ps, x):
    loss = loss_of(ps, x)
    loss.backward()
    with weft.no_grad():
        for p in ps:
            p -= 0.1 * p.grad
            p.grad.zero_()
    return loss.detach()


def step_from_none(ps, x):
    for p in ps:
        p.grad = None
    loss_of(ps, x).backward()
    return [p.grad * 2 for p in ps]


def zeroed_first(ps, x):
    for p in ps:
        if p.grad is not None:
            p.grad.zero_()
    loss_of(ps, x).backward()


CASES = [
    *[(fn, pair) for fn in (backward, returned, twice, taken, read, assigned, another,
                            in_place, view)],
    *[(fn, pair_with_grad) for fn in (backward, returned, read, assigned, twice)],
    *[(fn, parameters) for fn in (step, step_from_none, zeroed_first)],
]  # fmt: skip


@pytest.mark.parametrize("options", [{}, {"verify": True}], ids=["", "verified"])
@pytest.mark.parametrize(("fn", "make"), CASES)
def test_calls_leave_the_eager_gradients(fn, make, options):
    compiled, args, twins = weft.compile(fn, **options), make(), make()
    for _ in range(3):
        got, want = compiled(*args), fn(*twins)
        for a, b in zip(*(tree_flatten((r, x))[0] for r, x in
                          ((got, args), (want, twins))), strict=True):  # fmt: skip
            assert a is b is None or a.tolist() == b.tolist()
            before = getattr(a, "grad", None), getattr(b, "grad", None)
            assert before == (None, None) or before[0].tolist() == before[1].tolist()


def test_a_gradient_with_history():
    assert weft.compile(higher)(*pair()).tolist() == higher(*pair()).tolist()


def test_gradients_are_the_tensors_that_the_function_has():
    a, t = pair()
    assert weft.compile(returned)(a, t) is a.grad
    weft.compile(another)(a, t)
    assert a.grad is t


def test_other_gradients_are_other_programs():
    f = weft.compile(read)
    a, t = pair()
    assert f(a, t).tolist() == [3, 4]
    a.grad = t
    assert f(a, t).tolist() == [6, 8]
    a.grad = weft.tensor([1.0, 1.0])
    assert f(a, t).tolist() == [4, 5]
    assert "a.grad is another one" in f.compiles[1].why
    t.grad = a  # of an argument that needs no gradient, on the fast path
    g = weft.compile(lambda t: t * 1 if t.grad is None else t.grad * 1)
    assert g(t).tolist() == g(t).tolist() == [1, 2]
    t.grad = None
    assert g(t).tolist() == [3, 4]


def test_one_tensor_as_two_arguments():
    a = leaf(1.0, 2.0)
    weft.compile(lambda x, y: (x * y).sum().backward())(a, a)
    assert a.grad.tolist() == [2, 4]


def computed():
    return leaf(1.0, 2.0) * 2, weft.tensor([3.0, 4.0])


def hooked():
    a, t = pair()
    a.register_hook(lambda g: g * 10)
    return a, t


def hooked_afterwards():
    a, t = pair()
    a.register_post_accumulate_grad_hook(lambda p: None)
    return a, t


def gradient(a, t):
    return weft.autograd.grad((a * t).sum(), a)[0]


def read_after_backward(a, b):
    (a * b).sum().backward()
    return a.grad * 1


W = leaf(1.0, 2.0)


@pytest.mark.parametrize(
    ("fn", "make", "words"),
    [
        (backward, computed, "'a', which was computed before the call"),
        (backward, lambda: (pair()[0][:1], weft.ones(1)), "computed before the call"),
        (backward, hooked, "'a' has a hook"),
        (gradient, hooked, "'a' has a hook"),
        (backward, hooked_afterwards, "hook for accumulated gradients"),
        (read_after_backward, lambda: (W, W), "passed twice"),
        (lambda a, t: (a * W).sum().backward(), lambda: (W, W), "from outside as well"),
    ],
)
def test_what_no_program_can_do_is_refused(fn, make, words):
    with pytest.raises(AutogradError, match=re.escape(words)):
        weft.compile(fn)(*make())
    args, twins = make(), make()
    weft.compile(fn, fullgraph=False)(*args)
    fn(*twins)
    if args[0].is_leaf and args[0] is not W:
        assert (args[0].grad is None) == (twins[0].grad is None)
    W.grad = None


def test_hooks_outside_run():
    a, t = hooked()
    weft.compile(lambda a, t: (a * t).sum())(a, t).backward()
    assert a.grad.tolist() == [30, 40]


def test_a_later_call_with_a_computed_argument_is_refused():
    f = weft.compile(backward)
    a, t = pair()
    f(a, t)
    with pytest.raises(AutogradError, match="computed before the call"):
        f(a * 2, t)
    assert a.grad.tolist() == [3, 4]


def test_captured_programs_add_gradients_too():
    a, t = pair()
    program = weft.graph.capture(backward, a, t)
    program(a, t)
    program(a, t)
    assert a.grad.tolist() == [6, 8]
    reading = weft.graph.capture(read, *pair())
    with pytest.raises(WeftError, match="another gradient of 'a'"):
        reading(a, t)
