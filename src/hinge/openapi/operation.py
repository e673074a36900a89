"""One operation of an HTTP API: what it takes, what it answers, and the request that some arguments make.

A path parameter is one part of the path: it is encoded, and the path that comes out is checked to be of the operation's
own form (SEC-48). Knows no sockets and no tools.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple
from urllib.parse import quote, urlsplit

import msgspec

from hinge.errors import DefinitionError, ToolError, shorten
from hinge.openapi.document import Document, Json
from hinge.server.features.files import leads_out

JSON = "application/json"
FORM = "application/x-www-form-urlencoded"
_BODIES = (JSON, FORM, "text/plain")

_VARIABLE = re.compile(r"\{([^{}]+)\}")
_NAME = re.compile(r"[^A-Za-z0-9_.-]+")
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
#: Headers that no argument sets: they are about the message, the connection or who asks.
_RESERVED = frozenset(
    {"accept", "authorization", "connection", "content-length", "content-type", "cookie", "host", "proxy-authorization"}
    | {"te", "trailer", "transfer-encoding", "upgrade"}
)


class Request(NamedTuple):
    """An HTTP request that is ready to be sent."""

    method: str
    url: str
    headers: dict[str, str]
    body: bytes | None


class Parameter(NamedTuple):
    """One parameter: where it goes, how it is written, and the argument that fills it."""

    name: str
    place: str
    argument: str
    explode: bool
    style: str
    as_json: bool


class Operation:
    """One operation. Raises DefinitionError for one that can't be offered; the message says why."""

    def __init__(self, document: Document, path: str, method: str, said: Json, around: Json) -> None:
        self.path = path
        #: The HTTP method, in capitals.
        self.method = method.upper()
        self.id = str(said.get("operationId") or "")
        self.summary = _text(said.get("summary") or around.get("summary"))
        self.description = _text(said.get("description") or around.get("description"))
        self.tags: tuple[str, ...] = tuple(str(tag) for tag in said.get("tags") or ())
        self.deprecated = said.get("deprecated") is True
        #: The base that the document gives for this operation alone, or for all.
        self.base_url = document.base_url(said, around)
        self._document = document
        self._definitions: Json = {}
        self._properties: Json = {}
        self._required: list[str] = []
        self.parameters = [found for one in _parameters(document, said, around) if (found := self._parameter(one))]
        self.body_type = ""
        self._body_argument = ""
        self._take_body(document.follow(said.get("requestBody")))
        self.output_schema = self._answer(said.get("responses"))
        missing = set(_VARIABLE.findall(path)) - {one.name for one in self.parameters if one.place == "path"}
        if missing:
            raise DefinitionError(f"its path has no parameter for {', '.join(sorted(missing))}")

    @property
    def name(self) -> str:
        """What the tool is called: the operation's id, or its method and path."""
        text = self.id or f"{self.method} {self.path}".lower().replace("/", " ").replace("{", "").replace("}", "")
        return _NAME.sub("_", text).strip("_")[:128] or "operation"

    # ---------------------------------------------------------------- what it takes

    @property
    def input_schema(self) -> Json:
        """The arguments as JSON Schema."""
        schema: Json = {"type": "object", "properties": self._properties, "additionalProperties": False}
        if self._required:
            schema["required"] = self._required
        return self._with_definitions(schema)

    def _with_definitions(self, schema: Json) -> Json:
        used = {name: self._definitions[name] for name in _used(schema, self._definitions)}
        return {**schema, "$defs": used} if used else schema

    def _parameter(self, said: Json) -> Parameter | None:
        name, place = str(said.get("name", "")), str(said.get("in", ""))
        if place == "header" and name.lower() in _RESERVED:
            return None
        if place == "cookie" or not name:
            if said.get("required") is True:
                raise DefinitionError(f"it needs the cookie {name!r}, and cookies are not sent")
            return None
        style = str(said.get("style") or ("form" if place == "query" else "simple"))
        if (place, style) not in _STYLES:
            raise DefinitionError(f"the style {style!r} of its parameter {name!r} is not known here")
        content = said.get("content")
        schema = said.get("schema")
        if isinstance(content, dict) and content:
            schema = self._document.follow(next(iter(content.values()))).get("schema")
        argument = self._argument(name, place)
        self._add(argument, schema, said, required=said.get("required") is True or place == "path")
        explode = said.get("explode")
        return Parameter(
            name=name,
            place=place,
            argument=argument,
            explode=style in ("form", "deepObject") if explode is None else explode is True,
            style=style,
            as_json=isinstance(content, dict),
        )

    def _argument(self, name: str, place: str) -> str:
        return name if name not in self._properties else f"{name}_{place}"

    def _add(self, argument: str, schema: Any, said: Json, *, required: bool) -> None:
        found = self._document.schema(schema if schema is not None else {}, self._definitions)
        text = _text(said.get("description"))
        if text and isinstance(found, dict) and "description" not in found:
            found = {**found, "description": text}
        self._properties[argument] = found
        if required:
            self._required.append(argument)

    def _take_body(self, said: Json) -> None:
        content = said.get("content")
        if not isinstance(content, dict) or not content:
            return
        kinds = {kind.partition(";")[0].strip().lower(): kind for kind in content}
        json = next((kind for kind in kinds if kind.endswith("+json")), JSON)
        for kind in (JSON, json, *_BODIES):
            if kind in kinds:
                self.body_type = kind
                self._body_argument = self._argument("body", "content")
                schema = self._document.follow(content[kinds[kind]]).get("schema")
                self._add(self._body_argument, schema, said, required=said.get("required") is True)
                return
        if said.get("required") is True:
            raise DefinitionError(f"it takes {', '.join(kinds)}, and only JSON, forms and text are sent")

    # ---------------------------------------------------------------- what it answers

    def _answer(self, responses: Any) -> Json | None:
        """The schema of every success, if they all promise the same JSON; a tool that promises must keep it (TOOL-15)."""
        found = responses if isinstance(responses, dict) else {}
        success = [status for status in found if str(status).startswith("2")] or ["default"]
        schemas = [self._json_schema(self._document.follow(found.get(status))) for status in success]
        first = schemas[0]
        if first is None or any(one != first for one in schemas):
            return None
        return self._with_definitions(first)

    def _json_schema(self, response: Json) -> Json | None:
        content = response.get("content")
        if not isinstance(content, dict) or not content or not all(map(is_json, content)):
            return None
        said = self._document.follow(next(iter(content.values()))).get("schema")
        schema = self._document.schema(said, self._definitions) if isinstance(said, dict) else None
        return schema if isinstance(schema, dict) and schema else None

    # ---------------------------------------------------------------- the request

    def request(self, base_url: str, arguments: Mapping[str, Any]) -> Request:
        """The request for checked arguments. Raises ToolError for a value that can't stand where it belongs."""
        query: list[str] = []
        headers = {"Accept": f"{JSON}, */*;q=0.5"}
        values: dict[str, str] = {}
        for parameter in self.parameters:
            value = arguments.get(parameter.argument)
            if value is None:
                continue
            if parameter.place == "path":
                values[parameter.name] = _path_value(parameter, value)
            elif parameter.place == "query":
                query += _query(parameter, value)
            else:
                headers[parameter.name] = _header_value(parameter, value)
        url = self._url(base_url, values) + ("?" + "&".join(query) if query else "")
        body: bytes | None = None
        if self._body_argument in arguments and self._body_argument:
            headers["Content-Type"] = self.body_type
            body = _encoded(self.body_type, arguments[self._body_argument])
        return Request(self.method, url, headers, body)

    def _url(self, base_url: str, values: Mapping[str, str]) -> str:
        """The address: the base and the operation's path with its variables filled in, and nothing else (SEC-48)."""
        base = base_url.rstrip("/")
        filled = _VARIABLE.sub(lambda found: values[found[1]], self.path)
        url = base + filled
        pattern = "".join(
            "[^/?#]+" if place % 2 else re.escape(part) for place, part in enumerate(_VARIABLE.split(self.path))
        )
        parts, expected = urlsplit(url), urlsplit(base + "/")
        same = (parts.scheme, parts.netloc) == (expected.scheme, expected.netloc)
        if not same or re.fullmatch(re.escape(expected.path.rstrip("/")) + pattern, parts.path) is None:
            raise ToolError(f"The arguments would lead out of {self.path}")
        return url


def is_json(kind: str) -> bool:
    """Whether a media type says JSON."""
    bare = kind.partition(";")[0].strip().lower()
    return bare == JSON or bare.endswith("+json")


_STYLES = frozenset(
    {("path", "simple"), ("header", "simple"), ("query", "form"), ("query", "deepObject")}
    | {("query", "spaceDelimited"), ("query", "pipeDelimited")}
)


def _parameters(document: Document, said: Json, around: Json) -> Iterator[Json]:
    """The parameters of an operation and of its path; its own come first and win."""
    seen: set[tuple[Any, Any]] = set()
    for one in (*(said.get("parameters") or ()), *(around.get("parameters") or ())):
        found = document.follow(one)
        key = found.get("name"), found.get("in")
        if key not in seen:
            seen.add(key)
            yield found


def _used(schema: Any, definitions: Json) -> list[str]:
    """The definitions that a schema needs, with those that they need."""
    found: dict[str, None] = {}
    left = [schema]
    while left:
        text = msgspec.json.encode(left.pop()).decode()
        for name in re.findall(r'"\$ref":"#/\$defs/([^"]+)"', text):
            if name in definitions and name not in found:
                found[name] = None
                left.append(definitions[name])
    return list(found)


# ---------------------------------------------------------------- values as text


def _path_value(parameter: Parameter, value: Any) -> str:
    text = ",".join(_texts(parameter, value))
    if text in ("", ".") or leads_out(text) or _CONTROL.search(text):
        raise ToolError(f"{parameter.argument}: {shorten(repr(text))} can't be a part of a path")
    return quote(text, safe="")


def _header_value(parameter: Parameter, value: Any) -> str:
    text = ",".join(_texts(parameter, value))
    if _CONTROL.search(text) or not text.isascii():
        raise ToolError(f"{parameter.argument}: a header can't hold {shorten(repr(text))}")
    return text


def _texts(parameter: Parameter, value: Any) -> list[str]:
    if parameter.as_json:
        return [msgspec.json.encode(value).decode()]
    if isinstance(value, list):
        return [_plain(one) for one in value]
    if isinstance(value, dict):
        mark = "=" if parameter.explode else ","
        return [f"{name}{mark}{_plain(one)}" for name, one in value.items()]
    return [_plain(value)]


def _query(parameter: Parameter, value: Any) -> list[str]:
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


def _text(value: Any) -> str | None:
    return value.strip() or None if isinstance(value, str) else None
