"""``weft.mtia``: what PyTorch's CPU build says about MTIA devices: there is none."""

from weft.core.absent import accelerator

globals().update(accelerator("mtia"))
