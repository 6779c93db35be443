"""Training: the loop, checkpoints, event files and curves."""

from weft.training.checkpoint import load_checkpoint, save_checkpoint
from weft.training.events import SummaryWriter, read_events
from weft.training.picture import plot_curves
from weft.training.progress import Progress
from weft.training.trainer import Trainer

__all__ = [
    "Progress",
    "SummaryWriter",
    "Trainer",
    "load_checkpoint",
    "plot_curves",
    "read_events",
    "save_checkpoint",
]
