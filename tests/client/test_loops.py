"""A client in another event loop than its own: refused in one sentence, or connected again where its loop has ended."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import os
import subprocess
import sys
import threading
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

import gemel.sync
from gemel import Changed, Client, ClientContext, ClientGroup, ClientPool, DefinitionError, NotSent, Server
from gemel.extensions.tasks.client import TasksClient
from tests.transports.loops import FACTORIES
from tests.transports.scripted_http import until

eras = pytest.mark.parametrize("era", ["2025", "2026"])
factories = pytest.mark.parametrize("factory", FACTORIES.values(), ids=FACTORIES)

PROGRAM = """
import os
from gemel import Server
server = Server("child")
@server.tool
def pid() -> int:
    return os.getpid()
@server.tool
def word() -> str:
    return "hi"
if __name__ == "__main__":
    server.run(**OPTIONS)
"""


def greeter() -> Server:
    server = Server("greeter")

    @server.tool
    def word() -> str:
        return "hi"

    return server


@pytest.fixture
def program(tmp_path: Path) -> Path:
    path = tmp_path / "child.py"
    path.write_text(PROGRAM.replace("**OPTIONS", ""))
    return path


@pytest.fixture
def url(tmp_path: Path) -> Iterator[str]:
    """The URL of a server in another process."""
    path = tmp_path / "web.py"
    path.write_text(PROGRAM.replace("**OPTIONS", '"http", port=0, announce=lambda url: print(url, flush=True)'))
    with subprocess.Popen([sys.executable, path], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield process.stdout.readline().strip()
        finally:
            process.terminate()


@pytest.fixture(params=["memory", "asgi", "stdio", "http"])
def target(request: pytest.FixtureRequest) -> Any:
    match request.param:
        case "memory":
            return greeter()
        case "asgi":
            return greeter().http_app()
        case "stdio":
            return request.getfixturevalue("program")
        case _:
            return request.getfixturevalue("url")


async def word(client: Client) -> str:
    return (await client.call_tool("word")).text


async def connect(client: Client) -> str:
    await client.connect()
    return await word(client)


def is_running(pid: int) -> bool:
    with contextlib.suppress(OSError):
        os.kill(pid, 0)
        return True
    return False


def wait_for(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + 15
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.01)


# ---------------------------------------------------------------- two loops that live


async def listen(client: Client) -> None:
    async with client.listen(tools=True):
        raise AssertionError("it listens")


USES: dict[str, Callable[[Client], Coroutine[Any, Any, Any]]] = {
    "call": lambda client: client.call_tool("word"),
    "list": lambda client: client.list_tools(),
    "ping": lambda client: client.ping(),
    "notify": lambda client: client.notify("notifications/acme"),
    "request": lambda client: client.request("tools/list"),
    "listen": listen,
    "log level": lambda client: client.set_log_level("info"),
    "connect": lambda client: client.connect(),
    "close": lambda client: client.close(),
}


@eras
def test_a_connected_client_is_refused_in_another_loop(target: Any, era: Any) -> None:
    """Whatever it is asked for."""
    client = Client(target, era=era)
    loop = asyncio.new_event_loop()
    try:
        assert loop.run_until_complete(connect(client)) == "hi"
        for name, use in USES.items():
            with pytest.raises(NotSent, match="this client is connected in another event loop: use it there, or make"):
                asyncio.run(asyncio.wait_for(use(client), 10))
            assert loop.run_until_complete(word(client)) == "hi", name
        loop.run_until_complete(client.close())
    finally:
        loop.run_until_complete(loop.shutdown_asyncgens())
        loop.close()


def test_a_connected_client_is_refused_in_the_loop_of_another_thread(target: Any) -> None:
    found: list[BaseException] = []

    async def use() -> None:
        async with Client(target) as client:

            def elsewhere() -> None:
                try:
                    asyncio.run(client.call_tool("word"))
                except NotSent as exc:
                    found.append(exc)

            await asyncio.to_thread(elsewhere)
            assert await word(client) == "hi"

    asyncio.run(use())
    assert len(found) == 1


@eras
def test_a_copy_is_a_client_for_another_loop(target: Any, era: Any) -> None:
    async def note(ctx: ClientContext, call_next: Any) -> Any:
        noted.append(ctx.method)
        return await call_next(ctx)

    noted: list[str] = []
    client = Client(target, era=era, extensions=[TasksClient])
    client.add_middleware(note)

    async def use() -> str:
        async with client:
            return await asyncio.to_thread(lambda: asyncio.run(connect(client.copy())))

    assert asyncio.run(use()) == "hi"
    assert noted == ["tools/call"]


# ---------------------------------------------------------------- a loop that has ended


@eras
@factories
def test_a_client_whose_loop_has_ended_is_closed_and_can_be_connected_again(
    target: Any, era: Any, factory: Callable[[], asyncio.AbstractEventLoop]
) -> None:
    client = Client(target, era=era)
    words = "the event loop in which this client was connected has ended: connect it again in this one"
    for _ in range(2):
        with asyncio.Runner(loop_factory=factory) as runner:
            assert runner.run(connect(client)) == "hi"
        assert not client.connected
        with pytest.raises(NotSent, match=words):
            asyncio.run(asyncio.wait_for(word(client), 10))
    asyncio.run(client.close())
    assert asyncio.run(connect(client)) == "hi"


@factories
def test_the_child_of_a_client_that_nobody_closes_ends_with_the_loop(
    program: Path, factory: Callable[[], asyncio.AbstractEventLoop]
) -> None:
    client = Client(program)

    async def use() -> int:
        await client.connect()
        return (await client.call_tool("pid", returns=int)).data

    with asyncio.Runner(loop_factory=factory) as runner:
        pid = runner.run(use())
        assert is_running(pid)
    assert not is_running(pid)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@eras
def test_a_client_of_a_loop_that_was_only_closed_is_ended_as_soon_as_it_is_noticed(target: Any, era: Any) -> None:
    client = Client(target, era=era)
    loop = asyncio.new_event_loop()
    loop.run_until_complete(connect(client))
    loop.close()
    assert not client.connected
    with pytest.raises(NotSent, match="has ended: connect it again"):
        asyncio.run(asyncio.wait_for(word(client), 10))
    assert asyncio.run(connect(client)) == "hi"
    del client, loop
    gc.collect()


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_the_child_of_a_loop_that_was_only_closed_ends_when_another_loop_is_used(program: Path) -> None:
    client = Client(program, patience=0.5)
    loop = asyncio.new_event_loop()
    loop.run_until_complete(client.connect())
    pid = loop.run_until_complete(client.call_tool("pid", returns=int)).data
    loop.close()
    assert is_running(pid)
    assert asyncio.run(connect(Client(greeter()))) == "hi"
    wait_for(lambda: not is_running(pid))


def test_a_lost_loop_leaves_nothing_of_the_callbacks_and_caches(target: Any) -> None:
    """What was negotiated is asked again; results of lists are asked of the new connection."""
    client = Client(target)

    async def list_tools() -> list[str]:
        await client.connect()
        return sorted(tool.name for tool in await client.list_tools())

    assert asyncio.run(list_tools()) == asyncio.run(list_tools())


def test_a_subscription_in_a_new_loop_hears_its_changes() -> None:
    server = greeter()
    client = Client(server)

    async def listen() -> Any:
        await client.connect()
        async with client.listen(tools=True) as changes:
            server.notify(Changed("tools"))
            async with asyncio.timeout(10):
                return await anext(changes)

    assert asyncio.run(listen()) == asyncio.run(listen()) == Changed("tools")


# ---------------------------------------------------------------- groups and pools


def test_a_group_is_refused_in_another_loop_and_connected_again_after_its_own() -> None:
    group = ClientGroup({"one": greeter(), "two": greeter()})

    async def use() -> str:
        await group.connect()
        return (await group.call_tool("word", server="two")).text

    async def other() -> str:
        return (await group.call_tool("word", server="two")).text

    loop = asyncio.new_event_loop()
    try:
        assert loop.run_until_complete(use()) == "hi"
        for wrong in (other, use, group.close):
            with pytest.raises(NotSent, match="this group is connected in another event loop"):
                asyncio.run(wrong())
        loop.run_until_complete(group.close())
    finally:
        loop.close()
    assert asyncio.run(use()) == "hi"
    with pytest.raises(NotSent, match="the event loop in which this group was connected has ended"):
        asyncio.run(other())
    assert asyncio.run(use()) == "hi"


def test_a_pool_is_refused_in_another_loop_and_opened_again_after_its_own() -> None:
    pool = ClientPool(greeter(), 2)

    async def use() -> str:
        return (await pool.call_tool("word")).text

    async def keep_open() -> str:
        await pool.__aenter__()
        return await use()

    loop = asyncio.new_event_loop()
    try:
        assert loop.run_until_complete(keep_open()) == "hi"
        with pytest.raises(NotSent, match="this pool is connected in another event loop"):
            asyncio.run(use())
        loop.run_until_complete(pool.close())
    finally:
        loop.close()
    assert asyncio.run(keep_open()) == "hi"
    with pytest.raises(NotSent, match="pool"):
        asyncio.run(use())
    assert asyncio.run(keep_open()) == "hi"


# ---------------------------------------------------------------- blocking clients


def test_a_blocking_client_in_a_handler_on_its_own_thread_is_an_error_at_once() -> None:
    server = greeter()

    @server.tool
    async def outer() -> str:
        with gemel.sync.Client(server) as client:
            return client.call_tool("word").text

    @server.tool
    def threaded() -> str:
        with gemel.sync.Client(server) as client:
            return client.call_tool("word").text

    with gemel.sync.Client(server, raise_exceptions=True) as client:
        with pytest.raises(DefinitionError, match=r"in an async function use gemel\.Client and await it"):
            client.call_tool("outer", total=10)
        assert client.call_tool("threaded").text == "hi"
        assert client.call_tool("word").text == "hi"


def test_many_threads_use_one_blocking_client(target: Any) -> None:
    found: list[str] = []
    with gemel.sync.Client(target) as client:

        def use() -> None:
            found.extend(client.call_tool("word").text for _ in range(5))

        threads = [threading.Thread(target=use) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(30)
    assert found == ["hi"] * 40


def test_nothing_is_left_when_the_last_blocking_client_is_closed() -> None:
    left: list[str] = []

    @asynccontextmanager
    async def life(server: Server[Any]) -> AsyncIterator[None]:
        yield
        left.append("left")

    server: Server[Any] = Server("alive", lifespan=life)
    with gemel.sync.Client(server.http_app()) as one, gemel.sync.Client(server) as two:
        one.ping()
        two.ping()
    assert left == ["left"]
    assert not any(thread.name == "gemel-client" for thread in threading.enumerate())


# ---------------------------------------------------------------- forks

forks = pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")


def in_child(check: Callable[[], bool]) -> bool:
    """What a function returns in a forked process, which is killed if it hangs."""
    pid = os.fork()
    if not pid:
        status = 3
        try:
            status = 0 if check() else 1
        except BaseException as exc:
            os.write(2, f"{type(exc).__name__}: {exc}\n".encode())
        finally:
            os._exit(status)
    end = time.monotonic() + 20
    while time.monotonic() < end:
        done, status = os.waitpid(pid, os.WNOHANG)
        if done:
            return status == 0
        time.sleep(0.01)
    os.kill(pid, 9)
    os.waitpid(pid, 0)
    raise AssertionError("the forked process hangs")


FORKED = "was connected before the process was forked: make another one in this process"


@forks
@eras
def test_a_forked_process_makes_blocking_clients_of_its_own(target: Any, era: Any) -> None:
    def use() -> bool:
        with gemel.sync.Client(target, era=era) as client:
            return client.call_tool("word").text == "hi"

    def refused() -> bool:
        try:
            outer.call_tool("word")
        except NotSent as exc:
            outer.close()
            return FORKED in str(exc) and use()
        return False

    with gemel.sync.Client(target, era=era) as outer:
        assert outer.call_tool("word").text == "hi"
        assert in_child(use)
        assert in_child(refused)
        assert outer.call_tool("word").text == "hi"
    assert in_child(use)


@forks
@eras
async def test_a_forked_process_makes_async_clients_of_its_own(target: Any, era: Any) -> None:
    async with Client(target, era=era) as outer:
        assert await word(outer) == "hi"
        task = asyncio.create_task(word(outer))

        def refused() -> bool:
            try:
                asyncio.run(word(outer))
            except NotSent as exc:
                return FORKED in str(exc)
            return False

        assert in_child(lambda: asyncio.run(connect(Client(target, era=era))) == "hi")
        assert in_child(refused)
        assert in_child(lambda: asyncio.run(connect(outer)) == "hi")
        assert await task == "hi"
        assert await word(outer) == "hi"


@forks
def test_the_child_process_of_a_client_ends_although_a_forked_process_lives(program: Path) -> None:
    """The fork has the pipes, too: they are closed there, or the server would never see the end of its input."""
    waiting, go = os.pipe()
    with gemel.sync.Client(program, patience=10) as client:
        pid = client.call_tool("pid", returns=int).data
        forked = os.fork()
        if not forked:
            os.close(go)
            os.read(waiting, 1)
            os._exit(0)
        os.close(waiting)
        start = time.monotonic()
    assert not is_running(pid)
    assert time.monotonic() - start < 5
    os.close(go)
    os.waitpid(forked, 0)


@forks
async def test_a_forked_process_calls_sync_tools_of_a_server_that_has_idle_threads() -> None:
    server = greeter()
    assert await connect(Client(server)) == "hi"
    assert in_child(lambda: asyncio.run(connect(Client(server))) == "hi")


@forks
@pytest.mark.parametrize("kind", ["memory", "sqlite"])
async def test_a_forked_process_uses_the_backend_of_a_server_in_use(kind: str, tmp_path: Path) -> None:
    url = "memory://" if kind == "memory" else f"sqlite:///{tmp_path / 'state.db'}"
    server: Server[Any] = Server("shared", backend=url)
    async with Client(server):
        await server.backend.set("key", b"value")

        async def read() -> bytes | None:
            async with Client(server), Client(server):
                return await server.backend.get("key")

        assert in_child(lambda: asyncio.run(read()) == b"value")
        assert await server.backend.get("key") == b"value"


# ---------------------------------------------------------------- other event loops


def test_trio_is_told_to_use_asyncio(target: Any) -> None:
    trio = pytest.importorskip("trio")
    server = greeter()

    async def use_client() -> None:
        async with Client(target):
            raise AssertionError("it is connected")

    async def serve() -> None:
        async with server.running():
            raise AssertionError("it runs")

    async def call_app() -> None:
        await server.http_app()({"type": "http"}, None, None)  # type: ignore[arg-type]  # it is not asked

    for use in (use_client, serve, call_app):
        with pytest.raises(
            DefinitionError, match=r"Gemel runs on asyncio, and trio runs here: start with asyncio\.run"
        ):
            trio.run(use)


async def test_the_loop_of_a_test_is_not_disturbed(target: Any) -> None:
    """Clients of other loops come and go while one is in use."""
    async with Client(target) as client:
        for _ in range(3):
            await asyncio.to_thread(lambda: asyncio.run(connect(Client(greeter()))))
            assert await word(client) == "hi"
        await until(lambda: client.connected)
