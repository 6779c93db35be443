"""Training with parameter servers is that of one process, and loses nothing.

Workers, servers and the coordinator are threads here; ``test_parameter_processes`` has
whole runs. What is compared with is written in NumPy, in float64.
"""

import errno
import os
import re
import shutil
import threading
import time

import numpy as np
import pytest
from parameter_jobs import Job, kept_hook

import weft
from weft import nn, optim
from weft.distributed import DistError, ParameterServerError, patience
from weft.distributed import parameter_server as ps
from weft.distributed.parameter_server import server as servers_module
from weft.distributed.parameter_server.client import Request, Store
from weft.errors import ArgumentError, DTypeError

STEPS = 50


@pytest.fixture(autouse=True)
def hook():
    with kept_hook():
        yield


@pytest.fixture
def job(tmp_path):
    made = []

    def make(*args, **options):
        made.append(Job(tmp_path / f"state-{len(made)}", *args, **options))
        return made[-1]

    return make


# -- what NumPy says


def plain(p, g, s, t):
    return p - 0.05 * g


def momentum(p, g, s, t):
    s["b"] = 0.9 * s.get("b", 0) + g
    return p - 0.05 * s["b"]


def adam(p, g, s, t):
    s["m"] = 0.9 * s.get("m", 0) + 0.1 * g
    s["v"] = 0.999 * s.get("v", 0) + 0.001 * g * g
    m, v = s["m"] / (1 - 0.9**t), s["v"] / (1 - 0.999**t)
    return p - 0.05 * m / (np.sqrt(v) + 1e-8)


def adagrad(p, g, s, t):
    s["s"] = s.get("s", 0) + g * g
    return p - 0.05 * g / (np.sqrt(s["s"]) + 1e-10)


RULES = {
    "sgd": (optim.SGD, {"lr": 0.05}, plain),
    "momentum": (optim.SGD, {"lr": 0.05, "momentum": 0.9}, momentum),
    "adam": (optim.Adam, {"lr": 0.05}, adam),
    "adagrad": (optim.Adagrad, {"lr": 0.05}, adagrad),
}


def batches(rank=0, workers=1, steps=STEPS):
    rng = np.random.default_rng(0)
    for _ in range(steps):
        x, t = rng.standard_normal((8, 6)), rng.standard_normal((8, 3))
        yield x[rank::workers], t[rank::workers]


def drawn(net, dtype=weft.float64):
    """A network with numbers of its own: threads share Weft's generator."""
    rng = np.random.default_rng(3)
    net = net.to(dtype)
    with weft.no_grad():
        for p in net.parameters():
            p.copy_(weft.tensor(rng.standard_normal(tuple(p.shape)) / 3))
    return net


def mlp():
    return drawn(nn.Sequential(nn.Linear(6, 17), nn.Tanh(), nn.Linear(17, 3)))


def mlp_by_numpy(rule):
    """Parameters after all steps with whole batches, derived by hand."""
    p = [one.detach().numpy().copy() for one in mlp().parameters()]
    states = [{} for _ in p]
    for step, (x, t) in enumerate(batches(), 1):
        h = np.tanh(x @ p[0].T + p[1])
        e = 2 * (h @ p[2].T + p[3] - t) / t.size
        d = (e @ p[2]) * (1 - h * h)
        grads = [d.T @ x, d.sum(0), e.T @ h, e.sum(0)]
        p = [rule(*one, step) for one in zip(p, grads, states, strict=True)]
    return p


def train_mlp(store, kind, steps=STEPS, rest=None):
    make, options, _ = RULES[kind]
    net = mlp()
    if store.rank:
        with weft.no_grad():
            net[0].weight.zero_()  # all begin with worker 0's
    optimizer = ps.Optimizer(store, net, make, **options)
    data = list(batches(store.rank, store.workers))[optimizer.steps_done : steps]
    for x, t in data:
        optimizer.zero_grad()
        nn.functional.mse_loss(net(weft.tensor(x)), weft.tensor(t)).backward()
        optimizer.step()
    return [p.detach().numpy() for p in net.parameters()]


@pytest.mark.parametrize(
    ("kind", "workers", "servers"),
    [("sgd", 2, 2), ("momentum", 4, 1), ("adam", 2, 3), ("adagrad", 1, 2)],
)
def test_an_mlp_is_that_of_one_process(job, kind, workers, servers):
    found = job(workers, servers).ok(train_mlp, kind)
    wanted = mlp_by_numpy(RULES[kind][2])
    for parameters in found:
        for one, other in zip(parameters, wanted, strict=True):
            np.testing.assert_allclose(one, other, 1e-10, 1e-12)
        for one, other in zip(parameters, found[0], strict=True):
            assert (one == other).all()


def bags(rank=0, workers=1, steps=STEPS):
    rng = np.random.default_rng(1)
    for _ in range(steps):
        rows = rng.integers(0, 40, (8, 5)) ** 2 * 1000
        yield rows[rank::workers], rng.standard_normal((8, 2))[rank::workers]


class Bags(nn.Module):
    def __init__(self, table):
        super().__init__()
        self.table, self.head = table, drawn(nn.Linear(4, 2))

    def forward(self, rows):
        return self.head(self.table(rows).sum(1))


def train_bags(store, kind):
    make, options, _ = RULES[kind]
    table = ps.Embedding(10_000_000, 4, std=0.1, seed=7, dtype=weft.float64)
    net = Bags(table)
    optimizer = ps.Optimizer(store, net, make, **options)
    for rows, t in list(bags(store.rank, store.workers))[optimizer.steps_done :]:
        out = net(weft.tensor(rows))
        optimizer.zero_grad()  # also after forward
        nn.functional.mse_loss(out, weft.tensor(t)).backward()
        optimizer.step()
    changed = table.changed().numpy()
    head = [p.detach().numpy() for p in net.head.parameters()]
    return [changed, table.pull(changed), *head]


def bags_by_numpy(rule):
    """Rows move when they have a gradient; the table counts its steps."""
    rows = np.unique(np.concatenate([r.ravel() for r, _ in bags()]))
    from weft.distributed.parameter_server.sharding import initial_rows

    table = dict(zip(rows.tolist(), initial_rows(rows, 4, 0.1, 7), strict=True))
    w, b = (p.detach().numpy().copy() for p in Bags(None).head.parameters())
    states = {row: {} for row in table}
    head = [{}, {}]
    for step, (some, t) in enumerate(bags(), 1):
        h = np.stack([sum(table[r] for r in bag) for bag in some.tolist()])
        e = 2 * (h @ w.T + b - t) / t.size
        grads = {}
        for bag, d in zip(some.tolist(), e @ w, strict=True):
            for row in bag:
                grads[row] = grads.get(row, 0) + d
        w, b = rule(w, e.T @ h, head[0], step), rule(b, e.sum(0), head[1], step)
        for row, g in grads.items():
            table[row] = rule(table[row], g, states[row], step)
    return [rows, np.stack([table[row] for row in rows.tolist()]), w, b]


@pytest.mark.parametrize("kind", ["sgd", "momentum", "adam", "adagrad"])
def test_an_embedding_is_that_of_one_process(job, kind):
    found = job(2, 3).ok(train_bags, kind)
    for one in found:
        for mine, other in zip(one, bags_by_numpy(RULES[kind][2]), strict=True):
            np.testing.assert_allclose(mine, other, 1e-10, 1e-12)


def test_no_process_has_the_whole_table():
    table = ps.Embedding(10**15, 64)
    assert sum(p.numel() for p in table.parameters()) == 0
    with ps.connect(servers=2) as store:
        optimizer = ps.Optimizer(store, table, optim.Adagrad, lr=0.1)
        values, places = table.lookup(weft.tensor([[10**15 - 1, 0], [7, 0]]))
        assert values.shape == (3, 64)
        assert places.tolist() == [[2, 0], [1, 0]]
        values.sum().backward()
        optimizer.step()
        assert table.changed().tolist() == [0, 7, 10**15 - 1]


WHOLE = {"Adafactor", "LBFGS", "Muon", "Optimizer", "SparseAdam"}
ELEMENTWISE = sorted(
    name for name in optim.__all__ if name[0].isupper() and name not in WHOLE
)


@pytest.mark.parametrize("kind", ELEMENTWISE)
def test_every_elementwise_optimizer(job, kind, monkeypatch):
    """Dense parameters are those of one process, and a crash costs no bits."""
    make = getattr(optim, kind)

    def train(net, optimizer):
        for k in range(6):
            optimizer.zero_grad()
            for p in net.parameters():
                p.grad = (p.detach() * (k + 1)).cos()
            yield optimizer.step
        yield [p.detach().numpy() for p in net.parameters()]

    def check(store):
        net, table = drawn(nn.Linear(5, 3)), ps.Embedding(9, 2, dtype=weft.float64)
        both = [*net.parameters(), table.weight]
        run = train(net, ps.Optimizer(store, both, make, lr=0.1))
        for k in range(6):
            step = next(run)
            table(weft.tensor([k % 4, 8])).cos().sum().backward()
            step()
        return [*next(run), table.pull(table.changed().numpy())]

    net = drawn(nn.Linear(5, 3))
    *_, alone = _stepped(train(net, make(net.parameters(), lr=0.1)))
    (found,) = job(1, 2).ok(check)
    assert all((a == b).all() for a, b in zip(found, alone, strict=False))
    monkeypatch.setattr(servers_module, "LOG", 600)
    crashed = job(1, 2, crashes=[3, 1])
    (again,) = crashed.ok(check)
    assert crashed.starts == 4
    assert all((a == b).all() for a, b in zip(found, again, strict=True))


def _stepped(run):
    for one in run:
        yield one if isinstance(one, list) else one()


# -- what does not take part, and what changes


def partial(store):
    used, idle, some = (
        nn.Parameter(weft.ones(3, dtype=weft.float64)) for _ in range(3)
    )
    groups = [{"params": [used], "lr": 0.5}, {"params": [idle, some]}]
    optimizer = ps.Optimizer(store, groups, optim.SGD, lr=1.0, momentum=0.5)
    schedule = optim.lr_scheduler.StepLR(optimizer, 1, 0.1)
    for _ in range(2):
        optimizer.zero_grad()
        loss = used.sum() + (some.sum() * 4 if store.rank == 0 else 0)
        loss.backward()
        optimizer.step()
        schedule.step()
    return [p.detach().tolist() for p in (used, idle, some)]


def test_groups_schedules_and_parameters_without_gradients(job):
    for used, idle, some in job(2, 2).ok(partial):
        assert used == [1 - 0.5 - 0.05 * 1.5] * 3
        assert idle == [1.0] * 3
        assert some == pytest.approx([1 - 2 - 0.1 * (2 + 0.5 * 2)] * 3)


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_other_dtypes_are_those_of_one_process(job, dtype):
    def net():
        return drawn(nn.Linear(5, 3), getattr(weft, dtype))

    def train(net, optimizer):
        for k in range(4):
            optimizer.zero_grad()
            for p in net.parameters():
                p.grad = (p.detach() * (k + 1)).cos()
            optimizer.step()
        return [p.detach().float().numpy() for p in net.parameters()]

    def check(store):
        made = net()
        return train(made, ps.Optimizer(store, made, optim.AdamW, lr=0.1))

    alone = net()
    wanted = train(alone, optim.AdamW(alone.parameters(), lr=0.1))
    for found in job(2, 2).ok(check):
        for one, other in zip(found, wanted, strict=True):
            assert (one == other).all()


# -- how far workers are apart


class Apart:
    """Workers of which the last is slow: it waits to be told to make a step."""

    def __init__(self, workers, staleness):
        self.pushed = [0] * workers
        self.worst = 0
        self.staleness = staleness
        self.go = threading.Semaphore(0)
        self.returned = []  # when the first worker's steps were done

    def __call__(self, store, steps):
        p = nn.Parameter(weft.zeros(4))
        optimizer = ps.Optimizer(
            store, [p], optim.SGD, lr=1.0, synchronous=False, staleness=self.staleness
        )
        slow = store.rank == store.workers - 1
        for _ in range(steps):
            if slow:
                assert self.go.acquire(timeout=10)
            p.grad = weft.ones(4)
            self.pushed[store.rank] += 1
            optimizer.step()
            ahead = optimizer.steps_done - min(self.pushed)
            self.worst = max(self.worst, ahead)
            if store.rank == 0:
                self.returned.append(time.monotonic())
        return p.detach().tolist()


@pytest.mark.parametrize("staleness", [0, 1, 3])
def test_a_slow_worker_holds_the_others_within_the_bound(job, staleness):
    check = Apart(2, staleness)
    one = job(2, 2)
    waits = []

    def release():
        for k in range(6):
            until = time.monotonic() + 5
            there = min(staleness + 1 + k, 6)
            while check.pushed != [there, k] and time.monotonic() < until:
                time.sleep(0.001)
            time.sleep(0.02)  # as long as a worker that is not held needs
            assert check.pushed == [there, k]
            begun = len(check.returned)
            now = time.monotonic()
            check.go.release()
            while len(check.returned) == begun and there < 6:
                time.sleep(0.0005)
            waits.append(time.monotonic() - now)

    thread = threading.Thread(target=release)
    thread.start()
    found = one.ok(check, 6)
    thread.join()
    assert check.worst == staleness
    assert found[1] == [-12.0] * 4
    assert sorted(waits)[len(waits) // 2] < 0.1  # nobody sleeps longer than needed


def test_a_worker_that_starts_late_leaves_no_step_out(job):
    started = threading.Event()

    def check(store):
        if store.rank:
            assert started.wait(10)
            time.sleep(0.1)  # the other one has pushed, and is held
        p = nn.Parameter(weft.zeros(4))
        optimizer = ps.Optimizer(
            store, [p], optim.SGD, lr=1.0, synchronous=False, staleness=0
        )
        begins = optimizer.steps_done
        for _ in range(3):
            started.set()
            p.grad = weft.ones(4)
            optimizer.step()
        return begins

    assert job(2, 2).ok(check) == [0, 0]


def test_without_a_bound_nobody_waits(job):
    check = Apart(2, None)
    one = job(2, 1)
    threading.Timer(0.3, lambda: check.go.release(20)).start()
    one.ok(check, 20)
    assert check.worst == 20


def test_asynchronous_gradients_all_count(job):
    def check(store):
        table = ps.Embedding(100, 2, std=0.0)
        p = nn.Parameter(weft.zeros(5))
        optimizer = ps.Optimizer(
            store, [p, table.weight], optim.SGD, lr=1.0, synchronous=False
        )
        for k in range(10):
            optimizer.zero_grad()
            (p.sum() + table(weft.tensor([k, k, 50 + store.rank])).sum()).backward()
            optimizer.step()

    one = job(3, 2)
    one.ok(check)
    again = Job(one.folder, 3, 2)

    def look(store):
        table = ps.Embedding(100, 2, std=0.0)
        p = nn.Parameter(weft.zeros(5))
        optimizer = ps.Optimizer(
            store, [p, table.weight], optim.SGD, lr=1.0, synchronous=False
        )
        rows = table.pull(np.array([0, 9, 50, 52, 60]))[:, 0].tolist()
        return p.detach().tolist(), rows, optimizer.steps_done

    for value, rows, steps in again.ok(look):
        assert value == [-30.0] * 5
        assert rows == [-6.0, -6.0, -10.0, -10.0, 0.0]
        assert steps == 10


def test_a_push_without_a_pull(job):
    def check(store):
        p = nn.Parameter(weft.zeros(3))
        optimizer = ps.Optimizer(store, [p], optim.SGD, lr=1.0)
        for _ in range(3):
            p.grad = weft.ones(3)
            optimizer.push()
        before = p.detach().tolist()
        optimizer.pull()
        return before, p.detach().tolist()

    assert job(2, 2).ok(check) == [([0.0] * 3, [-3.0] * 3)] * 2


# -- servers that end


@pytest.mark.parametrize("after", [0, 1, 37])
@pytest.mark.parametrize("kind", ["adam", "momentum"])
def test_a_server_that_ends_costs_no_bits(job, kind, after):
    wanted = job(2, 2).ok(train_mlp, kind)
    one = job(2, 2, crashes=[after, 5, 0])
    found = one.ok(train_mlp, kind)
    assert one.starts == 5
    for mine, other in zip(found, wanted, strict=True):
        assert all((a == b).all() for a, b in zip(mine, other, strict=True))


def test_tables_and_snapshots_cost_no_bits(job, monkeypatch):
    wanted = job(2, 2).ok(train_bags, "adam")
    monkeypatch.setattr(servers_module, "LOG", 2000)
    one = job(2, 2, crashes=[11, 40, 3])
    found = one.ok(train_bags, "adam")
    assert one.starts == 5
    for mine, other in zip(found, wanted, strict=True):
        assert all((a == b).all() for a, b in zip(mine, other, strict=True))
    for rank in range(2):
        folder = os.path.join(one.folder, f"server-{rank}")
        names = sorted(os.listdir(folder))
        assert [name.partition("-")[0] for name in names] == ["lock", "log", "snapshot"]
        sizes = [os.path.getsize(os.path.join(folder, name)) for name in names[1:]]
        assert sizes[0] < max(2000, 2 * sizes[1]) + 2000


def test_a_later_job_goes_on(job):
    wanted = job(2, 2).ok(train_mlp, "adam")
    one = job(2, 2)
    one.ok(train_mlp, "adam", 20)
    found = Job(one.folder, 2, 2).ok(train_mlp, "adam")
    for mine, other in zip(found, wanted, strict=True):
        assert all((a == b).all() for a, b in zip(mine, other, strict=True))


def test_folders_that_do_not_fit_are_told(job):
    one = job(1, 2)
    one.ok(train_mlp, "adam", 5)
    shutil.rmtree(os.path.join(one.folder, "server-1"))
    again = Job(one.folder, 1, 2)
    (found,) = failed(again.work(train_mlp, "adam"))
    assert "folders are not of one time: they know [5, 0] steps of worker 0" in found
    again.end()
    (found,) = failed(Job(one.folder, 2, 1).work(train_mlp, "adam")[:1])
    assert "worker 0 has another model: workers is 1 there, and 2 here" in found


def test_a_server_that_lost_its_folder_says_so(job):
    one = job(1, 1, crashes=[2], forgets=True)
    (found,) = failed(one.work(train_mlp, "adam"))
    assert "server 0 at 127.0.0.1:" in found
    assert re.search("it has lost its parameters: .*server-0 was empty when it", found)
    one.end()


# -- mistakes


def failed(found):
    assert all(isinstance(one, Exception) for one in found), found
    return [str(one) for one in found]


def test_workers_with_other_models_are_told(job):
    def check(store):
        p = nn.Parameter(weft.zeros(3 + store.rank))
        ps.Optimizer(store, {"w": p}.items(), optim.SGD, lr=0.1).step()

    def other(store):
        p = [nn.Parameter(weft.zeros(3))]
        ps.Optimizer(store, p, optim.SGD, lr=0.1 + store.rank).step()

    for function, text in (
        (check, "dense.w.shape is [3] there, and [4] here"),
        (other, "groups.0.options.lr is 0.1 there, and 1.1 here"),
    ):
        one, two = failed(job(2, 1).work(function))
        assert "worker 1 has another model: " in two
        assert text in two
        assert "worker 1 is gone: it raised ParameterServerError" in one


def test_wrong_arguments_are_told():
    p = nn.Parameter(weft.zeros(2))
    table = ps.Embedding(10, 2)
    with pytest.raises(ArgumentError, match="no server has this table yet"):
        table(weft.tensor([1]))
    with pytest.raises(ArgumentError, match="expected a table of rows with numbers"):
        ps.Embedding(0, 2)
    with pytest.raises(ArgumentError, match="expected servers=1 or more, got 0"):
        ps.connect(servers=0)

    class Own(optim.SGD):
        pass

    with ps.connect() as store:
        make = ps.Optimizer
        with pytest.raises(ArgumentError, match="staleness is for synchronous=False"):
            make(store, [p], optim.SGD, staleness=1)
        with pytest.raises(
            ArgumentError, match="expected staleness=0 or more, or None"
        ):
            make(store, [p], optim.SGD, staleness=-1, synchronous=False)
        with pytest.raises(ParameterServerError, match="no optimizer called 'Own'"):
            make(store, [p], Own)
        with pytest.raises(ParameterServerError, match="Muon needs whole tensors, and"):
            make(store, [p], optim.Muon)
        with pytest.raises(ArgumentError, match="expected lr at least 0, got -1"):
            make(store, [p], optim.SGD, lr=-1)
        optimizer = make(store, [p, table.weight], optim.SGD, lr=0.1)
        with pytest.raises(ArgumentError, match="index 10 is out of range for 10 rows"):
            table(weft.tensor([3, 10]))
        with pytest.raises(ArgumentError, match="index -1 is out of range"):
            table(weft.tensor([-1]))
        with pytest.raises(DTypeError, match="indices of whole numbers, got float32"):
            table(weft.ones(2))
        with pytest.raises(ArgumentError, match="servers have the optimizer's states"):
            optimizer.state_dict()
        with pytest.raises(
            ArgumentError, match="servers have their parameters already"
        ):
            optimizer.add_param_group({"params": [weft.zeros(1)]})
        optimizer.param_groups[0]["lr"] = -5
        p.grad = weft.zeros(2)
        with pytest.raises(
            ParameterServerError, match="expected lr at least 0, got -5"
        ):
            optimizer.step()
        optimizer.param_groups[0]["lr"] = 0.1
        optimizer.step()
        assert optimizer.steps_done == 1
    with pytest.raises(ParameterServerError, match="to the servers are closed"):
        optimizer.step()


def test_a_server_refuses_what_does_not_fit():
    with ps.connect() as store:
        p = nn.Parameter(weft.zeros(2))
        table = ps.Embedding(10, 2)
        optimizer = ps.Optimizer(store, [p, table.weight], optim.SGD, lr=0.1)
        options = optimizer._options()

        def push(arrays, **words):
            about = {"do": "push", "step": 1, "dense": [], "tables": {},
                     "options": options, **words}  # fmt: skip
            store.ask({0: [Request(about, arrays)]})

        for arrays, words, text in (
            ([np.zeros(2, np.float32)], {"dense": ["q"]}, "has no 'q'"),
            ([np.zeros(3, np.float32)], {"dense": ["param.0"]}, "has more numbers"),
            ([np.zeros(1, np.float32)], {"dense": ["param.0"]}, "has fewer numbers"),
            ([np.array([11]), np.zeros(2, np.float32)], {"tables": {"param.1": 1}},
             "expected rows of server 0 from 0 to 9, got 11"),
            ([], {"options": []}, "expected options of each of the groups"),
        ):  # fmt: skip
            with pytest.raises(ParameterServerError, match=text) as error:
                push(arrays, **words)
            assert "server 0 at 127.0.0.1:" in str(error.value)
        with pytest.raises(ParameterServerError, match="there is no table 'x'"):
            store.ask({0: [Request({"do": "rows", "table": "x", "count": 0})]})
        p.grad = weft.ones(2)
        optimizer.step()  # and goes on
        assert p.detach().tolist() == pytest.approx([-0.1, -0.1])


def test_a_full_disk_is_told_and_nothing_is_lost(monkeypatch):
    from weft.distributed.parameter_server.log import Log

    append = Log.append
    full = [False]

    def limited(self, text, arrays=()):
        if full[0]:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), self.folder)
        append(self, text, arrays)

    monkeypatch.setattr(Log, "append", limited)
    with ps.connect(servers=2) as store:
        p = nn.Parameter(weft.zeros(4))
        optimizer = ps.Optimizer(store, [p], optim.SGD, lr=1.0)
        p.grad = weft.ones(4)
        optimizer.step()
        full[0] = True
        with pytest.raises(ParameterServerError, match=r"server \d at .*No space left"):
            optimizer.step()
        optimizer.pull()
        assert p.detach().tolist() == [-1.0] * 4
        full[0] = False
        optimizer.step()
        assert p.detach().tolist() == [-2.0] * 4


def test_a_snapshot_that_cannot_be_written_is_a_warning(monkeypatch, capfd):
    from weft.distributed.parameter_server.log import Log

    def full(self, text, arrays):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), self.folder)

    monkeypatch.setattr(servers_module, "LOG", 10)
    monkeypatch.setattr(Log, "replace", full)
    with ps.connect() as store:
        p = nn.Parameter(weft.zeros(4))
        optimizer = ps.Optimizer(store, [p], optim.SGD, lr=1.0)
        p.grad = weft.ones(4)
        optimizer.step()
        assert p.detach().tolist() == [-1.0] * 4
    assert "warning: server 0: no snapshot was written: " in capfd.readouterr().err


# -- workers that end


def leaves(store, how, synchronous):
    p = nn.Parameter(weft.zeros(3))
    optimizer = ps.Optimizer(
        store, [p], optim.SGD, lr=1.0, synchronous=synchronous,
        staleness=None if synchronous else 1,
    )  # fmt: skip
    for step in range(6):
        if step == 2 and store.rank == 1:
            if how == "error":
                raise ValueError("sample 7 is empty")
            if how == "lost":
                store.closed = True
                for link in list(store._post.links):
                    link.channel.close()
            return "left"
        p.grad = weft.ones(3)
        optimizer.step()
    return p.detach().tolist()


@pytest.mark.parametrize(
    ("how", "text"),
    [
        ("error", "worker 1 is gone: it raised ValueError: sample 7 is empty, and"),
        ("ended", "worker 1 ended after 2 steps, and the others wait for it"),
        ("lost", r"worker 1 is gone: process \d+ was killed or crashed, and the"),
    ],
)
def test_a_worker_that_is_gone_is_named_in_synchronous_training(job, how, text):
    one = job(2, 2)
    start = time.monotonic()
    found = one.work(leaves, how, True)[0]
    assert isinstance(found, ParameterServerError)
    with pytest.raises(ParameterServerError, match=text):
        raise found
    assert time.monotonic() - start < 5
    one.end()


@pytest.mark.parametrize("how", ["error", "ended"])
def test_the_others_go_on_in_asynchronous_training(job, how):
    one = job(2, 2)
    assert one.work(leaves, how, False)[0] == [-8.0] * 3
    one.end()


def test_a_worker_that_comes_back_does_not_hold_the_others(job):
    """It goes on where the slowest may be, and not where it left."""

    def make(store):
        p = nn.Parameter(weft.zeros(3))
        sgd = ps.Optimizer(
            store, [p], optim.SGD, lr=1.0, synchronous=False, staleness=2
        )
        return p, sgd

    back, steps = threading.Event(), threading.Event()

    def check(store):
        p, optimizer = make(store)
        for step in range(20 if store.rank == 0 else 3):
            p.grad = weft.ones(3)
            optimizer.step()
            if step == 10:
                steps.set()
                assert back.wait(10)
        if store.rank:
            for link in list(store._post.links):
                link.channel.close()
            store.closed = True
            assert steps.wait(10)
            with Store(store.role, 10.0) as again:
                p, optimizer = make(again)
                back.set()
                begins = optimizer.steps_done
                while optimizer.steps_done < 20:
                    p.grad = weft.ones(3)
                    optimizer.step()
                return begins
        return optimizer.steps_done

    assert job(2, 2, patience=5.0).ok(check) == [20, 8]


def test_a_late_worker_is_named(job, monkeypatch, capfd):
    monkeypatch.setattr(patience, "late", 0.1)

    def check(store):
        p = nn.Parameter(weft.zeros(3))
        optimizer = ps.Optimizer(store, [p], optim.SGD, lr=1.0)
        time.sleep(0.3 * store.rank)
        p.grad = weft.ones(3)
        optimizer.step()

    job(2, 1).ok(check)
    err = capfd.readouterr().err
    assert err.count("warning: server 0 at 127.0.0.1:") == 1
    assert "waits for worker 1" in err


def test_an_interrupted_call_leaves_nothing_behind(monkeypatch):
    with ps.connect(servers=2) as store:
        p = nn.Parameter(weft.zeros(4))
        optimizer = ps.Optimizer(store, [p], optim.SGD, lr=1.0)
        p.grad = weft.ones(4)
        with monkeypatch.context() as patch:
            patch.setattr(
                store, "_read", lambda: (_ for _ in ()).throw(KeyboardInterrupt)
            )
            with pytest.raises(KeyboardInterrupt):
                optimizer.step()
        optimizer.step()  # the same one: what servers have of it counts once
        optimizer.step()
        assert p.detach().tolist() == [-2.0] * 4


# -- addresses


def test_servers_that_are_not_there_are_named(monkeypatch):
    import socket

    from weft.distributed.environment import Role
    from weft.distributed.parameter_server.coordinator import Coordinator

    place = socket.create_server(("127.0.0.1", 0))
    host, port = place.getsockname()
    role = Role("worker", 0, 1, 2, (host, port))
    coordinator = Coordinator(role, place, 10.0)
    thread = threading.Thread(target=coordinator.run, daemon=True)
    thread.start()
    with pytest.raises(DistError, match=rf"servers, 0, 1 did not come in 0.2 .*{port}"):
        Store(role, 0.2)
    with pytest.raises(
        DistError, match="the coordinator expects 2 servers, but worker"
    ):
        Store(role._replace(servers=3), 1.0)
    coordinator.ended = {0: 0}
    thread.join(5)
    start = time.monotonic()
    with pytest.raises(DistError, match=rf"cannot reach the coordinator at .*:{port}"):
        Store(role, 0.3)
    assert time.monotonic() - start < 3


def test_a_server_that_does_not_come_back_is_named(job, monkeypatch):
    monkeypatch.setattr(patience, "lost", 0.5)

    def check(store):
        p = nn.Parameter(weft.zeros(3))
        optimizer = ps.Optimizer(store, [p], optim.SGD, lr=1.0)
        for _ in range(3):
            p.grad = weft.ones(3)
            optimizer.step()

    one = job(1, 1, crashes=[1], revives=False)
    (found,) = one.work(check)
    with pytest.raises(DistError, match=r"server 0 at 127.0.0.1:\d+ is gone .* in 0.5"):
        raise found
    one.end()


def test_processes_without_servers_are_told(monkeypatch):
    monkeypatch.setenv("RANK", "0")
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(ArgumentError, match="there are 2 processes and no servers"):
        ps.connect()


def test_parameters_of_any_layout(job):
    def check(store):
        p = nn.Parameter(weft.zeros(3, 4).t())
        scalar = nn.Parameter(weft.tensor(1.0))
        optimizer = ps.Optimizer(store, [p, scalar], optim.SGD, lr=1.0)
        g = np.arange(12.0, dtype=np.float32).reshape(4, 3)
        p.grad, scalar.grad = weft.from_numpy(g), weft.tensor(2.0)
        optimizer.step()
        assert not p.is_contiguous()
        return (p.detach().numpy() + g).tolist(), scalar.item()

    for found, scalar in job(2, 3).ok(check):
        assert found == np.zeros((4, 3)).tolist()
        assert scalar == -1.0
