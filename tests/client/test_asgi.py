"""A client of an ASGI application in the same process: its lifespan, headers and authorization, streams in both directions."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from fastapi import FastAPI
from starlette.applications import Starlette
from starlette.middleware.gzip import GZipMiddleware
from starlette.routing import Mount

import gemel.sync
from gemel import (
    CallTimeout,
    Changed,
    Client,
    ConnectFailed,
    ConnectionLost,
    Context,
    DefinitionError,
    HttpStatus,
    NotSent,
    ProgressParams,
    Server,
)
from gemel.auth import StaticTokens
from gemel.http1.client.asgi import MOST_WAITING, AsgiWire
from tests.transports.loops import on_both_loops
from tests.transports.scripted_http import until

Messages = Any
eras = pytest.mark.parametrize("era", ["2025", "2026"])


class Diary(list[str]):
    """What happened to the server, in order."""


def made(diary: Diary | None = None, **options: Any) -> Server[Any]:
    notes = Diary() if diary is None else diary

    @asynccontextmanager
    async def life(server: Server[Any]) -> AsyncIterator[str]:
        notes.append("enter server")
        yield "database"
        notes.append("leave server")

    server: Server[Any] = Server("inside", lifespan=life, **options)

    @server.tool
    async def state(ctx: Context[Any]) -> str:
        return str(ctx.state)

    @server.tool
    async def steps(ctx: Context[Any], count: int) -> str:
        for number in range(count):
            await ctx.report_progress(number + 1, count)
            await asyncio.sleep(0)
        return "done"

    @server.tool
    async def header(ctx: Context[Any], name: str) -> str:
        return ctx.headers.get(name, "")

    @server.tool
    async def who(ctx: Context[Any]) -> str:
        return ctx.principal or "nobody"

    @server.tool
    async def book(ctx: Context[Any]) -> str:
        return f"row {await ctx.elicit('Which row?', int)}"

    @server.tool
    async def wait() -> str:
        notes.append("waiting")
        try:
            await asyncio.Event().wait()
        finally:
            notes.append("stopped")
        return ""

    @server.tool
    def large(size: int) -> str:
        return "x" * size

    @server.resource("data://value")
    def value() -> str:
        return "value"

    return server


def mounted(server: Server[Any], diary: Diary | None = None, **options: Any) -> FastAPI:
    notes = Diary() if diary is None else diary

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[dict[str, str]]:
        notes.append("enter app")
        async with server.running():
            yield {"shared": "by the app"}
        notes.append("leave app")

    app = FastAPI(lifespan=lifespan)
    app.mount("/ai", server.http_app(**options))
    return app


AI = "http://localhost/ai/mcp"


# ---------------------------------------------------------------- what a client does


@on_both_loops
@eras
async def test_calls_with_progress_answers_and_subscriptions(era: Any) -> None:
    server = made()
    async with Client(server.http_app(), era=era, on_elicit=lambda form: {"value": 7}) as client:
        assert client.era == era
        assert (await client.call_tool("state")).text == "database"
        progress: list[ProgressParams] = []
        assert (await client.call_tool("steps", {"count": 3}, on_progress=progress.append)).text == "done"
        assert [one.progress for one in progress] == [1, 2, 3]
        assert (await client.call_tool("book")).text == "row 7"
        assert (await client.read_resource("data://value")).text == "value"
        async with client.listen(resources=["data://value"]) as changes:
            server.notify(Changed("resource", "data://value"))
            async with asyncio.timeout(10):
                assert await anext(changes) == Changed("resource", "data://value")


@eras
async def test_many_calls_at_once(era: Any) -> None:
    async with Client(made().http_app(), era=era) as client:
        results = await asyncio.gather(*(client.call_tool("steps", {"count": 5}) for _ in range(40)))
    assert {result.text for result in results} == {"done"}


@eras
def test_a_blocking_client(era: Any) -> None:
    diary = Diary()
    with gemel.sync.Client(mounted(made(diary), diary), url=AI, era=era) as client:
        assert client.call_tool("state").text == "database"
    assert diary == ["enter app", "enter server", "leave app", "leave server"]


async def test_the_endpoint_of_a_server_needs_no_url() -> None:
    async with Client(made().http_app()) as client:
        assert (await client.call_tool("state")).text == "database"


@eras
async def test_a_call_that_is_given_up_is_cancelled_in_the_application(era: Any) -> None:
    diary = Diary()
    async with Client(made(diary).http_app(), era=era) as client:
        calling = asyncio.create_task(client.call_tool("wait"))
        await until(lambda: "waiting" in diary)
        calling.cancel()
        await until(lambda: "stopped" in diary)
        with pytest.raises(CallTimeout):
            await client.call_tool("wait", total=0.05)
        await until(lambda: diary.count("stopped") == 2)
        assert (await client.call_tool("state")).text == "database"


@eras
async def test_a_result_of_many_megabytes(era: Any) -> None:
    async with Client(made().http_app(), era=era) as client:
        assert len((await client.call_tool("large", {"size": 5 << 20})).text) == 5 << 20


async def test_the_older_transport_of_an_application() -> None:
    app = made().http_app(sse_path="/sse")
    async with Client(app, url="http://localhost/sse", on_elicit=lambda form: {"value": 7}) as client:
        assert client.era == "2025"
        assert (await client.call_tool("book")).text == "row 7"


async def test_middleware_of_the_application_takes_part() -> None:
    app = GZipMiddleware(made().http_app(), minimum_size=100)
    async with Client(app) as client:
        assert (await client.call_tool("large", {"size": 10_000})).text == "x" * 10_000


# ---------------------------------------------------------------- headers and authorization


async def test_headers_of_the_client_arrive() -> None:
    async with Client(made().http_app(), headers={"X-Tenant": "acme"}) as client:
        assert (await client.call_tool("header", {"name": "x-tenant"})).text == "acme"
        assert (await client.call_tool("header", {"name": "host"})).text == "localhost"


@eras
async def test_a_token_says_who_calls(era: Any) -> None:
    auth = StaticTokens({"1234": "alice"})
    app = made(auth=auth).http_app()
    async with Client(app, era=era, auth=lambda: "Bearer 1234") as client:
        assert (await client.call_tool("who")).text == "alice"
    with pytest.raises(HttpStatus) as refused:
        await Client(app, era=era).connect()
    assert refused.value.status == 401


async def test_the_host_of_the_url_is_judged_as_any_other() -> None:
    app = made().http_app(allowed_hosts=["shop.example.com"])
    async with Client(app, url="https://shop.example.com/mcp") as client:
        assert (await client.call_tool("header", {"name": "host"})).text == "shop.example.com"
    with pytest.raises(HttpStatus, match=r"evil\.example"):
        await Client(app, url="http://evil.example/mcp").connect()


# ---------------------------------------------------------------- the lifespan


async def test_the_lifespan_of_an_application_is_that_of_its_clients() -> None:
    diary = Diary()
    app = made(diary).http_app()
    async with Client(app):
        async with Client(app) as other:
            assert (await other.call_tool("state")).text == "database"
        assert diary == ["enter server"]
    assert diary == ["enter server", "leave server"]
    async with Client(app):
        assert diary.count("enter server") == 2


def test_a_mounted_server_is_left_at_the_end_of_the_event_loop() -> None:
    """Frameworks do not tell mounted applications that they stop."""
    diary = Diary()

    async def use() -> None:
        async with Client(mounted(made(diary), diary), url=AI) as client:
            assert (await client.call_tool("state")).text == "database"
        assert diary == ["enter app", "enter server", "leave app"]

    asyncio.run(use())
    assert diary == ["enter app", "enter server", "leave app", "leave server"]


async def test_an_application_that_can_not_start_says_why(caplog: pytest.LogCaptureFixture) -> None:
    async def find_database() -> None:
        raise LookupError("there is no database")

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        await find_database()
        yield

    app = Starlette(lifespan=lifespan, routes=[Mount("/", made().http_app())])
    with pytest.raises(ConnectFailed) as failed:
        await Client(app).connect()
    assert str(failed.value) == "The app Starlette could not start: LookupError: there is no database"
    assert "Traceback" in caplog.text


async def plain(scope: Any, receive: Any, send: Any) -> None:
    """Knows no lifespan, and answers each request with what its lifespan would have yielded."""
    assert scope["type"] == "http", scope["type"]
    assert scope["state"] == {}
    await send({"type": "http.response.start", "status": 418, "headers": [(b"content-type", b"text/plain")]})
    await send({"type": "http.response.body", "body": b"I am a teapot"})


async def test_an_application_without_a_lifespan_serves_all_the_same() -> None:
    with pytest.raises(HttpStatus, match="418"):
        await Client(plain, era="2025").connect()


async def test_the_state_of_the_lifespan_is_in_each_request() -> None:
    seen: list[dict[str, Any]] = []

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[dict[str, str]]:
        yield {"shared": "by the app"}

    endpoint, around = made().http_app(), Starlette(lifespan=lifespan)

    async def outer(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "lifespan":
            await around(scope, receive, send)
            return
        seen.append(scope["state"])
        await endpoint(scope, receive, send)

    async with Client(outer) as client:
        await client.ping()
    await endpoint.stop()
    assert seen
    assert {one["shared"] for one in seen} == {"by the app"}


# ---------------------------------------------------------------- applications that fail


async def broken(scope: Any, receive: Any, send: Any) -> None:
    raise LookupError("the table is missing")


async def silent(scope: Any, receive: Any, send: Any) -> None: ...


async def cut(scope: Any, receive: Any, send: Any) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-type", b"application/json")]})
    await send({"type": "http.response.body", "body": b'{"jsonrpc"', "more_body": True})
    raise LookupError("in the middle")


@pytest.mark.parametrize(
    ("app", "words"),
    [
        (broken, "The app failed: LookupError: the table is missing"),
        (silent, "The app ended without a complete response"),
        (cut, "The app failed: LookupError: in the middle"),
    ],
)
async def test_an_application_that_fails_fails_the_request_and_is_logged(
    app: Any, words: str, caplog: pytest.LogCaptureFixture
) -> None:
    with pytest.raises(ConnectFailed, match=words):
        await Client(app, era="2025").connect()
    assert ("An ASGI app failed: POST /mcp" in caplog.text) == (app is not silent)


def test_options_and_targets_that_do_not_fit() -> None:
    app = made().http_app()
    with pytest.raises(DefinitionError, match="A client of an ASGI app has no option env"):
        Client(app, env={"A": "b"})
    with pytest.raises(DefinitionError, match="A client of 'http://localhost/mcp' has no option url"):
        Client("http://localhost/mcp", url=AI)
    with pytest.raises(DefinitionError, match="is not an http:// or https:// URL with a host"):
        Client(app, url="mcp")


async def test_a_wire_that_is_none_is_named() -> None:
    client = Client("http://localhost/mcp", wire=dict)  # type: ignore[arg-type]  # the mistake itself
    with pytest.raises(DefinitionError, match=r"wire= makes a dict.*for an ASGI app write Client\(app\)"):
        await client.connect()


# ---------------------------------------------------------------- the wire


async def test_an_application_waits_for_a_slow_reader() -> None:
    sent: list[int] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        for number in range(40):
            await send({"type": "http.response.body", "body": b"x" * (MOST_WAITING // 4), "more_body": number < 39})
            sent.append(number)

    wire = AsgiWire(app)
    response = await wire.open("GET", "http://localhost/", (), None)
    for _ in range(20):
        await asyncio.sleep(0)
    assert len(sent) < 8
    size = 0
    while piece := await response.read():
        size += len(piece)
    assert size == 40 * (MOST_WAITING // 4)
    await wire.close()


async def test_an_application_is_told_that_its_client_has_left() -> None:
    told: list[Any] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        assert (await receive())["body"] == b"body"
        await send({"type": "http.response.start", "status": 200, "headers": [(b"A", b"1"), (b"a", b"2")]})
        told.append((await receive())["type"])
        with contextlib.suppress(OSError):
            await send({"type": "http.response.body", "body": b"late"})
            told.append("nobody objects")

    wire = AsgiWire(app)
    response = await wire.open("POST", "http://localhost/x?y=1", (("X-Y", "z"),), b"body")
    assert response.headers == {"a": "1, 2"}
    response.close()
    await wire.close()
    assert told == ["http.disconnect"]
    with pytest.raises(ConnectionLost):
        await response.read()
    with pytest.raises(NotSent, match="The wire is closed"):
        await wire.open("GET", "http://localhost/", (), None)


async def test_an_application_that_does_not_end_is_cancelled_with_the_wire() -> None:
    ended: list[str] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        try:
            await asyncio.Event().wait()
        finally:
            ended.append("cancelled")

    wire = AsgiWire(app)
    await wire.open("GET", "http://localhost/", (), None)
    await wire.close()
    assert ended == ["cancelled"]


async def test_requests_do_not_see_the_context_of_their_callers() -> None:
    server = made()

    @server.tool
    async def nested() -> str:
        async with Client(server.http_app()) as client:
            return (await client.call_tool("who")).text

    async with Client(server.http_app()) as client:
        assert (await client.call_tool("nested")).text == "nobody"
