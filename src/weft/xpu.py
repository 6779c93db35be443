"""``weft.xpu``: what PyTorch's CPU build says about XPU devices: there is none."""

from weft.core.absent import accelerator

globals().update(accelerator("xpu"))
