"""A server whose tools are the operations of an HTTP API. Knows tools and answers; how a request is made is the
operation's business, how it is sent is the client's that it is given.
"""

from __future__ import annotations

import asyncio
import base64
import inspect
import logging
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any, NamedTuple, Protocol, TypeAlias, Unpack, cast

import msgspec
from msgspec import UNSET

from hinge.errors import CallError, DefinitionError, ToolError, shorten
from hinge.http1.client.pool import SocketWire, read_url
from hinge.openapi.asgi import AsgiApp, ask, is_asgi_app
from hinge.openapi.document import Document
from hinge.openapi.operation import Operation, Request, is_json
from hinge.options import accepts, options_of, resolve
from hinge.protocol.validation import compile_schema, first_problem
from hinge.schema.content import (
    AudioContent,
    ContentBlock,
    EmbeddedResource,
    ImageContent,
    ResourceContents,
    TextContent,
)
from hinge.schema.tools import CallToolResult, ToolAnnotations
from hinge.server.options import ApiOptions, ServerOptions
from hinge.server.server import Server

logger = logging.getLogger("hinge")

#: As much of a failure's body is shown to the model.
_EXCERPT = 2000


class Answer(NamedTuple):
    """What an HTTP API answers: the status, headers by lower-case name, the whole body."""

    status: int
    headers: Mapping[str, str]
    body: bytes


class HttpClient(Protocol):
    """Whatever sends a request and gives the answer, as an Answer or a plain tuple of the same three; or as httpx does."""

    @property
    def request(self) -> Callable[..., Awaitable[Any]]:
        """`(method, url, headers, body)`; redirects may be followed or not."""
        ...


Fetch: TypeAlias = Callable[[str, str, Mapping[str, str], bytes | None], Awaitable[Any]]
Headers: TypeAlias = Mapping[str, str] | Callable[[], Mapping[str, str]]


@accepts(ApiOptions)
def server_from(
    document: Mapping[str, Any] | str | bytes | os.PathLike[str],
    http_client: HttpClient | Fetch | AsgiApp | None = None,
    **options: Unpack[ApiOptions],
) -> Server[Any]:
    """Make a server with one tool for each operation that an OpenAPI document describes.

    Parameters become arguments of their names, a request body becomes the argument `body`; a JSON answer is the structured
    content, checked against the document's schema. GET and HEAD are marked as read-only, PUT and DELETE as idempotent.
    A status of 300 or more is a tool error with the start of the body.

    Args:
        document: the document (3.0 or newer) as a dict, as JSON, or the path of a JSON file.
        http_client: sends the requests: an object with `async request(method, url, headers, body)`, or such a function,
            that returns `(status, headers, body)`; an httpx.AsyncClient; an ASGI app (FastAPI, Starlette), which is called
            in this process. By default Hinge's own client.
        options: see `ApiOptions`, which has those of `Server` as well.

    Returns:
        A server to run, mount or connect to.

    Raises:
        DefinitionError: for a document that can't be used. An operation that can't be used is left out, with a log line.
    """
    settings = resolve(ApiOptions, options, "from_openapi")
    of_server: Any = {name: value for name, value in options.items() if name in options_of(ServerOptions)}
    read = Document(document)
    sender = _Sender(http_client, settings["headers"], timeout=settings["timeout"], limit=settings["reply_bytes"])
    title = str(read.info.get("title") or "API")
    said: dict[str, Any] = {"version": str(read.info.get("version") or "0"), "lifespan": sender.life}
    server: Server[Any] = Server(settings["name"] or title, **{**said, **of_server})
    # An app in this process has no address; one must be written all the same.
    home = "http://localhost" if is_asgi_app(http_client) else ""
    taken: set[str] = set()
    for path, method, about, around in read.paths():
        try:
            operation = Operation(read, path, method, about, around)
        except DefinitionError as exc:
            logger.warning("%s %s is left out: %s", method.upper(), path, exc)
            continue
        if settings["operations"](operation):
            tool = _unused(operation.name, taken)
            _register(server, tool, operation, sender, _base(operation, settings["base_url"], home))
    if not taken:
        raise DefinitionError("The OpenAPI document has no operation that can be offered; see the log for why")
    return server


def _base(operation: Operation, base_url: str | None, home: str) -> str:
    base = operation.base_url if base_url is None else base_url
    if base.startswith("/") or not base:
        base = home + base
    if "://" not in base:
        raise DefinitionError(f"The document doesn't say where the API is (only {base!r}): pass base_url='https://…'")
    read_url(base)
    if "?" in base or "#" in base:
        raise DefinitionError(f"base_url={base!r} must be a plain address, without ? and #")
    return base


def _unused(name: str, taken: set[str]) -> str:
    found, number = name, 1
    while found in taken:
        number += 1
        found = f"{name[:120]}_{number}"
    taken.add(found)
    return found


def _register(server: Server[Any], tool: str, operation: Operation, sender: _Sender, base: str) -> None:
    check = _checker(operation, tool)

    async def call(arguments: dict[str, Any]) -> CallToolResult:
        answer = await sender.send(operation.request(base, arguments))
        if answer.status >= 300:
            raise ToolError(_failure(answer))
        result = _result(answer, check)
        if operation.output_schema is not None and result.structured_content is UNSET:
            result.structured_content = None  # which the schema allows, or it would have been refused
        return result

    reads = operation.method in ("GET", "HEAD", "OPTIONS")
    hints = ToolAnnotations(
        read_only_hint=reads,
        destructive_hint=None if reads else operation.method != "POST",
        idempotent_hint=None if reads else operation.method in ("PUT", "DELETE"),
        open_world_hint=True,
    )
    server.tool(
        tool,
        title=operation.summary,
        description=operation.description or operation.summary or f"{operation.method} {operation.path}",
        input_schema=operation.input_schema,
        output_schema=operation.output_schema,
        annotations=hints,
        tags=operation.tags,
    )(call)


# ---------------------------------------------------------------- sending


class _Sender:
    """Sends requests by the client that was given, or by a wire of our own that lives as long as the server runs."""

    def __init__(self, client: Any, headers: Headers | None, *, timeout: float, limit: int) -> None:
        self._fetch = _fetch_of(client, limit)
        self._headers = headers
        self._timeout = timeout
        self._limit = limit
        self._wire: SocketWire | None = None

    @asynccontextmanager
    async def life(self, server: Server[Any]) -> AsyncIterator[None]:
        """Keep connections while the server runs."""
        self._wire = SocketWire(connect=self._timeout)
        try:
            yield
        finally:
            wire, self._wire = self._wire, None
            await wire.close()

    async def send(self, request: Request) -> Answer:
        """The answer. Raises ToolError, in words that name no address."""
        given = self._headers() if callable(self._headers) else self._headers
        own = {name.lower() for name in given or ()}
        headers = {
            **{name: value for name, value in request.headers.items() if name.lower() not in own},
            **(given or {}),
        }
        try:
            async with asyncio.timeout(self._timeout):
                if self._fetch is not None:
                    return Answer(*await self._fetch(request.method, request.url, headers, request.body))
                return await self._by_wire(request, headers)
        except ToolError:
            raise
        except TimeoutError:
            raise ToolError(f"The API did not answer within {self._timeout:g} seconds") from None
        except (CallError, OSError) as exc:
            logger.warning("%s %s failed: %s", request.method, request.url.partition("?")[0], exc)
            raise ToolError("The API can't be reached") from exc

    async def _by_wire(self, request: Request, headers: Mapping[str, str]) -> Answer:
        wire = self._wire or SocketWire(connect=self._timeout)
        try:
            body = request.body if request.body is not None or request.method in ("GET", "HEAD") else b""
            response = await wire.open(request.method, request.url, list(headers.items()), body)
            try:
                found = bytearray()
                while request.method != "HEAD" and (piece := await response.read()):
                    found += piece
                    if len(found) > self._limit:
                        raise ToolError(f"The API's answer has more than {self._limit} bytes")
                return Answer(response.status, response.headers, bytes(found))
            finally:
                response.release(finish=True)
        finally:
            if wire is not self._wire:
                await wire.close()


def _fetch_of(client: Any, limit: int) -> Fetch | None:
    """What sends a request: the client's method, or the client if it is a function. httpx's way of it is known, too.

    An ASGI app is asked in this process.
    """
    if client is None:
        return None
    if is_asgi_app(client):
        return lambda method, url, headers, body: ask(client, method, url, headers, body, limit)
    if not callable(getattr(client, "request", client)):
        raise DefinitionError("http_client must be an async function or have an async method `request`")
    fetch = cast("Fetch", getattr(client, "request", client))
    if "content" not in inspect.signature(fetch).parameters:
        return fetch
    request = cast("Callable[..., Awaitable[Any]]", fetch)

    async def by_keywords(method: str, url: str, headers: Mapping[str, str], body: bytes | None) -> Answer:
        response = await request(method, url, headers=dict(headers), content=body)
        return Answer(response.status_code, response.headers, response.content)

    return by_keywords


# ---------------------------------------------------------------- answers


def _checker(operation: Operation, tool: str) -> Callable[[Any], str | None]:
    """What is wrong with an answer by the document's own schema; None for nothing (TOOL-15)."""
    if operation.output_schema is None:
        return lambda value: None
    try:
        validator = compile_schema(operation.output_schema)
    except ValueError as exc:
        logger.warning("%s: its answers are not checked, and their schema is not shown: it is %s", tool, exc)
        operation.output_schema = None
        return lambda value: None
    return lambda value: first_problem(validator, value)


def _result(answer: Answer, check: Callable[[Any], str | None]) -> CallToolResult:
    kind = _header(answer, "content-type")
    if not answer.body:
        problem = check(None)
        if problem is not None:
            raise ToolError(f"The API answered HTTP {answer.status} with nothing, though it promises something")
        return CallToolResult(content=[])
    if is_json(kind):
        try:
            value = msgspec.json.decode(answer.body)
        except (msgspec.MsgspecError, RecursionError):
            raise ToolError("The API's answer says it is JSON, but can't be read") from None
        problem = check(value)
        if problem is not None:
            text = answer.body.decode("utf-8", "replace")
            raise ToolError(f"The API's answer doesn't fit its own description: {problem}\n{shorten(text, _EXCERPT)}")
        return CallToolResult(content=[TextContent(text=answer.body.decode())], structured_content=value)
    problem = check(None)
    if problem is not None:
        raise ToolError(f"The API answered with {kind or 'something untyped'}, though its description promises JSON")
    return CallToolResult(content=[_block(answer, kind)])


def _block(answer: Answer, kind: str) -> ContentBlock:
    bare = kind.partition(";")[0].strip().lower()
    if bare.startswith("text/") or not bare:
        return TextContent(text=answer.body.decode("utf-8", "replace"))
    data = base64.b64encode(answer.body).decode()
    if bare.startswith("image/"):
        return ImageContent(data=data, mime_type=bare)
    if bare.startswith("audio/"):
        return AudioContent(data=data, mime_type=bare)
    return EmbeddedResource(resource=ResourceContents(uri="openapi:answer", blob=data, mime_type=bare))


def _failure(answer: Answer) -> str:
    text = answer.body.decode("utf-8", "replace").strip() if is_readable(_header(answer, "content-type")) else ""
    said = f": {shorten(text, _EXCERPT)}" if text else ""
    return f"The API answered with HTTP {answer.status}{said}"


def is_readable(kind: str) -> bool:
    """Whether a body of this type can be shown as text."""
    return not kind or is_json(kind) or kind.lower().startswith("text/") or "xml" in kind


def _header(answer: Answer, name: str) -> str:
    found = answer.headers.get(name)
    if found is None:
        found = next((value for key, value in answer.headers.items() if key.lower() == name), "")
    return str(found)
