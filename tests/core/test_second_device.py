"""Everything on a second device: the same values as on the CPU, and all of them there.

The devices are ``toy_device.Toy``, whose buffers are opaque, so that code that reads
host memory fails; a simulated GPU; and a real one, where there is one. Results that
come back on the CPU are found by where they are.
"""

import copy
import threading
import warnings

import numpy as np
import pytest
from cases import CASES, arrays
from layer_cases import CASES as LAYERS
from on_device import flat, rounding, runs, same
from simulated_gpu import simulated_gpu
from toy_device import Toy

import weft
from weft import nn, optim
from weft.core.op import all_ops

REAL = pytest.param("cuda", marks=pytest.mark.cuda)


@pytest.fixture(scope="module", params=["toy", "simulated", REAL])
def toy(request):
    if request.param == "cuda":
        yield weft.device("cuda")
        return
    device = weft.register_device(Toy() if request.param == "toy" else simulated_gpu())
    yield device
    weft.unregister_device(device.name)


# -- every operator, forward and backward


@pytest.mark.parametrize("name", [op.name for op in all_ops()])
def test_operators(name, toy, rng):
    op = weft.core.op.find_op(name)
    for sample in op.samples(rng):
        if any(isinstance(a, (np.ndarray, np.generic)) for a in sample.args):
            with np.errstate(all="ignore"):
                there, here = runs(op, sample, toy), runs(op, sample, "cpu")
            same(there, here, toy, close=rounding(toy, here))


# -- functions and methods, argument combination by combination

# What is about the host: its memory, its bytes, how it is laid out, and moving there.
OF_THE_HOST = (
    ".numpy()", "is_cpu", "is_cuda", '"cpu"', "x.view(T.", "stride()",
    "is_contiguous()", "n.view",
)  # fmt: skip


def evaluated(expression, device):
    names = {"T": weft, "F": weft}
    for name, given in arrays().items():
        names[name] = weft.tensor(np.array(given[0])).to(*given[1:]).to(device)
    names["n"] = names["w"].transpose(0, 2)
    weft.manual_seed(0)
    *statements, last = expression.split("; ")
    with warnings.catch_warnings(), np.errstate(all="ignore"), weft.device(device):
        warnings.simplefilter("ignore")
        try:
            for statement in statements:
                exec(statement, names)
            return eval(last, names)
        except Exception as error:
            return error


@pytest.mark.parametrize(
    "expression", [c for c in CASES if not any(text in c for text in OF_THE_HOST)]
)
def test_functions(expression, toy):
    there, here = evaluated(expression, toy), evaluated(expression, "cpu")
    if isinstance(here, Exception):
        assert type(there) is type(here)
    elif isinstance(there, Exception):
        raise there
    else:
        same(there, here, toy, close=1e-6)
        if not list(flat(here)):
            assert there == here or here != here


# -- layers and losses


@pytest.mark.parametrize("name", LAYERS)
def test_layers(name, toy):
    case, found = LAYERS[name], []
    for device in ("cpu", toy):
        weft.manual_seed(0)
        module = case.build(nn).train(case.train).double().to(device)
        xs = [weft.tensor(a).to(device) for a in case.arrays(0)]
        leaves = [x.requires_grad_() for x in xs if x.dtype.is_floating_point]
        out = module(*xs)
        if case.gradients:
            sum(
                (o * o).sum() for o in flat(out) if o.dtype.is_floating_point
            ).backward()
        grads = [x.grad for x in (*leaves, *module.parameters()) if x.grad is not None]
        found.append((out, grads, list(module.buffers())))
        assert all(p.device is weft.device(device) for p in module.parameters())
    same(found[1], found[0], toy, close=1e-9)


def test_layers_are_made_there(toy):
    for layer in (
        nn.Linear(2, 3, device=toy), nn.Conv2d(1, 2, 3, device=toy.name),
        nn.BatchNorm1d(2, device=toy), nn.Embedding(3, 2, device=toy),
        nn.LSTM(2, 2, device=toy), nn.MultiheadAttention(4, 2, device=toy),
        nn.LayerNorm(2, device=toy), nn.PReLU(device=toy),
        nn.Bilinear(2, 2, 2, device=toy),
    ):  # fmt: skip
        for tensor in (*layer.parameters(), *layer.buffers()):
            assert tensor.device is toy


@pytest.mark.parametrize("drop", [nn.Dropout, nn.Dropout2d, nn.AlphaDropout])
def test_dropout(drop, toy):
    found = []
    for device in ("cpu", toy):
        weft.manual_seed(0)
        found.append(drop(0.5)(weft.ones(2, 3, 4, 4).to(device)))
    same(found[1], found[0], toy)


# -- training


def trained(make, device, steps=3):
    weft.manual_seed(0)
    model = nn.Sequential(
        nn.Linear(3, 4, bias=False),
        nn.BatchNorm1d(4),
        nn.GELU(),
        nn.Dropout(0.2),
        nn.Linear(4, 2),
    ).to(device)
    optimizer = make(model.parameters())
    schedule = optim.lr_scheduler.StepLR(optimizer, 1)
    data = [(weft.rand(5, 3), weft.randint(0, 2, (5,))) for _ in range(steps)]
    for x, y in data:
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(x.to(device)), y.to(device))
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
    return model, optimizer, loss


OPTIMIZERS = {
    name: lambda params, kind=kind: kind(params, lr=0.1)
    for name, kind in vars(optim).items()
    if isinstance(kind, type)
    and issubclass(kind, optim.Optimizer)
    and name not in ("Optimizer", "LBFGS", "Muon", "SparseAdam")  # of few parameters
}


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_training(name, toy, tmp_path):
    here, _, loss = trained(OPTIMIZERS[name], "cpu")
    there, optimizer, moved = trained(OPTIMIZERS[name], toy)
    same(there.state_dict(), here.state_dict(), toy, close=1e-5)
    assert moved.item() == pytest.approx(loss.item(), rel=1e-5)
    state = [t for s in optimizer.state.values() for t in flat(s)]
    assert all(t.device is toy for t in state)
    weft.save(optimizer.state_dict(), tmp_path / "state")  # a file is of the host
    optimizer.load_state_dict(weft.load(tmp_path / "state"))
    assert all(t.device is toy for s in optimizer.state.values() for t in flat(s))


def test_lbfgs_says_that_it_is_for_the_cpu(toy):
    p = weft.ones(2).to(toy).requires_grad_()
    with pytest.raises(RuntimeError, match=f"LBFGS: expected.*on '{toy.name}'"):
        optim.LBFGS([p]).step(lambda: p.sum())


def test_metrics(toy):
    accuracy = weft.metrics.Accuracy()
    accuracy.update(weft.tensor([[0.1, 0.9]]).to(toy), weft.tensor([1]).to(toy))
    assert accuracy.compute() == 1


# -- modules and files


def test_modules_move(toy):
    model = nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2))
    before = list(model.parameters())
    model(weft.rand(3, 2)).sum().backward()
    assert model.to(toy.name) is model
    assert [id(p) for p in model.parameters()] == [id(p) for p in before]
    for tensor in (*model.parameters(), *model.buffers(), *(p.grad for p in before)):
        assert tensor.device is toy
    assert all(isinstance(p, nn.Parameter) and p.is_leaf for p in before)
    assert model.to(weft.float64)[0].weight.device is toy
    assert model.to("cpu", weft.float32)[0].weight.device is weft.device("cpu")
    assert type(model[0].weight) is weft.Tensor
    model.to(device=toy).cpu()(weft.rand(3, 2))


def test_state_goes_between_devices(toy, tmp_path):
    here, there = nn.Linear(2, 2), nn.Linear(2, 2).to(toy)
    there.load_state_dict(here.state_dict())
    same(there.state_dict(), here.state_dict(), toy)
    weft.save(dict(there.state_dict()), tmp_path / "there")
    there.load_state_dict(weft.load(tmp_path / "there"))
    assert there.weight.device is toy
    other = nn.Linear(2, 2)
    other.load_state_dict(there.state_dict(), assign=True)
    assert other.weight.device is toy
    assert other(weft.ones(1, 2).to(toy)).device is toy


def test_copies_stay_there(toy):
    layer = nn.Linear(2, 2).to(toy)
    twin = copy.deepcopy(layer)
    assert twin.weight.device is toy
    with weft.no_grad():
        twin.weight.zero_()
    assert layer.weight.abs().sum().item() > 0


# -- gradients between devices, and transforms there


def test_gradients_go_back_where_the_value_was(toy):
    x = weft.tensor([1.0, 2.0], requires_grad=True)
    y = (x.to(toy) ** 3).cpu()
    (y * y).sum().backward()
    assert x.grad.tolist() == [6.0, 192.0]
    (g,) = weft.autograd.grad((x.to(toy) ** 3).sum(), x, create_graph=True)
    g.sum().backward()
    assert x.grad.tolist() == [6.0 + 6, 192.0 + 12]
    with weft.no_grad():
        assert not x.to(toy).requires_grad


def test_gradients_of_leaves_are_memory_of_their_own(toy):
    x, y = (weft.ones(2).to(toy).requires_grad_() for _ in range(2))
    (x + y).sum().backward()
    x.grad.mul_(5)
    assert y.grad.tolist() == [1.0, 1.0]


def test_transforms(toy):
    x = weft.rand(3, 4, dtype=weft.float64).to(toy)
    cube = lambda a: (a**3).sum()
    assert weft.func.grad(cube)(x).device is toy
    assert weft.func.vmap(cube)(x).device is toy
    assert weft.func.jvp(cube, (x,), (x,))[1].device is toy
    same(weft.func.hessian(cube)(x[0]), weft.func.hessian(cube)(x[0].cpu()), toy)
    assert weft.autograd.gradcheck(cube, x.clone().requires_grad_())


def test_programs_are_for_devices_with_a_target(toy):
    double = weft.compile(lambda a: a * 2)
    double(weft.ones(2))
    if toy.target is not None:
        same(double(weft.ones(2).to(toy)), weft.full((2,), 2.0), toy)
        return
    with pytest.raises(
        RuntimeError, match=r"on the CPU, got 'a' on 'toy:0'.*\.cpu\(\)"
    ):
        double(weft.ones(2).to(toy))


# -- memory


def test_changes_in_place_are_seen_in_views_and_aliases(toy):
    x = weft.zeros(2, 3).to(toy)
    row, alias, turned = x[0], x.detach(), x.T
    row.add_(1)
    x[1, 2] = 5
    turned[0].mul_(2)
    expected = [[2.0, 1.0, 1.0], [0.0, 0.0, 5.0]]
    assert x.tolist() == alias.tolist() == turned.T.tolist() == expected
    assert row.tolist() == expected[0]
    with pytest.raises(RuntimeError, match="without copying"):
        turned.view(-1)
    with pytest.raises(RuntimeError, match="cannot be read as int32"):
        x.view(weft.int32)
    for look in (x.stride, x.is_contiguous, x.data_ptr, x.numpy):
        with pytest.raises(RuntimeError, match=rf"on '{toy.name}'.*\.cpu\(\)"):
            look()
    with pytest.raises(RuntimeError, match=rf"on '{toy.name}'.*\.cpu\(\)"):
        np.asarray(x)


def test_saved_values_that_change_are_noticed(toy):
    x = weft.ones(2).to(toy).requires_grad_()
    y = x * 2
    z = y * y
    y.add_(1)
    with pytest.raises(RuntimeError, match="add_"):
        z.sum().backward()


# -- several devices


BINARY = {
    "add": lambda a, b: a + b,
    "matmul": lambda a, b: a @ b,
    "where": lambda a, b: weft.where(a > 0, a, b),
    "cat": lambda a, b: weft.cat([a, b]),
    "add_": lambda a, b: a.add_(b),
    "index": lambda a, b: a[b.long()],
    "gather": lambda a, b: a.gather(0, b.long()),
    "setitem": lambda a, b: a.__setitem__(0, b[0]),
    "linear": lambda a, b: nn.functional.linear(a, b),
    "mse_loss": lambda a, b: nn.functional.mse_loss(a, b),
    "layer_norm": lambda a, b: nn.functional.layer_norm(a, (2,), b[0]),
}


@pytest.mark.parametrize("name", BINARY)
def test_tensors_of_two_devices_are_refused(name, toy):
    a, b = weft.ones(2, 2), weft.ones(2, 2)
    for first, second in ((a.to(toy), b), (a, b.to(toy))):
        with pytest.raises(RuntimeError, match=f"'{toy.name}'") as error:
            BINARY[name](first, second)
        assert ".to(" in str(error.value) or ".cpu()" in str(error.value)


def test_numbers_go_along(toy):
    x = weft.ones(2).to(toy)
    for out in (x * 2, x + weft.tensor(2.0), weft.where(x > 0, weft.tensor(1.0), x)):
        assert out.device is toy
    x[0] = weft.tensor(7.0)
    x[1] = 3
    assert x.tolist() == [7.0, 3.0]


def test_copy_goes_between_devices(toy):
    x = weft.zeros(2).to(toy)
    x.copy_(weft.tensor([1.0, 2.0]))
    assert weft.zeros(2).copy_(x).tolist() == x.tolist() == [1.0, 2.0]


# -- where tensors are made


FACTORIES = {
    "tensor": lambda **o: weft.tensor([1.0], **o),
    "as_tensor": lambda **o: weft.as_tensor([1.0], **o),
    "zeros": lambda **o: weft.zeros(2, **o),
    "ones": lambda **o: weft.ones(2, **o),
    "full": lambda **o: weft.full((2,), 3.0, **o),
    "empty": lambda **o: weft.empty(2, **o),
    "arange": lambda **o: weft.arange(3, **o),
    "linspace": lambda **o: weft.linspace(0, 1, 3, **o),
    "logspace": lambda **o: weft.logspace(0, 1, 3, **o),
    "eye": lambda **o: weft.eye(2, **o),
    "scalar_tensor": lambda **o: weft.scalar_tensor(2.0, **o),
    "rand": lambda **o: weft.rand(2, **o),
    "randn": lambda **o: weft.randn(2, **o),
    "randint": lambda **o: weft.randint(0, 5, (2,), **o),
    "randperm": lambda **o: weft.randperm(4, **o),
}


@pytest.mark.parametrize("name", FACTORIES)
def test_factories(name, toy):
    make = FACTORIES[name]
    cpu = weft.device("cpu")
    assert make().device is cpu
    assert make(device=toy).device is make(device=toy.name).device is toy
    with toy:
        assert make().device is toy
        assert make(device="cpu").device is cpu
        with weft.device("cpu"):
            assert make().device is cpu
        assert make().device is toy
    assert make().device is cpu


@pytest.mark.parametrize("like", ["zeros", "ones", "empty", "rand", "randn"])
def test_likes_follow_their_tensor(like, toy):
    make = getattr(weft, f"{like}_like")
    x = weft.ones(2).to(toy)
    assert make(x).device is toy
    assert make(x, device="cpu").device is weft.device("cpu")
    with toy:
        assert make(weft.ones(2, device="cpu")).device is weft.device("cpu")


def test_random_numbers_are_the_same_everywhere(toy):
    for name in ("rand", "randn", "randint", "randperm"):
        weft.manual_seed(3)
        here = FACTORIES[name]()
        weft.manual_seed(3)
        same(FACTORIES[name](device=toy), here, toy)


def test_the_default_device_is_the_threads(toy):
    weft.set_default_device(toy)
    try:
        assert weft.get_default_device() is weft.zeros(2).device is toy
        assert nn.Linear(2, 2)(weft.ones(1, 2)).device is toy
        found = []
        thread = threading.Thread(target=lambda: found.append(weft.zeros(2).device))
        thread.start()
        thread.join()
        assert found == [weft.device("cpu")]
    finally:
        weft.set_default_device(None)
    assert weft.zeros(2).device is weft.device("cpu")
