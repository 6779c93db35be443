"""JAX under ``jax.jit``; images lie in memory as NHWC, which suits XLA best."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

Arrays = dict[str, Any]
Function = Callable[..., Any]
LAYOUT = ("NHWC", "HWIO", "NHWC")


class Jax:
    compiled = True
    version = jax.__version__

    # -- arrays

    def array(self, a: np.ndarray) -> Any:
        return jnp.asarray(a)

    def images(self, a: np.ndarray) -> Any:
        return jnp.asarray(a.transpose(0, 2, 3, 1))

    def filters(self, a: np.ndarray) -> Any:
        return jnp.asarray(a.transpose(2, 3, 1, 0))

    def numpy(self, a: Any) -> np.ndarray:
        return np.asarray(a)

    def from_images(self, a: Any) -> np.ndarray:
        return np.asarray(a).transpose(0, 3, 1, 2)

    def from_filters(self, a: Any) -> np.ndarray:
        return np.asarray(a).transpose(3, 2, 0, 1)

    def keep(self, result: Any) -> Any:
        """A result that later calls leave as it is."""
        return result

    def wait(self, result: Any) -> None:
        jax.block_until_ready(result)

    def _weights(self, arrays: dict[str, np.ndarray]) -> Arrays:
        place = {4: self.filters}
        return {n: place.get(a.ndim, self.array)(a) for n, a in arrays.items()}

    # -- programs

    def function(self, function: Function) -> Function:
        return jax.jit(function)

    def model(self, function: Function, parameters: Any, state: Any) -> Function:
        """``function(self, parameters, state, *inputs)``, without gradients."""
        p = self._weights(parameters)
        held = {name: self.array(a) for name, a in state.items()}

        @functools.partial(jax.jit, donate_argnums=1)
        def run(p: Arrays, s: Arrays, *inputs: Any) -> Any:
            return function(self, p, s := dict(s), *inputs), s

        def call(*inputs: Any) -> Any:
            nonlocal held
            result, held = run(p, held, *inputs)
            return result

        return call

    def step(
        self, loss: Function, parameters: Any, state: Any, kind: str, **options: float
    ) -> Function:
        """A training step: the loss of ``loss(self, parameters, state, *inputs)``."""
        p = self._weights(parameters)
        s = {name: self.array(a) for name, a in state.items()}
        held: Any = (p, s, *_moments(p, kind), jnp.zeros(()))

        @functools.partial(jax.jit, donate_argnums=0)
        def run(held: Any, *inputs: Any) -> Any:
            def value(p: Arrays, s: Arrays) -> Any:
                return loss(self, p, s := dict(s), *inputs), s

            p, s, *moments, t = held
            gradient = jax.value_and_grad(value, has_aux=True)
            (result, s), grads = gradient(p, s)
            p, *moments = _update(kind, p, grads, moments, t + 1, **options)
            return (p, s, *moments, t + 1), result

        def call(*inputs: Any) -> Any:
            nonlocal held
            held, result = run(held, *inputs)
            return result

        return call

    def update(self, parameters: Any, grads: Any, kind: str, **options: float) -> Any:
        """An optimizer's step alone, and the parameters it changes."""
        p, g = self._weights(parameters), self._weights(grads)
        held: Any = (p, *_moments(p, kind), jnp.zeros(()))
        values = list(p.values())

        @functools.partial(jax.jit, donate_argnums=0)
        def run(held: Any, g: Arrays) -> Any:
            p, *moments, t = held
            return (*_update(kind, p, g, moments, t + 1, **options), t + 1)

        def call() -> Any:
            nonlocal held
            held = run(held, g)
            values[:] = [held[0][name] for name in p]  # trees come back sorted
            return held[-1]

        return call, values

    def gradient(self, function: Function) -> Function:
        """``run(*inputs, g)``: the result, and gradients of all inputs."""

        @jax.jit
        def both(*given: Any) -> Any:
            result, pull = jax.vjp(function, *given[:-1])
            return (result, *pull(given[-1]))

        return both

    # -- blocks

    def linear(self, x: Any, p: Arrays, name: str) -> Any:
        # ``x @ w.T`` may copy the weights in every call: 10 times slower for a token.
        y = jnp.einsum("...c,oc->...o", x, p[f"{name}.weight"])
        bias = p.get(f"{name}.bias")
        return y if bias is None else y + bias

    def layer_norm(self, x: Any, p: Arrays, name: str) -> Any:
        mean, var = x.mean(-1, keepdims=True), x.var(-1, keepdims=True)
        y = (x - mean) * jax.lax.rsqrt(var + 1e-5)
        return y * p[f"{name}.weight"] + p[f"{name}.bias"]

    def batch_norm(
        self, x: Any, p: Arrays, s: Arrays, name: str, training: bool
    ) -> Any:
        mean, var = s[f"{name}.mean"], s[f"{name}.var"]
        if training:
            count = x.size // x.shape[-1]
            batch, spread = x.mean((0, 1, 2)), x.var((0, 1, 2))
            s[f"{name}.mean"] = 0.9 * mean + 0.1 * batch
            s[f"{name}.var"] = 0.9 * var + 0.1 * spread * count / (count - 1)
            mean, var = batch, spread
        scale = jax.lax.rsqrt(var + 1e-5) * p[f"{name}.weight"]
        return (x - mean) * scale + p[f"{name}.bias"]

    def conv(self, x: Any, w: Any, stride: int, padding: int) -> Any:
        return jax.lax.conv_general_dilated(
            x, w, (stride, stride), [(padding, padding)] * 2, dimension_numbers=LAYOUT
        )

    def conv_input_grad(self, g: Any, x: Any, w: Any, *options: int) -> Any:
        return jax.vjp(lambda x: self.conv(x, w, *options), x)[1](g)[0]

    def conv_weight_grad(self, g: Any, x: Any, w: Any, *options: int) -> Any:
        return jax.vjp(lambda w: self.conv(x, w, *options), w)[1](g)[0]

    def max_pool(self, x: Any) -> Any:
        """3x3 with stride 2, as behind the stem of a ResNet."""
        pads = ((0, 0), (1, 1), (1, 1), (0, 0))
        return jax.lax.reduce_window(
            x, -jnp.inf, jax.lax.max, (1, 3, 3, 1), (1, 2, 2, 1), pads
        )

    def pixel_mean(self, x: Any) -> Any:
        return x.mean((1, 2))

    def attention(
        self, q: Any, k: Any, v: Any, causal: bool = False, mask: Any = None
    ) -> Any:
        scores = q @ k.swapaxes(-1, -2) * q.shape[-1] ** -0.5
        if causal:
            mask = jnp.tril(jnp.ones(scores.shape[-2:], bool))
        if mask is not None:
            scores = jnp.where(mask, scores, -jnp.inf)
        return jax.nn.softmax(scores) @ v

    def heads(self, x: Any, count: int) -> list[Any]:
        """(B, T, 3C) as q, k and v, each (B, H, T, D)."""
        rows, length, _ = x.shape
        parts = jnp.split(x, 3, -1)
        return [a.reshape(rows, length, count, -1).swapaxes(1, 2) for a in parts]

    def merge_heads(self, x: Any) -> Any:
        return x.swapaxes(1, 2).reshape(x.shape[0], x.shape[2], -1)

    def recurrent(self, inputs: int, hidden: int, layers: int) -> Function:
        """An LSTM over (T, B, C): ``run(x, parameters)`` gives all outputs."""

        def layer(x: Any, p: Arrays, k: int) -> Any:
            gates = jnp.einsum("tbc,oc->tbo", x, p[f"weight_ih_l{k}"])
            gates = gates + p[f"bias_ih_l{k}"] + p[f"bias_hh_l{k}"]
            zero = jnp.zeros((x.shape[1], hidden))
            again = p[f"weight_hh_l{k}"].T

            def step(state: Any, gate: Any) -> Any:
                h, c = state
                i, f, g, o = jnp.split(gate + h @ again, 4, -1)
                c = jax.nn.sigmoid(f) * c + jax.nn.sigmoid(i) * jnp.tanh(g)
                h = jax.nn.sigmoid(o) * jnp.tanh(c)
                return (h, c), h

            return jax.lax.scan(step, (zero, zero), gates)[1]

        def run(x: Any, p: Arrays) -> Any:
            for k in range(layers):
                x = layer(x, p, k)
            return x

        return run

    def embedding(self, ids: Any, table: Any) -> Any:
        return table[ids]

    def scattered(self, ids: Any, rows: Any, count: int) -> Any:
        """The gradient of a table of so many rows, of which ``ids`` were read."""
        return jnp.zeros((count, rows.shape[-1])).at[ids].add(rows)

    def positions(self, count: int) -> Any:
        return jnp.arange(count)

    def put(self, state: Arrays, name: str, t: Any, new: Any) -> Any:
        """Position ``t`` of a (B, H, T, D) cache is written; the whole cache."""
        place = (0, 0, t[0], 0)
        state[name] = jax.lax.dynamic_update_slice(state[name], new, place)
        return state[name]

    def cross_entropy(self, logits: Any, targets: Any) -> Any:
        logs = jax.nn.log_softmax(logits)
        return -jnp.take_along_axis(logs, targets[:, None], 1).mean()

    def relu(self, x: Any) -> Any:
        return jax.nn.relu(x)

    def gelu(self, x: Any) -> Any:
        return jax.nn.gelu(x, approximate=False)

    def tanh(self, x: Any) -> Any:
        return jnp.tanh(x)

    def exp(self, x: Any) -> Any:
        return jnp.exp(x)

    def softmax(self, x: Any) -> Any:
        return jax.nn.softmax(x, -1)

    def sum(self, x: Any, axis: int | None) -> Any:
        return x.sum(axis)

    def transposed_copy(self, x: Any) -> Any:
        return x.T  # a jitted function's results lie in order: this is a copy

    def argmax(self, x: Any) -> Any:
        return x.argmax(-1)


# -- optimizers, by PyTorch's formulas


def _moments(p: Arrays, kind: str) -> list[Arrays]:
    count = {"sgd": 0, "momentum": 1}.get(kind, 2)
    return [jax.tree.map(jnp.zeros_like, p) for _ in range(count)]


def _update(
    kind: str, p: Arrays, grads: Arrays, moments: list[Arrays], t: Any, *,
    lr: float, momentum: float = 0.0, weight_decay: float = 0.0,
) -> list[Arrays]:  # fmt: skip
    """New parameters and moments."""
    if kind == "sgd":
        return [jax.tree.map(lambda p, g: p - lr * g, p, grads)]
    if kind == "momentum":
        m = jax.tree.map(lambda m, g: momentum * m + g, moments[0], grads)
        return [jax.tree.map(lambda p, m: p - lr * m, p, m), m]
    m = jax.tree.map(lambda m, g: 0.9 * m + 0.1 * g, moments[0], grads)
    v = jax.tree.map(lambda v, g: 0.999 * v + 0.001 * g * g, moments[1], grads)

    def new(p: Any, m: Any, v: Any) -> Any:
        size = jnp.sqrt(v) / jnp.sqrt(1 - 0.999**t) + 1e-8
        return p * (1 - lr * weight_decay) - lr / (1 - 0.9**t) * m / size

    return [jax.tree.map(new, p, m, v), m, v]
