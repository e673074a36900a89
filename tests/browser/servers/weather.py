"""A server with something for each view of the inspector: tables, pictures, sounds, questions, progress, logs, an app."""

from __future__ import annotations

import asyncio
import io
import math
import struct
import sys
import wave
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from msgspec import Meta

from gemel import Apps, Audio, Changed, Context, Declined, Image, Message, Server, ToolError

server = Server(
    "weather", version="2.1.0", title="Weather station", instructions="Forecasts, maps and bookings for some cities."
)
CITIES = ("Bergen", "Lisbon", "Oslo", "Osaka", "Tokyo")
notes: dict[str, str] = {"today": "Light wind from the north-east."}


@dataclass
class Day:
    """The weather of a day."""

    day: str
    sky: Literal["sunny", "cloudy", "rain"]
    low: float
    high: float
    wind: int


@server.tool(annotations={"read_only_hint": True, "open_world_hint": False})
def forecast(
    city: str, days: Annotated[int, Meta(ge=1, le=7)] = 3, units: Literal["metric", "imperial"] = "metric"
) -> list[Day]:
    """The weather of the coming days, one row for each.

    Args:
        city: Name of the city.
        days: Number of days, at most 7.
        units: Degrees in Celsius or Fahrenheit.
    """
    if city not in CITIES:
        raise ToolError(f"There is no station in {city}. There are: {', '.join(CITIES)}")
    skies: tuple[Literal["sunny", "cloudy", "rain"], ...] = ("sunny", "cloudy", "rain")
    names = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
    found = []
    for index in range(days):
        low, high = 8.5 + index, 16.0 + (index * 7) % 5
        if units == "imperial":
            low, high = low * 9 / 5 + 32, high * 9 / 5 + 32
        found.append(Day(names[index], skies[(index + len(city)) % 3], round(low, 1), round(high, 1), 9 + 3 * index))
    return found


@server.tool(annotations={"read_only_hint": True})
def radar(city: str) -> list[str | Image]:
    """A picture of the rain around a city."""
    return [f"Rain around {city}, one pixel per kilometre", Image(data=_picture(), format="png")]


def _picture(size: int = 180) -> bytes:
    rows = []
    for y in range(size):
        row = bytearray([0])
        for x in range(size):
            rain = math.sin(x / 17) * math.cos(y / 23) + math.sin((x + y) / 31)
            level = max(0, min(255, int(120 + rain * 70)))
            row += bytes((level // 3, level * 2 // 3, min(255, level + 40)))
        rows.append(bytes(row))

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    head = struct.pack(">IIBBBBB", size, size, 8, 2, 0, 0, 0)
    body = zlib.compress(b"".join(rows))
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", body) + chunk(b"IEND", b"")


@server.tool
def siren() -> Audio:
    """The sound of a storm warning."""
    file = io.BytesIO()
    with wave.open(file, "wb") as sound:
        sound.setnchannels(1)
        sound.setsampwidth(1)
        sound.setframerate(8000)
        sound.writeframes(bytes(128 + int(40 * math.sin(i / 4)) for i in range(4000)))
    return Audio(data=file.getvalue(), format="wav")


@server.tool
async def measure(ctx: Context, stations: int = 5) -> str:
    """Ask all stations, and report progress."""
    for station in range(1, stations + 1):
        await ctx.report_progress(station, stations, f"station {station} of {stations}")
        await asyncio.sleep(0.02)
    return f"{stations} stations answered."


@server.tool
async def watch_storm(ctx: Context) -> str:
    """Watch a storm until the call is cancelled."""
    await ctx.report_progress(1, 3, "watching")
    await asyncio.Event().wait()
    return "never"


@dataclass
class Trip:
    """What the user chooses."""

    seat: Literal["window", "aisle"]
    meal: bool = False
    remarks: str = ""


@server.tool
async def book(ctx: Context, city: str) -> str:
    """Book a flight into better weather; the user is asked which seat, then for consent."""
    try:
        trip = await ctx.elicit(f"Which seat to {city}?", Trip)
        if await ctx.elicit(f"Book a seat at the {trip.seat} to {city} for 120 €?", bool):
            return f"Booked to {city}: {trip.seat}{', with a meal' if trip.meal else ''}."
    except Declined:
        pass
    return "Not booked."


@server.tool
async def pay(ctx: Context) -> str:
    """Ask the user to pay on a page of the bank."""
    await ctx.elicit_url("Please pay at your bank", "https://bank.example/pay?invoice=7")
    return "Paid."


@server.tool
async def haiku(ctx: Context, city: str) -> str:
    """Let the client's model write about the weather."""
    answer = await ctx.sample(f"A haiku about rain in {city}", max_tokens=60)
    block: Any = answer.content[0] if isinstance(answer.content, list) else answer.content
    return str(block.text)


@server.tool
async def list_folders(ctx: Context) -> list[str]:
    """List the folders that the client shares."""
    return [root.uri for root in await ctx.list_roots()]


@server.tool
async def calibrate(ctx: Context, level: Literal["info", "warning", "error"] = "warning") -> str:
    """Write to the log and to standard error."""
    await ctx.log(level, "A sensor is off by 0.4 degrees")
    print("calibrating sensor 7", file=sys.stderr, flush=True)
    return "Calibrated."


@server.tool
async def flood(ctx: Context, count: int = 1000) -> str:
    """Send many log messages at once."""
    for number in range(count):
        await ctx.log("info", f"drop {number}")
    return f"{count} drops."


@server.tool
async def write_note(text: str) -> str:
    """Write the note of today; subscribers of note:///today are told."""
    notes["today"] = text
    server.notify(Changed("resource", "note:///today"))
    return "Written."


@server.tool
async def route_to(region: Annotated[str, Meta(extra_json_schema={"x-mcp-header": "Region"})]) -> str:
    """An argument that clients repeat in an HTTP header."""
    return f"Served in {region}."


@dataclass
class Place:
    """A place on the map."""

    name: str
    latitude: float
    longitude: float = 0.0


@dataclass
class Alert:
    """When to warn, and whom."""

    title: str
    places: list[Place]
    kinds: list[Literal["storm", "frost", "heat"]]
    threshold: int | float | None = None
    contact: Annotated[str, Meta(extra_json_schema={"format": "email"})] | None = None
    urgent: bool = False


@server.tool
async def add_alert(alert: Alert, note: str | None = None) -> dict[str, Any]:
    """Add an alert; the arguments are nested.

    Args:
        alert: When to warn, and whom.
        note: For yourself.
    """
    return {"title": alert.title, "places": [one.name for one in alert.places], "kinds": alert.kinds, "note": note}


@server.resource("note:///today", title="Note of today", mime_type="text/plain")
def today() -> str:
    """What the observer wrote today."""
    return notes["today"]


@server.resource("stations:///all", mime_type="application/json")
def stations() -> list[dict[str, Any]]:
    """All stations."""
    return [{"city": city, "height": 10 * len(city)} for city in CITIES]


@server.resource("archive:///{city}/{year}")
def archive(city: str, year: int) -> str:
    """The weather of a year."""
    return f"{city} in {year}: {len(city) * 20} days of sun."


@archive.complete("city")
def complete_city(value: str) -> list[str]:
    return [city for city in CITIES if city.lower().startswith(value.lower())]


@server.prompt
def report(city: str, tone: str = "plain") -> list[Message]:
    """Write a weather report.

    Args:
        city: The city.
        tone: How it should sound.
    """
    return [Message(f"Write a {tone} weather report for {city}."), Message("Gladly. For which day?", role="assistant")]


@report.complete("city")
def complete_report_city(value: str) -> list[str]:
    return [city for city in CITIES if city.lower().startswith(value.lower())]


apps = server.add_extension(Apps())


@apps.page("ui://weather/chart")
def chart() -> str:
    """A chart that a host shows beside the tool."""
    return Path(__file__).with_name("chart.html").read_text()


@apps.tool(ui="ui://weather/chart")
async def show_chart(city: str) -> dict[str, Any]:
    """Show a chart of the week."""
    return {"city": city, "highs": [16, 18, 15, 17, 20, 19, 16]}


if __name__ == "__main__":
    server.run()
