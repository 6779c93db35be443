"""Training: the loop, checkpoints, event files and curves."""

from weft.training.checkpoint import load_checkpoint, save_checkpoint
from weft.training.events import SummaryWriter, read_events
from weft.training.picture import plot_curves, write_png
from weft.training.trainer import Trainer

__all__ = [
    "SummaryWriter",
    "Trainer",
    "load_checkpoint",
    "plot_curves",
    "read_events",
    "save_checkpoint",
    "write_png",
]
