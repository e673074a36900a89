"""The page is part of the package, and nothing of `gemel dev` costs other commands time."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from gemel.dev.app import PAGE, read_page
from tests.dev.program import inspecting, target_of
from tests.programs import require
from tests.source import ROOT


def test_a_wheel_has_every_file_of_the_page(tmp_path: Path) -> None:
    """Of the folder everything is packed that the build tool packs of a package: check that nothing is ignored."""
    ignored = subprocess.run(
        [require("git"), "check-ignore", *(str(path) for path in (ROOT / "src/gemel/dev/page").glob("*"))],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert ignored.stdout == ""


def test_the_files_of_the_page_have_less_than_160_kb() -> None:
    """As they are written: there is no build that makes them smaller."""
    served = read_page(PAGE)
    assert len(served) > 10
    assert sum(len(data) for _, data in served.values()) < 160_000


def test_only_files_of_the_page_are_read(tmp_path: Path) -> None:
    for name in ("index.html", "main.js", "style.css", "notes.md", "main.py", ".hidden", "a.js.map"):
        (tmp_path / name).write_text(name)
    (tmp_path / "folder.js").mkdir()
    assert set(read_page(tmp_path)) == {"/", "/page/main.js", "/page/style.css"}
    assert read_page(tmp_path / "nothing") == {}


async def test_the_files_of_the_page_are_served_with_their_types() -> None:
    async with inspecting(target_of("http://127.0.0.1:9/mcp")) as program:
        for path, (kind, data) in read_page(PAGE).items():
            reply = await program.get(path)
            assert reply.status == 200
            assert reply.headers["content-type"] == kind
            assert reply.body == data


@pytest.mark.parametrize("module", ["gemel.cli.commands.run", "gemel.cli.commands.call", "gemel.cli.arguments.parser"])
def test_other_commands_import_nothing_of_it(module: str) -> None:
    code = f"import sys, {module}; print(*(name for name in sys.modules if name.startswith('gemel.dev')))"
    done = subprocess.run([sys.executable, "-I", "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == []
