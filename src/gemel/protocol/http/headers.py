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

from collections import OrderedDict
from collections.abc import Mapping, Sequence
from functools import cache
from re import compile as regex
from typing import Any, Final, Protocol, TypeAlias, final

from msgspec import Struct, field
from msgspec.structs import replace

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
from gemel.protocol.limits import DEFAULT_LIMITS
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
#: What a header carries as it is: visible characters, of which the first begins no encoded value.
_PLAIN_NAME = regex(r"[!-<>-~][!-~]*")
_WHOLE_NUMBER = regex(r"(-?[0-9]{1,400})(?:\.0*)?")

#: Limits of the judgements that are remembered: how many, and bytes of the headers that one depends on.
_JUDGEMENTS: Final = 512
_JUDGED_BYTES: Final = 1024


# --- Before the body --------------------------------------------------------------------------------------------------


#: Headers that a judgement depends on, besides the HTTP method.
_DECIDING: Final = (
    *(b"host", b"origin", b"content-type", b"content-encoding", b"accept"),
    *(b"mcp-protocol-version", b"mcp-method"),
)
#: The HTTP method and the values of these headers.
_Deciding: TypeAlias = tuple[str | bytes | None, ...]


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
    body: int = DEFAULT_LIMITS.body
    #: Judgements by all that they depend on: the HTTP method and the values of a few headers, see `judge_head`. Nothing else
    #: remembers what was decided about a head.
    judged: OrderedDict[_Deciding, Judgement] = field(default_factory=OrderedDict)


@final
class Judgement(Struct, frozen=True, eq=False):
    """The part of a `Head` that few headers determine."""

    rules: HeadRules
    barred: Refusal | None
    refusal: Refusal | None
    stateless: Refusal | None
    handshake: Refusal | None
    accepts: int
    version: str | None
    mcp_method: str | None


class CommonHead(Protocol):
    """What is common to the heads of several requests of a client, as `judge_head` needs it. No name is repeated in them.

    `gemel.http1`, a layer above, implements it.

    Attributes:
        varying: The headers whose values differ.
        most: The most bytes of such a head.
        judgement: The judgement of all of them, once it is known: a reference to what `HeadRules.judged` remembers.
    """

    varying: frozenset[bytes]
    most: int
    judgement: Any


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
        mcp_method: The Mcp-Method header; None if it is absent or malformed.
        session_id: The Mcp-Session-Id header of a handshake-era request; None if absent or empty.
    """

    raw: dict[bytes, bytes]
    barred: Refusal | None
    refusal: Refusal | None
    stateless_refusal: Refusal | None
    handshake_refusal: Refusal | None
    accepts: int
    version: str | None
    mcp_method: str | None = None
    session_id: str | None = None

    @property
    def headers(self) -> Headers:
        """The headers as a mapping of text."""
        return Headers(self.raw)

    def __repr__(self) -> str:
        """Header values may be secrets."""
        return "<Head>"


def judge_head(method: str, pairs: RawHeaders, rules: HeadRules, form: CommonHead | None = None) -> Head:
    """Judge the head of a request before its body is read.

    Args:
        method: The HTTP method.
        pairs: The headers as ASGI has them.
        rules: What the endpoint demands.
        form: The form of the head, if it is known.

    Returns:
        The parsed head with the refusals that follow from it, each None if there is nothing to refuse.
    """
    raw = dict(pairs)
    judged: Judgement | None = None if form is None else form.judgement
    if judged is None or judged.rules is not rules:
        judged = _judge_new(method, raw, pairs, rules, form)
    head = Head(
        raw,
        judged.barred,
        judged.refusal,
        judged.stateless,
        judged.handshake,
        judged.accepts,
        judged.version,
        judged.mcp_method,
    )
    if b"mcp-session-id" in raw and rules.sessions and head.handshake_refusal is None:
        _read_session_id(head)
    return head


def _judge_new(
    method: str, raw: dict[bytes, bytes], pairs: RawHeaders, rules: HeadRules, form: CommonHead | None
) -> Judgement:
    """Judge a head whose form is unknown or new, and note the judgement for others of the form."""
    size = len(b"".join((*raw, *raw.values())))
    repeated = ""
    if len(raw) != len(pairs):
        size = sum(len(name) + len(value) for name, value in pairs)
        repeated = _join(raw, pairs)
    deciding = (method, *map(raw.get, _DECIDING))
    judged = rules.judged.get(deciding) or _judge(deciding, rules)
    if len(pairs) > rules.headers or size > rules.header_bytes:
        return replace(judged, barred=Refusal(431, "The headers of this request are too many or too large"))
    if repeated:
        text = f"Headers that must be sent once came more than once: {shorten(repeated)}"
        return replace(judged, barred=Refusal(400, text))
    if form is not None and form.varying.isdisjoint(_DECIDING) and form.most <= rules.header_bytes:
        form.judgement = judged
    length = raw.get(b"content-length", b"")
    if len(length) > 6 and judged.refusal is None and length.isdigit() and int(length[:20]) > rules.body:
        return replace(judged, refusal=body_too_large(rules.body))
    return judged


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


def _judge(deciding: tuple[Any, ...], rules: HeadRules) -> Judgement:
    """Make a judgement and remember it, unless the headers are large."""
    method, host, origin, content_type, content_encoding, accept, raw_version, raw_method = deciding
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
    judged = Judgement(
        rules,
        rules.guard.check(host, origin),
        refusal,
        stateless,
        handshake or _check_version(version, rules.revisions),
        accepts,
        version,
        _read_method(raw_method),
    )
    if sum(map(len, filter(None, deciding))) <= _JUDGED_BYTES:
        if len(rules.judged) >= _JUDGEMENTS:
            rules.judged.popitem(last=False)
        rules.judged[deciding] = judged
    return judged


def _read_method(raw: bytes | None) -> str | None:
    try:
        return None if raw is None else read_value(raw.decode("latin-1"), METHOD)
    except HeaderMismatch:
        return None  # `judge_message` says why


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


def _read_session_id(head: Head) -> None:
    text = head.raw[b"mcp-session-id"].strip(OWS).decode("latin-1")
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
    if head.version != revision or not revision.isprintable() or not revision.isascii():
        _compare(PROTOCOL_VERSION, head.raw.get(b"mcp-protocol-version"), revision)
    if head.mcp_method != method:
        _compare(METHOD, head.raw.get(b"mcp-method"), method)


def _compare(header: str, raw: bytes | None, body: str) -> None:
    if raw is None:
        raise _missing(header, body)
    text = read_value(raw.decode("latin-1"), header)
    if text != body:
        raise _differs(header, text, body)


def judge_name(head: Head, name: str, *, required: bool = True) -> None:
    """Require that Mcp-Name equals the message.

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
    text = raw.decode("latin-1")
    if text == name and _PLAIN_NAME.fullmatch(text):
        return
    text = decode_value(text, NAME)
    if text != name:
        raise _differs(NAME, text, name)


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
