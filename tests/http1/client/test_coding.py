"""Compressed answers: undone piece by piece, whatever the cuts, never more in memory than a bounded piece."""

from __future__ import annotations

import asyncio
import gzip
import zlib
from collections.abc import AsyncIterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gemel import InvalidResponse
from gemel.http1.client.connection import BUFFER_BYTES, SocketResponse, Unpacker
from gemel.http1.client.pool import SocketWire
from gemel.http1.client.wire import WireResponse
from tests.transports.scripted_http import Answer, Asked, ScriptedServer


@pytest.fixture
async def wire() -> AsyncIterator[SocketWire]:
    made = SocketWire()
    yield made
    await made.close()


async def content(response: WireResponse) -> bytes:
    parts = []
    while piece := await response.read():
        parts.append(piece)
    return b"".join(parts)


@pytest.mark.parametrize("piece", [1, 7, 65536])
async def test_compressed_content_may_come_in_any_pieces_and_members(wire: SocketWire, piece: int) -> None:
    text = b"".join(b"%d " % n for n in range(20_000))
    data = gzip.compress(text[:50_000]) + gzip.compress(text[50_000:])
    if piece == 1:
        data = gzip.compress(text[:3000]) + gzip.compress(text[3000:5000])
        text = text[:5000]

    async def script(asked: Asked, answer: Answer) -> None:
        await answer.raw(b"HTTP/1.1 200 OK\r\ncontent-encoding: gzip\r\ncontent-length: %d\r\n\r\n" % len(data))
        for start in range(0, len(data), piece):
            await answer.raw(data[start : start + piece])

    async with ScriptedServer(script) as server:
        assert await content(await wire.open("POST", server.url, [], b"{}")) == text


async def test_the_rest_of_a_member_may_arrive_with_the_end_while_its_beginning_is_unpacked(wire: SocketWire) -> None:
    first, second = gzip.compress(b"a"), gzip.compress(b"b")
    go_on = asyncio.Event()

    async def script(asked: Asked, answer: Answer) -> None:
        length = len(first) + len(second)
        await answer.raw(b"HTTP/1.1 200 OK\r\ncontent-encoding: gzip\r\ncontent-length: %d\r\n\r\n" % length)
        await answer.raw(first + second[:3])
        await go_on.wait()
        await answer.raw(second[3:])

    async with ScriptedServer(script) as server:
        response = await wire.open("POST", server.url, [], b"{}")
        assert await response.read() == b"a"
        go_on.set()
        assert isinstance(response, SocketResponse)
        while not response.ended:  # noqa: ASYNC110 - the response has no event for it
            await asyncio.sleep(0.001)
        assert await content(response) == b"b"


async def test_much_that_came_in_few_bytes_lets_others_have_their_turn(wire: SocketWire) -> None:
    """Between any two pieces, or a server could stop the whole client with a small answer."""
    turns = await turns_of_others(wire, gzip.compress(bytes(100 * BUFFER_BYTES), 9), 100)
    assert turns >= 99


async def test_much_that_came_in_parts_without_content_lets_others_have_their_turn(wire: SocketWire) -> None:
    """Thousands of empty members fit into one segment, and give nothing to read."""
    turns = await turns_of_others(wire, gzip.compress(b"") * 2000 + gzip.compress(b"x"), 1)
    assert turns >= 2000


async def turns_of_others(wire: SocketWire, data: bytes, least_pieces: int) -> int:
    """How often another task runs while compressed content is read."""
    turns, over = 0, False

    async def script(asked: Asked, answer: Answer) -> None:
        await answer.raw(b"HTTP/1.1 200 OK\r\ncontent-encoding: gzip\r\ncontent-length: %d\r\n\r\n" % len(data))
        await answer.raw(data)

    async def others() -> None:
        nonlocal turns
        while not over:
            turns += 1
            await asyncio.sleep(0)

    async with ScriptedServer(script) as server:
        response = await wire.open("POST", server.url, [], b"{}")
        async with asyncio.TaskGroup() as group:
            group.create_task(others())
            pieces = 0
            while await response.read():
                pieces += 1
            over = True
    assert pieces >= least_pieces
    return turns


async def test_compressed_events_come_as_soon_as_the_server_flushes_them(wire: SocketWire) -> None:
    go_on = asyncio.Event()

    async def script(asked: Asked, answer: Answer) -> None:
        flate = zlib.compressobj(wbits=31)
        await answer.stream({"content-encoding": "gzip"})
        await answer.chunk(flate.compress(b"data: 1\n\n") + flate.flush(zlib.Z_SYNC_FLUSH))
        await go_on.wait()
        await answer.chunk(flate.compress(b"data: 2\n\n") + flate.flush())
        await answer.end()

    async with ScriptedServer(script) as server:
        response = await wire.open("GET", server.url, [], None)
        assert await response.read() == b"data: 1\n\n"
        go_on.set()
        assert await content(response) == b"data: 2\n\n"


@given(st.lists(st.integers(1, 40_000), max_size=40), st.binary(max_size=300), st.integers(1, 3000))
def test_unpacking_gives_back_what_was_packed_in_pieces_of_bounded_size(
    cuts: list[int], seed: bytes, times: int
) -> None:
    text = seed * times
    data = gzip.compress(text)
    unpacker = Unpacker()
    got: list[bytes] = []
    start = 0
    for cut in [*cuts, len(data)]:
        got.append(unpacker.unpack(data[start : start + cut]))
        start += cut
        while unpacker.waiting:
            got.append(unpacker.unpack(b""))
    assert b"".join(got) == text
    assert unpacker.complete
    assert all(len(piece) <= BUFFER_BYTES for piece in got)


@given(st.binary(min_size=1, max_size=200), st.integers(1, 50))
def test_any_bytes_instead_of_gzip_are_an_invalid_response_or_nothing(data: bytes, cut: int) -> None:
    unpacker = Unpacker()
    try:
        for start in range(0, len(data), cut):
            unpacker.unpack(data[start : start + cut])
            while unpacker.waiting:
                unpacker.unpack(b"")
    except InvalidResponse:
        return
    assert not unpacker.complete or gzip.decompress(data) is not None
