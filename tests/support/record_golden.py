"""Run the layer cases under PyTorch and keep what they give.

python tests/support/record_golden.py        (needs torch)
"""

from __future__ import annotations

import pathlib

import numpy as np
import torch
from layer_cases import CASES
from safetensors.numpy import save_file

PATH = pathlib.Path(__file__).parent.parent / "golden" / "layers.safetensors"


def flat(out):
    outs = out if isinstance(out, (tuple, list)) else [out]
    for o in outs:
        if isinstance(o, (tuple, list)):
            yield from flat(o)
        elif o is not None:
            yield o


def run(name, case, seed):
    """Everything of one case as named arrays."""
    torch.manual_seed(seed)
    torch.set_default_dtype(torch.float64)
    module = case.build(torch.nn).train(case.train)
    kept = {
        f"{name}|state|{k}": v.detach().clone() for k, v in module.state_dict().items()
    }
    inputs = [torch.tensor(a) for a in case.arrays(seed)]
    leaves = [x.requires_grad_() for x in inputs if x.is_floating_point()]
    outs = [o for o in flat(module(*inputs)) if o.is_floating_point()]
    rng = np.random.default_rng(seed + 1)
    total = sum((o * torch.tensor(rng.normal(size=tuple(o.shape)))).sum() for o in outs)
    total.backward()
    kept |= {f"{name}|out|{k}": o.detach() for k, o in enumerate(outs)}
    kept |= {
        f"{name}|grad|{k}": x.grad for k, x in enumerate(leaves) if x.grad is not None
    }
    for k, p in module.named_parameters():
        if p.grad is not None:
            kept[f"{name}|param|{k}"] = p.grad
    kept |= {f"{name}|after|{k}": b.clone() for k, b in module.named_buffers()}
    return {k: np.array(v.detach().numpy(), order="C") for k, v in kept.items()}


def main():
    arrays = {}
    for seed, (name, case) in enumerate(CASES.items()):
        arrays |= run(name, case, seed)
    PATH.parent.mkdir(exist_ok=True)
    save_file(arrays, PATH)
    size = PATH.stat().st_size
    print(f"{len(CASES)} cases, {len(arrays)} arrays, {size:,} bytes in {PATH.name}")


if __name__ == "__main__":
    main()
