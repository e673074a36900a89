"""APIs in this process: an ASGI app is asked without a socket, as if it were far away."""

from __future__ import annotations

import json
from typing import Any

import pytest

from gemel import Client, Server
from gemel.http1.asgi import is_asgi_app
from tests.server.composition.test_made_from import DOCUMENT


async def echo(scope: Any, receive: Any, send: Any) -> None:
    """Tell what came."""
    body, more = b"", True
    while more:
        message = await receive()
        body += message.get("body", b"")
        more = message.get("more_body", False)
    said = {
        "method": scope["method"],
        "path": scope["path"],
        "raw": scope["raw_path"].decode(),
        "query": scope["query_string"].decode(),
        "host": dict(scope["headers"])[b"host"].decode(),
        "token": dict(scope["headers"]).get(b"authorization", b"").decode(),
        "body": body.decode(),
    }
    await send({"type": "http.response.start", "status": 200, "headers": [(b"Content-Type", b"application/json")]})
    await send({"type": "http.response.body", "body": b"", "more_body": True})
    await send({"type": "http.response.body", "body": json.dumps(said).encode()})


async def test_an_app_is_asked_as_if_it_were_far_away() -> None:
    made = Server.from_openapi(DOCUMENT, http_client=echo, headers={"Authorization": "Bearer t"})
    async with Client(made) as client:
        found = await client.call_tool("say", {"word": "hi/there you", "times": 2, "body": {"loud": True}})
    assert found.data == {
        "method": "POST",
        "path": "/api/say/hi/there you",
        "raw": "/api/say/hi%2Fthere%20you",
        "query": "times=2",
        "host": "echo.example.com",
        "token": "Bearer t",
        "body": '{"loud":true}',
    }


@pytest.mark.parametrize(("servers", "path"), [([], "/say/x"), ([{"url": "/v1"}], "/v1/say/x")])
async def test_an_app_needs_no_address(servers: list[Any], path: str) -> None:
    """Frameworks write documents that name none."""
    made = Server.from_openapi({**DOCUMENT, "servers": servers}, echo)
    async with Client(made) as client:
        found = (await client.call_tool("say", {"word": "x"}, returns=dict[str, str])).data
    assert (found["path"], found["host"]) == (path, "localhost")


async def silent(scope: Any, receive: Any, send: Any) -> None: ...


async def endless(scope: Any, receive: Any, send: Any) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": []})
    while True:
        await send({"type": "http.response.body", "body": b"x" * 1000, "more_body": True})


async def broken(scope: Any, receive: Any, send: Any) -> None:
    raise RuntimeError("the password is 1234")


@pytest.mark.parametrize(
    ("app", "words"),
    [
        (silent, "The API can't be reached"),
        (endless, "The response of the API has more than 5000 bytes"),
        (broken, "The API can't be reached"),
    ],
)
async def test_an_app_that_fails_fails_the_call_only(app: Any, words: str) -> None:
    made = Server.from_openapi(DOCUMENT, app, reply_bytes=5000)
    async with Client(made) as client:
        found = await client.call_tool("say", {"word": "x"}, raise_on_error=False)
        assert (found.is_error, found.text) == (True, words)


def test_apps_are_told_from_other_clients() -> None:
    class App:
        async def __call__(self, scope: Any, receive: Any, send: Any) -> None: ...

    async def fetch(method: str, url: str, headers: Any, body: Any) -> None: ...

    assert is_asgi_app(echo)
    assert is_asgi_app(App())
    assert not is_asgi_app(fetch)
    assert not is_asgi_app(object())
    assert not is_asgi_app(None)
