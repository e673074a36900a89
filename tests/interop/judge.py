"""Says what is wrong with a report: the step, what was expected, what came.

Knows the wants of a plan; starts nothing, and knows no peers (their faults are in excuses.py).
"""

import base64
import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.interop.answers import ROOTS
from tests.interop.plans import Plan, Step
from tests.interop.processes import entries, wait_for_entry

JOURNAL_LIMIT = 6.0
"""Seconds that the journal is watched for the end of a cancelled handler."""

NOTICED_LIMIT = 0.5
"""Seconds between giving a call up and the handler's end; later ends may have other causes."""

LIMIT_SECONDS = 5
"""Seconds that a call with a limit of 0.7 s may take."""

WITHOUT_CODES = ("InspectorFailed",)
"""Errors of clients that print the message only."""


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
    revision: str
    """What client and server have to agree on."""


@dataclass(frozen=True)
class One:
    """One step of the evidence."""

    step: Step
    entry: dict[str, Any]
    evidence: Evidence

    @property
    def value(self) -> Any:
        """What came, where no error did."""
        return self.entry["value"]


def complaints(evidence: Evidence) -> dict[str, str]:
    """For each step that went wrong, what was wrong; empty when all is well."""
    wrong: dict[str, str] = {}
    if problem := _connected(evidence):
        return {"connect": problem}
    for name, step in {**evidence.plan, "close": Step("close")}.items():
        entry = evidence.steps.get(name)
        if entry is None:
            wrong[name] = "the step is missing from the report"
        elif not skipped(entry) and (problem := _judge(One(step, entry, evidence))):
            wrong[name] = f"{problem}; got {json.dumps(entry, ensure_ascii=False)[:260]}"
    return wrong


def skipped(entry: dict[str, Any]) -> bool:
    """Whether the client had no way to make the step."""
    value = entry.get("value")
    return isinstance(value, dict) and "skipped" in value


def _connected(evidence: Evidence) -> str | None:
    entry = evidence.steps.get("connect", {})
    if "value" not in entry:
        return f"no connection; got {json.dumps(entry)[:400]}"
    if skipped(entry):
        return None
    value, revision = entry["value"], evidence.revision
    if value.get("revision") != revision:
        return f"the revision is not {revision}; got {value.get('revision')}"
    if not value.get("name") or not isinstance(value.get("version"), str):
        return "the server's name or version is not known"
    offers_tools = any(step.verb == "items" and step.arguments == ("tools",) for step in evidence.plan.values())
    if offers_tools and "tools" not in (value.get("capabilities") or {}):
        return "the capability tools is missing"
    return None


def _judge(one: One) -> str | None:
    error = one.entry.get("error")
    if error and error["type"] == "Hang":
        return "the step hung"
    if any_of := one.step.wants.get("any"):
        tried = [_judge(One(Step(one.step.verb, (), wants), one.entry, one.evidence)) for wants in any_of]
        return None if None in tried else " or ".join(map(str, tried))
    expected = one.step.wants.get("code")
    if expected is not None:
        expected = expected[one.evidence.cell.era] if isinstance(expected, dict) else expected
        if error and error["type"] in WITHOUT_CODES:
            return None
        return None if error and error.get("code") == expected else f"error {expected} was expected"
    if one.step.verb == "limit":
        return _limit(one)
    if error:
        return "an answer was expected, an error came"
    for want, expected in one.step.wants.items():
        if problem := RULES[want](one, expected):
            return problem
    return _of_verb(one)


def _of_verb(one: One) -> str | None:
    """What holds whatever is wanted."""
    if one.step.verb == "items" and one.step.arguments == ("tools",):
        bare = [tool["name"] for tool in one.value["items"] if tool.get("inputSchema", {}).get("type") != "object"]
        return f"inputSchema is no object: {bare}" if bare else None
    if one.step.verb == "cancel":
        ended = one.value["ended"]
        return "the cancelled call was answered" if isinstance(ended, dict) and "text" in ended else None
    if "structured" in one.step.wants and "text" not in one.value["types"]:
        return "a text block beside structuredContent is missing"
    return None


# ---------------------------------------------------------------- wants


def _text(one: One, text: str) -> str | None:
    return None if text in one.value["text"] else f"the text {text!r} was expected"


def _same(member: str) -> Callable[[One, Any], str | None]:
    def rule(one: One, expected: Any) -> str | None:
        return None if one.value[member] == expected else f"{member} {expected!r} was expected"

    return rule


def _structured(one: One, expected: Any) -> str | None:
    came = one.value["structured"]
    fits = isinstance(came, dict) if expected is True else came == expected
    return None if fits else "structuredContent is missing or differs"


def _names(one: One, names: list[str]) -> str | None:
    there = {item.get("uriTemplate") or item.get("uri") or item["name"] for item in one.value["items"]}
    missing = set(names) - there
    return f"items are missing: {sorted(missing)}" if missing else None


def _pages(one: One, pages: int) -> str | None:
    came = one.value["pages"]
    return None if came in (None, pages) else f"{pages} pages were expected, {came} came"


def _progress(one: One, steps: int) -> str | None:
    done = [progress for progress, _, _ in one.value["progress"]]
    if len(done) != steps or done != sorted(set(done)):
        return f"{steps} increasing progress notifications were expected"
    return None if all(total == steps for _, total, _ in one.value["progress"]) else "the total is wrong"


def _levels(one: One, levels: list[str]) -> str | None:
    if bool(one.value.get("level_error")) != one.step.wants.get("level_refused", False):
        return f"setting the level: {one.value.get('level_error')}"
    came = [log["level"] for log in one.value["logs"]]
    return None if came == levels else f"log messages of the levels {levels} were expected, {came} came"


def _answered(one: One, _: bool) -> str | None:
    bad = [answer for answer in one.value if "text" not in answer or answer["is_error"]]
    if len(one.value) != len(one.step.arguments[0]) or bad:
        return f"{len(bad)} of {len(one.value)} concurrent calls failed: {bad[:2]}"
    return None


def _in_order(one: One, _: bool) -> str | None:
    """The sums of numbers and 1000, each at its own place."""
    came = [answer["text"] for answer in one.value]
    mixed = [text for number, text in enumerate(came) if str(number + 1000) not in text]
    return f"answers went to other callers: {mixed[:3]}" if mixed else None


def _first(one: One, values: list[str]) -> str | None:
    return None if one.value["values"] == values else f"{len(values)} values were expected"


def _more(one: One, more: bool) -> str | None:
    return None if bool(one.value.get("hasMore")) is more else f"hasMore {more} was expected"


def _members(found: dict[str, Any], expected: dict[str, Any]) -> bool:
    for name, value in expected.items():
        if name == "bytes":
            came: Any = len(base64.b64decode(found.get("blob", "")))
        elif name == "json":
            came = json.loads(found.get("text", "null"))
        else:
            came = found.get(name)
        if came != value and not (name == "text" and isinstance(came, str) and value in came):
            return False
    return True


def _contents(one: One, expected: list[dict[str, Any]]) -> str | None:
    return _listed(one.value["contents"], expected, "contents")


def _messages(one: One, expected: list[dict[str, Any]]) -> str | None:
    flat = [{"role": message["role"], **message["content"]} for message in one.value["messages"]]
    return _listed(flat, expected, "messages")


def _listed(came: list[dict[str, Any]], expected: list[dict[str, Any]], what: str) -> str | None:
    fits = len(came) == len(expected) and all(map(_members, came, expected))
    return None if fits else f"the {what} are not as expected: {expected}"


def _asked(one: One, kinds: list[str]) -> str | None:
    came = sorted(question["kind"] for question in one.value["asked"])
    return None if came == kinds else f"the questions {kinds} were expected, {came} came"


def _heard(one: One, changes: list[list[str | None]]) -> str | None:
    value = one.value
    if sorted(map(str, value["heard"])) != sorted(map(str, changes)):
        return f"the changes {changes} were expected"
    if value["after"]:
        return "something was heard after the end of the subscription"
    if one.evidence.cell.era == "2025":
        return None
    honoured = value["honoured"] or {}
    lists = {f"{kind}ListChanged": True for kind, uri in changes if uri is None}
    uris = [uri for _, uri in changes if uri is not None]
    wanted = {**lists, **({"resourceSubscriptions": uris} if uris else {})}
    return None if wanted.items() <= honoured.items() else f"the server did not honour {wanted}"


def _result(one: One, members: dict[str, Any]) -> str | None:
    missing = {name: value for name, value in members.items() if one.value.get(name) != value}
    return f"a result with {missing} was expected" if missing else None


def _once(one: One, event: str) -> str | None:
    times = len(entries(one.evidence.journal, event))
    return None if times == 1 else f"{event!r} happened {times} times"


def _journal(one: One, key: str) -> str | None:
    """The handler must have been cancelled because of the step, not because the client closed at the end."""
    when = wait_for_entry(one.evidence.journal, f"cancelled {key}", JOURNAL_LIMIT)
    if when is None:
        return f"the handler was not cancelled within {JOURNAL_LIMIT} s"
    late = when - one.entry["ended_at"]
    return f"the handler was cancelled {late:.2f} s after the call was given up" if late > NOTICED_LIMIT else None


def _limit(one: One) -> str | None:
    if "error" not in one.entry:
        return "the call's time limit passed without an error"
    if one.entry["seconds"] > LIMIT_SECONDS:
        return f"the time limit of 0.7 s took more than {LIMIT_SECONDS} s"
    key = one.step.wants.get("journal")
    # In the handshake era a client that gives up may, but need not, say so.
    return None if key is None or one.evidence.cell.era == "2025" else _journal(one, key)


def _roots(one: One, _: bool) -> str | None:
    missing = [uri for uri in ROOTS if uri not in one.value["text"]]
    return f"the roots {missing} are missing" if missing else None


RULES: dict[str, Callable[[One, Any], str | None]] = {
    "text": _text,
    "is_error": _same("is_error"),
    "length": _same("length"),
    "types": _same("types"),
    "values": _same("values"),
    "structured": _structured,
    "names": _names,
    "pages": _pages,
    "steps": _progress,
    "told": lambda one, told: None if one.value["progress"] == told else f"the progress {told} was expected",
    "result": _result,
    "levels": _levels,
    "level_refused": lambda one, refused: None,  # with the levels
    "answered": _answered,
    "sums": _in_order,
    "first": _first,
    "more": _more,
    "contents": _contents,
    "messages": _messages,
    "asked": _asked,
    "heard": _heard,
    "once": _once,
    "journal": _journal,
    "roots": _roots,
}
