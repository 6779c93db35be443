"""Targets: the machines that code is generated for."""
