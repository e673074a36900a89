"""Functions and objects of the user that the framework will call: a wrong shape is refused where it is passed."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import pytest

from gemel import (
    Client,
    ClientExtension,
    ClientGroup,
    ClientMethod,
    Context,
    DefinitionError,
    Extension,
    Method,
    RateLimit,
    Server,
    StartError,
    Topic,
)
from gemel.backends.memory import MemoryBackend
from gemel.options import is_function


def _none() -> None: ...
def _one(a: object) -> None: ...
def _two(a: object, b: object) -> None: ...
def _keyword(a: object, *, b: object) -> None: ...
async def _slow_none() -> None: ...
async def _slow_one(a: object) -> None: ...
async def _slow_three(a: object, b: object, c: object) -> None: ...


# Type checkers refuse them where they are passed: that is tested elsewhere.
none: Any = _none
one: Any = _one
two: Any = _two
keyword: Any = _keyword
slow_none: Any = _slow_none
slow_one: Any = _slow_one
slow_three: Any = _slow_three


class SlowBackend(MemoryBackend):
    async def publish(self, event: Any) -> None:  # type: ignore[override]  # wrong on purpose
        super().publish(event)


class ManyBackend(MemoryBackend):
    def publish(self, kind: Any, event: Any) -> None:  # type: ignore[override]  # wrong on purpose
        super().publish(event)


class SlowStore:
    async def get(self, key: str) -> None: ...
    async def put(self, key: str, entry: Any) -> None: ...
    async def drop(self, concerns: Any) -> None: ...


class SlowGuard:
    async def check(self, host: bytes | None, origin: bytes | None) -> None: ...


def wrong(kind: Callable[[], Any]) -> Any:
    return kind()


def extension(serve: Any) -> type[ClientExtension]:
    class Asked(ClientExtension):
        id = "com.example/asked"

        def requests(self) -> list[ClientMethod]:
            return [ClientMethod(name="com.example/ask", serve=serve)]

    return Asked


def served(method: Method | None = None, topic: Topic | None = None) -> Extension:
    class Added(Extension):
        id = "com.example/added"

        def requests(self) -> list[Method]:
            return [method] if method else []

        def topics(self) -> list[Topic]:
            return [topic] if topic else []

    return Added()


TOPIC = {"key": "feed", "kind": "feed", "method": "notifications/feed"}


def visible(condition: Any) -> Callable[[Server[Any]], object]:
    def tool() -> str:
        return ""

    return lambda server: server.tool(name="t", visible=condition)(tool)


SERVER: list[tuple[str, Callable[[Server[Any]], object]]] = [
    ("visible= of 't'.*function of the caller that", visible(two)),
    ("visible= of 't'.*plain function", visible(slow_one)),
    ("visible= of 't'.*function of the caller that", visible(5)),
    ("server.visibility.*function of the item and the caller that", lambda server: server.visibility(one)),
    (r"def middleware\(ctx, call_next\)", lambda server: server.add_middleware(slow_one)),
    (r"def middleware\(ctx, call_next\)", lambda server: Server("s", middleware=[one])),
    (r"_slow_one\(\) serves 'x/y': write `async def _slow_one\(ctx, params\)`", lambda s: s.request("x/y")(slow_one)),
    (r"_slow_three\(\) serves 'x/y'", lambda server: server.notification("x/y")(slow_three)),
    (r"_slow_one\(\) serves 'x/y'", lambda s: s.add_extension(served(Method(name="x/y", serve=slow_one)))),
    (r"topic 'feed'", lambda s: s.add_extension(served(None, Topic(accept=one, describe=two, **TOPIC)))),
    (r"backend=.*def publish\(self, event\)", lambda server: Server("s", backend=wrong(SlowBackend))),
    (r"backend=.*def publish\(self, event\)", lambda server: Server("s", backend=wrong(ManyBackend))),
    (r"authenticate=_one\(a\) .*\(scope, headers\)", lambda server: server.http_app(authenticate=one)),
    (r"guard=.*is not possible", lambda server: server.http_app(guard=wrong(SlowGuard))),
    (r"announce=async _slow_one\(a\) .*announce\(url\)", lambda server: server.run("http", announce=slow_one)),
    (r"authorize_subscription=_one\(a\) .*\(ctx, uri\)", lambda server: Server("s", authorize_subscription=one)),
    (r"lifespan=_two\(a, b\)", lambda server: Server("s", lifespan=two)),
    (r"connection_lifespan=_two\(a, b\)", lambda server: Server("s", connection_lifespan=two)),
    (r"by=_two\(a, b\)", lambda server: RateLimit(1, by=two)),
    (r"by=async _slow_one\(a\)", lambda server: RateLimit(1, by=slow_one)),
    (r"operations=_two\(a, b\)", lambda server: Server.from_openapi({}, operations=two)),
    (r"headers of type function", lambda server: Server.from_openapi({}, headers=slow_none)),
    (r"on_elicit=_none\(\) .*fill_in\(form\)", lambda server: Client(server, on_elicit=none)),
    (r"on_elicit=_keyword\(a, b\) ", lambda server: Client(server, on_elicit=keyword)),
    (r"on_sample=async _slow_three\(a, b, c\)", lambda server: Client(server, on_sample=slow_three)),
    (r"on_notification=_one\(a\) .*\(method, params\)", lambda server: Client(server, on_notification=one)),
    (r"on_roots=_one\(a\) .*roots\(\)", lambda server: Client(server, on_roots=one)),
    (r"def middleware\(ctx, call_next\)", lambda server: Client(server, middleware=[one])),
    (r"cache=.*def get\(self, key\)", lambda server: Client(server, cache=wrong(SlowStore))),
    (r"headers of type function", lambda server: Client("http://localhost:1/mcp", headers=one)),
    (r"auth of type function", lambda server: Client("http://localhost:1/mcp", auth=one)),
    (r"wire=_one\(a\)", lambda server: Client("http://localhost:1/mcp", wire=one)),
    (r"stderr=_none\(\)", lambda server: Client(["program"], stderr=none)),
    (r"async def _slow_one\(ctx, params\)", lambda server: Client(server, extensions=[extension(slow_one)])),
    (r"on_log=_one\(a\) .*log\(params, server\)", lambda server: ClientGroup({"s": server}, on_log=one)),
    (r"on_roots=_none\(\) .*roots\(server\)", lambda server: ClientGroup({"s": server}, on_roots=none)),
]


@pytest.mark.parametrize(("said", "use"), SERVER)
def test_a_wrong_shape_is_one_line_where_it_is_passed(said: str, use: Callable[[Server[Any]], object]) -> None:
    with pytest.raises((DefinitionError, StartError), match=said) as refused:
        use(Server("s"))
    assert "\n" not in str(refused.value)
    assert " at 0x" not in str(refused.value) or "object at" in str(refused.value)


class Callable2:
    def __call__(self, a: int, b: int = 0) -> None: ...
    def method(self, a: int) -> None: ...


ACCEPTED: list[Any] = [
    one,
    slow_one,
    lambda a, b=1: None,
    lambda *a: None,
    print,
    functools.partial(two, 1),
    functools.partial(keyword, b=1),
    Callable2(),
    Callable2().method,
    dict,
    int,
]


@pytest.mark.parametrize("function", ACCEPTED)
def test_whatever_can_be_called_with_the_arguments_is_accepted(function: Any) -> None:
    assert is_function(function, 1)


async def test_methods_and_objects_serve_as_well_as_functions() -> None:
    class Watch:
        def fill_in(self, form: Any) -> dict[str, Any]:
            return {"value": "Ann"}

        async def __call__(self, ctx: Context, call_next: Any) -> Any:
            self.method = ctx.method
            return await call_next(ctx)

    watch = Watch()
    server = Server("asking", middleware=[watch])

    @server.tool(visible=lambda caller: True)
    async def ask(ctx: Context) -> str:
        answer: str = await ctx.elicit("Who?", str)
        return answer

    async with Client(server, on_elicit=watch.fill_in) as client:
        assert (await client.call_tool("ask")).text == "Ann"
    assert watch.method == "tools/call"
