"""Plans of how a model is shared out: a cost model, a simulator and a search.

work      what each layer computes, keeps and sends (``measured_work``)
cluster   what devices and links can do (``Cluster``; a JSON file)
strategy  data x tensor x pipeline parallel, and what is in parts
estimate  the time of a step, and the memory and bytes of each process
"""

from weft.distributed.planning.cluster import Cluster
from weft.distributed.planning.search import Plan, parallel
from weft.distributed.planning.simulate import Estimate, Strategy, simulate
from weft.distributed.planning.work import Layer, Work, measured_work, transformer

__all__ = [
    "Cluster", "Estimate", "Layer", "Plan", "Strategy", "Work", "measured_work",
    "parallel", "simulate", "transformer",
]  # fmt: skip
