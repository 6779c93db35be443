"""Damages PyTorch's files: bytes, the pickle inside, and the archive around it."""

import io
import random
import zipfile

import weft
from weft.errors import FileFormatError
from weft.serialization.archive import Writer

SPECIAL = (0, 1, 2**31 - 1, 2**32 - 1, 2**63 - 1, 2**64 - 1)


def parts(archive):
    """The records of an archive, by name, without its prefix."""
    with zipfile.ZipFile(io.BytesIO(archive)) as opened:
        return {name.partition("/")[2]: opened.read(name) for name in opened.namelist()}


def packed(records):
    """An archive of records."""
    file = io.BytesIO()
    writer = Writer(file.write, "archive", True)
    for name, data in records.items():
        if name not in ("version", ".data/serialization_id"):
            writer.add(name, data)
    writer.finish()
    return file.getvalue()


def mutate_bytes(raw, rng):
    """Change, cut, repeat or overwrite some bytes."""
    raw = bytearray(raw)
    for _ in range(rng.choice((1, 1, 1, 2, 5))):
        at = rng.randrange(max(len(raw), 1))
        kind = rng.randrange(6)
        if kind == 0:
            raw[at : at + 1] = bytes([rng.randrange(256)])
        elif kind == 1:
            raw[at : at + 1] = bytes([(*raw, 0)[at] ^ (1 << rng.randrange(8))])
        elif kind == 2:
            del raw[at : at + rng.choice((1, 2, 8, 64))]
        elif kind == 3:
            raw[at:at] = raw[at : at + rng.choice((1, 4, 32))]
        elif kind == 4:
            width = rng.choice((1, 2, 4, 8))
            value = rng.choice(SPECIAL) % (1 << 8 * width)
            raw[at : at + width] = value.to_bytes(width, "little")
        else:
            other = rng.randrange(max(len(raw), 1))
            raw[at : at + 8] = raw[other : other + 8]
    return bytes(raw)


def mutate(raw, rng):
    """One damaged file: its bytes, or a record of a whole archive."""
    if raw[:2] != b"PK" or rng.random() < 0.3:
        return mutate_bytes(raw, rng)
    records = parts(raw)
    name = "data.pkl" if rng.random() < 0.8 else rng.choice(sorted(records))
    records[name] = mutate_bytes(records[name], rng)
    return packed(records)


def outcome(raw, weights_only=True):
    """Load a damaged file: "read", or "refused" with an error of the right kind."""
    try:
        weft.load(io.BytesIO(raw), weights_only=weights_only)
    except FileFormatError:
        return "refused"
    except weft.errors.DeviceError:  # a damaged name of a device
        return "refused"
    return "read"


def run(seeds, count, seed=0):
    """Outcomes of many damaged files."""
    rng = random.Random(seed)
    found = {"read": 0, "refused": 0}
    for k in range(count):
        raw = mutate(seeds[k % len(seeds)], rng)
        found[outcome(raw, weights_only=bool(k % 3))] += 1
    return found
