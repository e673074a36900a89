"""Tool arguments mirrored into `Mcp-Param-*` headers: the rules of `x-mcp-header`, kept when a tool is registered or
listed, and both ends of a call (HDR-09…HDR-21). Must not know sockets, revisions or how schemas are validated.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from re import compile as regex
from typing import Any, Final, NamedTuple

from hinge.errors import DefinitionError, HeaderMismatch, NotSent, shorten
from hinge.protocol.http.headers import PARAM_PREFIX, Headers
from hinge.protocol.http.values import OWS, decode_value, encode_value

ANNOTATION: Final = "x-mcp-header"
#: Integers beyond this don't survive every JSON reader on the way (HDR-11).
MAX_INTEGER: Final = 2**53 - 1

_TOKEN = regex(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")
_TYPES: Final = ("string", "integer", "boolean")
_WHOLE_NUMBER = regex(r"(-?[0-9]{1,400})(?:\.0*)?")

#: Where schemas stand inside a schema, of the current dialect and of older ones. `properties` is the one way that keeps
#: a path; data (`const`, `default`, `enum`, `examples`) and unknown keywords hold no schemas.
_NAMED_SCHEMAS: Final = ("$defs", "definitions", "patternProperties", "dependentSchemas", "dependencies")
_SCHEMAS: Final = (
    *("items", "prefixItems", "additionalItems", "unevaluatedItems", "contains"),
    *("additionalProperties", "unevaluatedProperties", "propertyNames", "contentSchema"),
    *("allOf", "anyOf", "oneOf", "not", "if", "then", "else"),
)

_Path = tuple[str, ...]


class ParamHeader(NamedTuple):
    """One argument that is mirrored: the header, its name as it arrives, the way to the value, the property's type."""

    header: str
    raw_name: bytes
    path: _Path
    type: str


def collect_param_headers(input_schema: Any) -> tuple[ParamHeader, ...]:
    """The headers that a tool's `inputSchema` asks for, in its order; most tools ask for none.

    Raises DefinitionError naming the property and the rule that it breaks (HDR-10…HDR-12): servers then refuse to
    register the tool, HTTP clients drop this one tool from the list (HDR-15).
    """
    found: dict[str, ParamHeader] = {}
    for schema, path in _schemas(input_schema):
        if ANNOTATION not in schema:
            continue
        if not path:
            where = "at the root" if path is not None else "in a part that isn't reached through `properties` alone"
            raise DefinitionError(f"{ANNOTATION} stands {where}; it may only annotate a property of the arguments")
        made = _param_header(schema, path)
        twin = found.setdefault(made.header.lower(), made)
        if twin is not made:
            raise DefinitionError(
                f"{ANNOTATION} of property {_dotted(path)} names the same header as property {_dotted(twin.path)}; "
                f"upper and lower case don't tell headers apart"
            )
    return tuple(found.values())


def _schemas(root: Any) -> Iterator[tuple[dict[str, Any], _Path | None]]:
    """Every schema in the schema, with its path of property names; None if `properties` alone don't lead there."""
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
        said = _quote(name) if isinstance(name, str) else f"a value of type {type(name).__name__}"
        raise DefinitionError(
            f"{ANNOTATION} of property {_dotted(path)} is {said}; "
            f"it must be part of a header's name: one or more letters, digits or !#$%&'*+-.^_`|~"
        )
    if not isinstance(kind, str) or kind not in _TYPES:
        said = f"is {_quote(kind)}" if isinstance(kind, str) else "isn't one plain name"
        raise DefinitionError(
            f"{ANNOTATION} {_quote(name)} annotates property {_dotted(path)}, whose type {said}; "
            f"it must be 'string', 'integer' or 'boolean'"
        )
    header = PARAM_PREFIX + name
    return ParamHeader(header, header.lower().encode(), path, kind)


# --- Calls ------------------------------------------------------------------------------------------------------------


def _value_at(arguments: Any, path: _Path) -> Any:
    """The argument at the path, or None if it is absent or null (HDR-13, HDR-14)."""
    for name in path:
        if not isinstance(arguments, Mapping):
            return None
        arguments = arguments.get(name)
    return arguments


def _scalar(value: Any) -> str | int | None:
    """What a header can say of a value (42.0 is the integer 42); None for arrays and objects, which it can't hold."""
    if isinstance(value, str | int):
        return value
    if isinstance(value, float):
        return int(value) if value.is_integer() else repr(value)
    return None


def param_headers(spec: Sequence[ParamHeader], arguments: Any) -> dict[str, str]:
    """The `Mcp-Param-*` headers of a call with these arguments; absent and null ones have none (HDR-13…HDR-17).

    Arrays and objects are left to the server's validation. Raises NotSent for an integer outside ±(2^53−1) and for a
    string with lone surrogates.
    """
    headers: dict[str, str] = {}
    for param in spec:
        value = _scalar(_value_at(arguments, param.path))
        if value is None:
            continue
        if not isinstance(value, str) and not -MAX_INTEGER <= value <= MAX_INTEGER:
            raise NotSent(f"Argument {_dotted(param.path)} goes into {param.header}: it must be within ±(2^53−1)")
        headers[param.header] = encode_value(value)
    return headers


def check_param_headers(spec: Sequence[ParamHeader], headers: Headers, arguments: Any) -> None:
    """Step 10 of table 4.B: each annotated argument has its header and the header says the same (HDR-20, HDR-21).

    A header without its argument is refused as well: what stands between would act on a value that the body doesn't
    have. Raises HeaderMismatch.
    """
    for param in spec:
        value = _value_at(arguments, param.path)
        raw = headers.raw.get(param.raw_name)
        if raw is None:
            # Some HTTP libraries drop a header whose value is empty (T-21).
            if value != "" and _scalar(value) is not None:
                raise HeaderMismatch(f"Header mismatch: {param.header} is missing; the body has {_dotted(param.path)}")
        elif value is not None:
            said = decode_value(raw.decode("latin-1"), param.header)
            if not _same(said, _scalar(value)):
                raise HeaderMismatch(f"Header mismatch: {param.header} says {_quote(said)}, the body something else")
        elif raw.strip(OWS):
            raise HeaderMismatch(f"Header mismatch: {param.header} was sent, but the body has no {_dotted(param.path)}")


def _same(said: str, value: str | int | None) -> bool:
    """Whether the header says this value: integers as numbers, so that `42.0` is 42, all else as text (HDR-21)."""
    if value is None or isinstance(value, str):
        return said == value
    if isinstance(value, bool):
        return said == ("true" if value else "false")
    number = _WHOLE_NUMBER.fullmatch(said)
    return number is not None and int(number[1]) == value


def _dotted(path: _Path) -> str:
    return _quote(".".join(path))


def _quote(text: str) -> str:
    return repr(shorten(text))
