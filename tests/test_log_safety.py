"""What a log never holds, whoever wrote the text: codes, tokens, control characters, lines that somebody forged."""

from __future__ import annotations

import ast
import io
import logging
import re
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pytest
import uvicorn.logging

from gemel import AccessLog, Client, Context, Server, Tasks
from gemel.errors import LogFilter
from gemel.visible import MAX_LOG_TEXT, escape_log, hidden
from tests.auth.proxy.rig import SECRET, VERIFIER, Browser, query_of, rig
from tests.source import read_package

EVIL = "\x1b[31mEVIL\r\nINFO gemel: FORGED\u2028\u202eX\x9b\u3164\nFORGED"


@pytest.fixture
def log() -> Iterator[io.StringIO]:
    """What a program with logging of its own writes: a handler at the root, Python's formatter."""
    stream, root = io.StringIO(), logging.getLogger()
    handler, level = logging.StreamHandler(stream), root.level
    handler.setFormatter(logging.Formatter("%(levelname)s %(name)s: %(message)s"))
    root.addHandler(handler)
    root.setLevel(logging.DEBUG)
    yield stream
    root.removeHandler(handler)
    root.setLevel(level)


def failing() -> Server[Any]:
    server: Server[Any] = Server("quoting")
    server.add_middleware(AccessLog(params=True))
    server.add_extension(Tasks())

    @server.tool
    def plain(x: str) -> str:
        raise ValueError(x)

    @server.tool
    def caused(x: str) -> str:
        try:
            raise KeyError(x)
        except KeyError as exc:
            error = RuntimeError("no such thing")
            error.add_note(x)
            raise error from exc

    @server.tool
    def several(x: str) -> str:
        raise ExceptionGroup(x, [ValueError(x), TypeError(x)])

    @server.tool
    async def says(x: str, ctx: Context[Any]) -> str:
        logging.getLogger("gemel").warning("a client says %s", x)
        logging.getLogger("gemel").warning("%s failed", ValueError(x))
        return x

    @server.tool(task=True)
    def task(x: str) -> str:
        raise RuntimeError(x)

    @server.resource("r://{x}")
    def page(x: str) -> str:
        raise LookupError(x)

    @server.prompt
    def prompt(x: str) -> str:
        raise OSError(x)

    return server


@pytest.mark.parametrize("era", ["2025", "2026"])
async def test_text_of_clients_neither_controls_the_terminal_nor_forges_lines(log: io.StringIO, era: Any) -> None:
    async with Client(failing(), era=era) as client:
        for name in ("plain", "caused", "several", "says", EVIL):
            with suppress(Exception):
                await client.call_tool(name, {"x": EVIL})
        with suppress(Exception):
            await (await client.call_tool("task", {"x": EVIL}, task=True)).result()
        with suppress(Exception):
            await client.read_resource("r://%1b[31mEVIL%0aFORGED%0D%0AINFO%20gemel:%20FORGED")
        for request in (client.get_prompt("prompt", {"x": EVIL}), client.get_prompt(EVIL), client.request(EVIL, {})):
            with suppress(Exception):
                await request
        await client.notify(f"notifications/{EVIL}", {})
    text = log.getvalue()
    assert text.count("EVIL") > 10
    assert hidden().findall(text) == []
    assert re.findall(r"^(?:INFO gemel: )?FORGED.*", text, re.MULTILINE) == []


async def test_a_login_leaves_no_secret_in_the_log(log: io.StringIO) -> None:
    """By the access log, by debug lines, by refusals; of the client, of the proxy, of the provider."""
    async with rig(access_log=True) as site:
        client_id, browser = await site.register(), Browser()
        answer = await site.login(client_id, browser)
        given = {**answer, **(await site.tokens(client_id))}
        await site.call(given["access_token"])
        await site.call(given["access_token"] + "x")
        await site.exchange_code(client_id, answer["code"], code_verifier="a-wrong-verifier-that-nobody-should-see")
        await site.refresh(client_id, given["refresh_token"])
        await site.refresh(client_id, given["refresh_token"])
        await site.get("/mcp?access_token=token-in-a-query")
        await site.get("/auth/callback?code=unknown-code&state=unknown-state")
        urls = [query_of(url) for url in browser.visited]
        cookies = [value for jar in browser.cookies.values() for value in jar.values()]
    secrets = {
        *("a-wrong-verifier-that-nobody-should-see", "token-in-a-query", "unknown-code", "unknown-state"),
        *(given[name] for name in ("code", "state", "access_token", "refresh_token")),
        *(one[name] for one in urls for name in ("code", "state", "request") if name in one),
        *(SECRET, VERIFIER),
        *site.idp.tokens,
        *cookies,
    }
    text = log.getvalue()
    assert "/auth/callback?…" in text
    assert len(secrets) > 8
    assert [secret for secret in secrets if secret in text] == []


@pytest.mark.parametrize(
    ("text", "safe"),
    [
        ("GET https://x.example/cb?code=abc&state=d-e&page=2", "GET https://x.example/cb?code=…&state=…&page=2"),
        ("grant_type=refresh_token&refresh_token=abc", "grant_type=refresh_token&refresh_token=…"),
        ('{"access_token": "abc", "token_type": "Bearer"}', '{"access_token": "…", "token_type": "Bearer"}'),
        ("{'client_secret': 'abc'}", "{'client_secret': '…'}"),
        ("Authorization: Bearer abcDEF123.x_y-z=", "Authorization: Bearer …"),
        ("Authorization: Basic Y2xpZW50OnNlY3JldA==", "Authorization: Basic …"),
        ("redis://:s3cret@10.0.0.1:6379/0 is away", "redis://:…@10.0.0.1:6379/0 is away"),
        ("the token eyJhbGciOiJub25lIn0.eyJzdWIiOiIxIn0.c2ln is bad", "the token … is bad"),
        ("the server ended with exit code=1, state=done", "the server ended with exit code=1, state=done"),
        ("use Bearer authentication", "use Bearer authentication"),
        ("one\ntwo\r\n\x1b[2J", "one\n    two\\r\n    \\x1b[2J"),
        ("Ärger mit 日本語 👩\u200d🚀", "Ärger mit 日本語 👩\u200d🚀"),
    ],
)
def test_what_is_left_out_and_escaped(text: str, safe: str) -> None:
    assert escape_log(text) == safe
    assert escape_log(safe) == safe


@pytest.mark.parametrize(
    "part", ["-eyJ", "eyJabcdefgh.", "\x7f", "Bearer a/", "Basic ", "access_token'", "://a:b", "\n", "é\u200d"]
)
def test_a_long_text_takes_time_in_proportion_to_its_length(part: str) -> None:
    """Callers choose it, as an argument that an error quotes; a time that grew with the square would be minutes here."""
    for length in (MAX_LOG_TEXT, 400_000):
        assert len(escape_log(part * (length // len(part)))) < 6 * MAX_LOG_TEXT


def test_other_records_stay_as_they_are() -> None:
    """Programs group records by their template."""
    record = logging.LogRecord("gemel", logging.INFO, __file__, 1, "%s took %d ms", ("a tool", 5), None)
    assert LogFilter().filter(record)
    assert (record.msg, record.args) == ("%s took %d ms", ("a tool", 5))


def test_an_object_without_text_does_not_break_what_logs_it() -> None:
    class Mute:
        def __str__(self) -> str:
            raise ValueError("no")

    record = logging.LogRecord("gemel", logging.INFO, __file__, 1, "%s", (Mute(),), None)
    assert LogFilter().filter(record)


def test_no_other_logger_is_used() -> None:
    """A filter is not inherited: each logger needs it."""
    names = {
        ast.literal_eval(node.args[0])
        for module in read_package()
        for node in ast.walk(module.tree)
        if isinstance(node, ast.Call) and ast.unparse(node.func).endswith("getLogger")
        if node.args and isinstance(node.args[0], ast.Constant)
    }
    assert names == {"gemel", "gemel.access", "uvicorn.access"}
    for name in ("gemel", "gemel.access"):
        assert any(isinstance(one, LogFilter) for one in logging.getLogger(name).filters)


def test_queries_are_left_out_of_the_log_of_uvicorn() -> None:
    from gemel.transports.http.server.uvicorn import without_query

    arguments = ("127.0.0.1:1", "GET", "/auth/callback?code=abc", "1.1", 200)
    record = logging.LogRecord("uvicorn.access", logging.INFO, __file__, 1, '%s - "%s %s HTTP/%s" %d', arguments, None)
    assert without_query(record)
    text = uvicorn.logging.AccessFormatter('%(client_addr)s "%(request_line)s" %(status_code)s').format(record)
    assert text == '127.0.0.1:1 "GET /auth/callback?… HTTP/1.1" 200 OK'
