"""LLVM IR for scalar and vector code, shared by all targets."""
