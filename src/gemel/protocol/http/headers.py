"""The headers of a request to a server: every rule about them, in the order in which a request is checked.

    judge_head(method, pairs, rules)      before the body is read; depends on nothing but its arguments
        Head.barred                       header count and size, repeated headers, Origin, Host
                                          (authorization)
        Head.refusal                      HTTP method, Content-Type, Accept of GET, size of the body
                                          (body, JSON, the era of the message)
        Head.stateless_refusal            stateless era: Accept
        Head.handshake_refusal            handshake era: Accept, MCP-Protocol-Version, Mcp-Session-Id
                                          (required `_meta`)
    judge_message(head, revision, method) stateless era: MCP-Protocol-Version and Mcp-Method equal the message
                                          (revision supported, method known)
    judge_name(head, name)                Mcp-Name equals the message
    judge_parameters(head, spec, args)    Mcp-Param-* equal the message

Specification: Transports, sections "Request Headers", "Session Management" and "Protocol Version Header".
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from re import compile as regex
from typing import Any, Final, final

from msgspec import Struct, field

from gemel.errors import HeaderMismatch, InvalidRequest, UnsupportedVersion, shorten
from gemel.protocol.http.media_types import BOTH, EITHER, TAKES_EVENTS, check_accept, check_content_type, parse_accept
from gemel.protocol.http.mirror import (
    METHOD,
    NAME,
    PROTOCOL_VERSION,
    ParamHeader,
    decode_value,
    dotted,
    quote,
    read_value,
    scalar,
    value_at,
)
from gemel.protocol.http.origin import Guard
from gemel.protocol.http.request import OWS, REPEATED, Headers, RawHeaders, Refusal
from gemel.schema.base import RequestMeta
from gemel.schema.revisions import HANDSHAKE_REVISIONS

SESSION_ID: Final = "Mcp-Session-Id"
LAST_EVENT_ID: Final = "Last-Event-ID"

#: HTTP methods of an endpoint without HTTP sessions, and with them.
POST_ONLY: Final = ("POST",)
SESSION_METHODS: Final = ("GET", "POST", "DELETE")

#: A request that has one of these twice is refused (RFC 9112 §3.2).
_SINGLE: Final = frozenset({b"host", b"origin", b"content-type", b"content-length", b"authorization"})
_CLOSE: Final = ((b"connection", b"close"),)
_CONTROL = regex(r"[\x00-\x1f\x7f]")
_WHOLE_NUMBER = regex(r"(-?[0-9]{1,400})(?:\.0*)?")

#: Limits of each table of remembered values: entries, and bytes of one.
_ENTRIES: Final = 512
_ENTRY_BYTES: Final = 1024


# --- Before the body --------------------------------------------------------------------------------------------------


@final
class HeadRules(Struct, frozen=True, eq=False):
    """What an endpoint demands of the head of a request.

    Attributes:
        guard: Checks Host and Origin.
        methods: The HTTP methods that it serves.
        revisions: The protocol revisions that it offers, newest first.
        sessions: Whether it has HTTP sessions; without, Mcp-Session-Id is ignored.
        any_accept: Whether a GET may come with any Accept header.
        headers: Maximum number of header lines.
        header_bytes: Maximum total bytes of their names and values.
        body: Maximum bytes of the body.
    """

    guard: Guard
    methods: tuple[str, ...] = POST_ONLY
    revisions: tuple[str, ...] = ()
    sessions: bool = True
    any_accept: bool = False
    headers: int = 100
    header_bytes: int = 64 * 1024
    body: int = 4 * 1024 * 1024
    #: Judgements by the headers that they depend on: clients send the same ones with each request.
    judged: dict[tuple[str | bytes | None, ...], _Judgement] = field(default_factory=dict)


@final
class _Judgement(Struct, frozen=True, eq=False):
    """The part of a `Head` that few headers determine."""

    barred: Refusal | None
    refusal: Refusal | None
    stateless: Refusal | None
    handshake: Refusal | None
    accepts: int
    version: str | None


@final
class Head(Struct, eq=False):
    """The head of a request, judged.

    Attributes:
        raw: Lower-case header names to values as sent; `headers` is the mapping for users.
        barred: The response if the request may not reach this server at all.
        refusal: The response if an authorized request can't be served whatever its body.
        stateless_refusal: The response if its message belongs to the stateless era.
        handshake_refusal: The response if its message belongs to the handshake era.
        accepts: The kinds of answer that the client accepts, see `media_types`.
        version: The MCP-Protocol-Version header; a repeated one equals no revision.
        session_id: The Mcp-Session-Id header of a handshake-era request; None if absent or empty.
        admitted: `_meta`, method and revision of the last request with this head that was admitted: a client sends the same
            ones with call after call.
        name: The name in the Mcp-Name header, once a message had the same; None before.
    """

    raw: dict[bytes, bytes]
    barred: Refusal | None
    refusal: Refusal | None
    stateless_refusal: Refusal | None
    handshake_refusal: Refusal | None
    accepts: int
    version: str | None
    session_id: str | None = None
    admitted: tuple[RequestMeta, str, str] | None = None
    name: str | None = None

    @property
    def headers(self) -> Headers:
        """The headers as a mapping of text."""
        return Headers(self.raw)

    def __repr__(self) -> str:
        """Header values may be secrets."""
        return "<Head>"


def judge_head(method: str, pairs: RawHeaders, rules: HeadRules) -> Head:
    """Judge the head of a request before its body is read.

    Args:
        method: The HTTP method.
        pairs: The headers as ASGI has them.
        rules: What the endpoint demands.

    Returns:
        The parsed head with the refusals that follow from it, each None if there is nothing to refuse.
    """
    raw = dict(pairs)
    repeated = _join(raw, pairs) if len(raw) != len(pairs) else None
    get = raw.get
    version = get(b"mcp-protocol-version")
    key = (
        method,
        get(b"host"),
        get(b"origin"),
        get(b"content-type"),
        get(b"content-encoding"),
        get(b"accept"),
        version,
    )
    judged = rules.judged.get(key) or _judge(key, rules)
    barred, refusal, handshake = judged.barred, judged.refusal, judged.handshake
    if repeated:
        barred = Refusal(400, f"Headers that must be sent once came more than once: {shorten(repeated)}")
    if len(pairs) > rules.headers or len(b"".join([name + value for name, value in pairs])) > rules.header_bytes:
        barred = Refusal(431, "The headers of this request are too many or too large")
    length = get(b"content-length", b"")
    if len(length) > 6 and refusal is None and length.isdigit() and int(length[:20]) > rules.body:
        refusal = body_too_large(rules.body)
    head = Head(raw, barred, refusal, judged.stateless, handshake, judged.accepts, judged.version)
    session_id = get(b"mcp-session-id")
    if session_id is not None and rules.sessions and handshake is None:
        _read_session_id(head, session_id)
    return head


def judge_site(pairs: RawHeaders, rules: HeadRules) -> Refusal | None:
    """Judge only what bars a request from this server: the size of its head, repeated headers, Origin, Host.

    Args:
        pairs: The headers as ASGI has them.
        rules: What the endpoint demands.
    """
    return judge_head("", pairs, rules).barred


def _join(raw: dict[bytes, bytes], pairs: RawHeaders) -> str:
    """Combine repeated headers in `raw` as HTTP allows. Returns the names of those that must be single."""
    values: dict[bytes, list[bytes]] = {}
    for name, value in pairs:
        values.setdefault(name, []).append(value)
    single: list[str] = []
    for name, parts in values.items():
        if len(parts) > 1 and (name.startswith(b"mcp-") or name == b"last-event-id"):
            raw[name] = REPEATED
        elif len(parts) > 1:
            raw[name] = (b"; " if name == b"cookie" else b", ").join(parts)
            if name in _SINGLE:
                single.append(name.decode("latin-1"))
    return ", ".join(single)


def _judge(key: tuple[Any, ...], rules: HeadRules) -> _Judgement:
    """Make a judgement and remember it, unless it is large."""
    method, host, origin, content_type, content_encoding, accept, raw_version = key
    accepts = parse_accept(accept)
    version = None if raw_version is None else raw_version.strip(OWS).decode("latin-1")
    refusal = stateless = handshake = None
    if method not in rules.methods:
        refusal = _not_allowed(rules.methods)
    elif method == "POST":
        refusal = check_content_type(content_type, content_encoding)
        stateless, handshake = check_accept(accepts, BOTH), check_accept(accepts, EITHER)
    elif method == "GET" and not rules.any_accept:
        refusal = check_accept(accepts, TAKES_EVENTS)
    judged = _Judgement(
        rules.guard.check(host, origin),
        refusal,
        stateless,
        handshake or _check_version(version, rules.revisions),
        accepts,
        version,
    )
    if sum(map(len, filter(None, key))) <= _ENTRY_BYTES:
        if len(rules.judged) >= _ENTRIES:
            rules.judged.clear()
        rules.judged[key] = judged
    return judged


@cache
def _not_allowed(methods: tuple[str, ...]) -> Refusal:
    names = ", ".join(methods)
    return Refusal(405, f"This endpoint takes {names}", ((b"allow", names.encode()),))


def body_too_large(limit: int) -> Refusal:
    """The response to a body of more than `limit` bytes."""
    return Refusal(413, f"A body may have {limit} bytes here", _CLOSE)


def _check_version(version: str | None, offered: Sequence[str]) -> Refusal | None:
    """Refuse a revision that has no HTTP sessions. The oldest revision with them has no such header."""
    if version is None or version in HANDSHAKE_REVISIONS:
        return None
    if version in offered:
        error = InvalidRequest(f"{version} has no sessions and no responses of clients: it takes requests by POST")
        return Refusal(400, str(error), error=error.error)
    unsupported = UnsupportedVersion(version, offered)
    return Refusal(400, str(unsupported), error=unsupported.error)


def is_session_id(text: str) -> bool:
    """Whether the text can be a session id: one or more characters from 0x21 to 0x7E."""
    return bool(text) and text.isascii() and text.isprintable() and " " not in text


def _read_session_id(head: Head, value: bytes) -> None:
    text = value.strip(OWS).decode("latin-1")
    if is_session_id(text):
        head.session_id = text
    elif text:
        head.handshake_refusal = Refusal(400, "Mcp-Session-Id must be sent once and hold only visible ASCII characters")


def read_last_event_id(head: Head) -> str | None:
    """Read the event after which a stream of an HTTP session goes on.

    Args:
        head: The head of a GET.

    Returns:
        The id, None if the header is absent or empty.

    Raises:
        InvalidRequest: It was sent twice, or holds what no event id can: control characters, malformed UTF-8.
    """
    value = head.raw.get(b"last-event-id", b"")
    try:
        text = value.strip(OWS).decode()
    except UnicodeDecodeError:
        text = "\0"
    if _CONTROL.search(text):
        raise InvalidRequest("Last-Event-ID must be sent once and be the id of an event of this server")
    return text or None


# --- The message ------------------------------------------------------------------------------------------------------

#: Header values and what they were found to say: a few make up nearly all calls. Values that stand for themselves, and
#: names, which may be encoded.
_texts: dict[bytes | None, str] = {}
_names: dict[bytes | None, str] = {}


def _remember(texts: dict[bytes | None, str], raw: bytes, text: str) -> None:
    if len(raw) <= _ENTRY_BYTES // 4:
        if len(texts) >= _ENTRIES // 2:
            texts.clear()
        texts[raw] = text


def judge_message(head: Head, revision: str, method: str) -> None:
    """Require that MCP-Protocol-Version and Mcp-Method are there and equal the message.

    For requests of the stateless era; the specification has no such rule for notifications.

    Args:
        head: The head of the HTTP request.
        revision: The revision that `_meta` of the message names.
        method: The method of the message.

    Raises:
        HeaderMismatch: A header is missing or differs.
    """
    raw = head.raw
    raw_version, raw_method = raw.get(b"mcp-protocol-version"), raw.get(b"mcp-method")
    if _texts.get(raw_version) != revision:
        _compare(PROTOCOL_VERSION, raw_version, revision)
    if _texts.get(raw_method) != method:
        _compare(METHOD, raw_method, method)


def _compare(header: str, raw: bytes | None, body: str) -> None:
    if raw is None:
        raise _missing(header, body)
    text = read_value(raw.decode("latin-1"), header)
    if text != body:
        raise _differs(header, text, body)
    _remember(_texts, raw, text)


def judge_name(head: Head, name: str, *, required: bool = True) -> None:
    """Require that Mcp-Name equals the message. A name that equals `head.name` was judged before.

    Args:
        head: The head of the HTTP request.
        name: `params.name`, `params.uri` or `params.taskId` of the message.
        required: Whether it may not be missing.

    Raises:
        HeaderMismatch: The header is missing or differs.
    """
    raw = head.raw.get(b"mcp-name")
    if raw is None:
        if required and name:  # some HTTP libraries drop a header with an empty value
            raise _missing(NAME, name)
        return
    if _names.get(raw) != name:
        text = decode_value(raw.decode("latin-1"), NAME)
        if text != name:
            raise _differs(NAME, text, name)
        _remember(_names, raw, text)
    head.name = name


def judge_parameters(head: Head, spec: Sequence[ParamHeader], arguments: Mapping[str, Any] | Any) -> None:
    """Require that each annotated argument has its Mcp-Param-* header and that both are equal.

    A header without its argument is refused too: an intermediary would act on a value that the message lacks.

    Args:
        head: The head of the HTTP request.
        spec: The mirrored arguments of the tool, see `mirror.collect_param_headers`.
        arguments: The arguments of the message.

    Raises:
        HeaderMismatch: A header is missing, superfluous or differs.
    """
    for param in spec:
        value = value_at(arguments, param.path)
        raw = head.raw.get(param.raw_name)
        if raw is None:
            # Some HTTP libraries drop a header with an empty value.
            if value != "" and scalar(value) is not None:
                raise HeaderMismatch(f"Header mismatch: {param.header} is missing; the body has {dotted(param.path)}")
        elif value is not None:
            text = decode_value(raw.decode("latin-1"), param.header)
            if not _equal(text, scalar(value)):
                raise HeaderMismatch(f"Header mismatch: {param.header} says {quote(text)}, the body something else")
        elif raw.strip(OWS):
            raise HeaderMismatch(f"Header mismatch: {param.header} was sent, but the body has no {dotted(param.path)}")


def _equal(text: str, value: str | int | None) -> bool:
    """Compare integers as numbers, so that `42.0` equals 42, everything else as text."""
    if isinstance(value, str):
        return text == value
    if isinstance(value, bool):
        return text == ("true" if value else "false")
    number = _WHOLE_NUMBER.fullmatch(text)
    return number is not None and int(number[1]) == value


def _missing(header: str, body: str) -> HeaderMismatch:
    return HeaderMismatch(f"Header mismatch: {header} is missing; the body says {shorten(body)!r}")


def _differs(header: str, text: str, body: str) -> HeaderMismatch:
    return HeaderMismatch(f"Header mismatch: {header} says {shorten(text)!r}, the body {shorten(body)!r}")
