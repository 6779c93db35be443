"""NVIDIA GPUs as a target: schedules, PTX, library kernels, launches."""
