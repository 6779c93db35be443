"""Subclasses of Tensor, ``__torch_function__`` and modes.

Each test runs in a process of its own: the protocol stays on once it is in use.
"""

import pathlib
import subprocess
import sys
import textwrap

import pytest

HEAD = """
import weft
from weft import Tensor
from weft.nn import functional as F

class Points(Tensor):
    pass
"""


def run(body):
    root = pathlib.Path(__file__).parents[1]
    done = subprocess.run(
        [sys.executable, "-c", HEAD + textwrap.dedent(body)],
        capture_output=True, text=True, cwd=root, timeout=120,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout.split("\n")[:-1]


def test_results_are_of_the_subclass():
    assert run("""
        early = weft.sum
        p = Points([1.0, 2.0, 3.0])
        plain = weft.ones(3)
        for x in (p + 1, 1 - p, p * plain, plain * p, weft.sin(p), early(p), p[0],
                  weft.stack([plain, p]), p.max(0)[1], F.softmax(p, 0), p.clone()):
            assert type(x) is Points, x
        assert type(plain + 1) is Tensor and type(weft.ones(2)) is Tensor
        assert (p + 1).tolist() == [2.0, 3.0, 4.0]
        print(p)
    """) == ["Points([1., 2., 3.])"]  # fmt: skip


def test_gradients_and_changes_in_place():
    assert run("""
        x = weft.ones(3, requires_grad=True)
        p = x.as_subclass(Points)
        (p * Points([1.0, 2.0, 3.0])).sum().backward()
        print(x.grad.tolist())
        q = Points([1.0, 2.0])
        q.add_(1)
        q[0] = 7
        print(q.tolist(), type(q).__name__)
    """) == ["[1.0, 2.0, 3.0]", "[7.0, 3.0] Points"]


def test_a_class_takes_functions_over():
    assert run("""
        class Mine(Tensor):
            @classmethod
            def __torch_function__(cls, func, types, args=(), kwargs=None):
                if func is weft.add or func is Tensor.add:
                    return "added"
                return super().__torch_function__(func, types, args, kwargs)

        class Other:
            @classmethod
            def __torch_function__(cls, func, types, args=(), kwargs=None):
                return func.__name__

        m, o = Mine([1.0]), Other()
        weft.overrides.enable()
        print(m + 1, weft.add(1, m), (m * 2).tolist())
        one = weft.ones(1)
        print(weft.matmul(o, one), F.relu(o), weft.cat([o]), one.mul(o))
        print(weft.is_tensor(o), weft.overrides.is_tensor_like(o))
    """) == ["added added [2.0]", "matmul relu cat mul", "False True"]


def test_nobody_takes_over_is_an_error():
    assert run("""
        class Shy:
            @classmethod
            def __torch_function__(cls, func, types, args=(), kwargs=None):
                return NotImplemented
        weft.overrides.enable()
        try:
            weft.sin(Shy())
        except TypeError as error:
            print(str(error)[:32])
    """) == ["no implementation found for 'wef"]


def test_modes_see_calls_and_nest():
    assert run("""
        class Show(weft.overrides.TorchFunctionMode):
            def __init__(self, name):
                self.name = name
            def __torch_function__(self, func, types, args=(), kwargs=None):
                print(self.name, func.__name__)
                return func(*args, **(kwargs or {}))
        with Show("a"), Show("b"):
            F.gelu(weft.ones(2))
        weft.ones(1)
    """) == ["b ones", "a ones", "b gelu", "a gelu"]


def test_switching_off():
    assert run("""
        p = Points([1.0])
        with weft.overrides.DisableTorchFunctionSubclass():
            print(type(p + 1).__name__)
        class Plain(Tensor):
            __torch_function__ = weft.overrides.disabled_torch_function_impl
        print(type(Plain([1.0]) + 1).__name__)
    """) == ["Tensor", "Tensor"]


def test_subclasses_of_parameter():
    assert run("""
        class Own(weft.nn.Parameter):
            def __new__(cls, data, kind=None):
                made = Tensor._make_subclass(cls, data, True)
                made.kind = kind
                return made
        layer = weft.nn.Module()
        layer.w = Own(weft.ones(2), kind=3)
        (layer.w * 2).sum().backward()
        weft.optim.SGD(layer.parameters(), 0.5).step()
        print([n for n, _ in layer.named_parameters()], type(layer.w).__name__,
              layer.w.kind, layer.w.tolist())
        print(isinstance(layer.w, weft.nn.Parameter),
              isinstance(weft.nn.Parameter(weft.ones(1)), Own))
    """) == ["['w'] Own 3 [0.0, 0.0]", "True False"]


def test_dispatch_is_refused():
    assert (
        run("""
        class Wrapper(Tensor):
            @classmethod
            def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
                pass
        for make in (lambda: Wrapper([1.0]),
                     lambda: Tensor._make_wrapper_subclass(Wrapper, (2,))):
            try:
                make()
            except NotImplementedError as error:
                print(str(error)[:34])
    """)
        == ["Wrapper defines __torch_dispatch__"] * 2
    )


def test_functions_keep_their_signatures_and_frames():
    assert run("""
        import inspect, sys
        before = {f: inspect.signature(f) for f in (weft.topk, Tensor.sum, F.linear)}
        Points([1.0])
        assert all(inspect.signature(f) == s for f, s in before.items())
        try:
            weft.topk(weft.ones(2), 9)
        except ValueError as error:
            trace = error.__traceback__
            while trace is not None:
                len(trace.tb_frame.f_locals)  # cells are there
                trace = trace.tb_next
            print("fine")
    """) == ["fine"]


@pytest.mark.parametrize("cls", ["int", "3"])
def test_as_subclass_wants_a_subclass(cls):
    assert run(f"""
        try:
            weft.ones(1).as_subclass({cls})
        except TypeError as error:
            print(str(error)[:44])
    """) == ["as_subclass: expected a subclass of Tensor, "]
