"""The keys that verify tokens: fetched from an authorization server and kept, or from a file, a function or the program."""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections.abc import Awaitable, Callable, Coroutine, Hashable, Mapping, Sequence
from functools import partial
from inspect import isawaitable
from pathlib import Path
from typing import Any, Final, Generic, TypeAlias, TypeVar

import msgspec

from gemel.auth.flow import Fetcher, Flow, HttpRequest
from gemel.auth.jose import WebKey, import_key, import_keys, thumbprint
from gemel.auth.metadata import AuthorizationServer, authorization_server_urls, read_metadata
from gemel.auth.server.options import HTTPS_ADVICE, is_issuer
from gemel.auth.server.resource import AuthorizationServerDown
from gemel.auth.url_rules import UrlRules, describe
from gemel.errors import AuthorizationFailed, DefinitionError, shorten
from gemel.loops import PerLoop
from gemel.timeouts import wait_shared

logger = logging.getLogger("gemel")
ResultT = TypeVar("ResultT")

#: Seconds after which keys are fetched again.
TTL: Final = 600.0
#: Seconds for which keys are used although they can't be fetched again.
STALE: Final = 24 * 3600.0
#: Seconds between two attempts to fetch keys: for an unknown key, and after a failure.
PAUSE: Final = 10.0

#: Seconds for all requests that lead to a document.
FETCH_SECONDS: Final = 15.0

#: Where keys come from; see the option `keys` of `JWTAuth`.
KeySource: TypeAlias = (
    str | os.PathLike[str] | Mapping[str, Any] | Callable[[], Mapping[str, Any] | Awaitable[Mapping[str, Any]]]
)


class SingleFlight(Generic[ResultT]):
    """Does the same work once at a time: whoever comes meanwhile gets the same result."""

    def __init__(self) -> None:
        #: In each event loop, by key.
        self._running: PerLoop[dict[Hashable, asyncio.Task[ResultT]]] = PerLoop(dict)

    def __contains__(self, key: Hashable) -> bool:
        return key in self._running.here()

    async def run(self, key: Hashable, work: Callable[[], Coroutine[Any, Any, ResultT]]) -> ResultT:
        """Wait for the work with this key; it is begun if it isn't under way. Cancelling one who waits doesn't end it."""
        running = self._running.here()
        task = running.get(key)
        if task is None:
            task = running[key] = asyncio.get_running_loop().create_task(work())
            task.add_done_callback(partial(_forget, running, key))
        return await wait_shared(task)


def _forget(running: dict[Hashable, asyncio.Task[Any]], key: Hashable, task: asyncio.Task[Any]) -> None:
    del running[key]
    if not task.cancelled():
        task.exception()  # marks it as retrieved: those who waited may have left


class Keys:
    """The keys of one issuer that stand in the program."""

    def __init__(self, keys: Sequence[WebKey]) -> None:
        self._keys = keys
        #: Called when a key is no longer among them.
        self.on_withdrawal: Callable[[], None] = lambda: None

    def seconds_left(self) -> float | None:
        """Return for how many seconds what they verified counts; None for always."""
        return None

    async def current(self) -> Sequence[WebKey]:
        """Return the keys."""
        return self._keys

    async def newer(self, than: Sequence[WebKey]) -> Sequence[WebKey] | None:
        """Return other keys, for a token that is signed with none of these; None if there are no others."""
        return None


class LoadedKeys(Keys):
    """The keys of one issuer that are loaded again after some time, and when a token names an unknown one.

    One load is under way at a time, and two begin at least `PAUSE` seconds apart, whatever tokens name. If loading fails, the
    keys are used for up to a day.

    Args:
        load: Loads the key set.
        name: What is loaded, for the log.
    """

    def __init__(self, load: Callable[[], Awaitable[Mapping[str, Any]]], name: str) -> None:
        super().__init__(())
        self._load = load
        self._name = name
        self._loaded = self._tried = float("-inf")
        self._flight: SingleFlight[None] = SingleFlight()

    async def current(self) -> Sequence[WebKey]:
        """Return the keys.

        Raises:
            AuthorizationServerDown: They were never loaded, or not for a day.
        """
        if time.monotonic() - self._loaded >= TTL:
            await self._refresh()
            if time.monotonic() - self._loaded >= STALE:
                raise AuthorizationServerDown("Access tokens can't be verified now: try again later")
        return self._keys

    def seconds_left(self) -> float:
        """Return the seconds until they are loaded again: then tokens are verified with those."""
        return max(self._loaded + TTL - time.monotonic(), PAUSE)

    async def newer(self, than: Sequence[WebKey]) -> Sequence[WebKey] | None:
        """Load the keys again, unless that was just done."""
        if self._keys is than:
            await self._refresh()
        return None if self._keys is than else self._keys

    async def _refresh(self) -> None:
        if None in self._flight or time.monotonic() - self._tried >= PAUSE:
            await self._flight.run(None, self._attempt)

    async def _attempt(self) -> None:
        self._tried = time.monotonic()
        try:
            keys = import_keys(await self._load())
            if not keys:
                raise ValueError("the key set has no key that verifies signatures")
        except Exception as exc:
            logger.warning("the keys of %s can't be loaded: %s", self._name, str(exc) or type(exc).__name__)
            return
        before, self._keys = self._keys, keys
        self._loaded = time.monotonic()
        if not {(key.kid, thumbprint(key)) for key in before} <= {(key.kid, thumbprint(key)) for key in keys}:
            self.on_withdrawal()


def keys_of(issuer: str, source: KeySource | None) -> Keys:
    """Make the source of the keys of an issuer.

    Args:
        issuer: The issuer.
        source: See the option `keys` of `JWTAuth`; None finds the keys by the metadata of the issuer.

    Returns:
        The keys.

    Raises:
        DefinitionError: The source can't be used.
    """
    if source is None:
        rules = UrlRules(issuer)
        return LoadedKeys(lambda: fetch(rules, _issuer_keys(issuer)), issuer)
    if isinstance(source, Mapping):
        return Keys(_static(source))
    if isinstance(source, str) and "-----BEGIN" in source:
        return Keys(_static(source))
    if isinstance(source, str) and "://" in source:
        if not is_issuer(source):
            raise DefinitionError(f"keys={shorten(repr(source))} is not possible: {HTTPS_ADVICE}")
        rules, url = UrlRules(issuer, trusted=[source]), source
        return LoadedKeys(lambda: fetch(rules, _key_set(url)), url)
    if isinstance(source, str | os.PathLike):
        path = Path(source)
        if not path.is_file():
            raise DefinitionError(f"keys={str(source)!r} is not possible: there is no such file")
        return LoadedKeys(lambda: _read(path), str(path))
    function = source
    return LoadedKeys(lambda: _call(function), issuer)


def _static(source: Mapping[str, Any] | str) -> list[WebKey]:
    try:
        keys = import_keys(source) if isinstance(source, Mapping) and "keys" in source else [import_key(source)]
    except ValueError as exc:
        raise DefinitionError(f"keys=… is not possible: {exc}") from None
    if not any(key.algorithms for key in keys):
        raise DefinitionError("keys=… is not possible: there is no key that verifies signatures")
    return keys


async def _call(function: Callable[[], Any]) -> Mapping[str, Any]:
    result = function()
    document: Mapping[str, Any] = await result if isawaitable(result) else result
    return document


async def _read(path: Path) -> Mapping[str, Any]:
    """Read a file that holds a key set, one key, or PEM text."""
    text = await asyncio.to_thread(path.read_bytes)
    if b"-----BEGIN" in text:
        return {"keys": [import_key(text).material.as_dict(private=False)]}
    document = _decoded(text)
    return document if "keys" in document else {"keys": [document]}


async def fetch(rules: UrlRules, flow: Flow[ResultT]) -> ResultT:
    """Drive a flow within `FETCH_SECONDS`."""
    async with Fetcher(rules) as fetcher, asyncio.timeout(FETCH_SECONDS):
        return await fetcher.run(flow)


def issuer_metadata(issuer: str) -> Flow[AuthorizationServer]:
    """Fetch the metadata of an issuer that the operator named.

    Args:
        issuer: The issuer.

    Returns:
        The flow; its result is the metadata.

    Raises:
        AuthorizationFailed: There is none, or it names another issuer (RFC 8414 §3.3).
    """
    failures: list[str] = []
    for url in authorization_server_urls(issuer):
        try:
            response = yield HttpRequest("GET", url, (("Accept", "application/json"),))
            if response.status != 200:
                raise AuthorizationFailed(f"{describe(url)} answers HTTP {response.status}")
            metadata = read_metadata(response.body, AuthorizationServer)
            if metadata.issuer != issuer:
                raise AuthorizationFailed(f"its metadata spells it {shorten(metadata.issuer)!r}: write it exactly so")
        except AuthorizationFailed as exc:
            failures.append(str(exc))
        except ValueError as exc:
            failures.append(f"{describe(url)}: {exc}")
        else:
            return metadata
    raise AuthorizationFailed(f"it has no metadata that can be used: {'; '.join(failures)}")


def _issuer_keys(issuer: str) -> Flow[Mapping[str, Any]]:
    metadata = yield from issuer_metadata(issuer)
    if metadata.jwks_uri is None:
        raise AuthorizationFailed("its metadata names no jwks_uri: give keys=…")
    return (yield from _key_set(metadata.jwks_uri))


def _key_set(url: str) -> Flow[Mapping[str, Any]]:
    response = yield HttpRequest("GET", url, (("Accept", "application/json, application/jwk-set+json"),))
    if response.status != 200:
        raise AuthorizationFailed(f"{url} answered {response.status}")
    return _decoded(response.body)


def _decoded(data: bytes) -> dict[str, Any]:
    try:
        return msgspec.json.decode(data, type=dict[str, Any])
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        raise ValueError("it is not a JSON object") from None
