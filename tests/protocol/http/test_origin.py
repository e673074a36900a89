"""Which Host and Origin may come in."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gemel.protocol.http.origin import Authority, Guard, parse_authority
from gemel.protocol.http.request import Refusal
from tests.protocol.http.heads import head_of

#: Every kind of bind, without options: a loopback name and addresses, all interfaces, one address, a name, a socket.
BINDS = ("localhost", "127.0.0.1", "::1", "[::1]", "127.0.0.2", "0.0.0.0", "::", "192.0.2.7", "mcp.internal", None)


def check(guard: Guard, host: str | None = "localhost", origin: str | None = None) -> Refusal | None:
    return guard.check(*(None if value is None else value.encode("latin-1") for value in (host, origin)))


def status(guard: Guard, host: str | None = "localhost", origin: str | None = None) -> int:
    refusal = check(guard, host, origin)
    return 200 if refusal is None else refusal.status


def on_every_bind(host: str | None = "localhost", origin: str | None = None) -> dict[str | None, int]:
    """The status by bind."""
    return {bind: status(Guard.for_bind(bind), host, origin) for bind in BINDS}


# --- defaults ---------------------------------------------------------------------------------------------------------

#: Host values that no server without options may serve, with the status; a malformed Host is 400 (RFC 9112 §3.2).
FOREIGN_HOSTS = {
    "evil.example": 403,
    "evil.example:80": 403,
    "EVIL.example": 403,
    "localhost.evil.example": 403,
    "127.0.0.1.evil.example": 403,
    "evil-localhost": 403,
    "evil.localhost": 403,
    "localhostevil.example": 403,
    "localhost.": 403,
    "127.0.0.1.": 403,
    "127.1": 403,
    "2130706433": 403,
    "0x7f000001": 403,
    "localhost:evil.example": 400,
    "localhost:1@evil.example": 400,
    "localhost@evil.example": 400,
    "evil.example#localhost": 400,
    "localhost:": 400,
    "localhost:0": 400,
    "localhost:65536": 400,
    "localhost:80:80": 400,
    "localhost:\xb2": 400,
    "::1": 400,
    "[::1": 400,
    "[::1]evil": 400,
    "[::1]18000": 400,
    "[::1]:port": 400,
    "[fe80::1%25eth0]": 400,
    "[localhost]": 400,
    "[127.0.0.1]": 400,
    "localhost, evil.example": 400,
    "local host": 400,
    "http://localhost": 400,
    "localhost/": 400,
    "*": 400,
    "null": 403,
    ":8000": 400,
    "": 400,
    "löcalhost": 400,
    "localhost\0": 400,
}


@pytest.mark.parametrize(("host", "expected"), FOREIGN_HOSTS.items(), ids=[ascii(host) for host in FOREIGN_HOSTS])
def test_a_foreign_or_malformed_host_is_refused_on_every_bind_by_default(host: str, expected: int) -> None:
    """SEC-04, CVE-2025-66416: parsed, not compared by prefix; user info, suffixes, odd ports, spellings fail."""
    assert on_every_bind(host) == dict.fromkeys(BINDS, expected)


@pytest.mark.parametrize(
    "host",
    [
        *("localhost", "LocalHost", "localhost:1", "localhost:65535", " localhost\t"),
        *("127.0.0.1", "127.0.0.1:8000", "[::1]", "[::1]:8000", "[0:0:0:0:0:0:0:1]:8000"),
    ],
)
def test_loopback_names_are_served_on_any_port_on_every_bind(host: str) -> None:
    """A page of another site can't make a browser send them."""
    assert on_every_bind(host) == dict.fromkeys(BINDS, 200)


@pytest.mark.parametrize(
    ("bind", "host", "expected"),
    [
        ("127.0.0.1", "192.0.2.7", 403),
        ("127.0.0.1", "127.0.0.2", 403),
        ("127.0.0.1", "0.0.0.0:8000", 403),
        ("127.0.0.1", "[::]", 403),
        ("127.0.0.1", "[::ffff:127.0.0.1]", 403),
        ("::1", "[fe80::1]", 403),
        ("localhost", "10.0.0.1", 403),
        ("127.0.0.2", "127.0.0.2:8000", 200),
        ("0.0.0.0", "192.0.2.7", 200),
        ("0.0.0.0", "192.0.2.7:8000", 200),
        ("0.0.0.0", "[2001:db8::7]:8000", 200),
        ("0.0.0.0", "192.0.2.07", 403),
        ("0.0.0.0", "192.0.2.256", 403),
        ("0.0.0.0", "192.0.2", 403),
        ("::", "192.0.2.7", 200),
        ("192.0.2.7", "192.0.2.7", 200),
        ("2001:db8::7", "[2001:DB8:0::7]", 200),
        (None, "10.0.0.1", 200),
        ("mcp.internal", "MCP.internal:8000", 200),
        ("mcp.internal", "mcp.internal.evil.example", 403),
        ("0.0.0.0", "mcp.internal", 403),
    ],
)
def test_addresses_are_served_where_the_bind_can_be_reached_by_them(bind: str | None, host: str, expected: int) -> None:
    """SEC-04: only names can be rebound, so an address is no danger; a loopback bind is reached by its own alone."""
    assert status(Guard.for_bind(bind), host) == expected


#: Origin values that no server without options may let in when it is reached as localhost:8000.
FOREIGN_ORIGINS = [
    "http://evil.example",
    "https://evil.example:8000",
    "http://localhost.evil.example",
    "http://evil.example#localhost",
    "http://localhost:1@evil.example",
    "http://localhost@evil.example",
    "http://localhost.",
    "http://evil.localhost:8000",
    "http://127.0.0.2",
    "http://192.0.2.7:8000",
    "http://localhost:evil.example",
    "http://localhost/",
    "http://localhost:8000/page",
    "http://localhost:",
    "http://",
    "http:localhost",
    "//localhost",
    "localhost",
    "ftp://localhost",
    "file://",
    "chrome-extension://abcdef",
    "moz-extension://localhost",
    "vscode-webview://localhost",
    "null",
    "",
    "*",
    "http://localhost http://evil.example",
    "http://localhost, http://evil.example",
    "http://localhost\0",
]


@pytest.mark.parametrize("origin", FOREIGN_ORIGINS, ids=ascii)
def test_a_foreign_origin_is_403_on_every_bind_by_default(origin: str) -> None:
    """LHTTP-29, MHTTP-18, HSSE-05."""
    assert on_every_bind("localhost:8000", origin) == dict.fromkeys(BINDS, 403)


@pytest.mark.parametrize(
    "origin",
    [None, "http://localhost", "http://localhost:3000", "https://127.0.0.1:1", "http://[::1]:8000", "HTTP://LOCALHOST"],
)
def test_no_origin_and_pages_of_this_machine_are_let_in(origin: str | None) -> None:
    """MHTTP-18: an absent Origin is no failure."""
    assert on_every_bind("localhost:8000", origin) == dict.fromkeys(BINDS, 200)


@pytest.mark.parametrize("origin", ["http://evil.example:8000", "http://localhost:8000"])
def test_a_rebound_name_is_403_since_its_origin_is_foreign_too(origin: str) -> None:
    """SEC-04: the attack itself. Host and Origin agree, and both are the attacker's (MHTTP-18)."""
    assert on_every_bind("evil.example:8000", origin) == dict.fromkeys(BINDS, 403)


@pytest.mark.parametrize(
    ("host", "origin", "expected"),
    [
        ("192.0.2.7:8000", "http://192.0.2.7:8000", 200),
        ("192.0.2.7", "http://192.0.2.7", 200),
        ("192.0.2.7", "https://192.0.2.7", 200),
        ("192.0.2.7:443", "https://192.0.2.7", 200),
        ("[2001:db8::7]:8000", "http://[2001:db8::7]:8000", 200),
        ("192.0.2.7:8000", "http://192.0.2.7:9000", 403),
        ("192.0.2.7:8000", "http://192.0.2.7", 403),
        ("192.0.2.7:8000", "http://192.0.2.8:8000", 403),
        ("192.0.2.7:8000", "http://localhost:8000", 403),
        ("192.0.2.7:8000", "chrome-extension://192.0.2.7:8000", 403),
        ("192.0.2.7:8000", None, 200),
    ],
)
def test_elsewhere_only_pages_of_the_server_itself_are_let_in(host: str, origin: str | None, expected: int) -> None:
    """MHTTP-18: same host and port; a page on somebody's localhost is not of this server."""
    assert status(Guard.for_bind("0.0.0.0"), host, origin) == expected


@pytest.mark.parametrize("name", [b"host", b"origin", b"content-type", b"authorization"])
def test_headers_that_must_be_single_are_400_when_they_came_twice(name: bytes) -> None:
    """RFC 9112 §3.2: even if both are allowed; nobody takes the first and ignores the second."""
    raw = [
        (b"host", b"localhost"),
        (b"origin", b"http://localhost"),
        (b"content-type", b"a/b"),
        (b"authorization", b"x"),
    ]
    refusal = head_of([*raw, *[pair for pair in raw if pair[0] == name]]).barred
    assert refusal == Refusal(400, f"Headers that must be sent once came more than once: {name.decode()}")


def test_a_missing_host_is_400() -> None:
    assert status(Guard(), None) == 400
    assert status(Guard(), None, "http://evil.example") == 403


# --- parsing ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Example.COM", Authority("example.com", None, False)),
        ("example.com:8080", Authority("example.com", 8080, False)),
        ("192.0.2.7:1", Authority("192.0.2.7", 1, True)),
        ("[2001:DB8::0:7]:1", Authority("2001:db8::7", 1, True)),
        ("a", Authority("a", None, False)),
        ("a:00080", Authority("a", 80, False)),
        ("a:000080", None),
        ("-a", None),
        (".a", None),
        ("a:-1", None),
        ("a:+1", None),
        ("a:1_0", None),
        ("a:١", None),
        ("a:1 ", None),
        ("a\n", None),
        ("a:1\n", None),
        ("[::1]\n", None),
        ("[::1]:1\n", None),
        ("[]", None),
        ("[", None),
        ("]", None),
        ("%6c", None),
        ("\u212a", None),
    ],
)
def test_an_authority_is_parsed_strictly(text: str, expected: Authority | None) -> None:
    assert parse_authority(text) == expected


@given(st.binary(max_size=30) | st.text("localhst127.0:[]@/*-", max_size=24).map(str.encode), st.binary(max_size=30))
def test_any_bytes_are_a_verdict_and_only_known_hosts_pass(host: bytes, origin: bytes) -> None:
    guard = Guard.for_bind("127.0.0.1")
    verdict = guard.check(host, origin)
    assert verdict is None or verdict.status in (400, 403, 403)
    if guard.check(host, None) is None:
        authority = parse_authority(host.decode("latin-1").strip(" \t"))
        assert authority is not None
        assert authority.host in ("localhost", "127.0.0.1", "::1")


@pytest.mark.parametrize(
    ("host", "origin", "status"),
    [
        (b"h" * 512, None, 403),
        (b"h" * 513, None, 400),
        (b"localhost", b"http://" + b"o" * 505, 403),
        (b"localhost", b"http://" + b"o" * 506, 400),
    ],
)
def test_host_and_origin_have_a_limited_length(host: bytes, origin: bytes | None, status: int) -> None:
    refusal = Guard().check(host, origin)
    assert refusal is not None
    assert refusal.status == status
