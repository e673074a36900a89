"""Descriptors of every kind as a transport."""

from __future__ import annotations

import asyncio
import contextlib
import os
import pty
import socket
import threading
import tty
from pathlib import Path

import pytest

from gemel.transports.stream.blocking import BlockingTransport, open_descriptors
from tests.transports.loops import on_both_loops, until


class Recorder(asyncio.Protocol):
    """Writes down what a transport tells it; stays open after the end of the input if `stay`."""

    def __init__(self, stay: bool = False) -> None:
        self.data = b""
        self.events: list[str] = []
        self.lost: Exception | None = None
        self.stay = stay

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.events.append("made")

    def data_received(self, data: bytes) -> None:
        self.data += data

    def eof_received(self) -> bool:
        self.events.append("eof")
        return self.stay

    def connection_lost(self, exc: Exception | None) -> None:
        self.lost = exc
        self.events.append("lost")

    def pause_writing(self) -> None:
        self.events.append("pause")

    def resume_writing(self) -> None:
        self.events.append("resume")


def over(recorder: Recorder, read_fd: int, write_fd: int | None = None) -> asyncio.Transport:
    return open_descriptors(recorder, read_fd, write_fd)


async def threads_ended() -> None:
    """What can't be watched is read and written by threads."""
    await until(
        lambda: not [thread for thread in threading.enumerate() if thread.name in ("gemel-read", "gemel-write")]
    )


@on_both_loops
async def test_a_file_is_read_to_its_end(tmp_path: Path) -> None:
    """Event loops refuse files: `server < requests.json` works all the same."""
    content = os.urandom(200_000)
    (tmp_path / "in").write_bytes(content)
    recorder = Recorder()
    over(recorder, os.open(tmp_path / "in", os.O_RDONLY))
    await until(lambda: "lost" in recorder.events)
    assert recorder.data == content
    assert recorder.events == ["made", "eof", "lost"]
    await threads_ended()


@on_both_loops
async def test_reading_a_file_can_be_paused_and_taken_up_again(tmp_path: Path) -> None:
    """Turns of reading must not multiply."""
    (tmp_path / "in").write_bytes(b"x" * 500_000)
    recorder = Recorder()
    transport = over(recorder, os.open(tmp_path / "in", os.O_RDONLY))
    for _ in range(5):
        transport.pause_reading()
        transport.resume_reading()
    await until(lambda: recorder.data)
    transport.pause_reading()
    size = len(recorder.data)
    await asyncio.sleep(0.01)
    assert len(recorder.data) <= size + 65536  # one chunk may have been under way
    transport.resume_reading()
    await until(lambda: "lost" in recorder.events)
    assert len(recorder.data) == 500_000
    await threads_ended()


@on_both_loops
async def test_the_null_device_is_empty_and_takes_everything() -> None:
    """A server without input ends at once."""
    recorder = Recorder()
    transport = over(recorder, os.open(os.devnull, os.O_RDONLY), os.open(os.devnull, os.O_WRONLY))
    transport.write(b"x" * 10_000_000)
    await until(lambda: "lost" in recorder.events)
    assert transport.get_write_buffer_size() == 0
    await threads_ended()


@on_both_loops
async def test_output_to_a_file_is_complete(tmp_path: Path) -> None:
    """`server > answers.json`."""
    reader, writer = os.pipe()
    recorder = Recorder()
    transport = over(recorder, reader, os.open(tmp_path / "out", os.O_WRONLY | os.O_CREAT))
    transport.write(b"x" * 1_000_000)
    transport.close()
    await until(lambda: "lost" in recorder.events)
    os.close(writer)
    assert (tmp_path / "out").stat().st_size == 1_000_000
    await threads_ended()


@on_both_loops
async def test_a_terminal_is_served_and_stays_blocking_for_the_others() -> None:
    """The shell shares the terminal's open file with us."""
    leader, follower = pty.openpty()
    tty.setraw(follower)
    recorder = Recorder()
    transport = over(recorder, os.dup(follower), os.dup(follower))
    os.write(leader, b"typed\n")
    await until(lambda: recorder.data == b"typed\n")
    assert os.get_blocking(follower)
    transport.write(b"shown\n")
    assert os.read(leader, 100) == b"shown\n"
    transport.close()
    await until(lambda: "lost" in recorder.events)
    os.close(leader)
    os.close(follower)
    await threads_ended()


@on_both_loops
async def test_one_socket_can_be_both_ends() -> None:
    """inetd and socat give a program the same socket as input and output."""
    ours, theirs = socket.socketpair()
    recorder = Recorder(stay=True)
    fd = theirs.detach()
    transport = over(recorder, fd, os.dup(fd))
    ours.sendall(b"in")
    await until(lambda: recorder.data == b"in")
    ours.shutdown(socket.SHUT_WR)
    await until(lambda: "eof" in recorder.events)
    transport.write(b"out")
    transport.close()
    await until(lambda: "lost" in recorder.events)
    assert ours.recv(10) == b"out"
    assert recorder.lost is None
    ours.close()


@pytest.mark.parametrize("kind", ["pipe", "socket"])
@on_both_loops
async def test_after_the_end_of_the_input_it_is_noticed_when_nobody_reads_any_more(kind: str) -> None:
    """Work for a client that is gone altogether can stop."""
    if kind == "pipe":
        (in_read, in_write), (out_read, out_write) = os.pipe(), os.pipe()
    else:
        pairs = socket.socketpair(), socket.socketpair()
        (in_read, in_write), (out_read, out_write) = ((a.detach(), b.detach()) for a, b in pairs)
    recorder = Recorder(stay=True)
    over(recorder, in_read, out_write)
    os.close(in_write)
    await until(lambda: "eof" in recorder.events)
    await asyncio.sleep(0.02)
    assert "lost" not in recorder.events
    os.close(out_read)
    await until(lambda: "lost" in recorder.events)
    assert isinstance(recorder.lost, BrokenPipeError)


@on_both_loops
async def test_the_blocking_mode_of_shared_pipes_is_put_back() -> None:
    """O_NONBLOCK belongs to the open file, not to us."""
    (in_read, in_write), (out_read, out_write) = os.pipe(), os.pipe()
    shared_in, shared_out = os.dup(in_read), os.dup(out_write)
    recorder = Recorder()
    transport = over(recorder, in_read, out_write)
    assert not os.get_blocking(shared_in)
    assert not os.get_blocking(shared_out)
    transport.close()
    await until(lambda: "lost" in recorder.events)
    assert os.get_blocking(shared_in)
    assert os.get_blocking(shared_out)
    for fd in (in_write, out_read, shared_in, shared_out):
        os.close(fd)


@on_both_loops
async def test_a_slow_reader_gets_everything_and_the_writer_is_told_to_wait() -> None:
    """Back-pressure."""
    (in_read, in_write), (out_read, out_write) = os.pipe(), os.pipe()
    recorder = Recorder()
    transport = over(recorder, in_read, out_write)
    transport.set_write_buffer_limits(high=100_000)
    transport.write(b"x" * 300_000)
    assert recorder.events == ["made", "pause"]
    os.set_blocking(out_read, False)
    size = 0
    while size < 300_000:
        with contextlib.suppress(BlockingIOError):
            size += len(os.read(out_read, 65536))
        await asyncio.sleep(0)
    await until(lambda: "resume" in recorder.events)
    assert transport.get_write_buffer_size() == 0
    transport.write_eof()
    assert os.read(out_read, 1) == b""
    transport.close()
    await until(lambda: "lost" in recorder.events)
    os.close(in_write)
    os.close(out_read)


@on_both_loops
async def test_what_the_peer_wrote_before_it_went_away_is_still_read_when_writing_fails() -> None:
    """Otherwise the last answers of a dying server would be lost."""
    (in_read, in_write), (out_read, out_write) = os.pipe(), os.pipe()
    recorder = Recorder()
    transport = over(recorder, in_read, out_write)
    os.close(out_read)
    os.write(in_write, b"last words")
    transport.write(b"too late")
    assert recorder.data == b""
    await until(lambda: "lost" in recorder.events)
    assert recorder.data == b"last words"
    assert isinstance(recorder.lost, BrokenPipeError)
    os.close(in_write)


@on_both_loops
async def test_two_threads_do_the_same_where_descriptors_cannot_be_watched() -> None:
    """The way on Windows."""
    (in_read, in_write), (out_read, out_write) = os.pipe(), os.pipe()
    recorder = Recorder(stay=True)
    transport = BlockingTransport(asyncio.get_running_loop(), recorder, in_read, out_write)
    os.write(in_write, b"hello")
    await until(lambda: recorder.data == b"hello")
    transport.write(b"x" * 200_000)
    assert "pause" in recorder.events
    size = 0
    while size < 200_000:
        size += len(await asyncio.to_thread(os.read, out_read, 65536))
    await until(lambda: "resume" in recorder.events)
    os.close(in_write)
    await until(lambda: "eof" in recorder.events)
    transport.close()
    await until(lambda: "lost" in recorder.events)
    assert os.read(out_read, 1) == b""
    os.close(out_read)
    await asyncio.get_running_loop().shutdown_default_executor()
