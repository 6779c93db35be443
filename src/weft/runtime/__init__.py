"""The machine at hand: threads now; buffers and kernels with the compiler."""
