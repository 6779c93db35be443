"""Matrix products: C[m, n] (+)= A[m, k] @ B[k, n], for an instruction set.

    function = emit_gemm(module, "gemm", "float32", isa)

adds two functions to the module:

    void gemm(const T *a, const T *b, T *c, const T *packed, void *epilogue,
              void *context,
              int64_t m, int64_t n, int64_t k,
              int64_t a_row, int64_t a_col, int64_t b_row, int64_t b_col,
              int64_t c_row, int64_t keep, int64_t whole, int64_t first_row,
              int64_t row_begin, int64_t row_end,
              int64_t column_begin, int64_t column_end, T *workspace);
    void gemm_tasks(int64_t *job, int64_t begin, int64_t end, int64_t worker);

Strides count elements and may be anything (transposed operands need no copy); C's
columns are contiguous and C overlaps neither operand. ``keep`` adds to C. The first
function computes a rectangle of C; the second a range of tasks of a batch of products,
as a loop body for the thread pool (`tasks.JOB` lists a job's fields, `tasks.split` cuts
one). A ``workspace`` belongs to one thread while it runs: ``workspace_bytes`` bytes.

Each element of C is a sum over k in blocks of a fixed length, in order: the result
depends on the operands' shapes and strides, never on how C was cut or on threads.

``packed`` is B as panels, which ``gemm_pack`` makes once for many products, or null.

An ``epilogue`` that is not null is called with its ``context`` for each block of C that
is finished, while it is in a cache (see `call_epilogue`). ``first_row`` is the number
that it sees for C's row 0, and in batches rows are numbered through.

The generated code is laid out by hand and needs no optimiser: compile its module with
``level=0``. Arguments given in ``known`` are decided at generation time, which leaves
out code for other cases; the function must then be called with those values.
"""

from weft.compile.targets.cpu.matmul.arrays import matmul_arrays
from weft.compile.targets.cpu.matmul.generate import emit_gemm, workspace_bytes

__all__ = ["emit_gemm", "matmul_arrays", "workspace_bytes"]
