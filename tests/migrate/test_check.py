"""`gemel migrate` runs what it wrote: what it says of programs that start, that don't, and that can't be run."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

import pytest

from gemel.cli import main

pytest.importorskip("libcst")
from gemel.migrate import check  # needs libcst
from gemel.migrate.check import CheckOutcome  # needs libcst

HEAD = 'from fastmcp import FastMCP\n\nmcp = FastMCP("a")\n'
TOOL = "\n@mcp.tool\ndef add(a: int) -> int:\n    return a\n"
#: A library of the same name as FastMCP, with as much of it as a program needs that only makes a server.
LIBRARY = """
class FastMCP:
    def __init__(self, name):
        self.tools = []

    def tool(self, function):
        self.tools.append(function)
        return function

    def run(self):
        raise SystemExit("it has no client")


class Listed(dict):
    def model_dump(self, **options):
        return dict(self)


class Client:
    def __init__(self, server):
        self.server = server

    async def __aenter__(self):
        return self

    async def __aexit__(self, *exc_info):
        pass

    async def list_tools(self):
        schema = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}
        kinds = {"int": {"type": "integer"}, "datetime": {"type": "string", "format": "date-time"}}
        return [
            Listed(
                name=tool.__name__,
                inputSchema=schema,
                outputSchema={
                    "type": "object",
                    "properties": {"result": kinds[tool.__annotations__["return"].__name__]},
                    "required": ["result"],
                },
            )
            for tool in self.server.tools
        ]

    async def list_prompts(self):
        return []

    list_resources = list_resource_templates = list_prompts
"""


def migrated(folder: Path, source: str, capsys: pytest.CaptureFixture[str], *options: str) -> tuple[int, str]:
    """The exit code of the command, and what it says."""
    file = folder / "server.py"
    file.write_text(source)
    code = main(["migrate", *options, str(file)])
    return code, capsys.readouterr().err


@pytest.fixture
def library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """FastMCP's name can be imported."""
    folder = tmp_path / "library"
    folder.mkdir()
    (folder / "fastmcp.py").write_text(LIBRARY)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(folder), os.environ.get("PYTHONPATH", "")]))


@pytest.mark.usefixtures("library")
@pytest.mark.parametrize("options", [(), ("--write",)])
def test_the_same_lists_are_said_to_be_the_same(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], options: tuple[str, ...]
) -> None:
    code, said = migrated(tmp_path, HEAD + TOOL, capsys, *options)
    assert code == CheckOutcome.SAME
    assert f"{tmp_path}/server.py: 1 tool: same\n" in said
    assert said.endswith("; 0 left to do by hand\n")
    assert "--no-check" in said


@pytest.mark.usefixtures("library")
def test_formats_of_results_that_gemel_does_not_list_are_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    moment = TOOL.replace("-> int", "-> datetime").replace("return a", "return datetime.fromtimestamp(a)")
    code, said = migrated(
        tmp_path, f"from datetime import datetime\n\n{HEAD}{TOOL}{moment.replace('add', 'at')}", capsys
    )
    assert code == CheckOutcome.SAME
    assert "2 tools: same, but 1 list times or durations in results without a format" in said


@pytest.mark.usefixtures("library")
def test_what_differs_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, said = migrated(tmp_path, HEAD + TOOL.replace("int)", "str)"), capsys)
    assert code == CheckOutcome.DIFFERS
    assert 'tool add: inputSchema.properties.a.type was "integer", is "string"' in said
    assert said.endswith("; 1 left to do by hand\n")


@pytest.mark.usefixtures("library")
def test_of_a_server_without_anything_nothing_is_said_to_be_the_same(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, said = migrated(tmp_path, HEAD, capsys)
    assert code == CheckOutcome.UNKNOWN
    assert "nothing is registered after the import" in said
    assert "0 left" not in said


@pytest.mark.usefixtures("library")
def test_a_function_that_runs_the_server_it_makes_is_no_failure(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source = (
        "from fastmcp import FastMCP\n\n\ndef serve() -> FastMCP:\n    mcp = FastMCP('a')\n\n    @mcp.tool\n"
        "    def add(a: int) -> int:\n        return a\n\n    mcp.run()\n    return mcp\n"
    )
    code, said = migrated(tmp_path, source, capsys)
    assert code == CheckOutcome.SAME, said
    assert "1 tool: same" in said


#: A program whose server exists only while it runs.
PROGRAM = (
    "import sys\nfrom pathlib import Path\nfrom fastmcp import FastMCP\n\n\ndef main(name):\n    mcp = FastMCP(name)\n\n"
    "    @mcp.tool\n    def add(a: int) -> int:\n        return a\n\n"
)
MAIN = '\n\nif __name__ == "__main__":\n    main("a")\n'


@pytest.mark.usefixtures("library")
def test_a_program_that_makes_its_server_when_it_runs_is_run_in_an_empty_folder(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    made = "    assert not list(Path().iterdir())\n    Path('made').touch()\n    assert sys.argv[1:] == []\n"
    code, said = migrated(tmp_path, f"{PROGRAM}{made}    mcp.run()\n{MAIN}", capsys)
    assert code == CheckOutcome.SAME, said
    assert "1 tool: same" in said
    assert said.endswith("; 0 left to do by hand\n")
    assert not (tmp_path / "made").exists()


@pytest.mark.usefixtures("library")
def test_a_program_is_run_by_the_scripts_of_its_project(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    package = tmp_path / "src" / "shop"
    package.mkdir(parents=True)
    (package / "server.py").write_text(f"{PROGRAM}    mcp.run()\n")
    (package / "__init__.py").write_text("from .server import main\n\n\ndef cli():\n    main('a')\n")
    scripts = '[project.scripts]\nhelp = "shop:missing"\nshop = "shop:cli"\nelsewhere = "pytest:main"\n'
    (tmp_path / "pyproject.toml").write_text(scripts)
    code = main(["migrate", str(tmp_path)])
    said = capsys.readouterr().err
    assert code == CheckOutcome.SAME, said
    assert "1 tool: same" in said


@pytest.mark.usefixtures("library")
def test_a_program_that_needs_arguments_is_not_checked(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, said = migrated(tmp_path, f"{PROGRAM}    mcp.run()\n{MAIN.replace('main(', 'sys.exit(2) or main(')}", capsys)
    assert code == CheckOutcome.UNKNOWN
    assert "it ends with code 2, if it is run without arguments" in said
    assert "0 left" not in said


@pytest.mark.usefixtures("library")
def test_a_program_that_no_longer_runs_is_named_with_its_line_and_cause(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    fails = "    try:\n        print(mcp.tools)\n        mcp.run()\n    except Exception:\n        sys.exit(1)\n"
    code, said = migrated(tmp_path, PROGRAM + fails + MAIN, capsys)
    assert code == CheckOutcome.FAILS
    assert f"{tmp_path}/server.py:14: doesn't start: AttributeError: " in said


@pytest.mark.usefixtures("library")
def test_files_that_an_unchanged_file_connects_are_one_program(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    parts = tmp_path / "parts"
    parts.mkdir()
    (parts / "__init__.py").write_text("from .sums import register\n")
    (parts / "sums.py").write_text(
        "from fastmcp import FastMCP\n\n\ndef register(mcp: FastMCP) -> None:\n    @mcp.tool\n"
        "    def add(a: int) -> int:\n        return a\n"
    )
    (tmp_path / "server.py").write_text(f"from parts import register\n{HEAD}\nregister(mcp)\n")
    code = main(["migrate", "--write", str(tmp_path / "server.py"), str(parts)])
    said = capsys.readouterr().err
    assert code == CheckOutcome.SAME, said
    assert "1 tool: same" in said


@pytest.mark.usefixtures("library")
def test_a_file_without_a_server_connects_those_around_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    parts = tmp_path / "app" / "parts"
    parts.mkdir(parents=True)
    (parts / "__init__.py").write_text("from .sums import failure\n")
    (parts / "sums.py").write_text(
        "from fastmcp.exceptions import ToolError\n\n\ndef failure() -> ToolError:\n    return ToolError('x')\n"
    )
    (tmp_path / "app" / "server.py").write_text(f"from parts import failure\n{HEAD}\nERROR = failure()\n{TOOL}")
    main(["migrate", str(tmp_path / "app")])
    assert "server.py: starts: 1 tool" in capsys.readouterr().err


def test_without_the_library_it_only_says_that_the_program_starts(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, said = migrated(tmp_path, HEAD + TOOL, capsys)
    assert code == CheckOutcome.UNKNOWN
    assert "starts: 1 tool; not compared, as fastmcp isn't installed\n" in said
    assert "0 left" not in said


@pytest.mark.usefixtures("library")
def test_another_version_of_the_library_is_told_from_none(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source = HEAD.replace("from fastmcp import", "from fastmcp.server import") + TOOL
    said = migrated(tmp_path, source, capsys)[1]
    assert "not compared, as fastmcp isn't installed in a version that has fastmcp.server\n" in said


def test_a_program_that_does_not_start_is_named_with_its_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source = HEAD + "\nassert not hasattr(mcp, 'add_skills'), 'too much'\n"
    code, said = migrated(tmp_path, source, capsys)
    assert code == CheckOutcome.FAILS
    assert f"{tmp_path}/server.py:5: doesn't start: AssertionError: too much\n" in said
    assert said.endswith("; 1 left to do by hand\n")


def test_a_package_that_is_missing_is_no_fault_of_the_program(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, said = migrated(tmp_path, "import surely_not_installed\n" + HEAD, capsys)
    assert code == CheckOutcome.UNKNOWN
    assert "not checked: ModuleNotFoundError: No module named 'surely_not_installed'" in said


@pytest.mark.usefixtures("library")
def test_a_file_that_needs_a_missing_package_does_not_keep_the_others_from_the_check(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "app").mkdir()
    (tmp_path / "app" / "server.py").write_text(HEAD + TOOL)
    (tmp_path / "app" / "test_server.py").write_text(f"import nothing_of_this_name\n\nfrom server import mcp\n{HEAD}")
    code = main(["migrate", str(tmp_path / "app")])
    said = capsys.readouterr().err
    assert code == CheckOutcome.UNKNOWN
    assert "server.py: 1 tool: same\n" in said
    assert "test_server.py: not checked: ModuleNotFoundError: No module named 'nothing_of_this_name'" in said


@pytest.mark.usefixtures("library")
def test_an_original_that_ends_at_the_same_line_does_not_start_either(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source = 'from fastmcp import FastMCP\n\nmcp = FastMCP("a")\nraise RuntimeError(FastMCP.__module__)\n'
    code, text = migrated(tmp_path, source, capsys)
    assert code == CheckOutcome.UNKNOWN
    assert "the original doesn't start here either: RuntimeError: fastmcp" in text


def test_no_check_runs_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source = f"open({str(tmp_path / 'ran')!r}, 'w')\n" + HEAD
    assert migrated(tmp_path, source, capsys, "--no-check")[0] == 0
    assert not (tmp_path / "ran").exists()


def test_a_program_that_serves_when_it_is_imported_is_listed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert "starts: 1 tool" in migrated(tmp_path, HEAD + TOOL + "\nmcp.run()\n", capsys)[1]


def test_servers_of_functions_objects_and_packages_are_found(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    package = tmp_path / "shop"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "base.py").write_text("from fastmcp import FastMCP\n\n\nclass Base(FastMCP):\n    pass\n")
    (package / "made.py").write_text(
        "from .base import Base\n\n\ndef build(name: str = 'x') -> Base:\n    return Base(name)\n\n\n"
        "class Holder:\n    def __init__(self) -> None:\n        self.server = build()\n\n\nholder = Holder()\n"
    )
    main(["migrate", str(package)])
    said = capsys.readouterr().err
    assert "holder.server: starts" in said
    assert "build(): starts" in said


@pytest.mark.skipif(os.name == "nt", reason="processes are looked for in /proc")
def test_time_is_limited_and_all_processes_end(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(check, "SECONDS", 3.0)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "temporary"))
    (tmp_path / "temporary").mkdir()
    children = tmp_path / "children"
    source = (
        "import subprocess, sys, time\n" + HEAD + "assert sys.stdin.read() == ''\n"
        "child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'])\n"
        f"open({str(children)!r}, 'a').write(f'{{child.pid}} ')\ntime.sleep(600)\n"
    )
    code, said = migrated(tmp_path, source, capsys)
    assert code == CheckOutcome.UNKNOWN
    assert "not checked: no end of the import within 3 s" in said
    while any(_runs(int(child)) for child in children.read_text().split()):
        time.sleep(0.02)  # they were killed; the system takes them away
    assert list((tmp_path / "temporary").iterdir()) == []


def _runs(process: int) -> bool:
    try:
        return " Z " not in Path(f"/proc/{process}/stat").read_text()
    except OSError:
        return False


def test_the_original_runs_under_another_interpreter(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    missing = str(tmp_path / "python")
    assert f"{missing} can't be run" in migrated(tmp_path, HEAD + TOOL, capsys, "--python", missing)[1]
    assert "1 tool" in migrated(tmp_path, HEAD + TOOL, capsys, "--python", sys.executable)[1]
