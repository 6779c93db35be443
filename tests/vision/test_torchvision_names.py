"""torchvision's names: transforms, data sets, models, boxes and pictures."""

import pickle
import struct

import numpy as np
import pytest

import weft
from weft.errors import ArgumentError, ShapeError
from weft.vision import datasets, models, ops, transforms, utils
from weft.vision.transforms import functional as F

RNG = np.random.default_rng(0)


# -- transforms


def test_tensors_and_arrays_are_transformed_alike():
    array = RNG.integers(0, 256, (6, 8, 3), dtype=np.uint8)
    image = F.pil_to_tensor(array)
    for function in (
        F.hflip, F.vflip,
        lambda x: F.crop(x, 1, 2, 3, 4),
        lambda x: F.center_crop(x, [2, 4]),
        lambda x: F.pad(x, [1, 2]),
        lambda x: F.pad(x, 2, padding_mode="reflect"),
        lambda x: F.pad(x, [1, 2, 3, 4], fill=7),
        lambda x: F.rgb_to_grayscale(x),
    ):  # fmt: skip
        want = np.atleast_3d(function(array))
        np.testing.assert_array_equal(function(image).numpy(), want.transpose(2, 0, 1))


def test_crops_pads_and_normalisation_have_gradients():
    x = weft.randn(2, 3, 6, 6, requires_grad=True)
    out = F.normalize(F.pad(F.center_crop(x, 4), 1), [0.5] * 3, [0.25] * 3)
    out.sum().backward()
    want = np.zeros((2, 3, 6, 6))
    want[:, :, 1:5, 1:5] = 4
    np.testing.assert_array_equal(x.grad.numpy(), want)


def test_resizing_keeps_the_aspect_of_one_number():
    x = weft.randn(3, 8, 12)
    assert transforms.Resize(4)(x).shape == (3, 4, 6)
    assert transforms.Resize((2, 3))(x).shape == (3, 2, 3)
    assert transforms.Resize([4])(x.transpose(1, 2)).shape == (3, 6, 4)
    ramp = weft.arange(8.0).expand(1, 8, 8)
    halved = F.resize(ramp, [8, 4], antialias=False)
    np.testing.assert_allclose(halved[0, 0].numpy(), [0.5, 2.5, 4.5, 6.5], rtol=1e-6)
    array = RNG.uniform(size=(9, 7, 2))
    for size in [(4, 5), (12, 20), (4, 20)]:
        want = weft.utils.transforms.Resize(size)(array).transpose(2, 0, 1)
        got = F.resize(weft.tensor(array.transpose(2, 0, 1)), list(size))
        np.testing.assert_allclose(got.numpy(), want, rtol=1e-12)
    with pytest.raises(ArgumentError, match="BILINEAR"):
        transforms.Resize(4, interpolation=transforms.InterpolationMode.BICUBIC)


def test_bad_pictures_are_refused():
    with pytest.raises(ShapeError, match="pad it first"):
        F.center_crop(weft.zeros(3, 2, 2), 4)
    with pytest.raises(TypeError, match="tensor of floats"):
        F.normalize(weft.zeros(3, 2, 2, dtype=weft.uint8), [0.5], [0.5])
    with pytest.raises(ValueError, match="no zero in std"):
        F.normalize(weft.zeros(1, 2, 2), [0.5], [0.0])


def test_dtypes_of_pictures_keep_white_white():
    bytes_ = weft.tensor([[[0, 128, 255]]], dtype=weft.uint8)
    floats = F.convert_image_dtype(bytes_, weft.float32)
    np.testing.assert_allclose(floats.numpy()[0, 0], [0, 128 / 255, 1])
    assert F.convert_image_dtype(floats, weft.uint8).tolist() == bytes_.tolist()


def test_transforms_compose_as_in_a_tutorial():
    steps = transforms.Compose([
        transforms.ToTensor(),
        transforms.RandomApply([transforms.RandomHorizontalFlip(1.0)], p=1.0),
        transforms.Normalize((0.1307,), (0.3081,)),
    ])  # fmt: skip
    out = steps(np.array([[0, 255]], np.uint8))
    want = (np.array([[[1.0, 0.0]]]) - 0.1307) / 0.3081
    np.testing.assert_allclose(out.numpy(), want, rtol=1e-6)


# -- data sets


def idx(array):
    head = struct.pack(f">HBB{array.ndim}I", 0, 8, array.ndim, *array.shape)
    return head + array.astype(np.uint8).tobytes()


def test_mnist_is_read_in_torchvisions_layout(tmp_path):
    raw = tmp_path / "MNIST" / "raw"
    raw.mkdir(parents=True)
    images, labels = RNG.integers(0, 256, (5, 28, 28)), np.arange(5)
    (raw / "train-images-idx3-ubyte").write_bytes(idx(images))
    (raw / "train-labels-idx1-ubyte").write_bytes(idx(labels))
    data = datasets.MNIST(tmp_path, train=True, download=True)
    assert len(data) == 5
    image, label = data[3]
    np.testing.assert_allclose(image.numpy()[0], images[3] / 255, rtol=1e-6)
    assert label == 3
    assert data.data.dtype is weft.uint8
    assert data.targets.tolist() == [0, 1, 2, 3, 4]
    with pytest.raises(RuntimeError, match=r"download=True: Weft downloads nothing"):
        datasets.MNIST(tmp_path, train=False, download=True)
    with pytest.raises(RuntimeError, match="FashionMNIST: not found"):
        datasets.FashionMNIST(tmp_path)


def test_cifar_is_read_from_the_python_version(tmp_path):
    folder = tmp_path / "cifar-10-batches-py"
    folder.mkdir()
    rows = RNG.integers(0, 256, (4, 3072), dtype=np.uint8)
    for name in [*(f"data_batch_{k}" for k in range(1, 6)), "test_batch"]:
        batch = {"data": rows, "labels": [0, 3, 9, 1]}
        (folder / name).write_bytes(pickle.dumps(batch, protocol=2))
    data = datasets.CIFAR10(tmp_path, train=True)
    assert len(data) == 20
    image, label = data[1]
    assert label == 3
    np.testing.assert_allclose(
        image.numpy(), rows[1].reshape(3, 32, 32) / 255, rtol=1e-6
    )
    assert len(datasets.CIFAR10(tmp_path, train=False)) == 4


def test_a_pickle_that_runs_code_is_refused(tmp_path):
    class Evil:
        def __reduce__(self):
            return eval, ("1",)

    folder = tmp_path / "cifar-10-batches-py"
    folder.mkdir()
    (folder / "test_batch").write_bytes(pickle.dumps(Evil()))
    with pytest.raises(pickle.UnpicklingError, match="no part of a data set"):
        datasets.CIFAR10(tmp_path, train=False)


def test_fake_data_is_the_same_for_the_same_number():
    data = datasets.FakeData(size=3, image_size=(3, 4, 4), num_classes=5)
    assert weft.equal(data[1][0], data[1][0])
    assert not weft.equal(data[1][0], data[2][0])
    with pytest.raises(IndexError):
        data[3]


# -- models


def test_models_have_torchvisions_parameters():
    net = models.resnet18(num_classes=7)
    state = net.state_dict()
    assert state["fc.weight"].shape == (7, 512)
    assert state["layer2.0.downsample.0.weight"].shape == (128, 64, 1, 1)
    assert state["layer1.1.bn2.running_var"].shape == (64,)
    features = models.make_layers([64, "M", 128], True).state_dict()
    assert features["0.weight"].shape == (64, 3, 3, 3)
    assert features["4.weight"].shape == (128, 64, 3, 3)
    assert "5.running_mean" in features
    with pytest.raises(RuntimeError, match="downloads no weights"):
        models.resnet18(weights="DEFAULT")


def test_weights_of_a_file_are_loaded(tmp_path):
    net = models.resnet18(num_classes=2)
    weft.save(net.state_dict(), tmp_path / "net.safetensors")
    other = models.resnet18(num_classes=2, weights=tmp_path / "net.safetensors")
    assert weft.equal(other.fc.weight, net.fc.weight)


# -- boxes


def plain_iou(a, b):
    wide = min(a[2], b[2]) - max(a[0], b[0])
    tall = min(a[3], b[3]) - max(a[1], b[1])
    inner = max(wide, 0) * max(tall, 0)
    area = [(x[2] - x[0]) * (x[3] - x[1]) for x in (a, b)]
    return inner / (sum(area) - inner)


def boxes(count):
    low = RNG.uniform(0, 8, (count, 2))
    return np.concatenate([low, low + RNG.uniform(1, 5, (count, 2))], 1)


def test_overlaps_and_suppression_follow_their_definition():
    a, b = boxes(6), boxes(5)
    want = [[plain_iou(x, y) for y in b] for x in a]
    got = ops.box_iou(weft.tensor(a), weft.tensor(b))
    np.testing.assert_allclose(got.numpy(), want, rtol=1e-12)
    many, scores = boxes(30), RNG.uniform(size=30)
    kept = []
    for k in np.argsort(-scores):
        if all(plain_iou(many[k], many[j]) <= 0.3 for j in kept):
            kept.append(int(k))
    assert ops.nms(weft.tensor(many), weft.tensor(scores), 0.3).tolist() == kept
    kinds = weft.tensor([0, 1] * 15)
    batched = ops.batched_nms(weft.tensor(many), weft.tensor(scores), kinds, 0.3)
    for kind in (0, 1):
        chosen = [k for k in batched.tolist() if k % 2 == kind]
        own = np.arange(kind, 30, 2)
        alone = ops.nms(weft.tensor(many[own]), weft.tensor(scores[own]), 0.3)
        assert chosen == own[alone.numpy()].tolist()


def test_boxes_change_their_form_and_back():
    given = weft.tensor(boxes(4))
    for form in ("xywh", "cxcywh", "xyxy"):
        there = ops.box_convert(given, "xyxy", form)
        back = ops.box_convert(there, form, "xyxy")
        np.testing.assert_allclose(back.numpy(), given.numpy(), rtol=1e-12)
    with pytest.raises(ValueError, match="expected forms"):
        ops.box_convert(given, "xyxy", "zork")


def test_a_frozen_norm_is_batch_norm_in_eval_mode():
    x = weft.randn(2, 3, 4, 4)
    norm = weft.nn.BatchNorm2d(3)
    with weft.no_grad():
        norm.weight.uniform_(), norm.bias.uniform_()
    norm(x)
    frozen = ops.FrozenBatchNorm2d(3)
    frozen.load_state_dict(norm.state_dict(), strict=False)
    want = norm.eval()(x).detach().numpy()
    np.testing.assert_allclose(frozen(x).numpy(), want, rtol=1e-5, atol=1e-6)


def test_dropped_branches_keep_their_mean():
    weft.manual_seed(0)
    out = ops.stochastic_depth(weft.ones(2000, 2), 0.25, "row").numpy()
    assert set(np.unique(out)) == {0.0, np.float32(1 / 0.75)}
    np.testing.assert_array_equal(out[:, 0], out[:, 1])
    assert abs(out.mean() - 1) < 0.05


# -- pictures


def test_a_grid_places_pictures_and_a_file_holds_them(tmp_path):
    images = weft.rand(3, 3, 2, 2)
    grid = utils.make_grid(images, nrow=2, padding=1, pad_value=0.5)
    assert grid.shape == (3, 2 * 3 + 1, 2 * 3 + 1)
    assert weft.equal(grid[:, 1:3, 4:6], images[1])
    assert weft.equal(grid[:, 4:6, 1:3], images[2])
    assert bool((grid[:, 0] == 0.5).all())
    scaled = utils.make_grid(images * 5 - 1, normalize=True)
    assert (scaled.min().item(), scaled.max().item()) == (0.0, 1.0)
    utils.save_image(images[0], tmp_path / "one.png")
    read = weft.datasets.read_image(tmp_path / "one.png")
    want = np.floor(images[0].numpy() * 255 + 0.5).transpose(1, 2, 0)
    np.testing.assert_array_equal(read, want)
    with pytest.raises(ValueError, match="expected a PNG"):
        utils.save_image(images, tmp_path / "one.jpg")


@pytest.mark.parametrize(
    ("name", "count", "end"),
    [
        ("densenet121", 7_978_856, "classifier.bias"),
        ("mobilenet_v2", 3_504_872, "classifier.1.bias"),
    ],
)
def test_networks_have_the_published_number_of_parameters(name, count, end):
    net = getattr(models, name)()
    assert sum(p.numel() for p in net.parameters()) == count
    assert list(net.state_dict())[-1] == end


def test_small_networks_train():
    weft.manual_seed(0)
    x, y = weft.randn(2, 3, 32, 32), weft.tensor([0, 1])
    for net in (
        models.DenseNet(4, (1, 1), 4, num_classes=2, drop_rate=0.1),
        models.MobileNetV2(2, 0.25, [(1, 8, 1, 1), (2, 8, 2, 2)]),
    ):
        loss = weft.nn.functional.cross_entropy(net(x), y)
        loss.backward()
        assert all(p.grad is not None for p in net.parameters())
    with pytest.raises(NotImplementedError, match="those of the paper"):
        models.MobileNetV2(norm_layer=weft.nn.BatchNorm2d)


def test_layers_of_a_resnet_are_its_children_in_order():
    net = models.resnet18(num_classes=3)
    features = weft.nn.Sequential(*list(net.children())[:-1]).eval()
    assert features(weft.ones(1, 3, 32, 32)).shape == (1, 512, 1, 1)


@pytest.mark.parametrize("shape", [(9, 12, 3), (9, 12)])
def test_pictures_of_pillow_are_transformed_as_arrays_and_stay_pictures(shape):
    Image = pytest.importorskip("PIL.Image")
    array = RNG.integers(0, 256, shape).astype(np.uint8)
    picture = Image.fromarray(array)
    for transform in (
        transforms.CenterCrop(4), transforms.Pad(2),
        transforms.RandomHorizontalFlip(1.0),
        transforms.RandomVerticalFlip(1.0), F.hflip, F.vflip,
    ):  # fmt: skip
        out = transform(picture)
        assert isinstance(out, Image.Image)
        np.testing.assert_array_equal(np.asarray(out), transform(array))
    want = np.asarray(picture.resize((5, 4), 2))
    np.testing.assert_array_equal(transforms.Resize((4, 5))(picture), want)
    np.testing.assert_array_equal(transforms.Grayscale()(picture), picture.convert("L"))
    assert np.shape(transforms.Grayscale(3)(picture)) == (9, 12, 3)
    ours = transforms.ToTensor()(picture)
    np.testing.assert_array_equal(ours, transforms.ToTensor()(array))
    assert F.get_image_size(picture) == [12, 9]
