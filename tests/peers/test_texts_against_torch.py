"""``repr`` of tensors, sizes, dtypes and results: PyTorch's text under ``weft run``."""

from __future__ import annotations

import numpy as np
import pytest

import weft
from weft import naming

torch = pytest.importorskip("torch")

RNG = np.random.default_rng(0)
SHAPES = [
    (),
    (1,),
    (5,),
    (0,),
    (0, 3),
    (2, 3),
    (2, 3, 4),
    (1001,),
    (50, 50),
    (2, 2, 2, 2),
]
VALUES = {
    "unit": lambda s: RNG.normal(size=s),
    "large": lambda s: RNG.integers(0, 5, size=s) * 1e9,
    "tiny": lambda s: RNG.normal(size=s) * 1e-6,
    "mixed": lambda s: RNG.normal(size=s) * 10.0 ** RNG.integers(-6, 6, size=s),
    "whole": lambda s: RNG.integers(-5, 100, size=s) * 1.0,
    "not finite": lambda s: np.where(
        RNG.uniform(size=s) < 0.3,
        np.nan,
        np.where(RNG.uniform(size=s) < 0.3, np.inf, 1.5),
    ),
}
DTYPES = (
    "float32", "float64", "float16", "bfloat16", "int64", "int32", "uint8", "bool",
    "complex64", "complex128",
)  # fmt: skip
OPTIONS = [
    {}, {"precision": 2}, {"sci_mode": True}, {"linewidth": 40}, {"threshold": 10},
    {"edgeitems": 1, "threshold": 5}, {"profile": "short"},
]  # fmt: skip


@pytest.fixture(autouse=True)
def torch_texts():
    naming.rename("torch")
    yield
    naming.rename("weft")
    for library in (torch, weft):
        library.set_printoptions(profile="default")
        library.set_printoptions(sci_mode=None)


def _array(make, shape, dtype):
    values = np.asarray(make(shape))
    if dtype.startswith("complex"):
        return (values + 1j * np.nan_to_num(make(shape))).astype(dtype)
    if dtype in ("int64", "int32", "uint8", "bool"):
        values = np.clip(np.nan_to_num(values, posinf=3), 0, 100)
    return values.astype("float32" if dtype == "bfloat16" else dtype)


@pytest.mark.parametrize("options", OPTIONS, ids=str)
@pytest.mark.parametrize("name", VALUES)
def test_tensors(name, options):
    for library in (torch, weft):
        library.set_printoptions(**options)
    for shape in SHAPES:
        for dtype in DTYPES if not options else ("float32", "int64", "complex64"):
            with np.errstate(all="ignore"):
                array = _array(VALUES[name], shape, dtype)
            pair = torch.tensor(array), weft.tensor(array)
            if dtype == "bfloat16":
                pair = tuple(x.bfloat16() for x in pair)
            assert repr(pair[1]) == repr(pair[0])


@pytest.mark.parametrize(
    "text",
    [
        "T.zeros(2, 3).shape", "T.zeros(2, 3).size()", "T.Size([])", "T.Size([4])[:1]",
        "T.float16", "T.zeros(1).dtype", "T.strided", "T.channels_last",
        "T.device('cpu')",
        "T.ones(2, requires_grad=True)", "T.ones(2, requires_grad=True) + 1",
        "T.nn.Parameter(T.ones(2))", "T.finfo(T.float32)", "T.iinfo(T.int8)",
        "T.tensor([3.0, 1.0]).max(0)", "T.tensor([3.0, 1.0]).sort()",
        "T.tensor([3.0, 1.0]).topk(1)", "T.linalg.slogdet(T.eye(2))",
        "T.tensor([1.0, 2.0]).aminmax()", "T.frexp(T.tensor([8.0]))",
        "T.typename(T.nn.Linear(1, 1).weight)", "T.zeros(2, dtype=T.int32).type()",
        "T.nn.Sequential(T.nn.Linear(2, 3), T.nn.ReLU())",
        "T.optim.SGD([T.nn.Parameter(T.ones(1))], lr=0.5).param_groups[0]['lr']",
    ],
)  # fmt: skip
def test_other_objects(text):
    assert repr(eval(text, {"T": weft})) == repr(eval(text, {"T": torch}))
