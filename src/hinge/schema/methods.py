"""Every method of the protocol, one row each: its types, who sends it, and the revisions that know it."""

from __future__ import annotations

from typing import Literal

import msgspec

from hinge.schema.base import EmptyParams, EmptyResult, Model, PageParams, Result
from hinge.schema.lifecycle import DiscoverResult, InitializedParams, InitializeParams, InitializeResult
from hinge.schema.notifications import CancelledParams, LogParams, ProgressParams, SetLevelParams
from hinge.schema.revisions import FIRST, V2025_11, V2026_07
from hinge.schema.tools import CallToolParams, CallToolResult, ListToolsResult

Sender = Literal["client", "server", "both"]


class Method(msgspec.Struct, frozen=True, kw_only=True):
    """One method. `result` is None for a notification; `name_field` is what `Mcp-Name` mirrors (HDR-03).

    `capability` names the server capability it stands behind; `may_ask` says whether it may be answered with
    `input_required` (MRTR-02).
    """

    name: str
    params: type[Model]
    result: type[Result] | None = None
    sender: Sender = "client"
    first: str = FIRST
    last: str = V2026_07
    capability: str | None = None
    name_field: str | None = None
    may_ask: bool = False


_ROWS = (
    Method(name="initialize", params=InitializeParams, result=InitializeResult, last=V2025_11),
    Method(name="ping", params=EmptyParams, result=EmptyResult, sender="both", last=V2025_11),
    Method(name="server/discover", params=EmptyParams, result=DiscoverResult, first=V2026_07),
    Method(name="tools/list", params=PageParams, result=ListToolsResult, capability="tools"),
    Method(
        name="tools/call",
        params=CallToolParams,
        result=CallToolResult,
        capability="tools",
        name_field="name",
        may_ask=True,
    ),
    Method(name="logging/setLevel", params=SetLevelParams, result=EmptyResult, capability="logging", last=V2025_11),
    Method(name="notifications/initialized", params=InitializedParams, last=V2025_11),
    Method(name="notifications/cancelled", params=CancelledParams, sender="both"),
    Method(name="notifications/progress", params=ProgressParams, sender="both"),
    Method(name="notifications/message", params=LogParams, sender="server"),
    Method(name="notifications/tools/list_changed", params=EmptyParams, sender="server"),
)

METHODS: dict[str, Method] = {row.name: row for row in _ROWS}


def method_in(name: str, revision: str) -> Method | None:
    """The row of a method, if this revision knows it (A-104)."""
    row = METHODS.get(name)
    return row if row is not None and row.first <= revision <= row.last else None
