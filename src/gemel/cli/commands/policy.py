"""`gemel policy check`: show what a policy makes of each tool of a server, or of all servers of a configuration."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from typing import Any

from gemel.cli.connect import CONFIGURED, client_for, is_python
from gemel.cli.console import Console, as_json
from gemel.client.group.config import read_config
from gemel.client.group.names import prefixes_of
from gemel.policies.decider import Decider
from gemel.policies.policy import Policy
from gemel.policies.request import NO_HINTS, PolicyRequest, hints_of
from gemel.policies.rules import Ruling
from gemel.schema.tools import Tool
from gemel.visible import escape_line


async def run(options: argparse.Namespace) -> int:
    """Print a line for each tool. The tools are listed, none is called."""
    policy = Policy(options.policy).decider
    checked: list[tuple[PolicyRequest, list[Ruling]]] = []
    with Console(options) as console:
        for target, server, prefix in _servers(options):
            reached = argparse.Namespace(**{**vars(options), "target": target})
            async with client_for(reached, **console.client_options()) as client:
                tools = await client.list_tools()
                is_own = server is None and is_python(reached)
                name = client.server_info.name if is_own and client.server_info is not None else server
            for tool in tools:
                request = _request(options, policy, tool, prefix, name, is_own=is_own)
                checked.append((request, await policy.possible(request)))
        if options.json:
            console.print(as_json([_as_object(*one) for one in checked]))
        else:
            width = max((len(escape_line(request.tool)) for request, _ in checked), default=0)
            lines = [f"{escape_line(request.tool):{width}}  {_in_words(rulings)}" for request, rulings in checked]
            console.print("\n".join(lines) or "The server has no tools.")
    return 0


def _servers(options: argparse.Namespace) -> Iterator[tuple[str, str | None, str]]:
    """Each server with its name for rules, and what its tools begin with: all those of a configuration, as a gateway has them."""
    entry = CONFIGURED.fullmatch(options.target)
    if entry is None or entry["name"] is not None or options.server is not None:
        yield options.target, options.server or (None if entry is None else entry["name"]), ""
        return
    entries = {name: one for name, one in read_config(entry["path"]).items() if not one.disabled}
    prefixes = prefixes_of(entries)
    for name in entries:
        yield f"{entry['path']}:{name}", prefixes[name], f"{prefixes[name]}_"


def _request(
    options: argparse.Namespace, policy: Decider, tool: Tool, prefix: str, server: str | None, *, is_own: bool
) -> PolicyRequest:
    hints = hints_of(tool.annotations) if is_own or policy.trusts(server) else NO_HINTS
    scopes = frozenset(options.scopes.split())
    return PolicyRequest(
        tool=prefix + tool.name, hints=hints, principal=options.principal, scopes=scopes, server=server
    )


def _in_words(rulings: list[Ruling]) -> str:
    *others, last = rulings
    parts = [f"{one.effect} if {escape_line(one.rule or '')} fits" for one in others]
    rest = f"{last.effect} ({escape_line(last.rule or 'default')})"
    if all(ruling.effect == "deny" for ruling in rulings):
        return f"{rest}, not listed"
    return ", ".join([*parts, f"otherwise {rest}" if parts else rest])


def _as_object(request: PolicyRequest, rulings: list[Ruling]) -> dict[str, Any]:
    return {
        "tool": request.tool,
        "server": request.server,
        "listed": any(ruling.effect != "deny" for ruling in rulings),
        "rulings": [{"effect": one.effect, "rule": one.rule, "ifArguments": one.if_arguments} for one in rulings],
    }
