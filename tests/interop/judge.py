"""Says what is wrong with a report: the step, what was expected, what came.

Knows the plan's tools and each peer's known limits; starts nothing.
"""

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.interop.matrix import CONCURRENT, REVISIONS, Plan
from tests.interop.processes import wait_for_entry

Answer = dict[str, Any]

JOURNAL_LIMIT = 6.0
"""Seconds that the journal is watched for the end of a cancelled handler."""

NOTICED_LIMIT = 0.5
"""Seconds between giving a call up and the handler's end; later ends may have other causes."""

PEER_LIMITS: dict[tuple[str, str], str] = {
    ("typescript", "progress"): "over stdio the client drops a notification that is directly followed by the result",
    ("python", "huge"): "the client caps an SSE event at 1 MiB and fails the call",
    ("fastmcp", "huge"): "the client caps an SSE event at 1 MiB and fails the call",
}
"""Steps that may fail because of the foreign client, whoever the server is: (client, step) -> why."""

ALLOWED_UNKNOWN_AS_RESULT = ("python", "everything", "time")
"""Foreign servers that answer an unknown tool with `isError` where the revisions want -32602."""


@dataclass(frozen=True)
class Cell:
    """One pairing of the matrix."""

    client: str
    server: str
    transport: str
    era: str

    def __str__(self) -> str:
        return f"{self.client} -> {self.server} {self.transport} {self.era}"


@dataclass(frozen=True)
class Evidence:
    """What a cell left behind."""

    cell: Cell
    plan: Plan
    steps: dict[str, dict[str, Any]]
    journal: Path


def complaints(evidence: Evidence) -> dict[str, str]:
    """For each step that went wrong, what was wrong; empty when all is well."""
    wrong: dict[str, str] = {}
    expected = ["connect", "list_tools", *evidence.plan, "afterwards", "close"]
    for name in expected:
        entry = evidence.steps.get(name)
        if entry is None:
            wrong[name] = "the step is missing from the report"
            continue
        problem = _judge(name, entry, evidence)
        if problem and (evidence.cell.client, name) not in PEER_LIMITS:
            wrong[name] = f"{problem}; got {json.dumps(entry)[:240]}"
        if "connect" in wrong:
            break
    return wrong


def _judge(name: str, entry: dict[str, Any], evidence: Evidence) -> str | None:
    error = entry.get("error")
    if error and error["type"] == "Hang":
        return "the step hung"
    rule = RULES.get(name)
    if rule is not None:
        return rule(entry, evidence)
    return f"{error['type']} was raised" if error else None


def _skipped(entry: dict[str, Any]) -> bool:
    return entry.get("value") == {"skipped": True}


def _connect(entry: dict[str, Any], evidence: Evidence) -> str | None:
    if "error" in entry:
        return "no connection"
    value = entry["value"]
    if value.get("revision") != REVISIONS[evidence.cell.era]:
        return f"the revision is not {REVISIONS[evidence.cell.era]}"
    if not value.get("name") or not value.get("version"):
        return "the server's name or version is not known"
    return None if "tools" in (value.get("capabilities") or {}) else "the capability tools is missing"


def _list(entry: dict[str, Any], evidence: Evidence) -> str | None:
    if "error" in entry:
        return "the tools could not be listed"
    names = [tool["name"] for tool in entry["value"]]
    wanted = {item[0] for step, item in evidence.plan.items() if step not in ("unknown", "concurrent")}
    if missing := wanted - set(names):
        return f"tools are missing: {sorted(missing)}"
    bare = [tool["name"] for tool in entry["value"] if tool.get("inputSchema", {}).get("type") != "object"]
    return f"inputSchema is no object: {bare}" if bare else None


def _answer(check: Callable[[Answer, Plan], str | None]) -> Callable[[dict[str, Any], Evidence], str | None]:
    """A rule on a call that must have been answered with a result."""

    def rule(entry: dict[str, Any], evidence: Evidence) -> str | None:
        if "error" in entry:
            return "an answer was expected, an error came"
        return None if _skipped(entry) else check(entry["value"], evidence.plan)

    return rule


def _text(answer: Answer, plan: Plan) -> str | None:
    if answer["is_error"]:
        return "isError"
    sent = [value for value in plan["text"][1].values() if isinstance(value, str)]
    is_echo = plan["text"][0] == "echo"
    return "the text did not come back as sent" if is_echo and sent[0] not in answer["text"] else None


def _structured(answer: Answer, plan: Plan) -> str | None:
    if answer["is_error"] or not isinstance(answer["structured"], dict):
        return "structuredContent is missing"
    if plan["structured"][0] == "weather" and answer["structured"] != {"city": "Oslo", "celsius": 21.5}:
        return "structuredContent differs"
    return None if "text" in answer["types"] else "a text block beside structuredContent is missing"


def _error(answer: Answer, plan: Plan) -> str | None:
    if not answer["is_error"]:
        return "isError was expected"
    reason = plan["error"][1].get("reason")
    return "the reason is not in the text" if reason and reason not in answer["text"] else None


def _progress(answer: Answer, plan: Plan) -> str | None:
    steps = plan["progress"][1]["steps"]
    done = [one[0] for one in answer["progress"]]
    if len(done) != steps or done != sorted(set(done)):
        return f"{steps} increasing progress notifications were expected"
    return None if all(one[1] == steps for one in answer["progress"]) else "the total is wrong"


def _logging(entry: dict[str, Any], evidence: Evidence) -> str | None:
    """The official Python server logs without offering the capability, so its `logging/setLevel` may fail."""
    if "error" in entry:
        return "an answer was expected, an error came"
    if _skipped(entry):
        return None
    answer = entry["value"]
    if answer.get("level_error") and evidence.cell.server != "python":
        return "the level could not be set"
    levels = [one["level"] for one in answer["logs"]]
    return None if levels == ["debug", "info", "error"] else "three log messages of three levels were expected"


def _large(answer: Answer, plan: Plan, step: str = "large") -> str | None:
    return None if answer["length"] == plan[step][1]["size"] else "the length is wrong"


def _bad_arguments(entry: dict[str, Any], evidence: Evidence) -> str | None:
    """TOOL-21: a result with `isError`; older peers say -32602."""
    if "error" in entry:
        fine = entry["error"].get("code") == -32602 and evidence.cell.server != "hinge"
        return None if fine else "isError was expected"
    return None if entry["value"]["is_error"] else "isError was expected"


def _unknown(entry: dict[str, Any], evidence: Evidence) -> str | None:
    """TOOL-18: -32602, not a result."""
    if _skipped(entry):
        return None
    if "error" in entry:
        return None if entry["error"].get("code") == -32602 else "-32602 was expected"
    as_result = evidence.cell.server in ALLOWED_UNKNOWN_AS_RESULT and entry["value"]["is_error"]
    return None if as_result else "-32602 was expected"


def _cancel(entry: dict[str, Any], evidence: Evidence) -> str | None:
    if "error" in entry:
        return "the cancelled call broke the step"
    if _skipped(entry):
        return None
    if isinstance(entry["value"]["ended"], dict) and "text" in entry["value"]["ended"]:
        return "the cancelled call was answered"
    return _noticed("cancel", entry, evidence)


def _limit(entry: dict[str, Any], evidence: Evidence) -> str | None:
    if _skipped(entry):
        return None
    if "error" not in entry:
        return "the call's time limit passed without an error"
    if entry["seconds"] > 5:
        return "the time limit of 0.7 s took more than 5 s"
    return None if evidence.cell.era == "2025" else _noticed("limit", entry, evidence)


def _noticed(key: str, entry: dict[str, Any], evidence: Evidence) -> str | None:
    """The handler must have been cancelled because of the step, not because the client closed at the end."""
    if evidence.plan[key][0] != "slow":
        return None
    when = wait_for_entry(evidence.journal, f"cancelled {key}", JOURNAL_LIMIT)
    if when is None:
        return f"the handler was not cancelled within {JOURNAL_LIMIT} s"
    late = when - entry["ended_at"]
    return f"the handler was cancelled {late:.2f} s after the call was given up" if late > NOTICED_LIMIT else None


def _concurrent(entry: dict[str, Any], evidence: Evidence) -> str | None:
    if "error" in entry:
        return "the concurrent calls broke the step"
    if _skipped(entry):
        return None
    answers = entry["value"]
    bad = [one for one in answers if "text" not in one or one["is_error"]]
    if len(answers) != CONCURRENT or bad:
        return f"{len(bad)} of {len(answers)} concurrent calls failed"
    items = evidence.plan["concurrent"]
    sums = [str(item[1]["a"] + item[1]["b"]) for item in items if "a" in item[1]]
    mixed = [(want, one["text"]) for want, one in zip(sums, answers, strict=False) if want not in one["text"]]
    return f"answers went to the wrong callers: {mixed[:3]}" if mixed else None


RULES: dict[str, Callable[[dict[str, Any], Evidence], str | None]] = {
    "connect": _connect,
    "list_tools": _list,
    "afterwards": _list,
    "text": _answer(_text),
    "structured": _answer(_structured),
    "error": _answer(_error),
    "bad_arguments": _bad_arguments,
    "unknown": _unknown,
    "progress": _answer(_progress),
    "logging": _logging,
    "large": _answer(_large),
    "huge": _answer(lambda answer, plan: _large(answer, plan, "huge")),
    "cancel": _cancel,
    "limit": _limit,
    "concurrent": _concurrent,
}
