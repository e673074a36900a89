"""Pages of MCP Apps: of another origin, with a policy of their own."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any
from urllib.parse import urlsplit

import pytest

from gemel import Apps, Csp, Server
from gemel.dev.apps import Frames
from tests.dev.program import Program, Reply, inspecting, target_of

HTML = "<!doctype html><title>card</title><script>parent.postMessage({}, '*')</script>"


def make_server() -> Server[Any]:
    server: Server[Any] = Server("weather")
    apps = server.add_extension(Apps())

    @apps.page(
        "ui://weather/card", csp=Csp(connect_domains=["https://api.example"], resource_domains=["https://cdn.example"])
    )
    def card() -> str:
        return HTML

    @apps.tool(ui="ui://weather/card")
    def forecast(city: str) -> str:
        return f"{city}: sunny"

    @server.resource("weather://plain")
    def plain() -> str:
        return "<!doctype html>"

    return server


@pytest.fixture
async def program() -> AsyncIterator[Program]:
    async with inspecting(target_of(make_server())) as program:
        await program.ready()
        yield program


async def fetch(program: Program, address: str, host: str | None = None, method: str = "GET") -> Reply:
    """Request a page at the other origin."""
    parts = urlsplit(address)
    other = Program(f"{parts.scheme}://{parts.netloc}/?token=")
    reply = await other.ask(method, parts.path, {"Host": parts.netloc if host is None else host})
    await other.wire.close()
    return reply


def policy_of(reply: Reply) -> dict[str, str]:
    parts = [part.strip().partition(" ") for part in reply.headers["content-security-policy"].split(";")]
    return {name: value for name, _, value in parts}


@pytest.mark.parametrize("era", ["2025", "2026"])
async def test_pages_are_served_from_another_origin(program: Program, era: str) -> None:
    """APP-08: what the page is, and which origins it may use, is read with `resources/read`."""
    offers = await program.event("offers", era=era, section="tools")
    assert offers["items"][0]["_meta"]["ui"]["resourceUri"] == "ui://weather/card"
    frame = (await program.do("app", era=era, uri="ui://weather/card"))["frame"]
    state = await program.get("/api/state")
    origin = state.json["apps"]
    assert frame.startswith(f"{origin}/frame/")
    assert origin != program.base
    assert policy_of(state)["frame-src"] == origin
    reply = await fetch(program, frame)
    assert reply.status == 200
    assert reply.body.decode() == HTML
    policy = policy_of(reply)
    assert policy["default-src"] == "'none'"
    assert policy["sandbox"] == "allow-scripts"
    assert policy["connect-src"] == "https://api.example"
    assert policy["script-src"] == "'unsafe-inline' https://cdn.example"
    assert policy["frame-src"] == "'none'"
    assert program.base in policy["frame-ancestors"].split()


async def test_only_pages_are_served_there(program: Program) -> None:
    reply = await program.post({"do": "app", "era": "2026", "uri": "weather://plain"})
    assert reply.status == 409
    reply = await program.post({"do": "app", "era": "2026", "uri": "ui://weather/other"})
    assert reply.status == 409
    frame = (await program.do("app", era="2026", uri="ui://weather/card"))["frame"]
    origin = frame.partition("/frame/")[0]
    for path in ("/", "/frame/", "/frame/x", "/api/state", "/page/main.js", f"/?token={program.token}"):
        reply = await fetch(program, f"{origin}{path}")
        assert reply.status == 404
        assert policy_of(reply)["default-src"] == "'none'"
    assert (await fetch(program, frame, host="evil.example")).status == 403
    assert (await fetch(program, frame, method="POST")).status == 405


def test_a_policy_takes_only_origins() -> None:
    frames = Frames("http://127.0.0.1:5", 6)
    hostile = ["*", "'unsafe-eval'", "https://a.example; script-src *", "data:", "https://ok.example:8443", 7, "http:"]
    policy = frames._policy({"resourceDomains": hostile, "connectDomains": ["wss://*.ok.example"], "frameDomains": "x"})
    parts = dict(part.split(" ", 1) for part in policy.split("; "))
    assert parts["script-src"] == "'unsafe-inline' https://ok.example:8443"
    assert parts["connect-src"] == "wss://*.ok.example"
    assert parts["frame-src"] == "'none'"


def test_pages_are_bounded() -> None:
    frames = Frames("http://127.0.0.1:5", 6)
    first = frames.add("<html>", {})
    for _ in range(100):
        frames.add("<html>", {})
    assert first.rpartition("/")[2] not in frames._pages
    with pytest.raises(ValueError, match="more than"):
        frames.add("x" * (9 * 1024 * 1024), {})
