"""Types that programs name, but that no tensor has."""

import pytest

import weft
from weft.errors import DTypeError

NAMED = ["float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz"]


@pytest.mark.parametrize("name", [*NAMED, "float8_e8m0fnu"])
def test_they_can_be_compared_with_and_nothing_else(name):
    dtype = getattr(weft, name)
    x = weft.ones(2)
    assert isinstance(dtype, weft.dtype)
    assert x.dtype != dtype
    assert x.dtype not in {dtype}
    for use in (
        lambda: x.to(dtype),
        lambda: weft.zeros(2, dtype=dtype),
        lambda: weft.promote_types(dtype, weft.float32),
        lambda: x.view(dtype),
    ):
        with pytest.raises(DTypeError, match=f"{name}.*bfloat16"):
            use()
