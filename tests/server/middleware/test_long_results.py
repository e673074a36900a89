"""`ResultLimit(spill=…)`: what is too long for a model is kept in pages, for the caller alone and for a while."""

from __future__ import annotations

import base64
import json
import re
from typing import Annotated, Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gemel import (
    AudioContent,
    CallToolResult,
    Client,
    ClientGroup,
    Context,
    DefinitionError,
    EmbeddedResource,
    Image,
    PeerError,
    ResourceContents,
    ResourceLink,
    ResultLimit,
    Server,
    Spill,
    TextContent,
    ToolCallError,
)
from gemel.server.middleware import result_limit
from gemel.server.middleware.result_pages import cut
from tests.server.bare_end import BareEnd, Era
from tests.server.middleware.clocks import Hand
from tests.support import Origin
from tests.transports.http_rig import modern, modern_call, serving

both_eras = pytest.mark.parametrize("era", ["2025", "2026"])
TEXT = "\n".join(f'line {number}: "größe" \\ 🙂' for number in range(2000))
ROWS: list[dict[str, int | str]] = [{"id": number, "name": f"row {number}"} for number in range(500)]
PNG = b"\x89PNG\r\n\x1a\n" + bytes(9000)


def library(limit: ResultLimit | None = None, **options: Any) -> Server[Any]:
    server: Server[Any] = Server("library", middleware=[limit or ResultLimit(5000, spill=True)], **options)

    @server.tool
    async def text(count: int = len(TEXT)) -> str:
        return TEXT[:count]

    @server.tool
    async def rows(count: int = 500) -> list[dict[str, int | str]]:
        return ROWS[:count]

    @server.tool
    async def summary(count: int) -> Annotated[CallToolResult, dict[str, int]]:
        return CallToolResult(content=[TextContent(text=TEXT[:count])], structured_content={"count": count})

    @server.tool
    async def unlike() -> CallToolResult:
        return CallToolResult(content=[TextContent(text="500 rows")], structured_content=ROWS)

    @server.tool
    async def picture() -> list[str | Image]:
        return ["A picture", Image(data=PNG, format="png"), "The end"]

    @server.tool
    async def mixed() -> CallToolResult:
        file = ResourceContents(uri="file:///a", blob=base64.b64encode(bytes(8000)).decode(), mime_type="application/x")
        links = [ResourceLink(uri=f"https://example.test/{number}", name="a page") for number in range(100)]
        words = EmbeddedResource(resource=ResourceContents(uri="file:///b", text=TEXT[:6000]))
        sound = AudioContent(data=base64.b64encode(bytes(6000)).decode(), mime_type="audio/wav")
        return CallToolResult(content=[*links, words, EmbeddedResource(resource=file), sound], is_error=True)

    @server.tool
    async def nested(ctx: Context[Any]) -> int:
        return len((await ctx.call_tool("text", {"count": 3000})).text)

    @server.resource("note://own")
    def own() -> str:
        return "mine"

    return server


async def read_on(client: Client | ClientGroup, result: CallToolResult[Any], link: ResourceLink) -> str:
    """The text of a shortened result with all pages that follow."""
    text = next(block.text for block in result.content if isinstance(block, TextContent))
    return text + "".join([page.text or "" for page in await pages(client, link)])


async def pages(client: Client | ClientGroup, link: ResourceLink) -> list[ResourceContents]:
    head, _, first = link.uri.rpartition("/")
    read: list[ResourceContents] = []
    while True:
        try:
            (page,) = (await client.read_resource(f"{head}/{int(first) + len(read)}")).contents
        except PeerError:
            return read
        assert page.uri == f"{head}/{int(first) + len(read)}"
        read.append(page)


def link_of(result: CallToolResult[Any]) -> ResourceLink:
    return next(block for block in result.content if isinstance(block, ResourceLink))


# ---------------------------------------------------------------- what the answer has


@both_eras
async def test_text_is_shortened_and_its_pages_are_the_rest(era: Era) -> None:
    async with Client(library(), era=era) as client:
        assert (await client.call_tool("text", {"count": 2000})).text == TEXT[:2000]
        result = await client.call_tool("text")
        assert len(msgspec.json.encode(result)) <= 5000
        assert [block.type for block in result.content] == ["text", "text", "resource_link"]
        assert result.content[0].text.endswith("\n")  # type: ignore[union-attr]  # a text block
        note = result.content[1].text  # type: ignore[union-attr]  # a text block
        link = link_of(result)
        following = await pages(client, link)
        assert re.search(r"result of 6\d,\d{3} bytes, ", note)
        assert "more than the limit of 5,000" in note
        assert f"in {len(following)} pages that can be read for 15 minutes" in note
        assert f"(1 to {len(following)})" in note
        assert (link.description, link.mime_type) == (f"Page 1 of {len(following)}", "text/plain")
        assert await read_on(client, result, link) == TEXT
        for page in following:
            assert len(msgspec.json.encode(page)) <= 5000
            assert page.decoded.endswith(b"\n") or page is following[-1]


@both_eras
async def test_structured_content_is_an_error_that_has_the_beginning(era: Era) -> None:
    async with Client(library(), era=era) as client:
        assert (await client.call_tool("rows", {"count": 3})).text == msgspec.json.encode(ROWS[:3]).decode()
        with pytest.raises(ToolCallError):
            await client.call_tool("rows")
        result = await client.call_tool("rows", raise_on_error=False)
        assert result.is_error
        assert result.structured_content is msgspec.UNSET
        assert "counts as an error only because structured content can't be shortened" in result.text
        assert json.loads(await read_on(client, result, link_of(result))) == ROWS


@both_eras
async def test_small_structured_content_stays_and_the_text_is_cut(era: Era) -> None:
    async with Client(library(), era=era) as client:
        await client.list_tools()
        result = await client.call_tool("summary", {"count": 10_000})
        assert (result.is_error, result.structured_content) == (False, {"count": 10_000})
        assert await read_on(client, result, link_of(result)) == TEXT[:10_000]


@both_eras
async def test_structured_content_without_its_text_is_in_the_pages(era: Era) -> None:
    async with Client(library(), era=era) as client:
        result = await client.call_tool("unlike", raise_on_error=False)
        assert result.content[0] == TextContent(text="500 rows")
        texts = [block.text for block in result.content[1:-2] if isinstance(block, TextContent)]
        following = "".join([page.text or "" for page in await pages(client, link_of(result))])
        found = json.loads("".join(texts) + following)
        assert found in (ROWS, {"result": ROWS})


@both_eras
async def test_an_image_is_a_page(era: Era) -> None:
    async with Client(library(), era=era) as client:
        result = await client.call_tool("picture")
        assert [block.text for block in result.content if isinstance(block, TextContent)][:2] == [
            "A picture",
            "The end",
        ]
        (page,) = await pages(client, link_of(result))
        assert (page.decoded, page.mime_type) == (PNG, "image/png")
        assert "Left out: 1 image or file, in 1 page " in result.text


async def test_every_kind_of_content_is_kept() -> None:
    async with Client(library()) as client:
        result = await client.call_tool("mixed", raise_on_error=False)
        assert result.is_error
        assert len(msgspec.json.encode(result)) <= 5000
        links = [block for block in result.content if isinstance(block, ResourceLink) and "result:" in block.uri]
        kinds = [page.mime_type for page in await pages(client, links[0])]
        assert kinds == ["text/plain"] * (len(kinds) - 2) + ["application/x", "audio/wav"]
        assert [link.mime_type for link in links] == ["text/plain", "application/x", "audio/wav"]
        text = "".join([page.text or "" for page in await pages(client, links[0])])
        assert "https://example.test/99" in text
        assert TEXT[:6000] in text


@pytest.mark.parametrize("revision", ["2024-11-05", "2025-03-26"])
async def test_older_clients_get_the_link_as_text(revision: str) -> None:
    end = BareEnd(library(), "2025")
    client = {"protocolVersion": revision, "capabilities": {}, "clientInfo": {"name": "x", "version": "1"}}
    await end.ask("initialize", client)
    for name in ("text", "rows"):
        result = await end.call_tool(name)
        assert [block["type"] for block in result["content"]] == ["text"] * 3
        assert not result.get("isError")
        uri = next(word for word in result["content"][2]["text"].split() if word.startswith("result://"))
        assert (await end.ask("resources/read", {"uri": uri}))["contents"][0]["text"]


async def test_what_a_handler_calls_is_shortened_too() -> None:
    async with Client(library(ResultLimit(2000, spill=True))) as client:
        assert (await client.call_tool("nested")).data < 2500


# ---------------------------------------------------------------- who may read, and for how long


async def handle(end: BareEnd) -> str:
    result = await end.call_tool("text")
    uri: str = result["content"][-1]["uri"]
    return uri


@both_eras
async def test_pages_belong_to_the_principal(era: Era) -> None:
    server = library()
    async with (
        BareEnd(server, era, origin=Origin(principal="ada")) as ada,
        BareEnd(server, era, origin=Origin(principal="ada")) as again,
        BareEnd(server, era, origin=Origin(principal="bob")) as bob,
        BareEnd(server, era) as nobody,
    ):
        uri = await handle(ada)
        for end in (ada, again):
            assert (await end.ask("resources/read", {"uri": uri}))["contents"][0]["text"]
        for end in (bob, nobody):
            error = await end.refusal("resources/read", {"uri": uri})
            assert error["message"] == "Resource not found"


@both_eras
async def test_without_a_principal_they_belong_to_the_session(era: Era) -> None:
    server = library()
    async with BareEnd(server, era) as end, BareEnd(server, era) as other:
        uri = await handle(end)
        assert (await end.ask("resources/read", {"uri": uri}))["contents"][0]["text"]
        assert (await other.refusal("resources/read", {"uri": uri}))["message"] == "Resource not found"


async def test_over_http_without_a_session_the_uri_is_the_key() -> None:
    server = library()
    async with BareEnd(server, "2026", kind="post") as end:
        uri = await handle(end)
    async with BareEnd(server, "2026", kind="post") as other:
        assert (await other.ask("resources/read", {"uri": uri}))["contents"][0]["text"]
        assert len(uri.split("/")[2]) == 32


async def test_nothing_is_read_before_the_handshake() -> None:
    server = library()
    async with BareEnd(server, "2025", origin=Origin(principal="ada")) as end:
        uri = await handle(end)
    early = BareEnd(server, "2025", origin=Origin(principal="ada"))
    assert "before 'initialize'" in (await early.refusal("resources/read", {"uri": uri}))["message"]


@both_eras
async def test_they_are_not_listed_but_their_template_is(era: Era) -> None:
    async with BareEnd(library(), era) as end:
        uri = await handle(end)
        assert await end.names("resources") == ["note://own"]
        assert await end.names("resourceTemplates") == ["result://{key}/{page}"]
        assert (await end.ask("resources/read", {"uri": "note://own"}))["contents"][0]["text"] == "mine"
        for wrong in (f"{uri}000", uri[:-1] + "0", uri.replace("/1", "/99999999999999999999"), uri.upper()):
            assert (await end.refusal("resources/read", {"uri": wrong}))["message"].startswith(
                ("Resource not found", "Inv")
            )


async def test_the_template_stands_on_the_last_page_of_the_list() -> None:
    server = library(page_size=1)

    @server.resource("note://{name}")
    def note(name: str) -> str:
        return name

    async with BareEnd(server) as end:
        assert await end.names("resourceTemplates") == ["note://{name}", "result://{key}/{page}"]


@both_eras
@pytest.mark.parametrize("inner_era", ["2025", "2026"])
@pytest.mark.parametrize("mounted", [True, False])
async def test_templates_that_a_proxy_passes_on_are_listed_with_that_of_pages(
    era: Era, inner_era: Era, mounted: bool
) -> None:
    inner: Server[Any] = Server("books")

    @inner.resource("books://{title}")
    def book(title: str) -> str:
        return title

    limit = ResultLimit(20_000, spill=True)
    upstream = Client(inner, era=inner_era)
    server: Server[Any] = Server("gateway", middleware=[limit])
    if mounted:
        server.mount(Server.from_client(upstream), "t")
    else:
        server = Server.from_client(upstream, middleware=[limit])
    async with Client(server, era=era) as client:
        templates = [one.uri_template for one in await client.list_resource_templates()]
    assert templates == ["t+books://{title}" if mounted else "books://{title}", "result://{key}/{page}"]


async def test_pages_expire(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Hand(0.0)
    monkeypatch.setattr(result_limit, "time", clock)
    async with BareEnd(library(ResultLimit(5000, spill=Spill(expires=60)))) as end:
        uri = await handle(end)
        clock.now = 59.9
        assert (await end.ask("resources/read", {"uri": uri}))["contents"]
        clock.now = 60.0
        assert await end.refusal("resources/read", {"uri": uri})


async def test_the_oldest_results_are_dropped() -> None:
    async with BareEnd(library(ResultLimit(5000, spill=Spill(results=2)))) as end:
        uris = [await handle(end) for _ in range(3)]
        assert await end.refusal("resources/read", {"uri": uris[0]})
        for uri in uris[1:]:
            assert (await end.ask("resources/read", {"uri": uri}))["contents"]


async def test_their_bytes_are_bounded() -> None:
    most = 2 * len(TEXT.encode())
    limit = ResultLimit(5000, spill=Spill(bytes=most))
    async with BareEnd(library(limit)) as end:
        uris = [await handle(end) for _ in range(20)]
        kept = [uri for uri in uris if await limit.keeps(uri)]
        assert kept == uris[-2:]


async def test_a_result_that_cannot_be_kept_is_refused() -> None:
    async with BareEnd(library(ResultLimit(5000, spill=Spill(bytes=1000)))) as end:
        result = await end.call_tool("text")
        assert result["isError"]
        assert result["content"][0]["text"].endswith("more than the limit of 5000: ask for less")


# ---------------------------------------------------------------- through other servers


@both_eras
@pytest.mark.parametrize("prefix", ["inner", None])
async def test_mounted(era: Era, prefix: str | None) -> None:
    outer: Server[Any] = Server("outer")
    outer.mount(library(), prefix)
    name = "inner_text" if prefix else "text"
    async with Client(outer, era=era) as client:
        result = await client.call_tool(name)
        assert await read_on(client, result, link_of(result)) == TEXT


@both_eras
@pytest.mark.parametrize("inner_era", ["2025", "2026"])
async def test_behind_a_proxy(era: Era, inner_era: Era) -> None:
    for prefix in (None, "far"):
        proxy = Server.from_client(Client(library(), era=inner_era), prefix=prefix)
        outer: Server[Any] = Server("outer")
        outer.mount(proxy)
        async with Client(outer, era=era) as client:
            result = await client.call_tool("far_text" if prefix else "text")
            assert await read_on(client, result, link_of(result)) == TEXT


def tools_only() -> Server[Any]:
    """A server of somebody else's, without resources."""
    server: Server[Any] = Server("foreign")

    @server.tool
    async def text() -> str:
        return TEXT

    @server.request("resources/read")
    @server.request("resources/list")
    @server.request("resources/templates/list")
    async def nothing(ctx: Context[Any], params: Any) -> Any:
        raise AssertionError("it has no resources")

    describe = server.catalog.capabilities
    server.catalog.capabilities = lambda: msgspec.structs.replace(describe(), resources=None)  # type: ignore[method-assign]  # a server without resources
    return server


@both_eras
@pytest.mark.parametrize("inner_era", ["2025", "2026"])
async def test_a_proxy_shortens_the_results_of_a_server_without_resources(era: Era, inner_era: Era) -> None:
    inner = Client(tools_only(), era=inner_era)
    proxy = Server.from_client(inner, middleware=[ResultLimit(5000, spill=True)])
    async with Client(proxy, era=era) as client:
        assert client.server_capabilities.resources is not None
        result = await client.call_tool("text")
        assert await read_on(client, result, link_of(result)) == TEXT
        assert await client.list_resources() == []
        assert [one.uri_template for one in await client.list_resource_templates()] == ["result://{key}/{page}"]


async def test_in_a_group_links_lead_to_their_server() -> None:
    async with ClientGroup({"one": library(), "two": library()}) as group:
        result = await group.call_tool("text", server="two")
        page = (await group.read_resource(link_of(result))).contents[0]
        assert page.text is not None
        assert page.text in TEXT


@both_eras
async def test_over_http(era: Era) -> None:
    async with serving(library()) as site, Client(f"http://127.0.0.1:{site.port}/mcp", era=era) as client:
        result = await client.call_tool("text")
        assert await read_on(client, result, link_of(result)) == TEXT
        async with Client(f"http://127.0.0.1:{site.port}/mcp", era=era) as other:
            assert bool(await pages(other, link_of(result))) == (era == "2026")


async def test_headers_must_fit_the_uri_of_a_page() -> None:
    async with serving(library()) as site:
        headers, body = modern_call("text")
        link = json.loads((await site.ask(headers, body)).body)["result"]["content"][-1]["uri"]
        headers, body = modern("resources/read", {"uri": link})
        assert (await site.ask({**headers, "Mcp-Name": link}, body)).status == 200
        assert (await site.ask({**headers, "Mcp-Name": "note://own"}, body)).status == 400


# ---------------------------------------------------------------- cutting


@given(st.text(st.sampled_from('ab ,}]\n"\\\x01ä€🙂')), st.integers(16, 200))
def test_pages_joined_are_the_text(text: str, most: int) -> None:
    cuts = cut(text.encode(), most)
    assert "".join(cuts) == text
    assert all(cuts)
    for page in cuts:
        assert len(msgspec.json.encode(page)) - 2 <= max(most, 6 * 8)


def test_pages_end_at_the_best_place() -> None:
    assert cut(b"one two\nthree four", 12) == ["one two\n", "three four"]
    assert cut(b'[{"a":1},{"b":2},{"c":3}]', 22) == ['[{"a":1},{"b":2},', '{"c":3}]']
    assert cut(b"alpha beta gamma", 12) == ["alpha beta ", "gamma"]
    assert cut("äöüß".encode(), 16) == ["äöüß"]
    assert cut(b"", 100) == []


def test_few_pages_are_much_smaller_than_they_may_be() -> None:
    for text in (TEXT, json.dumps(ROWS), "x" * 100_000, "\n" * 100_000, "\x00" * 10_000):
        sizes = [len(msgspec.json.encode(page)) for page in cut(text.encode(), 4000)]
        assert sum(size < 4000 / 3 for size in sizes) <= 1


# ---------------------------------------------------------------- mistakes


@pytest.mark.parametrize(
    ("make", "line"),
    [
        (lambda: ResultLimit(9000, spill="yes"), "use True, False or Spill(expires=…, bytes=…)"),  # type: ignore[arg-type]  # the mistake
        (lambda: ResultLimit(1999, spill=True), "size=1999 is not possible: with spill use 2000 bytes or more"),
        (lambda: Spill(expires=0), "expires=0 is not possible: use seconds, more than 0"),
        (lambda: Spill(results=0), "results=0 is not possible: use a whole number, 1 or more"),
        (lambda: Spill(bytes=-1), "bytes=-1 is not possible: use a whole number, 1 or more"),
    ],
)
def test_a_value_that_is_not_possible(make: Any, line: str) -> None:
    with pytest.raises(DefinitionError) as caught:
        make()
    assert str(caught.value).endswith(line)
