"""URLs of Redis: what they name, what is refused, and that nothing shows a password."""

from __future__ import annotations

import pytest

from gemel import DefinitionError
from gemel.backends import backend_for
from gemel.backends.redis_urls import parse_redis_url

SECRET = "pass-canary"


@pytest.mark.parametrize(
    ("url", "kind", "name", "hosts", "options"),
    [
        ("redis://", "server", "redis://localhost:6379", [("localhost", 6379)], {}),
        ("valkey://cache/3", "server", "valkey://cache:6379/3", [("cache", 6379)], {"db": 3}),
        (
            "rediss://me:p%40ss@[::1]:1/0?ssl_check_hostname=no&client_name=app",
            "server",
            "rediss://[::1]:1",
            [("::1", 1)],
            {"username": "me", "password": "p@ss", "ssl_check_hostname": False, "client_name": "app"},
        ),
        (
            "redis+unix:///run/redis.sock?db=1&password=x",
            "socket",
            "redis+unix:///run/redis.sock?db=1",
            [],
            {"path": "/run/redis.sock", "db": 1, "password": "x"},
        ),
        (
            "redis+sentinel://:x@a,b:7/main/2?sentinel_password=y",
            "sentinel",
            "redis+sentinel://a:26379,b:7/main/2",
            [("a", 26379), ("b", 7)],
            {"password": "x", "db": 2},
        ),
        (
            "valkeys+cluster://a,b:7",
            "cluster",
            "valkeys+cluster://a:6379,b:7",
            [("a", 6379), ("b", 7)],
            {},
        ),
    ],
)
def test_a_url_names(url: str, kind: str, name: str, hosts: list[tuple[str, int]], options: dict[str, object]) -> None:
    address = parse_redis_url(url)
    assert (address.kind, address.name, list(address.hosts)) == (kind, name, hosts)
    assert address.connection == options
    assert address.tls == url.startswith(("rediss", "valkeys"))


@pytest.mark.parametrize(
    ("rest", "why"),
    [
        ("redis://U@host:port", "not well-formed"),
        ("redis://U@host/name", "the database is a number"),
        ("redis://U@a,b/0", "several hosts"),
        ("redis://U@host?colour=1", "unknown option; there are client_name, db"),
        ("redis://U@host?ssl_ca_certs=/none", "need rediss://"),
        ("rediss://U@host?ssl_ca_certs=/none.pem", "ssl_ca_certs=/none.pem: there is no such file"),
        ("redis://U@host?timeout=soon", "timeout is a number of seconds"),
        ("redis://U@host?timeout=0", "timeout is a number of seconds"),
        ("redis+unix://U@/", "needs the path of a socket"),
        ("redis+sentinel://U@host", "name of the service"),
        ("redis+cluster://U@host/1", "database 0 only"),
        ("redis://U@host?sentinel_password=1", "need redis+sentinel://"),
        ("redis://U@host?prefix=a{b", "prefix of keys"),
        ("redis+other://U@host", "begins with one of redis://"),
        ("rediz://U@host", "no backend for 'rediz"),
    ],
)
def test_what_is_refused_shows_no_password(rest: str, why: str) -> None:
    with pytest.raises(DefinitionError) as caught:
        backend_for(rest.replace("U", f"me:{SECRET}"))
    assert why in str(caught.value)
    assert SECRET not in str(caught.value)


def test_a_password_that_is_not_encoded_is_not_shown_either() -> None:
    with pytest.raises(DefinitionError) as caught:
        backend_for("redis://me:pass-canary/more?and=more#more@host:6379")
    assert "canary" not in str(caught.value)
    assert "and=" not in str(caught.value)


def test_nothing_that_is_printed_shows_a_password() -> None:
    backend = backend_for(f"redis://me:{SECRET}@host:1/2?prefix=app")
    assert repr(backend) == "RedisBackend('redis://host:1/2', prefix='app')"
    assert SECRET not in repr(parse_redis_url(f"redis://me:{SECRET}@host"))
