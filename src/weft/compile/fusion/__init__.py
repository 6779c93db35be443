"""Fusion: which nodes are computed together, in one pass over memory."""
