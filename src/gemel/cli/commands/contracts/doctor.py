"""`gemel doctor`: show what known hosts don't support in a server."""

from __future__ import annotations

import argparse
import os
import shutil
import sys
from itertools import groupby

from gemel.cli.connect import client_for
from gemel.cli.console import Console, as_json
from gemel.client.terminal.display import is_styled, write
from gemel.doctor.check import SEVERITIES, Finding, at_least, examine
from gemel.doctor.hosts import HOSTS, Severity
from gemel.install.hosts import HOSTS as INSTALLED
from gemel.visible import escape_line

#: The exit code when something is at least as severe as `--fail-on` says; 1 and 2 have their usual meaning.
EXIT_CODE = 3

_COLOURS: dict[Severity, str] = {"note": "2", "degrades": "33", "breaks": "31;1"}
_WIDTH = max(map(len, SEVERITIES))


async def run(options: argparse.Namespace) -> int:
    """Print what was found, by host."""
    hosts = list(dict.fromkeys(options.host)) or list(HOSTS)
    shown = hosts if options.host else [host for host in hosts if _is_here(host)]
    with Console(options) as console:
        async with client_for(options, **console.client_options()) as client:
            findings = await examine(client, hosts)
    if options.json:
        write(sys.stdout, f"{as_json(findings)}\n")
    else:
        _print(findings, hosts, shown)
    return EXIT_CODE if options.fail_on != "never" and at_least(findings, options.fail_on) else 0


def _is_here(host: str) -> bool:
    """Whether a host is on this machine."""
    installed = INSTALLED.get(host)
    return installed.is_found(sys.platform, os.environ) if installed is not None else shutil.which(host) is not None


def _print(findings: list[Finding], hosts: list[str], shown: list[str]) -> None:
    """Print the findings for some hosts, and in one line for which others there are some."""
    styled = is_styled(sys.stdout)
    for host, of_host in groupby(findings, key=lambda finding: finding.host):
        if host in hosts and host not in shown:
            continue
        write(sys.stdout, f"{host}\n")
        for finding in of_host:
            severity = finding.severity.ljust(_WIDTH)
            head = f"\x1b[{_COLOURS[finding.severity]}m{severity}\x1b[0m" if styled else severity
            line = escape_line(f"{finding.place}: {finding.message}; {finding.effect}")
            write(sys.stdout, f"  {head}  {line}\n  {'':{_WIDTH}}  {finding.source}\n")
    worst = {finding.host: finding.severity for finding in reversed(findings)}  # the worst of a host come first
    fine = [host for host in shown if worst.get(host, "note") == "note"]
    if fine:
        write(sys.stdout, f"Nothing to change for {', '.join(fine)}.\n")
    others = [host for host in hosts if host not in shown]
    if others:
        groups = [
            (severity, [host for host in others if worst.get(host) == severity]) for severity in ("breaks", "degrades")
        ]
        parts = [f"{severity} in {', '.join(some)}" for severity, some in groups if some]
        more = f"{'; '.join(parts)} (--host NAME says why)" if parts else "nothing to change"
        write(sys.stdout, f"{'Other hosts' if shown else 'No known host is on this machine. Others'}: {more}.\n")
