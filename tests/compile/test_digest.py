"""Graphs with one digest compile to one program, whatever their nodes are called."""

import random

import pytest

import weft
from weft import nn, optim
from weft.compile.program import executable as scripts
from weft.compile.program.graph_digest import digest
from weft.compile.program.program import compiled
from weft.graph.custom import moved
from weft.graph.ir import Graph, Node

F = nn.functional


def training_step():
    model = nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.Linear(16, 4))
    rule = optim.Adam(model.parameters(), lr=0.01)

    def step(x, y):
        rule.zero_grad()
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        rule.step()
        return loss

    return weft.graph.capture(step, weft.ones(4, 8), weft.tensor([0, 1, 2, 3])).graph


def twice():
    return weft.graph.capture(
        lambda x: ((x.exp() + 1).sum(0), (x.exp() * x.tanh()).mean(1), x.T),
        weft.ones(6, 5),
    ).graph


def renamed(graph, name):
    """The graph with other names, which ``name(number, old)`` gives."""
    made, taken = {}, set()
    for k, node in enumerate(graph.nodes):
        new = moved(node, made)
        called = name(k, node.name)
        while called in taken:
            called += "_"
        taken.add(called)
        fields = (new.op, new.inputs, new.params, new.type, called, new.after)
        made[node] = Node(*fields, new.module, new.code, new.lasti)
    ends = [[made[n] for n in some] for some in (graph.outputs, graph.inputs)]
    return Graph(graph.name, list(made.values()), ends[0], graph.sizes, ends[1])


def program(graph):
    """What a graph compiles to, as bytes."""
    native = compiled(graph)
    return scripts.to_bytes(native.executor({}).script)


def some_names(seed):
    chance = random.Random(seed)
    parts = ["grad", "again", "checkpoint0", "x", "mul", "grad_1", "again_2"]
    return lambda k, old: "/".join(chance.choices(parts, k=3)) + f"/{k}"


NAMES = {
    "the same": lambda k, old: old,
    "numbers": lambda k, old: f"n{k}",
    "inside something": lambda k, old: f"block/{old}",
    "no gradients": lambda k, old: old.replace("grad", "step"),
    "all gradients": lambda k, old: f"grad/{old}",
    "copies": lambda k, old: f"{old}/again",
    "copies of each other": lambda k, old: "same" + "/again" * k,
    **{f"chance {seed}": some_names(seed) for seed in range(4)},
}


@pytest.mark.parametrize("make", [training_step, twice])
def test_one_digest_is_one_program(make, tmp_path, monkeypatch):
    monkeypatch.setenv("WEFT_CACHE_DIR", str(tmp_path))
    weft.manual_seed(0)
    graph = make()
    found = {}
    for name, rule in NAMES.items():
        other = renamed(graph, rule)
        found.setdefault(digest(other), []).append((name, program(other)))
    assert len(found) > 1  # some names count
    for same in found.values():
        assert len({code for _, code in same}) == 1, [name for name, _ in same]
    assert {n for n, _ in found[digest(graph)]} >= {"the same", "inside something"}
