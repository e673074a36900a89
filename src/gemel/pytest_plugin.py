"""The pytest plugin: a connected client, both eras, snapshots. Nothing of Gemel is imported until a fixture is used."""

from __future__ import annotations

import functools
import inspect
import re
import sys
from collections.abc import Generator, Iterator
from types import TracebackType
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from gemel.client.client import Client
    from gemel.sync import Client as SyncClient
    from gemel.testing.snapshots import Snapshots

_ERAS = ("2025", "2026")
#: The unconnected client of an async test.
_CLIENT: pytest.StashKey[Client] = pytest.StashKey()
#: Parameters that are not part of the name of a snapshot: what they choose must not change the result.
_UNNAMED = ("both_eras", "era", "anyio_backend")


def pytest_addoption(parser: pytest.Parser) -> None:
    """Declare the options."""
    parser.addini("mcp_server", "the server of the fixture mcp_client: a file, a command line or a URL", default="")
    parser.getgroup("gemel", "MCP servers (gemel)").addoption(
        "--update-mcp-snapshots", action="store_true", help="write the snapshots of the fixture mcp_snapshot"
    )


@pytest.hookimpl(tryfirst=True)
def pytest_load_initial_conftests(early_config: pytest.Config) -> None:
    """Import Gemel as outside of tests: pytest would rewrite the asserts of each package that brings a plugin.

    That takes a second parser seconds wherever no bytecode is kept, and Python 3.11's fails at random in it. There is no public
    way to say so; a pytest without these attributes rewrites.
    """
    hook = getattr(early_config.pluginmanager, "rewrite_hook", None)
    for names in (getattr(hook, "_must_rewrite", None), getattr(hook, "_marked_for_rewrite_cache", None)):
        if isinstance(names, set):
            names.discard("gemel")
        elif isinstance(names, dict):
            names.clear()


def pytest_configure(config: pytest.Config) -> None:
    """Declare the mark."""
    config.addinivalue_line("markers", "mcp_client(**options): options of gemel.Client for the fixture mcp_client")


@pytest.fixture(params=_ERAS)
def both_eras(request: pytest.FixtureRequest) -> str:
    """Run the test in each era: "2025", then "2026". `mcp_client` uses it."""
    era: str = request.param
    return era


@pytest.fixture
def mcp_server(request: pytest.FixtureRequest) -> Any:
    """The target of `mcp_client`: override it, or set `mcp_server` in the configuration of pytest."""
    target = request.config.getini("mcp_server")
    if not target:
        pytest.fail(
            "mcp_client needs a server: define a fixture mcp_server that returns one, or set"
            ' mcp_server = "server.py" in the configuration of pytest',
            pytrace=False,
        )
    path = request.config.rootpath / target
    return path if path.exists() else target


@pytest.fixture
def mcp_client(request: pytest.FixtureRequest, mcp_server: object) -> Iterator[Client | SyncClient]:
    """A client of `mcp_server`: in an async test a `gemel.Client`, otherwise a `gemel.sync.Client`.

    It is connected while the test runs. The mark `mcp_client` has its options.
    """
    options: Any = {"era": _era(request.node)}
    for mark in reversed(list(request.node.iter_markers("mcp_client"))):
        options.update(mark.kwargs)
    if inspect.iscoroutinefunction(request.function):
        from gemel.client.client import Client

        request.node.stash[_CLIENT] = client = Client(mcp_server, **options)
        yield client
    else:
        from gemel.sync import Client as SyncClient

        with SyncClient(mcp_server, **options) as connected:
            yield connected


@pytest.fixture
def mcp_snapshot(request: pytest.FixtureRequest) -> Snapshots:
    """Compare results and contracts with files in the folder `snapshots` beside the test."""
    from gemel.testing.snapshots import Snapshots

    folder = request.path.parent / "snapshots" / request.path.stem
    update = bool(request.config.getoption("--update-mcp-snapshots"))
    return Snapshots(folder, _name(request.node), update=update)


def _era(item: Any) -> str:
    """The era that a test is parametrized with, by the fixture or by the decorator of `gemel.testing`."""
    parameters = item.callspec.params if hasattr(item, "callspec") else {}
    chosen = parameters.get("both_eras", parameters.get("era"))
    return {era: era for era in _ERAS}.get(str(chosen), "auto")


def _name(item: Any) -> str:
    """The name of the snapshots of a test, the same in both eras."""
    parts = item.nodeid.partition("::")[2].partition("[")[0].split("::")
    if hasattr(item, "callspec"):
        unnamed = {str(value) for name, value in item.callspec.params.items() if name in _UNNAMED}
        parts += [part for part in item.callspec.id.split("-") if part not in unnamed]
    return re.sub(r"[^\w.-]+", "_", "-".join(parts))


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, Any, Any]:
    """Connect the client of an async test in the loop and task of the test, whichever plugin runs it."""
    client = item.stash.get(_CLIENT, None)
    if client is None or not isinstance(item, pytest.Function):
        return (yield)
    test, started = item.obj, False

    @functools.wraps(test)
    async def with_client(*args: object, **kwargs: object) -> None:
        nonlocal started
        started = True
        _require_asyncio()
        if not client.connected:
            await client.connect()
        try:
            await test(*args, **kwargs)
        finally:
            await client.close()

    item.obj = with_client
    try:
        return (yield)
    except (pytest.fail.Exception, pytest.skip.Exception):
        if started:
            raise
    finally:
        item.obj = test
    pytest.fail(
        f"{item.name} is async, and no plugin runs it: install pytest-asyncio (or anyio) and mark the test with"
        " @pytest.mark.asyncio (or anyio), or write it without async, with a gemel.sync.Client as mcp_client",
        pytrace=False,
    )


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[Any]) -> None:
    """Leave the frames of an installed Gemel out of a test's traceback, as out of the log, so that it ends in the user's code."""
    if call.excinfo is None or "gemel.errors" not in sys.modules or item.config.getoption("fulltrace"):
        return
    from gemel.errors import hides_frames, user_frames

    frames = list(_tracebacks(call.excinfo.tb))
    if hides_frames() and str(item.path) in map(_file, frames):
        traceback = call.excinfo.tb
        following: TracebackType | None = None
        for frame in reversed(user_frames(frames, _file)):
            following = traceback = TracebackType(following, frame.tb_frame, frame.tb_lasti, frame.tb_lineno)
        call.excinfo = pytest.ExceptionInfo.from_exc_info((call.excinfo.type, call.excinfo.value, traceback))


def _tracebacks(traceback: TracebackType | None) -> Iterator[TracebackType]:
    while traceback is not None:
        yield traceback
        traceback = traceback.tb_next


def _file(traceback: TracebackType) -> str:
    return traceback.tb_frame.f_code.co_filename


def _require_asyncio() -> None:
    import asyncio

    try:
        asyncio.get_running_loop()
    except RuntimeError:
        pytest.fail(
            'Gemel runs on asyncio: define a fixture anyio_backend that returns "asyncio"',
            pytrace=False,
        )
