"""Gradients of kernels (placeholder)."""
def gradients(kernel, g, need, inputs, constants):
    raise NotImplementedError
