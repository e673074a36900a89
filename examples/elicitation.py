"""Elicitation: a tool requests input from the user, in both eras, without side effects happening twice. Run this file.

In the handshake era elicitation is a request to the client, and the handler waits for the response. In the stateless era the
call ends; the client repeats it with the response, and the handler runs again from the start. Put code that must run once,
or that may return something else the second time, into `ctx.step`.
"""

from __future__ import annotations

import asyncio
import itertools
from dataclasses import dataclass
from typing import Any, Literal

from gemel import Client, Context, Declined, Server

server = Server("tickets", version="1.0")

numbers = itertools.count(1)
runs = itertools.count(1)


@dataclass
class Seat:
    """The form that the user fills in."""

    row: Literal["front", "middle", "back"]
    meals: int = 0


@dataclass
class Ticket:
    """The result of the tool."""

    number: int
    city: str
    seat: Seat


def reserve(city: str) -> int:
    """Reserve a ticket; must run only once per call."""
    print(f"    reserve({city!r})")
    return next(numbers)


@server.tool
async def book(ctx: Context, city: str) -> Ticket:
    """Book a journey.

    Args:
        city: The destination.
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
    """Fill in a form of the server, in place of a user."""
    print(f"    elicitation: {form.message}")
    return {"row": "front", "meals": 2} if "seat" in form.message else {"value": True}


async def main() -> None:
    """Call the tool with a client of each era."""
    for era in ("2025", "2026"):
        print(f"era {era}")
        async with Client(server, era=era, on_elicit=answer) as client:
            print("   ", (await client.call_tool("book", {"city": "Oslo"}, returns=Ticket)).data)


if __name__ == "__main__":
    asyncio.run(main())
