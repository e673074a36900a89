"""A program that speaks revision 2025-11-25 over stdio and is hostile to whoever shows what it says."""

from __future__ import annotations

import base64
import json
import sys
from typing import Any

MARKUP = "<img src=x onerror=\"document.title='pwned'\"><script>document.title='pwned'</script>"
SVG = "<svg xmlns='http://www.w3.org/2000/svg'><script>top.document.title='pwned'</script></svg>"
BIDI = "safe\u202egnp.exe\u2066\u200b"
DEEP: dict[str, Any] = {"type": "object"}
for _ in range(60):
    DEEP = {"type": "object", "properties": {"inner": DEEP}, "required": ["inner"], "title": MARKUP}
WIDE = {f"field{number}": {"type": "string", "description": MARKUP} for number in range(1000)}
TOOLS: list[dict[str, Any]] = [
    {
        "name": MARKUP,
        "description": MARKUP,
        "title": MARKUP,
        "inputSchema": {"type": "object", "properties": {MARKUP: {"type": "string", "default": MARKUP}}},
    },
    {"name": BIDI, "description": BIDI, "inputSchema": {"type": "object"}},
    {"name": "x" * 5000, "description": "y" * 50_000, "inputSchema": {"type": "object"}},
    {
        "name": "recursive",
        "inputSchema": {
            "type": "object",
            "$defs": {
                "node": {"type": "object", "properties": {"next": {"$ref": "#/$defs/node"}}, "required": ["next"]}
            },
            "properties": {"head": {"$ref": "#/$defs/node"}, "self": {"$ref": "#"}},
            "required": ["head"],
        },
    },
    {
        "name": "loop",
        "inputSchema": {
            "type": "object",
            "properties": {"a": {"$ref": "#/properties/b"}, "b": {"$ref": "#/properties/a"}},
        },
    },
    {"name": "deep", "inputSchema": DEEP},
    {"name": "wide", "inputSchema": {"type": "object", "properties": WIDE}},
    {
        "name": "__proto__",
        "inputSchema": {
            "type": "object",
            "properties": {"__proto__": {"type": "string"}, "constructor": {"type": "string"}},
            "required": ["__proto__"],
        },
    },
    {
        "name": "nonsense",
        "inputSchema": {
            "type": "object",
            "properties": {
                "a": {"enum": [[], {}, None]},
                "b": {"type": "array", "items": 7},
                "c": 5,
                "d": {"anyOf": "no"},
                "e": {"type": ["string", {}]},
                "f": {"type": "string", "pattern": "(a+)+$", "minLength": "x"},
                "g": {"oneOf": [{"const": MARKUP, "title": {}}]},
            },
            "required": "all",
        },
    },
    {"name": "results", "inputSchema": {"type": "object"}},
    {"name": "question", "inputSchema": {"type": "object"}},
]
CONTENT: list[Any] = [
    {"type": "text", "text": MARKUP},
    {"type": "text", "text": BIDI},
    {"type": "text", "text": {"toString": 1, "valueOf": 1}},
    {"type": {"toString": 1}, "annotations": {"audience": [{"toString": 1}], "lastModified": {"toString": 1}}},
    {"type": "text", "text": "z" * 300_000},
    {"type": "image", "data": "PHNjcmlwdD4=", "mimeType": "text/html"},
    {"type": "image", "data": "not base64!", "mimeType": "image/png"},
    {"type": "image", "data": "AAAA", "mimeType": "image/png"},
    {
        "type": "image",
        "data": base64.b64encode(SVG.encode()).decode(),
        "mimeType": "image/svg+xml",
    },
    {"type": "resource_link", "uri": "javascript:document.title='pwned'", "name": MARKUP},
    {"type": "resource", "resource": {"uri": "data:text/html," + MARKUP, "mimeType": "text/html", "text": MARKUP}},
]


def answer(method: str, params: dict[str, Any]) -> dict[str, Any]:
    """The result of a request."""
    if method == "initialize":
        return {
            "protocolVersion": "2025-11-25",
            "capabilities": {"tools": {}, "resources": {}, "prompts": {}},
            "serverInfo": {"name": MARKUP, "version": MARKUP, "title": MARKUP},
            "instructions": MARKUP,
        }
    if method == "tools/list":
        return {"tools": TOOLS}
    if method == "resources/list":
        return {"resources": [{"uri": "javascript:document.title='pwned'", "name": MARKUP, "mimeType": MARKUP}]}
    if method == "resources/templates/list":
        return {"resourceTemplates": [{"uriTemplate": "x:///{__proto__}{" + "a," * 50 + "}", "name": MARKUP}]}
    if method == "prompts/list":
        return {"prompts": [{"name": MARKUP, "arguments": [{"name": MARKUP}, {"name": "__proto__"}]}]}
    if method == "tools/call" and params["name"] == "results":
        return {"content": CONTENT, "structuredContent": {"__proto__": MARKUP, MARKUP: [{MARKUP: MARKUP}]}}
    if method == "tools/call":
        return {"content": [{"type": "text", "text": json.dumps(params["arguments"])}]}
    return {}


def send(message: dict[str, Any]) -> None:
    """Write one message."""
    print(json.dumps({"jsonrpc": "2.0", **message}), flush=True)


def main() -> None:
    """Serve until the input ends."""
    print(MARKUP + "\x1b[31m\u202e", file=sys.stderr, flush=True)
    asked: Any = None
    for line in sys.stdin:
        message = json.loads(line)
        params = message.get("params") or {}
        if message.get("method") == "tools/call" and params["name"] == "question":
            asked = message["id"]
            send(
                {
                    "id": "q",
                    "method": "elicitation/create",
                    "params": {
                        "mode": "url",
                        "message": MARKUP,
                        "url": "javascript:document.title='pwned'",
                        "elicitationId": "1",
                    },
                }
            )
        elif "method" in message and "id" in message:
            send({"id": message["id"], "result": answer(message["method"], params)})
        elif message.get("id") == "q":
            send({"id": asked, "result": {"content": [{"type": "text", "text": MARKUP}]}})


if __name__ == "__main__":
    main()
