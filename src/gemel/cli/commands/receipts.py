"""`gemel receipts`: verify the files of `gemel.receipts.Receipts`, or show what they say."""

from __future__ import annotations

import argparse
import json
import re
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from gemel.cli.console import Console
from gemel.cli.program.environment import variable
from gemel.errors import StartError
from gemel.receipts.entries import timestamp
from gemel.receipts.verification import ChainReport, abandoned, counted, read, verify
from gemel.visible import escape_line

_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86_400}
#: The members that each filter by a pattern is about: one of them must fit.
_PATTERNS = {"tool": ("tool",), "server": ("server",), "client": ("client", "client_id"), "principal": ("principal",)}


def run(options: argparse.Namespace) -> int:
    """Do what the action says.

    Raises:
        BrokenChain: With the first line that is wrong.
        StartError: A file can't be read, or an option has no meaning here.
    """
    with Console(options) as console:
        if options.action == "verify":
            reports = verify(options.file, keys=_keys(options), heads=options.head)
            if options.json:
                console.print(json.dumps({"chains": list(map(_as_json, reports))}))
            else:
                console.print("\n".join(map(_in_one_line, reports)))
        else:
            options.json_lines = True
            for members in _chosen(options):
                console.print(json.dumps(members) if options.json else _receipt_line(members))
    return 0


def _keys(options: argparse.Namespace) -> list[str | bytes]:
    keys: list[str | bytes] = [variable("--key-env", name) for name in options.key_env]
    for file in options.key_file:
        try:
            keys.append(Path(file).read_bytes().rstrip(b"\r\n"))
        except OSError as exc:
            raise StartError(f"--key-file {file}: {exc.strerror or exc}") from exc
    return keys


def _as_json(report: ChainReport) -> dict[str, Any]:
    return {**report._asdict(), "files": list(map(str, report.files))}


def _in_one_line(report: ChainReport) -> str:
    notes = [f"lines {report.first} to {report.last} are whole", counted(report.receipts, "receipt")]
    if report.first > 1:
        notes.append("those before were in files that were deleted")
    if report.killed:
        notes.append(f"{counted(report.killed, 'process')} ended without closing the file")
    if report.is_open:
        notes.append("the last process runs or was killed")
    if report.repaired:
        notes.append(f"{counted(report.repaired, 'torn line')} cut off")
    if report.lost:
        notes.append(f"{counted(report.lost, 'receipt')} not written")
    return f"{escape_line(str(report.files[-1]))}: {', '.join(notes)}\n  head {report.head}"


def _chosen(options: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """The receipts that the filters let through; of a call that its client abandoned, the last round."""
    since, until = _time_of(options.since, "--since"), _time_of(options.until, "--until")
    left = abandoned(options.file, timestamp(time.time() - options.abandoned_after))
    for members in read(options.file):
        if members.get("kind") == "asked" and str(members.get("state")) in left:
            members = {**members, "outcome": "unknown", "error": "abandoned"}
        elif members.get("kind") != "call":
            continue
        at = str(members.get("at"))
        if (since and at < since) or (until and at >= until):
            continue
        if options.outcome and members.get("outcome") not in options.outcome:
            continue
        if options.effect and members.get("effect") != options.effect:
            continue
        if all(_fits(getattr(options, option), members, names) for option, names in _PATTERNS.items()):
            yield members


def _fits(pattern: str | None, members: dict[str, Any], names: tuple[str, ...]) -> bool:
    return pattern is None or any(name in members and fnmatchcase(str(members[name] or ""), pattern) for name in names)


def _time_of(text: str | None, option: str) -> str | None:
    if text is None:
        return None
    if ago := re.fullmatch(r"(\d+(?:\.\d+)?)([smhd])", text):
        return timestamp(time.time() - float(ago[1]) * _UNITS[ago[2]])
    try:
        moment = datetime.fromisoformat(text)
        return timestamp((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp())
    except (ValueError, OverflowError, OSError):
        raise StartError(f"{option} {text}: write 30m, 2h, 7d, or a time as in 2026-11-29T12:00:00Z") from None


def _receipt_line(members: dict[str, Any]) -> str:
    """A receipt for people."""
    words = [str(members.get("at")), str(members.get("outcome"))]
    if members.get("error") is not None:
        words[-1] += f" ({members['error']})"
    words.append("/".join(str(each) for each in (members.get("server"), members.get("tool")) if each is not None))
    if members.get("ms") is not None:
        words.append(f"{members['ms']} ms")
    if members.get("principal") is not None:
        words.append(f"by {members['principal']}")
    if members.get("client") is not None:
        words.append(f"with {members['client']}")
    if members.get("client_id") is not None:
        words.append(f"for client {members['client_id']}")
    if members.get("effect") is not None:
        rule = members.get("rule")
        words.append(f"{members['effect']}{'' if rule is None else f' by rule {rule}'}")
    if members.get("approved_by") is not None:
        words.append(f"approved by {members['approved_by']}")
    if members.get("task") is not None:
        words.append(f"task {members['task']}")
    if members.get("depth"):
        words.append("called by a handler")
    if members.get("values") is not None:
        words.append(str(members["values"]))
    return "  ".join(map(escape_line, words))
