"""A server in any number of event loops, one after the other and at once: what it has in each of them, and what they share."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import json
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterator
from concurrent.futures import Future
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient

import gemel.sync
from gemel import Changed, Client, Context, Overloaded, PeerError, Server, Tasks
from gemel.extensions.tasks.client import TasksClient
from gemel.server.middleware.rate_limit import RateLimit
from tests.ports import free_port
from tests.serving import target
from tests.transports.loops import FACTORIES
from tests.transports.scripted_http import until

Era = Any
eras = pytest.mark.parametrize("era", ["2025", "2026"])
#: Python reports tasks that are destroyed with a loop that was only closed.
only_closed = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")


def run_and_only_close(work: Coroutine[Any, Any, Any]) -> Any:
    """What a coroutine returns in a loop that is closed without the steps of `asyncio.run`."""
    loop = asyncio.new_event_loop()
    try:
        return loop.run_until_complete(work)
    finally:
        loop.close()


@pytest.fixture
def collected() -> Iterator[None]:
    """What is destroyed is destroyed in this test."""
    yield
    gc.collect()


class Life:
    """A lifespan that notes when it is entered and left."""

    def __init__(self) -> None:
        self.entered = 0
        self.diary: list[str] = []

    @asynccontextmanager
    async def __call__(self, server: Server[Any]) -> AsyncIterator[str]:
        self.entered += 1
        name = f"state {self.entered}"
        self.diary.append(f"enter {name}")
        yield name
        await asyncio.sleep(0)
        self.diary.append(f"leave {name}")


def living(life: Life | None = None, **options: Any) -> Server[Any]:
    server: Server[Any] = Server("alive", lifespan=life or Life(), **options)

    @server.tool
    async def state(ctx: Context[Any]) -> str:
        return str(ctx.state)

    @server.tool
    def sync_state(ctx: Context[Any]) -> str:
        return str(ctx.state)

    @server.resource("data://value")
    def value() -> str:
        return "value"

    return server


# ---------------------------------------------------------------- ways to a server


ROUTES: dict[str, Callable[[Server[Any]], AbstractAsyncContextManager[Any]]] = {
    route: lambda server, route=route: target(server, route)  # type: ignore[misc]  # it has a default
    for route in ("memory", "asgi", "http", "tcp")
}
routes = pytest.mark.parametrize("route", ROUTES.values(), ids=ROUTES)


async def ask(server: Server[Any], route: Any, era: Era, tool: str = "state") -> str:
    async with route(server) as target, Client(target, era=era) as client:
        return (await client.call_tool(tool)).text


def in_threads(count: int, work: Callable[[int], Coroutine[Any, Any, Any]]) -> list[Any]:
    """What a function returns in event loops of several threads at once."""
    results: list[Future[Any]] = [Future() for _ in range(count)]

    def run(number: int) -> None:
        try:
            results[number].set_result(asyncio.run(work(number)))
        except BaseException as exc:
            results[number].set_exception(exc)

    threads = [threading.Thread(target=run, args=[number], daemon=True) for number in range(count)]
    for thread in threads:
        thread.start()
    found = [result.result(25) for result in results]
    for thread in threads:
        thread.join(25)
    return found


# ---------------------------------------------------------------- the lifespan


@routes
@eras
@pytest.mark.parametrize("tool", ["state", "sync_state"])
def test_one_loop_after_the_other_enters_the_lifespan_again(route: Any, era: Era, tool: str) -> None:
    life = Life()
    server = living(life)
    for number in (1, 2, 3):
        assert asyncio.run(ask(server, route, era, tool)) == f"state {number}"
    assert life.diary == [f"{word} state {number}" for number in (1, 2, 3) for word in ("enter", "leave")]


@routes
@eras
def test_loops_that_live_at_once_have_a_state_each(route: Any, era: Era) -> None:
    life, together = Life(), threading.Barrier(3)
    server = living(life)

    async def use(number: int) -> set[str]:
        async with route(server) as target, Client(target, era=era) as client:
            states = {(await client.call_tool("state")).text}
            await asyncio.to_thread(together.wait, 20)
            return states | {(await client.call_tool("sync_state")).text for _ in range(5)}

    assert sorted(map(sorted, in_threads(3, use))) == [["state 1"], ["state 2"], ["state 3"]]
    assert sorted(life.diary) == sorted(f"{word} state {number}" for number in (1, 2, 3) for word in ("enter", "leave"))


@eras
@pytest.mark.parametrize("factory", FACTORIES.values(), ids=FACTORIES)
def test_a_blocking_client_beside_an_async_one(factory: Any, era: Era) -> None:
    server = living()

    async def use() -> str:
        async with Client(server, era=era) as client:
            return (await client.call_tool("state")).text

    with gemel.sync.Client(server, era=era) as client:
        assert client.call_tool("state").text == "state 1"
        with asyncio.Runner(loop_factory=factory) as runner:
            assert runner.run(use()) == "state 2"
        assert client.call_tool("state").text == "state 1"


async def enter(server: Server[Any]) -> None:
    await server.running().__aenter__()


def test_the_lifespan_of_a_loop_that_ends_without_goodbye_is_left_in_it() -> None:
    """What mounts an application need not tell it when it stops."""
    life = Life()
    server = living(life)

    asyncio.run(enter(server))
    assert life.diary == ["enter state 1", "leave state 1"]
    assert asyncio.run(ask(server, ROUTES["memory"], "2026")) == "state 2"


@only_closed
@pytest.mark.usefixtures("collected")
def test_a_lifespan_that_can_not_be_left_is_reported_and_forgotten(caplog: pytest.LogCaptureFixture) -> None:
    life = Life()
    server = living(life)
    run_and_only_close(enter(server))
    assert asyncio.run(ask(server, ROUTES["memory"], "2026")) == "state 2"
    assert life.diary == ["enter state 1", "enter state 2", "leave state 2"]
    (line,) = [record.getMessage() for record in caplog.records if record.name == "gemel"]
    assert line.startswith("The lifespan of server 'alive' was not left, since its event loop was closed before")


@routes
def test_mounted_servers_are_entered_in_each_loop(route: Any) -> None:
    life = Life()
    outer = Server("outer")
    outer.mount(living(life), "inner")
    for number in (1, 2):
        assert asyncio.run(ask(outer, route, "2026", "inner_state")) == f"state {number}"
    assert life.diary == [f"{word} state {number}" for number in (1, 2) for word in ("enter", "leave")]


@eras
def test_test_clients_of_a_fastapi_application(era: Era) -> None:
    """Each block, and each request without one, is an event loop of its own."""
    life = Life()
    server = living(life)

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        async with server.running():
            yield

    for app in (FastAPI(), FastAPI(lifespan=lifespan)):
        app.mount("/ai", server.http_app(allowed_hosts=["testserver"]))
        for _ in range(3):
            with TestClient(app) as client:
                assert call(client, era) == call(client, era) == f"state {life.entered}"
    assert life.entered == 6
    assert len(life.diary) == 12
    client = TestClient(app)
    for number in (7, 8):
        assert call(client, "2026") == f"state {number}"


def call(client: TestClient, era: Era) -> str:
    """Call a tool by hand."""
    headers = {"Accept": "application/json, text/event-stream"}
    params: dict[str, Any] = {"name": "state", "arguments": {}}
    if era == "2025":
        hello = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}}
        opened = client.post("/ai/mcp", json=message("initialize", hello), headers=headers)
        headers |= {"Mcp-Session-Id": opened.headers["mcp-session-id"], "MCP-Protocol-Version": "2025-11-25"}
        done = {"jsonrpc": "2.0", "method": "notifications/initialized"}
        assert client.post("/ai/mcp", json=done, headers=headers).status_code == 202
    else:
        headers |= {"MCP-Protocol-Version": "2026-07-28", "Mcp-Method": "tools/call", "Mcp-Name": "state"}
        prefix = "io.modelcontextprotocol/"
        params["_meta"] = {
            f"{prefix}protocolVersion": "2026-07-28",
            f"{prefix}clientInfo": {"name": "t", "version": "1"},
            f"{prefix}clientCapabilities": {},
        }
    answer = client.post("/ai/mcp", json=message("tools/call", params), headers=headers)
    assert answer.status_code == 200, answer.text
    text = answer.text.partition("data: ")[2] or answer.text
    return str(json.loads(text)["result"]["content"][0]["text"])


def message(method: str, params: Any) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}


def test_an_http_session_belongs_to_the_loop_in_which_it_was_opened() -> None:
    app = FastAPI()
    app.mount("/ai", living().http_app(allowed_hosts=["testserver"]))
    client = TestClient(app)
    with pytest.raises(AssertionError, match="Session not found"):
        call_outside_of_a_block(client)


def call_outside_of_a_block(client: TestClient) -> None:
    hello = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}}
    headers = {"Accept": "application/json, text/event-stream"}
    opened = client.post("/ai/mcp", json=message("initialize", hello), headers=headers)
    headers |= {"Mcp-Session-Id": opened.headers["mcp-session-id"], "MCP-Protocol-Version": "2025-11-25"}
    later = client.post("/ai/mcp", json=message("tools/list", {}), headers=headers)
    assert later.status_code == 200, later.text


# ---------------------------------------------------------------- parts with tasks, queues and connections of their own


@eras
def test_tasks_run_in_each_loop(era: Era) -> None:
    server = Server("tasks", extensions=[Tasks()])

    @server.tool(task=True)
    async def work(ctx: Context) -> str:
        await asyncio.sleep(0.01)
        return "done"

    async def use(number: int = 0) -> str:
        async with Client(server, era=era, principal="ada", extensions=[TasksClient]) as client:
            task = await client.call_tool("work", task=True)
            assert task.id is not None
            return (await task.result(total=20)).text

    assert [asyncio.run(use()) for _ in range(2)] == ["done", "done"]
    assert in_threads(3, use) == ["done"] * 3


def test_a_task_of_one_loop_is_seen_and_cancelled_from_another() -> None:
    server = Server("tasks", extensions=[Tasks()])
    begun, ended = threading.Event(), threading.Event()

    @server.tool(task=True)
    async def work() -> str:
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()
        return ""

    ids: Future[str] = Future()

    async def use(number: int) -> str:
        async with Client(server, principal="ada", extensions=[TasksClient]) as client:
            if number == 0:
                task = await client.call_tool("work", task=True)
                await asyncio.to_thread(begun.wait, 20)
                ids.set_result(str(task.id))
                return (await task.wait(total=20)).status
            task_id = await asyncio.wrap_future(ids)
            await client.tasks.cancel(task_id)
            await asyncio.to_thread(ended.wait, 20)
            return (await client.tasks.get(task_id)).status

    assert in_threads(2, use) == ["cancelled", "cancelled"]


@only_closed
@pytest.mark.usefixtures("collected")
def test_a_task_goes_on_in_another_loop_when_its_own_was_only_closed() -> None:
    server = Server("tasks", extensions=[Tasks()])
    runs: list[str] = []

    @server.tool(task=True)
    async def work() -> str:
        runs.append("run")
        if len(runs) == 1:
            await asyncio.Event().wait()
        return "done"

    async def begin() -> str:
        client = Client(server, principal="ada", extensions=[TasksClient])
        await client.connect()
        task = await client.call_tool("work", task=True)
        await until(lambda: bool(runs))
        return str(task.id)

    async def finish(task_id: str) -> str:
        async with Client(server, principal="ada", extensions=[TasksClient]) as client:
            return (await (await client.tasks.resume(task_id)).result(total=20)).text

    task_id = run_and_only_close(begin())
    assert asyncio.run(finish(task_id)) == "done"
    assert runs == ["run", "run"]


@eras
@pytest.mark.parametrize("given", ["server", "client"])
def test_a_proxy_has_a_client_in_each_loop(given: str, era: Era) -> None:
    life = Life()
    inner = living(life)
    proxied = Server.from_client(inner if given == "server" else Client(inner))

    async def use(number: int = 0) -> str:
        async with Client(proxied, era=era) as client:
            (state,) = {(await client.call_tool("state")).text for _ in range(3)}
            return state

    assert [asyncio.run(use()) for _ in range(2)] == ["state 1", "state 2"]
    assert sorted(in_threads(3, use)) == ["state 3", "state 4", "state 5"]


@eras
def test_a_change_is_told_in_all_loops(era: Era) -> None:
    server, ready = living(), threading.Barrier(4)

    async def use(number: int) -> Any:
        async with Client(server, era=era) as client, client.listen(resources=["data://value"]) as changes:
            await asyncio.to_thread(ready.wait, 20)
            async with asyncio.timeout(20):
                return await anext(changes)

    def tell() -> None:
        ready.wait(20)
        server.notify(Changed("resource", "data://value"))

    telling = threading.Thread(target=tell)
    telling.start()
    assert in_threads(3, use) == [Changed("resource", "data://value")] * 3
    telling.join()


@only_closed
@pytest.mark.usefixtures("collected")
def test_a_subscription_of_a_loop_that_was_only_closed_is_in_nobodys_way() -> None:
    server = living()

    async def subscribe() -> None:
        client = Client(server)
        await client.connect()
        await client.listen(tools=True).__aenter__()

    async def change() -> Any:
        async with Client(server) as client, client.listen(tools=True) as changes:
            server.remove_tool("sync_state")
            async with asyncio.timeout(20):
                return await anext(changes)

    run_and_only_close(subscribe())
    assert asyncio.run(change()) == Changed("tools")


@only_closed
@pytest.mark.usefixtures("collected")
def test_calls_that_ended_with_their_loop_take_no_place_of_a_tool() -> None:
    server = Server("narrow")
    begun: list[str] = []
    kept: list[object] = []

    @server.tool(concurrency=1, waiting=0)
    async def work(long: bool = False) -> str:
        begun.append("begun")
        if long:
            await asyncio.Event().wait()
        return "done"

    async def begin() -> None:
        client = Client(server)
        await client.connect()
        kept.append(asyncio.ensure_future(client.call_tool("work", {"long": True})))
        await until(lambda: bool(begun))
        with pytest.raises(PeerError, match="busy"):
            await client.call_tool("work")

    async def again() -> str:
        async with Client(server) as client:
            return (await client.call_tool("work")).text

    run_and_only_close(begin())
    assert asyncio.run(again()) == "done"


@pytest.mark.parametrize("url", ["memory://", "sqlite:///{path}"])
def test_one_backend_serves_all_loops(url: str, tmp_path: Path) -> None:
    """Counts of callers are shared, and the backend that the server made is open as long as a loop serves."""
    server = living(backend=url.format(path=tmp_path / "state.db"))
    server.add_middleware(RateLimit(0.001, burst=4, by=lambda ctx: "everybody", backend=server.backend))

    async def use(number: int = 0) -> int:
        async with Client(server) as client:
            served = 0
            for _ in range(2):
                with contextlib.suppress(Overloaded, PeerError):
                    served += (await client.call_tool("state")).text.startswith("state")
            return served

    assert asyncio.run(use()) == 2
    assert sum(in_threads(3, use)) == 2


def test_a_second_stop_of_another_loop_closes_nothing_that_is_in_use(tmp_path: Path) -> None:
    server = living(backend=f"sqlite:///{tmp_path / 'state.db'}")

    async def use() -> None:
        async with Client(server):
            await server.backend.set("key", b"value")
            await asyncio.to_thread(asyncio.run, ask(server, ROUTES["memory"], "2026"))
            assert await server.backend.get("key") == b"value"

    asyncio.run(use())


@eras
def test_a_server_is_served_again_in_one_process(era: Era) -> None:
    """As a supervisor in a test does with uvicorn."""
    uvicorn = pytest.importorskip("uvicorn")
    life = Life()
    server = living(life)
    app = FastAPI()
    app.mount("/", server.http_app())

    async def serve(work: Callable[[str], Awaitable[str]]) -> str:
        port = free_port()
        running = uvicorn.Server(uvicorn.Config(app, port=port, log_level="warning"))
        task = asyncio.create_task(running.serve())
        try:
            await until(lambda: running.started)
            return await work(f"http://127.0.0.1:{port}/mcp")
        finally:
            running.should_exit = True
            await task

    async def use(url: str) -> str:
        async with Client(url, era=era) as client:
            return (await client.call_tool("state")).text

    assert [asyncio.run(serve(use)) for _ in range(2)] == ["state 1", "state 2"]
    assert life.diary[-1] == "leave state 2"
