"""Parameters as a vector under PyTorch's path ``nn.utils.convert_parameters``."""

from weft.nn.utils import parameters_to_vector, vector_to_parameters

__all__ = ["parameters_to_vector", "vector_to_parameters"]
