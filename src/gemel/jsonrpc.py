"""JSON-RPC messages: from bytes to typed values and back. Knows nothing of MCP, channels or time.

Invariant: any bytes become messages or a ProtocolError, nothing else.
"""

from __future__ import annotations

import re
from struct import Struct
from typing import Any, Final, Literal, TypeAlias, final

import msgspec
from msgspec import UNSET, Raw, UnsetType

from gemel.errors import ErrorObject, InvalidRequest, ParseError, ProtocolError
from gemel.values.encoding import encode_value

#: A request id: a string or an integer. The response has it in the same JSON type.
RequestId: TypeAlias = str | int

#: Stands for a member that wasn't there; compared by identity.
ABSENT = Raw(b"")
#: `opening(raw) == OBJECT`: whether JSON text, which is known to be valid, is an object.
opening = Struct("c").unpack_from
OBJECT: Final = (b"{",)


@final
class Request(msgspec.Struct, frozen=True):
    """A request, which gets exactly one response. `params` is the untouched JSON text, empty when absent.

    `meta` is its `_meta` as it is read, where the sender in the same process knows it.
    """

    id: RequestId
    method: str
    params: Raw = ABSENT
    meta: Any = None


@final
class Notification(msgspec.Struct, frozen=True):
    """A message that is never answered."""

    method: str
    params: Raw = ABSENT


@final
class Response(msgspec.Struct, frozen=True):
    """A successful answer."""

    id: RequestId
    result: Raw


@final
class Failure(msgspec.Struct, frozen=True):
    """An error answer; `id` is None when the sender could not read the request's id."""

    id: RequestId | None
    error: ErrorObject


Message: TypeAlias = Request | Notification | Response | Failure


class _Envelope(msgspec.Struct):
    jsonrpc: str = ""
    id: int | str | UnsetType | None = UNSET
    method: str | UnsetType = UNSET
    params: Raw = ABSENT
    result: Raw = ABSENT
    error: Raw = ABSENT


class _IdOnly(msgspec.Struct):
    id: Any = None


class _Members(msgspec.Struct):
    jsonrpc: Raw = ABSENT
    id: Raw = ABSENT
    method: Raw = ABSENT
    result: Raw = ABSENT
    error: Raw = ABSENT


_MEMBERS = _Members.__struct_fields__


class Unreadable(InvalidRequest):
    """JSON that is not a message. `request_id` is its id if that could be read, for the error response."""

    def __init__(self, message: str, request_id: RequestId | None = None) -> None:
        super().__init__(message)
        self.request_id = request_id


#: The most members of an object in which repeated ones are looked for. No message of the protocol has more.
MAX_MEMBERS = 1000
#: The most bytes of a message outside of its `params`, `result` or `error`.
MAX_FRAME = 65536

#: A request with `params`, an integer id of at most 7 digits and no other member has at most so many bytes besides its
#: `params` and the text of its `method`, in the shortest notation, which most peers write. One more `id` would not fit.
MAX_REQUEST_FRAME = len('{"jsonrpc":"2.0","id":1234567,"method":"","params":}')
MAX_RESULT_FRAME = len('{"jsonrpc":"2.0","id":1234567,"result":}')
#: The most bytes of a malformed message that are read at its beginning for its id, and those at the end of a longer one.
MAX_OUTLINE = 1 << 20
TAIL = 256
#: Brackets of a malformed message, and levels of nesting, that are looked at for its id.
MAX_BRACKETS = 10_000
MAX_LEVELS = 1_000
_NAME = re.compile(rb'\s*[{,]\s*"(?:[^"\\]|\\.)*"\s*:\s*', re.DOTALL)
_END = re.compile(rb"\s*(\{\s*)?\}\s*\Z")

#: How a message begins, or a batch of them.
_BEGUN = re.compile(rb"(\xef\xbb\xbf)?\s*(\[\s*)?\{\s*[\"}]")
_STRING = rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"'
#: Up to the next bracket that is not of an object or array without others in it.
_TEXT = rb'[^"{}\[\]]*+(?:' + _STRING + rb'[^"{}\[\]]*+)*+'
_BRACKET = re.compile(
    rb'[^"{}\[\]]*+(?:(?:' + _STRING + rb"|\{" + _TEXT + rb"\}|\[" + _TEXT + rb'\])[^"{}\[\]]*+)*+([{}\[\]])\s*+',
    re.DOTALL,
)
_MEMBER = re.compile(rb"\s*+(" + _STRING + rb")\s*+:\s*+", re.DOTALL)
_SCALAR = re.compile(rb"(" + _STRING + rb'|[^\s,:{}\[\]"]++)\s*+', re.DOTALL)
_CLOSING = {b"{": b"}", b"[": b"]"}
_INTEGER = re.compile(rb"-?\d+")
#: An id at the end of an object.
_LAST_ID = re.compile(rb'[,{]\s*"id"\s*:\s*(-?\d+|' + _STRING + rb")\s*\}\s*\Z", re.DOTALL)
#: The name of one more id in what could not be read.
_ID = re.compile(rb'"(?:i|\\u0069)(?:d|\\u0064)"')
_SURROGATE = re.compile(rb"\\u[dD][89a-fA-F]")
_decode = msgspec.json.Decoder(_Envelope).decode
_id_decoder = msgspec.json.Decoder(_IdOnly)
_members_decoder = msgspec.json.Decoder(_Members)
_raw_members_decoder = msgspec.json.Decoder(dict[str, Raw])
_error_decoder = msgspec.json.Decoder(ErrorObject)
_array_decoder = msgspec.json.Decoder(list[Raw])
_encoder = msgspec.json.Encoder()


class Outline:
    """The members at the top level of a message that is not valid JSON, as far as they can be read.

    Args:
        text: The message, or the beginning of a long one.
        tail: The end of a long one, of which the id is read only.

    Attributes:
        names: Their names.
        is_whole: Whether these are all.
        request_id: The id; None if there is none, if it can't be read, or if there may be several.
    """

    def __init__(self, text: bytes, tail: bytes = b"") -> None:
        if len(text) > MAX_OUTLINE:
            text, tail = text[:MAX_OUTLINE], text[max(MAX_OUTLINE, len(text) - TAIL) :]
        self.names: set[str] = set()
        self.is_whole = False
        self.request_id: RequestId | None = None
        ids: list[RequestId | None] = []
        text = text.removeprefix(b"\xef\xbb\xbf").lstrip()
        position, delimiter = 0, b"," if text.startswith(b"{") else b""
        for _ in range(MAX_MEMBERS):
            member = _MEMBER.match(text, position + 1) if delimiter == b"," else None
            if member is None:
                break
            name, value = _text_of(member[1]), _SCALAR.match(text, member.end())
            position = value.end() if value is not None else _end_of_value(text, member.end())
            delimiter = text[position : position + 1]
            self.names.add(name)
            if name == "id":
                ids.append(_id_of(value[1]) if value is not None and delimiter in (b",", b"}") else None)
        if last := _LAST_ID.search(tail):
            ids.append(_id_of(last[1]))
        self.is_whole = delimiter == b"}" and not tail and not text[position + 1 :].strip()
        if len(ids) == 1 and not _ID.search(text, position):
            self.request_id = ids[0]


def _end_of_value(text: bytes, start: int) -> int:
    """Where an object or array ends: at the end of a text that was cut off, at its start if that can't be found out."""
    if text[start : start + 1] not in (b"{", b"["):
        return start if text[start : start + 1] != b'"' else len(text)  # a string that was cut off
    levels = [_CLOSING[text[start : start + 1]]]
    position = start + 1
    for _ in range(MAX_BRACKETS):
        bracket = _BRACKET.match(text, position)
        if bracket is None:
            return len(text)
        position = bracket.end()
        if bracket[1] in _CLOSING:
            levels.append(_CLOSING[bracket[1]])
        elif levels.pop() != bracket[1]:
            return start
        if not levels:
            return position
        if len(levels) > MAX_LEVELS:
            return start
    return start


def _text_of(string: bytes) -> str:
    try:
        return msgspec.json.decode(string, type=str)
    except (msgspec.MsgspecError, UnicodeError):
        return ""


def _id_of(value: bytes) -> RequestId | None:
    if value[:1] != b'"' and _INTEGER.fullmatch(value) is None:
        return None
    try:
        return msgspec.json.decode(value, type=int | str)
    except (msgspec.MsgspecError, ValueError):
        return None


def id_of(error: ProtocolError, data: bytes) -> RequestId | None:
    """The id of a message that `decode` refused with this error, for the answer."""
    return error.request_id if isinstance(error, Unreadable) else Outline(data).request_id


def meant_as(data: bytes) -> Literal["request", "notification", "response"] | None:
    """Tell what a malformed message was meant to be, by the names of its members. None if they don't say."""
    try:
        members = _members_decoder.decode(data)
    except (msgspec.MsgspecError, RecursionError, UnicodeError):
        outline = Outline(data)
        names, is_whole = outline.names, outline.is_whole
    else:
        names, is_whole = {name for name in _MEMBERS if getattr(members, name) is not ABSENT}, True
    has_outcome = not names.isdisjoint(("result", "error"))
    if "method" not in names:
        return "response" if has_outcome or (is_whole and "id" in names) else None
    if has_outcome:
        return None
    return "request" if "id" in names else "notification" if is_whole else None


def is_print(data: bytes) -> bool:
    """Whether a malformed message is rather something that a program printed: text, or a line of a log in JSON."""
    try:
        members = _members_decoder.decode(data)
    except (msgspec.MsgspecError, RecursionError, UnicodeError):
        return not _BEGUN.match(data)
    is_response = members.id is not ABSENT and (members.result is not ABSENT or members.error is not ABSENT)
    return members.jsonrpc is ABSENT and not is_response


def is_batch(data: bytes) -> bool:
    """Whether the text is a JSON array: a batch, which only one revision knows."""
    return data[:1] != b"{" and data[:1024].lstrip(b" \t\r\n")[:1] == b"["


def split_batch(data: bytes, limit: int) -> list[bytes]:
    """The messages of a batch, each as its own text. An empty one, or one over `limit`, is an InvalidRequest."""
    try:
        items = _array_decoder.decode(data)
    except (msgspec.MsgspecError, RecursionError, ValueError) as exc:
        raise ParseError("Parse error: not valid JSON") from exc
    if not 0 < len(items) <= limit:
        raise InvalidRequest(f"A batch holds 1 to {limit} messages")
    return [bytes(item) for item in items]


def has_repeated_member(text: bytes) -> bool:
    """Whether a JSON object has a member twice (or more than `MAX_MEMBERS`), of which readers take different ones.

    The members of a dict, which are unique, are found one after the other in the text; then nothing may remain.
    """
    try:
        members = _raw_members_decoder.decode(text)
    except (msgspec.MsgspecError, RecursionError):
        return True
    if len(members) > MAX_MEMBERS:
        return True
    # Each character of a name takes at least one byte, so that nothing else is in a text that is as short as it can be.
    if len(text) == 1 + sum(map(len, members)) + sum(map(len, members.values())) + 4 * len(members):
        return False
    position = 0
    for value in members.values():
        name = _NAME.match(text, position)
        if name is None or not text.startswith(value, name.end()):
            return True
        position = name.end() + len(value)
    return not _END.match(text, position)


def decode(data: bytes) -> Message:
    """One message from its UTF-8 JSON text.

    Raises:
        ParseError: The text is not JSON, or not UTF-8.
        Unreadable: The JSON is not one JSON-RPC message, or repeats a member.
    """
    try:
        if not data.isascii():
            data.decode()
        envelope = _decode(data)
    except msgspec.ValidationError as exc:
        raise _unreadable(data, str(exc)) from exc
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError, ValueError) as exc:
        half = ", perhaps half of a surrogate pair in a string" if _SURROGATE.search(data) else ""
        raise ParseError(f"Parse error: not valid JSON in UTF-8{half}") from exc
    if envelope.jsonrpc != "2.0":
        raise _unreadable(data, 'the member "jsonrpc" must be "2.0"')
    method, request_id, params = envelope.method, envelope.id, envelope.params
    if method is UNSET:
        return _decode_response(envelope, data)
    if params is not ABSENT and opening(params) != OBJECT:
        raise _unreadable(data, "params must be an object")
    if request_id is UNSET or params is ABSENT or len(data) - len(params) - len(method) > MAX_REQUEST_FRAME:
        if envelope.result is not ABSENT or envelope.error is not ABSENT:
            raise _unreadable(data, "a request has no result and no error")
        _check_members(data, params)
        if request_id is UNSET:
            return Notification(method, params)
    if request_id is None:
        raise _unreadable(data, "the id of a request must be a string or an integer")
    return Request(request_id, method, params)


def _check_members(data: bytes, content: Raw) -> None:
    """Raise Unreadable for repeated members. `content` is the only one that may be long.

    The error names the request only if the id is certain: `"id"` occurs once, and no name is written with escapes.
    """
    data = data.strip(b" \t\r\n")  # blanks around the message are not members
    if len(data) - len(content) <= MAX_FRAME and not has_repeated_member(data):
        return
    error = _unreadable(data, f"a member is repeated, or there are more than {MAX_FRAME} bytes of other members")
    skipped = bytes(content)
    is_certain = data.count(b'"id"') - skipped.count(b'"id"') == 1 and data.count(b"\\") == skipped.count(b"\\")
    if isinstance(error, Unreadable) and not is_certain:
        error.request_id = None
    raise error


def _decode_response(envelope: _Envelope, data: bytes) -> Message:
    has_result, has_error = envelope.result is not ABSENT, envelope.error is not ABSENT
    request_id = None if envelope.id is UNSET else envelope.id
    if has_result == has_error:
        raise _unreadable(data, "a response has exactly one of result and error")
    if has_error or len(data) - len(envelope.result) > MAX_RESULT_FRAME:
        _check_members(data, envelope.error if has_error else envelope.result)
    if has_error:
        try:
            return Failure(request_id, _error_decoder.decode(envelope.error))
        except (msgspec.MsgspecError, RecursionError, ValueError) as exc:
            raise _unreadable(data, "error must have an integer code and a string message") from exc
    if request_id is None:
        raise _unreadable(data, "a result needs the id of its request")
    return Response(request_id, envelope.result)


def _unreadable(data: bytes, why: str) -> Unreadable | ParseError:
    try:
        request_id = _id_decoder.decode(data).id
    except msgspec.ValidationError:
        request_id = None
    except (msgspec.DecodeError, RecursionError, ValueError):
        return ParseError("Parse error: not valid JSON")
    usable = isinstance(request_id, (str, int)) and not isinstance(request_id, bool)
    return Unreadable(f"Invalid request: {why}", request_id if usable else None)


class _Request(msgspec.Struct, tag_field="jsonrpc", tag="2.0"):
    id: RequestId
    method: str
    params: Any = UNSET


class _Notification(msgspec.Struct, tag_field="jsonrpc", tag="2.0"):
    method: str
    params: Any = UNSET


class _Response(msgspec.Struct, tag_field="jsonrpc", tag="2.0"):
    id: RequestId
    result: Any


class _Failure(msgspec.Struct, tag_field="jsonrpc", tag="2.0"):
    id: RequestId | UnsetType
    error: ErrorObject


def encode_request(request_id: RequestId, method: str, params: object = UNSET) -> bytes:
    """The text of a request; `params` is any JSON-encodable object, or UNSET."""
    request = _Request(request_id, method, params)
    return _encoder.encode(request) if type(params) is Raw else encode_value(request)


def encode_notification(method: str, params: object = UNSET) -> bytes:
    """The text of a notification."""
    return encode_value(_Notification(method, params))


def encode_response(request_id: RequestId, result: object) -> bytes:
    """The text of a successful answer. Raises TypeError (or another of msgspec's errors) for what JSON can't say."""
    return encode_value(_Response(request_id, result))


def encode_failure(request_id: RequestId | None, error: ErrorObject) -> bytes:
    """The text of an error answer, without an id when the request's could not be read."""
    return encode_value(_Failure(UNSET if request_id is None else request_id, error))
