"""GPT, 6 layers, width 384, 6 heads, context 256: a whole training step with AdamW."""

from __future__ import annotations

from typing import Any, NamedTuple

from benchmarks.suite import data, flops
from benchmarks.suite.case import Case, Lib, Run


class Sizes(NamedTuple):
    vocab: int
    context: int
    width: int
    heads: int
    layers: int

    def flops(self, batch: int, length: int) -> float:
        """A forward pass: products of each layer, attention, logits."""
        tokens = batch * length
        layer = flops.product(tokens, 12 * self.width, self.width)
        layer += flops.attention(batch, length, self.width)
        return self.layers * layer + flops.product(tokens, self.vocab, self.width)


def parameters(sizes: Sizes) -> dict[str, Any]:
    width = sizes.width
    made = {
        "token": data.normal("token", sizes.vocab, width, scale=0.02),
        "position": data.normal("position", sizes.context, width, scale=0.02),
    }
    for k in range(sizes.layers):
        made |= data.norm(f"{k}.ln1", width) | data.norm(f"{k}.ln2", width)
        made |= data.linear(f"{k}.qkv", width, 3 * width)
        made |= data.linear(f"{k}.proj", width, width)
        made |= data.linear(f"{k}.up", width, 4 * width)
        made |= data.linear(f"{k}.down", 4 * width, width)
    return made | data.norm("norm", width)


def forward(lib: Lib, sizes: Sizes, p: Any, ids: Any) -> Any:
    """Logits (B, T, vocab); the table of tokens serves both ends."""
    x = lib.embedding(ids, p["token"])
    x = x + lib.embedding(lib.positions(ids.shape[-1]), p["position"])
    for k in range(sizes.layers):
        x = block(lib, p, k, x, sizes.heads, causal)
    return lib.linear(lib.layer_norm(x, p, "norm"), {"head.weight": p["token"]}, "head")


def block(lib: Lib, p: Any, k: int, x: Any, heads: int, attend: Any) -> Any:
    q, key, v = lib.heads(lib.linear(lib.layer_norm(x, p, f"{k}.ln1"), p, f"{k}.qkv"),
                          heads)  # fmt: skip
    y = lib.merge_heads(attend(lib, k, q, key, v))  # (B, T, C)
    x = x + lib.linear(y, p, f"{k}.proj")
    y = lib.gelu(lib.linear(lib.layer_norm(x, p, f"{k}.ln2"), p, f"{k}.up"))
    return x + lib.linear(y, p, f"{k}.down")


def causal(lib: Lib, layer: int, q: Any, k: Any, v: Any) -> Any:
    return lib.attention(q, k, v, causal=True)


def case(sizes: Sizes, batch: int, **options: Any) -> Case:
    """A training step."""

    def build(lib: Lib) -> Run:
        def loss(lib: Lib, p: Any, s: Any, ids: Any, y: Any) -> Any:
            logits = forward(lib, sizes, p, ids)
            return lib.cross_entropy(logits.reshape(-1, sizes.vocab), y)

        step = lib.step(
            loss, parameters(sizes), {}, "adamw", lr=1e-4, weight_decay=0.01
        )
        ids = data.integers("ids", sizes.vocab, batch, sizes.context + 1)
        x = lib.array(ids[:, :-1].copy())
        y = lib.array(ids[:, 1:].reshape(-1))
        return Run(lambda: step(x, y))

    return Case(
        build=build,
        flops=3 * sizes.flops(batch, sizes.context),
        moved=flops.update_bytes(data.size(parameters(sizes)), "adamw"),
        tolerance=1e-4,
        calls=3,
        memory=True,
        **options,
    )


def cases(small: bool) -> list[Case]:
    if small:
        return [case(Sizes(65, 16, 32, 2, 2), 2, name="GPT, small")]
    return [case(Sizes(65, 256, 384, 6, 6), 8, name="GPT, batch 8", launches=3)]
