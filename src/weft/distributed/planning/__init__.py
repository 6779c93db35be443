"""Plans of how a model is shared out: a cost model, a simulator and a search.

work      what each layer computes, keeps and sends (``measured_work``)
cluster   what devices and links can do (``Cluster``; a JSON file)
strategy  data x tensor x pipeline parallel, and what is in parts
simulate  the time of a step, and the memory of each process
traffic   the bytes that each process sends to each other one
search    the fastest strategies that fit (``parallel``)
training  a strategy that runs (``TrainingStep``)
"""

from weft.distributed.planning.cluster import Cluster
from weft.distributed.planning.search import Plan, parallel
from weft.distributed.planning.simulate import Estimate, simulate
from weft.distributed.planning.strategy import Strategy
from weft.distributed.planning.traffic import traffic
from weft.distributed.planning.training import TrainingStep
from weft.distributed.planning.work import Layer, Work, measured_work, transformer

__all__ = [
    "Cluster", "Estimate", "Layer", "Plan", "Strategy", "TrainingStep", "Work",
    "measured_work", "parallel", "simulate", "traffic", "transformer",
]  # fmt: skip
