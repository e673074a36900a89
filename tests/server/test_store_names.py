"""A store that is full or away: strangers are told so, and not where it is; the log is."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeAlias

import pytest

from gemel import Client, Context, RateLimit, ResultLimit, Server, Tasks
from gemel.backends import MemoryBackend, SqliteBackend
from gemel.backends.base import store_full
from gemel.errors import BackendError

PLACE = "redis://10.1.2.3:6379"
Failure: TypeAlias = Callable[[], Exception]
FAILURES: dict[str, Failure] = {
    "full": lambda: store_full(f"{PLACE} has reached its maxmemory"),
    "away": lambda: BackendError(f"{PLACE} can't be reached", 1000),
    "damaged": lambda: BackendError(f"{PLACE} is the database of another program"),
}
STORING = ("set", "get", "touch", "replace", "claim", "append", "read", "delete", "lease", "newest")


class Failing(MemoryBackend):
    """A store that several processes share, some of whose operations fail."""

    shared = True
    failure: Failure | None = None
    operations: tuple[str, ...] = ()

    def __getattribute__(self, name: str) -> Any:
        if name in STORING:
            failure = object.__getattribute__(self, "failure")
            if failure is not None and name in object.__getattribute__(self, "operations"):

                def fail(*args: Any, **options: Any) -> Any:
                    raise failure()

                return fail
        return object.__getattribute__(self, name)


def serving(backend: Failing) -> Server[Any]:
    server: Server[Any] = Server("shop", backend=backend)
    server.add_extension(Tasks())
    server.add_middleware(RateLimit(1000, backend=backend))
    server.add_middleware(ResultLimit(2000, spill=True))

    @server.tool(task=True)
    async def buy(item: str) -> str:
        return item

    @server.tool
    async def ask(ctx: Context[Any]) -> str:
        return await ctx.elicit("Which?", str)

    @server.tool
    async def large(ctx: Context[Any]) -> int:
        text = await ctx.step(lambda: "x" * 200_000)
        return len(text) + len(await ctx.elicit("Sure?", str))

    @server.tool
    async def remember(ctx: Context[Any]) -> str:
        await ctx.session_state.set("item", "x")
        return str(await ctx.session_state.get("item"))

    @server.tool
    async def long() -> str:
        return "word " * 5000

    @server.resource("shop://stock")
    async def stock() -> str:
        return "7"

    return server


async def said(work: Any) -> str:
    """What a client gets of a request."""
    try:
        result = await work
        if hasattr(result, "wait"):
            result = await result.result()
        return repr(result)
    except Exception as exc:
        return f"{exc} {exc!r} {getattr(exc, 'error', '')!r} {exc.__dict__!r}"


async def connect(server: Server[Any], era: Any) -> None:
    async with Client(server.http_app(), era=era) as client:
        await client.ping()


@pytest.mark.parametrize(
    ("failure", "operations"),
    [
        ("full", ("set", "append", "replace", "claim", "lease")),
        ("away", STORING),
        ("damaged", ("get", "read", "newest")),
    ],
)
@pytest.mark.parametrize("era", ["2025", "2026"])
async def test_no_caller_learns_where_the_store_is(failure: str, operations: tuple[str, ...], era: Any) -> None:
    backend = Failing()
    server = serving(backend)
    answers = []

    async def answer(form: Any) -> Any:
        return {"value": "x"}

    async with Client(server.http_app(), era=era, on_elicit=answer) as client:
        await client.list_tools()
        backend.failure, backend.operations = FAILURES[failure], operations
        for tool in ("buy", "ask", "large", "remember", "long"):
            answers.append(await said(client.call_tool(tool, {"item": "x"} if tool == "buy" else {})))
        answers.append(await said(client.call_tool("buy", {"item": "x"}, task=True)))
        if era == "2025":
            answers.append(await said(client.request("tasks/list", {})))
        answers.append(await said(client.read_resource("shop://stock")))
        answers.append(await said(connect(server, era)))
        backend.failure = None
    assert not [one for one in answers if "10.1.2.3" in one]


async def test_a_full_database_is_named_in_the_log_only(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    server: Server[Any] = Server("shop", backend=SqliteBackend(tmp_path / "shop.db", max_bytes=1 << 16))
    server.add_extension(Tasks())

    @server.tool(task=True)
    async def buy(item: str) -> str:
        return item

    async with Client(server, era="2026") as client:
        answers = [await said(client.call_tool("buy", {"item": "x" * 60_000}, task=True)) for _ in range(3)]
    assert "The store is full" in answers[-1]
    assert not [one for one in answers if "shop.db" in one]
    assert f"A store is full: {tmp_path / 'shop.db'} may have 65536 bytes" in caplog.text
