"""One MCP endpoint as the HTTP client reaches it: its URL, the user's headers, authorization, redirects.

Knows how a request to it is made, and nothing of what it carries.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any, cast
from urllib.parse import urljoin

from hinge.errors import CallError, ConnectionLost, DefinitionError, HttpStatus, InvalidResponse, NotSent, shorten
from hinge.http1.client.pool import check_name, read_url
from hinge.http1.client.wire import HeaderPairs, Wire, WireResponse
from hinge.options import are_texts
from hinge.transports.http.client.errors import status_error
from hinge.transports.http.client.options import AuthValue, Credentials, UserHeaders

#: Redirects in a row, and refusals (401, 403) in a row that the credentials may react to.
MAX_REDIRECTS = 5
MAX_REFUSALS = 3
#: This much of a body is read when only an excerpt is wanted.
ERROR_BYTES = 4096

#: A user's headers don't replace these: the protocol sets them, or the connection does.
_OURS = frozenset(
    {"accept", "accept-encoding", "connection", "content-encoding", "content-length", "content-type", "host", "te"}
    | {"last-event-id", "mcp-method", "mcp-name", "mcp-protocol-version", "mcp-session-id", "trailer", "upgrade"}
    | {"transfer-encoding"}
)
_SAME_METHOD = (301, 302, 307, 308)
_REDIRECTS = (*_SAME_METHOD, 303)


class Endpoint:
    """Makes requests to one URL, over one wire."""

    def __init__(
        self, url: str, wire: Wire, headers: UserHeaders | None = None, auth: AuthValue | Credentials | None = None
    ) -> None:
        self.url = url
        self._wire = wire
        self._auth = auth
        self._fixed: list[tuple[str, str]] = [("User-Agent", "hinge")]
        self._asked: Callable[[], object] | None = None
        if callable(headers):
            self._asked = headers
        elif headers is not None:
            self._fixed = user_headers(headers)
        #: Nothing has to be asked before a request.
        self._plain = self._asked is None and auth is None

    async def request(self, method: str, headers: HeaderPairs, body: bytes | None = None) -> WireResponse:
        """Make a request; the response has any status but a redirect.

        Raises NotSent, ConnectionLost, InvalidResponse, and HttpStatus for a redirect that isn't followed and for a
        refusal that the credentials had their say about.
        """
        if self._plain:
            fixed = self._fixed if len(self._fixed) == 1 else _unless_given(headers, self._fixed)
            response = await self._wire.open(method, self.url, [*headers, *fixed], body)
            if response.status not in _REDIRECTS:
                return response
            return await self._elsewhere(method, [*headers, *fixed], body, response)
        refusals = 0
        while True:
            asked, sent = await self._ask()
            pairs = [*headers, *_unless_given(headers, asked)]
            response = await self._wire.open(method, self.url, pairs, body)
            if response.status in _REDIRECTS:
                response = await self._elsewhere(method, pairs, body, response)
            if response.status not in (401, 403) or not isinstance(self._auth, Credentials):
                return response
            refusals += 1
            refusal = await refusal_of(response, f"The server refuses {method}")
            if refusals > MAX_REFUSALS or not await self._auth.refused(refusal, sent):
                raise refusal

    async def close(self) -> None:
        """Close the wire."""
        await self._wire.close()

    async def _ask(self) -> tuple[list[tuple[str, str]], str | None]:
        """The user's headers for the next request, and the Authorization among them."""
        try:
            given = self._asked() if self._asked is not None else None
            if inspect.isawaitable(given):
                given = await given
            headers = self._fixed if given is None else user_headers(cast("Mapping[str, str]", given))
            value = self._auth() if self._auth is not None else None
            if inspect.isawaitable(value):
                value = await value
        except CallError:
            raise
        except Exception as exc:
            raise NotSent(f"The headers for {self.url} could not be made: {type(exc).__name__}: {exc}") from exc
        if value is None:
            return headers, None
        return [*(pair for pair in headers if pair[0].lower() != "authorization"), ("Authorization", value)], value

    async def _elsewhere(
        self, method: str, headers: HeaderPairs, body: bytes | None, response: WireResponse
    ) -> WireResponse:
        """Follow redirects within the origin with the same method; a permanent one is remembered."""
        url, permanent = self.url, True
        for _ in range(MAX_REDIRECTS):
            url = self._location(url, response)
            permanent = permanent and response.status in (301, 308)
            response.release(finish=True)
            response = await self._wire.open(method, url, headers, body)
            if response.status not in _REDIRECTS:
                if permanent:
                    self.url = url
                return response
        status = status_error(f"More than {MAX_REDIRECTS} redirects", response.status, response.headers)
        response.release()
        raise status

    def _location(self, url: str, response: WireResponse) -> str:
        """Where a redirect leads, if it may be followed: a message must not reach a server that nobody named."""
        location = response.headers.get("location", "")
        try:
            target = urljoin(url, location).partition("#")[0]
            same = bool(location) and read_url(target).origin == read_url(url).origin
        except (DefinitionError, ValueError):
            target, same = shorten(location), False
        if same and response.status in _SAME_METHOD:
            return target
        why = f"The server redirects to {target!r}" if location else "The server redirects to nowhere"
        if not same:
            why += ", which is not the same scheme, host and port. Use that URL if you trust it"
        response.release()
        raise status_error(why, response.status, response.headers)


def user_headers(headers: Mapping[str, str]) -> list[tuple[str, str]]:
    """What a user wants sent with every request, without what the protocol sets itself."""
    pairs = _checked(headers)
    if all(name.lower() != "user-agent" for name, _ in pairs):
        pairs.append(("User-Agent", "hinge"))
    return pairs


def call_headers(headers: Mapping[str, str]) -> list[tuple[str, str]]:
    """What a user wants sent with one request only. Raises DefinitionError for what can't be sent."""
    pairs = _checked(headers)
    if any(name.lower() == "user-agent" for name, _ in pairs):
        raise DefinitionError(
            "`headers` of one request: the User-Agent is a header of the client, Client(…, headers=…)"
        )
    return pairs


def _checked(headers: Any) -> list[tuple[str, str]]:
    if not (isinstance(headers, Mapping) and are_texts(headers) and are_texts(list(headers.values()))):
        raise DefinitionError('`headers` must map header names to text: {"X-Name": "value"}')
    pairs = [(name, value) for name, value in headers.items() if name.lower() not in _OURS]
    try:
        for name, value in pairs:
            check_name(name)
            if set(value) & {"\r", "\n", "\0"}:
                raise NotSent(f"The value of the header {name} holds a line end or NUL")
    except NotSent as exc:
        raise DefinitionError(f"`headers` must map header names to text: {exc}") from None
    return pairs


def _unless_given(headers: HeaderPairs, fixed: list[tuple[str, str]]) -> list[tuple[str, str]]:
    """The headers of the client, without those that a request has of its own."""
    given = {name.lower() for name, _ in headers}
    return [pair for pair in fixed if pair[0].lower() not in given]


async def read_start(response: WireResponse, limit: int) -> bytes:
    """The first bytes of a body, about `limit` of them; the rest is thrown away. What breaks off counts as its end."""
    parts: list[bytes] = []
    size = 0
    try:
        while size < limit and (piece := await response.read()):
            parts.append(piece)
            size += len(piece)
    except (ConnectionLost, InvalidResponse):
        pass
    response.release()
    return b"".join(parts)


async def refusal_of(response: WireResponse, what: str) -> HttpStatus:
    """The error for a response whose content matters only as an excerpt."""
    return status_error(what, response.status, response.headers, await read_start(response, ERROR_BYTES))
