"""Scenarios: what both ends say, as data in `scenarios/*.txt`, and how what came is compared with what should.

    == a title                  a scenario begins
    proves: ID ID               requirements of the specification
    on: 2025 pipes              only there: eras or revisions, channels or groups of them; `not:` excludes
    with: {"page_size": 2}      options of the server; `client: {…}` are the client's capabilities
    raw                         without the handshake that otherwise comes first in the handshake era

    > {…}                       the client sends this message; `>>` sends a line as it stands
    < {…}                       the next message that the client gets; `<?` lines may come in any order
    x ID                        the client cancels its request, in the way of the channel

`jsonrpc` is left out everywhere. In the stateless era a message gets its `_meta` (null takes a key away), and an
expected result what that era adds, unless it is said. `"*"` fits anything, `"$name"` is bound where it is first met. A
line that begins with `2025:`, `2026:` or a window of revisions such as `..2025-06-18:` counts there only; `> 2026 {…}`
is a message of that era in any conversation. Knows nothing of `gemel`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.wire_table import REVISIONS

SCENARIOS = Path(__file__).with_name("scenarios")
NEWEST = {"2025": REVISIONS[-2], "2026": REVISIONS[-1]}
ERAS = {"2025": frozenset(REVISIONS[:-1]), "2026": frozenset(REVISIONS[-1:])}

_STEP = re.compile(r"(?:(?P<window>[\d.\-]+): *)?(?P<sign>>>|>|<\?|<|x)(?: +(?P<era>2025|2026)(?= ))? *(?P<rest>.*)")


@dataclass(frozen=True)
class Step:
    """One line: its sign, and what stands there as text."""

    sign: str
    text: str
    era: str | None
    revisions: frozenset[str]
    line: int


@dataclass
class Scenario:
    """One scenario of one file."""

    title: str
    place: str
    proves: list[str] = field(default_factory=list)
    on: list[str] = field(default_factory=list)
    excluded: list[str] = field(default_factory=list)
    server: dict[str, Any] = field(default_factory=dict)
    client: dict[str, Any] = field(default_factory=dict)
    raw: bool = False
    steps: list[Step] = field(default_factory=list)

    def runs(self, words: frozenset[str]) -> bool:
        """Whether it is meant for a conversation that these words describe: era, revision, channel, its groups."""
        eras = [word for word in self.on if word[0].isdigit()]
        channels = [word for word in self.on if not word[0].isdigit()]
        return (
            (not eras or bool(words & set(eras)))
            and (not channels or bool(words & set(channels)))
            and not words & set(self.excluded)
        )


def _window(text: str | None) -> frozenset[str]:
    if text is None:
        return frozenset(REVISIONS)
    if text in ERAS:
        return ERAS[text]
    first, dots, last = text.partition("..")
    found = [revision for revision in REVISIONS if first <= revision <= (last if dots and last else REVISIONS[-1])]
    return frozenset(found if dots else [first])


def read_scenarios(directory: Path = SCENARIOS) -> list[Scenario]:
    """All scenarios of all files, in order. Raises ValueError with the place of what can't be read."""
    return [found for path in sorted(directory.glob("*.txt")) for found in _read(path)]


def _read(path: Path) -> Iterator[Scenario]:
    found: Scenario | None = None
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        if line.startswith("== "):
            if found is not None:
                yield found
            found = Scenario(line.removeprefix("== "), f"{path.name}:{number}")
        elif line.strip() and not line.startswith("#") and (found is None or not _take(found, line, number)):
            raise ValueError(f"{path.name}:{number}: {line!r} is no line of a scenario")
    if found is not None:
        yield found


def _take(scenario: Scenario, line: str, number: int) -> bool:
    word, colon, rest = line.partition(":")
    if line == "raw":
        scenario.raw = True
    elif colon and word in ("proves", "on", "not"):
        {"proves": scenario.proves, "on": scenario.on, "not": scenario.excluded}[word].extend(rest.split())
    elif colon and word in ("with", "client"):
        (scenario.server if word == "with" else scenario.client).update(json.loads(rest))
    elif step := _STEP.fullmatch(line):
        if step["sign"] in (">", "<", "<?"):
            json.loads(step["rest"])
        scenario.steps.append(Step(step["sign"], step["rest"], step["era"], _window(step["window"]), number))
    else:
        return False
    return True


# ---------------------------------------------------------------- comparing


class Names:
    """What `"$name"` stood for so far."""

    def __init__(self, **known: Any) -> None:
        self.known: dict[str, Any] = known

    def fill(self, value: Any) -> Any:
        """The value with each known name replaced."""
        if isinstance(value, dict):
            return {self.fill(key): self.fill(item) for key, item in value.items()}
        if isinstance(value, list):
            return [self.fill(item) for item in value]
        return self.known.get(value[1:], value) if isinstance(value, str) and value.startswith("$") else value

    def difference(self, wanted: Any, came: Any, path: str = "message") -> str | None:
        """The first place where a message isn't what was wanted; types count, `1` is neither `1.0` nor `true`."""
        if wanted == "*":
            return None
        if isinstance(wanted, str) and wanted.startswith("$"):
            wanted = self.known.setdefault(wanted[1:], came)
        if type(wanted) is not type(came):
            return f"{path}: wanted {wanted!r}, came {came!r}"
        if isinstance(wanted, dict):
            return self._objects(wanted, came, path)
        if isinstance(wanted, list):
            if len(wanted) != len(came):
                return f"{path}: wanted {len(wanted)} items, came {came!r}"
            pairs = zip(wanted, came, range(len(came)), strict=True)
            found = (self.difference(one, other, f"{path}[{place}]") for one, other, place in pairs)
            return next((said for said in found if said is not None), None)
        return None if wanted == came else f"{path}: wanted {wanted!r}, came {came!r}"

    def _objects(self, wanted: dict[str, Any], came: dict[str, Any], path: str) -> str | None:
        wanted = self._with_keys(wanted, came)
        if wanted.keys() != came.keys():
            missing, extra = wanted.keys() - came.keys(), came.keys() - wanted.keys()
            return f"{path}: missing {sorted(missing)}, not wanted { ({key: came[key] for key in extra})!r}"
        found = (self.difference(wanted[key], came[key], f"{path}.{key}") for key in wanted)
        return next((said for said in found if said is not None), None)

    def _with_keys(self, wanted: dict[str, Any], came: dict[str, Any]) -> dict[str, Any]:
        """A key may be a name, too: it is bound to the first key whose value fits."""
        if not any(key.startswith("$") for key in wanted):
            return wanted
        found = {self.fill(key) if key[1:] in self.known else key: item for key, item in wanted.items()}
        for name in [key for key in found if key.startswith("$")]:
            free = [key for key in came if key not in found and self.fits(found[name], came[key])]
            if free:
                self.known[name[1:]] = free[0]
                found[free[0]] = found.pop(name)
        return found

    def fits(self, wanted: Any, came: Any) -> bool:
        """Whether it is the one; names are bound only if so."""
        before = dict(self.known)
        if self.difference(wanted, came) is None:
            return True
        self.known = before
        return False
