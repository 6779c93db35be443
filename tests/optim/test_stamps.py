"""A captured update is made again for parameters like the first one."""

import pytest

import weft
from weft import nn, optim
from weft.graph import capture, print_graph
from weft.optim import captured

SHAPES = [(3, 2), (4,), (2, 1, 2), (), (0, 3), (1,)]


def params_of(*dtypes):
    weft.manual_seed(0)
    kinds = [(s, d) for d in dtypes for s in SHAPES]
    return [nn.Parameter(weft.randn(*s).to(d)) for s, d in kinds]


def step_of(optimizer, params):
    def step():
        optimizer.zero_grad()
        loss = sum((p * p).sum().float() for p in params)
        loss.backward()
        optimizer.step()
        return loss

    return step


def twice(step):
    return lambda: (step(), step())


def text_of(step):
    graph = capture(step).graph
    return print_graph(graph, lines=True) + str([n.module for n in graph.nodes])


RULES = [
    (optim.SGD, {"lr": 0.1}),
    (optim.SGD, {"lr": 0.1, "momentum": 0.9, "nesterov": True, "weight_decay": 0.1}),
    (optim.Adam, {"amsgrad": True, "maximize": True}),
    (optim.AdamW, {}),
    (optim.Adamax, {}),
    (optim.NAdam, {}),
    (optim.RAdam, {}),
    (optim.RMSprop, {"centered": True, "momentum": 0.9}),
    (optim.Adagrad, {}),
    (optim.Adadelta, {}),
]


@pytest.mark.parametrize(("rule", "options"), RULES)
def test_the_graph_is_the_one_that_every_update_would_give(rule, options, monkeypatch):
    texts = []
    for like in (captured.likeness, lambda tensors: None):
        monkeypatch.setattr(captured, "likeness", like)
        params = params_of(weft.float32, weft.float16, weft.float64)
        step = step_of(rule(params, **options), params)
        texts.append((text_of(step), text_of(twice(step))))
    assert texts[0] == texts[1]


class Counting(optim.SGD):
    calls = 0

    def update(self, g, p, state, group):
        type(self).calls += 1
        return super().update(g, p, state, group)


def test_the_rule_runs_once_for_parameters_that_differ_in_shape(monkeypatch):
    monkeypatch.setattr(Counting, "calls", 0)
    params = [nn.Parameter(weft.ones(n)) for n in range(1, 6)]
    capture(step_of(Counting(params, lr=0.1), params))
    assert Counting.calls == 1


class Centred(Counting):
    """Not element by element: the mean is taken off."""

    def update(self, g, p, state, group):
        return super().update(g - g.mean(), p, state, group)


def test_a_rule_that_is_not_elementwise_runs_for_each(monkeypatch):
    monkeypatch.setattr(Counting, "calls", 0)
    params = [nn.Parameter(weft.ones(n)) for n in range(1, 6)]
    capture(step_of(Centred(params, lr=0.1), params))
    assert Centred.calls == 5


def test_gradients_from_before_and_views_are_what_they_were():
    flat = weft.ones(6)
    params = [nn.Parameter(flat[:2]), nn.Parameter(flat[2:4]), nn.Parameter(flat[4:])]
    params += [nn.Parameter(weft.ones(2)) for _ in range(3)]
    for p in params[2:]:
        p.grad = weft.full((2,), 0.5)
    step = weft.compile(optim.Adam(params, lr=0.1).step)
    step()
    moved = [bool((p < 1).all()) for p in params]
    assert moved == [False, False, True, True, True, True]
