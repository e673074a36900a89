"""Who has which session with the server behind a proxy: over real processes and HTTP, how many there may be, and when they end."""

from __future__ import annotations

import asyncio
import os
import sys
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from gemel import (
    Changed,
    Client,
    Context,
    ElicitFormParams,
    GemelError,
    Limits,
    LogParams,
    Overloaded,
    PeerError,
    ProgressParams,
    Server,
    current_context,
)
from gemel.http1.asgi import Scope
from gemel.proxy import sessions as sessions_module
from gemel.server.context import served_call
from tests.ports import free_port
from tests.proxy.foreign import listening
from tests.proxy.test_dead_upstream import Switch
from tests.support import Headers
from tests.transports.http_rig import serving

FRONTS = ("2025", "2026")
each_front = pytest.mark.parametrize("front", FRONTS)
GEMEL = [sys.executable, "-m", "gemel"]

#: A server with a state, by hand: how often the tool was called in this process.
COUNTER = """
import json, os, sys
count = 0
for line in sys.stdin:
    message = json.loads(line)
    method, result = message.get("method"), None
    if method == "initialize":
        info = {"name": "counter", "version": "1"}
        result = {"protocolVersion": "2025-06-18", "capabilities": {"tools": {}}, "serverInfo": info}
    elif method == "tools/list":
        result = {"tools": [{"name": "count", "inputSchema": {"type": "object"}}]}
    elif method == "tools/call":
        count += 1
        result = {"content": [{"type": "text", "text": f"{os.getpid()} {count}"}]}
    elif method == "ping":
        result = {}
    if "id" in message:
        error = {"error": {"code": -32601, "message": "Method not found"}}
        answer = error if result is None else {"result": result}
        print(json.dumps({"jsonrpc": "2.0", "id": message["id"], **answer}), flush=True)
"""


@pytest.fixture
def counter(tmp_path: Path) -> list[str]:
    """The command of the server that counts."""
    (tmp_path / "counter.py").write_text(COUNTER)
    return [sys.executable, "-S", str(tmp_path / "counter.py")]


async def who(scope: Scope, headers: Headers) -> str | None:
    return headers.get("x-user")


async def visit(client: Client) -> tuple[int, int]:
    """The process that served a call, and how many it has served."""
    pid, count = (await client.call_tool("count")).text.split()
    return int(pid), int(count)


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(10):
        while not condition():  # noqa: ASYNC110 - nobody tells
            await asyncio.sleep(0.01)


def has_ended(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    return False


@asynccontextmanager
async def front_of(target: Any, **options: Any) -> AsyncIterator[Callable[..., Client]]:
    """A proxy on HTTP. Yields a function that makes its clients."""
    async with serving(Server.from_client(target, **options), authenticate=who) as site:

        def client(user: str | None = None, **more: Any) -> Client:
            headers = {} if user is None else {"X-User": user}
            return Client(f"http://127.0.0.1:{site.port}/mcp", headers=headers, **more)

        yield client


# ---------------------------------------------------------------- a process for each session


async def test_each_session_has_a_process_of_its_own_which_ends_with_it(counter: list[str]) -> None:
    async with front_of(Client(counter)) as client:
        async with client(era="2025") as ann, client(era="2025") as bob:
            (first, _), (second, _) = await visit(ann), await visit(bob)
            assert first != second
            assert await visit(ann) == (first, 2)
            assert await visit(bob) == (second, 2)
        await until(lambda: has_ended(first) and has_ended(second))


async def test_a_gateway_starts_without_a_server_that_is_slow_and_offers_it_later(
    counter: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(sessions_module, "START_PATIENCE", 0.1)
    monkeypatch.setattr(sessions_module, "RETRY_PATIENCE", 0.1)
    ready, program = tmp_path / "ready", tmp_path / "slow.py"
    wait = f"import os, time\nwhile not os.path.exists({str(ready)!r}):\n    time.sleep(0.01)\n"
    program.write_text(wait + COUNTER)
    gateway: Server[Any] = Server("gateway")
    gateway.mount(Server.from_client([sys.executable, "-S", str(program)], name="slow"), "slow")
    gateway.mount(Server.from_client([sys.executable, "-S", str(program)], name="other"), "other")
    gateway.mount(Server.from_client(counter), "quick")
    async with Client(gateway) as client, client.listen(tools=True) as changes:
        assert [tool.name for tool in await client.list_tools()] == ["quick_count"]
        with pytest.raises(PeerError, match="The upstream server is not connected yet"):
            await client.call_tool("slow_count")
        ready.touch()
        await anext(changes)
        assert (await client.call_tool("slow_count")).text.endswith(" 1")
        assert (await client.call_tool("other_count")).text.endswith(" 1")
    assert "The server behind the proxy 'slow' is slow: the proxy starts without it" in caplog.text


async def test_the_servers_of_a_gateway_are_reached_at_the_same_time(tmp_path: Path) -> None:
    """Each waits until the other one has begun to start."""
    gateway: Server[Any] = Server("gateway")
    for name, other in ("ab", "ba"):
        program = tmp_path / f"{name}.py"
        here, there = str(tmp_path / f"{name} begins"), str(tmp_path / f"{other} begins")
        wait = f"import os, time\nopen({here!r}, 'w')\nwhile not os.path.exists({there!r}):\n    time.sleep(0.01)\n"
        program.write_text(wait + COUNTER)
        gateway.mount(Server.from_client([sys.executable, "-S", str(program)], strict=True), name)
    async with Client(gateway) as client:
        assert [tool.name for tool in await client.list_tools()] == ["a_count", "b_count"]


async def test_a_slow_server_that_never_answers_ends_with_the_gateway(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sessions_module, "START_PATIENCE", 0.1)
    monkeypatch.setattr(sessions_module, "RETRY_PATIENCE", 0.1)
    async with Client(Server.from_client([sys.executable, "-S", "-c", "import time; time.sleep(600)"])) as client:
        with pytest.raises(PeerError, match="The upstream server is not connected yet"):
            await client.list_tools()


async def test_one_caller_needs_one_process(counter: list[str], tmp_path: Path) -> None:
    """The process that tells what the server offers is that of the first caller."""
    log = tmp_path / "started"
    (tmp_path / "counter.py").write_text(f"open({str(log)!r}, 'a').write('x')\n" + COUNTER)
    async with front_of(Client(counter)) as client, client(era="2025") as ann:
        assert (await visit(ann))[1] == 1
        assert log.read_text() == "x"


async def test_a_stateless_caller_shares_its_process_with_its_own_principal_only(counter: list[str]) -> None:
    async with front_of(Client(counter)) as client, client("ann") as one, client("ann") as two, client("bob") as other:
        first, _ = await visit(one)
        assert await visit(two) == (first, 2)
        assert (await visit(other))[0] != first
        assert await visit(one) == (first, 3)


async def test_a_request_of_nobody_who_is_known_has_a_process_of_its_own(counter: list[str]) -> None:
    async with front_of(Client(counter)) as client, client() as nobody:
        visits = [await visit(nobody) for _ in range(3)]
        assert [count for _, count in visits] == [1, 1, 1]
        assert len({pid for pid, _ in visits}) == 3
        await until(lambda: all(has_ended(pid) for pid, _ in visits))


@each_front
async def test_all_callers_share_a_process_if_they_are_told_to(counter: list[str], front: Any) -> None:
    async with (
        front_of(Client(counter), shared=True) as client,
        client("ann", era=front) as ann,
        client("bob", era=front) as bob,
        client(era=front) as nobody,
    ):
        first, _ = await visit(ann)
        assert await visit(bob) == (first, 2)
        assert await visit(nobody) == (first, 3)


async def test_one_user_shares_a_process_between_calls_without_a_session(counter: list[str]) -> None:
    async with (
        front_of(Client(counter), single_user=True) as client,
        client() as one,
        client() as two,
        client(era="2025") as session,
    ):
        first, _ = await visit(one)
        assert await visit(two) == (first, 2)
        assert (await visit(session))[0] != first


async def test_a_client_without_http_sessions_is_told_apart_by_its_principal(counter: list[str]) -> None:
    server = Server.from_client(Client(counter))
    async with serving(server, authenticate=who, sessions=False) as site:
        url = f"http://127.0.0.1:{site.port}/mcp"
        async with (
            Client(url, era="2025", headers={"X-User": "ann"}) as ann,
            Client(url, era="2025", headers={"X-User": "bob"}) as bob,
        ):
            first, _ = await visit(ann)
            assert await visit(ann) == (first, 2)
            assert (await visit(bob))[0] != first


async def test_each_caller_of_a_gateway_has_a_process_of_each_server(counter: list[str]) -> None:
    command, *arguments = counter
    entry = {"command": command, "args": arguments}
    gateway = Server.from_config(
        {"mcpServers": {"one": entry, "two": entry}}, limits=Limits(upstream_processes=2), single_user=True
    )
    async with serving(gateway, authenticate=who) as site:
        url = f"http://127.0.0.1:{site.port}/mcp"
        async with Client(url, era="2025") as ann, Client(url, era="2025") as bob, Client(url, era="2025") as carl:
            names = ("one_count", "two_count")
            found = [(await each.call_tool(name)).text.split() for each in (ann, bob) for name in names]
            assert [count for _, count in found] == ["1"] * 4
            pids = {int(pid) for pid, _ in found}
            assert len(pids) == 4
            assert await carl.list_tools() == []
            with pytest.raises(PeerError, match=r"the limit is 2 \(upstream_processes\)"):
                await carl.call_tool("one_count")
        await until(lambda: all(map(has_ended, pids)))


async def test_a_request_through_a_gateway_without_prefixes_takes_one_process(
    counter: list[str], tmp_path: Path
) -> None:
    """Also where it has to be found out who has the tool."""
    log = tmp_path / "started"
    (tmp_path / "counter.py").write_text(f"open({str(log)!r}, 'a').write('x')\n" + COUNTER)
    gateway: Server[Any] = Server("gateway")
    gateway.mount(Server.from_client(Client(counter)))
    async with serving(gateway) as site, Client(f"http://127.0.0.1:{site.port}/mcp", era="2026") as nobody:
        for number in range(1, 4):
            assert (await visit(nobody))[1] == 1
            assert log.read_text() == "x" * number


# ---------------------------------------------------------------- limits


async def test_there_are_no_more_processes_than_allowed(counter: list[str]) -> None:
    async with front_of(Client(counter), limits=Limits(upstream_processes=1)) as client, AsyncExitStack() as stack:
        async with client("ann", era="2025") as ann:
            await visit(ann)
            bob = await stack.enter_async_context(client("bob", era="2025"))
            with pytest.raises(PeerError) as refused:
                await visit(bob)
            assert (refused.value.code, refused.value.message) == (
                Overloaded.code,
                "Too many sessions with the upstream server: the limit is 1 (upstream_processes)",
            )
        assert (await when_there_is_room(bob))[1] == 1


async def when_there_is_room(client: Client) -> tuple[int, int]:
    async with asyncio.timeout(10):
        while True:
            try:
                return await visit(client)
            except PeerError as exc:
                if exc.code != Overloaded.code:
                    raise
                await asyncio.sleep(0.02)


async def test_one_caller_has_no_more_sessions_than_allowed() -> None:
    async with serving(Server("empty")) as behind:
        target = Client(f"http://127.0.0.1:{behind.port}/mcp", era="2025")
        limits = Limits(upstream_sessions=3, upstream_sessions_per_caller=2)
        async with front_of(target, limits=limits) as client, AsyncExitStack() as stack:
            for user in ("ann", "ann", "bob"):
                await (await stack.enter_async_context(client(user, era="2025"))).list_tools()
            carl = await stack.enter_async_context(client("carl", era="2025"))
            with pytest.raises(PeerError, match=r"the limit is 3 \(upstream_sessions\)"):
                await carl.list_tools()
        async with front_of(target.copy(), limits=limits) as client, AsyncExitStack() as stack:
            for _ in range(2):
                await (await stack.enter_async_context(client("ann", era="2025"))).list_tools()
            ann = await stack.enter_async_context(client("ann", era="2025"))
            with pytest.raises(PeerError) as refused:
                await ann.list_tools()
            assert refused.value.message == (
                "Too many sessions of one caller with the upstream server: the limit is 2 (upstream_sessions_per_caller)"
            )
            await (await stack.enter_async_context(client("bob", era="2025"))).list_tools()


@each_front
async def test_a_session_that_is_not_used_ends_and_the_next_call_begins_another(counter: list[str], front: Any) -> None:
    async with front_of(Client(counter), limits=Limits(upstream_idle=0.05)) as client, client("ann", era=front) as ann:
        first, _ = await visit(ann)
        await until(lambda: has_ended(first))
        second, count = await visit(ann)
        assert (second != first, count) == (True, 1)


@each_front
async def test_a_connection_keeps_its_session_until_it_ends(counter: list[str], front: Any) -> None:
    proxied = Server.from_client(Client(counter), limits=Limits(upstream_idle=0))
    async with Client(proxied, era=front) as client:
        first, _ = await visit(client)
        assert await visit(client) == (first, 2)
    assert has_ended(first)


async def test_whoever_gets_another_session_is_told_that_the_lists_may_differ(counter: list[str]) -> None:
    async with (
        front_of(Client(counter), limits=Limits(upstream_idle=0.05)) as client,
        client("ann", era="2025") as ann,
        ann.listen(tools=True) as changes,
    ):
        first, _ = await visit(ann)
        await until(lambda: has_ended(first))
        await visit(ann)
        assert await anext(changes) == Changed("tools")


# ---------------------------------------------------------------- nothing leaves its session


class Behind:
    """A handshake server over HTTP, which has everything that a session can be told."""

    def __init__(self) -> None:
        self.server: Server[Any] = Server("behind")
        self.sessions: dict[str, Any] = {}
        self.both = asyncio.Barrier(2)
        self.hanging: list[str] = []
        self.cancelled: list[str] = []
        self._add_tools()
        self.server.resource("data://value", name="value")(lambda: "value")

    def _add_tools(self) -> None:
        server = self.server

        @server.tool
        async def enter(ctx: Context[Any], name: str) -> str:
            self.sessions[name] = served_call(ctx).session
            return name

        @server.tool
        async def work(ctx: Context[Any], name: str) -> str:
            await self.both.wait()
            await ctx.report_progress(1, 2, name)
            await ctx.log("debug", name)
            await ctx.log("error", name)
            answer = await ctx.elicit(f"Are you {name}?", str)
            roots = await ctx.list_roots()
            sampled = await ctx.sample(name)
            return f"{answer} {roots[0].uri} {sampled.content.text}"  # type: ignore[union-attr]  # it is a text

        @server.tool
        async def hang(ctx: Context[Any], name: str) -> str:
            self.hanging.append(name)
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                self.cancelled.append(name)
                raise
            return name


class Caller:
    """What one caller was told and asked."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.heard: list[str] = []

    @property
    def options(self) -> dict[str, Any]:
        def answer(form: ElicitFormParams) -> dict[str, str]:
            self.heard.append(form.message)
            return {"value": self.name}

        return {
            "on_elicit": answer,
            "on_sample": lambda params: f"model of {self.name}",
            "on_roots": [f"file:///{self.name}"],
            "on_log": self.log,
            "log_level": "debug" if self.name == "ann" else "error",
        }

    def log(self, params: LogParams) -> None:
        self.heard.append(f"{params.level} {params.data}")

    def progress(self, params: ProgressParams) -> None:
        self.heard.append(f"progress {params.message}")

    async def work(self, client: Client) -> str:
        return (await client.call_tool("work", {"name": self.name}, on_progress=self.progress)).text


@pytest.mark.parametrize("over", ["http", "memory"])
@pytest.mark.parametrize("behind_era", ["2025", "2026"])
@each_front
async def test_what_is_said_and_asked_reaches_its_own_caller(front: Any, behind_era: Any, over: str) -> None:
    rig = Behind()
    async with AsyncExitStack() as stack:
        target: Any = rig.server
        if over == "http":
            target = f"http://127.0.0.1:{(await stack.enter_async_context(serving(rig.server))).port}/mcp"
        client = await stack.enter_async_context(front_of(Client(target, era=behind_era)))
        ann, bob = Caller("ann"), Caller("bob")
        one = await stack.enter_async_context(client("ann", era=front, **ann.options))
        two = await stack.enter_async_context(client("bob", era=front, **bob.options))
        rounds = 1 if behind_era == "2025" else 3
        if rounds > 1:
            rig.both = asyncio.Barrier(1)
        found = [*await asyncio.gather(ann.work(one), bob.work(two))]
        assert found == ["ann file:///ann model of ann", "bob file:///bob model of bob"]
        assert set(ann.heard) == {"progress ann", "debug ann", "error ann", "Are you ann?"}
        assert set(bob.heard) == {"progress bob", "error bob", "Are you bob?"}


@each_front
async def test_cancelling_ends_the_own_call(front: Any) -> None:
    rig = Behind()
    async with (
        front_of(Client(rig.server, era="2025")) as client,
        client("ann", era=front) as one,
        client("bob", era=front) as two,
    ):
        callers = (("ann", one), ("bob", two))
        calls = [asyncio.create_task(each.call_tool("hang", {"name": name})) for name, each in callers]
        await until(lambda: len(rig.hanging) == 2)
        calls[0].cancel()
        await until(lambda: rig.cancelled == ["ann"])
        assert not calls[1].done()
        calls[1].cancel()
        await asyncio.wait(calls)


@each_front
async def test_changes_in_one_session_are_told_to_its_caller_only(front: Any) -> None:
    rig = Behind()
    async with serving(rig.server) as behind:
        target = Client(f"http://127.0.0.1:{behind.port}/mcp", era="2025")
        async with (
            front_of(target) as client,
            client("ann", era=front) as ann,
            client("bob", era=front) as bob,
            ann.listen(tools=True, resources=["data://value"]) as of_ann,
            bob.listen(tools=True, resources=["data://value"]) as of_bob,
        ):
            await ann.call_tool("enter", {"name": "ann"})
            await bob.call_tool("enter", {"name": "bob"})
            session = rig.sessions["ann"]
            await session.notify("notifications/tools/list_changed")
            await session.notify("notifications/resources/updated", {"uri": "data://value"})
            assert {await anext(of_ann), await anext(of_ann)} == {
                Changed("tools"),
                Changed("resource", "data://value"),
            }
            rig.server.notify(Changed("prompts"))
            rig.server.tool("later")(lambda: "")
            assert await anext(of_bob) == Changed("tools")
            assert await anext(of_ann) == Changed("tools")


async def test_changes_reach_a_caller_of_a_gateway_and_a_listener_without_a_name() -> None:
    rig = Behind()
    async with serving(rig.server) as behind:
        gateway: Server[Any] = Server("gateway")
        gateway.mount(Server.from_client(Client(f"http://127.0.0.1:{behind.port}/mcp", era="2025")), "inner")
        async with serving(gateway) as front:
            url = f"http://127.0.0.1:{front.port}/mcp"
            async with (
                Client(url, era="2026") as one,
                Client(url, era="2025") as two,
                one.listen(tools=True, resources=["inner+data://value"]) as of_one,
                two.listen(tools=True) as of_two,
            ):
                assert "inner_enter" in [tool.name for tool in await two.list_tools()]
                rig.server.tool("later")(lambda: "")
                assert await anext(of_one) == Changed("tools")
                assert await anext(of_two) == Changed("tools")
                rig.server.notify(Changed("resource", "data://value"))
                assert await anext(of_one) == Changed("resource", "inner+data://value")


async def test_a_call_that_waits_for_an_anonymous_caller_goes_on_in_its_session() -> None:
    """The session of a request outlives it as long as its call waits for the next round."""
    server: Server[Any] = Server("asks")
    sessions: list[Any] = []

    @server.tool
    async def ask(ctx: Context[Any]) -> str:
        sessions.append(served_call(ctx).session)
        return await ctx.elicit("Who?", str)

    async with serving(server) as behind:
        target = Client(f"http://127.0.0.1:{behind.port}/mcp", era="2025")
        async with front_of(target) as client, client(era="2026", on_elicit=lambda form: {"value": "me"}) as nobody:
            found = await asyncio.gather(*(nobody.call_tool("ask") for _ in range(5)))
            assert [one.text for one in found] == ["me"] * 5
            assert len(set(sessions)) == len(sessions) == 5
            await until(lambda: all(one.connection.closed for one in sessions))


ASKS = """
import os
from gemel import Context, Server
server = Server("asks")
@server.tool
async def ask(ctx: Context) -> str:
    first = await ctx.elicit("Who?", str)
    return f"{os.getpid()} {first} {await ctx.elicit('Why?', str)}"
server.run()
"""


async def test_a_process_that_keeps_its_state_serves_all_rounds_of_an_anonymous_caller(tmp_path: Path) -> None:
    """Only the process that asked can read the request state of a stateless server; it ends after the last round."""
    (tmp_path / "asks.py").write_text(ASKS)
    target = Client([sys.executable, str(tmp_path / "asks.py")], era="2026")
    async with front_of(target) as client, client(era="2026", on_elicit=lambda form: {"value": form.message}) as nobody:
        found = await asyncio.gather(*(nobody.call_tool("ask") for _ in range(2)))
        pids = [int(one.text.split()[0]) for one in found]
        assert [one.text.split()[1:] for one in found] == [["Who?", "Why?"]] * 2
        assert len(set(pids)) == 2
        await until(lambda: all(has_ended(pid) for pid in pids))


async def test_a_process_that_waits_for_an_anonymous_caller_ends_if_it_does_not_come_back(tmp_path: Path) -> None:
    (tmp_path / "asks.py").write_text(ASKS.replace("first =", "open('pid', 'w').write(str(os.getpid())); first ="))
    target = Client([sys.executable, "asks.py"], era="2026", cwd=tmp_path)
    left = asyncio.Event()

    async def leave(form: ElicitFormParams) -> dict[str, str]:
        left.set()
        return await asyncio.Event().wait()  # type: ignore[return-value]  # it never returns

    async with front_of(target, limits=Limits(state_ttl=1)) as client, client(era="2026", on_elicit=leave) as nobody:
        call = asyncio.create_task(nobody.call_tool("ask"))
        await left.wait()
        pid = int((tmp_path / "pid").read_text())
        assert not has_ended(pid)
        await until(lambda: has_ended(pid))
        call.cancel()
        await asyncio.wait([call])


@each_front
async def test_a_session_is_opened_with_the_credentials_of_its_caller(front: Any) -> None:
    opened: list[str | None] = []
    ended: list[Any] = []

    async def note(ctx: Context[Any], call_next: Any) -> Any:
        if ctx.method == "initialize":
            opened.append(ctx.principal)
            ended.append(served_call(ctx).session)
        return await call_next(ctx)

    server: Server[Any] = Server("theirs", middleware=[note])

    @server.tool
    def me(ctx: Context[Any]) -> str:
        return str(ctx.principal)

    def of_caller() -> dict[str, str]:
        try:
            return {"X-User": str(current_context().principal)}
        except GemelError:
            return {"X-User": "the proxy"}

    async with serving(server, authenticate=who) as behind:
        target = Client(f"http://127.0.0.1:{behind.port}/mcp", era="2025", headers=of_caller)
        async with front_of(target) as client, client("ann", era=front) as ann, client("bob", era=front) as bob:
            found = [(await each.call_tool("me")).text for each in (ann, bob, ann)]
            assert found == ["ann", "bob", "ann"]
        await until(lambda: all(session.connection.closed for session in ended))
    assert opened == ["the proxy", "ann", "bob"]


async def test_a_stateless_server_over_http_has_no_sessions_so_one_client_serves_all() -> None:
    discovered: list[str] = []

    async def count(ctx: Context[Any], call_next: Any) -> Any:
        discovered.append(ctx.method)
        return await call_next(ctx)

    server: Server[Any] = Server("stateless", middleware=[count])
    server.tool("hello")(lambda: "hello")
    async with (
        serving(server) as behind,
        front_of(Client(f"http://127.0.0.1:{behind.port}/mcp", era="2026")) as client,
        client(era="2026") as one,
        client("ann", era="2025") as two,
    ):
        for each in (one, two, one):
            assert (await each.call_tool("hello")).text == "hello"
    assert discovered.count("server/discover") == 1


# ---------------------------------------------------------------- down, and there again


@pytest.mark.parametrize("to", ["http", "stdio"])
@each_front
async def test_gemel_proxy_starts_without_its_server_and_finds_it_on_the_next_use(
    front: Any, to: str, tmp_path: Path
) -> None:
    (tmp_path / "behind.py").write_text(
        "import sys\nfrom gemel import Server\nserver = Server('late')\nserver.tool('hello')(lambda: 'hello')\n"
        "server.run('http', port=int(sys.argv[1]))\n"
    )
    behind, port = free_port(), free_port()
    async with AsyncExitStack() as stack:
        command = [*GEMEL, "proxy", f"http://127.0.0.1:{behind}/mcp", "--to", to]
        target: Any = command
        if to == "http":
            await stack.enter_async_context(listening([*command, "--port", str(port)], port))
            target = f"http://127.0.0.1:{port}/mcp"
        client = await stack.enter_async_context(Client(target, era=front))
        for use in (client.list_tools, lambda: client.call_tool("hello")):
            with pytest.raises(PeerError, match=rf"The upstream server is not connected: .*127\.0\.0\.1:{behind}"):
                await use()
        async with client.listen(tools=True) as changes:
            await stack.enter_async_context(
                listening([sys.executable, str(tmp_path / "behind.py"), str(behind)], behind)
            )
            assert (await client.call_tool("hello")).text == "hello"
            assert await anext(changes) == Changed("tools")
        assert [tool.name for tool in await client.list_tools(cache="refresh")] == ["hello"]
        assert await client.list_prompts() == []


async def test_a_subscriber_without_a_name_hears_of_changes_of_a_server_that_was_down() -> None:
    rig = Behind()
    switch = Switch(rig.server)
    async with front_of(switch) as client, client(era="2026") as nobody, nobody.listen(tools=True) as changes:
        with pytest.raises(PeerError, match="it is switched off"):
            await nobody.list_tools()
        switch.on = True
        await nobody.call_tool("enter", {"name": "nobody"})
        assert await anext(changes) == Changed("tools")
        heard = asyncio.ensure_future(anext(changes))
        for number in range(200):  # nobody tells when the proxy listens
            if heard.done():
                break
            rig.server.tool(f"later{number}")(lambda: "")
            await asyncio.wait([heard], timeout=0.05)
        assert await heard == Changed("tools")


async def test_a_session_that_can_not_be_opened_is_told_and_the_others_go_on(
    counter: list[str], tmp_path: Path
) -> None:
    async with front_of(Client(counter)) as client, client("ann", era="2025") as ann:
        first, _ = await visit(ann)
        (tmp_path / "counter.py").rename(tmp_path / "away.py")
        async with client("bob", era="2025") as bob:
            with pytest.raises(PeerError) as failed:
                await visit(bob)
            assert (failed.value.message, failed.value.data) == (
                "The upstream server can't be reached: the request was not sent",
                {"outcome": "not sent"},
            )
            assert await visit(ann) == (first, 2)
            (tmp_path / "away.py").rename(tmp_path / "counter.py")
            assert (await visit(bob))[1] == 1


# ---------------------------------------------------------------- nothing is left


@pytest.mark.parametrize("front", ["2025", "2026"])
async def test_sessions_that_end_leave_no_task_no_descriptor_and_no_process(counter: list[str], front: Any) -> None:
    async with front_of(Client(counter)) as client:

        async def use(number: int) -> int:
            async with client(era=front) as each:
                return (await visit(each))[0]

        def descriptors() -> int:
            return len(os.listdir("/proc/self/fd"))

        pids = [await use(0)]
        await until(lambda: has_ended(pids[0]))
        before = descriptors(), len(asyncio.all_tasks())
        for number in range(4):
            pids += await asyncio.gather(*map(use, range(5 * number, 5 * number + 5)))
        await until(lambda: all(map(has_ended, pids)))
        await until(lambda: (descriptors(), len(asyncio.all_tasks())) <= before)
        assert len(set(pids)) == 21


@each_front
def test_a_proxy_works_in_several_event_loops_at_once(counter: list[str], front: Any) -> None:
    server = Server.from_client(Client(counter))
    ready = threading.Barrier(3)
    found: list[tuple[int, int]] = []

    async def use() -> None:
        async with Client(server, era=front) as one, Client(server, era=front) as two:
            await asyncio.to_thread(ready.wait, 20)
            found.extend([await visit(one), await visit(two), await visit(one)])

    threads = [threading.Thread(target=asyncio.run, args=(use(),)) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(count for _, count in found) == [1] * 6 + [2] * 3
    assert len({pid for pid, _ in found}) == 6
