"""The way of one `tools/call`: seven hops from the bytes to the function, the same everywhere, and few function calls.

A hop is an object that is handed the call and hands it on. What is only asked something on the way (a decoder, a rule of
an era, a guard at the door) is none, and neither is what makes the conversation.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import msgspec
import pytest

import hinge
from hinge import Server
from hinge.channel import Channel
from hinge.http1.server.connection import HttpConnection
from hinge.http1.server.listener import Listener
from hinge.protocol.calls import Outgoing
from hinge.server.tracking import tracking
from hinge.transports.memory import connect
from tests.fuzz.ends import hello
from tests.transports.http_rig import modern_call
from tests.wire.routes import Ear

PACKAGE = Path(hinge.__file__).parent

#: Files below the package, or names in them, and the hop that they belong to; the first that fits counts.
HOPS = (
    ("server/server.py:Server.serve", None),
    ("session.py:Session.receive", "Session.receive"),
    ("session.py:Session.answer", "Session.answer"),
    ("protocol/connection.py", "Connection.receive"),
    ("server/server.py", "Server.handle"),
    ("server/middleware/chain.py", "Server.handle"),
    ("server/middleware/telemetry.py", "Server.handle"),
    ("server/dispatch.py", "Server.handle"),
    ("server/features/tools.py", "Tools.call"),
    ("transports/", "transport"),
    ("http1/", "transport"),
)
SEVEN = ["transport", "Session.receive", "Connection.receive", "Session.answer", "Server.handle", "Tools.call", "add"]

CARRIERS = {
    "memory": ["Pump"],
    "http": ["HttpConnection", "HttpRequest", "HttpApp", "Clock", "Routes", "Exchange", "Post"],
    "asgi": ["HttpApp", "Clock", "Routes", "Exchange", "AsgiCarrier", "Post"],
}

#: Python functions of ours, and of all, that one call may enter. Raise them only with a reason.
CEILINGS = {"memory 2025": (46, 60), "memory 2026": (40, 54), "http 2026": (92, 110), "asgi 2026": (63, 72)}


@pytest.fixture(autouse=True)
def nobody_asks_which_call_runs_or_traces_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a process that has imported neither `current_context` nor OpenTelemetry: another test may have."""
    monkeypatch.setattr(tracking, "serve", None)
    monkeypatch.delitem(sys.modules, "opentelemetry.trace", raising=False)


def the_server() -> Server[Any]:
    server: Server[Any] = Server("short")

    @server.tool
    async def add(a: int, b: int) -> int:
        return a + b

    return server


class Steps:
    """The Python functions that were entered, in order: `file:name`, ours by their path below the package."""

    def __init__(self) -> None:
        self.entered: list[str] = []

    def note(self, frame: FrameType, event: str, _argument: Any) -> None:
        if event == "call":
            path = Path(frame.f_code.co_filename)
            file = path.relative_to(PACKAGE).as_posix() if path.is_relative_to(PACKAGE) else f"/{path.name}"
            self.entered.append(f"{file}:{frame.f_code.co_qualname}")

    @property
    def ours(self) -> list[str]:
        return [step for step in self.entered if not step.startswith("/")]

    @property
    def way_in(self) -> list[str]:
        """What was entered until the function was."""
        return self.entered[: [_hop(step) for step in self.entered].index("add") + 1]

    def hops(self) -> list[str]:
        """Who had the call in hand, each once, from the first to the function."""
        return list(dict.fromkeys(hop for step in self.way_in if (hop := _hop(step)) is not None))

    def carriers(self) -> list[str]:
        """The classes of the transport, which together are one hop."""
        names = [step.partition(":")[2] for step in self.way_in if _hop(step) == "transport"]
        return list(dict.fromkeys(name.partition(".")[0] for name in names))


def _hop(step: str) -> str | None:
    if step.endswith(":the_server.<locals>.add"):
        return "add"
    return next((hop for place, hop in HOPS if step == place or (":" not in place and step.startswith(place))), None)


@contextmanager
def counting() -> Iterator[Steps]:
    steps, before = Steps(), sys.getprofile()
    sys.setprofile(steps.note)
    try:
        yield steps
    finally:
        sys.setprofile(before)


async def in_memory(era: str) -> Steps:
    """From the bytes in the server's inbox to the reply in the client's."""
    channels: list[Channel] = []
    server = the_server()

    def serve(channel: Channel) -> Any:
        channels.append(channel)
        return server.serve(channel)

    replies: list[bytes] = []
    channel = await connect(serve).open(lambda _: Ear(replies.append))

    async def say(request_id: int, method: str, params: Any) -> None:
        message = {"jsonrpc": "2.0", "id": request_id, "method": method, "params": params}
        await channel.send(Outgoing(_text(message)))
        while len(replies) < request_id:  # noqa: ASYNC110 (anything better would be counted)
            await asyncio.sleep(0)

    _, body = modern_call("add", 3, a=1, b=2)
    if era == "2025":
        body["params"].pop("_meta")
    await say(1, "initialize", hello())
    await say(2, "tools/call", body["params"])
    end: Any = channels[0]
    with counting() as steps:
        end.feed(_text(body))
        while len(replies) < 3:  # noqa: ASYNC110 (anything better would be counted)
            await asyncio.sleep(0)
    assert json.loads(replies[2])["result"]["content"][0]["text"] == "3"
    await channel.close()
    return steps


def _text(message: Any) -> bytes:
    return msgspec.json.encode(message)


class Written(asyncio.Transport):
    """A socket that keeps what is written to it."""

    def __init__(self) -> None:
        super().__init__()
        self.data = b""

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.data += data


async def over_http(era: str) -> Steps:
    """From the bytes that a socket gave to those that it takes."""
    app = the_server().http_app()
    await app.start()
    listener, transport = Listener(app.serve, 1 << 16), Written()
    connection = HttpConnection(listener)
    connection.connection_made(transport)
    headers, message = modern_call("add", 1, a=1, b=2)
    fields = {"Host": "127.0.0.1", **headers, "Content-Length": str(len(_text(message)))}
    head = "".join(f"{name}: {value}\r\n" for name, value in fields.items())
    request = f"POST /mcp HTTP/1.1\r\n{head}\r\n".encode() + _text(message)
    connection.data_received(request)
    while listener.tasks:  # noqa: ASYNC110 (anything better would be counted)
        await asyncio.sleep(0)
    transport.data = b""
    with counting() as steps:
        connection.data_received(request)
        while listener.tasks:  # noqa: ASYNC110 (anything better would be counted)
            await asyncio.sleep(0)
    connection.connection_lost(None)
    await app.stop()
    assert json.loads(transport.data.partition(b"\r\n\r\n")[2])["result"]["content"][0]["text"] == "3"
    return steps


async def over_asgi(era: str) -> Steps:
    """From the ASGI call to its end; the HTTP server around it isn't ours."""
    app = the_server().http_app()
    headers, message = modern_call("add", 1, a=1, b=2)
    body, sent = _text(message), list[Any]()
    pairs = [(b"host", b"127.0.0.1"), (b"content-length", b"%d" % len(body))]
    pairs += [(name.lower().encode(), value.encode()) for name, value in headers.items()]
    scope = {"type": "http", "method": "POST", "path": "/mcp", "headers": pairs}

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": body, "more_body": False}

    async def send(part: Any) -> None:
        sent.append(part)

    await app.start()
    await app(dict(scope), receive, send)
    with counting() as steps:
        await app(dict(scope), receive, send)
    await app.stop()
    assert json.loads(sent[-1]["body"])["result"]["content"][0]["text"] == "3"
    return steps


ways: dict[str, Callable[[str], Awaitable[Steps]]] = {
    "memory 2025": in_memory,
    "memory 2026": in_memory,
    "http 2026": over_http,
    "asgi 2026": over_asgi,
}


@pytest.mark.parametrize("way", ways)
async def test_a_call_takes_seven_hops(way: str) -> None:
    steps = await ways[way](way.split()[1])
    assert steps.hops() == SEVEN
    assert steps.carriers() == CARRIERS[way.split()[0]]


@pytest.mark.parametrize("way", ways)
async def test_a_call_enters_few_functions(way: str) -> None:
    steps = await ways[way](way.split()[1])
    without_loop = [step for step in steps.entered if not step.startswith(("/base_events", "/events", "/selector"))]
    ours, everything = CEILINGS[way]
    assert len(steps.ours) <= ours, "\n".join(steps.ours)
    assert len(without_loop) <= everything, "\n".join(without_loop)


def test_an_eighth_hop_is_found() -> None:
    steps = Steps()
    steps.entered = ["transports/duplex.py:Pump.feed", "session.py:Session.receive", "transports/queue.py:Queue.put"]
    steps.entered.append("/test_hops.py:the_server.<locals>.add")
    assert steps.hops() == ["transport", "Session.receive", "add"]
    assert steps.carriers() == ["Pump", "Queue"]
    steps.entered.insert(2, "server/dispatch.py:Dispatch.request")
    assert steps.hops() == ["transport", "Session.receive", "Server.handle", "add"]
