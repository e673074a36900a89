"""What changed between two contracts, line by line, and how grave it is for who relied on the old one."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Literal, TypeAlias, get_args

import msgspec

from hinge.lock.annotations import notes, word_changed
from hinge.lock.canonical import canonical
from hinge.lock.contract import HINTS, SECTIONS, SINGULAR, Contract, Definition, Section
from hinge.lock.hidden import name_shown, shown
from hinge.lock.problems import Problem
from hinge.lock.proving import MAX_STEPS, compare
from hinge.lock.wording import Use, narrower, text_changed, warning, wider

#: From the lightest to the gravest. "text" harms no program, but a model reads it: instructions may hide there.
Severity: TypeAlias = Literal["harmless", "text", "may break", "breaking"]
SEVERITIES: tuple[Severity, ...] = get_args(Severity)

#: Which value of a hint is the careful one: clients that relied on the other one are let down (TOOL-10).
_CAREFUL = {"readOnlyHint": False, "destructiveHint": True, "idempotentHint": False, "openWorldHint": True}


class Difference(msgspec.Struct, frozen=True, kw_only=True):
    """One change. `kind` is "tool", "prompt", "resource", "resource template" or "server"; `place` is inside it."""

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
    """What changed, by sections and names; as far as the older of the two revisions has words for it.

    A section that one of the two doesn't have was not looked at, and is left out.
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
    """What changed in one definition; None for one that isn't there. `steps` bounds how hard schemas are compared."""
    if before is not None and after is not None and canonical(before) == canonical(after):
        return []
    entry = _Entry(section, name, steps)
    found = list(entry.changes(before, after))
    if not found:
        found = [entry.line("harmless", "", "is written differently, and says the same")]
    return sorted(found, key=lambda one: -SEVERITIES.index(one.severity))


def gravest(found: Iterable[Difference]) -> Severity | None:
    """The gravest severity among differences; None if there are none."""
    severities: list[Severity] = [one.severity for one in found]
    return max(severities, key=SEVERITIES.index, default=None)


def _server(old: Contract, new: Contract) -> Iterator[Difference]:
    for word in sorted(old.server.keys() | new.server.keys()):
        before, after = old.server.get(word), new.server.get(word)
        if before != after:
            severity: Severity = "text" if word in ("name", "title", "description") else "harmless"
            message = text_changed(before, after)
            yield Difference(severity=severity, kind="server", name="", place=word, message=message)
    if old.instructions != new.instructions:
        message = text_changed(old.instructions, new.instructions)
        yield Difference(severity="text", kind="server", name="", place="instructions", message=message)


class _Entry:
    """Changes of one definition."""

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
                yield self.line(severity, word, text_changed(before.get(word), after.get(word)))

    # ---------------------------------------------------------------- texts

    def _texts(self, before: Definition, after: Definition) -> Iterator[Difference]:
        for word in ("title", "description", "name"):
            if before.get(word) != after.get(word):
                yield self.line("text", word, text_changed(before.get(word), after.get(word)))
        titles = [one.get("annotations", {}).get("title") for one in (before, after)]
        if titles[0] != titles[1]:
            yield self.line("text", "annotations.title", text_changed(*titles))
        if before or self._section != "tools":
            return
        for use, word in (("input", "inputSchema"), ("output", "outputSchema")):
            for place, said in notes(after.get(word), use).items():
                yield self.line("text", place, text_changed(None, said))

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
            for place, said in notes(after["outputSchema"], "output").items():
                yield self.line("text", place, text_changed(None, said))
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
            for place, severity, message in word_changed(before, after, use)
            if not place.startswith(gone) and not (severity == "harmless" and place.startswith(new))
        ]
        yield from found or [self.line("harmless", use, "the schema is written differently, and means the same")]

    def _judged(self, use: Use, lost: list[Problem], gained: list[Problem]) -> Iterator[Difference]:
        """Who gives arguments is let down by what is taken no longer; who reads results, by what is given in addition."""
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
                yield self.line(severity, one.at, narrower(one, use))
        for one in gained:
            if use == "input" and (one.at in new_and_required or (one.code == "undecided" and one.at in decided)):
                continue
            if not (one.code == "required" and one.at in gone) and not (one.code == "unlisted" and one.at in refused):
                harmless = use == "input" or one.code == "unlisted"
                yield self.line("harmless" if harmless else _severity(one), one.at, wider(one, use))

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
                    yield self.line("text", f"{place}.{word}", text_changed((old or {}).get(word), new.get(word)))


def _below(places: Iterable[str]) -> tuple[str, ...]:
    """How the places begin that lie inside these."""
    return tuple(start for place in places for start in (f"{place}.", f"{place}["))


def _severity(problem: Problem) -> Severity:
    return "breaking" if problem.certain else "may break"


_GONE = ("unlisted", "refused")
_NEED = {True: "required", False: "optional"}
_OTHERS: dict[str, Severity] = {"mimeType": "may break", "icons": "harmless", "_meta": "may break"}
