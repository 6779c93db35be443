"""``weft.distributed.pipelining``: the stages of a model, each on a process.

stage 0   F0 F1 F2 F3 .  .  .  B0 .  B1 .  …        a batch in microbatches,
stage 1      F0 F1 F2 B0 F3 B1 …                    which stages work on in turn
"""

from weft.distributed.pipelining.pipe import Pipe, SplitPoint, pipeline
from weft.distributed.pipelining.schedules import (
    Schedule1F1B,
    ScheduleGPipe,
    ScheduleInterleaved1F1B,
)
from weft.distributed.pipelining.stage import PipelineStage

__all__ = [
    "Pipe", "PipelineStage", "Schedule1F1B", "ScheduleGPipe",
    "ScheduleInterleaved1F1B", "SplitPoint", "pipeline",
]  # fmt: skip
