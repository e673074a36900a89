"""Elicitation: input from the user, by form or by URL."""

from __future__ import annotations

from typing import Any, Literal

from gemel.schema.base import Model, NotificationParams, Result


class ElicitFormParams(Model, kw_only=True):
    """Params of `elicitation/create` in form mode.

    Args:
        message: What the user is asked.
        requested_schema: A flat JSON Schema of an object with primitive fields.
        mode: `"form"`, or absent.
    """

    message: str
    requested_schema: dict[str, Any]
    mode: Literal["form"] | None = None


class ElicitUrlParams(Model, kw_only=True):
    """Params of `elicitation/create` in URL mode.

    Args:
        message: What the user is asked.
        url: The page to open.
        mode: `"url"`.
        elicitation_id: Names the elicitation; in revision 2025-11-25 only.
    """

    message: str
    url: str
    mode: Literal["url"]
    elicitation_id: str | None = None


class ElicitResult(Result, kw_only=True):
    """Result of `elicitation/create`.

    Args:
        action: What the user did.
        content: The fields of an accepted form.
    """

    action: Literal["accept", "decline", "cancel"]
    content: dict[str, Any] | None = None


class ElicitationCompleteParams(NotificationParams, kw_only=True):
    """A URL elicitation was completed; in revision 2025-11-25 only."""

    elicitation_id: str
