"""No option of a public door takes what it can't use: where it is written, one line names the option and what it can be."""

from __future__ import annotations

import inspect
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from gemel import (
    AccessLog,
    Client,
    ClientGroup,
    ClientPool,
    DefinitionError,
    RateLimit,
    ResultLimit,
    Server,
    StartError,
    ToolChanges,
)
from gemel.options import options_of
from gemel.server.options import SocketOptions
from gemel.transports.http.client.legacy_sse import SseTransport
from gemel.transports.http.client.transport import HttpTransport
from gemel.transports.http.server.options import HttpAppOptions, HttpOptions
from gemel.transports.stream.subprocess import Stdio


class Wrong:
    """What no option can be."""

    def __repr__(self) -> str:
        return "<wrong>"


WRONG: Any = Wrong()
URL = "http://127.0.0.1:1/mcp"

DOORS: dict[str, tuple[Callable[..., Any], Callable[..., Any]]] = {
    "Server": (Server, lambda **given: Server("x", **given)),
    "Client": (Client, lambda **given: Client("x", **given)),
    "ClientGroup": (ClientGroup, lambda targets={}, **given: ClientGroup(targets, **given)),
    "ClientPool": (ClientPool, lambda **given: ClientPool("x", **given)),
    "RateLimit": (RateLimit, lambda **given: RateLimit(**{"rate": 1, **given})),
    "ResultLimit": (ResultLimit, lambda **given: ResultLimit(**{"size": 1, **given})),
    "AccessLog": (AccessLog, AccessLog),
    "Stdio": (Stdio, lambda **given: Stdio("x", **given)),
    "HttpTransport": (HttpTransport, lambda **given: HttpTransport(URL, **given)),
    "SseTransport": (SseTransport, lambda **given: SseTransport(URL, **given)),
}
#: Targets have rules of their own; a server's name is what the door is called by; limits of a transport come from a client.
ELSEWHERE = {
    "Server": {"name"},
    "Client": {"target"},
    "ClientPool": {"target"},
    "Stdio": {"command", "limits"},
    "HttpTransport": {"url", "limits"},
    "SseTransport": {"url", "limits"},
}


def options_of_all_doors() -> Iterator[Any]:
    for door, (kind, made) in DOORS.items():
        for name, parameter in inspect.signature(kind).parameters.items():
            if parameter.kind is not parameter.VAR_KEYWORD and name not in ELSEWHERE.get(door, ()):
                yield pytest.param(made, name, id=f"{door}-{name}")
    for name in ("path", "eras", "limits", *options_of(HttpAppOptions)):
        yield pytest.param(lambda **given: Server("x").http_app(**given), name, id=f"http_app-{name}")


@pytest.mark.parametrize(("made", "name"), list(options_of_all_doors()))
def test_a_value_that_an_option_can_not_have_is_told_in_one_line(made: Callable[..., Any], name: str) -> None:
    with pytest.raises(DefinitionError) as caught:
        made(**{name: WRONG})
    text = str(caught.value)
    assert "\n" not in text
    assert name in text


@pytest.mark.parametrize("eras", ["2026", ("2027",), ()])
def test_an_option_that_is_the_servers_says_so(eras: Any) -> None:
    options: Any = {"eras": eras}
    with pytest.raises(DefinitionError, match=r"^HTTP has no option 'eras': use Server\(eras=…\)$"):
        Server("x").http_app(**options)
    with pytest.raises(StartError, match=r"^HTTP has no option 'eras': use Server\(eras=…\)$"):
        Server("x").run("http", port=0, **options)


RUNS = [
    ("http", "prt", 5, "HTTP has no option 'prt': did you mean 'port'?"),
    ("http", "bind", "x", "HTTP has no option 'bind': run binds to host=…; bind is for apps that somebody else serves"),
    ("http", "port", "8000", "port='8000' is not possible: use a number from 0 to 65535"),
    ("http", "port", 65536, "port=65536 is not possible: use a number from 0 to 65535"),
    ("http", "workers", "2", "workers='2' is not possible: use a whole number, 1 or more"),
    ("http", "workers", 0, "workers=0 is not possible: use a whole number, 1 or more"),
    ("http", "path", "mcp", "path='mcp' is not possible: write a path like \"/mcp\""),
    ("http", "sessions", "no", "sessions='no' is not possible: use True or False"),
    ("socket", "port", 99_999_999, "port=99999999 is not possible: use a number from 0 to 65535, or None"),
    ("socket", "prt", 5, "run('socket') has no option 'prt': did you mean 'port'?"),
    ("stdio", "port", 5, "run('stdio') has no option 'port': it has principal"),
    ("htp", "port", 5, 'There is no transport \'htp\': use "stdio", "http" or "socket"'),
    *(("socket", name, WRONG, f"{name}=<wrong> is not possible: ") for name in options_of(SocketOptions)),
    *(("http", name, WRONG, f"{name}=<wrong> is not possible: ") for name in options_of(HttpOptions)),
]


@pytest.mark.parametrize(("transport", "name", "value", "words"), RUNS)
async def test_wrong_options_keep_a_server_from_running(transport: Any, name: str, value: Any, words: str) -> None:
    with pytest.raises(StartError) as caught:
        await Server("x").run_async(transport, **{name: value})
    assert str(caught.value).startswith(words)


def test_a_transport_that_is_no_text_is_no_transport() -> None:
    transport: Any = []
    with pytest.raises(StartError, match="There is no transport"):
        Server("x").run(transport)


def test_a_lifespan_without_its_decorator_is_told_at_once() -> None:
    async def yields(server: Any) -> AsyncIterator[None]:
        yield

    async def returns(server: Any) -> None: ...

    for lifespan in (yields, returns):
        given: Any = lifespan
        with pytest.raises(DefinitionError, match="write @asynccontextmanager above `async def lifespan"):
            Server("x", lifespan=given)
        with pytest.raises(DefinitionError, match="write @asynccontextmanager above `async def connected"):
            Server("x", connection_lifespan=given)
    Server("x", lifespan=asynccontextmanager(yields))


def test_changes_of_tools_are_a_mapping() -> None:
    for act in (lambda: ToolChanges(WRONG), lambda: Server("x").mount(Server("y"), tools=WRONG)):
        with pytest.raises(DefinitionError, match=r'^tools=<wrong> is not possible: write {"name": ToolChange\(…\)}$'):
            act()


def test_a_class_is_no_target() -> None:
    with pytest.raises(DefinitionError, match="the class Server: give an object that is made of it"):
        Client(Server)


def test_what_the_doors_take(tmp_path: Path) -> None:
    """The tables refuse nothing that works."""
    log = AccessLog(methods=["tools/call"], level=10)
    server = Server[Any]("x", middleware=(log, RateLimit(0.5, burst=1, methods={"tools/call"})), log_level=None)
    server.http_app("/", sse_path=None, allowed_hosts=("a.example",), headers=1, body_wait=0.1, routes={})
    Client(server, on_roots=[tmp_path, "file:///x"], on_log=print, middleware=(), cache=None, log_level="debug")
    Client(server, on_roots=list)
    Client(["x"], env={}, cwd=tmp_path, stderr=tmp_path / "log", patience=0)
    lines: list[str] = []
    Client(["x"], stderr=lines.append)
    Client(URL, headers={}, auth=lambda: "x", proxy=None, tls=False)
