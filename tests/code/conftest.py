"""The threads of the sandbox's client, which stay for good: begun before tests look at what they leave behind."""

import asyncio
from contextlib import suppress

import pytest

from gemel.code.sandbox import ScriptLimits, run_script


@pytest.fixture(scope="session", autouse=True)
def sandbox_threads() -> None:
    with suppress(ImportError):
        asyncio.run(run_script("1", {}, ScriptLimits()))
