"""Two tenants on one store while processes are killed, requests refused, and the store is full: for a short time."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.backends.redis_server import needs_redis
from tests.cluster.troubles import run

pytestmark = pytest.mark.long


@pytest.mark.timeout(240)
@pytest.mark.parametrize("kind", ["sqlite", pytest.param("redis", marks=needs_redis)])
async def test_nothing_is_lost_run_twice_or_seen_by_another_tenant(kind: str, tmp_path: Path) -> None:
    assert await run(kind, 8.0, tmp_path) == []
