"""What users import from here has a description and an example that runs."""

import doctest
import inspect

import numpy as np
import pytest

import weft
from weft import static, symbolic

OPTIONS = doctest.ELLIPSIS | doctest.IGNORE_EXCEPTION_DETAIL
PLACES = {
    "static": static, "symbolic": symbolic,
    "static.contrib.layers": static.contrib.layers,
    "static.nn.rnn_cell": static.nn.rnn_cell,
}  # fmt: skip
PLACES |= {
    f"static.{name}": getattr(static, name)
    for name in [
        "app",
        "data",
        "flags",
        "gfile",
        "image",
        "layers",
        "logging",
        "losses",
        "metrics",
        "nn",
        "summary",
        "train",
    ]
}


def public():
    for place, module in PLACES.items():
        own = (n for n in vars(module) if not n.startswith("_"))
        for name in getattr(module, "__all__", own):
            value = getattr(module, name)
            home = getattr(value, "__module__", "") or ""
            if callable(value) and home.startswith(f"weft.{place.split('.')[0]}"):
                yield f"{place}.{name}", value


NAMES = dict(public())


def test_there_are_many():
    assert len(NAMES) > 120


@pytest.mark.parametrize("name", NAMES)
def test_described_with_an_example_that_runs(name):
    value = NAMES[name]
    assert value.__doc__
    texts = [value.__doc__]
    if inspect.isclass(value):
        texts += [m.__doc__ or "" for m in vars(value).values() if callable(m)]
    found = doctest.DocTestParser().get_examples("\n".join(texts))
    assert found, f"{name} has no example"
    test = doctest.DocTest(found, {"weft": weft, "np": np}, name, None, 0, None)
    runner = doctest.DocTestRunner(optionflags=OPTIONS, verbose=False)
    report = []
    runner.run(test, out=report.append)
    assert runner.summarize(verbose=False).failed == 0, "".join(report)
