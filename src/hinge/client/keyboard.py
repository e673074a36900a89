"""Lines that somebody types at a terminal, read without blocking the event loop. Knows no questions.

The terminal edits the line (its "canonical" mode), so nothing is half-read. Ctrl-C ends the line like Ctrl-D does, instead
of ending the program: while somebody is asked, it means "leave me alone".
"""

from __future__ import annotations

import asyncio
import os
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import TextIO

from hinge.client.screen import is_terminal

#: A terminal cuts what is longer, and doesn't say so.
LONGEST = 4094
_CTRL_C = b"\x03"


class Left(Exception):
    """Ctrl-C, Ctrl-D, or the terminal is gone: whoever was asked doesn't want to answer."""


class Interrupted(Exception):
    """Something more urgent wants the keyboard."""


class Keyboard:
    """The keyboard of one terminal. One reads at a time; whoever reads before that is over takes turns outside."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        #: The prompt that stands on the screen while somebody types.
        self.prompt: str | None = None
        self._line: asyncio.Future[bytes] | None = None
        #: What came after the line that was asked for: a pipe doesn't stop at the end of a line.
        self._typed = bytearray()
        #: What a thread still reads, where the event loop can't.
        self._thread: asyncio.Future[bytes] | None = None

    @contextmanager
    def attended(self, *, fresh: bool) -> Iterator[None]:
        """While somebody is asked. `fresh` forgets what was typed before: nobody agrees to what they haven't seen."""
        if fresh:
            self._typed.clear()
        if sys.platform == "win32" or not is_terminal(self._stream):
            yield
            return
        import termios

        terminal = self._stream.fileno()
        try:
            before = termios.tcgetattr(terminal)
            mode = termios.tcgetattr(terminal)
            mode[3] |= termios.ICANON | termios.ECHO
            mode[6][termios.VINTR] = os.fpathconf(terminal, "PC_VDISABLE").to_bytes()
            mode[6][termios.VEOL] = _CTRL_C
            termios.tcsetattr(terminal, termios.TCSAFLUSH if fresh else termios.TCSADRAIN, mode)
        except (termios.error, OSError) as exc:
            raise Left from exc  # the terminal is gone
        try:
            yield
        finally:
            with suppress(termios.error):  # the terminal is gone
                termios.tcsetattr(terminal, termios.TCSADRAIN, before)

    async def line(self, prompt: str) -> str:
        """One line, without its end. Raises Left, Interrupted, ValueError for one that is no text or was cut."""
        self.prompt = prompt
        try:
            found = await self._bytes()
        finally:
            self.prompt = None
        if not found.endswith(b"\n"):
            raise Left
        if len(found) > LONGEST and is_terminal(self._stream):
            raise ValueError(f"a line takes at most {LONGEST} bytes here, the rest would be lost")
        try:
            text = found.rstrip(b"\r\n").decode()
        except UnicodeDecodeError:
            raise ValueError("that is no UTF-8") from None
        if any(ord(character) < 32 and character != "\t" for character in text):
            raise ValueError("that has control characters in it; arrow keys do nothing here")
        return text

    def interrupt(self) -> None:
        """Whoever reads gets Interrupted."""
        if self._line is not None and not self._line.done():
            self._line.set_exception(Interrupted())

    async def _bytes(self) -> bytes:
        """What was typed up to the end of a line; nothing when it was left."""
        loop = asyncio.get_running_loop()
        terminal = self._stream.fileno()
        line: asyncio.Future[bytes] = loop.create_future()
        self._line = line

        def ready() -> None:
            found = self._next(_read(terminal))
            if found is not None and not line.done():
                line.set_result(found)

        if b"\n" in self._typed:
            return self._taken()
        try:
            loop.add_reader(terminal, ready)
        except (NotImplementedError, OSError):
            return await self._in_thread(loop, line)
        try:
            return await line
        finally:
            loop.remove_reader(terminal)
            self._line = None

    def _next(self, data: bytes) -> bytes | None:
        """What has come so far as a line, nothing when it was left, None before its end."""
        self._typed.extend(data)
        if b"\n" in self._typed:
            return self._taken()
        if data and not data.endswith(_CTRL_C):
            return None
        rest = b"" if is_terminal(self._stream) else bytes(self._typed)
        self._typed.clear()
        return rest + b"\n" if rest else b""

    def _taken(self) -> bytes:
        end = self._typed.index(b"\n") + 1
        found = bytes(self._typed[:end])
        del self._typed[:end]
        return found

    async def _in_thread(self, loop: asyncio.AbstractEventLoop, line: asyncio.Future[bytes]) -> bytes:
        """A thread that reads can't be stopped: what it reads after all is for the next who asks."""
        if self._thread is None or self._thread.done():
            self._thread = loop.create_future()
            threading.Thread(target=self._read_in_thread, args=(loop, self._thread), daemon=True).start()
        await asyncio.wait([self._thread, line], return_when=asyncio.FIRST_COMPLETED)
        self._line = None
        found: bytes = (line if line.done() else self._thread).result()
        return found

    def _read_in_thread(self, loop: asyncio.AbstractEventLoop, found: asyncio.Future[bytes]) -> None:
        try:
            data = self._stream.readline().encode()
        except (OSError, ValueError):
            data = b""
        with suppress(RuntimeError):  # the loop is closed: nobody waits any more
            loop.call_soon_threadsafe(found.set_result, data)


def _read(terminal: int) -> bytes:
    try:
        return os.read(terminal, 65536)
    except OSError:  # the terminal is gone
        return b""
