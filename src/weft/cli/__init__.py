"""The ``weft`` command."""
