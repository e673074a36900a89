"""The differences between two contracts, and what each of them may break."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Literal, TypeAlias, get_args

import msgspec

from hinge.contracts.canonical import canonical
from hinge.contracts.contract import HINTS, SECTIONS, SINGULAR, Contract, Definition, Section
from hinge.contracts.display import change_shown, name_shown, shown, value_shown, values_shown, warning
from hinge.contracts.json_schema import KEYWORDS, LISTED, ONE
from hinge.contracts.schemas import MAX_STEPS, Problem, compare, member

#: In ascending order. "text" breaks no program, but a model reads it: instructions may hide there.
Severity: TypeAlias = Literal["harmless", "text", "may break", "breaking"]
SEVERITIES: tuple[Severity, ...] = get_args(Severity)
#: What a schema describes: the arguments of a tool or its results.
Use: TypeAlias = Literal["input", "output"]

#: The cautious value of each hint: a change to it breaks what clients rely on, a change from it is only a claim.
_CAREFUL = {"readOnlyHint": False, "destructiveHint": True, "idempotentHint": False, "openWorldHint": True}


class Difference(msgspec.Struct, frozen=True, kw_only=True):
    """One change between two contracts; `str()` gives it as a line.

    Attributes:
        severity: What it may break, see `SEVERITIES`.
        kind: "tool", "prompt", "resource", "resource template" or "server".
        name: The name of the entry, the URI of a resource, empty for the server.
        message: What changed.
        place: Where in the entry: `input.city`, `description`.
    """

    severity: Severity
    kind: str
    name: str
    message: str
    place: str = ""

    def __str__(self) -> str:
        place = f"{self.place}: " if self.place else ""
        name = f"{self.kind} {name_shown(self.name)}" if self.name else self.kind
        return f"{name}: {place}{self.message}"


def differences(old: Contract, new: Contract) -> list[Difference]:
    """Compare two contracts, as far as the older of their protocol revisions can express them.

    Args:
        old: What clients rely on.
        new: What is offered now.

    Returns:
        The differences, by sections and names. Sections that one of the contracts does not have are left out.
    """
    revision = min(old.revision, new.revision)
    old, new = old.seen_in(revision), new.seen_in(revision)
    found = list(_server(old, new))
    for section in SECTIONS:
        before, after = old.section(section), new.section(section)
        if before is not None and after is not None:
            for name in sorted(before.keys() | after.keys()):
                found += entry_differences(section, name, before.get(name), after.get(name))
    return found


def entry_differences(
    section: Section, name: str, before: Definition | None, after: Definition | None, *, steps: int = MAX_STEPS
) -> list[Difference]:
    """Compare one definition with an older one.

    Args:
        section: The section of both.
        name: Their name.
        before: The older definition, None for an entry that is new.
        after: The newer definition, None for an entry that is gone.
        steps: How much work the comparison of schemas may be; 0 only notes that a schema changed.

    Returns:
        The differences, the most severe first.
    """
    if before is not None and after is not None and canonical(before) == canonical(after):
        return []
    entry = _Entry(section, name, steps)
    found = list(entry.changes(before, after))
    if not found:
        found = [entry.line("harmless", "", "is written differently, and says the same")]
    return sorted(found, key=lambda one: -SEVERITIES.index(one.severity))


def gravest(found: Iterable[Difference]) -> Severity | None:
    """Return the highest severity of some differences, None if there are none.

    Args:
        found: The differences.
    """
    severities: list[Severity] = [one.severity for one in found]
    return max(severities, key=SEVERITIES.index, default=None)


def _server(old: Contract, new: Contract) -> Iterator[Difference]:
    for word in sorted(old.server.keys() | new.server.keys()):
        before, after = old.server.get(word), new.server.get(word)
        if before != after:
            severity: Severity = "text" if word in ("name", "title", "description") else "harmless"
            message = change_shown(before, after)
            yield Difference(severity=severity, kind="server", name="", place=word, message=message)
    if old.instructions != new.instructions:
        message = change_shown(old.instructions, new.instructions)
        yield Difference(severity="text", kind="server", name="", place="instructions", message=message)


class _Entry:
    """The changes of one definition."""

    def __init__(self, section: Section, name: str, steps: int) -> None:
        self._steps = steps
        self._section: Section = section
        self._name = name

    def line(self, severity: Severity, place: str, message: str) -> Difference:
        return Difference(
            severity=severity, kind=SINGULAR[self._section], name=self._name, place=place, message=message
        )

    def changes(self, before: Definition | None, after: Definition | None) -> Iterator[Difference]:
        if after is None:
            yield self.line("breaking", "", "is gone")
            return
        if before is None:
            yield self.line("harmless", "", f"is new{warning(self._name)}")
            yield from self._texts({}, after)
            return
        yield from self._texts(before, after)
        if self._section == "tools":
            yield from self._hints(before.get("annotations", {}), after.get("annotations", {}))
            yield from self._schema("input", before["inputSchema"], after["inputSchema"])
            yield from self._output(before, after)
        if self._section == "prompts":
            yield from self._arguments(before.get("arguments", []), after.get("arguments", []))
        for word, severity in _OTHERS.items():
            if before.get(word) != after.get(word):
                yield self.line(severity, word, change_shown(before.get(word), after.get(word)))

    # ---------------------------------------------------------------- texts

    def _texts(self, before: Definition, after: Definition) -> Iterator[Difference]:
        for word in ("title", "description", "name"):
            if before.get(word) != after.get(word):
                yield self.line("text", word, change_shown(before.get(word), after.get(word)))
        titles = [one.get("annotations", {}).get("title") for one in (before, after)]
        if titles[0] != titles[1]:
            yield self.line("text", "annotations.title", change_shown(*titles))
        if before or self._section != "tools":
            return
        for use, word in (("input", "inputSchema"), ("output", "outputSchema")):
            for place, said in _annotations(after.get(word), use).items():
                yield self.line("text", place, change_shown(None, said))

    # ---------------------------------------------------------------- tools

    def _hints(self, before: dict[str, Any], after: dict[str, Any]) -> Iterator[Difference]:
        for hint, default in HINTS.items():
            was, now = before.get(hint, default), after.get(hint, default)
            if was != now:
                severity: Severity = "breaking" if now is _CAREFUL[hint] else "text"
                claim = "" if severity == "breaking" else ": a claim, on which clients may ask less"
                yield self.line(severity, f"annotations.{hint}", f"{shown(was)} → {shown(now)}{claim}")

    def _output(self, before: Definition, after: Definition) -> Iterator[Difference]:
        if "outputSchema" not in before and "outputSchema" not in after:
            return
        if "outputSchema" not in after:
            yield self.line("breaking", "output", "results are no longer structured: the schema is gone")
        elif "outputSchema" not in before:
            yield self.line("harmless", "output", "results are structured now: there is a schema")
            for place, said in _annotations(after["outputSchema"], "output").items():
                yield self.line("text", place, change_shown(None, said))
        else:
            yield from self._schema("output", before["outputSchema"], after["outputSchema"])

    def _schema(self, use: Use, before: Any, after: Any) -> Iterator[Difference]:
        if canonical(before) == canonical(after):
            return
        if self._steps == 0:
            yield self.line("may break", use, "the schema changed")
            return
        lost = compare(before, after, use, steps=self._steps)
        gained = compare(after, before, use, steps=self._steps)
        found = list(self._judged(use, lost, gained))
        gone = _below(one.at for one in lost if one.code in _GONE)
        new = _below(one.at for one in gained if one.code in _GONE)
        found += [
            self.line(severity, place, message)
            for place, severity, message in _annotations_changed(before, after, use)
            if not place.startswith(gone) and not (severity == "harmless" and place.startswith(new))
        ]
        yield from found or [self.line("harmless", use, "the schema is written differently, and means the same")]

    def _judged(self, use: Use, lost: list[Problem], gained: list[Problem]) -> Iterator[Difference]:
        """Arguments break when less is accepted, results when more is possible."""
        refused = {one.at for one in (*lost, *gained) if one.code == "refused"}
        new_and_required = {one.at for one in lost if one.code == "required"} & {
            one.at for one in gained if one.code in ("unlisted", "refused")
        }
        gone = {one.at for one in lost if one.code in _GONE}
        missed = {one.at for one in gained if one.code == "required"}
        decided = {one.at for one in (*lost, *gained) if one.code != "undecided"}
        for one in lost:
            if one.at in new_and_required and one.code == "required" and use == "input":
                yield self.line("breaking", one.at, "is new and required")
            elif one.code in _GONE and one.at in missed and use == "output":
                yield self.line("breaking", one.at, "is gone, and was always there")
            elif not (one.code == "unlisted" and one.at in refused):
                severity = _severity(one) if use == "input" else "harmless"
                yield self.line(severity, one.at, _narrower(one, use))
        for one in gained:
            if use == "input" and (one.at in new_and_required or (one.code == "undecided" and one.at in decided)):
                continue
            if not (one.code == "required" and one.at in gone) and not (one.code == "unlisted" and one.at in refused):
                harmless = use == "input" or one.code == "unlisted"
                yield self.line("harmless" if harmless else _severity(one), one.at, _wider(one, use))

    # ---------------------------------------------------------------- prompts

    def _arguments(self, before: list[dict[str, Any]], after: list[dict[str, Any]]) -> Iterator[Difference]:
        was, now = ({one["name"]: one for one in some} for some in (before, after))
        for name in sorted(was.keys() | now.keys()):
            old, new, place = was.get(name), now.get(name), f"arguments.{name_shown(name)}"
            if new is None:
                yield self.line("may break", place, "is gone: whoever sends it may be ignored or refused")
                continue
            required = new.get("required") is True
            if old is None:
                yield self.line("breaking" if required else "harmless", place, f"is new{' and required' * required}")
            elif required != (old.get("required") is True):
                yield self.line("breaking" if required else "harmless", place, f"is {_NEED[required]} now")
            for word in ("title", "description"):
                if (old or {}).get(word) != new.get(word):
                    yield self.line("text", f"{place}.{word}", change_shown((old or {}).get(word), new.get(word)))


def _below(places: Iterable[str]) -> tuple[str, ...]:
    """The prefixes of the places inside these."""
    return tuple(start for place in places for start in (f"{place}.", f"{place}["))


def _severity(problem: Problem) -> Severity:
    return "breaking" if problem.narrows else "may break"


_GONE = ("unlisted", "refused")
_NEED = {True: "required", False: "optional"}
_OTHERS: dict[str, Severity] = {"mimeType": "may break", "icons": "harmless", "_meta": "may break"}


# ---------------------------------------------------------------- annotations

#: Copies an argument into a header. Clients follow a change by themselves.
_HEADER = "x-mcp-header"


def _annotations(schema: Any, at: str) -> dict[str, Any]:
    """The annotations of a schema by place and keyword: `input.city.description`."""
    found: dict[str, list[Any]] = {}
    for place, value in _each_annotation(schema, at):
        found.setdefault(place, []).append(value)
    return {place: values[0] if len(values) == 1 else sorted(values, key=canonical) for place, values in found.items()}


def _annotations_changed(before: Any, after: Any, at: str) -> Iterator[tuple[str, Severity, str]]:
    """The place, severity and message of each annotation that changed."""
    was, now = _annotations(before, at), _annotations(after, at)
    for place in sorted(was.keys() | now.keys()):
        old, new = was.get(place), now.get(place)
        if place in was and place in now and canonical(old) == canonical(new):
            continue
        keyword = place.rpartition(".")[2]
        severity: Severity = "text"
        if keyword == _HEADER:
            severity = "harmless"
        elif keyword == "default" and at == "input" and place in was:
            severity = "may break"  # it decides what happens when the argument is left out
        elif keyword == "default" and not _has_text(new):
            severity = "harmless"
        yield place, severity, change_shown(old, new)


def _has_text(value: Any) -> bool:
    if isinstance(value, dict):
        return bool(value)
    return any(map(_has_text, value)) if isinstance(value, list) else isinstance(value, str) and value != ""


def _each_annotation(schema: Any, at: str) -> Iterator[tuple[str, Any]]:
    if not isinstance(schema, dict):
        return
    for word, value in schema.items():
        if word not in KEYWORDS:
            yield member(at, word), value
        elif word in ("properties", "patternProperties", "dependentSchemas") and isinstance(value, dict):
            for name, inner in value.items():
                yield from _each_annotation(inner, member(at, name))
        elif word in ("$defs", "definitions") and isinstance(value, dict):
            for name, inner in value.items():
                yield from _each_annotation(inner, member(f"{at}.{word}", name))
        elif word in LISTED and isinstance(value, list):
            for place, inner in enumerate(value):
                yield from _each_annotation(inner, f"{at}[{place}]" if word == "prefixItems" else at)
        elif word in ONE and isinstance(value, dict):
            yield from _each_annotation(value, f"{at}[]" if word == "items" else at)


# ---------------------------------------------------------------- messages

_UNPROVED = ": cannot be proved compatible"


def _narrower(problem: Problem, use: Use) -> str:
    """What the new schema, the right one, does not allow any more."""
    takes = use == "input"
    match problem.code:
        case "kinds" | "values" | "fractions":
            return f"{'no longer takes' if takes else 'can no longer be'} {_lost(problem)}"
        case "only":
            return f"{'takes' if takes else 'can be'} only {values_shown(problem.right)} now"
        case "keyword":
            return _keyword_changed(problem, problem.left, problem.right, explain=takes)
        case "required":
            return f"is {'required' if takes else 'always there'} now"
        case "refused":
            return "is gone, and members that aren't declared are refused"
        case "unlisted":
            return "is gone: whoever sends it may be ignored or refused" if takes else "is gone"
        case "open":
            return "members that aren't declared are refused now"
        case "nothing":
            return "nothing fits here any more"
        case "alternatives":
            return f"its alternatives changed{_UNPROVED if takes else ''}"
        case "undecided":
            return f"cannot be proved compatible: {problem.right}"


def _wider(problem: Problem, use: Use) -> str:
    """What the new schema, the left one, allows in addition."""
    takes = use == "input"
    match problem.code:
        case "kinds" | "values" | "fractions":
            return f"{'also takes' if takes else 'can also be'} {_lost(problem)} now"
        case "only":
            return f"{'takes' if takes else 'can be'} more than {values_shown(problem.right)} now"
        case "keyword":
            return _keyword_changed(problem, problem.right, problem.left, explain=not takes)
        case "required":
            return "is optional now" if takes else "may be missing now"
        case "refused":
            return "is new" if takes else "is new, and the old schema refuses members that it doesn't declare"
        case "unlisted":
            return "is new"
        case "open":
            return "members that aren't declared are allowed now"
        case "nothing":
            return "something fits here now"
        case "alternatives":
            return f"its alternatives changed{'' if takes else _UNPROVED}"
        case "undecided":
            return f"cannot be proved compatible: {problem.right}"


def _lost(problem: Problem) -> str:
    if problem.code == "values":
        return values_shown(problem.left)
    if problem.code == "fractions":
        return "numbers that aren't whole"
    kinds = set(problem.left)
    if {"integer", "fraction"} <= kinds:
        kinds = kinds - {"integer", "fraction"} | {"number"}
    return ", ".join(sorted("numbers that aren't whole" if kind == "fraction" else kind for kind in kinds))


def _keyword_changed(problem: Problem, before: Any, after: Any, *, explain: bool) -> str:
    unproved = _UNPROVED if explain and not problem.certain and problem.narrows else ""
    return f"{problem.keyword}: {value_shown(before)} → {value_shown(after)}{unproved}"
