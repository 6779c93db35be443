"""torch_ema, pytorch_metric_learning, torchinfo, torchsummary and accelerate."""

import contextlib
import io

import torch
from common import case, fill, integers, main, normal, train


def net():
    return fill(
        torch.nn.Sequential(
            torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 3)
        )
    )


@case
def torch_ema():
    from torch_ema import ExponentialMovingAverage

    model = net()
    ema = ExponentialMovingAverage(model.parameters(), decay=0.9)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(3):
        optimizer.zero_grad()
        model(normal(5, 4)).square().sum().backward()
        optimizer.step()
        ema.update()
    with ema.average_parameters():
        averaged = model(normal(5, 4))
    return {
        "averaged": averaged,
        "last": model(normal(5, 4)),
        "state": ema.state_dict()["shadow_params"],
    }


@case
def pytorch_metric_learning():
    from pytorch_metric_learning import distances, losses, miners, reducers

    labels = integers(3, 12)
    out = {}
    kinds = {
        "triplet": losses.TripletMarginLoss(), "contrastive": losses.ContrastiveLoss(),
        "ntxent": losses.NTXentLoss(), "circle": losses.CircleLoss(),
        "multi": losses.MultiSimilarityLoss(), "supcon": losses.SupConLoss(),
        "lifted": losses.LiftedStructureLoss(), "arc": fill(losses.ArcFaceLoss(3, 6)),
        "cosine": losses.TripletMarginLoss(
            distance=distances.CosineSimilarity(), reducer=reducers.MeanReducer()
        ),
    }  # fmt: skip
    for name, loss in kinds.items():
        x = normal(12, 6).requires_grad_()
        pairs = miners.MultiSimilarityMiner()(x, labels) if name == "multi" else None
        value = loss(x, labels, pairs) if pairs is not None else loss(x, labels)
        value.backward()
        out[name] = {"value": value, "gradient": x.grad}
    return out


@case
def torchinfo():
    from torchinfo import summary

    found = summary(net(), input_size=(5, 4), verbose=0)
    return {
        "parameters": found.total_params, "operations": found.total_mult_adds,
        "text": str(found),
    }  # fmt: skip


@case
def torchsummary():
    from torchsummary import summary

    text = io.StringIO()
    with contextlib.redirect_stdout(text):
        summary(net(), (4,), device="cpu")
    return {"text": text.getvalue()}


@case
def accelerate():
    from accelerate import Accelerator, init_empty_weights
    from torch.utils.data import DataLoader, TensorDataset

    accelerator = Accelerator(cpu=True)
    model = net()
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    loader = DataLoader(TensorDataset(normal(12, 4), integers(3, 12)), batch_size=4)
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
    losses = []
    for x, y in loader:
        with accelerator.accumulate(model):
            optimizer.zero_grad()
            loss = torch.nn.functional.cross_entropy(model(x), y)
            accelerator.backward(loss)
            accelerator.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
        losses.append(loss.item())
    with init_empty_weights():
        empty = torch.nn.Linear(1000, 1000)
    return {
        "losses": losses, "device": str(empty.weight.device),
        "gathered": accelerator.gather(torch.tensor([1.0, 2.0])),
    }  # fmt: skip


@case
def sentence_transformers():
    from sentence_transformers import losses, util
    from transformers import BertConfig, BertModel

    config = BertConfig(
        vocab_size=50, hidden_size=24, num_hidden_layers=1, num_attention_heads=2,
        intermediate_size=32, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0,
    )  # fmt: skip
    model = fill(BertModel(config))
    ids, mask = integers(50, 6, 8), torch.ones(6, 8)
    mask[2:, 5:] = 0

    def embedded(m):
        states = m(input_ids=ids, attention_mask=mask.long()).last_hidden_state
        mean = (states * mask[..., None]).sum(1) / mask.sum(1, keepdim=True)
        return torch.nn.functional.normalize(mean, dim=-1)

    def loss(m):
        a, b = embedded(m).chunk(2)
        return torch.nn.functional.cross_entropy(
            util.cos_sim(a, b) * 20, torch.arange(3)
        )

    out = train(model, loss)
    with torch.no_grad():
        vectors = embedded(model.eval())
    hits = util.semantic_search(vectors[:2], vectors, top_k=3)
    out["hits"] = [[h["corpus_id"] for h in one] for one in hits]
    out["pairs"] = losses.MultipleNegativesRankingLoss.__name__
    return {**out, "scores": util.dot_score(vectors, vectors)}


main()
