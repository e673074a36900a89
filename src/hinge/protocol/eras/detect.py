"""Which era a message belongs to: decided here for each message, by its `_meta` and the HTTP version header.

Names of eras and revisions become Era objects here, too.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec
from msgspec import Raw

from hinge.errors import DefinitionError
from hinge.jsonrpc import ABSENT, Failure, Message, Notification, Request, Response
from hinge.protocol.calls import Inbound
from hinge.protocol.eras.base import Era, EraName
from hinge.protocol.eras.handshake import HANDSHAKE
from hinge.protocol.eras.stateless import STATELESS
from hinge.schema.base import NOTHING, Model, RequestMeta

#: All eras by name, the oldest first.
ERAS: dict[EraName, Era] = {era.name: era for era in (HANDSHAKE, STATELESS)}


class _WithMeta(Model, kw_only=True):
    meta: RequestMeta | None = msgspec.field(name="_meta", default=None)


class _WithRawMeta(Model, kw_only=True):
    meta: dict[str, Raw] = msgspec.field(name="_meta", default_factory=dict)


_decode_meta = msgspec.json.Decoder(_WithMeta).decode
_raw_meta_decoder = msgspec.json.Decoder(_WithRawMeta)


def classify(message: Message, eras: tuple[Era, ...], version_header: str | None = None) -> Inbound:
    """Read the `_meta` of a message and decide its era.

    `protocolVersion` in `_meta` means the stateless era, whatever it says. Without it the HTTP header decides; the method
    never does. A server with one era handles everything by the rules of that era.

    Args:
        message: The message. Malformed members of its `_meta` count as absent.
        eras: The eras that are served. Empty on a client, which negotiates its era.
        version_header: The revision that the HTTP headers name.
    """
    meta: RequestMeta | None = None
    if (type(message) is Request or type(message) is Notification) and message.params is not ABSENT:
        try:
            meta = _decode_meta(message.params).meta
        except (msgspec.MsgspecError, RecursionError):
            meta = _salvage(message.params)
    claims = meta is not None and meta.protocol_version is not NOTHING
    era: Era | None
    if len(eras) < 2:
        era = eras[0] if eras else None
    elif claims:
        era = STATELESS
    elif version_header is None or type(message) is Response or type(message) is Failure:
        era = HANDSHAKE
    else:
        era = era_of_revision(version_header)
    return Inbound(message, meta, claims, era)


def _salvage(params: Raw) -> RequestMeta | None:
    """Decode the members that are well-formed. A malformed `protocolVersion` is kept as raw text: it still names the era."""
    try:
        members = _raw_meta_decoder.decode(params).meta
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


def era_of_batch(version_header: str | None, eras: tuple[Era, ...]) -> Era:
    """The era of a JSON array, which is not read before it is known to be allowed."""
    if len(eras) == 1:
        return eras[0]
    return HANDSHAKE if version_header is None else era_of_revision(version_header)


def era_of_revision(revision: str) -> Era:
    """The era of a published revision; the handshake era for a name that is unknown."""
    return STATELESS if STATELESS.knows(revision) else HANDSHAKE


def parse_eras(names: Any) -> tuple[Era, ...]:
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
