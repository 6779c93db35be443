"""The cost model: operations, bytes and seconds of a program's nodes."""
