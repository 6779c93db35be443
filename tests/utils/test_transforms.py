"""Transforms: exact values, distributions, and one seed for all of them."""

import colorsys
import math

import numpy as np
import pytest

import weft
from weft.errors import ArgumentError, DTypeError, ShapeError
from weft.utils import transforms as T
from weft.utils.data import DataLoader, Dataset
from weft.utils.transforms import draws

PHOTO = np.random.default_rng(0).integers(0, 256, (6, 8, 3), dtype=np.uint8)
RANDOM = [
    T.RandomCrop(4, padding=2),
    T.RandomResizedCrop(5),
    T.RandomHorizontalFlip(),
    T.RandomVerticalFlip(),
    T.RandomRotation(30),
    T.RandomAffine(10, (0.2, 0.1), (0.8, 1.2), 5),
    T.ColorJitter(0.4, 0.4, 0.4, 0.1),
    T.RandomErasing(value="random"),
]


def name(transform):
    return type(transform).__name__


def within(count, trials, p):
    """Whether a count is within five deviations of what p makes it."""
    return abs(count - trials * p) < 5 * math.sqrt(trials * p * (1 - p))


# -- all of them


@pytest.mark.parametrize("transform", RANDOM, ids=name)
def test_the_seed_decides(transform):
    def draw(seed):
        weft.manual_seed(seed)
        return [transform(PHOTO).tolist() for _ in range(6)]

    assert draw(1) == draw(1) != draw(2)


@pytest.mark.parametrize("transform", [*RANDOM, T.CenterCrop(3), T.Resize(4)], ids=name)
def test_images_keep_their_kind_and_are_not_changed(transform):
    before = PHOTO.copy()
    tensor = weft.from_numpy(np.moveaxis(PHOTO, -1, 0) / np.float32(255))
    for image in (PHOTO, PHOTO[:, :, :1], PHOTO[:, :, 0], tensor):
        out = transform(image)
        assert type(out) is type(image)
        assert out.dtype == image.dtype
        assert out.ndim == image.ndim
    assert (before == PHOTO).all()


@pytest.mark.parametrize(
    "transform",
    [t for t in RANDOM if not isinstance(t, (T.ColorJitter, T.RandomErasing))],
    ids=name,
)
def test_arrays_and_tensors_agree(transform):
    floats = (PHOTO / 255).astype(np.float32)
    for _ in range(4):
        state = weft.get_rng_state()
        a = transform(floats)
        weft.set_rng_state(state)
        b = transform(weft.from_numpy(np.moveaxis(floats, -1, 0)))
        assert (np.moveaxis(b.numpy(), 0, -1) == a).all()


@pytest.mark.parametrize("transform", RANDOM, ids=name)
def test_other_things_are_refused(transform):
    with pytest.raises(DTypeError, match=f"{name(transform)}: expected a NumPy array"):
        transform([[1, 2]])
    with pytest.raises(ShapeError, match=r"\(C, H, W\), got \(3,\)"):
        transform(weft.ones(3))


def test_workers_draw_the_same():
    class Photos(Dataset):
        transform = T.Compose([*RANDOM[:1], *RANDOM[2:], T.ToTensor()])

        def __len__(self):
            return 12

        def __getitem__(self, index):
            return self.transform(PHOTO)

    made = [
        np.stack([b.numpy() for b in DataLoader(Photos(), 4, num_workers=n, seed=3)])
        for n in (0, 2)
    ]
    assert (made[0] == made[1]).all()
    flat = made[0].reshape(12, -1)
    assert len(np.unique(flat, axis=0)) == 12


def test_single_draws_are_the_generators_words():
    from weft.ops.random import random_words

    weft.manual_seed(12)
    words = random_words(12, 0, 8)
    assert draws.uniform() == words[0] / 2**32
    assert draws.integer(3, 9) == 3 + int(words[4]) * 7 // 2**32
    assert weft.get_rng_state().tolist() == [12, 2]
    counts = np.bincount([draws.integer(0, 3) for _ in range(2000)])
    assert all(within(c, 2000, 1 / 4) for c in counts)
    firsts = np.bincount([draws.order(4)[0] for _ in range(2000)])
    assert all(within(c, 2000, 1 / 4) for c in firsts)


# -- composition


def test_order_matters():
    crop, flip = T.CenterCrop((6, 5)), T.RandomHorizontalFlip(1.0)
    edge = T.Lambda(lambda image: image[:, :3])
    a, b = T.Compose([flip, edge])(PHOTO), T.Compose([edge, flip])(PHOTO)
    assert (a == PHOTO[:, ::-1][:, :3]).all()
    assert (b == PHOTO[:, :3][:, ::-1]).all()
    assert (a != b).any()
    normal = T.Normalize([0.5] * 3, [0.5] * 3)
    assert T.Compose([crop, T.ToTensor(), normal])(PHOTO).shape == (3, 6, 5)
    with pytest.raises(DTypeError, match="use ToTensor first"):
        T.Compose([normal, T.ToTensor()])(PHOTO)
    with pytest.raises(DTypeError, match="got int"):
        T.Compose([flip, 3])


# -- values


def test_to_tensor_and_normalize():
    x = T.ToTensor()(PHOTO)
    assert x.dtype is weft.float32
    want = np.moveaxis(PHOTO.astype(np.float32) / np.float32(255), -1, 0)
    assert (x.numpy() == want).all()
    floats = PHOTO.astype(np.float32)
    copy = T.ToTensor()(floats)
    copy.zero_()
    assert (floats == PHOTO).all()
    y = T.Normalize([0.1, 0.2, 0.3], [0.5, 1, 2])(x)
    np.testing.assert_allclose(y[2].numpy(), (want[2] - 0.3) / 2, rtol=1e-5, atol=1e-6)
    with pytest.raises(ShapeError, match="3 channels, got 2"):
        T.Normalize([1, 1], [1, 1])(x)
    with pytest.raises(ArgumentError, match="std above 0"):
        T.Normalize([0], [0])


def test_random_crop_reaches_every_place_equally():
    places = np.arange(1, 17).reshape(4, 4)
    crop = T.RandomCrop(2)
    counts = np.bincount([crop(places)[0, 0] for _ in range(3000)], minlength=17)
    used = [1, 2, 3, 5, 6, 7, 9, 10, 11]
    assert all(within(counts[i], 3000, 1 / 9) for i in used)
    assert counts.sum() == counts[used].sum()


def test_random_crop_pads():
    seen = {
        T.RandomCrop(2, padding=1, fill=9)(np.zeros((2, 2)))[0, 0] for _ in range(60)
    }
    assert seen == {0.0, 9.0}
    edge = T.RandomCrop(4, padding=1, padding_mode="edge")(np.ones((2, 2)))
    assert (edge == 1).all()
    with pytest.raises(ShapeError, match="at least 9x9, got 6x8"):
        T.RandomCrop(9)(PHOTO)
    with pytest.raises(ArgumentError, match="sizes above 0, got 0"):
        T.RandomCrop(0)


def test_center_crop():
    assert (T.CenterCrop((2, 4))(PHOTO) == PHOTO[2:4, 2:6]).all()
    with pytest.raises(ShapeError, match="CenterCrop"):
        T.CenterCrop(7)(PHOTO)


@pytest.mark.parametrize(
    ("transform", "axis"), [(T.RandomHorizontalFlip, 1), (T.RandomVerticalFlip, 0)]
)
def test_flips(transform, axis):
    assert (transform(1.0)(PHOTO) == np.flip(PHOTO, axis)).all()
    assert (transform(0.0)(PHOTO) == PHOTO).all()
    flips = sum((transform(0.3)(PHOTO) != PHOTO).any() for _ in range(1000))
    assert within(flips, 1000, 0.3)
    with pytest.raises(ArgumentError, match="p between 0 and 1"):
        transform(2)


def test_random_resized_crop_boxes():
    crop = T.RandomResizedCrop(4, scale=(0.2, 0.6), ratio=(0.5, 2.0))
    boxes = np.array([crop.box(100, 100) for _ in range(400)])
    y, x, h, w = boxes.T
    assert (y >= 0).all()
    assert (y + h <= 100).all()
    assert (x + w <= 100).all()
    area, aspect = h * w / 1e4, w / h
    assert 0.19 < area.min() < 0.25
    assert 0.5 < area.max() < 0.61
    assert 0.48 < aspect.min() < 0.6
    assert 1.7 < aspect.max() < 2.05
    # log(aspect) is uniform, hence symmetric about 0.
    assert abs(np.log(aspect).mean()) < 5 * math.log(2) / math.sqrt(3 * 400)
    whole = T.RandomResizedCrop(4, scale=(2.0, 3.0))  # never fits
    assert whole.box(10, 40) == (0, 13, 10, 13)


def loop_resize(image, size, antialias):
    """Each output pixel as a weighted mean, one at a time."""
    out = np.zeros((*size, image.shape[2]))
    for i in range(size[0]):
        for j in range(size[1]):
            total = 0.0
            for y in range(image.shape[0]):
                for x in range(image.shape[1]):
                    weight = 1.0
                    h, w = image.shape[:2]
                    for place, n, m, at in ((y, h, size[0], i), (x, w, size[1], j)):
                        centre = (at + 0.5) * n / m - 0.5
                        reach = max(n / m, 1.0) if antialias else 1.0
                        if not antialias:
                            centre = min(max(centre, 0), n - 1)
                        weight *= max(0.0, 1 - abs(place - centre) / reach)
                    out[i, j] += weight * image[y, x]
                    total += weight
            out[i, j] /= total
    return out


@pytest.mark.parametrize("size", [(3, 4), (9, 5), (6, 8), (1, 1)])
@pytest.mark.parametrize("antialias", [True, False])
def test_resize_is_bilinear(size, antialias):
    image = PHOTO.astype(np.float64)
    got = T.Resize(size, antialias)(image)
    want = loop_resize(image, size, antialias)
    np.testing.assert_allclose(got, want, rtol=1e-12)
    # A value half way between two integers may go either way.
    whole = T.Resize(size, antialias)(PHOTO)
    assert np.abs(whole - want).max() <= 0.5 + 1e-4


def test_resize_of_the_shorter_side():
    assert T.Resize(3)(PHOTO).shape == (3, 4, 3)
    assert T.Resize(3)(PHOTO.transpose(1, 0, 2)).shape == (4, 3, 3)


def test_quarter_turns_are_exact():
    square = PHOTO[:, :6]
    for quarter in range(4):
        angle = 90 * quarter
        turn = T.RandomRotation((angle, angle), interpolation="nearest")
        assert (turn(square) == np.rot90(square, quarter)).all()
        smooth = T.RandomRotation((angle, angle))(square.astype(np.float64))
        np.testing.assert_allclose(smooth, np.rot90(square, quarter), atol=1e-9)


def test_affine_shifts_and_scales():
    dot = np.zeros((5, 5))
    dot[2, 2] = 1
    shift = T.RandomAffine(0, translate=(0.4, 0.0), interpolation="nearest")
    xs = [np.argwhere(shift(dot)).tolist() for _ in range(200)]
    assert {tuple(p[0]) for p in xs} == {(2, x) for x in range(5)}
    double = T.RandomAffine(0, scale=(3, 3), interpolation="nearest")(dot)
    assert (double == np.pad(np.ones((3, 3)), 1)).all()
    ramp = np.tile(np.arange(9.0), (9, 1))
    sheared = T.RandomAffine(0, shear=(45, 45), interpolation="bilinear")(ramp)
    np.testing.assert_allclose(sheared[4], ramp[4])
    np.testing.assert_allclose(sheared[5, 1:], ramp[5, :-1], atol=1e-12)
    filled = T.RandomRotation((45, 45), fill=7)(np.zeros((9, 9)))
    assert filled[0, 0] == 7


def test_rotation_angles_are_uniform():
    ramp = np.tile(np.arange(31.0) - 15, (31, 1))
    turned = [T.RandomRotation((-40, 40))(ramp)[15:17, 15] for _ in range(400)]
    # One step down the column goes by sin(angle) along the ramp.
    angles = np.degrees(np.arcsin([below - middle for middle, below in turned]))
    assert -40 <= angles.min() < -35
    assert 35 < angles.max() <= 40
    assert abs(angles.mean()) < 5 * 40 / math.sqrt(3 * 400)


@pytest.mark.parametrize("bad", [{"degrees": -1}, {"degrees": (5, 1)},
    {"degrees": 0, "translate": (2, 0)}, {"degrees": 0, "scale": (0, 1)},
    {"degrees": 0, "interpolation": "cubic"}])  # fmt: skip
def test_bad_affine_options(bad):
    with pytest.raises(ArgumentError, match="RandomAffine"):
        T.RandomAffine(**bad)


# -- colours


def test_color_factors():
    image = PHOTO / 255
    bright = T.ColorJitter(brightness=(0.5, 0.5))(image)
    np.testing.assert_allclose(bright, image / 2)
    grey = image @ [0.299, 0.587, 0.114]
    flat = T.ColorJitter(contrast=(0, 0))(image)
    np.testing.assert_allclose(flat, np.full_like(image, grey.mean()))
    pale = T.ColorJitter(saturation=(0, 0))(image)
    np.testing.assert_allclose(pale, np.repeat(grey[..., None], 3, -1))
    assert T.ColorJitter(brightness=(3, 3))(PHOTO).max() == 255


def test_hue_against_the_standard_library():
    image = PHOTO / 255
    turned = T.ColorJitter(hue=(0.2, 0.2))(image)
    for row, out in zip(image.reshape(-1, 3), turned.reshape(-1, 3), strict=True):
        h, s, v = colorsys.rgb_to_hsv(*row)
        np.testing.assert_allclose(out, colorsys.hsv_to_rgb((h + 0.2) % 1, s, v))
    greys = np.full((2, 2, 3), 0.4)
    np.testing.assert_allclose(T.ColorJitter(hue=(0.3, 0.3))(greys), greys)


def test_jitter_order_is_random():
    jitter = T.ColorJitter(brightness=(3, 3), contrast=(0.2, 0.2))
    assert len({jitter(PHOTO).tobytes() for _ in range(40)}) == 2
    still = T.ColorJitter()(PHOTO)
    assert (still == PHOTO).all()


def test_brightness_is_uniform():
    white = np.full((1, 1, 3), 0.5)
    values = [T.ColorJitter(brightness=0.4)(white)[0, 0, 0] * 2 for _ in range(1000)]
    assert 0.6 <= min(values) < 0.62
    assert 1.38 < max(values) <= 1.4
    assert abs(np.mean(values) - 1) < 5 * 0.4 / math.sqrt(3 * 1000)


def test_bad_colors():
    with pytest.raises(ArgumentError, match="hue between"):
        T.ColorJitter(hue=0.7)
    with pytest.raises(ArgumentError, match="brightness >= 0"):
        T.ColorJitter(brightness=-1)
    with pytest.raises(ShapeError, match="1 or 3 channels, got 2"):
        T.ColorJitter()(PHOTO[:, :, :2])


# -- erasing and mixing


def test_erasing_hits_one_box():
    erase = T.RandomErasing(1.0, scale=(0.1, 0.3), value=7)
    areas = []
    for _ in range(100):
        hit = (erase(weft.zeros(2, 20, 20)) == 7).numpy()
        assert (hit[0] == hit[1]).all()
        rows_, cols = np.nonzero(hit[0].any(1))[0], np.nonzero(hit[0].any(0))[0]
        assert hit[0].sum() == len(rows_) * len(cols)
        assert len(rows_) == rows_[-1] - rows_[0] + 1
        areas.append(hit[0].mean())
    assert 0.08 < min(areas) < 0.15
    assert 0.25 < max(areas) < 0.33
    kept = sum(
        (T.RandomErasing(0.25, value=7)(PHOTO) == PHOTO).all() for _ in range(400)
    )
    assert within(kept, 400, 0.75)


def batch():
    images = weft.arange(4.0).reshape(4, 1, 1, 1) * weft.ones(4, 3, 8, 8)
    return images, weft.tensor([0, 1, 2, 3])


def test_mixup_blends_images_and_labels_alike():
    images, labels = batch()
    for _ in range(10):
        x, y = T.MixUp(1.0, num_classes=4)(images, labels)
        # An image's value is its label, so the blend's is the labels' mean.
        mean = y.numpy() @ np.arange(4)
        want = mean[:, None, None, None] * np.ones((3, 8, 8))
        np.testing.assert_allclose(x.numpy(), want, rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(y.numpy().sum(1), 1, rtol=1e-6)
    again, soft = T.MixUp(1.0)(images, y)
    assert soft.shape == (4, 4)
    assert again.dtype is weft.float32


def test_mixup_shares_follow_beta():
    pair = weft.tensor([0.0, 1.0]).reshape(2, 1, 1, 1), weft.tensor([0, 1])
    shares = []
    while len(shares) < 500:
        x, _ = T.MixUp(2.0, num_classes=2)(*pair)
        if x[0].item():  # mixed with the other one
            shares.append(x[0].item())
    # Beta(2, 2) has mean 1/2 and variance 1/20.
    assert abs(np.mean(shares) - 0.5) < 5 * math.sqrt(1 / 20 / 500)
    assert abs(np.var(shares) - 1 / 20) < 0.02


def test_cutmix_labels_follow_the_area():
    images, labels = batch()
    cuts = set()
    for _ in range(20):
        x, y = T.CutMix(1.0, num_classes=4)(images, labels)
        assert set(np.unique(x.numpy())) <= {0.0, 1.0, 2.0, 3.0}
        for i in range(4):
            share = (x[i].numpy() == i).mean()
            assert y[i, i].item() == pytest.approx(share, abs=1e-6)
            cuts.add(share)
    assert len(cuts) > 5


def test_mixing_refuses_what_does_not_fit():
    images, labels = batch()
    with pytest.raises(ArgumentError, match="MixUp: integer labels need num_classes"):
        T.MixUp()(images, labels)
    with pytest.raises(ShapeError, match=r"CutMix: .*\(4, 3, 8, 8\) and \(2,\)"):
        T.CutMix(num_classes=4)(images, labels[:2])
    with pytest.raises(DTypeError, match="float images"):
        T.MixUp(num_classes=4)(images.to(weft.uint8), labels)
    with pytest.raises(ArgumentError, match="alpha above 0"):
        T.MixUp(0)
