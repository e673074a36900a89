"""What a person is asked about a call, and for how long the answer counts."""

from __future__ import annotations

import inspect
import json
import logging
from collections.abc import Awaitable, Callable, Mapping
from contextvars import ContextVar
from types import MappingProxyType
from typing import Any, TypeAlias

from gemel.policies.request import PolicyRequest
from gemel.policies.rules import Ruling
from gemel.visible import escape_line, escape_text

logger = logging.getLogger("gemel")

#: Asks a person in another way than by elicitation: True or the name of who approved it allows the call.
Approver: TypeAlias = Callable[[PolicyRequest], bool | str | Awaitable[bool | str]]

#: The form; nothing but `true` allows a call.
FORM: Mapping[str, Any] = {
    "type": "object",
    "properties": {"allow": {"type": "boolean", "title": "Allow this call"}},
    "required": ["allow"],
}
#: Characters of the arguments that are shown.
_LONGEST = 4000

#: The approvals, by their digests, under which the present call runs: they hold for it alone, for what its handler calls with the
#: same arguments, and for the task that it becomes.
granted: ContextVar[Mapping[str, str]] = ContextVar("gemel_granted", default=MappingProxyType({}))


def question(request: PolicyRequest, ruling: Ruling, digest: str) -> str:
    """The text for the person: tool, server, the exact arguments but for secrets, with every character visible, and the rule."""
    arguments = escape_text(json.dumps(request.shown, ensure_ascii=False, indent=2, sort_keys=True))
    if len(arguments) > _LONGEST:
        left = len(arguments) - _LONGEST
        arguments = f"{arguments[:_LONGEST]}… ({left} more characters; SHA-256 of the request: {digest})"
    of = "" if request.server is None else f" of {escape_line(request.server)}"
    return f"Allow {escape_line(request.tool)}{of}?\n{arguments}\n(asked by {escape_line(ruling.rule or 'the policy')})"


async def approve(approver: Approver, request: PolicyRequest) -> str | None:
    """Who approved the call, by the function of the user; None if nobody did, or it failed."""
    try:
        answer: Any = approver(request)
        if inspect.isawaitable(answer):
            answer = await answer
    except Exception:
        logger.exception("%s is denied: the policy's ask= raised", request.tool)
        return None
    if answer is True:
        return "ask="
    return answer if isinstance(answer, str) and answer else None


def denial(request: PolicyRequest, ruling: Ruling, *, always: bool = False) -> str:
    """The text for the model whose call is denied; `always` says that each call of the tool is."""
    by = f" ({ruling.rule})" if ruling.rule else ""
    if always:
        return f"The policy does not allow {request.tool}{by}. Don't try it again."
    if ruling.missing is not None:
        return f"The policy allows {request.tool} only with the argument {ruling.missing}{by}."
    return f"The policy does not allow {request.tool} with these arguments{by}. Don't try it again."


def refusal(request: PolicyRequest) -> str:
    """The text for the model whose call a person did not allow."""
    return f"The user did not allow {request.tool} with these arguments."
