"""Models that PyTorch writes: equal here, compiled too, and with gradients."""

import io
import warnings

import numpy as np
import pytest

import weft

torch = pytest.importorskip("torch")
pytest.importorskip("onnx")


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = torch.nn.Conv2d(3, 8, 3, padding=1)
        self.norm = torch.nn.BatchNorm2d(8)
        self.head = torch.nn.Linear(8, 5)

    def forward(self, x):
        h = torch.relu(self.norm(self.conv(x)))
        h = torch.nn.functional.max_pool2d(h, 2, ceil_mode=True)
        h = torch.nn.functional.interpolate(h, scale_factor=2, mode="bilinear")
        return self.head(h.mean((2, 3)))


class Text(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = torch.nn.Embedding(20, 8)
        self.lstm = torch.nn.LSTM(8, 6, 2, batch_first=True, bidirectional=True)
        self.gru = torch.nn.GRU(12, 4, batch_first=True)

    def forward(self, x):
        return self.gru(self.lstm(self.embed(x))[0])[0]


class Sizes(torch.nn.Module):
    def forward(self, x):
        y = x.view(x.shape[0], -1, 2).permute(0, 2, 1)
        z = torch.cat([y, y.flip(2) + 1], 2)
        return z[:, :, ::2].cumsum(-1), torch.nn.functional.pad(
            z, (1, 2), mode="reflect"
        )


def written(net, x, opset):
    file = io.BytesIO()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(
            net.eval(), (x,), file, dynamo=False, opset_version=opset,
            input_names=["x"], dynamic_axes={"x": {0: "n"}},
        )  # fmt: skip
    return file.getvalue()


EXAMPLES = {
    "net": (Net, lambda n: torch.randn(n, 3, 9, 9)),
    "text": (Text, lambda n: torch.randint(0, 20, (n, 5))),
    "sizes": (Sizes, lambda n: torch.randn(n, 8)),
}


@pytest.mark.parametrize("opset", [11, 13, 17])
@pytest.mark.parametrize("name", EXAMPLES)
def test_models_of_pytorch(name, opset):
    torch.manual_seed(0)
    made, inputs = EXAMPLES[name]
    net = made()
    loaded = weft.onnx.load(written(net, inputs(2), opset))
    for n in (2, 3):
        x = inputs(n)
        with torch.no_grad():
            want = net(x)
        want = want if isinstance(want, tuple) else (want,)
        for run in (loaded, weft.compile(loaded)):
            found = run(weft.from_numpy(x.numpy()))
            found = found if isinstance(found, tuple) else (found,)
            for have, w in zip(found, want, strict=True):
                have = have.detach().numpy()
                np.testing.assert_allclose(have, w.numpy(), rtol=1e-4, atol=1e-5)


def test_gradients_are_pytorchs():
    torch.manual_seed(0)
    net, x = Net(), torch.randn(2, 3, 9, 9)
    loaded = weft.onnx.load(written(net, x, 17))
    net(x).square().sum().backward()
    loaded(weft.from_numpy(x.numpy())).square().sum().backward()
    mine = dict(loaded.named_parameters())
    for name in ("head.weight", "head.bias"):
        want = net.get_parameter(name).grad.numpy()
        np.testing.assert_allclose(mine[name].grad.numpy(), want, rtol=1e-4, atol=1e-4)
