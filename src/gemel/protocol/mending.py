"""Mends the envelope of a message of a server that has a formal slip and one meaning all the same."""

from __future__ import annotations

import re

import msgspec
from msgspec import Raw

from gemel.jsonrpc import RequestId, has_repeated_member

_members = msgspec.json.Decoder(dict[str, Raw])
_NULL = b"null"
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
#: The code of an error, as a float or in a string.
_INTEGER = re.compile(r"-?\d{1,9}(\.0)?", re.ASCII)


def mend(data: bytes, answers: RequestId | None = None) -> tuple[bytes, list[str]] | None:
    """Write a message without its slips.

    A message with repeated members is never mended: it has several meanings.

    Args:
        data: A message that `jsonrpc.decode` refuses.
        answers: The id of the request that a result without an id is for; None if it may be for another one.

    Returns:
        The text, to be decoded as strictly as any, and the names of the slips; None for a message without known slips.
    """
    text = data.removeprefix(_BYTE_ORDER_MARK)
    try:
        members = _members.decode(text)
    except (msgspec.MsgspecError, RecursionError, UnicodeError):
        return None
    slips = ["byte-order-mark"] if len(text) < len(data) else []
    slips += [name for name, is_slip in _SLIPS.items() if is_slip(members)]
    if answers is not None and _is_result_without_id(members):
        members["id"] = Raw(msgspec.json.encode(answers))
        slips.append("result-without-id")
    if not slips or has_repeated_member(text):
        return None
    return msgspec.json.encode(members), slips


def _drop_null(members: dict[str, Raw], name: str) -> bool:
    if bytes(members.get(name, b"")) != _NULL:
        return False
    del members[name]
    return True


def _null_params(members: dict[str, Raw]) -> bool:
    return "method" in members and _drop_null(members, "params")


def _null_id(members: dict[str, Raw]) -> bool:
    is_notification = bytes(members.get("method", b"")).startswith(b'"notifications/')
    return is_notification and _drop_null(members, "id")


def _null_error(members: dict[str, Raw]) -> bool:
    return not members.keys().isdisjoint(("method", "result")) and _drop_null(members, "error")


def _null_result(members: dict[str, Raw]) -> bool:
    return not members.keys().isdisjoint(("method", "error")) and _drop_null(members, "result")


def _is_result_without_id(members: dict[str, Raw]) -> bool:
    return "method" not in members and "result" in members and bytes(members.get("id", _NULL)) == _NULL


def _empty_method(members: dict[str, Raw]) -> bool:
    """Mend an answer of a program that writes requests and answers by one type, with all of its members."""
    if "id" not in members or not members.keys() & {"result", "error"}:
        return False
    if bytes(members.get("method", b"")) not in (_NULL, b'""'):
        return False
    del members["method"]
    _drop_null(members, "params")
    return True


def _error_of(members: dict[str, Raw]) -> dict[str, Raw] | None:
    """The members of an error; None if it has none, or one of them twice."""
    try:
        error = _members.decode(members.get("error", b""))
    except (msgspec.MsgspecError, RecursionError, UnicodeError):
        return None
    return None if has_repeated_member(bytes(members["error"])) else error


def _mend_code(members: dict[str, Raw], written_as: type[float] | type[str]) -> bool:
    """Write the code of an error as an integer, if it is an integer in another notation."""
    error = _error_of(members)
    try:
        code = None if error is None else msgspec.json.decode(error.get("code", b""))
    except (msgspec.MsgspecError, RecursionError, UnicodeError):
        return False
    if error is None or not isinstance(code, written_as) or not _INTEGER.fullmatch(str(code)):
        return False
    members["error"] = Raw(msgspec.json.encode({**error, "code": int(float(code))}))
    return True


def _fractional_code(members: dict[str, Raw]) -> bool:
    return _mend_code(members, float)


def _string_code(members: dict[str, Raw]) -> bool:
    return _mend_code(members, str)


def _error_without_message(members: dict[str, Raw]) -> bool:
    error = _error_of(members)
    if error is None or "code" not in error or bytes(error.get("message", _NULL)) != _NULL:
        return False
    members["error"] = Raw(msgspec.json.encode({**error, "message": "(no message)"}))
    return True


#: The slips by the names of their deviations; each function mends one and tells whether it was there. A result beside an
#: error is looked at last: of two nulls the error is dropped, so that the answer is a result, which null is not.
_SLIPS = {
    "empty-method": _empty_method,
    "null-params": _null_params,
    "null-id": _null_id,
    "null-error": _null_error,
    "null-result": _null_result,
    "fractional-code": _fractional_code,
    "string-code": _string_code,
    "error-without-message": _error_without_message,
}
