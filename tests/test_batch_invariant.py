"""With ``batch_invariant``, a row of a batch has the same bits in any batch."""

import numpy as np
import pytest

import weft
from weft import late, nn
from weft.config import Config
from weft.core import eager_kernels

F = nn.functional
MOST = 64
SIZES = 1, 2, 3, 5, 8, 17, 63


@pytest.fixture(autouse=True)
def settings(monkeypatch):
    monkeypatch.setattr(weft.config, "batch_invariant", True)
    weft.manual_seed(0)


def normal(*shape):
    rng = np.random.default_rng(shape)
    return weft.tensor(rng.normal(size=(MOST, *shape)).astype(np.float32))


def attend(x):
    return F.scaled_dot_product_attention(x, x, x, is_causal=True)


def shortcut(channels, out):
    """A convolution and its batch norm, whose scale must not move into the weights."""
    conv, norm = nn.Conv2d(channels, out, 3, padding=1, bias=False), nn.BatchNorm2d(out)
    norm.running_var.copy_(weft.rand(out) + 0.5)
    return nn.Sequential(conv, norm.eval(), nn.ReLU())


PROGRAMS = {
    "linear": (lambda: nn.Linear(64, 64), (64,)),
    "long linear": (lambda: nn.Linear(784, 33), (784,)),
    "deep linear": (lambda: nn.Linear(4096, 4), (4096,)),
    "wide linear": (lambda: nn.Linear(100, 600), (100,)),
    "linear of one": (lambda: nn.Linear(33, 1), (33,)),
    "linear of rows": (lambda: nn.Linear(40, 24), (9, 40)),
    "conv": (lambda: nn.Conv2d(3, 8, 3, padding=1), (3, 12, 12)),
    "conv of many channels": (lambda: nn.Conv2d(32, 32, 3, padding=1), (32, 8, 8)),
    "strided conv": (lambda: nn.Conv2d(16, 24, 1, stride=2), (16, 9, 9)),
    "pointwise conv": (lambda: nn.Conv2d(256, 256, 1), (256, 14, 14)),
    "conv and norm": (lambda: shortcut(16, 16), (16, 6, 6)),
    "attention": (lambda: attend, (4, 20, 16)),
    "short attention": (lambda: attend, (2, 5, 8)),
    "softmax": (lambda: lambda x: x.softmax(-1), (100,)),
    "long softmax": (lambda: lambda x: x.softmax(-1), (5000,)),
    "layer_norm": (lambda: lambda x: F.layer_norm(x, (768,)), (768,)),
    "gelu": (lambda: F.gelu, (700,)),
    "mean": (lambda: lambda x: x.mean((1, 2)), (50, 60)),
    "mean of channels": (lambda: lambda x: x.mean(1), (50, 60)),
}


def check(fn, x, sizes=SIZES):
    """Compare parts of a batch, from its beginning and its end, with the whole."""
    with weft.no_grad():
        whole = fn(x).numpy()
        for n in sizes:
            for rows in (slice(n), slice(MOST - n, MOST)):
                got = fn(x[rows]).numpy()
                np.testing.assert_array_equal(got, whole[rows], err_msg=f"{n} rows")


@pytest.mark.parametrize("name", PROGRAMS)
def test_eager_programs(name):
    make, shape = PROGRAMS[name]
    check(make(), normal(*shape))


@pytest.mark.parametrize("name", PROGRAMS)
def test_compiled_programs(name):
    make, shape = PROGRAMS[name]
    program = make()
    check(weft.compile(lambda x: program(x)), normal(*shape))


@pytest.mark.parametrize("name", PROGRAMS)
def test_programs_compiled_for_one_size(name):
    make, shape = PROGRAMS[name]
    program = make()
    check(weft.compile(lambda x: program(x), dynamic=False), normal(*shape), (1, 3))


def networks():
    gpt = weft.models.GPT(vocab=40, context=24, width=64, heads=4, layers=2)
    yield gpt.eval(), weft.randint(0, 40, (MOST, 24))
    net = weft.models.resnet18(classes=10, cifar=True, width=16)
    for module in net.modules():
        if isinstance(module, nn.BatchNorm2d):
            module.running_var.copy_(weft.rand(module.running_var.numel()) + 0.5)
    yield net.eval(), normal(3, 16, 16)


def test_networks():
    for net, x in networks():
        check(lambda x, net=net: net(x), x, (1, 3, 8))
        check(weft.compile(lambda x, net=net: net(x)), x, (1, 3, 8))


def test_an_infinity_in_another_row_changes_no_bit():
    conv, x = nn.Conv2d(32, 32, 3, padding=1), normal(32, 8, 8)
    odd = x.clone()
    odd[5] = float("inf")
    with weft.no_grad():
        want, got = conv(x).numpy(), conv(odd).numpy()
    np.testing.assert_array_equal(got[:5], want[:5])
    np.testing.assert_array_equal(got[6:], want[6:])


def test_the_option_of_compile_is_the_setting_during_calls(monkeypatch):
    monkeypatch.setattr(weft.config, "batch_invariant", False)
    program = nn.Linear(300, 17)
    fn = weft.compile(lambda x: program(x), batch_invariant=True)
    check(fn, normal(300))
    assert not weft.config.batch_invariant
    weft.config.batch_invariant = True
    with weft.no_grad():
        want = weft.compile(lambda x: program(x))(normal(300))
        assert weft.equal(fn(normal(300)), want)


def test_without_it_batches_matter(monkeypatch):
    """Else these tests would see nothing."""
    monkeypatch.setattr(weft.config, "batch_invariant", False)
    program = nn.Linear(784, 256)
    with pytest.raises(AssertionError):
        check(program, normal(784))
    with pytest.raises(AssertionError):
        check(weft.compile(lambda x: program(x)), normal(784))


def test_without_llvmlite_it_is_refused(monkeypatch):
    def refuse(name):
        raise ImportError(f"there is no llvmlite for {name}")

    monkeypatch.setattr(eager_kernels, "_kernels", None)
    monkeypatch.setattr(late, "find", refuse)
    for program in (
        lambda: nn.Linear(3, 3)(weft.ones(2, 3)),
        lambda: attend(normal(2, 2)),
    ):
        with pytest.raises(
            weft.errors.WeftError, match="batch_invariant: expected llvm"
        ):
            program()


def test_another_setting_is_another_program():
    program = nn.Linear(300, 17)
    fn = weft.compile(lambda x: program(x))
    with weft.no_grad():
        fn(normal(300))
        with weft.config.using(batch_invariant=False):
            fn(normal(300))
    assert "batch_invariant is False, was True" in fn.compiles[1].why


def test_the_environment(monkeypatch):
    for value, on in (("0", False), ("1", True)):
        monkeypatch.setenv("WEFT_BATCH_INVARIANT", value)
        assert Config().batch_invariant is on
