"""``import torch`` as Weft: modules, names, versions, and what is not there."""

import importlib
import importlib.metadata
import importlib.util
import pickle
import sys

import pytest

import weft
import weft.torch
from weft.torch.version import TorchVersion


@pytest.fixture
def torch():
    if "torch" in sys.modules:
        pytest.skip("PyTorch itself is imported in this process")
    with weft.torch.installed() as module:
        yield module
    assert "torch" not in sys.modules


MODULES = {
    "torch.nn.functional": "weft.nn.functional",
    "torch.nn.modules.conv": "weft.nn",
    "torch.nn.modules.batchnorm": "weft.nn",
    "torch.nn.utils.rnn": "weft.nn.utils.rnn",
    "torch.nn.utils.clip_grad": "weft.nn.utils",
    "torch.nn.parameter": "weft.nn.parameter",
    "torch.optim.lr_scheduler": "weft.optim.lr_scheduler",
    "torch.optim.adamw": "weft.optim",
    "torch.utils.data.dataloader": "weft.utils.data",
    "torch.utils.data.dataset": "weft.utils.data.dataset",
    "torch.utils.checkpoint": "weft.utils.checkpoint",
    "torch.autograd.function": "weft.autograd.function",
    "torch.backends.cudnn": "weft.backends.cudnn",
    "torch.cuda.amp.grad_scaler": "weft.cuda.amp",
    "torch.autograd.profiler": "weft.profiler",
    "torch.version": "weft.version",
}


@pytest.mark.parametrize("name", MODULES)
def test_modules_are_found_where_pytorch_has_them(torch, name):
    module = importlib.import_module(name)
    assert module.__name__ == name
    assert module._target.__name__ in (MODULES[name], name.replace("torch", "weft", 1))
    parent, _, last = name.rpartition(".")
    assert getattr(importlib.import_module(parent), last) is module


def test_names_are_wefts(torch):
    from torch.nn.modules.conv import Conv2d
    from torch.optim.lr_scheduler import StepLR
    from torch.utils.data.dataloader import DataLoader

    assert Conv2d is torch.nn.Conv2d is weft.nn.Conv2d
    assert StepLR is weft.optim.lr_scheduler.StepLR
    assert DataLoader is weft.utils.data.DataLoader
    assert torch.nn.functional.relu is weft.nn.functional.relu
    assert torch.Tensor is weft.Tensor
    assert isinstance(torch.zeros(1), torch.Tensor)


def test_star_imports_give_public_names_and_keep_builtins(torch):
    scope = {}
    exec("from torch import *", scope)
    assert scope["zeros"] is weft.zeros
    assert scope["float32"] is weft.float32
    assert "sum" not in scope
    assert "map" not in scope
    inner = {}
    exec("from torch.optim import *", inner)
    assert inner["Adam"] is weft.optim.Adam


def test_versions_satisfy_checks(torch):
    assert torch.__version__ == "2.13.0+weft"
    assert torch.__version__ >= "2.0"
    assert torch.__version__ > "1.9.1"
    assert torch.__version__ >= (2, 1)
    assert torch.__version__.startswith("2.")
    assert torch.version.__version__ == "2.13.0+weft"
    assert torch.version.cuda is None
    assert isinstance(torch.__version__, torch.torch_version.TorchVersion)
    assert importlib.metadata.version("torch") == "2.13.0+weft"
    assert importlib.metadata.version("torchvision").endswith("+weft")
    assert importlib.metadata.version("numpy") == weft.core.dispatch.np.__version__
    packaging = pytest.importorskip("packaging.version")
    assert packaging.parse(torch.__version__) > packaging.parse("2.4")


@pytest.mark.parametrize(
    ("low", "high"),
    [
        ("2.9.1", "2.13.0"),
        ("2.13.0", "2.13.0+weft"),
        ("2.13.0rc1", "2.13"),
        ("2.13.0.dev20250101", "2.13.0a0"),
        ("2.13.0a0", "2.13.0b1"),
        ("2.13", "2.13.1"),
        ((2, 12), "2.13.0"),
    ],
)
def test_versions_are_ordered_by_their_numbers(low, high):
    assert TorchVersion(high) > low
    assert TorchVersion(high) != low
    assert not TorchVersion(high) <= low
    if isinstance(low, str):
        assert TorchVersion(low) < high
        assert max(TorchVersion(low), TorchVersion(high)) == high
    assert TorchVersion("2.13") == "2.13.0" == TorchVersion("2.13.0")


def test_a_text_that_is_no_version_is_not_ordered():
    assert TorchVersion("2.0") != "nightly"
    with pytest.raises(ValueError, match="expected a version"):
        assert TorchVersion("2.0") < "nightly"


def test_libraries_can_look_for_it(torch):
    assert importlib.util.find_spec("torch").name == "torch"
    assert importlib.util.find_spec("torch.nn.functional") is not None
    assert importlib.util.find_spec("torch.no_such_module") is None
    assert torch.__spec__.name == "torch"
    assert torch.__path__ == []
    assert torch.__file__ == weft.__file__
    assert "Linear" in dir(torch.nn)


# -- names that are not there


def test_a_missing_name_is_told_with_the_line(torch):
    with pytest.raises(AttributeError, match=r"no name 'torch\.zork' yet") as caught:
        torch.zork
    assert f"at {__file__}:" in str(caught.value)
    assert "torch.zork" in str(caught.value).splitlines()[-1]
    assert not hasattr(torch, "zork")
    assert getattr(torch.nn, "Zork", 3) == 3


def test_a_missing_name_in_an_import_is_told_too(torch):
    with pytest.raises(ImportError, match=r"no name 'torch\.nn\.Zork' yet"):
        from torch.nn import Zork  # noqa: F401
    with pytest.raises(ModuleNotFoundError, match=r"no module 'torch\.zork' yet"):
        import torch.zork.inner  # noqa: F401


def test_what_is_deliberately_absent_says_what_to_do(torch):
    with pytest.raises(ImportError, match=r"no C\+\+ or CUDA extensions.*custom_op"):
        from torch.utils import cpp_extension  # noqa: F401
    with pytest.raises(ImportError, match=r"no C\+\+ or CUDA extensions"):
        import torch.utils.cpp_extension
    with pytest.raises(AttributeError, match=r"init_method='tcp://"):
        torch.distributed.FileStore
    with pytest.raises(AttributeError, match=r"C\+\+ core"):
        torch._C._no_such
    with pytest.raises(ImportError, match=r"ONNX"):
        from torch.onnx import ExportOptions  # noqa: F401


# -- setting names, pickles, switching on and off


def test_what_is_set_is_set_in_weft(torch, monkeypatch):
    monkeypatch.setattr(torch.nn.functional, "relu", lambda x: x + 7)
    assert weft.nn.functional.relu(weft.zeros(1)).item() == 7
    monkeypatch.undo()
    assert torch.nn.functional.relu is weft.nn.functional.relu
    assert weft.nn.functional.relu(-weft.ones(1)).item() == 0
    torch.mine = 3
    assert weft.mine == 3
    del torch.mine
    assert not hasattr(weft, "mine")
    assert not hasattr(torch, "mine")


def test_setting_a_name_reaches_the_modules_that_use_it(torch):
    assert not isinstance(weft.nn, type(torch.nn))
    import torch.nn.functional  # the import sets a name of its parent

    assert weft.nn.functional.__name__ == "weft.nn.functional"


def test_names_are_unpickled_by_pytorchs_paths(torch):
    assert pickle.loads(b"ctorch.nn.modules.linear\nLinear\n.") is weft.nn.Linear
    net = pickle.loads(pickle.dumps(torch.nn.Linear(2, 3)))
    assert net.weight.shape == (3, 2)
    assert pickle.loads(pickle.dumps(torch.nn)) is torch.nn


def test_pytorch_itself_is_refused(monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", type(sys)("torch"))
    with pytest.raises(RuntimeError, match="torch itself is already imported"):
        weft.torch.install()
    assert not any("weft.torch" in type(f).__module__ for f in sys.meta_path)


def test_install_twice_and_uninstall(torch):
    weft.torch.install()
    assert importlib.import_module("torch") is torch
    with weft.torch.installed() as again:
        assert again is torch
    assert sys.modules["torch"] is torch


# -- compiled functions that read names of torch


def test_compiled_functions_read_names_of_torch(torch):
    import torch.nn.functional as F

    compiled = torch.compile(lambda x: F.gelu(torch.cat([x, x])) * torch.pi_of)
    torch.pi_of = 2.0
    try:
        x = torch.randn(3)
        want = F.gelu(torch.cat([x, x])) * 2
        for _ in range(3):
            assert torch.allclose(compiled(x), want)
    finally:
        del torch.pi_of


def test_torch_compile_runs_eagerly_what_it_cannot_capture(torch):
    seen = []

    @torch.compile
    def f(x):
        seen.append(x.sum().item())  # needs the value, and changes a list outside
        return x * 2

    assert [f(torch.full((2,), float(k))).tolist() for k in range(3)] == [
        [0.0, 0.0], [2.0, 2.0], [4.0, 4.0]
    ]  # fmt: skip
    assert seen == [0.0, 2.0, 4.0]
    assert f.eager_calls == 3
    assert len(f.refused) == 1
    with pytest.raises(RuntimeError):
        torch.compile(f.fn, fullgraph=True)(torch.ones(2))


def test_modules_in_plain_lists_are_not_members(torch):
    """A teacher in a list is no parameter to train or to save, as in PyTorch."""

    class Student(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.teacher = [torch.nn.Linear(2, 2)]
            self.scales = {"a": torch.nn.Parameter(torch.ones(1))}
            self.own = torch.nn.Linear(2, 2)

        def forward(self, x):
            return self.own(x) - self.teacher[0](x) * self.scales["a"]

    net = Student()
    assert [name for name, _ in net.named_parameters()] == ["own.weight", "own.bias"]
    assert list(net.state_dict()) == ["own.weight", "own.bias"]
    assert list(net.children()) == [net.own]
    net.eval()
    assert net.teacher[0].training
    compiled, x = torch.compile(net), torch.ones(1, 2)
    for factor in (1.0, 2.0):
        with torch.no_grad():
            net.teacher[0].weight.mul_(factor)
        torch.testing.assert_close(compiled(x), net(x))
