"""What policies decided about a call: written by `gemel.policies`, read by `gemel.receipts` and by whoever asks a person."""

from __future__ import annotations

from contextvars import ContextVar
from dataclasses import dataclass
from typing import Literal, TypeAlias

Effect: TypeAlias = Literal["allow", "deny", "ask"]


@dataclass(frozen=True, slots=True)
class Decision:
    """What one policy decided about one call.

    Attributes:
        effect: What the rule says.
        rule: The rule that fitted, as its author finds it: its name or its place. None where no rule fitted.
        approved_by: Who allowed a call that had to be asked for; None where nobody was asked, or nobody allowed it.
    """

    effect: Effect
    rule: str | None
    approved_by: str | None = None


#: Of the call that is served or sent here, in the order in which policies decided; None where nobody reads them.
decisions: ContextVar[list[Decision] | None] = ContextVar("gemel_decisions", default=None)

#: True while a policy asks a person about a call, and not a handler about its work.
approving: ContextVar[bool] = ContextVar("gemel_approving", default=False)
