"""Which era a message belongs to: the one place where that is decided (table of VER-05), per message.

It knows how a claim looks and nothing of what either era does with it.
"""

from __future__ import annotations

import msgspec
from msgspec import Raw

from hinge import jsonrpc
from hinge.jsonrpc import ABSENT, Failure, Notification, Request, Response
from hinge.protocol.calls import EraName, Inbound
from hinge.schema.base import NOTHING, Model, RequestMeta
from hinge.schema.revisions import HANDSHAKE_REVISIONS, STATELESS_REVISIONS


class _WithMeta(Model, kw_only=True):
    meta: RequestMeta | None = msgspec.field(name="_meta", default=None)


class _WithRawMeta(Model, kw_only=True):
    meta: dict[str, Raw] = msgspec.field(name="_meta", default_factory=dict)


_decode_meta = msgspec.json.Decoder(_WithMeta).decode
_raw_meta_decoder = msgspec.json.Decoder(_WithRawMeta)


def read(data: bytes) -> Inbound:
    """Decode one message and look at its `_meta`, of which malformed fields count as absent (C-108).

    Raises ParseError or InvalidRequest.
    """
    message = jsonrpc.decode(data)
    if (type(message) is not Request and type(message) is not Notification) or message.params is ABSENT:
        return Inbound(message, None, False)
    try:
        meta = _decode_meta(message.params).meta
    except (msgspec.MsgspecError, RecursionError):
        meta = _salvage(message.params)
    return Inbound(message, meta, meta is not None and meta.protocol_version is not NOTHING)


def _salvage(params: Raw) -> RequestMeta | None:
    """What can be read; a claim is one even where its value can't be."""
    try:
        found = _raw_meta_decoder.decode(params).meta
    except (msgspec.MsgspecError, RecursionError):
        return None
    meta = RequestMeta()
    for field in msgspec.structs.fields(RequestMeta):
        value = found.get(field.encode_name)
        if value is not None:
            try:
                setattr(meta, field.name, msgspec.json.decode(value, type=field.type))
            except (msgspec.MsgspecError, RecursionError):
                if field.name == "protocol_version":
                    meta.protocol_version = value
    return meta


def route(inbound: Inbound, version_header: str | None, eras: tuple[EraName, ...]) -> EraName:
    """The era of a message: its claim decides, never its method; without one the HTTP header may (T-06).

    A server pinned to one era handles everything by that era's rules. The message keeps the answer.
    """
    found: EraName
    if len(eras) == 1:
        found = eras[0]
    elif inbound.claims:
        found = "2026"
    elif version_header is None or version_header in HANDSHAKE_REVISIONS:
        found = "2025"
    else:
        from_client = type(inbound.message) is not Response and type(inbound.message) is not Failure
        found = "2026" if from_client and is_stateless(version_header) else "2025"
    inbound.era = found
    return found


def is_stateless(revision: str) -> bool:
    """Whether the name is one of a stateless revision that we know."""
    return revision in STATELESS_REVISIONS
