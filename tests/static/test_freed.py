"""What a static graph holds is freed with it."""

import gc
import weakref

import numpy as np

import weft
from weft import nn, static


def test_a_graph_is_freed_with_all_that_belongs_to_it():
    model = nn.Sequential(nn.Linear(4, 4))
    with static.Graph().as_default() as graph, static.Session() as session:
        x = static.placeholder(weft.float32, (2, 4))
        with static.variable_scope("a"):
            w = static.get_variable("w", [4, 1])
        queue = static.FIFOQueue(4, [weft.float32], [()])
        put = queue.enqueue([static.reduce_sum(static.matmul(model(x), w))])
        static.add_to_collection("mine", x)
        rows = static.data.Dataset.from_tensor_slices(np.ones((3, 2), np.float32))
        row = rows.make_one_shot_iterator().get_next()
        session.run(static.global_variables_initializer())
        session.run(put, {x: np.ones((2, 4), np.float32)})
        assert session.run(queue.dequeue()).shape == ()
        assert session.run(row).shape == (2,)
    alive = [weakref.ref(v) for v in (graph, session, model)]
    del graph, session, model, x, w, queue, put, rows, row
    gc.collect()
    assert [v() for v in alive] == [None, None, None]
