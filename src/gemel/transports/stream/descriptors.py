"""One or two pipes or sockets, by descriptor, as an asyncio transport.

The pipe transports of asyncio mistake a socket used in both directions for a broken pipe.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import select
from abc import abstractmethod
from typing import Any

CHUNK = 65536
#: Maximum number of chunks that `read_now` reads: more than a pipe holds.
READ_NOW = 16


def _poll(fd: int, events: int) -> int:
    """Which of these events a descriptor has now; always includes errors and hang-ups."""
    poll = select.poll()
    poll.register(fd, events)
    return next((ready for _, ready in poll.poll(0)), 0)


class FlowControl(asyncio.Transport):
    """The part of a transport that asks its protocol to pause and resume writing."""

    def __init__(self, loop: asyncio.AbstractEventLoop, protocol: asyncio.Protocol) -> None:
        super().__init__()
        self._loop = loop
        self._protocol = protocol
        self._high, self._low = CHUNK, CHUNK // 4
        self._writing_paused = self._closing = self._finished = False

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """Set with how many unwritten bytes the protocol is asked to pause writing, and with how many to resume."""
        self._high = CHUNK if high is None else high
        self._low = self._high // 4 if low is None else low

    @abstractmethod
    def get_write_buffer_size(self) -> int:
        """Bytes that are not written yet."""

    @abstractmethod
    def abandon(self) -> None:
        """Close the descriptors without the event loop, which runs no more."""

    def _control_flow(self) -> None:
        """Call this whenever the number of unwritten bytes has changed."""
        size = self.get_write_buffer_size()
        if not self._writing_paused and size > self._high:
            self._writing_paused = True
            self._protocol.pause_writing()
        elif self._writing_paused and size <= self._low:
            self._writing_paused = False
            self._protocol.resume_writing()

    def can_write_eof(self) -> bool:
        """Always: the output has a descriptor of its own."""
        return True

    def is_closing(self) -> bool:
        """Whether the end has begun."""
        return self._closing

    def get_extra_info(self, name: str, default: object = None) -> Any:
        """Nothing is known about a descriptor."""
        return default


class DescriptorTransport(FlowControl):
    """Reads one descriptor and writes another (or none) for a protocol; owns both and closes them at the end.

    Both are made non-blocking. Their blocking mode is restored, because other processes may share them.
    """

    def __init__(
        self, loop: asyncio.AbstractEventLoop, protocol: asyncio.Protocol, read_fd: int, write_fd: int | None
    ) -> None:
        super().__init__(loop, protocol)
        self._in = read_fd
        self._out = -1 if write_fd is None else write_fd
        self._buffer = bytearray()
        self._reading = self._reading_paused = self._input_over = False
        self._close_output_when_written = self._failing = False
        self._was_blocking = [(fd, os.get_blocking(fd)) for fd in (self._in, self._out) if fd >= 0]
        for fd, _ in self._was_blocking:
            os.set_blocking(fd, False)
        protocol.connection_made(self)
        self._start_reading()

    # ---------------------------------------------------------------- reading

    def _start_reading(self) -> None:
        if not (self._reading or self._reading_paused or self._input_over or self._closing):
            self._reading = True
            self._loop.add_reader(self._in, self._read_ready)

    def _stop_reading(self) -> None:
        if self._reading:
            self._reading = False
            self._loop.remove_reader(self._in)

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
        elif not self._closing and self._out >= 0:
            self._watch_output()

    def read_now(self) -> None:
        """Deliver what has already arrived, without waiting for the event loop."""
        for _ in range(READ_NOW):
            if not self._reading or not _poll(self._in, select.POLLIN):
                return
            self._read_ready()

    def pause_reading(self) -> None:
        """Read no more for now."""
        self._reading_paused = True
        self._stop_reading()

    def resume_reading(self) -> None:
        """Read again."""
        self._reading_paused = False
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
                self._write_failed(exc)
                return
            if done == len(data):
                return
            data = memoryview(data)[done:]
            self._loop.add_writer(self._out, self._write_ready)
        self._buffer += data
        self._control_flow()

    def _write_some(self, data: bytes | bytearray | memoryview) -> int:
        try:
            return os.write(self._out, data)
        except (BlockingIOError, InterruptedError):
            return 0

    def _write_ready(self) -> None:
        try:
            done = self._write_some(self._buffer)
        except OSError as exc:
            self._write_failed(exc)
            return
        del self._buffer[:done]
        if not self._buffer:
            self._loop.remove_writer(self._out)
        self._control_flow()
        if not self._buffer and self._closing:
            self._loop.call_soon(self._finish, None)
        elif not self._buffer and self._close_output_when_written:
            self._close_output()

    def _write_failed(self, exc: OSError) -> None:
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
        if _poll(self._out, 0):
            self._fail(BrokenPipeError("nobody reads any more"))
        elif _poll(self._out, select.POLLIN):  # a socket whose peer only closed its own half
            self._loop.remove_reader(self._out)

    def _close_output(self) -> None:
        if self._out >= 0:
            self._loop.remove_reader(self._out)
            self._was_blocking = [(fd, was) for fd, was in self._was_blocking if fd != self._out]
            os.close(self._out)
            self._out = -1

    def write_eof(self) -> None:
        """Close the writing end after what is still to be written."""
        self._close_output_when_written = True
        if not self._buffer:
            self._close_output()

    def get_write_buffer_size(self) -> int:
        """Bytes that the descriptor hasn't taken yet."""
        return len(self._buffer)

    # ---------------------------------------------------------------- the end

    def close(self) -> None:
        """Read no more, write what is not written yet, then end."""
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
        if self._out >= 0:
            self._loop.remove_writer(self._out)
            self._loop.remove_reader(self._out)
        self.restore_blocking()
        self.abandon()
        self._protocol.connection_lost(exc)

    def abandon(self) -> None:
        self._finished = self._closing = True
        for fd in {self._in, self._out} - {-1}:
            os.close(fd)
        self._in = self._out = -1

    def restore_blocking(self) -> None:
        """Restore the blocking mode, which every process that shares the open file sees."""
        for fd, was in self._was_blocking:
            with contextlib.suppress(OSError):
                os.set_blocking(fd, was)
        self._was_blocking = []
