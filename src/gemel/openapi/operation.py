"""One operation of an HTTP API: its arguments, its result, and the request that is made of arguments.

A path parameter is one segment of the path: it is encoded, and the resulting path is checked against the path template of the
operation, so that arguments can't select another endpoint.
"""

from __future__ import annotations

import base64
import re
import secrets
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple
from urllib.parse import quote, urlsplit

import msgspec

from gemel.errors import DefinitionError, ToolError, shorten
from gemel.openapi.document import Document, Json
from gemel.server.features.files import leads_out

JSON = "application/json"
FORM = "application/x-www-form-urlencoded"
MULTIPART = "multipart/form-data"
_BODIES = (JSON, FORM, MULTIPART, "text/plain")

_VARIABLE = re.compile(r"\{([^{}]+)\}")
_NAME = re.compile(r"[^A-Za-z0-9_.-]+")
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
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
    """One parameter: its place and style, and the argument with its value."""

    name: str
    place: str
    argument: str
    explode: bool
    style: str
    as_json: bool


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
        base_url: The URL of the API for this operation.
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
        self._document = document
        self._definitions: Json = {}
        self._properties: Json = {}
        self._required: list[str] = []
        self.parameters = [
            found for one in _parameters(document, operation, path_item) if (found := self._parameter(one))
        ]
        self.body_type = ""
        self._body_argument = ""
        #: Members of a multipart body that are files.
        self._files: frozenset[str] = frozenset()
        self._take_body(document.follow(operation.get("requestBody")))
        self.output_schema = self._success_schema(operation.get("responses"))
        missing = set(_VARIABLE.findall(path)) - {one.name for one in self.parameters if one.place == "path"}
        if missing:
            raise DefinitionError(f"its path has no parameter for {', '.join(sorted(missing))}")

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
        return self._with_definitions(schema)

    def _with_definitions(self, schema: Json) -> Json:
        used = {name: self._definitions[name] for name in _used(schema, self._definitions)}
        return {**schema, "$defs": used} if used else schema

    def _parameter(self, parameter: Json) -> ApiParameter | None:
        name, place = str(parameter.get("name", "")), str(parameter.get("in", ""))
        if place == "header" and name.lower() in _RESERVED:
            return None
        if not name:
            return None
        style = str(parameter.get("style") or ("form" if place in ("query", "cookie") else "simple"))
        if (place, style) not in _STYLES:
            raise DefinitionError(f"the style {style!r} of its parameter {name!r} is not supported")
        content = parameter.get("content")
        schema = parameter.get("schema")
        if isinstance(content, dict) and content:
            schema = self._document.follow(next(iter(content.values()))).get("schema")
        argument = self._argument(name, place)
        self._add(argument, schema, parameter, required=parameter.get("required") is True or place == "path")
        explode = parameter.get("explode")
        return ApiParameter(
            name=name,
            place=place,
            argument=argument,
            explode=style in ("form", "deepObject") if explode is None else explode is True,
            style=style,
            as_json=isinstance(content, dict),
        )

    def _argument(self, name: str, place: str) -> str:
        return name if name not in self._properties else f"{name}_{place}"

    def _add(self, argument: str, schema: Any, source: Json, *, required: bool) -> None:
        schema_of_body = self._document.schema(schema if schema is not None else {}, self._definitions)
        text = _text(source.get("description"))
        if text and isinstance(schema_of_body, dict) and "description" not in schema_of_body:
            schema_of_body = {**schema_of_body, "description": text}
        self._properties[argument] = schema_of_body
        if required:
            self._required.append(argument)

    def _take_body(self, body: Json) -> None:
        content = body.get("content")
        if not isinstance(content, dict) or not content:
            return
        kinds = {kind.partition(";")[0].strip().lower(): kind for kind in content}
        json = next((kind for kind in kinds if kind.endswith("+json")), JSON)
        for kind in (JSON, json, *_BODIES):
            if kind in kinds:
                self.body_type = kind
                self._body_argument = self._argument("body", "content")
                schema = self._document.follow(content[kinds[kind]]).get("schema")
                if kind == MULTIPART:
                    schema, self._files = _with_files(self._document.follow(schema), self._document)
                self._add(self._body_argument, schema, body, required=body.get("required") is True)
                return
        if body.get("required") is True:
            raise DefinitionError(
                f"its body must be {', '.join(kinds)}; only JSON, forms, multipart forms and text are supported"
            )

    # ---------------------------------------------------------------- result

    def _success_schema(self, responses: Any) -> Json | None:
        """Return the schema of successful responses if it is the same for all: a tool with an output schema must conform to it."""
        by_status = responses if isinstance(responses, dict) else {}
        success = [status for status in by_status if str(status).startswith("2")] or ["default"]
        schemas = [self._json_schema(self._document.follow(by_status.get(status))) for status in success]
        first = schemas[0]
        if first is None or any(one != first for one in schemas):
            return None
        return self._with_definitions(first)

    def _json_schema(self, response: Json) -> Json | None:
        content = response.get("content")
        if not isinstance(content, dict) or not content or not all(map(is_json, content)):
            return None
        given_schema = self._document.follow(next(iter(content.values()))).get("schema")
        schema = self._document.schema(given_schema, self._definitions) if isinstance(given_schema, dict) else None
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
        query: list[str] = []
        headers = {"Accept": f"{JSON}, */*;q=0.5"}
        values: dict[str, str] = {}
        cookies: list[str] = []
        for parameter in self.parameters:
            value = arguments.get(parameter.argument)
            if value is None:
                continue
            if parameter.place == "path":
                values[parameter.name] = _path_value(parameter, value)
            elif parameter.place == "cookie":
                cookies.append(f"{parameter.name}={_quoted(','.join(_texts(parameter, value)))}")
            elif parameter.place == "query":
                query += _query(parameter, value)
            else:
                headers[parameter.name] = _header_value(parameter, value)
        url = self._url(base_url, values) + ("?" + "&".join(query) if query else "")
        if cookies:
            headers["Cookie"] = "; ".join(cookies)
        body: bytes | None = None
        if self._body_argument in arguments and self._body_argument:
            value = arguments[self._body_argument]
            if self.body_type == MULTIPART and isinstance(value, dict):
                boundary = secrets.token_hex(16)
                headers["Content-Type"] = f"{MULTIPART}; boundary={boundary}"
                body = _multipart(value, self._files, boundary)
            else:
                headers["Content-Type"] = self.body_type
                body = _encoded(self.body_type, value)
        return ApiRequest(self.method, url, headers, body)

    def _url(self, base_url: str, values: Mapping[str, str]) -> str:
        """Return the URL. Raises ToolError if it is not of the form of the path template."""
        base = base_url.rstrip("/")
        filled = _VARIABLE.sub(lambda variable: values[variable[1]], self.path)
        url = base + filled
        pattern = "".join(
            "[^/?#]+" if place % 2 else re.escape(part) for place, part in enumerate(_VARIABLE.split(self.path))
        )
        parts, expected = urlsplit(url), urlsplit(base + "/")
        same = (parts.scheme, parts.netloc) == (expected.scheme, expected.netloc)
        if not same or re.fullmatch(re.escape(expected.path.rstrip("/")) + pattern, parts.path) is None:
            raise ToolError(f"The arguments would change the path {self.path}")
        return url


def is_json(kind: str) -> bool:
    """Return whether a media type is JSON."""
    bare = kind.partition(";")[0].strip().lower()
    return bare == JSON or bare.endswith("+json")


_STYLES = frozenset(
    {("path", "simple"), ("header", "simple"), ("query", "form"), ("query", "deepObject"), ("cookie", "form")}
    | {("query", "spaceDelimited"), ("query", "pipeDelimited")}
)


def _parameters(document: Document, operation: Json, path_item: Json) -> Iterator[Json]:
    """Yield the parameters of an operation and its path item; those of the operation take precedence."""
    seen: set[tuple[Any, Any]] = set()
    for one in (*(operation.get("parameters") or ()), *(path_item.get("parameters") or ())):
        found = document.follow(one)
        key = found.get("name"), found.get("in")
        if key not in seen:
            seen.add(key)
            yield found


def _used(schema: Any, definitions: Json) -> list[str]:
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


def _path_value(parameter: ApiParameter, value: Any) -> str:
    text = ",".join(_texts(parameter, value))
    if text in ("", ".") or leads_out(text) or _CONTROL.search(text):
        raise ToolError(f"{parameter.argument}: {shorten(repr(text))} can't be a segment of a path")
    return quote(text, safe="")


def _header_value(parameter: ApiParameter, value: Any) -> str:
    text = ",".join(_texts(parameter, value))
    if _CONTROL.search(text) or not text.isascii():
        raise ToolError(f"{parameter.argument}: a header can't contain {shorten(repr(text))}")
    return text


def _texts(parameter: ApiParameter, value: Any) -> list[str]:
    if parameter.as_json:
        return [msgspec.json.encode(value).decode()]
    if isinstance(value, list):
        return [_plain(one) for one in value]
    if isinstance(value, dict):
        mark = "=" if parameter.explode else ","
        return [f"{name}{mark}{_plain(one)}" for name, one in value.items()]
    return [_plain(value)]


def _query(parameter: ApiParameter, value: Any) -> list[str]:
    name = quote(parameter.name, safe="[]")
    if parameter.as_json:
        return [f"{name}={_quoted(msgspec.json.encode(value).decode())}"]
    if isinstance(value, dict):
        if parameter.style == "deepObject":
            return [f"{name}[{_quoted(key)}]={_quoted(_plain(one))}" for key, one in value.items()]
        if parameter.explode:
            return [f"{_quoted(key)}={_quoted(_plain(one))}" for key, one in value.items()]
        return [f"{name}=" + ",".join(f"{_quoted(key)},{_quoted(_plain(one))}" for key, one in value.items())]
    if isinstance(value, list):
        texts = [_quoted(_plain(one)) for one in value]
        if parameter.explode:
            return [f"{name}={text}" for text in texts]
        mark = {"spaceDelimited": "%20", "pipeDelimited": "%7C"}.get(parameter.style, ",")
        return [f"{name}={mark.join(texts)}"] if texts else []
    return [f"{name}={_quoted(_plain(value))}"]


def _quoted(text: str) -> str:
    return quote(text, safe="")


def _plain(value: Any) -> str:
    if isinstance(value, str):
        return value
    return msgspec.json.encode(value).decode()


def _encoded(kind: str, body: Any) -> bytes:
    if kind == FORM and isinstance(body, dict):
        pairs: list[str] = []
        for name, value in body.items():
            values = value if isinstance(value, list) else [value]
            pairs += [f"{quote(name, safe='')}={_quoted(_plain(one))}" for one in values]
        return "&".join(pairs).encode()
    if kind == "text/plain":
        return _plain(body).encode()
    return msgspec.json.encode(body)


def _with_files(schema: Any, document: Document) -> tuple[Any, frozenset[str]]:
    """The schema of a multipart body, in which files are base64, and the names of the files."""
    members = schema.get("properties") if isinstance(schema, dict) else None
    if not isinstance(members, dict):
        return schema, frozenset()
    files: dict[str, Json] = {}
    for name, member in members.items():
        found = document.follow(member)
        if found.get("format") == "binary" or "contentMediaType" in found:
            kept = {key: value for key, value in found.items() if key not in ("format", "contentMediaType")}
            text = _text(found.get("description")) or "A file"
            files[name] = {**kept, "type": "string", "contentEncoding": "base64", "description": f"{text}, as base64"}
    return {**schema, "properties": {**members, **files}}, frozenset(files)


def _multipart(body: Json, files: frozenset[str], boundary: str) -> bytes:
    """A multipart/form-data body (RFC 7578). Raises ToolError for a file that is not base64."""
    parts = bytearray()
    for name, value in body.items():
        quoted = quote(name, safe=" []")
        for one in value if isinstance(value, list) else [value]:
            head = f'Content-Disposition: form-data; name="{quoted}"'
            if name in files:
                head += f'; filename="{quoted}"\r\nContent-Type: application/octet-stream'
                try:
                    data = base64.b64decode(str(one), validate=True)
                except ValueError:
                    raise ToolError(f"{name}: expected a file as base64") from None
            else:
                data = _plain(one).encode()
            parts += f"--{boundary}\r\n{head}\r\n\r\n".encode() + data + b"\r\n"
    return bytes(parts) + f"--{boundary}--\r\n".encode()


def _text(value: Any) -> str | None:
    return value.strip() or None if isinstance(value, str) else None
