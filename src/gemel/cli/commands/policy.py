"""`gemel policy check`: show what a policy makes of each tool of a server, or of all servers of a configuration."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, NamedTuple

from gemel.cli.connect import CONFIGURED, client_for, is_python
from gemel.cli.console import Console, as_json
from gemel.client.group.config import read_config
from gemel.client.group.names import prefixes_of
from gemel.errors import GemelError
from gemel.policies.decider import Decider
from gemel.policies.listing import parameters_of
from gemel.policies.policy import Policy
from gemel.policies.request import NO_HINTS, PolicyRequest, hints_of
from gemel.policies.rules import Ruling
from gemel.schema.tools import Tool
from gemel.visible import escape_line

_IN_CODE_MODE = (
    "is in code mode and lists its few tools in place of those that the policy is about: check a server without code mode, or a "
    "URL that lets clients choose"
)


async def run(options: argparse.Namespace) -> int:
    """Print a line for each tool. The tools are listed, none is called."""
    policy = Policy(options.policy).decider
    checked: list[_Checked] = []
    unseen: dict[str, str] = {}
    untrusted: list[str] = []
    with Console(options) as console:
        for target, server, prefix in _servers(options):
            reached = argparse.Namespace(**{**vars(options), "target": target})
            try:
                tools, title = await _list(reached, console)
            except GemelError as exc:
                if target == options.target:
                    raise
                unseen[target] = f"can't be checked: {exc}"
                continue
            if tools is None:
                unseen[target] = _IN_CODE_MODE
                continue
            is_own = server is None and is_python(reached)
            for tool in tools:
                request = _request(options, policy, tool, prefix, title if is_own else server, is_own=is_own)
                rulings = await policy.possible(request)
                believed = replace(request, hints=hints_of(tool.annotations))
                if target not in untrusted and rulings != await policy.possible(believed):
                    untrusted.append(target)
                checked.append(_Checked(request, rulings, policy.not_about(request)))
        if options.json:
            console.print(as_json([_as_object(one) for one in checked]))
        elif checked or not unseen:
            width = max((len(escape_line(one.request.tool)) for one in checked), default=0)
            lines = [f"{escape_line(one.request.tool):{width}}  {_in_words(one)}" for one in checked]
            console.print("\n".join(lines) or "The server has no tools.")
        if (
            checked and not unseen and options.server is None and _entry_name(options) is None
        ):  # otherwise these are not all tools
            for rule in policy.about_none([one.request for one in checked]):
                console.note(f"gemel: the rule {escape_line(rule)} names none of these tools: is it written right?")
        for target in untrusted:
            console.note(
                f"gemel: the hints of {target} are not trusted, and count as destructive. The policy of the server itself "
                "trusts them: use --trust-hints to check that one. Elsewhere, name the server in trust_hints, and with --server"
            )
        for target, reason in unseen.items():
            console.note(f"gemel: {target} {reason}")
    return 1 if unseen else 0


class _Checked(NamedTuple):
    """A tool, what can happen with its calls, and the rules that don't apply for want of an argument, each with that argument."""

    request: PolicyRequest
    rulings: list[Ruling]
    not_about: list[tuple[str, str]]


async def _list(options: argparse.Namespace, console: Console) -> tuple[list[Tool] | None, str | None]:
    """The tools of the TARGET, and what it calls itself. None for the tools if code mode lists its own in their place."""
    from gemel.code.tools import stand_for_others

    title: str | None = None
    for query in ("", "tools=all"):  # by which a client of code mode chooses the whole list, if its target is a URL
        async with client_for(options, query=query, **console.client_options()) as client:
            tools = await client.list_tools()
            title = None if client.server_info is None else client.server_info.name
        if not stand_for_others(tools):
            return tools, title
    return None, title


def _entry_name(options: argparse.Namespace) -> str | None:
    """The name of the one server of a configuration that the target is; None for all of them, and for other targets."""
    entry = CONFIGURED.fullmatch(options.target)
    return None if entry is None else entry["name"]


def _servers(options: argparse.Namespace) -> Iterator[tuple[str, str | None, str]]:
    """Each server with its name for rules, and what its tools begin with: all those of a configuration, as a gateway has them."""
    entry, name = CONFIGURED.fullmatch(options.target), _entry_name(options)
    if entry is None or name is not None or options.server is not None:
        yield options.target, options.server or name, ""
        return
    entries = {name: one for name, one in read_config(entry["path"]).items() if not one.disabled}
    prefixes = prefixes_of(entries)
    for name in entries:
        yield f"{entry['path']}:{name}", prefixes[name], f"{prefixes[name]}_"


def _request(
    options: argparse.Namespace, policy: Decider, tool: Tool, prefix: str, server: str | None, *, is_own: bool
) -> PolicyRequest:
    hints = hints_of(tool.annotations) if is_own or options.trust_hints or policy.trusts(server) else NO_HINTS
    scopes = frozenset(options.scopes.split())
    return PolicyRequest(
        tool=prefix + tool.name,
        hints=hints,
        principal=options.principal,
        scopes=scopes,
        server=server,
        parameters=parameters_of(tool),
    )


def _in_words(checked: _Checked) -> str:
    *others, last = checked.rulings
    rest = f"{last.effect} ({escape_line(last.rule or 'default')})"
    if all(ruling.effect == "deny" for ruling in checked.rulings):
        return f"{rest}, not listed"
    parts = [f"{one.effect} if {escape_line(one.rule or '')} fits" for one in others]
    text = ", ".join([*parts, f"otherwise {rest}" if parts else rest])
    notes = [f"{escape_line(rule)} needs an argument {escape_line(name)}" for rule, name in checked.not_about]
    return "; ".join([text, *notes])


def _as_object(checked: _Checked) -> dict[str, Any]:
    return {
        "tool": checked.request.tool,
        "server": checked.request.server,
        "listed": any(ruling.effect != "deny" for ruling in checked.rulings),
        "rulings": [
            {"effect": one.effect, "rule": one.rule, "ifArguments": one.if_arguments} for one in checked.rulings
        ],
        "notAbout": [{"rule": rule, "argument": name} for rule, name in checked.not_about],
    }
