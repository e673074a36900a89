"""The keys of the store of the cluster are read from it, and one without its server is noticed."""

from __future__ import annotations

from pathlib import Path

import pytest

from gemel import Changed
from gemel.backends import ServerBackend, backend_for
from tests.backends.redis_server import needs_redis, redis_server
from tests.cluster.keys import keys_in, without_server


@pytest.mark.parametrize("kind", ["sqlite", pytest.param("redis", marks=needs_redis)])
async def test_a_key_without_its_server_is_noticed(kind: str, tmp_path: Path) -> None:
    if kind == "sqlite":
        return await check(f"sqlite:///{tmp_path}/state.db")
    with redis_server(tmp_path / "redis") as running:
        await check(running.url)


async def check(url: str) -> None:
    backend = backend_for(url)
    part = ServerBackend(backend, "cluster")
    await part.set("note:{1}", b"text")
    await part.claim("claim", ttl=60)
    await part.append("log", [b"entry"], ttl=60)
    part.publish(Changed("tools"))
    await part.flush()
    async with part.lease("lease", ttl=60):
        assert len(await keys_in(url)) >= 4
        assert not without_server(await keys_in(url), "cluster")
        await backend.set("note:2", b"text")
        await ServerBackend(backend, "other").set("note:3", b"text")
        assert sorted(without_server(await keys_in(url), "cluster")) == ["5:other/6:note:3", "note:2"]
    await backend.close()
