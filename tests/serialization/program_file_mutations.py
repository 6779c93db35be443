"""Hostile variants of program files: one random change each."""

from __future__ import annotations

import json

import weft
from weft import nn, optim

WORDS = [
    None, True, -1, 0, 1, 2, 255, 2**31, 2**63, 2**64, 10**30, 1.5, 1e308, "", "add",
    "input", "read", "scan", "@0", "%0", "#0", "#x", "B", "leaf", "list", [], [[]],
    [0, 0], ["leaf"], "\ud800", "a/b", "float32[3]",
]  # fmt: skip
VALUES = [
    "None", "B", "B*B", "B + 1", "(B//0)", "(B%0)", "max(B, 3)", "10000000000000",
    "-1", "1e400", "nan", "(1, 2)", "()", "((),)", "float32", "float32[B]",
    "float32[3, 0]", "int64[99999999999]", "array(float32[2], [1, 2])",
    'array(float32[4], "AAAA")', "(float32[2], float32[2])", "{}", '"x"', "0:5:0",
    "::", "graph f() { return }", "Taps((2, 2), [0], [0], [1.0])", "@w", "%x",
    "(" * 70 + ")" * 70, "*".join(["B"] * 100), "*".join(["(B + C)"] * 30), "9" * 5000,
    " + ".join(f"(B//{k})" for k in range(1, 2000)), "complex(1, 2)", "...", "bool(1)",
]  # fmt: skip


def split(raw):
    """The header of a file as an object, and its data."""
    end = 8 + int.from_bytes(raw[:8], "little")
    return json.loads(raw[8:end]), raw[end:]


def build(header, data=b""):
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return len(text).to_bytes(8, "little") + text + data


def change_lists(metadata, change):
    """A copy of the metadata in which one list is changed by a function."""
    found = dict(metadata)
    for key, edit in change.items():
        found[key] = json.dumps(edit(json.loads(found[key])))
    return found


def mutate_json(value, rng):
    """One random change somewhere inside a JSON value."""
    if isinstance(value, list) and value and rng.random() < 0.9:
        k = rng.randrange(len(value))
        action = rng.randrange(8)
        if action == 0:
            return value[:k] + value[k + 1 :]
        if action == 1:
            return [*value[:k], value[k], *value[k:]]
        if action == 2:
            j = rng.randrange(len(value))
            value = list(value)
            value[k], value[j] = value[j], value[k]
            return value
        return [*value[:k], mutate_json(value[k], rng), *value[k + 1 :]]
    if type(value) is int and rng.random() < 0.7:
        return value + rng.choice([-100, -2, -1, 1, 2, 3, 1 << 20, 1 << 40])
    if type(value) is str and rng.random() < 0.7:
        return _mutate_text(value, rng)
    return rng.choice(WORDS)


def _mutate_text(text, rng):
    kind = rng.randrange(4)
    place = rng.randrange(len(text) + 1)
    if kind == 0:
        return rng.choice(VALUES)
    if kind == 1:
        return text[:place] + rng.choice("0123456789B()[],*+-/%:.\"'@# ") + text[place:]
    if kind == 2:
        digits = [k for k, c in enumerate(text) if c.isdigit()]
        if digits:
            k = rng.choice(digits)
            return (
                text[:k] + rng.choice(["0", "9", "-1", "99999999", "B"]) + text[k + 1 :]
            )
    return text[:place] + text[place + 1 :]


def mutate(raw, rng):
    """A file with one to three random changes: in its lists, mostly."""
    header, data = split(raw)
    kind = rng.randrange(10)
    if kind < 7:
        metadata = header["__metadata__"]
        for _ in range(rng.choice([1, 1, 1, 2, 3])):
            lists = [k for k in metadata if k not in ("format", "version")]
            key = rng.choice(lists)
            metadata = change_lists(metadata, {key: lambda v: mutate_json(v, rng)})
        header["__metadata__"] = metadata
        return build(header, data)
    if kind == 7:
        key = rng.choice(list(header["__metadata__"]))
        if rng.random() < 0.5:
            del header["__metadata__"][key]
        else:
            header["__metadata__"][key] = str(rng.choice(WORDS))
        return build(json.dumps(header).encode("ascii", "replace"), data)
    out = bytearray(raw)
    if kind == 8:
        for _ in range(rng.randrange(1, 4)):
            out[rng.randrange(len(out))] = rng.randrange(256)
    else:
        del out[rng.randrange(len(out)) :]
    return bytes(out)


def seeds(save):
    """The files to start from: a training step, a network, and control flow."""
    weft.manual_seed(3)
    return [save(program) for program in (train_step(), network(), control_flow())]


def train_step():
    net = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2))
    adam = optim.AdamW(net.parameters(), lr=0.01)

    def step(batch):
        adam.zero_grad()
        loss = nn.functional.cross_entropy(net(batch["x"]), batch["y"])
        loss.backward()
        adam.step()
        return {"loss": loss, "note": ("step", None)}

    example = {"x": weft.ones(4, 3), "y": weft.zeros(4, dtype=weft.int64)}
    return weft.graph.capture(
        step, example, dynamic={"batch.x": {0: "B"}, "batch.y": {0: "B"}}
    )


def network():
    net = nn.Sequential(
        nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(),
        nn.Linear(8, 3),
    )  # fmt: skip
    return weft.graph.capture(net, weft.ones(2, 1, 6, 6))


def control_flow():
    def program(x, flag):
        y = weft.cond(flag, lambda: x * 2, lambda: x - 1)
        total, steps = weft.scan(lambda c, row: (c + row, c.sum()), weft.zeros(3), y)
        table = weft.tensor([1.0, 2.0, 3.0])
        return total * table, steps, x.sort(dim=0)

    flag = weft.tensor(True)
    return weft.graph.capture(program, weft.ones(4, 3), flag)
