"""What a Redis must be like to keep what Gemel puts there, and which version of Gemel has written it."""

from __future__ import annotations

import logging
from typing import Any

from redis.exceptions import MovedError, NoPermissionError, ResponseError

from gemel.backends.redis_client import AnyConnection
from gemel.backends.redis_urls import RedisAddress
from gemel.errors import BackendError

logger = logging.getLogger("gemel")

#: What the keys of a prefix mean. A new meaning is a new number, and refused by processes that know another one.
_FORMAT = b"1"
_OLDEST = (7, 0)


class RedisStore:
    """The keys of one prefix in a Redis, and the checks of each connection to it.

    Args:
        address: The Redis.
        prefix: What the keys begin with.
    """

    def __init__(self, address: RedisAddress, prefix: bytes) -> None:
        self._address = address
        self._prefix = prefix
        self._warned: set[str] = set()
        self.format_key = prefix + b":format"

    def key(self, kind: bytes, key: bytes) -> bytes:
        """Return the key in Redis of a key of a backend. Those of one key have one slot in a cluster.

        Args:
            kind: What it is, one letter.
            key: The key of the backend.
        """
        return b"%b:%b:{.%b}" % (self._prefix, kind, key)

    @property
    def channel(self) -> bytes:
        """The channel for changes."""
        return self._prefix + b":changes"

    async def check(self, connection: AnyConnection) -> None:
        """Refuse a server that is too old, drops keys, can't be written to, or has keys of another version of Gemel.

        Args:
            connection: A new connection.

        Raises:
            BackendError: It can't be used.
            RedisError: It failed.
        """
        commands = (b"INFO",), (b"GET", self.format_key)
        await connection.send_packed_command(connection.pack_commands(commands))
        settings: Any = b""
        refusal: ResponseError | None = None
        written: Any = None
        try:
            settings = await connection.read_response()
        except NoPermissionError as exc:
            self._warn(f"{self._address.name} can't be checked for settings that lose data: {exc}")
        try:
            written = await connection.read_response()
        except MovedError:  # another node of a cluster has this key
            written = _FORMAT
        except ResponseError as exc:
            refusal = exc
        self._check_settings(settings)
        if refusal is not None:
            raise refusal
        if written is None:
            await connection.send_command(b"SET", self.format_key, _FORMAT, b"NX", b"GET")
            written = await connection.read_response()
        if written not in (None, _FORMAT):
            raise BackendError(
                f"{self._address.name} has keys of another version of Gemel under the prefix {self._prefix.decode()!r}: "
                "run the same version everywhere, or choose another prefix"
            )

    def _check_settings(self, reply: bytes) -> None:
        """https://redis.io/docs/latest/commands/info/"""
        name = self._address.name
        lines = (line.partition(":") for line in reply.decode(errors="replace").splitlines())
        info = {field: value for field, _, value in lines}
        version = info.get("redis_version", "7.0")
        if tuple(int(number) for number in version.split(".")[:2] if number.isdigit()) < _OLDEST:
            raise BackendError(f"{name} is Redis {version}: upgrade it to 7.0 or newer")
        if info.get("loading", "0") != "0":
            raise BackendError(f"{name} is loading its data", 1000)
        if info.get("role", "master") != "master":
            raise BackendError(f"{name} is a read-only replica: use the URL of the primary, or redis+sentinel://", 1000)
        if info.get("cluster_enabled", "0") != "0" and self._address.kind != "cluster":
            raise BackendError(f"{name} is a node of a cluster: use redis+cluster://")
        policy = info.get("maxmemory_policy", "noeviction")
        if info.get("maxmemory", "0") != "0" and policy != "noeviction":
            raise BackendError(
                f"{name} drops keys when its memory is full (maxmemory-policy {policy}): set maxmemory-policy to noeviction"
            )
        if info.get("aof_enabled", "1") == "0":
            self._warn(f"{name} loses the latest changes when it dies (appendonly is no): set appendonly to yes")

    def _warn(self, text: str) -> None:
        if text not in self._warned:
            self._warned.add(text)
            logger.warning("%s", self._address.censor(text))
