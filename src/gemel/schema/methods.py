"""Every method of the protocol, one row each: its types, who sends it, and the revisions that know it."""

from __future__ import annotations

from typing import Literal

import msgspec

from gemel.schema.base import EmptyParams, EmptyResult, Model, NotificationParams, PageParams, Result
from gemel.schema.completion import CompleteParams, CompleteResult
from gemel.schema.elicitation import ElicitationCompleteParams, ElicitFormParams, ElicitResult
from gemel.schema.lifecycle import DiscoverResult, InitializedParams, InitializeParams, InitializeResult
from gemel.schema.notifications import CancelledParams, LogParams, ProgressParams, SetLevelParams
from gemel.schema.prompts import GetPromptParams, GetPromptResult, ListPromptsResult
from gemel.schema.resources import (
    ListResourcesResult,
    ListResourceTemplatesResult,
    ReadResourceParams,
    ReadResourceResult,
    ResourceUpdatedParams,
    SubscribeParams,
)
from gemel.schema.revisions import FIRST, V2025_06, V2025_11, V2026_07
from gemel.schema.roots import ListRootsResult
from gemel.schema.sampling import CreateMessageParams, CreateMessageResult
from gemel.schema.subscriptions import AcknowledgedParams, ListenParams, ListenResult
from gemel.schema.tools import CallToolParams, CallToolResult, ListToolsResult

Sender = Literal["client", "server", "both"]


class Method(msgspec.Struct, frozen=True, kw_only=True):
    """One method. `result` is None for a notification; `name_field` is what the header `Mcp-Name` repeats.

    `capability` is the server capability that it requires; `may_ask` says whether its result may be `input_required`.
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
    Method(name="resources/list", params=PageParams, result=ListResourcesResult, capability="resources"),
    Method(
        name="resources/templates/list",
        params=PageParams,
        result=ListResourceTemplatesResult,
        capability="resources",
    ),
    Method(
        name="resources/read",
        params=ReadResourceParams,
        result=ReadResourceResult,
        capability="resources",
        name_field="uri",
        may_ask=True,
    ),
    Method(
        name="resources/subscribe", params=SubscribeParams, result=EmptyResult, capability="resources", last=V2025_11
    ),
    Method(
        name="resources/unsubscribe", params=SubscribeParams, result=EmptyResult, capability="resources", last=V2025_11
    ),
    Method(name="prompts/list", params=PageParams, result=ListPromptsResult, capability="prompts"),
    Method(
        name="prompts/get",
        params=GetPromptParams,
        result=GetPromptResult,
        capability="prompts",
        name_field="name",
        may_ask=True,
    ),
    Method(name="completion/complete", params=CompleteParams, result=CompleteResult, capability="completions"),
    Method(name="logging/setLevel", params=SetLevelParams, result=EmptyResult, capability="logging", last=V2025_11),
    Method(name="subscriptions/listen", params=ListenParams, result=ListenResult, first=V2026_07),
    Method(name="elicitation/create", params=ElicitFormParams, result=ElicitResult, sender="server", first=V2025_06),
    Method(name="sampling/createMessage", params=CreateMessageParams, result=CreateMessageResult, sender="server"),
    Method(name="roots/list", params=EmptyParams, result=ListRootsResult, sender="server"),
    Method(name="notifications/initialized", params=InitializedParams, last=V2025_11),
    Method(name="notifications/cancelled", params=CancelledParams, sender="both"),
    Method(name="notifications/progress", params=ProgressParams, sender="both"),
    Method(name="notifications/message", params=LogParams, sender="server"),
    Method(name="notifications/tools/list_changed", params=NotificationParams, sender="server"),
    Method(name="notifications/prompts/list_changed", params=NotificationParams, sender="server"),
    Method(name="notifications/resources/list_changed", params=NotificationParams, sender="server"),
    Method(name="notifications/resources/updated", params=ResourceUpdatedParams, sender="server"),
    Method(name="notifications/roots/list_changed", params=NotificationParams, last=V2025_11),
    Method(
        name="notifications/elicitation/complete",
        params=ElicitationCompleteParams,
        sender="server",
        first=V2025_11,
        last=V2025_11,
    ),
    Method(name="notifications/subscriptions/acknowledged", params=AcknowledgedParams, sender="server", first=V2026_07),
)

METHODS: dict[str, Method] = {row.name: row for row in _ROWS}


def method_in(name: str, revision: str) -> Method | None:
    """The row of a method, if this revision has it."""
    row = METHODS.get(name)
    return row if row is not None and row.first <= revision <= row.last else None
