"""The server of the demo: a few tools that between them use most of what a tool can do."""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import dataclass
from typing import Literal

from hinge import Context, Declined, Server, ToolError

server = Server("city-guide", version="1.0", instructions="Weather, tickets and walks.")

#: How often something happened, so that a client can see it.
happened: Counter[str] = Counter()


@dataclass
class Day:
    """The weather of a day."""

    name: str
    high: float


@dataclass
class Forecast:
    """The weather of some days in one city."""

    city: str
    days: list[Day]


@dataclass
class Wishes:
    """What the user is asked for."""

    seat: Literal["window", "aisle"]
    meal: bool = False


@dataclass
class Ticket:
    """A booking, and how much work it was."""

    city: str
    seat: str
    runs: int
    charges: int


@server.tool(annotations={"read_only_hint": True})
def forecast(city: str, days: int = 2) -> Forecast:
    """The weather of the coming days.

    Args:
        city: name of the city
        days: how many days ahead, at most 7
    """
    if days > 7:
        raise ToolError(f"Nobody knows {days} days ahead: ask for 7 at most")
    names = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
    return Forecast(city, [Day(name, 21.5 - len(name)) for name in names[:days]])


@server.tool
async def tour(ctx: Context, stops: int = 3) -> str:
    """Walk through the city, and say where one is."""
    for stop in range(1, stops + 1):
        await ctx.report_progress(stop, stops, f"stop {stop}")
        await asyncio.sleep(0.01)
    return f"Saw {stops} sights."


@server.tool
async def book(ctx: Context, city: str, booking: str) -> Ticket:
    """Book a seat; the user is asked which one.

    Args:
        city: where to
        booking: a name for this booking
    """
    happened[f"{booking} runs"] += 1
    await ctx.step(charge, booking)
    try:
        wishes = await ctx.elicit(f"Which seat to {city}?", Wishes)
    except Declined:
        wishes = Wishes("aisle")
    return Ticket(city, wishes.seat, happened[f"{booking} runs"], happened[f"{booking} charges"])


def charge(booking: str) -> None:
    """What must happen once, however often the handler runs."""
    happened[f"{booking} charges"] += 1


@server.tool
async def wait(ctx: Context, name: str) -> str:
    """Wait for ever, until the client no longer wants to."""
    try:
        await ctx.report_progress(0, message="waiting")
        await asyncio.Event().wait()
    except asyncio.CancelledError:
        happened[f"{name} cancelled"] += 1
        raise
    return "never"


@server.tool
def how_often(what: str) -> int:
    """How often something happened here."""
    return happened[what]


if __name__ == "__main__":
    server.run()
