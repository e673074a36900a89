"""The stateless era: every request stands alone and says in `_meta` who asks and by which revision. Holds no state."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any

import msgspec
from msgspec import UNSET, Raw

from hinge.errors import InvalidEnvelope, InvalidParams, ProtocolError, UnsupportedVersion
from hinge.jsonrpc import OBJECT, Notification, Request, opening
from hinge.protocol.calls import Call, Inbound, Origin
from hinge.protocol.description import ServerDescription
from hinge.protocol.http import headers as http
from hinge.protocol.revisions.adapt import shape
from hinge.schema.base import (
    CLIENT_CAPABILITIES,
    CLIENT_INFO,
    LOG_LEVEL,
    NOTHING,
    PROTOCOL_VERSION,
    SERVER_INFO,
    CacheableResult,
    Implementation,
    RequestMeta,
    Result,
)
from hinge.schema.input_required import InputRequiredResult
from hinge.schema.lifecycle import ClientCapabilities, DiscoverResult
from hinge.schema.notifications import SEVERITY
from hinge.schema.revisions import STATELESS_REVISIONS, V2026_07

LATEST = V2026_07

_text = msgspec.json.Decoder(str)
_capabilities = msgspec.json.Decoder(ClientCapabilities)
_implementation = msgspec.json.Decoder(Implementation)


def admit(inbound: Inbound, origin: Origin, description: ServerDescription) -> Call:
    """Check the envelope, in the order of the decision table (T-02), and make the call.

    Raises InvalidEnvelope for missing `_meta` fields, HeaderMismatch where header and body disagree, UnsupportedVersion
    for a revision that isn't offered, InvalidParams for an unknown log level.
    """
    message = inbound.message
    if type(message) is Notification:
        return Call(None, message.method, message.params, meta=inbound.meta, era="2026", revision=LATEST, origin=origin)
    if type(message) is not Request:
        raise InvalidEnvelope("A stateless server sends no requests, so it takes no responses")
    meta = inbound.meta
    revision = _claimed(meta, description)
    if origin.headers is not None:
        http.check_envelope_headers(origin.headers, revision, message.method)
    if revision not in STATELESS_REVISIONS:
        raise UnsupportedVersion(revision, description.revisions)
    if meta is not None and meta.log_level is not NOTHING and log_level(meta) is None:
        raise InvalidParams(f"Unknown log level in {LOG_LEVEL}: use one of {', '.join(SEVERITY)}")
    return Call(message.id, message.method, message.params, meta, "2026", revision, origin)


def _claimed(meta: RequestMeta | None, description: ServerDescription) -> str:
    if meta is None or meta.protocol_version is NOTHING:
        raise _envelope(f"Missing required params._meta field {PROTOCOL_VERSION}", description)
    revision = meta.protocol_version
    if type(revision) is not str:
        raise _envelope(f"params._meta field {PROTOCOL_VERSION} must be a string", description)
    if meta.client_capabilities is NOTHING or opening(meta.client_capabilities) != OBJECT:
        raise _envelope(f"params._meta field {CLIENT_CAPABILITIES} must be present, and an object", description)
    return revision


def _envelope(words: str, description: ServerDescription) -> InvalidEnvelope:
    return InvalidEnvelope(words, {"supported": list(description.revisions)})  # VER-16


def discover(description: ServerDescription) -> DiscoverResult:
    """The answer to `server/discover` (DISC-02)."""
    return DiscoverResult(
        supported_versions=list(description.revisions),
        capabilities=description.capabilities_in("2026"),
        instructions=description.instructions,
    )


def dress(result: Any, description: ServerDescription) -> Any:
    """Write what the era owns into a result: `resultType`, the server's identity, safe caching hints (BASE-15, CACHE-01)."""
    kind: Any = type(result)
    result_type, cacheable = _kind(kind)
    if result_type is not None:
        dressed: Any = result.__copy__()  # what copy.copy comes to
        if dressed.result_type is UNSET:
            dressed.result_type = result_type
        dressed.meta = description.result_meta if dressed.meta is None else _signed(dressed.meta, description)
        if cacheable and dressed.result_type == "complete":
            if dressed.ttl_ms is UNSET:
                dressed.ttl_ms = 0
            if dressed.cache_scope is UNSET:
                dressed.cache_scope = "private"
        return dressed
    if isinstance(result, Mapping):
        return {"resultType": "complete", **result, "_meta": _signed(result.get("_meta"), description)}
    return result


@cache
def _kind(kind: type) -> tuple[str | None, bool]:
    """What a type of result is called, and whether it may be kept; None for what is no result of ours."""
    if not issubclass(kind, Result):
        return None, False
    return "input_required" if issubclass(kind, InputRequiredResult) else "complete", issubclass(kind, CacheableResult)


def _signed(meta: dict[str, Any] | None, description: ServerDescription) -> dict[str, Any]:
    if meta is None:
        return description.result_meta
    return meta if SERVER_INFO in meta else {**meta, **description.result_meta}


def error(exc: ProtocolError) -> tuple[ProtocolError, int]:
    """What goes out for an error, and its HTTP status."""
    return exc, exc.http_status


def client_info(meta: RequestMeta | None) -> Implementation | None:
    """Who the client says it is on this request; malformed counts as absent (REQM-05, C-108)."""
    if meta is None or meta.client_info is NOTHING:
        return None
    try:
        return _implementation.decode(meta.client_info)
    except msgspec.ValidationError:
        return None


def client_capabilities(meta: RequestMeta | None) -> ClientCapabilities:
    """What the client can do on this request; a malformed entry counts as absent."""
    if meta is None or meta.client_capabilities is NOTHING:
        return ClientCapabilities()
    try:
        return _capabilities.decode(meta.client_capabilities)
    except msgspec.ValidationError:
        return _salvaged_capabilities(meta.client_capabilities)


def _salvaged_capabilities(raw: Raw) -> ClientCapabilities:
    found = ClientCapabilities()
    entries = msgspec.json.decode(raw)
    for field in msgspec.structs.fields(ClientCapabilities):
        if isinstance(entries, dict) and field.encode_name in entries:
            try:
                setattr(found, field.name, msgspec.convert(entries[field.encode_name], field.type))
            except msgspec.ValidationError:
                continue
    return found


def log_level(meta: RequestMeta | None) -> str | None:
    """The least severe level that this request wants to hear of; None for silence (LOG-05, LOG-06)."""
    if meta is None or meta.log_level is NOTHING:
        return None
    try:
        level = _text.decode(meta.log_level)
    except msgspec.ValidationError:
        return None
    return level if level in SEVERITY else None


def request_meta(
    revision: str, info: Implementation, capabilities: ClientCapabilities, level: str | None = None
) -> dict[str, Any]:
    """The `_meta` that a client puts on each request (REQM-01…REQM-03), to be completed with the request's own keys."""
    meta: dict[str, Any] = {
        PROTOCOL_VERSION: revision,
        CLIENT_CAPABILITIES: shape(capabilities, revision),
        CLIENT_INFO: shape(info, revision),
    }
    if level is not None:
        meta[LOG_LEVEL] = level
    return meta
