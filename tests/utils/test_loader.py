"""The loader: order, workers, resuming, errors and clean ends."""

import collections
import gc
import multiprocessing
import os
import signal
import subprocess
import sys
import textwrap
import threading
import tracemalloc

import numpy as np
import pytest

import weft
from weft.errors import ArgumentError, DTypeError, OutOfRangeError, ShapeError
from weft.utils.data import (
    BatchSampler,
    ChainDataset,
    ConcatDataset,
    DataLoader,
    Dataset,
    IterableDataset,
    RandomSampler,
    Sampler,
    SequentialSampler,
    StackDataset,
    StreamDataset,
    Subset,
    SubsetRandomSampler,
    TensorDataset,
    WeightedRandomSampler,
    WorkerError,
    default_collate,
    get_worker_info,
    random_split,
)


class Noisy(Dataset):
    """Each sample is its index and two random numbers."""

    def __init__(self, size=23):
        self.size = size

    def __len__(self):
        return self.size

    def __getitem__(self, index):
        return {"index": index, "noise": weft.rand(2), "name": f"n{index}"}


class NoisyStream(IterableDataset):
    def __iter__(self):
        for index in range(23):
            yield index, weft.rand(2)


class Divided(IterableDataset):
    """A stream that takes its own share."""

    def __iter__(self):
        info = get_worker_info()
        start, step = (0, 1) if info is None else (info.id, info.num_workers)
        for index in range(start, 20, step):
            yield index, weft.rand(1)


def told(batches):
    """Batches as text, which holds every digit."""
    return [repr(weft.tree_map(lambda x: x, batch)) for batch in batches]


def values(batches):
    return [batch.tolist() for batch in batches]


def children():
    return multiprocessing.active_children()


# -- the order


@pytest.mark.parametrize("dataset", [Noisy(), NoisyStream()], ids=["map", "stream"])
def test_batches_do_not_depend_on_the_workers(dataset):
    shuffle = isinstance(dataset, Noisy)
    passes = []
    for workers in (0, 2, 4):
        weft.manual_seed(workers)  # must not matter
        loader = DataLoader(dataset, 4, shuffle, num_workers=workers, seed=5)
        passes.append(told(loader) + told(loader))
    assert passes[0] == passes[1] == passes[2]
    assert len(passes[0]) == 12
    assert passes[0][:6] != passes[0][6:]
    assert not children()


def test_the_seed_decides_order_and_noise():
    a, b, c = (told(DataLoader(Noisy(), 4, True, seed=s)) for s in (1, 1, 2))
    assert a == b != c
    one = DataLoader(Noisy(), 23, True, seed=1)
    batch = next(iter(one))
    assert sorted(batch["index"].tolist()) == list(range(23))
    assert len({tuple(row) for row in batch["noise"].tolist()}) == 23


def test_the_default_seed_is_drawn_from_the_generator():
    def order(generator=None):
        loader = DataLoader(range(50), 50, True, generator=generator)
        return values(loader)

    weft.manual_seed(3)
    a = order()
    weft.manual_seed(3)
    assert order() == a != order()
    made = [order(weft.Generator().manual_seed(4)) for _ in range(2)]
    assert made[0] == made[1]


def test_loading_leaves_the_default_generator_alone():
    weft.manual_seed(9)
    loader = DataLoader(Noisy(), 4, True, seed=1)
    expected = weft.get_rng_state().tolist()
    list(loader)
    assert weft.get_rng_state().tolist() == expected


def test_random_collate_draws_are_the_batchs_own():
    def collate(samples):
        return weft.rand(1)

    made = [
        told(DataLoader(range(8), 2, collate_fn=collate, num_workers=n, seed=1))
        for n in (0, 2)
    ]
    assert made[0] == made[1]
    assert len(set(made[0])) == 4


@pytest.mark.parametrize("dataset", [Noisy(), NoisyStream()], ids=["map", "stream"])
@pytest.mark.parametrize(("before", "after"), [(0, 2), (2, 3), (3, 0)])
def test_resuming_goes_on_at_the_next_batch(dataset, before, after):
    shuffle = isinstance(dataset, Noisy)
    whole = DataLoader(dataset, 4, shuffle, seed=5)
    expected = told(whole) + told(whole)
    first = DataLoader(dataset, 4, shuffle, num_workers=before, seed=5)
    list(first)
    run = iter(first)
    head = [next(run) for _ in range(2)]
    state = first.state_dict()
    assert state == {"seed": 5, "epoch": 1, "position": 2}
    assert told(head) == expected[6:8]
    run.close()
    second = DataLoader(dataset, 4, shuffle, num_workers=after)
    second.load_state_dict(state)
    assert told(second) == expected[8:]
    assert second.state_dict() == {"seed": 5, "epoch": 2, "position": 0}


def test_a_self_divided_stream_resumes():
    def loader():
        return DataLoader(Divided(), 3, num_workers=2, seed=5)

    expected = told(loader())
    made = loader()
    made.load_state_dict({"seed": 5, "epoch": 0, "position": 3})
    assert told(made) == expected[3:]


def test_state_after_the_last_batch_leaves_nothing_to_do():
    loader = DataLoader(range(4), 2, seed=1)
    run = iter(loader)
    next(run), next(run)
    again = DataLoader(range(4), 2)
    again.load_state_dict(loader.state_dict())
    assert values(again) == []
    assert again.state_dict() == {"seed": 1, "epoch": 1, "position": 0}


def test_a_pass_after_a_break_is_the_next_epoch():
    loader = DataLoader(range(20), 5, True, seed=1)
    epochs = DataLoader(range(20), 5, True, seed=1)
    list(epochs)
    second = values(epochs)
    for _ in loader:
        break
    assert values(loader) == second


def test_passes_side_by_side():
    loader = DataLoader(range(6), 2, seed=1)
    pairs = [(a.tolist(), b.tolist()) for a, b in zip(loader, loader, strict=True)]
    assert pairs == [([0, 1], [0, 1]), ([2, 3], [2, 3]), ([4, 5], [4, 5])]


def test_bad_states_are_refused():
    loader = DataLoader(range(4))
    with pytest.raises(ArgumentError, match=r"expected \['epoch'"):
        loader.load_state_dict({"epoch": 1})
    with pytest.raises(ArgumentError, match="position of at least 0, got -1"):
        loader.load_state_dict({"seed": 1, "epoch": 0, "position": -1})
    own = RandomSampler(range(4), generator=weft.Generator())
    with pytest.raises(ArgumentError, match="generator of its own"):
        DataLoader(range(4), sampler=own).state_dict()


def test_sampler_learns_the_epoch():
    class Rotated(Sampler):
        epoch = None

        def set_epoch(self, epoch):
            self.epoch = epoch

        def __iter__(self):
            return iter([self.epoch, self.epoch + 1])

    loader = DataLoader(range(9), 2, sampler=Rotated())
    assert [values(loader), values(loader)] == [[[0, 1]], [[1, 2]]]


# -- shapes of batches


@pytest.mark.parametrize("workers", [0, 2])
def test_lengths_and_rests(workers):
    for drop_last, expected in ((False, [4, 4, 2]), (True, [4, 4])):
        loader = DataLoader(range(10), 4, num_workers=workers, drop_last=drop_last)
        assert [len(b) for b in loader] == expected
        assert len(loader) == len(expected)


@pytest.mark.parametrize("workers", [0, 2])
def test_samples_without_batches(workers):
    loader = DataLoader(range(3), None, num_workers=workers)
    assert list(loader) == [0, 1, 2]
    arrays = DataLoader(list(np.eye(2)), None, num_workers=workers)
    assert [type(a) for a in arrays] == [weft.Tensor] * 2
    stream = DataLoader(NoisyStream(), None, num_workers=workers)
    assert [i for i, _ in stream] == list(range(23))


def test_batch_sampler_decides():
    loader = DataLoader("abcd", batch_sampler=[[3, 0], [1]], num_workers=2)
    assert list(loader) == [["d", "a"], ["b"]]
    assert len(loader) == 2


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"batch_size": 0}, "batch_size of at least 1, got 0"),
        ({"shuffle": True, "sampler": [0]}, "either a sampler or shuffle"),
        ({"batch_sampler": [[0]], "batch_size": 2}, "batch_sampler decides"),
        ({"batch_size": None, "drop_last": True}, "drop_last needs"),
        ({"num_workers": -1}, "num_workers of at least 0"),
        ({"timeout": -1}, "timeout of at least 0"),
        ({"prefetch_factor": 2}, "need num_workers"),
        ({"persistent_workers": True}, "need num_workers"),
    ],
)
def test_bad_options_are_refused(options, match):
    with pytest.raises(ArgumentError, match=match):
        DataLoader(range(4), **options)


def test_wrong_kinds_are_refused():
    with pytest.raises(DTypeError, match="batch_size to be an int, got float"):
        DataLoader(range(4), batch_size=2.0)
    with pytest.raises(DTypeError, match="seed to be an int, got str"):
        DataLoader(range(4), seed="x")
    with pytest.raises(ArgumentError, match="own order"):
        DataLoader(NoisyStream(), shuffle=True)
    with pytest.raises(DTypeError, match="no __len__"):
        len(DataLoader(NoisyStream()))


# -- streams


@pytest.mark.parametrize("workers", [0, 1, 3])
@pytest.mark.parametrize("dataset", [NoisyStream(), Divided()])
def test_each_sample_of_a_stream_comes_once(workers, dataset):
    loader = DataLoader(dataset, 4, num_workers=workers)
    seen = [i for index, _ in loader for i in index.tolist()]
    assert sorted(seen) == list(range(len(seen)))
    assert len(seen) == (23 if isinstance(dataset, NoisyStream) else 20)


def test_a_self_divided_streams_workers_draw_different_numbers():
    batches = DataLoader(Divided(), 10, num_workers=2, seed=1)
    noise = [n for _, rows in batches for n in rows.reshape(-1).tolist()]
    assert len(set(noise)) == 20


def test_stream_dataset_holds_its_source_back():
    made = []
    running = threading.Event()

    def source():
        try:
            for i in range(10**9):
                made.append(i)
                running.set()
                yield i
        finally:
            made.append("closed")

    samples = iter(StreamDataset(source, buffer=3))
    assert [next(samples) for _ in range(5)] == [0, 1, 2, 3, 4]
    assert running.wait(5)
    assert len(made) <= 5 + 3 + 1
    samples.close()
    assert made[-1] == "closed"
    assert not [t for t in threading.enumerate() if t.name == "weft-stream"]


@pytest.mark.parametrize("workers", [0, 2])
def test_stream_dataset_gives_each_sample_once(workers):
    stream = StreamDataset(range, 25, buffer=4)
    assert values(DataLoader(stream, 10, num_workers=workers)) == [
        list(range(10)),
        list(range(10, 20)),
        list(range(20, 25)),
    ]


def test_stream_dataset_passes_errors_on():
    def source():
        yield 1
        raise KeyError("broken sensor")

    samples = iter(StreamDataset(source))
    assert next(samples) == 1
    with pytest.raises(KeyError, match="broken sensor"):
        next(samples)
    with pytest.raises(ArgumentError, match="buffer of at least 1"):
        StreamDataset(source, buffer=0)
    with pytest.raises(DTypeError, match="function that returns an iterator"):
        StreamDataset([1, 2])


# -- workers' errors and ends


class Failing(Noisy):
    def __init__(self, error):
        super().__init__(8)
        self.error = error

    def __getitem__(self, index):
        if index == 5:
            raise self.error
        return index


class PickyError(Exception):
    def __init__(self, a, b):
        super().__init__("picky")


@pytest.mark.parametrize(
    "error", [KeyError("left"), FileNotFoundError(2, "gone", "x.png"), ValueError("v")]
)
def test_errors_arrive_with_their_type_and_traceback(error):
    loader = DataLoader(Failing(error), 2, num_workers=2)
    with pytest.raises(type(error)) as caught:
        list(loader)
    assert str(caught.value) == str(error)
    notes = "\n".join(caught.value.__notes__)
    assert "worker 0" in notes
    assert "in __getitem__" in notes
    assert not children()


def test_wefts_own_errors_arrive_unchanged():
    class Wrong(Noisy):
        def __getitem__(self, index):
            return weft.ones(2) + weft.ones(3)

    with pytest.raises(ShapeError) as caught:
        list(DataLoader(Wrong(), 2, num_workers=1))
    assert str(caught.value).count("\n  at ") == 1


@pytest.mark.parametrize("error", [PickyError(1, 2), StopIteration()])
def test_errors_that_cannot_travel_arrive_as_text(error):
    with pytest.raises(WorkerError, match=type(error).__name__):
        list(DataLoader(Failing(error), 2, num_workers=2))


def test_stop_iteration_in_a_sample_is_not_an_end():
    with pytest.raises(RuntimeError, match="StopIteration"):
        list(DataLoader(Failing(StopIteration()), 2))


def test_a_killed_worker_is_reported():
    class Deadly(Noisy):
        def __getitem__(self, index):
            if index == 9:
                os.kill(os.getpid(), signal.SIGKILL)
            return index

    with pytest.raises(WorkerError, match=r"worker 0 .* SIGKILL \(exit code -9\)"):
        list(DataLoader(Deadly(), 2, num_workers=2))
    assert not children()


def test_an_exiting_worker_is_reported():
    class Leaving(Noisy):
        def __getitem__(self, index):
            os._exit(7)

    with pytest.raises(WorkerError, match="exited with code 7"):
        list(DataLoader(Leaving(), 2, num_workers=1))


def test_a_slow_worker_times_out():
    class Slow(Noisy):
        def __getitem__(self, index):
            threading.Event().wait(60)

    with pytest.raises(WorkerError, match=r"within timeout=0\.05"):
        list(DataLoader(Slow(), 2, num_workers=1, timeout=0.05))
    assert not children()


def test_a_failing_init_is_reported():
    def init(worker_id):
        raise LookupError(f"no disk for {worker_id}")

    with pytest.raises(LookupError, match="no disk for 0"):
        list(DataLoader(range(4), num_workers=1, worker_init_fn=init))


def test_workers_end_when_a_pass_is_left():
    loader = DataLoader(Noisy(100), 2, num_workers=2)
    for _ in loader:
        assert len(children()) == 2
        break
    gc.collect()
    assert not children()
    with loader:
        run = iter(loader)
        next(run)
        assert len(children()) == 2
    assert not children()


def test_persistent_workers_stay_and_serve_the_next_epoch():
    plain = DataLoader(Noisy(), 4, True, seed=1)
    expected = told(plain) + told(plain) + told(plain)
    options = {"num_workers": 2, "persistent_workers": True, "seed": 1}
    with DataLoader(Noisy(), 4, True, **options) as loader:
        got = told(loader)
        pids = {p.pid for p in children()}
        for _ in loader:  # left behind: its batches must not show up later
            break
        assert {p.pid for p in children()} == pids
        assert len(pids) == 2
        assert got + told(loader) == expected[:6] + expected[12:]
        old = iter(loader)
        next(old)
        new = iter(loader)
        next(new)
        with pytest.raises(WorkerError, match="newer pass"):
            next(old)
    assert not children()


def test_an_abandoned_batchs_error_is_forgotten():
    options = {"num_workers": 1, "persistent_workers": True}
    with DataLoader(Failing(KeyError("left")), 1, **options) as loader:
        run = iter(loader)
        assert [next(run).item() for _ in range(4)] == [0, 1, 2, 3]  # 5 is on its way
        run = iter(loader)
        assert next(run).item() == 0
        with pytest.raises(KeyError, match="left"):
            list(run)
        assert not children()
        assert next(iter(loader)).item() == 0  # new workers


def test_worker_info_and_init():
    class Where(Noisy):
        def __getitem__(self, index):
            info = get_worker_info()
            return [info.id, info.num_workers, started[0]]

    started = []
    loader = DataLoader(Where(8), 2, num_workers=2, worker_init_fn=started.append)
    rows = [[part.tolist() for part in batch] for batch in loader]
    assert rows == [[[i % 2] * 2, [2] * 2, [i % 2] * 2] for i in range(4)]
    assert get_worker_info() is None


def test_prefetching_is_bounded():
    class Counting(Noisy):
        def __getitem__(self, index):
            taken.value += 1
            return index

    taken = multiprocessing.Value("i", 0)
    loader = DataLoader(Counting(1000), 1, num_workers=1, prefetch_factor=3)
    run = iter(loader)
    for _ in range(5):
        next(run)
    run.close()
    assert 5 <= taken.value <= 5 + 3


def test_tensors_of_every_kind_travel():
    class Kinds(Noisy):
        def __getitem__(self, index):
            wide = weft.arange(40000).reshape(200, 200).T + index  # shared memory
            return {
                "wide": wide,
                "half": weft.full((300, 300), 1.5, dtype=weft.bfloat16),
                "small": weft.tensor(3.0, dtype=weft.float16),
                "empty": weft.zeros(0, 3),
                "complex": weft.ones(2, dtype=weft.complex64),
                "bool": weft.ones(2, dtype=weft.bool),
                "big text": "x" * 200_000,
            }

    here, there = (list(DataLoader(Kinds(3), None, num_workers=n)) for n in (0, 2))
    for a, b in zip(here, there, strict=True):
        assert a.keys() == b.keys()
        assert a.pop("big text") == b.pop("big text")
        for name in a:
            assert a[name].dtype == b[name].dtype
            assert a[name].shape == b[name].shape
            assert bool((a[name] == b[name]).all())
        b["wide"].add_(1)  # what arrives may be changed
        assert b["wide"][0, 0].item() == a["wide"][0, 0].item() + 1


def test_large_requests_and_large_answers_do_not_block_each_other():
    class Echo(Noisy):
        def __getitem__(self, index):
            return "y" * 10

    loader = DataLoader(Echo(400_000), 100_000, num_workers=1, prefetch_factor=4)
    assert [len(batch) for batch in loader] == [100_000] * 4


SCRIPT = """
    import multiprocessing, sys
    import weft
    from weft.utils.data import DataLoader, TensorDataset

    def init(worker_id):
        print("worker", worker_id, flush=True)

    if __name__ == "__main__":
        data = TensorDataset(weft.arange(60000).reshape(6, 10000))
        loader = DataLoader(data, 2, True, num_workers=2, worker_init_fn=init,
                            multiprocessing_context=sys.argv[1], seed=1,
                            persistent_workers=True)
        print([batch[0][:, 0].tolist() for batch in loader])
        run = iter(loader)
        next(run)
        print(*[p.pid for p in multiprocessing.active_children()])
"""


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_start_methods_and_interpreter_exit(tmp_path, method):
    path = tmp_path / "script.py"
    path.write_text(textwrap.dedent(SCRIPT))
    before = shared_memory()
    command = [sys.executable, "-W", "error", str(path), method]
    run = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert run.returncode == 0, run.stderr
    assert run.stderr == ""
    lines = run.stdout.splitlines()
    data = TensorDataset(weft.arange(60000).reshape(6, 10000))
    here = DataLoader(data, 2, True, seed=1)
    assert str([batch[0][:, 0].tolist() for batch in here]) in lines
    pids = lines[-1].split()
    assert len(pids) == 2
    assert not [pid for pid in pids if os.path.exists(f"/proc/{pid}")]
    assert shared_memory() <= before


def shared_memory():
    """The blocks there are; other tests have semaphores meanwhile."""
    return {one for one in os.listdir("/dev/shm") if not one.startswith("sem.")}


def test_spawn_says_what_cannot_travel():
    loader = DataLoader(
        range(3), num_workers=1, collate_fn=lambda b: b, multiprocessing_context="spawn"
    )
    with pytest.raises(ArgumentError, match="can be pickled"):
        list(loader)


@pytest.mark.parametrize("workers", [0, 2])
def test_memory_and_descriptors_stay_flat(workers):
    data = TensorDataset(weft.zeros(64, 40, 40), weft.arange(64))
    loader = DataLoader(data, 16, True, num_workers=workers)
    for _ in range(3):
        list(loader)
    gc.collect()
    files = len(os.listdir("/proc/self/fd"))
    tracemalloc.start()
    try:
        for _ in loader:
            pass
        gc.collect()
        before = tracemalloc.get_traced_memory()[0]
        for _ in range(20):
            for _ in loader:
                pass
        gc.collect()
        grown = tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()
    assert grown < 50_000  # one batch has 100 kB
    kept = list(loader)  # batches hold memory, and nothing else
    assert len(os.listdir("/proc/self/fd")) <= files
    assert len(kept) == 4


# -- data sets


def test_combined_data_sets():
    both = ConcatDataset([[1, 2], [3]]) + Subset([4, 5], [1])
    assert [both[i] for i in range(len(both))] == [1, 2, 3, 5]
    assert both[-1] == 5
    with pytest.raises(OutOfRangeError, match="index below 4, got 4"):
        both[4]
    assert list(ChainDataset([NoisyStream(), NoisyStream()]))[23][0] == 0
    with pytest.raises(DTypeError, match="ChainDataset for streams"):
        ConcatDataset([NoisyStream()])
    assert StackDataset([1, 2], "ab")[1] == (2, "b")
    with pytest.raises(ShapeError, match=r"\[2, 3\]"):
        StackDataset([1, 2], "abc")


def test_tensor_dataset_checks_sizes():
    with pytest.raises(ShapeError, match=r"\(2, 1\), \(3,\)"):
        TensorDataset(weft.ones(2, 1), weft.ones(3))
    with pytest.raises(DTypeError, match="got list"):
        TensorDataset([1])
    x, y = next(iter(DataLoader(TensorDataset(weft.eye(3), weft.arange(3)), 2)))
    assert x.tolist() == [[1, 0, 0], [0, 1, 0]]
    assert y.tolist() == [0, 1]


def test_random_split():
    parts = random_split(range(10), [3, 7], weft.Generator().manual_seed(1))
    again = random_split(range(10), [3, 7], weft.Generator().manual_seed(1))
    assert [list(p) for p in parts] == [list(p) for p in again]
    assert sorted([*parts[0], *parts[1]]) == list(range(10))
    assert [len(p) for p in random_split(range(10), [0.33, 0.33, 0.34])] == [4, 3, 3]
    assert [len(p) for p in random_split(range(1), [1])] == [1]
    with pytest.raises(ArgumentError, match=r"add up to 10.*got \[3, 3\]"):
        random_split(range(10), [3, 3])


# -- samplers


def test_samplers():
    assert list(SequentialSampler("abc")) == [0, 1, 2]
    assert sorted(RandomSampler(range(50))) == list(range(50))
    longer = list(RandomSampler(range(4), num_samples=10))
    assert sorted(longer[:4]) == sorted(longer[4:8]) == [0, 1, 2, 3]
    assert len(longer) == 10
    assert list(RandomSampler([])) == []
    assert sorted(SubsetRandomSampler([5, 9, 7])) == [5, 7, 9]
    assert list(BatchSampler(range(5), 2, True)) == [[0, 1], [2, 3]]
    with pytest.raises(ArgumentError, match="num_samples of at least 1"):
        RandomSampler(range(3), num_samples=0)


def test_sampling_with_replacement_is_uniform():
    counts = np.bincount(list(RandomSampler(range(5), True, 20000)), minlength=5)
    # Five deviations of a binomial count.
    assert np.abs(counts - 4000).max() < 5 * np.sqrt(20000 * 0.2 * 0.8)


def test_random_order_is_uniform():
    firsts = [next(iter(RandomSampler(range(4)))) for _ in range(2000)]
    counts = np.bincount(firsts, minlength=4)
    assert np.abs(counts - 500).max() < 5 * np.sqrt(2000 * 0.25 * 0.75)


def test_weighted_sampling():
    sampler = WeightedRandomSampler([1, 0, 3], 20000)
    counts = np.bincount(list(sampler), minlength=3)
    assert counts[1] == 0
    assert abs(counts[2] - 15000) < 5 * np.sqrt(20000 * 0.25 * 0.75)
    without = WeightedRandomSampler([1, 0, 3], 2, replacement=False)
    assert sorted(without) == [0, 2]
    firsts = [next(iter(without)) for _ in range(1000)]
    assert abs(firsts.count(2) - 750) < 5 * np.sqrt(1000 * 0.25 * 0.75)
    with pytest.raises(ArgumentError, match="3 different samples from 2"):
        WeightedRandomSampler([1, 0, 3], 3, replacement=False)
    with pytest.raises(ArgumentError, match="not all 0"):
        WeightedRandomSampler([0.0, 0.0], 1)


# -- collating


def test_collate_goes_into_structures():
    Point = collections.namedtuple("Point", "x y")
    sample = Point({"a": weft.ones(2)}, (1, [2.5, "s"], np.float32(3), True))
    out = default_collate([sample, sample])
    assert type(out) is Point
    assert out.x["a"].shape == (2, 2)
    whole, (real, text), single, flag = out.y
    assert [whole.dtype, real.dtype, single.dtype, flag.dtype] == [
        weft.int64, weft.float64, weft.float32, weft.bool,
    ]  # fmt: skip
    assert real.tolist() == [2.5, 2.5]
    assert text == ["s", "s"]


def test_collate_names_what_does_not_fit():
    ragged = [{"x": weft.ones(2)}, {"x": weft.ones(3)}]
    with pytest.raises(ShapeError, match=r"\['x'\]: .*\(2,\), \(3,\)"):
        default_collate(ragged)
    with pytest.raises(ShapeError, match=r"one length, got \[1, 2\]"):
        default_collate([[1], [1, 2]])
    with pytest.raises(DTypeError, match="equal keys"):
        default_collate([{"a": 1}, {"b": 1}])
    with pytest.raises(DTypeError, match="got object; pass a collate_fn"):
        default_collate([object()])
    with pytest.raises(DTypeError, match="one type"):
        default_collate([weft.ones(1), 2])
    with pytest.raises(ShapeError, match="at least one sample"):
        default_collate([])


def test_collate_keeps_gradients():
    x = weft.ones(2, requires_grad=True)
    default_collate([x, x * 2]).sum().backward()
    assert x.grad.tolist() == [3, 3]
