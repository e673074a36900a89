"""Foreign peers for the tests of transports and proxies: where they are, and how they are started and ended.

The peers are those of tests/interop; a test that needs one is skipped where it isn't installed.
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress

import pytest

from tests.interop.peers import ROOT, locate

PEERS = locate()

#: Set by `make interop`, which installs the peers: then no test is skipped for want of one.
REQUIRED = "REQUIRE_PEERS" in os.environ

needs_everything = pytest.mark.skipif(
    not (REQUIRED or (PEERS.node_modules / ".bin/mcp-server-everything").exists()),
    reason="the reference server isn't installed: `make interop`",
)
needs_official = pytest.mark.skipif(
    not (REQUIRED or PEERS.peers_python.exists()), reason="the official Python SDK isn't installed: `make interop`"
)


@asynccontextmanager
async def program(command: Sequence[str], **environment: str) -> AsyncIterator[asyncio.subprocess.Process]:
    """A child process, ended at the end of the block. What it says on standard error is kept for `last_words`."""
    process = await asyncio.create_subprocess_exec(
        *command,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
        env={**os.environ, "PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}", **environment},
        cwd=ROOT,
        start_new_session=True,
    )
    words = bytearray()
    listening = asyncio.create_task(_collect(process, words))
    try:
        yield process
    finally:
        with suppress(ProcessLookupError):
            process.terminate()
        over = asyncio.gather(process.wait(), listening)
        try:
            await asyncio.wait_for(asyncio.shield(over), 5)
        except TimeoutError:
            _kill_all(process)
            await over
        if process.returncode not in (0, -15, 143):
            print(words.decode(errors="replace")[-3000:])


def _kill_all(process: asyncio.subprocess.Process) -> None:
    """Also what it started: as long as somebody holds its output, that doesn't end."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)


async def _collect(process: asyncio.subprocess.Process, words: bytearray) -> None:
    assert process.stdout is not None
    while piece := await process.stdout.read(65536):
        words += piece


async def answers(port: int, process: asyncio.subprocess.Process, seconds: float = 20.0) -> None:
    """Wait until the port accepts connections. Raises TimeoutError, or AssertionError when the process ends first."""
    async with asyncio.timeout(seconds):
        while True:
            assert process.returncode is None, f"the server ended with {process.returncode}"
            try:
                _, writer = await asyncio.open_connection("127.0.0.1", port)
            except OSError:
                await asyncio.sleep(0.05)
                continue
            writer.close()
            return


@asynccontextmanager
async def listening(command: Sequence[str], port: int, **environment: str) -> AsyncIterator[int]:
    """A server in a child process that listens on the port."""
    async with program(command, **environment) as process:
        await answers(port, process)
        yield port


async def output_of(command: Sequence[str], environment: Mapping[str, str] | None = None) -> str:
    """What a program prints until it ends with 0."""
    process = await asyncio.create_subprocess_exec(
        *command,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}", **(environment or {})},
        cwd=ROOT,
        start_new_session=True,
    )
    try:
        out, err = await asyncio.wait_for(process.communicate(), 60)
    except BaseException:
        _kill_all(process)
        await process.wait()
        raise
    assert process.returncode == 0, err.decode(errors="replace")[-3000:]
    return out.decode()
