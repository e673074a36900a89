"""Where a Redis is: its URL, taken apart into what redis-py connects with. Nothing here shows a password."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple
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


def _file(text: str) -> str:
    if not Path(text).is_file():
        raise ValueError("there is no such file")
    return text


def _flag(text: str) -> bool:
    return text.lower() not in ("0", "f", "false", "n", "no")


class _Option(NamedTuple):
    """An option of a URL: what gets its value, under which name, how it is read, and the kind of URL that it needs."""

    of: Literal["connection", "sentinel", "address"]
    name: str
    read: Callable[[str], object] = str
    needs: Literal["tls", "sentinel"] | None = None


_NEEDS = {
    "tls": "the options that begin with ssl_ need rediss://",
    "sentinel": "sentinel_username and sentinel_password need redis+sentinel://",
}
#: `db` may be a part of the path, too, and the credentials a part of the host: they are read with these.
_OPTIONS: Mapping[str, _Option] = {
    "db": _Option("address", "db"),
    "prefix": _Option("address", "prefix"),
    "timeout": _Option("address", "timeout"),
    "username": _Option("connection", "username"),
    "password": _Option("connection", "password"),
    "client_name": _Option("connection", "client_name"),
    "sentinel_username": _Option("sentinel", "username", needs="sentinel"),
    "sentinel_password": _Option("sentinel", "password", needs="sentinel"),
    "ssl_ca_certs": _Option("connection", "ssl_ca_certs", _file, "tls"),
    "ssl_ca_path": _Option("connection", "ssl_ca_path", needs="tls"),
    "ssl_certfile": _Option("connection", "ssl_certfile", _file, "tls"),
    "ssl_keyfile": _Option("connection", "ssl_keyfile", _file, "tls"),
    "ssl_password": _Option("connection", "ssl_password", needs="tls"),
    "ssl_cert_reqs": _Option("connection", "ssl_cert_reqs", needs="tls"),
    "ssl_check_hostname": _Option("connection", "ssl_check_hostname", _flag, "tls"),
}


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
        given = dict(parse_qsl(parts.query, keep_blank_values=True, strict_parsing=bool(parts.query)))
        default = _SENTINEL_PORT if kind == "sentinel" else _PORT
        hosts = tuple(_host_and_port(each, default) for each in location.split(",")) if kind != "socket" else ()
    except ValueError:  # its text could show a part of the password
        raise _refused(scheme, "hosts, ports or options are not well-formed") from None
    if kind == "server" and len(hosts) > 1:
        raise _refused(scheme, "it has several hosts, which redis+sentinel:// and redis+cluster:// take")
    options = _read_options(scheme, given, {"tls": tls, "sentinel": kind == "sentinel"})
    connection, sentinel, own = options["connection"], options["sentinel"], options["address"]

    username, _, password = map(unquote, credentials.partition(":"))
    connection |= {name: text for name, text in (("username", username), ("password", password)) if text}
    path, service, database = unquote(parts.path), "", ""
    shown = ",".join(f"{f'[{host}]' if ':' in host else host}:{port}" for host, port in hosts)
    if kind == "socket":
        if not path.strip("/"):
            raise _refused(scheme, "it needs the path of a socket: redis+unix:///run/redis.sock")
        connection["path"] = shown = path
    elif kind == "sentinel":
        service, _, database = path.strip("/").partition("/")
        if not service:
            raise _refused(scheme, "it needs the name of the service: redis+sentinel://HOST,HOST/SERVICE")
        shown += f"/{service}"
    else:
        database = path.strip("/")
    if number := _database(scheme, own.get("db", database), is_cluster=kind == "cluster"):
        connection["db"] = number
        shown += f"?db={number}" if kind == "socket" else f"/{number}"
    secrets = {
        connection.get("password", ""),
        sentinel.get("password", ""),
        connection.get("ssl_password", ""),
    } - {""}
    return RedisAddress(
        kind=kind,
        name=f"{scheme.lower()}://{shown}",
        hosts=hosts,
        service=service,
        connection=connection,
        sentinel=sentinel,
        tls=tls,
        secrets=tuple(secrets),
        prefix=given.get("prefix"),
        timeout=_seconds(scheme, given.get("timeout")),
    )


def _read_options(scheme: str, given: Mapping[str, str], allowed: Mapping[str, bool]) -> dict[str, dict[str, Any]]:
    """The options by what they belong to; those that are empty are left out. Raises DefinitionError."""
    if not _OPTIONS.keys() >= given.keys():
        raise _refused(scheme, f"it has an unknown option; there are {', '.join(sorted(_OPTIONS))}")
    found: dict[str, dict[str, Any]] = {"connection": {}, "sentinel": {}, "address": {}}
    for name, text in given.items():
        option = _OPTIONS[name]
        if option.needs is not None and not allowed[option.needs]:
            raise _refused(scheme, _NEEDS[option.needs])
        try:
            value = option.read(text)
        except ValueError as exc:
            raise DefinitionError(f"{name}={text}: {exc}") from None
        if text:
            found[option.of][option.name] = value
    return found


def _database(scheme: str, text: str, *, is_cluster: bool) -> int:
    if text and not (text.isascii() and text.isdigit()):
        raise _refused(scheme, "the database is a number")
    number = int(text or 0)
    if number and is_cluster:
        raise _refused(scheme, "a cluster has database 0 only")
    return number


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
