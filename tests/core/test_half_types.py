"""Element-wise operators of half types: computed wide, and rounded once."""

import ml_dtypes
import numpy as np
import pytest

from weft.core.op import all_ops

RNG = np.random.default_rng(0)
UNARY = [
    op.name
    for op in all_ops()
    if op.facts.elementwise and len(op.inputs) == 1 and op.name != "nextafter"
]


@pytest.mark.parametrize("kind", [ml_dtypes.bfloat16, np.float16], ids=["bf16", "f16"])
@pytest.mark.parametrize("name", UNARY)
def test_functions_of_halves_are_rounded_once(name, kind):
    """Nearly all results are those of double precision, rounded: ties may fall
    otherwise, and a function that rounds each of its steps is off in every third."""
    (op,) = (one for one in all_ops() if one.name == name)
    count = wrong = 0
    for sample in op.samples(RNG):
        x = np.asarray(sample.args[0])
        if x.dtype.kind != "f" or not x.size:
            continue
        x = np.resize(x, 200) * (1 + 0.1 * RNG.standard_normal(200))
        x = x.astype(kind)
        with np.errstate(all="ignore"):
            found = np.asarray(op.eval(x, **sample.params))
            exact = np.asarray(op.eval(x.astype(np.float64), **sample.params))
        if exact.dtype.kind != "f":
            continue
        wrong += (found.astype(float) != exact.astype(kind).astype(float)).sum()
        wrong -= (np.isnan(found.astype(float)) & np.isnan(exact)).sum()
        count += 200
    assert wrong <= 0.02 * count
