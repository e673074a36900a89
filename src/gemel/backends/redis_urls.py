"""Where a Redis is: its URL, taken apart into what redis-py connects with. Nothing here shows a password."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal
from urllib.parse import parse_qsl, unquote, urlsplit

from gemel.errors import DefinitionError

_PORT, _SENTINEL_PORT = 6379, 26379
#: Schemes, and whether the connection is encrypted. `valkey` is the same as `redis`, and `valkeys` as `rediss`.
_SCHEMES: Mapping[str, tuple[Literal["server", "socket", "sentinel", "cluster"], bool]] = {
    "redis": ("server", False),
    "rediss": ("server", True),
    "unix": ("socket", False),
    "redis+unix": ("socket", False),
    "redis+sentinel": ("sentinel", False),
    "rediss+sentinel": ("sentinel", True),
    "redis+cluster": ("cluster", False),
    "rediss+cluster": ("cluster", True),
}
_FILES = ("ssl_ca_certs", "ssl_certfile", "ssl_keyfile")
_OPTIONS = {
    "db", "username", "password", "sentinel_username", "sentinel_password", "client_name", "prefix", "timeout",
    *_FILES, "ssl_ca_path", "ssl_password", "ssl_check_hostname", "ssl_cert_reqs",
}  # fmt: skip


@dataclass(frozen=True, repr=False)
class RedisAddress:
    """A Redis server, a group of them with Sentinels, or a cluster.

    Attributes:
        kind: Which of them.
        name: The URL without credentials and options, for messages.
        hosts: Hosts and ports: of the server, of Sentinels, of some nodes of the cluster.
        service: The name that Sentinels know the servers by.
        connection: What redis-py opens a connection to a server with.
        sentinel: The same for Sentinels.
        tls: Whether connections are encrypted.
        secrets: Passwords, which no message may show.
        prefix: What keys begin with, if the URL says so.
        timeout: Seconds that an operation may take, if the URL says so.
    """

    kind: Literal["server", "socket", "sentinel", "cluster"]
    name: str
    hosts: tuple[tuple[str, int], ...]
    service: str
    connection: Mapping[str, Any]
    sentinel: Mapping[str, Any]
    tls: bool
    secrets: tuple[str, ...]
    prefix: str | None
    timeout: float | None

    def __repr__(self) -> str:
        return f"RedisAddress({self.name!r})"

    def censor(self, text: str) -> str:
        """A text of somebody else without our passwords."""
        for secret in self.secrets:
            text = text.replace(secret, "***")
        return text


def is_redis_url(url: str) -> bool:
    """Whether a URL names a Redis."""
    return _canonical(url.partition("://")[0]) in _SCHEMES


def _canonical(scheme: str) -> str:
    return scheme.lower().replace("valkey", "redis", 1)


def parse_redis_url(url: str) -> RedisAddress:
    """Take a URL apart.

    Args:
        url: The URL; see `RedisBackend`.

    Returns:
        What it names.

    Raises:
        DefinitionError: It is not the URL of a Redis, or has parts that don't belong there.
    """
    scheme = url.partition("://")[0]
    kind_and_tls = _SCHEMES.get(_canonical(scheme))
    if kind_and_tls is None:
        raise DefinitionError(f"A Redis URL begins with one of {', '.join(f'{each}://' for each in _SCHEMES)}")
    kind, tls = kind_and_tls
    try:
        parts = urlsplit(url)
        credentials, _, location = parts.netloc.rpartition("@")
        options = dict(parse_qsl(parts.query, keep_blank_values=True, strict_parsing=bool(parts.query)))
        default = _SENTINEL_PORT if kind == "sentinel" else _PORT
        hosts = tuple(_host_and_port(each, default) for each in location.split(",")) if kind != "socket" else ()
    except ValueError:  # its text could show a part of the password
        raise _refused(scheme, "hosts, ports or options are not well-formed") from None
    if not _OPTIONS.issuperset(options):
        raise _refused(scheme, f"it has an unknown option; there are {', '.join(sorted(_OPTIONS))}")
    if not tls and any(name.startswith("ssl_") for name in options):
        raise _refused(scheme, "the options that begin with ssl_ need rediss://")
    if kind == "server" and len(hosts) > 1:
        raise _refused(scheme, "it has several hosts, which redis+sentinel:// and redis+cluster:// take")
    for name in _FILES:
        if name in options and not Path(options[name]).is_file():
            raise DefinitionError(f"{name}={options[name]}: there is no such file")

    username, _, password = credentials.partition(":")
    connection: dict[str, Any] = {}
    if username := unquote(username) or options.get("username", ""):
        connection["username"] = username
    if password := unquote(password) or options.get("password", ""):
        connection["password"] = password
    connection |= {name: value for name, value in options.items() if name.startswith(("ssl_", "client_name"))}
    if "ssl_check_hostname" in options:
        connection["ssl_check_hostname"] = options["ssl_check_hostname"].lower() not in ("0", "f", "false", "n", "no")

    path, service = unquote(parts.path), ""
    shown = ",".join(f"{f'[{host}]' if ':' in host else host}:{port}" for host, port in hosts)
    database = options.get("db", "")
    if kind == "socket":
        if not path.strip("/"):
            raise _refused(scheme, "it needs the path of a socket: redis+unix:///run/redis.sock")
        connection["path"] = shown = path
    elif kind == "sentinel":
        service, _, in_path = path.strip("/").partition("/")
        if not service:
            raise _refused(scheme, "it needs the name of the service: redis+sentinel://HOST,HOST/SERVICE")
        shown += f"/{service}"
        database = database or in_path
    else:
        database = database or path.strip("/")
    if database and not (database.isascii() and database.isdigit()):
        raise _refused(scheme, "the database is a number")
    if int(database or 0):
        if kind == "cluster":
            raise _refused(scheme, "a cluster has database 0 only")
        connection["db"] = int(database)
        shown += f"?db={database}" if kind == "socket" else f"/{database}"
    sentinel = {
        name: options[f"sentinel_{name}"] for name in ("username", "password") if options.get(f"sentinel_{name}")
    }
    if sentinel and kind != "sentinel":
        raise _refused(scheme, "sentinel_username and sentinel_password need redis+sentinel://")
    secrets = {password, sentinel.get("password", ""), options.get("ssl_password", "")} - {""}
    return RedisAddress(
        kind, f"{scheme.lower()}://{shown}", hosts, service, connection, sentinel, tls, tuple(secrets),
        options.get("prefix"), _seconds(scheme, options.get("timeout")),
    )  # fmt: skip


def _refused(scheme: str, why: str) -> DefinitionError:
    return DefinitionError(f"The URL {scheme.lower()}://… can't be used: {why}")


def _host_and_port(text: str, default: int) -> tuple[str, int]:
    parts = urlsplit(f"//{text}")
    return parts.hostname or "localhost", parts.port or default


def _seconds(scheme: str, text: str | None) -> float | None:
    if text is None:
        return None
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not 0 < seconds < float("inf"):
        raise _refused(scheme, "timeout is a number of seconds")
    return seconds
