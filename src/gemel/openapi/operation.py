"""One operation of an HTTP API: its arguments, its result, and the request that is made of arguments.

A path parameter is one segment of the path: it is encoded, and the resulting path is checked against the path template of the
operation, so that arguments can't select another endpoint.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple
from urllib.parse import quote, urlsplit

import msgspec

from gemel.errors import DefinitionError, ToolError, shorten
from gemel.openapi.bodies import JSON, RequestBody, is_json
from gemel.openapi.document import Document, Json
from gemel.openapi.styles import (
    STYLES,
    Encode,
    explodes,
    is_undefined,
    percent,
    percent_unless_reserved,
    plain,
    verbatim,
    write_label,
    write_matrix,
    write_pairs,
    write_simple,
)
from gemel.server.features.files import leads_out
from gemel.server.functions.optional import strip_null

_VARIABLE = re.compile(r"\{([^{}]+)\}")
_NAME = re.compile(r"[^A-Za-z0-9_.-]+")
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
#: What would end a cookie, or the header of cookies.
_NOT_IN_COOKIES = re.compile(r"[\x00-\x1f\x7f;]|[^\x00-\x7f]")
#: Characters that the literal parts of a path keep (RFC 3986, `pchar`, with escapes that the document has).
_PATH = "/%:@!$&'()*+,;=~"
#: Headers that arguments can't set: they belong to the message, the connection or authentication.
_RESERVED = frozenset(
    {"accept", "authorization", "connection", "content-length", "content-type", "cookie", "host", "proxy-authorization"}
    | {"te", "trailer", "transfer-encoding", "upgrade"}
)


class ApiRequest(NamedTuple):
    """An HTTP request."""

    method: str
    url: str
    headers: dict[str, str]
    body: bytes | None


class ApiParameter(NamedTuple):
    """One parameter: its place and style, and the argument with its value.

    `media` is the media type of its value; empty if it is written by its style.
    """

    name: str
    place: str
    argument: str
    explode: bool
    style: str
    allow_reserved: bool
    media: str


class Operation:
    """One operation of an API, for `operations=` of `server_from`.

    Args:
        document: The OpenAPI document.
        path: The path template.
        method: The HTTP method.
        operation: The operation object of the document.
        path_item: The path item that contains it.

    Attributes:
        path: The path template.
        method: The HTTP method in capitals.
        id: The operationId; empty if it is missing.
        summary: The summary; None if it is missing.
        description: The description; None if it is missing.
        tags: The tags.
        deprecated: Whether it is deprecated.
        base_url: The URL of the API for this operation as the document states it, which may be relative; empty if it doesn't.
        parameters: The parameters.
        body_type: The media type of the request body; empty if there is none.
        output_schema: The JSON Schema of a successful response; None if it is unknown.

    Raises:
        DefinitionError: The operation can't be a tool; the message says why.
    """

    def __init__(self, document: Document, path: str, method: str, operation: Json, path_item: Json) -> None:
        self.path = path
        self.method = method.upper()
        self.id = str(operation.get("operationId") or "")
        self.summary = _text(operation.get("summary") or path_item.get("summary"))
        self.description = _text(operation.get("description") or path_item.get("description"))
        self.tags: tuple[str, ...] = tuple(str(tag) for tag in operation.get("tags") or ())
        self.deprecated = operation.get("deprecated") is True
        self.base_url = document.base_url(operation, path_item)
        self.body_type = ""
        self._document = document
        self._definitions: Json = {}
        self._properties: Json = {}
        self._required: list[str] = []
        self.parameters = [
            found for one in _parameters(document, operation, path_item) if (found := self._parameter(one))
        ]
        self._body: RequestBody | None = None
        self._body_argument = ""
        self._take_body(document.follow(operation.get("requestBody")))
        self.output_schema = self._success_schema(operation.get("responses"))
        missing = set(_VARIABLE.findall(path)) - {one.name for one in self.parameters if one.place == "path"}
        if missing:
            raise DefinitionError(f"its path has no parameter for {', '.join(sorted(missing))}")
        if not path.startswith("/") or set(path) & {"?", "#"}:
            raise DefinitionError("its path must begin with / and have no ? or #")

    @property
    def name(self) -> str:
        """The name of the tool: the operationId, or method and path."""
        text = self.id or f"{self.method} {self.path}".lower().replace("/", " ").replace("{", "").replace("}", "")
        return _NAME.sub("_", text).strip("_")[:128] or "operation"

    # ---------------------------------------------------------------- arguments

    @property
    def input_schema(self) -> Json:
        """The JSON Schema of the arguments."""
        schema: Json = {"type": "object", "properties": self._properties, "additionalProperties": False}
        if self._required:
            schema["required"] = self._required
        return _with_definitions(schema, self._definitions)

    def _parameter(self, parameter: Json) -> ApiParameter | None:
        name, place = str(parameter.get("name", "")), str(parameter.get("in", ""))
        if place == "header" and name.lower() in _RESERVED:
            return None
        if not name:
            return None
        if place not in STYLES:
            raise DefinitionError(f"the place {place!r} of its parameter {name!r} is not supported")
        style = str(parameter.get("style") or STYLES[place][0])
        if style not in STYLES[place]:
            raise DefinitionError(f"the style {style!r} of its parameter {name!r} is not supported")
        content = parameter.get("content")
        schema, media = parameter.get("schema"), ""
        if isinstance(content, dict) and content:
            media = next(iter(content))
            schema = self._document.follow(content[media]).get("schema")
        argument, required = self._argument(name, place), parameter.get("required") is True or place == "path"
        self._add(argument, schema, parameter, required=required)
        listed = self._properties[argument]
        if not required and isinstance(listed, dict) and strip_null(listed) is not None:
            self._properties[argument] = {**listed, "default": None}  # null is left out of requests
        return ApiParameter(
            name=name,
            place=place,
            argument=argument,
            explode=explodes(style, parameter.get("explode")),
            style=style,
            allow_reserved=parameter.get("allowReserved") is True,
            media=media,
        )

    def _argument(self, name: str, place: str) -> str:
        return name if name not in self._properties else f"{name}_{place}"

    def _add(self, argument: str, schema: object, source: Json, *, required: bool) -> None:
        listed = self._document.schema(schema if schema is not None else {}, self._definitions, request=True)
        text = _text(source.get("description"))
        if text and isinstance(listed, dict) and "description" not in listed:
            listed = {**listed, "description": text}
        self._properties[argument] = listed
        if required:
            self._required.append(argument)

    def _take_body(self, body: Json) -> None:
        content = body.get("content")
        if isinstance(content, dict) and content:
            self._body = RequestBody(self._document, content)
            self.body_type = self._body.kind
            self._body_argument = self._argument("body", "content")
            self._add(self._body_argument, self._body.schema, body, required=body.get("required") is True)

    # ---------------------------------------------------------------- result

    def _success_schema(self, responses: object) -> Json | None:
        """Return the schema of successful responses if it is the same for all: a tool with an output schema must conform to it."""
        by_status = responses if isinstance(responses, dict) else {}
        success = [status for status in by_status if str(status).startswith("2")] or ["default"]
        definitions: Json = {}
        schemas = [self._json_schema(self._document.follow(by_status.get(status)), definitions) for status in success]
        first = schemas[0]
        if first is None or any(one != first for one in schemas):
            return None
        return _with_definitions(first, definitions)

    def _json_schema(self, response: Json, definitions: Json) -> Json | None:
        content = response.get("content")
        if not isinstance(content, dict) or not content or not all(map(is_json, content)):
            return None
        given_schema = self._document.follow(next(iter(content.values()))).get("schema")
        if not isinstance(given_schema, dict):
            return None
        schema = self._document.schema(given_schema, definitions, request=False)
        return schema if isinstance(schema, dict) and schema else None

    # ---------------------------------------------------------------- request

    def request(self, base_url: str, arguments: Mapping[str, Any]) -> ApiRequest:
        """Make the request for validated arguments.

        Args:
            base_url: The URL of the API.
            arguments: The arguments of the tool.

        Returns:
            The request.

        Raises:
            ToolError: A value can't be part of a path or a header.
        """
        query: list[tuple[str, str]] = []
        headers = {"Accept": f"{JSON}, */*;q=0.5"}
        values: dict[str, str] = {}
        cookies: list[tuple[str, str]] = []
        for parameter in self.parameters:
            value = arguments.get(parameter.argument)
            if parameter.place == "path":
                values[parameter.name] = _path_segment(parameter, value)
            elif is_undefined(value):
                continue
            elif parameter.place == "cookie":
                cookies += _cookies(parameter, value)
            elif parameter.place == "query":
                query += _query(parameter, value)
            else:
                headers[parameter.name] = _header_value(parameter, value)
        url = self._url(base_url, values) + ("?" + _joined(query, "&") if query else "")
        if cookies:
            headers["Cookie"] = _joined(cookies, "; ")
        body: bytes | None = None
        if self._body is not None and self._body_argument in arguments:
            headers["Content-Type"], body = self._body.encode(arguments[self._body_argument])
        return ApiRequest(self.method, url, headers, body)

    def _url(self, base_url: str, values: Mapping[str, str]) -> str:
        """Return the URL. Raises ToolError if it is not of the form of the path template."""
        base = base_url.rstrip("/")
        texts = _VARIABLE.split(self.path)
        literal = [text if place % 2 else quote(text, safe=_PATH) for place, text in enumerate(texts)]
        filled = "".join(values[text] if place % 2 else text for place, text in enumerate(literal))
        pattern = "".join("[^/?#]+" if place % 2 else re.escape(text) for place, text in enumerate(literal))
        url = base + filled
        parts, expected = urlsplit(url), urlsplit(base + "/")
        same = (parts.scheme, parts.netloc) == (expected.scheme, expected.netloc)
        is_dots = any(segment in (".", "..") for segment in filled.split("/"))
        if not same or is_dots or re.fullmatch(re.escape(expected.path.rstrip("/")) + pattern, parts.path) is None:
            raise ToolError(f"The arguments would change the path {self.path}")
        return url


def _parameters(document: Document, operation: Json, path_item: Json) -> Iterator[Json]:
    """Yield the parameters of an operation and its path item; those of the operation take precedence."""
    seen: set[tuple[Any, Any]] = set()
    for one in (*(operation.get("parameters") or ()), *(path_item.get("parameters") or ())):
        found = document.follow(one)
        key = found.get("name"), found.get("in")
        if key not in seen:
            seen.add(key)
            yield found


def _with_definitions(schema: Json, definitions: Json) -> Json:
    used = {name: definitions[name] for name in _used(schema, definitions)}
    return {**schema, "$defs": used} if used else schema


def _used(schema: object, definitions: Json) -> list[str]:
    """Return the names of the definitions that a schema references, directly or not."""
    names: dict[str, None] = {}
    waiting = [schema]
    while waiting:
        text = msgspec.json.encode(waiting.pop()).decode()
        for name in re.findall(r'"\$ref":"#/\$defs/([^"]+)"', text):
            if name in definitions and name not in names:
                names[name] = None
                waiting.append(definitions[name])
    return list(names)


# ---------------------------------------------------------------- values as text


def _path_segment(parameter: ApiParameter, value: object) -> str:
    text = "" if is_undefined(value) else _path_text(parameter, value, verbatim)
    if text in ("", ".") or leads_out(text) or _CONTROL.search(text):
        raise ToolError(f"{parameter.argument}: {shorten(repr(text))} can't be a segment of a path")
    return _path_text(parameter, value, percent)


def _path_text(parameter: ApiParameter, value: object, encode: Encode) -> str:
    if parameter.media:
        return encode(_as_media(parameter.media, value))
    if parameter.style == "label":
        return write_label(value, parameter.explode, encode)
    if parameter.style == "matrix":
        return write_matrix(parameter.name, value, parameter.explode, encode)
    return write_simple(value, parameter.explode, encode)


def _query(parameter: ApiParameter, value: object) -> list[tuple[str, str]]:
    if parameter.media:
        return [(percent(parameter.name), percent(_as_media(parameter.media, value)))]
    encode = percent_unless_reserved if parameter.allow_reserved else percent
    return write_pairs(parameter.style, parameter.name, value, parameter.explode, encode)


def _cookies(parameter: ApiParameter, value: object) -> list[tuple[str, str]]:
    """Cookies are percent-encoded, unless their style or media type says that values are cookies as they are."""
    if parameter.media:
        encode = percent if is_json(parameter.media) else verbatim
        pairs = [(parameter.name, encode(_as_media(parameter.media, value)))]
    else:
        encode = verbatim if parameter.style == "cookie" else percent
        pairs = write_pairs("form", parameter.name, value, parameter.explode, encode)
    for name, text in pairs:
        if _NOT_IN_COOKIES.search(name + text) or "=" in name:
            raise ToolError(f"{parameter.argument}: a cookie can't contain {shorten(repr(f'{name}={text}'))}")
    return pairs


def _header_value(parameter: ApiParameter, value: object) -> str:
    media = parameter.media
    text = _as_media(media, value) if media else write_simple(value, parameter.explode, verbatim)
    if _CONTROL.search(text) or not text.isascii():
        raise ToolError(f"{parameter.argument}: a header can't contain {shorten(repr(text))}")
    return text


def _as_media(media: str, value: object) -> str:
    """A value in a media type: JSON in ASCII, which headers can hold, or text."""
    return json.dumps(value, separators=(",", ":")) if is_json(media) else plain(value)


def _joined(pairs: list[tuple[str, str]], delimiter: str) -> str:
    return delimiter.join(f"{name}={text}" for name, text in pairs)


def _text(value: object) -> str | None:
    return value.strip() or None if isinstance(value, str) else None
