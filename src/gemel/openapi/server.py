"""A server whose tools are the operations of an HTTP API."""

from __future__ import annotations

import base64
import json
import logging
from collections.abc import Callable
from typing import Any, TypeAlias, Unpack
from urllib.parse import urljoin, urlsplit

import msgspec
from msgspec import UNSET

from gemel.errors import DefinitionError, ToolError, shorten
from gemel.http1.asgi import AsgiApp, is_asgi_app
from gemel.http1.client.pool import read_url
from gemel.openapi.bodies import bare, charset_of, is_json
from gemel.openapi.client import ApiClient, ApiResponse, Fetch, HttpClient
from gemel.openapi.document import Document
from gemel.openapi.operation import Operation
from gemel.openapi.source import Source
from gemel.options import accepts, options_of, resolve
from gemel.protocol.inline_refs import inline_references
from gemel.protocol.validation import compile_schema, first_problem
from gemel.schema.base import NO_VERSION
from gemel.schema.content import (
    AudioContent,
    ContentBlock,
    EmbeddedResource,
    ImageContent,
    ResourceContents,
    TextContent,
)
from gemel.schema.tools import CallToolResult, ToolAnnotations
from gemel.server.features.content import is_text_type
from gemel.server.options import ApiOptions, ServerOptions
from gemel.server.server import Server

logger = logging.getLogger("gemel")

#: Characters of a body that an error shows.
_EXCERPT = 2000


@accepts(ApiOptions)
def server_from(
    document: Source,
    http_client: HttpClient | Fetch | AsgiApp | None = None,
    **options: Unpack[ApiOptions],
) -> Server[Any]:
    """Make a server with one tool for each operation that an OpenAPI document describes.

    Parameters become arguments of their names, a request body becomes the argument `body`; a JSON response is the structured
    content, checked against the document's schema. GET and HEAD are marked as read-only, PUT and DELETE as idempotent.
    A status of 300 or more is a tool error with the start of the body.

    Args:
        document: the document (3.0 or newer): a dict, JSON or YAML, the path of a file, or a URL, which is fetched at once.
            YAML needs the extra `gemel[openapi]`.
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
    spec = Document(document, settings["timeout"])
    client = ApiClient(http_client, settings["headers"], timeout=settings["timeout"], limit=settings["reply_bytes"])
    title = str(spec.info.get("title") or "API")
    defaults: dict[str, Any] = {"version": str(spec.info.get("version") or NO_VERSION), "lifespan": client.lifespan}
    server: Server[Any] = Server(settings["name"] or title, **{**defaults, **of_server})
    base_url = settings["base_url"] or str(getattr(http_client, "base_url", "")) or None
    # Relative addresses are those of where the document was. A request to an app in this process needs one as well.
    place = "http://localhost/" if is_asgi_app(http_client) else spec.url
    taken: set[str] = set()
    for path, method, operation_object, path_item in spec.paths():
        try:
            operation = Operation(spec, path, method, operation_object, path_item)
        except DefinitionError as exc:
            logger.warning("%s %s is skipped: %s", method.upper(), path, exc)
            continue
        if settings["operations"](operation):
            tool = _unique_name(operation.name, taken)
            base = _base(operation.base_url, base_url, place)
            chosen = {name: settings[name] for name in ("validate_output", "list_null")}
            _register(server, tool, operation, client, base, **chosen)
    if not taken:
        raise DefinitionError("The OpenAPI document has no operation that can be used; the log says why")
    return server


def _base(stated: str, given: str | None, place: str) -> str:
    """Return the URL of the API: `base_url` with the path of a relative server, or the server of the document."""
    is_relative = "://" not in stated and not stated.startswith("//")
    if given is None:
        base = urljoin(place, stated or "/") if place else stated
    else:
        path = urlsplit(urljoin("http://host/", stated)).path.rstrip("/") if is_relative else ""
        base = given.rstrip("/")
        if not urlsplit(base).path.endswith(path):
            base += path
    if "://" not in base:
        raise DefinitionError(f"The document has no URL of the API, only {base!r}: pass base_url='https://…'")
    if "{" in base:
        raise DefinitionError(f"A variable of the server {base!r} has no default: pass base_url='https://…'")
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


def _register(
    server: Server[Any],
    tool: str,
    operation: Operation,
    client: ApiClient,
    base: str,
    *,
    validate_output: bool,
    list_null: bool,
) -> None:
    check = _checker(operation, tool)
    #: Clients hold results to the listed schema.
    output_schema = operation.output_schema if validate_output else None

    def judge(value: object, wrong: str, text: str | None = None) -> None:
        """Hold a response to the schema: raises ToolError with the start of its text, or logs what is wrong."""
        problem = check(value)
        if problem is None:
            return
        if text is not None:
            wrong = f"{wrong}: {problem}"
        if validate_output:
            raise ToolError(f"{wrong}\n{shorten(text, _EXCERPT)}" if text else wrong)
        logger.warning("Tool %r: %s", tool, wrong)

    async def call(arguments: dict[str, Any]) -> CallToolResult:
        response = await client.send(operation.request(base, arguments))
        if response.status >= 300:
            raise ToolError(_failure(response))
        result = _result(response, judge)
        if output_schema is not None and result.structured_content is UNSET:
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
        output_schema=inline_references(output_schema),
        annotations=hints,
        tags=operation.tags,
        list_null=list_null,
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


#: Holds a value to the schema of the response: `judge(value, what is wrong, text of the response)`.
_Judge: TypeAlias = Callable[..., None]


def _result(response: ApiResponse, judge: _Judge) -> CallToolResult:
    kind = _header(response, "content-type")
    if not response.body:
        wrong = f"The API responded with HTTP {response.status} and no body, but its description requires one"
        judge(None, wrong)
        return CallToolResult(content=[])
    if is_json(kind):
        value, text = _read_json(response.body, kind)
        judge(value, "The response of the API does not match its description", text)
        return CallToolResult(content=[TextContent(text=text)], structured_content=value)
    judge(None, f"The API responded with {shorten(kind) or 'an unknown type'}, but its description requires JSON")
    return CallToolResult(content=[_block(response, kind)])


def _read_json(body: bytes, kind: str) -> tuple[Any, str]:
    """Read JSON as a value and as text. It is UTF-8 (RFC 8259), unless it can't be: then the declared charset counts."""
    try:
        return msgspec.json.decode(body), body.decode()
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        pass
    try:
        text = _decode(body, charset_of(kind) or json.detect_encoding(body))
        return msgspec.json.decode(text), text
    except (msgspec.MsgspecError, RecursionError):
        raise ToolError("The response of the API is not valid JSON") from None


def _decode(body: bytes, charset: str | None) -> str:
    """Text in a charset, by default UTF-8. What it can't decode is replaced; an unknown charset is taken for UTF-8."""
    try:
        return body.decode(charset or "utf-8-sig", "replace")
    except (LookupError, ValueError):
        return body.decode("utf-8-sig", "replace")


def _block(response: ApiResponse, kind: str) -> ContentBlock:
    if is_readable(kind):
        return TextContent(text=_decode(response.body, charset_of(kind)))
    mime_type, data = bare(kind), base64.b64encode(response.body).decode()
    if mime_type.startswith("image/"):
        return ImageContent(data=data, mime_type=mime_type)
    if mime_type.startswith("audio/"):
        return AudioContent(data=data, mime_type=mime_type)
    return EmbeddedResource(resource=ResourceContents(uri="openapi:response", blob=data, mime_type=mime_type))


def _failure(response: ApiResponse) -> str:
    kind = _header(response, "content-type")
    text = _decode(response.body, charset_of(kind)).strip() if is_readable(kind) else ""
    excerpt = f": {shorten(text, _EXCERPT)}" if text else ""
    return f"The API responded with HTTP {response.status}{excerpt}"


def is_readable(kind: str) -> bool:
    """Return whether a body of this media type is text: by its type, or because its charset is declared."""
    return not bare(kind) or is_text_type(kind) or charset_of(kind) is not None


def _header(response: ApiResponse, name: str) -> str:
    text = response.headers.get(name)
    if text is None:
        text = next((value for key, value in response.headers.items() if key.lower() == name), "")
    return str(text)
