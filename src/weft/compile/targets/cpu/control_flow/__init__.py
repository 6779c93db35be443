"""Loops and branches of graphs as native code, around launches of their bodies."""
