"""Starts a server over stdio, lists what it offers and makes one call, with the client of the official SDK, version 2.

python official.py JOB RESULT, in an environment that has the package mcp: two files with JSON. The job has the command line, the
working directory, the variables, a file for what the server prints, a call as in a data file, and how the protocol is negotiated:
"auto" or "legacy", the handshake.
"""

from __future__ import annotations

import asyncio
import json
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any, TextIO

from mcp import Client, MCPError, StdioServerParameters, stdio_client


async def drive(job: dict[str, Any], log: TextIO) -> dict[str, Any]:
    """Do one job; the result has the version of the protocol, what is listed, and the answer to the call."""
    command, *arguments = job["command"]
    parameters = StdioServerParameters(command=command, args=arguments, env=job["environment"], cwd=job["folder"])
    async with Client(stdio_client(parameters, log), mode=job["mode"]) as client:
        capabilities = _plain(client.server_capabilities)
        lists = {
            "instructions": client.instructions,
            "capabilities": capabilities,
            "tools": await _all(client.list_tools, "tools"),
            "prompts": await _all(client.list_prompts, "prompts") if "prompts" in capabilities else [],
            "resources": await _all(client.list_resources, "resources") if "resources" in capabilities else [],
            "templates": [],
        }
        if "resources" in capabilities:
            with suppress(MCPError):  # servers with resources and without templates
                lists["templates"] = await _all(client.list_resource_templates, "resource_templates")
        return {"version": client.protocol_version, "lists": lists, "answer": await _answer(client, job["call"])}


async def _all(fetch: Any, field: str) -> list[Any]:
    found: list[Any] = []
    cursor = None
    while True:
        page = await fetch(cursor=cursor)
        found += map(_plain, getattr(page, field))
        cursor = page.next_cursor
        if not cursor:
            return found


async def _answer(client: Any, call: dict[str, Any]) -> Any:
    if call["read"]:
        return _plain(await client.read_resource(call["read"]))
    if call["prompt"]:
        return _plain(await client.get_prompt(call["prompt"], call["arguments"]))
    return _plain(await client.call_tool(call["tool"], call["arguments"]))


def _plain(model: Any) -> Any:
    return model.model_dump(mode="json", by_alias=True, exclude_none=True)


def main() -> None:
    """Do the job."""
    given, result = map(Path, sys.argv[1:])
    job = json.loads(given.read_text(encoding="utf-8"))
    with open(job["log"], "a", encoding="utf-8") as log:
        found = asyncio.run(asyncio.wait_for(drive(job, log), 90))
    result.write_text(json.dumps(found), encoding="utf-8")


if __name__ == "__main__":
    main()
