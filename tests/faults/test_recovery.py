"""After a loss: what is opened again, what is repeated, and what never is. Real processes and sockets; runs are counted."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import sys
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from gemel import (
    CallError,
    Changed,
    ChangesLost,
    Client,
    ConnectionLost,
    HttpStatus,
    Limits,
    NotSent,
    Outcome,
    PeerError,
)
from tests.faults.bystanders import PROMPTLY, ending_of, quiet_loop
from tests.ports import free_port
from tests.support import EraName
from tests.transports.http_rig import Log, make_server, serving
from tests.transports.scripted_http import Answer, Asked, ScriptedServer, until

PROGRAM = str(Path(__file__).with_name("program.py"))
ERAS: tuple[EraName, ...] = ("2025", "2026")
QUICK = Limits(connect=10.0, reconnects=3)


class Journal:
    """What the program noted."""

    def __init__(self, path: Path) -> None:
        self.path = path
        path.touch()

    def __getitem__(self, what: str) -> int:
        return Counter(self.path.read_text().splitlines())[what]


@pytest.fixture
def journal(tmp_path: Path) -> Journal:
    return Journal(tmp_path / "journal")


def command(journal: Journal, *more: object) -> list[str]:
    return [sys.executable, PROGRAM, str(journal.path), *map(str, more)]


@asynccontextmanager
async def on_stdio(journal: Journal, *more: object, **options: Any) -> AsyncIterator[Client]:
    options = {"limits": QUICK, "stderr": "discard", "patience": 0.5, **options}
    async with quiet_loop(), Client(command(journal, "stdio", *more), **options) as client:
        yield client


def is_listening(port: int) -> bool:
    with socket.socket() as trying:
        return trying.connect_ex(("127.0.0.1", port)) == 0


class Site:
    """The program over HTTP, at one port, which can be killed and started again."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}/mcp"
        self.process: asyncio.subprocess.Process

    async def start(self) -> None:
        words = command(self._journal, self.port)
        nowhere = asyncio.subprocess.DEVNULL
        self.process = await asyncio.create_subprocess_exec(*words, stderr=nowhere)
        await until(lambda: is_listening(self.port), 20)

    async def kill(self) -> None:
        if self.process.returncode is None:
            self.process.kill()
        await self.process.wait()


@asynccontextmanager
async def site(journal: Journal) -> AsyncIterator[Site]:
    made = Site(journal)
    try:
        await made.start()
        yield made
    finally:
        await made.kill()


# ---------------------------------------------------------------- a process that dies


@pytest.mark.parametrize("era", ERAS)
async def test_a_server_that_died_is_started_again_for_the_next_call(journal: Journal, era: EraName) -> None:
    """STDIO-08: the call in flight is lost with the reason; the next one finds a new process."""
    async with on_stdio(journal, era=era) as client:
        first = (await client.call_tool("pid", returns=int)).data
        with pytest.raises(ConnectionLost, match="was killed by SIGKILL"):
            await client.call_tool("write", {"key": "a", "die": True})
        assert (await client.call_tool("pid", returns=int)).data != first
    assert (journal["start"], journal["write a"]) == (2, 1)


@pytest.mark.parametrize("era", ERAS)
async def test_what_may_run_twice_is_repeated_and_nothing_else(journal: Journal, era: EraName) -> None:
    """TOOL-10: by the server's own word, and only once the tool was listed."""
    async with on_stdio(journal, era=era) as client:
        with pytest.raises(ConnectionLost):
            await client.call_tool("read", {"key": "unlisted", "die": True})
        await client.list_tools()
        assert (await client.call_tool("read", {"key": "listed", "die": True})).text == "listed"
        with pytest.raises(ConnectionLost):
            await client.call_tool("write", {"key": "a", "die": True})
        await client.ping()
    assert (journal["read unlisted"], journal["read listed"], journal["write a"]) == (1, 2, 1)


async def test_many_calls_in_flight_are_lost_together_and_none_runs_again(journal: Journal) -> None:
    """STDIO-08."""
    async with on_stdio(journal) as client:
        holding = [asyncio.ensure_future(client.call_tool("hold")) for _ in range(20)]
        await until(lambda: journal["hold"] == 20)
        with pytest.raises(ConnectionLost):
            await client.call_tool("write", {"key": "a", "die": True})
        ended = await asyncio.gather(*holding, return_exceptions=True)
        assert {type(one) for one in ended} == {ConnectionLost}
        assert (await client.call_tool("write", {"key": "b"})).text == "b"
    assert (journal["hold"], journal["write a"], journal["write b"], journal["start"]) == (20, 1, 1, 2)


async def test_a_server_that_needs_several_starts_gets_them(journal: Journal) -> None:
    """STDIO-08: a few attempts, further and further apart."""
    async with on_stdio(journal, "2-3", limits=Limits(reconnects=3)) as client:
        os.kill((await client.call_tool("pid", returns=int)).data, signal.SIGKILL)
        await client.ping()
    assert journal["start"] == 4


async def test_all_callers_of_a_server_that_never_comes_back_learn_why_at_once(journal: Journal) -> None:
    """One series of attempts for all who wait, not one for each: nobody stands in line for the same failure."""
    async with on_stdio(journal, "2-999") as client:
        with pytest.raises(ConnectionLost):
            await client.call_tool("write", {"key": "a", "die": True})
        async with asyncio.timeout(PROMPTLY * 2):
            calls = (client.call_tool("write", {"key": str(number)}) for number in range(50))
            ended = await asyncio.gather(*calls, return_exceptions=True)
        assert all(isinstance(one, CallError) and one.outcome is Outcome.NOT_SENT for one in ended), ended[0]
        assert all("exited with code 5; its last words:\nnot yet" in str(one) for one in ended)
    assert journal["start"] == 1 + QUICK.reconnects


async def test_without_reconnecting_a_loss_is_final(journal: Journal) -> None:
    async with on_stdio(journal, reconnect=False) as client:
        with pytest.raises(ConnectionLost):
            await client.call_tool("write", {"key": "a", "die": True})
        with pytest.raises(NotSent, match="was killed by SIGKILL"):
            await client.call_tool("write", {"key": "b"})
    assert (journal["start"], journal["write b"]) == (1, 0)


async def test_a_limit_on_a_call_also_limits_the_wait_for_the_server_to_come_back(journal: Journal) -> None:
    """Every wait has a limit: the caller's covers all that its call brings about."""
    async with on_stdio(journal, "2-999", limits=Limits(reconnects=1000)) as client:
        os.kill((await client.call_tool("pid", returns=int)).data, signal.SIGKILL)
        await until(lambda: not client.connected)
        async with asyncio.timeout(PROMPTLY):
            assert await ending_of(client.call_tool("write", {"key": "a"}, total=0.5)) == "unsent"
    assert journal["write a"] == 0


# ---------------------------------------------------------------- an HTTP server that dies


@pytest.mark.parametrize("era", ERAS)
async def test_an_http_server_that_is_killed_and_started_again_is_used_again(journal: Journal, era: EraName) -> None:
    """LHTTP-25: the new process doesn't know the session; the client begins another one."""
    async with quiet_loop(), site(journal) as where, Client(where.url, era=era, limits=QUICK) as client:
        assert (await client.call_tool("write", {"key": "a"})).text == "a"
        holding = [asyncio.ensure_future(client.call_tool("hold")) for _ in range(5)]
        await until(lambda: journal["hold"] == 5)
        await where.kill()
        ended = await asyncio.gather(*holding, return_exceptions=True)
        assert {type(one) for one in ended} == {ConnectionLost}
        with pytest.raises(NotSent):
            await client.call_tool("write", {"key": "b"})
        await where.start()
        assert (await client.call_tool("write", {"key": "c"})).text == "c"
    assert [journal[f"write {key}"] for key in "abc"] == [1, 0, 1]
    assert journal["hold"] == 5


async def test_a_session_that_the_server_ended_is_begun_again_and_the_call_runs_once() -> None:
    """LHTTP-25: 404 means that nothing was served."""
    log = Log()
    async with (
        quiet_loop(),
        serving(make_server(log)) as where,
        Client(f"http://127.0.0.1:{where.port}/mcp", era="2025") as client,
    ):
        before: Any = client.session
        session = before.channel.session_id
        assert (await where.ask({"Mcp-Session-Id": session}, b"", "DELETE")).status in (200, 204)
        answers = await asyncio.gather(*(client.call_tool("add", {"a": n, "b": 1}) for n in range(10)))
        assert [answer.text for answer in answers] == [str(n + 1) for n in range(10)]
        assert client.session is not before


# ---------------------------------------------------------------- listening


async def next_of(changes: AsyncIterator[Changed | ChangesLost]) -> Changed | ChangesLost:
    async with asyncio.timeout(PROMPTLY * 2):
        return await anext(changes)


@pytest.mark.parametrize("era", ERAS)
async def test_listening_goes_on_after_the_process_died_with_a_lost_in_between(journal: Journal, era: EraName) -> None:
    """SUB-10, SUB-11."""
    async with (
        on_stdio(journal, era=era) as client,
        client.listen(tools=True, resources=["data://one"]) as changes,
    ):
        await client.call_tool("grow", {"name": "first"})
        assert await next_of(changes) == Changed("tools")
        os.kill((await client.call_tool("pid", returns=int)).data, signal.SIGKILL)
        assert isinstance(await next_of(changes), ChangesLost)
        await until(lambda: journal["start"] == 2, 20)
        await _until_heard(client, changes)


@pytest.mark.parametrize("era", ERAS)
async def test_listening_goes_on_after_an_http_server_was_started_again(journal: Journal, era: EraName) -> None:
    """SUB-10, LHTTP-25."""
    async with (
        quiet_loop(),
        site(journal) as where,
        Client(where.url, era=era, limits=Limits(reconnects=8)) as client,
        client.listen(tools=True) as changes,
    ):
        await client.call_tool("grow", {"name": "first"})
        assert await next_of(changes) == Changed("tools")
        await where.kill()
        await where.start()
        await client.ping()
        assert isinstance(await next_of(changes), ChangesLost)
        await _until_heard(client, changes)


async def _until_heard(client: Client, changes: AsyncIterator[Changed | ChangesLost]) -> None:
    """Changes are made until one is heard of: when listening goes on is up to it."""
    heard: list[Changed | ChangesLost] = []

    async def hear() -> None:
        while Changed("tools") not in heard:
            heard.append(await next_of(changes))

    hearing = asyncio.create_task(hear())
    number = 0
    while not hearing.done():
        number += 1
        await client.call_tool("grow", {"name": f"more{number}"})
        await asyncio.wait([hearing], timeout=0.1)
    await hearing


# ---------------------------------------------------------------- headers that no longer fit


def mirroring(mismatches: int) -> Callable[[Asked, Answer], Any]:
    """A stateless server that refuses a call's headers so many times, and names them anew in each listing."""
    lists = 0

    async def script(asked: Asked, answer: Answer) -> None:
        nonlocal lists, mismatches
        method = asked.message["method"]
        if method == "server/discover":
            version = asked.headers["mcp-protocol-version"]
            result = {"supportedVersions": [version], "capabilities": {"tools": {}}, "resultType": "complete"}
            await answer.result(asked, result)
        elif method == "tools/list":
            lists += 1
            schema = {"type": "object", "properties": {"a": {"type": "string", "x-mcp-header": f"Part{lists}"}}}
            await answer.result(asked, {"tools": [{"name": "t", "inputSchema": schema}], "resultType": "complete"})
        elif mismatches:
            mismatches -= 1
            error = {"code": -32020, "message": "Header mismatch"}
            await answer.json({"jsonrpc": "2.0", "id": asked.message["id"], "error": error}, status=400)
        else:
            headers = [name for name in asked.headers if name.startswith("mcp-param-")]
            await answer.result(asked, {"content": [{"type": "text", "text": " ".join(headers)}]})

    return script


async def test_refused_headers_are_made_anew_from_a_fresh_listing_once() -> None:
    """HDR-23."""
    async with ScriptedServer(mirroring(1)) as server, Client(server.url, era="2026") as client:
        await client.list_tools()
        assert (await client.call_tool("t", {"a": "x"})).text == "mcp-param-part2"
        assert len(server.messages("tools/list")) == 2
        assert len(server.messages("tools/call")) == 2


async def test_headers_that_are_refused_again_are_the_servers_answer() -> None:
    """HDR-23: one refresh, then the error."""
    async with ScriptedServer(mirroring(9)) as server, Client(server.url, era="2026") as client:
        await client.list_tools()
        with pytest.raises(PeerError, match="Header mismatch"):
            await client.call_tool("t", {"a": "x"})
        assert len(server.messages("tools/list")) == 2
        assert len(server.messages("tools/call")) == 2


@pytest.mark.parametrize("status", [502, 504])
async def test_what_a_gateway_lost_is_repeated_where_that_is_safe_and_else_unknown(status: int) -> None:
    """It says that it got no answer, not that nothing ran."""
    lost: Counter[str] = Counter()

    async def gateway(asked: Asked, answer: Answer) -> None:
        method = asked.message["method"]
        if method == "server/discover":
            version = asked.headers["mcp-protocol-version"]
            result = {"supportedVersions": [version], "capabilities": {"tools": {}}, "resultType": "complete"}
            await answer.result(asked, result)
            return
        lost[method] += 1
        if lost[method] == 1:
            await answer.body(b"<html>Bad Gateway</html>", kind="text/html", status=status)
        else:
            await answer.result(asked, {"tools": [], "content": [], "resultType": "complete"})

    async with ScriptedServer(gateway) as server, Client(server.url, era="2026") as client:
        assert await client.list_tools() == []
        with pytest.raises(HttpStatus) as caught:
            await client.call_tool("t")
    assert (caught.value.status, caught.value.outcome) == (status, Outcome.UNKNOWN)
    assert lost == {"tools/list": 2, "tools/call": 1}
