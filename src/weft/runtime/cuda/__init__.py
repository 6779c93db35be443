"""NVIDIA GPUs: the driver, through ``cuda-bindings`` (``pip install weft[cuda]``)."""
