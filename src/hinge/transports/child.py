"""A client's way to a server that it starts itself: a child process whose standard input and output are the channel."""

from __future__ import annotations

import asyncio
import os
import shlex
import sys
from collections.abc import Mapping, Sequence

from hinge.errors import DefinitionError
from hinge.protocol.limits import DEFAULT_LIMITS, Limits
from hinge.protocol.option_values import FOLDER, SECONDS, Allowed, check_values, or_none, texts_by_name
from hinge.transports.blocking import open_descriptors
from hinge.transports.channel import Serve
from hinge.transports.descriptors import DescriptorTransport
from hinge.transports.pipe import LineChannel
from hinge.transports.process import ChildProcess, Shown, Stderr

#: Seconds: a closed output is explained by the end of the process if that is seen within this time (a process that is
#: killed closes its output first, and where there is much to do, the rest of its end takes a while) …
EXIT_GRACE = 1.0
#: … and after the end of the process, a pipe that another process still holds is given up after this much silence.
QUIET = 1.0

#: Children that are being ended; the event loop itself would not keep these tasks alive.
_endings: set[asyncio.Task[None]] = set()


class ChildChannel(LineChannel):
    """The channel to a child process. Its end is explained by the exit code and the last lines of standard error."""

    def __init__(self, limits: Limits, patience: float) -> None:
        super().__init__("stdio", limits, server=False)
        self._patience = patience
        self._process: ChildProcess | None = None
        self._grace: asyncio.TimerHandle | None = None
        self._quiet: asyncio.TimerHandle | None = None
        self._silent = asyncio.Event()
        self._ending: asyncio.Task[None] | None = None
        self._is_gone = False

    def attach(self, process: ChildProcess) -> None:
        """This is the process at the other end; `process_exited` is to be called when it has ended."""
        self._process = process
        open_descriptors(self, process.stdout, process.stdin)

    @property
    def process(self) -> ChildProcess:
        """The process: `pid` and `returncode`."""
        assert self._process is not None
        return self._process

    async def close(self) -> None:
        """End the child and its group: close its input, wait, SIGTERM, wait, SIGKILL (LIFE-15, STDIO-06).

        Takes at most two and a half times the patience given; goes on by itself if the waiting task is cancelled.
        """
        self._give_up("the channel was closed on this side")
        assert self._ending is not None
        await asyncio.shield(self._ending)

    # ---------------------------------------------------------------- what happens to the pipe and the process

    def data_received(self, data: bytes) -> None:
        """Some bytes came; whoever sent them isn't silent."""
        super().data_received(data)
        if self._quiet is not None:
            self._wait_for_silence()

    def eof_received(self) -> bool:
        """Nobody holds the child's output any more."""
        self._silent.set()
        self._last_line()
        self._explain("closed its output, but still runs")
        return True

    def process_exited(self) -> None:
        """The child has ended; what it wrote before may still be in the pipe."""
        if isinstance(self._transport, DescriptorTransport):
            self._transport.read_now()
        if self._silent.is_set() or self._transport is None:
            self._explain("ended")
        else:
            self._wait_for_silence()

    def connection_lost(self, exc: Exception | None) -> None:
        """The pipes are closed: by us, or because writing failed."""
        self._silent.set()
        if self.reason is not None:
            super().connection_lost(exc)
        else:
            self._transport = None
            self._explain("no longer reads its input")

    def _wait_for_silence(self) -> None:
        if self._quiet is not None:
            self._quiet.cancel()
        self._quiet = self._loop.call_later(QUIET, self._explain, "ended")

    def _explain(self, fate: str) -> None:
        """The channel is over; the exit code is part of the reason, if it comes soon."""
        if self.process.exited.is_set():
            self._give_up(self.process.obituary(fate))
        elif self._grace is None and self.reason is None:
            self._grace = self._loop.call_later(EXIT_GRACE, lambda: self._give_up(self.process.obituary(fate)))

    # ---------------------------------------------------------------- the end

    def _shut(self, reason: str) -> None:
        self._give_up(reason)

    def abort(self, reason: str) -> None:
        """End the conversation now and the child as `close` does."""
        self._give_up(reason)

    def _give_up(self, reason: str) -> None:
        """Close the conversation, then end the child in a task of its own."""
        self.end_conversation(reason)
        self._writable.set()
        if self._ending is None:
            self._ending = self._loop.create_task(self._end_child())
            _endings.add(self._ending)
            self._ending.add_done_callback(self._child_ended)

    async def _end_child(self) -> None:
        process = self.process
        try:
            if self._transport is not None:
                self._flush()
            if self._transport is not None:
                self._transport.write_eof()
                self._transport.resume_reading()
            if not await process.ends_within(self._patience):
                process.signal("SIGTERM")
                if not await process.ends_within(self._patience):
                    process.signal("SIGKILL")
                    await process.ends_within(self._patience / 4)
            await self._await_heirs()
        finally:
            self._let_go()
        await self.wait_closed()

    def _child_ended(self, ending: asyncio.Task[None]) -> None:
        """The event loop may end, and cancel a task, before it has begun: the child is let go all the same."""
        _endings.discard(ending)
        self._let_go()

    def _let_go(self) -> None:
        if self._is_gone:
            return
        self._is_gone = True
        for timer in (self._grace, self._quiet):
            if timer is not None:
                timer.cancel()
        self.process.reap()
        if self._transport is not None:
            self._transport.abort()
        else:
            super().connection_lost(None)

    async def _await_heirs(self) -> None:
        """Processes that outlived the child and hold its pipes are told to end, and may take a moment to do so."""
        if not self._silent.is_set():
            self.process.signal("SIGTERM")
            try:
                await asyncio.wait_for(self._silent.wait(), self._patience / 4)
            except TimeoutError:
                return


#: What the options of a child process may be.
_OPTIONS = {
    "env": or_none(texts_by_name('env={"NAME": "value"}')),
    "cwd": or_none(FOLDER),
    "stderr": Allowed(
        lambda value: (
            value in ("inherit", "discard")
            if isinstance(value, str)
            else isinstance(value, os.PathLike | Shown) or callable(value)
        ),
        'use "inherit", "discard", a Path, or a function that gets each line',
    ),
    "patience": SECONDS,
}


class Stdio:
    """A Transport to a server in a child process.

    - `command`: program and arguments; a string is split like a shell would, but no shell is started.
    - `env`: added to a short list of harmless variables (`process.INHERITED`); nothing else of our environment is given
      to the child. `env=os.environ` gives everything.
    - `cwd`: its working directory.
    - `stderr`: "inherit" passes its standard error on to ours, "discard" drops it, a path appends it to a file, a
      function gets it line by line. The last lines are kept in any case, for the reason when the child dies; `Shown`
      says that whoever reads the reason has seen them.
    - `patience`: seconds it gets to end after its input is closed, and again after SIGTERM.
    """

    def __init__(
        self,
        command: Sequence[str] | str,
        *,
        env: Mapping[str, str] | None = None,
        cwd: str | os.PathLike[str] | None = None,
        stderr: Stderr = "inherit",
        patience: float = 2.0,
        limits: Limits = DEFAULT_LIMITS,
    ) -> None:
        check_values(locals(), _OPTIONS)
        posix = sys.platform != "win32"
        try:
            self.command = shlex.split(command, posix=posix) if isinstance(command, str) else list(command)
        except ValueError as exc:
            raise DefinitionError(f"The command {command!r} can't be split into words: {exc}") from exc
        if not self.command or not self.command[0]:
            raise DefinitionError("The command is empty: give a program and arguments, like ['python', 'server.py'].")
        self._env, self._cwd = env, cwd
        self._stderr: Stderr = stderr
        self._patience = patience
        self._limits = limits

    async def open(self, serve: Serve, /) -> ChildChannel:
        """Start the child and begin the conversation. Raises ConnectFailed if it can't be started."""
        channel = ChildChannel(self._limits, self._patience)
        process = ChildProcess(
            self.command, env=self._env, cwd=self._cwd, stderr=self._stderr, on_exit=channel.process_exited
        )
        channel.attach(process)
        try:
            channel.begin(serve(channel))
        except BaseException:
            await channel.close()
            raise
        return channel
