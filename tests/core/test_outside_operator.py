"""An operator of somebody else's module: one file, and everything works with it."""

import importlib.util
import textwrap

import numpy as np
import pytest

import weft
from weft.core.op import all_ops, find_op, unregister
from weft.errors import ArgumentError
from weft.ops.public import DECLARED
from weft.testing import check_op

SOURCE = textwrap.dedent('''
    """Softsign and the cube root."""

    import numpy as np

    from weft.ops.elementwise import binary, integer_samples, unary
    from weft.core.lowering import Composed
    from weft.ops.public import Names

    softsign = unary(
        "softsign",
        lambda x: x / (1 + np.abs(x)),
        d=lambda x: (1 + x.abs()) ** -2,
        lower=Composed(
            lambda call, x: call("div", x, call("add", call("abs", x), 1))
        ),
        reference=lambda x: np.sign(x) * (1 - 1 / (1 + abs(x))),
        accepts="floating",
        domain=(0.2, 3.0),
        cost=6,
        bounds=(-1, 1),
        public=Names(also=("elliot",)),
        doc="""Each element divided by 1 plus its size.""",
    )

    cube_root = unary(
        "cube_root",
        np.cbrt,
        d=lambda out: out ** -2 / 3,
        reference=lambda x: x ** (1 / 3),
        accepts="floating",
        domain=(0.5, 3.0),
        cost=40,
        doc="""The cube root of each element.""",
    )

    next_even = unary(
        "next_even",
        lambda x: x + 2 - x % 2,
        reference=lambda x: (x // 2 + 1) * 2,
        accepts="integer",
        samples=integer_samples(1, -9, 9),
        doc="""The even number above each element.""",
    )

    geometric_mean = binary(
        "geometric_mean",
        lambda x, y: np.sqrt(x * y),
        d={"x": lambda y, out: y / (2 * out), "y": lambda x, out: x / (2 * out)},
        lower=Composed(lambda call, x, y: call("sqrt", call("mul", x, y))),
        reference=lambda x, y: np.exp((np.log(x) + np.log(y)) / 2),
        accepts="floating",
        domain=((0.5, 2.0), (0.5, 2.0)),
        cost=7,
        commutes=True,
        doc="""The root of the product of two tensors.""",
    )
''')
NAMES = ("softsign", "cube_root", "geometric_mean")
ALL = (*NAMES, "next_even")


@pytest.fixture
def module(tmp_path):
    """The module, loaded; what it registers is taken away again."""
    path = tmp_path / "more_operators.py"
    path.write_text(SOURCE)
    spec = importlib.util.spec_from_file_location("more_operators", path)
    found = importlib.util.module_from_spec(spec)
    members = set(vars(weft.Tensor))
    try:
        spec.loader.exec_module(found)
        yield found
    finally:
        for name in ALL:
            unregister(name)
    assert set(vars(weft.Tensor)) == members
    left = {*DECLARED, *dir(weft), *(op.name for op in all_ops())}
    assert left.isdisjoint([*ALL, "elliot"])


def arguments(name, *shape, dtype="float32"):
    rng = np.random.default_rng(0)
    count = len(find_op(name).inputs)
    draws = [rng.uniform(0.5, 2, shape).astype(dtype) for _ in range(count)]
    return [weft.tensor(x) for x in draws]


@pytest.mark.parametrize("name", NAMES)
def test_its_own_samples_check_it(module, name):
    row = check_op(find_op(name))
    wrong = {k: v for k, v in row.items() if v not in ("ok", "-")}
    assert not wrong
    for check in ("f64", "vjp", "jvp", "vjp²", "tape", "vmap", "strides"):
        assert row[check] == "ok", check


@pytest.mark.parametrize("size", [4, 1 << 17])  # large ones have kernels of their own
@pytest.mark.parametrize("name", NAMES)
def test_eagerly_its_function_and_its_method_are_its_evaluation(module, name, size):
    x, *others = arguments(name, size)
    wanted = find_op(name).eval(*(t.numpy() for t in (x, *others)))
    for found in (
        getattr(module, name)(x, *others),
        getattr(weft, name)(x, *others),
        getattr(x, name)(*others),
    ):
        assert found.dtype is weft.float32
        np.testing.assert_allclose(found.numpy(), wanted, rtol=3e-7)


@pytest.mark.parametrize("name", NAMES)
def test_its_in_place_form_changes_the_tensor(module, name):
    x, *others = arguments(name, 5)
    wanted = getattr(x, name)(*others)
    assert getattr(x, f"{name}_")(*others) is x
    assert (x == wanted).all()


def test_other_names_are_the_same_function(module):
    x = weft.tensor([-1.0, 3.0])
    assert weft.elliot is weft.softsign is module.softsign
    assert x.elliot().tolist() == x.softsign().tolist() == [-0.5, 0.75]
    assert x.elliot_() is x


def test_numpy_asks_the_operator_that_its_function_evaluates(module):
    x = weft.tensor([8.0, 27.0], requires_grad=True)
    found = np.cbrt(x)
    assert isinstance(found, weft.Tensor)
    assert found.requires_grad


@pytest.mark.parametrize("name", NAMES)
def test_gradients_and_batches(module, name):
    fn, args = getattr(weft, name), arguments(name, 3, 4, dtype="float64")
    moved = [a.clone().requires_grad_() for a in args]
    assert weft.autograd.gradcheck(fn, moved)
    assert weft.autograd.gradgradcheck(fn, moved)
    each = weft.stack([fn(*row) for row in zip(*args, strict=True)])
    assert (weft.func.vmap(fn)(*args) == each).all()


@pytest.mark.parametrize("name", NAMES)
def test_compiled_it_gives_the_same(module, name):
    def step(*args):
        return (getattr(weft, name)(*args) * 2).exp()

    args = arguments(name, 33)
    compiled = weft.compile(step)
    for _ in range(2):
        np.testing.assert_allclose(
            compiled(*args).numpy(), step(*args).numpy(), rtol=3e-7
        )

    def gradients(*args):
        leaves = [a.clone().requires_grad_() for a in args]
        getattr(weft, name)(*leaves).sum().backward()
        return [leaf.grad for leaf in leaves]

    for found, wanted in zip(
        weft.compile(gradients)(*args), gradients(*args), strict=True
    ):
        np.testing.assert_allclose(found.numpy(), wanted.numpy(), rtol=2e-6)


@pytest.mark.parametrize("shape", [(), (5,)])
def test_one_of_integers_is_called_as_a_whole(module, shape):
    def step(x):
        return (x + 1).next_even() * 3 - x

    x = weft.full(shape, 4)
    assert step(x).tolist() == weft.compile(step)(x).tolist()
    assert check_op(find_op("next_even"))["type"] == "ok"
    assert weft.ones(2, dtype=weft.int64).next_even_().tolist() == [2, 2]


@pytest.mark.parametrize("name", ["softsign", "geometric_mean"])
def test_composed_it_is_part_of_a_kernel(module, name):
    @weft.compile
    def step(*args):
        return (getattr(weft, name)(*args) * 2).exp()

    step(*arguments(name, 4096))
    (kernel,) = step.explain().kernels
    assert "exp" in kernel.operators


@pytest.mark.parametrize("name", NAMES)
def test_graphs_are_text_and_back(module, name):
    args = arguments(name, 6)
    graph = weft.graph.capture(getattr(weft, name), *args).graph
    assert f"= {name}(" in str(graph)
    again = weft.graph.parse_graph(str(graph))
    assert str(again) == str(graph)
    (found,) = weft.graph.apply(again, args)
    assert (found == getattr(weft, name)(*args)).all()


@pytest.mark.parametrize("name", NAMES)
def test_static_programs_use_it(module, name):
    static = weft.static
    args = arguments(name, 6)
    with static.Graph().as_default():
        holders = [static.placeholder(weft.float32, [6]) for _ in args]
        out = getattr(weft, name)(*holders)
        with static.Session() as session:
            found = session.run(out, dict(zip(holders, args, strict=True)))
    np.testing.assert_allclose(found, getattr(weft, name)(*args).numpy(), rtol=3e-7)


def test_a_second_operator_of_a_name_is_refused(module):
    with pytest.raises(ArgumentError, match="an operator named 'softsign' exists"):
        exec(SOURCE, {})


def test_it_is_gone_when_it_is_unregistered(module):
    unregister("softsign")
    x = weft.ones(2)
    for name in ("softsign", "softsign_", "elliot", "elliot_"):
        assert not hasattr(x, name)
    assert not hasattr(weft, "softsign")
    assert not hasattr(weft, "elliot")
    with pytest.raises(ArgumentError, match="no operator is named 'softsign'"):
        find_op("softsign")
