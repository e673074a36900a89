"""OpenTelemetry spans as middleware; without a tracer provider a call pays one dictionary look-up."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import Any

from hinge.server.context import Context
from hinge.server.middleware import CallNext


def telemetry(ctx: Context[Any], call_next: CallNext) -> Awaitable[Any]:
    """Pass on."""
    return call_next(ctx)
