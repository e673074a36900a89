"""A program that uses the HTTP interface of `gemel dev`, which the tests start in their own process."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from gemel.dev.serve import serve_dev
from gemel.dev.target import DevTarget
from gemel.http1.client.pool import SocketWire
from tests.serving import announced

REFERENCE = Path(__file__).parents[2] / "docs" / "reference" / "dev.md"
#: Seconds that a test waits for an event.
PATIENCE = 20.0


@dataclass
class Reply:
    """An HTTP response."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        """The decoded body."""
        return json.loads(self.body)


class Program:
    """Uses the interface with the token, as a program does."""

    def __init__(self, address: str) -> None:
        parts = urlsplit(address)
        self.address = address
        self.base = f"{parts.scheme}://{parts.netloc}"
        self.token = parts.query.removeprefix("token=")
        self.port = parts.port
        self.wire = SocketWire(proxy="")
        #: All events so far.
        self.seen: list[dict[str, Any]] = []

    async def ask(self, method: str, path: str, headers: Mapping[str, str], body: bytes | None = None) -> Reply:
        """Send exactly these headers, and Host unless given."""
        if "Host" in headers:
            return await self._ask_raw(method, path, headers)
        response = await self.wire.open(method, f"{self.base}{path}", list(headers.items()), body)
        pieces = []
        while piece := await response.read():
            pieces.append(piece)
        response.close(drain=True)
        return Reply(response.status, response.headers, b"".join(pieces))

    async def _ask_raw(self, method: str, path: str, headers: Mapping[str, str]) -> Reply:
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        lines = [f"{method} {path} HTTP/1.1", "Connection: close", *(f"{name}: {headers[name]}" for name in headers)]
        writer.write("\r\n".join([*lines, "", ""]).encode())
        async with asyncio.timeout(PATIENCE):
            head, _, body = (await reader.read()).partition(b"\r\n\r\n")
        writer.close()
        status, *pairs = head.decode().split("\r\n")
        return Reply(int(status.split()[1]), dict(pair.split(": ", 1) for pair in pairs), body)

    async def get(self, path: str) -> Reply:
        """GET with the token."""
        return await self.ask("GET", path, {"Authorization": f"Bearer {self.token}"})

    async def post(self, command: Any) -> Reply:
        """POST a command with the token."""
        headers = {"Authorization": f"Bearer {self.token}", "Content-Type": "application/json"}
        body = command if isinstance(command, bytes) else json.dumps(command).encode()
        return await self.ask("POST", "/api/commands", headers, body)

    async def do(self, command: str, **members: Any) -> dict[str, Any]:
        """Run a command that succeeds."""
        reply = await self.post({"do": command, **members})
        assert reply.status == 200, reply
        answer: dict[str, Any] = reply.json
        assert answer.pop("ok") is True
        return answer

    async def until(self, test: Callable[[dict[str, Any]], object]) -> dict[str, Any]:
        """Wait for an event; the first of all that were there."""
        for event in self.seen:
            if test(event):
                return event
        after = max((event.get("n", 0) for event in self.seen), default=0)
        async with asyncio.timeout(PATIENCE):
            async for event in self.stream(after):
                self.seen.append(event)
                if test(event):
                    return event
        raise AssertionError("the stream ended")

    async def event(self, kind: str, **members: Any) -> dict[str, Any]:
        """Wait for an event of a kind with these members."""
        try:
            return await self.until(
                lambda event: event["kind"] == kind and all(event.get(name) == members[name] for name in members)
            )
        except TimeoutError:
            raise AssertionError(f"no {kind} {members} among {[short(event) for event in self.seen[-30:]]}") from None

    async def ready(self, *eras: str) -> None:
        """Wait until the lists of these eras are complete."""
        for era in eras or ("2025", "2026"):
            await self.event("offers", era=era, section="prompts")

    async def call(self, era: str, method: str, params: Any = None, **members: Any) -> str:
        """Send a request; returns the id of the call."""
        name: str = (await self.do("call", era=era, method=method, params=params or {}, **members))["call"]
        return name

    async def ended(self, call: str) -> dict[str, Any]:
        """Wait for the end of a call."""
        return await self.until(
            lambda event: (
                event["kind"] == "call"
                and event["call"] == call
                and event.get("state") in ("done", "failed", "cancelled")
            )
        )

    async def result(self, era: str, method: str, params: Any = None) -> Any:
        """Send a request and wait for its result."""
        ended = await self.ended(await self.call(era, method, params))
        assert ended["state"] == "done", ended
        return ended["result"]

    async def stream(
        self, after: int = 0, headers: Mapping[str, str] | None = None
    ) -> AsyncGenerator[dict[str, Any], None]:
        """Yield events as they come; `sse` is the id of the event on the stream."""
        all_headers = [("Authorization", f"Bearer {self.token}"), *(headers or {}).items()]
        response = await self.wire.open("GET", f"{self.base}/api/events?after={after}", all_headers, None)
        assert response.status == 200, await response.read()
        assert response.headers["content-type"] == "text/event-stream"
        rest = b""
        try:
            while piece := await response.read():
                *blocks, rest = (rest + piece).split(b"\n\n")
                for block in blocks:
                    lines = dict(line.split(b": ", 1) for line in block.split(b"\n") if not line.startswith(b":"))
                    if b"data" in lines:
                        event = json.loads(lines[b"data"])
                        assert event.get("n") == (int(lines[b"id"]) if b"id" in lines else None)
                        check_documented(event)
                        yield event
        finally:
            response.close()


def documented_events() -> dict[str, set[str]]:
    """The members of each kind of event in the documentation."""
    rows = re.findall(r"^\| `(\w+)` \| (.*) \|$", REFERENCE.read_text().partition("## Events")[2], re.MULTILINE)
    return {kind: set(re.findall(r"`(\w+)`", text)) for kind, text in rows}


EVENTS = documented_events()


def check_documented(event: dict[str, Any]) -> None:
    """Every event that any test sees is as the documentation says."""
    unknown = event.keys() - EVENTS.get(event["kind"], set()) - {"n", "kind", "at"}
    assert event["kind"] in EVENTS, event
    assert not unknown, (event["kind"], unknown)


def short(event: dict[str, Any]) -> str:
    """An event for a failed test."""
    return json.dumps(event)[:200]


def target_of(server: Any, *, is_own: bool = False, **options: Any) -> DevTarget:
    """A target that is there already."""
    return DevTarget(name="test", words=["test.py"], open=lambda show: (server, dict(options)), is_own=is_own)


@asynccontextmanager
async def inspecting(target: DevTarget, **options: Any) -> AsyncIterator[Program]:
    """Start `gemel dev` on a free port."""
    async with announced(lambda announce: serve_dev(target, announce=announce, **{"port": 0, **options})) as url:
        program = Program(url)
        try:
            yield program
        finally:
            await program.wire.close()
