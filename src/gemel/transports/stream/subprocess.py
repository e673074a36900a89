"""The client transport to a server that runs as a child process, over its standard input and output.

Specification: Transports, section "stdio"; Lifecycle, section "Shutdown".
"""

from __future__ import annotations

import asyncio
import codecs
import contextlib
import logging
import os
import shlex
import shutil
import signal
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from subprocess import PIPE
from typing import IO, TYPE_CHECKING, Literal, Unpack

from gemel.channel import Serve, Transport
from gemel.errors import ConnectFailed, DefinitionError, shorten
from gemel.loops import Abandoned, PerLoop
from gemel.options import accepts, near_file, resolve
from gemel.protocol.limits import DEFAULT_LIMITS, Limits
from gemel.transports.stream.blocking import open_descriptors
from gemel.transports.stream.command_line import split_command_line, windows_command_line
from gemel.transports.stream.descriptors import DescriptorTransport, FlowControl
from gemel.transports.stream.line_channel import LineChannel
from gemel.transports.stream.options import ProcessOptions, Shown, Stderr

if TYPE_CHECKING:
    from gemel.transports.stream.windows_job import Job

logger = logging.getLogger("gemel")

#: When a child closes its output, how many seconds its exit code is waited for, which is part of the reason.
EXIT_GRACE = 1.0
#: When a child has ended and another process still holds its output, after how many seconds of silence it is given up.
SILENCE = 1.0

#: Whether this is Windows.
WINDOWS = sys.platform == "win32"

#: End children, in each event loop, which itself would not keep these tasks alive.
_endings: PerLoop[set[asyncio.Task[None]]] = PerLoop(set)


class ChildChannel(LineChannel):
    """The channel to a child process. Its end is explained by the exit code and the last lines of standard error."""

    def __init__(self, limits: Limits, patience: float) -> None:
        super().__init__("stdio", limits, server=False)
        self._patience = patience
        self._process: ChildProcess | None = None
        self._exit_timer: asyncio.TimerHandle | None = None
        self._silence_timer: asyncio.TimerHandle | None = None
        self._output_closed = asyncio.Event()
        self._ending: asyncio.Task[None] | None = None
        self._released = False

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
        self.abort("the channel was closed on this side")
        assert self._ending is not None
        await asyncio.shield(self._ending)

    def abandon(self, why: Abandoned, /) -> None:
        """See `AbandonableChannel`. The child ends as in `close`, watched by a thread."""
        super().abandon(why)
        if not self._released:
            self._released = True
            self.process.abandon(None if why == "forked" else self._patience)

    def hold_stderr(self) -> None:
        """See `ProcessChannel`."""
        self.process.hold_stderr()

    def release_stderr(self, *, without: str | None = None) -> None:
        """See `ProcessChannel`."""
        self.process.release_stderr(without)

    # ---------------------------------------------------------------- what happens to the pipe and the process

    def data_received(self, data: bytes) -> None:
        """Bytes arrived."""
        if data.startswith(b"{"):
            self.process.has_answered = True
        super().data_received(data)
        if self._silence_timer is not None:
            self._wait_for_silence()

    def eof_received(self) -> bool:
        """No process holds the output of the child any more."""
        self._output_closed.set()
        self._last_line()
        self._explain("closed its output, but still runs")
        return True

    def process_exited(self) -> None:
        """The child has ended; what it wrote before may still be in the pipe."""
        if isinstance(self._transport, DescriptorTransport):
            self._transport.read_now()
        if self._output_closed.is_set() or self._transport is None:
            self._explain("ended")
        else:
            self._wait_for_silence()

    def connection_lost(self, exc: Exception | None) -> None:
        """The pipes are closed: by us, or because writing failed."""
        self._output_closed.set()
        if self.reason is not None:
            super().connection_lost(exc)
        else:
            self._transport = None
            self._explain("no longer reads its input")

    def _wait_for_silence(self) -> None:
        if self._silence_timer is not None:
            self._silence_timer.cancel()
        self._silence_timer = self._loop.call_later(SILENCE, self._explain, "ended")

    def _explain(self, fate: str) -> None:
        """End the channel; wait briefly for the exit code, which is part of the reason."""
        if self.process.exited.is_set():
            self.abort(self.process.describe_end(fate))
        elif self._exit_timer is None and self.reason is None:
            self._exit_timer = self._loop.call_later(EXIT_GRACE, lambda: self.abort(self.process.describe_end(fate)))

    # ---------------------------------------------------------------- the end

    def _shut(self, reason: str) -> None:
        self.abort(reason)

    def abort(self, reason: str) -> None:
        """Close the session now, then end the child as `close` does, in a task of its own."""
        self.end_session(reason)
        self._writable.set()
        if self._ending is None:
            self._ending = self._loop.create_task(self._end_child())
            _endings.here().add(self._ending)
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
            if not self._output_closed.is_set():  # another process outlived the child and holds its output
                process.signal("SIGTERM")
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(self._output_closed.wait(), self._patience / 4)
        finally:
            self._release_child()
        await self.wait_closed()

    def _child_ended(self, ending: asyncio.Task[None]) -> None:
        """Release the child even if the event loop ended, and cancelled the task before it began."""
        _endings.here().discard(ending)
        self._release_child()

    def _release_child(self) -> None:
        if self._released:
            return
        self._released = True
        for timer in (self._exit_timer, self._silence_timer):
            if timer is not None:
                timer.cancel()
        self.process.reap()
        if self._transport is not None:
            self._transport.abort()
        else:
            super().connection_lost(None)


class Stdio(Transport):
    """A transport to a server in a child process, over its standard input and output.

    Args:
        command: program and arguments; a string is split as the system does (quotes, and on Windows its rules for
            backslashes), but no shell is started. On Windows a program is found by PATHEXT, and a batch file
            (`npx.cmd`) takes no arguments that cmd.exe would interpret.
        limits: bounds on what the server can make the client hold or wait for.
        options: see `ProcessOptions`. The last lines of standard error are kept in any case, for the reason when the
            process dies.

    Raises:
        DefinitionError: for an empty command, an unknown option or a value that it doesn't take; from `open` for
            arguments that a batch file can't take.
    """

    @accepts(ProcessOptions)
    def __init__(
        self, command: Sequence[str] | str, *, limits: Limits = DEFAULT_LIMITS, **options: Unpack[ProcessOptions]
    ) -> None:
        settings = resolve(ProcessOptions, options, "Stdio")
        try:
            self.command = split_command_line(command) if isinstance(command, str) else list(command)
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

#: Lines of standard error that errors quote, and the characters kept of each.
LAST_LINES = 20
LINE_LENGTH = 500
#: Reads of standard error that are held back at most.
MOST_HELD = 100

#: Whether a process can be waited for without freeing its id.
_HAS_WAITID = hasattr(os, "waitid")

#: Seconds that the event loop blocks until a killed child is gone; after that it is waited for in a thread.
REAP_SECONDS = 0.2


def child_environment(extra: Mapping[str, str] | None) -> dict[str, str]:
    """Make the environment of a child: INHERITED variables without exported shell functions, and `extra`."""
    chosen = {name: os.environ[name] for name in INHERITED if name in os.environ}
    return {name: value for name, value in chosen.items() if not value.startswith("()")} | dict(extra or {})


class StderrReader(asyncio.Protocol):
    """Reads the standard error of a child, passes it on, and keeps the last lines."""

    def __init__(self, to: Stderr) -> None:
        self.lines: deque[str] = deque(maxlen=LAST_LINES)
        #: Whether the user sees the lines anyway, so that errors need not quote them.
        self.shown = isinstance(to, Shown)
        self._to = to.begin() if isinstance(to, Shown) else to
        self._file: IO[str] | None = None
        if isinstance(self._to, os.PathLike):
            self._file = open(self._to, "a", encoding="utf-8")  # noqa: SIM115 (closed with the connection)
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._unfinished = ""
        #: What is held back, each read by itself; None while everything is shown at once.
        self._held: list[list[str]] | None = None

    def data_received(self, data: bytes) -> None:
        """Bytes arrived."""
        text = self._decoder.decode(data)
        if self._held is not None:
            self._held.append([])
        if not callable(self._to):
            self._show(text)
        *lines, self._unfinished = (self._unfinished + text).split("\n")
        if len(self._unfinished) > 65536:
            lines, self._unfinished = [*lines, self._unfinished], ""
        for line in lines:
            self._add(line.removesuffix("\r"))
        if self._held is not None and len(self._held) > MOST_HELD:
            self.release(None)

    def hold(self) -> None:
        """Hold back what comes, if it is for people: programs and files get everything at once."""
        if (self.shown or self._to == "inherit") and self._held is None:
            self._held = []

    def release(self, without: str | None) -> None:
        """See `ProcessChannel.release_stderr`."""
        held, self._held = self._held or (), None
        is_left_out = False
        for read in held:
            is_left_out = is_left_out or (without is not None and any(without in text for text in read))
            for text in read:
                if is_left_out:
                    logger.debug("Not shown of the standard error of the server: %s", text.rstrip())
                else:
                    self._show(text)

    def _add(self, line: str) -> None:
        if line.strip():
            self.lines.append(line[:LINE_LENGTH])
        if callable(self._to):
            self._show(line)

    def _show(self, text: str) -> None:
        """Pass on a text as it came, or a line to a function."""
        if self._held is not None:
            if not self._held:
                self._held.append([])
            self._held[-1].append(text)
            return
        if callable(self._to):
            try:
                self._to(text)
            except Exception as exc:
                self._to = "discard"
                self.lines.append(f"(the function for standard error failed and is not called again: {exc!r})")
            return
        out = sys.stderr if self._to == "inherit" else self._file
        if out is not None:
            with contextlib.suppress(OSError, ValueError):
                out.write(text)
                out.flush()

    def connection_lost(self, exc: Exception | None) -> None:
        """The child's standard error is closed."""
        if self._unfinished:
            self._add(self._unfinished)
            self._unfinished = ""
        if self._file is not None:
            self._file.close()


class ChildProcess:
    """A child that was started. Whoever takes the descriptors `stdin` and `stdout` closes them.

    `on_exit` is called in the event loop when the process has ended. A thread waits for that. The process id stays taken
    until `reap`, so that signals to the group can't hit another one (but not on macOS before Python 3.13).
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
        self._reader = StderrReader(stderr)
        self.exited = asyncio.Event()
        #: Whether it has written a message to standard output.
        self.has_answered = False
        self._code = 0
        try:
            self._popen, self._job = _start(command, child_environment(env), cwd)
        except (OSError, ValueError) as exc:
            reason = _start_failure(exc, command[0], cwd)
            raise ConnectFailed(f"Can't start {shorten(shlex.join(command))}: {reason}") from exc
        self.stdin, self.stdout, stderr_fd = map(
            _take_descriptor, (self._popen.stdin, self._popen.stdout, self._popen.stderr)
        )
        self._stderr = open_descriptors(self._reader, stderr_fd, None)
        self._has_ended = threading.Event()
        self._may_reap = threading.Event()
        self._waiter = threading.Thread(target=self._wait, name="gemel-child", daemon=True)
        self._waiter.start()

    @property
    def pid(self) -> int:
        """The process id, which is also its group's."""
        return self._popen.pid

    @property
    def returncode(self) -> int | None:
        """Exit code, or minus the signal's number; None while it runs."""
        return self._code if self.exited.is_set() else None

    def _hint(self) -> str:
        """What a Python file probably lacks that ended at once without a word."""
        words = [str(word) for word in self._popen.args] if isinstance(self._popen.args, list) else []
        if self.has_answered or self.returncode != 0 or len(words) < 2 or not words[-1].endswith(".py"):
            return ""
        return f". Does {words[-1]} call server.run()? Without it use `gemel run {words[-1]}`"

    def describe_end(self, otherwise: str) -> str:
        """Describe how the process ended, with its last lines of standard error. `otherwise` describes one that runs."""
        if isinstance(self._stderr, DescriptorTransport):
            self._stderr.read_now()
        code = self.returncode
        if code is None:
            end = otherwise
        elif code < 0:
            end = f"was killed by {_signal_name(-code)}"
        else:
            end = f"exited with code {code}"
        if not self._reader.lines:
            return f"the server process ({self.name}) {end}; it wrote nothing to standard error{self._hint()}"
        if self._reader.shown:
            return f"the server process ({self.name}) {end}; see what it wrote to standard error"
        return f"the server process ({self.name}) {end}; its last words:\n" + "\n".join(self._reader.lines)

    def hold_stderr(self) -> None:
        """See `ProcessChannel`."""
        self._reader.hold()

    def release_stderr(self, without: str | None) -> None:
        """See `ProcessChannel`."""
        if isinstance(self._stderr, DescriptorTransport):
            self._stderr.read_now()
        self._reader.release(without)

    # ---------------------------------------------------------------- the end

    def signal(self, name: Literal["SIGTERM", "SIGKILL"]) -> None:
        """Send a signal to the whole group (on Windows: end the process and all that it started)."""
        if self._job is not None:
            self._job.end()
            with contextlib.suppress(OSError):
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
        """Kill what is left of the group and free what the system keeps of the child."""
        self.signal("SIGKILL")
        self._may_reap.set()
        self._waiter.join(REAP_SECONDS)
        self._stderr.abort()

    def abandon(self, patience: float | None) -> None:
        """Close the standard error, and end the process as `ChildChannel.close` does; with None, leave it to the parent process."""
        if isinstance(self._stderr, FlowControl):
            self._stderr.abandon()
        if patience is not None:
            threading.Thread(target=self._end_slowly, args=[patience], name="gemel-child-end", daemon=True).start()

    def _end_slowly(self, patience: float) -> None:
        if not self._has_ended.wait(patience):
            self.signal("SIGTERM")
            self._has_ended.wait(patience)
        self.signal("SIGKILL")
        self._may_reap.set()

    def _wait(self) -> None:
        """In the thread: wait for the end, report it, and free the process id when that is allowed."""
        if _HAS_WAITID:
            with contextlib.suppress(ChildProcessError):  # somebody else in this process waited for it
                info = os.waitid(os.P_PID, self._popen.pid, os.WEXITED | os.WNOWAIT)
                if info is not None:
                    self._code = info.si_status if info.si_code == os.CLD_EXITED else -info.si_status
        else:
            self._code = self._popen.wait()
        self._has_ended.set()
        with contextlib.suppress(RuntimeError):  # the event loop is closed
            self._loop.call_soon_threadsafe(self._ended)
        self._may_reap.wait()
        self._popen.wait()

    def _ended(self) -> None:
        self.exited.set()
        self._on_exit()


def _start(
    command: Sequence[str], environment: Mapping[str, str], cwd: str | os.PathLike[str] | None
) -> tuple[subprocess.Popen[bytes], Job | None]:
    """Start a process as the leader of a group, or on Windows in a job."""
    if not WINDOWS:
        process = subprocess.Popen(
            command, bufsize=0, env=environment, cwd=cwd, start_new_session=True, stdin=PIPE, stdout=PIPE, stderr=PIPE
        )
        return process, None
    from gemel.transports.stream.windows_job import start_in_job

    return start_in_job(windows_command_line(command, environment), environment, cwd)


def _take_descriptor(file: IO[bytes] | None) -> int:
    assert file is not None
    with file:
        return os.dup(file.fileno())


def _start_failure(exc: OSError | ValueError, program: str, cwd: str | os.PathLike[str] | None) -> str:
    """Why a program could not be started, and what to do."""
    if cwd is not None and not os.path.isdir(cwd):
        return f"the working directory {os.fspath(cwd)} doesn't exist; create it or give another `cwd`."
    match exc:
        case FileNotFoundError() if os.path.isfile(program):
            return f"{program!r} is not a program; a configuration is read by ClientGroup.from_config({program!r})."
        case FileNotFoundError() if len(words := program.split()) > 1 and shutil.which(words[0]):
            return (
                f"there is no program {program!r}; write its arguments apart from it: in `args` of a configuration, or as "
                f"[{words[0]!r}, …] in code."
            )
        case FileNotFoundError():
            if near := near_file(os.path.join(cwd or "", program)):
                return f"there is no program or file {program!r}{near}"
            return f"there is no program {program!r}; give its full path, or a PATH that has it in `env`."
        case PermissionError() if os.path.isdir(program):
            return f"{program!r} is a folder; name the program in it, or the Python file."
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
