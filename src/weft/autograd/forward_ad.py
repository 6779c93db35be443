"""Forward mode by hand: see ``weft.func.dual_level``, where it is defined."""

import importlib

_defined = importlib.import_module("weft.func.dual_level")  # a later package
UnpackedDualTensor = _defined.UnpackedDualTensor
dual_level = _defined.dual_level
enter_dual_level = _defined.enter_dual_level
exit_dual_level = _defined.exit_dual_level
make_dual = _defined.make_dual
unpack_dual = _defined.unpack_dual
