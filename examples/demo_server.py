"""The server of `demo.py` and `client.py`: typed results, errors, progress, elicitation, cancellation."""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import dataclass
from typing import Literal

from gemel import Context, Declined, Server, ToolError

server = Server("city-guide", version="1.0", instructions="Weather, tickets and walks.")

#: Counts of events, for the tool `how_often`.
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
    """The form that the user fills in."""

    seat: Literal["window", "aisle"]
    meal: bool = False


@dataclass
class Ticket:
    """A booking, with the number of runs of the handler and of charges."""

    city: str
    seat: str
    runs: int
    charges: int


@server.tool(annotations={"read_only_hint": True})
def forecast(city: str, days: int = 2) -> Forecast:
    """The weather of the coming days.

    Args:
        city: Name of the city.
        days: Number of days, at most 7.
    """
    if days > 7:
        raise ToolError(f"Nobody knows {days} days ahead: ask for 7 at most")
    names = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
    return Forecast(city, [Day(name, 21.5 - len(name)) for name in names[:days]])


@server.tool
async def tour(ctx: Context, stops: int = 3) -> str:
    """Walk through the city and report progress."""
    for stop in range(1, stops + 1):
        await ctx.report_progress(stop, stops, f"stop {stop}")
        await asyncio.sleep(0.01)
    return f"Saw {stops} sights."


@server.tool
async def book(ctx: Context, city: str, booking: str) -> Ticket:
    """Book a seat; the user is asked which one.

    Args:
        city: The destination.
        booking: A name for this booking.
    """
    happened[f"{booking} runs"] += 1
    await ctx.step(charge, booking)
    try:
        wishes = await ctx.elicit(f"Which seat to {city}?", Wishes)
    except Declined:
        wishes = Wishes("aisle")
    return Ticket(city, wishes.seat, happened[f"{booking} runs"], happened[f"{booking} charges"])


def charge(booking: str) -> None:
    """Charge for a booking; runs once per call, even if the handler runs again."""
    happened[f"{booking} charges"] += 1


@server.tool
async def wait(ctx: Context, name: str) -> str:
    """Wait until the client cancels the call."""
    try:
        await ctx.report_progress(0, message="waiting")
        await asyncio.Event().wait()
    except asyncio.CancelledError:
        happened[f"{name} cancelled"] += 1
        raise
    return "never"


@server.tool
def how_often(what: str) -> int:
    """Return how often an event happened."""
    return happened[what]


if __name__ == "__main__":
    server.run()
