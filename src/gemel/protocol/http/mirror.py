"""Headers that repeat parts of a message: their encoding, the rules of `x-mcp-header`, and what a client sends.

The server compares them with the message in `headers.py`.
Specification (2026-07-28): Transports, section "Request Headers".
"""

from __future__ import annotations

from binascii import Error as Base64Error
from binascii import a2b_base64, b2a_base64
from collections.abc import Iterator, Mapping, Sequence
from re import compile as regex
from typing import Any, Final, NamedTuple, TypeAlias

import msgspec

from gemel.errors import DefinitionError, HeaderMismatch, NotSent, shorten
from gemel.protocol.http.request import REPEATED

#: Names and values of headers of a request.
HeaderTexts: TypeAlias = tuple[tuple[str, str], ...]

PROTOCOL_VERSION: Final = "MCP-Protocol-Version"
METHOD: Final = "Mcp-Method"
NAME: Final = "Mcp-Name"
#: Prefix of the header names that `x-mcp-header` gives.
PARAM_PREFIX: Final = "Mcp-Param-"

# --- Values -----------------------------------------------------------------------------------------------------------

_PREFIX: Final = "=?base64?"
_SUFFIX: Final = "?="
_MARKERS: Final = len(_PREFIX) + len(_SUFFIX)


def encode_value(value: str | int | bool) -> str:
    """Encode a value for a header: plain if HTTP can carry it, else `=?base64?…?=` around its UTF-8.

    Args:
        value: What the message holds.

    Raises:
        NotSent: The string has lone surrogates and so no UTF-8.
    """
    if value is True or value is False:
        return "true" if value else "false"
    text = value if isinstance(value, str) else str(value)
    plain = text.isascii() and text.isprintable() and text.strip(" ") == text
    if plain and not (text.startswith(_PREFIX) and text.endswith(_SUFFIX)):
        return text
    try:
        return f"{_PREFIX}{b2a_base64(text.encode(), newline=False).decode()}{_SUFFIX}"
    except UnicodeEncodeError as exc:
        raise NotSent(f"{shorten(text)!a} holds half of a surrogate pair and can't be sent in a header") from exc


def read_value(text: str, header: str) -> str:
    """Strip a header value and check its characters, without decoding it.

    Args:
        text: The value, bytes as latin-1.
        header: The name for the error.

    Raises:
        HeaderMismatch: It was sent more than once, or holds non-ASCII or control characters other than tabs.
    """
    text = text.strip(" \t")
    if text.isascii() and (text.isprintable() or text.replace("\t", " ").isprintable()):
        return text
    if text == REPEATED.decode():
        raise HeaderMismatch(f"Header mismatch: {header} was sent more than once")
    raise HeaderMismatch(f"Header mismatch: {header} holds characters that a header can't carry as they are")


def decode_value(text: str, header: str = "the header") -> str:
    """Decode a header value: the content between `=?base64?` and `?=`, or the text itself.

    A text that lacks one of the two markers, or has them in another case, is a literal.

    Args:
        text: The value, bytes as latin-1.
        header: The name for the error.

    Raises:
        HeaderMismatch: As `read_value`, or the content is not Base64 of UTF-8.
    """
    text = read_value(text, header)
    if len(text) < _MARKERS or not text.startswith(_PREFIX) or not text.endswith(_SUFFIX):
        return text
    try:
        return a2b_base64(text[len(_PREFIX) : -len(_SUFFIX)], strict_mode=True).decode()
    except (Base64Error, UnicodeDecodeError):
        raise HeaderMismatch(f"Header mismatch: the =?base64?…?= of {header} isn't Base64 of UTF-8 text") from None


# --- Method and name ---------------------------------------------------------------------------------------------------


def request_headers(method: str, name: str | None, version: str) -> HeaderTexts:
    """Make the headers by which a client mirrors a request of the stateless era.

    They accompany `media_types.POST_HEADERS` and, for a tool, `param_headers`.

    Args:
        method: The method of the request.
        name: `params.name`, `params.uri` or `params.taskId`; None for a method without one.
        version: The protocol revision of the request.

    Raises:
        NotSent: No header can carry the method or the name.
    """
    if not method or encode_value(method) != method:
        raise NotSent(f"{shorten(method)!a} is not a method name: {METHOD} must carry it unencoded")
    headers = (PROTOCOL_VERSION, version), (METHOD, method)
    return headers if name is None else (*headers, (NAME, encode_value(name)))


# --- Parameters -------------------------------------------------------------------------------------------------------

ANNOTATION: Final = "x-mcp-header"
_NAMES_ANNOTATION: Final = b'"x-mcp-header"'
_encode_json = msgspec.json.Encoder().encode
#: Larger integers do not survive every JSON reader on the way.
MAX_INTEGER: Final = 2**53 - 1

_TOKEN = regex(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")
_TYPES: Final = ("string", "integer", "boolean")

#: Keywords that hold schemas, of the current dialect and of older ones. Only `properties` keeps a path; data (`const`,
#: `default`, `enum`, `examples`) and unknown keywords hold no schemas.
_NAMED_SCHEMAS: Final = ("$defs", "definitions", "patternProperties", "dependentSchemas", "dependencies")
_SCHEMAS: Final = (
    *("items", "prefixItems", "additionalItems", "unevaluatedItems", "contains"),
    *("additionalProperties", "unevaluatedProperties", "propertyNames", "contentSchema"),
    *("allOf", "anyOf", "oneOf", "not", "if", "then", "else"),
)

_Path: TypeAlias = tuple[str, ...]


class ParamHeader(NamedTuple):
    """One mirrored argument: the header, its name as it arrives, the path to the value, the property's type."""

    header: str
    raw_name: bytes
    path: _Path
    type: str


def collect_param_headers(input_schema: Any) -> tuple[ParamHeader, ...]:
    """Collect the headers that the `x-mcp-header` annotations of a tool's `inputSchema` ask for.

    Args:
        input_schema: The tool's JSON Schema.

    Returns:
        One entry per annotated property, in the order of the schema; most tools have none.

    Raises:
        DefinitionError: An annotation breaks a rule; the text names property and rule. Servers refuse to register such
            a tool, HTTP clients drop it from the list.
    """
    by_name: dict[str, ParamHeader] = {}
    for schema, path in _schemas(input_schema) if may_annotate(input_schema) else ():
        if ANNOTATION not in schema:
            continue
        if not path:
            where = "at the root" if path is not None else "in a part that is not reached through `properties` alone"
            raise DefinitionError(f"{ANNOTATION} is {where}; it may only annotate a property of the arguments")
        param = _param_header(schema, path)
        first = by_name.setdefault(param.header.lower(), param)
        if first is not param:
            raise DefinitionError(
                f"{ANNOTATION} of property {dotted(path)} names the same header as property {dotted(first.path)}; "
                f"header names are case-insensitive"
            )
    return tuple(by_name.values())


def may_annotate(schemas: object) -> bool:
    """Whether the text of schemas names the annotation: in most it doesn't, and searching is faster than walking."""
    try:
        return _encode_json(schemas).find(_NAMES_ANNOTATION) >= 0
    except (TypeError, ValueError, RecursionError, msgspec.MsgspecError):
        return True


def _schemas(root: object) -> Iterator[tuple[dict[str, Any], _Path | None]]:
    """Yield every subschema with its path of property names; None if `properties` alone do not lead there."""
    waiting: list[tuple[Any, _Path | None]] = [(root, ())]
    while waiting:
        schema, path = waiting.pop()
        if not isinstance(schema, dict):
            continue
        yield schema, path
        inner: list[tuple[Any, _Path | None]] = []
        for keyword, value in schema.items():
            if keyword == "properties" and isinstance(value, dict):
                inner += [(child, None if path is None else (*path, name)) for name, child in value.items()]
            elif keyword in _NAMED_SCHEMAS and isinstance(value, dict):
                inner += [(child, None) for child in value.values()]
            elif keyword in _SCHEMAS:
                inner += [(child, None) for child in (value if isinstance(value, list) else (value,))]
        waiting += reversed(inner)


def _param_header(schema: Mapping[str, Any], path: _Path) -> ParamHeader:
    name, kind = schema[ANNOTATION], schema.get("type")
    if not isinstance(name, str) or _TOKEN.fullmatch(name) is None:
        value = quote(name) if isinstance(name, str) else f"a value of type {type(name).__name__}"
        raise DefinitionError(
            f"{ANNOTATION} of property {dotted(path)} is {value}; "
            f"it must be part of a header name: one or more letters, digits or !#$%&'*+-.^_`|~"
        )
    if not isinstance(kind, str) or kind not in _TYPES:
        problem = f"is {quote(kind)}" if isinstance(kind, str) else "is not one plain name"
        raise DefinitionError(
            f"{ANNOTATION} {quote(name)} annotates property {dotted(path)}, whose type {problem}; "
            f"it must be 'string', 'integer' or 'boolean'"
        )
    header = PARAM_PREFIX + name
    return ParamHeader(header, header.lower().encode(), path, kind)


def value_at(arguments: object, path: _Path) -> Any:
    """Return the argument at the path, None if it is absent or null."""
    for name in path:
        if not isinstance(arguments, Mapping):
            return None
        arguments = arguments.get(name)
    return arguments


def scalar(value: object) -> str | int | None:
    """Return what a header can carry of a value (42.0 is the integer 42); None for arrays and objects."""
    if isinstance(value, str | int):
        return value
    if isinstance(value, float):
        return int(value) if value.is_integer() else repr(value)
    return None


def param_headers(spec: Sequence[ParamHeader], arguments: object) -> dict[str, str]:
    """Make the `Mcp-Param-*` headers of a call. Absent and null arguments have none.

    Args:
        spec: What `collect_param_headers` returned for the tool.
        arguments: The arguments of the call. Arrays and objects are left to the server's validation.

    Raises:
        NotSent: An integer is outside ±(2^53−1), or a string has lone surrogates.
    """
    headers: dict[str, str] = {}
    for param in spec:
        value = scalar(value_at(arguments, param.path))
        if value is None:
            continue
        if not isinstance(value, str) and not -MAX_INTEGER <= value <= MAX_INTEGER:
            raise NotSent(f"Argument {dotted(param.path)} goes into {param.header}: it must be within ±(2^53−1)")
        headers[param.header] = encode_value(value)
    return headers


def dotted(path: _Path) -> str:
    return quote(".".join(path))


def quote(text: str) -> str:
    return repr(shorten(text))
