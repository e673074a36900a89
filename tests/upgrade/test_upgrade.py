"""What each released version has left behind is read by this one: stores, recordings, contracts, logins, configurations.

`python -m tests.upgrade.make` writes the files of a version.
"""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from gemel import Client, ClientGroup, TasksClient
from gemel.auth import FileTokenStore
from gemel.backends import Backend, RedisBackend, SqliteBackend
from gemel.cli import main as gemel
from gemel.policies import Policy
from gemel.testing import Recording
from tests.backends.redis_server import needs_redis, redis_server
from tests.upgrade.program import ENTRIES, LOGIN, RAN, RESOURCE, VALUE, make_server, written_program

VERSIONS = sorted(path for path in Path(__file__).parent.glob("[0-9]*") if path.is_dir())


@pytest.fixture(params=VERSIONS, ids=lambda path: path.name)
def files(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A copy of the files of a version, for their owner only, as they were written."""
    folder = tmp_path / "files"
    shutil.copytree(request.param, folder)
    for path in (folder / "state.db", *(folder / "logins").iterdir()):
        path.chmod(0o600)
    (folder / "logins").chmod(0o700)
    return folder


@pytest.fixture(params=["sqlite", pytest.param("redis", marks=needs_redis)])
async def backend(request: pytest.FixtureRequest, files: Path, tmp_path: Path) -> AsyncIterator[Backend]:
    """The backend that a version has filled."""
    if request.param == "sqlite":
        opened: Backend = SqliteBackend(files / "state.db")
        yield opened
        await opened.close()
        return
    (tmp_path / "redis").mkdir()
    shutil.copy(files / "dump.rdb", tmp_path / "redis")
    with redis_server(tmp_path / "redis", {"appendonly": "no"}) as server:
        opened = RedisBackend(server.url)
        yield opened
        await opened.close()


@pytest.fixture
def tasks(backend: Backend, files: Path) -> dict[str, str]:
    """The ids of the tasks in the backend."""
    kind = "sqlite" if isinstance(backend, SqliteBackend) else "redis"
    ids: dict[str, str] = json.loads((files / "tasks.json").read_text())[kind]
    return ids


def test_each_folder_is_that_of_a_version() -> None:
    assert VERSIONS[0].name == "0.1.0"


async def test_values_and_logs_are_read(backend: Backend) -> None:
    assert await backend.get("rooms") == VALUE
    assert await backend.read("events") == list(enumerate(ENTRIES, 1))
    await backend.append("events", [b"another"], ttl=60)
    assert await backend.read("events", after=len(ENTRIES)) == [(len(ENTRIES) + 1, b"another")]


async def test_the_result_of_a_task_that_has_ended_is_fetched(backend: Backend, tasks: dict[str, str]) -> None:
    async with Client(make_server(backend), extensions=[TasksClient]) as client:
        task = await client.tasks.resume(tasks["ended"], tool="report", returns=str)
        assert (await task.result()).data == "24 pages"


async def test_a_task_that_waits_is_answered_and_its_step_does_not_run_again(
    backend: Backend, tasks: dict[str, str]
) -> None:
    RAN.clear()
    async with Client(make_server(backend), extensions=[TasksClient], on_elicit=lambda _: {"value": True}) as client:
        task = await client.tasks.resume(tasks["waiting"], tool="report", returns=str)
        assert (await task.result()).data == "25 pages and a summary"
    assert RAN == []


async def test_a_recording_is_replayed(files: Path) -> None:
    async with Client(Recording(files / "calls.jsonl", record="never")) as client:
        assert (await client.call_tool("book", {"people": 3})).text == "A table for 3"
        assert (await client.read_resource("notes://today")).text == "Water the plants"


def test_a_contract_still_describes_the_same_server(
    files: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert gemel(["diff", str(files / "gemel.lock"), str(written_program(tmp_path))]) == 0
    assert "Nothing changed." in capsys.readouterr().out


async def test_a_login_is_found(files: Path) -> None:
    assert await FileTokenStore(files / "logins").get(RESOURCE) == LOGIN


async def test_a_configuration_starts_its_servers(files: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OFFICE_PYTHON", sys.executable)
    monkeypatch.setenv("OFFICE_FILE", str(written_program(tmp_path)))
    async with ClientGroup.from_config(files / "hosts.json") as group:
        assert set(group.servers) == {"office", "shop"}
        assert (await group.call_tool("book", {"people": 2}, returns=str)).data == "A table for 2"


async def test_a_policy_decides_as_it_did(files: Path) -> None:
    server = make_server()
    server.add_middleware(Policy(files / "policy.toml"))
    async with Client(server) as client:
        assert (await client.call_tool("book", {"people": 4}, returns=str)).data == "A table for 4"
        denied = await client.call_tool("book", {"people": 5}, raise_on_error=False)
        assert denied.is_error
        assert "book" in denied.text
