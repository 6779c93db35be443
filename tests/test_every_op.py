"""Every operator record, through every check; and proof that the checks can fail."""

import numpy as np
import pytest

import weft
import weft.graph  # their operators register themselves
import weft.nn
from weft.core.op import Op, TensorType, all_ops, define, unregister
from weft.errors import WeftError
from weft.testing import CHECKS, check_op

OPS = {op.name: op for op in all_ops()}


@pytest.mark.parametrize("name", OPS)
def test_record(name, record_property):
    """One row of the matrix that the end of the test run prints."""
    row = check_op(OPS[name])
    record_property("coverage", (name, row))
    bad = {check: text for check, text in row.items() if text not in ("ok", "-")}
    assert not bad


def test_what_does_not_apply_is_for_a_reason():
    """A dash in a derivative's column only where no number depends on another."""
    for op in OPS.values():
        row = check_op(op, only=["vjp"])
        differences = op.differentiable and not op.facts.random
        assert (row["vjp"] == "ok") == differences


def clone_with(op: Op, **changes) -> Op:
    fields = {
        "inputs": " ".join(op.inputs), "eval": op.eval, "type": op.type,
        "outputs": " ".join(op.outputs), "vjp": op.vjp, "jvp": op.jvp,
        "batch": op.batch, "linear": op.linear, "view": op.view,
        "samples": op.samples, "reference": op.reference,
    }  # fmt: skip
    return Op("planted", **{**fields, **changes})


MUL, SUM = weft.mul.op, OPS["sum"]


def spoil(x, y):
    if x.size:
        x.reshape(-1)[...] = 0
    return x * y


# name of the check that must catch it -> a record with one thing wrong
PLANTED = {
    "f64": clone_with(MUL, eval=lambda x, y: x * y * (1 + 1e-8)),
    "f32": clone_with(MUL, eval=lambda x, y: x * y * (1 + 1e-3)),
    "f16": clone_with(MUL, eval=lambda x, y: x * y + x.dtype.type(0.1)),
    "bf16": clone_with(MUL, eval=lambda x, y: x * y + x.dtype.type(0.5)),
    "type": clone_with(SUM, type=lambda x, *, dim, keepdim: x),
    "vjp": clone_with(
        MUL, vjp={"x": lambda g, y: g * y, "y": lambda g, x: g * x * 1.01}
    ),
    "jvp": clone_with(MUL, jvp={"x": lambda t, y: t * y}),
    "vjp²": clone_with(
        MUL, vjp={"x": lambda g, y: g * y.detach(), "y": lambda g, x: g * x}
    ),
    "jvp∘vjp": clone_with(
        MUL, vjp={"x": lambda g, y: g.detach() * y, "y": lambda g, x: g * x}
    ),
    "vmap": clone_with(
        SUM, batch=lambda op, size, args, batched, params: op(*args, **params)
    ),
    "strides": clone_with(
        MUL, eval=lambda x, y: (x.ravel("K") * y.ravel("K")).reshape(x.shape)
    ),
    "intact": clone_with(MUL, eval=spoil),
    "empty": clone_with(MUL, samples=lambda rng: list(MUL.samples(rng))[:1]),
}  # fmt: skip


@pytest.mark.parametrize("check", PLANTED)
def test_planted_error_is_caught(check):
    assert check_op(PLANTED[check], only=[check])[check] not in ("ok", "-")


def test_missing_rule_is_a_hole():
    hole = clone_with(MUL, vjp=None, jvp=None)
    assert "no vjp" in check_op(hole, only=["vjp"])["vjp"]


def test_the_unplanted_record_passes():
    row = check_op(clone_with(MUL))
    assert row.pop("promote") == "-"  # a bare record has no public function
    assert set(row.values()) == {"ok"}


def test_a_missing_scalar_sample_is_caught():
    op = clone_with(MUL, samples=lambda rng: list(MUL.samples(rng))[:1])
    op.function = weft.mul
    assert "0-d" in check_op(op, only=["0-d"])["0-d"]


def test_a_function_that_does_not_promote_is_caught():
    op = clone_with(MUL)
    op.function = lambda x, y: op(x, y.to(x.dtype))
    assert "int32" in check_op(op, only=["promote"])["promote"]


@pytest.fixture
def user_op():
    """An operator declared from outside, with no jvp and no batching rule."""
    op = define(
        "user_cube_norm",
        inputs="x y",
        eval=lambda x, y: (x * x + y * y) ** 1.5,
        type=lambda x, y: x,
        vjp={
            "x": lambda g, x, y: g * 3 * x * (x * x + y * y).sqrt(),
            "y": lambda g, x, y: g * 3 * y * (x * x + y * y).sqrt(),
        },
        samples=weft.ops.elementwise.samples_in((0.5, 2), (0.5, 2)),
        reference=lambda x, y: np.hypot(x, y) ** 3,
    )
    yield op
    unregister("user_cube_norm")


def test_user_operator_works_in_every_transform(user_op):
    # its evaluation rounds four times, which the half types' tolerance is not for
    checks = [name for name in CHECKS if name not in ("f16", "bf16", "0-d", "promote")]
    assert set(check_op(user_op, only=checks).values()) == {"ok"}
    x = weft.tensor([1.0, 2.0], dtype=weft.float64)
    y = weft.tensor([0.5, 1.5], dtype=weft.float64)
    f = lambda x: user_op(x, y).sum()
    h = weft.func.hessian(f)(x)
    assert h.shape == (2, 2)
    reverse = weft.func.jacrev(weft.func.grad(f))(x)
    np.testing.assert_allclose(h.numpy(), reverse.numpy(), rtol=1e-12)
    many = weft.func.vmap(weft.func.grad(f))(weft.stack([x, 2 * x]))
    np.testing.assert_allclose(
        many[0].numpy(), weft.func.grad(f)(x).numpy(), rtol=1e-12
    )


def test_second_operator_of_a_name_is_refused():
    with pytest.raises(ValueError, match="'mul' exists"):
        define("mul", inputs="x", eval=abs, type=lambda x: x)


def test_rule_for_an_unknown_input_is_refused():
    with pytest.raises(ValueError, match=r"unknown inputs \['z'\].*\['x'\]"):
        Op("bad", inputs="x", eval=abs, type=None, vjp={"z": lambda g: g})


_DTYPES = [
    "bool", "uint8", "int8", "int16", "int32", "int64", "float16", "bfloat16",
    "float32", "float64", "complex64", "complex128",
]  # fmt: skip


def _cast(op, array, name):
    """A sample's array as a dtype; indices and seeds stay what they are."""
    kind = weft.dtype.as_dtype(name).np
    number = array.dtype.kind == "f" or (array.dtype.kind == "c" and kind.kind == "c")
    whole = array.dtype.kind == "i" and kind.kind in "biu" and op.function is not None
    with np.errstate(all="ignore"):
        return array.astype(kind) if number or whole else array


@pytest.mark.parametrize("op", [op for op in all_ops() if not op.composite], ids=repr)
def test_values_have_the_promised_types(op):
    """Where a type rule accepts a dtype, values have the dtype and shape it gives."""
    found = list(op.samples(np.random.default_rng(0))) if op.samples else []
    for name in _DTYPES:
        for sample in found:
            given = [np.asarray(a) if isinstance(a, np.generic) else a
                     for a in sample.args]  # fmt: skip
            arrays = [_cast(op, a, name) if _is_array(a) else a for a in given]
            types = [_type(a) if _is_array(a) else a for a in arrays]
            try:
                promised = op.type(*types, **sample.params)
            except WeftError:
                continue
            try:
                with np.errstate(all="ignore"):
                    made = op.eval(*arrays, **sample.params)
            except (ZeroDivisionError, IndexError):
                continue  # of the values, not of the types
            made = made if isinstance(made, tuple) else (made,)
            promised = [promised] if isinstance(promised, TensorType) else promised
            assert [_type(np.asarray(m)) for m in made] == list(promised), name


def _is_array(value):
    return isinstance(value, np.ndarray)


def _type(array):
    return TensorType(array.shape, weft.dtype.of_array(array))
