"""One seed gives one network: 200 training runs in fresh processes, bit for bit.

    python benchmarks/equal_bits.py [--steps N] [--models resnet gpt] [--source DIR]

A ResNet-18 on 32x32 images and a GPT of four layers are trained for a few steps, eager
and compiled. Each run has 1, 2 or 4 threads, 0, 2 or 4 loader workers, 1 or 4 threads
for NumPy's own library, and starts at the beginning or at a checkpoint. All runs of a
model and a mode must end with the same weights, moments, statistics and random state.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time

HERE = str(pathlib.Path(__file__).parents[1] / "src")
THREADS, WORKERS, BLAS = (1, 2, 4), (0, 2, 4), (1, 4)


# -- one run, in a process of its own


def data(model: str):
    import weft
    from weft.utils import transforms as T
    from weft.utils.data import Dataset

    class Images(Dataset):
        view = T.Compose(
            [T.RandomCrop(32, padding=4), T.RandomHorizontalFlip(),
             T.ColorJitter(0.3, 0.3, 0.3), T.RandomRotation(10)]
        )  # fmt: skip

        def __init__(self):
            draw = weft.Generator().manual_seed(1)
            self.images = weft.rand(64, 3, 32, 32, generator=draw)
            self.labels = weft.randint(0, 10, (64,), generator=draw)

        def __len__(self):
            return 64

        def __getitem__(self, i):
            return self.view(self.images[i]), self.labels[i]

    class Text(Dataset):
        def __init__(self):
            draw = weft.Generator().manual_seed(1)
            self.ids = weft.randint(0, 200, (64, 65), generator=draw)

        def __len__(self):
            return 64

        def __getitem__(self, i):
            return self.ids[i, :-1], self.ids[i, 1:]

    return Images() if model == "resnet" else Text()


def network(model: str):
    import weft

    if model == "resnet":
        return weft.models.resnet18(classes=10, cifar=True)
    return weft.models.GPT(
        vocab=200, context=64, width=192, heads=6, layers=4, dropout=0.1
    )


def train(job: dict) -> str:
    """Train from the start or from a checkpoint to the end; gives the digest."""
    import weft
    from weft import nn, optim
    from weft.training import load_checkpoint, save_checkpoint
    from weft.training.checkpoint import checksum
    from weft.utils.data import DataLoader

    weft.manual_seed(0 if not job["begin"] else 99)
    loader = DataLoader(
        data(job["model"]), 4, shuffle=True, seed=7 + job["begin"],
        num_workers=job["workers"],
    )  # fmt: skip
    net = network(job["model"])
    if job["model"] == "resnet":
        optimizer = optim.SGD(net, lr=0.05, momentum=0.9)
    else:
        optimizer = optim.AdamW(net, lr=1e-3)
    parts = {"model": net, "optimizer": optimizer, "loader": loader}
    step = 0
    if job["begin"]:
        step = load_checkpoint(f"{job['folder']}/{job['begin']}", **parts).step

    def one(x, y):
        optimizer.zero_grad()
        out = net(x)
        nn.functional.cross_entropy(out.flatten(0, -2), y.flatten()).backward()
        optimizer.step()

    if job["compiled"]:
        one = weft.compile(one)
    while step < job["steps"]:
        for x, y in loader:
            one(x, y)
            step += 1
            if job["save"]:
                save_checkpoint(f"{job['folder']}/{step}", **parts, step=step)
            if step == job["steps"]:
                break
    loader.close()
    state = {"model": net.state_dict(), "optimizer": optimizer.state_dict()}
    return checksum([_plain(state), weft.rand(2)])


def _plain(tree):
    return {k: _plain(v) for k, v in tree.items()} if isinstance(tree, dict) else tree


# -- the grid


def run(job: dict, source: str) -> str:
    """The digest of a run in a fresh process."""
    environment = os.environ | {
        "PYTHONPATH": source,
        "WEFT_NUM_THREADS": "",
        "OPENBLAS_NUM_THREADS": str(job["blas"]),
    }
    code = (
        f"import sys; sys.path.insert(0, {os.path.dirname(__file__)!r})\n"
        "import equal_bits, json, weft\n"
        f"job = json.loads({json.dumps(job)!r})\n"
        "weft.set_num_threads(job['threads'])\n"
        "if __name__ == '__main__': print(equal_bits.train(job))\n"
    )
    out = subprocess.run(
        [sys.executable, "-c", code], env=environment, check=True,
        capture_output=True, text=True,
    )  # fmt: skip
    return out.stdout.strip()


def jobs(steps: int) -> list[dict]:
    """The runs of one model in one mode; the first one leaves checkpoints."""
    first = {"threads": 2, "workers": 0, "blas": 1, "begin": 0}
    found = [first | {"save": True}, first | {"save": False}]
    for threads, workers, blas in itertools.product(THREADS, WORKERS, BLAS):
        way = {"threads": threads, "workers": workers, "blas": blas}
        found.append({**way, "begin": 0, "save": False})
    for begin, threads, workers in itertools.product(
        range(1, steps), THREADS, WORKERS[:2]
    ):
        way = {"threads": threads, "workers": workers, "blas": 1 + 3 * (begin % 2)}
        found.append({**way, "begin": begin, "save": False})
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=6)
    parser.add_argument("--models", nargs="*", default=["resnet", "gpt"])
    parser.add_argument("--source", default=HERE, help="the version that is tested")
    args = parser.parse_args()
    count = wrong = 0
    start = time.perf_counter()
    for model, compiled in itertools.product(args.models, (False, True)):
        digests: dict[str, list[dict]] = {}
        with tempfile.TemporaryDirectory() as folder:
            for job in jobs(args.steps):
                fixed = {"model": model, "compiled": compiled, "folder": folder}
                job |= fixed | {"steps": args.steps}
                digests.setdefault(run(job, args.source), []).append(job)
                count += 1
        kind = "compiled" if compiled else "eager"
        most = max(digests.values(), key=len)
        print(f"{model:7}{kind:9}{sum(map(len, digests.values())):4} runs, "
              f"{len(digests)} different results", flush=True)  # fmt: skip
        for runs in digests.values():
            if runs is not most:
                wrong += len(runs)
                for job in runs[:3]:
                    print("   unlike the others:", job)
    took = time.perf_counter() - start
    print(f"{count} runs, {wrong} unlike the others, {took:.0f} s")
    sys.exit(bool(wrong))


if __name__ == "__main__":
    main()
