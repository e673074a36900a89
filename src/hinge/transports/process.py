"""A child process with pipes: started, watched, its last words kept, ended with its whole group. Knows no messages."""

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
from typing import IO, Literal, TypeAlias

from hinge.errors import ConnectFailed, shorten
from hinge.transports.blocking import open_descriptors
from hinge.transports.descriptors import DescriptorTransport

#: What a child inherits from our environment; everything else may hold secrets and must be given (SEC-52).
INHERITED = (
    "APPDATA COMSPEC HOMEDRIVE HOMEPATH LOCALAPPDATA PATH PATHEXT PROCESSOR_ARCHITECTURE SYSTEMDRIVE SYSTEMROOT TEMP"
    " TMP USERNAME USERPROFILE"
    if sys.platform == "win32"
    else "HOME LANG LC_ALL LC_CTYPE LOGNAME PATH SHELL TERM TMPDIR TZ USER"
).split()

#: Lines of standard error that are kept for the reason of a death, and the characters kept of each.
LAST_WORDS = 20
WORD_LENGTH = 500


class Shown:
    """Where people read standard error beside the errors: the reason for a death needn't quote what they have seen.

    `to` is a function that gets it line by line, or None for our own standard error.
    """

    def __init__(self, to: Callable[[str], object] | None = None) -> None:
        self.to: Literal["inherit"] | Callable[[str], object] = to or "inherit"


#: Seconds for which the event loop is held up until a killed child is gone; after that a thread waits for it.
AT_ONCE = 0.2

#: Where a child's standard error goes: to ours, nowhere, to the end of a file, line by line to a function, or to people.
Stderr: TypeAlias = Literal["inherit", "discard"] | os.PathLike[str] | Callable[[str], object] | Shown


def child_environment(extra: Mapping[str, str] | None) -> dict[str, str]:
    """The short list INHERITED of our environment, without exported shell functions, and `extra` on top."""
    chosen = {name: os.environ[name] for name in INHERITED if name in os.environ}
    return {name: value for name, value in chosen.items() if not value.startswith("()")} | dict(extra or {})


class LastWords(asyncio.Protocol):
    """Reads a child's standard error: passes it on as it comes and remembers the last lines."""

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

    def obituary(self, otherwise: str) -> str:
        """What became of the process, with its last words if they aren't known yet; `otherwise` if it still runs."""
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
