"""One server object in several threads, each with an event loop and a port of its own: with and without the global lock."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from typing import Any

import pytest

from gemel import Changed, Client, Context, ProgressParams, Server
from tests.support import EraName
from tests.transports.scripted_http import until

THREADS = 4
#: Clients of each thread at once, and calls of each.
CLIENTS, CALLS = 4, 25


def made() -> Server:
    server = Server("shared")

    @server.tool
    def add(a: int, b: int) -> int:
        return a + b

    @server.tool
    async def steps(ctx: Context, count: int) -> str:
        for number in range(count):
            await asyncio.sleep(0)
            await ctx.report_progress(number + 1, count)
        return threading.current_thread().name

    @server.resource("data://value")
    def value() -> str:
        return "value"

    return server


@contextmanager
def serving_in_threads(server: Server[Any]) -> Iterator[list[str]]:
    """The URLs of the server, one for each thread."""
    urls: list[Future[str]] = [Future() for _ in range(THREADS)]
    ends: list[Future[tuple[asyncio.AbstractEventLoop, asyncio.Task[None]]]] = [Future() for _ in range(THREADS)]

    async def serve(number: int) -> None:
        running = asyncio.create_task(server.run_async("http", port=0, announce=urls[number].set_result))
        ends[number].set_result((asyncio.get_running_loop(), running))
        await asyncio.wait([running])

    threads = [
        threading.Thread(target=lambda number=number: asyncio.run(serve(number)), name=f"serving-{number}", daemon=True)
        for number in range(THREADS)
    ]
    for thread in threads:
        thread.start()
    try:
        yield [url.result(20) for url in urls]
    finally:
        for end in ends:
            loop, running = end.result(20)
            loop.call_soon_threadsafe(running.cancel)
        for thread in threads:
            thread.join(20)
    assert not any(thread.is_alive() for thread in threads)


async def use(url: str, era: EraName, number: int) -> set[str]:
    """Call the tools of one thread as several clients. Returns the names of the threads that answered."""
    names: set[str] = set()

    async def calls(client: Client, which: int) -> None:
        for index in range(CALLS):
            assert (await client.call_tool("add", {"a": index, "b": which})).text == str(index + which)
            progress: list[ProgressParams] = []
            result = await client.call_tool("steps", {"count": 3}, on_progress=progress.append)
            assert [one.progress for one in progress] == [1, 2, 3]
            names.add(result.text)
        assert (await client.read_resource("data://value")).text == "value"

    async with Client(url, era=era) as client:
        await asyncio.gather(*(calls(client, number * CLIENTS + which) for which in range(CLIENTS)))
    return names


@pytest.mark.parametrize("era", ["2025", "2026"])
def test_threads_serve_one_server_at_once(era: EraName) -> None:
    """Each call is answered once, by the thread that it was sent to, with its own progress."""
    with serving_in_threads(made()) as urls:
        answered: list[Future[set[str]]] = [Future() for _ in urls]

        def client(number: int) -> None:
            try:
                answered[number].set_result(asyncio.run(use(urls[number], era, number)))
            except BaseException as exc:
                answered[number].set_exception(exc)

        threads = [threading.Thread(target=client, args=[number], daemon=True) for number in range(THREADS)]
        for thread in threads:
            thread.start()
        assert [one.result(30) for one in answered] == [{f"serving-{number}"} for number in range(THREADS)]


@pytest.mark.parametrize("era", ["2025", "2026"])
async def test_a_change_is_told_in_all_threads(era: EraName) -> None:
    server = made()
    with serving_in_threads(server) as urls:
        clients = [Client(url, era=era) for url in urls]
        heard: list[Any] = []

        async def listen(client: Client) -> None:
            async with client, client.listen(resources=["data://value"]) as changes:
                heard.append("listening")
                heard.append(await anext(changes))

        listening = [asyncio.create_task(listen(client)) for client in clients]
        async with asyncio.timeout(20):
            await until(lambda: heard.count("listening") == THREADS)
            server.notify(Changed("resource", "data://value"))
            await asyncio.gather(*listening)
    assert [one.uri for one in heard[THREADS:]] == THREADS * ["data://value"]
