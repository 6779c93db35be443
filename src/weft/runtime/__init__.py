"""The machine at hand: threads, kernels on disk, planned memory."""
