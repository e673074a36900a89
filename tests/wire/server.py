"""The server that all scenarios talk to, in this process or as a program on stdio: `python server.py OPTIONS`.

`python server.py FD` serves one conversation after the other: from the socket FD come options, with the two ends of pipes
that are then standard input and output; the word in return is that the server is over.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import socket
import sys
from collections import defaultdict
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path
from typing import Any

if __name__ == "__main__":
    sys.path[:0] = [str(Path(__file__).parents[2]), str(Path(__file__).parents[2] / "src")]

import msgspec

from gemel import (
    CallNext,
    CallToolResult,
    Client,
    ContentBlock,
    Context,
    GemelError,
    Limits,
    ProtocolError,
    ResourceContents,
    ResourceLink,
    ResultLimit,
    Server,
    Tasks,
    TextContent,
    ToolError,
    errors,
)
from gemel.schema.notifications import LOGGING_LEVELS

#: What `acme/throw` and the tool `throw` can raise: the kinds of failure that a handler knows.
THROWS: dict[str, Any] = {
    "own": lambda: ProtocolError("Out of tea", {"left": 0}, code=1234),
    "params": lambda: errors.InvalidParams("Not that one", {"field": "x"}),
    "request": lambda: errors.InvalidRequest("Not now"),
    "method": lambda: errors.MethodNotFound("acme/else"),
    "resource": lambda: errors.ResourceNotFound("file:///gone"),
    "capability": lambda: errors.MissingClientCapability({"sampling": {"tools": {}}}),
    "internal": lambda: errors.InternalError("Broken", {"part": 7}),
    "unexpected": lambda: RuntimeError("the password is 1234"),
    "value": lambda: ValueError("the password is 1234"),
    "group": lambda: BaseExceptionGroup("several", [RuntimeError("a"), ValueError("b")]),
    "exit": lambda: SystemExit(3),
    "interrupt": lambda: KeyboardInterrupt(),
    "generator exit": lambda: GeneratorExit(),
    "cancelled": lambda: asyncio.CancelledError(),
    "timeout": lambda: TimeoutError(),
    "unsayable": lambda: errors.InvalidParams("Bad data", {"object": object()}),
}


class Point(msgspec.Struct):
    x: int
    y: int = 0


class Pong(msgspec.Struct):
    text: str


def build(**options: Any) -> Server[Any]:
    """A server with one of everything. `shelf` tools stand in its list, and what happens is kept to be asked for.

    With `spill` it keeps results of more bytes in pages; with `tasks` it has tools that become tasks, with `files` some that
    say the name of a file, which is not Unicode. `deny` says where a
    ToolError ends what comes: in "middleware", in that of a "mounted" server or of a "gateway", or in "connection_lifespan".
    `connected` is what goes wrong in a `connection_lifespan`, a key of MISHAPS, or "fails": it can't be entered.
    `greet` lets a middleware send something during `initialize`, which it refuses the first time for "refuse".
    """
    shelf = options.pop("shelf", 0)
    deny = options.pop("deny", None)
    connected = options.pop("connected", None)
    events: list[str] = []
    spill = options.pop("spill", None)
    greet = options.pop("greet", None)
    has_tasks = options.pop("tasks", False)
    has_files = options.pop("files", False)
    if deny in ("mounted", "gateway"):
        return _denied_inside(deny)
    if deny is not None:
        options |= {"middleware": [_deny]} if deny == "middleware" else {"connection_lifespan": _denied_connection}
    if connected is not None:
        options["connection_lifespan"] = _connection(connected, events)
    if spill is not None:
        options["middleware"] = [ResultLimit(spill, spill=True)]
    if greet is not None:
        options["middleware"] = [partial(_greet, greet)]
    if "limits" in options:
        options["limits"] = Limits(**options["limits"])
    server: Server[Any] = Server("wire", version="1", **options)
    gates: defaultdict[str, asyncio.Event] = defaultdict(asyncio.Event)
    if shelf:
        for number in range(shelf):
            _shelve(server, f"tool{number}")
        return server
    _add_plain(server)
    _add_waiting(server, gates, events)
    _add_asking(server, events)
    _add_keeping(server)
    _add_methods(server, events)
    if has_files:
        _add_files(server)
    if spill is not None:
        _add_long(server)
    if has_tasks:
        _add_tasks(server, gates)
    return server


async def _deny(ctx: Context[Any], call_next: CallNext) -> Any:
    if ctx.method in ("tools/call", "prompts/get"):
        raise ToolError("Ask an admin for access")
    return await call_next(ctx)


async def _greet(how: str, ctx: Context[Any], call_next: CallNext) -> Any:
    """Send notifications during `initialize`, before and after the handler; drop `notifications/initialized`."""
    if ctx.method == "notifications/initialized" and how == "drop":
        return None
    if ctx.method != "initialize":
        return await call_next(ctx)
    await ctx.notify("notifications/acme/hello", {"from": "middleware"})
    await ctx.info("hello")
    result = await call_next(ctx)
    await ctx.notify("notifications/acme/ready")
    name = ctx.decoded_params["clientInfo"]["name"]
    if how == "refuse" and name == "refused":
        raise ProtocolError("Not you", code=1234)
    return result


@contextlib.asynccontextmanager
async def _denied_connection(ctx: Context[Any]) -> AsyncIterator[None]:
    if ctx.method != "ping":
        raise ToolError("Ask an admin for access")
    yield


#: How the clean-up of a connection goes wrong.
MISHAPS: dict[str, Any] = {
    "raises": lambda: _raised(OSError("the database was gone already")),
    "exits": lambda: _raised(SystemExit(3)),
    "is cancelled": lambda: _raised(asyncio.CancelledError()),
    "hangs": lambda: asyncio.Event().wait(),
    "never": lambda: asyncio.sleep(0),
}


async def _raised(error: BaseException) -> None:
    raise error


def _connection(mishap: str, events: list[str]) -> Any:
    """A `connection_lifespan` that tells what it is entered for."""

    @contextlib.asynccontextmanager
    async def connected(ctx: Context[Any]) -> AsyncIterator[None]:
        if mishap == "fails":
            raise OSError("there is no database")
        events.append(f"connected by {ctx.method}")
        try:
            yield
        finally:
            await MISHAPS[mishap]()

    return connected


def _denied_inside(deny: str) -> Server[Any]:
    """A server in front of another one, with the middleware in one of them."""
    if deny == "gateway":
        gateway = Server.from_client(Client(build()), name="wire", version="1")
        gateway.add_middleware(_deny)
        return gateway
    outer: Server[Any] = Server("wire", version="1")
    outer.mount(build(middleware=[_deny]))
    return outer


def _shelve(server: Server[Any], name: str) -> None:
    @server.tool(name)
    async def nothing() -> None: ...


def _add_plain(server: Server[Any]) -> None:
    @server.tool
    async def add(a: int, b: int = 0) -> int:
        """Add."""
        return a + b

    @server.tool
    async def move(to: Point) -> Point:
        return to

    @server.tool
    async def fail(why: str) -> str:
        raise ToolError(why)

    @server.tool
    async def throw(kind: str) -> str:
        raise THROWS[kind]()

    @server.tool
    async def report(ctx: Context[Any], values: list[float], text: str | None = None) -> str:
        """Tell of progress, whether it grows or not."""
        for value in values:
            await ctx.report_progress(value, 10, text)
        return "done"

    @server.tool
    async def chatter(ctx: Context[Any]) -> str:
        """Log once at each level."""
        for level in LOGGING_LEVELS:
            await ctx.log(level, {"at": level}, logger="wire")  # type: ignore[arg-type]  # the levels are its literals
        return "done"

    @server.tool
    async def whoami(ctx: Context[Any]) -> list[str | None]:
        info = ctx.client_info
        return [info.name if info else None, ctx.protocol_version, str(ctx.request_id), type(ctx.request_id).__name__]

    @server.prompt
    async def greet(name: str, mood: str = "glad") -> str:
        """Greet somebody."""
        return f"Hello {name}, I am {mood}"

    @greet.complete("mood")
    def moods(value: str) -> list[str]:
        return [mood for mood in ("glad", "grim", "sad") if mood.startswith(value)]


def _add_long(server: Server[Any]) -> None:
    @server.tool
    async def lines(count: int) -> str:
        return "".join(f"line {number}\n" for number in range(count))

    @server.tool
    async def numbers(count: int) -> list[int]:
        return list(range(count))


def _add_files(server: Server[Any]) -> None:
    name = os.fsdecode(b"caf\xe9") if os.name == "posix" else "caf\udce9"

    @server.tool
    async def text() -> str:
        return name

    @server.tool
    async def refuse() -> str:
        raise ToolError(f"no {name}")

    @server.tool
    async def blocks() -> list[ContentBlock]:
        return [TextContent(text=name), ResourceLink(uri=f"file:///{name}", name=name)]

    @server.tool
    async def structured() -> CallToolResult:
        return CallToolResult(content=[], structured_content={name: [name], "uri": f"file:///{name}"})

    @server.tool
    async def names() -> list[str]:
        return [name]

    @server.tool
    async def tell(ctx: Context[Any]) -> str:
        await ctx.warning({"name": name})
        await ctx.report_progress(1, 1, name)
        return "told"

    @server.tool
    async def ask(ctx: Context[Any]) -> str:
        return await ctx.elicit(f"Delete {name}?")

    @server.tool
    async def fail_file() -> str:
        raise errors.ResourceNotFound(f"file:///{name}")

    @server.prompt
    async def about() -> str:
        return name

    @server.resource("list://files")
    async def files() -> str:
        return name

    @server.resource("one://{number}")
    async def one(number: int) -> ResourceContents:
        return ResourceContents(uri=f"file:///{name}", text=name)

    @server.request("acme/cursor")
    async def cursor(ctx: Context[Any], params: Any) -> Any:
        return {"nextCursor": name}


def _add_tasks(server: Server[Any], gates: defaultdict[str, asyncio.Event]) -> None:
    server.add_extension(Tasks())

    @server.tool(task=True)
    async def job(name: str) -> str:
        """Wait until `release` is called with this name."""
        await gates[name].wait()
        return name

    @server.tool(task="required")
    async def long_job() -> str:
        return "done"


def _add_waiting(server: Server[Any], gates: defaultdict[str, asyncio.Event], events: list[str]) -> None:
    @server.tool
    async def wait(ctx: Context[Any], name: str) -> str:
        """Wait until `release` is called with this name, telling of what happens."""
        events.append(f"{name} begins")
        gates[f"{name} begins"].set()
        try:
            await gates[name].wait()
        except asyncio.CancelledError:
            events.append(f"{name} is cancelled")
            gates[f"{name} is cancelled"].set()
            raise
        events.append(f"{name} ends")
        return name

    @server.tool
    async def stubborn(name: str) -> str:
        """Wait like `wait`, but answer even when cancelled."""
        gates[f"{name} begins"].set()
        try:
            await gates[name].wait()
        except asyncio.CancelledError:
            gates[f"{name} is cancelled"].set()
        return f"{name} after all"

    @server.tool
    async def until(event: str) -> None:
        """Wait for an event of another call."""
        await gates[event].wait()

    @server.tool
    async def release(name: str) -> None:
        gates[name].set()

    @server.tool
    async def happened() -> list[str]:
        return events

    @server.tool
    async def grow() -> None:
        _shelve(server, "grown")

    @server.tool
    async def shrink() -> None:
        server.remove_tool("grown")


def _add_keeping(server: Server[Any]) -> None:
    @server.tool
    async def keep(ctx: Context[Any], key: str, value: Any) -> str:
        try:
            await ctx.session_state.set(key, value)
        except GemelError as error:
            return str(error)
        return "kept"

    @server.tool
    async def kept(ctx: Context[Any], key: str) -> str:
        return repr(await ctx.session_state.get(key))

    @server.tool
    async def count(ctx: Context[Any]) -> str:
        number = await ctx.session_state.update("count", lambda count: count + 1, int, 0)
        return str(number)


def _add_asking(server: Server[Any], events: list[str]) -> None:
    @server.tool
    async def ask_name(ctx: Context[Any]) -> str:
        """Ask one question."""
        name = await ctx.elicit("Who are you?", str)
        return f"You are {name}"

    @server.tool
    async def ask_twice(ctx: Context[Any]) -> str:
        """Ask one question after the other, with work before each."""
        await ctx.step(lambda: events.append("first"))
        first = await ctx.elicit("First?", int)
        await ctx.step(lambda: events.append("second"))
        second = await ctx.elicit("Second?", int)
        return str(first + second)

    @server.tool
    async def ask_both(ctx: Context[Any]) -> str:
        """Ask two questions at once."""
        first, second = await asyncio.gather(ctx.elicit("First?", int), ctx.elicit("Second?", int))
        return str(first + second)

    @server.tool
    async def ask_in_steps(ctx: Context[Any]) -> str:
        """Ask the same in steps and outside of them."""

        async def number(place: int) -> int:
            answer = await ctx.elicit("Which number?", int)
            events.append(f"step {place}")
            return answer

        numbers = [await ctx.step(number, place) for place in range(3)]
        return str([*numbers, await ctx.elicit("Which number?", int)])

    @server.tool
    async def ask_page(ctx: Context[Any]) -> str:
        await ctx.elicit_url("Please sign in", "https://example.test/login")
        return "agreed"

    @server.tool
    async def ask_model(ctx: Context[Any]) -> str:
        answer = await ctx.sample("Say a word", max_tokens=5)
        return f"{answer.model} said {getattr(answer.content, 'text', '')}"

    @server.tool
    async def ask_roots(ctx: Context[Any]) -> list[str]:
        return [root.uri for root in await ctx.list_roots()]


def _add_methods(server: Server[Any], events: list[str]) -> None:
    @server.request("acme/echo")
    async def echo(ctx: Context[Any], params: Any) -> Any:
        return {"echo": {key: value for key, value in params.items() if key != "_meta"}}

    @server.request("acme/typed", params=Point)
    async def typed(ctx: Context[Any], params: Point) -> Any:
        return {"sum": params.x + params.y}

    @server.request("acme/throw")
    async def throw(ctx: Context[Any], params: Any) -> Any:
        raise THROWS[params["kind"]]()

    @server.request("acme/cancel")
    async def cancel(ctx: Context[Any], params: Any) -> Any:
        """Cancel the very task that serves this."""
        task = asyncio.current_task()
        assert task is not None
        task.cancel()
        await asyncio.sleep(0)

    @server.request("acme/return")
    async def give(ctx: Context[Any], params: Any) -> Any:
        kinds: dict[str, Any] = {"nothing": None, "struct": Pong("hi"), "number": 5, "object": {"x": object()}}
        return kinds[params["kind"]]

    @server.request("acme/ask")
    async def ask(ctx: Context[Any], params: Any) -> Any:
        return {"name": await ctx.elicit("Who are you?", str)}

    @server.tool
    async def ask_client(ctx: Context[Any]) -> str:
        """Send requests other than those for input."""
        try:
            await ctx.ping()
            return f"The client says {await ctx.request('acme/ask', {'x': 1})}"
        except errors.GemelError as exc:
            return f"{type(exc).__name__}: {exc}"

    @server.notification("notifications/roots/list_changed")
    async def roots_changed(ctx: Context[Any], params: Any) -> None:
        roots = await ctx.list_roots()
        await ctx.notify("notifications/acme/roots", {"uris": [root.uri for root in roots]})

    @server.notification("notifications/acme", params=Point)
    async def noted(ctx: Context[Any], params: Point) -> None:
        events.append(f"noted {params.x}")
        if params.x < 0:
            raise RuntimeError("boom")


def serve_each(orders: socket.socket) -> None:
    """Serve as often as somebody asks for it; starting the program takes longer than most conversations."""
    nowhere = os.open(os.devnull, os.O_RDWR)
    while True:
        options, pipes, _, _ = socket.recv_fds(orders, 65536, 2)
        if not options:
            return
        for standard, pipe in enumerate(pipes):
            os.dup2(pipe, standard)
            os.close(pipe)
        build(**json.loads(options)).run()
        for standard in range(len(pipes)):
            os.dup2(nowhere, standard)
        orders.send(b"over")


if __name__ == "__main__":
    if not sys.argv[1].isdecimal():
        build(**json.loads(sys.argv[1])).run()
        sys.exit()
    with socket.socket(fileno=int(sys.argv[1])) as orders:
        serve_each(orders)
