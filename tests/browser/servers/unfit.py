"""A server that is not made with Gemel. It prints to standard output, and its results are not what it promises."""

from __future__ import annotations

import json
import sys

DAYS = {"type": "array", "items": {"type": "object", "properties": {"low": {"type": "number"}}}}
NULL = {"type": "null"}
NUMBERS = r"^(?!^[-+.]*$)[+-]?0*\d*\.?\d*$"
TOOLS = [
    {
        "name": "forecast",
        "inputSchema": {"type": "object"},
        "outputSchema": {"type": "object", "properties": {"days": DAYS}, "required": ["days"]},
    },
    {"name": "text", "inputSchema": {"type": "object"}},
    {
        "name": "search",
        "inputSchema": {
            "type": "object",
            "properties": {
                "limit": {"anyOf": [{"type": "integer"}, NULL], "default": None},
                "price": {"anyOf": [{"type": "number"}, {"type": "string", "pattern": NUMBERS}, NULL], "default": None},
                "word": {"type": ["string", "null"], "default": None},
                "kind": {"anyOf": [{"enum": ["new", "old"], "type": "string"}, NULL], "default": None},
                "depth": {"anyOf": [{"type": "integer"}, NULL], "default": 3},
            },
        },
    },
]
ANSWERS = {
    "initialize": {
        "protocolVersion": "2025-11-25",
        "serverInfo": {"name": "unfit", "version": "1"},
        "capabilities": {"tools": {}},
    },
    "tools/list": {"tools": TOOLS},
    "forecast": {"content": [], "structuredContent": {"days": [{"low": 1}, {"low": "two"}]}},
    "text": {"content": "just text"},
    "search": {"content": []},
}

print("Unfit 1.0 is listening", flush=True)
for line in sys.stdin:
    message = json.loads(line)
    answer = ANSWERS.get(message.get("params", {}).get("name", message["method"]))
    if "id" in message:
        body = {"error": {"code": -32601, "message": "Method not found"}} if answer is None else {"result": answer}
        print(json.dumps({"jsonrpc": "2.0", "id": message["id"], **body}), flush=True)
