"""Request bodies: the argument that a media type takes, and its value as bytes.

https://spec.openapis.org/oas/v3.1.1.html#request-body-object. Raw binary data is base64 in the argument, or a `data:` URL, which
names its media type.
"""

from __future__ import annotations

import base64
import re
import secrets
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple
from urllib.parse import quote_plus

import msgspec

from gemel.errors import DefinitionError, ToolError, shorten
from gemel.openapi.document import Document, Json
from gemel.openapi.styles import (
    STYLES,
    explodes,
    is_undefined,
    percent,
    percent_unless_reserved,
    plain,
    verbatim,
    write_pairs,
)
from gemel.openapi.xml_values import XmlWriter
from gemel.server.features.content import is_text_type

JSON = "application/json"
FORM = "application/x-www-form-urlencoded"
TEXT = "text/plain"
BINARY = "application/octet-stream"

_DATA_URL = re.compile(r"data:(?P<kind>[\w.+-]+/[\w.+-]+(?:;[\w-]+=[\w.+-]+)*);base64,(?P<data>.*)", re.DOTALL)
_CHARSET = re.compile(r""";\s*charset\s*=\s*["']?([\w.:-]+)""", re.IGNORECASE)
#: Keywords that say of which type a value is.
_TYPED = frozenset(
    {"type", "properties", "items", "enum", "const", "allOf", "anyOf", "oneOf", "not", "if", "additionalProperties"}
    | {"required", "minimum", "maximum", "pattern", "contentEncoding", "format", "default"}
)
#: How deep members of forms are looked into for binary data: schemas may refer to themselves.
_MAX_DEPTH = 8


_COMBINED = ("allOf", "anyOf", "oneOf")
#: Ranges of media types that have JSON in them.
_ANY = ("*/*", "application/*")
#: The schema of an argument with the bytes of a file.
_FILE: Json = {"type": "string", "contentEncoding": "base64", "description": "A file, as base64"}


def bare(kind: str) -> str:
    """Return a media type without its parameters, in lower case."""
    return kind.partition(";")[0].strip().lower()


def is_json(kind: str) -> bool:
    """Return whether a media type is JSON."""
    return bare(kind) == JSON or bare(kind).endswith("+json")


def is_xml(kind: str) -> bool:
    """Return whether a media type is XML."""
    return bare(kind).endswith(("/xml", "+xml"))


def charset_of(kind: str) -> str | None:
    """Return the charset that a media type declares."""
    found = _CHARSET.search(kind)
    return found[1] if found else None


class EncodedBody(NamedTuple):
    """The bytes of a body, and its Content-Type."""

    kind: str
    data: bytes


class RequestBody:
    """The body of an operation in the one of its media types that fits arguments best.

    Args:
        document: The OpenAPI document.
        content: The media types with their Media Type Objects.

    Attributes:
        kind: The media type as the document has it.
        schema: The OpenAPI schema of the argument.

    Raises:
        DefinitionError: The document names no media type that can be sent.
    """

    def __init__(self, document: Document, content: Mapping[str, Any]) -> None:
        self._document = document
        self._kinds = list(content)
        self.kind = min(self._kinds, key=_rank)
        media = document.follow(content[self.kind])
        self._given = self.schema = media.get("schema") or {}
        encodings = media.get("encoding")
        self._encodings: Json = encodings if isinstance(encodings, dict) else {}
        name = bare(self.kind)
        is_raw = not is_text_type(name) and (not self._given or self._is_raw(self._given))
        self.encode: Callable[[Any], EncodedBody]
        if is_json(name) or (name in _ANY and not (self._given and is_raw)):
            self.encode = self._json
        elif name == FORM:
            self.encode = self._form
        elif name.startswith("multipart/"):
            if name == "multipart/*":
                raise DefinitionError("its body is multipart/*: the document must name one multipart type")
            self.encode, self.schema = self._multipart, self._with_files(self._given)
        elif is_xml(name) and (document.members(self._given) or document.follow(self._given).get("type") == "array"):
            self.encode = self._xml
        elif is_raw:
            self.encode = self._binary
            self.schema = self._as_base64(self._given) if self._given else _FILE
        else:
            self.encode = self._text
            self.schema = self._given or {"type": "string"}

    # ---------------------------------------------------------------- whole bodies

    def _json(self, value: object) -> EncodedBody:
        return EncodedBody(self.kind if is_json(self.kind) else JSON, msgspec.json.encode(value))

    def _xml(self, value: object) -> EncodedBody:
        return EncodedBody(self.kind, XmlWriter(self._document).write(self._given, value).encode())

    def _text(self, value: object) -> EncodedBody:
        return _text_as(TEXT if bare(self.kind) == "text/*" else self.kind, plain(value), "body")

    def _binary(self, value: object) -> EncodedBody:
        binary = [kind for kind in self._kinds if _rank(kind) == _rank(self.kind)]
        return _decode_file("body", value, binary)

    def _form(self, value: object) -> EncodedBody:
        pairs: list[tuple[str, str]] = []
        for name, member, one in self._members(value):
            encoding = self._encoding(name)
            if _is_styled(encoding):
                encode = percent_unless_reserved if encoding.get("allowReserved") is True else percent
                pairs += _styled(encoding, name, one, encode)
            else:
                for item in one if isinstance(one, list) else [one]:
                    part = self._part(name, member, item, encoding, raw=False)
                    pairs.append((quote_plus(name), quote_plus(part.data)))
        return EncodedBody(self.kind, "&".join(f"{name}={text}" for name, text in pairs).encode())

    def _multipart(self, value: object) -> EncodedBody:
        boundary = secrets.token_hex(16)
        body = bytearray()
        for name, member, one in self._members(value):
            encoding = self._encoding(name)
            if _is_styled(encoding) and not self._document.is_3_0:
                for key, text in _styled(encoding, name, one, verbatim):
                    body += _part_of(boundary, key, EncodedBody("", text.encode()), (), is_file=False)
                continue
            for item in one if isinstance(one, list) else [one]:
                is_file = self._is_raw(member)
                part = self._part(name, member, item, encoding, raw=is_file)
                body += _part_of(boundary, name, part, self._headers(member, encoding), is_file=is_file)
        return EncodedBody(f"{self.kind}; boundary={boundary}", bytes(body) + f"--{boundary}--\r\n".encode())

    # ---------------------------------------------------------------- members of forms

    def _members(self, value: object) -> Iterator[tuple[str, Any, Any]]:
        """Yield names, schemas and values. Null and what is empty is left out."""
        if not isinstance(value, dict):
            raise ToolError("body: expected an object")
        members = self._document.members(self._given)
        for name, one in value.items():
            if not is_undefined(one):
                yield name, members.get(name, {"type": "string"}), one

    def _encoding(self, name: str) -> Json:
        return self._document.follow(self._encodings.get(name))

    def _part(self, name: str, schema: object, value: object, encoding: Json, *, raw: bool) -> EncodedBody:
        """Encode one value of a member: an item if that is an array."""
        stated = encoding.get("contentType")
        kinds = [kind.strip() for kind in stated.split(",")] if isinstance(stated, str) else []
        if raw:
            return _decode_file(name, value, kinds or [BINARY])
        kind = kinds[0] if kinds else ""
        if is_json(kind) or (not kind and isinstance(value, dict | list)):
            return EncodedBody(kind or JSON, msgspec.json.encode(value))
        if is_xml(kind) and isinstance(value, dict | list):
            items = self._document.follow(schema).get("items", schema)
            return EncodedBody(kind, XmlWriter(self._document).write(items, value).encode())
        if not kind and "contentEncoding" in self._document.follow(schema):
            kind = BINARY
        return _text_as(kind, plain(value), name)

    def _headers(self, schema: object, encoding: Json) -> list[tuple[str, str]]:
        """The headers of a part whose values the document fixes."""
        headers: dict[str, str] = {}
        stated = encoding.get("headers")
        for name, header in (stated if isinstance(stated, dict) else {}).items():
            fixed = _fixed(self._document.follow(self._document.follow(header).get("schema")))
            if fixed is not None and name.lower() != "content-type":
                headers[name] = plain(fixed)
        transfer = self._document.follow(schema).get("contentEncoding")
        if isinstance(transfer, str) and not any(name.lower() == "content-transfer-encoding" for name in headers):
            headers["Content-Transfer-Encoding"] = transfer
        return list(headers.items())

    # ---------------------------------------------------------------- binary data

    def _is_raw(self, schema: object, depth: int = 0) -> bool:
        """Whether a value is raw binary data, or an array of such."""
        found = self._document.follow(schema)
        if "contentEncoding" in found or depth > _MAX_DEPTH:
            return False
        if found.get("format") == "binary":
            return True
        kind = found.get("contentMediaType")
        if isinstance(kind, str):
            return "type" not in found or not is_text_type(kind)
        if found.get("type") == "array":
            return "items" in found and self._is_raw(found["items"], depth + 1)
        for word in _COMBINED:
            if any(self._is_raw(one, depth + 1) for one in found.get(word) or () if not _is_null(one)):
                return True
        # Since 3.1 a schema without a type is one of raw data.
        return not self._document.is_3_0 and _TYPED.isdisjoint(found)

    def _as_base64(self, schema: object, depth: int = 0) -> Any:
        """The schema of an argument for raw data."""
        found = self._document.follow(schema)
        if not self._is_raw(found, depth):
            return schema
        if found.get("type") == "array":
            return {**found, "items": self._as_base64(found["items"], depth + 1)}
        for word in _COMBINED:
            if word in found:
                options = [one if _is_null(one) else self._as_base64(one, depth + 1) for one in found[word]]
                return {**found, word: options}
        kept = {key: value for key, value in found.items() if key not in ("format", "contentMediaType")}
        text = found.get("description")
        text = text.strip() if isinstance(text, str) and text.strip() else "A file"
        return {**kept, **_FILE, "description": f"{text}, as base64"}

    def _with_files(self, schema: object) -> Any:
        members = self._document.members(schema)
        files = {name: self._as_base64(member) for name, member in members.items() if self._is_raw(member)}
        if not files:
            return schema
        found = self._document.follow(schema)
        return {**found, "properties": {**(found.get("properties") or {}), **files}}


def _rank(kind: str) -> int:
    """How well a media type fits arguments, the best first."""
    name = bare(kind)
    order: Sequence[bool] = (
        name == JSON,
        is_json(name),
        name in _ANY,
        name == FORM,
        name == "multipart/form-data",
        name.startswith("multipart/"),
        name == TEXT,
        is_xml(name),
        name.startswith("text/") or is_text_type(name),
    )
    return order.index(True) if any(order) else len(order)


def _is_null(schema: object) -> bool:
    return isinstance(schema, dict) and schema.get("type") == "null"


def _is_styled(encoding: Json) -> bool:
    return any(word in encoding for word in ("style", "explode", "allowReserved"))


def _styled(encoding: Json, name: str, value: object, encode: Callable[[str], str]) -> list[tuple[str, str]]:
    style = str(encoding.get("style") or STYLES["query"][0])
    return write_pairs(style, name, value, explodes(style, encoding.get("explode")), encode)


def _fixed(schema: Json) -> Any:
    """The only value of a schema, or its default; None if there is none."""
    options = schema.get("enum")
    if isinstance(options, list) and len(options) == 1:
        return options[0]
    return schema.get("const", schema.get("default"))


def _text_as(kind: str, text: str, name: str) -> EncodedBody:
    charset = charset_of(kind)
    try:
        data = text.encode(charset or "utf-8")
    except LookupError:
        raise ToolError(f"{name}: the API wants the unknown charset {shorten(charset or '')!r}") from None
    except UnicodeEncodeError as exc:
        raise ToolError(f"{name}: {charset or 'utf-8'} has no {exc.object[exc.start]!r}, which the API wants") from None
    if charset is None and bare(kind).startswith("text/") and not data.isascii():
        kind += "; charset=utf-8"
    return EncodedBody(kind, data)


def _decode_file(name: str, value: object, kinds: Sequence[str]) -> EncodedBody:
    """Decode a file. Of several media types, a `data:` URL says which; by default it is the first that is not a range."""
    text = value if isinstance(value, str) else ""
    kind = next((kind for kind in kinds if "*" not in kind), BINARY)
    if found := _DATA_URL.fullmatch(text):
        kind, text = found["kind"], found["data"]
        if kinds != [BINARY] and not any(_fits(bare(kind), bare(wanted)) for wanted in kinds):
            raise ToolError(f"{name}: the API takes {', '.join(kinds)}, not {shorten(kind)}")
    try:
        return EncodedBody(kind, base64.b64decode(text, validate=True))
    except ValueError:
        raise ToolError(f"{name}: expected a file as base64") from None


def _fits(kind: str, wanted: str) -> bool:
    return kind == wanted or wanted == "*/*" or (wanted.endswith("/*") and kind.startswith(wanted[:-1]))


def _part_of(
    boundary: str, name: str, part: EncodedBody, headers: Sequence[tuple[str, str]], *, is_file: bool
) -> bytes:
    """One part of multipart/form-data: https://html.spec.whatwg.org/multipage/form-control-infrastructure.html#multipart-form-data."""
    quoted = name.replace('"', "%22").replace("\r", "%0D").replace("\n", "%0A")
    lines = [f"--{boundary}", f'Content-Disposition: form-data; name="{quoted}"']
    if is_file:
        lines[-1] += f'; filename="{quoted}"'
    if part.kind:
        lines.append(f"Content-Type: {part.kind}")
    lines += [f"{key}: {value}" for key, value in headers]
    return "\r\n".join([*lines, "", ""]).encode() + part.data + b"\r\n"
