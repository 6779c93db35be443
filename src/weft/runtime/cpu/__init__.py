"""The CPU at hand: threads, planned memory, kernels on disk."""
