"""Windows of convolutions in C: every stride, padding and dilation."""

import itertools

import numpy as np
from c_programs import CModel, needs_cc

import weft
from weft.compile.targets.c.library import Windows, library_call_of
from weft.ops.conv import im2col_op

SIZE = 5, 4
PADDINGS = [
    ((1, 1), (1, 1)), ((0, 0), (0, 0)), ((0, 1), (2, 0)), ((6, 6), (7, 5)),
    ((2, 2), (2, 2)), ((-1, 3), (-2, 5)),
]  # fmt: skip


def fits(kernel, padding, dilation):
    sizes = zip(SIZE, kernel, padding, dilation, strict=True)
    return all(n + sum(p) > d * (k - 1) for n, k, p, d in sizes)


@needs_cc
def test_windows(tmp_path):
    cases = [
        {"kernel": k, "stride": s, "padding": p, "dilation": d}
        for k, s, p, d in itertools.product(
            [(3, 3), (1, 2), (3, 5)], [(1, 1), (2, 3)], PADDINGS, [(1, 1), (2, 2)]
        )
        if fits(k, p, d)
    ]

    def windows(x):
        return tuple(im2col_op(x, **case) for case in cases)

    x = weft.randn(2, 3, *SIZE)
    graph = weft.graph.capture(windows, x).graph
    assert all(library_call_of(node) is Windows for node in graph.outputs)
    want = windows(x)
    assert sum(w.shape[-1] == SIZE[1] for w in want) > 5  # whole images at once
    weft.export(windows, x, tmp_path / "net.c")
    flags = "-O1", "-fsanitize=undefined", "-fno-sanitize-recover=all"
    model = CModel(tmp_path / "net.c", 1 << 20, flags=flags)
    results = [np.full(w.shape, 7, np.float32) for w in want]
    assert model("run", [x.numpy()], results) == "OK"
    for result, w in zip(results, want, strict=True):
        np.testing.assert_array_equal(result, w.numpy())
