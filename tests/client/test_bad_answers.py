"""An answer that breaks the rules fails its call at once: no time limit is set, so nothing else can end the call."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import Any

import pytest

from gemel import Client, InvalidResponse, Limits

LINE = 20_000
#: The first call is answered when the second one has come, so that both are in flight; then the second one, correctly.
SERVER = """
import json, sys
form, first = sys.argv[1], None
for line in sys.stdin:
    message = json.loads(line)
    if "id" not in message:
        continue
    if message["method"] == "server/discover":
        result = {"supportedVersions": ["2026-07-28"], "capabilities": {}, "resultType": "complete"}
    elif message["method"] == "initialize":
        result = {"protocolVersion": "2025-11-25", "capabilities": {}, "serverInfo": {"name": "x", "version": "1"}}
    else:
        result = {"resultType": "complete", "content": []}
    good = {"jsonrpc": "2.0", "id": message["id"], "result": result}
    if message["method"] == "tools/call" and first is None:
        first = good
        continue
    if message["method"] == "tools/call":
        long = {**result, "content": [{"type": "text", "text": "x" * 50_000}]}
        print({
            "float id": json.dumps({**first, "id": float(first["id"])}),
            "id in a list": json.dumps({**first, "id": [first["id"]]}),
            "text before": "INFO: answer " + json.dumps(first),
            "braces before": "INFO {pid: 7} " + json.dumps(first),
            "NUL before": chr(0) + json.dumps(first),
            "over the limit": json.dumps({**first, "result": long}),
            "over the limit, id last": json.dumps({"result": long, "id": first["id"]}),
            "over the limit, other member first": json.dumps({"x": {"y": 1}, "result": long, "id": first["id"]}),
            "over the limit, text before": "INFO " + json.dumps({**first, "result": long}),
        }[form])
    print(json.dumps(good), flush=True)
"""
FORMS = (
    "float id",
    "id in a list",
    "text before",
    "braces before",
    "NUL before",
    "over the limit",
    "over the limit, id last",
    "over the limit, other member first",
    "over the limit, text before",
)


@pytest.mark.parametrize("era", ["2025", "2026"])
@pytest.mark.parametrize("form", FORMS)
async def test_a_malformed_answer_fails_its_call_and_no_other(form: str, era: Any, tmp_path: Path) -> None:
    path = tmp_path / "server.py"
    path.write_text(SERVER)
    limits = Limits(line=LINE, retries=0)
    async with Client([sys.executable, str(path), form], era=era, limits=limits) as client:
        bad = asyncio.create_task(client.call_tool("a", idle=None, total=None))
        good = asyncio.create_task(client.call_tool("b"))
        with pytest.raises(InvalidResponse):
            await bad
        assert (await good).content == []
        assert client.connected
