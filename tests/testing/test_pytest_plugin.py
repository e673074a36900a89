"""The pytest plugin, as projects use it: each test runs pytest on files of its own."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tomllib
from importlib.metadata import entry_points
from pathlib import Path

import pytest

import gemel.testing  # noqa: F401  (stays loaded: an inner run forgets what it imported)
from tests.source import ROOT

pytest_plugins = ("pytester",)
pytestmark = pytest.mark.timeout(120)  # each runs pytest up to twice

NOTES = """
    import asyncio
    from gemel import Context, Server

    server = Server("notes", version="1.0")

    @server.tool
    def add(a: int, b: int = 1) -> int:
        '''Add.'''
        return a + b

    @server.tool
    async def book(ctx: Context) -> str:
        '''Book.'''
        return f"row {await ctx.elicit('Which row?', int)}"
"""
#: A checkout whose environment was made before there was an entry point names the plugin.
REGISTERED = any(point.value == "gemel.pytest_plugin" for point in entry_points(group="pytest11"))
PLUGIN = (*(() if REGISTERED else ("-p", "gemel.pytest_plugin")), "-W", "ignore::pytest.PytestDeprecationWarning")
CONFTEST = "import pytest\nfrom notes import server\n@pytest.fixture\ndef mcp_server():\n    return server\n"


def run(pytester: pytest.Pytester, test: str, *options: str, conftest: str = CONFTEST) -> pytest.RunResult:
    """Run one file of tests of the server `notes`."""
    pytester.makepyfile(notes=NOTES, test_notes=test)
    pytester.makeconftest(conftest)
    return pytester.runpytest_inprocess(*PLUGIN, "-p", "no:cacheprovider", *options)


def test_the_package_registers_the_plugin() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert project["entry-points"]["pytest11"] == {"gemel": "gemel.pytest_plugin"}


def test_pytest_imports_gemel_without_rewriting_it(pytester: pytest.Pytester) -> None:
    """pytest rewrites the packages of its plugins: 150 modules through a parser, in every process without bytecode."""
    pytester.makepyfile(
        "def test_one():\n    import gemel.proxy\n    assert not 1, type(gemel.proxy.__loader__).__name__"
    )
    done = pytester.runpytest_subprocess(*PLUGIN, "-p", "no:cacheprovider")
    done.stdout.fnmatch_lines(["E*AssertionError: SourceFileLoader"])


def test_the_plugin_imports_nothing_of_gemel_until_it_is_used() -> None:
    code = (
        "import pytest, sys; old = set(sys.modules); import gemel.pytest_plugin; print(sorted(set(sys.modules) - old))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "['gemel', 'gemel.pytest_plugin']"


SYNC = """
    import gemel.sync
    import pytest

    def test_add(mcp_client):
        assert isinstance(mcp_client, gemel.sync.Client)
        assert mcp_client.call_tool("add", {"a": 1}, returns=int).data == 2

    @pytest.mark.mcp_client(on_elicit=lambda form: {"value": 7})
    def test_book(mcp_client, both_eras):
        assert mcp_client.era == both_eras
        assert mcp_client.call_tool("book").text == "row 7"
"""
ASYNC = """
    import gemel
    import pytest

    {mark}

    async def test_add(mcp_client):
        assert isinstance(mcp_client, gemel.Client)
        assert (await mcp_client.call_tool("add", {{"a": 1}}, returns=int)).data == 2

    class TestBooking:
        @pytest.mark.mcp_client(on_elicit=lambda form: {{"value": 7}})
        async def test_book(self, mcp_client, both_eras):
            assert mcp_client.era == both_eras
            assert (await mcp_client.call_tool("book")).text == "row 7"
"""
NO_PLUGIN = ("-p", "no:asyncio", "-p", "no:anyio")


def test_plain_tests_get_a_blocking_client(pytester: pytest.Pytester) -> None:
    run(pytester, SYNC, *NO_PLUGIN).assert_outcomes(passed=3)


@pytest.mark.parametrize(
    ("mark", "options", "passed"),
    [
        ("", ["-o", "asyncio_mode=auto", "-p", "no:anyio"], 3),
        ("pytestmark = pytest.mark.asyncio", ["-o", "asyncio_mode=strict"], 3),
        ("pytestmark = pytest.mark.anyio\nanyio_backend = pytest.fixture(lambda: 'asyncio')", ["-p", "no:asyncio"], 3),
        ("pytestmark = pytest.mark.anyio\nanyio_backend = pytest.fixture(lambda: 'asyncio')", [], 3),
    ],
    ids=["auto", "strict", "anyio", "anyio beside asyncio"],
)
def test_async_tests_get_an_async_client(pytester: pytest.Pytester, mark: str, options: list[str], passed: int) -> None:
    text = ASYNC.format(mark=mark.replace("\n", "\n    "))
    run(pytester, text, *options).assert_outcomes(passed=passed)


def test_without_an_async_plugin_one_line_says_what_to_do(pytester: pytest.Pytester) -> None:
    done = run(pytester, ASYNC.format(mark=""), *NO_PLUGIN)
    done.assert_outcomes(failed=3)
    done.stdout.fnmatch_lines("test_add is async, and no plugin runs it: install pytest-asyncio (or anyio) and mark*")
    done.stdout.no_fnmatch_line("*natively*")


def test_a_failure_of_an_async_test_is_its_own(pytester: pytest.Pytester) -> None:
    text = "import pytest\n@pytest.mark.asyncio\nasync def test_it(mcp_client):\n    pytest.fail('mine')\n"
    done = run(pytester, text)
    done.assert_outcomes(failed=1)
    done.stdout.fnmatch_lines("*Failed: mine")


@pytest.mark.parametrize(
    ("setting", "options", "shown"), [("", (), False), ("full", (), True), ("", ("--full-trace",), True)]
)
def test_a_traceback_ends_in_the_test_if_gemel_is_installed(
    setting: str, options: tuple[str, ...], shown: bool, pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a checkout, which the other tests run, it has the frames of Gemel too."""
    installed = pytester.path / "site-packages"
    shutil.copytree(ROOT / "src" / "gemel", installed / "gemel", ignore=shutil.ignore_patterns("__pycache__"))
    monkeypatch.setenv("PYTHONPATH", str(installed))
    monkeypatch.setenv("GEMEL_TRACEBACKS", setting)
    test = "def test_one(mcp_client):\n    mcp_client.call_tool('add', {'a': 'x'})"
    pytester.makepyfile(notes=NOTES, test_notes=test)
    pytester.makeconftest(CONFTEST)
    done = pytester.runpytest_subprocess(*PLUGIN, "-p", "no:cacheprovider", *options)
    done.assert_outcomes(failed=1)
    done.stdout.fnmatch_lines(
        [">*mcp_client.call_tool('add', {'a': 'x'})", "E*: Invalid arguments for tool 'add': a: *"]
    )
    assert any("/gemel/" in line for line in done.outlines) is shown


def test_a_missing_server_is_one_line(pytester: pytest.Pytester) -> None:
    done = run(pytester, "def test_it(mcp_client): ...", conftest="")
    done.assert_outcomes(errors=1)
    done.stdout.fnmatch_lines("mcp_client needs a server: define a fixture mcp_server that returns one, or set*")


def test_the_server_can_be_a_file_named_in_the_configuration(pytester: pytest.Pytester) -> None:
    pytester.makeini("[pytest]\nmcp_server = notes.py")
    text = NOTES + '\n    if __name__ == "__main__":\n        server.run()'
    pytester.makepyfile(notes=text, test_notes=SYNC)
    pytester.runpytest_inprocess(*PLUGIN, "-p", "no:cacheprovider").assert_outcomes(passed=3)


def test_an_async_fixture_may_connect_the_client_first(pytester: pytest.Pytester) -> None:
    text = """
    import pytest
    import pytest_asyncio

    @pytest_asyncio.fixture
    async def seeded(mcp_client):
        await mcp_client.connect()
        return (await mcp_client.call_tool("add", {"a": 1}, returns=int)).data

    @pytest.mark.asyncio
    async def test_it(seeded, mcp_client):
        assert (await mcp_client.call_tool("add", {"a": seeded}, returns=int)).data == 3
    """
    run(pytester, text).assert_outcomes(passed=1)


SNAPSHOTS = """
    import pytest

    @pytest.mark.parametrize("a", [1, 2])
    def test_add(mcp_client, mcp_snapshot, both_eras, a):
        mcp_snapshot(mcp_client.call_tool("add", {"a": a}))
        mcp_snapshot({"now": object.__hash__(object()), "text": "x\\ny"}, "named", ignore=["now"])

    def test_contract(mcp_client, mcp_snapshot):
        mcp_snapshot.contract(mcp_client)

    @pytest.mark.asyncio
    async def test_contract_async(mcp_client, mcp_snapshot):
        await mcp_snapshot.contract(mcp_client, "contract")
"""


def test_snapshots_are_written_compared_and_shown(pytester: pytest.Pytester) -> None:
    run(pytester, SNAPSHOTS, "--update-mcp-snapshots").assert_outcomes(passed=6)
    folder = pytester.path / "snapshots" / "test_notes"
    names = {path.name for path in folder.iterdir()}
    assert names == {"test_add-1.json", "test_add-2.json", "named.json", "test_contract.lock", "contract.lock"}
    assert '"text": "2"' in (folder / "test_add-1.json").read_text(encoding="utf-8")
    pytester.runpytest_inprocess(*PLUGIN).assert_outcomes(passed=6)

    change(pytester.path / "notes.py", "return a + b", "return a - b")
    change(pytester.path / "notes.py", "b: int = 1", "b: int")
    change(pytester.path / "test_notes.py", "x\\ny", "x\\nz")
    change(pytester.path / "test_notes.py", '{"a": a}', '{"a": a, "b": 0}')
    done = pytester.runpytest_inprocess(*PLUGIN)
    done.assert_outcomes(failed=6)
    done.stdout.fnmatch_lines(
        [
            f"*The result differs from {folder}/test_add-1.json:",
            "*  content.0.text",
            "*    snapshot: '2'",
            "*    now:      '1'",
            "*If that is right, run pytest --update-mcp-snapshots.",
            "*The contract differs from *test_contract.lock:",
            "*  breaking * tool add: input.b: *",
        ]
    )


def change(path: Path, old: str, new: str) -> None:
    """Edit a file."""
    text = path.read_text(encoding="utf-8")
    assert old in text
    path.write_text(text.replace(old, new), encoding="utf-8")


def test_lines_of_a_text_are_compared_and_severity_can_be_tolerated(pytester: pytest.Pytester) -> None:
    text = """
    def test_text(mcp_snapshot):
        mcp_snapshot({"text": "x\\ny\\n"})

    def test_contract(mcp_client, mcp_snapshot):
        mcp_snapshot.contract(mcp_client, fail_on="may break")
    """
    run(pytester, text, "--update-mcp-snapshots").assert_outcomes(passed=2)
    change(pytester.path / "notes.py", "'''Add.'''", "'''Add two numbers.'''")
    change(pytester.path / "test_notes.py", "x\\ny", "x\\nz")
    done = pytester.runpytest_inprocess(*PLUGIN)
    done.assert_outcomes(passed=1, failed=1)
    done.stdout.fnmatch_lines(["*  text", "*     x", "*    -y", "*    +z"])


def test_a_snapshot_that_is_not_there_fails(pytester: pytest.Pytester) -> None:
    done = run(pytester, "def test_it(mcp_snapshot):\n    mcp_snapshot(1)")
    done.assert_outcomes(failed=1)
    done.stdout.fnmatch_lines("*There is no snapshot *test_it.json: pytest --update-mcp-snapshots writes it")
