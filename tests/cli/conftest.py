"""Commands run in forks of one process, which lasts as long as the tests."""

from collections.abc import Iterator

import pytest

from tests.quick_commands import QUICK


@pytest.fixture(scope="session", autouse=True)
def quick_commands(tap: None) -> Iterator[None]:
    """Start the process that forks, after what it inherits from the tests' environment is there."""
    QUICK.start()
    yield
    QUICK.close()
