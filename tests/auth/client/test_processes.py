"""Logins that last: many processes with one stored login, and processes that are killed."""

# small files on a local disk

from __future__ import annotations

import asyncio
import os
import random
import signal
import sys
import time
from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import pytest

from gemel import Client
from gemel.auth import FileTokenStore, OAuth, Tokens, TokenStore
from tests.auth.client.login_processes import store_at
from tests.auth.double import AuthDouble, Reply
from tests.source import ROOT
from tests.transports.scripted_http import Asked

pytestmark = [
    pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork"),
    pytest.mark.timeout(120),
    pytest.mark.long,
]

PROGRAM = ROOT / "tests" / "auth" / "client" / "login_processes.py"


@pytest.fixture
async def double() -> AsyncIterator[AuthDouble]:
    async with AuthDouble() as double:
        yield double


class Processes:
    """Processes that are ready to call, with the login of a store."""

    def __init__(self, process: asyncio.subprocess.Process, pids: list[int]) -> None:
        self.process = process
        self.pids = pids

    @classmethod
    async def start(cls, count: int, double: AuthDouble, calls: int, place: str) -> Processes:
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT)])}
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            str(PROGRAM),
            str(count),
            double.url,
            str(calls),
            place,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            env=environment,
        )
        assert process.stdout is not None
        word, *pids = (await process.stdout.readline()).split()
        assert word == b"ready"
        return cls(process, [int(pid) for pid in pids])

    def begin(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(b"\n")

    async def lines(self) -> list[str]:
        """What they printed, when all have ended."""
        output, _ = await self.process.communicate()
        return output.decode().splitlines()


async def log_in(double: AuthDouble, store: TokenStore) -> None:
    """Log in as a person, once."""
    async with Client(double.url, auth=OAuth(authorizer=double.person(), store=store)) as client:
        await client.call_tool("read")


async def expire(store: TokenStore, double: AuthDouble) -> Tokens:
    """Let the stored access token expire, at both ends."""
    source = OAuth(store=store).bind(double.url)
    await source.tokens()
    assert source._source is not None
    tokens = source._source.tokens
    assert tokens is not None
    tokens = msgspec.structs.replace(tokens, expires_at=time.time() - 1)
    await store.set(source._source.key, tokens)
    double.tokens.clear()
    return tokens


def refreshes(double: AuthDouble) -> int:
    return sum(form["grant_type"] == "refresh_token" for form in double.forms("/token"))


def places(tmp_path: Path) -> dict[str, str]:
    return {"files": str(tmp_path / "logins"), "backend": f"sqlite:///{tmp_path}/state.db"}


@pytest.mark.parametrize("kind", ["files", "backend"])
async def test_twenty_processes_with_an_expired_token_make_one_refresh(
    kind: str, double: AuthDouble, tmp_path: Path
) -> None:
    """The authorization server accepts each refresh token once: a second refresh would log everybody out."""
    place = places(tmp_path)[kind]
    store = store_at(place)
    await log_in(double, store)
    await expire(store, double)
    processes = await Processes.start(20, double, 3, place)
    processes.begin()
    assert await processes.lines() == ["3 calls"] * 20
    assert refreshes(double) == 1
    assert len(double.opened) == 1, "nobody had to log in again"


async def test_twenty_processes_with_a_token_that_was_revoked_make_one_refresh(
    double: AuthDouble, tmp_path: Path
) -> None:
    """It has not expired as far as they know: each is refused first."""
    store = FileTokenStore(tmp_path / "logins")
    await log_in(double, store)
    double.tokens.clear()
    processes = await Processes.start(20, double, 3, str(tmp_path / "logins"))
    processes.begin()
    assert await processes.lines() == ["3 calls"] * 20
    assert refreshes(double) == 1


@pytest.mark.parametrize("kind", ["files", "backend"])
async def test_a_process_that_is_killed_during_its_refresh_loses_no_login(
    kind: str, double: AuthDouble, tmp_path: Path
) -> None:
    place = places(tmp_path)[kind]
    store = store_at(place)
    await log_in(double, store)
    await expire(store, double)
    arrived = asyncio.Event()
    answer = double.answer_token

    async def hang(asked: Asked) -> Reply:
        arrived.set()
        await asyncio.sleep(60)
        return Reply(500)

    double.change("/token", hang)
    first = await Processes.start(1, double, 1, place)
    second = await Processes.start(3, double, 1, place)
    first.begin()
    await arrived.wait()
    second.begin()  # these wait for the lock of the first one
    double.change("/token", answer)
    os.kill(first.pids[0], signal.SIGKILL)
    assert await first.lines() == []
    assert await second.lines() == ["1 calls"] * 3
    assert refreshes(double) == 2, "the one that was killed, and the one of all others"
    assert len(double.opened) == 1


async def test_a_process_that_is_killed_while_it_writes_leaves_a_whole_login(tmp_path: Path) -> None:
    code = (
        "import asyncio, sys\n"
        "from gemel.auth import FileTokenStore, Tokens\n"
        "async def main():\n"
        "    store, number = FileTokenStore(sys.argv[1]), 0\n"
        "    while True:\n"
        "        number += 1\n"
        "        await store.set('key', Tokens(access_token=f'{number}' * 1000, refresh_token=f'{number}'))\n"
        "        print(number, flush=True)\n"
        "asyncio.run(main())\n"
    )
    store = FileTokenStore(tmp_path)
    for _ in range(6):
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-c", code, str(tmp_path), stdout=asyncio.subprocess.PIPE
        )
        assert process.stdout is not None
        for _ in range(random.randrange(1, 20)):
            await process.stdout.readline()
        await asyncio.sleep(random.random() / 500)
        process.kill()
        output, _ = await process.communicate()
        tokens = await store.get("key")
        assert tokens is not None
        assert tokens.refresh_token is not None
        assert tokens.access_token == tokens.refresh_token * 1000
        if lines := [line for line in output.split(b"\n") if line]:
            assert int(tokens.refresh_token) >= int(lines[-1]), "what was reported as stored is stored"
