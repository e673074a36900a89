"""Programs of several files: servers are followed from one file to another, and a program is rewritten as a whole or not at all."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("libcst")
from gemel.migrate import migrate_paths  # needs libcst
from gemel.migrate.files import FileMigration  # needs libcst

FASTMCP = "from fastmcp import FastMCP\n"


def migrated(folder: Path, **sources: str) -> dict[str, FileMigration]:
    """What becomes of the files of a folder; `__` in a name is a slash."""
    for name, source in sources.items():
        path = folder / f"{name.replace('__', '/')}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(source, encoding="utf-8")
    return {file.path.relative_to(folder).with_suffix("").as_posix(): file for file in migrate_paths([folder])}


def source_of(file: FileMigration) -> str:
    assert file.source is not None
    return file.source


def notes_of(file: FileMigration) -> str:
    return "\n".join(note.text for note in file.notes)


def test_a_server_that_is_imported_is_rewritten_where_it_is_used(tmp_path: Path) -> None:
    files = migrated(
        tmp_path,
        app=FASTMCP + "mcp = FastMCP('a')\n",
        tools="from app import mcp\n\n@mcp.resource('x://{rest*}')\ndef read(rest: str) -> str:\n    return rest\n",
        main="import app\nimport tools\n\napp.mcp.run(transport='http', show_banner=False)\n",
    )
    assert "x://{+rest}" in source_of(files["tools"])
    assert "app.mcp.run('http')" in source_of(files["main"]).replace('"', "'")


def test_a_subclass_and_a_function_of_another_file_are_followed(tmp_path: Path) -> None:
    files = migrated(
        tmp_path,
        shop__lib=FASTMCP + "class Base(FastMCP):\n    pass\n\ndef build(name) -> FastMCP:\n    return FastMCP(name)\n",
        shop__main=(
            "from .lib import Base, build\n\nmain = Base('main', 'Be kind.')\nmain.mount(build('x'), namespace='y')\n"
            "async def serve():\n    await build('z').run_stdio_async()\n"
        ),
    )
    source = source_of(files["shop/main"])
    assert "Base('main', instructions='Be kind.'" in source
    assert "main.mount(build('x'), 'y')" in source
    assert "await build('z').run_async()" in source


def test_a_server_that_is_passed_on_or_kept_in_an_object_is_followed(tmp_path: Path) -> None:
    files = migrated(
        tmp_path,
        parts=(
            "def register(server):\n    @server.resource('a://{b*}')\n    def one(b: str) -> str:\n        return b\n\n"
            "class More:\n    def __init__(self, server):\n        self.server = server\n\n"
            "    def add(self):\n        self.server.disable(names=HIDDEN)\n"
        ),
        main=FASTMCP + "from parts import More, register\n\nmcp = FastMCP('a')\nregister(mcp)\nMore(mcp).add()\n",
    )
    source = source_of(files["parts"])
    assert "'a://{+b}'" in source
    assert "self.server.disable(*HIDDEN)" in source


def test_what_servers_of_gemel_lack_is_noted_wherever_it_is_used(tmp_path: Path) -> None:
    files = migrated(
        tmp_path,
        app=FASTMCP + "mcp = FastMCP('a')\n",
        main=(
            "from app import mcp\n\nmcp._tool_manager.list_tools()\n\n\ndef run(anything):\n"
            "    anything.run_streamable_http_async()\n    print(mcp.surely_not_there)\n"
        ),
    )
    notes = {note.line: note.text for note in files["main"].notes}
    assert notes[3].startswith("server._tool_manager: use ")
    assert "run_async('http', …)" in notes[7]
    assert notes[8].startswith("server.surely_not_there: ")


def test_members_of_classes_of_the_program_are_not_noted(tmp_path: Path) -> None:
    files = migrated(
        tmp_path,
        app=FASTMCP
        + "class Mine(FastMCP):\n    def own(self):\n        return self.word\n\n"
        + "    def set(self):\n        self.word = 1\n\n\nmine = Mine('x')\nmine.own()\n",
    )
    assert notes_of(files["app"]) == ""


def test_the_tools_of_a_low_level_server_may_be_in_other_files(tmp_path: Path) -> None:
    files = migrated(
        tmp_path,
        tools="from mcp.types import Tool\n\nping = Tool(name='ping', inputSchema={'type': 'object'})\n",
        server=(
            "from mcp.server import Server\nimport tools\n\nserver = Server('low')\n\n\n@server.list_tools()\n"
            "async def list_tools():\n    return [tools.ping]\n\n\n@server.call_tool()\n"
            "async def call_tool(name, arguments):\n    return []\n"
        ),
    )
    assert "input_schema=" in source_of(files["tools"])
    assert '@server.request("tools/list")' in source_of(files["server"])
    assert '@server.request("tools/call")' in source_of(files["server"])


def test_a_program_that_can_not_be_rewritten_stays_as_it_is_as_a_whole(tmp_path: Path) -> None:
    sources = {
        "tools": "from mcp.types import Tool\n\nping = Tool(name='ping', inputSchema={'type': 'object'})\n",
        "server": "from mcp.server import Server\nimport tools\n\n\nclass Mine(Server):\n    pass\n",
        "other": FASTMCP + "mcp = FastMCP('other')\n",
    }
    files = migrated(tmp_path, **sources)
    assert files["tools"].source == sources["tools"]
    assert files["server"].source == sources["server"]
    assert "class Mine: derive from gemel.Server" in notes_of(files["server"])
    assert "stays as it is" in notes_of(files["tools"])
    assert "Server('other'" in source_of(files["other"])


def test_two_tools_of_one_name_do_what_the_library_does_with_them(tmp_path: Path) -> None:
    twice = "\n@mcp.tool()\ndef a(): ...\n\n@mcp.tool()\ndef a(): ...\n"
    files = migrated(
        tmp_path,
        one=FASTMCP + "mcp = FastMCP('a')\n" + twice,
        two="from mcp.server.fastmcp import FastMCP\nmcp = FastMCP('a')\n" + twice,
        three=FASTMCP + "mcp = FastMCP('a', on_duplicate='error')\n" + twice,
    )
    assert 'on_duplicate="replace"' in source_of(files["one"])
    assert 'on_duplicate="keep"' in source_of(files["two"])
    assert "on_duplicate" not in source_of(files["three"])
    assert any("the first one counts" in text for text in files["two"].kept)
