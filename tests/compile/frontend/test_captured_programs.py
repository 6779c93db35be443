"""Captured and loaded programs are compiled: state, Python values and refusals."""

import copy

import pytest

import weft
from weft.errors import ArgumentError, DTypeError, ShapeError


class Net(weft.nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.out = weft.nn.BatchNorm1d(4), weft.nn.Linear(4, 2)

    def forward(self, x, *, scale=2):
        return {"y": self.out(self.norm(x)) * scale, "n": 3}


@pytest.fixture
def net():
    weft.manual_seed(0)
    return Net()


def test_results_and_state_are_the_modules(net):
    same = copy.deepcopy(net)
    capture = weft.graph.capture
    program = capture(net, weft.randn(5, 4), scale=3, dynamic={"x": {0: "B"}})
    run = weft.compile(program)
    for rows in (7, 2):
        x = weft.randn(rows, 4)
        found, expected = run(x, scale=3), same(x, scale=3)
        assert found["n"] == 3
        weft.testing.assert_close(found["y"], expected["y"])
        weft.testing.assert_close(net.norm.running_mean, same.norm.running_mean)
    found["y"].sum().backward()
    expected["y"].sum().backward()
    weft.testing.assert_close(net.out.weight.grad, same.out.weight.grad)


def test_refusals(net):
    run = weft.compile(weft.graph.capture(net, weft.randn(5, 4), scale=3))
    with pytest.raises(ArgumentError, match="structure"):
        run(weft.randn(5, 4))
    with pytest.raises(ArgumentError, match="Python value 3, got 4"):
        run(weft.randn(5, 4), scale=4)
    with pytest.raises(ShapeError):
        run(weft.randn(5, 3), scale=3)
    with pytest.raises(DTypeError):
        run(weft.randn(5, 4).double(), scale=3)


def test_options_of_functions(net):
    program = weft.graph.capture(net, weft.randn(5, 4), scale=3)
    for option in ({"dynamic": True}, {"memory": "1MB"}, {"tune": 3.0}):
        with pytest.raises(ArgumentError, match="is an option for functions"):
            weft.compile(program, **option)
    x = weft.randn(5, 4)
    packed = weft.compile(program, pack_weights=True)(x, scale=3)["y"]
    weft.testing.assert_close(packed, net(x, scale=3)["y"])


def test_programs_from_files(net, tmp_path):
    path = tmp_path / "net.weft"
    net.eval()
    x = weft.randn(3, 4)
    weft.save(weft.graph.capture(net, x, scale=3), path)
    loaded = weft.load(path)
    run = weft.compile(loaded)
    weft.testing.assert_close(run(x, scale=3)["y"], net(x, scale=3)["y"].detach())
    assert not run(x, scale=3)["y"].requires_grad
    compiled = weft.compile(lambda x: x.exp())
    compiled(x)
    weft.save(compiled, path)
    native = weft.load(path)
    assert weft.compile(native) is native  # it is machine code already
