"""A second device for tests: every operator's evaluation, on buffers of its own.

Its buffers have no interface of NumPy's, so whatever reads them as host memory fails,
and they count the operators that ran there.
"""

import numpy as np

import weft


class Buffer:
    """Memory that only the device's own functions can read."""

    def __init__(self, array):
        self.shape, self.ndim, self.dtype = array.shape, array.ndim, array.dtype
        self.hidden = (array,)


class Toy(weft.Device):
    """A device that has a kernel for every operator."""

    def __init__(self, name="toy:0"):
        super().__init__(name, {}, from_host=lambda a: Buffer(a.copy(order="K")),
                         to_host=lambda b: b.hidden[0].copy(order="K"))  # fmt: skip
        self.ran = []

    def copy(self, buffer):
        return Buffer(buffer.hidden[0].copy())

    def write(self, target, source):
        target.hidden[0][...] = source.hidden[0]

    def shares(self, view, base):
        return np.may_share_memory(view.hidden[0], base.hidden[0])

    def kernel(self, op):
        def run(*args, **params):
            self.ran.append(op.name)
            args = [a.hidden[0] if isinstance(a, Buffer) else a for a in args]
            with np.errstate(all="ignore"):
                out = op.eval(*args, **params)
            return tuple(map(made, out)) if isinstance(out, tuple) else made(out)

        return run


def made(result):
    return Buffer(np.asarray(result))
