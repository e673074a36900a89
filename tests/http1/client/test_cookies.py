"""Which cookies are kept and returned (RFC 6265), for one origin."""

from __future__ import annotations

import pytest

from gemel.http1.client.cookies import MAX_COOKIE_BYTES, MAX_COOKIES, CookieJar

URL = "https://api.example.com/v1/mcp"


@pytest.mark.parametrize(
    ("field", "sent"),
    [
        ("AWSALB=node7; Path=/", "AWSALB=node7"),
        ('a="1"', "a=1"),
        ("a=1; Expires=Wed, 09 Jun 2100 10:18:14 GMT; Path=/, b=2; Path=/", "a=1; b=2"),
        ("a=1; Expires=Wed, 09 Jun 2021 10:18:14 GMT", ""),
        ("a=1; Max-Age=0", ""),
        ("a=1; Max-Age=60; Expires=Wed, 09 Jun 2021 10:18:14 GMT", "a=1"),
        ("a=1; Expires=tomorrow", "a=1"),
        ("a=1; Secure; HttpOnly; SameSite=None", "a=1"),
        ("a=1; Path=/v1", "a=1"),
        ("a=1; Path=/v", ""),
        ("a=1; Path=/other", ""),
        ("a=1; Domain=example.com", "a=1"),
        ("a=1; Domain=.api.example.com", "a=1"),
        ("a=1; Domain=other.com", ""),
        ("a=1; Domain=i.example.com", ""),
        ("=1", ""),
        ("a", ""),
        ("a=", "a="),
        ("a b=1", ""),
        ("a=1\r\nX: y", ""),
        ("a=x y", ""),
        (f"a={'x' * MAX_COOKIE_BYTES}", ""),
    ],
)
def test_cookies_are_returned_in_their_scope(field: str, sent: str) -> None:
    jar = CookieJar()
    jar.take(URL, field)
    assert jar.field(URL) == sent


@pytest.mark.parametrize(
    "url", ["http://api.example.com/v1/mcp", "https://api.example.com:8443/v1/mcp", "https://example.com/v1/mcp"]
)
def test_no_other_origin_gets_them(url: str) -> None:
    jar = CookieJar()
    jar.take(URL, "a=1; Path=/; Domain=example.com")
    assert jar.field(url) == ""


def test_secure_cookies_are_not_taken_over_plain_http() -> None:
    jar = CookieJar()
    jar.take("http://api.example.com/mcp", "a=1; Secure, __Host-b=2, c=3")
    assert jar.field("http://api.example.com/mcp") == "c=3"


def test_a_cookie_replaces_the_one_of_its_name_and_the_callers_own_stays() -> None:
    jar = CookieJar()
    jar.take(URL, "a=1; Path=/, b=2; Path=/")
    jar.take(URL, "a=3; Path=/")
    assert jar.field(URL, "b=own") == "b=own; a=3"
    jar.take(URL, "a=; Path=/; Max-Age=0")
    assert jar.field(URL) == "b=2"


def test_only_so_many_are_kept() -> None:
    jar = CookieJar()
    for number in range(MAX_COOKIES + 5):
        jar.take(URL, f"c{number}=1")
    assert jar.field(URL).count("=") == MAX_COOKIES
    assert "c4=" not in jar.field(URL)
