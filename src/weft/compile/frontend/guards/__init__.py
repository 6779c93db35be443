"""Python values that a compiled program depends on, noted when it is captured.

Capturing runs the Python once, and what it read is fixed in the program. ``Reads``
notes what that was; ``Guards`` says before each run whether it is still so.
"""

from weft.compile.frontend.guards.checks import Guards, TensorGuards
from weft.compile.frontend.guards.reads import Reads

__all__ = ["Guards", "Reads", "TensorGuards"]
