"""The stateless era: each request says in `_meta` who sends it and which revision it follows (since 2026-07-28)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from typing import Any, NamedTuple, final

import msgspec
from msgspec import UNSET, Raw

from gemel.errors import (
    GemelError,
    InvalidEnvelope,
    InvalidParams,
    InvalidRequest,
    InvalidResponse,
    MissingClientCapability,
    ProtocolError,
    UnsupportedVersion,
    shorten,
)
from gemel.jsonrpc import OBJECT, RequestId, opening
from gemel.protocol.description import ServerDescription
from gemel.protocol.eras.base import Era, Handshake, decode_result_type
from gemel.protocol.http.headers import Head, judge_message
from gemel.protocol.revisions.adapt import plan_for, shape
from gemel.schema.base import (
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
from gemel.schema.input_required import InputRequiredResult
from gemel.schema.lifecycle import ClientCapabilities, DiscoverResult
from gemel.schema.methods import METHODS
from gemel.schema.notifications import SEVERITY
from gemel.schema.revisions import STATELESS_REVISIONS

#: Notifications that belong to the request during which they are sent (Streamable HTTP, "Receiving Messages").
_REQUEST_NOTIFICATIONS = frozenset({"notifications/progress", "notifications/message"})

_decode_text = msgspec.json.Decoder(str).decode
_decode_capabilities = msgspec.json.Decoder(ClientCapabilities).decode
_decode_implementation = msgspec.json.Decoder(Implementation).decode


@final
class StatelessEra(Era):
    """Nothing is kept between requests; servers send no requests."""

    __slots__ = ()

    def __init__(self) -> None:
        super().__init__(
            "2026",
            STATELESS_REVISIONS,
            negotiation_method="",
            liveness_method="server/discover",
            http_methods=("POST",),
            has_sessions=False,
        )

    def admit(
        self,
        method: str,
        request_id: RequestId | None,
        meta: RequestMeta | None,
        head: Head | None,
        handshake: Handshake,
        supported: tuple[str, ...],
        one_shot: bool,
    ) -> str:
        """Check `_meta`, then the headers against it, then the revision and the log level (2026-07-28, "Requests").

        Raises:
            InvalidEnvelope: A required member of `_meta` is missing or malformed.
            HeaderMismatch: The headers disagree with the body.
            UnsupportedVersion: The revision is not a supported stateless one.
            InvalidParams: The log level is unknown.
        """
        if request_id is None:
            return self.latest
        if meta is None or meta.protocol_version is NOTHING:
            raise _invalid_meta(f"Missing required params._meta field {PROTOCOL_VERSION}", supported)
        named = meta.protocol_version
        if type(named) is not str:
            raise _invalid_meta(f"params._meta field {PROTOCOL_VERSION} must be a string", supported)
        if meta.client_capabilities is NOTHING or opening(meta.client_capabilities) != OBJECT:
            raise _invalid_meta(f"params._meta field {CLIENT_CAPABILITIES} must be present, and an object", supported)
        if head is not None:
            judge_message(head, named, method)
        if named not in STATELESS_REVISIONS:
            raise UnsupportedVersion(named, supported)
        if meta.log_level is not NOTHING and _log_level(meta) is None:
            raise InvalidParams(f"Unknown log level in {LOG_LEVEL}: use one of {', '.join(SEVERITY)}")
        return named

    def admit_from_server(self, method: str, request_id: RequestId | None, handshake: Handshake) -> str | None:
        return self.latest if request_id is None else None

    def check_response(self) -> None:
        raise InvalidRequest("A stateless server sends no requests, so it takes no responses")

    def needs_handshake(self, method: str) -> bool:
        return False

    def allows_batch(self, version: str | None, handshake: Handshake, one_shot: bool) -> bool:
        return False

    def client_info(self, meta: RequestMeta | None, handshake: Handshake) -> Implementation | None:
        """None even where the client sent something malformed: it is for display only."""
        if meta is None or meta.client_info is NOTHING:
            return None
        try:
            return _decode_implementation(meta.client_info)
        except msgspec.ValidationError:
            return None

    def client_capabilities(self, meta: RequestMeta | None, handshake: Handshake) -> ClientCapabilities:
        """A malformed capability counts as absent."""
        if meta is None or meta.client_capabilities is NOTHING:
            return ClientCapabilities()
        try:
            return _decode_capabilities(meta.client_capabilities)
        except msgspec.ValidationError:
            return _readable_capabilities(meta.client_capabilities)

    def raw_client_capabilities(self, meta: RequestMeta | None) -> Raw | None:
        return None if meta is None else meta.client_capabilities

    def log_level(self, meta: RequestMeta | None, handshake: Handshake, default: str | None) -> str | None:
        return _log_level(meta)

    def may_request_input(self, method: str) -> bool:
        row = METHODS.get(method)
        return row is not None and row.may_ask

    def check_server_request(self, method: str) -> None:
        raise GemelError(f"{method} can't be sent: a stateless client is asked by input_required results only")

    def text_for_model(self, error: MissingClientCapability) -> str | None:
        return None

    def may_notify(self, method: str, request_method: str) -> bool:
        """Progress and log messages go with their request, changes with a subscription; only `listen` is ended by a server."""
        if method in _REQUEST_NOTIFICATIONS:
            return request_method != "subscriptions/listen"
        return request_method == "subscriptions/listen" and method != "notifications/cancelled"

    def finish_result(self, result: Any, revision: str, server_meta: dict[str, Any]) -> Any:
        """Add `resultType`, the server's identity and, to what may be cached, safe caching hints."""
        kind: Any = type(result)
        plan, result_type, cacheable = _finishing(kind, revision)
        if plan is not None:
            result = plan(result)
        if result_type is not None:
            finished: Any = result.__copy__()  # copy.copy() without its look-ups
            if finished.result_type is UNSET:
                finished.result_type = result_type
            finished.meta = server_meta if finished.meta is None else _with_server(finished.meta, server_meta)
            if cacheable and finished.result_type == "complete":
                if finished.ttl_ms is UNSET:
                    finished.ttl_ms = 0
                if finished.cache_scope is UNSET:
                    finished.cache_scope = "private"
            return finished
        if isinstance(result, Mapping):
            meta = result.get("_meta")
            return {
                "resultType": "complete",
                **result,
                "_meta": server_meta if meta is None else _with_server(meta, server_meta),
            }
        return result

    def finish_error(self, error: ProtocolError) -> tuple[ProtocolError, int]:
        return error, error.http_status

    def elicitation_id(self) -> str | None:
        return None

    def request_meta(
        self, revision: str, info: Implementation, capabilities: ClientCapabilities, log_level: str | None = None
    ) -> dict[str, Any]:
        meta: dict[str, Any] = {
            PROTOCOL_VERSION: revision,
            CLIENT_CAPABILITIES: shape(capabilities, revision),
            CLIENT_INFO: shape(info, revision),
        }
        if log_level is not None:
            meta[LOG_LEVEL] = log_level
        return meta

    def cancels_by_message(self, over_http: bool, handshake: Handshake) -> bool:
        return not over_http

    def mirrors_requests(self, over_http: bool) -> bool:
        return over_http

    def deviation_of_cursor(self, cursor: str, *, is_repeated: bool) -> str:
        return ""  # an empty cursor is a cursor, and one that was given before is an error

    def may_cache(self, params: Mapping[str, Any]) -> bool:
        return "_meta" not in params

    def read_result_type(self, result: Raw, method: str) -> str:
        try:
            return decode_result_type(result).resultType
        except (msgspec.MsgspecError, RecursionError) as exc:
            raise InvalidResponse(f"{method}: the result can't be read: {exc}") from exc

    def requires_input(self, result_type: str) -> bool:
        return result_type == "input_required"

    def check_unknown_result_type(self, result_type: str, method: str) -> None:
        raise InvalidResponse(f"{method}: the result type {shorten(result_type)!r} is unknown to this client")


STATELESS = StatelessEra()


def discover(description: ServerDescription) -> DiscoverResult:
    """The answer to `server/discover`."""
    return DiscoverResult(
        supported_versions=list(description.revisions),
        capabilities=description.capabilities_for(STATELESS),
        instructions=description.instructions,
    )


def _invalid_meta(text: str, supported: tuple[str, ...]) -> InvalidEnvelope:
    return InvalidEnvelope(text, {"supported": list(supported)})


class _Finishing(NamedTuple):
    """How results of a type are finished; `result_type` is None for what is not one of our types."""

    plan: Callable[[Any], Any] | None
    result_type: str | None
    cacheable: bool


@cache
def _finishing(kind: type, revision: str) -> _Finishing:
    plan = plan_for(kind, revision)
    if not issubclass(kind, Result):
        return _Finishing(plan, None, False)
    result_type = "input_required" if issubclass(kind, InputRequiredResult) else "complete"
    return _Finishing(plan, result_type, issubclass(kind, CacheableResult))


def _with_server(meta: dict[str, Any], server_meta: dict[str, Any]) -> dict[str, Any]:
    return meta if SERVER_INFO in meta else {**meta, **server_meta}


def _log_level(meta: RequestMeta | None) -> str | None:
    if meta is None or meta.log_level is NOTHING:
        return None
    try:
        level = _decode_text(meta.log_level)
    except msgspec.ValidationError:
        return None
    return level if level in SEVERITY else None


def _readable_capabilities(raw: Raw) -> ClientCapabilities:
    """The capabilities that are well-formed."""
    readable = ClientCapabilities()
    entries = msgspec.json.decode(raw)
    for field in msgspec.structs.fields(ClientCapabilities):
        if isinstance(entries, dict) and field.encode_name in entries:
            try:
                setattr(readable, field.name, msgspec.convert(entries[field.encode_name], field.type))
            except msgspec.ValidationError:
                continue
    return readable
