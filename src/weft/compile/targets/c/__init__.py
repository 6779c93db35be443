"""C as a target: programs as one C99 file that needs libc and libm alone."""
