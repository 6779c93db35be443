"""Convolutions and their gradients, generated for an instruction set.

    emit_conv(module, dtype, isa)

adds functions ``void conv_X_tasks(int64_t *job, begin, end, worker)`` that compute some
of a job's tasks (`tasks.JOB` lists a job's fields, `plan.Planner` makes jobs):

    image    an image from an image: y from x, or x's gradient from y's
    weight   the weights' gradient
    direct   as image, for few channels in a group
    dots     as weight, for few channels in a group
    winograd as image, for 3x3 kernels, with fewer multiplications (`transforms`)
    kernels  as weight, in the same way

All are products whose large operand, the windows, is never stored: windows are copied
from the image into the panels that a product packs (`patches`), with masks where they
reach beyond it (`windows`). A gradient with a stride is split into phases, so that no
inserted zero is multiplied. Tensors keep their layout (N, C, *S).

Each element is summed in an order that depends on sizes alone, never on threads.
"""

from weft.compile.targets.cpu.convolution.arrays import (
    convolve,
    input_grad,
    weight_grad,
)
from weft.compile.targets.cpu.convolution.generate import emit_conv

__all__ = ["convolve", "emit_conv", "input_grad", "weight_grad"]
