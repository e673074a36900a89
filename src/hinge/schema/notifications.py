"""Cancellation, progress and log messages."""

from __future__ import annotations

from typing import Any, Literal, get_args

from hinge.schema.base import Model, NotificationParams, ProgressToken

LoggingLevel = Literal["debug", "info", "notice", "warning", "error", "critical", "alert", "emergency"]
#: From low to high (LOG-02).
LOGGING_LEVELS: tuple[str, ...] = get_args(LoggingLevel)
SEVERITY = {level: rank for rank, level in enumerate(LOGGING_LEVELS)}


class CancelledParams(NotificationParams, kw_only=True):
    """Which request is no longer wanted, and why (CANC-01)."""

    request_id: str | int
    reason: str | None = None


class ProgressParams(NotificationParams, kw_only=True):
    """How far a request got; `progress` strictly increases, `total` and fractions are free (PROG-04)."""

    progress_token: ProgressToken
    progress: float
    total: float | None = None
    message: str | None = None


class LogParams(NotificationParams, kw_only=True):
    """One log message; `data` is any JSON value (LOG-02)."""

    level: LoggingLevel
    data: Any
    logger: str | None = None


class SetLevelParams(Model, kw_only=True):
    """The least severe level that a handshake session wants (LOG-03)."""

    level: LoggingLevel
