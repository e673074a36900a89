"""Who comes in and to where: paths, mounts, Host and Origin, content types, sizes, health, hooks."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import AsyncIterator
from typing import Any

import pytest

from gemel import Context, DefinitionError, Limits, NotFinished, Overloaded, Principal, Refusal, Server
from gemel.http1.asgi import Message, Scope
from gemel.protocol.connection import LIVENESS_RESERVE
from gemel.transports.http.server.app import HttpApp
from tests.support import V2025_06, Headers
from tests.transports.http_rig import (
    ABSENT,
    BOTH_TYPES,
    JSON_HEADERS,
    Log,
    Site,
    handshake_call,
    initialize,
    make_server,
    modern,
    modern_call,
    serving,
    text_of,
)


@pytest.fixture
async def site() -> AsyncIterator[Site]:
    async with serving(make_server(Log())) as site:
        yield site


async def through(app: Any, scope: Scope, body: bytes = b"") -> tuple[int, bytes]:
    """One request straight into an ASGI app: status and body."""
    sent: list[Message] = []

    async def receive() -> Message:
        return {"type": "http.request", "body": body, "more_body": False}

    async def send(message: Message) -> None:
        sent.append(message)

    await app(scope, receive, send)
    return sent[0]["status"], b"".join(message.get("body", b"") for message in sent[1:])


def post_scope(path: str, root_path: str = "", **changes: str) -> tuple[Scope, bytes]:
    """A call of `add`."""
    headers, body = modern_call("add", a=1, b=2)
    pairs = [
        (name.lower().encode(), value.encode()) for name, value in {"Host": "localhost", **headers, **changes}.items()
    ]
    scope = {"type": "http", "method": "POST", "path": path, "root_path": root_path, "headers": pairs}
    return scope, json.dumps(body).encode()


# ---------------------------------------------------------------- paths


@pytest.mark.parametrize(
    ("path", "root_path", "status"),
    [
        ("/mcp", "", 200),
        ("/", "", 404),
        ("/mcp/", "", 200),
        ("/other", "", 404),
        ("/mcp/", "/mcp", 200),
        ("/api/tools", "/api/tools", 200),
        ("/api/tools/", "/api/tools", 200),
        ("/", "/api/tools", 200),
        ("", "/api/tools", 200),
        ("/api/tools/more", "/api/tools", 404),
        ("/api/mcp", "/api", 200),
    ],
)
async def test_a_mounted_app_answers_at_its_mount_point_and_a_lone_one_at_its_path(
    path: str, root_path: str, status: int
) -> None:
    """MHTTP-01. Frameworks differ in whether they leave the mount point in `path`."""
    app = make_server(Log()).http_app()
    assert (await through(app, *post_scope(path, root_path)))[0] == status
    await app.stop()


async def test_an_unknown_path_says_where_the_endpoint_is(site: Site) -> None:
    reply = await site.ask(JSON_HEADERS, {}, path="/sse")
    assert reply.status == 404
    assert "/mcp" in reply.json()["error"]["message"]


async def test_a_mounted_app_needs_no_lifespan_of_its_parent() -> None:
    """The hooks run with the first request, once."""
    started: list[str] = []

    async def on_start() -> None:
        await asyncio.sleep(0.01)
        started.append("started")

    server = make_server(Log())
    app = HttpApp(lambda: server.serve, on_start=on_start)
    answers = await asyncio.gather(*(through(app, *post_scope("/mcp")) for _ in range(3)))
    assert ([status for status, _ in answers], started) == ([200, 200, 200], ["started"])


async def test_a_start_that_fails_is_an_error_for_the_caller_and_is_tried_again() -> None:
    tries: list[int] = []

    async def on_start() -> None:
        tries.append(1)
        if len(tries) == 1:
            raise OSError("no database")

    app = HttpApp(lambda: make_server(Log()).serve, on_start=on_start)
    status, body = await through(app, *post_scope("/mcp"))
    assert status == 500
    assert b"database" not in body
    assert (await through(app, *post_scope("/mcp")))[0] == 200


async def test_the_lifespan_of_a_server_runs_the_hooks_in_order() -> None:
    events: list[str] = []

    def hook(name: str) -> Any:
        async def run() -> None:
            events.append(name)

        return run

    hooks = {name: hook(name) for name in ("on_start", "on_drain", "on_stop")}
    app = HttpApp(lambda: make_server(Log()).serve, **hooks)
    messages = iter(["lifespan.startup", "lifespan.shutdown"])

    async def receive() -> Message:
        return {"type": next(messages)}

    async def send(message: Message) -> None:
        events.append(message["type"])

    await app({"type": "lifespan"}, receive, send)
    assert events == ["on_start", "lifespan.startup.complete", "on_drain", "on_stop", "lifespan.shutdown.complete"]


async def test_an_unknown_option_is_named_when_the_app_is_made() -> None:
    with pytest.raises(DefinitionError, match="no option 'colour'"):
        HttpApp(lambda: make_server(Log()).serve, colour="red")  # type: ignore[call-arg]  # the mistake itself


# ---------------------------------------------------------------- the door


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"Host": "evil.example"}, 403),
        ({"Origin": "http://evil.example"}, 403),
        ({"Host": "evil.example", "Origin": "http://evil.example"}, 403),
        ({"Host": "localhost"}, 200),
        ({"Origin": "http://localhost:3000"}, 200),
    ],
)
async def test_foreign_hosts_and_origins_are_refused_by_default(
    site: Site, headers: dict[str, str], status: int
) -> None:
    """LHTTP-29, MHTTP-18."""
    good, body = modern_call("add", a=1, b=2)
    assert (await site.ask({**good, **headers}, body)).status == status
    if status != 200:
        for method in ("GET", "DELETE"):
            assert (await site.ask({"Accept": BOTH_TYPES, **headers}, b"", method)).status == status


async def test_names_and_pages_can_be_allowed() -> None:
    async with serving(make_server(Log()), allowed_hosts=["a.example"], allowed_origins=["https://b.example"]) as site:
        headers, body = modern_call("add", a=1, b=2)
        assert (await site.ask({**headers, "Host": "a.example", "Origin": "https://b.example"}, body)).status == 200


async def test_a_refusal_says_why_in_a_json_rpc_error_without_id_and_once_in_the_log(
    site: Site, caplog: pytest.LogCaptureFixture
) -> None:
    """The operator reads which option to set."""
    good, body = modern_call("add", a=1, b=2)
    error = (await site.ask({**good, "Host": "evil.example"}, body)).json()
    assert "id" not in error
    assert "allowed_hosts" in error["error"]["message"]
    await site.ask({**good, "Host": "evil.example"}, body)
    assert [record.getMessage().count("allowed_hosts") for record in caplog.records] == [1]


@pytest.mark.parametrize(("coding", "status"), [("gzip", 415), ("identity, br", 415), ("Identity", 200)])
async def test_a_body_in_a_coding_is_refused_with_those_that_are_taken(site: Site, coding: str, status: int) -> None:
    headers, body = modern_call("add", a=1, b=2)
    reply = await site.ask({**headers, "Content-Encoding": coding}, body)
    assert (reply.status, reply.headers.get("accept-encoding")) == (status, "identity" if status == 415 else None)


@pytest.mark.parametrize("kind", [None, "text/plain", "application/jsonp", "text/plain; a=application/json"])
@pytest.mark.parametrize("body", [b"", b"{}"])
async def test_only_json_is_taken_even_when_there_is_no_body(site: Site, kind: str | None, body: bytes) -> None:
    headers = {"Accept": BOTH_TYPES} | ({"Content-Type": kind} if kind else {})
    assert (await site.ask(headers, body)).status == 415


@pytest.mark.parametrize(
    ("body", "code", "request_id"),
    [
        (b"", -32700, None),
        (b"{", -32700, None),
        (b'{"jsonrpc":"2.0","id":1,"method":"\xff"}', -32700, 1),
        (b'{"jsonrpc":"2.0","method":"tools/call","params":{"x":"\\ud83d"},"id":"a"}', -32700, "a"),
        (b'{"jsonrpc":"2.0","id":1,"method":"ping","params":{"id":2,"x":NaN}}', -32700, 1),
        (b'{"jsonrpc":"2.0","id":1,"method":"ping","x":NaN,"id":1}', -32700, None),
        (b"[]", -32600, None),
        (b"1", -32600, None),
        (b'{"id":"a","method":"ping"}', -32600, "a"),
        (b'{"jsonrpc":"2.0","id":null,"method":"ping"}', -32600, None),
    ],
)
async def test_what_is_no_message_is_a_400_that_keeps_the_id_where_it_can(
    site: Site, body: bytes, code: int, request_id: Any
) -> None:
    """ERR-01, ERR-02."""
    headers, _ = modern_call("add")
    reply = await site.ask(headers, body)
    assert (reply.status, reply.json()["error"]["code"], reply.json().get("id")) == (400, code, request_id)


async def test_a_body_is_bounded_whether_its_length_is_told_or_not() -> None:
    async with serving(make_server(Log(), limits=Limits(body=1000))) as site:
        headers, body = modern_call("add", a=1, b=2)
        assert (await site.ask({**headers, "Content-Length": "99999999999"}, body)).status == 413
        for _ in range(3):  # the server remembers the head
            assert (await site.ask(headers, b" " * 1001)).status == 413
        wire = await site.call({**headers, "Transfer-Encoding": "chunked", "Content-Length": ABSENT}, b"")
        for _ in range(11):
            wire.writer.write(b"64\r\n" + b" " * 100 + b"\r\n")
        assert (await wire.reply()).status == 413


async def test_a_body_that_comes_in_pieces_is_one_body(site: Site) -> None:
    _, body = post_scope("/mcp")
    headers, _ = modern_call("add", a=1, b=2)
    wire = await site.open()
    await wire.send("POST", {**headers, "Content-Length": str(len(body))}, b"")
    for at in range(0, len(body), 20):
        wire.writer.write(body[at : at + 20])
        await asyncio.sleep(0.002)
    assert text_of((await wire.reply()).json()) == "3"


async def test_a_body_that_never_ends_is_given_up() -> None:
    """Half-sent requests must not be kept for ever."""
    async with serving(make_server(Log()), body_wait=0.2) as site:
        headers, _ = modern_call("add")
        wire = await site.open()
        await wire.send("POST", {**headers, "Content-Length": "100"}, b"{")
        reply = await wire.reply()
        assert (reply.status, reply.headers["connection"]) == (408, "close")


@pytest.mark.parametrize("path", ["/mcp", "/upload"])
async def test_giving_up_a_body_leaves_no_cancellation_in_the_task_of_another_asgi_server(path: str) -> None:
    """Else a timeout that the task enters later would end it."""

    async def receive() -> Message:
        await asyncio.Event().wait()
        raise AssertionError

    async def upload(scope: Scope, receive: Any, send: Any) -> None:
        await receive()

    sent: list[Message] = []

    async def send(message: Message) -> None:
        sent.append(message)

    app = make_server(Log()).http_app(body_wait=0.1, routes={"/upload": upload})
    scope, _ = post_scope("/mcp")
    await app({**scope, "path": path}, receive, send)
    task = asyncio.current_task()
    assert task is not None
    assert (sent[0]["status"], task.cancelling()) == (408, 0)
    await app.stop()


async def test_headers_are_bounded_in_number_and_size(site: Site) -> None:
    """HDR-25: 431."""
    headers, body = modern_call("add", a=1, b=2)
    assert (await site.ask({**headers, **{f"X-{n}": "x" for n in range(120)}}, body)).status == 431
    assert (await site.ask({**headers, "X-Big": "x" * 70_000}, body)).status == 431
    assert (await site.ask({**headers, "X" * 70_000: "x"}, body)).status == 431
    assert (await site.ask({**headers, "X-Same": "x" + "\r\nX-Same: x" * 120}, body)).status == 431


async def test_requests_in_flight_are_bounded_over_all_connections() -> None:
    log = Log()
    async with serving(make_server(log), requests=2) as site:
        wires = [await site.tool("wait", name=name) for name in "ab"]
        await log.until("b begins")
        reply = await (await site.tool("add", a=1, b=2)).reply()
        assert (reply.status, reply.headers["retry-after"]) == (503, "1")
        log.gate.set()
        assert [(await wire.reply()).status for wire in wires] == [200, 200]
        assert (await (await site.tool("add", a=1, b=2)).reply()).status == 200


@pytest.mark.parametrize("era", ["2025", "2026"])
async def test_a_server_with_all_requests_taken_still_says_that_it_lives(era: str) -> None:
    """A full server is not a dead one. The checks themselves are limited, and bring nothing else in."""
    log = Log()
    async with serving(make_server(log), requests=2) as site:
        headers, body = modern("server/discover")
        if era == "2025":
            headers, body = await site.session(), {"jsonrpc": "2.0", "id": 1, "method": "ping"}
        wires = [await site.tool("wait", name=name) for name in "ab"]
        await log.until("b begins")
        data = json.dumps(body).encode()
        for head_first in (False, True):
            wire = await site.open()
            if head_first:
                await wire.send("POST", {**headers, "Content-Length": str(len(data))})
                await asyncio.sleep(0.01)
                wire.writer.write(data)
            else:
                await wire.send("POST", headers, data)
            assert (await wire.reply()).status == 200
        spare = [await site.open() for _ in range(LIVENESS_RESERVE)]
        for wire in spare:
            await wire.send("POST", {**headers, "Content-Length": str(len(data))})
        assert site.app is not None
        while site.app._lives.here().requests.running < 2 + LIVENESS_RESERVE:  # noqa: ASYNC110
            await asyncio.sleep(0.001)
        assert (await site.ask(headers, body)).status == 503
        wire = spare[0]
        wire.writer.write(data)
        assert (await wire.reply()).status == 200
        refused = await (await site.tool("add", 7, a=1, b=2)).reply()
        assert (refused.status, refused.json()["id"]) == (503, 7)
        assert refused.json()["error"]["code"] == Overloaded.code
        batch = await site.ask({**headers, "MCP-Protocol-Version": "2025-03-26"}, [body])
        assert batch.status in (400, 503)
        log.gate.set()
        assert [(await wire.reply()).status for wire in wires] == [200, 200]


def something_came(reader: Any) -> bool:
    return bool(reader.at_eof() or reader._buffer or reader.exception())


@pytest.mark.parametrize("engine", ["gemel", "uvicorn"])
async def test_bodies_that_never_end_have_one_budget_and_keep_no_small_ones_out(engine: Any) -> None:
    """Their bytes do not grow with the connections; who is refused can read why, and comes again."""
    limits = Limits(body=1 << 20, bodies=4 << 20)
    async with serving(make_server(Log(), limits=limits), requests=1000, engine=engine) as site:
        headers, body = modern_call("add", a=1, b=2)
        assert site.app is not None
        life = site.app._lives.here()
        assert life is not None
        half = b"x" * (700 << 10)
        wires = [await site.open() for _ in range(12)]
        for wire in wires:
            await wire.send("POST", {**headers, "Content-Length": str(1 << 20)}, half)
        refused = 0
        async with asyncio.timeout(10):
            while refused < 10:
                for wire in [wire for wire in wires if something_came(wire.reader)]:
                    wires.remove(wire)
                    refused += 1
                    if engine == "gemel":  # another server may reset the connection of a client that still sends
                        reply = await wire.reply()
                        assert (reply.status, reply.headers["retry-after"]) == (503, "1")
                        assert reply.json()["error"]["code"] == Overloaded.code
                assert life.requests.bodies.used <= 2 << 20
                await asyncio.sleep(0.001)
        reply = await site.ask(headers, body)
        assert (reply.status, text_of(reply.json())) == (200, "3")
        for wire in wires:
            wire.abort()
        async with asyncio.timeout(10):
            while life.requests.running:  # noqa: ASYNC110 - nobody tells
                await asyncio.sleep(0.001)
        assert life.requests.bodies.used == 0
        large, _ = modern_call("add", a=1, b=2)
        padded = json.dumps(body).encode() + b" " * (900 << 10)
        assert (await site.ask(large, padded)).status == 200


class Keeping:
    """A server whose calls hold large arguments until the gate opens, whatever becomes of their clients."""

    LARGE = "x" * (900 << 10)

    def __init__(self) -> None:
        self.gate = asyncio.Event()
        self.inside = self.cancelled = 0
        self.server: Server[Any] = Server(
            "keeping", limits=Limits(body=1 << 20, bodies=8 << 20, drain=0.1, teardown=0.1)
        )
        self.server.tool(self.keep)
        self.server.notification("notifications/keep")(self.hear)

    async def keep(self, text: str) -> int:
        """Keep a text."""
        self.inside += 1
        while not self.gate.is_set():
            try:
                await self.gate.wait()
            except asyncio.CancelledError:
                self.cancelled += 1
        self.inside -= 1
        return len(text)

    async def hear(self, ctx: Context[Any], params: Any) -> None:
        await self.keep("")

    async def wait(self, inside: int) -> None:
        async with asyncio.timeout(10):
            while self.inside != inside:  # noqa: ASYNC110 - nobody tells
                await asyncio.sleep(0.001)


def used(site: Site) -> int:
    """Bytes of the shared half of the budget of bodies that are in use."""
    assert site.app is not None
    return site.app._lives.here().requests.bodies.used


async def all_given_back(site: Site) -> None:
    async with asyncio.timeout(10):
        while used(site):  # noqa: ASYNC110 - nobody tells
            await asyncio.sleep(0.001)
    assert used(site) == 0


@pytest.mark.parametrize("engine", ["gemel", "uvicorn"])
async def test_bodies_of_calls_that_wait_count_until_these_are_over(engine: Any) -> None:
    """Else as many large bodies as there may be requests could be held in memory."""
    keeping = Keeping()
    async with serving(keeping.server, requests=1000, engine=engine) as site:
        wires = [await site.tool("keep", n, text=keeping.LARGE) for n in range(2)]
        await keeping.wait(2)
        headers, body = modern_call("keep", text=keeping.LARGE)
        reply = await site.ask(headers, body)
        assert (reply.status, reply.json()["error"]["code"]) == (503, Overloaded.code)
        assert keeping.inside == 2
        keeping.gate.set()
        assert [(await wire.reply()).status for wire in wires] == [200, 200]
        assert (await site.ask(headers, body)).status == 200
        assert (await site.ask(*modern_call("keep", text="small"))).status == 200
        await all_given_back(site)


@pytest.mark.parametrize("engine", ["gemel", "uvicorn"])
@pytest.mark.parametrize("way", ["client left", "cancelled", "deleted", "stateless", "2024"])
async def test_the_body_of_a_call_counts_while_anything_keeps_it(way: str, engine: Any) -> None:
    """A call goes on after its response was lost, and after it was cancelled if its handler resists."""
    keeping = Keeping()
    async with serving(keeping.server, requests=1000, engine=engine, sse_path="/sse") as site:
        headers = await site.session(V2025_06)
        path, body, stream = "/mcp", handshake_call("keep", 7, text=keeping.LARGE), None
        if way == "stateless":
            headers, body = modern_call("keep", 7, text=keeping.LARGE)
        if way == "2024":
            stream = await site.call({"Accept": "text/event-stream"}, b"", "GET", "/sse")
            await stream.head()
            event = await stream.event()
            assert event is not None
            headers, path = {"Content-Type": "application/json"}, event.data.decode()
            assert (await site.ask(headers, initialize(), path=path)).status == 202
            await stream.message()
        wire = await site.call(headers, body, path=path)
        await keeping.wait(1)
        held = used(site)
        assert held > 700 << 10
        if way in ("client left", "stateless"):
            wire.abort()
        elif way == "cancelled":
            cancelled = {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 7}}
            assert (await site.ask(headers, cancelled)).status == 202
        elif way == "deleted":
            assert (await site.ask(headers, b"", "DELETE")).status == 204
            assert (await wire.reply()).json()["error"]["code"] == NotFinished.code
        elif way == "2024":
            assert (await wire.reply()).status == 202
            assert stream is not None
            stream.abort()
        assert site.app is not None
        try:
            async with asyncio.timeout(10):
                while site.app.calls if way == "client left" else not keeping.cancelled:  # noqa: ASYNC110
                    await asyncio.sleep(0.001)
            assert used(site) == held
        finally:
            keeping.gate.set()
        await keeping.wait(0)
        await all_given_back(site)


@pytest.mark.parametrize("way", ["cancelled", "deleted", "stateless", "2024"])
async def test_the_body_of_a_call_counts_while_a_function_in_a_thread_keeps_it(way: str) -> None:
    """Of two calls that are given up, one runs, and counts until it returns; the other waits for a thread, and counts no more."""
    gate, inside = threading.Event(), list[int]()
    server: Server[Any] = Server("keeping", limits=Limits(body=1 << 20, bodies=8 << 20, threads=1))

    @server.tool
    def keep(text: str) -> int:
        inside.append(len(text))
        gate.wait(30)
        return len(text)

    async with serving(server, requests=1000, sse_path="/sse") as site:
        try:
            headers, path, stream = await site.session(V2025_06), "/mcp", None
            if way == "2024":
                stream = await site.call({"Accept": "text/event-stream"}, b"", "GET", "/sse")
                await stream.head()
                event = await stream.event()
                assert event is not None
                headers, path = {"Content-Type": "application/json"}, event.data.decode()
                assert (await site.ask(headers, initialize(), path=path)).status == 202
                await stream.message()
            wires, held = [], [0]
            for number in (7, 8):
                body = handshake_call("keep", number, text=Keeping.LARGE)
                if way == "stateless":
                    headers, body = modern_call("keep", number, text=Keeping.LARGE)
                wires.append(await site.call(headers, body, path=path))
                async with asyncio.timeout(10):
                    while used(site) < held[-1] + (700 << 10) or not inside:  # noqa: ASYNC110 - nobody tells
                        await asyncio.sleep(0.001)
                held.append(used(site))
            if way == "cancelled":
                for number in (7, 8):
                    cancelled = {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": number}}
                    assert (await site.ask(headers, cancelled)).status == 202
            elif way == "deleted":
                assert (await site.ask(headers, b"", "DELETE")).status == 204
            elif stream is not None:
                stream.abort()
            else:
                for wire in wires:
                    wire.abort()
            async with asyncio.timeout(10):
                while used(site) != held[1]:  # noqa: ASYNC110 - nobody tells
                    await asyncio.sleep(0.001)
            for _ in range(20):
                await asyncio.sleep(0)
            assert (used(site), len(inside)) == (held[1], 1)
        finally:
            gate.set()
        await all_given_back(site)
        assert len(inside) == 1


async def test_notifications_of_a_session_that_are_being_handled_are_bounded() -> None:
    """They are answered before they are handled, so that no limit of requests counts them."""
    keeping = Keeping()
    keeping.server = Server("hearing", limits=Limits(calls=5))
    keeping.server.notification("notifications/keep")(keeping.hear)
    async with serving(keeping.server) as site:
        session = await site.session()
        for _ in range(30):
            reply = await site.ask(session, {"jsonrpc": "2.0", "method": "notifications/keep"})
            assert reply.status == 202
        await keeping.wait(10)
        assert (await site.ask(session, {"jsonrpc": "2.0", "id": 1, "method": "ping"})).status == 200
        keeping.gate.set()
        await keeping.wait(0)


# ---------------------------------------------------------------- who is it


@pytest.mark.parametrize("plain", [False, True])
async def test_an_authentication_may_refuse_and_comes_after_the_host_check(plain: bool) -> None:
    """Table 4.B rows 1 and 2."""

    def check(scope: Scope, headers: Headers) -> str | Refusal | None:
        if headers.get("authorization") != "Bearer good":
            return Refusal(401, "Who are you?", ((b"www-authenticate", b"Bearer"),))
        return "ada"

    async def authenticate(scope: Scope, headers: Headers) -> str | Refusal | None:
        return check(scope, headers)

    async with serving(make_server(Log()), authenticate=check if plain else authenticate) as site:
        headers, body = modern_call("add", a=1, b=2)
        reply = await site.ask(headers, body)
        assert (reply.status, reply.headers["www-authenticate"]) == (401, "Bearer")
        assert (await site.ask({**headers, "Host": "evil.example"}, body)).status == 403
        assert (await site.ask({**headers, "Authorization": "Bearer good"}, body)).status == 200


@pytest.mark.parametrize("verdict", [False, True, 5, b"ada", {"sub": "ada"}, Principal(7)])  # type: ignore[arg-type]  # a wrong type, on purpose
async def test_what_is_not_a_caller_lets_nobody_in(verdict: Any, caplog: pytest.LogCaptureFixture) -> None:
    async with serving(make_server(Log()), authenticate=lambda scope, headers: verdict) as site:
        headers, body = modern_call("add", a=1, b=2)
        for reply in (await site.ask(headers, body), await site.ask(JSON_HEADERS, initialize())):
            assert (reply.status, reply.json()["error"]["code"]) == (500, -32603)
    assert "authenticate returned" in caplog.text


# ---------------------------------------------------------------- health


async def test_a_server_of_its_own_tells_that_it_lives_and_whether_it_takes_work(site: Site) -> None:
    assert (await site.ask({"Host": "pod.example"}, b"", "GET", "/livez")).status == 200
    assert (await site.ask({"Host": "pod.example"}, b"", "GET", "/readyz")).status == 200
    assert site.app is not None
    await site.app.stop()
    assert (await site.ask({}, b"", "GET", "/livez")).status == 200
    assert (await site.ask({}, b"", "GET", "/readyz")).status == 503
    reply = await site.ask(JSON_HEADERS, handshake_call("add", "x", a=1, b=2))
    assert (reply.status, reply.json()["id"]) == (503, "x")


async def test_a_mounted_app_has_no_health_pages() -> None:
    app = make_server(Log()).http_app()
    scope = {"type": "http", "method": "GET", "path": "/livez", "root_path": "", "headers": [(b"host", b"localhost")]}
    assert (await through(app, scope))[0] == 404
    await app.stop()


async def test_a_half_sent_request_does_not_hold_the_stop(site: Site) -> None:
    headers, _ = modern_call("add")
    wire = await site.open()
    await wire.send("POST", {**headers, "Content-Length": "100"}, b"{")
    await asyncio.sleep(0.05)
    assert site.app is not None
    async with asyncio.timeout(1):
        await site.app.stop()
    assert (await wire.reply()).status == 503


@pytest.mark.parametrize("reset", [False, True])
async def test_a_connection_cut_anywhere_in_a_request_hurts_nobody(site: Site, reset: bool) -> None:
    """The server goes on, and nothing is left running."""
    scope, body = post_scope("/mcp")
    head = b"".join(b"%b: %b\r\n" % pair for pair in scope["headers"])
    request = b"POST /mcp HTTP/1.1\r\n%bContent-Length: %d\r\n\r\n%b" % (head, len(body), body)
    for length in range(0, len(request) + 1, 5):
        wire = await site.open()
        wire.writer.write(request[:length])
        if reset:
            await wire.writer.drain()
            wire.abort()
        else:
            wire.close()
    assert text_of((await (await site.tool("add", a=1, b=2)).reply()).json()) == "3"
    assert site.app is not None
    async with asyncio.timeout(1):
        await site.app.stop()
