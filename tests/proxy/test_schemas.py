"""Schemas of upstream servers, as callers of a proxy see them."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from msgspec import Raw

from gemel.proxy.translation import result_for


@pytest.mark.parametrize("target", ["2025-06-18", "2026-07-28"])
def test_a_proxy_lists_schemas_without_references(target: str) -> None:
    colours = {"$defs": {"C": {"enum": ["red", "blue"]}}, "type": "object", "properties": {"c": {"$ref": "#/$defs/C"}}}
    tool = {"name": "paint", "inputSchema": colours, "outputSchema": colours, "x-unknown": [1.5, {"$ref": "#/$defs/C"}]}
    listed: dict[str, Any] = {
        "tools": [tool, {"name": "plain", "inputSchema": {"type": "object"}}],
        "ttlMs": 0,
        "cacheScope": "private",
    }
    result = result_for("tools/list", Raw(msgspec.json.encode(listed)), "2026-07-28", target)
    tools = msgspec.json.decode(msgspec.json.encode(result["tools"]))
    plain = {"type": "object", "properties": {"c": {"enum": ["red", "blue"]}}}
    assert (tools[0]["inputSchema"], tools[0]["outputSchema"]) == (plain, plain)
    assert tools[0]["x-unknown"] == tool["x-unknown"]
    assert tools[1] == {"name": "plain", "inputSchema": {"type": "object"}}


@pytest.mark.parametrize("hint", [{}, {"ttlMs": -1, "cacheScope": "shared"}, {"ttlMs": "60", "cacheScope": None}])
def test_a_proxy_tells_nobody_to_keep_what_its_server_labels_wrongly(hint: dict[str, Any]) -> None:
    listed = Raw(msgspec.json.encode({"tools": [], **hint}))
    result = result_for("tools/list", listed, "2026-07-28", "2026-07-28")
    assert (result["ttlMs"], result["cacheScope"]) == (0, "private")
