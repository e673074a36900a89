"""Other apps beside the endpoint: their paths, the same door, and the end of the server."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from starlette.applications import Starlette
from starlette.responses import PlainTextResponse
from starlette.routing import Route

from gemel import DefinitionError, Limits
from tests.transports.http_rig import JSON_HEADERS, Log, initialize, make_server, serving


async def name(request: Any) -> PlainTextResponse:
    return PlainTextResponse(request.path_params["name"])


pages = Starlette(routes=[Route("/{name}", name)])
metrics = PlainTextResponse("calls 7")


async def test_each_path_has_its_app_and_the_endpoint_keeps_its_own() -> None:
    routes = {"/metrics": metrics, "/pages/": pages, "/pages/deep/": PlainTextResponse("deep")}
    async with serving(make_server(Log()), routes=routes) as site:
        found = [
            await site.ask({}, b"", "GET", path) for path in ("/metrics", "/pages/start", "/pages/deep/x", "/readyz")
        ]
        assert [reply.body for reply in found] == [b"calls 7", b"start", b"deep", b'"ok"']
        assert (await site.ask({}, b"", "GET", "/metrics/more")).status == 404
        assert (await site.ask(JSON_HEADERS, initialize("2025-06-18"))).status == 200


@pytest.mark.parametrize(
    ("headers", "status"), [({"Host": "evil.example"}, 403), ({"Origin": "https://evil.example"}, 403)]
)
async def test_they_lie_behind_the_same_door(headers: dict[str, str], status: int) -> None:
    """LHTTP-29, SEC-04."""
    async with serving(make_server(Log()), routes={"/metrics": metrics}) as site:
        reply = await site.ask(headers, b"", "GET", "/metrics")
    assert (reply.status, b"may not" in reply.body or b"not served" in reply.body) == (status, True)


@pytest.mark.parametrize(
    ("routes", "words"),
    [
        ({"metrics": metrics}, "routes: write"),
        ({"/metrics": "text"}, "routes: write"),
        ({"/mcp": metrics}, "/mcp is served already"),
        ({"/": metrics}, "/ is served already"),
        ({"/livez": metrics}, "/livez is served already"),
        ({"/sse": metrics}, "/sse is served already"),
    ],
)
def test_what_cannot_be_is_told_at_once(routes: Any, words: str) -> None:
    with pytest.raises(DefinitionError, match=words):
        make_server(Log()).http_app(routes=routes, sse_path="/sse")


async def test_one_that_does_not_end_does_not_keep_the_server_from_stopping() -> None:
    log = Log()

    async def endless(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"begun", "more_body": True})
        try:
            log.add("begun")
            await asyncio.Event().wait()
        finally:
            log.add("ended")

    server = make_server(log, limits=Limits(drain=0.1))
    async with serving(server, routes={"/endless": endless}) as site:
        wire = await site.call({}, b"", "GET", "/endless")
        await log.until("begun")
        assert site.app is not None
        async with asyncio.timeout(5):
            await site.app.stop()
        await log.until("ended")
        wire.close()


async def test_one_that_fails_is_not_the_endpoint_s_failure() -> None:
    async def broken(scope: Any, receive: Any, send: Any) -> None:
        raise RuntimeError("no metrics")

    async with serving(make_server(Log()), routes={"/broken": broken}) as site:
        reply = await site.ask({}, b"", "GET", "/broken")
        assert (reply.status, b"metrics" in reply.body) == (500, False)
        assert (await site.ask(JSON_HEADERS, initialize("2025-06-18"))).status == 200


async def test_a_body_for_another_app_must_arrive_within_body_wait() -> None:
    read: list[bytes] = []

    async def upload(scope: Any, receive: Any, send: Any) -> None:
        message = await receive()
        while message.get("more_body"):
            read.append(message["body"])
            message = await receive()
        await PlainTextResponse("done")(scope, receive, send)

    async with serving(make_server(Log()), routes={"/upload": upload}, body_wait=0.2) as site:
        wire = await site.open()
        wire.writer.write(b"POST /upload HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 10\r\n\r\nhello")
        assert (await wire.reply()).status == 408
        assert read == [b"hello"]
        assert (await site.ask({}, b"hello", "POST", "/upload")).body == b"done"
