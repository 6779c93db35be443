"""ResNets take torchvision's weights, by torchvision's names and shapes."""

import pytest

import weft
from weft import models


def norm(name, channels):
    per_channel = ("weight", "bias", "running_mean", "running_var")
    shapes = {f"{name}.{kind}": (channels,) for kind in per_channel}
    return {**shapes, f"{name}.num_batches_tracked": ()}


def basic(name, cin, width, stride):
    """The names of a block of two 3x3 convolutions."""
    yield from {f"{name}.conv1.weight": (width, cin, 3, 3)}.items()
    yield from norm(f"{name}.bn1", width).items()
    yield from {f"{name}.conv2.weight": (width, width, 3, 3)}.items()
    yield from norm(f"{name}.bn2", width).items()
    if stride != 1:
        yield f"{name}.downsample.0.weight", (width, cin, 1, 1)
        yield from norm(f"{name}.downsample.1", width).items()


def bottleneck(name, cin, width, stride):
    """The names of a block of 1x1, 3x3 and 1x1 convolutions."""
    sizes = [(width, cin, 1, 1), (width, width, 3, 3), (4 * width, width, 1, 1)]
    for k, size in enumerate(sizes, 1):
        yield f"{name}.conv{k}.weight", size
        yield from norm(f"{name}.bn{k}", size[0]).items()
    if cin != 4 * width:
        yield f"{name}.downsample.0.weight", (4 * width, cin, 1, 1)
        yield from norm(f"{name}.downsample.1", 4 * width).items()


def torchvision(block, counts, expansion):
    shapes = {"conv1.weight": (64, 3, 7, 7), **norm("bn1", 64)}
    channels = 64
    for k, count in enumerate(counts):
        width = 64 * 2**k
        for i in range(count):
            stride = 2 if k and i == 0 else 1
            shapes |= dict(block(f"layer{k + 1}.{i}", channels, width, stride))
            channels = width * expansion
    return {**shapes, "fc.weight": (1000, channels), "fc.bias": (1000,)}


NETWORKS = {
    "resnet18": (basic, [2, 2, 2, 2], 1, 122),
    "resnet34": (basic, [3, 4, 6, 3], 1, 218),
    "resnet50": (bottleneck, [3, 4, 6, 3], 4, 320),
}


@pytest.mark.parametrize("name", NETWORKS)
def test_names_and_shapes(name):
    block, counts, expansion, size = NETWORKS[name]
    expected = torchvision(block, counts, expansion)
    assert len(expected) == size  # the entries of torchvision's own file
    state = getattr(models, name)().state_dict()
    assert {k: v.shape for k, v in state.items()} == expected


def test_a_file_with_those_names_loads_strictly(tmp_path):
    path = tmp_path / "resnet18.safetensors"
    shapes = torchvision(*NETWORKS["resnet18"][:3])
    random = weft.Generator().manual_seed(3)
    state = {
        k: weft.tensor(7)
        if k.endswith("tracked")
        else weft.rand(*shape, generator=random)
        for k, shape in shapes.items()
    }
    weft.save(state, path)
    net = models.resnet18().eval()
    net.load_state_dict(weft.load(path))
    assert all(weft.equal(v, state[k]) for k, v in net.state_dict().items())
    del state["layer2.0.downsample.0.weight"]
    with pytest.raises(RuntimeError, match=r"missing .*layer2\.0\.downsample"):
        net.load_state_dict(state)
