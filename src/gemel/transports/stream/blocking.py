"""File descriptors as an asyncio transport with two threads, for what an event loop can't watch.

These are files, devices, terminals (which are shared with other programs and must stay blocking), and pipes on Windows. The
threads are daemons, so that a pending read does not keep the process alive.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import queue
import stat
import sys
import threading
from typing import Any

from gemel.transports.stream.descriptors import CHUNK, DescriptorTransport, FlowControl


class BlockingTransport(FlowControl):
    """Reads one descriptor and writes another (or none) for a protocol, each in a thread; owns and closes both."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, protocol: asyncio.Protocol, read_fd: int, write_fd: int | None
    ) -> None:
        super().__init__(loop, protocol)
        self._in, self._out = read_fd, write_fd
        self._may_read = threading.Event()
        self._may_read.set()
        self._pending: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        self._size = 0
        protocol.connection_made(self)
        threading.Thread(target=self._read, name="gemel-read", daemon=True).start()
        threading.Thread(target=self._write, name="gemel-write", daemon=True).start()

    # ---------------------------------------------------------------- in the threads

    def _read(self) -> None:
        data = b"."
        while data and not self._closing:
            try:
                data = os.read(self._in, CHUNK)
            except OSError:
                data = b""
            taken = threading.Event()
            if not self._call_soon(self._arrived, data, taken):
                break
            taken.wait()
            self._may_read.wait()
        os.close(self._in)

    def _write(self) -> None:
        failed: OSError | None = None
        while (data := self._pending.get()) is not None:
            try:
                unwritten = memoryview(data)
                while unwritten and failed is None and self._out is not None:
                    unwritten = unwritten[os.write(self._out, unwritten) :]
            except OSError as exc:
                failed = exc
            self._call_soon(self._written, len(data), failed)
        if self._out is not None:
            os.close(self._out)
        self._call_soon(self._output_closed)

    def _call_soon(self, function: Any, *arguments: Any) -> bool:
        with contextlib.suppress(RuntimeError):  # the loop is closed
            self._loop.call_soon_threadsafe(function, *arguments)
            return True
        return False

    # ---------------------------------------------------------------- in the loop

    def _arrived(self, data: bytes, taken: threading.Event) -> None:
        try:
            if self._closing:
                return
            if data:
                self._protocol.data_received(data)
            elif not self._protocol.eof_received():
                self.close()
        finally:
            taken.set()

    def _written(self, size: int, failed: OSError | None) -> None:
        self._size -= size
        if failed is not None:
            self._finish(failed)
        else:
            self._control_flow()

    def _output_closed(self) -> None:
        if self._closing:
            self._finish(None)

    def _finish(self, exc: Exception | None) -> None:
        if not self._finished:
            self._finished = self._closing = True
            self._pending.put(None)
            self._may_read.set()
            self._protocol.connection_lost(exc)

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Queue for the writing thread."""
        if not self._closing and data:
            self._size += len(data)
            self._pending.put(bytes(data))
            self._control_flow()

    def write_eof(self) -> None:
        """Close the writing end after what is still to be written."""
        self._pending.put(None)

    def pause_reading(self) -> None:
        """Read no more; one chunk may still come."""
        self._may_read.clear()

    def resume_reading(self) -> None:
        """Read again."""
        self._may_read.set()

    def get_write_buffer_size(self) -> int:
        """Bytes that the thread has not written yet."""
        return self._size

    def close(self) -> None:
        """Write what is left, then end."""
        if not self._closing:
            self._closing = True
            self._may_read.set()
            self._pending.put(None)

    def abandon(self) -> None:
        """See `FlowControl`. The threads close the descriptors."""
        self._finished = self._closing = True
        self._pending.put(None)
        self._may_read.set()

    def abort(self) -> None:
        """End now."""
        self._closing = True
        self._loop.call_soon(self._finish, None)


def open_descriptors(protocol: asyncio.Protocol, read_fd: int, write_fd: int | None) -> asyncio.Transport:
    """Make the transport that suits the descriptors. It owns and closes them.

    Args:
        protocol: What the transport serves.
        read_fd: The descriptor to read.
        write_fd: The descriptor to write, None if there is none.
    """
    loop = asyncio.get_running_loop()
    if sys.platform != "win32" and _can_be_watched(read_fd) and (write_fd is None or _can_be_watched(write_fd)):
        return DescriptorTransport(loop, protocol, read_fd, write_fd)
    return BlockingTransport(loop, protocol, read_fd, write_fd)


def _can_be_watched(fd: int) -> bool:
    mode = os.fstat(fd).st_mode
    return stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode)
