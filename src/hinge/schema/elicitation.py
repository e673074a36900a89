"""Asking the user, by form or by URL (ELIC-01…ELIC-25)."""

from __future__ import annotations

from typing import Any, Literal

from hinge.schema.base import Model, NotificationParams, Result


class ElicitFormParams(Model, kw_only=True):
    """A form: a message and a flat object schema of primitive fields (ELIC-04, ELIC-05)."""

    message: str
    requested_schema: dict[str, Any]
    mode: Literal["form"] | None = None


class ElicitUrlParams(Model, kw_only=True):
    """A page to open; `elicitation_id` only in the last handshake revision (ELIC-11)."""

    message: str
    url: str
    mode: Literal["url"]
    elicitation_id: str | None = None


class ElicitResult(Result, kw_only=True):
    """What the user did; `content` only for an accepted form (ELIC-10)."""

    action: Literal["accept", "decline", "cancel"]
    content: dict[str, Any] | None = None


class ElicitationCompleteParams(NotificationParams, kw_only=True):
    """A URL elicitation was finished elsewhere (last handshake revision only)."""

    elicitation_id: str
