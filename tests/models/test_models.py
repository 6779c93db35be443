"""Every model runs, has the size it should, and learns."""

import pytest

import weft
from weft import models, nn, optim


def images(channels, size, classes=3):
    """Images whose class is where they are bright: easy to learn."""
    y = weft.randint(0, classes, (12,))
    x = 0.1 * weft.randn(12, channels, size, size)
    band = size // classes
    for k in range(12):
        start = int(y[k]) * band
        x[k, :, start : start + band] += 1.0
    return x, y


def learns(model, loss_of, steps=25, lr=0.01):
    optimizer = optim.Adam(model, lr=lr)
    first = None
    for _ in range(steps):
        optimizer.zero_grad()
        loss = loss_of(model)
        loss.backward()
        optimizer.step()
        first = loss.item() if first is None else first
    assert all(p.grad is not None for p in model.parameters())
    assert loss.item() < 0.7 * first, (first, loss.item())


CLASSIFIERS = {
    "MLP": (lambda: models.MLP([2 * 64, 16, 3]), (2, 8)),
    "LeNet": (lambda: models.LeNet(classes=3), (1, 28)),
    "VGG": (lambda: models.VGG(11, classes=3, width=1 / 16, dropout=0.0), (3, 32)),
    "ResNet CIFAR": (lambda: models.resnet18(classes=3, cifar=True, width=4), (3, 12)),
    "ResNet bottleneck": (
        lambda: models.ResNet(models.resnet.Bottleneck, [1, 1], 3, width=4), (3, 24),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CLASSIFIERS)
def test_classifiers(name):
    build, shape = CLASSIFIERS[name]
    x, y = images(*shape)
    learns(build(), lambda m: nn.functional.cross_entropy(m(x), y), steps=15)


def test_parameter_counts_match_the_papers():
    count = lambda m: sum(p.numel() for p in m.parameters())
    assert count(models.LeNet()) == 61_706
    assert count(models.resnet18(classes=1000)) == 11_689_512
    assert count(models.resnet34(classes=1000)) == 21_797_672


def test_gpt_learns_a_loop_and_generates_it():
    weft.manual_seed(0)
    ids = weft.arange(64).remainder(5).reshape(4, 16)
    model = models.GPT(vocab=5, context=16, width=16, heads=2, layers=1)

    def loss_of(m):
        return nn.functional.cross_entropy(m(ids[:, :-1]).transpose(1, 2), ids[:, 1:])

    learns(model, loss_of, steps=60)
    out = model.generate(weft.tensor([[0, 1, 2]]), 6, temperature=0.01)
    assert out.tolist()[0] == [0, 1, 2, 3, 4, 0, 1, 2, 3]
    assert model.head.weight is model.token.weight
    with pytest.raises(ValueError, match="17 tokens do not fit into a context of 16"):
        model(weft.zeros(1, 17, dtype=weft.int64))


def test_gpt_sees_only_the_past():
    model = models.GPT(vocab=5, context=8, width=8, heads=2, layers=2)
    a = weft.tensor([[1, 2, 3, 4]])
    b = weft.tensor([[1, 2, 3, 0]])
    x, y = model(a).detach(), model(b).detach()
    assert weft.allclose(x[:, :3], y[:, :3], atol=1e-6)
    assert not weft.allclose(x[:, 3], y[:, 3], atol=1e-6)


def test_sequence_models():
    ids = weft.randint(1, 6, (8, 7))
    y = (ids[:, 0] > 3).long()
    net = models.EncoderClassifier(6, 2, width=16, heads=2, layers=1)
    learns(net, lambda m: nn.functional.cross_entropy(m(ids), y), steps=40)
    padded = weft.cat([ids, weft.zeros(8, 3, dtype=weft.int64)], 1)
    assert weft.allclose(net(ids), net(padded), atol=1e-5)  # padding changes nothing
    lstm = models.CharLSTM(6, width=16)

    def loss_of(m):
        return nn.functional.cross_entropy(
            m(ids[:, :-1])[0].transpose(1, 2), ids[:, 1:]
        )

    learns(lstm, loss_of, steps=40, lr=0.03)
    assert lstm.generate(ids[:1, :2], 4).shape == (1, 6)


def test_graph_network():
    edges = weft.tensor([[0, 1, 3, 4, 2], [1, 2, 4, 5, 0]])  # two triangles
    a = models.normalized_adjacency(edges, 6)
    y = weft.tensor([0, 0, 0, 1, 1, 1])
    x = weft.eye(6)
    learns(models.GCN(6, 8, 2), lambda m: nn.functional.cross_entropy(m(x, a), y))


def test_generative_models():
    x = weft.rand(16, 8)
    auto = models.Autoencoder([8, 16, 4])
    learns(auto, lambda m: nn.functional.mse_loss(m(x), x), steps=60)
    fake = models.Generator(noise=4, width=2)(weft.randn(3, 4))
    assert fake.shape == (3, 1, 32, 32)
    assert (fake.abs() <= 1).all()
    score = models.Discriminator(width=2)(fake)
    score.sum().backward()
    assert score.shape == (3,)
