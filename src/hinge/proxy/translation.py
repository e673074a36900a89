"""From the words of one revision to those of another, in what a bridge passes on: results, questions, answers, errors.

Between equal revisions everything passes as it came. Else it is read, dressed for the other side, and what our types don't
know is put back. Pure: no tasks, no channels.
"""

from __future__ import annotations

import logging
from functools import cache
from typing import Any

import msgspec
from msgspec import UNSET, Raw, Struct

from hinge.errors import (
    CallError,
    CallTimeout,
    ConnectionLost,
    HttpStatus,
    InternalError,
    InvalidResponse,
    MissingClientCapability,
    PeerError,
    ProtocolError,
    ResourceNotFound,
)
from hinge.protocol.revisions.adapt import known_in, shape
from hinge.schema.base import RESERVED, SERVER_INFO, CacheableResult, Model, Result
from hinge.schema.elicitation import ElicitFormParams, ElicitResult, ElicitUrlParams
from hinge.schema.methods import METHODS
from hinge.schema.revisions import STATELESS_REVISIONS
from hinge.schema.roots import ListRootsResult
from hinge.schema.sampling import CreateMessageParams, CreateMessageResult

logger = logging.getLogger("hinge")

Json = dict[str, Any]

#: What a server may ask, and how it is answered.
ANSWERS: dict[str, type[Result]] = {
    "elicitation/create": ElicitResult,
    "sampling/createMessage": CreateMessageResult,
    "roots/list": ListRootsResult,
}

_NOT_FOUND = -32002
_URLS_REQUIRED = -32042
_INVALID_PARAMS = -32602
_MISSING_CAPABILITY = -32021
#: The range that the stateless era keeps for its own codes, and the one that the handshake era's servers used freely.
_RESERVED_CODES = range(-32099, -31999)
#: Codes of the stateless era about the request itself: it was ours, so they are nothing that our caller did.
_OUR_FAULT = frozenset({-32020, -32022})


def is_stateless(revision: str) -> bool:
    """Whether it is a revision of the stateless era."""
    return revision in STATELESS_REVISIONS


def translate(text: bytes | Raw, kind: type[Model], source: str, target: str) -> Json:
    """A value of a type, from one revision to another; its members may be JSON text. Raises TooNew.

    What can't be read as the type passes as it is.
    """
    whole: Json = msgspec.json.decode(text, type=dict[str, Raw])
    if source == target:
        return whole
    try:
        typed = msgspec.json.decode(text, type=kind)
    except (msgspec.MsgspecError, RecursionError) as exc:
        logger.debug("%s is passed on as it is: %s", kind.__name__, exc)
        return whole
    found: Json = _carried(msgspec.json.decode(text), typed, shape(typed, target))
    return found


def _carried(original: Any, typed: Any, dressed: Any) -> Any:
    """The dressed value as JSON, with those members of the original that its type doesn't know."""
    if not isinstance(typed, Struct) or type(typed) is not type(dressed) or not isinstance(original, dict):
        return msgspec.to_builtins(dressed)
    found: Json = msgspec.to_builtins(dressed)
    fields, tag = _members(type(typed))
    for member, value in original.items():
        name = fields.get(member)
        if name is None:
            if member != tag:
                found[member] = value
        elif member in found:
            found[member] = _inside(value, getattr(typed, name), getattr(dressed, name))
    return found


@cache
def _members(kind: type[Struct]) -> tuple[dict[str, str], str | None]:
    """The members of a type as they stand in JSON, with their fields, and the member that names the type."""
    fields = {field.encode_name: field.name for field in msgspec.structs.fields(kind)}
    return fields, kind.__struct_config__.tag_field


def _inside(original: Any, typed: Any, dressed: Any) -> Any:
    if isinstance(typed, list) and isinstance(dressed, list) and len(typed) == len(dressed) == len(original):
        return [_carried(*three) for three in zip(original, typed, dressed, strict=True)]
    return _carried(original, typed, dressed)


# ---------------------------------------------------------------- results


def result_for(method: str, text: Raw, source: str, target: str) -> Json:
    """The result of a request, for a caller of the target revision. Raises TooNew."""
    row = METHODS.get(method)
    kind = row.result if row is not None and row.result is not None else Result
    found = translate(text, kind, source, target)
    said = found.pop("resultType", None)
    meta = _plain(found.pop("_meta", None))
    if isinstance(meta, dict):
        meta.pop(SERVER_INFO, None)  # this side signs for itself
        if meta:
            found["_meta"] = meta
    if is_stateless(target):
        if said is not None:
            found["resultType"] = _plain(said)
        if issubclass(kind, CacheableResult):
            found.setdefault("ttlMs", 0)
            found.setdefault("cacheScope", "private")
    else:
        found.pop("ttlMs", None)
        found.pop("cacheScope", None)
    return found


def _plain(value: Any) -> Any:
    return msgspec.json.decode(value) if isinstance(value, Raw) else value


# ---------------------------------------------------------------- questions


def question_for(method: str, text: bytes, source: str, target: str, identity: str) -> Any:
    """The params of a server's question, for a client of the target revision; UNSET for none. Raises TooNew.

    `identity` names a question that opens a page where the revision wants a name for it.
    """
    if method == "roots/list" or not text:
        return UNSET
    kind: type[Model] = CreateMessageParams if method == "sampling/createMessage" else ElicitFormParams
    if kind is ElicitFormParams and mode_of(text) == "url":
        kind = ElicitUrlParams
    found = translate(text, kind, source, target)
    found.pop("_meta", None)
    if kind is ElicitUrlParams and known_in(kind, "elicitation_id", target):
        found.setdefault("elicitationId", identity)
    return found


def mode_of(text: bytes | Raw) -> str:
    """How an elicitation asks: by a form, if it doesn't say."""
    found = msgspec.json.decode(text or b"{}")
    mode = found.get("mode") if isinstance(found, dict) else None
    return mode if isinstance(mode, str) else "form"


def needed_for(method: str, params: Any) -> Json:
    """What a client must have declared to be asked this, in the shape of ClientCapabilities."""
    said: Json = _plain(params) if isinstance(params, Raw) else params if isinstance(params, dict) else {}
    if method == "sampling/createMessage":
        return {"sampling": {"tools": {}} if said.get("tools") or said.get("toolChoice") else {}}
    if method == "elicitation/create":
        return {"elicitation": {str(_plain(said.get("mode", "form"))): {}}}
    return {"roots": {}}


# ---------------------------------------------------------------- params


def passed_meta(text: Raw) -> Json | None:
    """The `_meta` of a request as far as it concerns the next server: what belongs to this hop stays here."""
    meta = _plain(text)
    if not isinstance(meta, dict):
        return None
    kept = {key: value for key, value in meta.items() if key != "progressToken" and not key.startswith(RESERVED)}
    return kept or None


# ---------------------------------------------------------------- errors


def error_for(exc: CallError, target: str, uri: str | None = None) -> ProtocolError:
    """What a caller of the target revision is told when the request to the next server failed.

    The server's own errors pass with code, message and data, as far as the revision has the code. What went wrong on the
    way is our error and names no addresses; `data.outcome` says whether the request may have run.
    """
    if isinstance(exc, PeerError):
        return _peer_error(exc, target, uri)
    if isinstance(exc, CallTimeout):
        words = "gave no answer in time"
    elif isinstance(exc, ConnectionLost):
        words = "was lost before it answered"
    elif isinstance(exc, HttpStatus):
        words = f"refused the request with HTTP {exc.status}"
    elif isinstance(exc, InvalidResponse):
        words = "gave an answer that can't be read"
    else:
        words = "can't be reached"
    logger.warning("The server behind this one %s: %s", words, exc)
    return InternalError(f"The server behind this one {words}", {"outcome": exc.outcome.value})


def _peer_error(exc: PeerError, target: str, uri: str | None) -> ProtocolError:
    code, data = exc.code, exc.error.data
    names_uri = isinstance(data, dict) and "uri" in data
    if uri is not None and (code == _NOT_FOUND or (code == _INVALID_PARAMS and names_uri)):
        return ResourceNotFound(uri)  # each era has its own code for it
    if code == _MISSING_CAPABILITY and isinstance(data, dict) and isinstance(data.get("requiredCapabilities"), dict):
        return MissingClientCapability(data["requiredCapabilities"])
    if code in _OUR_FAULT:
        logger.error("The server behind this one refuses our request: %s", exc)
        return InternalError("The server behind this one refused the request of this one")
    if is_stateless(target) and code in _RESERVED_CODES:  # other codes than its own must not be sent
        return InternalError(exc.message, data)
    return ProtocolError(exc.message, data, code=code)


def urls_required(exc: CallError) -> list[Json]:
    """The pages that a server wants opened before it runs a request; none for any other error."""
    data = exc.data if isinstance(exc, PeerError) and exc.code == _URLS_REQUIRED else None
    found = data.get("elicitations") if isinstance(data, dict) else None
    return [one for one in found if isinstance(one, dict)] if isinstance(found, list) else []
