"""Servers with different names and different users that share one store: nothing of one is seen by another.

Every key and every kind of change that reaches the store names its server.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, nullcontext
from pathlib import Path
from typing import Any

import pytest

from gemel import (
    BackendError,
    Changed,
    Client,
    Context,
    Limits,
    PeerError,
    Principal,
    RateLimit,
    ResultLimit,
    Server,
    Tasks,
)
from gemel.auth import StaticTokens
from gemel.backends import Backend, EncryptedBackend, MemoryBackend, ServerBackend, SqliteBackend, backend_for
from gemel.backends.keys import make_key
from gemel.testing import check_backend
from tests.backends.redis_server import needs_redis, redis_server
from tests.serving import over_http
from tests.transports.http_rig import META, handshake_call, modern, serving, text_of

KINDS = ["memory", "sqlite", "encrypted", pytest.param("redis", marks=needs_redis)]
stores = pytest.mark.parametrize("kind", KINDS)
SECRET = b"a key that both of the servers have"


async def everybody_is_one(scope: Any, headers: Any) -> Principal:
    """Two servers with users of their own, each of which calls one of them "1"."""
    return Principal("1")


@asynccontextmanager
async def store(kind: str, tmp_path: Path) -> AsyncIterator[Callable[[], Backend]]:
    """What connects to one store, as several processes do."""
    made: list[Backend] = []
    memory, path = MemoryBackend(), tmp_path / "state.db"
    with redis_server(tmp_path / "redis") if kind == "redis" else nullcontext() as running:

        def make() -> Backend:
            match kind:
                case "memory":
                    return memory
                case "sqlite":
                    made.append(SqliteBackend(path))
                case "encrypted":
                    made.append(EncryptedBackend(SqliteBackend(path), [SECRET]))
                case _:
                    assert running is not None
                    made.append(backend_for(running.url))
            return made[-1]

        try:
            yield make
        finally:
            for backend in made:
                await backend.close()


def make_server(name: str, backend: Any) -> Server[Any]:
    """A server that stores everything that a server can store."""
    limits = Limits(step_bytes=1000 if backend.shared else 10_000)  # a larger result goes to the store
    server: Server[Any] = Server(name, backend=backend, state_keys=[SECRET], state_once=True, limits=limits)
    server.add_extension(Tasks(poll_interval=0.05))
    server.add_middleware(RateLimit(0.001, burst=3, methods=["prompts/get"], backend=backend))
    server.add_middleware(ResultLimit(5000, spill=True, backend=server.backend))

    @server.tool(task=True)
    async def job(ctx: Context) -> str:
        async def step(text: str) -> str:
            return text

        done = await ctx.step(step, f"secret of {name}")
        return f"{done} {await ctx.elicit('Go on?', bool)}"

    @server.tool
    async def pay(ctx: Context) -> str:
        async def approve() -> str:
            return f"approved by {name} " + "." * 2000

        approved = await ctx.step(approve)
        return f"{approved} {await ctx.elicit('Sure?', bool)}"

    @server.tool
    async def long() -> str:
        return name * 3000

    @server.tool
    async def remember(ctx: Context, text: str) -> str:
        await ctx.session_state.set("text", text)
        return str(await ctx.session_state.get("text"))

    @server.tool
    async def edit() -> str:
        server.notify(Changed("resource", "note://1"))
        return "edited"

    @server.prompt
    def greet() -> str:
        return "hello"

    @server.resource("note://{number}")
    async def note(number: str) -> str:
        return number

    return server


def connect(url: str, era: Any) -> Client:
    return Client(url, era=era, on_elicit=lambda form: {"value": True})


@stores
async def test_nothing_of_one_server_is_seen_by_another(kind: str, tmp_path: Path) -> None:
    async with store(kind, tmp_path) as make:
        alpha, beta = make_server("alpha", make()), make_server("beta", make())
        async with (
            over_http(alpha, authenticate=everybody_is_one) as url,
            over_http(beta, authenticate=everybody_is_one) as other,
        ):
            for era in ("2025", "2026"):
                async with connect(url, era) as ours, connect(other, era) as theirs:
                    await tasks_are_apart(ours, theirs, era)
                    await limits_are_apart(ours, theirs, era)
                    await changes_are_apart(ours, theirs)
                    await pages_are_apart(ours, theirs)
        await alpha.backend.set("key", b"of alpha")
        assert await beta.backend.get("key") is None
        assert await make().get("key") is None


async def tasks_are_apart(ours: Client, theirs: Client, era: str) -> None:
    task = await ours.call_tool("job", task=True)
    assert "secret of alpha" in (await task.result()).text
    with pytest.raises(PeerError, match="Unknown task"):
        await (await theirs.tasks.resume(str(task.id), tool="job")).refresh()
    if era == "2025":
        for method in ("tasks/get", "tasks/cancel", "tasks/result"):
            with pytest.raises(PeerError, match="Unknown task"):
                await theirs.request(method, {"taskId": task.id})
        assert [each["taskId"] for each in (await ours.request("tasks/list", {}))["tasks"]] == [task.id]
        assert (await theirs.request("tasks/list", {}))["tasks"] == []


async def limits_are_apart(ours: Client, theirs: Client, era: str) -> None:
    if era == "2026":
        return  # the callers are the same ones
    for _ in range(3):
        await ours.get_prompt("greet")
    with pytest.raises(PeerError, match="Too many requests"):
        await ours.get_prompt("greet")
    await theirs.get_prompt("greet")


async def changes_are_apart(ours: Client, theirs: Client) -> None:
    async with theirs.listen(resources=["note://1"]) as changes, ours.listen(resources=["note://1"]) as own:
        await ours.call_tool("edit")
        assert await own.__anext__() == Changed("resource", "note://1")
        late = asyncio.ensure_future(changes.__anext__())
        await ours.call_tool("edit")
        await own.__anext__()
        assert not late.done()
        await theirs.call_tool("edit")
        assert await late == Changed("resource", "note://1")


async def pages_are_apart(ours: Client, theirs: Client) -> None:
    result = await ours.call_tool("long")
    uri = next(block.uri for block in result.content if block.type == "resource_link")
    assert (await ours.read_resource(uri)).contents
    with pytest.raises(PeerError):
        await theirs.read_resource(uri)


@stores
async def test_a_session_of_one_server_is_unknown_to_another(kind: str, tmp_path: Path) -> None:
    async with (
        store(kind, tmp_path) as make,
        serving(make_server("alpha", make())) as ours,
        serving(make_server("beta", make())) as theirs,
    ):
        session = await ours.session()
        reply = await ours.ask(session, handshake_call("remember", 1, text="of alpha"))
        assert text_of(reply.json()) == "of alpha"
        assert (await theirs.ask(session, handshake_call("edit", 2))).status == 404


@stores
async def test_a_request_state_of_one_server_is_refused_by_another(kind: str, tmp_path: Path) -> None:
    """With the same keys, tool, arguments and caller: the step that the other one approved is not skipped here."""
    async with (
        store(kind, tmp_path) as make,
        serving(make_server("staging", make())) as staging,
        serving(make_server("production", make())) as production,
    ):
        call = {"name": "pay", "arguments": {}}
        asked = (await staging.ask(*asking(call))).json()["result"]
        (key,) = asked["inputRequests"]
        answer = {"action": "accept", "content": {"value": True}}
        again = {**call, "requestState": asked["requestState"], "inputResponses": {key: answer}}
        refused = (await production.ask(*asking(again))).json()["error"]
        assert refused["message"].startswith("Invalid requestState")
        assert "approved by staging" in text_of((await staging.ask(*asking(again))).json())


def asking(params: dict[str, Any]) -> tuple[dict[str, str], Any]:
    """A stateless call of a client that answers questions."""
    headers, body = modern("tools/call", params)
    body["params"]["_meta"][f"{META}clientCapabilities"] = {"elicitation": {"form": {}}}
    return {**headers, "Mcp-Name": params["name"]}, body


class Recorded:
    """Another backend, of which the keys and the kinds of changes that arrive are noted."""

    def __init__(self, backend: Backend) -> None:
        self.backend = backend
        self.keys: set[str] = set()

    def __getattr__(self, name: str) -> Any:
        member = getattr(self.backend, name)
        if name in ("shared", "flush", "subscribe", "close"):
            return member

        def noted(what: Any, *args: Any, **options: Any) -> Any:
            self.keys.add(what.kind if isinstance(what, Changed) else what)
            return member(what, *args, **options)

        return noted


def parts_of(key: str) -> list[str]:
    """The parts of a key that `make_key` made. Raises ValueError for another text."""
    parts: list[str] = []
    while True:
        if key.startswith("#"):
            part, key = key[:65], key[65:]
        else:
            length, _, rest = key.partition(":")
            part, key = rest[: int(length)], rest[int(length) :]
            if len(part) != int(length):
                raise ValueError(part)
        parts.append(part)
        if not key:
            return parts
        if key[0] != "/":
            raise ValueError(key)
        key = key[1:]


#: What a run that uses everything writes: the first part of each key, or the kind of a change.
WRITTEN = {
    "events",
    "inbox",
    "key of its own",
    "process",
    "rate-limit",
    "request-state",
    "resource",
    "result-page",
    "session",
    "server",
    "sessions",
    "standing",
    "task",
    "task-asker",
    "task-engine",
    "tasks-of",
}
#: What only processes that share a store write.
SHARED = {"events", "inbox", "process", "request-state", "session", "sessions", "standing"}


@stores
@pytest.mark.parametrize("name", ["alpha", "a/1:b", "{weather}", "π" * 300])
async def test_every_key_names_its_server(kind: str, name: str, tmp_path: Path) -> None:
    if kind != "sqlite" and name != "alpha":
        pytest.skip("names are the same to all stores")
    async with store(kind, tmp_path) as make:
        backend = Recorded(make())
        server = make_server(name, backend)
        await server.backend.set("key of its own", b"value")
        async with over_http(server, authenticate=everybody_is_one) as url:
            for era in ("2025", "2026"):
                async with connect(url, era) as client:
                    async with client.listen(resources=["note://1"]) as changes:
                        await client.call_tool("edit")
                        await anext(changes)
                    assert "approved" in (await client.call_tool("pay")).text
                    assert "secret" in (await (await client.call_tool("job", task=True)).result()).text
                    await client.call_tool("long")
                    if era == "2025":
                        await client.get_prompt("greet")
                        await client.call_tool("remember", {"text": "something"})
        whole = name if len(name.encode()) <= 240 else parts_of(make_key(name))[0]
        split = {tuple(parts_of(key)) for key in backend.keys}
        assert {first for first, *_ in split} == {whole}
        assert all(len(parts) == 2 for parts in split)
        inner = [parts_of(key)[0] if ":" in key or key[0] == "#" else key for _, key in split]
        assert set(inner) == (WRITTEN if kind != "memory" else WRITTEN - SHARED)


# ---------------------------------------------------------------- servers in servers, and servers of one name


async def test_a_mounted_server_stores_under_the_name_of_the_one_that_mounts_it() -> None:
    """Two servers mount one of the same name, each with its own users."""
    store = MemoryBackend()
    mounted = []
    for name in ("alpha", "beta"):
        outer, inner = Server[Any](name), Server[Any]("notes", backend=store)
        outer.mount(inner, "notes")
        await inner.backend.set("key", name.encode())
        mounted.append(inner)
    assert [await inner.backend.get("key") for inner in mounted] == [b"alpha", b"beta"]
    alone = Server[Any]("notes", backend=store)
    assert await alone.backend.get("key") is None
    assert await Server[Any]("notes", backend=store).backend.get("key") is None


async def test_another_program_announces_changes_of_a_server(tmp_path: Path) -> None:
    server = make_server("notes", SqliteBackend(tmp_path / "state.db"))
    other = SqliteBackend(tmp_path / "state.db")
    async with Client(server) as client, client.listen(resources=["note://1"]) as changes:
        ServerBackend(other, "others").publish(Changed("resource", "note://1"))
        ServerBackend(other, "notes").publish(Changed("resource", "note://1"))
        assert await anext(changes) == Changed("resource", "note://1")
    await other.close()
    await server.backend.close()


async def test_the_part_of_a_server_keeps_the_contract_of_backends() -> None:
    store = MemoryBackend()
    await check_backend(lambda: ServerBackend(store, "notes"))


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (("a", "b"), ("a/1:b",)),
        (("a/1:b", "c"), ("a", "b", "c")),
        (("", ""), ("",)),
        (("x" * 300,), ("x" * 301,)),
        (("1:a",), ("a",)),
    ],
)
def test_different_lists_of_parts_have_different_keys(one: tuple[str, ...], other: tuple[str, ...]) -> None:
    assert make_key(*one) != make_key(*other)
    assert parts_of(make_key(*one)) != parts_of(make_key(*other))


# ---------------------------------------------------------------- two servers of one name


def offering(tool: str, **options: Any) -> Server[Any]:
    server: Server[Any] = Server("notes", **options)
    server.tool(tool)(lambda: "done")
    return server


async def starts(caplog: pytest.LogCaptureFixture, *servers: Server[Any]) -> str:
    """Start servers one after the other. Returns what was said."""
    caplog.clear()
    for server in servers:
        async with server.running():
            pass
    return caplog.text


@stores
async def test_two_different_servers_of_one_name_are_told_at_start(
    kind: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with store(kind, tmp_path) as make:
        said = await starts(caplog, offering("search", backend=make()), offering("forecast", backend=make()))
        assert said.count("Another server named 'notes'") == 1
        assert "it offers search, this one forecast" in said


async def test_replicas_and_servers_of_other_names_are_not_told(caplog: pytest.LogCaptureFixture) -> None:
    store = MemoryBackend()
    newer = offering("search", backend=store)
    newer.tool("forecast")(lambda: "done")
    other = Server[Any]("weather", backend=store)
    other.tool("rain")(lambda: "done")
    assert not await starts(
        caplog, offering("search", backend=store), newer, other, offering("forecast", backend=store)
    )


async def test_servers_of_one_name_with_other_users_are_told(caplog: pytest.LogCaptureFixture) -> None:
    store = MemoryBackend()
    servers = [
        offering("search", backend=store, auth=StaticTokens({"token": "1"}, resource=f"https://{host}.example/mcp"))
        for host in ("staging", "production")
    ]
    assert "authorized by https://staging.example/mcp, those of this one by https://production" in await starts(
        caplog, *servers
    )


async def test_a_store_that_is_away_says_nothing_about_names(caplog: pytest.LogCaptureFixture) -> None:
    class Away(MemoryBackend):
        async def get(self, key: str) -> bytes | None:
            raise BackendError("away")

    assert not await starts(caplog, offering("search", backend=Away()))
