"""A server whose tools are the operations of an HTTP API."""

from __future__ import annotations

import base64
import logging
import os
from collections.abc import Callable, Mapping
from typing import Any, Unpack

import msgspec
from msgspec import UNSET

from gemel.errors import DefinitionError, ToolError, shorten
from gemel.http1.client.pool import read_url
from gemel.openapi.client import ApiClient, ApiResponse, AsgiApp, Fetch, HttpClient, is_asgi_app
from gemel.openapi.document import Document
from gemel.openapi.operation import Operation, is_json
from gemel.options import accepts, options_of, resolve
from gemel.protocol.inlining import inline_references
from gemel.protocol.validation import compile_schema, first_problem
from gemel.schema.content import (
    AudioContent,
    ContentBlock,
    EmbeddedResource,
    ImageContent,
    ResourceContents,
    TextContent,
)
from gemel.schema.tools import CallToolResult, ToolAnnotations
from gemel.server.options import ApiOptions, ServerOptions
from gemel.server.server import Server

logger = logging.getLogger("gemel")

#: Characters of a body that an error shows.
_EXCERPT = 2000


@accepts(ApiOptions)
def server_from(
    document: Mapping[str, Any] | str | bytes | os.PathLike[str],
    http_client: HttpClient | Fetch | AsgiApp | None = None,
    **options: Unpack[ApiOptions],
) -> Server[Any]:
    """Make a server with one tool for each operation that an OpenAPI document describes.

    Parameters become arguments of their names, a request body becomes the argument `body`; a JSON response is the structured
    content, checked against the document's schema. GET and HEAD are marked as read-only, PUT and DELETE as idempotent.
    A status of 300 or more is a tool error with the start of the body.

    Args:
        document: the document (3.0 or newer) as a dict, as JSON, or the path of a JSON file.
        http_client: sends the requests: an object with `async request(method, url, headers, body)`, or such a function,
            that returns `(status, headers, body)`; an httpx.AsyncClient; an ASGI app (FastAPI, Starlette), which is called
            in this process. By default Gemel's own client.
        options: see `ApiOptions`, which has those of `Server` as well.

    Returns:
        A server to run, mount or connect to.

    Raises:
        DefinitionError: for a document that can't be used. An operation that can't be used is left out, with a log line.
    """
    settings = resolve(ApiOptions, options, "from_openapi")
    of_server: Any = {name: value for name, value in options.items() if name in options_of(ServerOptions)}
    spec = Document(document)
    client = ApiClient(http_client, settings["headers"], timeout=settings["timeout"], limit=settings["reply_bytes"])
    title = str(spec.info.get("title") or "API")
    defaults: dict[str, Any] = {"version": str(spec.info.get("version") or "0"), "lifespan": client.lifespan}
    server: Server[Any] = Server(settings["name"] or title, **{**defaults, **of_server})
    base_url = settings["base_url"] or str(getattr(http_client, "base_url", "")) or None
    # A request to an app in this process needs an address as well.
    origin = "http://localhost" if is_asgi_app(http_client) else ""
    taken: set[str] = set()
    for path, method, operation_object, path_item in spec.paths():
        try:
            operation = Operation(spec, path, method, operation_object, path_item)
        except DefinitionError as exc:
            logger.warning("%s %s is skipped: %s", method.upper(), path, exc)
            continue
        if settings["operations"](operation):
            tool = _unique_name(operation.name, taken)
            _register(server, tool, operation, client, _base(operation, base_url, origin))
    if not taken:
        raise DefinitionError("The OpenAPI document has no operation that can be used; the log says why")
    return server


def _base(operation: Operation, base_url: str | None, origin: str) -> str:
    base = base_url or operation.base_url
    if base.startswith("/") or not base:
        base = origin + base
    if "://" not in base:
        raise DefinitionError(f"The document has no URL of the API, only {base!r}: pass base_url='https://…'")
    read_url(base)
    if "?" in base or "#" in base:
        raise DefinitionError(f"base_url={base!r} must be a URL without ? and #")
    return base


def _unique_name(name: str, taken: set[str]) -> str:
    unique, number = name, 1
    while unique in taken:
        number += 1
        unique = f"{name[:120]}_{number}"
    taken.add(unique)
    return unique


def _register(server: Server[Any], tool: str, operation: Operation, client: ApiClient, base: str) -> None:
    check = _checker(operation, tool)

    async def call(arguments: dict[str, Any]) -> CallToolResult:
        response = await client.send(operation.request(base, arguments))
        if response.status >= 300:
            raise ToolError(_failure(response))
        result = _result(response, check)
        if operation.output_schema is not None and result.structured_content is UNSET:
            result.structured_content = None  # the schema allows null, as was checked
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
        input_schema=inline_references(operation.input_schema),
        output_schema=inline_references(operation.output_schema),
        annotations=hints,
        tags=operation.tags,
    )(call)


# ---------------------------------------------------------------- responses


def _checker(operation: Operation, tool: str) -> Callable[[Any], str | None]:
    """Return a function that checks a response against the schema of the document; it returns the error, or None."""
    if operation.output_schema is None:
        return lambda value: None
    try:
        validator = compile_schema(operation.output_schema)
    except ValueError as exc:
        logger.warning("%s: its responses are not checked, because their schema is not usable: it is %s", tool, exc)
        operation.output_schema = None
        return lambda value: None
    return lambda value: first_problem(validator, value)


def _result(response: ApiResponse, check: Callable[[Any], str | None]) -> CallToolResult:
    kind = _header(response, "content-type")
    if not response.body:
        problem = check(None)
        if problem is not None:
            raise ToolError(
                f"The API responded with HTTP {response.status} and no body, but its description requires one"
            )
        return CallToolResult(content=[])
    if is_json(kind):
        try:
            value = msgspec.json.decode(response.body)
        except (msgspec.MsgspecError, RecursionError):
            raise ToolError("The response of the API is not valid JSON") from None
        problem = check(value)
        if problem is not None:
            text = response.body.decode("utf-8", "replace")
            raise ToolError(
                f"The response of the API does not match its description: {problem}\n{shorten(text, _EXCERPT)}"
            )
        return CallToolResult(content=[TextContent(text=response.body.decode())], structured_content=value)
    problem = check(None)
    if problem is not None:
        raise ToolError(f"The API responded with {kind or 'an unknown type'}, but its description requires JSON")
    return CallToolResult(content=[_block(response, kind)])


def _block(response: ApiResponse, kind: str) -> ContentBlock:
    bare = kind.partition(";")[0].strip().lower()
    if bare.startswith("text/") or not bare:
        return TextContent(text=response.body.decode("utf-8", "replace"))
    data = base64.b64encode(response.body).decode()
    if bare.startswith("image/"):
        return ImageContent(data=data, mime_type=bare)
    if bare.startswith("audio/"):
        return AudioContent(data=data, mime_type=bare)
    return EmbeddedResource(resource=ResourceContents(uri="openapi:response", blob=data, mime_type=bare))


def _failure(response: ApiResponse) -> str:
    text = response.body.decode("utf-8", "replace").strip() if is_readable(_header(response, "content-type")) else ""
    excerpt = f": {shorten(text, _EXCERPT)}" if text else ""
    return f"The API responded with HTTP {response.status}{excerpt}"


def is_readable(kind: str) -> bool:
    """Return whether a body of this media type is text."""
    return not kind or is_json(kind) or kind.lower().startswith("text/") or "xml" in kind


def _header(response: ApiResponse, name: str) -> str:
    text = response.headers.get(name)
    if text is None:
        text = next((value for key, value in response.headers.items() if key.lower() == name), "")
    return str(text)
