"""Functions of neural networks, with PyTorch's names: ``weft.nn.functional``."""
