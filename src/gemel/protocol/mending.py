"""Mends the envelope of a message of a server that has a formal slip and one meaning all the same."""

from __future__ import annotations

import msgspec
from msgspec import Raw

from gemel.jsonrpc import has_repeated_member

_members = msgspec.json.Decoder(dict[str, Raw])
_NULL = b"null"
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"


def mend(data: bytes) -> tuple[bytes, list[str]] | None:
    """Write a message without its slips.

    A message with repeated members is never mended: it has several meanings.

    Args:
        data: A message that `jsonrpc.decode` refuses.

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
    return "method" not in members and "result" in members and _drop_null(members, "error")


def _null_result(members: dict[str, Raw]) -> bool:
    return "method" not in members and "error" in members and _drop_null(members, "result")


def _fractional_code(members: dict[str, Raw]) -> bool:
    try:
        error = _members.decode(members.get("error", b""))
        code = msgspec.json.decode(error.get("code", b""))
    except (msgspec.MsgspecError, RecursionError, UnicodeError):
        return False
    if not isinstance(code, float) or not code.is_integer() or has_repeated_member(bytes(members["error"])):
        return False
    members["error"] = Raw(msgspec.json.encode({**error, "code": int(code)}))
    return True


#: The slips by the names of their deviations; each function mends one and tells whether it was there. A result beside an
#: error is looked at last: of two nulls the error is dropped, so that the answer is a result, which null is not.
_SLIPS = {
    "null-params": _null_params,
    "null-id": _null_id,
    "null-error": _null_error,
    "null-result": _null_result,
    "fractional-code": _fractional_code,
}
