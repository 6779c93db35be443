"""torchmetrics: metrics of classes, regressions, texts, images and retrieval."""

import torch
import torchmetrics as tm
from common import case, integers, main, normal


def over(metric, *batches):
    values = [metric(*batch) for batch in batches]
    return {"batches": values, "all": metric.compute()}


@case
def classes():
    batches = [
        (normal(20, 4, seed=s).softmax(-1), integers(4, 20, seed=s)) for s in (0, 1)
    ]
    kind = {"task": "multiclass", "num_classes": 4}
    metrics = {
        "accuracy": tm.Accuracy(**kind),
        "macro": tm.Accuracy(**kind, average="macro"),
        "top2": tm.Accuracy(**kind, top_k=2),
        "f1": tm.F1Score(**kind, average="macro"),
        "precision": tm.Precision(**kind, average=None),
        "recall": tm.Recall(**kind, average="weighted"),
        "confusion": tm.ConfusionMatrix(**kind),
        "auroc": tm.AUROC(**kind),
        "precision curve": tm.AveragePrecision(**kind, thresholds=5),
        "kappa": tm.CohenKappa(**kind),
        "matthews": tm.MatthewsCorrCoef(**kind),
        "calibration": tm.CalibrationError(**kind),
        "jaccard": tm.JaccardIndex(**kind),
        "hinge": tm.HingeLoss(**kind),
    }
    return {name: over(metric, *batches) for name, metric in metrics.items()}


@case
def two_classes():
    batches = [(normal(30, seed=s).sigmoid(), integers(2, 30, seed=s)) for s in (0, 1)]
    metrics = {
        "auroc": tm.AUROC(task="binary"),
        "roc": tm.ROC(task="binary", thresholds=4),
        "average": tm.AveragePrecision(task="binary"),
        "specificity": tm.Specificity(task="binary"),
        "stat": tm.StatScores(task="binary"),
    }
    return {name: over(metric, *batches) for name, metric in metrics.items()}


@case
def regressions():
    batches = [(normal(20, seed=s), normal(20, seed=s + 9)) for s in (0, 1)]
    metrics = {
        "mse": tm.MeanSquaredError(),
        "mae": tm.MeanAbsoluteError(),
        "r2": tm.R2Score(),
        "pearson": tm.PearsonCorrCoef(),
        "spearman": tm.SpearmanCorrCoef(),
        "kendall": tm.KendallRankCorrCoef(),
        "variance": tm.ExplainedVariance(),
        "cosine": tm.CosineSimilarity(),
    }
    shaped = {"cosine": [tuple(x.reshape(4, 5) for x in b) for b in batches]}
    return {n: over(m, *shaped.get(n, batches)) for n, m in metrics.items()}


@case
def images():
    pairs = [
        (normal(2, 3, 24, 24, seed=s).sigmoid(), normal(2, 3, 24, 24).sigmoid())
        for s in (1, 2)
    ]
    metrics = {
        "psnr": tm.image.PeakSignalNoiseRatio(data_range=1.0),
        "ssim": tm.image.StructuralSimilarityIndexMeasure(data_range=1.0),
        "tv": tm.image.TotalVariation(),
        "uqi": tm.image.UniversalImageQualityIndex(),
    }
    return {
        n: over(m, *[p[:1] if n == "tv" else p for p in pairs])
        for n, m in metrics.items()
    }


@case
def texts_and_retrieval():
    bleu, wer = tm.text.BLEUScore(), tm.text.WordErrorRate()
    ndcg = tm.retrieval.RetrievalNormalizedDCG()
    scores, targets = normal(12), integers(2, 12)
    return {
        "bleu": bleu(["the cat is on the mat"], [["a cat is on the mat"]]),
        "wer": wer(["this is a test"], ["this was the test"]),
        "perplexity": tm.text.Perplexity()(normal(2, 5, 7), integers(7, 2, 5)),
        "ndcg": ndcg(scores, targets, indexes=integers(3, 12)),
        "map": tm.retrieval.RetrievalMAP()(scores, targets, indexes=integers(3, 12)),
    }


@case
def collections_and_state():
    metrics = tm.MetricCollection(
        [tm.MeanSquaredError(), tm.MeanAbsoluteError()], prefix="val_"
    )
    metrics.update(normal(8), normal(8, seed=1))
    first = metrics.compute()
    mean = tm.MeanMetric()
    mean.update(normal(4), weight=torch.tensor([1.0, 2, 3, 4]))
    mean.persistent(True)
    again = tm.MeanMetric()
    again.persistent(True)
    again.load_state_dict(mean.state_dict())
    tracker = tm.wrappers.MinMaxMetric(tm.MeanSquaredError())
    tracker.update(normal(4), normal(4, seed=2))
    return {
        "collection": first, "mean": mean.compute(), "again": again.compute(),
        "minmax": tracker.compute(), "difference": (mean - 1).compute(),
    }  # fmt: skip


main()
