"""What a server offers, judged: the difference that an edit makes to its contract, and what hosts don't support of it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from gemel.client.methods import ClientMethods
from gemel.client.requests import read_result
from gemel.client.tools import KnownTool
from gemel.contracts.compare import SEVERITIES, differences
from gemel.contracts.contract import Contract, definitions, identity
from gemel.contracts.lock_file import is_lock, read_lock
from gemel.doctor.check import check, offers_of
from gemel.errors import Difference, InvalidResponse, StartError
from gemel.schema.methods import LISTS, METHODS, ListName
from gemel.schema.tools import CallToolResult, Tool

#: Differences and findings of one event.
MAX_ITEMS = 1000


def contract_of(client: ClientMethods, listed: Mapping[ListName, Sequence[Any]]) -> Contract:
    """Return what was listed as a contract. Raises InvalidResponse if that is not possible."""
    revision = client.protocol_version
    found = {of.field: definitions(of.member, listed.get(of.name, ()), revision) for of in LISTS.values()}
    server = identity(client.server_info, revision)
    return Contract(revision=revision, server=server, instructions=client.instructions, **found)


def compare_contracts(before: Contract | None, after: Contract, lock: Path | None) -> dict[str, Any]:
    """Return the members of an event "contract".

    Args:
        before: The contract before an edit; None if it is not known.
        after: The contract after it.
        lock: The path of a lock file, if there may be one.
    """
    changes = [] if before is None else differences(before, after)
    summary = "" if before is None else _summary(changes, "This edit")
    fields: dict[str, Any] = {"differences": _shown(changes), "summary": summary}
    if lock is not None and is_lock(str(lock)):
        try:
            drift = differences(read_lock(lock), after)
            compared = {"differences": _shown(drift), "summary": _summary(drift, "The difference from the lock")}
        except StartError as exc:
            compared = {"error": str(exc)}
        fields["lock"] = {"path": lock.name, **compared}
    return fields


def _shown(changes: Sequence[Difference]) -> list[dict[str, Any]]:
    worst_first = sorted(changes, key=lambda change: -SEVERITIES.index(change.severity))
    return [{**msgspec.to_builtins(change), "text": str(change)} for change in worst_first[:MAX_ITEMS]]


def _summary(changes: Sequence[Difference], what: str) -> str:
    """One sentence: how many changes break clients."""
    count = Counter(change.severity for change in changes)
    if not changes:
        return f"{what} changes nothing for clients" if what == "This edit" else "There is no difference from the lock"
    parts = []
    if count["breaking"]:
        parts.append(f"breaks clients in {_places(count['breaking'])}")
    if count["may break"]:
        parts.append(f"may break clients in {_places(count['may break'])}")
    return f"{what} {' and '.join(parts)}" if parts else f"{what} breaks no client"


def _places(count: int) -> str:
    return "one place" if count == 1 else f"{count} places"


def find_problem(method: str, params: Mapping[str, Any], result: dict[str, Any], tools: Sequence[Tool]) -> str | None:
    """Return why clients refuse the result of a call: it is none of the protocol, or does not fit the output schema.

    Args:
        method: The method of the call.
        params: Its params.
        result: Its result, as it came.
        tools: The listed tools.
    """
    row = METHODS.get(method)
    if row is None or row.result is None or "task" in params:  # a task has another result
        return None
    try:
        value = read_result(msgspec.Raw(msgspec.json.encode(result)), method, row.result)
        if isinstance(value, CallToolResult):
            for tool in tools:
                if tool.name == params.get("name"):
                    KnownTool(tool, ()).check(value)
    except InvalidResponse as exc:
        return str(exc)
    return None


def find_problems(client: ClientMethods, listed: Mapping[ListName, Sequence[Any]]) -> list[dict[str, Any]]:
    """Return what known hosts don't support of what was listed, as items of an event "findings"."""
    info = client.server_info
    offers = offers_of(info.name if info is not None else "", listed)
    return [msgspec.to_builtins(finding) for finding in check(offers)[:MAX_ITEMS]]
