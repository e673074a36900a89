"""A chat bot without async: worker threads share one blocking client. Run this file and type messages, or pipe them in.

`forecast CITY` and `compare CITY CITY…` are answered by the tools of `weather_server.py`; anything else gets help. Messages are
handled at once, as many as there are threads, and each answer goes to the person who asked.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

from gemel import CallError, ToolCallError
from gemel.sync import Client

SERVER = Path(__file__).with_name("weather_server.py")
THREADS = 4
HELP = "I understand: forecast CITY, compare CITY CITY…"


class Message(NamedTuple):
    """What somebody wrote."""

    sender: str
    text: str


class Bot:
    """Answers messages, from any thread.

    Args:
        weather: A connected client of the weather server, which all threads share.
    """

    def __init__(self, weather: Client) -> None:
        self._weather = weather

    def answer(self, message: Message) -> str:
        """The answer to a message; what fails is said in words."""
        command, *cities = message.text.split()
        try:
            if command == "forecast" and len(cities) == 1:
                return self._forecast(cities[0])
            if command == "compare" and cities:
                return " | ".join(map(self._forecast, cities))
        except ToolCallError as exc:
            return f"The weather server says: {exc}"
        except CallError as exc:
            return f"The weather server can't be asked now: {exc}"
        return HELP

    def _forecast(self, city: str) -> str:
        days = self._weather.call_tool("forecast", {"city": city, "days": 2}, returns=list[str], total=10)
        return ", ".join(days.data)


def read_messages(lines: Iterable[str]) -> Iterator[Message]:
    """The messages of a chat: a line each, `SENDER: TEXT`, or only the text."""
    for line in lines:
        sender, colon, text = line.strip().rpartition(": ")
        if text:
            yield Message(sender if colon else "you", text)


def main() -> None:
    """Answer each line of standard input until it ends."""
    with Client(SERVER) as weather, ThreadPoolExecutor(THREADS) as threads:
        bot = Bot(weather)

        def handle(message: Message) -> None:
            print(f"@{message.sender} {bot.answer(message)}\n", end="", flush=True)

        for message in read_messages(sys.stdin):
            threads.submit(handle, message)


if __name__ == "__main__":
    main()
