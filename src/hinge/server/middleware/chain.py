"""Middleware: one shape, `(ctx, call_next) -> result`, around every inbound request and notification (A-020…A-038)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, TypeAlias

from hinge.server.context import Context

CallNext: TypeAlias = Callable[[Context[Any]], Awaitable[Any]]
Middleware: TypeAlias = Callable[[Context[Any], CallNext], Awaitable[Any]]
