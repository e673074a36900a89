"""A program that answers with the hostile corpus: the number of the case stands in the request.

Run as `python -m tests.browser.servers.corpus`. A request with `case` in its params, or in the arguments of its tool, gets
the answers of that case; a call with `ask` gets that request of the server before its result. All else is answered correctly.
"""

from __future__ import annotations

import json
import sys
from typing import Any

from tests.hostile.cases import Era
from tests.hostile.client_cases import ask_cases, client_cases, correct


def write(data: bytes) -> None:
    """Write one line."""
    sys.stdout.buffer.write(data + b"\n")
    sys.stdout.flush()


def main() -> None:
    """Serve until the input ends."""
    cases, asks = client_cases(), ask_cases()
    era: Era = "2025"
    for line in sys.stdin:
        message: dict[str, Any] = json.loads(line)
        if "id" not in message or "method" not in message:
            continue
        method, params = message["method"], message.get("params") or {}
        if method == "server/discover":
            era = "2026"
        chosen = {**params, **(params.get("arguments") or {})}
        if "case" in chosen:
            for text in cases[chosen["case"]].answers:
                write(text.replace(b"@ID@", json.dumps(message["id"]).encode()))
            continue
        if "ask" in chosen:
            write(json.dumps({"jsonrpc": "2.0", "id": f"ask-{chosen['ask']}", **asks[chosen["ask"]].message}).encode())
        write(json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": correct(method, era)}).encode())


if __name__ == "__main__":
    main()
