"""Training with parameters that servers have: an optimizer, and tables of rows."""

from __future__ import annotations

import json
import weakref
from collections.abc import Callable, Mapping
from typing import Any, NoReturn

import numpy as np

import weft
from weft.autograd.modes import enable_grad
from weft.core.tensor import Tensor
from weft.distributed.collectives import refuse_capture
from weft.distributed.errors import ParameterServerError
from weft.distributed.links import Message
from weft.distributed.parameter_server.client import Request, Store
from weft.distributed.parameter_server.shard import Reader, rule, sizes
from weft.distributed.parameter_server.sharding import cut, summed
from weft.errors import ArgumentError, DTypeError
from weft.nn import functional as F
from weft.nn.module import Module
from weft.nn.parameter import Parameter
from weft.optim.flat import checked_gradient
from weft.optim.optimizer import Optimizer as Base


class Embedding(Module):
    """A table of vectors whose rows are on servers, looked up by index.

    A worker has only the rows of a batch, and only rows that were changed take memory
    on servers: a table may be larger than either's. Rows begin with normal numbers of
    standard deviation ``std``. Each row moves when it has a gradient, as
    ``Adagrad`` and ``SparseAdam`` move rows of ``nn.Embedding(sparse=True)``.

    >>> from weft.distributed import parameter_server
    >>> table = parameter_server.Embedding(1_000_000_000, 4, std=0.1)
    >>> with parameter_server.connect() as store:
    ...     sgd = parameter_server.Optimizer(
    ...         store, table, weft.optim.SGD, lr=0.1)
    ...     table(weft.tensor([[7, 123_456_789]])).sum().backward()
    ...     sgd.step()
    ...     table.changed().tolist()
    [7, 123456789]
    """

    def __init__(
        self,
        num_embeddings: int,
        embedding_dim: int,
        *,
        std: float = 1.0,
        seed: int = 0,
        dtype: Any = None,
    ) -> None:
        super().__init__()
        if num_embeddings < 1 or embedding_dim < 1:
            raise ArgumentError(
                "Embedding: expected a table of rows with numbers, got "
                f"{num_embeddings} of {embedding_dim}"
            )
        self.num_embeddings, self.embedding_dim = num_embeddings, embedding_dim
        self.std, self.seed = std, seed
        # It stands for the table among parameters, and has none of the rows.
        self.weight = Parameter(weft.empty(0, embedding_dim, dtype=dtype))
        _TABLES[id(self.weight)] = self
        self._store: Any = None
        self._name = ""
        self._used: list[tuple[np.ndarray, Tensor]] = []  # rows, and their leaf

    def forward(self, indices: Tensor) -> Tensor:
        values, places = self.lookup(indices)
        return F.embedding(places, values)

    def lookup(self, indices: Tensor) -> tuple[Tensor, Tensor]:
        """The rows that indices name, each once, and where each index has its row.

        The rows get a gradient, which the optimizer's ``step`` sends. So a sum of bags
        is ``embedding_bag(places, values, offsets)``.
        """
        refuse_capture("parameter_server.Embedding")
        found, places = np.unique(
            _rows(indices, self.num_embeddings), return_inverse=True
        )
        values = weft.from_numpy(self.pull(found))
        if weft.is_grad_enabled():
            values.requires_grad_()
            self._used.append((found, values))
        return values, weft.from_numpy(places.reshape(indices.shape))

    def pull(self, rows: np.ndarray) -> np.ndarray:
        """The values of rows, as arrays."""
        store = self._connected()
        dtype = self.weight.dtype.np
        found = np.empty((len(rows), self.embedding_dim), dtype)
        owner = rows % store.servers
        places = {k: np.flatnonzero(owner == k) for k in range(store.servers)}
        answers = store.ask({
            server: [Request({"do": "rows", "table": self._name, "count": len(at)},
                             [rows[at]])]
            for server, at in places.items() if len(at)
        })  # fmt: skip
        for server, (message,) in answers.items():
            at = places[server]
            found[at] = Reader(message.payload).take((len(at), found.shape[1]), dtype)
        return found

    def changed(self) -> Tensor:
        """The indices of all rows that were ever changed, in order."""
        store = self._connected()
        ask = [Request({"do": "changed", "table": self._name})]
        answers = store.ask(dict.fromkeys(range(store.servers), ask))
        parts = [one.payload.view(np.int64) for (one,) in answers.values()]
        return weft.from_numpy(np.sort(np.concatenate(parts)))

    def _connected(self) -> Store:
        if self._store is None:
            raise ArgumentError(
                "Embedding: no server has this table yet; give it to a "
                "parameter_server.Optimizer before it is used"
            )
        store: Store = self._store
        return store

    def gradients(self) -> tuple[np.ndarray, np.ndarray] | None:
        """Rows that were looked up since the last step, with their gradients' sums."""
        some = [(rows, leaf.grad) for rows, leaf in self._used if leaf.grad is not None]
        if not some:
            return None
        return summed(
            np.concatenate([rows for rows, _ in some]),
            np.concatenate([g.detach().numpy() for _, g in some]),
        )

    def extra_repr(self) -> str:
        return f"{self.num_embeddings}, {self.embedding_dim}, std={self.std}"


_TABLES: weakref.WeakValueDictionary[int, Embedding] = weakref.WeakValueDictionary()


def _table_of(p: Tensor) -> Embedding | None:
    """The table that a parameter stands for, if it is one's."""
    found = _TABLES.get(id(p))
    return found if found is not None and found.weight is p else None


def _rows(indices: Tensor, count: int) -> np.ndarray:
    if indices.dtype.np.kind not in "iu":
        raise DTypeError(
            f"Embedding: expected indices of whole numbers, got {indices.dtype.name}"
        )
    found = indices.detach().numpy().astype(np.int64).reshape(-1)
    if found.size and (found.min() < 0 or found.max() >= count):
        wrong = found.min() if found.min() < 0 else found.max()
        raise ArgumentError(
            f"Embedding: index {wrong} is out of range for {count} rows"
        )
    return found


class Optimizer(Base):
    """Trains parameters that servers have.

    From here on the servers have the parameters of worker 0. ``step`` pushes this
    worker's gradients, and takes the values that the servers' ``optimizer_class`` has
    moved: one of ``weft.optim`` whose rule is element-wise.

    ``synchronous``: a step moves the parameters once, by the mean of all workers'
    gradients, and waits for them. Without it each worker's gradients move the
    parameters when they come, and a worker is at most ``staleness`` steps ahead of the
    slowest; with None it never waits. ``sync_to_disk`` lets servers wait for the disk
    before they acknowledge a push, which then survives a power cut too.

    >>> from weft.distributed import parameter_server
    >>> net = weft.nn.Linear(2, 1)
    >>> with parameter_server.connect(servers=2) as store:
    ...     adam = parameter_server.Optimizer(
    ...         store, net.parameters(), weft.optim.Adam, lr=0.1)
    ...     for _ in range(3):
    ...         adam.zero_grad()
    ...         net(weft.ones(1, 2)).sum().backward()
    ...         adam.step()
    ...     adam.steps_done
    3
    """

    def __init__(
        self,
        store: Store,
        params: Any,
        optimizer_class: Callable[..., Any],
        *,
        synchronous: bool = True,
        staleness: int | None = None,
        sync_to_disk: bool = False,
        **options: Any,
    ) -> None:
        if synchronous and staleness is not None:
            raise ArgumentError(
                "Optimizer: staleness is for synchronous=False; all workers of a "
                "synchronous step are as far as one another"
            )
        if staleness is not None and staleness < 0:
            raise ArgumentError(
                f"Optimizer: expected staleness=0 or more, or None, got {staleness}"
            )
        self.store = store
        name = getattr(optimizer_class, "__name__", str(optimizer_class))
        if rule(name) is not optimizer_class:
            raise ArgumentError(
                f"Optimizer: servers know the optimizers of weft.optim, got {name}"
            )
        super().__init__(params, options)
        groups = []
        for group in self.param_groups:
            pairs = zip(group.pop("param_names"), group["params"], strict=True)
            groups.append({**group, "params": list(pairs)})
        template = optimizer_class(groups, **options)
        self.defaults, self.param_groups = template.defaults, template.param_groups
        found = {k: _table_of(p) for k, p in self._named_params()}
        self._tables = {k: one for k, one in found.items() if one is not None}
        self._dense = {k: p for k, p in self._named_params() if k not in self._tables}
        modes = {"synchronous": synchronous, "staleness": staleness,
                 "sync": sync_to_disk}  # fmt: skip
        spec = json.loads(json.dumps({**modes, **self._described(name)}))
        self._pieces = cut(sizes(spec), store.servers)
        self._begin(spec)

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Add parameters, before the servers have them."""
        if "_pieces" in vars(self):
            raise ArgumentError(
                "add_param_group: the servers have their parameters already; give all "
                "groups to the Optimizer"
            )
        super().add_param_group(param_group)

    def _described(self, name: str) -> dict[str, Any]:
        """The model and the optimizer as plain data, which all workers share."""
        store, options = self.store, self._options()
        names = [group["param_names"] for group in self.param_groups]
        groups = [
            {"names": some, "options": one}
            for some, one in zip(names, options, strict=True)
        ]
        dense = {
            k: {"dtype": p.dtype.name, "shape": list(p.shape)}
            for k, p in self._dense.items()
        }
        tables = {
            k: {"dtype": one.weight.dtype.name, "rows": one.num_embeddings,
                "width": one.embedding_dim, "std": one.std, "seed": one.seed}
            for k, one in self._tables.items()
        }  # fmt: skip
        return {"workers": store.workers, "servers": store.servers, "optimizer": name,
                "groups": groups, "dense": dense, "tables": tables}  # fmt: skip

    def _options(self) -> list[dict[str, Any]]:
        """The options of each group, which schedules may change."""
        own = ("params", "param_names")
        return [
            {k: float(v) if isinstance(v, Tensor) else v
             for k, v in group.items() if k not in own}
            for group in self.param_groups
        ]  # fmt: skip

    def _begin(self, spec: dict[str, Any]) -> None:
        """Let servers make the parameters, or find those that they have."""
        words = {"do": "setup", "spec": spec}
        arrays = {k: p.detach().numpy() for k, p in self._dense.items()}
        first = self.store.rank == 0
        answers = self._ask(
            lambda server: [Request(words, self._cut(arrays, server) if first else ())]
        )
        steps = [one.header["steps"] for (one,) in answers.values()]
        if max(steps) - min(steps) > 1:  # the last push may have reached some of them
            raise ParameterServerError(
                f"the servers' folders are not of one time: they know {steps} steps of "
                f"worker {self.store.rank}"
            )
        self.store.steps = min(steps)
        if spec["staleness"] is not None:  # one that was away does not hold the others
            slowest = min(one.header["slowest"] for (one,) in answers.values())
            # They have pushed one step more than they may have gone on from.
            self.store.steps = max(min(steps), slowest - spec["staleness"] - 1)
        for name, table in self._tables.items():
            table._store, table._name = self.store, name
        self.pull()

    @property
    def steps_done(self) -> int:
        """The number of steps that this worker has done, in all its starts."""
        return self.store.steps

    # -- steps

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Push this worker's gradients, and pull the parameters' new values."""
        refuse_capture("parameter_server.Optimizer.step")
        loss = None
        if closure is not None:
            with enable_grad():
                loss = closure()
        pushes = self._pushes()
        pull = Request({"do": "pull"})
        self._set(self._ask(lambda server: [pushes[server], pull]))
        self._stepped()
        return loss

    def push(self) -> None:
        """Push gradients without a pull; the next ``pull`` or ``step`` waits."""
        refuse_capture("parameter_server.Optimizer.push")
        pushes = self._pushes()
        self._ask(lambda server: [pushes[server]])
        self._stepped()

    def pull(self) -> None:
        """Take the parameters' values from the servers."""
        refuse_capture("parameter_server.Optimizer.pull")
        self._set(self._ask(lambda server: [Request({"do": "pull"})]))

    def _stepped(self) -> None:
        self.store.steps += 1
        for table in self._tables.values():
            table._used.clear()

    def _ask(self, requests: Callable[[int], list[Request]]) -> Any:
        return self.store.ask({k: requests(k) for k in range(self.store.servers)})

    def _pushes(self) -> list[Request]:
        """The pushes to each server: pieces of gradients, and gradients of rows."""
        grads = {k: _dense(p) for k, p in self._dense.items() if p.grad is not None}
        found = {k: table.gradients() for k, table in self._tables.items()}
        rows = {k: one for k, one in found.items() if one is not None}
        return [self._push(server, grads, rows) for server in range(self.store.servers)]

    def _push(
        self,
        server: int,
        grads: Mapping[str, np.ndarray],
        rows: Mapping[str, tuple[np.ndarray, np.ndarray]],
    ) -> Request:
        names = [one.name for one in self._pieces[server] if one.name in grads]
        arrays, counts = self._cut(grads, server), {}
        for name, (at, g) in rows.items():
            mine = at % self.store.servers == server
            if mine.any():
                counts[name] = int(mine.sum())
                arrays += [at[mine], g[mine]]
        words = {"do": "push", "step": self.store.steps + 1, "dense": names,
                 "tables": counts, "options": self._options()}  # fmt: skip
        return Request(words, arrays)

    def _cut(self, arrays: Mapping[str, np.ndarray], server: int) -> list[np.ndarray]:
        """A server's pieces of arrays, as far as these are there."""
        return [
            arrays[name].reshape(-1)[start:stop]
            for name, start, stop in self._pieces[server]
            if name in arrays
        ]

    def _set(self, answers: Mapping[int, list[Message]]) -> None:
        """Set the parameters to what servers have sent."""
        with weft.no_grad():
            whole = {k: p.detach().contiguous() for k, p in self._dense.items()}
            flat = {k: one.reshape(-1) for k, one in whole.items()}
            for server, messages in answers.items():
                reader = Reader(messages[-1].payload)
                for name, start, stop in self._pieces[server]:
                    piece = reader.take((stop - start,), self._dense[name].dtype.np)
                    flat[name][start:stop].copy_(weft.from_numpy(piece))
            for name, p in self._dense.items():
                if not p.is_contiguous():
                    p.copy_(whole[name])

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Clear the gradients of all parameters, and of rows that were looked up."""
        super().zero_grad(set_to_none)
        for table in self._tables.values():
            for _, leaf in table._used:
                leaf.grad = None

    # -- states, which are on the servers

    def state_dict(self, *, copy: bool = True) -> NoReturn:
        """Refused: servers keep the states in their folders."""
        raise ArgumentError(
            "state_dict: servers have the optimizer's states, and keep them in their "
            "folder; 'weft run --state FOLDER' goes on with it"
        )

    def load_state_dict(self, state_dict: Any) -> NoReturn:
        """Refused: servers keep the states in their folders."""
        self.state_dict()


def _dense(p: Tensor) -> np.ndarray:
    """A parameter's gradient as an array of its dtype."""
    g = checked_gradient(p).detach()
    if g.is_sparse:
        g = g.to_dense()
    return np.asarray(g.numpy(), p.dtype.np)
