"""Every method and every list of the protocol, one row each: types, sender, revisions, and what follows for all who use them.

Whatever treats all lists or all methods alike reads these tables: retries, caches, proxies, mounted servers, contracts, tools
for people. A new feature is a row here; what differs by feature is code of the feature.
"""

from __future__ import annotations

from typing import Literal, TypeAlias

import msgspec

from gemel.schema.base import (
    CacheableResult,
    EmptyParams,
    EmptyResult,
    Model,
    NotificationParams,
    Page,
    PageParams,
    Result,
)
from gemel.schema.completion import CompleteParams, CompleteResult
from gemel.schema.elicitation import ElicitationCompleteParams, ElicitFormParams, ElicitResult
from gemel.schema.lifecycle import DiscoverResult, InitializedParams, InitializeParams, InitializeResult
from gemel.schema.notifications import CancelledParams, LogParams, ProgressParams, SetLevelParams
from gemel.schema.prompts import GetPromptParams, GetPromptResult, ListPromptsResult, Prompt
from gemel.schema.resources import (
    ListResourcesResult,
    ListResourceTemplatesResult,
    ReadResourceParams,
    ReadResourceResult,
    Resource,
    ResourceTemplate,
    ResourceUpdatedParams,
    SubscribeParams,
)
from gemel.schema.revisions import FIRST, LATEST, V2025_06, V2025_11, V2026_07
from gemel.schema.roots import ListRootsResult
from gemel.schema.sampling import CreateMessageParams, CreateMessageResult
from gemel.schema.subscriptions import AcknowledgedParams, ListenParams, ListenResult
from gemel.schema.tools import CallToolParams, CallToolResult, ListToolsResult, Tool

Sender = Literal["client", "server", "both"]


#: A feature whose items are listed, as its capability, its changes and subscriptions name it.
Feature: TypeAlias = Literal["tools", "prompts", "resources"]
#: A list of items; templates belong to the feature "resources".
ListName: TypeAlias = Literal["tools", "prompts", "resources", "templates"]
#: The member of the results of a list that has the items. Sections of a contract have the same names.
Section: TypeAlias = Literal["tools", "prompts", "resources", "resourceTemplates"]


class ItemList(msgspec.Struct, frozen=True, kw_only=True):
    """A list of items.

    Args:
        name: Its name.
        feature: The feature, whose capability it requires and whose changes concern it.
        method: The method that lists it.
        result: The type of its pages.
        member: The member of the pages that has the items.
        field: The same in Python.
        item: The type of the items.
        key: The member that identifies an item.
        key_field: The same in Python.
        word: What an item is called in texts.
        used_by: The method that uses one item.
    """

    name: ListName
    feature: Feature
    method: str
    result: type[Page]
    member: Section
    field: str
    item: type[Model]
    key: str
    key_field: str
    word: str
    used_by: str

    @property
    def is_named(self) -> bool:
        """Whether items are identified by names, not by URIs."""
        return self.key == "name"

    def key_of(self, item: Model) -> str:
        """The name, URI or template that identifies an item."""
        return str(getattr(item, self.key_field))


_TOOLS = ItemList(
    name="tools",
    feature="tools",
    method="tools/list",
    result=ListToolsResult,
    member="tools",
    field="tools",
    item=Tool,
    key="name",
    key_field="name",
    word="tool",
    used_by="tools/call",
)
_PROMPTS = ItemList(
    name="prompts",
    feature="prompts",
    method="prompts/list",
    result=ListPromptsResult,
    member="prompts",
    field="prompts",
    item=Prompt,
    key="name",
    key_field="name",
    word="prompt",
    used_by="prompts/get",
)
_RESOURCES = ItemList(
    name="resources",
    feature="resources",
    method="resources/list",
    result=ListResourcesResult,
    member="resources",
    field="resources",
    item=Resource,
    key="uri",
    key_field="uri",
    word="resource",
    used_by="resources/read",
)
_TEMPLATES = ItemList(
    name="templates",
    feature="resources",
    method="resources/templates/list",
    result=ListResourceTemplatesResult,
    member="resourceTemplates",
    field="resource_templates",
    item=ResourceTemplate,
    key="uriTemplate",
    key_field="uri_template",
    word="resource template",
    used_by="completion/complete",
)

LISTS: dict[ListName, ItemList] = {one.name: one for one in (_TOOLS, _PROMPTS, _RESOURCES, _TEMPLATES)}
#: The lists by the member of their pages.
BY_SECTION: dict[Section, ItemList] = {one.member: one for one in LISTS.values()}


def lists_of(feature: str) -> list[ItemList]:
    """The lists of a feature; none for a name that is not that of a feature with lists."""
    return [one for one in LISTS.values() if one.feature == feature]


class Method(msgspec.Struct, frozen=True, kw_only=True):
    """One method.

    Args:
        name: Its name.
        params: The type of its params.
        result: The type of its results; None for a notification.
        sender: Who sends it.
        first: The first revision that has it.
        last: The last one.
        capability: The server capability that it requires.
        name_field: The member of the params that the header `Mcp-Name` repeats.
        may_ask: Whether its result may be `input_required`.
        safe: Whether it changes nothing, so that it may be sent again when it is unknown whether it ran.
        forwarded: Whether proxies forward it.
        changed: The feature whose lists have changed, for a notification.
    """

    name: str
    params: type[Model]
    result: type[Result] | None = None
    sender: Sender = "client"
    first: str = FIRST
    last: str = LATEST
    capability: str | None = None
    name_field: str | None = None
    may_ask: bool = False
    safe: bool = False
    forwarded: bool = False
    changed: Feature | None = None


def _listing(of: ItemList) -> Method:
    return Method(name=of.method, params=PageParams, result=of.result, capability=of.feature, safe=True, forwarded=True)


def _change(feature: Feature) -> Method:
    name = f"notifications/{feature}/list_changed"
    return Method(name=name, params=NotificationParams, sender="server", changed=feature)


_ROWS = (
    Method(name="initialize", params=InitializeParams, result=InitializeResult, last=V2025_11),
    Method(name="ping", params=EmptyParams, result=EmptyResult, sender="both", last=V2025_11, safe=True),
    Method(name="server/discover", params=EmptyParams, result=DiscoverResult, first=V2026_07, safe=True),
    _listing(_TOOLS),
    Method(
        name="tools/call",
        params=CallToolParams,
        result=CallToolResult,
        capability="tools",
        name_field="name",
        may_ask=True,
        forwarded=True,
    ),
    _listing(_RESOURCES),
    _listing(_TEMPLATES),
    Method(
        name="resources/read",
        params=ReadResourceParams,
        result=ReadResourceResult,
        capability="resources",
        name_field="uri",
        may_ask=True,
        safe=True,
        forwarded=True,
    ),
    Method(
        name="resources/subscribe", params=SubscribeParams, result=EmptyResult, capability="resources", last=V2025_11
    ),
    Method(
        name="resources/unsubscribe", params=SubscribeParams, result=EmptyResult, capability="resources", last=V2025_11
    ),
    _listing(_PROMPTS),
    Method(
        name="prompts/get",
        params=GetPromptParams,
        result=GetPromptResult,
        capability="prompts",
        name_field="name",
        may_ask=True,
        safe=True,
        forwarded=True,
    ),
    Method(
        name="completion/complete",
        params=CompleteParams,
        result=CompleteResult,
        capability="completions",
        safe=True,
        forwarded=True,
    ),
    Method(
        name="logging/setLevel",
        params=SetLevelParams,
        result=EmptyResult,
        capability="logging",
        last=V2025_11,
        safe=True,
    ),
    Method(name="subscriptions/listen", params=ListenParams, result=ListenResult, first=V2026_07),
    Method(name="elicitation/create", params=ElicitFormParams, result=ElicitResult, sender="server", first=V2025_06),
    Method(name="sampling/createMessage", params=CreateMessageParams, result=CreateMessageResult, sender="server"),
    Method(name="roots/list", params=EmptyParams, result=ListRootsResult, sender="server"),
    Method(name="notifications/initialized", params=InitializedParams, last=V2025_11),
    Method(name="notifications/cancelled", params=CancelledParams, sender="both"),
    Method(name="notifications/progress", params=ProgressParams, sender="both"),
    Method(name="notifications/message", params=LogParams, sender="server"),
    _change("tools"),
    _change("prompts"),
    _change("resources"),
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
#: The methods whose results may say how long they can be used.
CACHEABLE = tuple(row.name for row in _ROWS if row.result is not None and issubclass(row.result, CacheableResult))
#: The notification of a changed list, by feature.
LIST_CHANGED: dict[str, str] = {row.changed: row.name for row in _ROWS if row.changed is not None}


def method_in(name: str, revision: str) -> Method | None:
    """The row of a method, if this revision has it."""
    row = METHODS.get(name)
    return row if row is not None and row.first <= revision <= row.last else None
