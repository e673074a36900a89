"""What a policy decided, for receipts and for the span of the call."""

from __future__ import annotations

import sys
from collections.abc import Callable

from gemel.decisions import Decision, decisions
from gemel.policies.rules import Ruling


def record(ruling: Ruling) -> Callable[[str], None]:
    """Note a decision for those who read them. Returns what notes later who approved the call."""
    noted = decisions.get()
    if noted is None:
        return lambda approved_by: None
    place = len(noted)
    noted.append(Decision(ruling.effect, ruling.rule))

    def approved(approved_by: str) -> None:
        noted[place] = Decision(ruling.effect, ruling.rule, approved_by)

    return approved


def note_span(ruling: Ruling) -> None:
    """Add effect and rule to the span of the call that is served, if the process records spans."""
    trace = sys.modules.get("opentelemetry.trace")
    if trace is None:
        return
    span = trace.get_current_span()
    span.set_attribute("gemel.policy.effect", ruling.effect)
    span.set_attribute("gemel.policy.rule", ruling.rule or "default")
