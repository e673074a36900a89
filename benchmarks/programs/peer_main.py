"""What the programs `*_rows.py` have in common, whatever the library: models, a text, access tokens, a client on command.

Only the standard library and pydantic: it runs in the peers' environments too.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from typing import Any

from pydantic import BaseModel

from benchmarks.programs.memory_main import on_command

_LINE = '2026-07-28 12:00:00 INFO weather: "Zürich" was asked for\n'
#: A log of 100,000 characters, with what JSON has to escape.
REPORT = (_LINE * 2000)[:100_000]
STEPS = 20
#: How many tools there are where they are listed.
TOOLS = 50
ISSUER, AUDIENCE, SCOPE = "https://login.example.com", "https://bench.example.com/mcp", "notes"
#: Callers, each with a token of its own.
CALLERS = 32


class Line(BaseModel):
    article: str
    price: float
    count: int


class Order(BaseModel):
    id: int
    customer: str
    express: bool
    lines: list[Line]


class Receipt(BaseModel):
    id: int
    customer: str
    lines: list[Line]
    total: float


def receipt_for(order: Order) -> Receipt:
    """What an order costs."""
    total = sum(line.price * line.count for line in order.lines)
    return Receipt(id=order.id, customer=order.customer, lines=order.lines, total=total)


def tokens(sign: Callable[[dict[str, Any]], str]) -> list[str]:
    """The JSON Web Tokens of the callers."""
    claims = {"iss": ISSUER, "aud": AUDIENCE, "client_id": "app", "scope": SCOPE, "exp": int(time.time()) + 3600}
    return [sign({**claims, "sub": f"caller {number}"}) for number in range(CALLERS)]


def call_on_command(opened: AbstractAsyncContextManager[Callable[[int], Awaitable[int]]]) -> None:
    """Open a client, and let it call as `on_command` says."""

    async def run() -> None:
        async with opened as call:
            await on_command(call)

    asyncio.run(run())
