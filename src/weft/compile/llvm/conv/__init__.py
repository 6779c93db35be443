"""Convolutions, generated for a target."""
