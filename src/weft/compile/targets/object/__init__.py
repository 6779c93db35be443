"""Object code and libraries: programs as machine code that other programs call."""
