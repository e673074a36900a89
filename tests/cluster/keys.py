"""The keys in the store of the cluster: each names the server."""

from __future__ import annotations

import asyncio
import re
import sqlite3
from collections.abc import Iterable

#: The statements that give all keys of a SQLite file, and the kinds of its changes.
_QUERIES = ("SELECT key FROM items", "SELECT key FROM leases", "SELECT key FROM logs", "SELECT kind FROM changes")
#: A key in Redis: the prefix, what it is, and the key of the backend.
_REDIS = re.compile(r"gemel:[a-z]+:\{\.(.*)\}\Z", re.DOTALL)


async def keys_in(url: str) -> list[str]:
    """All keys in a store, as its backend was given them."""
    if url.startswith("sqlite:///"):
        return await asyncio.to_thread(_keys_in_file, url.removeprefix("sqlite:///"))
    from redis.asyncio import Redis

    async with Redis.from_url(url) as redis:
        names = [key.decode() async for key in redis.scan_iter(count=1000)]
    return [match[1] if (match := _REDIS.match(name)) else name for name in names if name != "gemel:format"]


def _keys_in_file(path: str) -> list[str]:
    database = sqlite3.connect(path)
    try:
        rows = [value for query in _QUERIES for (value,) in database.execute(query)]
    finally:
        database.close()
    return [value.decode() if isinstance(value, bytes) else value for value in rows if value != ""]


def without_server(keys: Iterable[str], name: str) -> list[str]:
    """The keys that don't name a server."""
    return [key for key in keys if not key.startswith(f"{len(name)}:{name}/")]
