"""Listening to changes in the stateless revision (SUB-01…SUB-13)."""

from __future__ import annotations

from hinge.schema.base import Model, NotificationParams, Result


class SubscriptionFilter(Model, kw_only=True):
    """Which changes are wanted; absent or false means not. Extensions may add keys of their own."""

    tools_list_changed: bool | None = None
    prompts_list_changed: bool | None = None
    resources_list_changed: bool | None = None
    resource_subscriptions: list[str] | None = None


class ListenParams(Model, kw_only=True):
    """What to listen to."""

    notifications: SubscriptionFilter


class ListenResult(Result, kw_only=True):
    """The end of a subscription; `_meta` names it (SUB-09)."""


class AcknowledgedParams(NotificationParams, kw_only=True):
    """The part of the filter that is honoured (SUB-04)."""

    notifications: SubscriptionFilter
