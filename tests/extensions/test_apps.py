"""MCP Apps: pages and their tools, for clients that show pages and for those that don't."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import pytest

from gemel import (
    Apps,
    Client,
    Context,
    Csp,
    DefinitionError,
    Depends,
    Server,
    Tool,
    declared_extension,
    tools_for_model,
)
from tests.server.bare_end import BareEnd, Era

both_eras = pytest.mark.parametrize("era", ["2025", "2026"])
PAGE = "<!doctype html><title>Card</title>"
MIME = "text/html;profile=mcp-app"
SHOWS: dict[str, Any] = {"extensions": {"io.modelcontextprotocol/ui": {"mimeTypes": [MIME]}}}
SHOWS_OTHERS: dict[str, Any] = {"extensions": {"io.modelcontextprotocol/ui": {"mimeTypes": ["text/plain"]}}}


def weather() -> Server[Any]:
    server: Server[Any] = Server("weather")
    apps = server.add_extension(Apps())

    @apps.page("ui://weather/card", csp=Csp(connect_domains=["https://api.example.org"]), permissions=["geolocation"])
    def card() -> str:
        return PAGE

    @apps.tool(ui="ui://weather/card", title="Forecast", meta={"com.example/cost": 1})
    async def forecast(city: str) -> str:
        return f"Sun in {city}"

    @apps.tool("refresh", ui="ui://weather/card", audience="app")
    async def refreshed() -> str:
        return "fresh"

    @apps.tool(ui="ui://weather/card", audience="model", fallback=False)
    async def paint() -> str:
        return "painted"

    @server.tool
    async def plain(ctx: Context[Any]) -> str:
        return "page" if Apps.shown_by(ctx) else "words"

    return server


async def metas(end: BareEnd) -> dict[str, Any]:
    return {tool["name"]: tool.get("_meta") for tool in (await end.ask("tools/list"))["tools"]}


@both_eras
async def test_a_client_that_shows_pages_gets_tools_with_their_pages(era: Era) -> None:
    """APP-01, APP-02, APP-04, APP-05, EXT-03."""
    async with BareEnd(weather(), era, capabilities=SHOWS) as end:
        assert await metas(end) == {
            "forecast": {"com.example/cost": 1, "ui": {"resourceUri": "ui://weather/card"}},
            "refresh": {"ui": {"resourceUri": "ui://weather/card", "visibility": ["app"]}},
            "paint": {"ui": {"resourceUri": "ui://weather/card", "visibility": ["model"]}},
            "plain": None,
        }
        assert await end.text("forecast", city="Oslo") == "Sun in Oslo"
        assert await end.text("refresh") == "fresh"
        assert await end.text("plain") == "page"
        found = end.welcome if era == "2025" else await end.ask("server/discover")
        assert found["capabilities"]["extensions"] == {"io.modelcontextprotocol/ui": {}}


@both_eras
@pytest.mark.parametrize("capabilities", [{}, SHOWS_OTHERS, {"extensions": {"io.modelcontextprotocol/ui": {}}}])
async def test_other_clients_get_the_words_and_nothing_that_is_for_pages_only(
    era: Era, capabilities: dict[str, Any]
) -> None:
    """APP-02, EXT-04, EXT-06."""
    async with BareEnd(weather(), era, capabilities=capabilities) as end:
        assert await metas(end) == {"forecast": {"com.example/cost": 1}, "plain": None}
        assert await end.text("forecast", city="Oslo") == "Sun in Oslo"
        assert await end.text("plain") == "words"
        for name in ("refresh", "paint"):
            assert "Unknown tool" in (await end.refusal("tools/call", {"name": name, "arguments": {}}))["message"]


async def test_what_a_client_shows_counts_for_its_own_request_only() -> None:
    """APP-01, STATE-01."""
    async with BareEnd(weather(), capabilities=SHOWS) as end:
        assert "refresh" in await end.names()
        end.capabilities = {}
        assert "refresh" not in await end.names()
        assert (await end.ask("tools/list"))["cacheScope"] == "private"


@both_eras
async def test_a_page_is_read_like_any_resource_with_what_the_host_must_know(era: Era) -> None:
    """APP-03, APP-07."""
    ui = {"csp": {"connectDomains": ["https://api.example.org"]}, "permissions": {"geolocation": {}}}
    async with BareEnd(weather(), era) as end:
        (listed,) = (await end.ask("resources/list"))["resources"]
        assert listed == {
            "uri": "ui://weather/card",
            "name": "card",
            "mimeType": MIME,
            "_meta": {"ui": ui},
        }
        (contents,) = (await end.ask("resources/read", {"uri": "ui://weather/card"}))["contents"]
        assert contents == {"uri": "ui://weather/card", "mimeType": MIME, "text": PAGE, "_meta": {"ui": ui}}


async def test_a_page_may_come_from_a_text_or_a_file_that_is_read_anew(tmp_path: Path) -> None:
    """APP-03."""
    file = tmp_path / "card.html"
    file.write_text(PAGE, encoding="utf-8")
    server: Server[Any] = Server("pages")
    apps = server.add_extension(Apps())
    apps.add_page("ui://a/text", PAGE, prefers_border=False, domain="https://a.example.org", meta={"com.example/x": 1})
    apps.add_page("ui://a/file", file, title="From a file")
    async with BareEnd(server) as end:
        text, from_file = (await end.ask("resources/list"))["resources"]
        assert text["_meta"] == {
            "com.example/x": 1,
            "ui": {"domain": "https://a.example.org", "prefersBorder": False},
        }
        assert (text["name"], from_file["name"], from_file["title"]) == ("text", "file", "From a file")
        file.write_text(PAGE + "<p>new</p>", encoding="utf-8")
        (contents,) = (await end.ask("resources/read", {"uri": "ui://a/file"}))["contents"]
        assert contents["text"].endswith("<p>new</p>")


async def test_the_function_of_a_page_takes_what_any_function_takes() -> None:
    async def theme() -> str:
        return "dark"

    server: Server[Any] = Server("pages")
    apps = server.add_extension(Apps())

    @apps.page("ui://a/b")
    async def page(ctx: Context[Any], theme: Annotated[str, Depends(theme)]) -> str:
        return f"<html class={theme}>{ctx.method}"

    async with BareEnd(server) as end:
        (contents,) = (await end.ask("resources/read", {"uri": "ui://a/b"}))["contents"]
        assert contents["text"] == "<html class=dark>resources/read"


async def test_a_condition_of_the_authors_own_counts_as_well() -> None:
    server: Server[Any] = Server("pages")
    apps = server.add_extension(Apps())
    apps.add_page("ui://a/b", PAGE)
    apps.tool("never", ui="ui://a/b", visible=lambda caller: False)(lambda: "x")
    async with BareEnd(server, capabilities=SHOWS) as end:
        assert await end.names() == []


async def test_a_page_that_returns_no_document_is_the_authors_mistake(caplog: pytest.LogCaptureFixture) -> None:
    """APP-03."""
    server: Server[Any] = Server("pages")
    apps = server.add_extension(Apps())

    @apps.page("ui://a/text")
    def text() -> str:
        return "Hello"

    @apps.page("ui://a/number")
    def number() -> Any:
        return 5

    async with BareEnd(server) as end:
        for uri in ("ui://a/text", "ui://a/number"):
            assert (await end.refusal("resources/read", {"uri": uri}))["code"] == -32603
    assert "The page 'ui://a/text' is not an HTML document: it must begin with <!doctype html>" in caplog.text
    assert "The page 'ui://a/number' returned int: return the HTML document, a str" in caplog.text


def test_mistakes_are_told_at_registration() -> None:
    """APP-03, APP-05, APP-07."""
    apps = Server("mistaken").add_extension(Apps())
    apps.add_page("ui://a/b", PAGE)

    def message(act: Any) -> str:
        with pytest.raises(DefinitionError) as caught:
            act()
        return str(caught.value)

    wrong: Any = "user"
    assert message(lambda: apps.tool("x", ui="ui://a/b", audience=wrong)) == (
        'audience=\'user\' is not possible: use "model", "app" or "both"'
    )
    assert message(lambda: apps.add_page("https://a/b", PAGE)) == (
        "The page 'https://a/b' needs a URI that begins with ui://"
    )
    assert message(lambda: apps.add_page("ui://a/{b}", PAGE)).endswith("begins with ui://")
    assert message(lambda: apps.add_page("ui://a/d", "Hello")).startswith("The page 'ui://a/d' is not an HTML document")
    assert message(lambda: apps.add_page("ui://a/d", PAGE, permissions=[wrong])) == (
        "The page 'ui://a/d': there is no permission 'user', only camera, microphone, geolocation, clipboardWrite"
    )
    unknown: Any = {"border": True}
    assert message(lambda: apps.add_page("ui://a/d", PAGE, **unknown)) == (
        "@apps.page has no option 'border': did you mean 'prefers_border'?"
    )


@both_eras
async def test_pages_and_tools_may_be_registered_in_any_order_and_before_the_server(era: Era) -> None:
    """APP-04, APP-05."""
    apps = Apps()

    @apps.tool(ui="ui://a/b")
    def show() -> str:
        return "shown"

    @apps.tool(audience="app")
    def refresh() -> str:
        return "fresh"

    @apps.tool()
    def count() -> int:
        return 1

    apps.add_page("ui://a/b", PAGE)
    async with BareEnd(Server("pages", extensions=[apps]), era, capabilities=SHOWS) as end:
        assert await metas(end) == {
            "show": {"ui": {"resourceUri": "ui://a/b"}},
            "refresh": {"ui": {"visibility": ["app"]}},
            "count": None,
        }
        assert await end.text("show") == "shown"


async def test_a_server_whose_tool_has_a_page_that_is_missing_does_not_start() -> None:
    """APP-04."""
    apps = Apps()
    apps.tool("show", ui="ui://a/c")(lambda: "shown")
    with pytest.raises(DefinitionError) as caught:
        async with Server("pages", extensions=[apps]).running():
            pass
    assert str(caught.value) == (
        "The tool 'show' has the page 'ui://a/c', which is not registered: write @apps.page('ui://a/c')"
    )


@both_eras
async def test_without_the_extension_nothing_is_announced(era: Era) -> None:
    """EXT-05."""
    server: Server[Any] = Server("plain")
    server.tool("x")(lambda: "x")
    async with BareEnd(server, era, capabilities=SHOWS) as end:
        found = end.welcome if era == "2025" else await end.ask("server/discover")
        assert "extensions" not in found["capabilities"]


@pytest.mark.parametrize(
    ("meta", "offered"),
    [
        (None, True),
        ({"ui": {"resourceUri": "ui://a"}}, True),
        ({"ui": {"visibility": ["model", "app"]}}, True),
        ({"ui": {"visibility": ["model"]}}, True),
        ({"ui": {"visibility": ["app"]}}, False),
        ({"ui": {"visibility": []}}, False),
        ({"ui": {"visibility": "app"}}, True),
        ({"ui": 5}, True),
    ],
)
def test_a_host_offers_its_model_no_tool_that_is_for_pages_alone(meta: Any, offered: bool) -> None:
    """APP-06."""
    tool = Tool(name="a", input_schema={}, meta=meta)
    assert tools_for_model([tool]) == ([tool] if offered else [])


async def test_a_tool_for_pages_alone_is_listed_for_the_page_and_not_offered_to_the_model() -> None:
    """APP-06: what a server of ours lists for a client that shows pages."""

    shows_pages = declared_extension(Apps.id, {"mimeTypes": [MIME]})
    async with Client(weather(), extensions=[shows_pages]) as client:
        tools = await client.list_tools()
    assert [tool.name for tool in tools] == ["forecast", "refresh", "paint", "plain"]
    assert [tool.name for tool in tools_for_model(tools)] == ["forecast", "paint", "plain"]
