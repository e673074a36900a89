"""Tests of code mode."""

import pytest


@pytest.fixture(autouse=True)
def _with_sandbox_threads(sandbox_threads: None) -> None:
    """As the name says."""
