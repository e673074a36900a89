"""Migrates published servers with `gemel migrate --write`, and compares them with their originals: `make migrate-servers`.

python -m tests.migrate_servers.run                    all servers
python -m tests.migrate_servers.run mcp-server-time    some of them
python -m tests.migrate_servers.run --write            the table also goes into the documentation

Each server has a data file in `servers/`: versions, calls, and what is expected. The exit code is 1 if something else is seen.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Literal

from gemel.migrate import compare
from tests.migrate_servers import driving
from tests.migrate_servers.driving import NotStarted, Officially, Seen
from tests.migrate_servers.published import (
    ROOT,
    NotHere,
    Problem,
    Published,
    command_of,
    environment_of,
    install,
    matches,
    migrate,
    names,
    official_client,
    placed,
    read,
    serving,
    working_folder,
)
from tests.ports import free_port
from tools.measured import write_measured

PAGE = ROOT / "docs" / "migration" / "published-servers.md"
#: How often each server is started, original and copy in turn; times and sizes are medians.
STARTS = 3
#: How many calls of a server have to succeed in the original.
CALLS = 2


@dataclass
class Report:
    """What was seen of one server."""

    server: Published
    left: int | Literal["unknown"] = "unknown"
    old: Seen | None = None
    new: Seen | None = None
    #: Why the original can't be run here, or the migrated server doesn't start.
    problem: str = ""
    stopped: str = ""
    lists: list[str] = field(default_factory=list)
    answers: list[str] = field(default_factory=list)
    #: What the client of the official SDK sees otherwise, in the lists and the first answer; None if it was not tried.
    official: list[str] | None = None
    #: Tools whose text results list an output schema in the original only.
    text_schemas: int = 0
    #: What isn't as the data file says.
    unexpected: list[str] = field(default_factory=list)

    @property
    def is_true(self) -> bool:
        """Whether the last line of the command says what is so."""
        return self.left != 0 or not (self.stopped or self.unexplained)

    @property
    def unexplained(self) -> list[str]:
        """The differences for which the data file has no reason."""
        seen = (*self.lists, *self.answers, *(self.official or ()))
        return [text for text in dict.fromkeys(seen) if not self.server.explains(text)]


def try_server(name: str) -> Report:
    """Migrate one server and compare. Raises Problem if the data file can't be used."""
    port = free_port()
    report = Report(placed(read(name), port))
    try:
        install(report.server)
        with serving(report.server, port):
            _try(report)
    except NotHere as exc:
        report.problem = str(exc)
    return report


def _try(report: Report) -> None:
    server = report.server
    try:
        report.left = migrate(server)
        report.old = _start(server, migrated=False)
    except (Problem, NotStarted) as exc:
        report.problem = str(exc)
        report.unexpected.append(report.problem)
        return
    good = sum(
        driving.succeeded(answer) and not call.fails
        for call, answer in zip(server.calls, report.old.answers, strict=True)
    )
    if good < CALLS:
        report.unexpected.append(f"{good} calls succeed in the original, {CALLS} are needed")
    for call, answer in zip(server.calls, report.old.answers, strict=True):
        if driving.succeeded(answer) == call.fails:
            report.unexpected.append(f"the original answers {call.name} otherwise than the data file says: {answer}")
    try:
        report.new = _start(server, migrated=True)
        _measure(report, report.old, report.new)
    except NotStarted as exc:
        report.stopped, report.new = str(exc), None
    else:
        report.lists = list(compare.differences(report.old.lists, report.new.lists))
        report.text_schemas = compare.text_schemas_left_out(report.old.lists, report.new.lists)
        for call, old, new in zip(server.calls, report.old.answers, report.new.answers, strict=True):
            report.answers += driving.differences(call, old, new, server.changing)
        report.official = _official(server)
    report.unexpected += _unexpected(report)


def _start(server: Published, *, migrated: bool) -> Seen:
    """Run a server once. Raises NotStarted."""
    command, environment = command_of(server), environment_of(server, migrated=migrated)
    return asyncio.run(
        driving.drive(command, working_folder(server), environment, server.calls, _log(server, migrated=migrated))
    )


def _measure(report: Report, old: Seen, new: Seen) -> None:
    """Run both a few times more, and set times and sizes to the medians."""
    before, after = [old], [new]
    for _ in range(STARTS - 1):
        before.append(_start(report.server, migrated=False))
        after.append(_start(report.server, migrated=True))
    report.old, report.new = _medians(before), _medians(after)


def _medians(seen: Sequence[Seen]) -> Seen:
    sizes = [one.memory for one in seen if one.memory]
    return seen[0]._replace(
        first_answer=median(one.first_answer for one in seen), memory=median(sizes) if sizes else None
    )


def _official(server: Published) -> list[str]:
    """What differs for the client of the official SDK: the lists, and the answer to the first call."""
    try:
        try:
            old = _drive_officially(server, migrated=False, mode="auto")
        except NotStarted:  # an old server that ends at a request it doesn't know
            old = _drive_officially(server, migrated=False, mode="legacy")
        new = _drive_officially(server, migrated=True, mode="auto" if old.version >= "2026" else "legacy")
    except (Problem, NotStarted) as exc:
        return [str(exc)]
    return [
        *compare.differences(old.lists, new.lists),
        *driving.differences(server.calls[0], old.answer, new.answer, server.changing),
    ]


def _drive_officially(server: Published, *, migrated: bool, mode: Literal["auto", "legacy"]) -> Officially:
    return driving.drive_officially(
        official_client(),
        command_of(server),
        working_folder(server),
        environment_of(server, migrated=migrated),
        server.calls[0],
        _log(server, migrated=migrated),
        mode=mode,
    )


def _log(server: Published, *, migrated: bool) -> Path:
    return server.place / ("migrated.log" if migrated else "original.log")


def _unexpected(report: Report) -> list[str]:
    """What isn't as the data file says."""
    server, found = report.server, []
    if report.left != server.left:
        found.append(f"{report.left} left to do by hand, the data file says {server.left}")
    if report.stopped and not server.stopped_by:
        found.append(f"doesn't start: {report.stopped}")
    if server.stopped_by and not report.stopped:
        found.append(f"starts, though the data file says it doesn't: {server.stopped_by}")
    found += report.unexplained
    if not report.stopped:
        seen = [*report.lists, *report.answers]
        found += [
            f"no longer seen: {form}" for form in server.differences if not any(matches(form, text) for text in seen)
        ]
    return found


def table(reports: Sequence[Report]) -> str:
    """Return the table as Markdown."""
    lines = [
        "| server | written for | left by hand | starts | lists | answers | official client | first answer | memory |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for report in reports:
        server = report.server
        name = f"{server.package} {server.versions[server.package]}"
        if report.problem or report.old is None:
            lines.append(f"| {name} | {server.library} | not tried here | | | | | | |")
            continue
        left = str(report.left)
        old, new = report.old, report.new
        if new is None:
            lines.append(f"| {name} | {server.library} | {left} | no | | | | {old.first_answer:.1f} s | {_size(old)} |")
            continue
        lists, answers = _said(report.lists, server), _said(report.answers, server)
        official = _said(report.official or (), server)
        if report.text_schemas and lists == "same":
            lists = f"same, {report.text_schemas} text schemas less"
        lines.append(
            f"| {name} | {server.library} | {left} | yes | {lists} | {answers} of {len(old.answers)} | {official} "
            f"| {old.first_answer:.1f} → {new.first_answer:.1f} s | {_size(old)} → {_size(new)} |"
        )
    return "\n".join([*lines, "", summary(reports)])


def _said(differences: Sequence[str], server: Published) -> str:
    if not differences:
        return "same"
    explained = sum(map(server.explains, differences))
    return f"{len(differences)} differ, {explained} explained"


def _size(seen: Seen) -> str:
    return "?" if seen.memory is None else f"{seen.memory:.0f} MiB"


def summary(reports: Sequence[Report]) -> str:
    """Return how many servers start unaided with the same lists and answers, and how often the command says what is so."""
    tried = [report for report in reports if not report.problem]
    same = sum(report.new is not None and not report.unexplained for report in tried)
    equal = sum(report.new is not None and not report.lists and not report.answers for report in tried)
    said = [report for report in tried if report.left == 0]
    true = sum(report.is_true for report in said)
    return (
        f"{same} of {len(tried)} servers start unaided with the same lists and answers, {equal} of them without a difference "
        f'that needs an explanation. {true} of {len(said)} that were told "0 left to do by hand" are done.'
    )


def main(words: Sequence[str] | None = None) -> int:
    """Try the servers; the exit code is 1 if something else is seen than the data files say."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("servers", nargs="*", metavar="SERVER", help="packages that have a data file")
    parser.add_argument("--write", action="store_true", help=f"write the table into {PAGE.relative_to(ROOT)}")
    options = parser.parse_args(words)
    chosen = options.servers or names()
    if unknown := [name for name in chosen if name not in names()]:
        parser.error(f"there is no data file for {unknown[0]!r}; there are {', '.join(names())}")
    reports = []
    for name in chosen:
        report = try_server(name)
        reports.append(report)
        print(f"{name}: {'as expected' if not report.unexpected else 'FAILED'}", flush=True)
        for text in report.unexpected:
            print(f"  {text}", flush=True)
    text = table(reports)
    print(text)
    if options.write:
        write_measured(PAGE, "published servers", text)
    failed = [report.server.package for report in reports if report.unexpected]
    print(f"migrate-servers: FAILED: {', '.join(failed)}" if failed else "migrate-servers: passed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
