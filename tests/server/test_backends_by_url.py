"""A backend that a part of a server opened, because it got a URL, is closed when the server stops, and opened again with it."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, nullcontext
from pathlib import Path
from typing import Any

import pytest

from gemel import Server
from gemel.auth import DPoPProofs, JWTAuth, OAuthProxy
from gemel.auth.server.proxy import providers
from gemel.backends import Backend
from gemel.extensions.tasks import TaskEngine, Tasks
from tests.auth.hostile.issuer import AUDIENCE, ISSUER, key_set

#: A server that was given a URL somewhere, and the backend that it has there.
Made = tuple[Server[Any], Callable[[], Backend]]


def of_server(url: str) -> Made:
    server: Server[Any] = Server("x", backend=url)
    return server, lambda: server.backend


def of_proofs(url: str) -> Made:
    proofs = DPoPProofs(backend=url)
    auth = JWTAuth(issuer=ISSUER, audience=AUDIENCE, keys=key_set(), dpop=proofs)
    return Server("x", auth=auth), lambda: proofs._backing.backend


def of_proxy(url: str) -> Made:
    auth = OAuthProxy(
        providers.GitHub(client_id="a", client_secret="b"), url="https://notes.example.com/mcp", backend=url
    )
    return Server("x", auth=auth), lambda: auth._backing.backend


def of_tasks(url: str) -> Made:
    server: Server[Any] = Server("x")
    tasks = Tasks(backend=url)
    server.add_extension(tasks)
    return server, lambda: tasks._store.backend


def open_threads() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name.startswith("gemel-sqlite")]


async def until_closed() -> None:
    async with asyncio.timeout(20):
        while open_threads():  # noqa: ASYNC110 - they end on their own
            await asyncio.sleep(0.01)


@pytest.mark.parametrize("make", [of_server, of_proofs, of_proxy, of_tasks])
async def test_it_is_closed_with_the_server(tmp_path: Path, make: Callable[[str], Made]) -> None:
    server, backend = make(f"sqlite:///{tmp_path}/state.db")
    for _ in range(2):
        async with server.running():
            await backend().set("key", b"value")
            assert open_threads()
        await until_closed()


async def test_it_is_closed_if_the_engine_of_tasks_does_not_start(tmp_path: Path) -> None:
    class Broken(TaskEngine):
        async def start(self, runner: Any) -> None:
            await tasks._store.backend.set("key", b"value")
            raise RuntimeError("no engine today")

        async def submit(self, task_id: str) -> None: ...
        async def wake(self, task_id: str) -> None: ...
        async def restore(self, task_id: str) -> None: ...
        async def close(self) -> None: ...
        def waiting(self, task_id: str) -> AbstractAsyncContextManager[None]:
            return nullcontext()

    server: Server[Any] = Server("x")
    tasks = Tasks(backend=f"sqlite:///{tmp_path}/state.db", engine=Broken())
    server.add_extension(tasks)
    with pytest.raises(RuntimeError, match="no engine"):
        async with server.running():
            pass
    await until_closed()
