"""The gateway of `gateway.py` in code mode: a model calls its tools from scripts, each call under the policy, with a receipt.

`python examples/policy/code_mode.py` runs two scripts as a model would write them; the person at the terminal allows what
costs at most 10. Needs the extra `gemel[code]`.
"""

import asyncio
import json
import os
import sys
from pathlib import Path
from tempfile import mkdtemp

from gemel import Client, ElicitFormParams, Server
from gemel.code import CodeMode
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
    middleware=[
        CodeMode(trust_hints=["library"]),
        Receipts(RECEIPTS, sync="written"),
        Policy(FOLDER / "policy.toml"),
    ],
)

LOOK = """
from library import search

len(await search(word="tea")) > 0
"""
PAY = """
import asyncio
from bank import pay
from mail import send

async def attempt(amount: int) -> str:
    try:
        return await pay(to="Ann", amount=amount, currency="EUR")
    except RuntimeError as refused:
        return str(refused)

paid = await asyncio.gather(attempt(7), attempt(19), attempt(700))
print(await send(to=["ann@example.com"], text=paid[0]))
paid
"""


def person(form: ElicitFormParams) -> dict[str, bool]:
    """Answer as the person would who is asked."""
    allows = '"amount": 7' in form.message
    print(f"  asked: {form.message.splitlines()[0]} {'yes' if allows else 'no'}")
    return {"allow": allows}


async def main() -> None:
    """Run the scripts as a model would."""
    async with Client(server, on_elicit=person) as client:
        print("listed:", ", ".join(tool.name for tool in await client.list_tools()))
        for tool, script in (("query_code", LOOK), ("run_code", PAY)):
            result = await client.call_tool(tool, {"code": script}, raise_on_error=False)
            print(f"{tool}:\n{result.text}")
    show_receipts()


def show_receipts() -> None:
    """Print what `gemel receipts show` would, in short."""
    print(f"{verify(RECEIPTS)[0].receipts} receipts:")
    for line in map(json.loads, RECEIPTS.read_text().splitlines()):
        if line["kind"] == "call":
            print(f"- {line['tool']}: {line['effect']}, {line['outcome']}")


if __name__ == "__main__":
    asyncio.run(main())
