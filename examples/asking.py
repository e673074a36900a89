"""Asking the user in the middle of a tool, in both eras, without doing anything twice. Run this file to see it.

In the handshake era the question is a request to the client, and the handler waits for the answer. In the stateless era
the question ends the call; the client calls again with the answer, and the handler runs again from its top. What must
happen once, or would come out differently the second time, belongs in `ctx.step`.
"""

from __future__ import annotations

import asyncio
import itertools
from dataclasses import dataclass
from typing import Any, Literal

from hinge import Client, Context, Declined, Server

server = Server("tickets", version="1.0")

numbers = itertools.count(1)
runs = itertools.count(1)


@dataclass
class Seat:
    """What the user is asked for."""

    row: Literal["front", "middle", "back"]
    meals: int = 0


@dataclass
class Ticket:
    """What the caller gets."""

    number: int
    city: str
    seat: Seat


def reserve(city: str) -> int:
    """Something that must not happen twice."""
    print(f"    reserve({city!r})")
    return next(numbers)


@server.tool
async def book(ctx: Context, city: str) -> Ticket:
    """Book a journey.

    Args:
        city: where to
    """
    print(f"    book({city!r}), run {next(runs)}")
    number: int = await ctx.step(reserve, city)
    try:
        seat = await ctx.elicit(f"Which seat to {city}?", Seat)
    except Declined:
        seat = Seat("back")
    if seat.meals > 1 and not await ctx.elicit(f"{seat.meals} meals for one person: is that right?", bool):
        seat.meals = 1
    return Ticket(number, city, seat)


def answer(form: Any) -> dict[str, Any]:
    """The user: fills in the form that the server sent."""
    print(f"    the user is asked: {form.message}")
    return {"row": "front", "meals": 2} if "seat" in form.message else {"value": True}


async def main() -> None:
    """The same tool, asked by a client of each era."""
    for era in ("2025", "2026"):
        print(f"era {era}")
        async with Client(server, era=era, on_elicit=answer) as client:
            print("   ", await client.call_tool("book", {"city": "Oslo"}, returns=Ticket))


if __name__ == "__main__":
    asyncio.run(main())
