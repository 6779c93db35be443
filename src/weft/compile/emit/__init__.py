"""LLVM: from loops to machine code, in-process."""
