"""Somebody at a terminal, for tests: types lines and sees the screen. The terminal is a real one (a pty).

`Typist` sits before a terminal of this process, `at_the_terminal` before one in which a command runs.
"""

from __future__ import annotations

import asyncio
import codecs
import fcntl
import os
import re
import select
import signal
import struct
import subprocess
import termios
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from pathlib import Path
from typing import Self, TextIO

#: Seconds: what isn't on the screen by then won't come.
LIMIT = 30.0

#: What prompt_toolkit and rich write to edit a line and to draw a bar, and nothing that a test server sends.
_DRAWING = re.compile(
    r"\x1b\[(\?(1|7|12|25|2004)[hl]|0m|0;[12]m|[JK]|2K|1A|[0-9]*[CD])"
    r"|\r+(?!\n)|\x08"
    r"|\x1b(\[[0-9;?]*)?\Z"  # the beginning of one: the rest comes with the next bytes
)


class Typist:
    """Use it with `async with`. `keyboard` and `screen` are the terminal's end for whoever asks."""

    def __init__(self, columns: int = 80, lines: int = 24) -> None:
        self._master, slave = os.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))
        self.keyboard: TextIO = open(slave, encoding="utf-8", closefd=True)  # noqa: SIM115 (closed with the typist)
        self.screen: TextIO = open(os.dup(slave), "w", encoding="utf-8")  # noqa: SIM115 (closed with the typist)
        #: All that was ever written, and how much of what was shown was looked at.
        self.raw = ""
        self._read = 0
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._more = asyncio.Event()
        self.gone = False

    async def __aenter__(self) -> Self:
        asyncio.get_running_loop().add_reader(self._master, self._look)
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        self.hang_up()
        for end in (self.keyboard, self.screen):
            with suppress(OSError):  # a screen that is gone while something was still to be shown
                end.close()

    @property
    def seen(self) -> str:
        """All that was ever shown: without what only draws."""
        return _DRAWING.sub("", self.raw).replace("\r\n", "\n")

    def hang_up(self) -> None:
        """The terminal's window is closed."""
        if self._master >= 0:
            asyncio.get_running_loop().remove_reader(self._master)
            os.close(self._master)
            self._master = -1

    def _look(self) -> None:
        try:
            data = os.read(self._master, 65536)
        except OSError:  # nobody holds the other end any more
            data = b""
        if not data:
            self.gone = True
            asyncio.get_running_loop().remove_reader(self._master)
        self.raw += self._decoder.decode(data)
        self._more.set()

    @contextmanager
    def watching(self, pid: int) -> Iterator[None]:
        """Know when a process has ended: it shows nothing more."""
        loop, process = asyncio.get_running_loop(), os.pidfd_open(pid)

        def ended() -> None:
            loop.remove_reader(process)
            while select.select([self._master], [], [], 0)[0] and not self.gone:
                self._look()
            self.gone = True
            self._more.set()

        loop.add_reader(process, ended)
        try:
            yield
        finally:
            loop.remove_reader(process)
            os.close(process)

    def type(self, text: str) -> None:
        """Press keys."""
        self.press(text.encode())

    def press(self, keys: bytes) -> None:
        """Press keys whose bytes are no text."""
        os.write(self._master, keys)

    async def sees(self, text: str) -> str:
        """Wait until a text stands on the screen, behind what was seen before; gives all that came with it."""
        try:
            async with asyncio.timeout(LIMIT):
                while text not in self.seen[self._read :] and not self.gone:
                    self._more.clear()
                    await self._more.wait()
        except TimeoutError:
            pass
        found = self.seen[self._read :]
        assert text in found, f"{text!r} never came; on the screen is\n{found}"
        end = found.index(text) + len(text)
        self._read += end
        return found[:end]

    async def answers(self, question: str, text: str) -> str:
        """Wait for a question and type a line."""
        found = await self.sees(question)
        self.type(f"{text}\n")
        return found

    async def asks(self, text: str, answer: str) -> str:
        """Type a line of one's own, and wait for what comes of it."""
        self.type(f"{text}\n")
        return await self.sees(answer)

    @property
    def modes(self) -> list[object]:
        """How the terminal is set."""
        return termios.tcgetattr(self.keyboard)


def _take_the_terminal() -> None:
    """As a login does: Ctrl-C counts here, even where who runs the tests has it ignored, as shells do behind `&`."""
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)
    signal.signal(signal.SIGINT, signal.SIG_DFL)


@asynccontextmanager
async def at_the_terminal(
    command: Sequence[str | Path],
    environment: Mapping[str, str] | None = None,
    *,
    directory: Path | None = None,
    **options: int,
) -> AsyncIterator[tuple[Typist, subprocess.Popen[bytes]]]:
    """A command in a terminal of its own, and who sits there; it must have ended when the block ends."""
    # The size is the terminal's own. pytest-xdist imports readline, which sets these two in the environment.
    inherited = {name: value for name, value in os.environ.items() if name not in ("COLUMNS", "LINES")}
    async with Typist(**options) as typist:
        process = subprocess.Popen(  # noqa: ASYNC220 (it starts at once)
            [*map(str, command)],
            stdin=typist.keyboard,
            stdout=typist.screen,
            stderr=typist.screen,
            env={**inherited, "TERM": "xterm", "NO_COLOR": "1", "PAGER": "", **(environment or {})},
            cwd=directory,
            start_new_session=True,
            preexec_fn=_take_the_terminal,
        )
        try:
            with typist.watching(process.pid):
                yield typist, process
            assert await asyncio.to_thread(process.wait, LIMIT) is not None
        finally:
            if process.poll() is None:
                process.kill()
                process.wait()
