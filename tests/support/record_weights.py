"""Write small PyTorch modules' weights, and what the modules give.

python tests/support/record_weights.py        (needs torch)
"""

from __future__ import annotations

import pathlib

import torch
from safetensors.torch import save_file
from weights import FAMILIES, arrays, first

PATH = pathlib.Path(__file__).parent.parent / "golden" / "weights.safetensors"


def trained(name):
    """A module after one step, so that no weight or statistic is a constant."""
    module = FAMILIES[name][0](torch.nn).train()
    inputs = [torch.tensor(a) for a in arrays(name)]
    first(module(*inputs)).square().sum().backward()
    torch.optim.SGD(module.parameters(), lr=0.1).step()
    with torch.no_grad():
        for p in module.parameters():
            p += 0.1 * torch.randn(p.shape)
    return module.eval(), inputs


def main():
    torch.manual_seed(0)
    kept = {}
    for name in FAMILIES:
        module, inputs = trained(name)
        for key, value in module.state_dict().items():
            kept[f"{name}|{key}"] = value.clone()
        with torch.no_grad():
            kept[f"{name}|out"] = first(module(*inputs)).clone()
    save_file(kept, PATH)
    print(f"{len(FAMILIES)} families, {len(kept)} tensors, {PATH.stat().st_size:,} B")


if __name__ == "__main__":
    main()
