"""The handshake era: `initialize` negotiates, and the connection keeps what was agreed (revisions 2024-11-05 to 2025-11-25).

The era is closed: this code is maintained, but gets no new features.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, final

import msgspec
from msgspec import Raw

from gemel.errors import (
    InsufficientScope,
    InvalidRequest,
    MethodNotFound,
    MissingClientCapability,
    ProtocolError,
    ResourceNotFound,
    WrongUrl,
)
from gemel.jsonrpc import ABSENT, RequestId
from gemel.protocol.description import ServerDescription
from gemel.protocol.eras.base import Era, Handshake, decode_result_type
from gemel.protocol.http.headers import Head
from gemel.protocol.revisions.adapt import plan_for
from gemel.protocol.states import HandshakeState
from gemel.schema.base import Implementation, RequestMeta
from gemel.schema.lifecycle import (
    ClientCapabilities,
    InitializeParams,
    InitializeResult,
    ListChanged,
    ResourcesCapability,
    ServerCapabilities,
)
from gemel.schema.methods import METHODS
from gemel.schema.revisions import HANDSHAKE_REVISIONS, V2025_11, knows

#: What may be sent before the handshake is over (Lifecycle, "Initialization").
_ALWAYS_ALLOWED = frozenset({"initialize", "ping", "notifications/cancelled"})
#: ResourceNotFound in the handshake revisions (Resources, "Error Handling").
_RESOURCE_NOT_FOUND = -32002


@final
class HandshakeEra(Era):
    """The client negotiates once per connection; requests and responses may flow both ways."""

    __slots__ = ()

    def __init__(self) -> None:
        super().__init__(
            "2025",
            HANDSHAKE_REVISIONS,
            negotiation_method="initialize",
            liveness_method="ping",
            http_methods=("GET", "POST", "DELETE"),
            has_sessions=True,
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
        if method == "initialize":
            if request_id is not None:
                if handshake.state is not HandshakeState.NEW and not handshake.open:
                    raise InvalidRequest("Another initialize of this connection is still being answered")
                handshake.begin()
        elif one_shot and handshake.state is HandshakeState.NEW:
            handshake.assume(None if head is None else head.version)
        return handshake.revision

    def admit_from_server(self, method: str, request_id: RequestId | None, handshake: Handshake) -> str | None:
        revision, row = handshake.revision, METHODS.get(method)
        if row is not None and request_id is not None and not row.first <= revision <= row.last:
            raise MethodNotFound(method)  # before a callback is called for it
        return revision

    def check_response(self) -> None:
        return

    def needs_handshake(self, method: str) -> bool:
        return method not in _ALWAYS_ALLOWED

    def allows_batch(self, version: str | None, handshake: Handshake, one_shot: bool) -> bool:
        if handshake.open:
            return knows(handshake.revision, "batches")
        return one_shot and (version is None or knows(version, "batches"))

    def client_info(self, meta: RequestMeta | None, handshake: Handshake) -> Implementation | None:
        return handshake.client_info

    def client_capabilities(self, meta: RequestMeta | None, handshake: Handshake) -> ClientCapabilities:
        return handshake.capabilities

    def raw_client_capabilities(self, meta: RequestMeta | None) -> Raw | None:
        return None

    def log_level(self, meta: RequestMeta | None, handshake: Handshake, default: str | None) -> str | None:
        if not handshake.lasting:  # without the capability a server sends no log messages
            return None
        return default if handshake.log_level is None else handshake.log_level

    def may_request_input(self, method: str) -> bool:
        return True

    def check_server_request(self, method: str) -> None:
        return

    def text_for_model(self, error: MissingClientCapability) -> str | None:
        """These revisions have no code for it."""
        return f"{error}; the tool can't be used with this client"

    def may_notify(self, method: str, request_method: str) -> bool:
        return True

    def finish_result(self, result: object, revision: str, server_meta: dict[str, Any]) -> Any:
        kind: Any = type(result)
        plan = plan_for(kind, revision)
        return result if plan is None else plan(result)

    def finish_error(self, error: ProtocolError) -> tuple[ProtocolError, int]:
        """Errors of the protocol are bodies of successful HTTP responses, except for those of authorization and of the URL."""
        if type(error) is ResourceNotFound:
            return ProtocolError(error.error.message, error.error.data, code=_RESOURCE_NOT_FOUND), 200
        if type(error) is MissingClientCapability:  # its code exists only in the stateless era
            return InvalidRequest(error.error.message, error.error.data), 200
        return error, error.http_status if type(error) in (InsufficientScope, WrongUrl) else 200

    def elicitation_id(self) -> str | None:
        from secrets import token_urlsafe

        return token_urlsafe(16)

    def request_meta(
        self, revision: str, info: Implementation, capabilities: ClientCapabilities, log_level: str | None = None
    ) -> dict[str, Any]:
        return {}

    def cancels_by_message(self, over_http: bool, handshake: Handshake) -> bool:
        return not over_http or handshake.open

    def mirrors_requests(self, over_http: bool) -> bool:
        return False

    def deviation_of_cursor(self, cursor: str, *, is_repeated: bool) -> str:
        return "" if cursor and not is_repeated else "repeated-cursor" if cursor else "empty-cursor"

    def may_cache(self, params: Mapping[str, Any]) -> bool:
        return False

    def read_result_type(self, result: Raw, method: str) -> str:
        """`resultType` is a member like any other here, which an extension may use."""
        try:
            return decode_result_type(result).resultType
        except (msgspec.MsgspecError, RecursionError):
            return "complete"

    def requires_input(self, result_type: str) -> bool:
        return False

    def check_unknown_result_type(self, result_type: str, method: str) -> None:
        return


HANDSHAKE = HandshakeEra()


def initialize(params: InitializeParams, handshake: Handshake, description: ServerDescription) -> InitializeResult:
    """The answer to `initialize`: the requested revision if it is supported, else the latest. `Handshake.commit` applies it."""
    asked = params.protocol_version
    handshake.offered = params
    capabilities = description.capabilities_for(HANDSHAKE)
    return InitializeResult(
        protocol_version=asked if asked in HANDSHAKE_REVISIONS else HANDSHAKE.latest,
        capabilities=capabilities if handshake.lasting else _of_single_messages(capabilities),
        server_info=description.info,
        instructions=description.instructions,
    )


def _of_single_messages(capabilities: ServerCapabilities) -> ServerCapabilities:
    """Capabilities without those that need more than the answer to a message: changes, subscriptions, a log level."""
    return msgspec.structs.replace(
        capabilities,
        tools=None if capabilities.tools is None else ListChanged(),
        prompts=None if capabilities.prompts is None else ListChanged(),
        resources=None if capabilities.resources is None else ResourcesCapability(),
        logging=None,
    )


class _Augmented(msgspec.Struct):
    task: Raw = ABSENT


_augmented = msgspec.json.Decoder(_Augmented)


def task_wish(revision: str, params: Raw) -> Raw:
    """Return `params.task`, by which a client asks for a task in place of the result; ABSENT without it (2025-11-25, Tasks)."""
    if revision != V2025_11 or params is ABSENT:
        return ABSENT
    try:
        return _augmented.decode(params).task
    except msgspec.MsgspecError:  # which is an error elsewhere
        return ABSENT
