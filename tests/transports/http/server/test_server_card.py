"""The server card at `<endpoint>/server-card`: its content, who may read it, and caching."""

from __future__ import annotations

from typing import Any

import pytest
from starlette.applications import Starlette
from starlette.responses import PlainTextResponse
from starlette.routing import Mount

from gemel import DefinitionError, Server
from tests.support import V2025_11, V2026_07
from tests.transports.http_rig import Log, Site, make_server, serving

NAME = "com.example/rig"
PATH = "/mcp/server-card"


def rig(**options: Any) -> Server[Any]:
    return make_server(Log(), **{"description": "What the rig is for", **options})


async def test_the_card_says_who_the_server_is_and_where() -> None:
    server = rig(title="Rig", website_url="https://example.com", icons=["https://example.com/i.png"])
    async with serving(server, server_card=NAME) as site:
        card = (await site.ask({"Host": f"localhost:{site.port}"}, b"", "GET", PATH)).json()
    (remote,) = card.pop("remotes")
    assert card == {
        "$schema": "https://static.modelcontextprotocol.io/schemas/v1/server-card.schema.json",
        "name": NAME,
        "version": "1",
        "title": "Rig",
        "description": "What the rig is for",
        "websiteUrl": "https://example.com",
        "icons": [{"src": "https://example.com/i.png"}],
    }
    assert (remote["type"], remote["url"]) == ("streamable-http", f"http://localhost:{site.port}/mcp")
    assert {V2026_07, V2025_11} <= set(remote["supportedProtocolVersions"])


async def test_pages_of_every_origin_may_read_it_and_nothing_else() -> None:
    """Specification (draft): discovery, "CORS Requirements". Nobody needs to sign in; an unknown Host is refused."""
    origin = {"Origin": "https://elsewhere.example"}
    routes = {"/metrics": PlainTextResponse("1")}
    async with serving(rig(), server_card=NAME, routes=routes, authenticate=lambda scope, headers: 1 / 0) as site:
        reply = await site.ask(origin, b"", "GET", PATH)
        assert reply.status == 200
        assert reply.headers["content-type"] == "application/mcp-server-card+json"
        assert reply.headers["access-control-allow-origin"] == "*"
        assert reply.headers["access-control-expose-headers"] == "ETag"
        asked = {**origin, "Access-Control-Request-Method": "GET", "Access-Control-Request-Headers": "if-none-match"}
        preflight = await site.ask(asked, b"", "OPTIONS", PATH)
        assert preflight.status == 204
        assert "If-None-Match" in preflight.headers["access-control-allow-headers"]
        assert (await site.ask(origin, b"", "GET", "/metrics")).status == 403
        assert (await site.ask({"Host": "evil.example"}, b"", "GET", PATH)).status == 403
        refused = await site.ask({}, b"{}", "POST", PATH)
        assert (refused.status, refused.headers["allow"]) == (405, "GET, HEAD, OPTIONS")


async def test_a_card_is_cached_and_validated_by_its_tag() -> None:
    """Specification (draft): discovery, "Caching"."""
    async with serving(rig(), server_card=NAME) as site:
        reply = await site.ask({}, b"", "GET", PATH)
        tag = reply.headers["etag"]
        assert reply.headers["cache-control"] == "public, max-age=3600"
        for sent in (tag, f'"other", W/{tag}', "*"):
            unchanged = await site.ask({"If-None-Match": sent}, b"", "GET", PATH)
            assert (unchanged.status, unchanged.body, unchanged.headers["etag"]) == (304, b"", tag)
        assert (await site.ask({"If-None-Match": '"other"'}, b"", "GET", PATH)).body == reply.body
        assert (await _head(site)) == (200, str(len(reply.body)))


async def _head(site: Site) -> tuple[int, str]:
    wire = await site.call({}, b"", "HEAD", PATH)
    head = await wire.head()
    wire.close()
    return head.status, head.headers["content-length"]


async def test_a_mounted_app_names_its_own_place() -> None:
    app = rig().http_app("/mcp", server_card=NAME)
    parent = Starlette(routes=[Mount("/api", app)])
    sent: list[Any] = []

    async def send(message: Any) -> None:
        sent.append(message)

    async def receive() -> Any:
        return {"type": "http.request", "body": b""}

    scope = {"type": "http", "method": "GET", "scheme": "https", "path": "/api/mcp/server-card", "raw_path": b""}
    scope |= {"query_string": b"", "headers": [(b"host", b"localhost")], "server": ("localhost", 443), "root_path": ""}
    await parent(scope, receive, send)
    assert sent[0]["status"] == 200
    assert b'"url":"https://localhost/api/mcp"' in sent[1]["body"]


async def test_without_the_option_there_is_none() -> None:
    async with serving(rig()) as site:
        assert (await site.ask({}, b"", "GET", PATH)).status == 404


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("rig", {}, "not in reverse DNS form"),
        (NAME, {"description": None}, "needs a description"),
        (NAME, {"description": "x" * 101}, "has 101 characters"),
    ],
)
def test_what_can_not_be_published_is_told_at_once(name: str, options: dict[str, Any], message: str) -> None:
    with pytest.raises(DefinitionError, match=message):
        rig(**options).http_app(server_card=name)
