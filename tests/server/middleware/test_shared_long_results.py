"""Pages of long results that every process of a server finds."""

from __future__ import annotations

import base64
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from gemel import Client, DefinitionError, Image, PeerError, ResourceLink, ResultLimit, Server, Spill
from gemel.backends import Backend, MemoryBackend, SqliteBackend
from gemel.errors import BackendError
from tests.transports.http.server.test_shared_failures import processes
from tests.transports.http_rig import Reply, Site, handshake_call, modern, modern_call, serving
from tests.transports.sharing_rig import request

TEXT = "".join(f"line {number}\n" for number in range(5000))
PNG = b"\x89PNG" + bytes(3 << 20)

PROGRAM = """
from gemel import ResultLimit, Server

server = Server("pages", backend="sqlite:///shared.db")
server.add_middleware(ResultLimit(5000, spill=True, backend=server.backend))

@server.tool
def lines(count: int) -> str:
    return "".join(f"line {number}\\n" for number in range(count))

server.run("http", port=0, workers=3)
"""


def library(backend: Backend, **spill: Any) -> Server[Any]:
    server: Server[Any] = Server("library")
    server.add_middleware(ResultLimit(5000, spill=Spill(**spill), backend=backend))

    @server.tool
    async def text(count: int = len(TEXT)) -> str:
        return TEXT[:count]

    @server.tool
    async def picture() -> Image:
        return Image(data=PNG, format="png")

    return server


@asynccontextmanager
async def client_of(server: Server[Any]) -> AsyncIterator[Client]:
    """A client over HTTP without a session: the URI of a page is its key."""
    async with serving(server) as site, Client(f"http://127.0.0.1:{site.port}/mcp", era="2026") as client:
        yield client


async def first_page(client: Client, tool: str, **arguments: Any) -> str:
    """The URI of the first page of a result."""
    result = await client.call_tool(tool, arguments)
    return next(block.uri for block in result.content if isinstance(block, ResourceLink))


async def read_all(client: Client, uri: str) -> str:
    """All pages of text."""
    text, number = "", 1
    while True:
        try:
            text += (await client.read_resource(f"{uri.rpartition('/')[0]}/{number}")).text
        except PeerError:
            return text
        number += 1


async def test_results_of_one_address_push_out_none_of_others(tmp_path: Path) -> None:
    """What was told to be readable for a while is, however much others ask for: in number and in bytes, in both eras."""
    for spill in ({"results": 4}, {"bytes": 9 * len(TEXT) // 2}):
        for backend in (MemoryBackend(), SqliteBackend(tmp_path / "state.db")):
            async with serving(library(backend, **spill)) as site:
                flood, session = site.at("127.0.0.2"), await site.session()
                headers, body = modern_call("text")
                replies = [await site.ask(session, handshake_call("text")), await site.ask(headers, body)]
                ours = [link_in(reply) for reply in replies]
                theirs = [link_in(await flood.ask(headers, body)) for _ in range(9)]
                reply = await site.ask(session, request("resources/read", uri=ours[0]))
                assert "result" in reply.json()
                assert await reads(site, ours[1])
                assert [await reads(flood, uri) for uri in theirs] == [False] * 7 + [True] * 2


async def reads(site: Site, uri: str) -> bool:
    """Whether a page can be read in the stateless era."""
    headers, body = modern("resources/read", {"uri": uri})
    return "result" in (await site.ask({**headers, "Mcp-Name": uri}, body)).json()


def link_in(reply: Reply) -> str:
    """The link to the first page of a result."""
    blocks = reply.json()["result"]["content"]
    return str(next(block["uri"] for block in blocks if block["type"] == "resource_link"))


async def test_another_process_has_the_pages(tmp_path: Path) -> None:
    """Also a page that is larger than a value of a backend."""
    stores = [SqliteBackend(tmp_path / "state.db") for _ in range(2)]
    async with client_of(library(stores[0])) as here, client_of(library(stores[1])) as there:
        uri = await first_page(here, "text")
        assert TEXT.endswith(await read_all(there, uri))
        assert await read_all(here, uri) == await read_all(there, uri) != ""
        (page,) = (await there.read_resource(await first_page(here, "picture"))).contents
        assert page.blob == base64.b64encode(PNG).decode()
    for store in stores:
        await store.close()


async def test_workers_have_the_pages_of_each_other(tmp_path: Path) -> None:
    """For the session that made the call, and for no other one."""
    async with processes(tmp_path, 1, program=PROGRAM) as ((site, _),):
        session, other = await site.session(), await site.session()
        answer = (await site.ask(session, handshake_call("lines", count=3000))).json()
        uri = next(block["uri"] for block in answer["result"]["content"] if block["type"] == "resource_link")
        for _ in range(20):  # each on a connection of its own
            reply = (await site.ask(session, request("resources/read", uri=uri))).json()
            assert reply["result"]["contents"][0]["text"].endswith("\n")
            assert "error" in (await site.ask(other, request("resources/read", uri=uri))).json()


async def test_the_bounds_hold_in_the_backend() -> None:
    """What is dropped, or expires, is gone there."""
    backend = MemoryBackend()
    server = library(backend, results=3, bytes=200_000)
    async with client_of(server) as client:
        uris = [await first_page(client, "text", count=20_000) for _ in range(10)]
        assert [bool(await read_all(client, uri)) for uri in uris] == [False] * 7 + [True] * 3
        assert len(backend._entries) <= 3 * 5
        result = await client.call_tool("picture", raise_on_error=False)
        assert result.is_error
        assert "ask for less" in result.text


async def test_the_names_and_expiry_of_what_is_stored() -> None:
    """Nobody who reads the names knows a URI, and nothing stays."""
    backend = MemoryBackend()
    async with client_of(library(backend, expires=60.0)) as client:
        key = (await first_page(client, "text")).split("/")[2]
    assert backend._entries
    for (_, name), entry in backend._entries.items():
        assert key.encode() not in name
        assert entry.expires < float("inf")


async def test_a_backend_that_is_away_makes_long_results_errors(caplog: pytest.LogCaptureFixture) -> None:
    class Away(MemoryBackend):
        async def set(self, key: str, value: bytes, *, ttl: float | None = None) -> None:
            raise BackendError("away")

    async with client_of(library(Away())) as client:
        result = await client.call_tool("text", raise_on_error=False)
        assert result.is_error
        assert "ask for less" in result.text
        assert (await client.call_tool("text", {"count": 10})).text == TEXT[:10]
    assert "could not be kept" in caplog.text


def test_a_url_is_no_backend_here() -> None:
    with pytest.raises(DefinitionError, match=r"backend=server\.backend"):
        ResultLimit(5000, spill=True, backend="sqlite:///x.db")  # type: ignore[arg-type]  # what a user may write
