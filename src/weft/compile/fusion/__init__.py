"""Fusion: groups of nodes, their epilogues, and axes that are merged."""
