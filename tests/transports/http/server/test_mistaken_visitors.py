"""Who comes to a server by mistake: a browser at the endpoint, and an ASGI server that is given the Server itself."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from starlette.applications import Starlette
from starlette.routing import Mount

from gemel import Client, DefinitionError, Refusal, Server
from tests.transports.http_rig import Log, make_server, serving

#: What Firefox, Chromium and Safari send for an address that somebody types.
BROWSERS = [
    "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8",
    "text/html,application/xhtml+xml,application/xml;q=0.9,image/avif,image/webp,image/apng,*/*;q=0.8,"
    "application/signed-exchange;v=b3;q=0.7",
    "*/* , TEXT/HTML ; q=0.5",
]
UNAUTHORIZED = Refusal(401, "who are you?", ((b"www-authenticate", b"Bearer"),))


async def refused(*request: Any) -> Refusal:
    return UNAUTHORIZED


# ---------------------------------------------------------------- browsers


@pytest.mark.parametrize("accept", BROWSERS, ids=["Firefox", "Chromium", "other"])
@pytest.mark.parametrize(
    ("options", "status"),
    [({}, 400), ({"sessions": False}, 405), ({"authenticate": refused}, 401)],
    ids=["sessions", "no sessions", "no token"],
)
async def test_a_browser_gets_a_page_with_the_status_that_others_get(
    options: dict[str, Any], status: int, accept: str
) -> None:
    async with serving(make_server(Log()), **options) as site:
        others = await site.ask({"Accept": "application/json, text/event-stream"}, b"", "GET")
        headers = {"Accept": accept, "User-Agent": "Echo/1", "MCP-Protocol-Version": "echo", "Mcp-Session-Id": "echo"}
        if status == 400:
            del headers["Mcp-Session-Id"], headers["MCP-Protocol-Version"]
        page = await site.ask(headers, b"", "GET", "/mcp?echo=echo")
    assert (others.status, page.status) == (status, status)
    assert page.headers["content-type"] == "text/html; charset=utf-8"
    assert page.headers["content-security-policy"].startswith("default-src 'none'")
    assert b"it answers MCP clients, not browsers" in page.body
    assert b"echo" not in page.body.lower()
    assert len(page.body) < 500
    for name in ("www-authenticate", "allow"):
        assert page.headers.get(name) == others.headers.get(name)


async def test_the_page_is_the_same_whatever_is_wrong() -> None:
    """It tells nothing of sessions and revisions, which the JSON for clients does."""
    async with serving(make_server(Log())) as site:
        pages = [
            await site.ask({"Accept": BROWSERS[0], **more}, b"", "GET")
            for more in ({}, {"Mcp-Session-Id": "x"}, {"MCP-Protocol-Version": "<script>"})
        ]
    assert len({page.body for page in pages}) == 1
    assert all(page.headers["content-type"].startswith("text/html") for page in pages)


@pytest.mark.parametrize(
    "headers", [{"Host": "evil.example"}, {"Origin": "https://evil.example"}], ids=["another name", "another site"]
)
async def test_a_page_is_shown_after_the_checks_of_host_and_origin(headers: dict[str, str]) -> None:
    async with serving(make_server(Log())) as site:
        reply = await site.ask({"Accept": BROWSERS[0], **headers}, b"", "GET")
    assert (reply.status, reply.headers["content-type"]) == (403, "application/json")


@pytest.mark.parametrize(
    "accept", ["*/*", "text/*", "text/event-stream", "text/html, text/event-stream", "text/html;q=0, */*", "(absent)"]
)
async def test_clients_get_json_as_always(accept: str) -> None:
    async with serving(make_server(Log())) as site:
        reply = await site.ask({"Accept": accept}, b"", "GET")
        assert (reply.status, reply.headers["content-type"]) == (400, "application/json")
        session = await site.session()
        listening = await site.call({**session, "Accept": accept}, b"", "GET")
        head = await listening.head()
        assert head.status == (406 if "q=0" in accept and "*/*" not in accept else 200)


async def test_what_a_browser_posts_is_not_answered_with_a_page() -> None:
    async with serving(make_server(Log())) as site:
        reply = await site.ask({"Accept": BROWSERS[0], "Content-Type": "text/plain"}, b"hi")
    assert (reply.status, reply.headers["content-type"]) == (415, "application/json")


# ---------------------------------------------------------------- ASGI servers

LINE = "'weather' is a gemel.Server, not an ASGI application: write app = server.http_app(), and serve app"
PROGRAM = "from gemel import Server\nserver = Server('weather')\n"


@pytest.mark.parametrize(
    "command", [["uvicorn", "--port", "0"], ["hypercorn", "--bind", "127.0.0.1:0"]], ids=lambda one: one[0]
)
def test_a_server_that_is_run_as_an_application_says_what_to_write(command: list[str], tmp_path: Path) -> None:
    (tmp_path / "weather.py").write_text(PROGRAM)
    words = [sys.executable, "-m", *command, "weather:server"]
    done = subprocess.run(words, capture_output=True, text=True, timeout=60, check=False, cwd=tmp_path)
    assert sum(LINE in line for line in (done.stdout + done.stderr).splitlines()) == 1, done.stderr


async def test_a_server_that_is_mounted_as_an_application_says_what_to_write() -> None:
    app = Starlette(routes=[Mount("/tools", Server("weather"))])
    scope = {"type": "http", "method": "POST", "path": "/tools/mcp", "headers": [], "query_string": b""}
    sent: list[Any] = []

    async def receive() -> Any:
        raise AssertionError("nothing is read")

    async def send(message: Any) -> None:
        sent.append(message)

    with pytest.raises(DefinitionError, match="not an ASGI application"):
        await app(scope, receive, send)
    assert sent[0]["status"] == 500


async def test_a_server_and_its_app_are_targets_of_clients() -> None:
    server: Server[Any] = Server("weather")
    for target in (server, server.http_app()):
        async with Client(target) as client:
            assert client.server_info is not None
            assert client.server_info.name == "weather"
