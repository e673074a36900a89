"""Servers that others wrote: what they said plays as well as what ours says. Skipped where they aren't installed.

`python -m tests.interop.peers` installs them.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from gemel import CallError, Client, ElicitFormParams
from gemel.testing import Recording
from tests.interop.peers import locate

PEERS = locate()
COMMANDS = {"time": PEERS.time_server, "everything": [*PEERS.everything, "stdio"]}
INSTALLED = {name for name, command in COMMANDS.items() if Path(command[0]).exists()}

CALLS: dict[str, list[tuple[str, dict[str, Any]]]] = {
    "time": [
        ("convert_time", {"source_timezone": "UTC", "time": "12:00", "target_timezone": "Asia/Tokyo"}),
        ("get_current_time", {"timezone": "UTC"}),
        ("convert_time", {"source_timezone": "Nowhere", "time": "12:00", "target_timezone": "UTC"}),
    ],
    "everything": [
        ("echo", {"message": "hello"}),
        ("trigger-long-running-operation", {"duration": 0.2, "steps": 4}),
        ("get-structured-content", {"location": "New York"}),
        ("trigger-sampling-request", {"prompt": "x", "maxTokens": 10}),
        ("trigger-elicitation-request", {}),
        ("get-roots-list", {}),
        ("no-such-tool", {}),
    ],
}


def filled(form: ElicitFormParams) -> dict[str, Any]:
    needed = form.requested_schema.get("required", [])
    return dict.fromkeys(needed, "someone")


async def visit(target: Any, name: str) -> list[Any]:
    """Everything that an application sees."""
    seen: list[Any] = []
    async with Client(target, on_elicit=filled, on_sample=lambda params: "yes", on_roots=["/work"]) as client:
        seen.append([tool.name for tool in await client.list_tools()])
        for tool, arguments in CALLS[name]:
            try:
                result = await client.call_tool(
                    tool, arguments, on_progress=lambda progress: seen.append(progress.progress), raise_on_error=False
                )
                seen.append((result.text, result.structured_content))
            except CallError as exc:
                seen.append(str(exc))
    return seen


@pytest.mark.parametrize("name", COMMANDS)
async def test_what_a_foreign_server_said_plays_and_is_what_it_says_again(name: str, tmp_path: Path) -> None:
    command, path = COMMANDS[name], tmp_path / f"{name}.jsonl"
    if name not in INSTALLED and "REQUIRE_PEERS" not in os.environ:
        pytest.skip(f"the {name} server isn't installed: `make interop`")
    first = await visit(Recording(path, command, stderr="discard"), name)
    played = Recording(path)
    assert await visit(played, name) == first
    played.check(all_played=True)
    now = ["result.structuredContent.datetime", "result.content.*.text"] if name == "time" else []
    await Recording(path, ignore=now).verify(command, stderr="discard")
