"""A session's worlds of several processes."""

import pytest
from worlds import Worlds


@pytest.fixture(scope="session")
def worlds():
    made = Worlds()
    yield made
    made.close()
