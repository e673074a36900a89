"""One or two file descriptors as an asyncio transport: pipes, sockets, terminals, files and /dev/null.

The pipe transports of asyncio refuse files, make terminals non-blocking for all programs, and mistake a socket used in
both directions for a broken pipe.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import select
import stat
from typing import Any

CHUNK = 65536
#: Maximum number of chunks that `read_now` reads: more than a pipe holds.
READ_NOW = 16


def _may_block(mode: int) -> bool:
    """Pipes and sockets are made non-blocking. A terminal is shared with other programs and stays as it is."""
    return stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode)


def _events(fd: int, wanted: int) -> int:
    """Poll a descriptor without waiting: the wanted events, and always errors and hang-ups."""
    watch = select.poll()
    watch.register(fd, wanted)
    return next((events for _, events in watch.poll(0)), 0)


class DescriptorTransport(asyncio.Transport):
    """Reads one descriptor and writes another (or none) for a protocol; owns both and closes them at the end.

    If the kernel can't tell whether a descriptor is ready (a file, /dev/null), it is read once per iteration of the event
    loop, and written at once, blocking. The blocking mode of shared pipes is restored.
    """

    def __init__(
        self, loop: asyncio.AbstractEventLoop, protocol: asyncio.Protocol, read_fd: int, write_fd: int | None
    ) -> None:
        super().__init__()
        self._loop = loop
        self._protocol = protocol
        self._in = read_fd
        self._out = -1 if write_fd is None else write_fd
        self._buffer = bytearray()
        self._high, self._low = CHUNK, CHUNK // 4
        self._reading = self._paused = self._choked = False
        self._input_over = self._eof_wanted = False
        self._closing = self._failing = self._finished = False
        self._polled = True
        self._turn: asyncio.Handle | None = None
        self._pollable_output = self._out >= 0 and _may_block(os.fstat(self._out).st_mode)
        pollable = [fd for fd in (self._in, self._out) if fd >= 0 and _may_block(os.fstat(fd).st_mode)]
        self._was_blocking = [(fd, os.get_blocking(fd)) for fd in pollable]
        self._leave_blocking = self._in not in pollable and os.get_blocking(self._in)
        for fd in pollable:
            os.set_blocking(fd, False)
        protocol.connection_made(self)
        self._start_reading()

    # ---------------------------------------------------------------- reading

    def _start_reading(self) -> None:
        if self._reading or self._paused or self._input_over or self._closing:
            return
        self._reading = True
        if self._polled:
            try:
                self._loop.add_reader(self._in, self._read_ready)
                if self._leave_blocking:  # uvloop has made it non-blocking
                    os.set_blocking(self._in, True)
            except OSError:
                self._polled = False
        if not self._polled:
            self._turn = self._loop.call_soon(self._read_in_turns)

    def _stop_reading(self) -> None:
        if self._reading:
            self._reading = False
            if self._turn is not None:
                self._turn.cancel()
            elif self._polled:
                self._loop.remove_reader(self._in)

    def _read_in_turns(self) -> None:
        self._turn = self._loop.call_soon(self._read_in_turns)
        self._read_ready()

    def _read_ready(self) -> None:
        try:
            data = os.read(self._in, CHUNK)
        except (BlockingIOError, InterruptedError):
            return
        except OSError as exc:
            self._fail(exc)
            return
        if data:
            self._protocol.data_received(data)
            return
        self._stop_reading()
        self._input_over = True
        if not self._protocol.eof_received():
            self.close()
        elif self._pollable_output and not self._closing and self._out >= 0:
            self._watch_output()

    def read_now(self) -> None:
        """Deliver what has already arrived, without waiting for the event loop."""
        for _ in range(READ_NOW):
            if not self._reading or not _events(self._in, select.POLLIN):
                return
            self._read_ready()

    def pause_reading(self) -> None:
        """Read no more for now."""
        self._paused = True
        self._stop_reading()

    def resume_reading(self) -> None:
        """Read again."""
        self._paused = False
        self._start_reading()

    def is_reading(self) -> bool:
        """Whether bytes can arrive."""
        return self._reading

    # ---------------------------------------------------------------- writing

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Write now what the descriptor takes, the rest as soon as it takes more."""
        if self._closing or self._failing or self._out < 0 or not data:
            return
        if not self._buffer:
            try:
                done = self._write_some(data)
            except OSError as exc:
                self._refused(exc)
                return
            if done == len(data):
                return
            data = memoryview(data)[done:]
            self._loop.add_writer(self._out, self._write_ready)
        self._buffer += data
        if len(self._buffer) > self._high and not self._choked:
            self._choked = True
            self._protocol.pause_writing()

    def _write_some(self, data: bytes | bytearray | memoryview) -> int:
        try:
            done = os.write(self._out, data)
            while not self._pollable_output and done < len(data):
                done += os.write(self._out, memoryview(data)[done:])
        except (BlockingIOError, InterruptedError):
            return 0
        return done

    def _write_ready(self) -> None:
        try:
            done = self._write_some(self._buffer)
        except OSError as exc:
            self._refused(exc)
            return
        del self._buffer[:done]
        if not self._buffer:
            self._loop.remove_writer(self._out)
        if self._choked and len(self._buffer) <= self._low:
            self._choked = False
            self._protocol.resume_writing()
        if not self._buffer and self._closing:
            self._loop.call_soon(self._finish, None)
        elif not self._buffer and self._eof_wanted:
            self._close_output()

    def _refused(self, exc: OSError) -> None:
        """Writing failed. What the peer wrote before is still read, in the next iteration of the event loop."""
        self._buffer.clear()
        self._loop.remove_writer(self._out)
        if not self._failing:
            self._failing = True
            self._loop.call_soon(self._fail_after_reading, exc)

    def _fail_after_reading(self, exc: OSError) -> None:
        self.read_now()
        self._fail(exc)

    def _watch_output(self) -> None:
        """The input has ended: notice when nobody reads the output any more."""
        with contextlib.suppress(OSError):
            self._loop.add_reader(self._out, self._output_event)
            self._output_event()

    def _output_event(self) -> None:
        if _events(self._out, 0):
            self._fail(BrokenPipeError("nobody reads any more"))
        elif _events(self._out, select.POLLIN):  # a socket whose peer only closed its own half
            self._loop.remove_reader(self._out)

    def _close_output(self) -> None:
        if self._out >= 0:
            self._loop.remove_reader(self._out)
            self._was_blocking = [(fd, was) for fd, was in self._was_blocking if fd != self._out]
            os.close(self._out)
            self._out = -1

    def can_write_eof(self) -> bool:
        """Always: the writing end has a descriptor of its own."""
        return True

    def write_eof(self) -> None:
        """Close the writing end after what is still to be written."""
        self._eof_wanted = True
        if not self._buffer:
            self._close_output()

    def get_write_buffer_size(self) -> int:
        """Bytes that the descriptor hasn't taken yet."""
        return len(self._buffer)

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """When the protocol is asked to stop writing, and when to go on."""
        self._high = CHUNK if high is None else high
        self._low = self._high // 4 if low is None else low

    # ---------------------------------------------------------------- the end

    def is_closing(self) -> bool:
        """Whether the end has begun."""
        return self._closing

    def close(self) -> None:
        """Read no more, write what is left, then end."""
        if not self._closing:
            self._closing = True
            self._stop_reading()
            if not self._buffer:
                self._loop.call_soon(self._finish, None)

    def abort(self) -> None:
        """End now; what isn't written is lost."""
        self._fail(None)

    def _fail(self, exc: Exception | None) -> None:
        self._closing = True
        self._stop_reading()
        self._buffer.clear()
        self._loop.call_soon(self._finish, exc)

    def _finish(self, exc: Exception | None) -> None:
        if self._finished:
            return
        self._finished = True
        if self._out >= 0:
            self._loop.remove_writer(self._out)
            self._loop.remove_reader(self._out)
        self.restore_blocking()
        for fd in {self._in, self._out} - {-1}:
            os.close(fd)
        self._in = self._out = -1
        self._protocol.connection_lost(exc)

    def restore_blocking(self) -> None:
        """Restore the blocking mode, which every process that shares the open file sees."""
        for fd, was in self._was_blocking:
            with contextlib.suppress(OSError):
                os.set_blocking(fd, was)
        self._was_blocking = []

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        """Nothing is known about a descriptor."""
        return default
