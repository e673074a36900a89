"""Several real HTTP apps on one store, and what the tests of shared sessions do with them."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from gemel import Changed, Context, NotSent, Server
from gemel.server.context import served_call
from gemel.transports.http.server.sharing.session import SharedSession
from gemel.transports.http.server.sharing.session_store import SharedSessionStore
from tests.backends.redis_server import RedisServer, needs_redis, redis_server
from tests.transports.http_rig import Log, Site, handshake_call, make_server, serving


class App:
    """One of the apps, in place of a process."""

    def __init__(self, site: Site, server: Server[Any], log: Log) -> None:
        self.site = site
        self.server = server
        self.log = log

    @property
    def store(self) -> SharedSessionStore:
        assert self.site.app is not None
        store = self.site.app._lives.here()._sessions
        assert isinstance(store, SharedSessionStore)
        return store

    def session(self, headers: dict[str, str]) -> SharedSession:
        """What this app has in memory of a session."""
        session = next(each for each in self.store.by_key.values() if each.id == headers["Mcp-Session-Id"])
        assert isinstance(session, SharedSession)
        return session


def make_shared_server(log: Log, backend: Any, **options: Any) -> Server[Any]:
    """The server of every app: what that of the rig has, and more to ask, to subscribe to and to log."""
    server = make_server(log, backend=backend, **options)

    @server.tool
    async def tell(ctx: Context[Any], text: str) -> str:
        """Log a message to the client at level info."""
        await ctx.info(text)
        return "told"

    @server.tool
    async def touch(uri: str) -> str:
        """Say that a resource has changed."""
        server.notify(Changed("resource", uri))
        return "touched"

    @server.tool
    async def announce(ctx: Context[Any], text: str) -> str:
        """Send a message that belongs to no call."""
        await served_call(ctx).session.notify("notifications/message", {"level": "error", "data": text})
        return "announced"

    @server.notification("notifications/roots/list_changed")
    async def roots_changed(ctx: Context[Any], params: Any) -> None:
        try:
            log.add(f"roots: {[root.uri for root in await ctx.list_roots()]}")
        except NotSent as exc:
            log.add(str(exc))

    @server.resource("note://{name}")
    async def note(name: str) -> str:
        return name

    return server


@asynccontextmanager
async def apps(url: str, count: int = 2, *, log: Log | None = None, **options: Any) -> AsyncIterator[list[App]]:
    """Serve the same server several times, each with a connection of its own to the store."""
    http = {name: options.pop(name) for name in ("authenticate", "retry") if name in options}
    async with AsyncExitStack() as stack:
        served: list[App] = []
        for _ in range(count):
            own = log or Log()
            server = make_shared_server(own, url, **options)
            stack.push_async_callback(server.backend.close)
            served.append(App(await stack.enter_async_context(serving(server, **http)), server, own))
        if url.startswith("redis"):  # the first listener gets ChangesLost when its connection is ready
            for app in served:
                await until(lambda app=app: app.server.loops.here().subscriptions.position > 0)
        yield served


def count_operations(app: App) -> list[str]:
    """What the app asks of its backend from now on: each operation with its key, in a list that grows."""
    operations: list[str] = []
    backend = app.server.backend
    names = "get set delete replace touch claim lease append read end_of watch publish subscribe"
    for name in names.split():
        method = getattr(backend, name)

        def counted(*args: Any, method: Any = method, name: str = name, **options: Any) -> Any:
            operations.append(f"{name} {args[0]}")
            return method(*args, **options)

        setattr(backend, name, counted)
    return operations


@pytest.fixture
def redis_store(tmp_path: Path) -> Iterator[RedisServer]:
    """A Redis server."""
    with redis_server(tmp_path / "redis") as running:
        yield running


@pytest.fixture(params=["sqlite", pytest.param("redis", marks=needs_redis)])
def store_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The URL of a store that is new, on each kind of backend."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'shared.db'}"
    return str(request.getfixturevalue("redis_store").url)


def request(method: str, call_id: Any = 1, **params: Any) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": call_id, "method": method, "params": params}


async def call(app: App, session: dict[str, str], name: str, call_id: Any = 1, /, **arguments: Any) -> Any:
    """Call a tool with a JSON answer, or the messages of a stream. Returns the last message."""
    wire = await app.site.call(session, handshake_call(name, call_id, **arguments))
    head = await wire.head()
    if head.streams:
        message = None
        while (following := await wire.message()) is not None:
            message = following
        return message
    body = await wire.reader.readexactly(int(head.headers["content-length"]))
    return json.loads(body)


async def until(condition: Any, seconds: float = 5.0) -> None:
    """Wait until a condition holds. Raises TimeoutError."""
    async with asyncio.timeout(seconds):
        while not condition():  # noqa: ASYNC110 - not signalled
            await asyncio.sleep(0.01)
