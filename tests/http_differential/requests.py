"""Bytes for HTTP servers: requests that are framed in unusual, ambiguous or wrong ways."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple


class Bytes(NamedTuple):
    """What is sent on one connection.

    Attributes:
        name: What is special, unique.
        data: The bytes.
        strict: Whether the specification demands that it is refused (RFC 9112).
    """

    name: str
    data: bytes
    strict: bool = False


#: Follows each case on its connection: whoever sees another request than this one has misread the case.
LAST = b"GET /last HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"
#: What a reader that misses the end of a body takes for a request.
SMUGGLED = b"GET /smuggled HTTP/1.1\r\nHost: a\r\n\r\n"


def _post(headers: str, body: bytes) -> bytes:
    return f"POST /case HTTP/1.1\r\nHost: a\r\n{headers}\r\n".encode("latin-1") + body


def valid() -> Iterator[Bytes]:
    """What all servers understand in the same way."""
    yield Bytes("a GET", b"GET /case HTTP/1.1\r\nHost: a\r\n\r\n")
    yield Bytes("a GET of 1.0", b"GET /case HTTP/1.0\r\nHost: a\r\nConnection: keep-alive\r\n\r\n")
    yield Bytes("a query", b"GET /case?a=b&c HTTP/1.1\r\nHost: a\r\n\r\n")
    yield Bytes("a body", _post("Content-Length: 5\r\n", b"hello"))
    yield Bytes("an empty body", _post("Content-Length: 0\r\n", b""))
    yield Bytes("chunks", _post("Transfer-Encoding: chunked\r\n", b"3\r\nhel\r\n2\r\nlo\r\n0\r\n\r\n"))
    yield Bytes("chunks in capitals", _post("Transfer-Encoding: CHUNKED\r\n", b"A\r\nhellohello\r\n0\r\n\r\n"))
    yield Bytes("chunks with leading zeros", _post("Transfer-Encoding: chunked\r\n", b"005\r\nhello\r\n0\r\n\r\n"))
    yield Bytes("a chunk extension", _post("Transfer-Encoding: chunked\r\n", b"5;a=b\r\nhello\r\n0\r\n\r\n"))
    yield Bytes("a quoted chunk extension", _post("Transfer-Encoding: chunked\r\n", b'5;a="b;c"\r\nhello\r\n0\r\n\r\n'))
    yield Bytes("a trailer", _post("Transfer-Encoding: chunked\r\n", b"5\r\nhello\r\n0\r\nX-Trailer: a\r\n\r\n"))
    yield Bytes("headers without space", _post("Content-Length:5\r\nX:y\r\n", b"hello"))
    yield Bytes("headers with many spaces", _post("Content-Length: \t 5 \t \r\n", b"hello"))
    yield Bytes("an empty header", _post("X-Empty:\r\nContent-Length: 5\r\n", b"hello"))
    yield Bytes("a repeated header", _post("X: 1\r\nX: 2\r\nContent-Length: 5\r\n", b"hello"))
    yield Bytes("high bytes in a header", _post("X: \xe9\r\nContent-Length: 5\r\n", b"hello"))
    yield Bytes("three requests at once", b"GET /case HTTP/1.1\r\nHost: a\r\n\r\n" * 3)
    yield Bytes("an absolute URL", b"GET http://a/case HTTP/1.1\r\nHost: a\r\n\r\n")
    yield Bytes("an encoded path", b"GET /c%61se%20x HTTP/1.1\r\nHost: a\r\n\r\n")
    yield Bytes("an empty line before", b"\r\nGET /case HTTP/1.1\r\nHost: a\r\n\r\n")
    for method in ("HEAD", "OPTIONS", "DELETE", "PUT", "PATCH"):
        yield Bytes(f"the method {method}", f"{method} /case HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n".encode())


def lengths() -> Iterator[Bytes]:
    """Ambiguous lengths: every reader must refuse, or all must agree."""
    chunks = b"5\r\nhello\r\n0\r\n\r\n"
    for value in (
        "-5",
        "+5",
        "0x5",
        "5_0",
        "5 5",
        "5,6",
        "five",
        "",
        "5;",
        "5.0",
        "\x0b5",
        "\xa05",
        "1e1",
        "٥".encode().decode("latin-1"),
    ):
        yield Bytes(
            f"Content-Length {value!r}", _post(f"Content-Length: {value}\r\n", b"hello" + SMUGGLED), strict=True
        )
    yield Bytes("Content-Length '5, 5'", _post("Content-Length: 5, 5\r\n", b"hello"))
    yield Bytes("Content-Length '05'", _post("Content-Length: 05\r\n", b"hello"))
    yield Bytes("a huge Content-Length", _post(f"Content-Length: {'9' * 40}\r\n", b"hello"), strict=True)
    yield Bytes("two different lengths", _post("Content-Length: 5\r\nContent-Length: 0\r\n", SMUGGLED), strict=True)
    yield Bytes(
        "two different lengths, the other order",
        _post("Content-Length: 0\r\nContent-Length: 5\r\n", SMUGGLED),
        strict=True,
    )
    yield Bytes("two equal lengths", _post("Content-Length: 5\r\nContent-Length: 5\r\n", b"hello"))
    yield Bytes("length, then chunks", _post("Content-Length: 4\r\nTransfer-Encoding: chunked\r\n", chunks + SMUGGLED))
    yield Bytes("chunks, then length", _post("Transfer-Encoding: chunked\r\nContent-Length: 4\r\n", chunks + SMUGGLED))
    for value in (
        *(
            "xchunked",
            "chunked, chunked",
            "chunked, identity",
            "identity",
            "identity, chunked",
            "gzip",
            "gzip, chunked",
            "chunked;q=1",
        ),
        *("\x0bchunked", '"chunked"', "chunked\x00", "chunk", " ", ",", "chunked,", ",chunked", "ch unked"),
    ):
        data = _post(f"Transfer-Encoding: {value}\r\n", chunks + SMUGGLED)
        yield Bytes(f"Transfer-Encoding {value!r}", data, strict=value.strip(", ") != "chunked")
        data = _post(f"Content-Length: 5\r\nTransfer-Encoding: {value}\r\n", b"hello" + SMUGGLED)
        yield Bytes(f"Transfer-Encoding {value!r} and a length", data, strict=True)
    for name in (
        "Transfer-Encoding ",
        "Transfer-Encoding\t",
        " Transfer-Encoding",
        "Transfer_Encoding",
        "Transfer-Encoding\x00",
        "X: a\n Transfer-Encoding",
    ):
        yield Bytes(
            f"the header {name!r}", _post(f"Content-Length: 5\r\n{name}: chunked\r\n", b"hello"), strict="_" not in name
        )
    yield Bytes(
        "Transfer-Encoding twice",
        _post("Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n", chunks),
        strict=True,
    )
    yield Bytes("chunks in 1.0", b"POST /case HTTP/1.0\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n" + chunks)
    yield Bytes("a GET with a body", b"GET /case HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhello")


def chunks() -> Iterator[Bytes]:
    """Chunks that are framed wrongly."""
    for name, body in (
        ("no size", b"\r\nhello\r\n0\r\n\r\n"),
        ("a negative size", b"-5\r\nhello\r\n0\r\n\r\n"),
        ("a size with a sign", b"+5\r\nhello\r\n0\r\n\r\n"),
        ("a size with 0x", b"0x5\r\nhello\r\n0\r\n\r\n"),
        ("a size with an underscore", b"0_5\r\nhello\r\n0\r\n\r\n"),
        ("a size that is text", b"g\r\nhello\r\n0\r\n\r\n"),
        ("a size with a space before", b" 5\r\nhello\r\n0\r\n\r\n"),
        ("a huge size", b"fffffffffffffffff5\r\nhello\r\n0\r\n\r\n"),
        ("a size that is too small", b"4\r\nhello\r\n0\r\n\r\n"),
        ("a size that is too large", b"6\r\nhello\r\n0\r\n\r\n"),
        ("no CRLF after the data", b"5\r\nhello0\r\n\r\n"),
        ("a bare LF after the size", b"5\nhello\r\n0\r\n\r\n"),
        ("a bare CR after the size", b"5\rhello\r\n0\r\n\r\n"),
        ("a bare LF after the data", b"5\r\nhello\n0\r\n\r\n"),
        ("a bare LF at the end", b"5\r\nhello\r\n0\n\n"),
        ("a NUL in the extension", b"5;a\x00\r\nhello\r\n0\r\n\r\n"),
        ("a LF in the extension", b"5;a\nb\r\nhello\r\n0\r\n\r\n"),
        ("a trailer without colon", b"5\r\nhello\r\n0\r\nX\r\n\r\n"),
    ):
        strict = not name.startswith("a LF") and "LF" not in name and "space" not in name
        yield Bytes(f"chunks with {name}", _post("Transfer-Encoding: chunked\r\n", body + SMUGGLED), strict=strict)
    body = b"5\r\nhello\r\n0\r\nContent-Length: 9\r\nTransfer-Encoding: x\r\n\r\n"
    yield Bytes("framing in a trailer", _post("Transfer-Encoding: chunked\r\n", body))


def _with_header(header: str, *, strict: bool = False) -> Bytes:
    data = f"GET /case HTTP/1.1\r\nHost: a\r\n{header}\r\n\r\n".encode("latin-1")
    return Bytes(f"the header {header!r} in a GET", data, strict)


def heads() -> Iterator[Bytes]:
    """Heads that are written wrongly."""
    for line in (
        *(
            "GET  /case HTTP/1.1",
            "GET /case  HTTP/1.1",
            "GET /case",
            "GET /case HTTP/1.1 ",
            "GET\t/case\tHTTP/1.1",
            " GET /case HTTP/1.1",
        ),
        *(
            "GET /case HTTP/1.2",
            "GET /case HTTP/1.10",
            "GET /case HTTP/2.0",
            "GET /case http/1.1",
            "GET /case HTTP/1",
            "GET /case XTTP/1.1",
        ),
        *(
            "GET case HTTP/1.1",
            "G@T /case HTTP/1.1",
            "GET /ca\x00se HTTP/1.1",
            "GET /ca\x7fse HTTP/1.1",
            "GET /ca se HTTP/1.1",
        ),
        *("GET /case#x HTTP/1.1", "GET * HTTP/1.1", "GET a:80 HTTP/1.1", "CONNECT a:80 HTTP/1.1", "get /case HTTP/1.1"),
    ):
        yield Bytes(f"the line {line!r}", f"{line}\r\nHost: a\r\n\r\n".encode("latin-1"))
    # A bare CR or NUL, a folded line and blanks before the colon must be refused (RFC 9112 §2.2, §5.1, §5.2; RFC 9110 §5.5).
    for header in (
        "X\x00: x",
        "X: a\x00b",
        "X: a\rb",
        "X: a\r\n b",
        "X: a\r\n\tb",
        "\tX: a",
        "X\t: a",
        "X : a",
        "X Y: x",
    ):
        yield _with_header(header, strict=True)
    for header in ("X", ": x", "X(: x", "X: \x01", "\xe9: x", "X: a\n", '"X": a', "X: \x7f"):
        yield _with_header(header)
    for host in ("b", "a"):
        yield Bytes(f"a second Host {host!r}", _post(f"Host: {host}\r\nContent-Length: 5\r\n", b"hello"), strict=True)
    for host in ("a b", "a/b", "me@a", "a:b", "a,\x0bb", "[::1", "http://a"):
        yield Bytes(f"the Host {host!r}", f"GET /case HTTP/1.1\r\nHost: {host}\r\n\r\n".encode(), strict=True)
    for host in ("a:80", "a:", "", "[::1]:80", "127.0.0.1", "a ", "xn--a.b_c~%41"):
        yield Bytes(f"the Host {host!r} is fine", f"GET /case HTTP/1.1\r\nHost: {host}\r\n\r\n".encode())
    yield Bytes("lines that end with LF", b"GET /case HTTP/1.1\nHost: a\n\n")
    yield Bytes("lines that end with CR", b"GET /case HTTP/1.1\rHost: a\r\r", strict=True)
    yield Bytes("no host", b"GET /case HTTP/1.1\r\n\r\n", strict=True)
    yield Bytes("no host in a POST", b"POST /case HTTP/1.1\r\nContent-Length: 5\r\n\r\nhello", strict=True)
    yield Bytes("no host in 1.0", b"GET /case HTTP/1.0\r\n\r\n")
    yield Bytes("HTTP/0.9", b"GET /case\r\n")


def cases() -> list[Bytes]:
    """Return all cases."""
    found = [case for make in (valid, lengths, chunks, heads) for case in make()]
    assert len({case.name for case in found}) == len({case.data for case in found}) == len(found)
    return found
