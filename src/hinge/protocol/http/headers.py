"""HTTP as MCP uses it: the headers of a request, those that name sessions and those that mirror the body, and the
status of an answer. Must not know sockets, ASGI calls, tools or which revisions exist.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from re import compile as regex
from typing import Final, NamedTuple, TypeAlias, final

from hinge.errors import HeaderMismatch, InvalidRequest, NotSent, shorten
from hinge.protocol.http.values import OWS, REPEATED, decode_value, encode_value, read_value

PROTOCOL_VERSION: Final = "MCP-Protocol-Version"
METHOD: Final = "Mcp-Method"
NAME: Final = "Mcp-Name"
#: Stands before the name that `x-mcp-header` gives.
PARAM_PREFIX: Final = "Mcp-Param-"
SESSION_ID: Final = "Mcp-Session-Id"
LAST_EVENT_ID: Final = "Last-Event-ID"

#: More than one of these is refused with 400 before anything else is looked at (RFC 9112 §3.2).
_SINGLE: Final = frozenset({b"host", b"origin", b"content-type", b"content-length", b"authorization"})

RawHeaders: TypeAlias = Sequence[tuple[bytes, bytes]]


@final
class Refusal(NamedTuple):
    """A request turned away before its body is read: the HTTP status, a text for people, extra response headers."""

    status: int
    text: str
    headers: tuple[tuple[bytes, bytes], ...] = ()


class Principal(NamedTuple):
    """Who is calling, and what this request was authorized for."""

    name: str
    scopes: frozenset[str] = frozenset()


class Headers(Mapping[str, str]):
    """The headers of one request. As a mapping: names in any case to values as text (latin-1, without outer blanks).

    `raw` is what the checks read: lower-case names to the bytes that came. `repeated` names headers that came more than
    once though they must not; `http_guard.Guard.check` refuses such a request.
    """

    __slots__ = ("raw", "repeated")

    def __init__(self, raw: dict[bytes, bytes], repeated: tuple[bytes, ...] = ()) -> None:
        self.raw = raw
        self.repeated = repeated

    @classmethod
    def of(cls, values: Mapping[str, str]) -> Headers:
        """The same from text: names in any case, values in latin-1."""
        return cls({name.lower().encode(): value.encode("latin-1") for name, value in values.items()})

    def __getitem__(self, name: str) -> str:
        try:
            return self.raw[name.lower().encode()].strip(OWS).decode("latin-1")
        except (KeyError, UnicodeEncodeError):
            raise KeyError(name) from None

    def __iter__(self) -> Iterator[str]:
        return (name.decode("latin-1") for name in self.raw)

    def __len__(self) -> int:
        return len(self.raw)

    def __repr__(self) -> str:
        """Names only: values may be secrets."""
        return f"<Headers {', '.join(self)}>"


def read_headers(raw: RawHeaders) -> Headers:
    """Look at a request's headers as ASGI gives them: (lower-case name, value) pairs. Never fails.

    What came twice is joined with commas as HTTP allows, but for the headers that must be single: `Mcp-*` and
    `Last-Event-ID` become REPEATED, and those that guard the door are named in `repeated`.
    """
    table = dict(raw)
    return Headers(table) if len(table) == len(raw) else _join(raw)


def _join(raw: RawHeaders) -> Headers:
    values: dict[bytes, list[bytes]] = {}
    for name, value in raw:
        values.setdefault(name, []).append(value)
    table: dict[bytes, bytes] = {}
    repeated: list[bytes] = []
    for name, parts in values.items():
        if len(parts) == 1:
            table[name] = parts[0]
        elif name.startswith(b"mcp-") or name == b"last-event-id":
            table[name] = REPEATED
        else:
            table[name] = (b"; " if name == b"cookie" else b", ").join(parts)
            if name in _SINGLE:
                repeated.append(name)
    return Headers(table, tuple(repeated))


# --- Method -----------------------------------------------------------------------------------------------------------

#: The methods of an endpoint that serves modern requests only (MHTTP-16), and of one with sessions (LHTTP-01).
MODERN_METHODS: Final = ("POST",)
SESSION_METHODS: Final = ("GET", "POST", "DELETE")


def check_method(method: str, allowed: tuple[str, ...]) -> Refusal | None:
    """405 with `Allow` unless the HTTP method is one of `allowed`."""
    return None if method in allowed else _not_allowed(allowed)


@lru_cache(maxsize=16)
def _not_allowed(allowed: tuple[str, ...]) -> Refusal:
    names = ", ".join(allowed)
    return Refusal(405, f"This endpoint takes {names}", ((b"allow", names.encode()),))


# --- Values -----------------------------------------------------------------------------------------------------------


def protocol_version(headers: Headers) -> str | None:
    """The MCP-Protocol-Version header as it stands, or None. One that came twice reads as a revision nobody knows."""
    value = headers.raw.get(b"mcp-protocol-version")
    return None if value is None else value.strip(OWS).decode("latin-1")


def is_session_id(text: str) -> bool:
    """Whether the text can be a session id: one or more characters from 0x21 to 0x7E (LHTTP-21)."""
    return bool(text) and text.isascii() and text.isprintable() and " " not in text


def session_id(headers: Headers) -> str | None:
    """The session that a handshake-era request names, or None; an empty header counts as none.

    Raises InvalidRequest (HTTP 400) if it can't be an id or came twice. Modern requests must not ask (MHTTP-17, T-25).
    """
    value = headers.raw.get(b"mcp-session-id")
    if value is None or not (text := value.strip(OWS).decode("latin-1")):
        return None
    if not is_session_id(text):
        raise InvalidRequest("Mcp-Session-Id must be sent once and hold only visible ASCII characters")
    return text


_CONTROL = regex(r"[\x00-\x1f\x7f]")


def last_event_id(headers: Headers) -> str | None:
    """The event after which a handshake-era stream goes on, or None; an empty header counts as none (LHTTP-18).

    Raises InvalidRequest (HTTP 400) if it came twice or holds what no event id can: control characters, bad UTF-8.
    """
    value = headers.raw.get(b"last-event-id")
    if value is None or not (value := value.strip(OWS)):
        return None
    try:
        text = value.decode()
    except UnicodeDecodeError:
        text = "\0"
    if _CONTROL.search(text):
        raise InvalidRequest("Last-Event-ID must be sent once and be the id of an event of this server")
    return text


# --- Mirrored headers -------------------------------------------------------------------------------------------------


@lru_cache(maxsize=256)
def _fixed_headers(method: str, version: str) -> dict[str, str]:
    if not method or encode_value(method) != method:
        raise NotSent(f"{shorten(method)!a} can't be the name of a method: {METHOD} must carry it as it is")
    return {PROTOCOL_VERSION: version, METHOD: method}


def request_headers(method: str, name: str | None, version: str) -> dict[str, str]:
    """The headers by which a client mirrors a modern request (HDR-01…HDR-04, HDR-18).

    They go along with `media_types.POST_HEADERS` and, for a tool, with `param_headers`.
    `name` is `params.name`, `params.uri` or `params.taskId`, whichever the method has; None for a method without one.
    Raises NotSent for a method or name that no header can carry.
    """
    headers = _fixed_headers(method, version).copy()
    if name is not None:
        headers[NAME] = encode_value(name)
    return headers


#: What headers were found to say, since a few values make up nearly all calls: those that are read as they stand, and
#: names, which may be encoded. Bounded in number and length.
_texts: dict[bytes | None, str] = {}
_names: dict[bytes | None, str] = {}
_KEPT: Final = 256
_KEPT_LENGTH: Final = 256


def _remember(known: dict[bytes | None, str], raw: bytes, text: str) -> None:
    if len(raw) <= _KEPT_LENGTH:
        if len(known) >= _KEPT:
            known.clear()
        known[raw] = text


def check_envelope_headers(headers: Headers, version_claim: str, method: str) -> None:
    """Step 7 of table 4.B: `MCP-Protocol-Version` and `Mcp-Method` are there and equal the body (HDR-01, HDR-02).

    For requests only: no rule asks a notification for headers (T-23). Raises HeaderMismatch.
    """
    raw = headers.raw
    version, said = raw.get(b"mcp-protocol-version"), raw.get(b"mcp-method")
    if _texts.get(version) != version_claim:
        _compare(PROTOCOL_VERSION, version, version_claim)
    if _texts.get(said) != method:
        _compare(METHOD, said, method)


def _compare(header: str, raw: bytes | None, body: str) -> None:
    if raw is None:
        raise _missing(header, body)
    text = read_value(raw.decode("latin-1"), header)
    if text != body:
        raise _differs(header, text, body)
    _remember(_texts, raw, text)


def check_name_header(headers: Headers, expected_name: str) -> None:
    """Step 10 of table 4.B: `Mcp-Name` is there and, decoded, equals the body's name (HDR-03, HDR-04, HDR-07).

    `expected_name` is the body's `params.name`, `params.uri` or `params.taskId`. Raises HeaderMismatch.
    """
    raw = headers.raw.get(b"mcp-name")
    if _names.get(raw) != expected_name:
        _compare_name(raw, expected_name)


def _compare_name(raw: bytes | None, expected_name: str) -> None:
    if raw is None:
        if expected_name:
            raise _missing(NAME, expected_name)
        return  # some HTTP libraries drop a header whose value is empty (T-21)
    text = decode_value(raw.decode("latin-1"), NAME)
    if text != expected_name:
        raise _differs(NAME, text, expected_name)
    _remember(_names, raw, text)


def _missing(header: str, body: str) -> HeaderMismatch:
    return HeaderMismatch(f"Header mismatch: {header} is missing; the body says {shorten(body)!r}")


def _differs(header: str, said: str, body: str) -> HeaderMismatch:
    return HeaderMismatch(f"Header mismatch: {header} says {shorten(said)!r}, the body {shorten(body)!r}")
