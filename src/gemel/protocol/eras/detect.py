"""Which era a message belongs to: decided here for each message, by its `_meta` and the HTTP version header.

Names of eras and revisions become Era objects here, too.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache

import msgspec
from msgspec import Raw

from gemel.errors import DefinitionError, InvalidRequest
from gemel.jsonrpc import (
    ABSENT,
    Notification,
    Request,
    RequestId,
    Unreadable,
    has_repeated_member,
)
from gemel.protocol.eras.base import Era, EraName
from gemel.protocol.eras.handshake import HANDSHAKE
from gemel.protocol.eras.stateless import STATELESS
from gemel.protocol.records import UNKNOWN_ORIGIN, Call
from gemel.schema.base import NOTHING, ProgressToken, RequestMeta
from gemel.schema.methods import METHODS
from gemel.schema.tools import NO_ARGUMENTS, CallToolParams

#: All eras by name, the oldest first.
ERAS: dict[EraName, Era] = {era.name: era for era in (HANDSHAKE, STATELESS)}


#: More bytes of `params` are looked through only for few colons, that is few members, outside of what may be long.
MAX_SMALL_PARAMS = 65536
MAX_COLONS = 10_000
#: The longest `_meta` that is remembered, and how many are: a client sends the same one with each request.
MAX_REMEMBERED = 2048
REMEMBERED = 256


#: How `_meta` begins if a progress token is first: that is another one in each request, and the rest is the same.
_TOKEN_FIRST = b'{"progressToken":'


class _Params(msgspec.Struct, gc=False):
    """The members of most params, undecoded."""

    meta: Raw = msgspec.field(name="_meta", default=ABSENT)
    name: Raw = ABSENT
    arguments: Raw = NO_ARGUMENTS


class _ToolCallParams(CallToolParams, kw_only=True):
    """The params of the method that is called most, decoded together with `_meta`."""

    meta: Raw = msgspec.field(name="_meta", default=ABSENT)


class _InputResponses(msgspec.Struct):
    value: Raw = msgspec.field(name="inputResponses", default=ABSENT)


#: The bytes of `params` besides the values of these members, in the shortest notation. A repeated one would not fit.
MAX_ARGUMENTS_FRAME = len('{"name":,"arguments":}')
MAX_META_FRAME = len('{"_meta":,"name":,"arguments":}')

_decode_params = msgspec.json.Decoder(_Params).decode
_decode_call = msgspec.json.Decoder(_ToolCallParams).decode
_decode_input_responses = msgspec.json.Decoder(_InputResponses).decode
_meta_decoder = msgspec.json.Decoder(RequestMeta | None)
_decode_token = msgspec.json.Decoder(ProgressToken).decode
_decode_raw_meta = msgspec.json.Decoder(dict[str, Raw]).decode


def classify(message: Request | Notification, eras: tuple[Era, ...], version_header: str | None = None) -> Call:
    """Read the `_meta` of a message and decide its era.

    `protocolVersion` in `_meta` means the stateless era, whatever it says. Without it the HTTP header decides; the method
    never does. Who has one era handles everything by its rules.

    Args:
        message: The message. Malformed members of its `_meta` count as absent.
        eras: The eras that are served; on a client the one that it has negotiated.
        version_header: The revision that the HTTP headers name.

    Returns:
        The call, which is to be admitted.

    Raises:
        Unreadable: A member of `params` or `_meta` is repeated.
    """
    request_id: RequestId | None = None
    meta: RequestMeta | None = None
    typed: _ToolCallParams | None = None
    text, method = message.params, message.method
    if type(message) is Request:
        request_id, meta = message.id, message.meta
    if text is not ABSENT:
        if method == "tools/call":
            try:
                typed = _decode_call(text)
            except (msgspec.MsgspecError, ValueError):
                typed = None  # the caller is told of it when the call is served
        if typed is None:
            params: _Params | _ToolCallParams = _decode_params(text)
            frame = len(text) - len(params.arguments) - len(params.name) - len(params.meta)
        else:
            params = typed  # its name has no quotes; one that is written with escapes makes the frame longer
            frame = len(text) - len(params.arguments) - len(params.name) - 2 - len(params.meta)
        if params.meta is ABSENT:
            max_frame = MAX_ARGUMENTS_FRAME
        else:
            max_frame = MAX_META_FRAME
            if meta is None:
                try:
                    # Comparing with the last one is cheaper than looking it up.
                    last = _last_meta
                    meta = last.meta if params.meta == last.text else _read_meta(params.meta)
                except InvalidRequest as exc:
                    raise _unreadable(message, str(exc)) from None
        if frame > max_frame or params.arguments is NO_ARGUMENTS:
            _check_params(message, params)
    if len(eras) == 1:
        era = eras[0]
    elif meta is not None and meta.protocol_version is not NOTHING:
        era = STATELESS
    elif version_header is None:
        era = HANDSHAKE
    else:
        era = era_of_revision(version_header)
    return Call(request_id, method, text, meta, era, "", UNKNOWN_ORIGIN, typed, request_id)


def _check_params(message: Request | Notification, params: _Params | _ToolCallParams) -> None:
    """Raise Unreadable if a member is repeated, or if there are too many to look through.

    An extension may have large params of its own. They are not looked through.
    """
    text = bytes(message.params)
    if len(text) > MAX_SMALL_PARAMS:
        large = (params.arguments, _decode_input_responses(text).value)
        skipped = sum(bytes(value).count(b":") for value in large)
        if text.count(b":") - skipped > MAX_COLONS:
            if message.method not in METHODS:
                return
            raise _unreadable(message, "params has too many members")
    if has_repeated_member(text):
        raise _unreadable(message, "a member of params is repeated")


def _unreadable(message: Request | Notification, reason: str) -> Unreadable:
    return Unreadable(f"Invalid request: {reason}", message.id if type(message) is Request else None)


def _decode_meta(text: bytes) -> RequestMeta | None:
    """Decode `_meta`. Raises InvalidRequest if a member is repeated, or if there are too many to look through."""
    if text.count(b":") > MAX_COLONS:
        raise InvalidRequest("params._meta has too many members")
    meta: RequestMeta | None
    try:
        meta = _meta_decoder.decode(text)
    except (msgspec.MsgspecError, RecursionError):
        meta = _salvage(text)
    if meta is not None and has_repeated_member(text):
        raise InvalidRequest("a member of params._meta is repeated")
    return meta


class _LastMeta(msgspec.Struct, frozen=True):
    """The last `_meta` that was read. Immutable, since event loops of several threads share it."""

    text: Raw = ABSENT
    meta: RequestMeta | None = None


_last_meta = _LastMeta()
_remembered_meta = lru_cache(REMEMBERED)(_decode_meta)


def _read_meta(raw: Raw) -> RequestMeta | None:
    """Look up or decode `_meta`. Raises InvalidRequest as `_decode_meta` does."""
    global _last_meta
    text = bytes(raw)
    if len(text) > MAX_REMEMBERED:
        return _decode_meta(text)
    first, _, rest = text.partition(b",")
    token = first.removeprefix(_TOKEN_FIRST)
    if len(token) < len(first) and (known := _rest_of_meta(rest)) is not None:
        try:
            return msgspec.structs.replace(known, progress_token=_decode_token(token))
        except msgspec.MsgspecError:
            pass  # a text with a comma, or no token
    meta = _remembered_meta(text)
    _last_meta = _LastMeta(Raw(text), meta)
    return meta


@lru_cache(REMEMBERED)
def _rest_of_meta(text: bytes) -> RequestMeta | None:
    """Decode what follows a progress token; None if that may be a second one, or nothing that can be decoded."""
    if b"\\" in text or b'"progressToken"' in text:
        return None
    return _decode_meta(b"{" + text)


def _salvage(text: bytes) -> RequestMeta | None:
    """Decode the members that are well-formed. A malformed `protocolVersion` is kept as raw text: it still names the era."""
    try:
        members = _decode_raw_meta(text)
    except (msgspec.MsgspecError, RecursionError):
        return None
    meta = RequestMeta()
    for field in msgspec.structs.fields(RequestMeta):
        value = members.get(field.encode_name)
        if value is not None:
            try:
                setattr(meta, field.name, msgspec.json.decode(value, type=field.type))
            except (msgspec.MsgspecError, RecursionError):
                if field.name == "protocol_version":
                    meta.protocol_version = value
    return meta


def era_of_answer(eras: tuple[Era, ...]) -> Era:
    """The era of an answer to a server, whatever the header says: only servers of the handshake era send requests."""
    return eras[0]


def era_of_batch(version_header: str | None, eras: tuple[Era, ...]) -> Era:
    """The era of a JSON array, which is not read before it is known to be allowed."""
    if len(eras) == 1:
        return eras[0]
    return HANDSHAKE if version_header is None else era_of_revision(version_header)


def era_of_revision(revision: str) -> Era:
    """The era of a published revision; the handshake era for a name that is unknown."""
    return STATELESS if revision in STATELESS.revisions else HANDSHAKE


def parse_eras(names: object) -> tuple[Era, ...]:
    """The eras that a user names, the oldest first.

    Args:
        names: One name or several: "2025", "2026".

    Raises:
        DefinitionError: A name is unknown, or there is none.
    """
    given = set(names) if isinstance(names, Iterable) and not isinstance(names, str) else {names}
    if not given or not given.issubset(ERAS):
        raise DefinitionError(f'eras={names!r} is not possible: use "2025", "2026", or both')
    return tuple(era for name, era in ERAS.items() if name in given)
