"""The HTTP client against servers that misbehave: each fault ends its own call, promptly, in one plain error."""

from __future__ import annotations

import asyncio
import gzip
import json
import resource
import socket
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from gemel import (
    CallError,
    CallTimeout,
    Client,
    ConnectionLost,
    HttpStatus,
    InvalidResponse,
    Limits,
    NotFinished,
    NotSent,
    Outcome,
    PeerError,
)
from tests.ports import free_port
from tests.transports.scripted_http import Answer, Asked, ScriptedServer, Talking, notification, result_of

MIB = 1024 * 1024


def an_error(code: int, **members: Any) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "error": {"code": code, "message": "no"}, **members}


async def close_unread(asked: Asked, answer: Answer) -> None:
    answer.close()


async def reset(asked: Asked, answer: Answer) -> None:
    answer.reset()


async def half_head(asked: Asked, answer: Answer) -> None:
    await answer.raw(b"HTTP/1.1 200 OK\r\ncontent-le")
    answer.close()


async def half_body(asked: Asked, answer: Answer) -> None:
    await answer.raw(b'HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 500\r\n\r\n{"jsonrpc"')
    answer.close()


async def half_gzip(asked: Asked, answer: Answer) -> None:
    await answer.body(gzip.compress(json.dumps(result_of(asked)).encode())[:-9], headers={"content-encoding": "gzip"})


async def stream_cut(asked: Asked, answer: Answer) -> None:
    await answer.stream()
    await answer.event(notification("notifications/message"))
    answer.close()


async def stream_cut_in_the_event_that_answers(asked: Asked, answer: Answer) -> None:
    await answer.stream()
    await answer.chunk(b"data: " + json.dumps(result_of(asked)).encode() + b"\n")
    answer.close()


async def stream_ends(asked: Asked, answer: Answer) -> None:
    await answer.stream()
    await answer.end()


LOST = [
    close_unread,
    reset,
    half_head,
    half_body,
    half_gzip,
    stream_cut,
    stream_cut_in_the_event_that_answers,
    stream_ends,
]


async def not_http(asked: Asked, answer: Answer) -> None:
    await answer.raw(b"220 mail.example ESMTP\r\n")
    answer.close()


async def two_lengths(asked: Asked, answer: Answer) -> None:
    await answer.raw(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\ntransfer-encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n")


async def upgrade(asked: Asked, answer: Answer) -> None:
    await answer.raw(b"HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: x\r\n\r\n")


async def unknown_coding(asked: Asked, answer: Answer) -> None:
    await answer.body(b"x", headers={"content-encoding": "br"})


async def not_gzip(asked: Asked, answer: Answer) -> None:
    await answer.body(json.dumps(result_of(asked)).encode(), headers={"content-encoding": "gzip"})


async def endless_headers(asked: Asked, answer: Answer) -> None:
    await answer.raw(b"HTTP/1.1 200 OK\r\n")
    for _ in range(200):
        await answer.raw(b"x-more: " + b"y" * 4000 + b"\r\n")


async def one_endless_header(asked: Asked, answer: Answer) -> None:
    await answer.raw(b"HTTP/1.1 200 OK\r\nx: ")
    while True:
        await answer.raw(b"y" * 16000)


async def html(asked: Asked, answer: Answer) -> None:
    await answer.body(b"<html><h1>It works</h1></html>", kind="text/html; charset=utf-8")


async def empty(asked: Asked, answer: Answer) -> None:
    await answer.body(b"")


async def accepted(asked: Asked, answer: Answer) -> None:
    await answer.body(b"", kind="", status=202)


async def no_content(asked: Asked, answer: Answer) -> None:
    await answer.raw(b"HTTP/1.1 204 No Content\r\n\r\n")


async def not_json(asked: Asked, answer: Answer) -> None:
    await answer.body(b'{"jsonrpc": "2.0", oops')


async def other_id(asked: Asked, answer: Answer) -> None:
    await answer.json({"jsonrpc": "2.0", "id": 4711, "result": {}})


async def id_of_another_type(asked: Asked, answer: Answer) -> None:
    await answer.json({"jsonrpc": "2.0", "id": str(asked.message["id"]), "result": {}})


async def other_id_as_event(asked: Asked, answer: Answer) -> None:
    await answer.stream()
    await answer.event({"jsonrpc": "2.0", "id": 4711, "result": {}})
    await answer.gone()


async def junk_as_event(asked: Asked, answer: Answer) -> None:
    await answer.stream()
    await answer.chunk(b"data: {oops\n\n")
    await answer.gone()


async def only_a_notification(asked: Asked, answer: Answer) -> None:
    await answer.json(notification("notifications/message"))


async def neither_result_nor_error(asked: Asked, answer: Answer) -> None:
    await answer.json({"jsonrpc": "2.0", "id": asked.message["id"]})


INVALID = [not_http, two_lengths, upgrade, unknown_coding, not_gzip, endless_headers, one_endless_header]
INVALID += [html, empty, accepted, no_content, not_json, other_id, id_of_another_type]
INVALID += [other_id_as_event, junk_as_event, only_a_notification, neither_result_nor_error]


async def failure_of(script: Callable[[Asked, Answer], Awaitable[None]], **options: Any) -> CallError:
    """How a call ends with this server; another call that waits meanwhile must not notice."""
    release = asyncio.Event()

    async def both(asked: Asked, answer: Answer) -> None:
        if asked.message["method"] == "bystander":
            await release.wait()
            await answer.result(asked)
        else:
            await script(asked, answer)

    async with ScriptedServer(both) as server, Talking(server.url, **options) as client:
        bystander = asyncio.create_task(client.call("bystander"))
        async with asyncio.timeout(10):
            with pytest.raises(CallError) as caught:
                await client.call("tools/call")
            release.set()
            assert await bystander == {}
    return caught.value


@pytest.mark.parametrize("script", LOST)
async def test_what_breaks_off_is_a_lost_connection_with_an_unknown_outcome(script: Any) -> None:
    """MHTTP-12: never CancelledError, never a group, and nobody else fails."""
    error = await failure_of(script)
    assert type(error) is ConnectionLost
    assert error.outcome is Outcome.UNKNOWN


@pytest.mark.parametrize("script", INVALID)
async def test_what_is_no_answer_is_an_invalid_response(script: Any) -> None:
    """It fails now, and nobody else fails."""
    error = await failure_of(script)
    assert type(error) is InvalidResponse


async def test_the_error_for_a_web_page_shows_its_beginning() -> None:
    error = await failure_of(html)
    assert "text/html" in str(error)
    assert "It works" in str(error)


@pytest.mark.parametrize("status", [400, 401, 403, 404, 405, 406, 413, 429, 500, 503])
async def test_an_error_status_is_told_with_the_start_of_its_body(status: int) -> None:
    """HDR-25: 413 is no surprise; table 4.D needs the status."""

    async def refuse(asked: Asked, answer: Answer) -> None:
        await answer.body(b"Sorry:\n" + b"x" * 5000, kind="text/plain", status=status, headers={"retry-after": "7"})

    error = await failure_of(refuse)
    assert isinstance(error, HttpStatus)
    assert (error.status, error.outcome, error.retry_after) == (status, Outcome.ANSWERED, 7.0)
    assert error.body.startswith("Sorry: xxx")
    assert len(error.body) <= 200
    assert len(str(error)) < 500


@pytest.mark.parametrize(("status", "may_have_run"), [(502, True), (503, False), (504, True)])
async def test_the_error_of_a_proxy_says_that_the_server_behind_it_is_away(status: int, may_have_run: bool) -> None:
    """Not that the URL is wrong, although the body is a web page."""

    async def refuse(asked: Asked, answer: Answer) -> None:
        await answer.body(b"<html>Bad Gateway</html>", kind="text/html", status=status)

    error = await failure_of(refuse)
    assert isinstance(error, HttpStatus)
    assert "A proxy answered, because" in str(error)
    assert "not as an MCP endpoint" not in str(error)
    assert ("may have run" in str(error)) == (error.outcome is Outcome.UNKNOWN) == may_have_run


@pytest.mark.parametrize("body", [b"no such login: Bearer 4e1f.token-9", b'{"access_token": "4e1f.token-9"}'])
async def test_credentials_that_a_server_repeats_are_not_in_the_error(body: bytes) -> None:
    async def refuse(asked: Asked, answer: Answer) -> None:
        await answer.body(body, kind="text/plain", status=403)

    error = await failure_of(refuse)
    assert isinstance(error, HttpStatus)
    assert "4e1f" not in f"{error}{error.body}"


async def test_a_challenge_is_kept_whole_though_it_came_in_several_headers() -> None:
    """401 is not an era verdict, and its WWW-Authenticate is what an OAuth client needs."""

    async def refuse(asked: Asked, answer: Answer) -> None:
        await answer.raw(
            b'HTTP/1.1 401 X\r\nWWW-Authenticate: Basic realm="a"\r\nwww-authenticate: Bearer scope="b"\r\n'
            b"content-length: 0\r\n\r\n"
        )

    error = await failure_of(refuse)
    assert isinstance(error, HttpStatus)
    assert error.headers["www-authenticate"] == 'Basic realm="a", Bearer scope="b"'


@pytest.mark.parametrize("status", [400, 404, 500])
@pytest.mark.parametrize("whose", ["none", "null", "ours"])
async def test_an_error_object_with_our_id_or_none_is_the_peers_answer(status: int, whose: str) -> None:
    """On HTTP it is clear which request it answers."""

    async def refuse(asked: Asked, answer: Answer) -> None:
        members = {"none": {}, "null": {"id": None}, "ours": {"id": asked.message["id"]}}[whose]
        await answer.json(an_error(-32601, **members), status)

    error = await failure_of(refuse)
    assert isinstance(error, PeerError)
    assert error.code == -32601


@pytest.mark.parametrize("ours", [True, False])
@pytest.mark.parametrize("status", [401, 403])
async def test_an_error_object_does_not_hide_a_refusal_of_access(status: int, ours: bool) -> None:
    """401 and 403 are authorization, not an era verdict."""

    async def refuse(asked: Asked, answer: Answer) -> None:
        await answer.json(an_error(-32600, **({"id": asked.message["id"]} if ours else {})), status)

    error = await failure_of(refuse)
    assert isinstance(error, HttpStatus)
    assert error.status == status
    assert error.error is not None
    assert error.error.code == -32600


@pytest.mark.parametrize("how", [200, 500, 503, 504, "stream"])
async def test_a_call_that_a_stopping_server_did_not_finish_is_never_sent_again(how: Any) -> None:
    """Its outcome is unknown, whatever a proxy makes of the status: to repeat it may run it twice."""

    async def script(asked: Asked, answer: Answer) -> None:
        if asked.message["method"] != "tools/call":
            await stateless(asked, answer)
        elif how == "stream":
            await answer.stream()
            await answer.event(an_error(NotFinished.code, id=asked.message["id"]))
            await answer.end()
        else:
            error = an_error(NotFinished.code, id=asked.message["id"])
            await answer.json(error, status=how, headers={"retry-after": "0"})

    async with ScriptedServer(script) as server, Client(server.url, era="2026") as client:
        with pytest.raises(PeerError) as caught:
            await client.call_tool("charge")
        assert (caught.value.code, caught.value.outcome) == (NotFinished.code, Outcome.UNKNOWN)
        assert len(server.messages("tools/call")) == 1


async def stateless(asked: Asked, answer: Answer) -> None:
    """The discovery of a server of the stateless era."""
    info = {"name": "scripted", "version": "1"}
    result = {"resultType": "complete", "supportedVersions": ["2026-07-28"], "capabilities": {"tools": {}}}
    caching = {"ttlMs": 0, "cacheScope": "private", "_meta": {"io.modelcontextprotocol/serverInfo": info}}
    await answer.result(asked, {**result, **caching})


async def test_an_error_status_whose_error_object_names_another_request_keeps_the_status() -> None:
    async def refuse(asked: Asked, answer: Answer) -> None:
        await answer.json(an_error(-32000, id="server-error"), 400)

    error = await failure_of(refuse)
    assert isinstance(error, HttpStatus)
    assert error.status == 400


async def test_an_error_object_without_an_id_on_a_stream_is_the_peers_answer() -> None:
    async def refuse(asked: Asked, answer: Answer) -> None:
        await answer.stream()
        await answer.event(an_error(-32603))
        await answer.gone()

    assert isinstance(await failure_of(refuse), PeerError)


async def test_nobody_listening_means_not_sent() -> None:
    port = free_port()
    async with Talking(f"http://127.0.0.1:{port}/mcp") as client:
        with pytest.raises(NotSent, match=f"127.0.0.1:{port}") as caught:
            await client.call()
    assert caught.value.outcome is Outcome.NOT_SENT


async def test_an_unknown_host_means_not_sent() -> None:
    async with Talking("http://nowhere.invalid/mcp") as client:
        with pytest.raises(NotSent, match=r"nowhere\.invalid"):
            await client.call()


async def test_no_tls_at_the_other_end_means_not_sent() -> None:
    async def plain(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(10)
        writer.write(b"HTTP/1.1 400 Bad Request\r\ncontent-length: 0\r\n\r\n")
        writer.close()

    async with await asyncio.start_server(plain, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        async with Talking(f"https://127.0.0.1:{port}/mcp") as client:
            with pytest.raises(NotSent, match="TLS"):
                await client.call()


async def test_a_connection_that_does_not_open_in_time_means_not_sent() -> None:
    """A listener whose backlog is full answers no SYN."""
    with socket.socket() as full:
        full.bind(("127.0.0.1", 0))
        full.listen(0)
        fillers = [socket.socket() for _ in range(3)]
        for filler in fillers:
            filler.setblocking(False)
            filler.connect_ex(full.getsockname())
        async with Talking(f"http://127.0.0.1:{full.getsockname()[1]}/", Limits(connect=0.2)) as client:
            with pytest.raises(NotSent, match=r"within 0\.2 s"):
                await client.call()
        for filler in fillers:
            filler.close()


async def large_json(asked: Asked, answer: Answer) -> None:
    await answer.raw(b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 400000000\r\n\r\n")
    while True:
        await answer.raw(b" " * 65536)


async def bomb(asked: Asked, answer: Answer) -> None:
    flate = gzip.compress(b" " * 32 * MIB)
    await answer.raw(
        b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n"
        b"content-encoding: gzip\r\ntransfer-encoding: chunked\r\n\r\n"
    )
    for _ in range(32):
        await answer.chunk(flate)


async def endless_line(asked: Asked, answer: Answer) -> None:
    await answer.stream()
    await answer.chunk(b"data: ")
    while True:
        await answer.chunk(b"x" * 65536)


async def endless_event(asked: Asked, answer: Answer) -> None:
    await answer.stream()
    while True:
        await answer.chunk(b"data: " + b"x" * 1000 + b"\n")


@pytest.mark.parametrize("script", [large_json, bomb, endless_line, endless_event])
async def test_an_answer_over_the_limit_is_refused_in_bounded_memory(script: Any) -> None:
    """The limit counts decoded bytes."""
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    error = await failure_of(script, limits=Limits(reply=4 * MIB))
    grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024
    assert isinstance(error, InvalidResponse)
    assert str(4 * MIB) in str(error)
    assert grown < 100


async def test_a_notification_that_is_refused_says_so() -> None:
    async def refuse(asked: Asked, answer: Answer) -> None:
        await answer.json(an_error(-32600), 400)

    async with ScriptedServer(refuse) as server, Talking(server.url) as client:
        with pytest.raises(PeerError):
            await client.notify("notifications/x")


async def test_a_notification_that_is_never_accepted_does_not_wait_for_ever() -> None:
    async def hanging(asked: Asked, answer: Answer) -> None:
        await answer.gone()

    async with ScriptedServer(hanging) as server, Talking(server.url, Limits(call_idle=0.1)) as client:
        with pytest.raises(CallTimeout):
            await client.notify("notifications/x")
