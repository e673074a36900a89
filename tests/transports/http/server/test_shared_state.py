"""`ctx.session_state` of an HTTP session that several processes serve."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from gemel import Context, GemelError, Limits, Server
from gemel.transports.http.server.sharing.stored_sessions import SessionKeys
from tests.transports.http_rig import Site, handshake_call, process, text_of
from tests.transports.sharing_rig import App, apps, call, count_operations, redis_store, request, store_url, until

__all__ = ("redis_store", "store_url")  # fixtures

PROGRAM = """
from gemel import Context, Server

server = Server("shared", backend=URL)

@server.tool
async def add(ctx: Context) -> str:
    return str(await ctx.session_state.update("count", lambda count: count + 1, int, 0))

@server.tool
async def keep(key: str, value: str, ctx: Context) -> str:
    await ctx.session_state.set(key, value)
    return "kept"

@server.tool
async def kept(ctx: Context) -> str:
    state = ctx.session_state
    return str({key: await state.get(key) for key in sorted(await state.keys())})

server.run("http", port=0)
"""


@asynccontextmanager
async def two_processes(directory: Path, url: str) -> AsyncIterator[list[tuple[Site, Any]]]:
    """The program, twice."""
    async with AsyncExitStack() as stack:
        running: list[tuple[Site, Any]] = []
        for name in ("a", "b"):
            (directory / name).mkdir()
            program = PROGRAM.replace("URL", repr(url))
            made = await stack.enter_async_context(process(directory / name, program))
            assert made.stderr is not None
            while b"http://" not in (line := await made.stderr.readline()):
                assert line
            site = Site(int(line.decode().rsplit(":", 1)[1].split("/")[0]))
            stack.callback(site.close)
            running.append((site, made))
        yield running


async def text(site: Site, session: dict[str, str], name: str, call_id: Any = 1, /, **arguments: Any) -> str:
    """The text of a result, which comes as JSON."""
    wire = await site.call(session, handshake_call(name, call_id, **arguments))
    head = await wire.head()
    body = await wire.reader.readexactly(int(head.headers["content-length"]))
    wire.close()
    return text_of(json.loads(body))


async def test_writes_of_two_processes_at_once_lose_nothing(store_url: str, tmp_path: Path) -> None:
    async with two_processes(tmp_path, store_url) as ((a, _), (b, _)):
        session = await a.session()
        sites = (a, b)
        counts = await asyncio.gather(*(text(sites[n % 2], session, "add", n) for n in range(60)))
        assert sorted(map(int, counts)) == list(range(1, 61))
        keys = [f"key{n:02}" for n in range(40)]
        await asyncio.gather(
            *(text(sites[n % 2], session, "keep", n, key=key, value=key) for n, key in enumerate(keys))
        )
        expected = str({"count": 60, **{key: key for key in keys}})
        assert [await text(site, session, "kept") for site in sites] == [expected, expected]


async def test_it_outlives_the_process_that_wrote_it(store_url: str, tmp_path: Path) -> None:
    async with two_processes(tmp_path, store_url) as ((a, first), (b, _)):
        session = await a.session()
        assert await text(a, session, "keep", key="pen", value="blue") == "kept"
        first.kill()
        await first.wait()
        assert await text(b, session, "kept") == "{'pen': 'blue'}"


def add_tools(server: Server[Any]) -> None:
    @server.tool
    async def keep(ctx: Context[Any], key: str, value: str) -> str:
        try:
            await ctx.session_state.set(key, value)
        except GemelError as error:
            return type(error).__name__
        return "kept"

    @server.tool
    async def kept(ctx: Context[Any]) -> str:
        state = ctx.session_state
        return str({key: await state.get(key) for key in await state.keys()})


@pytest.fixture
async def pair(store_url: str) -> AsyncIterator[list[App]]:
    async with apps(store_url, limits=Limits(session_state_bytes=1 << 20, session_state_keys=10_000)) as served:
        for app in served:
            add_tools(app.server)
        yield served


async def kept(app: App, session: dict[str, str]) -> str:
    return text_of(await call(app, session, "kept"))


async def test_each_session_has_its_own(pair: list[App]) -> None:
    a, b = pair
    one, other = await a.site.session(), await a.site.session()
    await call(a, one, "keep", key="pen", value="blue")
    assert (await kept(b, one), await kept(b, other)) == ("{'pen': 'blue'}", "{}")


async def test_it_ends_with_the_session_in_all_processes(pair: list[App]) -> None:
    a, b = pair
    session = await a.site.session()
    await call(b, session, "keep", key="pen", value="blue")
    record = a.session(session).keys.record
    assert await a.server.backend.get(record) is not None
    assert (await a.site.ask(session, b"", "DELETE")).status == 204
    for app in pair:
        assert await app.server.backend.get(record) is None
        assert (await app.site.ask(session, request("ping"))).status == 404
    assert await kept(b, await b.site.session()) == "{}"


async def test_a_call_that_outlives_its_session_is_refused(pair: list[App]) -> None:
    a, b = pair
    session = await a.site.session()
    states: list[Any] = []

    @a.server.tool
    async def remember(ctx: Context[Any]) -> str:
        states.append(ctx.session_state)
        return ""

    await call(a, session, "remember")
    assert (await b.site.ask(session, b"", "DELETE")).status == 204
    for use in (states[0].get("pen"), states[0].set("pen", 1), states[0].update("pen", str)):
        with pytest.raises(GemelError, match="the session has ended"):
            await use


async def test_what_a_middleware_keeps_during_initialize_is_there(store_url: str) -> None:
    async def note(ctx: Context[Any], call_next: Any) -> Any:
        if ctx.method == "initialize":
            await ctx.session_state.set("begun", ctx.method)
        return await call_next(ctx)

    async with apps(store_url, middleware=[note]) as (a, b):
        add_tools(b.server)
        assert await kept(b, await a.site.session()) == "{'begun': 'initialize'}"


async def test_it_is_stored_encrypted(pair: list[App]) -> None:
    a, _ = pair
    session = await a.site.session()
    await call(a, session, "keep", key="pen", value="very blue")
    stored = await a.server.backend.get(a.session(session).keys.record)
    assert stored is not None
    assert b"very blue" not in stored


async def test_a_backend_keeps_512_kib_of_it(pair: list[App]) -> None:
    a, b = pair
    session = await a.site.session()
    assert text_of(await call(a, session, "keep", key="a", value="x" * (400 << 10))) == "kept"
    assert text_of(await call(b, session, "keep", key="b", value="x" * (200 << 10))) == "GemelError"
    assert text_of(await call(a, session, "keep", key="b", value="x" * (100 << 10))) == "kept"
    assert (await a.site.ask(session, request("logging/setLevel", level="error"))).json()["result"] == {}


async def test_each_use_is_a_few_operations_and_other_calls_touch_no_backend(pair: list[App]) -> None:
    a, _ = pair
    session = await a.site.session()
    await call(a, session, "keep", key="pen", value="blue")
    operations = count_operations(a)
    record = SessionKeys(a.server.name, session["Mcp-Session-Id"], a.session(session).owner).record
    await call(a, session, "add", a=1, b=1)
    assert [each for each in operations if record in each] == []
    await call(a, session, "keep", key="pen", value="red")
    assert [each for each in operations if record in each] == [f"get {record}", f"replace {record}"]


async def test_a_connection_lifespan_is_entered_once_in_each_process(store_url: str) -> None:
    entered: list[str] = []
    left: list[str] = []

    @asynccontextmanager
    async def connected(ctx: Context[Any]) -> AsyncIterator[str]:
        entered.append(ctx.method)
        yield f"connection {len(entered)}"
        left.append(ctx.method)
        raise OSError("the database was gone already")

    async with apps(store_url, connection_lifespan=connected) as pair:
        for app in pair:

            @app.server.tool
            async def which(ctx: Context[Any]) -> str:
                return str(ctx.connection_state)

        a, b = pair
        session = await a.site.session()
        assert (await b.site.ask(session, request("ping"))).json()["result"] == {}
        assert entered == []
        answers = [text_of(await call(app, session, "which")) for app in (a, b, a, b)]
        assert answers == ["connection 1", "connection 2"] * 2
        assert (await a.site.ask(session, b"", "DELETE")).status == 204
        await until(lambda: len(left) == 2)
