"""The GPUs that tests run on: a simulated one and, where there is one, a real one."""

import pytest
from simulated_gpu import simulated_gpu

import weft


@pytest.fixture(
    scope="module", params=["simulated", pytest.param("cuda", marks=pytest.mark.cuda)]
)
def gpu(request):
    if request.param == "cuda":
        yield weft.device("cuda")
        return
    yield weft.register_device(simulated_gpu())
    weft.unregister_device("gpu:0")
