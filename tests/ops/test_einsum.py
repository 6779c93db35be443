"""einsum against NumPy's, its derivatives, its forms and its errors."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import weft
from weft.autograd import gradcheck, gradgradcheck

RNG = np.random.default_rng(0)
SIZES = dict(zip("abcde", (2, 3, 1, 4, 2), strict=True))


@st.composite
def equations(draw):
    """An equation of up to four operands, with repeats and size-1 broadcasts."""
    count = draw(st.integers(1, 4))
    terms = [draw(st.text("abcde", max_size=3)) for _ in range(count)]
    used = sorted(set("".join(terms)))
    out = draw(st.permutations(used))[: draw(st.integers(0, len(used)))]
    implicit = draw(st.booleans())
    equation = ",".join(terms) + ("" if implicit else "->" + "".join(out))
    return equation, terms, draw(st.integers(0, 2**32 - 1))


@given(equations())
@settings(max_examples=150, deadline=None)
def test_agrees_with_numpy(case):
    equation, terms, seed = case
    rng = np.random.default_rng(seed)
    arrays = [rng.normal(size=[SIZES[c] for c in t]) for t in terms]
    got = weft.einsum(equation, *map(weft.tensor, arrays))
    expected = np.einsum(equation, *arrays)
    assert got.shape == expected.shape
    np.testing.assert_allclose(got.numpy(), expected, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize(
    ("equation", "shapes"),
    [
        ("...ij,...jk->...ik", [(5, 1, 2, 3), (4, 3, 2)]),
        ("...", [(2, 3)]),
        ("...ij", [(2, 3, 4)]),
        ("a...b,b->a...", [(2, 3, 4), (4,)]),
        ("i...,...i->...", [(2, 3), (3, 2)]),
        ("...ii->...", [(2, 3, 3)]),
        ("i j , j k -> i k", [(2, 3), (3, 4)]),
        ("bhqd,bhkd,bhke->bhqe", [(2, 2, 3, 4), (2, 2, 5, 4), (2, 2, 5, 1)]),
        ("ij,jk->ik", [(0, 3), (3, 2)]),
        ("ij,jk->ik", [(2, 0), (0, 3)]),
        ("B a->aB", [(2, 3)]),
        ("iii->i", [(3, 3, 3)]),
        (",ij->ij", [(), (2, 3)]),
    ],
)
def test_forms_agree_with_numpy(equation, shapes):
    arrays = [RNG.normal(size=s) for s in shapes]
    got = weft.einsum(equation, *map(weft.tensor, arrays))
    expected = np.einsum(equation, *arrays)
    assert got.shape == expected.shape
    np.testing.assert_allclose(got.numpy(), expected, rtol=1e-12, atol=1e-12)


def test_size_one_is_broadcast_and_summed():
    a, b = RNG.normal(size=(2, 1)), RNG.normal(size=(3, 4))
    got = weft.einsum("ij,jk->ik", weft.tensor(a), weft.tensor(b))
    np.testing.assert_allclose(got.numpy(), (a @ b.sum(0, keepdims=True)))
    kept = weft.einsum("ij,jk->ijk", weft.tensor(a), weft.tensor(b))
    np.testing.assert_allclose(kept.numpy(), a[:, :, None] * b[None])


def test_sublists_and_lists_of_operands():
    a, b = weft.randn(5, 2, 3), weft.randn(5, 3, 4)
    expected = (a @ b).numpy()
    got = weft.einsum(a, [..., 0, 1], b, [..., 1, 2], [..., 0, 2])
    np.testing.assert_allclose(got.numpy(), expected, rtol=1e-5, atol=1e-6)
    listed = weft.einsum("bij,bjk->bik", [a, b])
    np.testing.assert_allclose(listed.numpy(), expected, rtol=1e-5, atol=1e-6)
    assert weft.einsum(a, [0, 1, 2]).shape == (5, 2, 3)


def test_types_are_promoted_and_integers_stay():
    assert weft.einsum("i,i->", weft.arange(3), weft.arange(3)).item() == 5
    mixed = weft.einsum("i,i->i", weft.ones(2), weft.ones(2, dtype=weft.float64))
    assert mixed.dtype is weft.float64


@pytest.mark.parametrize(
    ("equation", "shapes"),
    [
        ("ij,jk->ik", [(2, 3), (3, 2)]),
        ("iij,j->i", [(2, 2, 3), (1,)]),
        ("...i,ij,jk->...k", [(2, 3), (3, 2), (2, 2)]),
        ("i,j->", [(2,), (3,)]),
    ],
)
def test_derivatives(equation, shapes):
    xs = [weft.tensor(RNG.normal(size=s), requires_grad=True) for s in shapes]
    fn = lambda *xs: weft.einsum(equation, *xs)
    assert gradcheck(fn, xs)
    assert gradgradcheck(fn, xs)


def test_complex_gradient():
    xs = [
        weft.tensor(RNG.normal(size=s) + 1j * RNG.normal(size=s), requires_grad=True)
        for s in ((2, 3), (3, 2))
    ]
    assert gradcheck(lambda a, b: weft.einsum("ij,jk->ki", a, b), xs)


def test_vmap_equals_the_equation_with_a_batch():
    a, b = weft.randn(4, 2, 3), weft.randn(3, 5)
    got = weft.func.vmap(lambda x: weft.einsum("ij,jk->ik", x, b))(a)
    np.testing.assert_allclose(got.numpy(), (a @ b).numpy(), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("args", "kind", "text"),
    [
        (("ij,jk", (2, 3)), ValueError, r"'ij,jk' names 2 operands, but 1 were given"),
        (("ij,jk", (2, 3), (4, 5)), ValueError, r"'j' has size 3 and, in operand 1 of"),
        (("ij->ik", (2, 3)), ValueError, r"'k' in the result of 'ij->ik' is in no op"),
        (("ij->ii", (2, 3)), ValueError, r"'i' appears twice in the result"),
        (("ij", (2, 3, 4)), ValueError, r"operand 0 of 'ij' names 2 dimensions, but"),
        (("ijk", (2, 3)), ValueError, r"names 3 dimensions, but its shape is \(2, 3\)"),
        (("i$", (2, 3)), ValueError, r"expected letters, .* got '\$'"),
        (("i..j", (2, 3)), ValueError, r"expected letters, .* got '\.'"),
        (
            ("...i,...i", (2, 3), (4, 3)),
            ValueError,
            r"axis -1 of the ellipsis has size 2",
        ),
        (("ii", (2, 3)), ValueError, r"'i' has size 2 and, in operand 0"),
        (("",), ValueError, r"expected at least one operand"),
    ],
)
def test_errors_name_what_is_wrong(args, kind, text):
    equation, *shapes = args
    with pytest.raises(kind, match="einsum: .*" + text):
        weft.einsum(equation, *[weft.zeros(s) for s in shapes])


def test_errors_of_other_forms():
    with pytest.raises(TypeError, match="operand 0 to be a tensor, got list"):
        weft.einsum("i", [[1.0]])
    with pytest.raises(IndexError, match=r"0 to 51 or \.\.\., got 52"):
        weft.einsum(weft.ones(2), [52])
    with pytest.raises(ValueError, match="a list of dimensions after an operand"):
        weft.einsum(weft.ones(2), 3)
