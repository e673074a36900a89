"""HTTP requests to an endpoint of MCP: methods, headers, sessions, bodies, framing, event streams."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping

from tests.hostile.cases import (
    CLAIM,
    HEADER_MISMATCH,
    INVALID_PARAMS,
    INVALID_REQUEST,
    META,
    METHOD_NOT_FOUND,
    PARSE_ERROR,
    REVISION_2025,
    REVISION_2026,
    UNSUPPORTED_VERSION,
    Json,
    Raw,
    label,
    request,
    table,
    unique,
)

#: A stateless call of a tool, and the headers that mirror it.
CALL = request("tools/call", {"name": "add", "arguments": {"a": 1, "b": 2}}, "2026")
LIST = request("tools/list", {}, "2026")
MODERN: dict[str, str | None] = {"MCP-Protocol-Version": REVISION_2026, "Mcp-Method": "tools/call", "Mcp-Name": "add"}
LISTING: dict[str, str | None] = {"MCP-Protocol-Version": REVISION_2026, "Mcp-Method": "tools/list"}
#: The headers of a session of the handshake era.
SESSION: dict[str, str | None] = {"Mcp-Session-Id": "@SESSION@", "MCP-Protocol-Version": REVISION_2025}
PING = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "ping"}).encode()
INITIALIZE: Json = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "initialize",
    "params": {"protocolVersion": REVISION_2025, "capabilities": {}, "clientInfo": {"name": "x", "version": "1"}},
}
EVENTS: dict[str, str | None] = {"Accept": "text/event-stream", "Content-Type": None}
ANY_REFUSAL = (400, 403, 404, 405, 406, 411, 413, 414, 415, 417, 431, 501, 505)


def post(name: str, headers: Mapping[str, str | None], body: bytes, *status: int, code: int = 0) -> Raw:
    """Return a case that is a POST."""
    return Raw(name, ("POST", headers, body), status, (code,) if code else ())


# ---------------------------------------------------------------- methods


def methods() -> Iterator[Raw]:
    """The endpoint has POST, GET and DELETE."""
    for method in ("PUT", "PATCH", "OPTIONS", "TRACE", "HEAD", "PROPFIND", "post", "Post", "GETX", "X" * 50):
        yield Raw(f"method {method}", (method, SESSION, b""), (400, 405, 501))
    yield Raw("GET without a session", ("GET", EVENTS, b""), (400, 405))
    yield Raw("DELETE without a session", ("DELETE", {}, b""), (400, 405))
    yield Raw("GET in the stateless era", ("GET", {**EVENTS, "MCP-Protocol-Version": REVISION_2026}, b""), (400, 405))
    yield Raw("DELETE in the stateless era", ("DELETE", {"MCP-Protocol-Version": REVISION_2026}, b""), (400, 405))
    for session in ("nope", "x" * 1000, "1", "00000000-0000-0000-0000-000000000000"):
        headers = {**EVENTS, **SESSION, "Mcp-Session-Id": session}
        yield Raw(f"GET with the session {label(session)}", ("GET", headers, b""), (404,))
        yield Raw(f"DELETE with the session {label(session)}", ("DELETE", {"Mcp-Session-Id": session}, b""), (404,))
    for accept in ("application/json", "text/html", "text/plain, application/json"):
        yield Raw(f"GET that accepts {accept}", ("GET", {**EVENTS, **SESSION, "Accept": accept}, b""), (406,))
    for path in (
        "/",
        "/mc",
        "/mcp/x",
        "/MCP",
        "//mcp",
        "/mcp%00",
        "/%6dcp/..",
        "/mcp;x",
        "/../mcp",
        "/mcp/../../etc/passwd",
    ):
        text = f"POST {path} HTTP/1.1\r\nHost: @HOST@\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
        yield Raw(f"path {path}", text.encode(), (400, 404))


# ---------------------------------------------------------------- headers


def content_types() -> Iterator[Raw]:
    """A POST is JSON."""
    for kind in (
        *("text/plain", "text/json", "application/xml", "application/x-www-form-urlencoded", "multipart/form-data"),
        *("application/jsonx", "application", "json", "*/*", "", "application/json-rpc", "application/octet-stream"),
    ):
        yield post(f"content type {kind!r}", {**MODERN, "Content-Type": kind}, CALL, 415)
    yield post("no content type", {**MODERN, "Content-Type": None}, CALL, 400, 415)
    for kind in (
        "application/json; charset=utf-8",
        "APPLICATION/JSON",
        "application/json;charset=UTF-8",
        "application/json ;x=y",
    ):
        yield post(f"content type {kind!r} is valid", {**MODERN, "Content-Type": kind}, CALL, 200)


def accepts() -> Iterator[Raw]:
    """A client of a POST accepts JSON and event streams."""
    for accept in ("text/html", "image/*", "application/xml", "text/plain", "application/jsonx"):
        yield post(f"accept {accept!r}", {**MODERN, "Accept": accept}, CALL, 406)
    for accept in (
        *("*/*", "application/json, text/event-stream", "application/*, text/*", "text/event-stream,application/json"),
        *("APPLICATION/JSON, TEXT/EVENT-STREAM", "application/json;q=0.9, text/event-stream;q=0.1", " */* "),
    ):
        yield post(f"accept {accept!r} is valid", {**MODERN, "Accept": accept}, CALL, 200)


def sites() -> Iterator[Raw]:
    """Requests of foreign sites are refused, before anything else is looked at ("Security warning")."""
    for origin in (
        *("http://evil.example", "https://evil.example:443", "null", "http://localhost.evil.example", "file://"),
        *("http://127.0.0.1.evil.example", "http://evil.example/@127.0.0.1", "x", "http://", "javascript:alert(1)"),
    ):
        yield post(f"origin {origin}", {**MODERN, "Origin": origin}, CALL, 403)
        yield post(f"origin {origin} and not JSON", {"Origin": origin, "Content-Type": "text/plain"}, b"{", 403)
    for host in (
        "evil.example",
        "evil.example:80",
        "127.0.0.1.evil.example",
        "localhost.evil.example",
        "0x7f.1",
        "[::2]",
    ):
        yield post(f"host {host}", {**MODERN, "Host": host}, CALL, 403, 421)
    for host in ("", " ", "a b", "a/b", "a,b", "127.0.0.1:x", "@127.0.0.1"):
        yield post(f"host {host!r} that is malformed", {**MODERN, "Host": host}, CALL, 400, 403)


def versions() -> Iterator[Raw]:
    """The header has the revision of the claim; the claim decides the era."""
    for version in (
        "",
        "1",
        "2031-01-01",
        "2026-7-28",
        "2026-07-28x",
        "DRAFT",
        "x" * 500,
        "2026-07-28, 2026-07-28",
        "null",
    ):
        yield post(f"version header {label(version)}", {**MODERN, "MCP-Protocol-Version": version}, CALL, 400)
    for version in ("2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"):
        headers = {**MODERN, "MCP-Protocol-Version": version}
        yield post(f"version header {version} with a claim", headers, CALL, 400, code=HEADER_MISMATCH)
    yield post(
        "a claim without version header", {**MODERN, "MCP-Protocol-Version": None}, CALL, 400, code=HEADER_MISMATCH
    )
    unknown = request("tools/list", {"_meta": {f"{META}protocolVersion": "2031-01-01"}}, "2026")
    headers = {**LISTING, "MCP-Protocol-Version": "2031-01-01"}
    yield post("a claim and a header of an unknown revision", headers, unknown, 400, code=UNSUPPORTED_VERSION)
    for value in table(None, 5, True, [], {}):
        text = request("tools/list", {"_meta": {f"{META}protocolVersion": value}}, "2026")
        yield post(f"a claim of {label(value)}", LISTING, text, 400, code=INVALID_PARAMS)
    bare = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/list"}).encode()
    yield post("the header of the stateless era without a claim", LISTING, bare, 400, code=INVALID_PARAMS)
    yield post("neither claim nor session", {}, bare, 400, code=INVALID_REQUEST)
    for version in ("2031-01-01", "x", "2026-07-28"):
        headers = {**SESSION, "MCP-Protocol-Version": version}
        yield post(f"a session with the version header {version}", headers, PING, 400)


def mirrors() -> Iterator[Raw]:
    """`Mcp-Method` and `Mcp-Name` repeat what the body has ("Standard headers")."""
    for method in (
        None,
        "",
        "tools/list",
        "TOOLS/CALL",
        "tools/call ",
        "tools/call,tools/call",
        "x" * 5000,
        "tools%2Fcall",
    ):
        wanted = (200,) if method == "tools/call " else (400, 431)
        yield Raw(f"Mcp-Method {label(method)}", ("POST", {**MODERN, "Mcp-Method": method}, CALL), wanted)
    for name in (
        None,
        "",
        "echo",
        "ADD",
        "add,add",
        "ad",
        "addd",
        "=?base64?",
        "=?base64?????=",
        "=?base64?ZWNobw==?=",
        "%61dd",
    ):
        headers = {**MODERN, "Mcp-Name": name}
        yield post(f"Mcp-Name {label(name)}", headers, CALL, 400, code=HEADER_MISMATCH)
    yield post("Mcp-Name in Base64", {**MODERN, "Mcp-Name": "=?base64?YWRk?="}, CALL, 200)
    yield post("Mcp-Name where there is none", {**LISTING, "Mcp-Name": "add"}, LIST, 200, 400)
    for header in ("MCP-Protocol-Version", "Mcp-Method", "Mcp-Name"):
        value = MODERN[header]
        text = "".join(f"{name}: {item}\r\n" for name, item in MODERN.items())
        twice = f"POST @PATH@ HTTP/1.1\r\nHost: @HOST@\r\nContent-Type: application/json\r\n{text}{header}: {value}\r\n"
        twice += f"Accept: */*\r\nConnection: close\r\nContent-Length: {len(CALL)}\r\n\r\n"
        yield Raw(f"{header} twice", twice.encode() + CALL, (400,))
    for method, status, code in (
        ("nope", 404, METHOD_NOT_FOUND),
        ("ping", 404, METHOD_NOT_FOUND),
        ("initialize", 404, METHOD_NOT_FOUND),
    ):
        headers = {"MCP-Protocol-Version": REVISION_2026, "Mcp-Method": method}
        yield post(f"the method {method} in the stateless era", headers, request(method, {}, "2026"), status, code=code)


def sessions() -> Iterator[Raw]:
    """A session of the handshake era is known by its id, which the server chose."""
    yield post("a session", SESSION, PING, 200)
    for identity in ("nope", "x" * 1000, "0", "@SESSION@x", "../@SESSION@"):
        yield post(f"the session {label(identity)}", {**SESSION, "Mcp-Session-Id": identity}, PING, 404)
    for identity in ("", "a b", "☃".encode().decode("latin-1"), "\x7f", "@SESSION@, @SESSION@"):
        yield post(
            f"the session {label(identity)} that is malformed", {**SESSION, "Mcp-Session-Id": identity}, PING, 400, 404
        )
    yield post("initialize in a session", SESSION, json.dumps(INITIALIZE).encode(), 200, 400, 404)
    yield post(
        "a session in capitals", {"MCP-SESSION-ID": "@SESSION@", "MCP-Protocol-Version": REVISION_2025}, PING, 200
    )
    yield post("a session and a claim", {**SESSION, **MODERN}, CALL, 200, 400)
    note = json.dumps({"jsonrpc": "2.0", "method": "notifications/roots/list_changed"}).encode()
    yield post("a notification in a session", SESSION, note, 202)
    yield post("a notification without a session", {}, note, 400)
    answer = json.dumps({"jsonrpc": "2.0", "id": "none", "result": {}}).encode()
    yield post("a response in a session", SESSION, answer, 202, 400)
    yield post("a response without a session", {}, answer, 400)
    for event in ("nope", "x" * 2000, "0", "-1", "1,2", "☃".encode().decode("latin-1")):
        headers = {**EVENTS, **SESSION, "Last-Event-ID": event}
        yield Raw(f"resuming after the event {label(event)}", ("GET", headers, b""), (400, 404, 410))
    for field, value in (("method", "notifications/initialized"), ("method", "tools/list")):
        body = json.dumps({**INITIALIZE, field: value}).encode()
        yield post(f"{value} as the first message", {}, body, 400)


# ---------------------------------------------------------------- bodies


def bodies() -> Iterator[Raw]:
    """What is not a request is refused with a parse error or an invalid request."""
    for text in (
        b"",
        b" ",
        b"\n",
        b"{",
        b"nonsense",
        b"{}{}",
        b"\xff",
        b"\xef\xbb\xbf" + LIST,
        LIST[:-1],
        LIST + b"x",
        b"\x00",
    ):
        yield post(f"the body {text[:20]!r} of {len(text)}", LISTING, text, 400, code=PARSE_ERROR)
    for text in (
        b"null",
        b"5",
        b'"x"',
        b"[]",
        b"[" + LIST + b"]",
        b"{}",
        b'{"jsonrpc":"2.0"}',
        b'{"jsonrpc":"2.0","id":1,"result":{}}',
    ):
        yield post(f"the body {text[:40]!r}", LISTING, text, 400, code=INVALID_REQUEST)
    for size in (1024 * 1024 + 1, 3 * 1024 * 1024):
        yield post(f"a body of {size} bytes", LISTING, b" " * (size - len(LIST)) + LIST, 413, 0)
    yield post("a body of spaces below the limit", LISTING, b" " * 500_000 + LIST, 200)
    for encoding in ("gzip", "deflate", "br", "zstd", "identity, gzip", "x"):
        yield post(f"content encoding {encoding}", {**LISTING, "Content-Encoding": encoding}, LIST, 400, 415, 200)


def framing() -> Iterator[Raw]:
    """Framing that two readers could understand in two ways is refused (RFC 9112, 6.3 and 11.2)."""
    start = "POST @PATH@ HTTP/1.1\r\nHost: @HOST@\r\nContent-Type: application/json\r\nAccept: */*\r\n"
    start += "".join(f"{name}: {value}\r\n" for name, value in LISTING.items())
    size = f"Content-Length: {len(LIST)}\r\n"
    chunked = b"%x\r\n%b\r\n0\r\n\r\n" % (len(LIST), LIST)

    def raw(name: str, headers: str, body: bytes, *status: int) -> Raw:
        return Raw(name, f"{start}{headers}\r\n".encode("latin-1") + body, status)

    yield raw("chunked", "Transfer-Encoding: chunked\r\nConnection: close\r\n", chunked, 200)
    yield raw("Connection: close", f"{size}Connection: close\r\n", LIST, 200)
    for name, headers, body in (
        ("length and chunked", f"{size}Transfer-Encoding: chunked\r\n", chunked),
        ("chunked and length", f"Transfer-Encoding: chunked\r\n{size}", chunked),
        ("two lengths", f"{size}Content-Length: 5\r\n", LIST),
        ("two equal lengths in one", f"Content-Length: {len(LIST)}, 5\r\n", LIST),
        ("a negative length", "Content-Length: -5\r\n", LIST),
        ("a length with a sign", f"Content-Length: +{len(LIST)}\r\n", LIST),
        ("a length in hexadecimal", f"Content-Length: 0x{len(LIST):x}\r\n", LIST),
        ("a length with an underscore", "Content-Length: 1_0\r\n", LIST),
        ("a length that is text", "Content-Length: x\r\n", LIST),
        ("an empty length", "Content-Length: \r\n", LIST),
        ("a length in Arabic digits", "Content-Length: \xd9\xa1\r\n", LIST),
        ("a huge length", "Content-Length: 99999999999999999999999\r\n", LIST),
        ("a length with spaces within", "Content-Length: 1 0\r\n", LIST),
        ("gzip, chunked", "Transfer-Encoding: gzip, chunked\r\n", chunked),
        ("chunked twice", "Transfer-Encoding: chunked, chunked\r\n", chunked),
        ("chunked, identity", "Transfer-Encoding: chunked, identity\r\n", chunked),
        ("identity", "Transfer-Encoding: identity\r\n", chunked),
        ("xchunked", "Transfer-Encoding: xchunked\r\n", chunked),
        ("chunked with a vertical tab", "Transfer-Encoding: \x0bchunked\r\n", chunked),
        ("chunked in quotes", 'Transfer-Encoding: "chunked"\r\n', chunked),
        ("a space before the colon", f"Transfer-Encoding : chunked\r\n{size}", chunked),
        ("a folded header", f"{size}X-Folded: a\r\n b\r\n", LIST),
        ("a header line without colon", f"{size}X-None\r\n", LIST),
        ("a header line with an empty name", f"{size}: x\r\n", LIST),
        ("a header name with a space", f"{size}X Y: x\r\n", LIST),
        ("a header name with brackets", f"{size}X(Y): x\r\n", LIST),
        ("a NUL in a header", f"{size}X-Nul: a\x00b\r\n", LIST),
        ("a bare CR in a header", f"{size}X-Cr: a\rb\r\n", LIST),
        ("two hosts", f"{size}Host: evil.example\r\n", LIST),
    ):
        yield raw(name, headers, body, *ANY_REFUSAL, 0)
    head = "Transfer-Encoding: chunked\r\n"
    for name, body in (
        ("a chunk size that is text", b"x\r\nab\r\n0\r\n\r\n"),
        ("an empty chunk size", b"\r\nab\r\n0\r\n\r\n"),
        ("a negative chunk size", b"-1\r\nab\r\n0\r\n\r\n"),
        ("a chunk size with 0x", b"0x5\r\nabcde\r\n0\r\n\r\n"),
        ("a chunk size with a sign", b"+5\r\nabcde\r\n0\r\n\r\n"),
        ("a chunk size with an underscore", b"1_0\r\nabcdeabcdeabcdef\r\n0\r\n\r\n"),
        ("a huge chunk size", b"ffffffffffffffffffff\r\nab\r\n0\r\n\r\n"),
        ("a chunk that is longer than its size", b"2\r\nabcdef\r\n0\r\n\r\n"),
        ("a chunk that is shorter than its size", b"5\r\nab\r\n0\r\n\r\n"),
        ("a chunk without CRLF", b"2\r\nab0\r\n\r\n"),
        ("a chunk extension without end", b"2;" + b"x" * 100_000 + b"\r\nab\r\n0\r\n\r\n"),
        ("a chunk with a bare LF", b"2\nab\n0\n\n"),
    ):
        yield raw(name, head, body, *ANY_REFUSAL, 0)
    yield raw(
        "chunked to more than the limit", head, b"100000\r\n" + b" " * 0x100000 + b"\r\n5\r\n     \r\n0\r\n\r\n", 413, 0
    )
    yield raw("no length and no chunks", "", b"", 400, 411)
    yield raw("Expect: 100-continue", f"{size}Expect: 100-continue\r\nConnection: close\r\n", LIST, 200)
    yield raw("Expect: 200-ok", f"{size}Expect: 200-ok\r\nConnection: close\r\n", LIST, 200, 417)
    yield raw(
        "Upgrade: h2c",
        f"{size}Connection: close, Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAA\r\n",
        LIST,
        200,
    )
    yield raw("Upgrade: websocket", f"{size}Connection: close, Upgrade\r\nUpgrade: websocket\r\n", LIST, 200, 400)
    yield raw(
        "100 unknown headers",
        size + "".join(f"X-{n}: {n}\r\n" for n in range(90)) + "Connection: close\r\n",
        LIST,
        200,
        431,
    )
    yield raw("5,000 headers", size + "".join(f"X-{number}: x\r\n" for number in range(5000)), LIST, 431, 400, 0)
    yield raw("a header of 200,000 bytes", f"{size}X-Long: {'x' * 200_000}\r\n", LIST, 431, 400, 0)
    yield raw("a header name of 100,000 bytes", f"{size}{'X' * 100_000}: x\r\n", LIST, 431, 400, 0)


def request_lines() -> Iterator[Raw]:
    """The first line of a request (RFC 9112, 3)."""
    rest = "Host: @HOST@\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
    for line in (
        *(
            "POST @PATH@",
            "POST",
            "POST  @PATH@  HTTP/1.1",
            " POST @PATH@ HTTP/1.1",
            "POST\t@PATH@\tHTTP/1.1",
            "@PATH@ HTTP/1.1",
        ),
        *(
            "POST @PATH@ HTTP/1.1 x",
            "POST @PATH@ HTTP/1.10",
            "POST @PATH@ HTTP/11",
            "POST @PATH@ http/1.1",
            "POST @PATH@ HTTP/x",
        ),
        *(
            "POST @PATH@ HTTP/2.0",
            "POST @PATH@ HTTP/3.0",
            "POST @PATH@ HTTP/0.9",
            "POST @PATH@ HTTPS/1.1",
            "P(ST @PATH@ HTTP/1.1",
        ),
        *(
            "POST mcp HTTP/1.1",
            "POST * HTTP/1.1",
            "CONNECT evil.example:80 HTTP/1.1",
            "GET http://evil.example/ HTTP/1.1",
        ),
        *(
            "POST @PATH@\x00 HTTP/1.1",
            "POST /\x7f HTTP/1.1",
            "\r\n\r\n\r\nPOST x HTTP/1.1",
            "\x16\x03\x01\x02\x00\x01",
            "PRI * HTTP/2.0",
        ),
    ):
        yield Raw(f"the request line {line!r}", f"{line}\r\n{rest}".encode("latin-1"), (*ANY_REFUSAL, 0))
    yield Raw(
        "a request line of 100,000 bytes", f"POST /{'x' * 100_000} HTTP/1.1\r\n{rest}".encode(), (400, 404, 414, 431, 0)
    )
    yield Raw("no host", b"POST @PATH@ HTTP/1.1\r\nContent-Length: 0\r\nConnection: close\r\n\r\n", (400, 403))
    yield Raw("only LF", b"POST @PATH@ HTTP/1.1\nHost: @HOST@\nContent-Length: 0\n\n", (400, 415, 0))
    for data in (b"\x00" * 100, b"\xff" * 100, b"{}\r\n\r\n", LIST + b"\r\n\r\n", b"\r\n" * 1000 + b"x\r\n\r\n"):
        yield Raw(f"the bytes {data[:16]!r} of {len(data)}", data + b"\r\n\r\n", (400, 501, 505, 0))


def requests() -> list[Raw]:
    """Return all requests."""
    tables = (*(methods, content_types, accepts, sites, versions, mirrors, sessions, bodies, framing, request_lines),)
    assert CLAIM
    return unique(case for make in tables for case in make())
