"""What a finished leg means: reads the suite's results and our expected failures, and says what is not as expected.

Stricter than the suite: a client's exit status counts, and so do a scenario in which nothing was checked at all and a check
that was skipped.
"""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

STAMP = re.compile(r"-\d{4}-\d\d-\d\dT[\d-]+Z$")
SECTIONS = ("server", "client", "authorization", "exits", "vacuous", "skipped")

Expected = dict[str, list[str]]


@dataclass
class Scenario:
    """The checks of one scenario, as (id, status, message)."""

    name: str
    checks: list[tuple[str, str, str]]

    @property
    def failing(self) -> list[str]:
        """The ids of the checks that failed or warned, each once, in order."""
        return list(dict.fromkeys(id_ for id_, status, _ in self.checks if status in ("FAILURE", "WARNING")))

    @property
    def skipped(self) -> list[str]:
        """The ids of the checks that the suite left out, each once, in order."""
        return list(dict.fromkeys(id_ for id_, status, _ in self.checks if status == "SKIPPED"))

    @property
    def is_vacuous(self) -> bool:
        """Nothing was found good, bad or not applicable: the scenario never got that far."""
        return not any(status in ("SUCCESS", "FAILURE", "WARNING", "SKIPPED") for _, status, _ in self.checks)


@dataclass
class Leg:
    """What one leg left behind."""

    side: str
    scenarios: dict[str, Scenario]
    unscored: frozenset[str]
    exits: Mapping[str, int]
    free_exits: frozenset[str]
    suite_status: int
    """The suite's own exit status, given the same expected failures."""

    @property
    def scored(self) -> list[Scenario]:
        return [one for one in self.scenarios.values() if one.name not in self.unscored]

    def observed(self) -> Expected:
        """What an expected-failures file would have to say to be exactly right."""
        failing = [f"{one.name}:{check}" for one in self.scored for check in one.failing]
        exits = [name for name, status in self.exits.items() if status != 0 and name not in self.free_exits]
        missing = [one.name for one in self.scored if self.side == "client" and one.name not in self.exits]
        scored = {one.name for one in self.scored}
        return {
            self.side: failing,
            "exits": sorted(name for name in {*exits, *missing} if name in scored),
            "vacuous": [one.name for one in self.scored if one.is_vacuous],
            "skipped": [f"{one.name}:{check}" for one in self.scored for check in one.skipped],
        }


def read_scenarios(output: Path) -> dict[str, Scenario]:
    """The scenarios of a leg from the files that the suite wrote."""
    found = {}
    for file in sorted(output.glob("**/checks.json")):
        place = file.parent.relative_to(output).as_posix()
        name = STAMP.sub("", place).removeprefix("server-") if place.startswith("server-") else STAMP.sub("", place)
        found[name] = Scenario(name, [_check(one) for one in json.loads(file.read_text())])
    return found


def _check(one: Mapping[str, object]) -> tuple[str, str, str]:
    return str(one["id"]), str(one["status"]), str(one.get("errorMessage") or one.get("description") or "")


def read_exits(directory: Path) -> dict[str, int]:
    """The exit status of the client in each scenario; a client that was killed left none."""
    return {file.name.replace("+", "/"): int(file.read_text() or 1) for file in sorted(directory.iterdir())}


def read_unscored(listing: str) -> frozenset[str]:
    """The scenarios that the suite runs without scoring them, from its listing of a frozen set."""
    _, _, rest = listing.partition("never scored:")
    return frozenset(re.findall(r"^    - (\S+) \[", rest, re.MULTILINE))


def read_expected(file: Path) -> Expected:
    """The lists of an expected-failures file (YAML of one shape: headings and `- entry` lines)."""
    lists: Expected = {section: [] for section in SECTIONS}
    current = lists["server"]
    for line in file.read_text().splitlines() if file.exists() else ():
        entry = line.split(" #")[0].strip()
        if entry.endswith(":") and entry[:-1] in lists:
            current = lists[entry[:-1]]
        elif entry.startswith("- "):
            current.append(entry[2:].strip())
    return lists


def write_expected(file: Path, observed: Expected) -> None:
    """Write the file anew; a leg without failures has lists without entries."""
    parts = ["# What is expected to fail in this leg; an entry that passes makes the leg fail as stale.\n"]
    for section, entries in observed.items():
        parts.append(f"{section}:\n" if entries else f"{section}: []\n")
        parts += [f"  - {entry}\n" for entry in entries]
    file.parent.mkdir(exist_ok=True)
    file.write_text("".join(parts))


def differences(leg: Leg, expected: Expected) -> tuple[list[str], list[str]]:
    """The unexpected and the stale entries. An entry on a scenario that did not run is neither."""
    observed = leg.observed()
    ran = {one.name for one in leg.scored}
    unexpected, stale = [], []
    for section, seen in observed.items():
        label = "" if section == leg.side else f"{section}: "
        wanted = expected[section]
        unexpected += [label + entry for entry in seen if not {entry, entry.split(":")[0]} & set(wanted)]
        covered = {*seen, *(entry.split(":")[0] for entry in seen)}
        stale += [label + entry for entry in wanted if entry not in covered and entry.split(":")[0] in ran]
    return unexpected, stale
