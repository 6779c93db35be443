"""Namespaces that PyTorch has around tensors: profiler, jit, library, hub, ..."""

import io
import json
import warnings

import numpy as np
import pytest

import weft
from weft.errors import AbsentDeviceError, ArgumentError, AutogradError

# -- profiler


def test_a_profile_counts_operators_and_nests_blocks():
    x = weft.randn(4, 4, requires_grad=True)
    with weft.profiler.profile(record_shapes=True) as prof:
        with weft.profiler.record_function("outer"):
            for _ in range(3):
                y = (x @ x).sum()
        y.backward()
    rows = {row.key: row for row in prof.key_averages()}
    assert rows["outer"].count == 1
    assert rows["sum"].count == 3
    assert rows["matmul"].count == 3 + 2  # forward, and the gradients of two operands
    assert rows["outer"].cpu_time_total > rows["outer"].self_cpu_time_total > 0
    shapes = {row.input_shapes for row in prof.key_averages(group_by_input_shape=True)}
    assert "[[4, 4], [4, 4]]" in shapes
    table = prof.key_averages().table(sort_by="self_cpu_time_total", row_limit=2)
    assert len(table.splitlines()) == 2 + 5
    assert "Self CPU time total" in table
    with pytest.raises(ArgumentError, match="expected sort_by"):
        prof.key_averages().table(sort_by="zork")


def test_inner_time_is_taken_off_and_nothing_is_recorded_outside(monkeypatch):
    clock = iter(range(100))
    monkeypatch.setattr(weft.profiler.time, "perf_counter", lambda: next(clock))
    record = weft.profiler.record_function
    with weft.profiler.profile() as prof, record("a"), record("b"):
        pass  # a is from 0 to 3, b from 1 to 2
    with weft.profiler.record_function("c"):
        pass
    found = {e.name: (e.cpu_time_total, e.self_cpu_time_total) for e in prof.events()}
    assert found == {"b": (1e6, 1e6), "a": (3e6, 2e6)}


def test_a_schedule_chooses_steps_and_traces_are_handed_over(tmp_path):
    ready = []
    plan = weft.profiler.schedule(wait=1, warmup=1, active=2, repeat=1)

    def keep(prof):
        ready.append([event.name for event in prof.events()])
        weft.profiler.tensorboard_trace_handler(str(tmp_path))(prof)

    with weft.profiler.profile(schedule=plan, on_trace_ready=keep) as prof:
        for step in range(6):
            with weft.profiler.record_function(f"step {step}"):
                pass
            prof.step()
    assert ready == [["step 2", "step 3"]]
    [file] = tmp_path.iterdir()
    trace = json.loads(file.read_text())["traceEvents"]
    assert [row["name"] for row in trace] == ["step 2", "step 3"]
    assert all(row["ph"] == "X" and row["dur"] >= 0 for row in trace)


# -- jit


class Net(weft.nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = weft.nn.Linear(3, 2)

    def forward(self, x):
        return self.fc(x).relu() if x.sum() > 0 else self.fc(x)


def test_scripted_and_traced_modules_give_what_eager_ones_do():
    net, x = Net(), weft.randn(4, 3)
    scripted = weft.jit.script(net)
    traced = weft.jit.trace(net, x)
    for given in (x, -x, x[:2]):
        assert weft.allclose(scripted(given), net(given))
        assert weft.allclose(traced(given), net(given))
    assert isinstance(scripted, weft.jit.ScriptModule)
    assert isinstance(scripted, Net)
    assert not isinstance(net, weft.jit.ScriptModule)
    assert list(scripted.state_dict()) == ["fc.weight", "fc.bias"]
    assert weft.jit.script(Net) is Net


def test_a_traced_program_is_saved_and_loaded():
    x, file = weft.randn(4, 3), io.BytesIO()
    net = weft.nn.Sequential(weft.nn.Linear(3, 2), weft.nn.Tanh())
    weft.jit.save(weft.jit.trace(net, (x,)), file)
    loaded = weft.jit.load(io.BytesIO(file.getvalue()))
    assert weft.allclose(loaded(x), net(x))
    with pytest.raises(ArgumentError, match=r"call it once"):
        weft.jit.save(weft.jit.script(net), io.BytesIO())
    with pytest.raises(ArgumentError, match=r"torch\.jit\.trace"):
        weft.jit.save(net, io.BytesIO())


# -- library


def test_a_custom_operator_has_the_gradient_it_is_given():
    @weft.library.custom_op("test::cube", mutates_args=())
    def cube(x: weft.Tensor) -> weft.Tensor:
        return weft.from_numpy(x.numpy() ** 3)

    x = weft.tensor([2.0, 3.0], requires_grad=True)
    assert cube(x).tolist() == [8.0, 27.0]
    with pytest.raises(AutogradError, match=r"test::cube has no gradient"):
        cube(x).sum().backward()

    def setup(ctx, inputs, output):
        ctx.save_for_backward(*inputs)

    cube.register_autograd(
        lambda ctx, g: 3 * g * ctx.saved_tensors[0] ** 2, setup_context=setup
    )
    cube(x).sum().backward()
    assert x.grad.tolist() == [12.0, 27.0]
    assert cube(x.detach()).requires_grad is False


def test_a_custom_operator_may_change_its_arguments():
    @weft.library.custom_op("test::add_one_", mutates_args=("x",))
    def add_one_(x: weft.Tensor) -> None:
        x.add_(1)

    x = weft.zeros(2)
    assert add_one_(x) is None
    assert x.tolist() == [1.0, 1.0]
    with pytest.raises(ArgumentError, match=r"'mylib::op'"):
        weft.library.custom_op("no_namespace", lambda x: x, mutates_args=())
    with pytest.raises(ArgumentError, match=r"no operator 'test::none'"):
        weft.library.register_fake("test::none", lambda x: x)


# -- hub


def test_models_come_from_a_local_folder(tmp_path, monkeypatch):
    (tmp_path / "hubconf.py").write_text(
        "import weft\n\ndef small(width=2):\n    'A small net.'\n"
        "    return weft.nn.Linear(width, 1)\n"
    )
    assert weft.hub.list(tmp_path, source="local") == ["small"]
    assert weft.hub.help(tmp_path, "small", source="local") == "A small net."
    net = weft.hub.load(tmp_path, "small", source="local", width=3)
    assert net.weight.shape == (1, 3)
    with pytest.raises(RuntimeError, match=r"no model 'large'; there are: small"):
        weft.hub.load(tmp_path, "large", source="local")
    with pytest.raises(ArgumentError, match=r"would download 'pytorch/vision'"):
        weft.hub.load("pytorch/vision", "resnet18")


def test_weights_that_are_here_are_loaded(tmp_path):
    weft.save({"w": weft.ones(2)}, tmp_path / "net.safetensors")
    url = "https://host/models/net.safetensors"
    state = weft.hub.load_state_dict_from_url(url, model_dir=str(tmp_path))
    assert state["w"].tolist() == [1.0, 1.0]
    with pytest.raises(RuntimeError, match=r"downloads nothing; fetch https://host/no"):
        weft.hub.load_state_dict_from_url("https://host/no.pt", str(tmp_path))


# -- futures


def test_futures_carry_values_and_errors():
    future = weft.futures.Future()
    seen = []
    future.add_done_callback(lambda f: seen.append(f.value()))
    after = future.then(lambda f: 1 / f.wait())
    assert not future.done()
    with pytest.raises(RuntimeError, match="no value yet"):
        future.value()
    future.set_result(0)
    assert seen == [0]
    with pytest.raises(ZeroDivisionError):
        after.wait()
    with pytest.raises(RuntimeError, match="already"):
        future.set_result(1)
    failed = weft.futures.Future()
    failed.set_exception(KeyError("x"))
    with pytest.raises(KeyError):
        weft.futures.wait_all([failed])
    assert weft.futures.collect_all([]).wait() == []


# -- compiler, switches, devices


def test_a_disabled_function_keeps_its_caller_eager():
    seen = []

    @weft.compiler.disable(reason="it counts")
    def count(x):
        seen.append(1)
        return x

    f = weft.compiler.compile(lambda x: count(x) + 1)
    assert [f(weft.zeros(1)).item() for _ in range(3)] == [1.0, 1.0, 1.0]
    assert len(seen) == 3
    assert len(f.compiles) == 0
    with pytest.raises(RuntimeError, match=r"excluded .* \(it counts\)"):
        weft.compile(lambda x: count(x) + 1)(weft.zeros(1))


def test_code_knows_whether_it_is_compiled():
    def f(x):
        return x + 1 if weft.compiler.is_compiling() else x + 2

    assert f(weft.zeros(1)).item() == 2
    assert weft.compile(f)(weft.zeros(1)).item() == 1


def test_devices_that_are_not_here_can_be_named_but_not_used():
    device = weft.device("cuda", 1)
    assert (device.type, device.index, str(device)) == ("cuda", 1, "cuda:1")
    assert device is weft.device("cuda:1") != weft.device("cuda")
    assert weft.zeros(1).device != device
    for use in (
        lambda: weft.zeros(2, device=device),
        lambda: weft.zeros(2).to(device),
        lambda: weft.nn.Linear(2, 2).to(device),
        lambda: weft.cuda.synchronize(),
        lambda: weft.cuda.Stream(),
    ):
        with pytest.raises(AbsentDeviceError, match="is not available"):
            use()
    with device, pytest.raises(AssertionError, match="'cuda:1' is not available"):
        weft.zeros(1)
    assert weft.zeros(1).device == weft.device("cpu")


def test_a_device_decorates_functions():
    @weft.device("cpu")
    def make(n):
        """Make zeros."""
        return weft.zeros(n)

    assert make.__doc__ == "Make zeros."
    assert make(2).device == weft.device("cpu")


def test_options_of_torch_compile_are_understood_or_refused():
    def f(x):
        return x * 2

    assert weft.compile(f, disable=True) is f
    assert weft.compile(f, backend="eager") is f
    assert weft.compile(f, mode="reduce-overhead")(weft.ones(1)).item() == 2
    assert weft.compile(f, mode="max-autotune").tune > 0
    for options, text in [
        ({"backend": "zork"}, "expected backend 'inductor'"),
        ({"mode": "zork"}, "expected mode to be one of"),
        ({"options": {"triton.cudagraphs": True}}, "PyTorch's Inductor"),
    ]:
        with pytest.raises(ArgumentError, match=text):
            weft.compile(f, **options)


# -- compiled where it can be


def test_a_refused_call_is_eager_with_the_same_random_numbers():
    import random

    def f(x):
        return x * random.random() + float(np.random.rand())

    compiled = weft.compile(f, fullgraph=False)
    random.seed(3), np.random.seed(3)
    got = [compiled(weft.ones(1)).item() for _ in range(3)]
    random.seed(3), np.random.seed(3)
    assert got == [f(weft.ones(1)).item() for _ in range(3)]
    assert compiled.eager_calls == 3


@pytest.mark.parametrize(("first", "most"), [(True, 16), (False, 3)])
def test_a_function_that_is_refused_again_and_again_is_left_alone(first, most):
    """Sooner where no kind of call has ever been captured."""

    def f(x, k):
        return x * 2 if k is None else x * float(x.sum())

    compiled = weft.compile(f, fullgraph=False)
    for k in [None] * first + list(range(40)):
        assert compiled(weft.ones(2), k).tolist() == [2.0, 2.0]
    assert compiled.eager_calls == 40
    assert len(compiled.refused) == most


def test_errors_of_the_function_are_those_of_an_eager_call():
    f = weft.compile(lambda x: x @ weft.ones(3, 3), fullgraph=False)
    with pytest.raises(weft.errors.ShapeError):
        f(weft.ones(2, 2))


def test_a_refused_call_prints_once(capsys):
    def f(x):
        print("called")
        return x * x.sum().item()

    compiled = weft.compile(f, fullgraph=False)
    for _ in range(2):
        compiled(weft.ones(1))
    assert capsys.readouterr().out == "called\ncalled\n"


def test_modules_are_compiled_with_their_gradients():
    from weft.compile.frontend.automatic import compiled_modules

    net = weft.nn.Sequential(weft.nn.Linear(3, 4), weft.nn.Tanh(), weft.nn.Linear(4, 1))
    x = weft.randn(5, 3)

    def gradients():
        net.zero_grad()
        net(x).square().sum().backward()
        return [p.grad.numpy().copy() for p in net.parameters()]

    want = gradients()
    with compiled_modules() as tried:
        for _ in range(3):
            for got, expected in zip(gradients(), want, strict=True):
                np.testing.assert_allclose(got, expected, rtol=1e-5, atol=1e-6)
        weft.nn.ReLU()(x)  # a single layer is not worth it
        net.eval()
        net(x[:2])
    assert [one.name for one in tried] == ["Sequential"]
    assert len(tried[0].function.compiles) >= 2
    assert str(tried[0]).startswith("Sequential: ")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        net(x)
    assert len(tried) == 1


class Neuron(weft.nn.Module):
    """A layer with a state that is neither a parameter nor a buffer."""

    def __init__(self):
        super().__init__()
        self.layer = weft.nn.Linear(3, 3)
        self.memory = {"v": 0.0}

    def forward(self, x):
        self.memory["v"] = self.memory["v"] * 0.5 + self.layer(x)
        return self.memory["v"].tanh()


def test_modules_with_a_state_of_their_own_run_eagerly():
    from weft.compile.frontend.automatic import compiled_modules

    neuron, x = Neuron(), weft.randn(1, 3)
    want = [neuron(x).detach().numpy() for _ in range(4)]
    neuron.memory["v"] = 0.0
    with compiled_modules() as tried:
        got = [neuron(x).detach().numpy() for _ in range(4)]
    np.testing.assert_allclose(got, want, rtol=1e-6)
    assert "would stay behind" in str(tried[0])


class Irrep(tuple):
    """A pair that is no sequence, as e3nn has it."""

    __slots__ = ()

    def __len__(self):
        raise NotImplementedError


def test_modules_may_hold_tuples_without_a_length():
    net = weft.nn.Sequential(weft.nn.Linear(3, 2), weft.nn.Tanh())
    net.irrep = Irrep((1, 2))
    assert weft.compile(net)(weft.ones(1, 3)).shape == (1, 2)


def test_what_a_hook_notes_of_a_module_has_values():
    from weft.compile.frontend.automatic import compiled_modules

    net = weft.nn.Sequential(weft.nn.Linear(3, 3), weft.nn.Tanh())
    net[0].weight.calls = 0

    def note(module, _, out):
        module.noted.append(out.detach())
        net[0].weight.calls += 1

    for module in net:
        module.noted = []
        module.register_forward_hook(note)
    with compiled_modules():
        for _ in range(3):
            out = net(weft.randn(2, 3))
    assert [len(module.noted) for module in net] == [3, 3]
    assert net[0].weight.calls == 6
    np.testing.assert_allclose(net[1].noted[-1].numpy(), out.detach().numpy())


@pytest.mark.parametrize("create_graph", [False, True])
def test_gradients_of_weights_can_be_viewed(create_graph):
    layer = weft.nn.Linear(3, 5)
    loss = layer(weft.randn(2, 3)).sin().sum()
    found = weft.autograd.grad(loss, layer.parameters(), create_graph=create_graph)
    assert [g.stride() for g in found] == [(3, 1), (1,)]
    assert found[0].view(-1).shape == (15,)
    assert found[0].requires_grad == create_graph
