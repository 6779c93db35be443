"""torch_geometric: message passing, convolutions, pools and loaders."""

import torch
import torch_geometric.nn as gnn
from common import case, fill, integers, main, normal, train
from torch_geometric.data import Batch, Data, HeteroData
from torch_geometric.loader import DataLoader
from torch_geometric.utils import (
    add_self_loops,
    degree,
    scatter,
    softmax,
    subgraph,
    to_dense_adj,
    to_dense_batch,
    to_undirected,
)  # fmt: skip


def graph(seed=0, nodes=7, edges=16):
    return Data(
        x=normal(nodes, 4, seed=seed), edge_index=integers(nodes, 2, edges, seed=seed),
        y=integers(3, nodes, seed=seed), edge_attr=normal(edges, 2, seed=seed + 5),
    )  # fmt: skip


class Mean(gnn.MessagePassing):
    def __init__(self):
        super().__init__(aggr="mean")
        self.linear = torch.nn.Linear(8, 3)

    def forward(self, x, edge_index):
        return self.propagate(edge_index, x=x)

    def message(self, x_i, x_j):
        return self.linear(torch.cat([x_i, x_j - x_i], -1))


LAYERS = {
    "gcn": lambda: gnn.GCNConv(4, 3),
    "gat": lambda: gnn.GATConv(4, 3, heads=2, concat=False),
    "gatv2": lambda: gnn.GATv2Conv(4, 3, edge_dim=None),
    "sage": lambda: gnn.SAGEConv(4, 3),
    "gin": lambda: gnn.GINConv(torch.nn.Linear(4, 3)),
    "cheb": lambda: gnn.ChebConv(4, 3, K=2),
    "transformer": lambda: gnn.TransformerConv(4, 3),
    "graph": lambda: gnn.GraphConv(4, 3, aggr="max"),
    "tag": lambda: gnn.TAGConv(4, 3),
    "sg": lambda: gnn.SGConv(4, 3, K=2),
    "edge": lambda: gnn.EdgeConv(torch.nn.Linear(8, 3)),
    "mean": Mean,
}


def classified(model, g):
    return torch.nn.functional.cross_entropy(model(g.x, g.edge_index), g.y)


@case
def convolutions():
    g, out = graph(), {}
    for name, make in LAYERS.items():
        layer = fill(make())
        out[name] = train(layer, lambda m: classified(m, g))
    return out


@case
def a_model_and_batches():
    class Net(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.conv1, self.conv2 = gnn.GCNConv(4, 8), gnn.GCNConv(8, 8)
            self.norm = gnn.GraphNorm(8)
            self.out = torch.nn.Linear(8, 2)

        def forward(self, batch):
            x = self.norm(self.conv1(batch.x, batch.edge_index), batch.batch).relu()
            x = self.conv2(x, batch.edge_index)
            return self.out(gnn.global_mean_pool(x, batch.batch))

    model = fill(Net())
    loader = DataLoader([graph(seed=s, nodes=4 + s) for s in range(5)], batch_size=2)
    batches = list(loader)
    out = train(model, lambda m: sum(m(b).square().mean() for b in batches))
    out["sizes"] = [[b.num_nodes, b.num_edges, b.num_graphs] for b in batches]
    out["again"] = batches[0].get_example(1).x
    return out


@case
def functions():
    g = graph()
    index = integers(4, 7)
    return {
        "sum": scatter(g.x, index, 0, reduce="sum"),
        "max": scatter(g.x, index, 0, reduce="max"),
        "mean": scatter(g.x, index, 0, dim_size=6, reduce="mean"),
        "mul": scatter(g.x, index, 0, reduce="mul"), "softmax": softmax(g.x, index),
        "degree": degree(g.edge_index[0], 7), "dense": to_dense_adj(g.edge_index),
        "loops": add_self_loops(g.edge_index)[0],
        "undirected": to_undirected(g.edge_index),
        "part": subgraph(torch.tensor([0, 2, 3, 4]), g.edge_index)[0],
        "batch": list(to_dense_batch(g.x, torch.tensor([0, 0, 0, 1, 1, 2, 2]))),
    }  # fmt: skip


@case
def pools_and_aggregations():
    x, batch = normal(9, 4), torch.tensor([0, 0, 0, 0, 1, 1, 1, 2, 2])
    pool = fill(gnn.TopKPooling(4, ratio=0.5))
    edges = integers(9, 2, 20)
    chosen = pool(x, edges, batch=batch)
    attention = fill(gnn.AttentionalAggregation(torch.nn.Linear(4, 1)))
    return {
        "add": gnn.global_add_pool(x, batch), "max": gnn.global_max_pool(x, batch),
        "top": [v for v in chosen if v is not None], "attention": attention(x, batch),
        "several": gnn.aggr.MultiAggregation(["mean", "std", "max"])(x, batch),
        "median": gnn.MedianAggregation()(x, batch),
    }  # fmt: skip


@case
def several_kinds_of_nodes():
    data = HeteroData()
    data["user"].x, data["item"].x = normal(4, 3), normal(5, 2)
    data["user", "buys", "item"].edge_index = torch.stack(
        [integers(4, 8), integers(5, 8, seed=1)]
    )
    data["item", "of", "user"].edge_index = torch.stack(
        [integers(5, 8, seed=1), integers(4, 8)]
    )
    conv = gnn.HeteroConv(
        {
            ("user", "buys", "item"): gnn.SAGEConv((3, 2), 4),
            ("item", "of", "user"): gnn.SAGEConv((2, 3), 4),
        }
    )
    fill(conv)
    return dict(conv(data.x_dict, data.edge_index_dict))


@case
def models():
    g = graph()
    out = {}
    for name in ("GCN", "GAT", "GraphSAGE", "GIN"):
        model = fill(getattr(gnn, name)(4, 8, num_layers=2, out_channels=3))
        out[name] = model.eval()(g.x, g.edge_index)
    batch = Batch.from_data_list([graph(), graph(1)])
    out["vae"] = fill(gnn.GAE(gnn.GCNConv(4, 3))).encode(batch.x, batch.edge_index)
    return out


main()
