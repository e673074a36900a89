"""What a client of the cluster saw: printed as one line of JSON at its end. Knows nothing of the protocol."""

import asyncio
import json
import time
import urllib.request
from collections import Counter
from collections.abc import Awaitable, Callable
from http.client import HTTPException
from typing import Any

#: Seconds in which a call has to end, and a change to be told.
CALL_SECONDS = 15.0
HINT_SECONDS = 20.0


class Tally:
    """Counts of one client; `violations` are what must not happen."""

    def __init__(self) -> None:
        self.notes: list[str] = []
        self.calls: Counter[str] = Counter()
        self.errors: Counter[str] = Counter()
        self.violations: list[str] = []
        self.announced = 0
        #: Changes that were not told: the process that announced them, when, and why a new stream does not tell them either.
        self.missed: list[tuple[int, float, str]] = []
        #: Changes that a new stream of the session told, since the client had given up its own.
        self.told_anew = 0
        self.told = asyncio.Event()

    def hint(self) -> None:
        """A change was told, or that some may have been missed."""
        self.told.set()

    def lost(self) -> None:
        """A subscription has ended, and said so."""
        self.announced += 1
        self.told.set()

    def print(self, **more: Any) -> None:
        """Print what was counted."""
        counts = {"calls": dict(self.calls), "errors": dict(self.errors), "announced": self.announced}
        more |= {"missed": self.missed, "told_anew": self.told_anew}
        print(json.dumps({"notes": self.notes, "violations": self.violations, **counts, **more}), flush=True)


class Walk:
    """The calls that a client makes, side by side, until a time.

    Args:
        tally: Where they are counted.
        call: Calls a tool with arguments and a function for progress; returns its text.
        name: The name of the client, which is part of its keys.
        ask_anew: Opens a new stream for a change that the client's own did not tell, since some clients give theirs up. Returns
            why it does not tell it either; "" if it does.
    """

    def __init__(
        self, tally: Tally, call: Callable[..., Awaitable[str]], name: str, ask_anew: Callable[[], Awaitable[str]]
    ) -> None:
        self._ask_anew = ask_anew
        self._tally = tally
        self._call = call
        self._name = name
        self._number = 0

    async def until(self, end: float) -> None:
        """Repeat until a time in seconds since 1970."""
        await asyncio.gather(*(self._repeat(step, end) for step in (self.note, self.ask, self.count, self.change)))

    async def _repeat(self, step: Callable[[], Awaitable[None]], end: float) -> None:
        kind = step.__name__
        while time.time() < end:
            begin = time.monotonic()
            try:
                await step()
                self._tally.calls[kind] += 1
            except (KeyboardInterrupt, SystemExit):
                raise
            except BaseException as exc:  # visible to whoever calls: that is allowed while processes are killed
                if isinstance(exc, asyncio.CancelledError) and (task := asyncio.current_task()) and task.cancelling():
                    raise
                late = time.monotonic() - begin >= CALL_SECONDS - 0.5
                self._tally.errors[f"{kind}: {'no end' if late else type(exc).__name__ + ' ' + str(exc)[:60]}"] += 1
            await asyncio.sleep(0.1)

    def _key(self) -> str:
        self._number += 1
        return f"{self._name}-{self._number}"

    async def note(self) -> None:
        """Store something; what was answered must be there at the end."""
        key = self._key()
        if await self._call("note", {"key": key, "text": f"text of {key}"}, None) == key:
            self._tally.notes.append(key)

    async def ask(self) -> None:
        """Be asked; the answer must be the one that was given."""
        key = self._key()
        text = await self._call("ask", {"key": key}, None)
        if text != f"{key}=answer of What of {key}?":
            self._tally.violations.append(f"a wrong answer to a question: {text[:100]}")

    async def count(self) -> None:
        """Hear progress; if the call succeeds, all of it, in order."""
        seen: list[int] = []

        async def progress(number: float, *_: Any) -> None:
            seen.append(int(number))

        text = await self._call("count", {"to": 20}, progress)
        await asyncio.sleep(0.2)  # some clients call back later
        if text != "20" or seen != list(range(1, 21)):
            self._tally.violations.append(f"events of a call that succeeded are missing: {seen}")

    async def change(self) -> None:
        """Change what is subscribed to; it must be told, or the subscription must say that it ended."""
        self._tally.told.clear()
        pid = int(await self._call("change", {"name": self._name}, None))
        answered = time.time()
        try:
            async with asyncio.timeout(HINT_SECONDS):
                await self._tally.told.wait()
        except TimeoutError:
            why = await self._ask_anew()
            if why and not self._tally.told.is_set():  # nor has this client ended its session meanwhile, and said so
                self._tally.missed.append((pid, answered, why))
            else:
                self._tally.told_anew += 1

    async def check(self) -> bool:
        """Whether all kinds of calls work again; some may have to be repeated once."""
        usable = True
        for step in (self.note, self.ask, self.count, self.change):
            for attempt in range(3):
                try:
                    await step()
                    break
                except Exception as exc:
                    await asyncio.sleep(1)
                    if attempt == 2:
                        usable = False
                        self._tally.violations.append(
                            f"{step.__name__} does not work at the end: {type(exc).__name__} {str(exc)[:100]}"
                        )
        return usable


#: The id of the last event of a stream that `tells_anew` has opened, by session.
_last_events: dict[str, str] = {}


def tells_anew(url: str, session: str, uri: str) -> str:
    """Why a new stream of an HTTP session does not tell a change of a resource; "" if it does.

    A stream that is refused or breaks off, since its process was killed, is opened again.
    """
    headers = {"Accept": "text/event-stream", "Mcp-Session-Id": session, "MCP-Protocol-Version": "2025-11-25"}
    end, why = time.monotonic() + HINT_SECONDS, "a new stream does not tell it"
    while time.monotonic() < end:
        if session in _last_events:
            headers["Last-Event-ID"] = _last_events[session]
        try:
            with urllib.request.urlopen(urllib.request.Request(url, headers=headers), timeout=10) as response:
                while time.monotonic() < end and (line := response.readline()):
                    if line.startswith(b"id:"):
                        _last_events[session] = line[3:].strip().decode()
                    if uri.encode() in line:
                        return ""
        except (OSError, HTTPException) as exc:
            why = f"a new stream: {exc}"
        time.sleep(0.5)
    return why


def answers(url: str, session: str) -> bool:
    """Whether an HTTP session is still served."""
    headers = {
        "Content-Type": "application/json",
        "Accept": "application/json, text/event-stream",
        "Mcp-Session-Id": session,
        "MCP-Protocol-Version": "2025-11-25",
    }
    body = json.dumps({"jsonrpc": "2.0", "id": "final", "method": "tools/list", "params": {}}).encode()
    try:
        with urllib.request.urlopen(urllib.request.Request(url, body, headers), timeout=10) as response:
            return b'"tools"' in response.read()
    except OSError:
        return False
