"""What the options of the guard let in, the words of its refusals, and what it remembers."""

from __future__ import annotations

from typing import Any

import pytest

from gemel.errors import DefinitionError
from gemel.protocol.http.headers import SESSION_METHODS, HeadRules, judge_site
from gemel.protocol.http.origin import Guard
from gemel.protocol.http.request import Refusal


def check(guard: Guard, host: str | None = "localhost", origin: str | None = None) -> Refusal | None:
    return guard.check(*(None if value is None else value.encode("latin-1") for value in (host, origin)))


def status(guard: Guard, host: str | None = "localhost", origin: str | None = None) -> int:
    refusal = check(guard, host, origin)
    return 200 if refusal is None else refusal.status


# --- options ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("allowed", "host", "expected"),
    [
        (["mcp.example.com"], "mcp.example.com", 200),
        (["mcp.example.com"], "MCP.Example.COM:8443", 200),
        (["MCP.Example.com"], "mcp.example.com", 200),
        (["mcp.example.com:*"], "mcp.example.com:8443", 200),
        (["mcp.example.com"], "mcp.example.com.", 403),
        (["mcp.example.com."], "mcp.example.com.", 200),
        (["mcp.example.com"], "a.mcp.example.com", 403),
        (["mcp.example.com"], "mcp.example.com.evil.example", 403),
        (["mcp.example.com"], "localhost", 200),
        (["mcp.example.com:8443"], "mcp.example.com:8443", 200),
        (["mcp.example.com:8443"], "mcp.example.com:8444", 403),
        (["mcp.example.com:8443"], "mcp.example.com", 403),
        (["mcp.example.com:443"], "mcp.example.com", 200),
        (["mcp.example.com:80"], "mcp.example.com", 200),
        (["*.example.com"], "a.example.com", 200),
        (["*.example.com"], "a.b.example.com:8000", 200),
        (["*.example.com"], "example.com", 403),
        (["*.example.com"], "evilexample.com", 403),
        (["*.example.com"], "a.example.com.evil.example", 403),
        (["192.0.2.7"], "192.0.2.7:8000", 200),
        (["2001:db8::7"], "[2001:db8::7]:8000", 200),
        (["[2001:db8::7]"], "[2001:DB8::7]", 200),
        (["[2001:db8::7]:8000"], "[2001:db8::7]:8000", 200),
        (["[2001:db8::7]:8000"], "[2001:db8::7]:8001", 403),
        (["mcp_server"], "mcp_server:8000", 200),
        (["*"], "anything.example", 200),
        (["*"], "any thing", 400),
    ],
)
def test_listed_hosts_are_served_besides_the_loopback_names(allowed: list[str], host: str, expected: int) -> None:
    """SEC-04: behind a proxy the operator names the hosts in one option, and the guard stays on."""
    assert status(Guard.for_bind("127.0.0.1", allowed), host) == expected


@pytest.mark.parametrize(
    ("hosts", "origins", "host", "origin", "expected"),
    [
        (["mcp.example.com"], [], "mcp.example.com", "https://mcp.example.com", 200),
        (["mcp.example.com"], [], "mcp.example.com", "http://mcp.example.com", 200),
        (["mcp.example.com"], [], "mcp.example.com", "https://mcp.example.com:444", 403),
        (["mcp.example.com"], [], "mcp.example.com", "https://app.example.com", 403),
        (["*.example.com"], [], "a.example.com", "https://a.example.com", 200),
        (["*.example.com"], [], "a.example.com", "https://b.example.com", 403),
        ([], ["https://app.example.com"], "localhost", "https://app.example.com", 200),
        ([], ["https://app.example.com"], "localhost", "https://APP.example.com:443", 200),
        ([], ["https://app.example.com:443"], "localhost", "https://app.example.com", 200),
        ([], ["https://app.example.com"], "localhost", "http://app.example.com", 403),
        ([], ["https://app.example.com"], "localhost", "https://app.example.com:444", 403),
        ([], ["https://app.example.com"], "localhost", "https://app.example.com.evil.example", 403),
        ([], ["https://app.example.com"], "localhost", "http://localhost:3000", 200),
        ([], ["https://app.example.com"], "localhost", None, 200),
        ([], ["https://app.example.com"], "evil.example", "https://app.example.com", 403),
        ([], ["https://app.example.com"], None, "https://app.example.com", 400),
        ([], ["chrome-extension://abc"], "localhost", "chrome-extension://abc", 200),
        ([], ["chrome-extension://abc"], "localhost", "chrome-extension://abd", 403),
        ([], ["null"], "localhost", "null", 200),
        ([], ["*"], "localhost", "http://evil.example", 200),
        ([], ["*"], "localhost", "nonsense", 200),
        ([], ["*"], "evil.example", "http://evil.example", 403),
        (["*"], [], "evil.example", "http://evil.example", 403),
        (["*"], [], "evil.example", "http://localhost", 403),
        (["*"], [], "localhost", "http://localhost:3000", 200),
        (["*"], [], "192.0.2.7", "http://192.0.2.7", 403),
        (["*"], ["https://app.example.com"], "mcp.example.com", "https://app.example.com", 200),
        (["*", "mcp.example.com"], [], "mcp.example.com", "https://mcp.example.com", 200),
    ],
)
def test_listed_origins_are_let_in_and_equal_ones_only_where_the_host_is_known(
    hosts: list[str], origins: list[str], host: str | None, origin: str | None, expected: int
) -> None:
    """MHTTP-18: exact origins. With `*` as host, a rebound name equals its Host too, so that proves nothing."""
    assert status(Guard.for_bind("127.0.0.1", hosts, origins), host, origin) == expected


def test_an_app_that_knows_no_bind_can_still_refuse_addresses() -> None:
    assert status(Guard(), "192.0.2.7") == 200
    assert status(Guard(ip_hosts=False), "192.0.2.7") == 403


@pytest.mark.parametrize(
    "entry",
    [
        "",
        "https://mcp.example.com",
        "mcp.example.com/mcp",
        "a b",
        "user@host",
        "*.*",
        "*.192.0.2.7",
        "*.a:80",
        "a:b",
        "[::1",
    ],
)
def test_a_host_that_could_never_match_is_refused_at_once(entry: str) -> None:
    with pytest.raises(DefinitionError, match=r"allowed_hosts: .* is not a host\. Write 'name'"):
        Guard([entry])


@pytest.mark.parametrize(
    "entry",
    [
        "",
        "app.example.com",
        "https://",
        "https://a/",
        "https://a/b",
        "http://a:b",
        "x://",
        "X://a",
        "x://a/b",
        "https://*.a",
        "Null",
    ],
)
def test_an_origin_that_could_never_match_is_refused_at_once(entry: str) -> None:
    with pytest.raises(DefinitionError, match=r"allowed_origins: .* is not an origin\. Write 'https://name'"):
        Guard(allowed_origins=[entry])


def test_one_string_for_a_list_is_refused_with_the_list_to_write() -> None:
    value: Any = "mcp.example.com"
    with pytest.raises(DefinitionError, match=r"allowed_hosts is a list: write \['mcp\.example\.com'\]"):
        Guard(value)


# --- texts ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("host", "origin", "text"),
    [
        (
            "mcp.example.com:8000",
            None,
            "Host 'mcp.example.com:8000' is not served here. If clients reach this server under that name, "
            "list it: allowed_hosts=['mcp.example.com']",
        ),
        (
            "localhost:8000",
            "https://app.example.com",
            "Origin 'https://app.example.com' may not call this server. If it should, "
            "list it: allowed_origins=['https://app.example.com']",
        ),
        (
            "mcp.example.com",
            "https://mcp.example.com",
            "Origin 'https://mcp.example.com' may not call this server. If clients reach this server under that name, "
            "list it: allowed_hosts=['mcp.example.com']",
        ),
        ("a\x1bb", None, "Host 'a\\x1bb' is malformed: it must be a name or address with an optional port"),
        (None, None, "Host is missing: it must be a name or address with an optional port"),
    ],
)
def test_a_refusal_says_which_option_lets_the_request_in(host: str | None, origin: str | None, text: str) -> None:
    """The words are for the response and for one line of the log: no control characters, nothing long."""
    refusal = check(Guard.for_bind("127.0.0.1"), host, origin)
    assert refusal is not None
    assert refusal.text == text


@pytest.mark.parametrize("host", ["mcp.example.com:8000", "[2001:db8::7]:8000", "192.0.2.7"])
def test_the_advice_of_a_refused_host_works(host: str) -> None:
    refusal = check(Guard.for_bind("127.0.0.1"), host)
    assert refusal is not None
    advised = refusal.text.rpartition("allowed_hosts=['")[2].removesuffix("']")
    assert check(Guard.for_bind("127.0.0.1", [advised]), host) is None


# --- cost -------------------------------------------------------------------------------------------------------------


def rules() -> HeadRules:
    return HeadRules(Guard.for_bind("127.0.0.1"), SESSION_METHODS)


def test_judgements_are_remembered_within_bounds() -> None:
    """Whoever tries names can't fill the memory."""
    strict = rules()
    for number in range(3000):
        assert judge_site([(b"host", b"host%d.example" % number)], strict)
    assert len(strict.judged) <= 512
    assert judge_site([(b"host", b"localhost")], strict) is None


@pytest.mark.parametrize("value", ["a" * 1100, "localhost" + " " * 5000, " " * 60_000, "a." * 30_000])
def test_long_values_are_judged_but_not_remembered(value: str) -> None:
    strict = rules()
    refusal = judge_site([(b"host", value.encode())], strict)
    assert (refusal is None) == (value.strip() == "localhost")
    assert strict.judged == {}


@pytest.mark.parametrize(
    ("host", "origin"), [("localhost", ""), ("evil.example", ""), ("localhost", "null"), ("localhost:", "")]
)
def test_the_second_look_gives_the_same_judgement(host: str, origin: str) -> None:
    strict = rules()
    pairs = [(b"host", host.encode()), *([(b"origin", origin.encode())] if origin else [])]
    assert judge_site(pairs, strict) is judge_site(pairs, strict)
    assert len(strict.judged) == 1


def test_an_address_may_be_listed_without_brackets() -> None:
    guard = Guard(allowed_hosts=["fd00::1", "fd00:0:0:0:0:0:0:2"], ip_hosts=False)
    assert guard.check(b"[fd00::1]:8000", None) is None
    assert guard.check(b"[fd00::2]", None) is None
    assert guard.check(b"[fd00::3]", None) is not None


def test_the_advice_for_any_host_is_about_origins() -> None:
    refusal = Guard(allowed_hosts=["*"]).check(b"mcp.example.com", b"https://mcp.example.com")
    assert refusal is not None
    assert "allowed_origins=" in refusal.text
    assert "allowed_hosts" not in refusal.text
