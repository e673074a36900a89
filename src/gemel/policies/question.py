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
_UNITS = ((3600, "hour"), (60, "minute"), (1, "second"))
#: Characters of the arguments that are shown, and of each text in them if that is too long: as many of these as fit.
_LONGEST, _CUTS = 4000, (1000, 300, 100, 30)

#: The approvals, by their digests, under which the present call runs: they hold for it alone, for what its handler calls with the
#: same arguments, and for the task that it becomes.
granted: ContextVar[Mapping[str, str]] = ContextVar("gemel_granted", default=MappingProxyType({}))


def question(request: PolicyRequest, ruling: Ruling, digest: str) -> str:
    """The text for the person: tool, server, the exact arguments but for secrets, with every character visible, and the rule."""
    arguments = _written(request.shown)
    if len(arguments) > _LONGEST:
        arguments = f"{_shortened(request.shown or {})}\n(not all of it; SHA-256 of the request: {digest})"
    of = "" if request.server is None else f" of {escape_line(request.server)}"
    by = f"asked by {escape_line(ruling.rule or 'the policy')}{_how_long(ruling)}"
    return f"Allow {escape_line(request.tool)}{of}?\n{arguments}\n({by})"


def _written(arguments: Any) -> str:
    text = json.dumps(arguments, ensure_ascii=False, indent=2, sort_keys=True)
    return text if len(text) > _LONGEST else escape_text(text)


def _shortened(arguments: Mapping[str, Any]) -> str:
    """The arguments, each part of them cut by itself: a long text hides none of the others."""
    for most in _CUTS:
        text = _written(_cut(arguments, most))
        if len(text) <= _LONGEST:
            return text
    share = _LONGEST // len(arguments)
    parts = (_written({name: value})[2:-2] for name, value in sorted(_cut(arguments, _CUTS[-1]).items()))
    return "\n".join(part if len(part) <= share else f"{escape_text(part[:share])}…" for part in parts)[:_LONGEST]


def _cut(value: Any, most: int) -> Any:
    """A value with so many characters of each text, and a tenth as many items of each list."""
    if isinstance(value, str):
        return value if len(value) <= most else f"{value[:most]}… ({len(value) - most} more characters)"
    if isinstance(value, list):
        items = [_cut(item, most) for item in value[: most // 10]]
        return items if len(value) <= most // 10 else [*items, f"… ({len(value) - most // 10} more items)"]
    if isinstance(value, Mapping):
        return {name: _cut(item, most) for name, item in value.items()}
    return value


def _how_long(ruling: Ruling) -> str:
    """For how long a yes counts for the same call."""
    if ruling.remember == "call":
        return ""
    if isinstance(ruling.remember, str):
        return "; not again in this session for the same arguments"
    unit, name = next((unit, name) for unit, name in _UNITS if ruling.remember % unit == 0)
    count = int(ruling.remember / unit)
    return f"; not again for the same arguments within {count} {name}{'' if count == 1 else 's'}"


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
