"""Subscriptions to changes in the stateless era."""

from __future__ import annotations

from gemel.schema.base import Model, NotificationParams, Result


class SubscriptionFilter(Model, kw_only=True):
    """The changes to subscribe to; absent or false means not. Extensions may add keys."""

    tools_list_changed: bool | None = None
    prompts_list_changed: bool | None = None
    resources_list_changed: bool | None = None
    resource_subscriptions: list[str] | None = None


class ListenParams(Model, kw_only=True):
    """Params of `subscriptions/listen`."""

    notifications: SubscriptionFilter


class ListenResult(Result, kw_only=True):
    """Result of `subscriptions/listen`: the end of the subscription that `_meta` names."""


class AcknowledgedParams(NotificationParams, kw_only=True):
    """Params of `notifications/subscriptions/acknowledged`: the part of the filter that the server accepts."""

    notifications: SubscriptionFilter
