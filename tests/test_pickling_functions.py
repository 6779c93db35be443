"""Functions of tensors are pickled by their names, so that models may hold them."""

import pickle

import pytest

import weft

MODULES = [
    weft, weft.nn.functional, weft.special, weft.linalg, weft.fft, weft.nn.init,
]  # fmt: skip


@pytest.mark.parametrize("module", MODULES, ids=lambda module: module.__name__)
def test_functions_are_found_by_their_names(module):
    functions = {
        name: value
        for name, value in ((name, getattr(module, name)) for name in dir(module))
        if not name.startswith("_") and type(value) is type(pytest.fixture)
    }
    assert len(functions) > 10
    for name, function in functions.items():
        assert pickle.loads(pickle.dumps(function)) is function, name


class Layer(weft.nn.Module):
    def __init__(self):
        super().__init__()
        self.activation = weft.sigmoid

    def forward(self, x):
        return self.activation(x)


def test_a_module_that_holds_a_function():
    again = pickle.loads(pickle.dumps(Layer()))
    assert again(weft.zeros(1)).item() == 0.5
