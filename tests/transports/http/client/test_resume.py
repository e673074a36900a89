"""The HTTP client resumes the stream of a handshake-era request that ended early, in due time and not for ever."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from gemel import ConnectionLost
from gemel.transports.http.client.responses import Reconnection
from tests.transports.scripted_http import (
    Answer,
    Asked,
    ScriptedServer,
    Talking,
    legacy,
    notification,
    result_of,
    until,
)


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """No waiting between attempts but for what the server asks."""
    monkeypatch.setattr(Reconnection, "FIRST", 0.0)
    monkeypatch.setattr(Reconnection, "FLOOR", 0.0)


class Resumable:
    """A server that ends a call's stream early and goes on after a GET; `script` serves the nth GET."""

    def __init__(self, *gets: Any, retry: int | None = None, cut: bool = False) -> None:
        self._gets = iter(gets)
        self._retry = retry
        self._cut = cut
        self.call: Asked | None = None
        self.dropped_at = 0.0

    async def __call__(self, asked: Asked, answer: Answer) -> None:
        if asked.method == "POST" and asked.message.get("method") == "tools/call":
            self.call = asked
            await answer.stream()
            await answer.event("", id="e-1", retry=self._retry)
            self.dropped_at = asyncio.get_running_loop().time()
            if self._cut:
                answer.reset()
            else:
                await answer.end()
        elif asked.method == "GET" and self.call is not None:
            await next(self._gets)(self.call, answer)
        else:
            await legacy(asked, answer)


async def finish(call: Asked, answer: Answer) -> None:
    await answer.stream()
    await answer.event(result_of(call, {"resumed": True}), id="e-9")
    await answer.end()


async def empty(call: Asked, answer: Answer) -> None:
    await answer.stream()
    await answer.end()


async def busy(call: Asked, answer: Answer) -> None:
    await answer.body(status=503)


async def broken(call: Asked, answer: Answer) -> None:
    answer.reset()


async def not_allowed(call: Asked, answer: Answer) -> None:
    await answer.body(status=405)


async def progress(call: Asked, answer: Answer) -> None:
    await answer.stream()
    await answer.event(notification("notifications/progress"), id="e-2")
    await answer.end()


async def others_answer(call: Asked, answer: Answer) -> None:
    await answer.stream()
    await answer.event({"jsonrpc": "2.0", "id": 4711, "result": {}}, id="e-5")
    await answer.event(result_of(call, {"resumed": True}), id="e-9")
    await answer.end()


@pytest.mark.parametrize("cut", [False, True])
async def test_a_stream_that_ends_early_is_resumed_after_its_last_event_and_not_before_retry(cut: bool) -> None:
    """LHTTP-10, LHTTP-18, conformance sse-retry."""
    script = Resumable(finish, retry=700, cut=cut)
    async with ScriptedServer(script) as server, Talking(server.url) as client:
        await client.call("initialize")
        client.channel.set_revision("2025-11-25")
        assert await client.call() == {"resumed": True}
        (get,) = server.by("GET")
        assert get.headers["last-event-id"] == "e-1"
        assert get.headers["mcp-session-id"] == "s-1"
        assert get.at - script.dropped_at >= 0.69


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize("first", [empty, busy, broken, progress, others_answer])
async def test_resuming_goes_on_after_a_failure(first: Any) -> None:
    script = Resumable(first, finish)
    async with ScriptedServer(script) as server, Talking(server.url) as client:
        await client.call("initialize")
        client.channel.set_revision("2025-11-25")
        assert await client.call() == {"resumed": True}


@pytest.mark.usefixtures("quick")
async def test_resuming_ends_after_eight_attempts_without_a_message() -> None:
    """No reconnect storms: a 200 that ends empty is a failure."""
    script = Resumable(*[empty, busy, broken] * 5)
    async with ScriptedServer(script) as server, Talking(server.url) as client:
        await client.call("initialize")
        client.channel.set_revision("2025-11-25")
        with pytest.raises(ConnectionLost, match="could not be resumed"):
            await client.call()
        assert len(server.by("GET")) == 8


@pytest.mark.usefixtures("quick")
async def test_a_message_gives_the_attempts_back() -> None:
    script = Resumable(*[empty] * 6, progress, *[empty] * 20)
    async with ScriptedServer(script) as server, Talking(server.url) as client:
        await client.call("initialize")
        client.channel.set_revision("2025-11-25")
        with pytest.raises(ConnectionLost):
            await client.call()
        assert len(server.by("GET")) == 7 + 8
        assert [get.headers["last-event-id"] for get in server.by("GET")[6:8]] == ["e-1", "e-2"]


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize("event", ["the same event", "a new id", "no id", "a comment"])
async def test_a_server_that_always_ends_the_stream_after_a_message_is_given_up(event: str) -> None:
    """Work is bounded: every reconnection costs both sides a request, and no answer comes."""
    number = 0

    async def one_more(call: Asked, answer: Answer) -> None:
        nonlocal number
        number += 1
        await answer.stream()
        if event == "a comment":
            await answer.chunk(b": still here\n\n")
        else:
            ids = {"the same event": "e-2", "a new id": f"e-{number}"}
            await answer.event(notification("notifications/progress"), id=ids.get(event))
        await answer.end()

    script = Resumable(*[one_more] * 2000)
    async with ScriptedServer(script) as server, Talking(server.url) as client:
        await client.call("initialize")
        client.channel.set_revision("2025-11-25")
        with pytest.raises(ConnectionLost, match="could not be resumed"):
            await client.call()
        assert len(server.by("GET")) <= Reconnection.QUICK_TRIES


@pytest.mark.usefixtures("quick")
async def test_405_ends_resuming() -> None:
    script = Resumable(not_allowed, finish)
    async with ScriptedServer(script) as server, Talking(server.url) as client:
        await client.call("initialize")
        client.channel.set_revision("2025-11-25")
        with pytest.raises(ConnectionLost, match="405"):
            await client.call()
        assert len(server.by("GET")) == 1


async def test_a_stream_without_event_ids_can_not_be_resumed() -> None:
    async def script(asked: Asked, answer: Answer) -> None:
        if asked.method == "POST" and asked.message.get("method") == "tools/call":
            await answer.stream()
            await answer.event(notification("notifications/message"))
            await answer.end()
        else:
            await legacy(asked, answer)

    async with ScriptedServer(script) as server, Talking(server.url) as client:
        await client.call("initialize")
        client.channel.set_revision("2025-11-25")
        with pytest.raises(ConnectionLost):
            await client.call()
        assert not server.by("GET")


@pytest.mark.parametrize("ended", [True, False])
async def test_an_answer_on_the_servers_own_stream_ends_the_call_that_waits_elsewhere(ended: bool) -> None:
    """The specification forbids it, yet servers do it, the mock of conformance scenario sse-retry among them."""
    called: asyncio.Future[Asked] = asyncio.get_running_loop().create_future()

    async def script(asked: Asked, answer: Answer) -> None:
        if asked.method == "GET":
            await answer.stream()
            await answer.event(result_of(await called, {"late": True}))
            await answer.gone()
        elif asked.method == "POST" and asked.message.get("method") == "tools/call":
            await answer.stream()
            await answer.event("", id="e-1", retry=60_000)
            if ended:
                await answer.end()
            called.set_result(asked)
            await answer.gone()
        else:
            await legacy(asked, answer)

    async with ScriptedServer(script) as server, Talking(server.url) as client:
        await client.handshake()
        await until(lambda: bool(server.by("GET")))
        async with asyncio.timeout(10):
            assert await client.call() == {"late": True}
        assert len(server.by("GET")) == 1


async def test_a_modern_stream_is_never_resumed() -> None:
    """MHTTP-11, MHTTP-12: even when the server sends event ids."""
    script = Resumable(finish)
    async with ScriptedServer(script) as server, Talking(server.url) as client:
        with pytest.raises(ConnectionLost):
            await client.call()
        assert not server.by("GET")


def test_the_waiting_times_double_up_to_a_bound_and_end() -> None:
    """0.5 s to 30 s with jitter, floor 200 ms, 8 attempts; `retry` only makes them longer."""
    reconnection = Reconnection()
    waits = [reconnection.next_delay() for _ in range(9)]
    assert waits[-1] is None
    bounds = [0.5, 1, 2, 4, 8, 16, 30, 30]
    for wait, bound in zip(waits[:-1], bounds, strict=True):
        assert wait is not None
        assert max(0.2, bound / 2) <= wait <= bound
    reconnection.progress()
    reconnection.retry = 12.5
    assert reconnection.next_delay() == 12.5
    reconnection.retry = 0.001
    assert (reconnection.next_delay() or 0) >= 0.2
