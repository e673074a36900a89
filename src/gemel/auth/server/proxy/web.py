"""Requests and responses of the proxy's endpoints as values, and the ASGI apps around them."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Mapping
from typing import Any, Final, TypeAlias
from urllib.parse import parse_qsl

import msgspec

from gemel.errors import Overloaded, shorten
from gemel.http1.asgi import HeaderPairs, Receive, Scope, Send
from gemel.protocol.records import Record

logger = logging.getLogger("gemel")

#: Bytes of a body and of a query.
MAX_BODY: Final = 64 * 1024
MAX_QUERY: Final = 16 * 1024
_MAX_FIELDS: Final = 64

FORM: Final = "application/x-www-form-urlencoded"
NO_STORE: HeaderPairs = ((b"cache-control", b"no-store"), (b"pragma", b"no-cache"))
_CORS: HeaderPairs = (
    (b"access-control-allow-origin", b"*"),
    (b"access-control-allow-methods", b"GET, POST"),
    (b"access-control-allow-headers", b"Authorization, Content-Type, MCP-Protocol-Version"),
    (b"access-control-expose-headers", b"WWW-Authenticate, Retry-After"),
    (b"access-control-max-age", b"7200"),
)


_LATER: HeaderPairs = ((b"retry-after", b"5"),)


class WebRequest(Record):
    """One request: `form` has the fields of the query of a GET or of the body of a POST, `repeated` those sent twice."""

    method: str
    headers: Mapping[str, str]
    form: dict[str, str]
    repeated: frozenset[str]
    body: bytes
    address: str


class WebReply(msgspec.Struct, frozen=True):
    """A response."""

    status: int
    body: bytes = b""
    headers: HeaderPairs = ()


class OAuthError(Exception):
    """An error of OAuth (RFC 6749 §5.2).

    Args:
        error: The error code.
        description: What is wrong, for developers: ASCII without quotes, nothing secret.
        status: The HTTP status.
    """

    def __init__(self, error: str, description: str, status: int = 400, *, headers: HeaderPairs = ()) -> None:
        super().__init__(description)
        self.error = error
        self.description = description
        self.status = status
        self.headers = headers


Handle: TypeAlias = Callable[[WebRequest], Coroutine[Any, Any, WebReply]]
OnError: TypeAlias = Callable[[OAuthError], WebReply]


def json_reply(document: object, status: int = 200, headers: HeaderPairs = NO_STORE) -> WebReply:
    """A JSON response, which is not stored by default."""
    return WebReply(status, msgspec.json.encode(document), ((b"content-type", b"application/json"), *headers))


def error_reply(error: OAuthError) -> WebReply:
    """An error as JSON."""
    document = {"error": error.error, "error_description": error.description}
    return json_reply(document, error.status, (*NO_STORE, *error.headers))


class WebEndpoint:
    """The ASGI app of one endpoint.

    Args:
        handlers: What serves each method.
        on_error: Makes the response to an OAuthError; JSON by default.
        cors: Whether pages of all origins may call it with `fetch`. It uses no cookies then.
    """

    #: Origin is judged here: the pages are only usable from their own origin, the rest from all.
    any_origin = True

    def __init__(self, handlers: Mapping[str, Handle], *, on_error: OnError = error_reply, cors: bool = False) -> None:
        self._handlers = handlers
        self._on_error = on_error
        self._cors: HeaderPairs = _CORS if cors else ()
        self._allow = ", ".join([*handlers, *(["OPTIONS"] if cors else [])]).encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        method: str = scope["method"]
        # HEAD is for documents only: on a page it would use up a login that is under way.
        handle = self._handlers.get("GET" if method == "HEAD" and self._cors else method)
        if handle is None:
            reply = WebReply(204 if method == "OPTIONS" and self._cors else 405, b"", ((b"allow", self._allow),))
        else:
            try:
                request = await _read_request(scope, receive)
                answer = await _while_connected(handle(request), receive)
                if answer is None:
                    return
                reply = answer
            except OAuthError as exc:
                reply = self._on_error(exc)
            except Overloaded:
                reply = self._on_error(
                    OAuthError("temporarily_unavailable", "too many logins: try again later", 503, headers=_LATER)
                )
            except Exception:
                logger.exception("the OAuth proxy failed to serve %s", scope["path"])
                reply = self._on_error(OAuthError("server_error", "the server failed: see its log", 500))
        length = (b"content-length", str(len(reply.body)).encode())
        headers = [*reply.headers, *self._cors, length, (b"x-content-type-options", b"nosniff")]
        await send({"type": "http.response.start", "status": reply.status, "headers": headers})
        await send({"type": "http.response.body", "body": b"" if method == "HEAD" else reply.body})


async def _while_connected(work: Coroutine[Any, Any, WebReply], receive: Receive) -> WebReply | None:
    """Do some work until it is done, or the client has left: then it is cancelled, and None returned."""
    create = asyncio.get_running_loop().create_task
    task, watcher = create(work), create(_has_left(receive))
    try:
        await asyncio.wait([task, watcher], return_when=asyncio.FIRST_COMPLETED)
        if not task.done() and watcher.result():
            return None
        return await task
    finally:
        for each in (task, watcher):
            each.cancel()


async def _has_left(receive: Receive) -> bool:
    """Wait until the client leaves; the body was read, except for the empty one of a GET. False if something else comes."""
    try:
        message = await receive()
        if message["type"] == "http.request" and not message.get("body") and not message.get("more_body"):
            message = await receive()
    except OSError:
        return True
    return bool(message["type"] == "http.disconnect")


async def _read_request(scope: Scope, receive: Receive) -> WebRequest:
    """Read a request. Raises OAuthError for one that is too large or malformed."""
    headers: dict[str, str] = {}
    for name, value in scope["headers"]:
        key, text = name.decode("latin-1").lower(), value.decode("latin-1").strip(" \t")
        headers[key] = f"{headers[key]}{'; ' if key == 'cookie' else ', '}{text}" if key in headers else text
    method: str = scope["method"]
    body = b""
    if method == "POST":
        body = await _read_body(receive)
        is_form = headers.get("content-type", "").partition(";")[0].strip().lower() == FORM
        text = body if is_form else b""
    else:
        text = scope.get("query_string", b"")
        if len(text) > MAX_QUERY:
            raise OAuthError("invalid_request", f"the query has more than {MAX_QUERY} bytes", 414)
    form, repeated = _read_fields(text)
    client = scope.get("client")
    return WebRequest(method, headers, form, repeated, body, str(client[0]) if client else "")


async def _read_body(receive: Receive) -> bytes:
    parts, size, more = [], 0, True
    while more:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise OAuthError("invalid_request", "the body broke off")
        part: bytes = message.get("body", b"")
        size += len(part)
        if size > MAX_BODY:
            raise OAuthError("invalid_request", f"the body has more than {MAX_BODY} bytes", 413)
        parts.append(part)
        more = message.get("more_body", False)
    return b"".join(parts)


def _read_fields(text: bytes) -> tuple[dict[str, str], frozenset[str]]:
    """The fields of a form; the last of those with one name, and the names that came more than once."""
    try:
        pairs = parse_qsl(text.decode("ascii"), keep_blank_values=True, errors="strict", max_num_fields=_MAX_FIELDS)
    except ValueError:  # of which UnicodeDecodeError is one
        raise OAuthError("invalid_request", "the parameters are malformed, or too many") from None
    form = dict(pairs)
    if len(form) == len(pairs):
        return form, frozenset()
    names = [name for name, _ in pairs]
    return form, frozenset(name for name in form if names.count(name) > 1)


def field(request: WebRequest, name: str) -> str:
    """A parameter that must be there, once."""
    value = optional(request, name)
    if not value:
        raise OAuthError("invalid_request", f"the parameter {name} is missing")
    return value


def optional(request: WebRequest, name: str) -> str | None:
    """A parameter that may be missing, and must not come twice (RFC 6749 §3.1)."""
    if name in request.repeated:
        raise OAuthError("invalid_request", f"the parameter {shorten(name, 60)} came more than once")
    return request.form.get(name)
