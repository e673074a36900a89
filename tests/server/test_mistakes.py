"""What authors get wrong most often: each mistake is one line that says where it is and what to write instead, word for word."""

from __future__ import annotations

import asyncio
import logging
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import msgspec
import pytest

from gemel import Apps, Client, Context, DefinitionError, Image, Limits, Server, StartError
from tests.server.bare_end import BareEnd


def told(act: Callable[[], Any]) -> str:
    """What the author is told at registration, with the place left out."""
    with pytest.raises(DefinitionError) as caught:
        act()
    return _without_place(str(caught.value))


def _without_place(text: str) -> str:
    assert "\n" not in text
    before, found, after = text.partition(f" at {__file__}:")
    return f"{before}: {after.partition(': ')[2]}" if found else text


async def logged(caplog: pytest.LogCaptureFixture, function: Callable[..., Any], **arguments: Any) -> str:
    """What the author finds in the log after a call, in one line; the client learns nothing of it."""
    server = mistaken()
    server.tool("tool")(function)
    async with BareEnd(server) as end:
        result = await end.call_tool("tool", **arguments)
    assert result["isError"]
    assert result["content"][0]["text"] == "Tool 'tool' failed unexpectedly. The server's log says why."
    (record,) = [one for one in caplog.records if one.levelno >= logging.ERROR]
    assert record.exc_info is None
    return _without_place(record.getMessage())


def mistaken() -> Server[Any]:
    return Server("mistaken")


class Weather:
    """Not a function."""

    def forecast(self, city: str) -> str:
        return city


# ---------------------------------------------------------------- at registration


def test_a_parameter_without_annotation() -> None:
    def forecast(city, days=3):  # type: ignore[no-untyped-def]  # the mistake itself
        return city

    text = "forecast(): parameter `city`: has no annotation, so there is no schema for it; write e.g. `city: str`"
    assert told(lambda: mistaken().tool(forecast)) == text


def test_a_context_without_annotation() -> None:
    def forecast(ctx, city: str):  # type: ignore[no-untyped-def]  # the mistake itself
        return city

    assert told(lambda: mistaken().tool(forecast)) == (
        "forecast(): parameter `ctx`: has no annotation; write `ctx: Context`"
    )


def test_a_name_that_is_there_already() -> None:
    server = mistaken()
    server.tool("forecast")(lambda: "x")
    server.prompt("brief")(lambda: "x")
    server.resource("weather://now", name="now")(lambda: "x")
    assert told(lambda: server.tool("forecast")(lambda: "y")) == (
        "There is a tool 'forecast' already: give this one another name, remove the first, or say which counts: "
        'Server(on_duplicate="replace") or "keep"'
    )
    assert told(lambda: server.prompt("brief")(lambda: "y")) == (
        "There is a prompt 'brief' already: give this one another name, remove the first, or say which counts: "
        'Server(on_duplicate="replace") or "keep"'
    )
    assert told(lambda: server.resource("weather://now", name="again")(lambda: "y")) == (
        "There is a resource 'weather://now' already: give this one another URI, remove the first, or say which counts: "
        'Server(on_duplicate="replace") or "keep"'
    )


def test_a_template_variable_without_parameter_and_a_parameter_without_variable() -> None:
    def now(town: str) -> str:
        return town

    assert told(lambda: mistaken().resource("weather://{city}")(now)) == (
        "now(): doesn't fit the URI 'weather://{city}': parameter `town` has no variable: write {town} into the URI; "
        "{city} has no parameter: write `city: str`"
    )


def test_a_parameter_of_a_resource_that_has_no_variables() -> None:
    def now(city: str) -> str:
        return city

    assert told(lambda: mistaken().resource("weather://now")(now)) == (
        "now(): doesn't fit the URI 'weather://now': parameter `city` has no variable: write {city} into the URI"
    )


def test_parameters_that_json_cannot_name() -> None:
    def add(*numbers: int) -> int:
        return sum(numbers)

    def show(**options: str) -> str:
        return str(options)

    assert told(lambda: mistaken().tool(add)) == (
        "add(): parameter `numbers`: `*numbers` has no schema; name each parameter, or take a `numbers: list[str]`"
    )
    assert told(lambda: mistaken().tool(show)) == (
        "show(): parameter `options`: `**options` has no schema; name each parameter, or take a `options: dict[str, Any]`"
    )


def test_an_option_that_does_not_exist() -> None:
    tool: Any = mistaken().tool
    prompt: Any = mistaken().prompt
    assert told(lambda: tool("x", desciption="y")(lambda: "x")) == (
        "@server.tool has no option 'desciption': did you mean 'description'?"
    )
    assert told(lambda: prompt("x", timeout=5)(lambda: "x")) == (
        "@server.prompt has no option 'timeout': it has blocking, description, icons, meta, name, scopes, tags, title,"
        " visible, without_scopes"
    )


def test_a_class_in_place_of_a_function() -> None:
    assert told(lambda: mistaken().tool(Weather)) == (
        "Weather(): is a class; register a function, a bound method, or an object with `__call__`"
    )


def test_a_function_that_still_belongs_to_its_class() -> None:
    text = "parameter `self`: belongs to a method; register the bound method, `instance.method`, not the function in its class"
    # The first parameter without an annotation is `self`.
    assert told(lambda: mistaken().tool(Weather.forecast)) == f"forecast(): {text}"


def test_a_decorator_without_its_parentheses() -> None:
    def now() -> str:
        return "now"

    async def search(ctx: Context[Any], params: Any) -> None: ...

    server: Any = mistaken()
    assert told(lambda: server.resource(now)) == ('A resource needs a URI: write @server.resource("scheme://path")')
    assert told(lambda: server.request(search)) == ('A request needs its method: write @server.request("acme/search")')
    assert told(lambda: server.notification(search)) == (
        'A notification needs its method: write @server.notification("notifications/acme/done")'
    )
    assert server.tool(now) is now


def test_a_call_in_place_of_the_function() -> None:
    def now() -> int:
        return 5

    tool: Any = mistaken().tool
    assert told(lambda: tool(now())) == "5 is not callable; register a function"


def test_a_function_without_a_name() -> None:
    assert told(lambda: mistaken().tool(lambda: "x")) == ('A tool needs a name: write server.tool("name")(function)')


def test_a_plain_function_for_a_method_of_ones_own() -> None:
    def search(ctx: Context[Any], params: Any) -> Any:
        return {}

    server: Any = mistaken()
    assert told(lambda: server.request("acme/search")(search)) == (
        "search() serves 'acme/search': write `async def search(ctx, params)`"
    )


def test_values_that_an_option_can_not_have() -> None:
    named: Any = Server
    tool: Any = mistaken().tool
    level: Any = "inf"
    assert told(lambda: named(5)) == 'A server needs a name: write Server("weather"), not Server(5)'
    assert told(lambda: Server("x", page_size=0)) == (
        "page_size=0 is not possible: use 1 or more, or None for whole lists"
    )
    assert told(lambda: Server("x", log_level=level)) == (
        "log_level='inf' is not possible: use one of debug, info, notice, warning, error, critical, alert, emergency, or None"
    )
    assert told(lambda: tool("x", timeout="5")(lambda: "x")) == (
        "Tool 'x': timeout='5' is not possible: use seconds, more than 0"
    )
    assert told(lambda: tool("x", icons="https://a/b.png")(lambda: "x")) == (
        "icons='https://a/b.png' is one string: write icons=['https://a/b.png']"
    )
    assert (
        told(lambda: tool("x", tags="admin")(lambda: "x")) == "tags='admin' of 'x' is one string: write tags={'admin'}"
    )


def test_something_else_where_a_server_or_an_extension_is_wanted() -> None:
    server: Any = mistaken()
    assert told(lambda: server.mount(Client(mistaken()))) == (
        "mount() expects a Server, got Client. For a remote server use Server.from_client(url)."
    )
    assert told(lambda: server.include("routes.py")) == "include() expects a Router or a Server, got str"
    assert told(lambda: server.add_extension(Apps)) == (
        "<class 'gemel.extensions.apps.Apps'> is not an extension object: write add_extension(Apps())"
    )
    assert told(lambda: server.notify("tools")) == "'tools' is not a Changed: write server.notify(Changed('tools'))"
    five: Any = 5
    no_middleware = "5 is not middleware: write `async def middleware(ctx, call_next)`"
    assert told(lambda: server.add_middleware(5)) == no_middleware
    assert told(lambda: Server("x", middleware=[five])) == no_middleware


async def test_running_where_an_event_loop_runs_already() -> None:
    transports: tuple[Any, ...] = ("stdio", "http", "socket")
    for transport in transports:
        with pytest.raises(StartError) as caught:
            mistaken().run(transport)
        assert str(caught.value) == (
            "run() starts an event loop, and one is running here already: write `await server.run_async(…)` in its place"
        )
    with pytest.raises(StartError, match="Several workers need run"):
        await mistaken().run_async("http", workers=2)
    with pytest.raises(StartError, match="There is no transport 'htp'"):
        await mistaken().run_async(*["htp"])  # type: ignore[call-overload]  # the mistake itself


# ---------------------------------------------------------------- when it is called


async def test_a_returned_value_that_json_cannot_say(caplog: pytest.LogCaptureFixture) -> None:
    class Connection: ...

    async def connect() -> Any:
        return Connection()

    assert await logged(caplog, connect) == (
        "Tool 'tool': tool(): returned Connection, which has no JSON form: convert it to a str, number, list, dict, "
        "dataclass or pydantic model"
    )


async def test_a_picture_that_no_annotation_announces_is_explained(caplog: pytest.LogCaptureFixture) -> None:
    """A bare `list` promises JSON, and a picture is none."""

    def tool() -> list:  # type: ignore[type-arg]  # as authors write it
        return ["look", Image(data=b"\x89PNG\r\n\x1a\n")]

    assert await logged(caplog, tool) == (
        "Tool 'tool': tool(): returned Image at `[1]`, which its annotation doesn't say: "
        "annotate `-> Image`, or `-> list[str | Image]` for several"
    )


async def test_a_returned_value_of_the_wrong_type(caplog: pytest.LogCaptureFixture) -> None:
    @dataclass
    class Day:
        day: int

    async def when() -> Day:
        wrong: Any = {"day": "seven"}
        return wrong  # type: ignore[no-any-return]  # the mistake itself

    assert await logged(caplog, when) == (
        "Tool 'tool': tool(): returned a value that doesn't fit `-> Day`: day: expected integer, got string \"seven\"; "
        "return what the annotation says, or change the annotation"
    )


async def test_a_text_promised_and_something_else_returned(caplog: pytest.LogCaptureFixture) -> None:
    async def when() -> str:
        wrong: Any = 7
        return wrong  # type: ignore[no-any-return]  # the mistake itself

    assert await logged(caplog, when) == (
        "Tool 'tool': tool(): returned int, but is annotated `-> str`; return what the annotation says, or change the "
        "annotation"
    )


async def test_a_forgotten_await(caplog: pytest.LogCaptureFixture) -> None:
    async def fetch() -> str:
        return "x"

    async def forecast() -> str:
        wrong: Any = fetch()
        return wrong  # type: ignore[no-any-return]  # the mistake itself

    assert await logged(caplog, forecast) == ("Tool 'tool': it returned fetch() without awaiting it: add `await`")


@pytest.mark.parametrize("kind", ["tool", "prompt", "resource"])
async def test_a_blocking_call_on_the_event_loop(caplog: pytest.LogCaptureFixture, kind: str) -> None:
    """The watchdog names who holds up everybody else."""
    server: Server[Any] = Server("mistaken", limits=Limits(stall=0.1))

    async def fetch() -> str:
        time.sleep(0.8)  # noqa: ASYNC251  # the mistake itself
        return "x"

    register: Any = {"tool": server.tool, "prompt": server.prompt, "resource": server.resource("x://fetch")}[kind]
    register(fetch)
    method, params = {
        "tool": ("tools/call", {"name": "fetch"}),
        "prompt": ("prompts/get", {"name": "fetch"}),
        "resource": ("resources/read", {"uri": "x://fetch"}),
    }[kind]
    async with server.running(), BareEnd(server) as end:
        await asyncio.sleep(0.3)
        assert not caplog.records
        await end.ask(method, params)
    (record,) = caplog.records
    name = "x://fetch" if kind == "resource" else "fetch"
    line = fetch.__code__.co_firstlineno + 1
    assert record.getMessage() == (
        f"{kind.capitalize()} {name!r} holds up the event loop for more than 0.1 s, at {__file__}:{line} in fetch(): no other "
        "request is served meanwhile. Await what waits, or make the function a plain `def`, which runs in a thread"
    )


async def test_whoever_blocks_is_named_once_each_time_and_waiting_is_no_blocking(
    caplog: pytest.LogCaptureFixture,
) -> None:
    server: Server[Any] = Server("mistaken", limits=Limits(stall=0.1))

    @server.tool
    async def block() -> str:
        time.sleep(0.6)  # noqa: ASYNC251  # the mistake itself
        return "x"

    @server.tool
    def threaded() -> str:
        time.sleep(0.2)
        return "x"

    async with server.running(), server.running(), BareEnd(server) as end:
        await end.text("threaded")
        await asyncio.sleep(0.3)
        assert not caplog.records
        await end.text("block")
        await asyncio.sleep(0.3)
        await end.text("block")
    assert len(caplog.records) == 2


async def test_nothing_is_watched_where_that_is_not_wanted(caplog: pytest.LogCaptureFixture) -> None:
    import threading

    server: Server[Any] = Server("free", limits=Limits(stall=0))
    async with server.running():
        assert not [one for one in threading.enumerate() if one.name == "gemel-watchdog"]


def test_printing_on_stdio_harms_nothing() -> None:
    """STDIO-02: what is printed goes to standard error, the answer to standard output."""
    program = (
        "import gemel\n"
        "server = gemel.Server('printing')\n"
        "@server.tool\n"
        "async def forecast() -> str:\n"
        "    print('debugging')\n"
        "    return 'sun'\n"
        "server.run()\n"
    )
    meta = {
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities": {},
    }
    request = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "forecast", "_meta": meta}}
    done = subprocess.run(
        [sys.executable, "-c", program],
        input=msgspec.json.encode(request) + b"\n",
        capture_output=True,
        timeout=30,
        check=True,
    )
    (line,) = done.stdout.splitlines()
    assert msgspec.json.decode(line)["result"]["content"] == [{"type": "text", "text": "sun"}]
    assert done.stderr == b"debugging\n"
