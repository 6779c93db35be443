"""Attention and its gradients, generated for an instruction set.

    emit_attention(module, dtype, isa, unit)

adds functions ``void attention_X_tasks(int64_t *job, begin, end, worker)``, with X
``forward``, ``few`` (the same for few queries) and ``backward``, or ``masked_forward``
and ``masked_backward``, as the unit of code says. They compute some of a job's
tasks (`record.JOB` lists a job's fields, `plan` makes jobs). The matrix of scores
is never stored: `forward` keeps the largest score and the sum of each row and corrects
them block by block, `backward` recomputes blocks of scores from what the forward
kept, one number a row. Products are the strips of `matmul`. Keys behind a query are not
computed where ``causal``.

Operands are read in place, if features are contiguous; a mask may repeat along
any axis. Each element is summed in an order that depends on sizes alone.
"""

from weft.compile.targets.cpu.attention.arrays import attend, attend_backward
from weft.compile.targets.cpu.attention.generate import emit_attention

__all__ = ["attend", "attend_backward", "emit_attention"]
