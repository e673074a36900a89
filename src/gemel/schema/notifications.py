"""Cancellation, progress and log messages."""

from __future__ import annotations

from typing import Any, Literal, get_args

from gemel.schema.base import Model, NotificationParams, ProgressToken

LoggingLevel = Literal["debug", "info", "notice", "warning", "error", "critical", "alert", "emergency"]
#: From low to high.
LOGGING_LEVELS: tuple[str, ...] = get_args(LoggingLevel)
SEVERITY = {level: rank for rank, level in enumerate(LOGGING_LEVELS)}


class CancelledParams(NotificationParams, kw_only=True):
    """Params of `notifications/cancelled`."""

    request_id: str | int
    reason: str | None = None


class ProgressParams(NotificationParams, kw_only=True):
    """Params of `notifications/progress`.

    Args:
        progress_token: The token of the request.
        progress: How far it got; increases with each notification.
        total: The value of `progress` at the end, if known.
        message: What is being done.
    """

    progress_token: ProgressToken
    progress: float
    total: float | None = None
    message: str | None = None


class LogParams(NotificationParams, kw_only=True):
    """Params of `notifications/message`: one log message.

    Args:
        level: Its severity.
        data: Any JSON value.
        logger: The name of the logger.
    """

    level: LoggingLevel
    data: Any
    logger: str | None = None


class SetLevelParams(Model, kw_only=True):
    """Params of `logging/setLevel`: the least severe level that is sent."""

    level: LoggingLevel
