"""The process above the workers: it starts them, replaces those that die or hang, reloads them, and ends them together."""

from __future__ import annotations

import contextlib
import logging
import os
import random
import select
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Sequence
from types import FrameType

from gemel.errors import GemelError, StartError, describe_failure
from gemel.transports.http.server.run import RETIRE_SECONDS
from gemel.transports.http.server.workers.status import State, StatusBoard
from gemel.transports.http.server.workers.worker import BEAT, DUMP, READY, RETIRE, tell

logger = logging.getLogger("gemel")

#: A worker that was ready for so many seconds has served: after its death the next one starts at once.
SERVED_SECONDS = 2.0
#: Seconds before a start after a death that came earlier; they double with each one in a row, up to the most.
BACKOFF_SECONDS = 0.25
MOST_BACKOFF_SECONDS = 15.0
#: A server of which no worker was ready yet gives up after so many deaths.
FAILED_STARTS = 3
#: Seconds between the steps that end a worker which hangs: it says what blocks it, dumps all stacks, is killed.
DUMP_SECONDS = 0.5
#: Seconds after which the log says that a reload is not ready, without a time limit for event loops; then after twice as many.
SLOW_RELOAD_SECONDS = 30.0
#: Seconds that a successor gets beyond those of its workers.
MARGIN = 1.0

ENDING = (signal.SIGINT, signal.SIGTERM)
SIGNALS = (*ENDING, signal.SIGHUP, signal.SIGCHLD) if hasattr(signal, "SIGHUP") else ENDING


class Child:
    """A process that was started for a slot."""

    def __init__(self, pid: int, link: socket.socket, now: float) -> None:
        self.pid = pid
        self.started = now
        #: Our end of the link; it is at its end when the process has closed the other.
        self.link = link
        self.ended = False
        self.ready_since: float | None = None
        self.heard = now
        #: How many seconds after its start the log said that it is not ready yet.
        self.slow_after = 0.0
        #: When it is killed, if it is still there.
        self.kill_at: float | None = None
        #: When it was first noticed that it hangs, and whether it was told to dump its stacks.
        self.hung_since: float | None = None
        self.aborted = False

    def signal(self, number: int) -> None:
        """Send a signal. The id is still its own unless a function of the program has waited for all processes."""
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, number)


class Slot:
    """One place among the processes, which is filled again after each death.

    Args:
        work: What a process does, with its end of the link.
        number: The number of the worker; None for a successor, which has workers of its own.
    """

    def __init__(self, work: Callable[[socket.socket], None], number: int | None) -> None:
        self.work = work
        self.number = number
        self.child: Child | None = None
        self.start_at = 0.0
        self.starts = 0
        #: Deaths in a row that came before the process had served.
        self.failures = 0

    def __str__(self) -> str:
        name = "The reloaded server" if self.number is None else f"Worker {self.number}"
        return name if self.child is None else f"{name} (process {self.child.pid})"

    def back_off(self, served: bool, now: float) -> float:
        """Choose when the next process starts. Returns the delay in seconds."""
        self.failures = 0 if served else self.failures + 1
        longest = min(MOST_BACKOFF_SECONDS, BACKOFF_SECONDS * 2 ** min(self.failures - 1, 10))
        delay = random.uniform(longest / 2, longest) if self.failures else 0.0
        self.start_at = now + delay
        return delay


class Supervisor:
    """Runs workers until a signal.

    Args:
        works: What each worker does, with its end of the link.
        board: Where the states of the workers are written.
        stop_seconds: How long a worker may take to end.
        timeout: How long the event loop of a worker may be blocked, in seconds; 0 for no limit.
        on_ready: Called when the server is ready: the first worker, or in a successor all of them.
        reload: What a successor does, with its end of the link; None if there can't be one.
        upward: In a successor, the link to its own supervisor.
    """

    def __init__(
        self,
        works: Sequence[Callable[[socket.socket], None]],
        board: StatusBoard,
        *,
        stop_seconds: float,
        timeout: float,
        on_ready: Callable[[], None],
        reload: Callable[[socket.socket], None] | None,
        upward: socket.socket | None,
    ) -> None:
        self._slots = [Slot(work, number) for number, work in enumerate(works)]
        self._board = board
        self._stop_seconds = stop_seconds
        self._timeout = timeout
        self._tick = min(1.0, timeout / 4 or 1.0)
        self._on_ready = on_ready
        self._reload_work = reload
        self._upward = upward
        self._needed = 1 if upward is None else len(works)
        self._announced = False
        #: Slots whose process is about to end, and that of a reload whose workers are not ready yet.
        self._retired: list[Slot] = []
        self._successor: Slot | None = None
        self._signals: list[int] = []
        self._stops = 0
        self._leaving = False
        self._error: StartError | None = None
        self._terminal = next((stream for stream in (0, 1, 2) if os.isatty(stream)), None)

    def run(self) -> None:
        """Run until SIGTERM or SIGINT; a second signal kills the workers. SIGHUP reloads.

        Raises:
            StartError: Workers can't run, or none became ready.
        """
        if not hasattr(os, "fork"):
            raise StartError("Several workers need a POSIX system: start one, or several servers behind a proxy")
        if threading.active_count() > 1:
            raise StartError("Workers can't be forked while other threads run: start the server before anything else")
        self._wake = socket.socketpair()
        for end in self._wake:
            end.setblocking(False)
        previous_wakeup = signal.set_wakeup_fd(self._wake[1].fileno(), warn_on_full_buffer=False)
        previous_handlers = {number: signal.signal(number, self._on_signal) for number in SIGNALS}
        try:
            while not self._leaving or self._children():
                self._step(time.monotonic())
        finally:
            self._kill_all()
            for number, handler in previous_handlers.items():
                signal.signal(number, handler)
            signal.set_wakeup_fd(previous_wakeup)
            for end in self._wake:
                end.close()
        if self._error is not None:
            raise self._error

    def _step(self, now: float) -> None:
        self._obey(now)
        self._reap(now)
        for slot in self._all_slots():
            if slot.child is None and not self._leaving and slot.start_at <= now:
                self._start(slot, now)
        for slot in self._all_slots():
            if slot.child is not None:
                self._check(slot, slot.child, now)
        if self._upward is not None and self._announced:
            tell(self._upward, BEAT)
        if not self._leaving or self._children():
            self._wait(now)

    def _all_slots(self) -> list[Slot]:
        return [*self._slots, *self._retired, *([self._successor] if self._successor is not None else [])]

    def _children(self) -> list[Child]:
        return [slot.child for slot in self._all_slots() if slot.child is not None]

    # ---------------------------------------------------------------- signals, and what comes over the links

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        self._signals.append(number)

    def _obey(self, now: float) -> None:
        while self._signals:
            number = self._signals.pop(0)
            if number in ENDING:
                self._stop(now)
            elif number == signal.SIGHUP:
                self._hang_up(now)

    def _wait(self, now: float) -> None:
        """Wait for a signal, a message of a process, or the next thing that is due."""
        due = [slot.start_at for slot in self._all_slots() if slot.child is None and not self._leaving]
        due += [child.kill_at for child in self._children() if child.kill_at is not None]
        seconds = max(0.0, min([self._tick, *(each - now for each in due)]))
        poller = select.poll()
        ends = {child.link.fileno(): child for child in self._children() if not child.ended}
        upward = [] if self._upward is None else [self._upward.fileno()]
        for end in (*ends, self._wake[0].fileno(), *upward):
            poller.register(end, select.POLLIN)
        signalled = {descriptor for descriptor, _ in poller.poll(seconds * 1000)}
        late = time.monotonic() - now - seconds
        for child in self._children():
            # Time in which this process did not run, the machine being suspended, does not count against the others.
            child.heard += max(0.0, late - 1.0)
        if self._wake[0].fileno() in signalled:
            self._wake[0].recv(4096)
        if self._upward is not None and self._upward.fileno() in signalled:
            self._hear_supervisor(self._upward)
        for descriptor in signalled & ends.keys():
            self._hear(ends[descriptor], time.monotonic())

    def _hear(self, child: Child, now: float) -> None:
        try:
            messages = child.link.recv(4096)
        except OSError:
            messages = b""
        child.ended = not messages
        if messages:
            child.heard = now
            if child.hung_since is not None and not child.aborted:
                child.hung_since = None
                self._show(child, "ready")
        if READY in messages and child.ready_since is None:
            child.ready_since = now
            self._show(child, "ready")
            self._advance(child, now)

    def _hear_supervisor(self, upward: socket.socket) -> None:
        now = time.monotonic()
        try:
            messages = upward.recv(4096)
        except OSError:
            messages = b""
        if not messages:
            self._upward = None
            self._stop(now)
        elif RETIRE in messages:
            self._leaving = True
            self._retire(self._slots, now)
            self._slots = []

    def _advance(self, child: Child, now: float) -> None:
        """A process is ready: so may be the server, or a reload."""
        if self._successor is not None and self._successor.child is child:
            successor, self._successor = self._successor, None
            self._retire(self._slots, now)
            self._slots = [successor]
            print("Reloaded: new workers serve", file=sys.stderr, flush=True)
        elif not self._announced and self._ready_count() >= self._needed:
            self._announced = True
            self._on_ready()

    def _ready_count(self) -> int:
        return sum(slot.child is not None and slot.child.ready_since is not None for slot in self._slots)

    # ---------------------------------------------------------------- start and death

    def _start(self, slot: Slot, now: float) -> None:
        sys.stdout.flush()
        sys.stderr.flush()
        ours, theirs = socket.socketpair()
        ours.setblocking(False)
        # A signal that comes before the child has its own handlers waits until then.
        blocked = signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
        pid = os.fork()
        if not pid:
            ours.close()
            self._become(slot, theirs, blocked)
        signal.pthread_sigmask(signal.SIG_SETMASK, blocked)
        theirs.close()
        slot.starts += 1
        slot.child = Child(pid, ours, now)
        self._show(slot.child, "starting")

    def _become(self, slot: Slot, link: socket.socket, mask: set[signal.Signals | int]) -> None:
        """Be a process of a slot, in the child of a fork. Does not return."""
        status = 1
        try:
            # In a process group of its own: Ctrl-C in a terminal signals the supervisor only, which passes it on once.
            os.setpgid(0, 0)
            signal.set_wakeup_fd(-1)
            for number in SIGNALS:
                signal.signal(number, signal.SIG_DFL)
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)
            # The ends of the supervisor: others see its death by them.
            for end in (*(child.link for child in self._children()), *self._wake, self._upward):
                if end is not None:
                    end.close()
            slot.work(link)
            status = 0
        except GemelError as exc:
            print(f"gemel: {exc}", file=sys.stderr)
        except BaseException as exc:
            print(describe_failure(exc), file=sys.stderr)
        finally:
            try:
                sys.stdout.flush()
                sys.stderr.flush()
            finally:
                # Not sys.exit: the supervisor's clean-up code must not run in this process.
                os._exit(status)

    def _reap(self, now: float) -> None:
        for slot in self._all_slots():
            if slot.child is not None and (status := _wait_for(slot.child.pid)) is not None:
                self._bury(slot, slot.child, status, now)
        if os.getpid() == 1:  # in a container: what others have left behind is ours to wait for
            while _wait_for(-1) is not None:
                pass

    def _bury(self, slot: Slot, child: Child, status: int, now: float) -> None:
        child.link.close()
        name = str(slot)
        self._show(child, "waiting")
        slot.child = None
        if slot in self._retired:
            self._retired.remove(slot)
        elif slot is self._successor:
            self._successor = None
            logger.error("The reload failed, see above: the present workers go on (%s)", _describe(status))
        elif not self._leaving:
            served = child.ready_since is not None and now - child.ready_since >= SERVED_SECONDS
            delay = slot.back_off(served, now)
            if not self._give_up():
                # Somebody has sent SIGTERM to a worker that served, if that ends with 0.
                level = logging.WARNING if status or child.ready_since is None else logging.INFO
                logger.log(level, "%s ended: %s. The next one starts in %.1f s", name, _describe(status), delay)
            if self._reload_work is not None and slot.number is None:
                logger.warning("The workers of the last reload end with it; new ones load the code again")

    def _give_up(self) -> bool:
        """Whether too few processes can become ready: then the start of the server has failed."""
        failing = sum(slot.failures > 0 for slot in self._slots)
        deaths = sum(slot.failures for slot in self._slots)
        if self._announced or len(self._slots) - failing >= self._needed or deaths < FAILED_STARTS:
            return False
        self._error = StartError(f"{deaths} workers ended before they were ready; see the errors above")
        self._stop(time.monotonic())
        return True

    # ---------------------------------------------------------------- hanging

    def _check(self, slot: Slot, child: Child, now: float) -> None:
        """Kill a process that takes too long to end, or that hangs."""
        if child.kill_at is not None:
            if now >= child.kill_at:
                child.kill_at = None
                child.signal(signal.SIGKILL)
            return
        if slot is self._successor:
            self._warn_of_slow_reload(child, now)
        silence = now - child.heard
        if not self._timeout or self._leaving or child.ready_since is None or silence < self._timeout:
            return
        if child.hung_since is None:
            child.hung_since = now
            self._show(child, "hung")
            logger.error("%s hangs: its event loop has not turned for %.1f s", slot, silence)
            tell(child.link, DUMP)
        elif not child.aborted and now - child.hung_since >= DUMP_SECONDS:
            child.aborted = True
            child.signal(signal.SIGABRT)
            child.kill_at = now + DUMP_SECONDS

    def _warn_of_slow_reload(self, child: Child, now: float) -> None:
        """Say that a reload is not ready: its code may hang while it is loaded, which nobody else would notice."""
        seconds = now - child.started
        if child.ready_since is None and seconds >= max(2 * child.slow_after, self._timeout or SLOW_RELOAD_SECONDS):
            child.slow_after = seconds
            logger.warning(
                "The reload is not ready after %.0f s: process %d still loads the code, or its workers start. The present workers "
                "go on; another SIGHUP begins anew",
                seconds,
                child.pid,
            )

    # ---------------------------------------------------------------- reload and end

    def _hang_up(self, now: float) -> None:
        """SIGHUP: reload, or end if the terminal of this process is gone."""
        if self._terminal is not None and not os.isatty(self._terminal):
            self._stop(now)
        elif self._leaving:
            return
        elif self._reload_work is None:
            logger.error("This server can't reload: a program from a file can, by SIGHUP to its first process")
        else:
            if self._successor is not None and self._successor.child is not None:
                # It may have read files that have changed since.
                self._end([self._successor], now)
                self._retired.append(self._successor)
            self._successor = Slot(self._reload_work, None)

    def _retire(self, slots: Sequence[Slot], now: float) -> None:
        """Let processes serve what is connected, and end."""
        for slot in slots:
            if slot.child is None:
                continue
            if slot.child.ready_since is None:
                self._end([slot], now)
            else:
                tell(slot.child.link, RETIRE)
                slot.child.kill_at = now + RETIRE_SECONDS + self._patience(slot)
                self._show(slot.child, "draining")
            self._retired.append(slot)

    def _patience(self, slot: Slot) -> float:
        return self._stop_seconds + (MARGIN if slot.number is None else 0.0)

    def _stop(self, now: float) -> None:
        """End all processes; at the second call at once."""
        self._stops += 1
        self._leaving = True
        if self._stops > 1:
            for slot in self._all_slots():
                self._hurry(slot, now)
        else:
            self._end(self._all_slots(), now)

    def _end(self, slots: Sequence[Slot], now: float) -> None:
        for slot in slots:
            if slot.child is not None:
                slot.child.signal(signal.SIGTERM)
                slot.child.kill_at = now + self._patience(slot)
                self._show(slot.child, "draining")

    def _hurry(self, slot: Slot, now: float) -> None:
        """Kill a process. A successor kills its workers when it gets a second signal, too."""
        if slot.child is not None:
            slot.child.signal(signal.SIGKILL if slot.number is not None else signal.SIGTERM)
            slot.child.kill_at = now + MARGIN

    def _kill_all(self) -> None:
        for child in self._children():
            child.signal(signal.SIGKILL)
            with contextlib.suppress(ChildProcessError):
                os.waitpid(child.pid, 0)
            child.link.close()

    def _show(self, child: Child, state: State) -> None:
        """Write the state of a worker for `/health`."""
        slot = next((slot for slot in self._slots if slot.child is child), None)
        if slot is not None and slot.number is not None:
            started = time.time() - (time.monotonic() - child.started)
            self._board.set_process(slot.number, child.pid, state, slot.starts - 1, started)


def _wait_for(pid: int) -> int | None:
    """Return the wait status of a process that has ended; None if it has not. Whoever else has waited for it got the status."""
    try:
        ended, status = os.waitpid(pid, os.WNOHANG)
    except ChildProcessError:
        return None if pid == -1 else 0
    return status if ended else None


def _describe(status: int) -> str:
    code = os.waitstatus_to_exitcode(status)
    if code >= 0:
        return f"exit code {code}"
    return f"killed by signal {-code}, {signal.strsignal(-code) or 'unknown'}"
