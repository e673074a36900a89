"""What a hostile caller takes from one server to another on the same store, and what it leaves in the log.

`python -m tests.hostile.neighbours` runs all cases against two processes of a server, which share a SQLite file and the keys of
request states, but neither names nor users.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import sys
import tempfile
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from tests.hostile.cases import META, REVISION_2025, Era, Json, request
from tests.hostile.drivers import Lost, Posts, Response, exchange
from tests.hostile.run import Outcome, report
from tests.ports import free_port

PROGRAM = """
import os
from typing import Any
from gemel import Context, ResultLimit, Server, Tasks
from gemel.backends import SqliteBackend

NAME = os.environ["NEIGHBOUR"]
server = Server(NAME, backend=SqliteBackend("neighbours.db", max_bytes=4 << 20), state_keys=[b"k" * 32])
server.add_extension(Tasks(poll_interval=0.1))
server.add_middleware(ResultLimit(3000, spill=True))

@server.tool(task=True)
async def secret(text: str = "") -> str:
    return f"secret of {NAME}"

@server.tool
def long() -> str:
    return f"secret of {NAME} " * 1000

@server.tool
async def pay(ctx: Context[Any], amount: int) -> str:
    async def approve(amount: int) -> str:
        return f"secret of {NAME}"
    approval = await ctx.step(approve, amount)
    return f"{approval} {await ctx.elicit('Sure?', bool)}"

@server.tool
def crash(text: str) -> str:
    raise ValueError(text)

@server.resource("crash://{text}")
def broken(text: str) -> str:
    raise KeyError(text)
"""
OWNER = "neighbour"
#: A capability of clients that use tasks, and answer questions.
ABLE: Json = {"elicitation": {"form": {}}, "extensions": {"io.modelcontextprotocol/tasks": {}}}
#: Text that would write a line of the log, change the colour of a terminal, or the order of characters.
EVIL = "\x1b[31mEVIL\r\nINFO gemel: FORGED\u2028\u202eX\x9b"
FORGED = (b"\x1b", b"\nINFO gemel: FORGED", b"\nFORGED", "\u202e".encode(), "\x9b".encode())


class Place(NamedTuple):
    """A server that runs: its endpoint, and the file of its log."""

    posts: Posts
    log: Path

    async def ask(self, method: str, params: Json, era: Era, session: dict[str, str | None] | None = None) -> Response:
        """Send a request."""
        if era == "2026":
            params = {**params, "_meta": {f"{META}clientCapabilities": ABLE}}
        text = request(method, params, era).replace(b"@ID@", b"1")
        headers = await self.posts.headers_for(text, era) if session is None else session
        return await self.posts.post(text, headers)


class Stolen(NamedTuple):
    """Something that a caller gets from one server, and sends to another.

    Attributes:
        name: What it is.
        era: The era of both requests.
        take: The method and params of the request that gets it.
        reference: What is taken from the answer.
        send: The method and params of the requests that send it.
    """

    name: str
    era: Era
    take: tuple[str, Json]
    reference: Callable[[Json], Any]
    send: Callable[[Any], Sequence[tuple[str, Json]]]


def _task_of(result: Json) -> str:
    return str(result.get("taskId") or result["task"]["taskId"])


def _page_of(result: Json) -> str:
    return next(str(block["uri"]) for block in result["content"] if block["type"] == "resource_link")


PAYMENT: Json = {"name": "pay", "arguments": {"amount": 5}}


def _with_state(result: Json) -> Sequence[tuple[str, Json]]:
    answers = {key: {"action": "accept", "content": {"value": True}} for key in result["inputRequests"]}
    return [("tools/call", {**PAYMENT, "inputResponses": answers, "requestState": result["requestState"]})]


STOLEN = (
    Stolen(
        "a task of another server",
        "2026",
        ("tools/call", {"name": "secret", "arguments": {}}),
        _task_of,
        lambda task: [(f"tasks/{method}", {"taskId": task}) for method in ("get", "cancel")],
    ),
    Stolen(
        "a task of another server",
        "2025",
        ("tools/call", {"name": "secret", "arguments": {}, "task": {"ttl": 60000}}),
        _task_of,
        lambda task: [(f"tasks/{method}", {"taskId": task}) for method in ("get", "result", "cancel")],
    ),
    Stolen("a request state of another server", "2026", ("tools/call", PAYMENT), lambda result: result, _with_state),
    Stolen(
        "a page of a result of another server",
        "2026",
        ("tools/call", {"name": "long", "arguments": {}}),
        _page_of,
        lambda uri: [("resources/read", {"uri": uri})],
    ),
)
#: Requests with text that is written into the log, in both eras.
LOGGED: dict[str, tuple[str, Json]] = {
    "the name of a tool": ("tools/call", {"name": EVIL, "arguments": {}}),
    "an argument, quoted by an exception": ("tools/call", {"name": "crash", "arguments": {"text": EVIL}}),
    "an argument that does not fit": ("tools/call", {"name": "pay", "arguments": {"amount": EVIL}}),
    "the name of an argument": ("tools/call", {"name": "crash", "arguments": {EVIL: 1}}),
    "a URI, quoted by an exception": ("resources/read", {"uri": f"crash://{EVIL}"}),
    "the name of a prompt": ("prompts/get", {"name": EVIL}),
    "the id of a task": ("tasks/get", {"taskId": EVIL}),
}
NOTIFIED: dict[str, Json] = {
    "the method of a notification": {"method": f"notifications/{EVIL}"},
    "the reason of a cancellation": {
        "method": "notifications/cancelled",
        "params": {"requestId": EVIL, "reason": EVIL},
    },
    "a token of progress": {
        "method": "notifications/progress",
        "params": {"progressToken": EVIL, "progress": 1, "message": EVIL},
    },
}
#: Requests with secrets, by where they are.
SECRETS: dict[str, bytes] = {
    "a token in a query": b"POST /mcp?access_token=SECRET1 HTTP/1.1\r\nContent-Length: 2\r\n",
    "a code in a query": b"GET /auth/callback?code=SECRET2&state=SECRET3 HTTP/1.1\r\n",
    "a token in a header": b"POST /mcp HTTP/1.1\r\nAuthorization: Bearer SECRET4\r\nContent-Length: 2\r\n",
    "a cookie": b"GET /mcp HTTP/1.1\r\nCookie: login=SECRET5\r\n",
    "a session id": b"GET /mcp HTTP/1.1\r\nMcp-Session-Id: SECRET6\r\n",
}


@contextlib.asynccontextmanager
async def serving(directory: Path, name: str) -> AsyncIterator[Place]:
    """Run a server in a process of its own."""
    program, log, port = directory / "neighbours.py", directory / f"{name}.log", free_port()
    program.write_text(PROGRAM)
    words = ("-m", "gemel", "run", str(program), "--http", "--port", str(port), "--access-log", "--log-level", "debug")
    with log.open("wb") as file:
        process = await asyncio.create_subprocess_exec(
            sys.executable, *words, stderr=file, cwd=directory, env={**os.environ, "NEIGHBOUR": name}
        )
    try:
        for _ in range(600):
            with contextlib.suppress(OSError):
                _, writer = await asyncio.open_connection("127.0.0.1", port)
                writer.close()
                break
            await asyncio.sleep(0.05)
        else:
            raise Lost(f"the server does not listen: {log.read_text()[-500:]}")
        yield Place(Posts(f"http://127.0.0.1:{port}/mcp"), log)
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.terminate()
        await process.wait()


async def stolen(case: Stolen, owner: Place, other: Place) -> str | None:
    """Take something from one server to another. Returns what is wrong."""
    taken = (await owner.ask(*case.take, case.era)).messages[-1]
    if "result" not in taken:
        return f"nothing to take: {taken}"
    for method, params in case.send(case.reference(taken["result"])):
        reply = await other.ask(method, params, case.era)
        answer = reply.messages[-1]
        if f"secret of {OWNER}".encode() in reply.body:
            return f"{method} tells the secret of another server"
        if "error" not in answer and not answer["result"].get("isError"):
            return f"{method} takes it: {str(answer)[:200]}"
    return None


async def stolen_session(owner: Place, other: Place, method: str) -> str | None:
    """Use a session of one server at another."""
    session: dict[str, str | None] = {
        "Mcp-Session-Id": await owner.posts.new_session(),
        "MCP-Protocol-Version": REVISION_2025,
    }
    if method == "POST":
        reply = await other.ask("tools/list", {}, "2025", session)
    else:
        headers = {**session, "Content-Type": None, **({"Accept": "text/event-stream"} if method == "GET" else {})}
        reply = await exchange(other.posts.address, other.posts.head(method, headers, None), method=method)
    if reply.status != 404:
        return f"HTTP {reply.status} in place of 404"
    alive = await owner.ask("tools/list", {}, "2025", session)
    return None if alive.status == 200 else f"the session is gone: HTTP {alive.status}"


async def logged(place: Place, name: str, send: Callable[[], Any], words: Sequence[bytes]) -> Outcome:
    """Send something, and look for words in what the server wrote."""
    before = place.log.stat().st_size
    await send()
    await place.ask("tools/list", {}, "2026")  # what was written before is in the file
    written = place.log.read_bytes()[before:]
    found = [word for word in words if word in written]
    return Outcome("log", name, f"{found} in {written[:300]!r}" if found else None)


async def full(place: Place, directory: Path) -> str | None:
    """Fill the store; nobody is told where it is."""
    for _ in range(40):
        reply = await place.ask("tools/call", {"name": "secret", "arguments": {"text": "x" * 500_000}}, "2026")
        if b"neighbours.db" in reply.body or str(directory).encode() in reply.body:
            return f"the answer has the path: {reply.body[:300]!r}"
        if "error" in reply.messages[-1]:
            return None if b"full" in reply.body else f"an odd refusal: {reply.body[:300]!r}"
    return "the store did not get full"


async def run_all() -> list[Outcome]:
    """Run all cases."""
    outcomes: list[Outcome] = []
    with tempfile.TemporaryDirectory(prefix="gemel-neighbours-") as folder:
        directory = Path(folder)
        async with serving(directory, OWNER) as owner, serving(directory, "target") as target:
            for case in STOLEN:
                outcomes.append(Outcome("store", f"{case.name} ({case.era})", await stolen(case, owner, target)))
            for method in ("POST", "GET", "DELETE"):
                problem = await stolen_session(owner, target, method)
                outcomes.append(Outcome("store", f"a session of another server, {method}", problem))
            for name, (asked, params) in LOGGED.items():
                for era in ("2025", "2026"):

                    async def ask(asked: str = asked, params: Json = params, era: Any = era) -> None:
                        await target.ask(asked, params, era)

                    outcomes.append(await logged(target, f"{name} ({era})", ask, FORGED))
            for name, message in NOTIFIED.items():

                async def notify(message: Json = message) -> None:
                    text = json.dumps({"jsonrpc": "2.0", **message}).encode()
                    await target.posts.post(text, await target.posts.session())

                outcomes.append(await logged(target, name, notify, FORGED))
            for name, head in SECRETS.items():

                async def send(head: bytes = head) -> None:
                    rest = b"Host: 127.0.0.1\r\nConnection: close\r\n\r\n" + (b"{}" if b"Length: 2" in head else b"")
                    await exchange(target.posts.address, head + rest)

                outcomes.append(await logged(target, name, send, re.findall(rb"SECRET\d", head)))
            outcomes.append(Outcome("store", "a store that is full", await full(target, directory)))
    return outcomes


def main() -> int:
    """Run from the command line."""
    return 0 if report(asyncio.run(run_all()), verbose="-v" in sys.argv, own=False) else 1


if __name__ == "__main__":
    sys.exit(main())
