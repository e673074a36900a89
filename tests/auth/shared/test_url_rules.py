"""Which URLs and addresses of a peer may be used: data, and that the address that was checked is the one connected to."""

from __future__ import annotations

import asyncio
import socket
from ipaddress import ip_address
from typing import Any

import pytest

from gemel.auth.flow import Fetcher, HttpRequest
from gemel.auth.url_rules import UrlRefused, UrlRules, is_public
from gemel.http1.client import network

PUBLIC = UrlRules("https://mcp.example.com/mcp")
LOCAL = UrlRules("http://127.0.0.1:8000/mcp")

#: One a word.
INSIDE = (
    "127.0.0.1 127.1 127.255.255.254 2130706433 0x7f000001 0177.0.0.1 0x7f.1 0.0.0.0 0 10.0.0.1 10.1 172.16.0.1 "
    "172.31.255.255 192.168.0.1 192.168.257 169.254.169.254 2852039166 0xa9fea9fe 0251.0376.0251.0376 100.64.0.1 "
    "100.100.100.200 192.0.0.192 192.0.2.1 198.18.0.1 198.51.100.1 203.0.113.1 224.0.0.1 239.255.255.255 240.0.0.1 "
    "255.255.255.255 168.63.129.16 192.88.99.1 [::1] [::] [::ffff:127.0.0.1] [::ffff:7f00:1] [::ffff:8.8.8.8] "
    "[::127.0.0.1] [fe80::1] [fe80::1%25eth0] [fc00::1] [fd00:ec2::254] [fec0::1] [ff02::1] [64:ff9b::7f00:1] "
    "[64:ff9b::a9fe:a9fe] [64:ff9b:1::1] [2001::1] [2002:7f00:1::] [2002:a9fe:a9fe::1] [2001:db8::1] "
    "[2001:4860::5efe:10.0.0.1] [2001:4860::200:5efe:10.0.0.1] [0:0:0:0:0:0:0:1] [3fff::1] [5f00::1] localhost localhost. "
    "LOCALHOST a.localhost a.LocalHost. "
)

NOT_URLS = [
    "file:///etc/passwd",
    "ftp://example.com/",
    "gopher://example.com/",
    "javascript:alert(1)",
    "data:application/json,{}",
    "//example.com/",
    "/metadata",
    "",
    "https://",
    "https:///metadata",
    "https://user@example.com/",
    "https://user:password@example.com/",
    "https://example.com\\@127.0.0.1/",
    "https://exa\nmple.com/",
    "https://exa\tmple.com/",
    "https://example.com/ x",
    "https://example.com/\r\nHost: x",
    "https://example.com:99999/",
    "https://example.com:port/",
    "https://[::1/",
    "https://exa%mple.com/",
    "https://" + "a" * 5000 + ".com/",
    "http://example.com/",
    "HTTP://example.com/",
]


@pytest.mark.parametrize("host", INSIDE.split())
async def test_addresses_inside_are_refused(host: str) -> None:
    """SEC-05: for a server that is elsewhere, nothing on this machine or in its networks is requested."""
    async with Fetcher(PUBLIC) as fetcher:
        with pytest.raises(UrlRefused):
            await fetcher.fetch(HttpRequest("GET", f"https://{host}/latest/meta-data"))


@pytest.mark.parametrize("url", NOT_URLS)
def test_what_is_no_https_url_is_refused(url: str) -> None:
    with pytest.raises(UrlRefused):
        PUBLIC.check(url)


@pytest.mark.parametrize("address", ["8.8.8.8", "1.1.1.1", "2001:4860:4860::8888", "64:ff9b::808:808"])
def test_public_addresses_are_allowed(address: str) -> None:
    assert is_public(ip_address(address))


def test_a_local_server_may_name_local_urls_but_no_private_ones() -> None:
    for url in ("http://localhost:9/x", "http://127.0.0.1:9/x", "http://[::1]:9/x", "https://login.example.com/"):
        LOCAL.check(url)
        LOCAL.check_endpoint(url)
    for url in ("http://example.com/", "https://10.0.0.1/", "http://169.254.169.254/", "http://0.0.0.0/"):
        with pytest.raises(UrlRefused):
            LOCAL.check(url)


def test_the_origin_that_the_user_named_may_be_requested() -> None:
    rules = UrlRules("https://10.1.2.3:8443/mcp", trusted=["http://login.internal/realm"])
    rules.check("https://10.1.2.3:8443/.well-known/oauth-protected-resource/mcp")
    rules.check("http://login.internal/keys")
    with pytest.raises(UrlRefused, match="not https"):
        rules.check_endpoint("http://login.internal/token")
    for url in ("https://10.1.2.3/", "https://10.1.2.4:8443/", "http://login.internal:81/"):
        with pytest.raises(UrlRefused):
            rules.check(url)


def test_private_networks_can_be_allowed() -> None:
    rules = UrlRules("https://mcp.example.com/mcp", private_networks=True)
    for url in ("https://10.0.0.1/", "http://192.168.1.1/", "http://localhost/", "https://[fd12::1]/"):
        rules.check_endpoint(url)
    for url in (
        "http://169.254.169.254/",
        "https://[fe80::1]/",
        "https://100.100.100.200/",
        "https://[fd00:ec2::254]/",
    ):
        with pytest.raises(UrlRefused):
            rules.check(url)


async def test_the_address_that_was_checked_is_the_one_connected_to(monkeypatch: pytest.MonkeyPatch) -> None:
    """A resolver that changes its answer (DNS rebinding) gains nothing: there is one resolution for one connection."""
    answers = ["203.0.113.7", "127.0.0.1"]
    asked: list[str] = []

    async def rebinding(host: str, port: int) -> Any:
        asked.append(host)
        address = answers[min(len(asked), len(answers)) - 1]
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, port))]

    connected: list[Any] = []

    async def connect(address: Any) -> socket.socket:
        connected.append(address[4])
        raise ConnectionRefusedError("the test has no network")

    monkeypatch.setattr(network, "resolve", rebinding)
    monkeypatch.setattr(network, "_connect", connect)
    async with Fetcher(PUBLIC) as fetcher:
        for _ in range(2):
            with pytest.raises(UrlRefused, match="private or special network"):
                await fetcher.fetch(HttpRequest("GET", "https://login.example.com/"))
        answers[:] = ["93.184.215.14"]
        asked.clear()
        with pytest.raises(Exception, match="no network"):
            await fetcher.fetch(HttpRequest("GET", "https://login.example.com/"))
    assert connected == [("93.184.215.14", 443)]
    assert asked == ["login.example.com"]
    await asyncio.sleep(0)
