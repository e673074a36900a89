"""The differences between two contracts, and what each of them may break."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Literal, TypeAlias, get_args

from msgspec import UNSET

from gemel.contracts.canonical import canonical
from gemel.contracts.contract import HINTS, SECTIONS, Contract, Definition, same
from gemel.contracts.display import change_shown, name_shown, shown, unset_if_none, value_shown, values_shown, warning
from gemel.contracts.json_schema import normal
from gemel.contracts.schemas import MAX_STEPS, Code, Problem, compare, property_place
from gemel.errors import Difference, Severity
from gemel.protocol.inline_refs import MAX_GROWTH, inline_references
from gemel.protocol.schema_keywords import KEYWORDS, LISTED, ONE
from gemel.schema.methods import BY_SECTION, Section

SEVERITIES: tuple[Severity, ...] = get_args(Severity)
#: What a schema describes: the arguments of a tool or its results.
Use: TypeAlias = Literal["input", "output"]

#: The cautious value of each hint: a change to it breaks what clients rely on, a change from it is only a claim.
_CAREFUL = {"readOnlyHint": False, "destructiveHint": True, "idempotentHint": False, "openWorldHint": True}


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
    lines = list(_server(old, new))
    for section in SECTIONS:
        before, after = old.section(section), new.section(section)
        if before is not None and after is not None:
            for name in sorted(before.keys() | after.keys()):
                lines += entry_differences(section, name, before.get(name), after.get(name))
    return lines


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
    if before is not None and after is not None:
        if same(before, after):
            return []
        before, after = _inlined(before), _inlined(after)
        if same(before, after):
            return []
    entry = _Entry(section, name, steps)
    lines = list(entry.changes(before, after))
    if not lines:
        lines = [entry.line("harmless", "", "is written differently, and says the same")]
    return sorted(lines, key=lambda line: -SEVERITIES.index(line.severity))


def _inlined(definition: Definition) -> Definition:
    """A definition whose schemas have no references, so that it makes no difference how they were written."""
    schemas = {word: definition[word] for word in ("inputSchema", "outputSchema") if word in definition}
    # Larger than what servers inline: the normal form of a schema has another size.
    return {
        **definition,
        **{word: normal(inline_references(schema, 2 * MAX_GROWTH)) for word, schema in schemas.items()},
    }


def gravest(lines: Iterable[Difference]) -> Severity | None:
    """Return the highest severity of some differences, None if there are none.

    Args:
        found: The differences.
    """
    severities: list[Severity] = [line.severity for line in lines]
    return max(severities, key=SEVERITIES.index, default=None)


def _server(old: Contract, new: Contract) -> Iterator[Difference]:
    for word in sorted(old.server.keys() | new.server.keys()):
        before, after = old.server.get(word, UNSET), new.server.get(word, UNSET)
        if before != after:
            severity: Severity = "text" if word in ("name", "title", "description") else "harmless"
            message = change_shown(before, after)
            yield Difference(severity=severity, kind="server", name="", place=word, message=message)
    if old.instructions != new.instructions:
        message = change_shown(unset_if_none(old.instructions), unset_if_none(new.instructions))
        yield Difference(severity="text", kind="server", name="", place="instructions", message=message)


class _Entry:
    """The changes of one definition."""

    def __init__(self, section: Section, name: str, steps: int) -> None:
        self._steps = steps
        self._section: Section = section
        self._name = name

    def line(self, severity: Severity, place: str, message: str) -> Difference:
        return Difference(
            severity=severity, kind=BY_SECTION[self._section].word, name=self._name, place=place, message=message
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
                yield self.line(severity, word, change_shown(before.get(word, UNSET), after.get(word, UNSET)))

    # ---------------------------------------------------------------- texts

    def _texts(self, before: Definition, after: Definition) -> Iterator[Difference]:
        for word in ("title", "description", "name"):
            if before.get(word) != after.get(word):
                yield self.line("text", word, change_shown(before.get(word, UNSET), after.get(word, UNSET)))
        titles = [definition.get("annotations", {}).get("title", UNSET) for definition in (before, after)]
        if titles[0] != titles[1]:
            yield self.line("text", "annotations.title", change_shown(*titles))
        if before or self._section != "tools":
            return
        for use, word in (("input", "inputSchema"), ("output", "outputSchema")):
            for place, words in _annotations(after.get(word), use).items():
                yield self.line("text", place, change_shown(UNSET, words))

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
            for place, words in _annotations(after["outputSchema"], "output").items():
                yield self.line("text", place, change_shown(UNSET, words))
        else:
            yield from self._schema("output", before["outputSchema"], after["outputSchema"])

    def _schema(self, use: Use, before: object, after: object) -> Iterator[Difference]:
        if same(before, after):
            return
        if self._steps == 0:
            yield self.line("may break", use, "the schema changed")
            return
        narrower = compare(before, after, use, steps=self._steps)
        wider = compare(after, before, use, steps=self._steps)
        changes = list(self._judged(use, narrower, wider))
        gone = _below(problem.place for problem in narrower if problem.code in _GONE)
        new = _below(problem.place for problem in wider if problem.code in _GONE)
        changes += [
            self.line(severity, place, message)
            for place, severity, message in _annotations_changed(before, after, use)
            if not place.startswith(gone) and not (severity == "harmless" and place.startswith(new))
        ]
        yield from changes or [self.line("harmless", use, "the schema is written differently, and means the same")]

    def _judged(self, use: Use, narrower: list[Problem], wider: list[Problem]) -> Iterator[Difference]:
        """Arguments break when less is accepted, results when more is possible."""
        refused, removed = _places([*narrower, *wider], "refused"), _places(narrower, *_GONE)
        required, added = _places(narrower, "required"), _places(wider, *_GONE)
        optional = _places(wider, "required")
        undecided = _places(narrower if use == "input" else wider, "undecided")
        for problem in narrower:
            place = problem.place
            if (problem.code == "undeclared" and place in refused) or (
                use == "output" and _is_known(problem, undecided)
            ):
                continue
            if problem.code == "required" and place in added and use == "input":
                yield self.line("breaking", place, "is new and required")
            elif problem.code in _GONE and place in optional and use == "output":
                yield self.line("breaking", place, "is gone, and was always there")
            else:
                severity = _severity(problem) if use == "input" else "harmless"
                yield self.line(severity, place, _message(problem, use, narrower=True))
        for problem in wider:
            place = problem.place
            told = (problem.code in _GONE and place in required and use == "input") or (
                problem.code == "required" and place in removed
            )
            told = told or (problem.code == "undeclared" and place in refused)
            if not told and not (use == "input" and _is_known(problem, undecided)):
                severity = _severity(problem) if use == "output" and problem.code != "undeclared" else "harmless"
                yield self.line(severity, place, _message(problem, use, narrower=False))

    # ---------------------------------------------------------------- prompts

    def _arguments(self, before: list[dict[str, Any]], after: list[dict[str, Any]]) -> Iterator[Difference]:
        was, now = ({argument["name"]: argument for argument in some} for some in (before, after))
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
                    yield self.line(
                        "text", f"{place}.{word}", change_shown((old or {}).get(word, UNSET), new.get(word, UNSET))
                    )


def _below(places: Iterable[str]) -> tuple[str, ...]:
    """The prefixes of the places inside these."""
    return tuple(start for place in places for start in (f"{place}.", f"{place}["))


def _severity(problem: Problem) -> Severity:
    return "breaking" if problem.narrows else "may break"


def _is_known(problem: Problem, undecided: set[str]) -> bool:
    """Whether the direction that matters says already that nothing is known here."""
    return problem.code == "undecided" and problem.place in undecided


def _places(problems: Iterable[Problem], *codes: Code) -> set[str]:
    return {problem.place for problem in problems if problem.code in codes}


_GONE: tuple[Code, ...] = ("undeclared", "refused")
_NEED = {True: "required", False: "optional"}
_OTHERS: dict[str, Severity] = {"mimeType": "may break", "icons": "harmless", "_meta": "may break"}


# ---------------------------------------------------------------- annotations

#: Copies an argument into a header. Clients follow a change by themselves.
_HEADER = "x-mcp-header"


def _annotations(schema: object, at: str) -> dict[str, Any]:
    """The annotations of a schema by place and keyword: `input.city.description`."""
    by_place: dict[str, list[Any]] = {}
    for place, value in _each_annotation(schema, at):
        by_place.setdefault(place, []).append(value)
    return {
        place: values[0] if len(values) == 1 else sorted(values, key=canonical) for place, values in by_place.items()
    }


def _annotations_changed(before: object, after: object, at: str) -> Iterator[tuple[str, Severity, str]]:
    """The place, severity and message of each annotation that changed."""
    was, now = _annotations(before, at), _annotations(after, at)
    for place in sorted(was.keys() | now.keys()):
        old, new = was.get(place, UNSET), now.get(place, UNSET)
        if place in was and place in now and same(old, new):
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


def _has_text(value: object) -> bool:
    if isinstance(value, dict):
        return bool(value)
    return any(map(_has_text, value)) if isinstance(value, list) else isinstance(value, str) and value != ""


def _each_annotation(schema: object, at: str) -> Iterator[tuple[str, Any]]:
    if not isinstance(schema, dict):
        return
    for word, value in schema.items():
        if word not in KEYWORDS:
            yield property_place(at, word), value
        elif word in ("properties", "patternProperties", "dependentSchemas") and isinstance(value, dict):
            for name, inner in value.items():
                yield from _each_annotation(inner, property_place(at, name))
        elif word in ("$defs", "definitions") and isinstance(value, dict):
            for name, inner in value.items():
                yield from _each_annotation(inner, property_place(f"{at}.{word}", name))
        elif word in LISTED and isinstance(value, list):
            for place, inner in enumerate(value):
                yield from _each_annotation(inner, f"{at}[{place}]" if word == "prefixItems" else at)
        elif word in ONE and isinstance(value, dict):
            yield from _each_annotation(value, f"{at}[]" if word == "items" else at)


# ---------------------------------------------------------------- messages

_UNPROVED = "cannot be proved compatible"
#: What it means that the new schema of arguments or results accepts less or more, by the code of the problem.
_NARROWER: dict[Code, tuple[str, str]] = {
    "required": ("is required now", "is always there now"),
    "refused": ("is gone, and undeclared properties are refused", "is gone, and undeclared properties are refused"),
    "undeclared": ("is gone: whoever sends it may be ignored or refused", "is gone"),
}
_WIDER: dict[Code, tuple[str, str]] = {
    "required": ("is optional now", "may be missing now"),
    "refused": ("is new", "is new, and the old schema refuses undeclared properties"),
    "undeclared": ("is new", "is new"),
}


def _message(problem: Problem, use: Use, *, narrower: bool) -> str:
    """What changed. If `narrower`, the new schema is the target of the comparison, else its source."""
    is_input = use == "input"
    match problem.code:
        case "types" | "values":
            lost = ", ".join(problem.source) if problem.code == "types" else values_shown(problem.source)
            if narrower:
                return f"{'no longer takes' if is_input else 'can no longer be'} {lost}"
            return f"{'also takes' if is_input else 'can also be'} {lost} now"
        case "keyword":
            before, after = map(unset_if_none, (problem.source, problem.target))
            if not narrower:
                before, after = after, before
            unproved = is_input == narrower and not problem.certain
            return f"{problem.keyword}: {value_shown(before)} → {value_shown(after)}" + f": {_UNPROVED}" * unproved
        case "undecided":
            return f"{_UNPROVED}: {problem.target}"
        case _:
            return (_NARROWER if narrower else _WIDER)[problem.code][not is_input]
