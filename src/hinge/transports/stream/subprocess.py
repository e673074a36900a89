"""The client transport to a server that runs as a child process, over its standard input and output.

Specification: Transports, section "stdio"; Lifecycle, section "Shutdown".
"""

from __future__ import annotations

import asyncio
import codecs
import contextlib
import os
import shlex
import signal
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import IO, Literal, Unpack

from hinge.channel import Serve, Transport
from hinge.errors import ConnectFailed, DefinitionError, shorten
from hinge.options import accepts, resolve
from hinge.protocol.limits import DEFAULT_LIMITS, Limits
from hinge.transports.stream.blocking import open_descriptors
from hinge.transports.stream.descriptors import DescriptorTransport
from hinge.transports.stream.line_channel import LineChannel
from hinge.transports.stream.options import ProcessOptions, Shown, Stderr

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
        """Attach the child process; `process_exited` must be called when it has ended."""
        self._process = process
        open_descriptors(self, process.stdout, process.stdin)

    @property
    def process(self) -> ChildProcess:
        """The process: `pid` and `returncode`."""
        assert self._process is not None
        return self._process

    async def close(self) -> None:
        """End the child and its group: close its input, wait, SIGTERM, wait, SIGKILL.

        Takes at most two and a half times the patience given; goes on by itself if the waiting task is cancelled.
        """
        self._give_up("the channel was closed on this side")
        assert self._ending is not None
        await asyncio.shield(self._ending)

    # ---------------------------------------------------------------- what happens to the pipe and the process

    def data_received(self, data: bytes) -> None:
        """Bytes arrived."""
        super().data_received(data)
        if self._quiet is not None:
            self._wait_for_silence()

    def eof_received(self) -> bool:
        """No process holds the output of the child any more."""
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
        """End the channel; wait briefly for the exit code, which is part of the reason."""
        if self.process.exited.is_set():
            self._give_up(self.process.describe_end(fate))
        elif self._grace is None and self.reason is None:
            self._grace = self._loop.call_later(EXIT_GRACE, lambda: self._give_up(self.process.describe_end(fate)))

    # ---------------------------------------------------------------- the end

    def _shut(self, reason: str) -> None:
        self._give_up(reason)

    def abort(self, reason: str) -> None:
        """End the session now and the child as `close` does."""
        self._give_up(reason)

    def _give_up(self, reason: str) -> None:
        """Close the session, then end the child in a task of its own."""
        self.end_session(reason)
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
            await self._await_descendants()
        finally:
            self._release_child()
        await self.wait_closed()

    def _child_ended(self, ending: asyncio.Task[None]) -> None:
        """Release the child even if the event loop ended, and cancelled the task before it began."""
        _endings.discard(ending)
        self._release_child()

    def _release_child(self) -> None:
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

    async def _await_descendants(self) -> None:
        """Ask processes that outlived the child and hold its pipes to end, and wait briefly."""
        if not self._silent.is_set():
            self.process.signal("SIGTERM")
            try:
                await asyncio.wait_for(self._silent.wait(), self._patience / 4)
            except TimeoutError:
                return


class Stdio(Transport):
    """A transport to a server in a child process, over its standard input and output.

    Args:
        command: program and arguments; a string is split like a shell would, but no shell is started.
        limits: bounds on what the server can make the client hold or wait for.
        options: see `ProcessOptions`. The last lines of standard error are kept in any case, for the reason when the
            process dies.

    Raises:
        DefinitionError: for an empty command, an unknown option or a value that it doesn't take.
    """

    @accepts(ProcessOptions)
    def __init__(
        self, command: Sequence[str] | str, *, limits: Limits = DEFAULT_LIMITS, **options: Unpack[ProcessOptions]
    ) -> None:
        settings = resolve(ProcessOptions, options, "Stdio")
        posix = sys.platform != "win32"
        try:
            self.command = shlex.split(command, posix=posix) if isinstance(command, str) else list(command)
        except ValueError as exc:
            raise DefinitionError(f"The command {command!r} can't be split into words: {exc}") from exc
        if not self.command or not self.command[0]:
            raise DefinitionError("The command is empty: give a program and arguments, like ['python', 'server.py'].")
        self._env, self._cwd = settings["env"], settings["cwd"]
        self._stderr: Stderr = settings["stderr"]
        self._patience = settings["patience"]
        self._limits = limits

    async def open(self, serve: Serve, /) -> ChildChannel:
        """Start the child and begin the session. Raises ConnectFailed if it can't be started."""
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


#: Environment variables that a child inherits. All others may hold secrets and must be passed explicitly.
INHERITED = (
    "APPDATA COMSPEC HOMEDRIVE HOMEPATH LOCALAPPDATA PATH PATHEXT PROCESSOR_ARCHITECTURE SYSTEMDRIVE SYSTEMROOT TEMP"
    " TMP USERNAME USERPROFILE"
    if sys.platform == "win32"
    else "HOME LANG LC_ALL LC_CTYPE LOGNAME PATH SHELL TERM TMPDIR TZ USER"
).split()

#: Lines of standard error that are kept for error texts, and the characters kept of each.
LAST_WORDS = 20
WORD_LENGTH = 500


#: Seconds that the event loop blocks until a killed child is gone; after that a thread waits for it.
AT_ONCE = 0.2


def child_environment(extra: Mapping[str, str] | None) -> dict[str, str]:
    """Make the environment of a child: INHERITED variables without exported shell functions, and `extra`."""
    chosen = {name: os.environ[name] for name in INHERITED if name in os.environ}
    return {name: value for name, value in chosen.items() if not value.startswith("()")} | dict(extra or {})


class LastWords(asyncio.Protocol):
    """Reads the standard error of a child, passes it on, and keeps the last lines."""

    def __init__(self, to: Stderr) -> None:
        self.lines: deque[str] = deque(maxlen=LAST_WORDS)
        #: Whether the lines have been seen where the reason for a death will be.
        self.shown = isinstance(to, Shown)
        self._to = to.to if isinstance(to, Shown) else to
        self._file: IO[str] | None = None
        if isinstance(self._to, os.PathLike):
            self._file = open(self._to, "a", encoding="utf-8")  # noqa: SIM115 (closed with the connection)
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._unfinished = ""

    def data_received(self, data: bytes) -> None:
        """Some bytes of text came."""
        text = self._decoder.decode(data)
        out = sys.stderr if self._to == "inherit" else self._file
        if out is not None:
            with contextlib.suppress(OSError, ValueError):
                out.write(text)
                out.flush()
        *lines, self._unfinished = (self._unfinished + text).split("\n")
        if len(self._unfinished) > 65536:
            lines, self._unfinished = [*lines, self._unfinished], ""
        for line in lines:
            self._line(line.removesuffix("\r"))

    def _line(self, line: str) -> None:
        if line.strip():
            self.lines.append(line[:WORD_LENGTH])
        if callable(self._to):
            try:
                self._to(line)
            except Exception as exc:
                self._to = "discard"
                self.lines.append(f"(the function for standard error failed and is called no more: {exc!r})")

    def connection_lost(self, exc: Exception | None) -> None:
        """The child's standard error is closed."""
        if self._unfinished:
            self._line(self._unfinished)
            self._unfinished = ""
        if self._file is not None:
            self._file.close()


class ChildProcess:
    """A started child. `stdin` and `stdout` are descriptors of ours; whoever takes them closes them.

    `on_exit` is called in the loop when the process has ended. Until `reap`, its id stays taken, so that signals to the
    group can't hit a stranger.
    """

    def __init__(
        self,
        command: Sequence[str],
        *,
        env: Mapping[str, str] | None,
        cwd: str | os.PathLike[str] | None,
        stderr: Stderr,
        on_exit: Callable[[], None],
    ) -> None:
        self.name = shorten(shlex.join(command), 100)
        self._on_exit = on_exit
        self._loop = asyncio.get_running_loop()
        self._words = LastWords(stderr)
        self.exited = asyncio.Event()
        self._pidfd = -1
        self._code = 0
        self._popen, (self.stdin, self.stdout, heard) = _start(command, child_environment(env), cwd)
        self._stderr = open_descriptors(self._words, heard, None)
        self._watch()

    @property
    def pid(self) -> int:
        """The process id, which is also its group's."""
        return self._popen.pid

    @property
    def returncode(self) -> int | None:
        """Exit code, or minus the signal's number; None while it runs."""
        return self._code if self.exited.is_set() else None

    def describe_end(self, otherwise: str) -> str:
        """Describe how the process ended, with the last lines of standard error unless they were shown; `otherwise` if it runs."""
        if isinstance(self._stderr, DescriptorTransport):
            self._stderr.read_now()
        code = self.returncode
        if code is None:
            fate = otherwise
        elif code < 0:
            fate = f"was killed by {_signal_name(-code)}"
        else:
            fate = f"exited with code {code}"
        words = list(self._words.lines)
        if not words:
            return f"the server process ({self.name}) {fate}; it wrote nothing to standard error"
        if self._words.shown:
            return f"the server process ({self.name}) {fate}; see what it wrote to standard error"
        return f"the server process ({self.name}) {fate}; its last words:\n" + "\n".join(words)

    # ---------------------------------------------------------------- the end

    def signal(self, name: Literal["SIGTERM", "SIGKILL"]) -> None:
        """Send a signal to the whole group (on Windows: end the process)."""
        if sys.platform == "win32":
            self._popen.kill()
        else:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self._popen.pid, getattr(signal, name))

    async def ends_within(self, seconds: float) -> bool:
        """Wait for the process; False if it still runs then."""
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self.exited.wait(), seconds)
        return self.exited.is_set()

    def reap(self) -> None:
        """Kill what is left of the group and give back what the system keeps of the child."""
        self.signal("SIGKILL")
        self._unwatch()
        try:
            self._popen.wait(AT_ONCE)
        except subprocess.TimeoutExpired:  # a killed process needs time, too, where there is much to do
            threading.Thread(target=self._popen.wait, name="hinge-child", daemon=True).start()
        self._stderr.abort()

    def _watch(self) -> None:
        try:
            self._pidfd = os.pidfd_open(self._popen.pid)
        except (AttributeError, OSError):
            threading.Thread(target=self._wait, name="hinge-child", daemon=True).start()
        else:
            self._loop.add_reader(self._pidfd, self._ended)

    def _unwatch(self) -> None:
        if self._pidfd >= 0:
            self._loop.remove_reader(self._pidfd)
            os.close(self._pidfd)
            self._pidfd = -1

    def _wait(self) -> None:
        """In a thread, where a process can't be watched: wait for it, which also reaps it."""
        self._popen.wait()
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._ended)

    def _ended(self) -> None:
        if self._pidfd >= 0:
            self._unwatch()
            about = None
            with contextlib.suppress(ChildProcessError):  # somebody else in this process waited for it
                about = os.waitid(os.P_PID, self._popen.pid, os.WEXITED | os.WNOWAIT | os.WNOHANG)
            exited = about is None or about.si_code == os.CLD_EXITED
            self._code = 0 if about is None else about.si_status if exited else -about.si_status
        else:
            self._code = self._popen.returncode
        self.exited.set()
        self._on_exit()


def _start(
    command: Sequence[str], env: Mapping[str, str], cwd: str | os.PathLike[str] | None
) -> tuple[subprocess.Popen[bytes], tuple[int, int, int]]:
    """The process, and our ends of its standard input, output and error. Raises ConnectFailed."""
    child_in, our_in = os.pipe()
    our_out, child_out = os.pipe()
    our_err, child_err = os.pipe()
    try:
        popen = subprocess.Popen(
            command,
            stdin=child_in,
            stdout=child_out,
            stderr=child_err,
            env=env,
            cwd=cwd,
            start_new_session=sys.platform != "win32",
            creationflags=getattr(subprocess, "CREATE_NO_WINDOW", 0),
        )
    except (OSError, ValueError) as exc:
        for fd in (our_in, our_out, our_err):
            os.close(fd)
        raise ConnectFailed(f"Can't start {shorten(shlex.join(command))}: {_why(exc, command[0], cwd)}") from exc
    finally:
        for fd in (child_in, child_out, child_err):
            os.close(fd)
    return popen, (our_in, our_out, our_err)


def _why(exc: OSError | ValueError, program: str, cwd: str | os.PathLike[str] | None) -> str:
    if cwd is not None and not os.path.isdir(cwd):
        return f"the working directory {os.fspath(cwd)} doesn't exist; create it or give another `cwd`."
    match exc:
        case FileNotFoundError():
            return f"there is no program {program!r}; give its full path, or a PATH that has it in `env`."
        case PermissionError():
            return f"{program!r} is not executable; make it so (chmod +x), or name its interpreter in the command."
        case OSError():
            return (
                f"{exc.strerror or exc}; is {program!r} a program of this system, does a script name its interpreter?"
            )
        case _:
            return f"{exc}."


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
