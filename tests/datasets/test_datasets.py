"""Data sets: what they hold, and what they say about files that are damaged."""

import gzip
import hashlib
import importlib.resources
import struct
import sys
import zlib

import numpy as np
import pytest

import weft
from weft import datasets
from weft.errors import ArgumentError, FileFormatError, OutOfRangeError
from weft.utils import transforms as T
from weft.utils.data import DataLoader

RNG = np.random.default_rng(0)


# -- digits


def test_digits_are_the_published_ones():
    train, test = datasets.Digits(), datasets.Digits(train=False)
    assert (len(train), len(test)) == (1437, 360)
    counts = np.bincount([*train.targets, *test.targets])
    # The numbers of the ten digits in the set's own description.
    assert counts.tolist() == [178, 182, 177, 183, 181, 182, 181, 179, 174, 180]
    assert np.unique(train.data).tolist() == np.rint(np.arange(17) * 255 / 16).tolist()
    first, label = test[0]  # the file's first line is a zero
    assert label == 0
    sixteenths = np.rint(first.numpy()[0] * 16)
    assert sixteenths[0].tolist() == [0, 0, 5, 13, 9, 1, 0, 0]
    assert sixteenths[7].tolist() == [0, 0, 6, 13, 10, 0, 0, 0]


def test_digits_come_with_their_licence():
    folder = importlib.resources.files("weft.datasets") / "data"
    text = (folder / "LICENSE-digits.txt").read_text()
    assert "CC BY 4.0" in text
    assert "Alpaydin" in text


def test_digits_load_in_batches():
    flip = T.Compose([T.RandomHorizontalFlip(1.0), T.ToTensor()])
    plain, flipped = (
        next(iter(DataLoader(datasets.Digits(transform=t), 16))) for t in (None, flip)
    )
    assert plain[0].shape == (16, 1, 8, 8)
    assert plain[1].dtype is weft.int64
    assert (plain[0].numpy()[..., ::-1] == flipped[0].numpy()).all()
    x, y = datasets.Digits().tensors()
    assert (x[:16].numpy() == plain[0].numpy()).all()
    assert (y[:16].numpy() == plain[1].numpy()).all()


def test_digits_can_be_learnt():
    """Nearest class means already tell most digits: images and labels fit."""
    x, y = (t.numpy() for t in datasets.Digits().tensors())
    means = np.stack([x[y == digit].mean(0) for digit in range(10)])
    x, y = (t.numpy() for t in datasets.Digits(train=False).tensors())
    distance = ((x[:, None] - means) ** 2).sum((2, 3, 4))
    assert (distance.argmin(1) == y).mean() > 0.85


# -- MNIST


def idx(array, code=8):
    head = bytes([0, 0, code, array.ndim]) + struct.pack(
        f">{array.ndim}I", *array.shape
    )
    return head + array.tobytes()


IMAGES = RNG.integers(0, 256, (6, 28, 28), dtype=np.uint8)
LABELS = np.arange(6, dtype=np.uint8)


def write_mnist(folder, packed=False, images=None, labels=None):
    folder.mkdir(parents=True, exist_ok=True)
    for part in ("train", "t10k"):
        for kind, content in (
            ("images-idx3", idx(IMAGES) if images is None else images),
            ("labels-idx1", idx(LABELS) if labels is None else labels),
        ):
            name = f"{part}-{kind}-ubyte" + (".gz" if packed else "")
            data = gzip.compress(content) if packed else content
            (folder / name).write_bytes(data)


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("inner", ["", "MNIST/raw"])
def test_mnist_reads_its_files(tmp_path, packed, inner):
    write_mnist(tmp_path / inner, packed)
    for train in (True, False):
        data = datasets.MNIST(tmp_path, train)
        assert (data.data == IMAGES).all()
        assert data.targets.tolist() == list(range(6))
    image, label = data[4]
    assert image.shape == (1, 28, 28)
    assert label == 4
    np.testing.assert_allclose(image.numpy()[0], IMAGES[4] / 255, rtol=1e-6)


def test_fashion_mnist_reads_the_same_format(tmp_path):
    write_mnist(tmp_path / "FashionMNIST" / "raw")
    assert (datasets.FashionMNIST(tmp_path).data == IMAGES).all()


def test_missing_files_are_named(tmp_path):
    with pytest.raises(FileNotFoundError) as caught:
        datasets.MNIST(tmp_path)
    text = str(caught.value)
    assert "train-images-idx3-ubyte.gz" in text
    assert str(tmp_path) in text
    with pytest.raises(FileNotFoundError, match=r"data_batch_1\.bin"):
        datasets.CIFAR10(tmp_path)


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "not an idx file"),
        (b"PK\3\4" + bytes(20), "begins with 50 4b 03 04"),
        (idx(IMAGES)[:10], "truncated: the header has 16 bytes"),
        (idx(IMAGES)[:-1], r"expected 4720 bytes for shape \(6, 28, 28\), got 4719"),
        (idx(IMAGES) + b"x", "got 4721"),
        (bytes([0, 0, 8, 3]) + b"\xff" * 12, "expected 79228162458924105385300197391 "),
        (bytes([0, 0, 7, 3]) + bytes(12), "not an idx file"),
        (idx(IMAGES.astype(">f4"), 13), "expected uint8 of 3 dimensions, got float32"),
        (idx(LABELS), "expected uint8 of 3 dimensions"),
        (idx(IMAGES[:5]), "5 train images, but 6 labels"),
    ],
)
def test_damaged_mnist(tmp_path, content, reason):
    write_mnist(tmp_path, images=content)
    with pytest.raises(FileFormatError, match=reason) as caught:
        datasets.MNIST(tmp_path)
    assert str(tmp_path) in str(caught.value)


def test_damaged_gzip_and_labels(tmp_path):
    write_mnist(tmp_path, packed=True)
    path = tmp_path / "train-images-idx3-ubyte.gz"
    path.write_bytes(path.read_bytes()[:-300])
    with pytest.raises(FileFormatError, match="damaged gzip"):
        datasets.MNIST(tmp_path)
    write_mnist(tmp_path, labels=idx(LABELS + 9))
    with pytest.raises(FileFormatError, match="a label of 14"):
        datasets.MNIST(tmp_path)


# -- CIFAR


def cifar_records(count, labels):
    records = RNG.integers(0, 10, (count, labels + 3072), dtype=np.uint8)
    return records


def test_cifar10_reads_the_binary_version(tmp_path):
    folder = tmp_path / "cifar-10-batches-bin"
    folder.mkdir()
    made = [cifar_records(2, 1) for _ in range(6)]
    names = [*(f"data_batch_{i}.bin" for i in range(1, 6)), "test_batch.bin"]
    for name, records in zip(names, made, strict=True):
        records.tofile(folder / name)
    train, test = datasets.CIFAR10(tmp_path), datasets.CIFAR10(folder, train=False)
    assert (len(train), len(test)) == (10, 2)
    assert train.targets[7] == made[3][1, 0]
    # Record: red, green, blue planes of 32 rows.
    assert train.data[7][5, 9, 2] == made[3][1, 1 + 2 * 1024 + 5 * 32 + 9]
    image, _ = test[0]
    assert image.shape == (3, 32, 32)
    assert image[1, 4, 3].item() == pytest.approx(made[5][0, 1 + 1024 + 131] / 255)


def test_cifar100_takes_the_fine_label(tmp_path):
    records = cifar_records(3, 2)
    records.tofile(tmp_path / "train.bin")
    data = datasets.CIFAR100(tmp_path)
    assert data.targets.tolist() == records[:, 1].tolist()


def test_damaged_cifar(tmp_path):
    path = tmp_path / "test_batch.bin"
    path.write_bytes(bytes(3000))
    with pytest.raises(FileFormatError, match="records of 3073 bytes, got 3000"):
        datasets.CIFAR10(tmp_path, train=False)
    path.write_bytes(b"")
    with pytest.raises(FileFormatError, match="got 0 bytes"):
        datasets.CIFAR10(tmp_path, train=False)
    path.write_bytes(bytes([200]) + bytes(3072))
    with pytest.raises(FileFormatError, match="labels below 10, got 200"):
        datasets.CIFAR10(tmp_path, train=False)


@pytest.mark.parametrize("kind", ["sha256", "md5"])
def test_files_must_agree_with_a_list_of_checksums(tmp_path, kind):
    write_mnist(tmp_path)
    records = cifar_records(2, 1)
    records.tofile(tmp_path / "test_batch.bin")
    names = ["train-images-idx3-ubyte", "test_batch.bin"]
    digests = [
        hashlib.new(kind, (tmp_path / n).read_bytes()).hexdigest() for n in names
    ]
    lines = [f"{digests[0]}  {names[0]}", f"{digests[1].upper()} *./{names[1]}"]
    listed = tmp_path / f"{kind.upper()}SUMS"
    listed.write_text("\n".join(lines) + "\n")
    datasets.MNIST(tmp_path)
    datasets.CIFAR10(tmp_path, train=False)
    # A changed pixel passes every check of the format.
    content = idx(IMAGES)[:-1] + bytes([IMAGES[-1, -1, -1] ^ 1])
    (tmp_path / names[0]).write_bytes(content)
    with pytest.raises(FileFormatError, match=f"ubyte: expected {kind} {digests[0]}"):
        datasets.MNIST(tmp_path)
    datasets.MNIST(tmp_path, train=False)  # not listed
    (tmp_path / names[1]).write_bytes(records.tobytes()[:-1] + b"\x0b")
    with pytest.raises(FileFormatError, match=rf"test_batch.bin: expected {kind}"):
        datasets.CIFAR10(tmp_path, train=False)


# -- text


def test_the_standard_library_is_a_corpus():
    corpus = datasets.TextCorpus(max_chars=50_000)
    again = datasets.TextCorpus(max_chars=50_000)
    assert corpus.text == again.text
    assert len(corpus) == 50_000
    assert "import" in corpus.text
    assert corpus.decode(corpus.encode(corpus.text[:500])) == corpus.text[:500]
    assert len(corpus.part("train")) == 45_000
    joined = [*corpus.part("train").tolist(), *corpus.part("val").tolist()]
    assert corpus.decode(joined) == corpus.text


def test_windows_are_one_character_apart():
    corpus = datasets.TextCorpus("abcdefghij", val_fraction=0.0)
    data = corpus.windows("train", 3)
    pairs = [
        (corpus.decode(x), corpus.decode(y))
        for x, y in map(data.__getitem__, (0, 1, 2))
    ]
    assert pairs == [("abc", "bcd"), ("def", "efg"), ("ghi", "hij")]
    assert len(data) == 3
    assert len(corpus.windows("train", 3, stride=1)) == 7
    assert len(corpus.windows("train", 9)) == 1
    with pytest.raises(OutOfRangeError, match="index below 3, got 3"):
        data[3]
    with pytest.raises(ArgumentError, match="windows of 10 need 11 characters"):
        corpus.windows("train", 10)
    x, y = next(iter(DataLoader(data, 3)))
    assert x.shape == y.shape == (3, 3)


def test_random_batches_are_windows_of_the_text():
    corpus = datasets.TextCorpus("the quick brown fox jumps", val_fraction=0.2)
    generator = weft.Generator().manual_seed(1)
    batches = corpus.batches("train", 4, 5, generator=generator)
    rows = []
    for _ in range(30):
        x, y = next(batches)
        for a, b in zip(x, y, strict=True):
            row = corpus.decode(a) + corpus.decode(b[-1:])
            assert row in corpus.text[:20]
            assert (a[1:] == b[:-1]).all()
            rows.append(row)
    assert set(rows) == {corpus.text[i : i + 6] for i in range(15)}
    again = corpus.batches("train", 4, 5, generator=weft.Generator().manual_seed(1))
    assert [corpus.decode(a) for a in next(again)[0]] == [r[:5] for r in rows[:4]]


def test_text_mistakes(tmp_path):
    corpus = datasets.TextCorpus("abc")
    with pytest.raises(ArgumentError, match="character 'z' is not in the vocabulary"):
        corpus.encode("az")
    with pytest.raises(OutOfRangeError, match="below 3, got 3"):
        corpus.decode([3])
    with pytest.raises(ArgumentError, match="'train' or 'val', got 'test'"):
        corpus.part("test")
    with pytest.raises(ArgumentError, match="got none"):
        datasets.TextCorpus("")
    path = tmp_path / "latin.txt"
    path.write_bytes("über\r\n".encode("latin-1"))
    assert datasets.TextCorpus.from_file(path).text == "über\n"
    path.write_bytes("\ufeffüber".encode())
    assert datasets.TextCorpus.from_file(path).text == "über"


# -- tables


def table(tmp_path, text):
    path = tmp_path / "table.csv"
    path.write_text(text)
    return path


GOOD = 'size,count,kind,note\n1.5,3,cat,"a, b"\n-2e1,4,dog,c\n\n7,5,cat,c\n'


def test_csv_infers_types(tmp_path):
    data = datasets.CSV(table(tmp_path, GOOD))
    assert {n: c.dtype.name for n, c in data.columns.items()} == {
        "size": "float64", "count": "int64", "kind": "int64", "note": "int64",
    }  # fmt: skip
    assert data.categories == {"kind": ["cat", "dog"], "note": ["a, b", "c"]}
    assert data[1] == {"size": -20.0, "count": 4, "kind": 1, "note": 1}
    assert len(data) == 3
    batch = next(iter(DataLoader(data, 3)))
    assert batch["kind"].tolist() == [0, 1, 0]


def test_csv_with_a_target(tmp_path):
    data = datasets.CSV(table(tmp_path, GOOD), target="kind")
    x, y = data.tensors()
    assert data.features == ["size", "count", "note"]
    assert x.tolist() == [[1.5, 3, 0], [-20, 4, 1], [7, 5, 1]]
    assert y.tolist() == [0, 1, 0]
    row, label = data[2]
    assert (row.tolist(), label) == ([7, 5, 1], 0)
    assert (
        datasets.CSV(table(tmp_path, GOOD), "size").tensors()[1].dtype is weft.float32
    )
    with pytest.raises(ArgumentError, match=r"one of \['size'.*got 'age'"):
        datasets.CSV(table(tmp_path, GOOD), target="age")


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("a,b\n1,2\n3,\n", "line 3, column 'b': a value is missing"),
        ("a,b\n1,2\nNaN,4\n", "line 3, column 'a': a value is missing"),
        ("a,b\n1,2\n3\n", "line 3: expected 2 values, got 1"),
        ("a,a\n1,2\n", "different names"),
        ("", "line 1"),
        ('a,b\n1,"2\n', "not a table of text"),
    ],
)
def test_damaged_csv(tmp_path, text, reason):
    path = table(tmp_path, text)
    with pytest.raises(FileFormatError, match=reason) as caught:
        datasets.CSV(path)
    assert str(path) in str(caught.value)


def test_binary_files_are_no_tables(tmp_path):
    path = tmp_path / "x.csv"
    path.write_bytes(b"a,b\n\xff\xfe,1\n")
    with pytest.raises(FileFormatError, match="not a table"):
        datasets.CSV(path)


# -- images


def paeth(a, b, c):
    p = a + b - c
    return min((abs(p - a), 0, a), (abs(p - b), 1, b), (abs(p - c), 2, c))[2]


def png(image, filters=(0, 1, 2, 3, 4), depth=8, interlace=0):
    """A PNG file, with the rows' filters in turn."""
    image = image if image.ndim == 3 else image[..., None]
    height, width, channels = image.shape
    raw = bytearray()
    for y in range(height):
        kind = filters[y % len(filters)]
        raw.append(kind)
        for x in range(width):
            for k in range(channels):
                a = int(image[y, x - 1, k]) if x else 0
                b = int(image[y - 1, x, k]) if y else 0
                c = int(image[y - 1, x - 1, k]) if x and y else 0
                guess = (0, a, b, (a + b) // 2, paeth(a, b, c))[kind]
                raw.append((int(image[y, x, k]) - guess) % 256)
    color = {1: 0, 2: 4, 3: 2, 4: 6}[channels]
    head = struct.pack(">2I5B", width, height, depth, color, 0, 0, interlace)
    packed = zlib.compress(bytes(raw))
    parts = [(b"IHDR", head), (b"tEXt", b"note\0x"), (b"IDAT", packed[:7]),
             (b"IDAT", packed[7:]), (b"IEND", b"")]  # fmt: skip
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(data)) + kind + data
        + struct.pack(">I", zlib.crc32(kind + data))
        for kind, data in parts
    )  # fmt: skip


@pytest.mark.parametrize("channels", [1, 2, 3, 4])
def test_png_with_every_filter(tmp_path, channels):
    image = RNG.integers(0, 256, (11, 7, channels), dtype=np.uint8)
    path = tmp_path / "x.png"
    path.write_bytes(png(image))
    got = datasets.read_image(path)
    assert got.dtype == np.uint8
    assert (got == (image[..., 0] if channels == 1 else image)).all()


def test_pnm(tmp_path):
    image = RNG.integers(0, 256, (2, 3, 3), dtype=np.uint8)
    path = tmp_path / "x.ppm"
    path.write_bytes(b"P6\n# made by hand\n3 2\n255\n" + image.tobytes())
    assert (datasets.read_image(path) == image).all()
    path.write_bytes(b"P6 3 2 255\n" + image.tobytes()[:-1])
    with pytest.raises(FileFormatError, match="17 of 18 bytes"):
        datasets.read_image(path)
    path.write_bytes(b"P5 3 2 65535\n" + bytes(12))
    with pytest.raises(FileFormatError, match="up to 65535"):
        datasets.read_image(path)
    path.write_bytes(b"P5 3 x")
    with pytest.raises(FileFormatError, match="damaged PNM header"):
        datasets.read_image(path)


def damaged(content, at, byte):
    return content[:at] + bytes([byte]) + content[at + 1 :]


def test_damaged_png(tmp_path):
    path = tmp_path / "x.png"
    good = png(RNG.integers(0, 256, (5, 5), dtype=np.uint8))
    huge = good[:8] + struct.pack(">I", 13) + b"IHDR"
    huge_head = struct.pack(">2I5B", 2**31, 2**31, 8, 0, 0, 0, 0)
    huge += huge_head + struct.pack(">I", zlib.crc32(b"IHDR" + huge_head))
    for content, reason in (
        (good[:40], "truncated PNG"),
        (good[:-1], "truncated PNG"),
        (damaged(good, 17, 99), "checksum of chunk b'IHDR'"),
        (huge, "2147483648x2147483648 pixels"),
        (
            png(np.zeros((2, 2), np.uint8), filters=(0,)).replace(b"IDAT", b"IDAX"),
            "chec",
        ),
    ):
        path.write_bytes(content)
        with pytest.raises(FileFormatError, match=reason):
            datasets.read_image(path)


def test_every_cut_of_a_png_is_an_error(tmp_path):
    path = tmp_path / "x.png"
    good = png(RNG.integers(0, 256, (5, 5), dtype=np.uint8))
    for end in range(8, len(good)):
        path.write_bytes(good[:end])
        with pytest.raises(FileFormatError):
            datasets.read_image(path)


def test_other_formats_need_pillow(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "PIL", None)
    path = tmp_path / "x.jpg"
    path.write_bytes(b"\xff\xd8\xff\xe0" + bytes(20))
    with pytest.raises(FileFormatError, match=r"a JPEG file.*Pillow"):
        datasets.read_image(path)
    path.write_bytes(png(np.zeros((2, 2), np.uint8), interlace=1))
    with pytest.raises(FileFormatError, match="Pillow"):
        datasets.read_image(path)


def test_image_folder(tmp_path):
    made = {}
    for name in ("dog", "cat"):
        (tmp_path / name / "more").mkdir(parents=True)
        for file in ("b.png", "a.png", "more/c.PNG"):
            image = RNG.integers(0, 256, (4, 5, 3), dtype=np.uint8)
            (tmp_path / name / file).write_bytes(png(image))
            made[name, file] = image
    (tmp_path / "dog" / "notes.txt").write_text("not an image")
    data = datasets.ImageFolder(tmp_path, transform=lambda image: image)
    assert data.class_to_idx == {"cat": 0, "dog": 1}
    order = [(c, f) for c in ("cat", "dog") for f in ("a.png", "b.png", "more/c.PNG")]
    assert len(data) == 6
    for (image, label), (name, file) in zip(data, order, strict=True):
        assert (image == made[name, file]).all()
        assert data.classes[label] == name
    x, y = next(iter(DataLoader(datasets.ImageFolder(tmp_path), 6, num_workers=1)))
    assert x.shape == (6, 3, 4, 5)
    assert y.tolist() == [0, 0, 0, 1, 1, 1]


def test_image_folder_without_images(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"class/name\.png"):
        datasets.ImageFolder(tmp_path)
    with pytest.raises(FileNotFoundError, match="expected a folder"):
        datasets.ImageFolder(tmp_path / "none")


@pytest.mark.parametrize("kind", ["png", "ppm", "idx", "csv"])
def test_damage_is_read_or_refused_but_nothing_else(tmp_path, kind):
    read, good = {
        "png": (datasets.read_image, png(IMAGES[0, :6, :5])),
        "ppm": (datasets.read_image, b"P6 3 2 255\n" + bytes(18)),
        "idx": (datasets.read_idx, idx(IMAGES[:1, :4, :4])),
        "csv": (datasets.CSV, GOOD.encode()),
    }[kind]
    path = tmp_path / f"x.{kind}"
    refused = 0
    for _ in range(150):
        content = bytearray(good)
        for place in RNG.integers(0, len(good), 2):
            content[place] = RNG.integers(256)
        path.write_bytes(content[: RNG.integers(len(good) // 2, 2 * len(good))])
        try:
            read(path)
        except FileFormatError:
            refused += 1
    assert refused > 30
