"""A gateway of three servers of others, each a process of its own, under the policy in `policy.toml`, with receipts of its calls.

`python examples/policy/gateway.py` calls it as an agent would; the person at the terminal allows what costs at most 10.
`gemel run examples/policy/gateway.py` serves it. `RECEIPTS` is the file of the receipts, by default one in a new folder;
`SERVERS` is a configuration with the three servers, by default those of `servers.py`.
"""

import asyncio
import json
import os
import sys
from pathlib import Path
from tempfile import mkdtemp

from gemel import Client, ElicitFormParams, Server
from gemel.policies import Policy
from gemel.receipts import Receipts, verify

FOLDER = Path(__file__).parent
RECEIPTS = Path(os.environ.get("RECEIPTS") or Path(mkdtemp(), "receipts.jsonl"))

SERVERS = os.environ.get("SERVERS") or {
    "mcpServers": {
        name: {"command": sys.executable, "args": ["-m", "gemel", "run", f"{FOLDER}/servers.py:{name}"]}
        for name in ("library", "mail", "bank")
    }
}

server = Server.from_config(
    SERVERS,
    middleware=[Receipts(RECEIPTS, sync="written"), Policy(FOLDER / "policy.toml")],
)

CALLS = (
    ("library_search", {"word": "tea"}),
    ("library_discard", {"title": "A short history of tea"}),
    ("mail_send", {"to": ["ann@example.com", "bob@example.com"], "text": "Tea?"}),
    ("mail_send", {"to": ["ann@example.com", "eve@example.org"], "text": "Tea?"}),
    ("bank_pay", {"to": "Ann", "amount": 7, "currency": "EUR"}),
    ("bank_pay", {"to": "Ann", "amount": 19, "currency": "EUR"}),
    ("bank_pay", {"to": "Ann", "amount": 700, "currency": "EUR"}),
    ("bank_pay", {"to": "Ann", "amount": 7}),
)


def person(form: ElicitFormParams) -> dict[str, bool]:
    """Answer as the person would who is asked."""
    allows = '"amount": 7' in form.message
    print(f"  asked: {form.message.splitlines()[0]} {'yes' if allows else 'no'}")
    return {"allow": allows}


async def main() -> None:
    """Call the tools as an agent would."""
    async with Client(server, on_elicit=person) as client:
        print("listed:", ", ".join(tool.name for tool in await client.list_tools()))
        for name, arguments in CALLS:
            print(name, arguments)
            result = await client.call_tool(name, arguments, raise_on_error=False)
            print(f"  {result.text}")
    show_receipts()


def show_receipts() -> None:
    """Print what `gemel receipts show` would, in short."""
    print(f"{verify(RECEIPTS)[0].receipts} receipts:")
    for line in map(json.loads, RECEIPTS.read_text().splitlines()):
        if line["kind"] == "call":
            print(f"- {line['tool']}: {line['effect']}, {line['outcome']}")


if __name__ == "__main__":
    asyncio.run(main())
