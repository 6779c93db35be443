"""Programs with Python's own branches and loops over tensors' values.

Each comes with arguments that take all of its ways. ``REFUSED`` are those that no graph
can do, with a part of the message.
"""

import functools

import numpy as np

import weft
from weft import nn

T = weft.tensor
UP, DOWN = T([1.0, 2.0]), T([-1.0, -2.0])
PROGRAMS = []
REFUSED = []


def program(*calls, grads=True):
    def enter(fn):
        PROGRAMS.append((fn, calls, grads))
        return fn

    return enter


def refused(text, *args):
    def enter(fn):
        REFUSED.append((fn, text, args or (UP,)))
        return fn

    return enter


# -- if


@program((UP,), (DOWN,))
def sets_a_variable(x):
    if x.sum() > 0:
        y = x * 2
    else:
        y = -x
    return y + 1


@program((UP,), (DOWN,))
def has_no_else(x):
    y = x.exp()
    if x.sum() > 0:
        y = y * 3
    return y - x


@program((UP,), (DOWN,), (UP / 4,))
def returns_on_every_way(x):
    if x.sum() > 0:
        if x.max() > 1.5:
            return x * 3
        else:
            return x * 2
    else:
        return x.exp()


@program((UP,), (DOWN,), (T([-9.0, -9.0]),))
def returns_early(x):
    if x.sum() > 0:
        return x * 2
    z = x - 1
    if z.min() < -5:
        return z * z
    return z.sin()


@program((UP,), (T([1.0, 4.0]),), (DOWN,), (T([-1.0, -4.0]),))
def nests(x):
    if x.sum() > 0:
        if x.max() > 3:
            y = x * 10
        else:
            y = x * 5
        y = y + 1
    elif x.min() < -3:
        y = x * x
    else:
        y = -x
    return y


@program((UP,), (DOWN,), grads=False)
def sets_several(x):
    name = ""
    a, (b, c) = x, (x * 1, 3)
    if x.sum() > 0:
        a, (b, c) = b + 1, (a * 2, 3)
        name = "up"  # which nobody reads
    else:
        a, b = b * 2, a * 4
        name = "down"  # noqa: F841
    return a, b, c


@program((UP,), (DOWN,))
def uses_temporaries(x):
    if x.sum() > 0:
        t = x * 2
        y = t * t
    else:
        u = x - 1
        y = u.exp()
    return y


@program((UP,), (DOWN,))
def changes_in_place(x):
    y = x.clone()
    alias = y
    if x.sum() > 0:
        y += 1
    else:
        y *= x
    return alias * 2 + y


@program((UP,), (DOWN,))
def changes_one_side_in_place(x):
    y = x * 1
    if x.sum() > 0:
        y[:1] = 5.0
        y *= 2
    return y


@program((UP,), (DOWN,))
def works_on_its_own_tensors(x):
    if x.sum() > 0:
        y = x.clone()
        y[:1] = 7.0
        parts = [y, x]
        parts.append(y * 2)
        y = sum(parts)
    else:
        y = x * 0.5
    return y


@program((UP,), (DOWN,))
def known_values_take_the_written_way(x):
    seen = []
    for k in range(3):
        if k == 1:
            continue
        if k > 5:
            break
        seen.append(k)
    if x.sum() > 0:
        y = x * len(seen)
    else:
        y = x
    return y * sum(seen)


@program((UP,), (DOWN,))
def names_in_comprehensions_are_their_own(x):
    y = 5
    if x.sum() > 0:
        z = sum([x * y for y in (1.0, 2.0)])
    else:
        z = x
    return z * y


@program((UP,), (DOWN,))
def a_closure_reads_what_is_set_later(x):
    k = x * 0

    def read():
        return k + 1

    if (s := x.sum()) > 0:
        k = x * s
    else:
        k = x * 3
    return read()


@program((UP,), (DOWN,))
def changes_a_view_in_place(x):
    y = x.clone()
    view = y[0]
    if x.sum() > 0:
        view += 10
    return y


@program((UP,), (DOWN,))
def sets_nothing(x):
    if x.sum() > 0:
        x.exp()
    else:
        pass
    return x * 2


@program((UP,), (DOWN,))
def in_a_try(x):
    try:
        if x.sum() > 0:
            y = x * 2
        else:
            y = x
    except ValueError:
        y = x * 100
    return y


@program((UP,), (DOWN,), grads=False)
def in_a_comprehension(x):
    return [v * 2 if v > 0 else v for v in x]


@program((UP,), (DOWN,))
def in_a_python_loop(x):
    for k in range(3):
        if x.sum() > k:
            x = x / 2
        else:
            x = x + 1
    return x


def helper(x, bound=0.0, *, scale=2.0):
    if x.sum() > bound:
        return x * scale
    return x / scale


@program((UP,), (DOWN,))
def calls_a_function(x):
    return helper(x) + helper(-x, 0.5, scale=4.0) + helper(bound=-10.0, x=x)


def twice(fn):
    @functools.wraps(fn)
    def wrapper(*args):
        return fn(fn(*args))

    return wrapper


@twice
def decorated(x):
    if x.sum() > 0:
        return x * 0.5
    return x + 2


@program((UP,), (DOWN,))
def calls_a_decorated_function(x):
    return decorated(x)


@program((UP,), (DOWN,))
def makes_a_function(x):
    bound = x.mean()

    def clip(v):
        if v.sum() > bound:
            return v * 2
        return v - bound

    return clip(x) + clip(x * 3)


class Gated(nn.Module):
    __private = 2.0

    def __init__(self):
        super().__init__()
        self.w = nn.Parameter(T([0.5, -1.5]))

    def forward(self, x):
        h = x * self.w
        if h.sum() > 0:
            h = h.tanh() * self.__private
        return h

    def extra(self, x):
        return super().extra_repr() or x


GATED = Gated()


@program((UP,), (DOWN,))
def calls_a_module(x):
    return GATED(x)


@program((UP,), (DOWN,))
def draws_random_numbers(x):
    if x.sum() > 0:
        y = x + weft.rand(2)
    else:
        y = x * 2
    return y + weft.rand(2)


@program((UP,), (DOWN,))
def with_blocks(x):
    with weft.no_grad():
        scale = x.abs().max()
        if scale > 1.5:
            scale = scale * 2
    if x.sum() > 0:
        with weft.no_grad():
            shift = x * 3
        y = x + shift
    else:
        y = x * scale
    return y


# -- conditional expressions and conditions


@program((UP,), (DOWN,))
def conditional_expression(x):
    return (x * 3 if x.sum() > 0 else x / 2) + (1 if x.ndim else 0)


@program((UP,), (DOWN,), (T([3.0, 0.0]),), (T([-3.0, 1.0]),))
def ands_and_ors(x):
    if x[0] > 0 and x[1] > 0:
        y = x * 2
    elif not x[0] > 0 and (x[1] < 0 or x[0] < -2):
        y = x * 3
    else:
        y = x * 5
    if x.ndim == 1 and x[0] > 0:
        y = y + 1
    if x.ndim == 2 and x[0] > 0:
        y = y + 100
    if x.ndim == 1 or x[0] > 0:
        y = y + 10
    return y


@program((T(0.5),), (T(-1.0),), (T(3.0),))
def chained_comparison(x):
    return x * 2 if 0 < x < 1 <= 5 else x + 1


@program((T([2.0]),), (T([0.0]),), (T([-1.0]),))
def truth_of_a_number(x):
    if x:
        return x * 2
    return x + 1


# -- while


@program((T(2.0),), (T(9.0),), (T(1.0),))
def newton(a):
    x, n = a, T(0)
    while (x * x - a).abs() > 1e-5 and n < 50:
        x = (x + a / x) / 2
        n = n + 1
    return x, n


@program((T(0.3),), (T(3.0),), (T(30.0),))
def while_with_an_if(x):
    total = x * 0
    while x > 1:
        half = x / 2
        if half > 2:
            x = half
        else:
            x = half - 0.1
        total = total + x * half
    return total + x


@program((T(0.3),), (T(3.0),), (T(30.0),))
def while_in_place(x):
    y = x.clone()
    same = y
    while y > 1:
        y /= 3
    return same + y


@program((T(0.5),), (T(5.0),))
def while_in_while(x):
    total = T(0.0)
    while x > 1:
        y = x
        while y > 0.5:
            y = y / 2
            total = total + y
        x = x - 1
    return total * x


@program((UP,), (UP * 20,))
def while_carries_a_structure(x):
    state = {"h": x, "steps": (T(0), "name")}
    while state["h"].sum() > 1:
        state = {"h": state["h"] / 2, "steps": (state["steps"][0] + 1, "name")}
    return state["h"], state["steps"][0]


@program((T(8.0),), (T(0.5),), grads=False)
def while_begins_in_python(x):
    k = 0
    while k < 3:
        k += 1
        x = x / 2
    while k < 5 or x > 0.25:
        if k < 5:
            k += 1
        else:
            x = x / 2
    return x


@program((T(0.3),), (T(10.0),))
def while_that_draws(x):
    while x > 1:
        x = x / 2 - weft.rand(()) * 0.1
    return x + weft.rand(())


@program((T(5.0),), (T(0.0),))
def returns_after_a_loop(x):
    while x > 1:
        x = x / 2
    if x > 0.6:
        return x * 2
    return x - 1


# -- refusals


@refused("'n' is 0 on the first step and 1 on the next; make it a tensor", T(5.0))
def counts_in_python(x):
    n = 0
    while x > 1:
        x = x / 2
        n += 1
    return x, n


@refused("y has a value on one way only")
def undefined_on_one_side(x):
    if x.sum() > 0:
        y = x * 2
    return y


@refused(r"y is a tensor float32\[2\] on one way and a tensor float32\[1\]")
def other_shapes(x):
    if x.sum() > 0:
        y = x * 2
    else:
        y = x[:1]
    return y


@refused(r"the result is a tensor float32\[2\] on one way and None on the other")
def returns_nothing_on_one_side(x):
    if x.sum() > 0:
        return x
    return None


@refused("y is 1.0 on one way and 2.0 on the other; make it a tensor")
def python_numbers(x):
    if x.sum() > 0:
        y = 1.0
    else:
        y = 2.0
    return x * y


@refused("changes what 'seen' leads to")
def appends(x):
    seen = []
    if x.sum() > 0:
        seen.append(x * 2)
    return seen


@refused("changes what 'table' leads to")
def fills_a_table(x):
    table = {"a": x}
    if x.sum() > 0:
        table["a"] = x * 2
    return table["a"]


class Box:
    value = None


@refused("changes what 'box' leads to")
def sets_an_attribute(x):
    box = Box()
    box.value = x
    if x.sum() > 0:
        box.value = x * 2
    return box.value


def remember(log, x):
    log.append(1)
    return x * 2


@refused("changes what 'log' leads to")
def effects_of_a_callee(x):
    log = []
    y = x
    if x.sum() > 0:
        y = remember(log, x)
    return y * len(log)


@refused("changes what 'array' leads to")
def changes_an_array(x):
    array = np.zeros(2)
    y = x
    if x.sum() > 0:
        array[0] = 1
        y = x * 2
    return y + float(array[0])


class Slotted:
    __slots__ = ("value",)


@refused("changes what 'box' leads to")
def sets_a_slot(x):
    box = Slotted()
    box.value = 1
    if x.sum() > 0:
        box.value = 2
        x = x * 2
    return x * box.value


@refused("changes what 'Box' leads to")
def sets_a_class_attribute(x):
    if x.sum() > 0:
        Box.value = 2
        x = x * 2
    return x


@refused("changes what '(n|bump)' leads to")
def changes_a_variable_around(x):
    n = 0

    def bump():
        nonlocal n
        n += 1
        return x * 2

    if x.sum() > 0:
        x = bump()
    return x * n


@refused("changes what 'a variable' leads to")
def changes_and_sets_a_container(x):
    state = [x, x]
    if x.sum() > 0:
        state[0] = x * 2
        state = state
    return state[0]


@refused("takes the next value of an iterator")
def takes_the_next_value(x):
    numbers = iter([1.0, 2.0])
    if x.sum() > 0:
        y = x * next(numbers)
    else:
        y = x
    return y * next(numbers)


@refused("changes what 'numbers' leads to")
def runs_over_an_iterator(x):
    numbers = iter([1.0, 2.0])
    y = x
    if x.sum() > 0:
        for number in numbers:
            y = y * number
    return y + sum(numbers)


@refused("raises RecursionError|cannot be part of a graph|nested too deeply", T(5.0))
def recurses(x):
    if x > 1:
        return x * recurses(x - 1)
    return x


@refused("the result is a tensor float32.* on one way and None on the other")
def returns_implicitly(x):
    if x.sum() > 0:
        return x


@refused("raises an error")
def raises(x):
    if x.sum() > 0:
        raise ValueError("positive")
    return x


def check(x):
    raise ValueError("bad")


@refused("raises ValueError: bad")
def raises_inside(x):
    if x.sum() > 0:
        check(x)
    return x


@refused("prints, logs, warns or opens a file")
def prints(x):
    if x.sum() > 0:
        print("positive")
    return x


@refused("has a `try`")
def handles(x):
    if x.sum() > 0:
        try:
            y = x * 2
        except ValueError:
            y = x
    else:
        y = x
    return y


@program((UP,), (UP * 4,), (DOWN,))
def breaks(x):
    for _ in range(3):
        if x.sum() > 10:
            break
        x = x * 2
    return x


@program((UP,), (DOWN,), (T([30.0, 40.0]),))
def breaks_at_the_end(x):
    while True:
        x = x * 0.5
        if x.abs().max() < 1:
            break
    return x * 3


@program((UP,), (DOWN,), (T([1.0, 0.25]),))
def breaks_and_goes_on(x):
    total, steps = x.sum() * 0, x.sum() * 0
    for _ in range(8):
        steps = steps + 1
        if total > x[0] * 4:
            break
        elif total > x[1]:
            total = total + 0.5
            continue
        total = total + x[0].abs()
        total = total * 1.5
    return total, steps


@program((UP,), (DOWN,))
def breaks_out_of_the_inner_loop(x):
    total = x.sum() * 0
    for _ in range(3):
        for _ in range(4):
            if total > x[0]:
                break
            total = total + 1
        total = total * 0.5
    return total


@program((UP,), (DOWN,), grads=False)
def breaks_by_what_python_knows(x):
    found = []
    for k in range(5):
        if k == 1:
            continue
        if k == 4:
            break
        found.append(x * k)
    return sum(found), k


@refused("has a `break` of a loop around it")
def breaks_a_loop_whose_number_counts(x):
    for k in range(3):
        x = x * k
        if x.sum() > 10:
            break
    return x


@refused("has a `break` of a loop around it")
def breaks_over_a_list(x):
    for factor in [1.0, 2.0]:
        x = x * factor
        if x.sum() > 10:
            break
    return x


@refused("'k' has a value on the first step only")
def reads_a_counter_after_a_break(x):
    for k in range(3):  # noqa: B007
        x = x * 2
        if x.sum() > 10:
            break
    return x * k


@refused("returns from within a loop")
def returns_in_a_loop(x):
    for _ in range(3):
        if x.sum() > 10:
            return x
        x = x * 2
    return x


@refused("the `while` has an `else`", T(5.0))
def while_else(x):
    while x > 1:
        x = x / 2
    else:
        x = x + 1
    return x


COUNT = 0


@refused("sets 'COUNT', which is no variable of this function")
def sets_a_global(x):
    global COUNT
    if x.sum() > 0:
        COUNT = 1
    return x


@refused("a tensor from outside cannot be changed in place")
def changes_a_tensor_from_outside(x):
    y = x.clone()
    z = x * 2
    if x.sum() > 0:
        y.add_(1)
        z = x
    return y + z


@refused("'y' is changed in place .* and its memory has another name there")
def changes_an_alias(x):
    y = x.clone()
    z = y
    if x.sum() > 0:
        y += 1
        w = z * 2
    else:
        w = z
    return w


@refused("cannot change in place")
def changes_what_may_be_shared(x):
    y = x.clone()
    z = x * 2
    if x.sum() > 0:
        z = y
    z += 1
    return y


@refused("cannot change in place", T(5.0))
def changes_what_a_loop_may_share(x):
    y = x.clone()
    z = y
    while z > 1:
        z = z / 2
    z += 1
    return y


@refused("known only when the graph runs")
def looks_at_locals(x):
    if x.sum() > 0:
        y = x
    else:
        y = x * 2
    return locals()["y"]


@refused("is known only when the graph runs")
def asserts(x):
    assert x.sum() > 0
    return x


@refused("is known only when the graph runs")
def largest(x):
    return max(x[0], x[1])


@refused("'x' is a tensor int64.* on the first step and a tensor float32", T(8))
def changes_its_dtype(x):
    while x > 1:
        x = x / 2
    return x


@refused("'y' has no value if the loop takes no step", T(8.0))
def temporary_after_a_loop(x):
    while x > 1:
        y = x / 2
        x = y
    return y


@refused("its memory has another name|is changed in place on one way and set")
def changed_on_one_way_and_set_on_the_other(x):
    y = x.clone()
    if x.sum() > 0:
        y += 1
    else:
        y = x * 2
    return y
