"""Who may use `gemel dev`: the token and its cookie, Host, Origin, what a page may load, and bounds."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import AsyncIterator
from typing import Any

import pytest

from gemel import Server, StartError
from gemel.dev.access import Access
from gemel.dev.commands import read_command
from tests.dev.program import Program, Reply, inspecting, target_of

POLICY = {
    "default-src": "'none'",
    "script-src": "'self'",
    "style-src": "'self'",
    "img-src": "'self' data: blob:",
    "media-src": "data: blob:",
    "connect-src": "'self'",
    "base-uri": "'none'",
    "form-action": "'none'",
    "frame-ancestors": "'none'",
}


@pytest.fixture
async def program() -> AsyncIterator[Program]:
    server = Server("shop")

    @server.tool
    def add(a: int, b: int) -> int:
        return a + b

    async with inspecting(target_of(server)) as program:
        yield program


async def browse(program: Program) -> str:
    """Open the printed address as a browser does; returns the Cookie header."""
    reply = await program.ask("GET", f"/?token={program.token}", {})
    assert reply.status == 303
    cookie: str = reply.headers["set-cookie"].partition(";")[0]
    return cookie


async def test_the_token_is_exchanged_for_a_cookie(program: Program) -> None:
    reply = await program.ask("GET", f"/?token={program.token}", {})
    assert reply.status == 303
    assert reply.headers["location"] == "/"
    pair, *flags = [part.strip() for part in reply.headers["set-cookie"].split(";")]
    name, _, value = pair.partition("=")
    assert name == f"gemel_dev_{program.port}"
    assert len(value) >= 32
    assert program.token not in value
    assert set(flags) == {"HttpOnly", "SameSite=Strict", "Path=/"}
    assert (await program.ask("GET", "/api/state", {"Cookie": pair})).status == 200
    assert (await program.ask("GET", "/api/state", {"Cookie": f"other=1; {pair}; more=2"})).status == 200


@pytest.mark.parametrize(
    "jar",
    [
        'theme={"dark":true}; %s',
        "note=hello world; %s",
        "flag; %s",
        "a@b=1; %s",
        "name=é; %s",
        '"=;;=x; a="b; %s',
        "%s; $Version=1; {}",
        "gemel_dev_{port}=of-another-path; %s",
    ],
)
async def test_cookies_of_other_programs_do_not_matter(program: Program, jar: str) -> None:
    """Browsers send the cookies of a host to all its ports."""
    cookie = jar.replace("{port}", str(program.port)) % await browse(program)
    assert (await program.ask("GET", "/api/state", {"Cookie": cookie})).status == 200


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"Cookie": "gemel_dev_1=x"},
        {"Cookie": "gemel_dev_{port}=wrong"},
        {"Cookie": "gemel_dev_{port}={token}"},
        {"Authorization": "Bearer wrong"},
        {"Authorization": "Basic {token}"},
        {"Authorization": "Bearer "},
    ],
)
@pytest.mark.parametrize("path", ["/", "/page/main.js", "/api/state", "/api/events", "/api/messages/1", "/api/export"])
async def test_everything_needs_the_cookie_or_the_token(program: Program, path: str, headers: dict[str, str]) -> None:
    filled = {name: value.format(port=program.port, token=program.token) for name, value in headers.items()}
    reply = await program.ask("GET", path, filled)
    assert reply.status == 401
    assert reply.headers["content-type"].startswith("text/plain")
    assert b"address" in reply.body
    assert program.token.encode() not in reply.body


async def test_a_wrong_token_gets_no_cookie(program: Program) -> None:
    for path in ("/?token=wrong", "/?token=", f"/api/state?token={program.token}", f"/?token={program.token[:-1]}"):
        reply = await program.ask("GET", path, {})
        assert reply.status == 401
        assert "set-cookie" not in reply.headers


async def test_an_address_for_a_browser_works_once() -> None:
    access = Access("127.0.0.1", 5)
    token = access.address_for_once().partition("token=")[2]
    assert token != access.token
    assert access.exchange(token) is not None
    assert access.exchange(token) is None
    assert access.exchange(access.token) is not None
    assert access.exchange(access.token) is not None


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("127.0.0.1:{port}", 200),
        ("localhost:{port}", 200),
        ("LOCALHOST:{port}", 200),
        ("[::1]:{port}", 200),
        ("127.0.0.1", 403),
        ("127.0.0.1:1", 403),
        ("evil.example:{port}", 403),
        ("127.0.0.1.evil.example:{port}", 403),
        ("192.168.1.7:{port}", 403),
    ],
)
async def test_other_hosts_are_refused(program: Program, host: str, status: int) -> None:
    """Against DNS rebinding: the browser sends the name that another site has given us."""
    headers = {"Host": host.format(port=program.port), "Authorization": f"Bearer {program.token}"}
    assert (await program.ask("GET", "/api/state", headers)).status == status
    reply = await program.ask("GET", f"/?token={program.token}", {"Host": headers["Host"]})
    assert reply.status == (303 if status == 200 else 403)


@pytest.mark.parametrize(
    ("origin", "status"),
    [
        ("http://127.0.0.1:{port}", 200),
        ("http://localhost:{port}", 403),
        ("https://127.0.0.1:{port}", 403),
        ("http://127.0.0.1:1", 403),
        ("http://evil.example", 403),
        ("null", 403),
        ("", 403),
    ],
)
async def test_other_origins_are_refused(program: Program, origin: str, status: int) -> None:
    cookie = await browse(program)
    headers = {"Cookie": cookie, "Origin": origin.format(port=program.port), "Content-Type": "application/json"}
    body = b'{"do": "clear"}'
    assert (await program.ask("POST", "/api/commands", headers, body)).status == status
    assert (await program.ask("GET", "/api/state", headers)).status == status


@pytest.mark.parametrize("kind", [None, "text/plain", "application/x-www-form-urlencoded", "multipart/form-data"])
async def test_bodies_of_forms_are_refused(program: Program, kind: str | None) -> None:
    """A form of another page can send these types without asking."""
    headers = {"Cookie": await browse(program), **({} if kind is None else {"Content-Type": kind})}
    assert (await program.ask("POST", "/api/commands", headers, b'{"do": "clear"}')).status == 403


def policy_of(reply: Reply) -> dict[str, str]:
    parts = [part.strip().partition(" ") for part in reply.headers["content-security-policy"].split(";")]
    return {name: value for name, _, value in parts}


async def test_every_answer_says_what_a_page_may_do(program: Program) -> None:
    own = {"Authorization": f"Bearer {program.token}"}
    replies = [
        await program.ask("GET", "/api/state", own),
        await program.ask("GET", "/api/state", {}),
        await program.ask("GET", "/nothing", own),
        await program.ask("GET", "/api/state", {"Host": "evil.example"}),
        await program.ask("GET", f"/?token={program.token}", {}),
        await program.post({"do": "nothing"}),
        await program.ask("PUT", "/api/state", own),
        await program.get("/api/events?wait=0"),
    ]
    assert [reply.status for reply in replies] == [200, 401, 404, 403, 303, 400, 405, 200]
    for reply in replies:
        policy = policy_of(reply)
        assert POLICY.items() <= policy.items()
        assert policy.keys() - POLICY.keys() == {"frame-src"}
        assert reply.headers["x-content-type-options"] == "nosniff"
        assert reply.headers["referrer-policy"] == "no-referrer"
        assert reply.headers["cache-control"] == "no-store"
        assert reply.headers["cross-origin-opener-policy"] == "same-origin"
        assert reply.headers["cross-origin-resource-policy"] == "same-origin"
        assert "access-control-allow-origin" not in reply.headers


@pytest.mark.parametrize(
    "path", ["/page/../app.py", "/page/%2e%2e/app.py", "/page/", "/page", "/page/index.html", "//"]
)
async def test_only_the_files_of_the_page_are_served(program: Program, path: str) -> None:
    assert (await program.get(path)).status == 404


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{}",
        b"[]",
        b"nonsense",
        b'{"do": "nothing"}',
        b'{"do": "cancel"}',
        b'{"do": "cancel", "call": 7}',
        b'{"do": "clear", "more": 1}',
        b'{"do": "connect", "era": "1999"}',
        b'{"do": "call", "era": "2025", "method": "x", "params": []}',
        b'\xff\xfe{"do": "clear"}',
        b'{"do": "call", "era": "2025", "method": "x", "params": ' + b'{"a":' * 100_000 + b"1" + b"}" * 100_000 + b"}",
    ],
)
async def test_wrong_commands_get_one_clear_line(program: Program, body: bytes) -> None:
    reply = await program.post(body)
    assert reply.status == 400
    assert set(reply.json) == {"error"}
    assert reply.json["error"]
    assert "\n" not in reply.json["error"]


async def test_a_body_is_bounded(program: Program) -> None:
    reply = await program.post(b'{"do": "clear"}' + b" " * (8 * 1024 * 1024))
    assert reply.status == 413


async def test_event_streams_are_bounded(program: Program) -> None:
    streams = [program.stream() for _ in range(8)]
    first = [await anext(stream) for stream in streams]
    assert len(first) == 8
    assert (await program.get("/api/events")).status == 429
    await streams[0].aclose()
    async with asyncio.timeout(10):
        while (await program.get("/api/events?wait=0")).status != 200:
            pass
        while True:
            stream = program.stream()
            try:
                await anext(stream)
            except AssertionError:
                continue
            break
    for each in (*streams[1:], stream):
        await each.aclose()


async def test_calls_are_bounded() -> None:
    server = Server("slow")

    @server.tool
    async def wait() -> str:
        await asyncio.Event().wait()
        return ""

    async with inspecting(target_of(server), era="2025") as program:
        await program.ready("2025")
        calls = [await program.call("2025", "tools/call", {"name": "wait"}) for _ in range(100)]
        reply = await program.post({"do": "call", "era": "2025", "method": "ping"})
        assert reply.status == 409
        assert "100 calls" in reply.json["error"]
        await program.do("cancel", call=calls[0])
        await program.ended(calls[0])
        assert await program.result("2025", "ping") == {}


HOSTILE = "<img src=x onerror=alert(1)>\u2028</script>\x1b[31m\u202e"


async def test_hostile_names_and_results_travel_only_as_json() -> None:
    server: Server[Any] = Server(HOSTILE, version=HOSTILE, instructions=HOSTILE)

    @server.tool(description=HOSTILE, title=HOSTILE)
    def show(text: str = HOSTILE) -> str:
        return HOSTILE

    async with inspecting(target_of(server)) as program:
        await program.ready()
        result = await program.result("2025", "tools/call", {"name": "show"})
        assert result["content"][0]["text"] == HOSTILE
        for path in ("/api/state", "/api/events?wait=0"):
            reply = await program.get(path)
            assert reply.headers["content-type"] == "application/json"
            assert HOSTILE in json.dumps(reply.json, ensure_ascii=False).replace("\\u001b", "\x1b")
        events = (await program.get("/api/events?wait=0")).json
        number = next(event["n"] for event in events if event["kind"] == "message")
        assert (await program.get(f"/api/messages/{number}")).headers["content-type"] == "application/json"
        assert (await program.get("/")).headers["content-type"] in (
            "text/html; charset=utf-8",
            "text/plain; charset=utf-8",
        )
        assert HOSTILE.encode() not in (await program.get("/")).body


def scope_of(host: str) -> dict[str, Any]:
    return {"type": "http", "method": "GET", "headers": [(b"host", host.encode())]}


def test_other_machines_reach_it_only_by_the_host_that_was_given() -> None:
    given = Access("dev.example", 5)
    assert given.base == "http://dev.example:5"
    assert given.refuse_site(scope_of("dev.example:5")) is None
    assert given.refuse_site(scope_of("10.1.2.3:5")) is None
    assert given.refuse_site(scope_of("other.example:5")) is not None
    everywhere = Access("0.0.0.0", 5)
    assert everywhere.base == f"http://{socket.gethostname()}:5"
    assert everywhere.refuse_site(scope_of(f"{socket.gethostname()}:5")) is None
    assert everywhere.refuse_site(scope_of("rebound.example:5")) is not None


async def test_the_next_free_port_is_taken() -> None:
    async with inspecting(target_of("http://127.0.0.1:9/mcp"), port=None) as one:
        async with inspecting(target_of("http://127.0.0.1:9/mcp"), port=None) as other:
            assert one.port is not None
            assert other.port is not None
            assert one.port < other.port
            cookie = await browse(one)
            assert (await other.ask("GET", "/api/state", {"Cookie": cookie})).status == 401
        with pytest.raises(StartError, match="in use"):
            async with inspecting(target_of("http://127.0.0.1:9/mcp"), port=one.port):
                pass


@pytest.mark.parametrize("command", [b'{"do": "cal"}', b"{}"])
def test_a_wrong_command_is_told_which_there_are(command: bytes) -> None:
    with pytest.raises(ValueError, match=r"`do` is one of answer, app, .*, call, "):
        read_command(command)
