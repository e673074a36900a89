"""Writes what this version of Gemel leaves behind: `python -m tests.upgrade.make`, once for each release.

Each version has a folder of its name beside this file. Later versions read them (test_upgrade.py), and nobody changes them. It
needs redis-server, of the oldest version that Gemel supports: others read its dump, too.

state.db, dump.rdb     a backend with values, a log, a task that has ended, and one that waits for an answer
tasks.json             the ids of these tasks
calls.jsonl            a recording
gemel.lock             a contract
logins/                a token store
hosts.json             the configuration of a client group
policy.toml            a policy
"""

from __future__ import annotations

import asyncio
import json
import shutil
import sqlite3
import sys
import tempfile
from contextlib import closing
from pathlib import Path

from gemel import Client, TasksClient, __version__
from gemel.auth import FileTokenStore
from gemel.backends import Backend, RedisBackend, SqliteBackend
from gemel.cli import main as gemel
from gemel.testing import Recording
from tests.backends.redis_server import redis_server
from tests.upgrade.program import (
    CENTURIES,
    CONFIGURATION,
    ENTRIES,
    LOGIN,
    POLICY,
    RESOURCE,
    VALUE,
    make_server,
    written_program,
)

HERE = Path(__file__).parent


def main() -> int:
    """Write the folder of this version; the exit code is 1 if there is one."""
    folder = HERE / __version__
    if folder.exists():
        print(f"{folder} exists, and is kept as it is")
        return 1
    with tempfile.TemporaryDirectory() as work:
        new = Path(work, "new")
        new.mkdir()
        asyncio.run(write(new, Path(work)))
        shutil.copytree(new, folder)
    return 0


async def write(folder: Path, work: Path) -> None:
    """Write all files into a folder."""
    tasks = {"sqlite": await fill(SqliteBackend(work / "state.db"))}
    with closing(sqlite3.connect(work / "state.db")) as db:  # one file, without its write-ahead log
        db.execute("PRAGMA journal_mode = DELETE")
    shutil.copy(work / "state.db", folder)
    with redis_server(work / "redis", {"appendonly": "no"}) as server:
        tasks["redis"] = await fill(RedisBackend(server.url))
        server.ask("SAVE")
        shutil.copy(work / "redis" / "dump.rdb", folder)
    write_json(folder / "tasks.json", tasks)
    async with Client(Recording(folder / "calls.jsonl", make_server(), record="always")) as client:
        await client.call_tool("book", {"people": 3})
        await client.read_resource("notes://today")
    lock = ["lock", str(written_program(work)), "-o", str(folder / "gemel.lock")]
    assert await asyncio.to_thread(gemel, lock) == 0
    store = FileTokenStore(folder / "logins")
    await store.set(RESOURCE, LOGIN)
    for file in (folder / "logins").glob("*.lock"):
        file.unlink()
    write_json(folder / "hosts.json", CONFIGURATION)
    (folder / "policy.toml").write_text(POLICY)


async def fill(backend: Backend) -> dict[str, str]:
    """Put values and tasks into a backend, and close it. Returns the ids of the tasks."""
    await backend.set("rooms", VALUE)
    await backend.append("events", ENTRIES, ttl=CENTURIES)
    async with Client(make_server(backend), extensions=[TasksClient], on_elicit=lambda form: None) as client:
        ended = await client.call_tool("report", {"year": 2024}, task=True)
        await ended.wait()
        waiting = await client.call_tool("report", {"year": 2025, "ask": True}, task=True)
        while (await waiting.refresh()).status != "input_required":  # noqa: ASYNC110  # the server writes it
            await asyncio.sleep(0.01)
    await backend.close()
    return {"ended": str(ended.id), "waiting": str(waiting.id)}


def write_json(path: Path, content: object) -> None:
    """Write a file that people can read."""
    path.write_text(json.dumps(content, indent=2) + "\n")


if __name__ == "__main__":
    sys.exit(main())
